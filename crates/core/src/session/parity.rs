//! Forward error correction of media packets that a retransmission cannot save in time.
//!
//! The sender groups the media packets of a part of the delay bound into a [block](crate::wire::parity)
//! and appends parity packets. Their number follows from the measured losses.

mod blocks;
mod decoder;
mod encoder;
mod loss_model;

pub(super) use blocks::SentBlocks;
pub(super) use decoder::{ParityDecoder, Restored};
pub(super) use encoder::{ParityEncoder, ParityPacket};
pub(super) use loss_model::LossModel;
