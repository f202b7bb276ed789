//! From a flow of a scenario to its endpoints, in the simulator and in the lab.

use core::time::Duration;
use std::collections::BTreeMap;

use rand_core::Rng;
use tidegate_core::control::{Context, Outcome};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::fixed::FixedConfig;
use tidegate_core::endpoint::{Check, Endpoint, Input, Output};
use tidegate_core::link::LinkConfig;
use tidegate_core::media::FrameEncoder;
use tidegate_core::random::Seed;
use tidegate_core::session::config::{FIXED_PACE, ReceiverConfig, SenderConfig, Streams};
use tidegate_core::session::history::PacketRow;
use tidegate_core::session::jitter_buffer::ReceivedFrame;
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::session::sender::SentFrame;
use tidegate_core::session::setup::RateSetup;
use tidegate_core::session::stream::{Direct, EncodePipe, Streamer};
use tidegate_core::units::{Bytes, Rate, RemoteTime, Time};
use tidegate_core::wire::ntp::{NtpShort, RemoteClock};
use tidegate_core::wire::payload;
use tidegate_core::wire::rtcp::Cname;
use tidegate_record::{self as record, packet_row, received_row, sent_row};

use crate::interactive::Record;
use crate::offline_optimum::FloorSender;
use crate::scenario::{EncoderKind, FlowPlan, SendBuffer, VideoPlan};
use crate::traffic::video::{TraceEncoder, TracePlayer};
use crate::video_model::{VideoModel, VideoModelConfig};

mod actor;
mod framed;

pub use actor::Actor;
pub use framed::{Framed, Passage};

/// One instance of a flow: the flow of a scenario, or one of its baselines.
#[derive(Clone, Debug)]
pub struct FlowInstance {
    /// Name of the instance or of the baseline.
    pub name: String,
    /// Name of the flow in the scenario; several instances may share it.
    pub class: String,
    /// Name of the instance that this one replaces. Its access links are named after it.
    pub of: String,
    /// Plan of the flow.
    pub plan: FlowPlan,
    /// `Some`: constant media rate of a baseline without rate control and delay bound.
    pub baseline: Option<Rate>,
    /// The instance's own link before the path.
    pub access: Option<LinkConfig>,
    /// The instance's own link after the path.
    pub exit: Option<LinkConfig>,
}

/// An endpoint of any kind.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are a handful of them")]
pub enum Player<P> {
    /// A modelled sender or receiver.
    Model(Framed),
    /// A video receiver.
    Receiver(MediaReceiver),
    /// A video sender.
    Video(Streamer<P>),
}

/// A player whose encoder returns frames at once.
pub type SimPlayer = Player<Direct<Box<dyn FrameEncoder>>>;

/// Records of the sender and the receiver of a flow.
#[derive(Clone, Debug, Default)]
pub struct FlowResult {
    /// All captured frames.
    pub sent: Vec<SentFrame>,
    /// All frames of which packets arrived, in decoding order, with their bits.
    pub received: Vec<ReceivedFrame>,
    /// All packets of a video flow.
    pub packets: Vec<PacketRow>,
    /// All packets of a modelled flow outside of the simulator.
    pub passages: Vec<Passage>,
    /// Record of the connection of a video over TCP.
    pub stream: Option<Record>,
    /// Time at which the sender of a modelled flow was done.
    pub done: Option<Time>,
}

impl FlowInstance {
    /// Period in which the flow sends.
    pub fn active(&self) -> record::Span {
        record::Span {
            from: Time::ZERO + self.plan.start,
            to: Time::ZERO + self.plan.stop,
        }
    }

    /// The sending endpoint. `pipe` creates the encoder and is called for video only.
    ///
    /// # Errors
    /// The error of `pipe`.
    pub fn sender<P: EncodePipe, E>(
        &self,
        seed: Seed,
        pipe: impl FnOnce(&VideoPlan) -> Result<P, E>,
    ) -> Result<Player<P>, E> {
        if let Some((sender, _)) = self.actors() {
            return Ok(self.model(sender, "sender", seed));
        }
        let Some(video) = self.plan.media.video() else {
            unreachable!("only video flows have other endpoints than agents");
        };
        let mut rng = seed.stream(&format!("session/{}", self.name));
        let mut streams = streams(&mut rng);
        streams.media_type = payload::payload_type(video.encoder.codec());
        let config = self.sender_config(video, streams);
        let setup = RateSetup {
            control: &self.controller(),
            now: Time::ZERO + self.plan.start,
            prior: self.plan.prior,
            yields: self.plan.yielding,
        };
        let sender = setup.sender(config, &mut rng);
        Ok(Player::Video(Streamer::new(sender, pipe(video)?)))
    }

    /// The receiving endpoint.
    pub fn receiver<P>(&self, seed: Seed) -> Player<P> {
        if let Some((_, receiver)) = self.actors() {
            return self.model(receiver, "receiver", seed);
        }
        let mut rng = seed.stream(&format!("receiver/{}", self.name));
        let hold = match (self.baseline, self.plan.media.video()) {
            (None, Some(video)) => video.delay_bound,
            // Without a delay bound at the sender, late frames still arrive, and keep frames that
            // refer to them decodable.
            _ => PATIENCE,
        };
        let cname = cname(&self.name, "receiver");
        let mut config = ReceiverConfig::new(rng.next_u32(), cname, hold);
        if let Some(video) = self.plan.media.video() {
            config.payload_types.0 = payload::payload_type(video.encoder.codec());
        }
        Player::Receiver(MediaReceiver::new(config))
    }

    fn model<P>(&self, actor: Actor, side: &str, seed: Seed) -> Player<P> {
        let rng = seed.stream(&format!("party/{}/{side}", self.name));
        Player::Model(Framed::new(actor, rng))
    }

    fn controller(&self) -> ControllerConfig {
        match self.baseline {
            Some(rate) => FixedConfig { rate }.into(),
            None => self.plan.control.clone().unwrap_or_default(),
        }
    }

    fn sender_config(&self, video: &VideoPlan, streams: Streams) -> SenderConfig {
        let mut config = SenderConfig::new(streams, cname(&self.name, "sender"));
        config.packet_size = video.packet;
        config.frame_rate = video.frame_rate;
        config.rates = (video.floor, video.ceiling);
        config.ecn = self.plan.ecn.is_capable();
        config.parity = self.plan.parity;
        config.patience = self.plan.patience;
        match video.buffer {
            SendBuffer::Bound => {}
            SendBuffer::Limit(limit) => config.buffer = Some(limit),
            SendBuffer::None => config.pace = FIXED_PACE,
        }
        config.log = true;
        let lasts = self.plan.stop.saturating_sub(self.plan.start);
        config.frames = Some(frames_in(video, lasts));
        let since = |at: Duration| at.saturating_sub(self.plan.start);
        let pauses = video.pauses.iter();
        config.pauses = pauses
            .map(|(from, to)| (since(*from), since(*to)))
            .collect();
        if let Some(rate) = self.controller().properties().fixed_rate {
            config.rates = (rate, rate);
            // A stream without rate control sends each frame at once.
            config.pace = FIXED_PACE;
            config.circuit_breaker = false;
        } else {
            config.delay_bound = Some(video.delay_bound);
        }
        config
    }
}

impl VideoPlan {
    /// The sender at the floor of the encoder to which this one is compared.
    pub fn floor_sender(&self) -> FloorSender {
        FloorSender {
            floor: self.floor,
            frame_rate: self.frame_rate,
            payload: self.packet - HEADERS,
            overhead: HEADERS,
            bound: self.delay_bound,
        }
    }

    /// The modelled encoder of `flow`; none if its plan has a real encoder. It draws from the
    /// stream `video/<flow>` of `seed`.
    pub fn modelled(&self, flow: &str, seed: Seed) -> Option<Box<dyn FrameEncoder>> {
        let mut rng = seed.stream(&format!("video/{flow}"));
        match &self.encoder {
            EncoderKind::Model => {
                let config = VideoModelConfig {
                    width: self.width,
                    height: self.height,
                    frame_rate: self.frame_rate,
                };
                Some(Box::new(VideoModel::new(config, rng)))
            }
            EncoderKind::Trace(trace) => {
                let player = TracePlayer::new(trace.clone(), rng.next_u64());
                Some(Box::new(TraceEncoder::new(player, rng)))
            }
            EncoderKind::Real(_) => None,
        }
    }
}

impl<P: EncodePipe> Player<P> {
    /// Moves completed records into `result`.
    pub fn drain(&mut self, result: &mut FlowResult) {
        match self {
            Self::Model(model) => model.drain(&mut result.passages),
            Self::Video(streamer) => {
                let known = result.packets.len();
                let sender = streamer.sender_mut();
                sender.drain_rows(&mut result.sent, &mut result.packets);
                result.packets[known..].iter_mut().for_each(on_one_clock);
            }
            Self::Receiver(receiver) => {
                result
                    .received
                    .extend(core::iter::from_fn(|| receiver.poll_frame()));
            }
        }
    }

    /// Moves all remaining records into `result`, at the end.
    pub fn finish(&mut self, result: &mut FlowResult) {
        match self {
            Self::Model(model) => {
                model.drain(&mut result.passages);
                result.done = model.done();
            }
            Self::Video(streamer) => {
                let known = result.packets.len();
                let sender = streamer.sender_mut();
                sender.finish_rows(&mut result.sent, &mut result.packets);
                result.packets[known..].iter_mut().for_each(on_one_clock);
            }
            Self::Receiver(receiver) => {
                receiver.finish();
                result
                    .received
                    .extend(core::iter::from_fn(|| receiver.poll_frame()));
            }
        }
    }
}

impl<P: EncodePipe> Endpoint for Player<P> {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match self {
            Self::Model(e) => e.handle(cx, input),
            Self::Receiver(e) => e.handle(cx, input),
            Self::Video(e) => e.handle(cx, input),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        match self {
            Self::Model(e) => e.poll(cx, buffer),
            Self::Receiver(e) => e.poll(cx, buffer),
            Self::Video(e) => e.poll(cx, buffer),
        }
    }
}

impl FlowResult {
    /// Mean media rate over the captured frames, for a baseline of equal rate.
    pub fn mean_media_rate(&self, video: &VideoPlan) -> Rate {
        let bits: u64 = self.sent.iter().map(|f| f.bits).sum();
        let span = video.frame_rate.at(self.sent.len() as u64);
        Bytes(bits / 8) / span.max(Duration::from_millis(1))
    }

    /// Rows of the run folder: sent frames, received frames (without the quality, which needs a
    /// decoder), packets.
    pub fn rows(
        &self,
    ) -> (
        Vec<record::SentFrame>,
        Vec<record::ReceivedFrame>,
        Vec<record::PacketRow>,
    ) {
        let numbers: BTreeMap<u32, u64> =
            self.sent.iter().map(|f| (f.timestamp, f.frame)).collect();
        let mut sent: Vec<_> = self.sent.iter().map(sent_row).collect();
        sent.sort_by_key(|row| row.frame);
        let received = self.received.iter().filter_map(|f| {
            let rtp_timestamp = f.timestamp as u32;
            Some(received_row(f, *numbers.get(&rtp_timestamp)?))
        });
        let received = received.collect();
        (
            sent,
            received,
            self.packets.iter().map(packet_row).collect(),
        )
    }
}

/// A sender knows the receiver's clock up to a constant. Both clocks start at zero here.
fn on_one_clock(row: &mut PacketRow) {
    if let Some(Outcome::Received { at, .. }) = &mut row.outcome {
        let zero = RemoteClock::new().at(NtpShort(0));
        *at = RemoteTime(at.0.saturating_sub(zero.0));
    }
}

fn frames_in(video: &VideoPlan, span: Duration) -> u64 {
    let rate = video.frame_rate;
    let frames =
        span.as_nanos() * u128::from(rate.num) / (1_000_000_000 * u128::from(rate.den.max(1)));
    u64::try_from(frames).unwrap_or(u64::MAX)
}

fn streams(rng: &mut dyn Rng) -> Streams {
    Streams::with_ssrcs(rng.next_u32(), rng.next_u32())
}

fn cname(flow: &str, side: &str) -> Cname {
    let name: String = format!("{side}@{flow}").chars().take(200).collect();
    Cname::new(name).expect("a name of 7 to 200 characters")
}

/// Time to wait for frames of a stream without a delay bound.
const PATIENCE: Duration = Duration::from_secs(2);

/// Headers of IPv4, UDP and RTP.
const HEADERS: Bytes = Bytes(40);
