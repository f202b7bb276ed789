//! The browser's side: thinks, asks, receives.

use std::sync::Arc;

use tidegate_core::control::Why;
use tidegate_core::random::unit;
use tidegate_core::units::Time;

use super::config::{Begin, Config, Connections};
use super::download::Download;
use crate::packet_agent::{Agent, AgentCx, Arrival, Body, Request};
use crate::traffic::{Spans, secs};

/// A browser and the person before it.
#[derive(Clone, Debug)]
pub struct Client {
    config: Arc<Config>,
    stage: Stage,
    /// When to do something by itself.
    wake: Time,
    /// Nothing more is asked for from then on.
    stop: Time,
    /// Of the latest request.
    number: u32,
    /// Of the latest connections.
    group: u32,
    /// The number of the first segment of the next connection.
    first: u32,
    /// Objects of this page that were not asked for yet.
    waiting: u32,
    page_began: Time,
    /// Of the present group: one, unless all objects come at once.
    downloads: Vec<Download>,
    counters: ClientCounters,
    page_times: Spans,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not begun.
    Absent,
    /// Waits for a page.
    Loading,
    Thinking,
}

/// What a client counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounters {
    /// Pages that arrived whole.
    pub pages: u64,
    /// Objects that arrived whole.
    pub objects: u64,
    /// Their payload.
    pub bytes: u64,
    /// Requests that were sent again.
    pub repeated: u64,
    /// Segments that arrived, those included that came twice or too late.
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

    /// The same, but it asks for nothing more from `stop` on: what comes of a page then is the rest of
    /// the objects that were asked for.
    #[must_use]
    pub fn until(mut self, stop: Time) -> Self {
        self.stop = stop;
        self
    }

    /// What it counted.
    pub fn counters(&self) -> ClientCounters {
        self.counters
    }

    /// From the first request to the last byte, of pages that arrived whole.
    pub fn page_times(&self) -> &Spans {
        &self.page_times
    }

    fn think(&mut self, now: Time, seconds: f64) {
        self.stage = Stage::Thinking;
        let wake = now + secs(seconds);
        self.wake = if wake < self.stop { wake } else { Time::FAR };
    }

    fn begin_page(&mut self, cx: &mut AgentCx<'_>) {
        let objects = self.config.objects.draw(cx.rng) + unit(cx.rng);
        self.waiting = (objects as u32).clamp(1, MOST_OBJECTS);
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

    /// Ends what was open, and asks for an object over a new connection.
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
            bytes: self.draw_object(cx),
        };
        self.number = request.number;
        self.waiting -= 1;
        let download = Download::open(&self.config, cx, request);
        self.first = download.after();
        self.downloads.push(download);
    }

    fn draw_object(&self, cx: &mut AgentCx<'_>) -> u64 {
        self.config.object(self.config.size.draw(cx.rng))
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
                let bytes = self.draw_object(cx);
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

    fn why(&self) -> Option<Why> {
        Some(match self.stage {
            Stage::Absent | Stage::Thinking => Why::Schedule,
            Stage::Loading if self.downloads.iter().any(Download::is_asking) => Why::Silence,
            Stage::Loading => Why::Feedback,
        })
    }
}

/// So that the segments of a page have numbers.
const MOST_OBJECTS: u32 = 1_000;
