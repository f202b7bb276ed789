//! The log of the daemon, with a limit of lines per user and second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::log_writer::{LogWriter, Sink};
use crate::peer_cred::PeerCred;

/// The log.
#[derive(Debug)]
pub(super) struct LogLimiter {
    writer: LogWriter,
    /// Whether lines about clients are suppressed.
    quiet: bool,
    /// Lines about each user in the present interval.
    users: BTreeMap<u32, Count>,
}

#[derive(Debug)]
struct Count {
    since: Instant,
    lines: u32,
}

impl LogLimiter {
    pub(super) fn new(sink: Sink) -> Self {
        Self {
            writer: LogWriter::new(sink),
            quiet: false,
            users: BTreeMap::new(),
        }
    }

    /// Suppresses lines about clients from now on.
    pub(super) fn set_quiet(&mut self) {
        self.quiet = true;
    }

    /// Logs a line of the operator.
    pub(super) fn announce(&mut self, line: impl Into<String>) {
        self.writer.write(line.into());
    }

    /// Logs a line about clients that no user can repeat at will.
    pub(super) fn log(&mut self, line: impl Into<String>) {
        if !self.quiet {
            self.writer.write(line.into());
        }
    }

    /// Logs a line about a client, up to the limit of its user.
    pub(super) fn log_client(&mut self, peer: &PeerCred, what: &str, now: Instant) {
        self.sweep(now);
        let new = Count {
            since: now,
            lines: 0,
        };
        let count = self.users.entry(peer.user).or_insert(new);
        count.lines = count.lines.saturating_add(1);
        if count.lines <= LIMIT {
            self.log(format!("{peer} {what}"));
        }
    }

    /// Logs the number of suppressed lines of each user whose interval is over.
    pub(super) fn sweep(&mut self, now: Instant) {
        self.writer.report_dropped();
        let over = |count: &Count| now.duration_since(count.since) >= INTERVAL;
        let over: Vec<_> = self.users.extract_if(.., |_, count| over(count)).collect();
        for (user, count) in over.iter().filter(|(_, count)| count.lines > LIMIT) {
            let suppressed = count.lines - LIMIT;
            self.log(format!("user {user}: {suppressed} more lines suppressed"));
        }
    }

    /// Whether the number of suppressed or dropped lines is still to be logged.
    pub(super) fn is_behind(&self) -> bool {
        self.writer.has_dropped() || self.users.values().any(|count| count.lines > LIMIT)
    }
}

/// Lines about one user in [`INTERVAL`].
const LIMIT: u32 = 20;
const INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn lines_about_one_user_are_limited_and_counted() {
        let (sender, lines) = mpsc::channel();
        let sink = move |line: &str| sender.send(line.to_owned()).unwrap();
        let mut log = LogLimiter::new(Box::new(sink));
        let peer = |user| PeerCred {
            process: 1,
            user,
            groups: Vec::new(),
        };
        let start = Instant::now();
        for _ in 0..LIMIT + 5 {
            log.log_client(&peer(7), "connects", start);
        }
        log.log_client(&peer(8), "connects", start);
        assert!(log.is_behind());
        log.sweep(start + INTERVAL);
        assert!(!log.is_behind());
        log.set_quiet();
        log.log_client(&peer(9), "connects", start);
        log.log("full");
        log.announce("ends");
        drop(log);
        // The channel ends with the thread that writes.
        let lines: Vec<String> = lines.iter().collect();
        assert_eq!(lines.len(), LIMIT as usize + 3);
        assert_eq!(lines[LIMIT as usize], "process 1 of user 8 connects");
        assert_eq!(lines[LIMIT as usize + 1], "user 7: 5 more lines suppressed");
        assert_eq!(lines[LIMIT as usize + 2], "ends");
    }
}
