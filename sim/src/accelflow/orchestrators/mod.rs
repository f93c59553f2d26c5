//! The orchestrators, which decide what follows when an accelerator is done. Each architecture has one file.
//! An orchestrator is a pure function. Its argument describes the work between two ops, and its result names
//! the component that does this work and the time for it. An orchestrator holds no state and uses no clock.

mod accelflow;
mod cohort;
mod cpu_centric;
mod ideal;
mod non_acc;
mod relief;
mod relief_artifact;

use serde::{Deserialize, Serialize};

use super::ids::Kind;
use super::queues::Queues;
use super::spec::Spec;
use crate::Picos;

/// A server architecture, named after the component that orchestrates its accelerators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// There are no accelerators.
    NonAcc,
    /// A core decides what follows, after an interrupt by every accelerator.
    CpuCentric,
    /// One hardware manager with one queue, as \[AccelFlow\] describes RELIEF.
    Relief,
    /// RELIEF as its public code implements it. It has a list for each accelerator, ordered by laxity, and DMA
    /// interrupts the manager too.
    ReliefArtifact,
    /// Cores decide what follows, except between a few linked pairs of accelerators.
    Cohort,
    /// RELIEF with a queue for each accelerator.
    PerTypeQueues,
    /// `PerTypeQueues` in which accelerators also pass payloads directly. Branches, transforms and large payloads go to
    /// the manager.
    Direct,
    /// Like `Direct`, but the dispatchers also resolve branches.
    ControlFlow,
    /// The dispatchers handle everything.
    #[serde(rename = "accelflow")]
    AccelFlow,
    /// AccelFlow with branches and transforms that cost nothing.
    Ideal,
}

impl Architecture {
    /// All architectures in the published order. The ablation's steps come before AccelFlow, and RELIEF's public code
    /// comes after RELIEF.
    pub const ALL: [Architecture; 10] = [
        Architecture::NonAcc,
        Architecture::CpuCentric,
        Architecture::Relief,
        Architecture::ReliefArtifact,
        Architecture::Cohort,
        Architecture::PerTypeQueues,
        Architecture::Direct,
        Architecture::ControlFlow,
        Architecture::AccelFlow,
        Architecture::Ideal,
    ];

    /// The five architectures of figure 11.
    pub const COMPARED: [Architecture; 5] = [
        Architecture::NonAcc,
        Architecture::CpuCentric,
        Architecture::Relief,
        Architecture::Cohort,
        Architecture::AccelFlow,
    ];

    /// Returns the word that command lines and results use.
    pub const fn name(self) -> &'static str {
        match self {
            Architecture::NonAcc => "non-acc",
            Architecture::CpuCentric => "cpu-centric",
            Architecture::Relief => "relief",
            Architecture::ReliefArtifact => "relief-artifact",
            Architecture::Cohort => "cohort",
            Architecture::PerTypeQueues => "per-type-queues",
            Architecture::Direct => "direct",
            Architecture::ControlFlow => "control-flow",
            Architecture::AccelFlow => "accelflow",
            Architecture::Ideal => "ideal",
        }
    }

    /// Returns the architecture of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    pub(super) fn orchestrator(self) -> Orchestrator {
        match self {
            Architecture::NonAcc => non_acc::ORCHESTRATOR,
            Architecture::CpuCentric => cpu_centric::ORCHESTRATOR,
            Architecture::Relief => relief::ORCHESTRATOR,
            Architecture::ReliefArtifact => relief_artifact::ORCHESTRATOR,
            Architecture::Cohort => cohort::ORCHESTRATOR,
            Architecture::PerTypeQueues => relief::PER_TYPE_QUEUES,
            Architecture::Direct => accelflow::DIRECT,
            Architecture::ControlFlow => accelflow::CONTROL_FLOW,
            Architecture::AccelFlow => accelflow::ORCHESTRATOR,
            Architecture::Ideal => ideal::ORCHESTRATOR,
        }
    }
}

/// The rules of an architecture.
#[derive(Clone, Copy)]
pub(super) struct Orchestrator {
    pub(super) queues: Queues,
    /// Returns the handoff from an op to what follows it.
    pub(super) after: fn(&Glue, &Spec) -> Handoff,
}

/// The work between two ops: branches, transforms, and the end of a trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Glue {
    /// The accelerator that has finished an op.
    pub(super) from: Kind,
    /// The accelerator of the next op, if an op follows.
    pub(super) to: Option<Kind>,
    pub(super) branches: u32,
    pub(super) transforms: u32,
    /// Whether the trace ends here, so that another trace is loaded or a core is notified.
    pub(super) ends: bool,
    /// Whether the next trace is loaded from the trace memory.
    pub(super) loads: bool,
    /// Whether the payload is too large for an entry.
    pub(super) large: bool,
}

/// The component that does the work between two ops, and the cost of this work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Handoff {
    pub(super) via: Via,
    pub(super) time: Picos,
    /// The number of instructions that the output dispatcher executes.
    pub(super) instructions: u32,
}

/// The component that does the work between two ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    /// The accelerator's output dispatcher.
    Dispatcher,
    /// The hardware manager, which all accelerators share.
    Manager,
    /// A core.
    Core,
}

impl Handoff {
    fn core(ns: f64) -> Self {
        Self { via: Via::Core, time: Picos::from_ns(ns), instructions: 0 }
    }

    fn manager(ns: f64) -> Self {
        Self { via: Via::Manager, time: Picos::from_ns(ns), instructions: 0 }
    }

    /// Returns the handoff by an output dispatcher that handles this number of branches and transforms.
    fn dispatcher(glue: &Glue, spec: &Spec, branches: u32, transforms: u32) -> Self {
        let dispatcher = &spec.dispatcher;
        let end = if glue.ends { dispatcher.end_instructions } else { 0 };
        let instructions = dispatcher.instructions
            + end
            + branches * dispatcher.branch_instructions
            + transforms * dispatcher.transform_instructions;
        let memory_ns = if glue.loads { spec.hardware.atm_ns } else { 0.0 };
        let ns = f64::from(instructions) * dispatcher.instruction_ns + memory_ns;
        Self { via: Via::Dispatcher, time: Picos::from_ns(ns), instructions }
    }
}
