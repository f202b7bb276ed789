//! Validation of the options of `papers run`.

use std::time::Duration;

use crate::papers::{Bottleneck, ENTRIES, Entry, ITCP_VIDEO, OutageSchedule, Tcp, has_prefix};
use anyhow::{Context as _, Result, bail, ensure};

use super::Injector;
use super::RunArgs;

/// Validated options.
#[derive(Debug)]
pub(super) struct RunPlan {
    pub(super) entries: Vec<&'static Entry>,
    pub(super) bottleneck: Bottleneck,
    /// Outages of the injector, if given.
    pub(super) bursts: Option<OutageSchedule>,
    /// Notes on options that do not apply to some entries.
    pub(super) notes: Vec<String>,
}

/// Validates the options.
///
/// # Errors
/// Names the figure, the node or the option that is invalid, and the fix.
pub(super) fn read(args: &RunArgs) -> Result<RunPlan> {
    ensure!(
        !args.names.is_empty(),
        "papers run requires a name: see `tidegate papers list`, or use a prefix such as \"itcp/\", \
         or \"all\""
    );
    let mut entries = chosen(&args.names)?;
    let mut notes = reject_unused(args, &entries)?;
    are_known(&args.nodes, &entries)?;
    let has_node = |entry: &Entry| {
        let nodes = entry.node_names();
        let requested = |node: &str| args.nodes.iter().any(|prefix| has_prefix(prefix, node));
        args.nodes.is_empty() || !entry.has_nodes() || nodes.into_iter().any(requested)
    };
    for entry in entries.extract_if(.., |entry| !has_node(entry)) {
        let (name, nodes) = (entry.name, args.nodes.join(" or "));
        ensure!(
            args.names.iter().all(|requested| requested != name),
            "{name} has no node {nodes}: remove --node, or use one of {}",
            entry.node_names().join(", ")
        );
        notes.push(format!("{name} has no node {nodes}: {name} is skipped"));
    }
    Ok(RunPlan {
        bursts: args.bursts.read(longest(&entries), ITCP_VIDEO)?,
        entries,
        bottleneck: bottleneck(args)?,
        notes,
    })
}

/// The longest outage of the entries that vary the lengths themselves.
fn longest(entries: &[&Entry]) -> Option<Duration> {
    entries.iter().filter_map(|entry| entry.longest_cut()).max()
}

/// Bottleneck of the path.
fn bottleneck(args: &RunArgs) -> Result<Bottleneck> {
    let usual = Bottleneck::default();
    let rate = args.bottleneck.unwrap_or(usual.rate());
    let products = args.queue.unwrap_or(usual.queue_bdp());
    Bottleneck::new(rate, products).context("--bottleneck and --queue")
}

/// Rejects a node that none of the entries has.
fn are_known(nodes: &[String], entries: &[&Entry]) -> Result<()> {
    let mut known: Vec<&str> = Vec::new();
    for node in entries.iter().flat_map(|entry| entry.node_names()) {
        if !known.contains(&node) {
            known.push(node);
        }
    }
    for prefix in nodes {
        ensure!(
            known.iter().any(|node| has_prefix(prefix, node)),
            "unknown node {prefix}: use one of {}",
            known.join(", ")
        );
    }
    Ok(())
}

/// Rejects options without effect. An entry requested by its name must use all options. Entries
/// selected by a prefix get a note instead.
fn reject_unused(args: &RunArgs, entries: &[&Entry]) -> Result<Vec<String>> {
    type Takes<'a> = &'a dyn Fn(&Entry) -> bool;
    let with_nodes: Takes<'_> = &Entry::has_nodes;
    let with_seeds: Takes<'_> = &Entry::has_seeds;
    let with_lab: Takes<'_> = &Entry::has_lab;
    let with_cuts: Takes<'_> = &Entry::has_outages;
    let with_gap: Takes<'_> = &Entry::accepts_bursts;
    let with_lengths: Takes<'_> = &|entry| entry.accepts_bursts() && entry.longest_cut().is_none();
    let with_backoff: Takes<'_> = &|entry| entry.has_nodes() && !is_over_bsd(args, entry);
    let is_other_injector = args.injector != Injector::default();
    let with_tcp: Takes<'_> = &|entry| !entry.tcps().is_empty();
    let options = [
        ("--tcp", !args.tcps.is_empty(), with_tcp),
        ("--lab", args.lab, with_lab),
        ("--seeds", args.seeds.is_some(), with_seeds),
        ("--runs", args.runs.is_some(), with_seeds),
        ("--node", !args.nodes.is_empty(), with_nodes),
        ("--encoder", args.encoder.is_some(), with_nodes),
        ("--bottleneck", args.bottleneck.is_some(), with_nodes),
        ("--queue", args.queue.is_some(), with_nodes),
        ("--rto-max", args.rto_max.is_some(), with_nodes),
        ("--rto-backoff", args.rto_backoff.is_some(), with_backoff),
        ("--injector", is_other_injector, with_cuts),
        ("--cut", !args.bursts.cuts.is_empty(), with_lengths),
        ("--gap", args.bursts.gap.is_some(), with_gap),
    ];
    let mut notes = Vec::new();
    for entry in entries {
        let unused = options.iter();
        let unused = unused.filter(|(_, is_given, takes)| *is_given && !takes(entry));
        let unused: Vec<_> = unused.collect();
        if unused.is_empty() {
            continue;
        }
        let names: Vec<&str> = unused.iter().map(|(name, ..)| *name).collect();
        let (name, names) = (entry.name, names.join(" or "));
        if args.names.iter().any(|requested| requested == name) {
            ensure!(
                unused.iter().any(|(option, ..)| *option != "--rto-backoff") || !entry.has_nodes(),
                "--rto-backoff changes nothing over bsd, whose timeouts always double, and {name} is \
                 played over no other TCP: leave it out, or add a current one, such as --tcp cubic"
            );
            let takes_all = |entry: &&Entry| unused.iter().all(|(.., takes)| takes(entry));
            let others = ENTRIES.iter().filter(takes_all);
            let others: Vec<&str> = others.map(|entry| entry.name).collect();
            bail!(
                "{name} does not support {names}: remove it, or use an entry that supports it: {}",
                others.join(", ")
            );
        }
        notes.push(format!(
            "{name} does not support {names}: ignored for {name}"
        ));
    }
    Ok(notes)
}

/// Whether [`Tcp::Bsd`] is the only TCP of an entry.
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

/// Entries with these names or prefixes.
fn chosen(names: &[String]) -> Result<Vec<&'static Entry>> {
    let wanted = |entry: &Entry, name: &str| {
        name == "all" || entry.name == name || (name.ends_with('/') && entry.name.starts_with(name))
    };
    for name in names {
        if !ENTRIES.iter().any(|entry| wanted(entry, name)) {
            let known: Vec<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
            bail!(
                "unknown figure or table \"{name}\"; use one of {}, itcp/, abone/, rcs/ or all",
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

    /// Parses the arguments of `papers run`.
    pub(in super::super) fn args(line: &str) -> Result<RunArgs, String> {
        let words = ["run"].into_iter().chain(line.split_whitespace());
        let line = <Line as clap::Parser>::try_parse_from(words);
        line.map(|line| line.run).map_err(|e| e.to_string())
    }

    #[test]
    fn unknown_entries_are_rejected() {
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
        // A prefix must end in a slash.
        assert!(names(&["itcp"]).is_err());
    }

    #[test]
    fn unsupported_options_are_rejected() {
        let notes_of = |line: &str| {
            let plan = read(&args(line).unwrap());
            plan.map(|plan| plan.notes)
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
            let error = notes_of(&format!("itcp/fig3 {option}")).unwrap_err();
            let parts = [
                "itcp/fig3 does not support",
                name,
                "itcp/cuts",
                "abone/fig10",
            ];
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
            assert!(!error.contains(", itcp/fig3"), "{error}");
            // Of a group of entries, those play with the option that take it.
            let notes = notes_of(&format!("itcp/ {option}")).unwrap();
            assert_eq!(notes.len(), 3);
            assert!(notes.iter().all(|note| note.contains(name)), "{notes:?}");
            assert_eq!(notes_of(&format!("itcp/fig9 {option}")), Ok(Vec::new()));
        }
        // Entries that use bsd only, by default or by option.
        for over_bsd in ["itcp/fig9", "itcp/table4 --tcp bsd", "abone/fig8"] {
            let error = notes_of(&format!("{over_bsd} --rto-backoff linear")).unwrap_err();
            assert!(error.contains("such as --tcp cubic"), "{error}");
        }
        for others in ["itcp/table4", "itcp/fig9 --tcp bbr"] {
            let line = format!("{others} --rto-backoff linear");
            assert_eq!(notes_of(&line), Ok(Vec::new()));
        }
        assert_eq!(notes_of("itcp/fig3 --tcp cubic"), Ok(Vec::new()));
        let error = notes_of("itcp/fig5 --tcp cubic").unwrap_err();
        assert!(
            error.contains("itcp/fig5 does not support --tcp"),
            "{error}"
        );
        let both = "itcp/fig9 --tcp bsd --tcp cubic --rto-backoff linear";
        assert_eq!(notes_of(both), Ok(Vec::new()));
        let route = "--lab --injector route";
        assert_eq!(notes_of(&format!("itcp/fig3 {route}")), Ok(Vec::new()));
        let error = notes_of(&format!("abone/fig6 {route}")).unwrap_err();
        assert!(error.contains("itcp/cuts"), "{error}");
        assert!(!error.contains("abone/table5"), "{error}");
        assert_eq!(notes_of(&format!("all {route}")).unwrap().len(), 43);
        let error = notes_of("rcs/fig17b --lab").unwrap_err();
        assert!(error.contains("does not support --lab"), "{error}");
        assert_eq!(notes_of("rcs/fig12 --lab --seeds 3"), Ok(Vec::new()));
        // One that varies the lengths itself takes the gap only.
        let error = notes_of("itcp/cuts --cut 2s").unwrap_err();
        assert!(
            error.contains("itcp/cuts does not support --cut"),
            "{error}"
        );
        assert_eq!(notes_of("itcp/cuts --gap 5s"), Ok(Vec::new()));
        // The last of its cuts of 4.1 s would begin behind the video; of 3 s it would not.
        assert_eq!(notes_of("itcp/fig9 --gap 22.9s"), Ok(Vec::new()));
        let error = notes_of("itcp/cuts --gap 22.9s").unwrap_err();
        assert!(error.contains("shorter --gap"), "{error}");
        assert_eq!(notes_of("itcp/table4 --cut 2s --gap 5s"), Ok(Vec::new()));
        for entry in ["itcp/fig3", "abone/fig6"] {
            assert!(notes_of(&format!("{entry} --gap 5s")).is_err());
        }
    }

    #[test]
    fn nodes_must_belong_to_a_requested_entry() {
        let plan =
            |line: &str| read(&args(line).unwrap()).map_err(|e| tidegate_console::describe(&e));
        let names = |plan: &RunPlan| plan.entries.iter().map(|e| e.name).collect::<Vec<_>>();
        let both = plan("itcp/fig9 abone/fig8 --node ISI").unwrap();
        assert_eq!(names(&both), ["itcp/fig9", "abone/fig8"]);
        let error = plan("itcp/fig9 abone/fig8 --node willab").unwrap_err();
        assert!(
            error.contains("abone/fig8 has no node willab") && error.contains("columbia"),
            "{error}"
        );
        let some = plan("itcp/fig9 abone/ --node willab").unwrap();
        assert_eq!(names(&some), ["itcp/fig9"]);
        assert_eq!(some.notes.len(), 7);
        for line in ["itcp/fig9 --node willab --node nosuch", "all --node nosuch"] {
            let error = plan(line).unwrap_err();
            assert!(error.contains("unknown node nosuch"), "{error}");
        }
    }

    #[test]
    fn bottleneck_out_of_range_is_rejected() {
        let read = |line: &str| {
            let args = args(&format!("abone/ {line}"))?;
            bottleneck(&args).map_err(|e| tidegate_console::describe(&e))
        };
        assert_eq!(read("").unwrap(), Bottleneck::default());
        let both = read("--bottleneck 4.5Mb/s --queue 0.5").unwrap();
        assert_eq!((both.rate(), both.queue_bdp()), (Rate::kbps(4_500), 0.5));
        for (line, says) in [
            (
                "--bottleneck 50kb/s",
                "bottleneck of 50 kb/s out of range: use 100 kb/s",
            ),
            (
                "--queue 0",
                "queue of 0 bandwidth-delay products out of range: use 0.01",
            ),
            ("--queue inf", "queue of inf"),
            ("--bottleneck 4", "has no unit"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
