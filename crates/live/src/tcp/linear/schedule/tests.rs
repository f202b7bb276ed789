//! The schedule against the kernel's rules.

use proptest::prelude::*;

use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A connection whose path dies, as `net/ipv4/tcp_timer.c` has it.
#[derive(Debug)]
struct Kernel {
    base: Duration,
    rto: Duration,
    in_a_row: u8,
    sent: Duration,
    expires: Duration,
    /// Of the first retransmission.
    stamp: Duration,
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
            sent,
            expires: sent + base,
            stamp: Duration::ZERO,
            user_timeout: None,
            given_up: false,
            fired: Vec::new(),
        }
    }

    /// `late`: by how much of an eighth of its length a timer is late.
    fn run(&mut self, until: Duration, late: f64) {
        while self.expires <= until && !self.given_up {
            let now = self.expires;
            let elapsed = now.saturating_sub(self.stamp);
            let passed = self.user_timeout.is_some_and(|limit| elapsed >= limit);
            if self.in_a_row > 0 && passed {
                self.given_up = true;
                return;
            }
            if self.in_a_row == 0 {
                self.stamp = now;
            }
            self.in_a_row = self.in_a_row.wrapping_add(1);
            self.sent = now;
            self.fired.push(now);
            self.rto = (self.rto * 2).min(ms(120_000));
            let elapsed = now.saturating_sub(self.stamp);
            let left = self.user_timeout.map_or(self.rto, |limit| {
                limit.saturating_sub(elapsed).max(JIFFY).min(self.rto)
            });
            self.expires = now + left + left.mul_f64(late / 8.0).min(ms(32)) + JIFFY.mul_f64(late);
        }
    }

    fn gaps(&self) -> Vec<Duration> {
        let two = self.fired.windows(2);
        two.map(|two| two[1].saturating_sub(two[0])).collect()
    }

    fn acknowledged(&mut self) {
        self.rto = self.base;
        self.in_a_row = 0;
        self.expires = FAR;
    }

    fn glance(&self, at: Duration) -> Glance {
        Glance {
            at,
            clean: self.in_a_row == 0,
            in_a_row: self.in_a_row,
            rto: self.rto,
            sent: self.sent.min(at),
        }
    }
}

const JIFFY: Duration = Duration::from_millis(4);
const FAR: Duration = Duration::from_hours(1_000);

/// Looks at a dead path for `span`; each look is late by up to `slow`.
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
            Some(Order::Limit(limit)) => kernel.user_timeout = Some(limit),
            Some(Order::TakeBack) => kernel.user_timeout = None,
            None => {}
        }
        now = schedule.wake(now) + slow.mul_f64(share());
    }
    schedule
}

#[test]
fn the_second_time_out_doubles_and_no_other() {
    let mut kernel = Kernel::new(ms(370), ms(1_020));
    let schedule = watch(&mut kernel, ms(16_000), ms(0), 1);
    let gaps = kernel.gaps();
    assert!((ms(740)..ms(780)).contains(&gaps[0]), "{gaps:?}");
    // The limit does not move with a timer that was late, so that the next one is shorter.
    let linear = ms(370 - 40)..ms(370 + 40);
    let slack = |gap: &&Duration| !linear.contains(gap);
    // The first is longer by up to a look.
    let others: Vec<_> = gaps[2..32].iter().filter(slack).collect();
    assert!(others.is_empty() && gaps[1] < ms(370 + 90), "{gaps:?}");
    assert!(gaps[32..].iter().all(|gap| *gap >= ms(960)), "{gaps:?}");
    assert!(schedule.is_on() && !kernel.given_up);
    assert_eq!(schedule.base(), ms(370));
}

#[test]
fn an_acknowledgement_takes_the_limit_back() {
    let mut schedule = Schedule::default();
    let mut kernel = Kernel::new(ms(300), ms(0));
    assert_eq!(schedule.on_glance(&kernel.glance(ms(0))), None);
    kernel.run(ms(310), 0.0);
    assert_eq!(schedule.on_glance(&kernel.glance(ms(310))), None);
    assert_eq!(schedule.next(), Some(ms(900)));
    assert_eq!(schedule.wake(ms(310)), ms(360));
    assert_eq!(schedule.wake(ms(840)), ms(860));
    // 900 ms after it was clean, and 300 ms more.
    let order = schedule.on_glance(&kernel.glance(ms(861)));
    assert_eq!(order, Some(Order::Limit(ms(1_200))));
    assert_eq!(schedule.wake(ms(861)), ms(863));
    kernel.acknowledged();
    let order = schedule.on_glance(&kernel.glance(ms(863)));
    assert_eq!((order, schedule.next()), (Some(Order::TakeBack), None));
}

/// What was sent again before it was looked at is not known, nor is how long a time-out is.
#[test]
fn nothing_is_done_before_the_connection_was_clean() {
    let mut schedule = Schedule::default();
    let glance = Glance {
        at: ms(5),
        clean: false,
        in_a_row: 3,
        rto: ms(1_600),
        sent: ms(1),
    };
    for at in [5, 500, 1_590, 1_700] {
        let glance = Glance {
            at: ms(at),
            ..glance
        };
        assert_eq!(schedule.on_glance(&glance), None);
    }
    assert!(!schedule.is_on());
}

/// A repair that was under way when the path died: the kernel counts from the first of its
/// retransmissions.
#[test]
fn a_limit_counts_from_before_the_first_retransmission() {
    let mut schedule = Schedule::default();
    let mut glance = Glance {
        at: ms(1_000),
        clean: true,
        in_a_row: 0,
        rto: ms(300),
        sent: ms(1_000),
    };
    schedule.on_glance(&glance);
    glance = Glance {
        at: ms(1_400),
        clean: false,
        ..glance
    };
    schedule.on_glance(&glance);
    glance = Glance {
        at: ms(1_800),
        in_a_row: 1,
        rto: ms(600),
        sent: ms(1_790),
        ..glance
    };
    schedule.on_glance(&glance);
    assert_eq!(schedule.next(), Some(ms(2_390)));
    let order = schedule.on_glance(&Glance {
        at: ms(2_360),
        ..glance
    });
    assert_eq!(order, Some(Order::Limit(ms(1_390 + 300))));
}

proptest! {
    /// However long the path is dead, and however late each look is within what is promised, the
    /// connection is not given up, and no time-out is shorter than without back-off by more
    /// than the one before it was late.
    #[test]
    fn nothing_is_given_up(base in 204_u64..3_000, phase in 0_u64..100, span in 1_u64..400, slow in 0_u64..190, seed: u64) {
        let mut kernel = Kernel::new(ms(base), ms(200 + phase));
        watch(&mut kernel, ms(span * 1_000), ms(slow), seed);
        prop_assert!(!kernel.given_up);
        let gaps = kernel.gaps();
        prop_assert!(gaps.iter().all(|gap| *gap >= ms(base - 40)), "{gaps:?}");
        // Late looks cost a doubled one now and then.
        if slow < 30 && span >= 30 {
            let backed_off = (span as f64 * 1e3 / base as f64).log2().ceil() as usize;
            let least = (span.min(7) * 1_000 / base.max(250) / 2) as usize;
            prop_assert!(kernel.fired.len() > backed_off.min(8) && kernel.fired.len() >= least, "{:?}", kernel.fired);
        }
    }
}
