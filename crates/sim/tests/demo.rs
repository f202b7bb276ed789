//! The demo's promise, over ten seeds, with the model of an encoder.

use std::path::Path;

use tidegate_core::media::FrameEncoder;
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Time};
use tidegate_sim::cast::{Role, Takings};
use tidegate_sim::oracle::FloorSender;
use tidegate_sim::play;
use tidegate_sim::scenario::{Scenario, VideoPlan};
use tidegate_sim::video_model::{VideoModel, VideoModelConfig};

/// Frames captured, savable, on time, and on time although the oracle gave them up.
#[derive(Clone, Copy, Debug)]
struct Count {
    made: usize,
    savable: usize,
    on_time: usize,
}

impl Count {
    fn of_savable(self) -> f64 {
        self.on_time as f64 / self.savable as f64
    }

    fn of_all(self) -> f64 {
        self.on_time as f64 / self.made as f64
    }
}

#[test]
fn ten_seeds_keep_99_of_100_savable_frames_on_time() {
    let scenario = demo("tfrc");
    let mut shares = Vec::new();
    println!("seed   of savable   of all   fixed at its mean   fixed 2 Mb/s");
    for seed in 1..=10 {
        let takes = play::scenario(&scenario, Seed(seed), &encoder, &mut |_| {}).unwrap();
        let flows = takes.iter().flat_map(|take| &take.flows);
        let counts: Vec<Count> = flows.map(|(role, t)| count(&scenario, role, t)).collect();
        let [own, mean, two] = counts[..] else {
            panic!("the demo has a flow and two baselines")
        };
        println!(
            "{seed:4}   {:10.4}   {:6.4}   {:17.4}   {:12.4}",
            own.of_savable(),
            own.of_all(),
            mean.of_all(),
            two.of_all()
        );
        assert!(own.of_savable() >= 0.985, "seed {seed}: {own:?}");
        assert!(own.of_all() >= 0.9, "seed {seed}: {own:?}");
        assert!(own.on_time > mean.on_time + 300 && own.on_time > two.on_time + 300);
        shares.push(own.of_savable());
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    println!("mean   {mean:10.4}");
    assert!(mean >= 0.99, "mean over seeds: {mean}");
}

/// The promise is kept over any controller that finds out what the path carries.
#[test]
fn rap_keeps_the_promise_too() {
    let scenario = demo("rap");
    for seed in 1..=3 {
        let takes = play::scenario(&scenario, Seed(seed), &encoder, &mut |_| {}).unwrap();
        let (role, takings) = &takes[0].flows[0];
        assert_eq!(role.info().control, "rap");
        let own = count(&scenario, role, takings);
        println!("seed {seed}: {:.4} of savable, {own:?}", own.of_savable());
        assert!(own.of_savable() >= 0.99, "seed {seed}: {own:?}");
    }
}

/// With the model of an encoder, and rate control of this name.
fn demo(control: &str) -> Scenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/demo.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.replace("encoder = \"x264\"", "encoder = \"model\"");
    let text = text.replace("control = \"tfrc\"", &format!("control = \"{control}\""));
    Scenario::parse("demo.toml", &text, &|_| Err("no traces".to_owned())).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "other encoders can fail")]
fn encoder(
    flow: &str,
    plan: &VideoPlan,
    seed: Seed,
) -> Result<Box<dyn FrameEncoder>, tidegate_core::media::EncodeError> {
    let config = VideoModelConfig {
        width: plan.width,
        height: plan.height,
        frame_rate: plan.frame_rate,
    };
    let rng = seed.stream(&format!("video/{flow}"));
    Ok(Box::new(VideoModel::new(config, rng)))
}

fn count(scenario: &Scenario, role: &Role, takings: &Takings) -> Count {
    let video = role.plan.media.video().unwrap();
    let (sent, received, _) = takings.rows();
    let oracle = FloorSender {
        floor: video.floor,
        frame_rate: video.frame_rate,
        payload: Bytes(1_160),
        overhead: Bytes(40),
        bound: video.delay_bound,
    };
    let captured: Vec<Time> = sent.iter().map(|f| f.captured).collect();
    let savable = oracle.savable(&scenario.road(&role.plan), &captured);
    let on_time = received.iter().filter(|f| {
        let captured = captured[f.frame as usize];
        f.complete
            .is_some_and(|at| at.since(captured) <= video.delay_bound)
    });
    Count {
        made: sent.len(),
        savable: savable.iter().filter(|s| **s).count(),
        on_time: on_time.count(),
    }
}
