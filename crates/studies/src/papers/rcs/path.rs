//! Scenarios of the paper's section V-A: flows over a satellite link, as text.

use core::fmt::Write as _;

use crate::papers::sweep::ScenarioText;

/// Rate control of a group of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Rcs,
    /// RCS without the state Backoff.
    RcsWithoutBackoff,
    Rap,
    /// SACK TCP of ns-2, without a limit of its window.
    Tcp,
    /// Reno of Linux with SACK: in the lab that of the kernel.
    LinuxTcp,
    /// SACK TCP of ns-2 with its default window of 20 packets.
    TcpOfSmallWindow,
}

impl Control {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rcs => "RCS",
            Self::RcsWithoutBackoff => "RCS without Backoff",
            Self::Rap => "RAP",
            Self::Tcp | Self::LinuxTcp => "TCP",
            Self::TcpOfSmallWindow => "TCP with a window of 20 packets",
        }
    }

    fn keys(self, target: u32) -> String {
        let rcs = |more: &str| {
            let target = u64::from(target) * PACKET_BITS;
            // Longer than the longest loss of the signal: the paper's curves show no second start.
            format!(
                "control = {{ rcs = {{ target = \"{target}b/s\", backoff_timeout = \"100s\"{more} }} \
                 }}\nbulk = {{ packet = \"1000B\", overhead = \"1ms\" }}"
            )
        };
        match self {
            Self::Rcs => rcs(""),
            Self::RcsWithoutBackoff => rcs(", backoff = false"),
            Self::Rap => {
                "control = \"rap\"\nbulk = { packet = \"1000B\", overhead = \"1ms\" }".to_owned()
            }
            Self::Tcp => "tcp = { kind = \"sack\", packet = \"1000B\" }".to_owned(),
            Self::LinuxTcp => "tcp = { kind = \"linux-reno\", packet = \"1000B\" }".to_owned(),
            Self::TcpOfSmallWindow => {
                "tcp = { kind = \"sack\", packet = \"1000B\", window = \"20 packets\" }".to_owned()
            }
        }
    }
}

/// Low-priority traffic in the background.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Background {
    /// Packets per second without rate control.
    Constant(f64),
    /// RAP with at most so many packets per second.
    Friendly(f64),
}

/// Flows of one group share all properties.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) control: Control,
    pub(super) count: u32,
    /// Over the satellite link; otherwise over wires with a round-trip time of 110 ms.
    pub(super) is_satellite: bool,
}

/// The network of section V-A.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) groups: Vec<Group>,
    /// Capacity of the bottleneck, and target of RCS, in packets per second.
    pub(super) capacity: u32,
    /// Round-trip time of satellite flows, in ms.
    pub(super) rtt: f64,
    /// Loss probability of the satellite link.
    pub(super) loss: f64,
    /// Buffer of the bottleneck in packets.
    pub(super) buffer: u32,
    /// Whether the bottleneck serves low-priority packets last; otherwise in order of arrival.
    pub(super) has_priority: bool,
    pub(super) background: Option<Background>,
    /// Begin and duration of a loss of the signal, in seconds.
    pub(super) blockage_at: f64,
    pub(super) blockage: f64,
    /// Duration and begin of the measurement, in seconds.
    pub(super) duration: f64,
    pub(super) measure_from: f64,
}

impl ScenarioText for Path {
    const NOTE: &'static str = "Packets of 1,000 bytes over a bottleneck of 1,300 packets/s, which RCS asks for \
                                (S_Target). TCP is the SACK model of ns-2. Unless varied: 550 ms, a loss \
                                probability of 0.001, a buffer of 50 packets. Range over the seeds.";

    fn text(&self) -> String {
        let mut text = format!(
            "name = \"rcs\"\nabout = \"Flows over a satellite link\"\nduration = \"{}s\"\nmeasure = \
             [\"{}s\", \"{}s\"]\n",
            self.duration, self.measure_from, self.duration
        );
        // The limit of ns-2 includes the packet in transmission.
        let buffer = self.buffer.max(2) - 1;
        let queue = if self.has_priority {
            "priority"
        } else {
            "droptail"
        };
        let shared = |limit| {
            let bits = u64::from(self.capacity) * PACKET_BITS;
            format!("rate = \"{bits}b/s\"\nqueue = {{ {queue} = \"{limit} packets\" }}")
        };
        link(&mut text, ("there", "a", "b"), &shared(buffer));
        link(&mut text, ("back", "b", "a"), &shared(NO_LIMIT));
        // Half of a round trip without the access links, which have 1 ms each.
        let delay = ((self.rtt / 2.0 - 2.0).max(0.0) * 1e3) as u64;
        let outage = if self.blockage > 0.0 {
            let (at, lasts) = (self.blockage_at, self.blockage);
            format!("\noutage = [{{ at = \"{at}s\", lasts = \"{lasts}s\" }}]")
        } else {
            String::new()
        };
        let satellite = |loss: f64| format!("delay = \"{delay}us\"\nloss = {loss:?}{outage}");
        link(&mut text, ("up", "b", "c"), &satellite(self.loss));
        link(&mut text, ("down", "c", "b"), &satellite(0.0));
        for group in &self.groups {
            flows(&mut text, group, self.capacity);
        }
        self.background(&mut text);
        text
    }
}

impl Path {
    /// Ten flows over the satellite link, with the paper's values.
    pub(super) fn of(control: Control) -> Self {
        Self::with(vec![Group {
            name: "flow",
            control,
            count: 10,
            is_satellite: true,
        }])
    }

    pub(super) fn with(groups: Vec<Group>) -> Self {
        Self {
            groups,
            capacity: 1_300,
            rtt: 550.0,
            loss: 1e-3,
            buffer: 50,
            has_priority: true,
            background: None,
            blockage_at: 100.0,
            blockage: 0.0,
            duration: 350.0,
            measure_from: 50.0,
        }
    }

    /// The path measured for so many seconds from the return of the signal.
    pub(super) fn measured_after(self, seconds: f64) -> Self {
        let back = self.blockage_at + self.blockage;
        Self {
            measure_from: back,
            duration: back + seconds,
            ..self
        }
    }

    fn background(&self, text: &mut String) {
        let (rate, kind) = match self.background {
            Some(Background::Constant(rate)) => (rate, "udp = { rate = "),
            Some(Background::Friendly(rate)) => (rate, "control = \"rap\"\nbulk = { demand = "),
            None => return,
        };
        if rate > 0.0 {
            let bits = (rate * PACKET_BITS as f64) as u64;
            let _ = write!(
                text,
                "[[flow]]\nname = \"background\"\npath = [\"there\", \"up\"]\nback = [\"down\", \
                 \"back\"]\ndscp = \"le\"\n{kind}\"{bits}b/s\", packet = \"1000B\" }}\n"
            );
        }
    }
}

fn flows(text: &mut String, group: &Group, capacity: u32) {
    let (route, access) = if group.is_satellite {
        (
            "path = [\"there\", \"up\"]\nback = [\"down\", \"back\"]",
            1.0,
        )
    } else {
        ("path = [\"there\"]\nback = [\"back\"]", 110.0 / 4.0)
    };
    // A source asks for the capacity of the link at most.
    let keys = group.control.keys(capacity);
    let _ = write!(
        text,
        "[[flow]]\nname = \"{}\"\ncount = {}\n{route}\n{}{}start = [\"0s\", \"5s\"]\n{keys}\n",
        group.name,
        group.count,
        end("access", access),
        end("exit", access),
    );
}

fn link(text: &mut String, (name, from, to): (&str, &str, &str), keys: &str) {
    let _ = write!(
        text,
        "[[link]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"{to}\"\n{keys}\n"
    );
}

/// An access link, with its delay in ms.
fn end(name: &str, delay: f64) -> String {
    format!(
        "{name} = {{ rate = \"100Mb/s\", delay = \"{}us\", queue = {{ priority = \"{NO_LIMIT} packets\" }} }}\n",
        (delay * 1e3) as u64
    )
}

const PACKET_BITS: u64 = 8_000;
/// Limit of a queue that loses no packet.
const NO_LIMIT: u32 = 9_999;

#[cfg(test)]
mod tests {
    use tidegate_sim::scenario::Scenario;

    use super::*;

    #[test]
    fn all_paths_are_valid_scenarios() {
        let controls = [
            Control::Rcs,
            Control::RcsWithoutBackoff,
            Control::Rap,
            Control::Tcp,
            Control::LinuxTcp,
            Control::TcpOfSmallWindow,
        ];
        for control in controls {
            let mut path = Path::of(control);
            path.groups.push(Group {
                name: "short",
                control: Control::Tcp,
                count: 5,
                is_satellite: false,
            });
            for background in [
                None,
                Some(Background::Constant(400.0)),
                Some(Background::Friendly(400.0)),
            ] {
                path.background = background;
                path.blockage += 1.5;
                let none = |_: &str| Err("no files".to_owned());
                let text = path.text();
                let read = Scenario::parse("rcs", &text, &none);
                let scenario = read.unwrap_or_else(|e| panic!("{e}\n{text}"));
                assert_eq!(scenario.flows.len(), 2 + usize::from(background.is_some()));
            }
        }
    }
}
