use std::collections::BTreeMap;
use std::mem::offset_of;

use tidegate_core::aggregate::sites::Numbers;

use super::*;
use crate::bpf::layout::tests::{compile_with, layout_assertions, mirror};

/// Compares with the header by a C compiler.
#[test]
fn mirrors_equal_those_of_the_header() {
    let mut mirrors = BTreeMap::from([
        mirror!(Key "application_key": site application unused),
        mirror!(Held "held": at ahead size),
        mirror!(Application "application":
            lock random created latest sent sent_bytes stopped unanswered passed sent_size next
            notified received received_bytes lost late jumps invalid_echoes received_size heard
            last interval rtt_sum rtt_samples outliers due missed next_due expected confirming
            peer_stamp flags peer_available peer_loss shares held_count unused held flows),
        mirror!(Estimate "estimate":
            lost_after fraction rtt outlier deviation available used loss flows stop unused),
        mirror!(Rule "rule":
            remote remote_mask local local_mask site first_port last_port),
        mirror!(Allowed "allowed": words),
        mirror!(Sample "sample":
            kind size key at lost_from lost_gap lost lost_sampled mean_size ecn),
        mirror!(RawNotice "notice": kind length report head unused),
        mirror!(Counters "counters": counts),
        mirror!(Settings "settings": clock opening open),
    ]);
    compile_with("aggregate.h", "aggregate", &layout_assertions(&mirrors)).unwrap();
    mirrors.get_mut("estimate").unwrap().members[2].1 += 4;
    let why = compile_with(
        "aggregate.h",
        "aggregate-moved",
        &layout_assertions(&mirrors),
    )
    .unwrap_err();
    assert!(why.contains("offsetof(struct estimate, rtt)"), "{why}");
}

#[test]
fn records_are_recognised_by_their_length() {
    assert!(matches!(Record::parse(&[0; 56]), Some(Record::Events(_))));
    assert!(Record::parse(&[0; 55]).is_none());
    let mut notice = [0; size_of::<RawNotice>()];
    notice[4] = 96;
    assert!(matches!(Record::parse(&notice), Some(Record::Notice(n)) if n.head.len() == 96));
    notice[4] = 97;
    assert!(Record::parse(&notice).is_none());
}

#[test]
fn rules_are_the_combinations_of_a_site() {
    let site = |hosts: &[&str], ports: u16| SiteRule {
        hosts: hosts.iter().map(|text| text.parse().unwrap()).collect(),
        local: vec!["192.0.2.0/24".parse().unwrap()],
        ports: (1..=ports).map(|port| Numbers::new(port, port)).collect(),
        applications: vec![Numbers::new(64, 65)],
    };
    let all = rules(&[site(&["198.51.100.0/24", "::/0"], 2)]).unwrap();
    assert_eq!(all.len(), 4);
    assert_eq!(all[0].remote.map(u32::to_be), [0, 0, 0xffff, 0xc633_6400]);
    assert_eq!(
        all[0].remote_mask.map(u32::to_be),
        [!0, !0, !0, 0xffff_ff00]
    );
    assert_eq!(all[2].remote_mask, [0; 4]);
    assert_eq!(allowed(&site(&[], 0)).words[..3], [0, 3, 0]);
    assert!(rules(&[site(&["::/0"], 65)]).is_none());
    assert!(rules(&vec![site(&["::/0"], 1); 17]).is_none());
}
