//! The media of peers that send video: frames at the controller's target, cut into payloads.

use tidegate_core::units::{Rate, Time};

use crate::call::Call;

/// An encoder that always makes what it is asked for.
#[derive(Clone, Debug)]
pub struct Source {
    call: Call,
    frame: u64,
}

/// An encoded picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Of RTP, in units of 1/90000 s from the start of the call.
    pub timestamp: u32,
    /// The sizes of its payloads, at least one, the last of which ends it.
    pub payloads: Vec<usize>,
}

impl Source {
    /// The first frame is captured when the call starts.
    pub fn new(call: &Call) -> Self {
        let mut source = Self {
            call: call.clone(),
            frame: 0,
        };
        source.resume();
        source
    }

    /// When the next frame is captured.
    pub fn next(&self) -> Time {
        self.at(self.frame)
    }

    /// The next frame at `target`, if `now` is its time.
    pub fn poll(&mut self, now: Time, target: Rate) -> Option<Frame> {
        let captured = self.next();
        if now < captured {
            return None;
        }
        self.frame += 1;
        let end = self.next();
        self.resume();
        let rate = target.clamp(self.call.floor, self.call.ceiling);
        let bytes = rate * end.since(captured);
        let mut left = bytes.get().max(1) as usize;
        let mut payloads = Vec::with_capacity(left.div_ceil(PAYLOAD));
        while left > 0 {
            let payload = left.min(PAYLOAD);
            payloads.push(payload);
            left -= payload;
        }
        let elapsed = captured.since(self.call.start).as_nanos();
        Some(Frame {
            timestamp: (elapsed * 90_000 / 1_000_000_000) as u32,
            payloads,
        })
    }

    /// Passes over the frames of a pause.
    fn resume(&mut self) {
        while let Some(end) = self.call.resumes(self.next()) {
            while self.next() < end {
                self.frame += 1;
            }
        }
    }

    fn at(&self, frame: u64) -> Time {
        self.call.start + self.call.frame_rate.at(frame)
    }
}

/// With the headers of IP, UDP, RTP, its extensions and what SRTP appends, at most 1200 bytes.
const PAYLOAD: usize = 1_130;

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use tidegate_core::media::FrameRate;

    use super::*;

    fn call() -> Call {
        Call {
            start: Time::from_secs(5),
            ecn: false,
            frame_rate: FrameRate::fps(25),
            floor: Rate::kbps(200),
            ceiling: Rate::kbps(2_000),
            first_rate: Rate::kbps(300),
            pauses: vec![(Time::from_millis(5_100), Time::from_millis(5_210))],
            delays: (Duration::ZERO, Duration::ZERO),
            seed: 1,
        }
    }

    #[test]
    fn frames_come_in_time_and_hold_what_the_target_gives() {
        let mut source = Source::new(&call());
        assert_eq!(source.poll(Time::from_millis(4_999), Rate::kbps(800)), None);
        let frame = source.poll(Time::from_secs(5), Rate::kbps(800)).unwrap();
        // 40 ms of 800 kb/s.
        assert_eq!(frame.payloads, [1_130, 1_130, 1_130, 610]);
        assert_eq!(source.next(), Time::from_millis(5_040));
        let second = source.poll(source.next(), Rate::kbps(800)).unwrap();
        assert_eq!((frame.timestamp, second.timestamp), (0, 3_600));
    }

    #[test]
    fn the_encoder_stays_in_its_range() {
        let mut source = Source::new(&call());
        let mut bytes = |target| {
            let frame = source.poll(source.next(), target).unwrap();
            frame.payloads.iter().sum::<usize>()
        };
        assert_eq!(bytes(Rate::ZERO), 1_000);
        assert_eq!(bytes(Rate::kbps(90_000)), 10_000);
    }

    #[test]
    fn a_camera_that_is_off_makes_nothing() {
        let mut source = Source::new(&call());
        let mut captured = Vec::new();
        for _ in 0..5 {
            let now = source.next();
            let frame = source.poll(now, Rate::kbps(800)).unwrap();
            assert_eq!(frame.payloads.iter().sum::<usize>(), 4_000);
            captured.push(now.since(call().start).as_millis());
        }
        // Every 40 ms, other than from 100 ms to 210 ms.
        assert_eq!(captured, [0, 40, 80, 240, 280]);
    }

    #[test]
    fn no_frame_is_empty() {
        let call = Call {
            floor: Rate::bps(1),
            ..call()
        };
        let frame = Source::new(&call).poll(call.start, Rate::ZERO).unwrap();
        assert_eq!(frame.payloads, [1]);
    }
}
