//! Differences between a reproduction and the published figure.

use super::{Options, Tcp};

/// A note on a difference, and the runs for which it is valid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deviation {
    text: &'static str,
    /// Lab or simulator; `None` for both.
    lab: Option<bool>,
    /// Transports; empty for all.
    tcps: &'static [Tcp],
    /// Nodes; empty for all.
    nodes: &'static [&'static str],
}

impl Deviation {
    /// In the simulator and in the lab.
    pub(super) const fn everywhere(text: &'static str) -> Self {
        Self {
            text,
            lab: None,
            tcps: &[],
            nodes: &[],
        }
    }

    /// In the simulator.
    pub(super) const fn simulated(text: &'static str) -> Self {
        let everywhere = Self::everywhere(text);
        Self {
            lab: Some(false),
            ..everywhere
        }
    }

    /// Over the TCP of a kernel.
    pub(super) const fn kernel(text: &'static str) -> Self {
        let everywhere = Self::everywhere(text);
        Self {
            lab: Some(true),
            ..everywhere
        }
    }

    /// If one of these transports was used.
    pub(super) const fn over(self, tcps: &'static [Tcp]) -> Self {
        Self { tcps, ..self }
    }

    /// If one of these nodes was a receiver.
    pub(super) const fn at(self, nodes: &'static [&'static str]) -> Self {
        Self { nodes, ..self }
    }

    /// Notes that are valid for runs with `options`.
    pub(super) fn of(all: &[Self], options: &Options) -> Vec<String> {
        let valid = all.iter().filter(|differs| {
            differs.lab.is_none_or(|lab| lab == options.is_lab())
                && (differs.tcps.is_empty()
                    || differs.tcps.iter().any(|tcp| options.tcps.contains(tcp)))
                && (differs.nodes.is_empty()
                    || differs.nodes.iter().any(|node| options.wants(node)))
        });
        valid.map(|differs| differs.text.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::options;
    use super::super::{Job, PapersError, Testbed};
    use super::*;
    use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};

    /// Only the name is used.
    #[derive(Debug)]
    struct Named;

    impl Testbed for Named {
        fn name(&self) -> Option<String> {
            Some("Linux".to_owned())
        }

        fn begin(&self, _: &[Job], _: usize) {}

        fn play(&self, _: &Job) -> Result<Option<(FlowInstance, FlowResult)>, PapersError> {
            Ok(None)
        }
    }

    #[test]
    fn notes_are_of_the_world_the_transport_and_the_node_of_the_runs() {
        let all = [
            Deviation::everywhere("both"),
            Deviation::simulated("model"),
            Deviation::kernel("kernel"),
            Deviation::everywhere("bsd").over(&[Tcp::Bsd]),
            Deviation::simulated("Finland over cubic")
                .over(&[Tcp::Cubic])
                .at(&["willab.fi"]),
        ];
        let simulated = options(1, &[Tcp::Cubic], &["willab"]);
        assert_eq!(
            Deviation::of(&all, &simulated),
            ["both", "model", "Finland over cubic"]
        );
        let elsewhere = options(1, &[Tcp::Bsd, Tcp::Cubic], &["isi"]);
        assert_eq!(Deviation::of(&all, &elsewhere), ["both", "model", "bsd"]);
        let lab = Options {
            world: Arc::new(Named),
            ..simulated
        };
        assert_eq!(Deviation::of(&all, &lab), ["both", "kernel"]);
    }
}
