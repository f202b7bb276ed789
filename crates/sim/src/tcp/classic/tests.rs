//! Response of a sender to a sequence of acknowledgements.

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::Ecn;

use super::*;
use crate::packet_agent::Outbox;
use crate::tcp::SourceKind;

/// The window after each of `acks` acknowledgements of one segment.
fn windows(config: &Config, acks: u32) -> Vec<f64> {
    let source = SourceConfig {
        kind: SourceKind::Packets(1_000),
        start: Time::ZERO,
        stop: Time::FAR,
    };
    let config = Config {
        syn: false,
        ..*config
    };
    let mut sender = Sender::new(&config, &source);
    let (mut rng, mut out, mut trace) = (Pcg64Mcg::new(1), Outbox::default(), ());
    let mut cx = AgentCx::new(Time::ZERO, &mut rng, &mut trace, &mut out);
    sender.on_timer(&mut cx);
    let mut after = |next| {
        let mut body = Body::Ack(Ack {
            next,
            echo: Time::ZERO,
            sack: [(0, 0); 3],
            ece: false,
            again: false,
            marks: 0,
        });
        let arrival = Arrival {
            size: 40,
            ecn: Ecn::NotEct,
            dscp: 0,
        };
        sender.on_packet(&mut cx, &arrival, &mut body);
        sender.state().cwnd
    };
    (2..=acks + 1).map(&mut after).collect()
}

#[test]
fn growth_of_a_window_at_the_threshold_is_configurable() {
    let ns2 = Config {
        initial_window: InitialWindow::Segments(2),
        initial_ssthresh: Some(2),
        ..Config::default()
    };
    assert_eq!(windows(&ns2, 2), [2.5, 2.9]);
    let bsd = Config {
        slow_start_at_threshold: true,
        ..ns2
    };
    assert_eq!(windows(&bsd, 2), [3.0, 3.0 + 1.0 / 3.0]);
    // Above the threshold both variants use congestion avoidance, below it slow start.
    for threshold in [1, 5] {
        let with = |at_it| Config {
            initial_ssthresh: Some(threshold),
            slow_start_at_threshold: at_it,
            ..ns2
        };
        assert_eq!(windows(&with(true), 2), windows(&with(false), 2));
    }
}
