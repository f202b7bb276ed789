//! Propagation.

use core::time::Duration;
use std::collections::VecDeque;

use super::{Packet, Stage};
use crate::units::Time;

/// A wire: what goes in comes out later, in the same order.
#[derive(Debug)]
pub struct Delay<P> {
    delay: Duration,
    inside: VecDeque<(Time, P)>,
}

impl<P> Delay<P> {
    /// An empty wire of this length.
    pub fn new(delay: Duration) -> Self {
        Self {
            delay,
            inside: VecDeque::new(),
        }
    }

    /// How long it takes.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// How many packets are on the way.
    pub fn len(&self) -> usize {
        self.inside.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.inside.is_empty()
    }
}

impl<P: Packet + Send> Stage<P> for Delay<P> {
    fn push(&mut self, at: Time, packet: P) {
        self.inside.push_back((at + self.delay, packet));
    }

    fn pop(&mut self, now: Time) -> Option<(Time, P)> {
        self.inside.pop_front_if(|(at, _)| *at <= now)
    }

    fn next_departure(&self) -> Option<Time> {
        self.inside.front().map(|(at, _)| *at)
    }
}
