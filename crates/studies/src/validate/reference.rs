//! What ns-2 did.

/// A number of a point, over the seeds of ns-2.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mean {
    pub(super) what: String,
    pub(super) value: f64,
    /// Standard deviation; zero for a single seed.
    pub(super) spread: f64,
    pub(super) n: u32,
}

/// When a packet came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mark {
    /// In order of arrival, from zero.
    pub(super) packet: usize,
    /// At the far end of the link that loses packets.
    pub(super) micros: f64,
}

/// Set, point and number.
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

/// Set, point and packet.
pub(super) fn marks() -> impl Iterator<Item = (String, String, Mark)> {
    rows(include_str!("../../data/ns2/packets.csv")).map(|row| {
        let [set, point, packet, micros] = fields(row);
        let mark = Mark {
            packet: number(packet) as usize,
            micros: number(micros),
        };
        (set.to_owned(), point.to_owned(), mark)
    })
}

/// What is compared of them; the last of `marks` is the last packet that came.
pub(super) fn of_marks(marks: &[Mark]) -> [Mean; 2] {
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
    fields.unwrap_or_else(|_| panic!("a row of the references has {N} fields: {row}"))
}

fn number(field: &str) -> f64 {
    let number = field.parse();
    number.unwrap_or_else(|_| panic!("a number in the references: {field}"))
}

/// How many packets came.
pub(super) const PACKETS: &str = "packets";
/// How far the marked ones are from where they should be, at most, in microseconds.
pub(super) const FURTHEST: &str = "furthest_us";
