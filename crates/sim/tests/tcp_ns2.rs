//! The classic TCP senders and the sink against ns-2.35, packet by packet. `docs/tcp.md` says how
//! the references were made.

mod tcp_bench;

use tcp_bench::reference::Reference;

fn check(text: &str) {
    let reference: Reference = text.parse().unwrap();
    if let Err(difference) = reference.check() {
        panic!("{difference}");
    }
}

macro_rules! as_ns2 {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                check(include_str!(concat!("data/ns2/", stringify!($name), ".txt")));
            }
        )*
    };
}

as_ns2!(
    list_newreno,
    list_reno,
    list_sack,
    path_newreno_bursts,
    path_newreno_variants,
    path_reno_delack,
    path_reno_ecn,
    path_reno_variants,
    path_sack_bursts,
    path_sack_ecn,
    path_sack_short,
    queue_newreno,
    queue_reno,
    queue_sack,
);

/// The comparison notices one segment more in the initial window, long after the start.
#[test]
fn another_sender_is_noticed() {
    let text = include_str!("data/ns2/queue_sack.txt");
    let other = text.replacen("# queue,sack", "# queue,sack,iw=3", 1);
    let reference: Reference = other.parse().unwrap();
    assert!(reference.check().is_err());
}
