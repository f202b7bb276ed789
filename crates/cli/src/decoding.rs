//! Decoder of received streams: its options, and its messages.

use tidegate_console::progress::counted;
use tidegate_core::media::Codec;
use tidegate_media::sandbox::{Isolation, this_program};
use tidegate_media::{Decoded, Decoder, DecoderConfig, Size};

/// Options of a decoder of received streams.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct DecoderArgs {
    /// Refuse to decode pictures with more samples than a picture of this size
    #[arg(long, value_name = "SIZE", default_value_t = Size::LEVEL_5_2)]
    max_picture: Size,
    /// Decode in this process, with all its rights, for debugging; by default decoders run in a
    /// process without files and network
    #[arg(long)]
    no_sandbox: bool,
}

impl DecoderArgs {
    /// Configuration of the decoder.
    pub(crate) fn config(self, codec: Codec) -> DecoderConfig {
        DecoderConfig {
            codec,
            max_picture: self.max_picture,
            program: (!self.no_sandbox).then(this_program),
        }
    }
}

/// Messages about a decoder for the user, each once.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
pub(crate) struct DecoderNotes {
    unfiltered: bool,
    refused: bool,
    failed: bool,
    reordered: bool,
}

impl DecoderNotes {
    /// No message so far.
    pub(crate) fn new(decoder: &Decoder) -> Self {
        Self {
            unfiltered: decoder.isolation() == Isolation::Process,
            refused: false,
            failed: false,
            reordered: false,
        }
    }

    /// Message about pictures whose access unit was `behind` others.
    pub(crate) fn order(&mut self, behind: u8) -> Option<String> {
        if behind == 0 || std::mem::replace(&mut self.reordered, true) {
            return None;
        }
        Some(format!(
            "the stream has B pictures: pictures are shown {} after they arrive; an encoder \
             without them (x264: bframes=0) avoids this delay",
            counted(behind.into(), "frame")
        ))
    }

    /// Message about the decoder or about the access unit that it has decoded.
    pub(crate) fn note(&mut self, decoded: &Decoded<'_>) -> Option<String> {
        match decoded {
            Decoded::Refused(refusal) if !self.refused => {
                self.refused = true;
                Some(format!("not decoded: {refusal} (--max-picture)"))
            }
            Decoded::Failed(failure) if !self.failed => {
                self.failed = true;
                Some(format!(
                    "{failure}: a picture is lost, and another process starts; if it happens again \
                     with a sender that you trust, use --no-sandbox"
                ))
            }
            _ if self.unfiltered => {
                self.unfiltered = false;
                Some(
                    "the kernel has no seccomp filters: the decoder has a process of its own, with \
                     limited memory, but may use all system calls"
                        .to_owned(),
                )
            }
            _ => None,
        }
    }
}
