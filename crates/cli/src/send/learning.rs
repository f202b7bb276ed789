//! What a session learns about its path: a prior from the store at the start, samples into it while the
//! stream runs.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tidegate_console::progress::{counted, say};
use tidegate_core::control::Prior;
use tidegate_core::session::sender::Status;
use tidegate_core::units::Time;
use tidegate_knowledge::gather::{GatherConfig, Gatherer, Recorder};
use tidegate_knowledge::predict::MEDIAN;
use tidegate_knowledge::sampler::{Reading, Sampler};
use tidegate_knowledge::start_table::{Prediction, StartTable};
use tidegate_knowledge::{Measurement, Observation};

use crate::knowledge::access::{self, Writable, store_error};

/// The store of a session, while it runs.
#[derive(Debug)]
pub(super) struct Learning {
    gatherer: Gatherer,
    recorder: Recorder,
    sampler: Sampler,
    peer: IpAddr,
    /// Time of the next reading.
    next: Time,
}

impl Learning {
    /// Opens the store, and returns what it knows about the path to `peer`.
    pub(super) fn open(path: &Path, peer: IpAddr) -> Result<(Self, Option<Prior>)> {
        let Writable { store, addresses } = access::open(path, None)?;
        let now = access::now();
        let table = StartTable::build(&store, now).map_err(store_error)?;
        let found = table.predict(peer);
        say(described(found.as_ref()));
        let mut config = GatherConfig::new(addresses);
        config.retention = store.retention().map_err(store_error)?;
        let gatherer = Gatherer::start(store, config, now, |notice| say(format_args!("{notice}")));
        let gatherer = gatherer.context("cannot start the thread that writes the store")?;
        let learning = Self {
            recorder: gatherer.recorder(),
            gatherer,
            sampler: Sampler::new(now),
            peer,
            next: Time::ZERO,
        };
        Ok((learning, found.and_then(|found| found.prior())))
    }

    /// Takes a reading, if one is due. Never waits for the store.
    pub(super) fn turn(&mut self, status: &Status, now: Time) {
        if now < self.next {
            return;
        }
        self.next = now + READING_INTERVAL;
        let Some(rtt) = status.rtt else { return };
        let is_running = !status.blackout && !status.stopped && !status.left;
        if !is_running || status.reports_only {
            return;
        }
        let samples = self.sampler.on_reading(&Reading {
            now,
            rate: status.receive_rate,
            rtt,
            loss: status.loss,
        });
        for measurement in samples {
            self.record(measurement);
        }
    }

    /// Writes what is left.
    pub(super) fn finish(mut self, now: Time) {
        let sampler = std::mem::replace(&mut self.sampler, Sampler::new(access::now()));
        if let Some(rest) = sampler.finish(now) {
            self.record(rest);
        }
        let Self {
            gatherer, recorder, ..
        } = self;
        drop(recorder);
        let counts = gatherer.finish();
        let lost = counts.dropped + counts.invalid + counts.lost;
        let lost = match lost {
            0 => String::new(),
            lost => format!(", {lost} not"),
        };
        say(format_args!(
            "{} kept{lost}",
            counted(counts.written, "sample")
        ));
    }

    fn record(&self, measurement: Measurement) {
        self.recorder.record(Observation {
            address: self.peer,
            measurement,
            tag: None,
        });
    }
}

/// The start of the session, for the user.
fn described(found: Option<&Prediction>) -> String {
    let Some(found) = found else {
        return "nothing is known about the path: the start is slow".to_owned();
    };
    let rates = found.rates();
    let clients = counted(found.clients as u64, "client");
    let start = match found.rtt {
        Some(_) => "the start is informed",
        None => "its round-trip time is unknown: the start is slow",
    };
    format!(
        "{} expected ({} to {} with 90 %) from {} of {clients}: {start}",
        rates[MEDIAN],
        rates[0],
        rates[rates.len() - 1],
        counted(found.samples as u64, "sample"),
    )
}

const READING_INTERVAL: Duration = Duration::from_millis(100);
