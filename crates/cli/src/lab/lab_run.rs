//! Hosts, sockets and threads of one run in the lab.

use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
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
    pub(crate) loaded: &'a LoadedScenario,
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
    /// Runs `instances`. If the emulator was late despite real-time priority, or an endpoint lacked
    /// processor time, the machine was stalled or busy and the results are unreliable: `again` is
    /// called and the run is repeated once. If the
    /// second run is incomplete, the result is the first one.
    ///
    /// # Errors
    /// As [`play`](Self::play).
    pub(crate) fn play_in_time(
        &self,
        instances: &[FlowInstance],
        progress: &mut dyn FnMut(f64),
        again: &dyn Fn(),
    ) -> Result<LabResult> {
        let mut first = self.play(instances.to_vec(), self.partial, progress)?;
        if first.kept_up() || !first.report.realtime_priority || !first.is_whole {
            return Ok(first);
        }
        again();
        // The folder has the rows of the first run until both are over.
        match self.play(instances.to_vec(), None, progress) {
            Ok(second) if second.is_whole => return Ok(second),
            Ok(_) => {}
            Err(why) => first
                .notes
                .push(format!("the repetition of the run failed: {why:#}")),
        }
        Ok(first)
    }

    /// Plays `instances` through the emulator in real time.
    ///
    /// # Errors
    /// A host, a socket or an encoder failed. The message names the flow.
    fn play(
        &self,
        mut instances: Vec<FlowInstance>,
        partial: Option<&PartialRun>,
        progress: &mut dyn FnMut(f64),
    ) -> Result<LabResult> {
        let scenario = &self.loaded.scenario;
        browsers::share_hosts(&mut instances);
        let mut network = topology::network(scenario, &instances)?;
        let cuts = self.cuts(&mut network, &instances);
        // The encoders render their scenes before the clock starts.
        let load = EndpointLoad::default();
        let parts = self.parts(&instances, &load)?;
        let notes = kernel_notes(&instances, &parts);
        let count = 2 * instances.len() as u16;
        let unconnected = UnconnectedHosts::new(count).context("cannot make the hosts")?;
        let (stop, gate) = (StopFlag::new()?, StartGate::default());
        let plans = &scenario.aggregations;
        let signals = (&gate, &stop);
        let sites = sites::start(&instances, plans, hosts, &unconnected, self.seed, signals)?;
        let stage = Stage {
            hosts: &unconnected,
            sites: &sites,
            stop: &stop,
            gate: &gate,
            load: &load,
        };
        let (flows, outages) = self.start_flows(&instances, parts, cuts, &stage)?;
        let config = self.emulator(network, &instances);
        let emulator = Emulator::join(unconnected, &config).context("cannot start the emulator")?;
        partial.map_or(Ok(()), |partial| partial.begin(&instances))?;
        gate.open(config.clock);
        let injectors = outages
            .into_iter()
            .map(|(host, cut)| injector::start_blackhole(&host, cut, config.clock, stop.clone()));
        let injectors = injectors.collect::<Result<Vec<_>>>()?;
        self.watch(&flows, config.clock, partial, progress);
        let ended = config.clock.now();
        let is_whole = self.interrupts.count() == 0;
        stop.set();
        injector::join(injectors)?;
        sites::end(sites)?;
        let (mut take, over_tcp) = self.collect(instances, flows)?;
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
        instances: &[FlowInstance],
        load: &EndpointLoad,
    ) -> Result<Vec<(FlowEndpoints, StopFlag)>> {
        let mut coordinated = 0;
        let parts = instances.iter().map(|instance| -> Result<_> {
            let flag = StopFlag::new()?;
            let part = match instance.plan.media.cp() {
                Some(plan) => {
                    coordinated += 1;
                    FlowEndpoints::Coordinated(plan.clone(), coordinated)
                }
                None => self.part(instance, &flag, load)?,
            };
            Ok((part, flag))
        });
        parts.collect()
    }

    /// Starts the threads of all flows. Also returns the outages of routes, with the namespace of
    /// their sender.
    fn start_flows(
        &self,
        instances: &[FlowInstance],
        parts: Vec<(FlowEndpoints, StopFlag)>,
        cuts: Vec<Vec<Outage>>,
        stage: &Stage<'_>,
    ) -> Result<(Vec<FlowThreads>, RouteOutages)> {
        let mut cuts = cuts.into_iter();
        let (mut flows, mut outages) = (Vec::with_capacity(instances.len()), Vec::new());
        for (i, (instance, (part, flag))) in instances.iter().zip(parts).enumerate() {
            let plan = instance.plan.media.cp();
            let site = plan.and_then(|plan| stage.sites.get(&plan.points));
            let hosts = site.map_or_else(|| hosts(i), |site| site.hosts);
            let own = || hosts.map(|host| stage.hosts.namespace(host));
            let place = NetnsPair {
                namespaces: site.map_or_else(own, SitePair::namespaces),
                hosts,
                instance,
                seed: self.seed,
                until: Time::ZERO + self.loaded.scenario.duration + TAIL,
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
            flows.push(threads.with_context(|| format!("flow {:?}", instance.name))?);
        }
        Ok((flows, outages))
    }

    /// Configuration of the emulator for these flows. The clock starts now.
    fn emulator(&self, network: NetworkConfig, instances: &[FlowInstance]) -> EmulatorConfig {
        let ways = instances.iter().enumerate().filter_map(|(flow, instance)| {
            let [sender, receiver] = hosts(flow);
            if instance.plan.media.cp().is_some() {
                return sites::routes(instances, flow, [sender, receiver]);
            }
            let (there, back) = (path_of(flow), back_of(flow));
            Some(HostRoute::both(sender, receiver, there, back))
        });
        EmulatorConfig {
            routes: ways.flatten().collect(),
            seed: self.seed,
            limit: self.loaded.scenario.duration + TAIL * 2,
            log: LOG,
            ..EmulatorConfig::new(network)
        }
    }

    /// Results of the threads, and the indices of the flows over kernel TCP.
    fn collect(
        &self,
        instances: Vec<FlowInstance>,
        flow_threads: Vec<FlowThreads>,
    ) -> Result<(RunResult, Vec<usize>)> {
        let window = self.loaded.scenario.window();
        let mut take = RunResult {
            hops: 0,
            meter: Meter::new(instances.len(), window, BIN),
            flows: Vec::new(),
            events: Vec::new(),
            links: record::LinkLog::default(),
        };
        let mut over_tcp = Vec::new();
        for (i, (instance, pair)) in instances.into_iter().zip(flow_threads).enumerate() {
            let side = record::Side::Sender;
            let mut results = join(pair.sender, &instance.name, side, &mut take.events)?;
            let side = record::Side::Receiver;
            let other = join(pair.receiver, &instance.name, side, &mut take.events)?;
            if pair.uses_kernel {
                over_tcp.push(i);
            } else {
                let modelled = results.packets.is_empty();
                if modelled {
                    results.packets = passed(&results, &other);
                }
                meter(&mut take.meter, i, &results);
                if modelled && instance.plan.count > 1 {
                    results.packets = Vec::new();
                }
            }
            results.received = other.received;
            take.flows.push((instance, results));
        }
        take.events.sort_by_key(|row| row.at);
        Ok((take, over_tcp))
    }

    /// Outages of each stream's route on the host, if the injector is the route.
    fn cuts(&self, network: &mut NetworkConfig, instances: &[FlowInstance]) -> Vec<Vec<Outage>> {
        if self.injector == Injector::Link {
            return Vec::new();
        }
        let streams = instances.iter().enumerate();
        let streams = streams.filter(|(_, instance)| stream_of(instance).is_some());
        let routes: Vec<_> = streams.map(|(i, _)| path_of(i)).collect();
        injector::take_outages(network, &routes)
    }

    fn part(
        &self,
        instance: &FlowInstance,
        flag: &StopFlag,
        load: &EndpointLoad,
    ) -> Result<FlowEndpoints> {
        let encoder = |video: &VideoPlan| -> Result<EncoderThread> {
            let encoder = self
                .loaded
                .video
                .encoder(&instance.name, video, self.seed)?;
            Ok(EncoderThread::start(load.encoder(encoder), flag.clone())?)
        };
        if let Some((video, plan)) = stream_of(instance) {
            let kernel = KernelTcp::new(&plan.tcp, instance.plan.ecn.is_capable());
            let sender = stream::Sender::new(instance, video, plan, &kernel, encoder(video)?);
            return Ok(FlowEndpoints::Stream(kernel, Box::new(sender)));
        }
        match &instance.plan.media {
            // No released kernel has Prague: the model runs over UDP, as do the ns-2 models.
            MediaPlan::Tcp(plan)
                if matches!(plan.sender, TcpSender::Modern(_)) && !plan.is_scalable() =>
            {
                let kernel = KernelTcp::new(plan, instance.plan.ecn.is_capable());
                Ok(FlowEndpoints::Bulk(kernel, Box::new(plan.clone())))
            }
            MediaPlan::Web(config) => {
                let kernel = KernelTcp::of_web(config, instance.plan.ecn.is_capable());
                Ok(FlowEndpoints::Browsers(kernel, Arc::clone(config)))
            }
            _ => {
                let player = instance.sender(self.seed, encoder)?;
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
                let receiver = place.instance.receiver(self.seed);
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
            name: place.instance.name.clone(),
            records,
        })
    }

    /// Waits until all flows are finished, and writes their rows once per second.
    fn watch(
        &self,
        flow_threads: &[FlowThreads],
        clock: Clock,
        partial: Option<&PartialRun>,
        progress: &mut dyn FnMut(f64),
    ) {
        let mut next_write = clock.now() + WRITE_INTERVAL;
        let whole = self.loaded.scenario.duration.as_secs_f64();
        while flow_threads.iter().any(|pair| !pair.are_done()) {
            std::thread::sleep(GLANCE);
            let mut streams = flow_threads.iter().filter(|pair| pair.is_stream);
            let over = self.ends_with_video && streams.all(FlowThreads::are_done);
            if over || self.interrupts.count() > 0 {
                for pair in flow_threads {
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
                for pair in flow_threads {
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
fn kernel_notes(instances: &[FlowInstance], parts: &[(FlowEndpoints, StopFlag)]) -> Vec<String> {
    let mut notes = Vec::new();
    for (instance, (part, _)) in instances.iter().zip(parts) {
        if let FlowEndpoints::Bulk(kernel, _)
        | FlowEndpoints::Browsers(kernel, _)
        | FlowEndpoints::Stream(kernel, _) = part
        {
            for note in &kernel.notes {
                let note = format!("{}: {note}", instance.class);
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
fn stream_of(instance: &FlowInstance) -> Option<(&VideoPlan, &StreamPlan)> {
    let video = instance
        .plan
        .media
        .video()
        .filter(|_| instance.baseline.is_none())?;
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
