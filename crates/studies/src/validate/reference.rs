//! Reference data of ns-2.

/// A metric of a point, over the seeds of ns-2.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mean {
    pub(super) what: String,
    pub(super) value: f64,
    /// Standard deviation; zero for a single seed.
    pub(super) spread: f64,
    pub(super) n: u32,
}

/// Arrival time of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PacketArrival {
    /// Index in the order of arrival, from zero.
    pub(super) packet: usize,
    /// Arrival time at the end of the lossy link.
    pub(super) micros: f64,
}

/// Set, point and metric of each row.
pub(super) fn means() -> impl Iterator<Item = (String, String, Mean)> {
    rows(include_str!("../../data/ns2/means.csv")).map(|row| {
        let [set, point, what, mean, spread, n] = fields(row);
        let mean = Mean {
            what: what.to_owned(),
            value: number(mean),
            spread: number(spread),
            n: number(n) as u32,
        };
        (set.to_owned(), point.to_owned(), mean)
    })
}

/// Set, point and packet of each row.
pub(super) fn marks() -> impl Iterator<Item = (String, String, PacketArrival)> {
    rows(include_str!("../../data/ns2/packets.csv")).map(|row| {
        let [set, point, packet, micros] = fields(row);
        let mark = PacketArrival {
            packet: number(packet) as usize,
            micros: number(micros),
        };
        (set.to_owned(), point.to_owned(), mark)
    })
}

/// Metrics of arrival times. The last of `marks` is the last packet received.
pub(super) fn of_marks(marks: &[PacketArrival]) -> [Mean; 2] {
    let row = |what: &str, value| Mean {
        what: what.to_owned(),
        value,
        spread: 0.0,
        n: 1,
    };
    let count = marks.last().map_or(0, |last| last.packet + 1);
    [row(PACKETS, count as f64), row(FURTHEST, 0.0)]
}

fn rows(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().skip(1)
}

fn fields<const N: usize>(row: &'static str) -> [&'static str; N] {
    let fields: Vec<&str> = row.split(',').collect();
    let fields = <[&str; N]>::try_from(fields);
    fields.unwrap_or_else(|_| panic!("row of the reference data without {N} fields: {row}"))
}

fn number(field: &str) -> f64 {
    let number = field.parse();
    number.unwrap_or_else(|_| panic!("not a number in the reference data: {field}"))
}

/// Number of received packets.
pub(super) const PACKETS: &str = "packets";
/// Maximum difference of the marked packets' arrival times from the reference, in µs.
pub(super) const FURTHEST: &str = "furthest_us";
