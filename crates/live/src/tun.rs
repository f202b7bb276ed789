//! TUN devices: IP packets of the kernel, in user space.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::{fmt, io};

use crate::netns::{Namespace, NetnsError, check, request};

/// A TUN device, there as long as this is. Nothing here blocks.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
}

impl Tun {
    /// Makes the device `name` in a namespace. It is down until it is configured.
    ///
    /// # Errors
    ///
    /// See [`availability`](crate::netns::availability) for what may be missing.
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

    /// Takes the next packet that the kernel sends out through the device; `None` if there is
    /// none now. What does not fit into `buffer` is cut off.
    ///
    /// # Errors
    ///
    /// The device is down or gone.
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

    /// Lets the kernel receive a packet through the device.
    ///
    /// # Errors
    ///
    /// It is no IP packet, the device is down, or memory is short.
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

/// Why there is no TUN device.
#[derive(Debug)]
pub enum TunError {
    /// The kernel did not make it.
    Device {
        /// Its name.
        name: String,
        /// Why.
        cause: io::Error,
    },
    /// Its namespace could not be entered.
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

/// Only a system call: it is used between fork and exec.
pub(crate) fn open_device() -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: the path ends in zero.
    let fd = check(unsafe { libc::open(c"/dev/net/tun".as_ptr(), flags) })?;
    // SAFETY: the kernel has just made it and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Only a system call: it is used between fork and exec.
pub(crate) fn attach(fd: &OwnedFd, name: &str) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: `request` is a whole ifreq with a name that ends in zero.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) }).map(drop)
}
