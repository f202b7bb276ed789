//! `tidegate send` and `tidegate recv` on networks other than IPv4 loopback, each in a network and
//! mount namespace of its own.

#[expect(dead_code, reason = "the other tests use the rest")]
mod program;
mod skip;

use std::fs;
use std::process::Command;

use program::{Scratch, text};

/// Streams in a namespace after `setup`, in the language of the shell; returns what both ends print.
fn stream(test: &str, setup: &str, recv: &str, send: &str) -> Option<String> {
    if skip::is_without_lab(test) {
        return None;
    }
    let scratch = Scratch::new(test);
    let script = format!(
        "set -e
        cd {folder}
        ip link set lo up
        {setup}
        mkfifo said
        {program} recv {recv} 2>said &
        receiver=$!
        trap 'kill $receiver 2>/dev/null || :' EXIT
        exec 3<said
        while read -r line <&3; do
            case $line in *'waiting for'*) break ;; esac
        done
        {program} send {send} --size 320x180 --preset ultrafast 2>&1
        wait $receiver
        cat <&3",
        folder = text(&scratch.path("")),
        program = env!("CARGO_BIN_EXE_tidegate"),
    );
    fs::create_dir_all(scratch.path("")).unwrap();
    let mut unshare = Command::new("unshare");
    let made = unshare.args(["--map-root-user", "--net", "--mount", "sh", "-c", &script]);
    let made = made.output().unwrap();
    let [said, errors] = [made.stdout, made.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(made.status.success(), "{said}\n{errors}");
    Some(said)
}

/// Frames that the receiver counts.
fn received(said: &str) -> u64 {
    let (_, rest) = said.split_once("\nreceived ").expect(said);
    let (count, _) = rest.split_once(" whole").expect(said);
    count.parse().unwrap()
}

#[test]
fn the_address_where_the_receiver_listens_is_found() {
    let setup = "printf '::1 both.example\\n127.0.0.1 both.example\\n' >hosts
        mount --bind hosts /etc/hosts";
    for (name, at) in [("first-v6", "127.0.0.1:5660"), ("first-v4", "[::1]:5660")] {
        let (recv, send) = (
            format!("--listen {at}"),
            "--to both.example:5660 --duration 2s --ceiling 1Mb/s",
        );
        let Some(said) = stream(name, setup, &recv, send) else {
            return;
        };
        assert!(received(&said) >= 40, "{said}");
    }
}

#[test]
fn addresses_of_a_link_have_a_zone() {
    let setup = "ip link add va type veth peer name vb
        ip addr add fe80::1:1/64 dev va nodad
        ip link set va up
        ip link set vb up";
    let at = "[fe80::1:1%va]:5004 --insecure";
    for (name, transport, rate) in [
        ("zone", "", "--ceiling 1Mb/s"),
        ("zone-tcp", "--transport tcp", "--rate 1Mb/s"),
    ] {
        let recv = format!("{transport} --listen {at}");
        let send = format!("{transport} --to {at} --duration 2s {rate}");
        let Some(said) = stream(name, setup, &recv, &send) else {
            return;
        };
        assert!(received(&said) >= 40, "{said}");
    }
}

#[test]
fn groups_are_joined() {
    let setup = "ip route add 224.0.0.0/4 dev lo src 127.0.0.1
        printf 'v=0\\no=- 1 1 IN IP4 127.0.0.1\\ns=-\\nc=IN IP4 239.7.7.7/4\\nt=0 0\\nm=video 5662 RTP/AVP 96\\n\
        a=rtpmap:96 H264/90000\\na=source-filter: incl IN IP4 239.7.7.7 127.0.0.1\\n' >group.sdp";
    let send = "--to 239.7.7.7:5662 --insecure --one-way --duration 3s --ceiling 1Mb/s";
    for (name, recv) in [
        ("group", "--listen 239.7.7.7:5662"),
        ("described", "--sdp group.sdp"),
    ] {
        let Some(said) = stream(name, setup, &format!("{recv} --insecure"), send) else {
            return;
        };
        assert!(received(&said) >= 60, "{said}");
    }
}
