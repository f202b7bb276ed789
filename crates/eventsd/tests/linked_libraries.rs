//! The daemon links the C library only: no FFmpeg, libx264 or other code that a privileged process
//! does not need.

use std::process::Command;

#[test]
fn the_program_links_the_c_library_only() {
    let listed = Command::new("ldd")
        .arg(env!("CARGO_BIN_EXE_tidegate-eventsd"))
        .output()
        .expect("ldd, which is part of the C library's tools");
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.status.success(), "{text}");
    // Parts of the C library (before glibc 2.34 some are separate), the unwinder of Rust, the
    // loader, and the kernel's page.
    let known = [
        "libc.",
        "libm.",
        "libdl.",
        "libpthread.",
        "librt.",
        "libgcc_s.",
        "ld-",
        "linux-vdso.",
    ];
    for line in text.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let name = name.rsplit('/').next().unwrap_or_default();
        assert!(
            known.iter().any(|k| name.starts_with(k)),
            "{name} in:\n{text}"
        );
    }
    assert!(text.contains("libc."), "{text}");
}
