//! The Wireshark dissector of CP headers, on a capture of them.

use core::time::Duration;
use std::path::Path;
use std::process::Command;

use tidegate_core::units::{Rate, Time};
use tidegate_core::wire::cp::{
    ApplicationId, Cp, Delay, Echo, LossCode, PathReport, Probe, RateCode, Role, Shares, Stamp,
};

#[test]
fn dissector_reads_every_field() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("skipped: the dissector is tested with tshark, which is not installed");
        return;
    }
    let rate = RateCode::of(Rate::kbps(612));
    let probe = Probe {
        seq: 65_535,
        stamp: Stamp::at(Time::from_millis(1_600)),
        echo: Some(Echo {
            stamp: Stamp::at(Time::from_millis(1_440)),
            delay: Delay::of(Duration::from_millis(32)),
        }),
        loss: LossCode::of(1.0 / 64.0),
        available: rate,
        stop: true,
    };
    let report = PathReport {
        rtt: Stamp::span(Duration::from_millis(128)),
        deviation: Delay::of(Duration::from_millis(8)),
        loss: LossCode::of(0.0),
        available: RateCode::of(Rate::kbps(4_000_000_000)),
        used: rate,
        packet_size: 1_000,
        flows: 24,
        peer_lost: true,
        stop: false,
    };
    let roles = [Role::Origin, Role::Probe(probe), Role::Report(report)];
    let mut payloads: Vec<Vec<u8>> = roles.into_iter().map(payload).collect();
    // Without a valid version, and cut off.
    payloads.push(vec![0x20; 40]);
    payloads.push(payloads[0][..19].to_vec());

    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let capture = folder.join("cp.pcap");
    std::fs::write(&capture, pcap(&payloads)).unwrap();
    let expected = [
        "1,0,258,7,24,,,,,,,,,,,,,,",
        "1,1,258,7,24,1,,1,65535,1.6,1.44,0.032,,,0.015625,611840,,,",
        "1,2,258,7,24,,1,0,,,,,0.128,0.008,0,3998614552576,611840,1000,24",
        ",,,,,,,,,,,,,,,,,,",
        ",,,,,,,,,,,,,,,,,,",
    ];
    assert_eq!(dissect(&capture), expected);
}

fn payload(role: Role) -> Vec<u8> {
    let header = Cp {
        application: ApplicationId(258),
        flow: 7,
        shares: Shares::new(24).unwrap(),
        role,
    };
    let mut payload = header.to_bytes().to_vec();
    payload.extend_from_slice(b"media");
    payload
}

/// Values of [`FIELDS`] in each packet of a capture, separated by commas.
fn dissect(capture: &Path) -> Vec<String> {
    let script = concat!(
        "lua_script:",
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/wireshark/cp.lua"
    );
    let mut tshark = Command::new("tshark");
    tshark.args(["-X", script, "-d", "udp.port==5008,cp", "-n"]);
    tshark.arg("-r").arg(capture);
    tshark.args(["-T", "fields", "-E", "separator=,"]);
    for field in FIELDS {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Newer versions write booleans as words.
    let text = text.replace("True", "1").replace("False", "0");
    text.lines().map(str::to_owned).collect()
}

/// A capture of IPv4 packets without a link layer.
fn pcap(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    // Version 2.4 is two fields of 16 bits.
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, RAW_IP] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for payload in payloads {
        let udp = 8 + payload.len() as u16;
        let ip = 20 + udp;
        for word in [0, 0, u32::from(ip), u32::from(ip)] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&[0x45, 0]);
        out.extend_from_slice(&ip.to_be_bytes());
        out.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        for field in [5_008_u16, 5_008, udp, 0] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out.extend_from_slice(payload);
    }
    out
}

const RAW_IP: u32 = 101;

const FIELDS: [&str; 19] = [
    "cp.version",
    "cp.role",
    "cp.application",
    "cp.flow",
    "cp.shares",
    "cp.has_echo",
    "cp.peer_lost",
    "cp.stop",
    "cp.seq",
    "cp.stamp",
    "cp.echo",
    "cp.echo_delay",
    "cp.rtt",
    "cp.deviation",
    "cp.loss",
    "cp.available",
    "cp.used",
    "cp.packet_size",
    "cp.flows",
];
