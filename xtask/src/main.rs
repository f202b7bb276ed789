//! Repository checks beyond those of cargo.
//!
//! - `cargo run -p xtask -- arrows`: crates depend on each other as drawn in `ARCHITECTURE.md`.
//! - `cargo run -p xtask -- bpf`: BPF objects match their sources; `bpf --write` compiles
//!   them.
//! - `cargo run -p xtask -- licences`: all dependencies have a licence that `deny.toml` allows.
//! - `cargo run -p xtask -- links`: relative links in Markdown files have a target.
//! - `cargo run -p xtask -- map`: `ARCHITECTURE.md` names every module, and no others.
//! - `cargo run -p xtask -- portable`: the core builds for other targets with identical results.
//! - `cargo run -p xtask -- sizes`: files, functions and structures are below their limits, `impl`
//!   blocks are with their types, and no modules use each other.
//! - `cargo run -p xtask -- specs`: every requirement in `specs/` has code, and every citation has
//!   a requirement.
//! - `cargo run -p xtask -- all`: all of these but `portable`, which takes a minute.
//! - `cargo run -p xtask -- test`: builds and runs the tests, several programs at a time.

mod architecture;
mod arrows;
mod bpf;
mod circles;
mod items;
mod licences;
mod links;
mod map;
mod metadata;
mod portable;
mod sizes;
mod sources;
mod specs;
mod test;
mod tokens;

use std::fmt::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    // The manifest is one directory below the workspace root.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut words = std::env::args().skip(1);
    let (asked, option) = (words.next(), words.next());
    if asked.as_deref() == Some("test") {
        return match test::run(&root) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("xtask: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let named = CHECKS.iter().find(|c| Some(c.name) == asked.as_deref());
    let checks: Vec<&Check> = match (asked.as_deref(), named) {
        (Some("bpf"), _) if option.as_deref() == Some("--write") => vec![&WRITE],
        (_, Some(check)) => vec![check],
        (Some("all"), _) => CHECKS.iter().filter(|c| c.name != "portable").collect(),
        (other, None) => {
            let names = CHECKS.map(|c| c.name).join(", ");
            let given = other.unwrap_or("no argument");
            eprintln!("xtask: one of {names} or `all` was expected, and {given} was given");
            return ExitCode::from(2);
        }
    };
    let mut failed = Vec::new();
    for check in &checks {
        if checks.len() > 1 {
            println!("-- {}", check.name);
        }
        match (check.run)(&root) {
            Ok(report) => {
                print!("{}", report.text);
                if report.failed {
                    failed.push(check.name);
                }
            }
            Err(error) => {
                println!(
                    "{}",
                    error
                        .chain()
                        .map(ToString::to_string)
                        .collect::<Vec<_>>()
                        .join(": ")
                );
                failed.push(check.name);
            }
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("xtask: failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// One check.
struct Check {
    name: &'static str,
    run: fn(&Path) -> anyhow::Result<Report>,
}

const WRITE: Check = Check {
    name: "bpf",
    run: bpf::write,
};

const CHECKS: [Check; 8] = [
    Check {
        name: "arrows",
        run: arrows::check,
    },
    Check {
        name: "bpf",
        run: bpf::check,
    },
    Check {
        name: "licences",
        run: licences::check,
    },
    Check {
        name: "links",
        run: links::check,
    },
    Check {
        name: "map",
        run: map::check,
    },
    Check {
        name: "portable",
        run: portable::check,
    },
    Check {
        name: "sizes",
        run: sizes::check,
    },
    Check {
        name: "specs",
        run: specs::check,
    },
];

/// Result of a check.
#[derive(Debug, Default)]
struct Report {
    text: String,
    failed: bool,
}

impl Report {
    /// Adds an informational line.
    fn line(&mut self, text: fmt::Arguments<'_>) {
        writeln!(self.text, "{text}").expect("writing to a string succeeds");
    }

    /// Adds an error.
    fn fault(&mut self, text: fmt::Arguments<'_>) {
        self.failed = true;
        self.line(text);
    }
}
