//! Errors of kernels that are too old or lack a feature.

use aya::Endianness;
use aya::sys::SyscallError;

use super::*;

/// An old kernel, or one without a feature, fails with various error numbers.
#[test]
fn missing_kernel_features_are_reported_with_the_fix() {
    let refused = |what: &str, number| super::refused(what, io::Error::from_raw_os_error(number));
    let newer = "Linux 6.1 or newer";
    for (error, words) in [
        (
            LoadError::NoField("if (!sk->sk_bpf_storage)".into()),
            ["no field for `if (!sk->sk_bpf_storage)`", newer],
        ),
        (
            LoadError::NoTracepoint("tcp_probe"),
            ["tracepoint tcp_probe", newer],
        ),
        (
            LoadError::NoTypes(io::Error::from_raw_os_error(libc::ENOENT)),
            [TYPES, "CONFIG_DEBUG_INFO_BTF=y"],
        ),
        // Before 5.8 there were no ring buffers.
        (
            refused("a ring buffer", libc::EINVAL),
            ["a ring buffer", newer],
        ),
        (
            refused("the map tg_memory", libc::EINVAL),
            [newer, "CONFIG_NET"],
        ),
        (
            refused("the program for tcp_probe", libc::E2BIG),
            [newer, "CONFIG_BPF_EVENTS"],
        ),
        (
            refused("the link to tcp_probe", 524),
            [newer, "CONFIG_BPF_EVENTS"],
        ),
        (
            refused("a ring buffer", libc::ENOSYS),
            ["a ring buffer", "CONFIG_BPF_SYSCALL=y"],
        ),
        (
            refused("the map tg_table", libc::ENOMEM),
            ["tg_table", "limits.subscriptions"],
        ),
        (
            refused("the map tg_table", libc::EPERM),
            ["tg_table", "CAP_BPF and CAP_PERFMON"],
        ),
        (
            refused("the map tg_table", libc::EBUSY),
            ["tg_table", "uname -r"],
        ),
    ] {
        let text = error.to_string();
        for word in words {
            assert!(text.contains(word), "no `{word}` in: {text}");
        }
    }
}

#[test]
fn unreadable_types_are_reported_with_the_fix() {
    for bytes in [&b"no BTF at all"[..], &[0x9f, 0xeb, 1, 0, 24, 0, 0, 0]] {
        let error = Btf::parse(bytes, Endianness::default()).unwrap_err();
        let message = no_types(error).to_string();
        for part in [TYPES, "cannot be read: ", "use the unprivileged mode"] {
            assert!(message.contains(part), "no \"{part}\" in {message}");
        }
    }
}

/// A shortage of descriptors can occur at any step of `aya`.
#[test]
fn a_lack_of_descriptors_is_found_within_any_error() {
    let emfile = || io::Error::from_raw_os_error(libc::EMFILE);
    let map = MapError::CreateError {
        name: "tg_table".into(),
        io_error: emfile(),
    };
    let errors: [Box<dyn Error>; 2] = [
        Box::new(EbpfError::MapError(map)),
        Box::new(ProgramError::SyscallError(SyscallError {
            call: "bpf_raw_tracepoint_open",
            io_error: emfile(),
        })),
    ];
    for error in errors {
        let error = failed("it", &*error);
        assert!(matches!(error, LoadError::NoDescriptor(_)), "{error}");
    }
    let file = BtfError::FileError {
        path: TYPES.into(),
        error: emfile(),
    };
    assert!(matches!(no_types(file), LoadError::NoDescriptor(_)));
}
