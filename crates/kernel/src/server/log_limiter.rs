//! What the daemon logs, of which no user can make too much, and for which nobody waits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::log_writer::{LogWriter, Sink};
use crate::peer_cred::PeerCred;

/// The log.
#[derive(Debug)]
pub(super) struct LogLimiter {
    scribe: LogWriter,
    /// Nothing is said of clients.
    hushed: bool,
    /// What was to be said of each user of late.
    users: BTreeMap<u32, Said>,
}

#[derive(Debug)]
struct Said {
    /// Since when lines are counted.
    since: Instant,
    lines: u32,
}

impl LogLimiter {
    pub(super) fn new(sink: Sink) -> Self {
        Self {
            scribe: LogWriter::new(sink),
            hushed: false,
            users: BTreeMap::new(),
        }
    }

    /// Says nothing of clients from now on.
    pub(super) fn hush(&mut self) {
        self.hushed = true;
    }

    /// A line of whoever has the daemon.
    pub(super) fn announce(&mut self, line: impl Into<String>) {
        self.scribe.put(line.into());
    }

    /// A line that no user can bring about at will.
    pub(super) fn say(&mut self, line: impl Into<String>) {
        if !self.hushed {
            self.scribe.put(line.into());
        }
    }

    /// A line about a client, unless there are too many about its user.
    pub(super) fn tell(&mut self, peer: &PeerCred, what: &str, now: Instant) {
        self.sweep(now);
        let new = Said {
            since: now,
            lines: 0,
        };
        let said = self.users.entry(peer.user).or_insert(new);
        said.lines = said.lines.saturating_add(1);
        if said.lines <= MOST {
            self.say(format!("{peer} {what}"));
        }
    }

    /// Says how many lines were left out, where that is over.
    pub(super) fn sweep(&mut self, now: Instant) {
        self.scribe.catch_up();
        let over = |said: &Said| now.duration_since(said.since) >= SPAN;
        let past = self.users.extract_if(.., |_, said| over(said));
        let told: Vec<_> = past.filter(|(_, said)| said.lines > MOST).collect();
        for (user, said) in told {
            let left_out = said.lines - MOST;
            self.say(format!("user {user}: {left_out} more lines left out"));
        }
    }

    /// Whether lines were left out of which nothing was said yet.
    pub(super) fn any_left_out(&self) -> bool {
        self.scribe.is_behind() || self.users.values().any(|said| said.lines > MOST)
    }
}

/// LogLimiter about one user in this time.
const MOST: u32 = 20;
const SPAN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn lines_about_one_user_are_limited_and_counted() {
        let (say, heard) = mpsc::channel();
        let mut lines = LogLimiter::new(Box::new(move |l| say.send(l.to_owned()).unwrap()));
        let peer = |user| PeerCred {
            process: 1,
            user,
            groups: Vec::new(),
        };
        let start = Instant::now();
        for _ in 0..MOST + 5 {
            lines.tell(&peer(7), "connects", start);
        }
        lines.tell(&peer(8), "connects", start);
        assert!(lines.any_left_out());
        lines.sweep(start + SPAN);
        assert!(!lines.any_left_out());
        lines.hush();
        lines.tell(&peer(9), "connects", start);
        lines.say("full");
        lines.announce("ends");
        drop(lines);
        // Until the thread that writes has ended.
        let heard: Vec<String> = heard.iter().collect();
        assert_eq!(heard.len(), MOST as usize + 3);
        assert_eq!(heard[MOST as usize], "process 1 of user 8 connects");
        assert_eq!(heard[MOST as usize + 1], "user 7: 5 more lines left out");
        assert_eq!(heard[MOST as usize + 2], "ends");
    }
}
