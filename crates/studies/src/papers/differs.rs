//! Explanations of differences between reproduced and published figures.

use super::World;

/// An explanation for the reader of a figure, by the testbed to which it applies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Differs {
    /// For the simulator and for the kernel's TCP.
    Everywhere(&'static str),
    /// For the simulator.
    Simulated(&'static str),
    /// For the kernel's TCP.
    Kernel(&'static str),
}

impl Differs {
    /// Explanations that apply to a figure of `world`.
    pub(super) fn of(all: &[Self], world: &dyn World) -> Vec<String> {
        let is_kernel = world.name().is_some();
        let texts = all.iter().filter_map(|differs| match differs {
            Self::Everywhere(text) => Some(text),
            Self::Simulated(text) => (!is_kernel).then_some(text),
            Self::Kernel(text) => is_kernel.then_some(text),
        });
        texts.map(|text| (*text).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Job, NoPictures, PapersError, Simulator};
    use super::Differs::{Everywhere, Kernel, Simulated};
    use super::*;
    use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};

    /// Testbed of which only the name is used.
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
    fn explanations_of_the_other_testbed_are_omitted() {
        let all = [Everywhere("both"), Simulated("model"), Kernel("kernel")];
        assert_eq!(
            Differs::of(&all, &Simulator::new(Arc::new(NoPictures))),
            ["both", "model"]
        );
        assert_eq!(Differs::of(&all, &Named), ["both", "kernel"]);
    }
}
