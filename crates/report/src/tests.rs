//! Tests of whole reports.

use core::time::Duration;
use std::env;

use tidegate_record::{
    EndpointTiming, FlowInfo, Manifest, PictureKind, RunReader, RunWriter, StoredPicture, Timing,
    World,
};

use super::*;

/// Folder of one test: removed at its end, or kept below `TIDEGATE_REPORT_DIR` for inspection.
struct Out {
    path: PathBuf,
    keep: bool,
}

impl Out {
    fn new(test: &str) -> Self {
        match env::var_os("TIDEGATE_REPORT_DIR") {
            Some(dir) => Self {
                path: Path::new(&dir).join(test),
                keep: true,
            },
            None => Self {
                path: env::temp_dir()
                    .join(format!("tidegate-report-{test}-{}", std::process::id())),
                keep: false,
            },
        }
    }

    fn page(&self, runs: &[Run]) -> String {
        let written = write(runs, &self.path).expect("a folder of our own");
        fs::read_to_string(written.page).expect("just written")
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[test]
fn full_run_gives_a_page_and_all_figures() {
    let out = Out::new("full");
    let run = testing::run();
    let written = write(&[run], &out.path).expect("a folder of our own");
    assert_eq!(written.figures.len(), 2 * FIGURES.len());
    for path in &written.figures {
        assert!(
            fs::metadata(path).expect("just written").len() > 2_000,
            "{}",
            path.display()
        );
    }
    let page = fs::read_to_string(written.page).expect("just written");
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    assert!(page.contains("a train &lt;through&gt; a tunnel"));
    assert!(page.contains("# &lt;&amp;&gt;"));
    assert!(page.contains("✓ holds") && page.contains("✗ fails"));
    assert!(page.contains("tidegate delivered"));
    for figure in &FIGURES {
        assert!(page.contains(figure.title) && page.contains(figure.caption));
    }
}

/// Parts of a page in the order in which a reader needs them.
#[test]
fn result_and_charts_come_before_tables() {
    let page = Out::new("order").page(&[testing::run()]);
    let parts = [
        "<p class=\"result\">tidegate delivered",
        "<a href=\"#run-1-charts\">",
        "id=\"run-1-charts\"",
        "Rates over time",
        "States of the controller",
        "id=\"run-1-tables\"",
        "Displayed frames had",
        "<th>frames on time</th>",
        "id=\"run-1-expectations\"",
    ];
    let places = parts.map(|part| page.find(part).expect(part));
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn warnings_are_shown_only_if_something_is_wrong() {
    let timing = |kept_up| Timing {
        run: "tidegate".to_owned(),
        packets: 9_000,
        p50: Duration::from_micros(60),
        p99: Duration::from_micros(200),
        worst: Duration::from_millis(4),
        read_p99: Duration::from_micros(100),
        lost_unread: 0,
        real_time: true,
        kept_up,
        endpoints: None,
    };
    let mut run = testing::run();
    let summary = run.summary.as_mut().expect("the run is whole");
    summary.expect.retain(|verdict| verdict.holds);
    run.manifest.timing.push(timing(true));
    let out = Out::new("warnings");
    let page = out.page(&[run.clone()]);
    assert!(!page.contains("<aside>"), "nothing is wrong");
    // Timing of the emulator is a condition, not a warning.
    let conditions = page.find(">Conditions<").expect("timing");
    assert!(page[conditions..].contains("9000 packets, written p50 0.060 ms"));

    let mut late = run.clone();
    late.manifest.timing[0] = timing(false);
    let mut starved = run.clone();
    starved.manifest.timing[0].endpoints = Some(EndpointTiming {
        slow_frames: 0.123,
        waited: 0.01,
        kept_up: false,
    });
    let mut failed = testing::run();
    failed.summary.as_mut().expect("whole").expect.truncate(5);
    let mut noted = run.clone();
    noted.manifest.notes.push("interrupted".to_owned());
    for (run, warning) in [
        (late, "COULD NOT KEEP UP"),
        (starved, "12.3 % of the frames took longer to encode"),
        (failed, "<a href=\"#run-1-expectations\">"),
        (noted, "<li>interrupted</li>"),
    ] {
        let page = out.page(&[run]);
        let at = page.find("<aside>").expect(warning);
        let end = page.find("</aside>").expect(warning);
        assert!(page[at..end].contains(warning), "{warning}");
    }
}

/// Colours of the legend are those of the lines that it describes.
#[test]
fn legends_have_the_colours_of_their_lines() {
    let run = testing::run();
    let view = View::new(&run);
    let colours = ["f0", "f1", "f2"];
    for (name, text, classes) in [
        ("rates", ">arrived<", colours.map(|c| format!("{c} line"))),
        ("delay", ">frame<", colours.map(|c| format!("{c} dots"))),
        (
            "queues",
            ">shortest to longest<",
            colours.map(|c| format!("{c} band")),
        ),
    ] {
        let figure = FIGURES.iter().find(|figure| figure.name == name);
        let chart = figure.and_then(|figure| figure.draw(&view, "r", Form::Wide));
        let (svg, height) = chart.expect(name).finish();
        let drawn = svg.into_element(height, "", "");
        let entry = drawn.find(text).expect(text);
        // The marks of an entry are before its text and after that of the last entry.
        let before = &drawn[..entry];
        let marks = before.rfind("</text>").map_or(before, |at| &before[at..]);
        for class in &classes {
            assert!(marks.contains(class), "{name}: {class} in {marks}");
            assert!(drawn[entry..].contains(class), "{name}: no line is {class}");
        }
        assert!(!marks.contains("note"), "{name}: {marks}");
    }
}

#[test]
fn page_loads_no_resources() {
    let page = Out::new("alone").page(&[pictured()]);
    let page = page.replace(" src=\"data:image/jpeg;base64,", "");
    for way_out in [
        "<script src",
        "<link",
        " src=",
        "http:",
        "https:",
        "@import",
        "url(h",
        "import(",
        "fetch(",
        "XMLHttpRequest",
        "WebSocket",
    ] {
        assert!(!page.contains(way_out), "{way_out}");
    }
}

/// A run with pictures of its flows at the three moments.
fn pictured() -> Run {
    let mut run = testing::run();
    for (number, flow) in run.flows.iter_mut().enumerate() {
        let moments = run.manifest.moments(&flow.info);
        assert_eq!(moments.len(), 3);
        for (_, at) in moments {
            let due = flow.sent.iter().find(|row| row.captured >= at);
            let frame = due.expect("the flow sends until the end").frame;
            for kind in [PictureKind::Camera, PictureKind::Shown] {
                let jpeg = format!("{kind:?} {number}").into_bytes();
                flow.pictures.push(StoredPicture { frame, kind, jpeg });
            }
        }
    }
    run
}

#[test]
fn pictures_are_side_by_side_before_the_charts() {
    let mut run = pictured();
    // In the fall: one flow on time, one late, one without a picture so far.
    let due = run.flows[0].pictures[2].frame;
    for (number, shown) in [Some(due), Some(due - 45), None].into_iter().enumerate() {
        let flow = &mut run.flows[number];
        let mut rows = flow.shown.iter_mut();
        let row = rows.find(|row| row.frame == due).expect("a row");
        (row.shown_frame, row.on_time) = (shown, shown == Some(due));
        if shown.is_none() {
            row.quality = None;
            let due = |picture: &StoredPicture| picture.frame == due;
            flow.pictures.retain(|picture| !due(picture));
        }
    }
    let page = Out::new("pictures").page(&[run]);
    let section = page.find("id=\"run-1-pictures\"").expect("pictures");
    let charts = page.find("id=\"run-1-charts\"").expect("charts");
    assert!(section < charts && page.contains("<a href=\"#run-1-pictures\">"));
    let rows: Vec<&str> = page[section..charts].split("<h4>").skip(1).collect();
    // The capacity is lowest from 18 s to 38 s.
    let titles = [
        "Before the capacity falls, at 17 s",
        "At the lowest capacity, at 28 s",
        "After the capacity has returned, at 39 s",
    ];
    for (row, title) in rows.iter().zip(titles) {
        assert!(row.starts_with(title), "{title}: {row}");
        assert_eq!(row.matches("<figure>").count(), 4, "camera and three flows");
    }
    assert_eq!(rows.len(), titles.len());
    let fallen = rows[1];
    // "Shown 0" and "Shown 1", in base64.
    for image in ["U2hvd24gMA==", "U2hvd24gMQ=="] {
        assert_eq!(fallen.matches(image).count(), 1, "{image}");
    }
    assert!(fallen.contains("<b>tidegate</b> <span>on time</span>, "));
    let late = "<b>tfrc</b> <span class=\"late\">late: picture of 1.5 s earlier</span>";
    assert!(fallen.contains(late), "{fallen}");
    assert!(fallen.contains("<b>fixed</b> <span class=\"late\">no picture yet</span>"));
    assert_eq!(fallen.matches("class=\"blank\"").count(), 1);
    let without = Out::new("no-pictures").page(&[testing::run()]);
    assert!(!without.contains("run-1-pictures") && !without.contains("<img"));
}

/// Values of the charts as data for the script, which shows them under the pointer.
fn readouts(page: &str) -> Vec<serde_json::Value> {
    let start = "<script type=\"application/json\" class=\"readout-data\">";
    let parts = page.split(start).skip(1);
    let texts = parts.map(|rest| rest.split("</script>").next().expect("an end"));
    texts
        .map(|text| serde_json::from_str(text).expect("JSON"))
        .collect()
}

#[test]
fn values_under_the_pointer_are_those_of_the_run() {
    let run = testing::run();
    let page = Out::new("pointer").page(std::slice::from_ref(&run));
    assert_eq!(page.matches("document.querySelectorAll(").count(), 1);
    let readouts = readouts(&page);
    assert_eq!(readouts.len(), FIGURES.len());
    for readout in &readouts {
        // Each panel has an area for the pointer in both forms.
        assert_eq!(readout["span"], serde_json::json!([0.0, 60.0]));
    }
    let panels = readouts
        .iter()
        .map(|r| r["panels"].as_array().expect("panels").len());
    assert_eq!(
        page.matches("class=\"hit\"").count(),
        2 * panels.sum::<usize>()
    );

    let series = |figure: usize, panel: usize, name: &str| {
        let panel = &readouts[figure]["panels"][panel];
        let mut all = panel["series"].as_array().expect("series").iter();
        let series = all.find(|series| series["name"] == name).expect(name);
        (panel["unit"].clone(), series.clone())
    };
    let (unit, capacity) = series(0, 0, "capacity");
    assert_eq!(unit, "Mb/s");
    // The outage begins at 28 s.
    for corner in [[18.0, 2.0], [18.0, 0.9], [28.0, 0.9], [28.0, 0.0]] {
        let line = capacity["lines"][0].as_array().expect("a line");
        assert!(
            line.contains(&serde_json::json!(corner)),
            "{corner:?} in {line:?}"
        );
    }
    let (unit, frames) = series(1, 2, "frame");
    assert_eq!((unit, &frames["colour"]), ("ms".into(), &"f2".into()));
    let dots = frames["dots"]["points"].as_array().expect("dots");
    let stories = tidegate_record::metrics::frame_outcomes(&run.flows[2]);
    assert_eq!(dots.len(), stories.len());
    for (dot, story) in dots.iter().zip(&stories) {
        let delay = story.delay.map(|nanos| nanos as f64 / 1e6);
        let shown = dot[1].as_f64();
        assert_eq!(shown.is_some(), delay.is_some());
        assert!((shown.unwrap_or(0.0) - delay.unwrap_or(0.0)).abs() <= 0.5);
    }
}

#[test]
fn values_are_in_a_table_without_the_script() {
    let page = Out::new("values").page(&[testing::run()]);
    let tables = page.split("<summary>Values as a table</summary>").skip(1);
    let tables: Vec<&str> = tables.collect();
    assert_eq!(tables.len(), FIGURES.len());
    assert!(tables[0].contains("<th>tidegate<small>capacity, Mb/s</small></th>"));
    let row = tables[0].split("<tr><th>5</th>").nth(1).expect("5 s");
    let row = row.split("</tr>").next().expect("an end");
    assert_eq!(
        row.matches("<td>2.00</td>").count(),
        3,
        "three links of 2 Mb/s: {row}"
    );
}

#[test]
fn the_page_is_well_formed() {
    let page = Out::new("formed").page(&[testing::run(), testing::run()]);
    let mut ids: Vec<&str> = page
        .split(" id=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "an id is used twice");
    for tag in [
        "svg", "figure", "table", "section", "div", "g", "clipPath", "ul", "details",
    ] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        let closed = page.matches(&format!("</{tag}>")).count();
        assert_eq!(opened, closed, "{tag}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf"));
}

#[test]
fn several_runs_have_an_overview() {
    let out = Out::new("several");
    let page = out.page(&[testing::run(), testing::run()]);
    assert!(page.contains("<h1>2 runs</h1>") && page.contains("href=\"#run-2\""));
    assert!(out.path.join("figures/2-rates.png").exists());
}

#[test]
fn a_run_on_the_disk_gives_the_same_report() {
    let out = Out::new("disk");
    let run = testing::run();
    let dir = out.path.join("run");
    let mut writer = RunWriter::create(&dir).expect("a folder of our own");
    writer.manifest(&run.manifest).expect("disk");
    for row in &run.events {
        let event = writer.event(row.at, &row.flow, row.side, &row.event);
        event.expect("disk");
    }
    for flow in &run.flows {
        let name = &flow.info.name;
        let sent = flow
            .sent
            .iter()
            .try_for_each(|row| writer.sent_frame(name, row));
        sent.expect("disk");
        let received = flow
            .received
            .iter()
            .try_for_each(|row| writer.received_frame(name, row));
        received.expect("disk");
        let shown = flow
            .shown
            .iter()
            .try_for_each(|row| writer.shown_frame(name, row));
        shown.expect("disk");
        let packets = flow
            .packets
            .iter()
            .try_for_each(|row| writer.packet(name, row));
        packets.expect("disk");
        let savable = flow
            .savable
            .iter()
            .try_for_each(|row| writer.savable(name, row));
        savable.expect("disk");
    }
    let links = run
        .links
        .iter()
        .try_for_each(|row| writer.link_sample(&row));
    links.expect("disk");
    let summary = run.summary.as_ref().expect("the run is whole");
    writer.summary(summary).expect("disk");
    writer.flush().expect("disk");

    let read = RunReader::load(&dir).expect("just written");
    assert_eq!(read.notes, Vec::<String>::new());
    linked_files_exist(&out, &read);
    let expect: Vec<_> = summary
        .expect
        .iter()
        .map(|v| v.text.parse().expect("as before"))
        .collect();
    // Texts have three decimals of a dB, which can change the last digit of a mean over many.
    let again = summarise(&read, &expect);
    for (one, other) in summary.flows.iter().zip(&again.flows) {
        assert_eq!(
            (&one.frames, &one.delay_ms, &one.queue_ms),
            (&other.frames, &other.delay_ms, &other.queue_ms)
        );
        assert_eq!(
            (one.rate_bps, one.loss, one.freezes),
            (other.rate_bps, other.loss, other.freezes)
        );
    }
    assert_eq!(summary.links, again.links);
    assert_eq!(read.summary, run.summary);
}

/// The page links to every table of the run, also from another folder.
fn linked_files_exist(out: &Out, run: &Run) {
    for folder in ["run", "elsewhere/a page"] {
        let folder = out.path.join(folder);
        let written = write(std::slice::from_ref(run), &folder).expect("a folder of our own");
        let page = fs::read_to_string(written.page).expect("just written");
        let links = page.split("href=\"").skip(1);
        let links = links.filter_map(|rest| rest.split('"').next());
        let (anchors, files): (Vec<_>, Vec<_>) = links.partition(|link| link.starts_with('#'));
        for anchor in anchors {
            let id = format!("id=\"{}\"", &anchor[1..]);
            assert!(page.contains(&id), "{anchor}");
        }
        // Manifest, summary, links and events, and five tables of each flow.
        assert_eq!(files.len(), 4 + 3 * 5, "{files:?}");
        for file in files {
            let file = folder.join(file.replace("%20", " "));
            assert!(file.is_file(), "{}", file.display());
        }
    }
}

#[test]
fn empty_run_names_missing_data() {
    let mut manifest = Manifest::new(World::Live, "nothing yet", Duration::ZERO);
    let mut flow = testing::run().manifest.flows.remove(0);
    flow.one_clock = false;
    manifest.flows.push(flow);
    let mut run = Run::new(Path::new("none"), manifest);
    run.notes.push("events.jsonl is missing".to_owned());
    let page = Out::new("empty").page(&[run]);
    assert!(page.contains("events.jsonl is missing"));
    assert!(page.contains("This run recorded nothing"));
    for figure in &FIGURES {
        assert!(page.contains(figure.missing), "{}", figure.missing);
    }
    assert!(Out::new("none").page(&[]).contains("Nothing to report"));
}

#[test]
fn truncated_run_is_drawn() {
    let mut run = testing::run();
    let end = tidegate_core::units::Time::from_secs(22);
    run.summary = None;
    run.events.retain(|row| row.at < end);
    run.links = run.links.iter().filter(|row| row.at < end).collect();
    for flow in &mut run.flows {
        flow.sent.retain(|row| row.captured < end);
        flow.received.clear();
        flow.shown.clear();
        flow.savable.clear();
        flow.packets
            .retain(|row| row.sent < end && row.arrived.is_none_or(|at| at < end));
    }
    let page = Out::new("cut").page(&[run]);
    assert!(page.contains("planned duration is 60 s, but its records end after 22 s"));
    assert!(!page.contains(">outage<"));
    assert!(page.contains("Rates over time"));
}

#[test]
fn receiver_alone_shows_the_variation_of_delays() {
    let mut run = testing::run();
    run.summary = None;
    run.manifest.world = World::Live;
    run.flows.truncate(1);
    let flow = &mut run.flows[0];
    flow.info = FlowInfo {
        one_clock: false,
        active: None,
        ..flow.info.clone()
    };
    flow.sent.clear();
    flow.packets.clear();
    let page = Out::new("receiver").page(&[run]);
    assert!(page.contains("variation above the minimum"));
}

#[test]
fn flows_of_a_class_share_a_column_and_a_panel() {
    let page = Out::new("crowd").page(&[testing::crowd(21)]);
    assert!(page.contains("web<small>21 flows</small>"), "one column");
    assert!(!page.contains("web-1"), "no member has one of its own");
    // The mean of 1 to 21 kb/s, and the ends.
    assert!(page.contains("11 kb/s<small>1 kb/s to 21 kb/s</small>"));
    let panels = page.matches("class=\"ink bold\"").count();
    let alone = Out::new("crowd-alone").page(&[testing::run()]);
    // In the figure of rates, for wide screens and for narrow ones.
    assert_eq!(panels, alone.matches("class=\"ink bold\"").count() + 2);
    let larger = Out::new("crowd-larger").page(&[testing::crowd(200)]);
    assert!(larger.len() < page.len() + page.len() / 20);
}
