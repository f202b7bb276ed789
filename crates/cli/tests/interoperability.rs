//! Rates that `tidegate send` reaches with the receivers of other projects, on a free path.

#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

use std::io::{self, Write as _};
use std::process::Command;
use std::{fs, thread};

use program::{Program, Scratch, free_pair, load, text};
use tidegate_core::units::{Bytes, Rate, Time};

/// `GStreamer`'s receivers get at least 80 % of the rate of ours: with receiver reports only, and
/// with transport-wide feedback.
#[test]
fn receivers_of_gstreamer_get_the_rate_of_ours() {
    if !has_gstreamer() {
        return;
    }
    let [ours, reports, transport] = [ours, reports, transport]
        .map(thread::spawn)
        .map(|run| run.join().unwrap());
    for (what, rate) in [("receiver reports", reports), ("transport-cc", transport)] {
        assert!(rate >= ours.scale(4, 5), "{what}: {rate} instead of {ours}");
    }
}

fn has_gstreamer() -> bool {
    for element in ["rtpbin", "rtph264depay"] {
        let found = Command::new("gst-inspect-1.0").arg(element).output();
        if !found.is_ok_and(|found| found.status.success()) {
            // The test harness captures the output of passing tests.
            let mut terminal = io::stderr();
            writeln!(terminal, "not judged: GStreamer has no {element} here").unwrap();
            return false;
        }
    }
    true
}

fn ours() -> Rate {
    let mut receiver = Program::tidegate("recv --listen 127.0.0.1:0");
    let port = receiver.number("waiting for a stream at port ");
    let rate = rate(port, free_pair(), "recv");
    receiver.wait().succeeded();
    rate
}

fn reports() -> Rate {
    gstreamer("reports", "", "")
}

fn transport() -> Rate {
    let uri = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
    let caps = format!(",extmap-1=(string){uri},rtcp-fb-transport-cc=(boolean)true");
    gstreamer("transport", "rtp-profile=avpf", &caps)
}

fn gstreamer(name: &str, profile: &str, caps: &str) -> Rate {
    let (media, source) = (free_pair(), free_pair());
    let format = "application/x-rtp,media=video,clock-rate=90000,encoding-name=H264,payload=96";
    let mut command = Command::new("gst-launch-1.0");
    command.args(["-q", "rtpbin", "name=b"]);
    command.args(profile.split_whitespace());
    command.args(["udpsrc", &format!("port={media}")]);
    command.arg(format!("caps={format}{caps}"));
    command.args("! b.recv_rtp_sink_0 b. ! rtph264depay ! fakesink sync=false".split(' '));
    command.args("b.send_rtcp_src_0 ! udpsink host=127.0.0.1 sync=false async=false".split(' '));
    command.arg(format!("port={}", source + 1));
    let _player = Program::start(&mut command);
    rate(media, source, name)
}

/// Rate of a stream to `port` in its last seconds.
fn rate(port: u16, source: u16, name: &str) -> Rate {
    let scratch = Scratch::new(&format!("interoperability-{name}"));
    let [run, description] = ["run", "stream.sdp"].map(|n| scratch.path(n));
    let sent = Program::tidegate(&format!(
        "send --to 127.0.0.1:{port} --local-port {source} --insecure --sdp {} --run {} --size \
         320x180 --preset ultrafast --ceiling 2Mb/s --duration {END}s",
        text(&description),
        text(&run)
    ));
    sent.wait().succeeded();
    let description = fs::read_to_string(&description).unwrap();
    assert!(description.contains("a=rtcp-fb:* transport-cc"));
    let run = load(&run);
    let late = Time::from_secs(START)..Time::from_secs(END);
    let packets = run.flows[0].packets.iter();
    let bytes: u64 = packets
        .filter(|p| late.contains(&p.sent))
        .map(|p| p.size.get())
        .sum();
    Bytes(bytes) / (Time::from_secs(END).since(Time::from_secs(START)))
}

/// `GStreamer`'s first two reports arrive within 10 s (RFC 3550 section 6.3.1): half of 6.2 s, and
/// 6.2 s.
const START: u64 = 10;
const END: u64 = 14;
