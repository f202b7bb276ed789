//! DSCPs of a session with probes, as the sockets receive them.

use std::collections::BTreeSet;

use tidegate_core::control::{Algorithm as _, Demand, Start};
use tidegate_core::controller::rcs::RcsConfig;
use tidegate_core::endpoint::LOWER_EFFORT;
use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate};
use tidegate_core::session::config::{
    MEDIA_TYPE, PROBE_TYPE, ReceiverConfig, SenderConfig, Streams,
};
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::session::sender::MediaSender;
use tidegate_core::session::stream::{Direct, Streamer};
use tidegate_core::units::Rate;
use tidegate_core::wire::rtcp::{self, Cname, Rtcp};

use super::*;

const MEDIA: u32 = 1;

/// Passes all to an endpoint, and keeps what it receives: content and DSCP.
#[derive(Debug)]
struct Tap<E> {
    inner: E,
    received: BTreeSet<(Content, u8)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Content {
    Media,
    Probe,
    FeedbackOnMedia,
    FeedbackOnProbes,
    Other,
}

fn content(payload: &[u8]) -> Content {
    if rtcp::is_rtcp(payload) {
        let ssrcs: Vec<u32> = rtcp::packets(payload)
            .flatten()
            .filter_map(|packet| match packet {
                Rtcp::Ccfb(report) => Some(report),
                _ => None,
            })
            .flat_map(|report| report.blocks().map(|block| block.ssrc).collect::<Vec<_>>())
            .collect();
        return match ssrcs[..] {
            [] => Content::Other,
            [MEDIA, ..] => Content::FeedbackOnMedia,
            _ => Content::FeedbackOnProbes,
        };
    }
    match payload[1] & 0x7f {
        pt if pt == MEDIA_TYPE.get() => Content::Media,
        pt if pt == PROBE_TYPE.get() => Content::Probe,
        _ => Content::Other,
    }
}

impl<E: Endpoint> Endpoint for Tap<E> {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        if let Input::Datagram(datagram) = input {
            let seen = (content(datagram.payload), datagram.dscp);
            self.received.insert(seen);
        }
        self.inner.handle(cx, input)
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        self.inner.poll(cx, buffer)
    }
}

/// Encodes each frame to one packet of the ordered size.
#[derive(Debug)]
struct Blank;

impl FrameEncoder for Blank {
    fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError> {
        let mut data = vec![0, 0, 0, 1, if order.key { 0x65 } else { 0x41 }, 0x88];
        data.resize(600, 0x5a);
        Ok(Encoded {
            frame: order.frame,
            captured: order.captured,
            key: order.key,
            leading: false,
            data,
            quality: None,
        })
    }

    fn frame_rate(&self) -> FrameRate {
        FrameRate::fps(30)
    }
}

fn name(text: &str) -> Cname {
    Cname::new(text).unwrap()
}

fn sender() -> Streamer<Direct<Blank>> {
    let mut config = SenderConfig::new(Streams::with_ssrcs(MEDIA, 2), name("sender@test"));
    config.frames = Some(45);
    let (floor, ceiling) = (Rate::kbps(150), Rate::kbps(2_000));
    let demand = Demand {
        floor,
        ceiling,
        shares: 1,
    };
    let start = Start::new(Time::ZERO, config.packet_size, demand);
    let controller = RcsConfig::default().start(&start);
    let sender = MediaSender::new(config, controller, None, &mut Seed(1).stream("session"));
    Streamer::new(sender, Direct::new(Blank))
}

fn tap<E: Endpoint>(inner: E, socket: Socket, until: impl Fn(&E) -> bool) -> Tap<E> {
    let received = BTreeSet::new();
    let mut tap = Tap { inner, received };
    let mut rng = Seed(2).stream("test");
    let ended = drive(
        &mut tap,
        &mut vec![socket],
        &conditions(Some(GUARD)),
        &mut rng,
        &mut (),
        |tap, _| {
            if until(&tap.inner) {
                ControlFlow::Break(())
            } else {
                ON
            }
        },
    );
    assert_ne!(ended.unwrap().why, EndReason::TimeOver);
    tap
}

#[test]
fn data_probes_and_their_feedback_have_their_dscps() {
    let (here, there) = (any(), any());
    let (near, far) = (here.local_addr().unwrap(), there.local_addr().unwrap());
    let ears = thread::spawn(move || {
        let config = ReceiverConfig::new(7, name("receiver@test"), Duration::from_secs(1));
        let socket = Socket::connected(there, near).unwrap();
        tap(MediaReceiver::new(config), socket, MediaReceiver::has_ended).received
    });
    let socket = Socket::connected(here, far).unwrap();
    let sender = tap(sender(), socket, |_| false);
    let received = ears.join().unwrap();
    // The train of a test has low packets, and others for comparison.
    let media: Vec<_> = received
        .into_iter()
        .filter(|seen| seen.0 != Content::Other)
        .collect();
    let probes = [(Content::Probe, 0), (Content::Probe, LOWER_EFFORT)];
    assert_eq!(media, [&[(Content::Media, 0)][..], &probes].concat());
    let feedback = sender
        .received
        .into_iter()
        .filter(|seen| seen.0 != Content::Other);
    let expected = [
        (Content::FeedbackOnMedia, 0),
        (Content::FeedbackOnProbes, LOWER_EFFORT),
    ];
    assert_eq!(feedback.collect::<Vec<_>>(), expected);
}
