//! Invariants that must not be violated.

use core::time::Duration;

use proptest::prelude::*;
use tidegate_core::random::{Seed, unit};
use tidegate_core::units::{Rate, Time};
use tidegate_sim::packet_agent::{Ack, Agent as _};
use tidegate_sim::tcp::modern::{Config, CongestionConfig, Detection};
use tidegate_sim::tcp::{InitialWindow, SinkConfig};

use super::dumbbell::{Dumbbell, Path, delayed};
use super::wire::{Sent, Way, Wire};
use super::{at, ms, packets, with};

/// Loses packets, and delays them by more than their spacing.
fn lottery(
    seed: u64,
    losses: (f64, f64),
    base: Duration,
    jitter: Duration,
) -> impl FnMut(&Sent<'_>) -> Option<Duration> {
    let mut rng = Seed(seed).stream("wire");
    move |sent| {
        let odds = match sent.way {
            Way::Data => losses.0,
            Way::Acks => losses.1,
        };
        let lost = unit(&mut rng) < odds;
        let delay = base + jitter.mul_f64(unit(&mut rng));
        (!lost).then_some(delay)
    }
}

fn congestion() -> impl Strategy<Value = CongestionConfig> {
    prop_oneof![
        Just(CongestionConfig::cubic()),
        Just(CongestionConfig::bbr()),
        Just(CongestionConfig::prague()),
        Just(CongestionConfig::reno()),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    (congestion(), any::<[bool; 7]>(), 1..300_u32, 1..20_u32).prop_map(
        |(congestion, flags, window, initial)| Config {
            detection: if flags[0] {
                Detection::RackTlp
            } else {
                Detection::Duplicates
            },
            tail_probes: flags[6],
            pacing: flags[1],
            ecn: flags[2],
            syn: flags[3],
            undo: flags[4],
            slow_start_restart: flags[5],
            window,
            initial_window: InitialWindow::Segments(initial),
            ..with(congestion)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// With any loss, delay or reordering, a transfer ends. Until then a packet is in flight or a
    /// timer runs.
    #[test]
    fn transfers_never_stall(
        config in config(),
        size in 1..400_u32,
        losses in (0.0..0.4, 0.0..0.4),
        times in (0..300_000_u64, 0..300_000_u64),
        delay in prop::option::of(1..200_u64),
        sack_blocks in 0..4_u8,
        seed: u64,
    ) {
        let sink = SinkConfig { delay: delay.map(ms), sack_blocks, ..SinkConfig::default() };
        let (base, jitter) = (Duration::from_micros(times.0), Duration::from_micros(times.1));
        let fate = lottery(seed, losses, base, jitter);
        let mut wire = Wire::new(&config, &packets(size), &sink, fate);
        let mut steps = 0;
        while !wire.sender.is_done() {
            prop_assert!(wire.step(Time::FAR), "no event is pending: {:?}", wire.sender);
            steps += 1;
            prop_assert!(steps < 200_000, "{:?}", wire.sender.state());
            let state = wire.sender.state();
            prop_assert!(state.cwnd >= 1.0 && state.cwnd <= f64::from(config.window));
        }
        prop_assert_eq!(wire.sink.next(), size + u32::from(config.syn));
        prop_assert_eq!(wire.sender.state().in_flight, 0);
        prop_assert_eq!(wire.sender.next_timer(), Time::FAR);
    }

    /// Early timer calls have no effect.
    #[test]
    fn early_timers_have_no_effect(config in config(), seed: u64) {
        let run = |early: bool| {
            let fate = lottery(seed, (0.05, 0.05), ms(20), ms(5));
            let mut wire = Wire::new(&config, &packets(200), &SinkConfig::default(), fate);
            while !wire.sender.is_done() && wire.step(at(10_000)) {
                if early {
                    wire.run_timers();
                }
            }
            (wire.now, wire.sender.counters(), wire.sender.recovery_counters())
        };
        prop_assert_eq!(run(false), run(true));
    }

    /// No acknowledgement, even if invalid, makes a sender panic, wait without a timer, or count
    /// more deliveries than it sent.
    #[test]
    fn forged_acknowledgements_are_harmless(
        config in config(),
        lies in prop::collection::vec((0..500_u32, any::<[u32; 6]>(), 0..10_000_u64, any::<[bool; 3]>()), 1..200),
        seed: u64,
    ) {
        let fate = lottery(seed, (0.1, 0.1), ms(20), ms(5));
        let mut wire = Wire::new(&config, &packets(400), &SinkConfig::default(), fate);
        for (next, numbers, echo, flags) in lies {
            for _ in 0..5 {
                wire.step(at(1_000_000));
            }
            // Close to the sent numbers, or arbitrary.
            let number = |n: usize| if flags[2] { numbers[n] % 500 } else { numbers[n] };
            let block = |n: usize| (number(2 * n), number(2 * n + 1));
            wire.forge_ack(Ack {
                next,
                echo: Time::from_millis(echo),
                sack: [block(0), block(1), block(2)],
                ece: flags[0],
                again: flags[1],
                marks: (echo * 7) as u16,
            });
            let (sender, counters) = (&wire.sender, wire.sender.counters());
            prop_assert!(sender.path().delivered <= counters.sent);
            prop_assert!(sender.is_done() || sender.next_timer() < Time::FAR);
            prop_assert!(u64::from(counters.acked) <= counters.sent);
        }
    }
}

/// From a bit to a terabit per second, from a microsecond to an hour.
#[test]
fn extremes_do_not_overflow() {
    let rates = [Rate::bps(1), Rate::bps(1_000), Rate::kbps(1_000_000_000)];
    for rate in rates {
        for rtt in [Duration::from_micros(1), Duration::from_hours(1)] {
            for congestion in [
                CongestionConfig::cubic(),
                CongestionConfig::bbr(),
                CongestionConfig::reno(),
            ] {
                let path = Path {
                    rate,
                    rtt,
                    queue: 100,
                    ..Path::new(1, 1, 1.0)
                };
                let config = Config {
                    pacing: true,
                    ..with(congestion)
                };
                let mut dumbbell = Dumbbell::new(&path, &delayed(), &[(config, packets(500))]);
                dumbbell.run(at(5_000_000));
                let flow = &dumbbell.flows[0];
                // At one bit per second, 400 packets take this long if each arrives once.
                let least = if rate == Rate::bps(1) { 5 } else { 501 };
                assert!(
                    flow.sink.next() >= least,
                    "{rate:?} {rtt:?} {congestion:?} {flow:?}"
                );
            }
        }
    }
}
