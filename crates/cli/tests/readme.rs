//! Tests the README: every `sh` block is run. Verbs, options and make targets of the commands in
//! `console` blocks must exist.
//!
//! Blocks run in order, in one folder that contains the scenarios. Commands that need several
//! processes are one block: the first ends in `&`, and the block ends in `wait`. Commands that
//! cannot run in a test (installation, windows) are in `console` blocks, with a `$` prompt. Blocks
//! of the lab and of `events watch` are skipped without namespaces.
//!
//! Ports after a loopback address are replaced by free ones. The port above each is free as well,
//! for RTCP. Simulator output is deterministic: a `text` block after a simulator block must equal
//! its output; `...` stands for omitted lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_live::netns::{Availability, availability};

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

#[test]
fn every_block_runs() {
    let folder = Folder::new();
    symlink(root().join("scenarios"), folder.0.join("scenarios")).unwrap();
    let blocks = blocks(&read("README.md"));
    let (mut run, mut compared) = (0, 0);
    for (number, block) in blocks.iter().enumerate() {
        if block.language != "sh" {
            continue;
        }
        let in_lab = ["tidegate lab ", "tidegate events watch "];
        if in_lab.iter().any(|verb| block.body.contains(verb))
            && let Availability::Missing(missing) = availability()
        {
            println!("left out: line {}: {missing}", block.line);
            continue;
        }
        run += 1;
        let Some(printed) = block.run(&folder.0) else {
            // Written to standard error directly: the test harness captures output of passing
            // tests.
            let mut terminal = io::stderr();
            let why = "as the machine was too busy for the emulator";
            writeln!(terminal, "not judged: README.md:{}, {why}", block.line).unwrap();
            continue;
        };
        let shown = blocks
            .get(number + 1)
            .filter(|next| next.language == "text");
        if let Some(shown) = shown.filter(|_| block.is_simulated()) {
            shown.assert_is_of(&printed);
            compared += 1;
        }
    }
    assert!(run > 0, "the README has no sh block");
    assert!(
        compared >= 5,
        "{compared} results of the simulator are shown"
    );
}

#[test]
fn every_command_exists() {
    for file in ["README.md", "CONTRIBUTING.md"] {
        for block in blocks(&read(file)) {
            for command in block.commands() {
                if let Err(fault) = check(&command) {
                    panic!("{file}:{}: `{command}`: {fault}", block.line);
                }
            }
        }
    }
}

#[test]
fn every_verb_is_in_the_readme() {
    let text = read("README.md");
    for verb in verbs(&help(&[])) {
        assert!(
            text.contains(&format!("tidegate {verb}")),
            "the README does not show `tidegate {verb}`"
        );
    }
}

#[test]
fn every_block_has_a_known_language() {
    for block in blocks(&read("README.md")) {
        let known = ["console", "json", "mermaid", "sh", "text", "toml"];
        assert!(
            known.contains(&block.language.as_str()),
            "README.md:{}: a block of {:?}",
            block.line,
            block.language
        );
    }
}

#[test]
fn unknown_commands_and_options_are_rejected() {
    for command in [
        "tidegate dance",
        "tidegate sim walk a.toml",
        "tidegate sim run --sideways a.toml",
        "make gold",
        "ncftp example.org",
    ] {
        assert!(check(command).is_err(), "{command}");
    }
    for command in ["tidegate sim run --seed 2 a.toml > b", "make test"] {
        assert_eq!(check(command), Ok(()), "{command}");
    }
}

/// A fenced block.
struct Block {
    language: String,
    /// Line number of its start.
    line: usize,
    body: String,
}

impl Block {
    /// Whether all commands of the block run the simulator.
    fn is_simulated(&self) -> bool {
        let commands = self.commands();
        !commands.is_empty() && commands.iter().all(|c| c.starts_with("tidegate sim "))
    }

    /// Asserts that this text equals `printed`, except for `...` and white space.
    fn assert_is_of(&self, printed: &str) {
        let printed = without_space(printed);
        let mut rest = printed.as_str();
        for shown in self.body.split("...").map(without_space) {
            let found = rest.find(&shown);
            let end = found.map(|at| at + shown.len());
            assert!(
                end.is_some(),
                "README.md:{}: the output lacks\n{shown}\nin\n{rest}",
                self.line
            );
            rest = &rest[end.unwrap_or(0)..];
        }
    }

    /// Runs the block. Returns its output, or the file after a `>`. `None` if the machine was too
    /// busy for a result.
    fn run(&self, folder: &Path) -> Option<String> {
        let path = std::env::var("PATH").unwrap();
        let programs = Path::new(TIDEGATE).parent().unwrap().display();
        // Background jobs are killed at the end of the block.
        let script = format!(
            "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{}",
            with_free_ports(&self.body)
        );
        let output = Command::new("timeout")
            .args([PATIENCE, "bash", "-euo", "pipefail", "-c", &script])
            .env("PATH", format!("{programs}:{path}"))
            .current_dir(folder)
            .output()
            .unwrap();
        if output.status.code() == Some(TRY_AGAIN) {
            return None;
        }
        assert!(
            output.status.success(),
            "README.md:{}: {} of\n{}\n{}{}",
            self.line,
            output.status,
            self.body,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Some(match self.body.trim_end().rsplit_once(" > ") {
            Some((_, file)) if self.is_simulated() => {
                fs::read_to_string(folder.join(file)).unwrap()
            }
            _ => String::from_utf8_lossy(&output.stdout).into_owned(),
        })
    }

    /// One command per line. A trailing backslash continues a line.
    fn commands(&self) -> Vec<String> {
        let whole = self.body.replace("\\\n", " ");
        let lines = whole.lines().map(str::trim);
        let commands: Vec<&str> = match self.language.as_str() {
            "console" => lines.filter_map(|line| line.strip_prefix("$ ")).collect(),
            "sh" => lines
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
                .collect(),
            _ => Vec::new(),
        };
        commands.into_iter().map(str::to_owned).collect()
    }
}

fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                open = Some(Block {
                    language: language.to_owned(),
                    line: number + 1,
                    body: String::new(),
                });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (None, Some(block)) => block.body.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "the last block is not closed");
    found
}

fn without_space(text: &str) -> String {
    text.split_whitespace().collect()
}

/// The script with free ports after loopback addresses.
fn with_free_ports(script: &str) -> String {
    let mut held = BTreeMap::new();
    let mut pieces = script.split(HOST);
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
        let (port, rest) = piece.split_at(digits);
        let [socket, _] = held.entry(port).or_insert_with(free_pair);
        let port = socket.local_addr().unwrap().port();
        text.extend([HOST, &port.to_string(), rest]);
    }
    text
}

/// An even port and the one above it.
fn free_pair() -> [UdpSocket; 2] {
    loop {
        let low = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = low.local_addr().unwrap().port();
        if port.is_multiple_of(2)
            && let Ok(high) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port + 1))
        {
            return [low, high];
        }
    }
}

/// Checks that the program is known and has the verbs and options of the command.
fn check(command: &str) -> Result<(), String> {
    let words = command.split_whitespace();
    let mut words = words.take_while(|word| !["|", ">", "<", "&", "&&", ";", "--"].contains(word));
    match words.next() {
        Some("tidegate") => has_verbs_and_options(words.collect()),
        Some("make") => {
            let makefile = read("Makefile");
            let is_target = |word: &str| makefile.contains(&format!("\n{word}:"));
            match words.find(|word| !word.contains('=') && !is_target(word)) {
                Some(word) => Err(format!("the Makefile has no target {word}")),
                None => Ok(()),
            }
        }
        Some(program) if OTHERS.contains(&program) => Ok(()),
        other => Err(format!(
            "{} is not among the programs {OTHERS:?}",
            other.unwrap_or("")
        )),
    }
}

fn has_verbs_and_options(words: Vec<&str>) -> Result<(), String> {
    let mut chain = Vec::new();
    let mut text = help(&chain);
    for word in words {
        let known = verbs(&text);
        if let Some(option) = word.strip_prefix("--") {
            let name = option.split('=').next().unwrap_or(option);
            let mut offered = text.split(|c: char| c.is_whitespace() || ",[]".contains(c));
            if !offered.any(|offer| offer.strip_prefix("--") == Some(name)) {
                return Err(format!(
                    "`tidegate {}` has no option --{name}",
                    chain.join(" ")
                ));
            }
        } else if known.contains(word) {
            chain.push(word);
            text = help(&chain);
        } else if !known.is_empty() {
            return Err(format!("`tidegate {}` has no verb {word}", chain.join(" ")));
        }
    }
    Ok(())
}

fn help(chain: &[&str]) -> String {
    let output = Command::new(TIDEGATE)
        .args(chain)
        .arg("--help")
        .output()
        .unwrap();
    assert!(output.status.success(), "tidegate {chain:?} --help");
    String::from_utf8(output.stdout).unwrap()
}

/// The verbs that a help text lists.
fn verbs(help: &str) -> BTreeSet<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    let names = listed.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("tidegate-readme-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover temporary folder does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

const HOST: &str = "127.0.0.1:";

/// Exit code of the lab if an expectation fails and the emulator was late.
const TRY_AGAIN: i32 = 75;

/// Time limit per block in seconds.
const PATIENCE: &str = "420";

/// Further programs that commands may use.
const OTHERS: [&str; 7] = ["cargo", "cd", "echo", "ffmpeg", "git", "sleep", "wait"];
