//! Pictures of the flows side by side, at the moments of a run.

use core::fmt::Write as _;

use tidegate_record::metrics::FrameOutcome;
use tidegate_record::{FlowRun, PictureKind, StoredPicture};

use super::summary_text;
use super::svg::escape;
use super::view::{SimFlow, View};

/// The pictures of all flows that have some; empty if no flow has.
pub(super) fn compared(view: &View<'_>, id: &str) -> String {
    let flows: Vec<(&str, &SimFlow<'_>)> = view
        .flows
        .iter()
        .filter_map(|flow| Some((flow.colour, flow.single()?)))
        .filter(|(_, member)| !member.flow.pictures.is_empty())
        .collect();
    let Some((_, first)) = flows.first() else {
        return String::new();
    };
    let mut html = format!("<h3 id=\"{id}\">On the screen</h3>");
    for (moment, at) in view.run.manifest.moments(&first.flow.info) {
        let captured = |story: &&FrameOutcome| story.captured >= at;
        let frame = |member: &SimFlow<'_>| member.stories.iter().find(captured).map(|s| s.frame);
        let Some(due) = frame(first) else {
            continue;
        };
        let at = summary_text::duration(at.as_secs_f64());
        let _ = write!(html, "<h4>{moment}, at {at}</h4><div class=\"pictures\">");
        if let Some(original) = stored(first.flow, due, PictureKind::Camera) {
            let alt = format!("The original at {at}");
            image(&mut html, Some(original), &alt);
            html.push_str("<figcaption><b>camera</b> the original</figcaption></figure>");
        }
        for (colour, member) in &flows {
            let Some(due) = frame(member) else {
                continue;
            };
            let (name, label) = (escape(&member.flow.info.name), label(member.flow, due));
            let alt = format!("{name} at {at}: {}", label.text);
            image(
                &mut html,
                stored(member.flow, due, PictureKind::Shown),
                &alt,
            );
            let _ = write!(
                html,
                "<figcaption><i class=\"{colour}\"></i><b>{name}</b> <span{}>{}</span>{}</figcaption>\
                 </figure>",
                if label.late { " class=\"late\"" } else { "" },
                label.text,
                label.quality
            );
        }
        html.push_str("</div>");
    }
    html.push_str(
        "<p class=\"under\">The same frame of each flow, as displayed when it was due: the newest \
         picture that was decodable by then.</p>",
    );
    html
}

/// Text below a picture.
struct Label {
    /// Whether an older picture is displayed, or none.
    late: bool,
    text: String,
    quality: String,
}

fn label(flow: &FlowRun, due: u64) -> Label {
    let row = flow.shown.iter().find(|row| row.frame == due);
    let shown = row.and_then(|row| row.shown_frame);
    let text = match (shown, flow.info.frame_rate) {
        (Some(frame), _) if frame == due => "on time".to_owned(),
        (Some(frame), Some(rate)) => {
            let age = rate.at(due).saturating_sub(rate.at(frame)).as_secs_f64();
            format!(
                "late: picture of {} earlier",
                summary_text::millis(1e3 * age)
            )
        }
        (Some(_), None) => "late: an earlier picture".to_owned(),
        (None, _) => "no picture yet".to_owned(),
    };
    let quality = row.and_then(|row| row.quality);
    Label {
        late: shown != Some(due),
        text,
        quality: quality.map_or(String::new(), |q| format!(", {:.1} dB", q.psnr_y)),
    }
}

fn stored(flow: &FlowRun, frame: u64, kind: PictureKind) -> Option<&StoredPicture> {
    let mut pictures = flow.pictures.iter();
    pictures.find(|picture| picture.frame == frame && picture.kind == kind)
}

/// Starts a figure with a picture, or with a black area for a screen without one. `alt` is escaped.
fn image(html: &mut String, picture: Option<&StoredPicture>, alt: &str) {
    html.push_str("<figure>");
    let _ = match picture {
        Some(picture) => write!(
            html,
            "<img alt=\"{alt}\" src=\"data:image/jpeg;base64,{}\">",
            base64(&picture.jpeg)
        ),
        None => write!(
            html,
            "<div class=\"blank\" role=\"img\" aria-label=\"{alt}\"></div>"
        ),
    };
}

/// Base64 (RFC 4648 section 4).
fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            if i > group.len() {
                text.push('=');
            } else {
                text.push(char::from(DIGITS[(bits >> (18 - 6 * i) & 63) as usize]));
            }
        }
    }
    text
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        // Section 10.
        let cases = [
            "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy",
        ];
        for (length, text) in cases.into_iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..length]), text);
        }
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "/+++");
    }
}
