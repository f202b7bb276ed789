//! Curves from the counters of flows rather than from their packets.

use tidegate_record::{BIN, BinRow};

use super::super::series::Bins;

/// Rounds up to a whole number of counter intervals, in seconds. Otherwise the number of counter
/// intervals per bin would vary.
pub(super) fn whole(seconds: f64) -> f64 {
    let span = BIN.as_secs_f64();
    (seconds / span - 1e-6).ceil().max(1.0) * span
}

/// Receive rate in each interval of `width` seconds, which is [`whole`], in b/s: the sum of a bin,
/// which is empty if nothing arrived.
pub(super) fn received<'a>(
    rows: impl IntoIterator<Item = &'a &'a BinRow>,
    (from, to): (f64, f64),
    width: f64,
) -> Bins {
    let some = rows.into_iter();
    let some = some.filter(|row| row.bin.received.packets > 0);
    let rows = some.map(|row| {
        let (bits, at) = (row.bin.received.bytes.bits() as f64, middle(row));
        // The end of the run may truncate the last interval.
        let begun = from + ((at - from) / width).floor() * width;
        (at, bits / width.min((to - begun).max(BIN.as_secs_f64())))
    });
    Bins::new(from, to, width, rows)
}

/// Percent of packets that links dropped, relative to those sent in each interval of `width`
/// seconds, which is [`whole`]. Both are counted at the time of the event, so a queue may drop
/// packets of the previous interval; the result is limited to 100. Empty if drops are not recorded.
pub(super) fn dropped<'a, R: Iterator<Item = &'a &'a BinRow>>(
    rows: impl Fn() -> R,
    (from, to): (f64, f64),
    width: f64,
) -> Bins {
    let each = |value: fn(&BinRow) -> u64| {
        let counted = rows().filter(|row| row.bin.dropped.is_some());
        let values = counted.map(|row| (middle(row), value(row) as f64));
        Bins::new(from, to, width, values)
    };
    let (sent, lost) = (
        each(|row| row.bin.sent.packets),
        each(|row| row.bin.dropped.unwrap_or_default()),
    );
    let both = sent.iter().zip(lost.iter());
    let some = both.filter(|((_, sent), (_, lost))| sent.sum + lost.sum > 0.0);
    let percent =
        some.map(|((at, sent), (_, lost))| (at, 100.0 * lost.sum / sent.sum.max(lost.sum)));
    Bins::new(from, to, width, percent)
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

/// Delays of the packets that arrived in a short interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Wait {
    /// In seconds.
    pub(super) at: f64,
    pub(super) packets: f64,
    /// Sum over all packets, in ms.
    pub(super) sum: f64,
}

/// Centre of an interval, which falls into one bin regardless of rounding of its edges.
fn middle(row: &BinRow) -> f64 {
    row.at.as_secs_f64() + BIN.as_secs_f64() / 2.0
}

#[cfg(test)]
mod tests {
    use tidegate_core::units::Time;
    use tidegate_record::{Bin, Count};

    use super::*;

    #[test]
    fn bins_hold_whole_spans() {
        for (asked, given) in [(0.0, 0.2), (0.2, 0.2), (0.25, 0.4), (0.4, 0.4), (1.0, 1.0)] {
            assert!((whole(asked) - given).abs() < 1e-9, "{asked}");
        }
    }

    #[test]
    fn drops_are_relative_to_packets_sent_in_the_same_interval() {
        let row = |bin: u64, sent: u64, dropped: Option<u64>| BinRow {
            at: Time::from_millis(200 * bin),
            flow: "web".to_owned(),
            bin: Bin {
                sent: Count {
                    packets: sent,
                    ..Count::default()
                },
                dropped,
                ..Bin::default()
            },
        };
        let rows = [
            row(0, 10, Some(1)),
            row(1, 10, Some(4)),
            row(2, 10, None),
            row(4, 0, Some(3)),
        ];
        let rows: Vec<&BinRow> = rows.iter().collect();
        let bins = dropped(|| rows.iter(), (0.0, 1.2), 0.4);
        let percent: Vec<(u64, f64)> = bins.iter().map(|(_, b)| (b.count, b.sum)).collect();
        assert_eq!(percent, [(1, 25.0), (0, 0.0), (1, 100.0)]);
    }
}
