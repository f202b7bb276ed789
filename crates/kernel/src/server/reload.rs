//! Reads the policy again while the daemon serves.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::Server;
use crate::peer_cred::effective_user;
use crate::policy::{Limits, Policy};
use crate::system;

/// The policy file, and the descriptor that asks for it to be read.
#[derive(Debug)]
pub(super) struct PolicySource {
    signals: OwnedFd,
    /// `None` if the policy is not from a file.
    path: Option<PathBuf>,
    /// The user that started the daemon, who may own the file.
    owner: u32,
}

impl PolicySource {
    pub(super) fn signals(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// Reads what `signals` has, so that it is readable at the next signal only.
    fn acknowledge(&self) {
        // The size of a `signalfd_siginfo`.
        let mut signal = [0_u8; 128];
        // It fails if another thread has read it.
        let _ = rustix::io::read(&self.signals, &mut signal);
    }
}

impl Server {
    /// Reads the policy again from `path` whenever `signals` (as from
    /// [`hangups`](super::hangups)) is readable. Without a path a line of the log says that there
    /// is no policy to read. To be called before [`Self::drop_privileges`]: the file has to belong
    /// to root or to the user of this process at this time.
    ///
    /// A valid policy applies to all clients from then on. Standing subscriptions keep what it
    /// allows and lose the rest; clients that it allows nothing are disconnected. The limits of all
    /// clients and of all subscriptions keep their values, because they are sizes of kernel maps.
    /// An invalid or unreadable policy changes nothing. Both have a line in the log.
    pub fn reload_policy_on(&mut self, signals: OwnedFd, path: Option<&Path>) {
        self.policy = Some(PolicySource {
            signals,
            path: path.map(Into::into),
            owner: effective_user(),
        });
    }

    pub(super) fn reload(&mut self) {
        let Some(source) = &self.policy else { return };
        source.acknowledge();
        let Some(path) = &source.path else {
            return self.announce(
                "SIGHUP: there is no policy file to read again: only root may subscribe",
            );
        };
        match Policy::load_of(path, source.owner) {
            Ok(policy) => {
                let line = format!("the policy {} is read again and applies", path.display());
                self.announce(&line);
                self.apply(policy);
            }
            Err(e) => self.announce(&format!("the policy is unchanged: {e}")),
        }
    }

    /// Applies a new policy to all clients.
    pub(super) fn apply(&mut self, policy: Policy) {
        for note in policy.notes() {
            (self.shared.log)(&format!("policy: {note}"));
        }
        let (old, new) = (self.shared.policy.limits(), policy.limits());
        let fixed = Limits {
            clients: old.clients,
            subscriptions: old.subscriptions,
            ..new
        };
        if fixed != new {
            self.announce(
                "limits.clients and limits.subscriptions keep their values until the daemon is started again",
            );
        }
        // With a lower limit the server accepts fewer clients.
        let _ = system::allow_descriptors(super::descriptors(fixed));
        self.shared.policy = policy.with_limits(fixed);
        let mut barred = Vec::new();
        for (&number, client) in &mut self.clients {
            if !client.apply(&self.shared.policy, &self.shared.monitor) {
                barred.push(number);
            }
        }
        for number in barred {
            self.dismiss(number, "the new policy allows this user nothing");
        }
    }
}
