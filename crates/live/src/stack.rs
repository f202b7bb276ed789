//! The TCP of a host of the lab: what its namespace is set to, and sockets with options that have
//! to be there before a connection.

use std::net::{SocketAddrV4, TcpListener};
use std::os::fd::AsRawFd as _;
use std::time::Duration;
use std::{fmt, fs, io};

use tidegate_core::units::Bytes;

use crate::netns::{Namespace, NetnsError, check};

/// What all connections of a namespace have in common. What is not said stays as the kernel has
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// The shortest retransmission time-out (`tcp_rto_min_us`, Linux 6.11 and later).
    pub min_rto: Option<Duration>,
    /// Without selective acknowledgements (`tcp_sack`).
    pub no_sack: bool,
    /// Connections ask for ECN and grant it (`tcp_ecn`).
    pub ecn: bool,
}

impl Stack {
    /// Sets the namespace so.
    ///
    /// # Errors
    /// This kernel has no such setting, or does not let us.
    pub fn apply(&self, namespace: &Namespace) -> Result<(), StackError> {
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
        let write = || {
            settings.iter().try_for_each(|(name, value)| {
                let path = format!("/proc/sys/net/ipv4/{name}");
                fs::write(path, value).map_err(|cause| StackError::Setting { name, cause })
            })
        };
        namespace.within(write).map_err(StackError::Namespace)?
    }
}

/// What the receiver of a connection asks for before there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The largest window that it offers (`TCP_WINDOW_CLAMP`).
    pub window: Option<Bytes>,
    /// The largest packet that it takes, with headers of 40 bytes (`TCP_MAXSEG`).
    pub packet: Option<Bytes>,
}

/// Waits for connections at an address of the namespace that the calling thread is in.
///
/// # Errors
/// The address is taken, or the kernel refuses an option.
pub fn listen(address: SocketAddrV4, limits: Limits) -> Result<TcpListener, StackError> {
    let listener =
        TcpListener::bind(address).map_err(|cause| StackError::Listen { address, cause })?;
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
            .map_err(|cause| StackError::Setting { name, cause })
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

/// Why a host's TCP is not as it should be.
#[derive(Debug)]
#[non_exhaustive]
pub enum StackError {
    /// The port.
    Listen {
        /// Where.
        address: SocketAddrV4,
        /// The reason.
        cause: io::Error,
    },
    /// The namespace.
    Namespace(NetnsError),
    /// A setting or an option.
    Setting {
        /// Its name.
        name: &'static str,
        /// The reason.
        cause: io::Error,
    },
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, cause } => write!(f, "nobody can listen at {address}: {cause}"),
            Self::Namespace(e) => e.fmt(f),
            Self::Setting { name, cause } => write!(
                f,
                "this kernel does not take {name}: {cause}; leave out what asks for it, or play in \
                 the simulator"
            ),
        }
    }
}

/// What the system says is part of the message.
impl std::error::Error for StackError {}

/// Of IPv4 and TCP, without options, which the kernel takes from the payload.
const HEADERS: u64 = 40;
