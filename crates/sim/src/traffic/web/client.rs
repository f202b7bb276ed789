//! Client of a browser: think times, requests, received pages.

use std::sync::Arc;

use tidegate_core::control::TimerReason;
use tidegate_core::units::Time;

use super::config::{Begin, Config, Connections};
use super::download::Download;
use crate::packet_agent::{Agent, AgentCx, Arrival, Body, Request};
use crate::traffic::{Spans, secs};

/// A web client with its user.
#[derive(Clone, Debug)]
pub struct Client {
    config: Arc<Config>,
    stage: Stage,
    /// Time of the next spontaneous action.
    wake: Time,
    /// No requests from this time on.
    stop: Time,
    /// Number of the latest request.
    number: u32,
    /// Group of the latest connections.
    group: u32,
    /// First segment number of the next connection.
    first: u32,
    /// Objects of the page that are not requested yet.
    waiting: u32,
    page_began: Time,
    /// Connections of the present group: one, unless all objects are fetched in parallel.
    downloads: Vec<Download>,
    counters: ClientCounters,
    page_times: Spans,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Before the first request.
    Absent,
    /// A page is being loaded.
    Loading,
    Thinking,
}

/// Counters of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounters {
    /// Complete pages.
    pub pages: u64,
    /// Complete objects.
    pub objects: u64,
    /// Payload of complete objects, in bytes.
    pub bytes: u64,
    /// Retransmitted requests.
    pub repeated: u64,
    /// Received segments, including duplicates and late ones.
    pub segments: u64,
}

impl Client {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Self {
            stage: Stage::Absent,
            wake: Time::ZERO,
            stop: Time::FAR,
            number: 0,
            group: 0,
            first: 1,
            waiting: 0,
            page_began: Time::ZERO,
            downloads: Vec::new(),
            counters: ClientCounters::default(),
            page_times: Spans::default(),
            config,
        }
    }

    /// Stops new requests at `stop`. Objects requested before are still received.
    #[must_use]
    pub fn until(mut self, stop: Time) -> Self {
        self.stop = stop;
        self
    }

    /// Counters so far.
    pub fn counters(&self) -> ClientCounters {
        self.counters
    }

    /// Page load times: from the first request to the last byte of complete pages.
    pub fn page_times(&self) -> &Spans {
        &self.page_times
    }

    fn think(&mut self, now: Time, seconds: f64) {
        self.stage = Stage::Thinking;
        let wake = now + secs(seconds);
        self.wake = if wake < self.stop { wake } else { Time::FAR };
    }

    fn begin_page(&mut self, cx: &mut AgentCx<'_>) {
        self.waiting = self.config.draw_objects(cx.rng);
        self.page_began = cx.now;
        self.stage = Stage::Loading;
        self.wake = Time::FAR;
        self.connect(cx);
        if self.config.connections == Connections::AtOnce {
            while self.waiting > 0 {
                self.open(cx);
            }
        }
    }

    /// Closes the open connections and requests an object over a new one.
    fn connect(&mut self, cx: &mut AgentCx<'_>) {
        self.downloads.clear();
        self.group += 1;
        self.open(cx);
    }

    fn open(&mut self, cx: &mut AgentCx<'_>) {
        let request = Request {
            number: self.number + 1,
            group: self.group,
            first: self.first,
            bytes: self.config.draw_size(cx.rng),
        };
        self.number = request.number;
        self.waiting -= 1;
        let download = Download::open(&self.config, cx, request);
        self.first = download.after();
        self.downloads.push(download);
    }

    fn object_arrived(&mut self, cx: &mut AgentCx<'_>, place: usize) {
        self.counters.objects += 1;
        self.counters.bytes += self.downloads[place].request().bytes;
        match self.config.connections {
            Connections::PerObject | Connections::PerPage
                if self.waiting > 0 && cx.now >= self.stop =>
            {
                return;
            }
            Connections::PerObject if self.waiting > 0 => return self.connect(cx),
            Connections::PerPage if self.waiting > 0 => {
                let bytes = self.config.draw_size(cx.rng);
                self.waiting -= 1;
                self.number += 1;
                let download = &mut self.downloads[place];
                download.again(&self.config, cx, self.number, bytes);
                self.first = download.after();
                return;
            }
            _ => {}
        }
        if self.downloads.iter().all(Download::is_done) {
            self.counters.pages += 1;
            self.page_times.add(cx.now.since(self.page_began));
            self.think(cx.now, self.config.think.draw(cx.rng));
        }
    }
}

impl Agent for Client {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) {
        let Body::Segment(segment) = body else {
            return;
        };
        self.counters.segments += 1;
        let mut downloads = self.downloads.iter();
        let Some(place) = downloads.position(|download| download.owns(segment.seq)) else {
            return;
        };
        if self.downloads[place].on_segment(cx, *arrival, *segment) {
            self.object_arrived(cx, place);
        }
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        for download in &mut self.downloads {
            let repeated = download.on_timer(&self.config, cx);
            self.counters.repeated += u64::from(repeated);
        }
        if self.wake > cx.now {
            return;
        }
        match (self.stage, self.config.begin) {
            (Stage::Absent, Begin::Thinking) => {
                self.think(cx.now, self.config.think.draw_rest(cx.rng));
            }
            (Stage::Absent, Begin::Page) | (Stage::Thinking, _) => self.begin_page(cx),
            (Stage::Loading, _) => {}
        }
    }

    fn next_timer(&self) -> Time {
        let downloads = self.downloads.iter().map(Download::next_timer);
        downloads.fold(self.wake, Time::min)
    }

    fn why(&self) -> Option<TimerReason> {
        Some(match self.stage {
            Stage::Absent | Stage::Thinking => TimerReason::Schedule,
            Stage::Loading if self.downloads.iter().any(Download::is_asking) => {
                TimerReason::Silence
            }
            Stage::Loading => TimerReason::Feedback,
        })
    }
}
