use std::fs::File;
use std::io::{Seek as _, Write as _};

use proptest::prelude::*;

use super::*;
use crate::HashKey;

fn rows() -> Vec<Row> {
    let row = |i: u64| Row {
        at_ms: 1_600_000_000_000 + i,
        cloud: "192.0.2.0/24".to_owned(),
        client: format!("{i:016x}"),
        scale: if i.is_multiple_of(2) {
            "minute"
        } else {
            "round-trip"
        }
        .to_owned(),
        rate_bps: 1_000 + i,
        rtt_us: (!i.is_multiple_of(3)).then_some(20_000 + i),
        loss: (!i.is_multiple_of(4)).then_some(i as f64 / 1e3),
        tag: (!i.is_multiple_of(5)).then(|| format!("title {i}")),
        is_limited: i.is_multiple_of(7),
    };
    (0..100).map(row).collect()
}

fn csv_bytes(rows: &[Row]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = CsvWriter::new(&mut bytes).expect("memory");
    for row in rows {
        writer.write(row).expect("memory");
    }
    writer.finish().expect("memory");
    bytes
}

fn parquet_bytes(rows: &[Row]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ParquetWriter::new(&mut bytes).expect("memory");
    for row in rows {
        writer.write(row.clone()).expect("memory");
    }
    writer.finish().expect("memory");
    bytes
}

fn from_csv(bytes: &[u8]) -> Result<Vec<Row>, ExchangeError> {
    let mut rows = Vec::new();
    read_csv(bytes, |_, row| {
        rows.push(row);
        Ok(())
    })?;
    Ok(rows)
}

fn from_parquet(bytes: &[u8]) -> Result<Vec<Row>, ExchangeError> {
    let mut file: File = tempfile();
    file.write_all(bytes).expect("written");
    file.rewind().expect("rewound");
    let mut rows = Vec::new();
    read_parquet(file, |_, row| {
        rows.push(row);
        Ok(())
    })?;
    Ok(rows)
}

/// A file without a name.
fn tempfile() -> File {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("tidegate-parquet-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(true);
    let file = file.open(&path).expect("created");
    std::fs::remove_file(path).expect("removed");
    file
}

#[test]
fn both_formats_return_what_was_written() {
    let rows = rows();
    assert_eq!(from_csv(&csv_bytes(&rows)).expect("valid"), rows);
    assert_eq!(from_parquet(&parquet_bytes(&rows)).expect("valid"), rows);
}

#[test]
fn columns_have_any_order_and_optional_ones_may_be_missing() {
    let text = "rate_bps,note,scale,client,at_ms\n500000,x,minute,192.0.2.7,1600000000000\n";
    let rows = from_csv(text.as_bytes()).expect("valid");
    let sample = rows[0]
        .clone()
        .sample(&AddressPolicy::Plain)
        .expect("valid");
    assert_eq!(sample.cloud.to_string(), "192.0.2.0/24");
    assert_eq!(sample.client.as_str(), "192.0.2.7");
    let hashed = AddressPolicy::Hashed(HashKey::new(&[7; 32]));
    let sample = rows[0].clone().sample(&hashed).expect("valid");
    assert!(!sample.client.as_str().contains('.'), "{sample:?}");
}

#[test]
fn other_units_are_read() {
    let expected = Row {
        at_ms: 1_634_450_531_250,
        client: "192.0.2.7".to_owned(),
        scale: "minute".to_owned(),
        rate_bps: 2_500_000,
        rtt_us: Some(20_500),
        ..Row::default()
    };
    for text in [
        "at_ms,client,scale,rate_bps,rtt_us\n1634450531250,192.0.2.7,minute,2500000,20500\n",
        "at_ms,client,scale,rate_bps,rtt_us\n1634450531250.0,192.0.2.7,minute,2.5e6,20500.2\n",
        "at_s,client,scale,rate_kbps,rtt_ms\n1634450531.25,192.0.2.7,minute,2500,20.5\n",
        "at,client,scale,rate_mbps,rtt_s\n2021-10-17T06:02:11.25Z,192.0.2.7,minute,2.5,0.0205\n",
        "at_ms,client,scale,rate_mbps,rtt_s\n2021-10-17 06:02:11.25,192.0.2.7,minute,2.5,0.0205\n",
    ] {
        let rows = from_csv(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(rows, std::slice::from_ref(&expected), "{text}");
    }
    for (text, words) in [
        (
            "at,client,scale,rate_bps\n1634450531,192.0.2.7,minute,5000\n",
            "value of at",
        ),
        (
            "at,client,scale,rate_bps\n17.10.2021,192.0.2.7,minute,5000\n",
            "ISO 8601",
        ),
        (
            "at_s,client,scale,rate_mbps\n1634450531,192.0.2.7,minute,-2\n",
            "rate_mbps",
        ),
        (
            "at_s,client,scale,rate_mbps\n1634450531,192.0.2.7,minute,inf\n",
            "rate_mbps",
        ),
    ] {
        let message = from_csv(text.as_bytes()).unwrap_err().to_string();
        assert!(message.contains(words), "{text}: {message}");
    }
}

#[test]
fn errors_name_the_row_and_the_column() {
    let header = "at_ms,cloud,client,scale,rate_bps,rtt_us,loss,tag\n";
    for (line, column) in [
        ("x,192.0.2.0/24,a,minute,5000,,,", "at_ms"),
        ("99999999999999,192.0.2.0/24,a,minute,5000,,,", "at_ms"),
        ("1,,a,minute,5000,,,", "cloud"),
        ("1,,224.0.0.1,minute,5000,,,", "client"),
        ("1,192.0.2.0/24,a b,minute,5000,,,", "client"),
        ("1,192.0.2.0/24,a,hour,5000,,,", "scale"),
        ("1,192.0.2.0/24,a,minute,-5,,,", "rate_bps"),
        ("1,192.0.2.0/24,a,minute,5,,,", "out of range"),
        ("1,192.0.2.0/24,a,minute,5000,99999999999,,", "out of range"),
        ("1,192.0.2.0/24,a,minute,5000,,NaN,", "out of range"),
        ("1,192.0.2.0/24,a,minute,5000,,2,", "out of range"),
    ] {
        let text = format!("{header}1,192.0.2.0/24,a,minute,5000,,,\n{line}\n");
        let read = read_csv(text.as_bytes(), |number, row| {
            let sample = row.sample(&AddressPolicy::Plain);
            sample
                .map(drop)
                .map_err(|fault| ExchangeError::Row { number, fault })
        });
        let message = read.unwrap_err().to_string();
        assert!(message.starts_with("row 2"), "{line}: {message}");
        assert!(message.contains(column), "{line}: {message}");
    }
    let seconds = from_csv(b"at_ms,client,scale,rate_bps\n1700000000,192.0.2.7,minute,5000\n");
    let seconds = seconds.unwrap_err().to_string();
    assert!(seconds.contains("rename the column to at_s"), "{seconds}");
    let twice = from_csv(b"at_ms,at,client,scale,rate_bps\n")
        .unwrap_err()
        .to_string();
    assert!(
        twice.contains("at_ms and at have the same meaning"),
        "{twice}"
    );
    let missing = from_csv(b"at_ms,client,scale\n").unwrap_err().to_string();
    assert!(missing.contains("column rate_bps is missing"), "{missing}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Damaged files give an error or rows.
    #[test]
    fn damaged_files_are_errors(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        for bytes in [csv_bytes(&rows()), parquet_bytes(&rows())] {
            let mut damaged = bytes.clone();
            for (place, byte) in &changes {
                let place = place.index(damaged.len());
                damaged[place] = *byte;
            }
            let _ = from_csv(&damaged);
            let _ = from_parquet(&damaged);
            damaged.truncate(cut.index(damaged.len()));
            let _ = from_csv(&damaged);
            let _ = from_parquet(&damaged);
        }
    }
}
