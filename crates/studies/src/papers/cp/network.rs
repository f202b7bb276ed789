//! Scenarios of the paper's sections IV-B and VI-B, as text.

use core::fmt::Write as _;

use crate::papers::sweep::ScenarioText;

/// Rate control of competing flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// TFRC of RFC 5348.
    Tfrc,
    /// MulTFRC, for aggregation points.
    Multfrc,
    Rap,
    /// SACK TCP of ns-2.
    Tcp,
    /// Reno of Linux with SACK: in the lab that of the kernel.
    LinuxTcp,
}

impl Control {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tfrc => "TFRC",
            Self::Multfrc => "MulTFRC",
            Self::Rap => "RAP",
            Self::Tcp | Self::LinuxTcp => "TCP",
        }
    }

    /// Key of a flow or of an aggregation.
    const fn key(self) -> &'static str {
        match self {
            Self::Tfrc => "control = \"tfrc\"\n",
            Self::Multfrc => "control = { tfrc = { flavour = \"multfrc\" } }\n",
            Self::Rap => "control = \"rap\"\n",
            Self::Tcp | Self::LinuxTcp => "",
        }
    }
}

/// A cluster-to-cluster application.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cluster {
    /// Number of flows.
    pub(super) flows: u32,
    /// Flowshares of all flows together, up to 64.
    pub(super) shares: u32,
    /// Controller of the aggregation points.
    pub(super) control: Control,
    pub(super) sampling: &'static str,
}

/// One bottleneck, the application, and competing flows.
#[derive(Clone, Debug)]
pub(super) struct Network {
    pub(super) cluster: Cluster,
    pub(super) competing: (Control, u32),
    /// In Mb/s.
    pub(super) bandwidth: f64,
    /// One-way delay of the bottleneck in ms.
    pub(super) delay: f64,
    /// Loss probability in both directions.
    pub(super) loss: f64,
    pub(super) queue: &'static str,
    /// Size of a data packet in bytes.
    pub(super) packet: u32,
    /// Number of browsers whose pages cross the bottleneck in each direction.
    pub(super) browsers: u32,
    /// Begin and end of the measurement in seconds; the run ends with it.
    pub(super) measure: (u32, u32),
}

impl ScenarioText for Network {
    fn text(&self) -> String {
        let (from, to) = self.measure;
        let mut text = format!(
            "name = \"cp\"\nabout = \"Two clusters of hosts\"\nduration = \"{to}s\"\nmeasure = \
             [\"{from}s\", \"{to}s\"]\n"
        );
        let delay = (self.delay * 1e3) as u64;
        let (rate, loss, queue) = (self.bandwidth, self.loss, self.queue);
        for (name, ends) in [
            ("there", "from = \"a\"\nto = \"b\""),
            ("back", "from = \"b\"\nto = \"a\""),
        ] {
            let _ = write!(
                text,
                "[[link]]\nname = \"{name}\"\n{ends}\nrate = \"{rate}Mb/s\"\ndelay = \"{delay}us\"\nloss = \
                 {loss:?}\nqueue = {queue}\n"
            );
        }
        self.cluster(&mut text);
        self.others(&mut text);
        text
    }
}

impl Network {
    fn cluster(&self, text: &mut String) {
        let Cluster {
            flows,
            shares,
            control,
            sampling,
        } = self.cluster;
        let packet = self.packet;
        let _ = write!(
            text,
            "[[aggregation]]\nname = \"points\"\nsampling = \"{sampling}\"\nreordering = 1\n\
             circuit_breaker = false\n{}\
             [[flow]]\nname = \"{CLUSTER}\"\ncount = {flows}\npath = [\"there\"]\nback = [\"back\"]\n\
             access = {{ rate = \"100Mb/s\", delay = \"1ms\" }}\n\
             exit = {{ rate = \"100Mb/s\", delay = [\"1ms\", \"10ms\"] }}\n{START}\
             cp = {{ points = \"points\", shares = {shares}, packet = \"{packet}B\", overhead = \"1ms\" }}\n",
            control.key(),
        );
    }

    fn others(&self, text: &mut String) {
        let (control, count) = self.competing;
        let packet = self.packet;
        let kind = match control {
            Control::Tcp => format!(
                "tcp = {{ kind = \"sack\", packet = \"{packet}B\", window = \"1000 packets\", overhead = \"1ms\" }}"
            ),
            Control::LinuxTcp => {
                format!("tcp = {{ kind = \"linux-reno\", packet = \"{packet}B\" }}")
            }
            Control::Tfrc | Control::Multfrc | Control::Rap => {
                format!("bulk = {{ packet = \"{packet}B\", overhead = \"1ms\" }}")
            }
        };
        let _ = write!(
            text,
            "[[flow]]\nname = \"{COMPETING}\"\ncount = {count}\npath = [\"there\"]\nback = [\"back\"]\n\
             access = {{ rate = \"100Mb/s\" }}\nexit = {{ rate = \"100Mb/s\" }}\n{START}{}{kind}\n",
            control.key()
        );
        for (name, path, back) in [("web", "there", "back"), ("web-back", "back", "there")] {
            if self.browsers > 0 {
                let load = f64::from(self.browsers) * BROWSER_LOAD / 1e6;
                let _ = write!(
                    text,
                    "[[flow]]\nname = \"{name}\"\ncount = {}\npath = [\"{path}\"]\nback = [\"{back}\"]\n\
                     access = {{ delay = [\"1ms\", \"10ms\"] }}\nexit = {{ delay = [\"1ms\", \"10ms\"] }}\n\
                     web = {{ load = \"{load}Mb/s\", tcp = {{ kind = \"newreno\", packet = \"1500B\" }} }}\n",
                    self.browsers
                );
            }
        }
    }
}

/// Names of the flow groups.
pub(super) const CLUSTER: &str = "cp";
pub(super) const COMPETING: &str = "other";
/// Flows start at random times.
const START: &str = "start = [\"0s\", \"5s\"]\n";
/// Offered load of a browser in b/s. The paper does not state it.
const BROWSER_LOAD: f64 = 8e3;

#[cfg(test)]
mod tests {
    use tidegate_sim::scenario::Scenario;

    use super::*;

    #[test]
    fn all_networks_are_valid_scenarios() {
        for (competing, control) in [
            (Control::Tfrc, Control::Tfrc),
            (Control::Tfrc, Control::Multfrc),
            (Control::Rap, Control::Rap),
            (Control::Tcp, Control::Tfrc),
            (Control::LinuxTcp, Control::Tfrc),
        ] {
            for browsers in [0, 10] {
                let network = Network {
                    cluster: Cluster {
                        flows: 24,
                        shares: 7,
                        control,
                        sampling: "bfld",
                    },
                    competing: (competing, 24),
                    bandwidth: 15.0,
                    delay: 50.0,
                    loss: 0.01,
                    queue: "{ droptail = \"50 packets\" }",
                    packet: 1_000,
                    browsers,
                    measure: (20, 60),
                };
                let text = network.text();
                let none = |_: &str| Err("no files".to_owned());
                let scenario = Scenario::parse("cp", &text, &none);
                let scenario = scenario.unwrap_or_else(|e| panic!("{e}\n{text}"));
                assert_eq!(scenario.flows.len(), 2 + 2 * usize::from(browsers > 0));
            }
        }
    }
}
