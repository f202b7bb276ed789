mod outages;
mod response_latency;

use proptest::prelude::*;

use super::*;

const MSS: Bytes = Bytes(1_448);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) fn config(mode: Mode) -> TcpRateConfig {
    TcpRateConfig {
        mode,
        subscribed: Subscription::LOSSES,
        floor: Rate::kbps(150),
        ceiling: Rate::kbps(2_000),
        bound: ms(2_000),
        interval: ms(100),
        encoder_delay: Duration::ZERO,
        default_response_latency: Duration::ZERO,
        margin: TcpRateConfig::MARGIN,
        drain: ms(3_000),
    }
}

fn view() -> TcpView {
    TcpView {
        control: CongestionControl::Reno,
        mss: MSS,
        srtt: ms(100),
        cwnd: MSS.scale(40, 1),
        ssthresh: MSS.scale(20, 1),
        unacked: Bytes::ZERO,
        unsent: Bytes::ZERO,
        sent: Bytes(2_500_000),
        next_timeout: None,
        unacked_since: None,
        stalled: false,
        oldest_sent: None,
        resumed: None,
    }
}

/// If the sending time of the oldest byte is unknown, an acknowledgement is overdue after a silence
/// of one and a quarter round trips and 20 ms. If it is known, a round trip and 20 ms after that
/// time, and after a silence of 40 ms.
#[test]
fn overdue_acknowledgement_stops_writes() {
    let silent = TcpView {
        unacked: MSS.scale(10, 1),
        unacked_since: Some(at(1_000)),
        ..view()
    };
    assert!(silent.has_room(at(1_145)) && !silent.has_room(at(1_146)));
    let sent = |ms| TcpView {
        oldest_sent: Some(at(ms)),
        ..silent
    };
    assert!(sent(980).has_room(at(1_100)) && !sent(980).has_room(at(1_101)));
    // Acknowledgements of single segments are not a silence.
    assert!(sent(800).has_room(at(1_040)) && !sent(800).has_room(at(1_041)));
    let nothing = TcpView {
        unacked_since: None,
        ..sent(800)
    };
    assert!(nothing.has_room(at(5_000)));
}

fn machine(mode: Mode) -> TcpRateAdapter {
    TcpRateAdapter::new(config(mode), Time::ZERO)
}

fn at(n: u64) -> Time {
    Time::from_millis(n)
}

#[test]
fn classic_ignores_events_and_ioff_only_counts_them() {
    //= itcp-3.1-subscribe (test)
    for (mode, counted) in [(Mode::Classic, 0), (Mode::Ioff, 1)] {
        let mut it = machine(mode);
        it.on_event(at(10_000), TcpEvent::TimedOut.at(at(10_000)), &view());
        it.on_event(at(10_000), TcpEvent::NewAck.at(at(10_000)), &view());
        assert_eq!(it.count(TcpEvent::TimedOut), counted, "{mode}");
        assert_eq!(it.count(TcpEvent::NewAck), 0);
        assert_eq!(it.target(), Rate::kbps(2_000));
        assert!(it.take_rate_reductions().is_empty());
        assert_eq!(it.next_timer(), Time::FAR);
    }
}

#[test]
fn iexp_steps_back_for_four_seconds() {
    //= itcp-6.3-iexp (test)
    //= itcp-5.2-recovery-timer (test)
    let mut it = machine(Mode::Iexp(Backoff::PAPER));
    it.on_event(at(10_000), TcpEvent::TimedOut.at(at(10_000)), &view());
    assert_eq!(it.target(), Rate::kbps(700));
    it.on_event(at(11_000), TcpEvent::ThirdDuplicate.at(at(11_000)), &view());
    assert_eq!(it.target(), Rate::kbps(245));
    it.on_timer(at(14_999));
    assert_eq!(it.target(), Rate::kbps(245));
    assert_eq!(it.next_timer(), at(15_000));
    it.on_timer(at(15_000));
    assert_eq!(it.target(), Rate::kbps(2_000));
    let rates: Vec<Rate> = it.take_rate_reductions().iter().map(|a| a.rate).collect();
    assert_eq!(rates, [Rate::kbps(700), Rate::kbps(245)]);
}

#[test]
fn additive_backoff_grows_by_a_hundredth_per_second() {
    let mut it = machine(Mode::Iexp(Backoff::REPORT));
    it.on_event(at(10_000), TcpEvent::ThirdDuplicate.at(at(10_000)), &view());
    assert_eq!(it.target(), Rate::kbps(1_100));
    while it.next_timer() < at(20_000) {
        it.on_timer(it.next_timer());
    }
    let ten_later = it.target().as_f64();
    assert!((ten_later - 1_300e3).abs() < 4e3, "{ten_later}");
    while it.next_timer() < Time::FAR {
        it.on_timer(it.next_timer());
    }
    assert_eq!(it.target(), Rate::kbps(2_000));
}

#[test]
fn events_without_subscription_are_ignored() {
    let only = TcpRateConfig {
        subscribed: Subscription::TIME_OUT,
        ..config(Mode::Iexp(Backoff::PAPER))
    };
    let mut it = TcpRateAdapter::new(only, Time::ZERO);
    it.on_event(at(1_000), TcpEvent::ThirdDuplicate.at(at(1_000)), &view());
    assert_eq!(it.target(), Rate::kbps(2_000));
}

#[test]
fn the_published_law_reduces_after_the_reaction_and_for_its_time() {
    //= itcp-4.4-symbiosis (test)
    let slow = TcpRateConfig {
        encoder_delay: ms(50),
        default_response_latency: ms(50),
        ..config(Mode::Iopt(Law::Paper))
    };
    let mut it = TcpRateAdapter::new(slow, Time::ZERO);
    it.on_event(at(10_000), TcpEvent::TimedOut.at(at(10_000)), &view());
    assert_eq!(it.target(), Rate::kbps(2_000));
    it.on_timer(it.next_timer());
    let answer = it.take_rate_reductions()[0];
    // m = 2·1448·8/0.1 = 231,680 b/s², d = 1.95 s, H = 2 Mb/s, Q = 0.05·(2e6 − m·0.025) bits.
    let (slope, budget) = (231_680.0_f64, 1.95_f64);
    let backlog = 8.0 * (0.05 * (2e6 - slope * 0.025) / 8.0_f64).floor();
    let root = (2.0 - 2.0 * backlog / (slope * budget * budget)).sqrt();
    let rate = slope * budget * (1.0 + root);
    assert!((it.target().as_f64() - rate).abs() < 2.0, "{}", it.target());
    let root = (1.0 + 2.0 * backlog * slope / (rate * rate)).sqrt();
    let lasts = rate / slope * (1.0 + root);
    assert!((answer.lasts.unwrap().as_secs_f64() - lasts).abs() < 1e-5);
    assert_eq!(it.next_timer(), at(10_050) + answer.lasts.unwrap());
    it.on_timer(it.next_timer());
    assert_eq!(it.target(), Rate::kbps(2_000));
}

#[test]
fn exact_law_waits_during_a_stall_and_skips_late_frames() {
    //= itcp-4.4-late (test)
    //= itcp-4.1-service (test)
    let mut it = machine(Mode::Iopt(Law::Exact));
    let dead = TcpView {
        unacked: MSS.scale(20, 1),
        cwnd: MSS,
        next_timeout: Some(at(13_000)),
        stalled: true,
        ..view()
    };
    it.on_event(at(10_000), TcpEvent::TimedOut.at(at(10_000)), &dead);
    // With a stall of three seconds and a bound of two, no rate is feasible.
    let answer = it.take_rate_reductions()[0];
    assert!(!answer.feasible);
    assert_eq!(it.target(), Rate::kbps(150));
    assert_eq!(it.admit(at(10_000), at(9_900), &dead), FrameDecision::Wait);
    assert_eq!(it.admit(at(12_000), at(9_900), &dead), FrameDecision::Skip);
    let alive = TcpView {
        stalled: false,
        unacked: MSS,
        cwnd: MSS.scale(4, 1),
        ..dead
    };
    assert!(matches!(
        it.admit(at(12_000), at(11_500), &alive),
        FrameDecision::Encode(_)
    ));
    // A silence of more than 1.25 round trips of 100 ms and 20 ms may be another outage.
    let silent = TcpView {
        unacked_since: Some(at(11_850)),
        oldest_sent: None,
        resumed: None,
        ..alive
    };
    let admitted = it.admit(at(11_995), at(11_500), &silent);
    assert!(matches!(admitted, FrameDecision::Encode(_)));
    assert_eq!(
        it.admit(at(11_996), at(11_500), &silent),
        FrameDecision::Wait
    );
}

/// Frames are sent in bursts, which must not look like overload.
#[test]
fn queue_of_other_flows_does_not_limit_the_rate() {
    let mut it = machine(Mode::Iopt(Law::Exact));
    it.on_view(at(0), &view());
    for now in (20..=3_000).step_by(20) {
        let sent = (now + 80) / 100 * 7_500;
        let queued = TcpView {
            srtt: ms(320),
            cwnd: MSS.scale(80, 1),
            sent: Bytes(2_500_000 + sent),
            unacked: Bytes(30_000 + sent - now * 75),
            ..view()
        };
        it.on_view(at(now), &queued);
        if now % 100 == 0 {
            assert_eq!(
                it.admit(at(now), at(now), &queued),
                FrameDecision::Encode(Rate::kbps(2_000))
            );
        }
    }
}

#[test]
fn bbr_startup_doubles_the_forecast_until_there_is_a_queue() {
    let carried = |starting, srtt| {
        let control = CongestionControl::Bbr {
            bandwidth: Rate::kbps(800),
            min_rtt: ms(100),
            next_probe: ms(5_000),
            starting,
        };
        let view = TcpView {
            control,
            srtt: ms(srtt),
            ..view()
        };
        (view.forecast(at(0), ms(2_000)).at(ms(1_000)) / 1e3).round() as u64
    };
    // 0.99 of the bandwidth estimate is the pacing rate.
    assert_eq!(carried(false, 100), 792);
    assert_eq!(carried(true, 100), 1_584);
    assert_eq!(carried(true, 124), 1_584);
    assert_eq!(carried(true, 125), 792);
}

/// A path of 600 kb/s carries 45 kB in a round trip of 100 ms and a quarter of the bound.
#[test]
fn queue_on_the_path_is_limited_to_a_quarter_of_the_bound() {
    for control in [
        CongestionControl::Cubic,
        CongestionControl::Bbr {
            bandwidth: Rate::kbps(4_000),
            min_rtt: ms(100),
            next_probe: ms(5_000),
            starting: false,
        },
    ] {
        let mut it = machine(Mode::Iopt(Law::Exact));
        it.on_view(at(0), &view());
        let queued = |now: u64, unacked: u64| TcpView {
            control,
            srtt: ms(450),
            cwnd: MSS.scale(80, 1),
            sent: Bytes(2_500_000 + now * 75 + unacked),
            unacked: Bytes(unacked),
            ..view()
        };
        // The bytes in flight grow by half of the acknowledged bytes.
        for now in (100..=1_200).step_by(100) {
            let overloaded = queued(now, 4_000 + now * 37);
            it.on_view(at(now), &overloaded);
            it.admit(at(now), at(now), &overloaded);
        }
        let mut asked = |unacked| it.admit(at(1_200), at(1_200), &queued(1_200, unacked));
        assert_eq!(asked(50_000), FrameDecision::Wait);
        assert!(matches!(asked(42_000), FrameDecision::Encode(_)));
    }
}

#[test]
fn forward_queueing_delay_reduces_the_budget_of_a_frame() {
    let mut it = machine(Mode::Iopt(Law::Exact));
    assert!(matches!(
        it.admit(at(1_000), at(1_000), &view()),
        FrameDecision::Encode(_)
    ));
    let queued = TcpView {
        srtt: ms(900),
        sent: Bytes(3_000_000),
        ..view()
    };
    it.admit(at(3_000), at(3_000), &queued);
    // 50 ms of propagation and 800 ms of queueing, instead of half of 900 ms.
    assert!(!it.is_hopeless(at(3_000), at(1_850), &queued));
    assert!(it.is_hopeless(at(3_000), at(1_849), &queued));
    // The queue is empty now, because no more data was sent.
    assert!(!it.is_hopeless(at(4_000), at(2_050), &queued));
}

proptest! {
    /// If the connection carries exactly its forecast after a stall, all admitted frames are in
    /// time, for any number of waiting pictures.
    #[test]
    fn admitted_frames_are_in_time_under_the_exact_law(
        cwnd in 2_u64..30,
        ssthresh in 2_u64..40,
        rtt in 20_u64..200,
        bound in 1_000_u64..6_000,
        stall in 0_u64..3_000,
        junk in 0_u64..60,
    ) {
        let c = TcpRateConfig { bound: ms(bound), ..config(Mode::Iopt(Law::Exact)) };
        let mut it = TcpRateAdapter::new(c, Time::ZERO);
        let path = TcpView { srtt: ms(rtt), ..view() }.path();
        let open = path.reno_from(MSS.scale(cwnd, 1), MSS.scale(ssthresh, 1));
        let start = at(20_000);
        let until = start + ms(stall);
        let carried = |now: Time| open.at(now.since(until)) / 8.0;
        let mut written = MSS.scale(junk, 1).get() as f64;
        // Unused capacity of the connection, in bytes.
        let mut wasted = 0.0_f64;
        let mut next = 0_u64;
        for step in 0..1_000 {
            let now = start + ms(10 * step);
            if now < until {
                continue;
            }
            let left = (carried(now) - wasted).min(written);
            wasted = carried(now) - left;
            let rate = (carried(now + ms(10)) - carried(now)) * 100.0;
            let window = (rate * rtt as f64 / 1e3) as u64;
            // One window is in flight. The rest of the backlog leaves first.
            let window = Bytes(window).max(MSS);
            let look = TcpView {
                srtt: ms(rtt),
                cwnd: window,
                ssthresh: MSS.scale(ssthresh, 1),
                unacked: window,
                unsent: Bytes((written - left).ceil() as u64),
                ..view()
            };
            // One frame per step, because the view does not include the next write.
            let captured = start + ms(100 * next);
            if captured > now {
                continue;
            }
            match it.admit(now, captured, &look) {
                FrameDecision::Wait => continue,
                FrameDecision::Skip => {}
                FrameDecision::Encode(rate) => {
                    written += (rate * c.interval).get() as f64;
                    let gone = open.inverse((written + wasted) * 8.0).unwrap();
                    let arrives = until + gone + ms(rtt) / 2;
                    prop_assert!(
                        arrives <= captured + c.bound,
                        "frame {next} is {:?} late", arrives.since(captured + c.bound)
                    );
                }
            }
            next += 1;
        }
        prop_assert!(next > 50);
    }

    /// For any sequence of events, the target stays between floor and ceiling, and returns to the
    /// ceiling after the last event.
    #[test]
    fn targets_stay_in_range_and_return_to_the_ceiling(
        mode in prop_oneof![
            Just(Mode::Iexp(Backoff::PAPER)),
            Just(Mode::Iexp(Backoff::REPORT)),
            Just(Mode::Iopt(Law::Paper)),
            Just(Mode::Iopt(Law::PaperM)),
        ],
        gaps in prop::collection::vec(0_u64..5_000, 1..20),
        rtt in 1_u64..400,
        reaction in 0_u64..300,
    ) {
        let slow = TcpRateConfig { encoder_delay: ms(reaction), ..config(mode) };
        let mut it = TcpRateAdapter::new(slow, Time::ZERO);
        let mut now = at(1_000);
        let look = TcpView { srtt: ms(rtt), ..view() };
        for gap in gaps {
            now += ms(gap);
            while it.next_timer() <= now {
                it.on_timer(it.next_timer());
                prop_assert!((slow.floor..=slow.ceiling).contains(&it.target()));
            }
            it.on_event(now, TcpEvent::TimedOut.at(now), &look);
        }
        for _ in 0..1_000_000 {
            if it.next_timer() == Time::FAR {
                break;
            }
            it.on_timer(it.next_timer());
        }
        prop_assert_eq!(it.target(), slow.ceiling);
    }
}
