//! Response latency, and its use in the printed laws.

use super::*;
use crate::tcp_rate::backlog_of_reaction;

/// Simulates a response `span` after the notification, with an encoding time of `encoder`.
fn react(
    it: &mut ResponseLatencyEstimator,
    notification: EventNotification,
    heard: Time,
    span: Duration,
    encoder: Duration,
) -> Time {
    it.begin(heard, notification);
    let answered = heard + span;
    it.rate_available(answered);
    let reaction = it.encoded(answered + encoder, answered).unwrap();
    assert_eq!(
        (reaction.rate_available_at, reaction.encoder),
        (answered, encoder)
    );
    answered + encoder
}

#[test]
fn response_latency_is_signal_answer_and_encoding_time() {
    //= itcp-5.1.1-reaction (test)
    let mut it = ResponseLatencyEstimator::default();
    assert_eq!(it.encoded(at(900), at(880)), None, "no event yet");
    it.begin(at(1_002), TcpEvent::TimedOut.at(at(1_000)));
    // This frame was in progress, at the old rate.
    assert_eq!(it.encoded(at(1_005), at(999)), None);
    it.rate_available(at(1_010));
    assert_eq!(it.encoded(at(1_014), at(1_007)), None);
    // The wait for the next picture is not encoding time.
    let reaction = it.encoded(at(1_053), at(1_050)).unwrap();
    assert_eq!(reaction.notification, TcpEvent::TimedOut.at(at(1_000)));
    assert_eq!((reaction.signal(), reaction.answer()), (ms(2), ms(8)));
    assert_eq!(reaction.encoder, ms(4 + 3));
    assert_eq!(reaction.total(), ms(2 + 8 + 7));
    assert_eq!(it.expected(), Some(ms(17)));
    assert_eq!(it.encoded(at(1_093), at(1_090)), None, "first frame only");
}

#[test]
fn newer_event_replaces_an_unfinished_measurement() {
    let mut it = ResponseLatencyEstimator::default();
    it.begin(at(1_000), TcpEvent::ThirdDuplicate.at(at(1_000)));
    it.begin(at(1_015), TcpEvent::TimedOut.at(at(1_014)));
    it.rate_available(at(1_035));
    let reaction = it.encoded(at(1_040), at(1_035)).unwrap();
    assert_eq!(reaction.total(), ms(1 + 20 + 5));
}

#[test]
fn the_largest_of_the_last_eight_is_expected() {
    let mut it = ResponseLatencyEstimator::default();
    assert_eq!(it.expected(), None);
    let mut now = at(1_000);
    for took in [300, 5, 7, 6, 5, 5, 5, 5] {
        now = react(&mut it, TcpEvent::TimedOut.at(now), now, ms(0), ms(took));
        assert_eq!(it.expected(), Some(ms(300)));
    }
    react(&mut it, TcpEvent::TimedOut.at(now), now, ms(1), ms(1));
    assert_eq!(it.expected(), Some(ms(7)), "one slow response expires");
}

/// Q of equation (10) uses the configured reaction time until one is measured.
#[test]
fn printed_laws_use_the_measured_reaction_time() {
    //= itcp-5.1.1-reaction (test)
    //= itcp-4.4-paper-backlog (test)
    for law in [Law::Paper, Law::PaperM] {
        let config = TcpRateConfig {
            default_response_latency: ms(20),
            ..config(Mode::Iopt(law))
        };
        let mut it = TcpRateAdapter::new(config, Time::ZERO);
        let backlog = |it: &mut TcpRateAdapter, now, happened| {
            it.on_event(now, TcpEvent::TimedOut.at(happened), &view());
            it.take_rate_reductions()[0].backlog
        };
        let by = |now: Time, reaction| {
            let normal = satisfied_rate(view().sent, Time::ZERO, now);
            backlog_of_reaction(normal, reaction, law.slope(view().path()))
        };
        let first = at(10_000);
        assert_eq!(backlog(&mut it, first, at(9_990)), by(first, ms(20)));
        // The next picture is captured after 30 ms, and the encoding time is 35 ms.
        it.on_timer(at(10_030));
        let reaction = it.on_encoded(at(10_065), at(10_030)).unwrap();
        assert_eq!(reaction.total(), ms(10 + 35));
        let second = at(30_000);
        assert_eq!(backlog(&mut it, second, second), by(second, ms(45)));
    }
}

/// The simulated delay of an encoder is part of the measured latency.
#[test]
fn simulated_encoder_delay_is_measured() {
    let config = TcpRateConfig {
        encoder_delay: ms(20),
        ..config(Mode::Iexp(Backoff::PAPER))
    };
    let mut it = TcpRateAdapter::new(config, Time::ZERO);
    it.on_event(at(10_000), TcpEvent::TimedOut.at(at(10_000)), &view());
    assert_eq!(it.on_encoded(at(10_010), at(10_010)), None);
    it.on_timer(it.next_timer());
    let reaction = it.on_encoded(at(10_090), at(10_090)).unwrap();
    assert_eq!(reaction.total(), ms(20));
    // The exact law responds immediately.
    let mut it = machine(Mode::Iopt(Law::Exact));
    it.on_event(at(10_000), TcpEvent::TimedOut.at(at(10_000)), &view());
    let reaction = it.on_encoded(at(10_007), at(10_000)).unwrap();
    assert_eq!(reaction.total(), ms(7));
}
