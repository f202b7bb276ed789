//! The schedule, tested against a model of the kernel.

use proptest::prelude::*;

use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Model of `net/ipv4/tcp_timer.c`: a connection with an outage.
#[derive(Debug)]
struct Kernel {
    base: Duration,
    rto: Duration,
    in_a_row: u8,
    sent_again: u32,
    sent: Duration,
    expires: Duration,
    /// Time of the first retransmission during loss recovery.
    stamp: Option<Duration>,
    /// Time of the original transmission of the first segment.
    head: Duration,
    /// Maximum timeout, back-off included; lower if the kernel supports a limit.
    longest: Duration,
    /// Until this time the device queue is full at each timeout.
    stuck: Duration,
    user_timeout: Option<Duration>,
    given_up: bool,
    fired: Vec<Duration>,
}

impl Kernel {
    fn new(base: Duration, sent: Duration) -> Self {
        Self {
            base,
            rto: base,
            in_a_row: 0,
            sent_again: 0,
            sent,
            expires: sent + base,
            stamp: None,
            head: sent,
            longest: base.max(ms(1_000)),
            stuck: Duration::ZERO,
            user_timeout: None,
            given_up: false,
            fired: Vec::new(),
        }
    }

    /// Runs timers up to `until`. Each is late by the fraction `late` of an eighth of its duration.
    fn run(&mut self, until: Duration, late: f64) {
        while self.expires <= until && !self.given_up {
            let now = self.expires;
            let elapsed = |stamp: Duration| now.saturating_sub(stamp);
            let passed = |limit: Duration| elapsed(self.stamp.unwrap_or(now)) >= limit;
            if self.in_a_row > 0 && passed(self.user_timeout.unwrap_or(PATIENCE)) {
                self.given_up = true;
                return;
            }
            let stuck = now <= self.stuck;
            // A segment that could not be sent keeps its previous timestamp.
            let stamp = *self
                .stamp
                .get_or_insert(if stuck { self.head } else { now });
            if !stuck {
                self.sent = now;
                self.sent_again += 1;
            }
            self.in_a_row = self.in_a_row.wrapping_add(1);
            self.fired.push(now);
            self.rto = (self.rto * 2).min(if self.in_a_row == 1 {
                ms(120_000)
            } else {
                self.longest
            });
            let elapsed = elapsed(stamp);
            let left = self.user_timeout.map_or(self.rto, |limit| {
                limit.saturating_sub(elapsed).max(JIFFY).min(self.rto)
            });
            self.expires = now + left + left.mul_f64(late / 8.0) + JIFFY.mul_f64(late);
        }
    }

    fn gaps(&self) -> Vec<Duration> {
        let two = self.fired.windows(2);
        two.map(|two| two[1].saturating_sub(two[0])).collect()
    }

    fn acknowledged(&mut self) {
        self.rto = self.base;
        self.in_a_row = 0;
        self.stamp = None;
        self.expires = FAR;
    }

    fn glance(&self, at: Duration) -> StateSample {
        StateSample {
            at,
            late: Duration::ZERO,
            clean: self.stamp.is_none(),
            in_a_row: self.in_a_row,
            sent_again: self.sent_again,
            rto: self.rto,
            sent: self.sent.min(at),
        }
    }
}

/// Sample of a connection without loss.
const HEALTHY: StateSample = StateSample {
    at: Duration::from_secs(1),
    late: Duration::ZERO,
    clean: true,
    in_a_row: 0,
    sent_again: 0,
    rto: Duration::from_millis(300),
    sent: Duration::from_secs(1),
};
const JIFFY: Duration = Duration::from_millis(4);
const FAR: Duration = Duration::from_hours(1_000);
const PATIENCE: Duration = Duration::from_millis(924_600);

/// Samples a connection during an outage of `span`; each sample is late by up to `slow`.
fn watch(kernel: &mut Kernel, span: Duration, slow: Duration, seed: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let mut random = seed | 1;
    let mut share = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut now = ms(0);
    while now < span && !kernel.given_up {
        kernel.run(now, share());
        match schedule.on_glance(&kernel.glance(now)) {
            Some(UserTimeoutChange::Limit(limit)) => kernel.user_timeout = Some(limit),
            Some(UserTimeoutChange::Lift | UserTimeoutChange::Restore) => {
                kernel.user_timeout = None;
            }
            None => {}
        }
        now = schedule.wake(now) + slow.mul_f64(share());
    }
    schedule
}

#[test]
fn only_the_second_timeout_doubles() {
    let mut kernel = Kernel::new(ms(370), ms(1_020));
    let schedule = watch(&mut kernel, ms(16_000), ms(0), 1);
    let gaps = kernel.gaps();
    assert!((ms(740)..ms(840)).contains(&gaps[0]), "{gaps:?}");
    // The limit is independent of late timers, so the next timer is shorter.
    let linear = ms(270 - 60)..ms(270 + 60);
    let slack = |gap: &&Duration| !linear.contains(*gap);
    // The first is longer by up to a sampling interval.
    let others: Vec<_> = gaps[2..32].iter().filter(slack).collect();
    assert!(others.is_empty() && gaps[1] < ms(270 + 110), "{gaps:?}");
    assert!(gaps[32..].iter().all(|gap| *gap >= ms(860)), "{gaps:?}");
    assert!(schedule.next().is_some() && !kernel.given_up);
}

/// After a scheduling delay of the thread, no user timeout is set for a while.
#[test]
fn timeouts_double_after_a_scheduling_delay() {
    let mut kernel = Kernel::new(ms(300), ms(0));
    kernel.longest = ms(120_000);
    let mut schedule = Schedule::default();
    let mut limits = Vec::new();
    let mut now = ms(0);
    while now < ms(40_000) {
        kernel.run(now, 0.0);
        let late = if now < ms(100) {
            STEADY + ms(1)
        } else {
            STEADY
        };
        let glance = StateSample {
            late,
            ..kernel.glance(now)
        };
        match schedule.on_glance(&glance) {
            Some(UserTimeoutChange::Limit(limit)) => {
                limits.push(now);
                kernel.user_timeout = Some(limit);
            }
            Some(UserTimeoutChange::Lift | UserTimeoutChange::Restore) => {
                kernel.user_timeout = None;
            }
            None => {}
        }
        now = schedule.wake(now);
    }
    // Timeouts at 0.3, 0.9, 2.1, 4.5 and 9.3 s. From then on timeouts are linear.
    let gaps = kernel.gaps();
    assert_eq!(gaps[..4], [ms(600), ms(1_200), ms(2_400), ms(4_800)]);
    assert!(limits[0] > WARY && gaps.len() > 20, "{limits:?} {gaps:?}");
    assert!(gaps[6..].iter().all(|gap| *gap < ms(1_100)), "{gaps:?}");
    assert!(!kernel.given_up);
}

#[test]
fn acknowledgement_restores_the_user_timeout() {
    let mut schedule = Schedule::default();
    let mut kernel = Kernel::new(ms(300), ms(0));
    assert_eq!(schedule.on_glance(&kernel.glance(ms(0))), None);
    kernel.run(ms(310), 0.0);
    let order = schedule.on_glance(&kernel.glance(ms(310)));
    assert_eq!(
        (order, schedule.next()),
        (Some(UserTimeoutChange::Lift), Some(ms(900)))
    );
    assert_eq!(schedule.wake(ms(310)), ms(360));
    assert_eq!(schedule.wake(ms(760)), ms(780));
    // 900 ms after the last clean sample, plus 250 ms.
    let order = schedule.on_glance(&kernel.glance(ms(781)));
    assert_eq!(order, Some(UserTimeoutChange::Limit(ms(1_150))));
    assert_eq!(schedule.wake(ms(781)), ms(888));
    assert_eq!(schedule.wake(ms(887)), ms(889));
    kernel.acknowledged();
    let order = schedule.on_glance(&kernel.glance(ms(889)));
    assert_eq!(
        (order, schedule.next()),
        (Some(UserTimeoutChange::Restore), None)
    );
}

/// Without a clean sample, the first retransmission and the timeout without back-off are unknown.
#[test]
fn no_user_timeout_is_set_before_a_clean_sample() {
    let mut schedule = Schedule::default();
    let glance = StateSample {
        at: ms(5),
        late: Duration::ZERO,
        clean: false,
        in_a_row: 3,
        sent_again: 3,
        rto: ms(1_600),
        sent: ms(1),
    };
    for at in [5, 500, 1_590, 1_700] {
        let glance = StateSample {
            at: ms(at),
            late: Duration::ZERO,
            ..glance
        };
        assert_eq!(schedule.on_glance(&glance), None);
    }
    assert_eq!(schedule.next(), None);
}

/// An outage during loss recovery: the kernel counts from the first retransmission of the recovery.
#[test]
fn limit_counts_from_before_the_first_retransmission() {
    let mut schedule = Schedule::default();
    let mut glance = HEALTHY;
    schedule.on_glance(&glance);
    glance = StateSample {
        at: ms(1_400),
        late: Duration::ZERO,
        clean: false,
        ..glance
    };
    schedule.on_glance(&glance);
    glance = StateSample {
        at: ms(1_800),
        late: Duration::ZERO,
        in_a_row: 1,
        sent_again: 2,
        rto: ms(600),
        sent: ms(1_790),
        ..glance
    };
    schedule.on_glance(&glance);
    assert_eq!(schedule.next(), Some(ms(2_390)));
    let order = schedule.on_glance(&StateSample {
        at: ms(2_360),
        late: Duration::ZERO,
        ..glance
    });
    assert_eq!(order, Some(UserTimeoutChange::Limit(ms(1_390 + 250))));
}

/// If the first retransmission cannot be sent, the kernel counts from the original transmission of
/// the segment, whose time is unknown.
#[test]
fn no_user_timeout_is_set_if_the_retransmission_fails() {
    for stuck in [1_400, 3_000] {
        let mut kernel = Kernel::new(ms(370), ms(1_020));
        (kernel.stuck, kernel.longest) = (ms(stuck), ms(120_000));
        watch(&mut kernel, ms(60_000), ms(0), 3);
        assert!(!kernel.given_up && kernel.user_timeout.is_none());
        let gaps = kernel.gaps();
        assert!(gaps[2] > ms(1_400), "{gaps:?}");
    }
}

/// The counter of the kernel wraps after 255.
#[test]
fn timeouts_are_linear_when_the_counter_wraps() {
    let mut kernel = Kernel::new(ms(300), ms(200));
    watch(&mut kernel, ms(600_000), ms(0), 5);
    let gaps = kernel.gaps();
    assert!(
        gaps.len() > 300 && !kernel.given_up,
        "{} {:?}",
        kernel.given_up,
        &gaps[gaps.len() - 5..]
    );
    assert!(gaps[250..].iter().all(|gap| *gap < ms(1_200)), "{gaps:?}");
}

/// A sample may miss an acknowledgement between two timeouts.
#[test]
fn timeouts_of_one_outage_do_not_count_for_the_next() {
    let mut schedule = Schedule::default();
    let mut glance = HEALTHY;
    schedule.on_glance(&glance);
    for (at, in_a_row, sent_again) in [(1_500, 1, 1), (2_100, 2, 2), (2_400, 3, 3), (3_000, 1, 5)] {
        glance = StateSample {
            at: ms(at),
            late: Duration::ZERO,
            clean: false,
            in_a_row,
            sent_again,
            rto: ms(600),
            sent: ms(at - 5),
        };
        schedule.on_glance(&glance);
    }
    assert_eq!(schedule.gap(), ms(250));
}

proptest! {
    /// For any duration of the outage and any sampling delay within the limit, the kernel does not
    /// close the connection. No timeout is shorter than intended by more than the delay of the
    /// previous one.
    #[test]
    fn connection_survives_any_outage(base in 204_u64..3_000, phase in 0_u64..100, span in 1_u64..400, slow in 0_u64..150, stuck in prop_oneof![4 => Just(0_u64), 1 => 0_u64..5_000], old: bool, seed: u64) {
        let mut kernel = Kernel::new(ms(base), ms(200 + phase));
        kernel.stuck = ms(stuck);
        if old {
            kernel.longest = ms(120_000);
        }
        watch(&mut kernel, ms(span * 1_000), ms(slow), seed);
        prop_assert!(!kernel.given_up);
        if old {
            return Ok(());
        }
        let gaps = kernel.gaps();
        // The second timeout is twice as long and up to an eighth late, and so is a sample.
        let least = ms(base).mul_f64(0.5);
        prop_assert!(gaps.iter().all(|gap| *gap >= least), "{gaps:?}");
        // Late samples occasionally cause a doubled timeout.
        if slow < 30 && span >= 30 && stuck == 0 {
            let backed_off = (span as f64 * 1e3 / base as f64).log2().ceil() as usize;
            let least = (span.min(7) * 1_000 / base.max(250) / 2) as usize;
            prop_assert!(kernel.fired.len() > backed_off.min(8) && kernel.fired.len() >= least, "{:?}", kernel.fired);
        }
    }
}
