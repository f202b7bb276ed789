//! What `papers run` is asked for, before anything is played.

use std::time::Duration;

use crate::papers::{Bottleneck, Bursts, ENTRIES, Entry, ITCP_VIDEO, Tcp, means};
use anyhow::{Context as _, Result, bail, ensure};

use super::Injector;
use super::RunArgs;

/// What is to be played.
#[derive(Debug)]
pub(super) struct RunPlan {
    pub(super) entries: Vec<&'static Entry>,
    pub(super) bottleneck: Bottleneck,
    /// How the injector cuts the paths, if that was told.
    pub(super) bursts: Option<Bursts>,
    /// What of the options does not concern all of the entries.
    pub(super) notes: Vec<String>,
}

/// Reads it.
///
/// # Errors
/// Names the figure, the node or the option that makes no sense, and the mend.
pub(super) fn read(args: &RunArgs) -> Result<RunPlan> {
    ensure!(
        !args.names.is_empty(),
        "papers run: which? `tidegate papers list` has the names; \"itcp/\" stands for all that begin so, \
         and \"all\" for all"
    );
    let mut entries = chosen(&args.names)?;
    let mut notes = refuse_idle(args, &entries)?;
    are_known(&args.nodes, &entries)?;
    let has_node = |entry: &Entry| {
        let nodes = entry.node_names();
        let asked = |node: &str| args.nodes.iter().any(|asked| means(asked, node));
        args.nodes.is_empty() || !entry.has_nodes() || nodes.into_iter().any(asked)
    };
    for entry in entries.extract_if(.., |entry| !has_node(entry)) {
        let (name, asked) = (entry.name, args.nodes.join(" or "));
        ensure!(
            args.names.iter().all(|asked| asked != name),
            "{name} has no node {asked}: leave --node out, or name one of its own: {}",
            entry.node_names().join(", ")
        );
        notes.push(format!("{name} has no node {asked}: it is left out"));
    }
    Ok(RunPlan {
        bursts: args.bursts.read(longest(&entries), ITCP_VIDEO)?,
        entries,
        bottleneck: bottleneck(args)?,
        notes,
    })
}

/// The longest cut of the entries that have lengths of their own.
fn longest(entries: &[&Entry]) -> Option<Duration> {
    entries.iter().filter_map(|entry| entry.longest_cut()).max()
}

/// What limits the path.
fn bottleneck(args: &RunArgs) -> Result<Bottleneck> {
    let usual = Bottleneck::default();
    let rate = args.bottleneck.unwrap_or(usual.rate());
    let products = args.queue.unwrap_or(usual.products());
    Bottleneck::new(rate, products).context("--bottleneck and --queue")
}

/// Refuses a node that none of the entries has.
fn are_known(nodes: &[String], entries: &[&Entry]) -> Result<()> {
    let mut known: Vec<&str> = Vec::new();
    for node in entries.iter().flat_map(|entry| entry.node_names()) {
        if !known.contains(&node) {
            known.push(node);
        }
    }
    for asked in nodes {
        ensure!(
            known.iter().any(|node| means(asked, node)),
            "no node is called {asked}: write one of {}",
            known.join(", ")
        );
    }
    Ok(())
}

/// Refuses options that would change nothing: what is asked for by its name has to take them. Of
/// entries that were asked for with others a note says so.
fn refuse_idle(args: &RunArgs, entries: &[&Entry]) -> Result<Vec<String>> {
    type Takes<'a> = &'a dyn Fn(&Entry) -> bool;
    let with_nodes: Takes<'_> = &Entry::has_nodes;
    let with_cuts: Takes<'_> = &Entry::has_cuts;
    let with_gap: Takes<'_> = &Entry::takes_bursts;
    let with_lengths: Takes<'_> = &|entry| entry.takes_bursts() && entry.longest_cut().is_none();
    let with_backoff: Takes<'_> = &|entry| entry.has_nodes() && !is_over_bsd(args, entry);
    let cuts_otherwise = args.injector != Injector::default();
    let with_tcp: Takes<'_> = &|entry| !entry.tcps().is_empty();
    let options = [
        ("--tcp", !args.tcps.is_empty(), with_tcp),
        ("--seeds", args.seeds.is_some(), with_nodes),
        ("--runs", args.runs.is_some(), with_nodes),
        ("--node", !args.nodes.is_empty(), with_nodes),
        ("--encoder", args.encoder.is_some(), with_nodes),
        ("--bottleneck", args.bottleneck.is_some(), with_nodes),
        ("--queue", args.queue.is_some(), with_nodes),
        ("--rto-max", args.rto_max.is_some(), with_nodes),
        ("--rto-backoff", args.rto_backoff.is_some(), with_backoff),
        ("--injector", cuts_otherwise, with_cuts),
        ("--cut", !args.bursts.cuts.is_empty(), with_lengths),
        ("--gap", args.bursts.gap.is_some(), with_gap),
    ];
    let mut notes = Vec::new();
    for entry in entries {
        let idle = options.iter();
        let idle = idle.filter(|(_, is_given, takes)| *is_given && !takes(entry));
        let idle: Vec<_> = idle.collect();
        if idle.is_empty() {
            continue;
        }
        let names: Vec<&str> = idle.iter().map(|(name, ..)| *name).collect();
        let (name, names) = (entry.name, names.join(" or "));
        if args.names.iter().any(|asked| asked == name) {
            ensure!(
                idle.iter().any(|(option, ..)| *option != "--rto-backoff") || !entry.has_nodes(),
                "--rto-backoff changes nothing over bsd, whose timeouts always double, and {name} is \
                 played over no other TCP: leave it out, or add a current one, such as --tcp cubic"
            );
            let takes_all = |entry: &&Entry| idle.iter().all(|(.., takes)| takes(entry));
            let others = ENTRIES.iter().filter(takes_all);
            let others: Vec<&str> = others.map(|entry| entry.name).collect();
            bail!(
                "{name} takes no {names}: leave that out, or name what takes it: {}",
                others.join(", ")
            );
        }
        notes.push(format!("{name} takes no {names}: it is played without"));
    }
    Ok(notes)
}

/// Whether all that it plays over is the TCP of the papers' time.
fn is_over_bsd(args: &RunArgs, entry: &Entry) -> bool {
    let usual = if args.lab {
        &[Tcp::Cubic]
    } else {
        entry.tcps()
    };
    let tcps = if args.tcps.is_empty() {
        usual
    } else {
        &args.tcps
    };
    tcps.iter().all(|tcp| *tcp == Tcp::Bsd)
}

/// The entries that are called so, or whose names begin so.
fn chosen(names: &[String]) -> Result<Vec<&'static Entry>> {
    let wanted = |entry: &Entry, name: &str| {
        name == "all" || entry.name == name || (name.ends_with('/') && entry.name.starts_with(name))
    };
    for name in names {
        if !ENTRIES.iter().any(|entry| wanted(entry, name)) {
            let known: Vec<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
            bail!(
                "there is no figure or table \"{name}\"; write one of {}, itcp/, abone/ or all",
                known.join(", ")
            );
        }
    }
    let any = |entry: &&Entry| names.iter().any(|name| wanted(entry, name));
    Ok(ENTRIES.iter().filter(any).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use tidegate_core::units::Rate;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    /// What is written behind `papers run`.
    pub(in super::super) fn args(line: &str) -> Result<RunArgs, String> {
        let words = ["run"].into_iter().chain(line.split_whitespace());
        let line = <Line as clap::Parser>::try_parse_from(words);
        line.map(|line| line.run).map_err(|e| e.to_string())
    }

    #[test]
    fn names_select_and_unknown_ones_are_refused() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            chosen(&names).map(|entries| entries.iter().map(|e| e.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["all"]).unwrap().len(), ENTRIES.len());
        assert_eq!(names(&["itcp/fig9"]).unwrap(), ["itcp/fig9"]);
        let abone = names(&["abone/"]).unwrap();
        assert!(abone.len() == 7 && abone.iter().all(|n| n.starts_with("abone/")));
        let error = names(&["itcp/fig99"]).unwrap_err().to_string();
        assert!(error.contains("fig99") && error.contains("itcp/table4"));
        // Only a beginning that ends in a stroke stands for several.
        assert!(names(&["itcp"]).is_err());
    }

    #[test]
    fn options_that_a_figure_does_not_take_are_refused() {
        let refused = |line: &str| {
            let asked = read(&args(line).unwrap());
            asked
                .map(|asked| asked.notes)
                .map_err(|e| tidegate_console::describe(&e))
        };
        for option in [
            "--node princeton",
            "--seeds 3",
            "--runs 3",
            "--encoder x264",
            "--rto-max 1s",
            "--bottleneck 3Mb/s",
            "--queue 2",
        ] {
            let name = option.split(' ').next().unwrap();
            let error = refused(&format!("itcp/fig3 {option}")).unwrap_err();
            let parts = ["itcp/fig3 takes no", name, "itcp/cuts", "abone/fig10"];
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
            assert!(!error.contains(", itcp/fig3"), "{error}");
            // Of a group of entries, those play with the option that take it.
            let notes = refused(&format!("itcp/ {option}")).unwrap();
            assert_eq!(notes.len(), 3);
            assert!(notes.iter().all(|note| note.contains(name)), "{notes:?}");
            assert_eq!(refused(&format!("itcp/fig9 {option}")), Ok(Vec::new()));
        }
        // Over the TCP of the papers' time alone, which is what this one plays over unless told.
        for over_bsd in ["itcp/fig9", "itcp/table4 --tcp bsd", "abone/fig8"] {
            let error = refused(&format!("{over_bsd} --rto-backoff linear")).unwrap_err();
            assert!(error.contains("as --tcp cubic"), "{error}");
        }
        for others in ["itcp/table4", "itcp/fig9 --lab", "itcp/fig9 --tcp bbr"] {
            let line = format!("{others} --rto-backoff linear");
            assert_eq!(refused(&line), Ok(Vec::new()));
        }
        assert_eq!(refused("itcp/fig3 --tcp cubic"), Ok(Vec::new()));
        let error = refused("itcp/fig5 --tcp cubic").unwrap_err();
        assert!(error.contains("itcp/fig5 takes no --tcp"), "{error}");
        let both = "itcp/fig9 --tcp bsd --tcp cubic --rto-backoff linear";
        assert_eq!(refused(both), Ok(Vec::new()));
        let route = "--lab --injector route";
        assert_eq!(refused(&format!("itcp/fig3 {route}")), Ok(Vec::new()));
        let error = refused(&format!("abone/fig6 {route}")).unwrap_err();
        assert!(error.contains("itcp/cuts"), "{error}");
        assert!(!error.contains("abone/table5"), "{error}");
        assert_eq!(refused(&format!("all {route}")).unwrap().len(), 8);
        // One that varies the lengths itself takes the gap only.
        let error = refused("itcp/cuts --cut 2s").unwrap_err();
        assert!(error.contains("itcp/cuts takes no --cut"), "{error}");
        assert_eq!(refused("itcp/cuts --gap 5s"), Ok(Vec::new()));
        // The last of its cuts of 4.1 s would begin behind the video; of 3 s it would not.
        assert_eq!(refused("itcp/fig9 --gap 22.9s"), Ok(Vec::new()));
        let error = refused("itcp/cuts --gap 22.9s").unwrap_err();
        assert!(error.contains("shorter --gap"), "{error}");
        assert_eq!(refused("itcp/table4 --cut 2s --gap 5s"), Ok(Vec::new()));
        for entry in ["itcp/fig3", "abone/fig6"] {
            assert!(refused(&format!("{entry} --gap 5s")).is_err());
        }
    }

    #[test]
    fn every_node_is_one_of_an_entry_that_is_asked_for() {
        let asked =
            |line: &str| read(&args(line).unwrap()).map_err(|e| tidegate_console::describe(&e));
        let names = |asked: &RunPlan| asked.entries.iter().map(|e| e.name).collect::<Vec<_>>();
        let both = asked("itcp/fig9 abone/fig8 --node ISI").unwrap();
        assert_eq!(names(&both), ["itcp/fig9", "abone/fig8"]);
        let error = asked("itcp/fig9 abone/fig8 --node willab").unwrap_err();
        assert!(
            error.contains("abone/fig8 has no node willab") && error.contains("columbia"),
            "{error}"
        );
        let some = asked("itcp/fig9 abone/ --node willab").unwrap();
        assert_eq!(names(&some), ["itcp/fig9"]);
        assert_eq!(some.notes.len(), 7);
        for line in ["itcp/fig9 --node willab --node nosuch", "all --node nosuch"] {
            let error = asked(line).unwrap_err();
            assert!(error.contains("no node is called nosuch"), "{error}");
        }
    }

    #[test]
    fn a_bottleneck_is_within_reason() {
        let read = |line: &str| {
            let args = args(&format!("abone/ {line}"))?;
            bottleneck(&args).map_err(|e| tidegate_console::describe(&e))
        };
        assert_eq!(read("").unwrap(), Bottleneck::default());
        let both = read("--bottleneck 4.5Mb/s --queue 0.5").unwrap();
        assert_eq!((both.rate(), both.products()), (Rate::kbps(4_500), 0.5));
        for (line, says) in [
            (
                "--bottleneck 50kb/s",
                "a bottleneck of 50 kb/s: give 100 kb/s",
            ),
            (
                "--queue 0",
                "a queue of 0 bandwidth-delay products: give 0.01",
            ),
            ("--queue inf", "a queue of inf"),
            ("--bottleneck 4", "has no unit"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
