//! A panic of a stream ends this stream only.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tidegate_core::control::Context;
use tidegate_core::endpoint::{Check, Endpoint, Input, Output};

/// An endpoint that is over after a panic. The streams of other clients run on the same thread.
#[derive(Debug)]
pub(super) struct Contained<E> {
    /// `None` after a panic: the state may be inconsistent.
    endpoint: Option<E>,
}

impl<E> Contained<E> {
    pub(super) fn new(endpoint: E) -> Self {
        Self {
            endpoint: Some(endpoint),
        }
    }

    /// Runs `part` with the endpoint; `None` after a panic in this part or an earlier one.
    pub(super) fn run<T>(&mut self, part: impl FnOnce(&mut E) -> T) -> Option<T> {
        let endpoint = self.endpoint.as_mut()?;
        let result = catch_unwind(AssertUnwindSafe(|| part(endpoint)));
        if result.is_err() {
            self.endpoint = None;
        }
        result.ok()
    }

    /// The endpoint, unless it has panicked.
    pub(super) fn into_inner(self) -> Option<E> {
        self.endpoint
    }
}

impl<E: Endpoint> Endpoint for Contained<E> {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        let handled = self.run(|endpoint| endpoint.handle(cx, input));
        handled.unwrap_or_default()
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        let polled = self.run(|endpoint| endpoint.poll(cx, buffer));
        polled.unwrap_or_else(|| {
            buffer.clear();
            Output::Done(None)
        })
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::control::TimerReason;
    use tidegate_core::random::Seed;
    use tidegate_core::units::Time;

    use super::*;

    /// Panics in a poll from its third timeout on.
    #[derive(Debug, Default)]
    struct Failing(u32);

    impl Endpoint for Failing {
        fn handle(&mut self, _: &mut Context<'_>, _: Input<'_>) -> Check {
            self.0 += 1;
            Check::believed(true)
        }

        fn poll(&mut self, _: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
            buffer.push(1);
            assert!(self.0 < 3, "a panic of the test");
            Output::Wait(Some((Time::ZERO, TimerReason::Schedule)))
        }
    }

    #[test]
    fn endpoint_is_over_after_a_panic() {
        let mut rng = Seed(1).stream("contained");
        let mut cx = Context {
            now: Time::ZERO,
            rng: &mut rng,
            trace: &mut (),
        };
        let mut endpoint = Contained::new(Failing::default());
        let mut buffer = Vec::new();
        for _ in 0..2 {
            assert!(endpoint.handle(&mut cx, Input::Timeout).is_believed);
            assert!(!endpoint.poll(&mut cx, &mut buffer).is_done());
        }
        assert_eq!(endpoint.run(|failing| failing.0), Some(2));
        endpoint.handle(&mut cx, Input::Timeout);
        // No datagram of the failed poll is left.
        assert_eq!(endpoint.poll(&mut cx, &mut buffer), Output::Done(None));
        assert!(buffer.is_empty());
        assert_eq!(endpoint.run(|failing| failing.0), None);
        assert!(!endpoint.handle(&mut cx, Input::Timeout).is_believed);
        assert!(endpoint.into_inner().is_none());
    }
}
