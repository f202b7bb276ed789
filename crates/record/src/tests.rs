//! Run folders on disk: written data is read back, and damage is reported.

use core::time::Duration;
use std::fs;
use std::path::{Path, PathBuf};

use tidegate_core::control::Kind;
use tidegate_core::media::{FrameRate, Quality};
use tidegate_core::trace::{DropCause, Event, FeedbackFault, KeyCause};
use tidegate_core::units::{Bytes, Rate, Time};

use super::cells::Row as _;
use super::*;

/// Temporary folder of one test, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let name = format!("tidegate-run-{test}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn manifest() -> Manifest {
    let mut manifest = Manifest::new(World::Sim, "quotes \" and, commas", Duration::from_secs(2));
    manifest.seed = Some(u64::MAX);
    manifest.flows.push(FlowInfo {
        name: "tide-1".to_owned(),
        class: "tide".to_owned(),
        control: "tide".to_owned(),
        baseline: false,
        delay_bound: Some(Duration::from_millis(150)),
        floor: Rate::kbps(150),
        frame_rate: Some(FrameRate {
            num: 30_000,
            den: 1_001,
        }),
        one_clock: true,
        way: FlowPath::default(),
        active: None,
    });
    manifest
}

fn sent_frame() -> SentFrame {
    SentFrame {
        frame: 7,
        rtp_timestamp: u32::MAX,
        captured: Time::from_nanos(1_233_333_333),
        kind: FrameKind::Key,
        target_bits: 12_000,
        bits: 11_500,
        left: None,
        dropped: Some(DropCause::Reference),
        quality: Some(Quality {
            psnr_y: 38.125,
            psnr_u: 41.0,
            psnr_v: 99.0,
            ssim: 0.987_65,
        }),
    }
}

fn received_frame() -> ReceivedFrame {
    ReceivedFrame {
        frame: 7,
        rtp_timestamp: 1,
        first: Time::from_nanos(1),
        complete: Some(Time::from_secs(1)),
        kind: FrameKind::Delta,
        bits: 8,
        decodable: true,
        quality: None,
    }
}

fn events() -> Vec<Event> {
    vec![
        Event::BlackoutBegan,
        Event::BlackoutEnded {
            lasted: Duration::from_micros(1_500_250),
        },
        Event::FrameDropped {
            frame: 3,
            cause: DropCause::Late,
        },
        Event::KeyFrameOrdered {
            frame: 4,
            cause: KeyCause::Repair,
        },
        Event::Sample {
            rtt: Duration::from_millis(40),
            queue: Duration::from_micros(2_250),
            loss: 0.125,
            loss_event_rate: 0.001,
            send: Rate::kbps(900),
            media: Rate::kbps(800),
            receive: Rate::kbps(700),
        },
    ]
}

fn write(dir: &Path) {
    let mut writer = RunWriter::create(dir).expect("the folder can be created");
    writer.manifest(&manifest()).expect("disk");
    for (i, event) in events().iter().enumerate() {
        let at = Time::from_nanos(i as u64 * 100_000_001);
        writer
            .event(at, "tide-1", Side::Sender, event)
            .expect("disk");
    }
    writer.sent_frame("tide-1", &sent_frame()).expect("disk");
    writer
        .received_frame("tide-1", &received_frame())
        .expect("disk");
    let shown = ShownFrame {
        frame: 7,
        shown_frame: None,
        on_time: false,
        quality: None,
    };
    writer.shown_frame("tide-1", &shown).expect("disk");
    for seq in 0..3 {
        let packet = PacketRow {
            seq,
            kind: Kind::Repair,
            size: Bytes(1_228),
            sent: Time::from_millis(seq),
            arrived: None,
            outcome: PacketOutcome::Lost,
        };
        writer.packet("tide-1", &packet).expect("disk");
    }
    let savable = SavableRow {
        frame: 7,
        savable: true,
    };
    writer.savable("tide-1", &savable).expect("disk");
    let sample = LinkSample {
        at: Time::from_secs(1),
        run: "tide-1".into(),
        link: "bottleneck".into(),
        queue: Bytes(3_000),
        drops: 1,
        marks: 2,
        delivered: Bytes(4),
        causes: Some(DropCauses {
            random: 1,
            outage: 0,
        }),
    };
    writer.link_sample(&sample).expect("disk");
    writer.summary(&Summary::default()).expect("disk");
    writer.flush().expect("disk");
}

#[test]
fn written_rows_are_read_back() {
    let scratch = Scratch::new("round-trip");
    write(&scratch.0);
    let run = RunReader::load(&scratch.0).expect("readable run");
    assert_eq!(run.notes, Vec::<String>::new());
    assert_eq!(run.manifest, manifest());
    let read: Vec<Event> = run.events.iter().map(|row| row.event).collect();
    assert_eq!(read, events());
    assert_eq!(run.events[2].at, Time::from_nanos(200_000_002));
    let flow = run.flow("tide-1").expect("flow in the manifest");
    assert_eq!(flow.sent, [sent_frame()]);
    assert_eq!(flow.received, [received_frame()]);
    assert_eq!(flow.shown[0].shown_frame, None);
    assert_eq!(flow.packets.len(), 3);
    assert_eq!(flow.packets[2].kind, Kind::Repair);
    assert!(flow.savable[0].savable);
    assert_eq!(run.links.iter().next().unwrap().queue, Bytes(3_000));
    assert_eq!(run.summary, Some(Summary::default()));
}

/// 100,000 invalid reports of ten seconds, flushed twice per second as in a live run.
#[test]
fn a_flood_of_invalid_reports_leaves_a_few_rows() {
    let scratch = Scratch::new("flood");
    let mut writer = RunWriter::create(&scratch.0).expect("the folder can be created");
    writer.manifest(&manifest()).expect("disk");
    let cause = FeedbackFault::UnknownSource;
    for report in 0..100_000_u64 {
        let at = Time::from_nanos(report * 100_000);
        let event = Event::FeedbackRejected { cause };
        writer
            .event(at, "tide-1", Side::Sender, &event)
            .expect("disk");
        if report % 5_000 == 4_999 {
            writer.flush().expect("disk");
        }
    }
    writer.flush().expect("disk");
    let run = RunReader::load(&scratch.0).expect("readable run");
    assert!(run.events.len() <= 60, "{} rows", run.events.len());
    let counted = |row: &EventRow| match row.event {
        Event::FeedbackRejected { .. } => 1,
        Event::RejectedOmitted { count } => count,
        _ => 0,
    };
    assert_eq!(run.events.iter().map(counted).sum::<u64>(), 100_000);
    assert!(run.events.is_sorted_by_key(|row| row.at));
}

#[test]
fn tables_match_the_documented_examples() {
    let scratch = Scratch::new("text");
    write(&scratch.0);
    let file = |name: &str| fs::read_to_string(scratch.0.join(name)).expect(name);
    let event = r#"{"t":0.100000001,"flow":"tide-1","side":"sender","kind":"blackout_ended","lasted_ms":1500.25}"#;
    assert_eq!(file("events.jsonl").lines().nth(1), Some(event));
    let frames = "frame,rtp_timestamp,captured_s,type,target_bits,bits,left_s,dropped,psnr_y,psnr_u,psnr_v,ssim\n\
                  7,4294967295,1.233333333,key,12000,11500,,reference,38.125,41.000,99.000,0.98765\n";
    assert_eq!(file("flows/tide-1/frames-sent.csv"), frames);
    let links = "t_s,run,link,queue_bytes,drops,marks,delivered_bytes,drops_random,drops_outage\n\
                 1.000000000,tide-1,bottleneck,3000,1,2,4,1,0\n";
    assert_eq!(file("links.csv"), links);
}

/// Rows of the tables of a flow: each cell filled, and each empty that may be.
fn write_flow_tables(writer: &mut RunWriter) {
    let full = sent_frame();
    let empty = SentFrame {
        dropped: None,
        quality: None,
        kind: FrameKind::Skipped,
        left: Some(Time::from_nanos(u64::MAX)),
        ..full.clone()
    };
    writer.sent_frame("tide-1", &full).expect("disk");
    writer.sent_frame("tide-1", &empty).expect("disk");
    let empty = received_frame();
    let full = ReceivedFrame {
        complete: None,
        decodable: false,
        quality: sent_frame().quality,
        ..empty.clone()
    };
    writer.received_frame("tide-1", &full).expect("disk");
    writer.received_frame("tide-1", &empty).expect("disk");
    let full = ShownFrame {
        frame: 8,
        shown_frame: Some(7),
        on_time: true,
        quality: Some(Quality {
            psnr_y: f64::INFINITY,
            psnr_u: 0.000_49,
            psnr_v: -1.0,
            ssim: 1.0,
        }),
    };
    let empty = ShownFrame {
        shown_frame: None,
        quality: None,
        ..full.clone()
    };
    writer.shown_frame("tide-1", &full).expect("disk");
    writer.shown_frame("tide-1", &empty).expect("disk");
    let full = PacketRow {
        seq: u64::MAX,
        kind: Kind::Media,
        size: Bytes(1_228),
        sent: Time::from_millis(1),
        arrived: Some(Time::from_millis(12_345)),
        outcome: PacketOutcome::Received,
    };
    let empty = PacketRow {
        arrived: None,
        outcome: PacketOutcome::Unknown,
        ..full.clone()
    };
    writer.packet("tide-1", &full).expect("disk");
    writer.packet("tide-1", &empty).expect("disk");
    let savable = SavableRow {
        frame: 7,
        savable: false,
    };
    writer.savable("tide-1", &savable).expect("disk");
}

/// Rows of the tables of the run, likewise. Returns the totals.
fn write_run_tables(writer: &mut RunWriter) -> [TotalsRow; 2] {
    let full = LinkSample {
        at: Time::from_millis(20),
        run: "tide-1".into(),
        link: "up, \"down\"".into(),
        queue: Bytes(1),
        drops: 2,
        marks: 3,
        delivered: Bytes(4),
        causes: Some(DropCauses {
            random: 5,
            outage: 6,
        }),
    };
    let empty = LinkSample {
        causes: None,
        ..full.clone()
    };
    writer.link_sample(&full).expect("disk");
    writer.link_sample(&empty).expect("disk");
    let count = |packets| Count {
        packets,
        bytes: Bytes(packets * 1_000),
    };
    let full = BinRow {
        at: Time::from_millis(200),
        flow: "tide-1".to_owned(),
        bin: Bin {
            sent: count(1),
            received: count(2),
            delay_sum: Duration::from_micros(3),
            delay_max: Duration::from_nanos(4),
            dropped: Some(5),
        },
    };
    let mut empty = full.clone();
    empty.bin.dropped = None;
    writer.bin(&full).expect("disk");
    writer.bin(&empty).expect("disk");
    let full = TotalsRow {
        flow: "tide-1".to_owned(),
        totals: Totals {
            span: Duration::from_mins(1),
            sent: count(1),
            received: count(2),
            dropped: 3,
            loss_events: 4,
            rtt: Some(Duration::from_millis(5)),
            delay_min: Duration::from_millis(6),
            delay_mean: Duration::from_millis(7),
            delay_p50: Duration::from_millis(8),
            delay_p95: Duration::from_millis(9),
            delay_p99: Duration::from_millis(10),
            delay_max: Duration::from_millis(11),
            dummies: Dummies {
                sent: 12,
                received: 13,
            },
            first_sent: Some(Time::from_millis(14)),
            done: Some(Time::from_millis(15)),
        },
    };
    let mut empty = full.clone();
    (empty.totals.rtt, empty.totals.first_sent, empty.totals.done) = (None, None, None);
    writer.totals(&full).expect("disk");
    writer.totals(&empty).expect("disk");
    [full, empty]
}

/// The tables with each cell filled, and with each cell empty that may be. Programs of others read
/// these files, so their text may not change.
#[test]
fn tables_keep_their_columns_and_formats() {
    let scratch = Scratch::new("columns");
    let mut writer = RunWriter::create(&scratch.0).expect("the folder can be created");
    writer.manifest(&manifest()).expect("disk");
    write_flow_tables(&mut writer);
    let totals = write_run_tables(&mut writer);
    writer.flush().expect("disk");

    let mut text = String::new();
    for file in [
        "frames-sent",
        "frames-received",
        "shown",
        "packets",
        "savable",
    ] {
        let path = scratch.0.join(format!("flows/tide-1/{file}.csv"));
        text += &fs::read_to_string(path).expect(file);
    }
    for file in ["links", "bins", "totals"] {
        text += &fs::read_to_string(scratch.0.join(format!("{file}.csv"))).expect(file);
    }
    assert_eq!(text, include_str!("../tests/data/tables.csv"));

    let run = RunReader::load(&scratch.0).expect("readable run");
    let rows: (Vec<_>, Vec<_>) = (run.links.iter().collect(), run.bins);
    assert_eq!((rows.0.len(), rows.1.len()), (2, 2));
    assert_eq!(run.totals, totals);
    assert_eq!(run.flows[0].sent[1].left, Some(Time::from_nanos(u64::MAX)));
}

#[test]
fn all_columns_are_documented() {
    let page = include_str!("../../../docs/run-folder.md");
    let tables = [
        SentFrame::COLUMNS,
        ReceivedFrame::COLUMNS,
        ShownFrame::COLUMNS,
        PacketRow::COLUMNS,
        SavableRow::COLUMNS,
        LinkSample::COLUMNS,
        BinRow::COLUMNS,
        TotalsRow::COLUMNS,
    ];
    for column in tables.iter().flat_map(|columns| columns.split(',')) {
        assert!(
            page.contains(&format!("`{column}`")),
            "{column} is missing in docs/run-folder.md"
        );
    }
}

#[test]
fn killed_run_is_readable_up_to_its_last_complete_line() {
    let scratch = Scratch::new("killed");
    write(&scratch.0);
    let packets = scratch.0.join("flows/tide-1/packets.csv");
    let text = fs::read(&packets).expect("written");
    // Cut inside the last row, so that the rest of it still looks like a number.
    fs::write(&packets, &text[..text.len() - 22]).expect("disk");
    let events = scratch.0.join("events.jsonl");
    let mut text = fs::read(&events).expect("written");
    text.extend(b"{\"t\":9");
    fs::write(&events, text).expect("disk");
    fs::remove_file(scratch.0.join("summary.json")).expect("written");
    fs::remove_file(scratch.0.join("flows/tide-1/savable.csv")).expect("written");

    let run = RunReader::load(&scratch.0).expect("readable run");
    assert_eq!(run.flows[0].packets.len(), 2);
    assert_eq!(run.events.len(), 5);
    assert_eq!(run.summary, None);
    let notes = run.notes.join("\n");
    for part in [
        "events.jsonl: its last line is cut off",
        "packets.csv: its last line is cut off",
        "savable.csv is missing",
        "summary.json is missing",
    ] {
        assert!(notes.contains(part), "{part} is not in {notes}");
    }
}

#[test]
fn invalid_lines_are_counted() {
    let scratch = Scratch::new("bad-lines");
    write(&scratch.0);
    let path = scratch.0.join("flows/tide-1/packets.csv");
    let text = fs::read_to_string(&path).expect("written");
    fs::write(&path, text + "x,y\n9,media,1,-1.0,,lost\n").expect("disk");
    let run = RunReader::load(&scratch.0).expect("readable run");
    assert_eq!(run.flows[0].packets.len(), 3);
    let note =
        "flows/tide-1/packets.csv: 2 lines are invalid and were skipped, the first is line 5";
    assert_eq!(run.notes, [note]);
}

#[test]
fn bins_of_earlier_versions_are_read() {
    let scratch = Scratch::new("old-bins");
    write(&scratch.0);
    let head =
        "t_s,flow,sent_packets,sent_bytes,received_packets,received_bytes,delay_sum_s,delay_max_s";
    let row = "0.2,tide-1,3,3600,2,2400,0.05,0.03";
    let path = scratch.0.join("bins.csv");
    let dropped_of = |text: String| {
        fs::write(&path, text).expect("disk");
        let run = RunReader::load(&scratch.0).expect("readable run");
        let bins = run.bins.iter().map(|row| row.bin.dropped);
        (bins.collect::<Vec<_>>(), run.notes.len())
    };
    assert_eq!(dropped_of(format!("{head}\n{row}\n")), (vec![None], 0));
    let new = format!("{head},dropped\n{row},1\n");
    assert_eq!(dropped_of(new.clone()), (vec![Some(1)], 0));
    // A row without its last cell is invalid; a table without the added columns is valid.
    assert_eq!(dropped_of(format!("{new}{row}\n")), (vec![Some(1)], 1));
    let short = head.replace(",delay_max_s", "");
    assert_eq!(dropped_of(format!("{short}\n{row}\n")), (vec![], 1));
}

#[test]
fn flows_are_found_without_a_manifest() {
    let scratch = Scratch::new("no-manifest");
    write(&scratch.0);
    fs::remove_file(scratch.0.join("manifest.json")).expect("written");
    let run = RunReader::load(&scratch.0).expect("readable run");
    assert_eq!(run.flows[0].info.name, "tide-1");
    assert_eq!(run.flows[0].packets.len(), 3);
    assert!(
        run.notes
            .iter()
            .any(|n| n.contains("manifest.json is missing"))
    );
}

#[test]
fn an_unknown_format_version_is_rejected() {
    let scratch = Scratch::new("format");
    write(&scratch.0);
    fs::write(scratch.0.join("manifest.json"), r#"{"format":2}"#).expect("disk");
    let error = RunReader::load(&scratch.0)
        .expect_err("must be rejected")
        .to_string();
    assert!(error.contains("is of format 2"), "{error}");
}

#[test]
fn a_folder_without_a_run_is_not_overwritten() {
    let scratch = Scratch::new("foreign");
    fs::create_dir_all(&scratch.0).expect("disk");
    fs::write(scratch.0.join("thesis.txt"), "years").expect("disk");
    let error = RunWriter::create(&scratch.0).expect_err("must be rejected");
    assert!(matches!(error, CreateError::NotARun { .. }), "{error}");
    let error = RunWriter::create(scratch.0.join("thesis.txt")).expect_err("must be rejected");
    assert!(matches!(error, CreateError::NotAFolder { .. }), "{error}");
    let error = RunReader::load(&scratch.0).expect_err("must be rejected");
    assert!(matches!(error, LoadError::NotARun { .. }), "{error}");
    assert_eq!(
        fs::read(scratch.0.join("thesis.txt")).expect("kept"),
        b"years"
    );
}

#[test]
fn a_new_run_replaces_an_old_one() {
    let scratch = Scratch::new("again");
    write(&scratch.0);
    fs::write(scratch.0.join("notes.txt"), "mine").expect("disk");
    let mut writer = RunWriter::create(&scratch.0).expect("folder of a run");
    let mut manifest = manifest();
    manifest.flows.clear();
    writer.manifest(&manifest).expect("disk");
    writer.flush().expect("disk");
    let run = RunReader::load(&scratch.0).expect("readable run");
    assert!(run.events.is_empty() && run.links.is_empty() && run.summary.is_none());
    assert!(!scratch.0.join("flows/tide-1/packets.csv").exists());
    assert_eq!(
        fs::read(scratch.0.join("notes.txt")).expect("kept"),
        b"mine"
    );
}

#[test]
fn run_killed_at_its_start_can_be_overwritten() {
    let scratch = Scratch::new("killed-again");
    write(&scratch.0);
    // Simulates a kill between the two: the folder has been emptied, and no manifest was written
    // yet.
    drop(RunWriter::create(&scratch.0).expect("folder of a run"));
    assert!(!scratch.0.join("events.jsonl").exists());
    assert!(RunWriter::check(&scratch.0).expect("folder of a run"));
    drop(RunWriter::create(&scratch.0).expect("folder of a run"));

    let scratch = Scratch::new("killed-first");
    drop(RunWriter::create(&scratch.0).expect("new"));
    fs::write(scratch.0.join(".manifest.json.part"), "{").expect("disk");
    let mut writer = RunWriter::create(&scratch.0).expect("folder of a run");
    writer.manifest(&manifest()).expect("disk");
    assert!(!scratch.0.join(".manifest.json.part").exists());
}

#[test]
fn flow_names_cannot_escape_the_folder() {
    let scratch = Scratch::new("names");
    let mut writer = RunWriter::create(&scratch.0).expect("new");
    for name in ["..", "a/b", "", "a b"] {
        let error = writer.sent_frame(name, &sent_frame()).expect_err(name);
        assert!(matches!(error, WriteError::FlowName { .. }), "{error}");
    }
}

#[test]
fn same_rows_yield_same_bytes() {
    let (one, two) = (Scratch::new("same-1"), Scratch::new("same-2"));
    write(&one.0);
    write(&two.0);
    for file in [
        "manifest.json",
        "events.jsonl",
        "links.csv",
        "flows/tide-1/frames-sent.csv",
    ] {
        let read = |dir: &Path| fs::read(dir.join(file)).expect(file);
        assert_eq!(read(&one.0), read(&two.0), "{file}");
    }
}

#[test]
fn loading_the_empty_folder_of_a_killed_run_fails() {
    let scratch = Scratch::new("empty");
    RunWriter::create(&scratch.0).expect("the folder can be created");
    fs::create_dir_all(&scratch.0).expect("the folder can be created");
    let error = RunReader::load(&scratch.0).expect_err("empty folder must be rejected");
    assert!(
        error
            .to_string()
            .ends_with("before it wrote any data; run it again"),
        "{error}"
    );
}

#[test]
fn missing_tables_of_a_group_are_reported_only_if_expected() {
    let scratch = Scratch::new("many");
    let mut manifest = manifest();
    manifest.flows.clear();
    let names = [("web-1", "web"), ("web-2", "web"), ("tcp", "tcp")];
    for (name, class) in names {
        manifest.flows.push(FlowInfo {
            name: name.to_owned(),
            class: class.to_owned(),
            frame_rate: None,
            ..self::manifest().flows.remove(0)
        });
    }
    let mut writer = RunWriter::create(&scratch.0).expect("the folder can be created");
    writer.manifest(&manifest).expect("disk");
    for info in manifest.flows {
        writer.flow(&FlowRun::new(info)).expect("disk");
    }
    writer.summary(&Summary::default()).expect("disk");
    writer.flush().expect("disk");
    let notes = |dir: &Path| RunReader::load(dir).expect("file exists").notes;
    assert_eq!(notes(&scratch.0), Vec::<String>::new());
    fs::remove_file(scratch.0.join("flows/tcp/packets.csv")).expect("file exists");
    assert_eq!(notes(&scratch.0), ["flows/tcp/packets.csv is missing"]);
}

#[test]
fn pictures_are_kept_until_the_next_run() {
    let scratch = Scratch::new("pictures");
    let manifest = manifest();
    let mut flow = FlowRun::new(manifest.flows[0].clone());
    let picture = |frame, kind, jpeg: &[u8]| StoredPicture {
        frame,
        kind,
        jpeg: jpeg.to_vec(),
    };
    flow.pictures = vec![
        picture(9, PictureKind::Camera, b"one"),
        picture(9, PictureKind::Shown, b"two"),
        picture(570, PictureKind::Shown, b"three"),
    ];
    let mut writer = RunWriter::create(&scratch.0).expect("the folder can be created");
    writer.manifest(&manifest).expect("disk");
    writer.flow(&flow).expect("disk");
    writer.flush().expect("disk");
    let folder = scratch
        .0
        .join("flows")
        .join(&flow.info.name)
        .join("pictures");
    let large = fs::File::create(folder.join("600-shown.jpg")).expect("disk");
    large.set_len(5 << 20).expect("disk");
    fs::write(folder.join("mine.jpg"), "mine").expect("disk");
    let read = RunReader::load(&scratch.0).expect("readable run");
    assert_eq!(
        read.flows[0].pictures, flow.pictures,
        "a large one is ignored"
    );
    RunWriter::create(&scratch.0).expect("an earlier run");
    let left: Vec<_> = fs::read_dir(&folder).expect("kept").flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0].file_name(), "mine.jpg");
}

/// A live sender has a folder of its own, without the tables of the receiver.
#[test]
fn one_side_of_a_live_run_is_complete() {
    let scratch = Scratch::new("one-side");
    write(&scratch.0);
    let mut live = manifest();
    live.world = World::Live;
    let path = scratch.0.join("manifest.json");
    fs::write(&path, serde_json::to_string(&live).expect("a manifest")).expect("disk");
    let received = scratch.0.join("flows/tide-1/frames-received.csv");
    fs::remove_file(received).expect("written");
    let run = RunReader::load(&scratch.0).expect("readable run");
    assert_eq!(run.notes, Vec::<String>::new());
    let files = run.files();
    let has = |path: &str| files.iter().any(|file| file.path == path);
    assert!(has("manifest.json") && has("flows/tide-1/frames-sent.csv"));
    assert!(!has("flows/tide-1/frames-received.csv"));
}

/// A folder from before drop causes were recorded is read in full otherwise.
#[test]
fn links_without_causes_are_read() {
    let scratch = Scratch::new("no-causes");
    write(&scratch.0);
    let file = scratch.0.join("links.csv");
    let text = fs::read_to_string(&file).expect("links");
    assert!(text.ends_with(",1,2,4,1,0\n"), "{text}");
    let older = text.replace(",drops_random,drops_outage\n", "\n");
    fs::write(&file, older.replace(",1,2,4,1,0\n", ",1,2,4\n")).expect("disk");
    let run = RunReader::load(&scratch.0).expect("readable run");
    assert_eq!(run.notes, Vec::<String>::new());
    let sample = run.links.iter().next().expect("one sample");
    assert_eq!((sample.drops, sample.causes), (1, None));
    assert_eq!(sample.queue_drops(), None);
}
