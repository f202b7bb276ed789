//! TUN devices: exchange of IP packets with the kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::netns::{InterfaceRequest, Namespace, NetnsError};

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
        match rustix::io::read(&self.fd, buffer) {
            Ok(length) => Ok(Some(length)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Injects a packet into the kernel.
    ///
    /// # Errors
    ///
    /// The packet is not an IP packet, the device is down, or memory is exhausted.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.fd, packet)?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Error of a TUN device.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// The kernel did not create the device.
    #[error("no TUN device `{name}` ({cause}): it needs /dev/net/tun and CAP_NET_ADMIN")]
    Device {
        /// Name of the device.
        name: String,
        /// Error of the system.
        cause: io::Error,
    },
    /// The namespace could not be entered.
    #[error("{0}")]
    Namespace(NetnsError),
}

/// Restricted to a system call: used between fork and exec.
pub(crate) fn open_device() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(open(c"/dev/net/tun", flags, Mode::empty())?)
}

/// Restricted to a system call: used between fork and exec.
pub(crate) fn attach(fd: &OwnedFd, name: &str) -> io::Result<()> {
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    let mut request = InterfaceRequest::new(name, &flags.to_ne_bytes())?;
    request.perform(fd, libc::TUNSETIFF)
}
