//! Retransmission timeout: estimates in ticks of a coarse clock, as in ns-2 and BSD.

use core::time::Duration;

use tidegate_core::units::{Time, nanos};

/// Parameters of [`Rto`]. Their defaults are those of ns-2.35 with `minrto_` 0.2 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtoConfig {
    /// Granularity of the clock that measures round trips (`tcpTick_`). Zero counts as 1 ns.
    pub tick: Duration,
    /// Lower bound of the timeout, before back-off (`minrto_`, RFC 6298 (2.4)).
    pub min: Duration,
    /// Upper bound, including back-off (`maxrto_`).
    pub max: Duration,
    /// Timeout before the first sample (`rtxcur_init_`).
    pub initial: Duration,
    /// The timeout is the smoothed round trip plus its variation times 2 to this power
    /// (`rttvar_exp_`; 2 in RFC 6298).
    pub variation_exponent: u32,
    /// Phase of the clock's ticks at time zero. `None` draws it from the agent's random stream, as
    /// in ns-2, so that clocks are not synchronised.
    pub phase: Option<Duration>,
}

impl Default for RtoConfig {
    fn default() -> Self {
        Self {
            tick: Duration::from_millis(10),
            min: Duration::from_millis(200),
            max: Duration::from_mins(1),
            initial: Duration::from_secs(3),
            variation_exponent: 2,
            phase: None,
        }
    }
}

/// Estimator of RFC 6298 in Jacobson's fixed-point form: the mean in eighths of a tick, the
/// variation in quarters.
#[derive(Clone, Copy, Debug)]
pub struct Rto {
    tick: u64,
    phase: u64,
    min: u64,
    max: u64,
    exponent: u32,
    /// In eighths of a tick; zero before the first sample.
    mean: i64,
    /// In quarters of a tick.
    variation: i64,
    /// Without bounds and back-off, in nanoseconds.
    base: u64,
    factor: u64,
}

impl Rto {
    /// State before the first sample. `phase` is the phase of the ticks.
    pub fn new(config: &RtoConfig, phase: Duration) -> Self {
        Self {
            tick: nanos(config.tick).max(1),
            phase: nanos(phase),
            min: nanos(config.min),
            max: nanos(config.max),
            exponent: config.variation_exponent,
            mean: 0,
            variation: 0,
            base: nanos(config.initial),
            factor: 1,
        }
    }

    /// Adds a sample of a segment that was sent at `sent` and acknowledged at `now`: the number of
    /// clock ticks in between, at least one.
    pub fn sample(&mut self, sent: Time, now: Time) {
        let into_tick = sent.as_nanos().saturating_add(self.phase) % self.tick;
        let took = nanos(now.since(sent)).saturating_add(into_tick);
        self.update(took / self.tick);
    }

    /// Adds a sample of an echoed time stamp, rounded to the nearest tick.
    pub fn sample_echo(&mut self, echo: Time, now: Time) {
        let took = nanos(now.since(echo)).saturating_add(self.tick / 2);
        self.update(took / self.tick);
    }

    /// The current timeout: bounded, doubled by each [`back_off`](Self::back_off), at least two
    /// ticks.
    pub fn timeout(&self) -> Duration {
        let backed_off = self.base.max(self.min).saturating_mul(self.factor);
        Duration::from_nanos(backed_off.min(self.max).max(2 * self.tick))
    }

    /// Doubles the timeout after an expiry. After the fourth time the mean is discarded, because it
    /// may belong to another path (RFC 6298 section 5); its value increases the variation.
    pub fn back_off(&mut self) {
        if self.factor < 64 || nanos(self.timeout()) < self.max {
            self.factor = self.factor.saturating_mul(2);
        }
        if self.factor > 8 {
            self.variation += self.mean >> MEAN_BITS;
            self.mean = 0;
        }
    }

    /// Ends back-off.
    pub fn end_back_off(&mut self) {
        self.factor = 1;
    }

    /// The back-off factor.
    pub fn factor(&self) -> u64 {
        self.factor
    }

    /// Smoothed round-trip time in whole eighths of a tick, if there is one.
    pub fn srtt(&self) -> Option<Duration> {
        (self.mean > 0).then(|| self.in_time(self.mean, MEAN_BITS))
    }

    /// Mean deviation in whole quarters of a tick.
    pub fn variation(&self) -> Duration {
        self.in_time(self.variation, VARIATION_BITS)
    }

    fn in_time(&self, value: i64, bits: u32) -> Duration {
        Duration::from_nanos((value.max(0) as u64).saturating_mul(self.tick) >> bits)
    }

    fn update(&mut self, ticks: u64) {
        // 2^40 ticks of 10 ms are 350 years, so the shifts below cannot overflow.
        let ticks = ticks.clamp(1, 1 << 40) as i64;
        if self.mean == 0 {
            self.mean = ticks << MEAN_BITS;
            self.variation = ticks << (VARIATION_BITS - 1);
        } else {
            let off = ticks - (self.mean >> MEAN_BITS);
            self.mean = (self.mean + off).max(1);
            let wider = off.abs() - (self.variation >> VARIATION_BITS);
            self.variation = (self.variation + wider).max(1);
        }
        let scaled = self.variation << (self.exponent.min(8) + MEAN_BITS - VARIATION_BITS);
        let ticks = (scaled + self.mean) >> MEAN_BITS;
        self.base = (ticks as u64).saturating_mul(self.tick);
    }
}

const MEAN_BITS: u32 = 3;
const VARIATION_BITS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn rto() -> Rto {
        Rto::new(&RtoConfig::default(), Duration::ZERO)
    }

    #[test]
    fn a_sample_counts_ticks_of_the_clock() {
        let at = Time::from_millis;
        let mut early = rto();
        // From 1 ms to 59 ms: five ticks. From 9 ms to 61 ms: six, though it took less.
        early.sample(at(1), at(59));
        assert_eq!(early.srtt(), Some(ms(50)));
        let mut late = rto();
        late.sample(at(9), at(61));
        assert_eq!(late.srtt(), Some(ms(60)));
        let mut stamped = rto();
        stamped.sample_echo(at(9), at(64));
        assert_eq!(stamped.srtt(), Some(ms(60)));
    }

    #[test]
    fn follows_rfc_6298_in_fixed_point() {
        let mut rto = rto();
        assert_eq!(rto.timeout(), ms(3_000));
        let at = Time::from_millis;
        rto.sample(at(0), at(400));
        // 40 ticks, variation 20: 40 + 4 * 20.
        assert_eq!(rto.timeout(), ms(1_200));
        rto.sample(at(1_000), at(1_480));
        // Mean 41, variation 20 - 3 = 17 (20 + (8 - 20) / 4).
        assert_eq!(rto.srtt(), Some(ms(410)));
        assert_eq!(rto.timeout(), ms(1_090));
        // Steady samples shrink the variation until the lower bound holds.
        for i in 0..100 {
            rto.sample(at(2_000 + i), at(2_030 + i));
        }
        assert_eq!(rto.timeout(), ms(200));
    }

    #[test]
    fn backs_off_up_to_the_bound_and_forgets_the_mean() {
        let mut rto = rto();
        rto.sample(Time::ZERO, Time::from_millis(100));
        let first = rto.timeout();
        rto.back_off();
        assert_eq!(rto.timeout(), first * 2);
        for _ in 0..100 {
            rto.back_off();
        }
        assert_eq!(rto.timeout(), Duration::from_mins(1));
        assert_eq!(rto.srtt(), None);
        rto.end_back_off();
        assert_eq!(rto.timeout(), first);
    }
}
