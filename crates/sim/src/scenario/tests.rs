mod faults;
mod links;
mod prior;
mod tcp;

use proptest::prelude::*;

use tidegate_core::controller::fixed::FixedConfig;
use tidegate_core::controller::rap::RapConfig;
use tidegate_core::controller::tfrc::{PacketSize, TfrcConfig};
use tidegate_core::link::{Capacity, DropTailConfig, LinkId, Network, RouteId};
use tidegate_core::units::Time;

use super::*;
use crate::model_flow::Workload;
use crate::ns2::tfrc::Ns2TfrcConfig;
use crate::topology;
use crate::world::SimPacket;

/// A correct file; tests replace one of its lines.
const GOOD: &str = r#"name = "demo"
about = "a line"
duration = "60s"
seed = 7
expect = ["tidegate.on_time_of_savable >= 0.9"]
[[link]]
name = "uplink"
rate = [["0s", "4Mb/s"], ["20s", "1Mb/s"]]
delay = "40ms"
loss = 0.001
queue = { droptail = "60kB" }
outage = [{ at = "50s", lasts = "2s" }]
[[link]]
name = "downlink"
delay = "40ms"
[[flow]]
name = "tidegate"
path = ["uplink"]
back = ["downlink"]
control = "tfrc"
video = { size = "640x360", fps = 30, encoder = "model", floor = "150kb/s", ceiling = "6Mb/s" }
delay_bound = "400ms"
start = "0s"
[[baseline]]
name = "fixed"
of = "tidegate"
rate = "mean"
"#;

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse("demo.toml", text, &|name| match name {
        "good.mahi" => Ok("1\n2\n3\n".to_owned()),
        "bad.mahi" => Ok("1\ntwo\n".to_owned()),
        "good.csv" => Ok("t_s,mbps,rtt_ms,loss\n0,4,40,0\n0.5,2,60,0.1\n1,4,40,0\n".to_owned()),
        "bad.csv" => Ok("t_s,mbps\n0,4\n0,3\n".to_owned()),
        _ => Err("no such file".to_owned()),
    })
}

#[test]
fn valid_file_is_parsed() {
    let plan = parse(GOOD).unwrap();
    let ms = Duration::from_millis;
    assert_eq!(plan.seed, Seed(7));
    assert_eq!(plan.duration, ms(60_000));
    assert_eq!(plan.expect[0].text(), "tidegate.on_time_of_savable >= 0.9");
    let up = &plan.links[0];
    assert_eq!(
        up.rate,
        Some(RatePlan::Steps(vec![
            (ms(0), Rate::kbps(4_000)),
            (ms(20_000), Rate::kbps(1_000))
        ]))
    );
    assert_eq!(
        up.queue,
        Some(QueueConfig::DropTail(DropTailConfig::bytes(Bytes(60_000))))
    );
    assert_eq!(
        up.outages,
        [Outage {
            from: Time::from_secs(50),
            to: Time::from_secs(52)
        }]
    );
    let flow = plan.flow("tidegate").unwrap();
    assert_eq!(
        (flow.path.as_slice(), flow.back.as_slice()),
        (&[0][..], &[1][..])
    );
    assert_eq!((flow.start, flow.stop), (ms(0), ms(60_000)));
    assert_eq!(plan.round_trip(flow), ms(80));
    let video = flow.media.video().unwrap();
    assert_eq!(
        (video.width, video.height, video.delay_bound),
        (640, 360, ms(400))
    );
    assert_eq!(plan.baselines[0].sender, BaselineSender::Mean);
    assert_eq!(video.packet, Bytes(1_200));
}

#[test]
fn a_baseline_has_another_controller_or_tcp() {
    let base = |key: &str| parse(&GOOD.replace("rate = \"mean\"", key)).unwrap();
    let plan = base("control = \"rap\"");
    let rap = ControllerConfig::from(RapConfig::default());
    let flow = plan.baseline_flow(&plan.baselines[0]);
    assert_eq!(
        (&flow.control, &flow.name),
        (&Some(rap), &plan.flows[0].name)
    );
    assert_eq!(flow.media, plan.flows[0].media);
    assert_eq!(plan.flow_infos()[1].control, "rap");

    let plan = base("transport = { tcp = \"prague\", mode = \"iopt\" }");
    let flow = plan.baseline_flow(&plan.baselines[0]);
    assert!(flow.media.video().unwrap().stream.is_some() && flow.control.is_none());
    assert_eq!(flow.ecn, Ecn::Ect1);
    let both = plan.flows_and_baselines();
    let names: Vec<&str> = both.iter().map(|flow| flow.name.as_str()).collect();
    assert_eq!(names, ["tidegate", "fixed"]);
    assert!(plan.flows[0].media.video().unwrap().stream.is_none());

    // Packets of TCP have 1,500 bytes.
    let small = GOOD.replace("60kB", "1400B");
    assert!(parse(&small).is_ok());
    let small = small.replace(
        "rate = \"mean\"",
        "transport = { tcp = \"cubic\", mode = \"iopt\" }",
    );
    let error = parse(&small).unwrap_err().to_string();
    assert!(
        error.contains("1500 B, which the flow \"fixed\" sends"),
        "{error}"
    );
}

#[test]
fn alternative_forms_are_parsed() {
    let with = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        parse(&GOOD.replace(from, to)).unwrap()
    };
    let rate = r#"rate = [["0s", "4Mb/s"], ["20s", "1Mb/s"]]"#;
    assert_eq!(
        with(rate, "rate = \"4Mb/s\"").links[0].rate,
        Some(RatePlan::Fixed(Rate::kbps(4_000)))
    );
    let traced = with(rate, "rate = { trace = \"good.mahi\" }");
    let Some(RatePlan::Trace(trace)) = &traced.links[0].rate else {
        panic!("{:?}", traced.links[0].rate);
    };
    assert_eq!(trace.millis, [1, 2, 3]);
    let queue = "queue = { droptail = \"60kB\" }";
    let red = "queue = { red = { min = \"25 packets\", max = \"75 packets\", limit = \"150 packets\", ecn = true } }";
    let Some(QueueConfig::Red(red)) = with(queue, red).links[0].queue else {
        panic!("no RED");
    };
    assert!(red.ecn && red.gentle && red.limit == 150 && red.max_threshold > 74.9);
    let marking = "queue = { droptail = \"50 packets\", mark_above = \"20kB\" }";
    assert_eq!(
        with(queue, marking).links[0].queue,
        Some(QueueConfig::DropTail(DropTailConfig {
            mark_above: Some(Bytes(20_000)),
            ..DropTailConfig::packets(50)
        }))
    );
    let control = "control = \"tfrc\"";
    assert_eq!(
        with(control, "control = { fixed = \"2Mb/s\" }").flows[0].control,
        Some(ControllerConfig::from(FixedConfig {
            rate: Rate::kbps(2_000)
        }))
    );
    assert_eq!(
        with(control, "control = \"rap\"").flows[0].control,
        Some(ControllerConfig::from(RapConfig::default()))
    );
    let fine = "control = { rap = { fine_grain = true } }";
    assert_eq!(
        with(control, fine).flows[0].control,
        Some(ControllerConfig::from(RapConfig {
            fine_grain: true,
            ..RapConfig::default()
        }))
    );
    let damped = "control = { tfrc = { damping = true, packet_size = \"nominal\" } }";
    assert_eq!(
        with(control, damped).flows[0].control,
        Some(ControllerConfig::from(TfrcConfig {
            damping: true,
            packet_size: PacketSize::Nominal,
            ..TfrcConfig::default()
        }))
    );
    let older = "control = { tfrc = { flavour = \"rfc3448\", tick = \"10ms\", initial_window = 1, slow_increase = false, intervals = 16, discount_floor = 0.25, first_rate = \"8kb/s\" } }";
    assert_eq!(
        with(control, older).flows[0].control,
        Some(ControllerConfig::from(Ns2TfrcConfig {
            tick: Duration::from_millis(10),
            initial_window: Some(1.0),
            slow_increase: false,
            intervals: 16,
            discount_floor: 0.25,
            first_rate: Rate::kbps(8),
            ..Ns2TfrcConfig::default()
        }))
    );
    let percent = with("loss = 0.001", "loss = \"0.1%\"").links[0]
        .loss
        .clone();
    assert!((percent.mean() - 0.001).abs() < 1e-12, "{percent:?}");
    let ntsc = with("fps = 30", "fps = \"30000/1001\"");
    let video = ntsc.flows[0].media.video().unwrap();
    assert_eq!(
        video.frame_rate,
        FrameRate {
            num: 30_000,
            den: 1_001
        }
    );
    let mut bulk = GOOD.split("[[baseline]]").next().unwrap().to_owned();
    bulk.push_str("[[flow]]\nname = \"bulk\"\npath = [\"uplink\"]\nback = [\"downlink\"]\ncontrol = \"tfrc\"\nbulk = { packet = \"1200B\" }\nstop = \"30s\"\n");
    let bulk = parse(&bulk).unwrap();
    assert_eq!(
        bulk.flows[1].media,
        MediaPlan::Bulk(BulkPlan {
            packet: Bytes(1_200),
            workload: Workload::Greedy,
            overhead: Duration::ZERO,
        })
    );
}

#[test]
fn topology_lists_all_links() {
    assert_eq!(
        parse(GOOD).unwrap().topology(),
        "tidegate --- [uplink] -----> receiver
         <--- [downlink] ---
uplink    4.00 Mb/s, 1.00 Mb/s from 20s; droptail 60 kB; delay 40ms; loss 0.001; dark 50s to 52s
downlink  no limit; delay 40ms
"
    );
}

#[test]
fn plan_yields_network_and_manifest() {
    let plan = parse(GOOD).unwrap();
    let config = topology::network(&plan, &topology::flow_instances(&plan, plan.seed)).unwrap();
    assert_eq!(
        (topology::path_of(0), topology::back_of(0)),
        (RouteId(0), RouteId(1))
    );
    assert_eq!(config.routes, [[LinkId(0)], [LinkId(1)]]);
    assert_eq!(config.links[1].config.capacity, Capacity::Unlimited);
    let network = Network::<SimPacket>::new(&config, plan.seed).unwrap();
    let at = |secs| network.capacity(LinkId(0)).rate_at(Time::from_secs(secs));
    assert_eq!(
        (at(0), at(30)),
        (Some(Rate::kbps(4_000)), Some(Rate::kbps(1_000)))
    );
    let links = plan.link_infos();
    assert_eq!(links[0].capacity_at(Time::from_secs(30)), at(30));
    assert_eq!(links[0].capacity_at(Time::from_secs(51)), Some(Rate::ZERO));
    assert_eq!(
        (links[0].queue.as_str(), links[1].queue.as_str()),
        ("droptail 60 kB", "")
    );
    let road = plan.path_hops(&plan.flows[0]);
    assert_eq!((road.len(), road[0].queue), (1, Some(Bytes(60_000))));
    assert_eq!(
        road[0].outages,
        [(Time::from_secs(50), Time::from_secs(52))]
    );
    let flows = plan.flow_infos();
    assert_eq!(flows.len(), 2);
    assert!(flows[1].baseline && flows[1].name == "fixed" && !flows[0].baseline);
    assert_eq!(flows[1].delay_bound, Some(Duration::from_millis(400)));
    let way = &flows[1].way;
    assert_eq!(way.path, [links[0].name.as_str()]);
    assert_eq!(way.back, [links[1].name.as_str()]);
    assert_eq!(way.access, None);
}

#[test]
fn trace_is_displayed_as_mean_rate() {
    let rate = "rate = [[\"0s\", \"4Mb/s\"], [\"20s\", \"1Mb/s\"]]";
    let plan = parse(&GOOD.replace(rate, "rate = { trace = \"good.mahi\" }")).unwrap();
    let info = &plan.link_infos()[0];
    assert_eq!(info.capacity.len(), 120);
    // 1500 bytes every millisecond.
    let rate = info.capacity_at(Time::from_secs(30)).unwrap().as_f64();
    assert!((rate / 12e6 - 1.0).abs() < 0.01, "{rate}");
    assert!(plan.topology().contains("good.mahi (mean 12.00 Mb/s)"));
}

#[test]
fn file_without_flows_is_rejected() {
    let error = parse("name = \"demo\"\nduration = \"1s\"\nlink = []\nflow = []\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "demo.toml:4: flow: nothing runs; add a [[flow]]"
    );
}

#[test]
fn unreadable_file_is_reported() {
    let error = Scenario::load(Path::new("no/such.toml"), &crate::controllers()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("no/such.toml: cannot read the file: ")
            && text.ends_with("; check the path"),
        "{text}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_text_never_panics(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }

    /// One value of the valid file is replaced by random text.
    #[test]
    fn invalid_value_never_panics(line in 0_usize..27, value in "[\\-\\[\\]{}=\"0-9a-zA-Z/.%, ]{0,24}", quoted: bool) {
        let lines = GOOD.lines().enumerate().map(|(index, text)| match text.split_once(" = ") {
            Some((key, _)) if index == line && quoted => format!("{key} = \"{}\"\n", value.replace('"', "")),
            Some((key, _)) if index == line => format!("{key} = {value}\n"),
            _ => format!("{text}\n"),
        });
        if let Err(error) = parse(&lines.collect::<String>()) {
            prop_assert!(error.line.is_some(), "{error}");
        }
    }
}
