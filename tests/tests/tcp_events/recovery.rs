//! Counters during recovery, and window reductions without a loss.

use super::*;
use tidegate_core::units::Bytes;
use tidegate_live::tcp_sysctls::TcpSysctls;

fn value(event: &Event, variable: Variable) -> u64 {
    event.state.get(variable).unwrap()
}

/// ACKs count as repairs between a recovery and its end only. Duplicates after the third are
/// further ones.
#[test]
fn repairs_are_counted_during_recovery() {
    judged_in_lab("recovery::repairs_are_counted_during_recovery", || {
        let Some((events, _alone)) = in_kernel() else {
            return;
        };
        let loss = LossConfig::Every(NonZeroU32::new(250).unwrap());
        let emulator = Emulator::start(&path(loss, Vec::new())).unwrap();
        let seen = transfer(&emulator, &events, 3_000_000, EventRequest::ALL);
        consistent(&seen);
        // After the close of its half of the connection, the sender counts no ACKs.
        let open = |e: &&Event| e.state.tcp_state() == Some(TcpState::Established);
        let seen: Vec<&Event> = seen.iter().take_while(open).collect();
        let mut repairs = 0;
        let mut further = 0;
        let mut repairing = false;
        for pair in seen.windows(2) {
            let grows = |v| value(pair[1], v) - value(pair[0], v);
            match pair[0].what {
                EventDetails::Recovery { .. } => repairing = true,
                EventDetails::Recovered { .. } => repairing = false,
                _ => {}
            }
            let repair = grows(Variable::AcksRepair);
            if !repairing {
                assert_eq!(repair, 0, "{pair:?}");
                assert_eq!(grows(Variable::FurtherDuplicates), 0, "{pair:?}");
            }
            if let EventDetails::Recovered { from } = pair[1].what {
                assert_eq!(from, CaState::Recovery, "{pair:?}");
                // The last ACK ends the recovery.
                assert!(repair >= 1, "{pair:?}");
                repairs += 1;
            }
            further += grows(Variable::FurtherDuplicates);
        }
        let last = seen.last().unwrap();
        assert!(repairs >= 5, "{repairs} repairs in {seen:?}");
        assert_eq!(value(last, Variable::FurtherDuplicates), further);
        // Most of a window of 60 packets arrives after the missing one.
        assert!(further > 10 * repairs, "{further} in {repairs}");
        let duplicates = value(last, Variable::Duplicates);
        let thirds = seen
            .iter()
            .filter(|e| e.what == EventDetails::ThirdDuplicate)
            .count() as u64;
        assert!(duplicates >= further + 3 * thirds, "{duplicates}");
    });
}

/// A router marks packets without drops: the window is reduced, and there is no recovery.
#[test]
fn marks_reduce_the_window_without_a_recovery() {
    judged_in_lab(
        "recovery::marks_reduce_the_window_without_a_recovery",
        || {
            let Some((events, _alone)) = in_kernel() else {
                return;
            };
            let mut config = path(LossConfig::NONE, Vec::new());
            config.network.links[0].config.queue = QueueConfig::DropTail(DropTailConfig {
                mark_above: Some(Bytes(15_000)),
                ..DropTailConfig::packets(1_000)
            });
            let emulator = Emulator::start(&config).unwrap();
            let stack = TcpSysctls {
                ecn: true,
                ..TcpSysctls::default()
            };
            for host in [Host::A, Host::B] {
                stack.apply(emulator.namespace(host)).unwrap();
            }
            let seen = transfer(&emulator, &events, 2_000_000, EventRequest::ALL);
            consistent(&seen);
            let reduced: Vec<&Event> = seen
                .iter()
                .filter(|e| e.what == EventDetails::Reduced)
                .collect();
            assert!(reduced.len() >= 2, "{seen:?}");
            for event in &reduced {
                // The event precedes the change of state and follows that of the threshold.
                assert_ne!(event.state.ca_state(), Some(CaState::Reducing));
                let half = value(event, Variable::Cwnd) / 2;
                assert_eq!(value(event, Variable::Ssthresh), half.max(2), "{event:?}");
                assert_eq!(value(event, Variable::LostOut), 0, "{event:?}");
            }
            // A reduction of the window takes a round trip of ACKs.
            for two in reduced.windows(2) {
                let repair = |e| value(e, Variable::AcksRepair);
                assert!(repair(two[1]) > repair(two[0]), "{two:?}");
            }
            let (report, _) = emulator.stop().unwrap();
            assert!(report.marks > 0 && report.drops == 0, "{report:?}");
            let kinds = kinds(&seen);
            assert!(!kinds.contains(EventKind::Recovery), "{kinds}");
            assert!(!kinds.contains(EventKind::ThirdDuplicate), "{kinds}");
        },
    );
}
