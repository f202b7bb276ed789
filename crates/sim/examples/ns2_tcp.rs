//! Compares the classic TCP senders with traces of ns-2, packet by packet, and creates the
//! references of the tests from such traces.
//!
//! A trace is a text file of lines `event,time_s,type,size_B,seq`: `+` for a packet that arrives at
//! the observed link, `d` for one that its queue dropped. `tests/data/ns2/trace.tcl` creates such
//! files. For the words of a setup see `Setup` in `tests/tcp_bench/reference.rs`.
//!
//! `cargo run --release -p tidegate-sim --example ns2_tcp -- compare queue,reno trace.csv`
//! `cargo run --release -p tidegate-sim --example ns2_tcp -- reduce queue,reno trace.csv > reference.txt`

use std::error::Error;
use std::fs;

use tidegate_core::units::Time;

#[path = "../tests/tcp_bench/mod.rs"]
mod tcp_bench;

use tcp_bench::reference::{self, Event, Setup};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["reduce", setup, file] => {
            print!("{}", reference::reduce(setup, &read(file)?));
            Ok(())
        }
        ["compare", setup, file] => compare(&setup.parse()?, &read(file)?),
        _ => Err("usage: ns2_tcp compare SETUP TRACE | reduce SETUP TRACE".into()),
    }
}

fn read(file: &str) -> Result<Vec<Event>, Box<dyn Error>> {
    let text = fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    Ok(reference::parse_trace(&text)?)
}

fn compare(setup: &Setup, theirs: &[Event]) -> Result<(), Box<dyn Error>> {
    let last = theirs.last().ok_or("the trace is empty")?;
    let ours = setup.play(Time::from_micros(last.micros + 1));
    let mut worst = 0;
    for (i, (us, them)) in ours.iter().zip(theirs).enumerate() {
        let off = us.micros.abs_diff(them.micros);
        worst = worst.max(off);
        if us.seq != them.seq || us.dropped != them.dropped || off > 1 {
            println!("transmission {i}: here {us:?}, ns-2 {them:?}");
            for j in i.saturating_sub(5)..(i + 10).min(theirs.len()).min(ours.len()) {
                println!("  {j} {:?} {:?}", ours[j], theirs[j]);
            }
            return Err("they differ".into());
        }
    }
    if ours.len().abs_diff(theirs.len()) > 1 {
        return Err(format!("{} transmissions here, {} there", ours.len(), theirs.len()).into());
    }
    let exact = ours.iter().zip(theirs).filter(|(a, b)| a == b).count();
    println!(
        "{} transmissions agree, {exact} to the microsecond, the others within {worst} us",
        theirs.len()
    );
    Ok(())
}
