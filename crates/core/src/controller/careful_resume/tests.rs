use super::*;
use crate::control::{FlowId, Kind, PacketOutcome};
use crate::random::Seed;
use crate::units::RemoteTime;

const RTT: Duration = Duration::from_millis(100);
const SIZE: Bytes = Bytes(1_000);
const SLOW: Rate = Rate::kbps(100);

/// A flow whose controller stays at 100 kb/s.
struct Flow {
    resume: CarefulResume,
    now: Time,
    seq: u64,
}

impl Flow {
    fn new(prior: Prior) -> Self {
        Self {
            resume: CarefulResume::new(SIZE, Some(prior), SLOW),
            now: Time::ZERO,
            seq: 0,
        }
    }

    fn call(&mut self, call: impl FnOnce(&mut CarefulResume, &mut Context<'_>)) {
        let mut cx = Context {
            now: self.now,
            rng: &mut Seed(1).stream("resume"),
            trace: &mut (),
        };
        call(&mut self.resume, &mut cx);
    }

    /// Sends for a round trip at the target; returns the first packet and the one after the last.
    fn send(&mut self) -> (u64, u64) {
        let first = self.seq;
        let end = self.now + RTT;
        while self.now < end {
            let sent = Sent {
                flow: FlowId(0),
                seq: self.seq,
                size: SIZE,
                kind: Kind::Media,
                app_limited: false,
            };
            self.seq += 1;
            self.call(|resume, cx| resume.on_sent(cx, &sent, &Target::of(SLOW)));
            self.now += SIZE / self.rate();
        }
        self.now = end;
        (first, self.seq)
    }

    fn report(&mut self, (first, end): (u64, u64), lost: &[u64], rtt: Duration) {
        let fate = |seq| PacketOutcome {
            flow: FlowId(0),
            seq,
            size: SIZE,
            sent: Time::ZERO,
            outcome: if lost.contains(&seq) {
                Outcome::Lost
            } else {
                Outcome::Received {
                    at: RemoteTime(seq),
                    ecn: Ecn::NotEct,
                }
            },
        };
        let outcomes: Vec<PacketOutcome> = (first..end).map(fate).collect();
        if self.resume.is_on() {
            let report = Report::new(&outcomes).rtt(rtt);
            self.resume.on_report(self.now, &report, SLOW);
        }
    }

    fn rate(&self) -> Rate {
        self.resume.limit(Target::of(SLOW)).send
    }
}

fn prior() -> Prior {
    Prior {
        rate: Rate::kbps(4_000),
        rtt: RTT,
        confidence: 0.9,
    }
}

#[test]
fn half_of_the_prior_is_probed_for_a_round_trip_and_kept() {
    let mut flow = Flow::new(prior());
    let first = flow.send();
    assert_eq!(flow.rate(), SLOW);
    flow.report(first, &[], RTT);
    assert_eq!(flow.rate(), Rate::kbps(2_000));
    let probe = flow.send();
    // 25 packets are 2 Mb/s for a round trip.
    assert_eq!(probe.1 - probe.0, 25);
    flow.report(probe, &[], RTT);
    assert!(
        matches!(flow.resume.phase, Phase::Holding { .. }),
        "{:?}",
        flow.resume
    );
    assert_eq!(flow.rate(), Rate::kbps(2_000));
    // A controller that does not reach the rate gets the decision back.
    for _ in 0..HOLD {
        let sent = flow.send();
        flow.report(sent, &[], RTT);
    }
    assert_eq!((flow.resume.phase, flow.rate()), (Phase::Normal, SLOW));
}

#[test]
fn congestion_in_the_probe_halves_what_was_delivered() {
    let mut flow = Flow::new(prior());
    let first = flow.send();
    flow.report(first, &[], RTT);
    let (first, end) = flow.send();
    // 15 of 25 packets arrive: half of 1.2 Mb/s is above the controller's own 100 kb/s.
    let lost: Vec<u64> = (first + 15..end).collect();
    flow.report((first, end), &lost, RTT);
    let Phase::Retreat { rate, .. } = flow.resume.phase else {
        panic!("{:?}", flow.resume)
    };
    assert_eq!(rate, Rate::kbps(600));
    assert_eq!(flow.rate(), SLOW);
    let later = flow.send();
    flow.report(later, &[], RTT);
    assert_eq!(flow.resume.phase, Phase::Normal);
}

#[test]
fn a_prior_that_does_not_fit_is_rejected() {
    for (rtt, probed) in [(49, false), (50, true), (1_000, true), (1_001, false)] {
        let mut flow = Flow::new(prior());
        let first = flow.send();
        flow.report(first, &[], Duration::from_millis(rtt));
        assert_eq!(flow.rate() > SLOW, probed, "{rtt} ms");
    }
    // Half of it is less than twice the controller's rate.
    let mut slower = Flow::new(Prior {
        rate: Rate::kbps(399),
        ..prior()
    });
    let first = slower.send();
    slower.report(first, &[], RTT);
    assert_eq!(slower.resume.phase, Phase::Normal);
    let unsure = Flow::new(Prior {
        confidence: 0.1,
        ..prior()
    });
    assert_eq!(unsure.resume.phase, Phase::Normal);
}

#[test]
fn a_loss_among_the_first_packets_ends_the_resume() {
    let mut flow = Flow::new(prior());
    let (first, end) = flow.send();
    flow.report((first, end), &[first], RTT);
    assert_eq!((flow.resume.phase, flow.rate()), (Phase::Normal, SLOW));
}

#[test]
fn a_probe_without_an_answer_ends() {
    let mut flow = Flow::new(prior());
    let first = flow.send();
    flow.report(first, &[], RTT);
    assert!(flow.rate() > SLOW);
    let (at, _) = flow.resume.next_timeout().expect("a deadline");
    assert_eq!(at, flow.now + RTT * 4 + REPORT_DELAY);
    flow.now = at;
    flow.call(|resume, cx| resume.on_timeout(cx, &Target::of(SLOW)));
    assert_eq!((flow.resume.phase, flow.rate()), (Phase::Normal, SLOW));
}
