//! Curves from what was counted of flows, rather than from their packets.

use tidegate_sim::play::BIN;
use tidegate_sim::run::BinRow;

use super::super::series::Bins;

/// The next whole number of counted spans, in seconds: others would hold now more of them, now
/// fewer.
pub(super) fn whole(seconds: f64) -> f64 {
    let span = BIN.as_secs_f64();
    (seconds / span - 1e-6).ceil().max(1.0) * span
}

/// What arrived in each span of `width` seconds, which is [`whole`], in b/s: the sum of a bin.
pub(super) fn received<'a>(
    rows: impl IntoIterator<Item = &'a &'a BinRow>,
    (from, to): (f64, f64),
    width: f64,
) -> Bins {
    let rows = rows.into_iter().map(|row| {
        let bits = row.bin.received.bytes.bits() as f64;
        (middle(row), bits / width)
    });
    Bins::new(from, to, width, rows)
}

/// One-way delay of packets above `least` seconds, in ms, by when they arrived.
pub(super) fn waits<'a>(rows: &'a [&'a BinRow], least: f64) -> impl Iterator<Item = Wait> + 'a {
    let some = rows.iter().filter(|row| row.bin.received.packets > 0);
    some.map(move |row| {
        let packets = row.bin.received.packets as f64;
        let sum = row.bin.delay_sum.as_secs_f64() - least * packets;
        Wait {
            at: middle(row),
            packets,
            sum: 1e3 * sum.max(0.0),
        }
    })
}

/// How long packets waited that arrived in a short span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Wait {
    /// In seconds.
    pub(super) at: f64,
    pub(super) packets: f64,
    /// Of all packets together, in ms.
    pub(super) sum: f64,
}

/// The middle of a span, which falls into one bin however its edges are rounded.
fn middle(row: &BinRow) -> f64 {
    row.at.as_secs_f64() + BIN.as_secs_f64() / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_whole_spans() {
        for (asked, given) in [(0.0, 0.2), (0.2, 0.2), (0.25, 0.4), (0.4, 0.4), (1.0, 1.0)] {
            assert!((whole(asked) - given).abs() < 1e-9, "{asked}");
        }
    }
}
