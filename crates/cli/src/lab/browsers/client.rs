//! Browsers: think times, requests, received pages.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use rand_pcg::Pcg64Mcg;
use tidegate_core::random::Seed;
use tidegate_core::units::Time;
use tidegate_live::driver::RunLimits;
use tidegate_live::tcp::ConnectionSet;
use tidegate_sim::flow_endpoints::FlowInstance;
use tidegate_sim::traffic::secs;
use tidegate_sim::traffic::web::{Begin, Config, Connections};

use super::{SIZE, request_payload};

/// Emulates the browsers of a flow until `end` or until the stop flag is set. The server is `peer`.
///
/// # Errors
/// The process has too many open files or ports.
pub(super) fn browse(
    instance: &FlowInstance,
    config: &Arc<Config>,
    (set, peer, seed): (ConnectionSet, SocketAddr, Seed),
    conditions: &RunLimits,
    end: Time,
) -> Result<()> {
    let clock = conditions.clock;
    let mut browsers = Browsers::new(instance, config, peer, seed, set);
    browsers.begin(clock.now());
    let mut numbers = Vec::new();
    while !conditions.stop.is_set() && clock.now() < end {
        browsers.act(clock.now())?;
        let next = browsers.next();
        browsers.set.wait(next.min(end), &mut numbers)?;
        for &number in &numbers {
            browsers.on_ready(clock.now(), number)?;
        }
    }
    Ok(())
}

/// All browsers of a flow, and their connections.
struct Browsers {
    config: Arc<Config>,
    peer: SocketAddr,
    set: ConnectionSet,
    users: Vec<Browser>,
    /// Ends of think times.
    wakes: BinaryHeap<Reverse<(Time, usize)>>,
    /// By the number of the connection.
    downloads: Vec<Option<Download>>,
    buffer: Vec<u8>,
}

struct Browser {
    rng: Pcg64Mcg,
    /// Objects of the page that are not requested yet.
    waiting: u32,
    /// Connections of the page.
    open: u32,
}

/// State of a connection.
struct Download {
    browser: usize,
    /// Request, less the bytes that are sent.
    request: VecDeque<u8>,
    /// Bytes of the object that have not arrived.
    left: u64,
}

impl Browsers {
    fn new(
        instance: &FlowInstance,
        config: &Arc<Config>,
        peer: SocketAddr,
        seed: Seed,
        set: ConnectionSet,
    ) -> Self {
        let browser = |number| Browser {
            rng: seed.stream(&format!("party/{}", instance.plan.name_of(number))),
            waiting: 0,
            open: 0,
        };
        Self {
            config: Arc::clone(config),
            peer,
            set,
            users: (1..=instance.plan.count).map(browser).collect(),
            wakes: BinaryHeap::new(),
            downloads: Vec::new(),
            buffer: vec![0; BUFFER],
        }
    }

    /// Sets the first wake-up of each browser.
    fn begin(&mut self, now: Time) {
        for number in 0..self.users.len() {
            match self.config.begin {
                Begin::Page => self.wakes.push(Reverse((now, number))),
                Begin::Thinking => {
                    let rest = self.config.think.draw_rest(&mut self.users[number].rng);
                    self.think(now, number, rest);
                }
            }
        }
    }

    fn think(&mut self, now: Time, number: usize, seconds: f64) {
        self.wakes.push(Reverse((now + secs(seconds), number)));
    }

    /// The next end of a think time.
    fn next(&self) -> Time {
        self.wakes
            .peek()
            .map_or(Time::FAR, |Reverse((wake, _))| *wake)
    }

    /// Begins the pages that are due.
    fn act(&mut self, now: Time) -> Result<()> {
        while self.next() <= now {
            let Some(Reverse((_, number))) = self.wakes.pop() else {
                return Ok(());
            };
            let browser = &mut self.users[number];
            browser.waiting = self.config.draw_objects(&mut browser.rng);
            self.open(number)?;
            while self.config.connections == Connections::AtOnce && self.users[number].waiting > 0 {
                self.open(number)?;
            }
        }
        Ok(())
    }

    /// Requests an object over a new connection.
    fn open(&mut self, browser: usize) -> Result<()> {
        let number = self.set.connect(self.peer)?;
        if self.downloads.len() <= number {
            self.downloads.resize_with(number + 1, || None);
        }
        self.users[browser].open += 1;
        let download = self.request(browser);
        self.downloads[number] = Some(download);
        Ok(())
    }

    /// The next object of a browser.
    fn request(&mut self, browser: usize) -> Download {
        let state = &mut self.users[browser];
        state.waiting = state.waiting.saturating_sub(1);
        let left = self.config.draw_size(&mut state.rng);
        let mut request = vec![0; request_payload(&self.config)];
        request[..SIZE].copy_from_slice(&left.to_be_bytes());
        Download {
            browser,
            request: request.into(),
            left,
        }
    }

    /// Sends and receives what is possible on a connection. A failed one ends its page.
    fn on_ready(&mut self, now: Time, number: usize) -> Result<()> {
        while let Some(mut download) = self.downloads.get_mut(number).and_then(Option::take) {
            let browser = download.browser;
            let is_done = self.exchange(number, &mut download);
            if matches!(is_done, Ok(false)) {
                self.downloads[number] = Some(download);
                return Ok(());
            }
            if is_done.is_err() {
                self.users[browser].waiting = 0;
            }
            let is_more = self.users[browser].waiting > 0;
            match self.config.connections {
                Connections::PerPage if is_more => {
                    // The answer may be here already: the loop continues.
                    self.downloads[number] = Some(self.request(browser));
                }
                Connections::PerObject if is_more => {
                    self.close(number, browser);
                    self.open(browser)?;
                }
                _ => {
                    self.close(number, browser);
                    let state = &mut self.users[browser];
                    if state.open == 0 {
                        let seconds = self.config.think.draw(&mut state.rng);
                        self.think(now, browser, seconds);
                    }
                }
            }
        }
        Ok(())
    }

    fn close(&mut self, number: usize, browser: usize) {
        self.set.close(number);
        self.users[browser].open -= 1;
    }

    /// Whether the object of a connection is complete.
    fn exchange(&mut self, number: usize, download: &mut Download) -> io::Result<bool> {
        while !download.request.is_empty() {
            let count = self.set.write(number, download.request.as_slices().0)?;
            if count == 0 {
                break;
            }
            download.request.drain(..count);
        }
        while download.left > 0 {
            let part = (self.buffer.len() as u64).min(download.left) as usize;
            match self.set.read(number, &mut self.buffer[..part])? {
                None => return Ok(false),
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(count) => download.left -= count as u64,
            }
        }
        Ok(true)
    }
}

/// Size of a read.
const BUFFER: usize = 1 << 16;
