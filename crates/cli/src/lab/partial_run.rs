//! Run folder of a run in real time while it lasts: what was played is readable after a kill.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tidegate_console::progress::say;
use tidegate_record::{
    EventRow, FlowInfo, Manifest, RunWriter, Side, WriteError, packet_row, received_row, sent_row,
};
use tidegate_sim::flow_endpoints::FlowInstance;

use super::records::Records;

/// A folder with the completed rows of the flows that run. The complete run replaces it.
#[derive(Debug)]
pub(crate) struct PartialRun {
    dir: PathBuf,
    infos: BTreeMap<String, FlowInfo>,
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    manifest: Manifest,
    writer: Option<RunWriter>,
    written: BTreeMap<String, Written>,
}

/// Number of written rows of a flow.
#[derive(Debug, Default)]
struct Written {
    sent: usize,
    packets: usize,
    received: usize,
    /// Events of sender and receiver.
    events: [usize; 2],
    /// Frame number of each RTP timestamp.
    numbers: BTreeMap<u32, u64>,
}

impl PartialRun {
    /// A run of the flows `infos` in the empty folder `dir`. Nothing is written yet.
    pub(crate) fn new(dir: &Path, mut manifest: Manifest, infos: Vec<FlowInfo>) -> Self {
        manifest.notes.push(NOTE.to_owned());
        let infos = infos.into_iter().map(|info| (info.name.clone(), info));
        Self {
            dir: dir.to_owned(),
            infos: infos.collect(),
            state: RefCell::new(State {
                manifest,
                writer: None,
                written: BTreeMap::new(),
            }),
        }
    }

    /// The flows `instances` start.
    ///
    /// # Errors
    /// A write fails.
    pub(super) fn begin(&self, instances: &[FlowInstance]) -> Result<()> {
        let state = &mut *self.state.borrow_mut();
        for instance in instances {
            if let Some(info) = self.infos.get(&instance.name) {
                let active = Some(instance.active());
                state.manifest.flows.push(FlowInfo {
                    active,
                    ..info.clone()
                });
            }
        }
        let mut writer = match state.writer.take() {
            Some(writer) => writer,
            None => RunWriter::create(&self.dir)?,
        };
        writer.manifest(&state.manifest)?;
        state.writer = Some(writer);
        Ok(())
    }

    /// Writes the new rows of a flow. After a write error nothing more is written: the end of the run
    /// reports it.
    pub(super) fn write(&self, flow: &str, [sender, receiver]: &[Records; 2]) {
        let state = &mut *self.state.borrow_mut();
        let Some(writer) = &mut state.writer else {
            return;
        };
        if state.written.len() >= MAX_FLOWS && !state.written.contains_key(flow) {
            return;
        }
        let written = state.written.entry(flow.to_owned()).or_default();
        let wrote = written
            .add(writer, flow, sender, receiver)
            .and_then(|()| writer.flush());
        if let Err(error) = wrote {
            say(format_args!("the run folder is incomplete: {error}"));
            state.writer = None;
        }
    }
}

impl Written {
    fn add(
        &mut self,
        writer: &mut RunWriter,
        flow: &str,
        sender: &Records,
        receiver: &Records,
    ) -> Result<(), WriteError> {
        // Rows are copied under the lock and written without it.
        let (sent, packets, left) = sender.with(|result, events| {
            let sent = from(&result.sent, self.sent).iter().map(sent_row);
            let packets = from(&result.packets, self.packets).iter().map(packet_row);
            let events = from(events, self.events[0]).to_vec();
            (
                sent.collect::<Vec<_>>(),
                packets.collect::<Vec<_>>(),
                events,
            )
        });
        let numbers = sent.iter().map(|row| (row.rtp_timestamp, row.frame));
        self.numbers.extend(numbers);
        let numbers = &self.numbers;
        let (received, arrived) = receiver.with(|result, events| {
            let new = from(&result.received, self.received).iter();
            // A frame whose row at the sender is not complete yet waits for it.
            let known = new.map_while(|frame| {
                let number = numbers.get(&(frame.timestamp as u32))?;
                Some(received_row(frame, *number))
            });
            (
                known.collect::<Vec<_>>(),
                from(events, self.events[1]).to_vec(),
            )
        });
        self.sent += sent.len();
        self.packets += packets.len();
        self.received += received.len();
        for (count, more) in self.events.iter_mut().zip([&left, &arrived]) {
            *count += more.len();
        }
        sent.iter()
            .try_for_each(|row| writer.sent_frame(flow, row))?;
        packets
            .iter()
            .try_for_each(|row| writer.packet(flow, row))?;
        received
            .iter()
            .try_for_each(|row| writer.received_frame(flow, row))?;
        let of = |side| {
            move |(at, event)| EventRow {
                at,
                flow: flow.to_owned(),
                side,
                event,
            }
        };
        let events = left.into_iter().map(of(Side::Sender));
        let mut events = events.chain(arrived.into_iter().map(of(Side::Receiver)));
        events.try_for_each(|row| writer.event(row.at, &row.flow, row.side, &row.event))
    }
}

/// The rows from `first` on; none after the end of a thread, which takes its records.
fn from<T>(rows: &[T], first: usize) -> &[T] {
    rows.get(first..).unwrap_or_default()
}

/// Maximum number of flows with rows: each has up to four open files, of the 36 that a run in the lab
/// has to spare.
const MAX_FLOWS: usize = 8;

const NOTE: &str = "the run has not ended, or was killed: rows of its last second, packets of \
    modelled flows, links and pictures are missing";
