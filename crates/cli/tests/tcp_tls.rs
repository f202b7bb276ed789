//! Streams over TLS, as processes over the loopback interface, and refusals of other hosts without
//! it.

#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;

use program::{Program, Scratch, player, text, to};

/// A certificate, as options of the end that has it, and of the connecting and the listening end
/// that verify it.
struct Pair {
    listens: String,
    connects: String,
    admits: String,
}

impl Pair {
    fn new(scratch: &Scratch, name: &str) -> Self {
        let [certificate, key] =
            ["cert", "key"].map(|kind| scratch.path(&format!("{name}-{kind}")));
        let listens = format!("--tls-cert {} --tls-key {}", text(&certificate), text(&key));
        let made = Program::tidegate(&format!("certificate {listens}")).wait();
        let mode = fs::metadata(&key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let fingerprint = made.succeeded().output.trim();
        Self {
            listens,
            connects: format!("--tls-fingerprint {fingerprint}"),
            admits: format!("--tls-client-fingerprint {fingerprint}"),
        }
    }
}

fn server(options: &str) -> Program {
    let usual = "--size 160x90 --preset ultrafast --codec mpeg2 --rate 500kb/s --duration 1s";
    Program::tidegate(&format!("send --transport tcp {usual} {options}"))
}

#[test]
fn all_ends_use_tls() {
    let scratch = Scratch::new("tls-all");
    let pair = Pair::new(&scratch, "pair");
    let (player, seen_at) = player(&pair.listens);
    let mut transcoder = Program::tidegate(&format!(
        "transcode --listen 127.0.0.1:0 {} {} {}",
        to(seen_at),
        pair.listens,
        pair.connects
    ));
    let port = transcoder.number("waiting for a stream at port ");
    server(&format!("{} {}", to(port), pair.connects))
        .wait()
        .succeeded();
    transcoder.wait().succeeded();
    let player = player.wait();
    let said = &player.succeeded().said;
    assert!(said.contains(&pair.connects), "{said}");
    // A busy machine skips some frames.
    assert!(!said.contains("received 0 "), "{said}");

    // A server that listens, and its certificate as an authority for its name.
    let mut server = server(&format!("--serve 127.0.0.1:0 {}", pair.listens));
    let port = server.number("waiting for players at port ");
    let certificate = text(&scratch.path("pair-cert")).to_owned();
    for verified in [
        pair.connects,
        format!("--tls-ca {certificate} --tls-name localhost"),
    ] {
        let from = format!("recv --transport tcp --from 127.0.0.1:{port} --discard-threshold 30s");
        Program::tidegate(&format!("{from} {verified}"))
            .wait()
            .succeeded();
    }
    server.interrupt();
    server.wait().succeeded();
}

#[test]
fn peers_without_tls_and_impostors_are_refused() {
    let scratch = Scratch::new("tls-other");
    let (pair, other) = (Pair::new(&scratch, "pair"), Pair::new(&scratch, "other"));
    let (mut player, port) = player(&pair.listens);
    // A stream without TLS.
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain
        .write_all(&[0, 12, 0x80, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1])
        .unwrap();
    player.wait_for_line("failed the TLS handshake");
    // The port belongs to another certificate.
    let wrong = server(&format!("{} {}", to(port), other.connects)).wait();
    wrong.failed_with(&format!("its fingerprint is {}", &pair.connects[18..]));
    player.wait_for_line("failed the TLS handshake");
    let unnamed = format!("--tls-ca {}", text(&scratch.path("pair-cert")));
    let wrong = server(&format!("{} {unnamed}", to(port))).wait();
    wrong.failed_with("check --tls-fingerprint or --tls-ca");
    // A connection without a handshake holds nothing.
    let mut silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    server(&format!("{} {}", to(port), pair.connects))
        .wait()
        .succeeded();
    player.wait().succeeded();
    assert!(silent.read(&mut [0]).map_or(true, |count| count == 0));

    // A listening end without TLS, and one that does not answer.
    let (player, port) = program::player("");
    let refused = server(&format!("{} {}", to(port), pair.connects)).wait();
    refused.failed_with("does it have --tls-cert?");
    player.interrupt();
    player.wait().succeeded();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = mute.local_addr().unwrap().port();
    let refused = server(&format!("{} {}", to(port), pair.connects)).wait();
    refused.failed_with("did not complete the TLS handshake in time");
}

#[test]
fn a_listening_end_serves_only_verified_ends() {
    let scratch = Scratch::new("tls-clients");
    let [pair, camera, stranger] =
        ["pair", "camera", "stranger"].map(|name| Pair::new(&scratch, name));
    let (mut player, port) = player(&format!("{} {}", pair.listens, camera.admits));
    for shown in ["", &stranger.listens] {
        let refused = server(&format!("{} {} {shown}", to(port), pair.connects)).wait();
        refused.failed_with("accepts only ends with a certificate that it knows");
        player.wait_for_line("failed the TLS handshake");
    }
    server(&format!(
        "{} {} {}",
        to(port),
        pair.connects,
        camera.listens
    ))
    .wait()
    .succeeded();
    let player = player.wait();
    let said = &player.succeeded().said;
    assert!(!said.contains("received 0 "), "{said}");

    // A server of players, with the certificate as its own authority.
    let admitted = format!("--tls-client-ca {}", text(&scratch.path("camera-cert")));
    let mut server = server(&format!("--serve 127.0.0.1:0 {} {admitted}", pair.listens));
    let port = server.number("waiting for players at port ");
    let from = format!("recv --transport tcp --from 127.0.0.1:{port} --discard-threshold 30s");
    let from = format!("{from} {}", pair.connects);
    Program::tidegate(&format!("{from} {}", stranger.listens))
        .wait()
        .failed_with("accepts only ends with a certificate that it knows");
    Program::tidegate(&format!("{from} {}", camera.listens))
        .wait()
        .succeeded();
    server.interrupt();
    server.wait().succeeded();
}

#[test]
fn other_hosts_need_tls_or_the_user_s_word() {
    let scratch = Scratch::new("tls-needed");
    let pair = Pair::new(&scratch, "pair");
    for (line, fix) in [
        ("send --transport tcp --to 192.0.2.1:9", "or --insecure"),
        (
            "recv --transport tcp --from 192.0.2.1:9",
            "--tls-fingerprint",
        ),
        ("recv --transport tcp --listen 0", "listen at 127.0.0.1:"),
        ("send --transport tcp --serve 0.0.0.0:0", "--tls-cert"),
        (
            "transcode --listen 127.0.0.1:0 --to 192.0.2.1:9",
            "or --insecure",
        ),
        ("transcode --listen 0 --to 127.0.0.1:9", "--insecure"),
    ] {
        let ended = Program::tidegate(line).wait();
        ended.failed_with(fix);
        assert!(!ended.said.contains("waiting"), "{}", ended.said);
    }
    for permitted in ["--insecure", &pair.listens] {
        let line = format!("recv --transport tcp --listen 0 --duration 100ms {permitted}");
        let ended = Program::tidegate(&line).wait();
        ended.failed_with("no sender connected in 0.1 s");
    }
}

#[test]
fn tls_options_without_effect_are_refused() {
    let scratch = Scratch::new("tls-options");
    let pair = Pair::new(&scratch, "pair");
    let Pair {
        listens,
        connects,
        admits,
    } = &pair;
    for (line, fix) in [
        (
            format!("send --transport tcp --to 127.0.0.1:9 {listens}"),
            "have no effect without TLS",
        ),
        (
            format!("send --transport tcp --to 127.0.0.1:9 {connects} {listens} {admits}"),
            "for the listening end",
        ),
        (
            format!("recv --listen 127.0.0.1:0 {listens} {admits}"),
            "requires --transport tcp",
        ),
        (
            format!("recv --transport tcp --listen 127.0.0.1:0 {connects}"),
            "for the connecting end",
        ),
        (
            format!("recv --listen 127.0.0.1:0 {listens}"),
            "requires --transport tcp",
        ),
        (
            format!("send --to 127.0.0.1:9 {connects}"),
            "requires --transport tcp",
        ),
        (format!("certificate {listens}"), "choose other files"),
        (
            "send --transport tcp --serve 127.0.0.1:0 --tls-cert /nosuch --tls-key /nosuch".into(),
            "cannot read /nosuch",
        ),
    ] {
        Program::tidegate(&line).wait().failed_with(fix);
    }
    let malformed = "send --transport tcp --to 127.0.0.1:9 --tls-fingerprint abc";
    let malformed = Program::tidegate(malformed).wait();
    assert!(
        malformed.said.contains("64 hexadecimal digits"),
        "{}",
        malformed.said
    );
}
