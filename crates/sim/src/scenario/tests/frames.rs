//! Traces of frames as encoders.

use core::time::Duration;

use super::{GOOD, parse};
use crate::scenario::EncoderKind;

pub(super) const TEXT: &str = "frame_rate 25\nrates 1000\nkey 9\n- 2\n";

fn with(video: &str) -> String {
    GOOD.replace("fps = 30, encoder = \"model\"", video)
}

#[test]
fn a_trace_brings_its_frame_rate() {
    let video = |video: &str| {
        let plan = parse(&with(video)).unwrap();
        let flow = plan.flow("tidegate").unwrap();
        flow.media.video().unwrap().clone()
    };
    for fps in ["", "fps = 25, ", "fps = \"50/2\", "] {
        let trace = video(&format!("{fps}encoder = {{ trace = \"good.frames\" }}"));
        assert_eq!(trace.frame_rate.interval(), Duration::from_millis(40));
        let EncoderKind::Trace { file, frames } = trace.encoder else {
            panic!("{:?}", trace.encoder);
        };
        assert_eq!((file.as_str(), frames.len()), ("good.frames", 2));
    }
    assert_eq!(video("encoder = \"x264\"").encoder, EncoderKind::X264);
}

#[test]
fn faults_name_the_mend() {
    for (video, message) in [
        (
            r#"fps = 30, encoder = { trace = "good.frames" }"#,
            "fps: the trace has 25/1 frames a second; remove it",
        ),
        (
            r#"encoder = { trace = "bad.frames" }"#,
            "encoder: trace: bad.frames: line 4: `two` is no frame: write bytes, or \
             bytes,psnr_y,psnr_u,psnr_v,ssim with decibels up to 99 and ssim up to 1",
        ),
        (
            r#"encoder = { trace = "no.frames" }"#,
            "encoder: trace: cannot read no.frames: no such file; check the path",
        ),
    ] {
        let error = parse(&with(video)).expect_err(video).to_string();
        assert_eq!(
            error,
            format!("demo.toml:21: flow \"tidegate\": video: {message}")
        );
    }
}
