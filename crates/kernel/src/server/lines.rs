//! What the daemon logs, of which no user can make too much.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use crate::peer::Peer;

/// The log.
pub(super) struct Lines {
    sink: Box<dyn FnMut(&str) + Send>,
    /// What was to be said of each user of late.
    users: BTreeMap<u32, Said>,
}

#[derive(Debug)]
struct Said {
    /// Since when lines are counted.
    since: Instant,
    lines: u32,
}

impl Lines {
    pub(super) fn new(sink: Box<dyn FnMut(&str) + Send>) -> Self {
        Self {
            sink,
            users: BTreeMap::new(),
        }
    }

    /// A line that no user can bring about at will.
    pub(super) fn say(&mut self, line: &str) {
        (self.sink)(line);
    }

    /// A line about a client, unless there are too many about its user.
    pub(super) fn tell(&mut self, peer: &Peer, what: &str, now: Instant) {
        self.sweep(now);
        let new = Said {
            since: now,
            lines: 0,
        };
        let said = self.users.entry(peer.user).or_insert(new);
        said.lines = said.lines.saturating_add(1);
        if said.lines <= MOST {
            (self.sink)(&format!("{peer} {what}"));
        }
    }

    /// Says how many lines were left out, where that is over.
    pub(super) fn sweep(&mut self, now: Instant) {
        let sink = &mut self.sink;
        self.users.retain(|user, said| {
            let over = now.duration_since(said.since) >= SPAN;
            if over && said.lines > MOST {
                let left_out = said.lines - MOST;
                sink(&format!("user {user}: {left_out} more lines left out"));
            }
            !over
        });
    }

    /// Whether lines were left out of which nothing was said yet.
    pub(super) fn any_left_out(&self) -> bool {
        self.users.values().any(|said| said.lines > MOST)
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("users", &self.users)
            .finish_non_exhaustive()
    }
}

/// Lines about one user in this time.
const MOST: u32 = 20;
const SPAN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn lines_about_one_user_are_limited_and_counted() {
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let its = Arc::clone(&heard);
        let mut lines = Lines::new(Box::new(move |l| its.lock().unwrap().push(l.to_owned())));
        let peer = |user| Peer {
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
        let heard = heard.lock().unwrap();
        assert_eq!(heard.len(), MOST as usize + 2);
        assert_eq!(heard[MOST as usize], "process 1 of user 8 connects");
        assert_eq!(heard[MOST as usize + 1], "user 7: 5 more lines left out");
    }
}
