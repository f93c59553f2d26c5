//! The validity of decisions of a policy that uses costs. While jobs and states stay within the bounds for which the
//! policy said that its choice is valid, nothing is estimated and the policy is not asked. This module chooses the
//! bounds; the policy decides whether the choice is valid within them.

use device::{Class, Job};
use policy::{Choice, JobFacts, Placement, Snapshot};
use units::Nanos;

use super::Runtime;
use crate::history::{Kind, alike};
use crate::slot::{JobShape, TaskShape};

/// The inputs of a decision that belong to a job, before the devices are looked at.
#[derive(Clone, Copy)]
pub(super) struct Drawn {
    pub(super) draw: u64,
    /// The time between jobs, where the policy uses costs.
    pub(super) gap: Option<Nanos>,
}

/// The last decision for jobs of a kind that have no deadline: whether the choice is valid in this epoch.
#[derive(Clone, Copy)]
pub(crate) struct ValidatedDecision {
    epoch: u64,
    choice: Choice,
    is_valid: bool,
    shape: TaskShape,
    /// The number of jobs that had come to the core when it was validated.
    validated_at: u64,
    /// Draws whose lower halves are at least this are no probes.
    draws_from: u32,
    gap_max: Nanos,
    /// The most jobs that may be inside the chosen device.
    depth_max: usize,
    backlog_bytes_max: usize,
}

impl Runtime {
    /// Draws for each job that has no cached decision, including those that a probe or the configuration places.
    #[inline(always)]
    pub(super) fn drawn(&mut self, job: &Job, now: Nanos) -> Drawn {
        let draw = if self.slots.len() > 1 { self.draws.bits() } else { 0 };
        let gap = self.uses_costs.then(|| self.history.arrived(job.work_bytes(), now));
        Drawn { draw, gap }
    }

    /// Returns the choice for the job if a valid one is known. It is what the policy would choose.
    #[inline(always)]
    pub(super) fn validated_choice(&mut self, job: &Job, drawn: Drawn) -> Option<Choice> {
        let arrivals = self.history.arrivals();
        let Kind { last, validated } = self.history.kind(job.task.op(), job.work_bytes());
        let validated = validated.as_ref()?;
        if !validated.is_valid || validated.epoch != self.decision_cache.epoch() {
            return None;
        }
        let slot = &self.slots[validated.choice.device()];
        let holds = drawn.draw as u32 >= validated.draws_from
            && drawn.gap.is_some_and(|gap| gap <= validated.gap_max)
            && slot.depth() <= validated.depth_max
            && slot.backlog_bytes() <= validated.backlog_bytes_max
            && arrivals <= validated.validated_at + JOBS_MAX
            && validated.shape == TaskShape::from_task(&job.task)
            && job.class == Class::LatencyCritical
            && job.deadline.is_none()
            && *last == Some(validated.choice);
        holds.then_some(validated.choice)
    }

    /// Asks the policy whether its choice stays valid, unless it was asked since the last change or just now: a value
    /// that changes with every job must not be validated with every job. It is not asked where the core is held,
    /// because holding the core takes so much longer than asking, next time too.
    #[inline(always)]
    pub(super) fn revalidate(
        &mut self,
        facts: &JobFacts,
        job_shape: &JobShape<'_>,
        choice: Choice,
        gap: Nanos,
    ) {
        let (epoch, arrivals) = (self.decision_cache.epoch(), self.history.arrivals());
        let last = self.history.kind(facts.op, job_shape.work_bytes).validated.as_ref();
        let is_recent = last.is_some_and(|last| {
            let holds = last.epoch == epoch
                && last.shape == job_shape.shape
                && (last.is_valid || last.choice == choice);
            arrivals <= last.validated_at + if holds { JOBS_MAX } else { JOBS_MIN }
        });
        let is_calm = facts.class == Class::LatencyCritical && facts.time_left.is_none();
        let may_stand = is_calm && choice.placement == Placement::Async && self.retired == 0;
        if may_stand && !is_recent {
            self.validate(facts, job_shape, choice, gap);
        }
    }

    /// Validates the choice for all jobs of the kind, up to the longest of some queues for which it is valid.
    #[cold]
    #[inline(never)]
    fn validate(&mut self, facts: &JobFacts, job_shape: &JobShape<'_>, choice: Choice, gap: Nanos) {
        let Some([least_bytes, most_bytes]) = alike(job_shape.work_bytes) else { return };
        let mut validated = ValidatedDecision {
            epoch: self.decision_cache.epoch(),
            choice,
            is_valid: false,
            shape: job_shape.shape,
            validated_at: self.history.arrivals(),
            draws_from: 0,
            gap_max: Nanos(gap.0 + gap.0 / GAP_DIVISOR),
            depth_max: 0,
            backlog_bytes_max: 0,
        };
        let until = validated.validated_at + JOBS_MAX;
        let facts = JobFacts { work_bytes: least_bytes, ..*facts };
        let [least, most] =
            [least_bytes, most_bytes].map(|work_bytes| JobShape { work_bytes, ..*job_shape });
        for (ends, job_shape) in self.ends.iter_mut().zip([&least, &most]) {
            for (state, slot) in ends.iter_mut().zip(&mut self.slots) {
                slot.update(state, job_shape);
                state.depth = 0;
                slot.estimate(state, job_shape, 0, until);
            }
        }
        let slot = &self.slots[choice.device()];
        for depth in DEPTHS.into_iter().filter(|depth| *depth < slot.capabilities.queue_depth) {
            let backlog_bytes = depth * MEANS * self.history.mean_bytes();
            let state = &mut self.ends[1][choice.device()];
            state.depth = depth;
            slot.estimate(state, &most, backlog_bytes, until);
            let gap = Some(validated.gap_max);
            let ends = self.ends.each_ref();
            let [least, most] = ends.map(|devices| Snapshot { devices, waiting: 0, gap });
            let Some(draws_from) = self.policy.stands(choice, &facts, &least, &most) else { break };
            (validated.is_valid, validated.draws_from) = (true, draws_from);
            (validated.depth_max, validated.backlog_bytes_max) = (depth, backlog_bytes);
        }
        self.history.kind(facts.op, job_shape.work_bytes).validated = Some(validated);
    }
}

/// The jobs that may come until the policy is asked again. Costs that will be forgotten by then are taken as forgotten
/// now.
const JOBS_MAX: u64 = 1_024;

/// The jobs that must have come before the policy is asked again, whatever changed.
const JOBS_MIN: u64 = 32;

/// The gap may become longer by so large a part.
const GAP_DIVISOR: u64 = 4;

/// The numbers of jobs in flight that are tried one after the other, each of `MEANS` times the mean size.
const DEPTHS: [usize; 8] = [0, 1, 2, 4, 8, 16, 32, 64];
const MEANS: usize = 2;
