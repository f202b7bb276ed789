//! TCP configuration of a lab host: sysctls of its namespace, and socket options that must be set
//! before a connection.

use std::ffi::CStr;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;
use std::time::Duration;
use std::{fs, io};

use tidegate_core::units::Bytes;

use crate::netns::{Namespace, NetnsError, address, check, control_socket};
use crate::tun::TunError;

/// TCP settings of a namespace. Unset ones keep the kernel's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSysctls {
    /// Minimum RTO (`tcp_rto_min_us`, Linux 6.11 and later).
    pub min_rto: Option<Duration>,
    /// Disable selective acknowledgements (`tcp_sack`).
    pub no_sack: bool,
    /// Request and accept ECN (`tcp_ecn`).
    pub ecn: bool,
    /// Disable tail loss probes (`tcp_early_retrans`).
    pub no_tail_probes: bool,
}

impl TcpSysctls {
    /// Applies the settings to a namespace.
    ///
    /// # Errors
    /// The kernel lacks a setting, or the permission is missing.
    pub fn apply(&self, namespace: &Namespace) -> Result<(), TcpConfigError> {
        let mut settings = Vec::new();
        if let Some(span) = self.min_rto {
            settings.push(("tcp_rto_min_us", span.as_micros().to_string()));
        }
        if self.no_sack {
            settings.push(("tcp_sack", "0".to_owned()));
        }
        if self.ecn {
            settings.push(("tcp_ecn", "1".to_owned()));
        }
        if self.no_tail_probes {
            settings.push(("tcp_early_retrans", "0".to_owned()));
        }
        let write = || {
            settings.iter().try_for_each(|(name, value)| {
                let path = format!("/proc/sys/net/ipv4/{name}");
                fs::write(path, value).map_err(|cause| TcpConfigError::Setting { name, cause })
            })
        };
        namespace.within(write).map_err(TcpConfigError::Namespace)?
    }
}

/// Socket options of a receiver, set before the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverOptions {
    /// Maximum advertised window (`TCP_WINDOW_CLAMP`).
    pub window: Option<Bytes>,
    /// Maximum packet size, including 40 bytes of headers (`TCP_MAXSEG`).
    pub packet: Option<Bytes>,
}

/// Listens at an address of the namespace of the calling thread.
///
/// # Errors
/// The address is in use, or the kernel rejects an option.
pub fn listen(
    address: SocketAddrV4,
    limits: ReceiverOptions,
) -> Result<TcpListener, TcpConfigError> {
    let listener =
        TcpListener::bind(address).map_err(|cause| TcpConfigError::Listen { address, cause })?;
    let set = |name, option, value: u64| {
        let value = libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX);
        // SAFETY: reads the bytes of `value`.
        let done = check(unsafe {
            libc::setsockopt(
                listener.as_raw_fd(),
                libc::IPPROTO_TCP,
                option,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            )
        });
        done.map(drop)
            .map_err(|cause| TcpConfigError::Setting { name, cause })
    };
    if let Some(window) = limits.window {
        set("TCP_WINDOW_CLAMP", libc::TCP_WINDOW_CLAMP, window.get())?;
    }
    if let Some(packet) = limits.packet {
        let most = packet.get().saturating_sub(HEADERS);
        set("TCP_MAXSEG", libc::TCP_MAXSEG, most)?;
    }
    Ok(listener)
}

/// Adds or removes a route of a namespace through a device.
pub(crate) fn set_route(
    namespace: &Namespace,
    (network, mask): (Ipv4Addr, Ipv4Addr),
    device: &CStr,
    on: bool,
) -> Result<(), TcpConfigError> {
    let change = || -> io::Result<()> {
        let socket = control_socket()?;
        let entry = RouteEntry {
            destination: address(network),
            mask: address(mask),
            flags: libc::RTF_UP,
            device: NonNull::new(device.as_ptr().cast_mut()),
            ..RouteEntry::default()
        };
        let request = if on { libc::SIOCADDRT } else { libc::SIOCDELRT };
        // SAFETY: `entry` is initialised, and the name of the device outlives the call.
        check(unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw const entry) }).map(drop)
    };
    let changed = namespace
        .within(change)
        .map_err(TcpConfigError::Namespace)?;
    changed.map_err(TcpConfigError::Route)
}

/// `struct rtentry` of the kernel's `include/uapi/linux/route.h`.
#[repr(C)]
#[derive(Default)]
struct RouteEntry {
    pad1: libc::c_ulong,
    destination: [u8; 16],
    gateway: [u8; 16],
    mask: [u8; 16],
    flags: libc::c_ushort,
    pad2: libc::c_short,
    pad3: libc::c_ulong,
    pad4: usize,
    metric: libc::c_short,
    device: Option<NonNull<libc::c_char>>,
    mtu: libc::c_ulong,
    window: libc::c_ulong,
    irtt: libc::c_ushort,
}

/// Error of the TCP configuration of a host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TcpConfigError {
    /// A device failed.
    #[error("{0}; have the link cut instead")]
    Device(TunError),
    /// The port cannot be opened.
    #[error("cannot listen at {address}: {cause}")]
    Listen {
        /// Address of the listener.
        address: SocketAddrV4,
        /// Error of the system.
        cause: io::Error,
    },
    /// A namespace operation failed.
    #[error("{0}")]
    Namespace(NetnsError),
    /// A route cannot be added or removed.
    #[error("the route of a host cannot be changed: {0}; have the link cut instead")]
    Route(io::Error),
    /// A setting or an option is rejected.
    #[error(
        "this kernel rejects {name}: {cause}; omit the option that sets it, or run in the simulator"
    )]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// Error of the system.
        cause: io::Error,
    },
}

/// IPv4 and TCP headers without options; the kernel subtracts options from the payload.
const HEADERS: u64 = 40;
