//! `tidegate knowledge`: import, show, export, and their errors.

mod command;

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use command::{folder, text, tidegate};

const SAMPLES: &str = "at_ms,client,scale,rate_bps,rtt_us,loss\n\
    1700000000000,192.0.2.7,minute,2000000,20000,0.01\n\
    1700000000020,192.0.2.7,round-trip,2100000,,\n\
    1700000060000,2001:db8::7,minute,9000000,,\n";

/// Runs a command and returns its output.
fn run(line: &str, dir: &Path) -> (Option<i32>, String) {
    let ran = tidegate(&line.split(' ').collect::<Vec<_>>(), dir);
    let said = text(&ran.stderr) + &text(&ran.stdout);
    (ran.status.code(), said)
}

#[test]
fn samples_survive_a_store_and_both_formats() {
    let dir = folder("knowledge");
    fs::write(dir.join("in.csv"), SAMPLES).unwrap();
    for line in [
        "knowledge import in.csv",
        "knowledge export out.parquet",
        "knowledge import out.parquet --store second.db --addresses truncated",
        "knowledge export out.csv --store second.db",
    ] {
        let (code, said) = run(line, &dir);
        assert_eq!(code, Some(0), "{line}: {said}");
    }
    let out = fs::read_to_string(dir.join("out.csv")).unwrap();
    let rows: Vec<Vec<&str>> = out.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(rows.len(), 4, "{out}");
    assert_eq!(rows[1][..2], ["1700000000000", "192.0.2.0/24"]);
    assert_eq!(rows[1][3..6], ["minute", "2000000", "20000"]);
    // No address is stored.
    assert!(
        !out.contains("192.0.2.7") && !out.contains("2001:db8::7"),
        "{out}"
    );
    assert_eq!(rows[1][2], rows[2][2]);
    let key = fs::metadata(dir.join("knowledge.db.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    let (code, said) = run("knowledge show --json", &dir);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("\"clients\":2,"), "{said}");
    assert!(said.contains("\"addresses\":\"hashed\""), "{said}");
    let (_, said) = run("knowledge import in.csv --keep-minutes 1s", &dir);
    assert!(
        said.contains("0 samples added to knowledge.db, which had 3 already"),
        "{said}"
    );
    // The first minute is 60 s older than the newest sample.
    assert!(said.contains("1 older than"), "{said}");
}

#[test]
fn errors_name_the_file_the_row_and_the_fix() {
    let dir = folder("knowledge-errors");
    fs::write(dir.join("in.csv"), SAMPLES).unwrap();
    fs::write(dir.join("bad.csv"), SAMPLES.replace("9000000", "fast")).unwrap();
    let address = "at_ms,client,scale,rate_bps\n1700000000000,192.0.2.300,minute,1000000\n";
    fs::write(dir.join("address.csv"), address).unwrap();
    fs::write(dir.join("bad.parquet"), SAMPLES).unwrap();
    fs::write(dir.join("text.db"), SAMPLES).unwrap();
    for (line, code, words) in [
        ("knowledge show", 2, "knowledge.db does not exist"),
        ("knowledge import missing.csv", 2, "cannot read missing.csv"),
        ("knowledge import /dev/null", 2, "/dev/null is no file"),
        (
            "knowledge import bad.csv",
            2,
            "bad.csv: row 3: invalid value of rate_bps",
        ),
        (
            "knowledge import address.csv",
            2,
            "address.csv: row 1: \"192.0.2.300\" is no IP address",
        ),
        (
            "knowledge show --store .",
            2,
            "is a folder: name a file in it",
        ),
        (
            "knowledge import in.csv --store no/dir.db",
            2,
            "the folder of no/dir.db does not exist",
        ),
        // A file with an error changes no store.
        ("knowledge show", 2, "knowledge.db does not exist"),
        ("knowledge import bad.parquet", 2, "no Parquet file"),
        (
            "knowledge show --store text.db",
            2,
            "text.db is no knowledge store, and is left as it is",
        ),
        (
            "knowledge import in.csv --store text.db",
            2,
            "text.db is no knowledge store, and is left as it is",
        ),
        (
            "knowledge import in.csv --store new.db",
            0,
            "3 samples added",
        ),
        (
            "knowledge import in.csv --store new.db --addresses plain",
            2,
            "keeps addresses hashed",
        ),
        ("knowledge export in.csv --store new.db", 2, "in.csv exists"),
        ("knowledge export - --store new.db --json", 2, "--json"),
        ("knowledge export - --store new.db", 0, "at_ms,cloud,client"),
    ] {
        let (got, said) = run(line, &dir);
        assert_eq!(got, Some(code), "{line}: {said}");
        assert!(said.contains(words), "{line}: {said}");
    }
}

#[test]
fn a_prediction_is_explained() {
    let dir = folder("knowledge-predict");
    let mut text = "at_ms,client,scale,rate_bps,rtt_us\n".to_owned();
    for cloud in 0..20 {
        let mbps = if cloud < 10 { 1 } else { 9 };
        for minute in 0..120_u64 {
            let at = 1_700_000_000_000 + 60_000 * minute;
            let client = format!("192.0.{cloud}.7");
            let row = |scale: &str| format!("{at},{client},{scale},{mbps}000000,20000\n");
            text.push_str(&row("minute"));
            if cloud == 3 {
                text.push_str(&row("round-trip"));
            }
        }
    }
    fs::write(dir.join("in.csv"), text).unwrap();
    let (code, said) = run("knowledge import in.csv --keep-round-trips 100000h", &dir);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = run("knowledge cluster --clusters 2 --json", &dir);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("\"clouds\":20,\"clusters\":2,"), "{said}");
    let predict = "knowledge predict 192.0.5.7 --at 1700007200000";
    let (code, said) = run(predict, &dir);
    assert_eq!(code, Some(0), "{said}");
    for words in [
        "192.0.5.0/24",
        "from the client, last 30 min: ",
        "from its cluster: 10 networks",
        "from all networks: 20 clients",
        "rate        1.00 Mb/s",
        "20.0 ms",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let (_, said) = run(&format!("{predict} --json"), &dir);
    assert!(said.contains("\"cluster\":1,"), "{said}");
    // Of another network only what others have is known.
    let (code, said) = run("knowledge predict 198.51.100.0/24 --at 1700007200000", &dir);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("100 % from all networks: 20 clients"),
        "{said}"
    );
    let (code, said) = run("knowledge predict 198.51.100.1", &dir);
    assert_eq!(code, Some(2));
    assert!(said.contains("no samples of the week before"), "{said}");
    let table = "knowledge evaluate --predict 0.2 --json";
    let (code, said) = run(table, &dir);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no session starts after a pause"), "{said}");
    let (code, said) = run("knowledge predict 224.0.0.1", &dir);
    assert_eq!(code, Some(2));
    assert!(said.contains("no address of a host"), "{said}");
}

#[test]
fn a_session_starts_from_the_store() {
    let dir = folder("knowledge-send");
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut text = "at_ms,client,scale,rate_bps,rtt_us\n".to_owned();
    for slot in 1..60 {
        let at = since.as_millis() - 10_000 * slot;
        let row = format!("{at},127.0.0.9,round-trip,3000000,400\n");
        text.push_str(&row);
    }
    fs::write(dir.join("in.csv"), text).unwrap();
    let (code, said) = run("knowledge import in.csv", &dir);
    assert_eq!(code, Some(0), "{said}");
    // No socket has this address, which ends the session.
    let closed = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let send = format!("send --to {closed} --duration 2s --knowledge");
    let (code, said) = run(&format!("{send} knowledge.db"), &dir);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("from 1 other client: the start is informed"),
        "{said}"
    );
    assert!(said.contains("3.00 Mb/s expected"), "{said}");
    assert!(said.contains("0 samples kept"), "{said}");
    let (_, said) = run(&format!("{send} new.db"), &dir);
    assert!(said.contains("nothing is known about the path"), "{said}");
    assert!(dir.join("new.db").exists());
    for (options, words) in [
        (
            "--knowledge k.db --control fixed:1Mb/s",
            "--knowledge requires rate control",
        ),
        ("--knowledge k.db --one-way", "cannot be used with"),
    ] {
        let (code, said) = run(&format!("send --to {closed} {options}"), &dir);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
}
