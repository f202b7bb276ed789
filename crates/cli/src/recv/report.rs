//! Output of an RTP receiver.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::units::{Bytes, Time};
use tidegate_record::Count;

use super::player::Player;
use super::unexpected::{Adviser, H265_ADVICE};
use crate::live::{rounded, totals};
use tidegate_console::context::LiveContext;
use tidegate_console::progress::{counted, millis};

pub(super) struct Report {
    player: Player,
    adviser: Adviser,
}

/// Message for key frames without parameter sets.
const NO_SETS: &str = "the stream has no parameter sets (SPS and PPS), so its pictures cannot be \
decoded and are not counted: give the description of the sender as --sdp, or have the sender repeat \
them in the stream";

/// Message for hellos of version 1.
const OUTDATED: &str = "a hello of version 1 of the handshake has arrived, and this program has \
version 2: if it is that of your sender, install the same version of tidegate there";

/// Message for a stream without access points.
const NO_ACCESS: &str = "no complete picture at which decoding can start (IDR picture or recovery \
point) has arrived for 5 s: have the encoder of the sender send one every two seconds";

/// Longer than the groups of pictures of most encoders.
const NO_ACCESS_TIME: Duration = Duration::from_secs(5);

/// Share of the packets of the stream so far that are missing, in 0..=1.
fn missing_share(receiver: &MediaReceiver) -> f64 {
    let (received, lost) = receiver.counts();
    let lost = lost.max(0) as f64;
    lost / (received as f64 + lost).max(1.0)
}

impl Report {
    pub(super) fn new(mut player: Player, port: u16, local_only: bool, adviser: Adviser) -> Self {
        let from = if local_only {
            " of this host; --key-file or --insecure admits other hosts"
        } else {
            ""
        };
        let waiting = format!("waiting for a stream at port {port}{from}");
        player.report.say(&waiting);
        Self { player, adviser }
    }

    /// Processes received frames and prints due messages.
    pub(super) fn turn(&mut self, receiver: &mut MediaReceiver, now: Time) {
        if self.player.turn(now, || receiver.poll_frame()) {
            receiver.on_decoder_trouble(now);
        }
        let bound = self.player.bound;
        let report = &mut self.player.report;
        if receiver.without_parameter_sets() > 0 {
            report.say_once("parameter sets", NO_SETS);
        }
        if receiver.is_h265() {
            report.say_once("H.265", H265_ADVICE);
        }
        if receiver.last_arrival().is_some() {
            report.say_once("start", "the stream has started");
            report.show_if_due(now, |interval| {
                format!(
                    "  {:.0} frames/s  missing {:.1} %  delay variation {} of {}",
                    interval.frame_rate(now),
                    100.0 * missing_share(receiver),
                    millis(interval.longest),
                    millis(bound),
                )
            });
        } else if let Some(advice) = self.adviser.due(now) {
            report.say(&advice);
        }
        let is_explained = receiver.without_parameter_sets() > 0 || receiver.is_h265();
        let since = receiver.undecodable_since().filter(|_| !is_explained);
        if since.is_some_and(|since| now.since(since) >= NO_ACCESS_TIME) {
            report.say_once("access points", NO_ACCESS);
        }
        report.print_if_due(now, |interval| {
            json!({
                "missing": rounded(missing_share(receiver)),
                "delay_variation_ms": rounded(interval.longest.as_secs_f64() * 1e3),
            })
        });
    }

    /// So many hellos of another version of the handshake have arrived.
    pub(super) fn on_hellos(&mut self, outdated: u64) {
        if outdated > 0 {
            self.player.report.say_once("version", OUTDATED);
        }
    }

    /// Whether the reader of the recording has closed the pipe.
    pub(super) fn is_unread(&self) -> bool {
        self.player.recording.is_unread()
    }

    /// Writes the last rows and prints the final messages. `not_authentic` is the number of
    /// datagrams that were not protected with the key of the stream.
    ///
    /// # Errors
    /// As [`Player::finish`].
    pub(super) fn finish(
        mut self,
        receiver: &mut MediaReceiver,
        not_authentic: u64,
        context: &LiveContext,
    ) -> Result<Result<()>> {
        receiver.finish();
        self.player
            .turn(context.clock.now(), || receiver.poll_frame());
        let (received, lost) = receiver.counts();
        let missing = lost.max(0).unsigned_abs();
        let packets = counted(received + missing, "packet");
        let rest = receiver.last_arrival();
        let rest = rest.map(|_| format!("{missing} of {packets} missing"));
        let rejected = [
            (receiver.rejected(), "part of this stream"),
            (not_authentic, "protected with its key, or arrived twice"),
        ];
        let rejected = rejected.into_iter().filter(|(count, _)| *count > 0);
        let notes: Vec<String> = rejected
            .map(|(count, why)| {
                let verb = if count == 1 { "was" } else { "were" };
                format!("{} {verb} not {why}", counted(count, "datagram"))
            })
            .collect();
        let total = receiver.received();
        let arrived = Count {
            packets: received,
            bytes: total.bytes,
        };
        // Missing packets have the mean size of the others.
        let absent = total.bytes.get().saturating_mul(missing) / received.max(1);
        let expected = Count {
            packets: received + missing,
            bytes: Bytes(total.bytes.get().saturating_add(absent)),
        };
        let totals = totals(total.span, arrived, expected);
        self.player.finish(rest, &notes, totals, context)
    }
}
