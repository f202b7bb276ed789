//! Runs scenarios in virtual time and prints a digest of all events. The lines must be identical on
//! every machine, with every C library and at every optimisation level.
//!
//! `cargo run -p tidegate-sim --example digest -- scenarios/steady.toml scenarios/lossy.toml`

use std::error::Error;
use std::fmt::Debug;
use std::path::Path;

use tidegate_core::media::FrameEncoder;
use tidegate_core::random::Seed;
use tidegate_sim::runner::{self, RunResult};
use tidegate_sim::scenario::{Scenario, VideoPlan};
use tidegate_sim::video_model::{VideoModel, VideoModelConfig};

fn main() -> Result<(), Box<dyn Error>> {
    for file in std::env::args().skip(1) {
        let scenario = Scenario::load(Path::new(&file), &tidegate_sim::controllers())?;
        let seed = scenario.seed;
        let encoder = |name: &str, video: &VideoPlan, seed: Seed| {
            let config = VideoModelConfig {
                width: video.width,
                height: video.height,
                frame_rate: video.frame_rate,
            };
            let stream = seed.stream(&format!("video/{name}"));
            let model: Box<dyn FrameEncoder> = Box::new(VideoModel::new(config, stream));
            Ok(model)
        };
        let takes = runner::scenario(&scenario, seed, &encoder, &mut |_| {})?;
        let mut digest = Digest::default();
        for take in &takes {
            digest.add_take(take);
        }
        println!(
            "{} {:016x} of {} rows",
            scenario.name, digest.hash, digest.rows
        );
    }
    Ok(())
}

/// FNV-1a over the text of rows, in which floats have all their digits.
#[derive(Debug)]
struct Digest {
    hash: u64,
    rows: u64,
}

impl Default for Digest {
    fn default() -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            rows: 0,
        }
    }
}

impl Digest {
    fn add_take(&mut self, take: &RunResult) {
        for (role, results) in &take.flows {
            let (sent, received, packets) = results.rows();
            self.add(&[&role.name]);
            self.add(&sent);
            self.add(&received);
            self.add(&packets);
        }
        self.add(&take.events);
        self.add(&take.links.iter().collect::<Vec<_>>());
    }

    fn add(&mut self, rows: &[impl Debug]) {
        for row in rows {
            self.rows += 1;
            self.hash = format!("{row:?}").bytes().fold(self.hash, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        }
    }
}
