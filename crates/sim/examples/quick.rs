//! quick look
use std::path::Path;
use tidegate_core::{random::Seed, trace::Event, units::*};
use tidegate_sim::{play, scenario::Scenario, video_model::*};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let s = Scenario::load(Path::new(&a[1])).unwrap();
    let verbose = a.len() > 3;
    let seeds: u64 = a.get(2).map_or(1, |s| s.parse().unwrap());
    for seed in std::env::var("S").map_or(1, |s| s.parse().unwrap())..=seeds {
        let enc = |name: &str, v: &tidegate_sim::scenario::VideoPlan, seed: Seed| {
            Ok(Box::new(VideoModel::new(
                VideoModelConfig {
                    width: v.width,
                    height: v.height,
                    frame_rate: v.frame_rate,
                },
                seed.stream(&format!("video/{name}")),
            ))
                as Box<dyn tidegate_core::media::FrameEncoder>)
        };
        let takes = play::scenario(&s, Seed(seed), &enc, &mut |_| {}).unwrap();
        for t in &takes {
            for (role, k) in &t.flows {
                let bound = role
                    .plan
                    .media
                    .video()
                    .map_or(std::time::Duration::MAX, |v| v.delay_bound);
                let (sent, recv, packets) = k.rows();
                let mut delays: Vec<f64> = vec![];
                let mut ontime = 0;
                let cap: std::collections::BTreeMap<u64, Time> =
                    sent.iter().map(|f| (f.frame, f.captured)).collect();
                let mut ok = std::collections::BTreeSet::new();
                for r in &recv {
                    if let Some(c) = r.complete {
                        let d = c.since(cap[&r.frame]);
                        delays.push(d.as_secs_f64() * 1e3);
                        if d <= bound {
                            ontime += 1;
                            ok.insert(r.frame);
                        }
                    }
                }
                delays.sort_by(f64::total_cmp);
                let q = |p: f64| {
                    delays
                        .get(
                            ((delays.len() as f64 * p) as usize)
                                .min(delays.len().saturating_sub(1)),
                        )
                        .copied()
                        .unwrap_or(0.0)
                };
                let dropped = sent.iter().filter(|f| f.dropped.is_some()).count();
                let lost = packets
                    .iter()
                    .filter(|p| p.outcome == tidegate_sim::run::PacketOutcome::Lost)
                    .count();
                println!(
                    "seed {seed} {:12} made {} on_time {} dropped {} recv {} rate {:.0} kb/s pkts {} lost {} delay p50 {:.0} p95 {:.0} p99 {:.0} max {:.0}",
                    role.name,
                    sent.len(),
                    ontime,
                    dropped,
                    recv.len(),
                    k.mean_media_rate(role.plan.media.video().unwrap()).as_f64() / 1e3,
                    packets.len(),
                    lost,
                    q(0.5),
                    q(0.95),
                    q(0.99),
                    q(1.0)
                );
                if verbose && role.baseline.is_none() {
                    let missed: Vec<_> = sent
                        .iter()
                        .filter(|f| !ok.contains(&f.frame))
                        .map(|f| {
                            (
                                f.frame,
                                (f.captured.as_secs_f64() * 100.0).round() / 100.0,
                                f.dropped,
                            )
                        })
                        .collect();
                    let mut last = u64::MAX;
                    for m in &missed {
                        if m.0 != last.wrapping_add(1) {
                            println!("--");
                        }
                        print!(
                            "{}@{}{} ",
                            m.0,
                            m.1,
                            m.2.map_or("lost".into(), |c| format!("{c:?}"))
                        );
                        last = m.0;
                    }
                    println!();
                }
            }
            if verbose {
                if std::env::var("PK").is_ok() {
                    for p in packets_of(t).iter().take(40) {
                        println!("{p:?}");
                    }
                    break;
                }
                if std::env::var("ALL").is_ok() {
                    for e in &t.events {
                        println!("{:.4} {:?} {:?}", e.at.as_secs_f64(), e.side, e.event);
                    }
                    break;
                }
                let mut n = 0.0;
                for e in &t.events {
                    match e.event {
                        Event::Plan { .. } | Event::Sample { .. } | Event::RateChanged { .. } => {
                            if e.at.as_secs_f64() >= n {
                                if let Event::Sample {
                                    rtt,
                                    queue,
                                    loss,
                                    send,
                                    media,
                                    receive,
                                    ..
                                } = e.event
                                {
                                    println!(
                                        "{:.2} {} rtt {:.0} q {:.0} loss {:.4} send {} media {} recv {}",
                                        e.at.as_secs_f64(),
                                        e.flow,
                                        rtt.as_secs_f64() * 1e3,
                                        queue.as_secs_f64() * 1e3,
                                        loss,
                                        send,
                                        media,
                                        receive
                                    );
                                    n = e.at.as_secs_f64() + 0.5;
                                }
                            }
                        }
                        Event::Retransmitted { .. } => {}
                        _ => println!("{:.3} {} {:?}", e.at.as_secs_f64(), e.flow, e.event),
                    }
                }
                break;
            }
        }
    }
}
fn packets_of(t: &play::Take) -> Vec<tidegate_sim::run::PacketRow> {
    t.flows[0].1.rows().2
}
