//! The protocol of clients and daemon: one JSON object per message, with a socket or a ring as its
//! descriptor.

use serde::{Deserialize, Serialize};

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// The first request: opens a ring.
    Open {
        /// Version of the protocol.
        version: u32,
        /// Size of the ring in bytes.
        ring: u32,
    },
    /// Subscribes to events of the socket of the message.
    Subscribe { events: u32, variables: u64 },
    /// Changes a subscription.
    Change {
        id: u64,
        events: u32,
        variables: u64,
    },
    /// Cancels a subscription.
    Cancel { id: u64 },
    /// Reads the tally of a subscription.
    Tally { id: u64 },
    /// Reads the counters of the socket of the message.
    Counters {},
}

/// A reply of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Reply {
    /// The ring, which is the descriptor of the message.
    Opened {
        /// Its size in bytes.
        ring: u32,
        /// The events that the policy allows.
        events: u32,
        variables: u64,
    },
    /// The new subscription.
    Subscribed { id: u64 },
    /// The request is done.
    Done {},
    /// Numbers of events and of dropped events.
    Tally { events: u64, lost: u64 },
    /// Variables with their values.
    Counters { values: Vec<(u8, u64)> },
    /// The policy allows this user nothing.
    Barred {},
    /// The request is refused.
    Refused { why: String },
}

impl Request {
    /// The text of the message.
    pub(crate) fn message(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("requests are plain data")
    }
}

impl Reply {
    /// The text of the message.
    pub(crate) fn message(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("replies are plain data")
    }
}

/// Version of the protocol and of the records. Both ends have to be of the same build.
pub(crate) const VERSION: u32 = 1;
/// Upper bound of the length of a message.
pub(crate) const LONGEST: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_parsed_as_written() {
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
