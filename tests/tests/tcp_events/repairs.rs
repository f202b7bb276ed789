//! What is counted while a window is repaired, and windows that shrink without a loss.

use super::*;
use tidegate_core::units::Bytes;
use tidegate_live::tcp_sysctls::Stack;

fn value(event: &Event, variable: Variable) -> u64 {
    event.state.get(variable).unwrap()
}

/// Between a recovery and its end, and at no other time, acknowledgements are those of a repair, and
/// duplicates behind the third are further ones.
#[test]
fn repairs_are_counted_while_they_last() {
    judged_in_lab("repairs_are_counted_while_they_last", || {
        let Some((events, _alone)) = in_kernel() else {
            return;
        };
        let loss = LossConfig::Every(NonZeroU32::new(250).unwrap());
        let emulator = Emulator::start(&path(loss, Vec::new())).unwrap();
        let seen = transfer(&emulator, &events, 3_000_000, Wanted::ALL);
        consistent(&seen);
        // Behind the end of its half nothing is counted.
        let open = |e: &&Event| e.state.tcp_state() == Some(TcpState::Established);
        let seen: Vec<&Event> = seen.iter().take_while(open).collect();
        let mut repairs = 0;
        let mut further = 0;
        let mut repairing = false;
        for pair in seen.windows(2) {
            let grows = |v| value(pair[1], v) - value(pair[0], v);
            match pair[0].what {
                Happening::Recovery { .. } => repairing = true,
                Happening::Recovered { .. } => repairing = false,
                _ => {}
            }
            let repair = grows(Variable::AcksRepair);
            if !repairing {
                assert_eq!(repair, 0, "{pair:?}");
                assert_eq!(grows(Variable::FurtherDuplicates), 0, "{pair:?}");
            }
            if let Happening::Recovered { from } = pair[1].what {
                assert_eq!(from, CaState::Recovery, "{pair:?}");
                // The last one ends it.
                assert!(repair >= 1, "{pair:?}");
                repairs += 1;
            }
            further += grows(Variable::FurtherDuplicates);
        }
        let last = seen.last().unwrap();
        assert!(repairs >= 5, "{repairs} repairs in {seen:?}");
        assert_eq!(value(last, Variable::FurtherDuplicates), further);
        // Most of a window of 60 packets comes behind the one that is missing.
        assert!(further > 10 * repairs, "{further} in {repairs}");
        let duplicates = value(last, Variable::Duplicates);
        let thirds = seen
            .iter()
            .filter(|e| e.what == Happening::ThirdDuplicate)
            .count() as u64;
        assert!(duplicates >= further + 3 * thirds, "{duplicates}");
    });
}

/// A router marks packets and drops none: the window shrinks, and nothing is repaired.
#[test]
fn marks_shrink_the_window_without_a_recovery() {
    judged_in_lab("marks_shrink_the_window_without_a_recovery", || {
        let Some((events, _alone)) = in_kernel() else {
            return;
        };
        let mut config = path(LossConfig::NONE, Vec::new());
        config.network.links[0].config.queue = QueueConfig::DropTail(DropTailConfig {
            mark_above: Some(Bytes(15_000)),
            ..DropTailConfig::packets(1_000)
        });
        let emulator = Emulator::start(&config).unwrap();
        let stack = Stack {
            ecn: true,
            ..Stack::default()
        };
        for host in [Host::A, Host::B] {
            stack.apply(emulator.namespace(host)).unwrap();
        }
        let seen = transfer(&emulator, &events, 2_000_000, Wanted::ALL);
        consistent(&seen);
        let reduced: Vec<&Event> = seen
            .iter()
            .filter(|e| e.what == Happening::Reduced)
            .collect();
        assert!(reduced.len() >= 2, "{seen:?}");
        for event in &reduced {
            // Told before the state changes and after the threshold was set.
            assert_ne!(event.state.ca_state(), Some(CaState::Reducing));
            let half = value(event, Variable::Cwnd) / 2;
            assert_eq!(value(event, Variable::Ssthresh), half.max(2), "{event:?}");
            assert_eq!(value(event, Variable::LostOut), 0, "{event:?}");
        }
        // A window that shrinks takes a round trip of acknowledgements.
        for two in reduced.windows(2) {
            let repair = |e| value(e, Variable::AcksRepair);
            assert!(repair(two[1]) > repair(two[0]), "{two:?}");
        }
        let (report, _) = emulator.stop().unwrap();
        assert!(report.marks > 0 && report.drops == 0, "{report:?}");
        let kinds = kinds(&seen);
        assert!(!kinds.contains(EventKind::Recovery), "{kinds}");
        assert!(!kinds.contains(EventKind::ThirdDuplicate), "{kinds}");
    });
}
