//! Adaptation to the next outage.

use super::*;

/// Simulates an outage from `from` that lasts for `silence`, with 20 segments unacknowledged.
fn outage(it: &mut TcpRateAdapter, from: u64, silence: u64) {
    let dead = TcpView {
        unacked: MSS.scale(20, 1),
        cwnd: MSS,
        unacked_since: Some(at(from)),
        next_timeout: Some(at(from + silence)),
        stalled: true,
        ..view()
    };
    it.on_event(at(from + 300), TcpEvent::TimedOut.at(at(from + 300)), &dead);
    let alive = TcpView {
        cwnd: MSS.scale(2, 1),
        stalled: false,
        unacked_since: Some(at(from + silence)),
        ..dead
    };
    // The frame is too old for any bound. The call records the outage without a plan.
    assert_eq!(
        it.admit(at(from + silence), at(0), &alive),
        FrameDecision::Skip
    );
}

#[test]
fn frames_are_sent_at_the_floor_after_an_outage_until_a_plan_is_feasible() {
    // A frame at the floor is 1875 bytes. Half of a window (2172 bytes) is queued ahead of it, and
    // the path carries 43 bytes per ms. Only 20 ms of the bound are left.
    let full = TcpView {
        cwnd: MSS.scale(3, 1),
        unacked: MSS.scale(9, 2),
        ..view()
    };
    let tight = |it: &mut TcpRateAdapter, now: u64| it.admit(at(now), at(now - 1_930), &full);
    let mut it = machine(Mode::Iopt(Law::Exact));
    assert_eq!(tight(&mut it, 10_000), FrameDecision::Skip);
    outage(&mut it, 11_000, 2_000);
    assert_eq!(
        tight(&mut it, 13_500),
        FrameDecision::Encode(Rate::kbps(150))
    );
    assert_eq!(
        tight(&mut it, 13_600),
        FrameDecision::Encode(Rate::kbps(150))
    );
    let admitted = it.admit(at(14_000), at(14_000), &view());
    assert_eq!(admitted, FrameDecision::Encode(Rate::kbps(2_000)));
    assert_eq!(tight(&mut it, 14_100), FrameDecision::Skip);
}

#[test]
fn tolerable_backlog_of_the_last_outage_is_not_drained() {
    let patient = TcpRateConfig {
        bound: ms(6_000),
        drain: ms(3_600),
        ..config(Mode::Iopt(Law::Exact))
    };
    let slow = TcpView {
        cwnd: MSS.scale(4, 1),
        ssthresh: MSS.scale(4, 1),
        ..view()
    };
    let rate = |silence: Option<u64>| {
        let mut it = TcpRateAdapter::new(patient, Time::ZERO);
        if let Some(silence) = silence {
            outage(&mut it, 10_000, silence);
        }
        it.admit(at(20_000), at(17_000), &slow);
        it.target()
    };
    let strict = rate(None);
    assert!(
        (Rate::kbps(500)..Rate::kbps(1_500)).contains(&strict),
        "{strict}"
    );
    assert!(rate(Some(4_500)) > strict);
    assert!(rate(Some(4_000)) > rate(Some(4_500)));
    // No reserve is sufficient for an outage of this length.
    assert_eq!(rate(Some(5_800)), strict);
}

#[test]
fn rate_is_reduced_when_an_outage_is_expected() {
    let wide = TcpView {
        srtt: ms(166),
        ..view()
    };
    let rates = |outages: &[u64], bound| {
        let config = TcpRateConfig {
            bound: ms(bound),
            ..config(Mode::Iopt(Law::Exact))
        };
        let mut it = TcpRateAdapter::new(config, Time::ZERO);
        for from in outages {
            outage(&mut it, *from, 3_200);
        }
        // The next one is due 13 s after the second: a second before, at, and a second after it.
        [35_000, 36_000, 37_000].map(|now| match it.admit(at(now), at(now), &wide) {
            FrameDecision::Encode(rate) => rate,
            other => panic!("{other:?}"),
        })
    };
    let full = Rate::kbps(2_000);
    let [before, small, behind] = rates(&[10_000, 23_000], 3_400);
    assert_eq!([before, behind], [full; 2]);
    assert!(small > Rate::kbps(150) && small < full, "{small}");
    // One outage predicts none. The longer bound needs no reduction, the shorter one is infeasible.
    assert_eq!(rates(&[23_000], 3_400), [full; 3]);
    assert_eq!(rates(&[10_000, 23_000], 6_000), [full; 3]);
    assert_eq!(rates(&[10_000, 23_000], 3_000), [full; 3]);
}
