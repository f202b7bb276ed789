//! Anonymous network namespaces, and whether this process may create them.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::{fmt, io};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

mod availability;
mod veth;

pub use availability::{
    Availability, Missing, Step, availability, enter_user_namespace, user_namespaced,
};

/// A network namespace. It exists as long as a clone of this, or a socket or thread inside.
#[derive(Clone, Debug)]
pub struct Namespace {
    file: Arc<OwnedFd>,
}

impl Namespace {
    /// Creates a namespace with an active loopback interface only.
    ///
    /// # Errors
    ///
    /// Missing permission (see [`availability`]), or a kernel limit.
    pub fn new() -> Result<Self, NetnsError> {
        let make = || {
            unshare(UnshareFlags::NEWNET).map_err(NetnsError::Create)?;
            let file = File::open("/proc/thread-self/ns/net").map_err(NetnsError::Create)?;
            set_up("lo").map_err(|e| NetnsError::configure("lo", e))?;
            Ok(Self {
                file: Arc::new(file.into()),
            })
        };
        // A namespace belongs to a thread, so a temporary thread creates it.
        in_a_thread(make)
    }

    /// Runs `job` inside the namespace on a new thread, and waits for its result.
    ///
    /// # Errors
    ///
    /// The thread could not enter the namespace.
    pub fn within<T: Send>(&self, job: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        in_a_thread(|| {
            self.enter()?;
            Ok(job())
        })
    }

    /// Starts `job` inside the namespace on a new thread.
    ///
    /// # Errors
    ///
    /// The thread could not enter the namespace.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Worker<T>, NetnsError> {
        let namespace = self.clone();
        let (report, reported) = mpsc::sync_channel(1);
        let work = move || {
            let entered = namespace.enter();
            let inside = entered.is_ok();
            // The caller blocks on this message below.
            let _ = report.send(entered);
            inside.then(job)
        };
        let thread = thread::Builder::new()
            .spawn(work)
            .map_err(NetnsError::Thread)?;
        match reported.recv() {
            Ok(Ok(())) => Ok(Worker { thread }),
            Ok(Err(e)) => Err(e),
            Err(_) => Err(NetnsError::Enter(io::Error::other("the thread panicked"))),
        }
    }

    /// Sets address, MTU and queue length of an interface, and brings it up.
    ///
    /// # Errors
    ///
    /// The interface does not exist, or the kernel rejects a value.
    pub fn configure(&self, name: &str, interface: Interface) -> Result<(), NetnsError> {
        let error = |e| NetnsError::configure(name, e);
        self.within(|| interface.apply(name).map_err(error))?
    }

    /// Brings an interface up without an address.
    ///
    /// # Errors
    ///
    /// The interface does not exist.
    pub fn switch_on(&self, name: &str) -> Result<(), NetnsError> {
        let error = |e| NetnsError::configure(name, e);
        self.within(|| set_up(name).map_err(error))?
    }

    /// Number of packets dropped by the kernel at transmission because the queue was full.
    ///
    /// # Errors
    ///
    /// The interface does not exist.
    pub fn transmit_drops(&self, name: &str) -> Result<u64, NetnsError> {
        self.within(|| {
            let table = std::fs::read_to_string("/proc/thread-self/net/dev")
                .map_err(|e| NetnsError::configure(name, e))?;
            transmit_drops(&table, name).ok_or_else(|| {
                NetnsError::configure(name, io::Error::from(io::ErrorKind::NotFound))
            })
        })?
    }

    fn enter(&self) -> Result<(), NetnsError> {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|e| NetnsError::Enter(e.into()))
    }
}

/// A thread in a namespace.
#[derive(Debug)]
pub struct Worker<T> {
    thread: JoinHandle<Option<T>>,
}

impl<T> Worker<T> {
    /// Waits for the thread.
    ///
    /// # Errors
    ///
    /// The thread panicked; the error is its payload.
    pub fn join(self) -> thread::Result<T> {
        let result = self.thread.join()?;
        Ok(result.expect("a worker is made after its thread has entered"))
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Configuration of an IPv4 interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// IPv4 address.
    pub address: Ipv4Addr,
    /// Prefix length in bits, 0..=32.
    pub prefix: u8,
    /// MTU in bytes.
    pub mtu: u16,
    /// Transmit queue length in packets. In a user namespace the kernel ignores it: a TUN device
    /// keeps 500.
    pub queue: u16,
}

impl Interface {
    fn apply(self, name: &str) -> io::Result<()> {
        let socket = control_socket()?;
        let mask = u32::MAX
            .checked_shl(32 - u32::from(self.prefix))
            .unwrap_or(0);
        let ask =
            |command, value: &[u8]| InterfaceRequest::new(name, value)?.perform(&socket, command);
        ask(libc::SIOCSIFADDR, &address(self.address))?;
        ask(libc::SIOCSIFNETMASK, &address(Ipv4Addr::from_bits(mask)))?;
        ask(libc::SIOCSIFMTU, &i32::from(self.mtu).to_ne_bytes())?;
        let queue = ask(libc::SIOCSIFTXQLEN, &i32::from(self.queue).to_ne_bytes());
        match queue {
            // The kernel requires `CAP_NET_ADMIN` in the initial user namespace for this option
            // only.
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {}
            other => other?,
        }
        set_up(name)
    }
}

/// Error of a namespace operation.
#[derive(Debug)]
pub enum NetnsError {
    /// An interface rejects its configuration.
    Configure {
        /// Name of the interface.
        interface: String,
        /// Error of the system.
        cause: io::Error,
    },
    /// The namespace could not be created.
    Create(io::Error),
    /// A thread could not enter the namespace.
    Enter(io::Error),
    /// No thread could be created.
    Thread(io::Error),
    /// The process could not create a user namespace.
    UserNamespace(Missing),
}

impl NetnsError {
    fn configure(interface: &str, cause: io::Error) -> Self {
        Self::Configure {
            interface: interface.to_owned(),
            cause,
        }
    }
}

impl fmt::Display for NetnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configure { interface, cause } => {
                write!(f, "cannot configure interface `{interface}`: {cause}")
            }
            // unshare(2): the limit of namespaces is reached.
            Self::Create(e) if e.raw_os_error() == Some(libc::ENOSPC) => f.write_str(
                "no network namespace is left: raise the sysctl user.max_net_namespaces",
            ),
            Self::Create(e) if e.raw_os_error() == Some(libc::EMFILE) => f.write_str(
                "cannot create a network namespace: too many open files, raise ulimit -n",
            ),
            Self::Create(e) => write!(
                f,
                "cannot create a network namespace ({e}): run as root or in a user namespace"
            ),
            Self::Enter(e) => write!(f, "cannot enter the network namespace ({e})"),
            Self::Thread(e) => write!(
                f,
                "cannot create a thread for a network namespace ({e}): raise ulimit -u, or the \
                 limit of tasks of the container or service"
            ),
            Self::UserNamespace(missing) if missing.errno == libc::EINVAL => f.write_str(
                "cannot create a user namespace: enter it at the start of main, before any thread",
            ),
            Self::UserNamespace(missing) => missing.fmt(f),
        }
    }
}

impl std::error::Error for NetnsError {}

/// Converts the result of a system call that returns −1 on failure.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// `struct ifreq`: the name of an interface, and a value.
#[repr(C, align(8))]
pub(crate) struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    pub(crate) value: [u8; 24],
}

impl InterfaceRequest {
    pub(crate) fn new(name: &str, value: &[u8]) -> io::Result<Self> {
        let mut request = Self {
            name: [0; libc::IFNAMSIZ],
            value: [0; 24],
        };
        // The name ends with zero.
        if name.len() >= request.name.len() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        request.value[..value.len()].copy_from_slice(value);
        Ok(request)
    }

    /// Performs a request that takes this structure (netdevice(7)).
    pub(crate) fn perform(&mut self, fd: impl AsFd, command: libc::Ioctl) -> io::Result<()> {
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: the structure is at least as large as an ifreq, and its name ends with zero.
        check(unsafe { libc::ioctl(fd, command, std::ptr::from_mut(self)) }).map(drop)
    }
}

/// Moves this thread, or the process, into new namespaces.
fn unshare(namespaces: UnshareFlags) -> io::Result<()> {
    // SAFETY: the flags are those of namespaces, which share the table of descriptors.
    Ok(unsafe { unshare_unsafe(namespaces) }?)
}

fn in_a_thread<T: Send>(
    job: impl FnOnce() -> Result<T, NetnsError> + Send,
) -> Result<T, NetnsError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .spawn_scoped(scope, job)
            .map_err(NetnsError::Thread)?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

pub(crate) fn control_socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

fn set_up(name: &str) -> io::Result<()> {
    let flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    let mut request = InterfaceRequest::new(name, &flags.to_ne_bytes())?;
    request.perform(control_socket()?, libc::SIOCSIFFLAGS)
}

/// `struct sockaddr_in` without a port.
pub(crate) fn address(ip: Ipv4Addr) -> [u8; 16] {
    let mut address = [0; 16];
    let family = libc::AF_INET as libc::sa_family_t;
    address[..2].copy_from_slice(&family.to_ne_bytes());
    address[4..8].copy_from_slice(&ip.octets());
    address
}

/// Transmit drops from `/proc/net/dev`: after the name, eight receive counters, then transmitted
/// bytes, packets, errors and drops.
fn transmit_drops(table: &str, name: &str) -> Option<u64> {
    let rest = table.lines().find_map(|line| {
        let (interface, rest) = line.split_once(':')?;
        (interface.trim() == name).then_some(rest)
    })?;
    rest.split_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests;
