//! Sudden falls of the rate of a path.

/// The last two falls: times in seconds, and the part of the rate that remained.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Falls {
    newest: Option<(f64, f64)>,
    before: Option<(f64, f64)>,
}

impl Falls {
    /// The path fell to the part `remains` of its rate. What follows within a second is the same
    /// fall.
    pub(crate) fn on_fall(&mut self, now: f64, remains: f64) {
        match &mut self.newest {
            Some((at, part)) if now - *at <= SAME => *part *= remains,
            newest => self.before = newest.replace((now, remains)),
        }
    }

    /// The newest fall was none.
    pub(crate) fn withdraw(&mut self) {
        self.newest = self.before.take();
    }

    /// Part of the rate that remained after the deeper one of two falls within [`MEMORY`]; `None` if
    /// there were none.
    pub(crate) fn repeated(&self, now: f64) -> Option<f64> {
        let recent = |fall: Option<(f64, f64)>| fall.filter(|(at, _)| now - at <= MEMORY);
        let (newest, before) = (recent(self.newest)?, recent(self.before)?);
        Some(newest.1.min(before.1))
    }
}

/// Steps of one fall, in seconds.
const SAME: f64 = 1.0;
/// One fall costs 5 to 10 frames, which is half a percent of a minute's. So headroom gains more than
/// it costs where falls come more often than that. In seconds.
const MEMORY: f64 = 60.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_falls_within_a_minute_count() {
        let mut falls = Falls::default();
        falls.on_fall(2.0, 0.5);
        falls.on_fall(2.5, 0.5);
        assert_eq!(falls.repeated(3.0), None, "one fall in two steps");
        falls.on_fall(20.0, 0.4);
        assert_eq!(falls.repeated(20.0), Some(0.25));
        assert_eq!(falls.repeated(61.0), Some(0.25));
        assert_eq!(falls.repeated(63.0), None);
        falls.on_fall(70.0, 0.3);
        falls.withdraw();
        assert_eq!(falls.repeated(70.0), None);
    }
}
