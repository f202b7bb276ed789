//! Why a figure of ours differs from the published one.

use super::World;

/// A sentence for the reader of a figure, and of which world it is so.
#[derive(Clone, Copy, Debug)]
pub(super) enum Differs {
    /// Of the simulator and of a kernel.
    Everywhere(&'static str),
    /// Of the simulator.
    Simulated(&'static str),
    /// Of a kernel's TCP.
    Kernel(&'static str),
}

impl Differs {
    /// What is to be said of a figure that was played in `world`.
    pub(super) fn of(all: &[Self], world: &dyn World) -> Vec<String> {
        let is_kernel = world.name().is_some();
        let said = all.iter().filter_map(|differs| match differs {
            Self::Everywhere(text) => Some(text),
            Self::Simulated(text) => (!is_kernel).then_some(text),
            Self::Kernel(text) => is_kernel.then_some(text),
        });
        said.map(|text| (*text).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Job, NoPictures, PapersError, Simulator};
    use super::Differs::{Everywhere, Kernel, Simulated};
    use super::*;
    use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};

    /// It is asked for its name only.
    #[derive(Debug)]
    struct Named;

    impl World for Named {
        fn name(&self) -> Option<String> {
            Some("Linux".to_owned())
        }

        fn begin(&self, _: &[Job], _: usize) {}

        fn play(&self, _: &Job) -> Result<Option<(FlowInstance, FlowResult)>, PapersError> {
            Ok(None)
        }
    }

    #[test]
    fn nothing_is_said_of_the_other_world() {
        let all = [Everywhere("both"), Simulated("model"), Kernel("kernel")];
        assert_eq!(
            Differs::of(&all, &Simulator::new(Arc::new(NoPictures))),
            ["both", "model"]
        );
        assert_eq!(Differs::of(&all, &Named), ["both", "kernel"]);
    }
}
