//! The programs of an aggregation point and their maps.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;
use std::{fmt, fs, io};

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::{SchedClassifier, TcAttachType, TestRun as _, TestRunOptions, tc};
use aya::{Ebpf, EbpfLoader, Pod, include_bytes_aligned};
use tidegate_core::aggregate::ApplicationKey;

use super::layout::{self, Application, Counters, Estimate, Key, Record, Rule, Settings};
use super::{KernelConfig, KernelCounters, drops};
use crate::bpf::loader::{LoadError, failed, rejected};
use crate::memory_map::{Mapping, page_size};

pub(super) struct Programs {
    ebpf: Ebpf,
    applications: HashMap<MapData, Key, Application>,
    estimates: HashMap<MapData, Key, Estimate>,
    counters: PerCpuArray<MapData, Counters>,
    samples: RingBuf<MapData>,
    settings: Mapping,
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Programs").finish_non_exhaustive()
    }
}

impl Programs {
    pub(super) fn load(config: &KernelConfig, rules: &[Rule]) -> Result<Self, LoadError> {
        let aggregation = &config.aggregation;
        let count = rules.len() as u32;
        let most = aggregation.max_applications as u32;
        let globals = [
            ("link_header", config.link_header),
            ("rules", count),
            ("max_shares", aggregation.max_shares.into()),
            ("reordering", aggregation.reordering),
            ("drops_strangers", drops(aggregation.strangers).into()),
            ("manual_clock", config.manual_clock.into()),
        ];
        let mut loader = EbpfLoader::new();
        for (name, value) in &globals {
            loader.override_global(name, value, true);
        }
        loader.map_max_entries("tg_apps", most);
        loader.map_max_entries("tg_estimates", most);
        loader.map_max_entries("tg_samples", RING);
        let mut ebpf = loader
            .load(OBJECT)
            .map_err(|e| failed("the aggregation point", &e))?;
        for name in ["outbound", "inbound"] {
            let program = classifier(&mut ebpf, name);
            program.load().map_err(|e| rejected(name, &e))?;
        }
        let mut take = |name: &str| {
            let map = ebpf.take_map(name);
            map.unwrap_or_else(|| unreachable!("map {name} of the object"))
        };
        let wrong = |e: MapError| failed("a map of the aggregation point", &e);
        let applications = HashMap::try_from(take("tg_apps")).map_err(wrong)?;
        let estimates = HashMap::try_from(take("tg_estimates")).map_err(wrong)?;
        let counters = PerCpuArray::try_from(take("tg_counters")).map_err(wrong)?;
        let samples = RingBuf::try_from(take("tg_samples")).map_err(wrong)?;
        fill(take("tg_rules"), rules.iter().copied()).map_err(wrong)?;
        let allowed = config.remote.iter().map(layout::allowed);
        fill(take("tg_allowed"), allowed).map_err(wrong)?;
        let Map::Array(settings) = take("tg_settings") else {
            unreachable!("the settings are an array")
        };
        let settings = Mapping::shared(settings.fd().as_fd(), 0, page_size());
        let settings = settings.map_err(LoadError::System)?;
        let opening = Settings::opening(aggregation.max_applications);
        settings.at::<Settings>(0).set_opening(opening);
        Ok(Self {
            ebpf,
            applications,
            estimates,
            counters,
            samples,
            settings,
        })
    }

    pub(super) fn attach(&mut self, interface: &str) -> Result<(), LoadError> {
        let ways = [
            ("outbound", TcAttachType::Ingress),
            ("inbound", TcAttachType::Egress),
        ];
        for (name, way) in ways {
            let program = classifier(&mut self.ebpf, name);
            let attached = program.attach(interface, way).or_else(|error| {
                // Before Linux 6.6 there is no TCX, and the programs need this queue discipline.
                tc::qdisc_add_clsact(interface).map_err(|_| error)?;
                program.attach(interface, way)
            });
            attached.map_err(|e| failed(&format!("the program {name} at {interface}"), &e))?;
        }
        Ok(())
    }

    pub(super) fn settings(&self) -> &Settings {
        self.settings.at(0)
    }

    /// State of all applications.
    pub(super) fn applications(&self) -> io::Result<Vec<(ApplicationKey, Application)>> {
        let mut all = Vec::new();
        for key in self.applications.keys() {
            let key = key.map_err(io::Error::other)?;
            // The program may have been deleted since.
            if let Ok(application) = self.applications.get(&key, 0) {
                all.push((key.decoded(), application));
            }
        }
        Ok(all)
    }

    pub(super) fn delete(&mut self, key: ApplicationKey) {
        // Both may be gone.
        let _ = self.applications.remove(&key.into());
        let _ = self.estimates.remove(&key.into());
    }

    pub(super) fn set_estimate(
        &mut self,
        key: ApplicationKey,
        estimate: &Estimate,
    ) -> io::Result<()> {
        self.estimates
            .insert(Key::from(key), estimate, 0)
            .map_err(io::Error::other)
    }

    /// Takes all records of the ring.
    pub(super) fn drain(&mut self, mut take: impl FnMut(Record)) {
        while let Some(item) = self.samples.next() {
            if let Some(record) = Record::parse(&item) {
                take(record);
            }
        }
    }

    pub(super) fn counters(&self) -> io::Result<KernelCounters> {
        let all = self.counters.get(&0, 0).map_err(io::Error::other)?;
        let sum = |n: usize| all.iter().map(|counters| counters.counts[n]).sum();
        Ok(KernelCounters {
            rewritten: sum(0),
            invalid: sum(1),
            refused: sum(2),
            unknown: sum(3),
            forbidden: sum(4),
            fragments: sum(5),
            batches: sum(6),
            dropped: sum(7),
            failed: sum(8),
            ..KernelCounters::default()
        })
    }

    pub(super) fn run_time(&mut self, outbound: bool) -> io::Result<(Duration, u64)> {
        let program = classifier(&mut self.ebpf, name(outbound));
        let fd = program.fd().map_err(io::Error::other)?.as_fd().as_raw_fd();
        let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}"))?;
        let number = |key: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(key))?;
            value.trim().parse().ok()
        };
        match (number("run_time_ns:"), number("run_cnt:")) {
            (Some(time), Some(runs)) => Ok((Duration::from_nanos(time), runs)),
            _ => Err(io::Error::from(io::ErrorKind::Unsupported)),
        }
    }

    pub(super) fn test_run(
        &mut self,
        outbound: bool,
        frame: &[u8],
        repeat: u32,
    ) -> io::Result<(Option<Vec<u8>>, Duration)> {
        let mut out = vec![0; frame.len()];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat,
            ..TestRunOptions::new()
        };
        let run = classifier(&mut self.ebpf, name(outbound)).test_run(options);
        let run = run.map_err(io::Error::other)?;
        let is_dropped = run.return_value == SHOT;
        Ok(((!is_dropped).then_some(out), run.duration))
    }
}

/// Sets the first elements of an array.
fn fill<T: Pod>(map: Map, values: impl Iterator<Item = T>) -> Result<(), MapError> {
    let mut array = Array::try_from(map)?;
    for (number, value) in (0..).zip(values) {
        array.set(number, value, 0)?;
    }
    Ok(())
}

fn classifier<'a>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut SchedClassifier {
    let program = ebpf.program_mut(name).map(TryFrom::try_from);
    let Some(Ok(program)) = program else {
        unreachable!("program {name} of the object")
    };
    program
}

fn name(outbound: bool) -> &'static str {
    if outbound { "outbound" } else { "inbound" }
}

/// The object, compiled from `bpf/aggregate.bpf.c`.
static OBJECT: &[u8] = include_bytes_aligned!("../../bpf/built/aggregate.bpf.o");
/// 10 ms of samples at 5 million packets per second.
const RING: u32 = 1 << 22;
/// `TC_ACT_SHOT`.
const SHOT: u32 = 2;
