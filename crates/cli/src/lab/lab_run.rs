//! Hosts, sockets and threads of one run in the lab.

use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use tidegate_core::link::{NetworkConfig, Outage};
use tidegate_core::random::Seed;
use tidegate_core::units::Time;
use tidegate_live::clock::Clock;
use tidegate_live::driver::{Interrupts, StopFlag};
use tidegate_live::emulator::{
    Emulator, EmulatorConfig, EmulatorReport, Host, HostRoute, UnconnectedHosts,
};
use tidegate_live::encoder_thread::EncoderThread;
use tidegate_live::netns::Namespace;
use tidegate_record::{self as record, BIN, EndpointTiming, Timing};
use tidegate_sim::coordination::CpPlan;
use tidegate_sim::flow_endpoints::FlowInstance;
use tidegate_sim::interactive::StreamPlan;
use tidegate_sim::meter::Meter;
use tidegate_sim::runner::RunResult;
use tidegate_sim::scenario::{MediaPlan, TcpPlan, TcpSender, VideoPlan};
use tidegate_sim::topology::{self, back_of, path_of};
use tidegate_sim::traffic::web;

use super::capture::CapturedPacket;
use super::endpoint_load::EndpointLoad;
use super::flow_results::{count_reports, join, meter, passed, settle};
use super::injector::{self, Injector};
use super::kernel::KernelTcp;
use super::netns_pair::{Endpoint, LabPlayer, NetnsPair, RECEIVER, SENDER, StartGate};
use super::partial_run::PartialRun;
use super::records::Records;
use super::service::Service;
use super::sites::{SitePair, Sites};
use super::stream::Sources;
use super::{browsers, bulk, replay, sites, stream};
use crate::run_folder::LoadedScenario;

/// Settings of lab runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LabRun<'a> {
    pub(crate) script: &'a LoadedScenario,
    pub(crate) seed: Seed,
    pub(crate) interrupts: &'a Interrupts,
    /// Source of kernel TCP events.
    pub(crate) service: Option<&'a Service>,
    /// Whether the run ends when all video over TCP has arrived, even if other flows are active.
    pub(crate) ends_with_video: bool,
    /// How an outage interrupts the path of video over TCP.
    pub(crate) injector: Injector,
    /// Run folder while the run lasts.
    pub(crate) partial: Option<&'a PartialRun>,
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct LabResult {
    pub(crate) take: RunResult,
    /// Time of the end or of the interrupt.
    pub(crate) ended: Time,
    /// Whether the run is complete.
    pub(crate) is_whole: bool,
    pub(crate) report: EmulatorReport,
    pub(crate) endpoints: EndpointTiming,
    /// Differences between the plans and the kernel's behaviour.
    pub(crate) notes: Vec<String>,
    /// Forward packets of each flow over kernel TCP.
    pub(super) captures: Vec<(String, Vec<CapturedPacket>)>,
}

impl LabResult {
    /// Whether the emulator and the endpoints met their deadlines.
    pub(crate) fn kept_up(&self) -> bool {
        self.report.kept_up && self.endpoints.kept_up
    }

    /// Timing accuracy of the run.
    pub(crate) fn timing(&self) -> Timing {
        let report = &self.report;
        Timing {
            run: self.take.flows[0].0.name.clone(),
            packets: report.packets,
            p50: report.timing_p50,
            p99: report.timing_p99,
            worst: report.timing_worst,
            read_p99: report.unread_p99,
            lost_unread: report.overruns,
            real_time: report.realtime_priority,
            kept_up: report.kept_up,
            endpoints: Some(self.endpoints),
        }
    }
}

/// How the endpoints of a flow run.
#[derive(Debug)]
enum FlowEndpoints {
    /// As datagram endpoints.
    Datagrams(Box<LabPlayer>),
    /// As a bulk transfer over kernel TCP.
    Bulk(KernelTcp, Box<TcpPlan>),
    /// As browsers that share a host, over kernel TCP.
    Browsers(KernelTcp, Arc<web::Config>),
    /// As a video over kernel TCP.
    Stream(KernelTcp, Box<stream::Sender>),
    /// With sockets of the Coordination Protocol. Contains the number of the flow.
    Coordinated(CpPlan, u16),
}

/// Threads of a flow.
struct FlowThreads {
    sender: Endpoint,
    receiver: Endpoint,
    flag: StopFlag,
    is_stream: bool,
    uses_kernel: bool,
    name: String,
    /// Records of sender and receiver, until the threads end.
    records: [Records; 2],
}

impl FlowThreads {
    /// A stream is finished when it has arrived completely.
    fn are_done(&self) -> bool {
        self.sender.is_finished() && (!self.is_stream || self.receiver.is_finished())
    }
}

/// Where the threads of flows run.
struct Stage<'a> {
    hosts: &'a UnconnectedHosts,
    sites: &'a Sites,
    /// Stop flag of the receivers.
    stop: &'a StopFlag,
    gate: &'a StartGate,
    load: &'a EndpointLoad,
}

impl LabRun<'_> {
    /// Runs `cast`. If the emulator was late despite real-time priority, or an endpoint lacked
    /// processor time, the machine was stalled or busy and the results are unreliable: `again` is
    /// called and the run is repeated once. If the
    /// second run is incomplete, the result is the first one.
    ///
    /// # Errors
    /// As [`play`](Self::play).
    pub(crate) fn play_in_time(
        &self,
        cast: &[FlowInstance],
        progress: &mut dyn FnMut(f64),
        again: &dyn Fn(),
    ) -> Result<LabResult> {
        let mut first = self.play(cast.to_vec(), self.partial, progress)?;
        if first.kept_up() || !first.report.realtime_priority || !first.is_whole {
            return Ok(first);
        }
        again();
        // The folder has the rows of the first run until both are over.
        match self.play(cast.to_vec(), None, progress) {
            Ok(second) if second.is_whole => return Ok(second),
            Ok(_) => {}
            Err(why) => first
                .notes
                .push(format!("the repetition of the run failed: {why:#}")),
        }
        Ok(first)
    }

    /// Plays `cast` through the emulator in real time.
    ///
    /// # Errors
    /// A host, a socket or an encoder failed. The message names the flow.
    fn play(
        &self,
        mut cast: Vec<FlowInstance>,
        partial: Option<&PartialRun>,
        progress: &mut dyn FnMut(f64),
    ) -> Result<LabResult> {
        let scenario = &self.script.scenario;
        browsers::share_hosts(&mut cast);
        let mut network = topology::network(scenario, &cast)?;
        let cuts = self.cuts(&mut network, &cast);
        // The encoders render their scenes before the clock starts.
        let load = EndpointLoad::default();
        let parts = self.parts(&cast, &load)?;
        let notes = kernel_notes(&cast, &parts);
        let unconnected =
            UnconnectedHosts::new(2 * cast.len() as u16).context("cannot make the hosts")?;
        let (stop, gate) = (StopFlag::new()?, StartGate::default());
        let plans = &scenario.aggregations;
        let sites = sites::start(&cast, plans, hosts, &unconnected, self.seed, (&gate, &stop))?;
        let stage = Stage {
            hosts: &unconnected,
            sites: &sites,
            stop: &stop,
            gate: &gate,
            load: &load,
        };
        let (flows, outages) = self.start_flows(&cast, parts, cuts, &stage)?;
        let config = self.emulator(network, &cast);
        let emulator = Emulator::join(unconnected, &config).context("cannot start the emulator")?;
        partial.map_or(Ok(()), |partial| partial.begin(&cast))?;
        gate.open(config.clock);
        let injectors = outages
            .into_iter()
            .map(|(host, cut)| injector::start_blackhole(&host, cut, config.clock, stop.clone()));
        let injectors = injectors.collect::<Result<Vec<_>>>()?;
        self.watch(&flows, config.clock, partial, progress);
        let ended = config.clock.now();
        let is_whole = self.interrupts.count() == 0;
        stop.set();
        for injector in injectors {
            let ended = injector.join();
            ended.map_err(|_| anyhow!("the injector panicked"))??;
        }
        sites::end(sites)?;
        let (mut take, over_tcp) = self.collect(cast, flows)?;
        let (report, log) = emulator.stop()?;
        let captures = over_tcp.into_iter().map(|i| settle(&mut take, i, &log));
        let captures = captures.collect();
        count_reports(&mut take, &log);
        let name = &take.flows[0].0.name;
        take.links = replay::link_samples(scenario, &config.network, self.seed, &log, name)?;
        Ok(LabResult {
            take,
            ended,
            is_whole,
            report,
            endpoints: load.timing(),
            notes,
            captures,
        })
    }

    /// How the endpoints of each flow run, and the flag that stops the flow.
    fn parts(
        &self,
        cast: &[FlowInstance],
        load: &EndpointLoad,
    ) -> Result<Vec<(FlowEndpoints, StopFlag)>> {
        let mut coordinated = 0;
        let parts = cast.iter().map(|role| -> Result<_> {
            let flag = StopFlag::new()?;
            let part = match role.plan.media.cp() {
                Some(plan) => {
                    coordinated += 1;
                    FlowEndpoints::Coordinated(plan.clone(), coordinated)
                }
                None => self.part(role, &flag, load)?,
            };
            Ok((part, flag))
        });
        parts.collect()
    }

    /// Starts the threads of all flows. Also returns the outages of routes, with the namespace of
    /// their sender.
    fn start_flows(
        &self,
        cast: &[FlowInstance],
        parts: Vec<(FlowEndpoints, StopFlag)>,
        cuts: Vec<Vec<Outage>>,
        stage: &Stage<'_>,
    ) -> Result<(Vec<FlowThreads>, RouteOutages)> {
        let mut cuts = cuts.into_iter();
        let (mut flows, mut outages) = (Vec::with_capacity(cast.len()), Vec::new());
        for (i, (role, (part, flag))) in cast.iter().zip(parts).enumerate() {
            let plan = role.plan.media.cp();
            let site = plan.and_then(|plan| stage.sites.get(&plan.points));
            let hosts = site.map_or_else(|| hosts(i), |site| site.hosts);
            let own = || hosts.map(|host| stage.hosts.namespace(host));
            let place = NetnsPair {
                namespaces: site.map_or_else(own, SitePair::namespaces),
                hosts,
                role,
                seed: self.seed,
                until: Time::ZERO + self.script.scenario.duration + TAIL,
                stop: stage.stop,
                gate: stage.gate,
                load: stage.load,
            };
            if let FlowEndpoints::Stream(..) = &part
                && let Some(cut) = cuts.next()
            {
                outages.push((place.namespaces[0].clone(), cut));
            }
            let threads = self.perform(&place, part, flag);
            flows.push(threads.with_context(|| format!("flow {:?}", role.name))?);
        }
        Ok((flows, outages))
    }

    /// Configuration of the emulator for these flows. The clock starts now.
    fn emulator(&self, network: NetworkConfig, cast: &[FlowInstance]) -> EmulatorConfig {
        let ways = cast.iter().enumerate().filter_map(|(flow, role)| {
            let [sender, receiver] = hosts(flow);
            if role.plan.media.cp().is_some() {
                return sites::routes(cast, flow, [sender, receiver]);
            }
            let (there, back) = (path_of(flow), back_of(flow));
            Some(HostRoute::both(sender, receiver, there, back))
        });
        EmulatorConfig {
            routes: ways.flatten().collect(),
            seed: self.seed,
            limit: self.script.scenario.duration + TAIL * 2,
            log: LOG,
            ..EmulatorConfig::new(network)
        }
    }

    /// Results of the threads, and the indices of the flows over kernel TCP.
    fn collect(
        &self,
        cast: Vec<FlowInstance>,
        performers: Vec<FlowThreads>,
    ) -> Result<(RunResult, Vec<usize>)> {
        let window = self.script.scenario.window();
        let mut take = RunResult {
            hops: 0,
            meter: Meter::new(cast.len(), window, BIN),
            flows: Vec::new(),
            events: Vec::new(),
            links: record::LinkLog::default(),
        };
        let mut over_tcp = Vec::new();
        for (i, (role, pair)) in cast.into_iter().zip(performers).enumerate() {
            let side = record::Side::Sender;
            let mut takings = join(pair.sender, &role.name, side, &mut take.events)?;
            let side = record::Side::Receiver;
            let other = join(pair.receiver, &role.name, side, &mut take.events)?;
            if pair.uses_kernel {
                over_tcp.push(i);
            } else {
                let modelled = takings.packets.is_empty();
                if modelled {
                    takings.packets = passed(&takings, &other);
                }
                meter(&mut take.meter, i, &takings);
                if modelled && role.plan.count > 1 {
                    takings.packets = Vec::new();
                }
            }
            takings.received = other.received;
            take.flows.push((role, takings));
        }
        take.events.sort_by_key(|row| row.at);
        Ok((take, over_tcp))
    }

    /// Outages of each stream's route on the host, if the injector is the route.
    fn cuts(&self, network: &mut NetworkConfig, cast: &[FlowInstance]) -> Vec<Vec<Outage>> {
        if self.injector == Injector::Link {
            return Vec::new();
        }
        let streams = cast.iter().enumerate();
        let streams = streams.filter(|(_, role)| stream_of(role).is_some());
        let routes: Vec<_> = streams.map(|(i, _)| path_of(i)).collect();
        injector::take_outages(network, &routes)
    }

    fn part(
        &self,
        role: &FlowInstance,
        flag: &StopFlag,
        load: &EndpointLoad,
    ) -> Result<FlowEndpoints> {
        let encoder = |video: &VideoPlan| -> Result<EncoderThread> {
            let encoder = self.script.video.encoder(&role.name, video, self.seed)?;
            Ok(EncoderThread::start(load.encoder(encoder), flag.clone())?)
        };
        if let Some((video, plan)) = stream_of(role) {
            let kernel = KernelTcp::new(&plan.tcp, role.plan.ecn.is_capable());
            let sender = stream::Sender::new(role, video, plan, &kernel, encoder(video)?);
            return Ok(FlowEndpoints::Stream(kernel, Box::new(sender)));
        }
        match &role.plan.media {
            // No released kernel has Prague: the model runs over UDP, as do the ns-2 models.
            MediaPlan::Tcp(plan)
                if matches!(plan.sender, TcpSender::Modern(_)) && !plan.is_scalable() =>
            {
                let kernel = KernelTcp::new(plan, role.plan.ecn.is_capable());
                Ok(FlowEndpoints::Bulk(kernel, Box::new(plan.clone())))
            }
            MediaPlan::Web(config) => {
                let kernel = KernelTcp::of_web(config, role.plan.ecn.is_capable());
                Ok(FlowEndpoints::Browsers(kernel, Arc::clone(config)))
            }
            _ => {
                let player = role.sender(self.seed, encoder)?;
                Ok(FlowEndpoints::Datagrams(Box::new(player)))
            }
        }
    }

    /// Starts the threads of a flow on its hosts.
    fn perform(
        &self,
        place: &NetnsPair<'_>,
        part: FlowEndpoints,
        flag: StopFlag,
    ) -> Result<FlowThreads> {
        let records = <[Records; 2]>::default();
        let [of_sender, of_receiver] = records.clone();
        let is_stream = matches!(part, FlowEndpoints::Stream(..));
        let uses_kernel =
            is_stream || matches!(part, FlowEndpoints::Bulk(..) | FlowEndpoints::Browsers(..));
        let (sender, receiver) = match part {
            FlowEndpoints::Datagrams(player) => {
                let receiver = place.role.receiver(self.seed);
                let receiver = place.drive(RECEIVER, receiver, place.stop, of_receiver)?;
                (place.drive(SENDER, *player, &flag, of_sender)?, receiver)
            }
            FlowEndpoints::Coordinated(plan, number) => {
                let records = [of_sender, of_receiver];
                let [sender, receiver] = sites::endpoints(place, &plan, number, &flag, records)?;
                (sender, receiver)
            }
            FlowEndpoints::Bulk(kernel, plan) => {
                let [sender, receiver] = bulk::endpoints(place, kernel, *plan, &flag)?;
                (sender, receiver)
            }
            FlowEndpoints::Browsers(kernel, config) => {
                let [sender, receiver] = browsers::endpoints(place, kernel, config, &flag)?;
                (sender, receiver)
            }
            FlowEndpoints::Stream(kernel, sender) => {
                let listener = place.listen(RECEIVER, &kernel)?;
                let receive =
                    move |conditions: &_| stream::receive(&listener, conditions, &of_receiver);
                let receiver = place.inside(RECEIVER, place.stop, receive)?;
                let sources = Sources::open(self.service, sender.mode())?;
                let peer = place.listener_of(RECEIVER);
                let load = place.load.clone();
                let play = move |conditions: &_| {
                    load.thread(|| sender.play(peer, conditions, sources, &of_sender))
                };
                (place.inside(SENDER, &flag, play)?, receiver)
            }
        };
        Ok(FlowThreads {
            sender,
            receiver,
            flag,
            is_stream,
            uses_kernel,
            name: place.role.name.clone(),
            records,
        })
    }

    /// Waits until all flows are finished, and writes their rows once per second.
    fn watch(
        &self,
        performers: &[FlowThreads],
        clock: Clock,
        partial: Option<&PartialRun>,
        progress: &mut dyn FnMut(f64),
    ) {
        let mut next_write = clock.now() + WRITE_INTERVAL;
        let whole = self.script.scenario.duration.as_secs_f64();
        while performers.iter().any(|pair| !pair.are_done()) {
            std::thread::sleep(GLANCE);
            let mut streams = performers.iter().filter(|pair| pair.is_stream);
            let over = self.ends_with_video && streams.all(FlowThreads::are_done);
            if over || self.interrupts.count() > 0 {
                for pair in performers {
                    pair.flag.set();
                }
            }
            if self.interrupts.count() > 0 {
                break;
            }
            let now = clock.now();
            if let Some(partial) = partial
                && now >= next_write
            {
                next_write = now + WRITE_INTERVAL;
                for pair in performers {
                    partial.write(&pair.name, &pair.records);
                }
            }
            progress(now.as_secs_f64() / whole);
        }
        // Packets in flight may still arrive.
        let grace = Instant::now();
        while grace.elapsed() < GRACE {
            std::thread::sleep(GLANCE);
        }
    }
}

/// Outages of routes, with the namespace of their sender.
type RouteOutages = Vec<(Namespace, Vec<Outage>)>;

/// Differences between the plans of the flows and their kernel's TCP, once per class.
fn kernel_notes(cast: &[FlowInstance], parts: &[(FlowEndpoints, StopFlag)]) -> Vec<String> {
    let mut notes = Vec::new();
    for (role, (part, _)) in cast.iter().zip(parts) {
        if let FlowEndpoints::Bulk(kernel, _)
        | FlowEndpoints::Browsers(kernel, _)
        | FlowEndpoints::Stream(kernel, _) = part
        {
            for note in &kernel.notes {
                let note = format!("{}: {note}", role.class);
                // The flows of a class have the same.
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
    }
    notes
}

/// The flow's video over TCP, if it has one.
fn stream_of(role: &FlowInstance) -> Option<(&VideoPlan, &StreamPlan)> {
    let video = role
        .plan
        .media
        .video()
        .filter(|_| role.baseline.is_none())?;
    Some((video, video.stream.as_deref()?))
}

/// Each flow has its own sender and receiver hosts, so that its routes are independent.
fn hosts(flow: usize) -> [Host; 2] {
    [2 * flow, 2 * flow + 1].map(|number| Host(number as u16))
}

/// Time for packets in flight to arrive after the last capture.
const TAIL: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_millis(500);
const GLANCE: Duration = Duration::from_millis(50);
/// Interval between writes of the rows so far.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of packets in the emulator's log: four minutes at 8,000 packets/s, 80 MB.
const LOG: usize = 2_000_000;
