//! TFRC and RAP with invalid and extreme inputs.

use core::time::Duration;

use proptest::prelude::*;
use tidegate_core::control::{
    Algorithm, Change, Context, Demand, Ecn, FlowId, Kind, Measured, Observer, Outcome,
    PacketOutcome, RateControl, Sent, Start,
};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::rap::RapConfig;
use tidegate_core::controller::replay::Input;
use tidegate_core::controller::tfrc::{PacketSize, TfrcConfig};
use tidegate_core::random::Seed;
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Rate, RemoteTime, Time};
use tidegate_sim::ns2::tfrc::Ns2TfrcConfig;

/// Numbers that are likely to cause errors: small ones, arbitrary ones, and the maximum.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..64_u64, 2 => 0..2_000_000_u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        4 => (0..400_u64).prop_map(Duration::from_millis),
        1 => number().prop_map(Duration::from_nanos),
        1 => Just(Duration::MAX),
    ]
}

fn fate() -> impl Strategy<Value = PacketOutcome> {
    let outcome = prop_oneof![
        1 => Just(Outcome::Lost),
        3 => (number(), 0..4_u8).prop_map(|(at, ecn)| Outcome::Received {
            at: RemoteTime(at),
            ecn: Ecn::from_bits(ecn),
        }),
    ];
    (number(), number(), number(), outcome).prop_map(|(seq, size, sent, outcome)| PacketOutcome {
        flow: FlowId(0),
        seq,
        size: Bytes(size),
        sent: Time::from_nanos(sent),
        outcome,
    })
}

fn input() -> impl Strategy<Value = Input> {
    let sent = (number(), number(), any::<bool>()).prop_map(|(seq, size, app_limited)| {
        Input::Sent(Sent {
            flow: FlowId(0),
            seq,
            size: Bytes(size),
            kind: Kind::Media,
            app_limited,
        })
    });
    let measured = (number(), any::<f64>()).prop_map(|(rate, loss_event_rate)| Measured {
        by: Observer::Receiver,
        receive_rate: Rate::bps(rate),
        loss_event_rate,
    });
    let report = (
        proptest::collection::vec(fate(), 0..12),
        proptest::collection::vec(fate(), 0..3),
        proptest::collection::vec(fate(), 0..3),
        proptest::option::of(span()),
        proptest::option::weighted(0.1, measured),
    )
        .prop_map(
            |(outcomes, dummies, spurious, rtt, measured)| Input::Report {
                packets: outcomes,
                dummies,
                spurious,
                rtt,
                measured,
            },
        );
    let path = number().prop_map(|size| {
        Input::Change(Change::Path {
            packet_size: Bytes(size),
            prior: None,
        })
    });
    prop_oneof![12 => sent, 8 => report, 3 => Just(Input::Timeout), 1 => path]
}

/// Returns the trace of the inputs. With `grows`, a timeout may raise the rate.
fn run(config: &dyn Algorithm, inputs: &[(Duration, Input)], grows: bool) -> Vec<(Time, Event)> {
    let demand = Demand {
        floor: Rate::ZERO,
        ceiling: Rate::MAX,
        shares: 1,
    };
    let mut controller = config.start(&Start::new(Time::ZERO, Bytes(1_200), demand));
    let mut rng = Seed(1).stream("inputs");
    let mut trace = Vec::new();
    let mut now = Time::ZERO;
    for (wait, input) in inputs {
        now += *wait;
        let before = controller.target().send;
        let mut cx = Context {
            now,
            rng: &mut rng,
            trace: &mut trace,
        };
        input.apply(&mut controller, &mut cx);
        check(&controller, now, input);
        if *input == Input::Timeout && !grows {
            assert!(controller.target().send <= before);
        }
    }
    trace
}

fn check(controller: &RateControl, now: Time, input: &Input) {
    let target = controller.target();
    assert!(target.media <= target.send);
    let summary = controller.summary();
    assert!(
        (0.0..=1.0).contains(&summary.loss_event_rate),
        "{summary:?}"
    );
    match input {
        // An expired timer must not leave a deadline in the past, or a driver would busy-loop.
        Input::Timeout if now < Time::FAR => {
            assert!(controller.next_timeout().is_none_or(|(at, _)| at > now));
        }
        Input::Sent(_) => assert!(controller.next_timeout().is_some()),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn no_input_breaks_tfrc(
        inputs in proptest::collection::vec((span(), input()), 1..60),
        damping: bool,
        nominal: bool,
        older: bool,
        each_report: bool,
    ) {
        let packet_size = if nominal { PacketSize::Nominal } else { PacketSize::Mean };
        let report_interval = Duration::from_millis(if each_report { 0 } else { 50 });
        let config: ControllerConfig = if older {
            Ns2TfrcConfig { damping, packet_size, report_interval, ..Ns2TfrcConfig::default() }.into()
        } else {
            TfrcConfig { damping, packet_size, report_interval, ..TfrcConfig::default() }.into()
        };
        // The same inputs give the same events.
        prop_assert_eq!(run(&config, &inputs, false), run(&config, &inputs, false));
    }

    #[test]
    fn no_input_breaks_rap(
        inputs in proptest::collection::vec((span(), input()), 1..60),
        fine_grain: bool,
        increase: f64,
        decrease: f64,
        rtt_gain: f64,
    ) {
        let config = RapConfig { fine_grain, increase, decrease, rtt_gain, ..RapConfig::default() };
        prop_assert_eq!(run(&config, &inputs, true), run(&config, &inputs, true));
    }
}
