//! TUN devices: exchange of IP packets with the kernel.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::{fmt, io};

use crate::netns::{Namespace, NetnsError, check, request};

/// A non-blocking TUN device. Dropping it removes the device.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
}

impl Tun {
    /// Creates the device `name` in a namespace. The device is down until configured.
    ///
    /// # Errors
    ///
    /// See [`availability`](crate::netns::availability) for missing prerequisites.
    pub fn open(namespace: &Namespace, name: &str) -> Result<Self, TunError> {
        let open = || {
            let fd = open_device()?;
            attach(&fd, name)?;
            Ok(Self { fd })
        };
        namespace
            .within(open)
            .map_err(TunError::Namespace)?
            .map_err(|cause| TunError::Device {
                name: name.to_owned(),
                cause,
            })
    }

    /// Reads the next packet transmitted by the kernel, truncated to `buffer`; `None` if there is
    /// none.
    ///
    /// # Errors
    ///
    /// The device is down or removed.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        // SAFETY: writes at most `buffer.len()` bytes to `buffer`.
        let n = unsafe {
            libc::read(
                self.fd.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
            )
        };
        match usize::try_from(n) {
            Ok(n) => Ok(Some(n)),
            Err(_) => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
                e => Err(e),
            },
        }
    }

    /// Injects a packet into the kernel.
    ///
    /// # Errors
    ///
    /// The packet is not an IP packet, the device is down, or memory is exhausted.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        // SAFETY: reads `packet.len()` bytes from `packet`.
        let n = unsafe { libc::write(self.fd.as_raw_fd(), packet.as_ptr().cast(), packet.len()) };
        if n < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Error of a TUN device.
#[derive(Debug)]
pub enum TunError {
    /// The kernel did not create the device.
    Device {
        /// Name of the device.
        name: String,
        /// Error of the system.
        cause: io::Error,
    },
    /// The namespace could not be entered.
    Namespace(NetnsError),
}

impl fmt::Display for TunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { name, cause } => write!(
                f,
                "no TUN device `{name}` ({cause}): it needs /dev/net/tun and CAP_NET_ADMIN"
            ),
            Self::Namespace(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for TunError {}

/// Restricted to a system call: used between fork and exec.
pub(crate) fn open_device() -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: the path is NUL-terminated.
    let fd = check(unsafe { libc::open(c"/dev/net/tun".as_ptr(), flags) })?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Restricted to a system call: used between fork and exec.
pub(crate) fn attach(fd: &OwnedFd, name: &str) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: `request` is an initialised ifreq with a NUL-terminated name.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) }).map(drop)
}
