//! What clients and the daemon say to each other: one JSON object per message, with the socket, or
//! the ring, handed over beside it.

use serde::{Deserialize, Serialize};

/// From a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// First of all: give me a ring.
    Open {
        /// Of this protocol.
        version: u32,
        /// Bytes that the ring should have.
        ring: u32,
    },
    /// Tell me what happens to the socket that comes along.
    Subscribe { events: u32, variables: u64 },
    /// Tell me other things.
    Change {
        id: u64,
        events: u32,
        variables: u64,
    },
    /// Tell me no more.
    Cancel { id: u64 },
    /// What became of this subscription's events?
    Tally { id: u64 },
    /// What was counted of the socket that comes along?
    Counters {},
}

/// From the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Reply {
    /// The ring comes along.
    Opened {
        /// Its bytes.
        ring: u32,
        /// What the policy lets this client have.
        events: u32,
        variables: u64,
    },
    /// It is so from now on.
    Subscribed { id: u64 },
    /// It is done.
    Done {},
    /// So many events, and so many of them dropped.
    Tally { events: u64, lost: u64 },
    /// Numbers and values of variables.
    Counters { values: Vec<(u8, u64)> },
    /// The policy allows this user nothing.
    Barred {},
    /// It is not done.
    Refused { why: String },
}

impl Request {
    /// As a message.
    pub(crate) fn message(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("requests are plain data")
    }
}

impl Reply {
    /// As a message.
    pub(crate) fn message(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("replies are plain data")
    }
}

/// Of the protocol and of records, which it includes. Both ends are of one build or of none.
pub(crate) const VERSION: u32 = 1;
/// Messages are shorter than this.
pub(crate) const LONGEST: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_lead_back() {
        let request = Request::Subscribe {
            events: 5,
            variables: u64::MAX,
        };
        assert_eq!(
            serde_json::from_slice::<Request>(&request.message()).unwrap(),
            request
        );
        let reply = Reply::Counters {
            values: vec![(30, 7), (31, u64::MAX)],
        };
        assert_eq!(
            serde_json::from_slice::<Reply>(&reply.message()).unwrap(),
            reply
        );
    }
}
