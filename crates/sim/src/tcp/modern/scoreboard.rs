//! State of each outstanding segment.

use super::rate::Stamp;
use crate::packet_agent::Ack;

/// Segments from the first unacknowledged one to the last one sent, in a ring.
///
/// Segments in flight form a list in the order of transmission. Lost segments that wait for
/// retransmission form a list in the order of sequence. So no operation searches the ring. The ring
/// grows to the maximum number of outstanding segments and allocates no other memory.
#[derive(Clone, Debug)]
pub(super) struct Scoreboard {
    /// Its length is a power of two.
    ring: Vec<Record>,
    una: u32,
    next: u32,
    /// One after the highest segment that is known to have arrived.
    top: u32,
    flight: List,
    lost: List,
    sacked: u32,
    /// Blocks of the last acknowledgement, all of whose segments have been processed.
    known: [(u32, u32); 3],
}

/// A segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// State of the sampler at its last transmission.
    pub(super) stamp: Stamp,
    before: u32,
    after: u32,
    place: Place,
    /// Whether the segment was retransmitted.
    pub(super) again: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Flight,
    Lost,
    Sacked,
}

/// A segment that an acknowledgement delivers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery<'a> {
    /// Sequence number.
    pub(super) seq: u32,
    /// Record of its last transmission.
    pub(super) record: &'a Record,
    /// The segment arrived after a hole.
    pub(super) out_of_order: bool,
    /// A later segment had arrived before.
    pub(super) overtaken: bool,
}

impl Scoreboard {
    /// State before the first transmission.
    pub(super) fn new() -> Self {
        Self {
            ring: vec![EMPTY; FIRST_ROOM],
            una: 0,
            next: 0,
            top: 0,
            flight: List::EMPTY,
            lost: List::EMPTY,
            sacked: 0,
            known: [(0, 0); 3],
        }
    }

    /// First unacknowledged segment.
    pub(super) fn una(&self) -> u32 {
        self.una
    }

    /// Next new segment.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Segments that were sent and are not acknowledged in sequence.
    pub(super) fn outstanding(&self) -> u32 {
        self.next - self.una
    }

    /// Segments estimated to be in the network.
    pub(super) fn in_flight(&self) -> u32 {
        self.flight.len
    }

    /// Segments that arrived after a hole.
    pub(super) fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Lost segments that have not been retransmitted.
    pub(super) fn lost(&self) -> u32 {
        self.lost.len
    }

    /// The lowest lost segment.
    pub(super) fn first_lost(&self) -> Option<u32> {
        self.lost.first()
    }

    /// The segment in flight with the earliest transmission.
    pub(super) fn oldest(&self) -> Option<(u32, &Record)> {
        self.flight.first().map(|seq| (seq, self.record(seq)))
    }

    /// Segment `seq`, if it is in flight.
    pub(super) fn flying(&self, seq: u32) -> Option<&Record> {
        let outstanding = self.una <= seq && seq < self.next;
        outstanding
            .then(|| self.record(seq))
            .filter(|record| record.place == Place::Flight)
    }

    /// Sends the next new segment. Returns its number.
    pub(super) fn send(&mut self, stamp: Stamp) -> u32 {
        if self.outstanding() as usize == self.ring.len() {
            self.grow();
        }
        let seq = self.next;
        self.next += 1;
        *self.record_mut(seq) = Record { stamp, ..EMPTY };
        self.insert(Place::Flight, seq, NONE);
        seq
    }

    /// Retransmits `seq`, which is lost or in flight.
    pub(super) fn send_again(&mut self, seq: u32, stamp: Stamp) {
        self.leave(seq);
        let record = self.record_mut(seq);
        record.stamp = stamp;
        record.again = true;
        self.insert(Place::Flight, seq, NONE);
    }

    /// Marks `seq`, which is in flight, as lost.
    pub(super) fn lose(&mut self, seq: u32) {
        self.leave(seq);
        // Losses are detected in sequence, except for lost retransmissions, which are below the
        // segments that still wait.
        let after = match self.lost.first() {
            Some(first) if seq < first => first,
            _ => self.lost_above(seq),
        };
        self.insert(Place::Lost, seq, after);
    }

    /// Marks as lost all segments in flight for which `keep` does not hold.
    pub(super) fn lose_all(&mut self, mut keep: impl FnMut(u32, &Record) -> bool) {
        for seq in self.una..self.next {
            let record = self.record(seq);
            if record.place == Place::Flight && !keep(seq, record) {
                self.lose(seq);
            }
        }
    }

    /// Undoes loss marks: the segments count as in flight again.
    pub(super) fn undo_losses(&mut self) {
        while let Some(seq) = self.lost.first() {
            self.leave(seq);
            let order = self.record(seq).stamp.order;
            let mut at = self.flight.head;
            while at != NONE && self.record(at).stamp.order < order {
                at = self.record(at).after;
            }
            self.insert(Place::Flight, seq, at);
        }
    }

    /// Processes an acknowledgement, and calls `emit` for each segment that it delivers. Returns
    /// the number of segments acknowledged in sequence. Ranges that were never sent are ignored.
    pub(super) fn acknowledge(&mut self, ack: &Ack, mut emit: impl FnMut(Delivery<'_>)) -> u32 {
        let before = self.una;
        if ack.next > self.una && ack.next <= self.next {
            for seq in self.una..ack.next {
                self.deliver(seq, false, &mut emit);
            }
            self.una = ack.next;
        }
        for block in ack.sack {
            self.sack(block, &mut emit);
        }
        // Segments beyond `next` cannot have arrived, even if the acknowledgement covers them.
        self.known = ack.sack.map(|(from, to)| (from, to.min(self.next)));
        self.una - before
    }

    fn sack(&mut self, (from, to): (u32, u32), emit: &mut impl FnMut(Delivery<'_>)) {
        let to = to.min(self.next);
        let mut at = from.max(self.una);
        while at < to {
            let known = |k: &&(u32, u32)| k.0 <= at && at < k.1;
            if let Some(block) = self.known.iter().find(known) {
                at = block.1;
                continue;
            }
            let ahead = |k: &(u32, u32)| (k.0 > at && k.0 < k.1).then_some(k.0);
            let stop = self.known.iter().filter_map(ahead).min();
            let stop = stop.map_or(to, |stop| stop.min(to));
            for seq in at..stop {
                self.deliver(seq, true, emit);
            }
            at = stop;
        }
    }

    fn deliver(&mut self, seq: u32, out_of_order: bool, emit: &mut impl FnMut(Delivery<'_>)) {
        if self.record(seq).place == Place::Sacked {
            self.sacked -= u32::from(!out_of_order);
            return;
        }
        self.leave(seq);
        let overtaken = seq < self.top;
        self.top = self.top.max(seq + 1);
        if out_of_order {
            self.record_mut(seq).place = Place::Sacked;
            self.sacked += 1;
        }
        emit(Delivery {
            seq,
            record: self.record(seq),
            out_of_order,
            overtaken,
        });
    }

    /// The lowest lost segment above `seq`, searched from the highest.
    fn lost_above(&self, seq: u32) -> u32 {
        let (mut above, mut at) = (NONE, self.lost.tail);
        while at != NONE && at > seq {
            (above, at) = (at, self.record(at).before);
        }
        above
    }

    /// Inserts `seq` before `after` into the list of `place`.
    fn insert(&mut self, place: Place, seq: u32, after: u32) {
        let before = match after {
            NONE => self.list(place).tail,
            after => self.record(after).before,
        };
        self.list(place).len += 1;
        match before {
            NONE => self.list(place).head = seq,
            before => self.record_mut(before).after = seq,
        }
        match after {
            NONE => self.list(place).tail = seq,
            after => self.record_mut(after).before = seq,
        }
        let record = self.record_mut(seq);
        (record.before, record.after, record.place) = (before, after, place);
    }

    /// Removes `seq`, which is lost or in flight, from its list.
    fn leave(&mut self, seq: u32) {
        let Record {
            before,
            after,
            place,
            ..
        } = *self.record(seq);
        match before {
            NONE => self.list(place).head = after,
            before => self.record_mut(before).after = after,
        }
        match after {
            NONE => self.list(place).tail = before,
            after => self.record_mut(after).before = before,
        }
        self.list(place).len -= 1;
    }

    fn list(&mut self, place: Place) -> &mut List {
        match place {
            Place::Lost => &mut self.lost,
            Place::Flight | Place::Sacked => &mut self.flight,
        }
    }

    fn record(&self, seq: u32) -> &Record {
        &self.ring[seq as usize & (self.ring.len() - 1)]
    }

    fn record_mut(&mut self, seq: u32) -> &mut Record {
        let mask = self.ring.len() - 1;
        &mut self.ring[seq as usize & mask]
    }

    fn grow(&mut self) {
        let mut ring = vec![EMPTY; self.ring.len() * 2];
        let mask = ring.len() - 1;
        for seq in self.una..self.next {
            ring[seq as usize & mask] = *self.record(seq);
        }
        self.ring = ring;
    }
}

/// A doubly linked list through the records.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl List {
    const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        len: 0,
    };

    fn first(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }
}

/// No segment: sources end far below this number.
const NONE: u32 = u32::MAX;
/// Twice the initial window.
const FIRST_ROOM: usize = 32;
const EMPTY: Record = Record {
    stamp: Stamp::NEVER,
    before: NONE,
    after: NONE,
    place: Place::Flight,
    again: false,
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use tidegate_core::units::Time;

    use super::super::testing::stamp;
    use super::*;

    fn ack(next: u32, sack: &[(u32, u32)]) -> Ack {
        let mut blocks = [(0, 0); 3];
        blocks[..sack.len()].copy_from_slice(sack);
        Ack {
            next,
            echo: Time::ZERO,
            sack: blocks,
            ece: false,
            again: false,
            marks: 0,
        }
    }

    fn sent(n: u32) -> Scoreboard {
        let mut board = Scoreboard::new();
        for seq in 0..n {
            assert_eq!(board.send(stamp(u64::from(seq))), seq);
        }
        board
    }

    fn take(board: &mut Scoreboard, ack: &Ack) -> Vec<u32> {
        let mut seen = Vec::new();
        board.acknowledge(ack, |d| seen.push(d.seq));
        seen
    }

    #[test]
    fn each_segment_is_delivered_once() {
        let mut board = sent(10);
        assert_eq!(take(&mut board, &ack(1, &[(4, 6)])), [0, 4, 5]);
        assert_eq!(take(&mut board, &ack(1, &[(4, 7), (8, 9)])), [6, 8]);
        assert_eq!((board.in_flight(), board.sacked()), (5, 4));
        assert_eq!(take(&mut board, &ack(7, &[(8, 9)])), [1, 2, 3]);
        assert_eq!((board.in_flight(), board.sacked()), (2, 1));
        assert!(take(&mut board, &ack(3, &[(4, 7), (8, 9)])).is_empty());
        assert_eq!(take(&mut board, &ack(10, &[])), [7, 9]);
        assert_eq!((board.outstanding(), board.sacked()), (0, 0));
    }

    #[test]
    fn ranges_never_sent_are_ignored() {
        let mut board = sent(3);
        assert_eq!(take(&mut board, &ack(4, &[(2, 90), (7, 9)])), [2]);
        assert_eq!(board.una(), 0);
    }

    #[test]
    fn lost_segments_are_in_order_of_sequence() {
        let mut board = sent(8);
        for seq in [2, 5, 3] {
            board.lose(seq);
        }
        let mut order = Vec::new();
        while let Some(seq) = board.first_lost() {
            order.push(seq);
            board.send_again(seq, stamp(100 + u64::from(seq)));
        }
        assert_eq!(order, [2, 3, 5]);
        assert_eq!(board.oldest().map(|(seq, _)| seq), Some(0));
        take(&mut board, &ack(2, &[(4, 5), (6, 8)]));
        assert_eq!(board.oldest().map(|(seq, _)| seq), Some(2));
        assert_eq!(board.in_flight(), 3);
    }

    #[test]
    fn undone_losses_return_to_their_positions() {
        let mut board = sent(6);
        for seq in [1, 2, 4] {
            board.lose(seq);
        }
        board.undo_losses();
        assert_eq!((board.lost(), board.in_flight()), (0, 6));
        for seq in 0..6 {
            assert_eq!(board.oldest().map(|(seq, _)| seq), Some(seq));
            board.lose(seq);
        }
    }

    proptest! {
        /// Compares lists and counters with sets.
        #[test]
        fn lists_and_counters_agree_with_sets(
            steps in prop::collection::vec((0..6_u8, any::<u16>(), 1..40_u32), 1..300)
        ) {
            let mut board = Scoreboard::new();
            let (mut flight, mut lost, mut sacked) =
                (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
            let mut clock = 0;
            for (kind, pick, n) in steps {
                clock += 1;
                let chosen = |set: &BTreeSet<u32>| set.iter().nth(pick as usize % set.len().max(1)).copied();
                match kind {
                    0 | 1 => for _ in 0..n {
                        flight.insert(board.send(stamp(clock)));
                    },
                    2 => if let Some(seq) = chosen(&flight) {
                        board.lose(seq);
                        flight.remove(&seq);
                        lost.insert(seq);
                    },
                    3 => if let Some(seq) = board.first_lost() {
                        prop_assert_eq!(Some(&seq), lost.first());
                        board.send_again(seq, stamp(clock));
                        lost.remove(&seq);
                        flight.insert(seq);
                    },
                    4 => {
                        let from = board.una() + u32::from(pick) % board.outstanding().max(1);
                        let block = (from, from + n);
                        board.acknowledge(&ack(0, &[block]), |d| {
                            assert!(flight.remove(&d.seq) || lost.remove(&d.seq));
                            sacked.insert(d.seq);
                        });
                    }
                    _ => {
                        let next = (board.una() + n).min(board.next());
                        board.acknowledge(&ack(next, &[]), |d| {
                            assert!(flight.remove(&d.seq) || lost.remove(&d.seq));
                        });
                        sacked.retain(|seq| *seq >= next);
                    }
                }
                prop_assert_eq!(board.in_flight() as usize, flight.len());
                prop_assert_eq!(board.lost() as usize, lost.len());
                prop_assert_eq!(board.sacked() as usize, sacked.len());
                let oldest = flight
                    .iter()
                    .map(|seq| (board.flying(*seq).unwrap().stamp.order, *seq))
                    .min();
                prop_assert_eq!(board.oldest().map(|(seq, r)| (r.stamp.order, seq)), oldest);
            }
        }
    }
}
