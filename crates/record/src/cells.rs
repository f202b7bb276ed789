//! Columns of a run folder's tables, and the formats of their cells. A row's fields are its cells, in
//! the order of the columns.

use core::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_core::media::Quality;
use tidegate_core::units::Time;

use crate::rows::{
    BinRow, LinkSample, PacketRow, ReceivedFrame, SavableRow, SentFrame, ShownFrame, TotalsRow,
};

/// A row of a table.
pub(crate) trait Row: Serialize + DeserializeOwned {
    /// First line of the file.
    const COLUMNS: &'static str;

    /// Number of trailing columns that tables of earlier versions may lack. Missing cells are read
    /// as empty.
    const ADDED: usize = 0;
}

impl Row for SentFrame {
    const COLUMNS: &'static str = "frame,rtp_timestamp,captured_s,type,target_bits,bits,left_s,\
                                   dropped,psnr_y,psnr_u,psnr_v,ssim";
}

impl Row for ReceivedFrame {
    const COLUMNS: &'static str = "frame,rtp_timestamp,first_s,complete_s,type,bits,decodable,\
                                   psnr_y,psnr_u,psnr_v,ssim";
}

impl Row for ShownFrame {
    const COLUMNS: &'static str = "frame,shown_frame,on_time,psnr_y,psnr_u,psnr_v,ssim";
}

impl Row for PacketRow {
    const COLUMNS: &'static str = "seq,kind,size,sent_s,arrived_s,outcome";
}

impl Row for SavableRow {
    const COLUMNS: &'static str = "frame,savable";
}

impl Row for LinkSample {
    const COLUMNS: &'static str = "t_s,run,link,queue_bytes,drops,marks,delivered_bytes,\
                                   drops_random,drops_outage";
    const ADDED: usize = 2;
}

impl Row for BinRow {
    const COLUMNS: &'static str = "t_s,flow,sent_packets,sent_bytes,received_packets,\
                                   received_bytes,delay_sum_s,delay_max_s,dropped";
    const ADDED: usize = 1;
}

impl Row for TotalsRow {
    const COLUMNS: &'static str = "flow,span_s,sent_packets,sent_bytes,received_packets,\
                                   received_bytes,dropped,loss_events,rtt_s,delay_min_s,\
                                   delay_mean_s,delay_p50_s,delay_p95_s,delay_p99_s,delay_max_s,\
                                   first_sent_s,done_s,dummies_sent,dummies_received";
    const ADDED: usize = 4;
}

/// A time since the start of the run, or a time span.
pub(crate) trait Nanos: Copy {
    fn nanos(self) -> u64;
    fn from_nanos(nanos: u64) -> Self;
}

impl Nanos for Time {
    fn nanos(self) -> u64 {
        self.as_nanos()
    }

    fn from_nanos(nanos: u64) -> Self {
        Self::from_nanos(nanos)
    }
}

impl Nanos for Duration {
    fn nanos(self) -> u64 {
        (Time::ZERO + self).as_nanos()
    }

    fn from_nanos(nanos: u64) -> Self {
        Self::from_nanos(nanos)
    }
}

/// Cell in seconds, as written by [`text`](seconds::text).
pub(crate) mod seconds {
    use serde::de::{Error as _, Unexpected};
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::Nanos;

    /// Seconds with nine decimals, which represents nanoseconds exactly.
    pub(crate) fn text(at: impl Nanos) -> String {
        let nanos = at.nanos();
        format!("{}.{:09}", nanos / NANOS, nanos % NANOS)
    }

    /// Inverse of [`text`], exact. Fewer decimals are accepted; decimals beyond the ninth are
    /// ignored.
    pub(super) fn parse<T: Nanos>(text: &str) -> Option<T> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let decimals = part.get(..part.len().min(9))?;
        let nanos: u64 = format!("{decimals:0<9}").parse().ok()?;
        let whole: u64 = whole.parse().ok()?;
        Some(T::from_nanos(whole.checked_mul(NANOS)?.checked_add(nanos)?))
    }

    pub(crate) fn serialize<T: Nanos, S: Serializer>(at: &T, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&text(*at))
    }

    pub(crate) fn deserialize<'de, T: Nanos, D: Deserializer<'de>>(d: D) -> Result<T, D::Error> {
        let text = <&str>::deserialize(d)?;
        parse(text).ok_or_else(|| D::Error::invalid_value(Unexpected::Str(text), &"seconds"))
    }

    const NANOS: u64 = 1_000_000_000;
}

/// Cell in [`seconds`], or empty.
pub(crate) mod maybe_seconds {
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    use super::{Nanos, seconds};

    #[expect(clippy::ref_option, reason = "serde passes the field as it is")]
    pub(crate) fn serialize<T: Nanos, S: Serializer>(
        at: &Option<T>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        at.map(seconds::text).serialize(s)
    }

    pub(crate) fn deserialize<'de, T: Nanos, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<T>, D::Error> {
        #[derive(Deserialize)]
        #[serde(bound = "T: Nanos")]
        struct Cell<T>(#[serde(with = "seconds")] T);
        Ok(Option::<Cell<T>>::deserialize(d)?.map(|cell| cell.0))
    }
}

/// Four cells: the quality of a picture. All are empty if it was not measured.
pub(crate) mod quality {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use tidegate_core::media::Quality;

    /// Formats with a fixed number of decimals, so that the same run gives the same bytes. A
    /// thousandth of a dB and a hundred-thousandth of SSIM are far below what a viewer can
    /// distinguish.
    pub(super) fn text(quality: Quality) -> [String; 4] {
        let Quality {
            psnr_y,
            psnr_u,
            psnr_v,
            ssim,
        } = quality;
        let [y, u, v] = [psnr_y, psnr_u, psnr_v].map(|psnr| format!("{psnr:.3}"));
        [y, u, v, format!("{ssim:.5}")]
    }

    #[expect(clippy::ref_option, reason = "serde passes the field as it is")]
    pub(crate) fn serialize<S: Serializer>(q: &Option<Quality>, s: S) -> Result<S::Ok, S::Error> {
        q.map(text).unwrap_or_default().serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<Quality>, D::Error> {
        let cells = <[Option<f64>; 4]>::deserialize(d)?;
        let [Some(psnr_y), Some(psnr_u), Some(psnr_v), Some(ssim)] = cells else {
            return Ok(None);
        };
        Ok(Some(Quality {
            psnr_y,
            psnr_u,
            psnr_v,
            ssim,
        }))
    }
}

/// Two cells: numbers of drops by cause. Both are empty if causes were not recorded.
pub(crate) mod causes {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use crate::rows::DropCauses;

    #[expect(clippy::ref_option, reason = "serde passes the field as it is")]
    pub(crate) fn serialize<S: Serializer>(
        causes: &Option<DropCauses>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        (causes.map(|c| c.random), causes.map(|c| c.outage)).serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<DropCauses>, D::Error> {
        let (random, outage) = <(Option<u64>, Option<u64>)>::deserialize(d)?;
        let both = random.zip(outage);
        Ok(both.map(|(random, outage)| DropCauses { random, outage }))
    }
}

/// Reads an empty cell as zero.
pub(crate) fn or_zero<'de, D: serde::Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    let cell: Option<u64> = serde::Deserialize::deserialize(d)?;
    Ok(cell.unwrap_or(0))
}

/// Rounds a quality to the precision of the tables, so that numbers of a run in memory equal those
/// of its folder.
pub(crate) fn as_kept(exact: Quality) -> Quality {
    let cells = quality::text(exact).map(|cell| cell.parse().unwrap_or(f64::NAN));
    let [psnr_y, psnr_u, psnr_v, ssim] = cells;
    Quality {
        psnr_y,
        psnr_u,
        psnr_v,
        ssim,
    }
}
