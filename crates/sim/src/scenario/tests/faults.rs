//! Errors of scenario files and their messages.

use super::{GOOD, links, parse};

#[test]
fn errors_name_line_key_and_fix() {
    for (from, to, message) in FAULTS.iter().chain(links::FAULTS) {
        assert!(GOOD.contains(from), "{from} is not in the good file");
        let error = parse(&GOOD.replacen(from, to, 1)).expect_err(to);
        assert_eq!(error.to_string(), *message);
    }
}

const FAULTS: &[(&str, &str, &str)] = &[
    (
        r#"name = "demo""#,
        "name = ",
        "demo.toml:1: invalid TOML: string values must be quoted, expected literal string",
    ),
    (
        r#"name = "demo""#,
        r#"nam = "demo""#,
        r#"demo.toml:1: nam: no such key; did you mean "name"? The keys here are name, about, duration, seed, measure, expect, link, aggregation, flow, baseline, sweep"#,
    ),
    (
        r#"name = "demo"
"#,
        "# no name\n",
        r#"demo.toml:1: name: is missing; add, for example, name = "demo""#,
    ),
    (
        r#"name = "demo""#,
        r#"name = "my demo""#,
        r#"demo.toml:1: name: "my demo" is not a valid name; write at most 40 letters, digits, - and _, a letter first"#,
    ),
    (
        r#"duration = "60s""#,
        "duration = 60",
        r#"demo.toml:3: duration: is a bare number; write a time span in quotes, as "400ms""#,
    ),
    (
        r#"duration = "60s""#,
        r#"duration = "0s""#,
        r#"demo.toml:3: duration: the run has zero length; write a time span above zero, as "400ms""#,
    ),
    (
        r#"duration = "60s""#,
        r#"duration = "1ns""#,
        r#"demo.toml:3: duration: too short for a packet to arrive; write at least "1ms""#,
    ),
    (
        r#"duration = "60s""#,
        r#"duration = "25h""#,
        r#"demo.toml:3: duration: longer than a day; write at most "24h""#,
    ),
    (
        r#"duration = "60s""#,
        r#"duration = "30s""#,
        r#"demo.toml:12: link "uplink": outage: lasts: the outage ends at 52s, but the run ends at 30s; move it forward, shorten it or lengthen the duration"#,
    ),
    (
        "seed = 7",
        "seed = -1",
        "demo.toml:4: seed: -1 is out of range; write a whole number from 0 to 9223372036854775807",
    ),
    (
        "seed = 7",
        r#"seed = "7""#,
        "demo.toml:4: seed: is a text; write a whole number",
    ),
    (
        "seed = 7",
        r#"droptail = "60kB""#,
        r#"demo.toml:4: droptail: no such key; "droptail" belongs in the queue of a link; the keys here are name, about, duration, seed, measure, expect, link, aggregation, flow, baseline, sweep"#,
    ),
    (
        r#"expect = ["tidegate.on_time_of_savable >= 0.9"]"#,
        r#"expect = "tidegate.on_time_of_savable >= 0.9""#,
        r#"demo.toml:5: expect: is a text; write a list of statements in quotes, as ["tidegate.on_time_of_savable >= 0.9"]"#,
    ),
    (
        r#"[[link]]
name = "uplink""#,
        r#"[[lnk]]
name = "uplink""#,
        r#"demo.toml:6: lnk: no such key; did you mean "link"? The keys here are name, about, duration, seed, measure, expect, link, aggregation, flow, baseline, sweep"#,
    ),
    (
        r#"name = "downlink""#,
        r#"name = "uplink""#,
        r#"demo.toml:14: link: name: the name "uplink" is already used in line 7; choose another"#,
    ),
    (
        r#"name = "tidegate""#,
        r#"name = "uplink""#,
        r#"demo.toml:17: flow: name: the name "uplink" is already used in line 7; choose another"#,
    ),
    (
        r#"delay = "40ms""#,
        r#"dealy = "40ms""#,
        r#"demo.toml:9: link: dealy: no such key; did you mean "delay"? The keys here are name, from, to, duplex, rate, delay, jitter, loss, queue, outage, lower_effort"#,
    ),
    (
        r#"delay = "40ms""#,
        r#"delay = "-40ms""#,
        r#"demo.toml:9: link "uplink": delay: "-40ms" is negative; write it as "400ms" (units: ns, us, ms, s, min, h)"#,
    ),
    (
        r#"delay = "40ms""#,
        r#"wobble = "4ms""#,
        "demo.toml:9: link: wobble: no such key; the keys here are name, from, to, duplex, rate, delay, jitter, loss, queue, outage, lower_effort",
    ),
    (
        r#"delay = "40ms""#,
        r#"expect = ["a >= 1"]"#,
        r#"demo.toml:9: link: expect: no such key; "expect" belongs at the head of the file, before the first [[link]]; the keys here are name, from, to, duplex, rate, delay, jitter, loss, queue, outage, lower_effort"#,
    ),
    (
        r#"rate = [["0s", "4Mb/s"], ["20s", "1Mb/s"]]"#,
        r#"rate = [["1s", "4Mb/s"]]"#,
        r#"demo.toml:8: link "uplink": rate: the first step is at 1s, so there is no rate before it; start the first step at "0s""#,
    ),
    (
        r#"rate = [["0s", "4Mb/s"], ["20s", "1Mb/s"]]"#,
        r#"rate = [["0s", "4Mb/s"], ["20s", "1Mb/s"], ["20s", "3Mb/s"]]"#,
        r#"demo.toml:8: link "uplink": rate: the step at 20s does not follow the one at 20s; sort the steps by time, without repetition"#,
    ),
    (
        r#"rate = [["0s", "4Mb/s"], ["20s", "1Mb/s"]]"#,
        r#"rate = [["0s", "4Mb/s"],
  ["20s", "1MB/s"]]"#,
        r#"demo.toml:9: link "uplink": rate: "1MB/s": "MB/s" is not a unit of a rate; write it as "4Mb/s" (units: b/s, kb/s, Mb/s, Gb/s, Tb/s)"#,
    ),
    (
        r#"rate = [["0s", "4Mb/s"], ["20s", "1Mb/s"]]"#,
        r#"rate = [["0s", "4Mb/s"], ["60s", "1Mb/s"]]"#,
        r#"demo.toml:8: link "uplink": rate: the step at 60s is not within the run of 60s; move it forward or lengthen the duration"#,
    ),
    (
        r#"rate = [["0s", "4Mb/s"], ["20s", "1Mb/s"]]"#,
        r#"rate = [["0s", "4Mb/s", 3]]"#,
        r#"demo.toml:8: link "uplink": rate: a step of 3 parts; write the time and the rate, as ["20s", "1Mb/s"]"#,
    ),
    (
        r#"rate = [["0s", "4Mb/s"], ["20s", "1Mb/s"]]"#,
        "rate = []",
        r#"demo.toml:8: link "uplink": rate: there is no step; write a rate from "0s" on"#,
    ),
    (
        r#"rate = [["0s", "4Mb/s"], ["20s", "1Mb/s"]]"#,
        "rate = 4e6",
        r#"demo.toml:8: link "uplink": rate: is a bare number; write a rate as "4Mb/s", steps as [["0s", "4Mb/s"], ["20s", "1Mb/s"]], or { trace = "file" }"#,
    ),
    (
        r#"rate = [["0s", "4Mb/s"], ["20s", "1Mb/s"]]"#,
        r#"rate = "0Mb/s""#,
        r#"demo.toml:8: link "uplink": rate: a link of rate zero carries nothing; for a limited time use outage or steps; write a rate above zero, as "2Mb/s""#,
    ),
    (
        r#"rate = [["0s", "4Mb/s"], ["20s", "1Mb/s"]]"#,
        r#"rate = { trace = "none.mahi" }"#,
        r#"demo.toml:8: link "uplink": rate: trace: cannot read none.mahi: no such file; check the path"#,
    ),
    (
        r#"rate = [["0s", "4Mb/s"], ["20s", "1Mb/s"]]"#,
        r#"rate = { trace = "bad.mahi" }"#,
        r#"demo.toml:8: link "uplink": rate: trace: bad.mahi: line 2 of the trace: `two` is not an integer number of milliseconds (invalid digit found in string)"#,
    ),
    (
        r#"rate = [["0s", "4Mb/s"], ["20s", "1Mb/s"]]
"#,
        "\n",
        r#"demo.toml:11: link "uplink": queue: a link without a rate never queues; add a rate, as rate = "4Mb/s", or remove the queue"#,
    ),
    (
        r#"queue = { droptail = "60kB" }
"#,
        "\n",
        r#"demo.toml:6: link "uplink": queue: is missing; add, for example, queue = { droptail = "60kB" }"#,
    ),
    (
        "loss = 0.001",
        "loss = -0.1",
        r#"demo.toml:10: link "uplink": loss: -0.1 is not between 0 and 1; write a number from 0 to 1, as 0.001 or "0.1%""#,
    ),
    (
        "loss = 0.001",
        "loss = 1.5",
        r#"demo.toml:10: link "uplink": loss: 1.5 is not between 0 and 1; write a number from 0 to 1, as 0.001 or "0.1%""#,
    ),
    (
        "loss = 0.001",
        r#"loss = "150%""#,
        r#"demo.toml:10: link "uplink": loss: 1.5 is not between 0 and 1; write a number from 0 to 1, as 0.001 or "0.1%""#,
    ),
    (
        "loss = 0.001",
        "loss = nan",
        r#"demo.toml:10: link "uplink": loss: NaN is not between 0 and 1; write a number from 0 to 1, as 0.001 or "0.1%""#,
    ),
    (
        r#"droptail = "60kB""#,
        r#"droptail = "0kB""#,
        r#"demo.toml:11: link "uplink": queue: droptail: a queue of zero holds no packet; write at least one packet, as "60kB" or "50 packets""#,
    ),
    (
        r#"droptail = "60kB""#,
        r#"droptail = "0 packets""#,
        r#"demo.toml:11: link "uplink": queue: droptail: a queue of zero holds no packet; write at least one packet, as "60kB" or "50 packets""#,
    ),
    (
        r#"droptail = "60kB""#,
        r#"codel = "60kB""#,
        r#"demo.toml:11: link "uplink": queue: codel: is a text; write { } or { target = "5ms", interval = "100ms" }"#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        "{ }",
        r#"demo.toml:11: link "uplink": queue: the queue has no type; write { droptail = "60kB" }, { red = { … } }, { codel = { } }, { fq_codel = { } }, { dualpi2 = { } } or { priority = "60kB" }"#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        r#"{ red = { min = "60 packets", max = "60 packets", limit = "120 packets" } }"#,
        r#"demo.toml:11: link "uplink": queue: red: max: max (60) is not above min (60); set max to at least twice min"#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        r#"{ red = { min = "20 packets", max = "60 packets" } }"#,
        r#"demo.toml:11: link "uplink": queue: red: limit: is missing; add, for example, limit = "300 packets""#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        r#""60kB""#,
        r#"demo.toml:11: link "uplink": queue: is a text; write { droptail = "60kB" }, { red = { … } }, { codel = { } }, { fq_codel = { } }, { dualpi2 = { } } or { priority = "60kB" }"#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        r#"{ red = { min = "20kB", max = "60 packets", limit = "120 packets" } }"#,
        r#"demo.toml:11: link "uplink": queue: red: min: "20kB": "kB" is not a unit of a number of packets; write it as "50 packets" (units: packets, packet)"#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        r#"{ red = { min = "20 packets", max = "60 packets", limit = "0 packets" } }"#,
        r#"demo.toml:11: link "uplink": queue: red: limit: the number is zero; write at least "1 packet""#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        r#"{ red = { min = "20 packets", max = "60 packets", limit = "120 packets", weight = 0 } }"#,
        r#"demo.toml:11: link "uplink": queue: red: weight: with a weight of zero the average never changes; write 0.002"#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        r#"{ droptail = "60kB", red = { min = "20 packets", max = "60 packets", limit = "120 packets" } }"#,
        r#"demo.toml:11: link "uplink": queue: the queue has two types, droptail and red; write one of them"#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        r#"{ mark_above = "60kB", red = { min = "20 packets", max = "60 packets", limit = "120 packets" } }"#,
        r#"demo.toml:11: link "uplink": queue: mark_above: only a droptail queue has a marking threshold; write ecn = true within red instead"#,
    ),
    (
        r#"name = "fixed""#,
        r#"name = "link""#,
        r#"demo.toml:25: baseline: name: "link" is a keyword of expectations; choose another name"#,
    ),
    (
        r#"["tidegate.on_time_of_savable >= 0.9"]"#,
        r#"["tidegate.speed >= 0.9"]"#,
        r#"demo.toml:5: expect: "tidegate.speed >= 0.9": there is no metric "speed"; use one of rate_bps, receive_bps, loss, loss_event_rate, rtt_ms, completion_s, packet_delay_ms.mean, packet_delay_ms.p50, packet_delay_ms.p95, packet_delay_ms.p99, packet_delay_ms.max, delay_ms.p50, delay_ms.p95, delay_ms.p99, delay_ms.max, queue_ms.mean, queue_ms.p95, frames.made, frames.sent, frames.on_time, frames.savable, frames.late, frames.dropped, on_time_of_savable, on_time_of_all, psnr_y_db, ssim, freezes"#,
    ),
    (
        r#"["tidegate.on_time_of_savable >= 0.9"]"#,
        r#"["tidegate.completion_s <= 9"]"#,
        r#"demo.toml:5: expect: "tidegate.completion_s <= 9": only flows with a limit have completion_s, unlike "tidegate": compare another number, or remove it"#,
    ),
    (
        r#"["tidegate.on_time_of_savable >= 0.9"]"#,
        r#"["uplink.drops <= 3"]"#,
        r#"demo.toml:5: expect: "uplink.drops <= 3": "drops" is a number of links: write link.NAME.drops"#,
    ),
    (
        r#"["tidegate.on_time_of_savable >= 0.9"]"#,
        r#"[
"fixed.freezes <= 3",
"nobody.freezes <= 3"]"#,
        r#"demo.toml:7: expect: "nobody.freezes <= 3": there is nothing named "nobody"; use one of tidegate, fixed"#,
    ),
    (
        r#"control = "tfrc""#,
        "control = { tfrc = { dampen = true } }",
        r#"demo.toml:20: flow "tidegate": control: tfrc: dampen: no such key; did you mean "damping"? The keys here are flavour, damping, discounting, packet_size, tick, slow_increase, initial_window, first_rate, intervals, discount_floor, start"#,
    ),
    (
        r#"control = "tfrc""#,
        r#"control = { tfrc = { packet_size = "big" } }"#,
        r#"demo.toml:20: flow "tidegate": control: tfrc: packet_size: "big" is not known here; use "mean" or "nominal""#,
    ),
    (
        r#"control = "tfrc""#,
        r#"control = { tfrc = {}, fixed = "1Mb/s" }"#,
        r#"demo.toml:20: flow "tidegate": control: exactly one controller is needed; write "tfrc", { tfrc = { … } }, "rap", { rap = { … } }, "rcs", { rcs = { … } }, "tide", { tide = { … } } or { fixed = "2Mb/s" }"#,
    ),
    (
        r#"lasts = "2s""#,
        r#"lasts = "20s""#,
        r#"demo.toml:12: link "uplink": outage: lasts: the outage ends at 70s, but the run ends at 60s; move it forward, shorten it or lengthen the duration"#,
    ),
    (
        r#"lasts = "2s""#,
        r#"lasts = "0s""#,
        r#"demo.toml:12: link "uplink": outage: lasts: the outage has zero length; write a time span above zero, as "400ms""#,
    ),
    (
        r#"lasts = "2s" }"#,
        r#"lasts = "2s" }, { at = "51s", lasts = "2s" }"#,
        r#"demo.toml:12: link "uplink": outage: at: the outage at 51s begins before the previous one ends; sort the outages and remove overlaps"#,
    ),
    (
        r#"{ at = "50s", lasts = "2s" }"#,
        r#"{ from = "50s", lasts = "2s" }"#,
        r#"demo.toml:12: link "uplink": outage: from: no such key; "from" belongs in a [[link]]; the keys here are at, lasts"#,
    ),
    (
        r#"path = ["uplink"]"#,
        r#"path = ["upling"]"#,
        r#"demo.toml:18: flow "tidegate": path: there is no link "upling"; use "uplink" or "downlink""#,
    ),
    (
        r#"path = ["uplink"]"#,
        "path = []",
        r#"demo.toml:18: flow "tidegate": path: the list is empty; name at least one, as ["uplink"]"#,
    ),
    (
        r#"path = ["uplink"]"#,
        r#"path = ["uplink", "uplink"]"#,
        r#"demo.toml:18: flow "tidegate": path: the link "uplink" occurs twice; list each link once, in order of travel"#,
    ),
    (
        r#"path = ["uplink"]"#,
        r#"path = "uplink""#,
        r#"demo.toml:18: flow "tidegate": path: is a text; write a list of link names, as ["uplink"]"#,
    ),
    (
        r#"path = ["uplink"]"#,
        r#"path = ["downlink"]"#,
        r#"demo.toml:6: link: no flow uses the link "uplink"; name it in the path or back of a flow, or remove it"#,
    ),
    (
        r#"control = "tfrc""#,
        r#"control = { tfrc = { tick = "10ms" } }"#,
        r#"demo.toml:20: flow "tidegate": control: tfrc: tick: RFC 5348 has no such option; remove it, or add flavour = "rfc3448""#,
    ),
    (
        r#"control = "tfrc""#,
        r#"control = "bbr""#,
        r#"demo.toml:20: flow "tidegate": control: there is no controller "bbr"; write "tfrc", { tfrc = { … } }, "rap", { rap = { … } }, "rcs", { rcs = { … } }, "tide", { tide = { … } } or { fixed = "2Mb/s" }"#,
    ),
    (
        r#"control = "tfrc""#,
        r#"control = { fixed = "0Mb/s" }"#,
        r#"demo.toml:20: flow "tidegate": control: fixed: the rate is zero; write a rate above zero, as "2Mb/s""#,
    ),
    (
        r#"control = "tfrc""#,
        r#"transport = { tcp = "cubic" }"#,
        r#"demo.toml:20: flow "tidegate": transport: mode: is missing; add, for example, mode = "iopt""#,
    ),
    (
        r#"control = "tfrc""#,
        "control = 2",
        r#"demo.toml:20: flow "tidegate": control: is a bare number; write "tfrc", { tfrc = { … } }, "rap", { rap = { … } }, "rcs", { rcs = { … } }, "tide", { tide = { … } } or { fixed = "2Mb/s" }"#,
    ),
    (
        r#"ceiling = "6Mb/s" }"#,
        r#"ceiling = "6Mb/s", pause = [{ at = "50s", lasts = "11s" }] }"#,
        r#"demo.toml:21: flow "tidegate": video: pause: lasts: the pause ends at 61s, but the flow stops at 60s; move it forward or shorten it; to end the flow, use stop"#,
    ),
    (
        r#"ceiling = "6Mb/s" }"#,
        r#"ceiling = "6Mb/s", pause = [{ at = "5s", lasts = "6s" }, { at = "10s", lasts = "1s" }] }"#,
        r#"demo.toml:21: flow "tidegate": video: pause: at: the pause at 10s begins before the previous one ends; sort the pauses and remove overlaps"#,
    ),
    (
        r#"ceiling = "6Mb/s" }"#,
        r#"ceiling = "6Mb/s", pause = [{ at = "5s" }] }"#,
        r#"demo.toml:21: flow "tidegate": video: pause: lasts: is missing; add, for example, lasts = "20s""#,
    ),
    (
        r#"control = "tfrc"
video = { size = "640x360", fps = 30, encoder = "model", floor = "150kb/s", ceiling = "6Mb/s" }
delay_bound = "400ms""#,
        r#"web = { page = ["1MB", "100kB"], think = "10s" }"#,
        r#"demo.toml:20: flow "tidegate": web: page: the largest is not above the smallest; write the smallest first, as ["100kB", "1MB"]"#,
    ),
    (
        r#"control = "tfrc"
video = { size = "640x360", fps = 30, encoder = "model", floor = "150kb/s", ceiling = "6Mb/s" }
delay_bound = "400ms""#,
        r#"web = { page = "100kB", objects = 30 }"#,
        r#"demo.toml:20: flow "tidegate": web: objects: page is the size of a page of one object; write either page, or objects and object"#,
    ),
    (
        r#"control = "tfrc"
video = { size = "640x360", fps = 30, encoder = "model", floor = "150kb/s", ceiling = "6Mb/s" }
delay_bound = "400ms""#,
        r#"web = { tcp = "cubic" }"#,
        r#"demo.toml:20: flow "tidegate": web: tcp: web servers use a TCP model of ns-2; choose kind = "newreno", "reno" or "sack""#,
    ),
    (
        r#"control = "tfrc"
video = { size = "640x360", fps = 30, encoder = "model", floor = "150kb/s", ceiling = "6Mb/s" }
delay_bound = "400ms""#,
        r#"udp = { rate = "36kb/s", packet = "50B" }"#,
        r#"demo.toml:20: flow "tidegate": udp: packet: a packet of 50 B; write a size from "64B" to "1500B""#,
    ),
    (
        r#"control = "tfrc"
video = { size = "640x360", fps = 30, encoder = "model", floor = "150kb/s", ceiling = "6Mb/s" }
delay_bound = "400ms""#,
        r#"tcp = { kind = "cubic", limit = "0B" }"#,
        r#"demo.toml:20: flow "tidegate": tcp: limit: a flow needs data to send; write a size above zero, as "60kB", or remove it to send without end"#,
    ),
    (
        r#"control = "tfrc"
video = { size = "640x360", fps = 30, encoder = "model", floor = "150kb/s", ceiling = "6Mb/s" }
delay_bound = "400ms""#,
        r#"bulk = { packet = "1200B", limit = "0B" }
control = "tfrc""#,
        r#"demo.toml:20: flow "tidegate": bulk: limit: a flow needs data to send; write a size above zero, as "60kB", or remove it to send without end"#,
    ),
    (
        r#"control = "tfrc"
video = { size = "640x360", fps = 30, encoder = "model", floor = "150kb/s", ceiling = "6Mb/s" }
delay_bound = "400ms""#,
        r#"tcp = { kind = "cubic" }
yielding = true"#,
        r#"demo.toml:21: flow "tidegate": yielding: only a video with rate control over RTP has a delay bound that can yield; leave it out, or send video = { … } with control = "tfrc""#,
    ),
    (
        r#"delay_bound = "400ms""#,
        r#"delay_bound = "0ms""#,
        r#"demo.toml:22: flow "tidegate": delay_bound: a delay bound of zero cannot be met; write a time span above zero, as "400ms""#,
    ),
    (
        r#"delay_bound = "400ms"
"#,
        "\n",
        r#"demo.toml:16: flow "tidegate": delay_bound: is missing; add, for example, delay_bound = "400ms""#,
    ),
    (
        r#"delay_bound = "400ms""#,
        r#"bulk = { packet = "1200B" }"#,
        r#"demo.toml:16: flow "tidegate": the flow has bulk and video; write one of video = { … }, bulk = { packet = "1200B" }, tcp = { … }, udp = { … }, cp = { … } and web = { … }"#,
    ),
    (
        r#"start = "0s""#,
        r#"start = "61s""#,
        r#"demo.toml:23: flow "tidegate": start: 61s is after the end of the run at 60s; choose an earlier time or lengthen the duration"#,
    ),
    (
        r#"start = "0s""#,
        r#"start = "10s"
stop = "10s""#,
        r#"demo.toml:24: flow "tidegate": stop: the flow stops at 10s, not after its start at 10s; choose a later stop"#,
    ),
    (
        r#"floor = "150kb/s""#,
        r#"floor = "0b/s""#,
        r#"demo.toml:21: flow "tidegate": video: floor: an encoder needs a rate above zero; write a rate above zero, as "2Mb/s""#,
    ),
    (
        r#"ceiling = "6Mb/s""#,
        r#"ceiling = "100kb/s""#,
        r#"demo.toml:21: flow "tidegate": video: ceiling: the ceiling, 100 kb/s, is below the floor, 150 kb/s; raise the ceiling or lower the floor"#,
    ),
    (
        r#"size = "640x360""#,
        r#"size = "641x360""#,
        r#"demo.toml:21: flow "tidegate": video: size: "641x360" is not a valid picture size; write width and height in pixels, even, from 16 to 4096, as "640x360""#,
    ),
    (
        "fps = 30",
        "fps = 0",
        r#"demo.toml:21: flow "tidegate": video: fps: 0 is out of range; write a whole number from 1 to 240"#,
    ),
    (
        "fps = 30",
        r#"fps = "30/0""#,
        r#"demo.toml:21: flow "tidegate": video: fps: "30/0" is not a valid frame rate; write frames per second from 1 to 240, as 30 or "30000/1001""#,
    ),
    (
        r#"encoder = "model""#,
        r#"encoder = "h265""#,
        r#"demo.toml:21: flow "tidegate": video: encoder: "h265" is not known here; use "model" or "x264" or "mpeg2""#,
    ),
    (
        r#"of = "tidegate""#,
        r#"of = "nobody""#,
        r#"demo.toml:26: baseline "fixed": of: there is no single flow with video "nobody"; use "tidegate""#,
    ),
    (
        r#"rate = "mean""#,
        r#"rate = "median""#,
        r#"demo.toml:27: baseline "fixed": rate: "median" is not known here; use "mean" or "2Mb/s""#,
    ),
    (
        r#"rate = "mean""#,
        r#"rate = "0b/s""#,
        r#"demo.toml:27: baseline "fixed": rate: a stream of rate zero sends nothing; write a rate above zero, as "2Mb/s""#,
    ),
    (
        "rate = \"mean\"\n",
        "\n",
        r#"demo.toml:24: baseline "fixed": nothing differs from the flow; write one of rate = "mean", control = "tfrc" and transport = { … }"#,
    ),
    (
        r#"rate = "mean""#,
        "rate = \"mean\"\ncontrol = \"rap\"",
        r#"demo.toml:24: baseline "fixed": it is sent in two ways; write one of rate = "mean", control = "tfrc" and transport = { … }"#,
    ),
    (
        "encoder = \"model\"",
        "buffer = \"0B\"",
        r#"demo.toml:21: flow "tidegate": video: buffer: a buffer without room; write "none", or a size, as "2kB""#,
    ),
    (
        "encoder = \"model\"",
        "packet = \"2kB\"",
        r#"demo.toml:21: flow "tidegate": video: packet: a packet of 2000 B; write a size from "200B" to "1500B""#,
    ),
];
