//! The policy's decisions that hold for more than one job. This module stores them and decides nothing.
//!
//! # Contract
//!
//! A decision that this cache returns is the decision that the policy would make for the job. There are two kinds:
//!
//! - A *sized* decision belongs to a policy that uses no costs. It holds for tasks of one shape and for the sizes that
//!   [`Policy::valid_sizes`] states. There is one per op. [`DecisionCache::get`] finds it before any device's state is
//!   read.
//! - A *validated* decision belongs to a policy that uses costs. It holds for one op and one class of sizes while the
//!   draw, the gap and the chosen queue stay within bounds, for at most [`JOBS_MAX`] jobs. This module chooses the
//!   bounds, and [`Policy::valid_between`] says whether the choice is valid within them. While the choice is valid,
//!   nothing is estimated. [`DecisionCache::get_validated`] finds it.
//!
//! The cache returns no decision for a job that has a deadline. The caller has to call [`DecisionCache::forget`]
//! whenever the open devices, the policy or the costs that it uses change. No other call ends a decision.
//! [`DecisionCache::last`] returns the last choice for a kind of job. A policy that uses costs receives this choice
//! even if it is no longer valid.

use std::ops::Range;

use device::{Class, Job};
use policy::{Choice, DeviceState, JobFacts, Placement, Policy, Snapshot};
use units::{Nanos, Op};

use crate::history::History;
use crate::slot::{JobShape, OPS, Slot, TaskShape};

/// The decisions of one runtime.
pub(super) struct DecisionCache {
    sized: [SizedDecision; OPS],
    /// The kinds of jobs, by op and class of sizes.
    kinds: [[Kind; CLASSES]; OPS],
    /// The number of calls of [`DecisionCache::forget`]. A decision from another epoch is not valid.
    epoch: u64,
    /// Space for the least and the greatest state of each device during a validation. It is kept so that a validation
    /// allocates no memory.
    ends: [Vec<DeviceState>; 2],
}

#[derive(Clone)]
struct SizedDecision {
    shape: TaskShape,
    sizes: Range<usize>,
    epoch: u64,
    choice: Option<Choice>,
}

/// The decisions for the jobs of one op and one class of sizes.
#[derive(Clone, Copy, Default)]
struct Kind {
    last: Option<Choice>,
    validated: Option<ValidatedDecision>,
}

/// The result of the last validation, and the bounds within which it holds.
#[derive(Clone, Copy)]
struct ValidatedDecision {
    epoch: u64,
    choice: Choice,
    is_valid: bool,
    shape: TaskShape,
    /// The number of jobs that had come to the core at the validation.
    validated_at: u64,
    /// A draw leads to no probe if its lower 32 bits are at least this number.
    draws_from: u32,
    gap_max: Nanos,
    /// The largest number of jobs that may be inside the chosen device.
    depth_max: usize,
    backlog_bytes_max: usize,
}

/// The inputs of a decision that belong neither to the job nor to a device.
#[derive(Clone, Copy)]
pub(super) struct Drawn {
    pub(super) draw: u64,
    /// The time between jobs, if the policy uses costs.
    pub(super) gap: Option<Nanos>,
}

/// A new choice of a policy that uses costs.
pub(super) struct Fresh<'a> {
    pub(super) facts: &'a JobFacts,
    pub(super) shape: &'a JobShape<'a>,
    pub(super) choice: Choice,
    pub(super) gap: Nanos,
}

impl DecisionCache {
    pub(super) fn new(states: &[DeviceState]) -> Self {
        let none = SizedDecision { shape: TaskShape::NONE, sizes: 0..0, epoch: 0, choice: None };
        Self {
            sized: std::array::from_fn(|_| none.clone()),
            kinds: [[Kind::default(); CLASSES]; OPS],
            epoch: 1,
            ends: [states.to_vec(), states.to_vec()],
        }
    }

    /// Returns the sized decision for the job, if there is one.
    #[inline]
    pub(super) fn get(&self, job: &Job) -> Option<Choice> {
        let decision = &self.sized[job.task.op().index() % OPS];
        let holds = decision.epoch == self.epoch
            && decision.shape == TaskShape::from_task(&job.task)
            && decision.sizes.contains(&job.work_bytes())
            && job.deadline.is_none();
        if holds { decision.choice } else { None }
    }

    /// Returns the validated decision for the job, if there is one. `arrivals` jobs have come to the core so far.
    #[inline(always)]
    pub(super) fn get_validated(
        &self,
        job: &Job,
        drawn: Drawn,
        slots: &[Slot],
        arrivals: u64,
    ) -> Option<Choice> {
        let Kind { last, validated } = self.kind(job.task.op(), job.work_bytes());
        let validated = validated.as_ref()?;
        if !validated.is_valid || validated.epoch != self.epoch {
            return None;
        }
        let slot = &slots[validated.choice.device()];
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

    /// Returns the last choice for jobs of this op and of about this size.
    #[inline]
    pub(super) fn last(&self, op: Op, work_bytes: usize) -> Option<Choice> {
        self.kind(op, work_bytes).last
    }

    /// Stores a sized decision for jobs like this one and of these sizes.
    pub(super) fn insert(&mut self, job: &Job, sizes: Range<usize>, choice: Choice) {
        let (shape, epoch) = (TaskShape::from_task(&job.task), self.epoch);
        let choice = Some(choice);
        self.sized[job.task.op().index() % OPS] = SizedDecision { shape, sizes, epoch, choice };
    }

    /// Stores the last choice for jobs of this op and of about this size.
    #[inline]
    pub(super) fn set_last(&mut self, op: Op, work_bytes: usize, choice: Choice) {
        self.kind_mut(op, work_bytes).last = Some(choice);
    }

    /// Invalidates all decisions. The last choices are kept.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.epoch += 1;
    }

    /// Returns whether to validate the policy's choice. A choice is validated once per change, and at most
    /// once per [`JOBS_MIN`] jobs. Only async choices are validated: other jobs hold the core for so long
    /// that calling the policy for each of them costs little.
    #[inline(always)]
    pub(super) fn needs_validation(&self, fresh: &Fresh<'_>, arrivals: u64) -> bool {
        let &Fresh { facts, shape, choice, .. } = fresh;
        let last = self.kind(facts.op, shape.work_bytes).validated.as_ref();
        let is_recent = last.is_some_and(|last| {
            let holds = last.epoch == self.epoch
                && last.shape == shape.shape
                && (last.is_valid || last.choice == choice);
            arrivals <= last.validated_at + if holds { JOBS_MAX } else { JOBS_MIN }
        });
        let is_latency_critical =
            facts.class == Class::LatencyCritical && facts.time_left.is_none();
        is_latency_critical && choice.placement == Placement::Async && !is_recent
    }

    /// Validates the choice for all jobs of the kind, up to the largest queue depth at which it is valid.
    #[cold]
    #[inline(never)]
    pub(super) fn validate(
        &mut self,
        Fresh { facts, shape, choice, gap }: Fresh<'_>,
        policy: &dyn Policy,
        slots: &mut [Slot],
        history: &History,
    ) {
        let Some([least_bytes, most_bytes]) = class_ends(shape.work_bytes) else { return };
        let mut validated = ValidatedDecision {
            epoch: self.epoch,
            choice,
            is_valid: false,
            shape: shape.shape,
            validated_at: history.arrivals(),
            draws_from: 0,
            gap_max: Nanos(gap.0 + gap.0 / GAP_DIVISOR),
            depth_max: 0,
            backlog_bytes_max: 0,
        };
        let until = validated.validated_at + JOBS_MAX;
        let facts = JobFacts { work_bytes: least_bytes, ..*facts };
        let [least, most] =
            [least_bytes, most_bytes].map(|work_bytes| JobShape { work_bytes, ..*shape });
        for (ends, shape) in self.ends.iter_mut().zip([&least, &most]) {
            for (state, slot) in ends.iter_mut().zip(&mut *slots) {
                slot.update(state, shape);
                state.depth = 0;
                slot.estimate(state, shape, 0, until);
            }
        }
        let slot = &slots[choice.device()];
        for depth in DEPTHS.into_iter().filter(|depth| *depth < slot.capabilities.queue_depth) {
            let backlog_bytes = depth * MEANS * history.mean_bytes();
            let state = &mut self.ends[1][choice.device()];
            state.depth = depth;
            slot.estimate(state, &most, backlog_bytes, until);
            let gap = Some(validated.gap_max);
            let ends = self.ends.each_ref();
            let [least, most] = ends.map(|devices| Snapshot { devices, waiting: 0, gap });
            let Some(draws_from) = policy.valid_between(choice, &facts, &least, &most) else {
                break;
            };
            (validated.is_valid, validated.draws_from) = (true, draws_from);
            (validated.depth_max, validated.backlog_bytes_max) = (depth, backlog_bytes);
        }
        self.kind_mut(facts.op, shape.work_bytes).validated = Some(validated);
    }

    #[inline]
    fn kind(&self, op: Op, work_bytes: usize) -> &Kind {
        &self.kinds[op.index() % OPS][class(work_bytes)]
    }

    #[inline]
    fn kind_mut(&mut self, op: Op, work_bytes: usize) -> &mut Kind {
        &mut self.kinds[op.index() % OPS][class(work_bytes)]
    }
}

/// Returns the least and the greatest size of the class that contains `bytes`. Returns none for the last
/// class, which has no upper bound.
fn class_ends(bytes: usize) -> Option<[usize; 2]> {
    let least = 1 << class(bytes);
    (class(bytes) < CLASSES - 1).then_some([least & !1, 2 * least - 1])
}

/// Returns the class of a size. Classes are powers of two, and the last one holds all sizes from 1 GiB.
fn class(bytes: usize) -> usize {
    ((bytes | 1).ilog2() as usize).min(CLASSES - 1)
}

const CLASSES: usize = 31;

/// The number of jobs after which a choice is validated again. Costs that will be forgotten by then already
/// count as forgotten at the validation.
const JOBS_MAX: u64 = 1_024;

/// The least number of jobs between two validations, even if values change.
const JOBS_MIN: u64 = 32;

/// A decision stays valid while the gap between jobs grows by at most a quarter (`gap / GAP_DIVISOR`).
const GAP_DIVISOR: u64 = 4;

/// The queue depths at which a choice is validated. A queued job counts as `MEANS` times the mean job size.
const DEPTHS: [usize; 8] = [0, 1, 2, 4, 8, 16, 32, 64];
const MEANS: usize = 2;

#[cfg(test)]
mod tests {
    use policy::Reason;

    use super::*;

    #[test]
    fn the_last_choice_is_kept_by_op_and_size() {
        let mut cache = DecisionCache::new(&[]);
        let choice = Choice::to(1, Placement::Sync, Reason::Policy);
        cache.set_last(Op::Compress, 5_000, choice);
        assert_eq!(cache.last(Op::Compress, 4_096), Some(choice));
        assert_eq!(cache.last(Op::Compress, 4_095), None);
        assert_eq!(cache.last(Op::Decompress, 5_000), None);
    }

    #[test]
    fn classes_end_at_powers_of_two() {
        assert_eq!(class_ends(5_000), Some([4_096, 8_191]));
        assert_eq!([0, 1, 2].map(class_ends), [Some([0, 1]), Some([0, 1]), Some([2, 3])]);
        assert_eq!([usize::MAX, 1 << 30].map(class_ends), [None, None]);
    }
}
