//! An application that writes into the socket of a TCP sender.

use tidegate_core::units::{Bytes, Time};

use super::{Source, Stream, Written, classic, modern};
use crate::model_flow::Application;
use crate::packet_agent::{Agent, AgentCx, Arrival, Body};
use crate::traffic::Schedule;

/// Write behaviour of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct WriterConfig {
    /// Write rate, including the headers of full segments; `None`: as fast as the buffer allows. If
    /// the buffer is full, up to 16 segments wait in the application, and further data is not
    /// generated.
    pub demand: Option<Schedule>,
    /// Total payload; `None`: unlimited.
    pub limit: Option<Bytes>,
    /// Size of a full segment including headers, and its payload.
    pub segment: (Bytes, Bytes),
}

/// A sender whose source is a [`Stream`](super::Stream), with the application that writes into it:
/// whole segments, each as soon as it is generated and fits into the buffer.
#[derive(Debug)]
pub struct Writer {
    sender: Model,
    application: Option<Application>,
    payload: u64,
    /// Bytes left to write.
    left: u64,
    /// Time at which the next segment is generated; [`Time::FAR`] while a segment waits for room.
    due: Time,
}

/// A sender of either model.
#[derive(Debug)]
pub enum Model {
    /// The model of ns-2.
    Classic(Box<classic::Sender>),
    /// The model of Linux.
    Modern(Box<modern::Sender>),
}

macro_rules! each {
    ($self:expr, $sender:ident => $do:expr) => {
        match $self {
            Model::Classic($sender) => $do,
            Model::Modern($sender) => $do,
        }
    };
}

impl Writer {
    /// `sender` must have a stream source with room for at least one segment.
    pub fn new(sender: Model, config: &WriterConfig) -> Self {
        let (packet, payload) = config.segment;
        let start = each!(&sender, s => s.source().start());
        let application = config.demand.as_ref();
        Self {
            sender,
            application: application.map(|rate| Application::of(rate, start, packet)),
            payload: payload.get().max(1),
            left: config.limit.map_or(u64::MAX, Bytes::get),
            due: Time::FAR,
        }
    }

    fn source(&self) -> &Source {
        each!(&self.sender, s => s.source())
    }

    fn write(&mut self, cx: &mut AgentCx<'_>, bytes: u64) -> Written {
        each!(&mut self.sender, s => s.write(cx, bytes))
    }

    fn turn(&mut self, cx: &mut AgentCx<'_>) {
        self.due = Time::FAR;
        let life = self.source().start()..self.source().stop();
        if !life.contains(&cx.now) {
            return;
        }
        loop {
            let free = self.source().stream().map_or(0, Stream::free);
            let part = self.left.min(self.payload);
            if part == 0 || free < part {
                return;
            }
            let bytes = match &mut self.application {
                None => self.left.min(free - free % self.payload).max(part),
                Some(application) => match application.ready(cx.now) {
                    Some(at) if at <= cx.now => part,
                    at => {
                        self.due = at.unwrap_or(Time::FAR);
                        return;
                    }
                },
            };
            let written = self.write(cx, bytes).accepted;
            if written == 0 {
                return;
            }
            self.left -= written;
            if let Some(application) = &mut self.application {
                application.take(cx.now);
            }
        }
    }

    /// Whether the application has finished.
    fn is_over(&self) -> bool {
        let silent = self.application.as_ref().is_some_and(Application::is_over);
        self.left == 0 || silent
    }
}

impl Agent for Writer {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) {
        each!(&mut self.sender, s => s.on_packet(cx, arrival, body));
        self.turn(cx);
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        let due = each!(&self.sender, s => s.next_timer());
        if due <= cx.now {
            each!(&mut self.sender, s => s.on_timer(cx));
        }
        self.turn(cx);
    }

    fn next_timer(&self) -> Time {
        self.due.min(each!(&self.sender, s => s.next_timer()))
    }

    fn is_done(&self) -> bool {
        let empty = || self.source().stream().is_some_and(|s| s.unacked() == 0);
        each!(&self.sender, s => s.is_done()) || (self.is_over() && empty())
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use rand_pcg::Pcg64Mcg;
    use tidegate_core::control::Ecn;
    use tidegate_core::units::Rate;

    use super::*;
    use crate::packet_agent::{Ack, Outbox};
    use crate::tcp::{SourceConfig, SourceKind};

    /// A writer over a modern sender with segments of 1500 bytes, and the segments that it sends.
    struct Bench {
        writer: Writer,
        rng: Pcg64Mcg,
        out: Outbox,
    }

    impl Bench {
        fn new(demand: Option<Schedule>, limit: Option<Bytes>, buffer: u64) -> Self {
            let source = SourceConfig {
                kind: SourceKind::Stream { buffer },
                start: Time::from_millis(10),
                stop: Time::from_secs(5),
            };
            let config = modern::Config {
                tail_probes: false,
                ..modern::Config::default()
            };
            let sender = modern::Sender::new(&config, &source).unwrap();
            let config = WriterConfig {
                demand,
                limit,
                segment: (Bytes(1_500), Bytes(1_448)),
            };
            Self {
                writer: Writer::new(Model::Modern(Box::new(sender)), &config),
                rng: Pcg64Mcg::new(1),
                out: Outbox::default(),
            }
        }

        fn at(&mut self, now: Time, act: impl FnOnce(&mut Writer, &mut AgentCx<'_>)) -> Vec<u32> {
            let mut trace = ();
            let mut cx = AgentCx::new(now, &mut self.rng, &mut trace, &mut self.out);
            act(&mut self.writer, &mut cx);
            self.out.drain().map(|packet| packet.size).collect()
        }

        /// Runs the timers until `end`. Returns times and sizes of the sent segments.
        fn until(&mut self, end: Time) -> Vec<(Time, u32)> {
            let mut sent = Vec::new();
            while self.writer.next_timer() <= end {
                let now = self.writer.next_timer();
                let sizes = self.at(now, Agent::on_timer);
                sent.extend(sizes.into_iter().map(|size| (now, size)));
            }
            sent
        }

        fn ack(&mut self, now: Time, next: u32) -> Vec<u32> {
            let ack = Ack {
                next,
                echo: now.before(Duration::from_millis(5)),
                sack: [(0, 0); 3],
                ece: false,
                again: false,
                marks: 0,
            };
            let arrival = Arrival {
                size: 40,
                ecn: Ecn::NotEct,
                dscp: 0,
            };
            self.at(now, |writer, cx| {
                writer.on_packet(cx, &arrival, &mut Body::Ack(ack));
            })
        }
    }

    #[test]
    fn segments_are_sent_at_the_rate_of_the_application() {
        // 1500 bytes take 12 ms at 1 Mb/s.
        let mut bench = Bench::new(Some(Rate::kbps(1_000).into()), None, 100_000);
        let ms = Time::from_millis;
        assert_eq!(bench.until(ms(11)), [(ms(10), 52)]);
        assert!(bench.ack(ms(15), 1).is_empty());
        let sent = bench.until(ms(60));
        assert_eq!(sent, [22, 34, 46, 58].map(|at| (ms(at), 1_500)));
    }

    #[test]
    fn buffer_bounds_unacknowledged_data() {
        // Two segments and some bytes, which do not make a third one.
        let mut bench = Bench::new(None, None, 3_000);
        let ms = Time::from_millis;
        bench.until(ms(10));
        assert_eq!(bench.ack(ms(15), 1), [1_500, 1_500]);
        let stream = |bench: &Bench| bench.writer.source().stream().unwrap().unacked();
        assert_eq!(stream(&bench), 2 * 1_448);
        assert_eq!(bench.ack(ms(20), 2), [1_500]);
        assert_eq!(stream(&bench), 2 * 1_448);
    }

    #[test]
    fn a_transfer_through_a_buffer_ends_with_its_last_byte() {
        let mut bench = Bench::new(None, Some(Bytes(3_000)), 1_448);
        let ms = Time::from_millis;
        bench.until(ms(10));
        assert_eq!(bench.ack(ms(15), 1), [1_500]);
        assert_eq!(bench.ack(ms(20), 2), [1_500]);
        assert!(!bench.writer.is_done());
        assert_eq!(bench.ack(ms(25), 3), [52 + 104]);
        assert!(bench.ack(ms(30), 4).is_empty());
        assert!(bench.writer.is_done());
    }

    #[test]
    fn application_backlog_is_bounded() {
        // No acknowledgement for a second, in which 83 segments are generated: one is in the
        // buffer, 16 wait.
        let mut bench = Bench::new(Some(Rate::kbps(1_000).into()), None, 1_448);
        let ms = Time::from_millis;
        bench.until(ms(10));
        bench.ack(ms(15), 1);
        let mut waiting = 0;
        let mut next = 2;
        bench.until(ms(22));
        while !bench.ack(ms(1_022), next).is_empty() {
            waiting += 1;
            next += 1;
        }
        assert_eq!(waiting, 16);
    }
}
