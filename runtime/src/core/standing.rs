//! Answers that stand, of a policy that weighs costs: while the jobs and the states are at hand for which it said so
//! nothing is estimated, and it is not asked. Which those are to be is chosen here, whether an answer stands is not.

use device::{Class, Job};
use policy::{Choice, JobFacts, Placement, Snapshot};
use units::Nanos;

use super::Runtime;
use crate::history::{Kind, alike};
use crate::slot::{Asked, Shape};

/// What belongs to a job before the places are looked at.
#[derive(Clone, Copy)]
pub(super) struct Drawn {
    pub(super) draw: u64,
    /// Where the policy weighs costs.
    pub(super) gap: Option<Nanos>,
}

/// What the policy said last of jobs of a kind: whether this choice stands in this epoch, for those in no hurry.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    epoch: u64,
    choice: Choice,
    stands: bool,
    shape: Shape,
    /// By the jobs that had come to the core.
    judged_at: u64,
    /// Lower halves of draws from here on are no probes.
    draws_from: u32,
    gap_max: Nanos,
    /// What may be inside the chosen device.
    depth_max: usize,
    backlog_bytes_max: usize,
}

impl Runtime {
    /// For each job for which no answer is known, those too that a probe or the configuration places.
    #[inline(always)]
    pub(super) fn drawn(&mut self, job: &Job, now: Nanos) -> Drawn {
        let draw = if self.slots.len() > 1 { self.draws.bits() } else { 0 };
        let gap = self.weighs.then(|| self.history.arrived(job.work_bytes(), now));
        Drawn { draw, gap }
    }

    /// The answer for the job, if one stands: then it is what the policy would say.
    #[inline(always)]
    pub(super) fn standing(&mut self, job: &Job, drawn: Drawn) -> Option<Choice> {
        let arrivals = self.history.arrivals();
        let Kind { last, standing } = self.history.kind(job.task.op(), job.work_bytes());
        let standing = standing.as_ref()?;
        if !standing.stands || standing.epoch != self.answers.epoch() {
            return None;
        }
        let slot = &self.slots[standing.choice.device()];
        let holds = drawn.draw as u32 >= standing.draws_from
            && drawn.gap.is_some_and(|gap| gap <= standing.gap_max)
            && slot.depth() <= standing.depth_max
            && slot.backlog_bytes() <= standing.backlog_bytes_max
            && arrivals <= standing.judged_at + JOBS_MAX
            && standing.shape == Shape::of(&job.task)
            && job.class == Class::LatencyCritical
            && job.deadline.is_none()
            && *last == Some(standing.choice);
        holds.then_some(standing.choice)
    }

    /// Asks the policy whether its choice stands, if it was not asked since what is known became something else, and
    /// not just now: what changes with every job must not be judged with every job. Not where the core is held: that
    /// takes so much longer than to ask, next time too.
    #[inline(always)]
    pub(super) fn judge(
        &mut self,
        facts: &JobFacts,
        asked: &Asked<'_>,
        choice: Choice,
        gap: Nanos,
    ) {
        let (epoch, arrivals) = (self.answers.epoch(), self.history.arrivals());
        let last = self.history.kind(facts.op, asked.work_bytes).standing.as_ref();
        let is_judged = last.is_some_and(|last| {
            let holds = last.epoch == epoch
                && last.shape == asked.shape
                && (last.stands || last.choice == choice);
            arrivals <= last.judged_at + if holds { JOBS_MAX } else { JOBS_MIN }
        });
        let is_calm = facts.class == Class::LatencyCritical && facts.time_left.is_none();
        let may_stand = is_calm && choice.placement == Placement::Async && self.retired == 0;
        if may_stand && !is_judged {
            self.judge_anew(facts, asked, choice, gap);
        }
    }

    /// For all jobs of the kind, up to the longest queue of some for which it stands.
    #[cold]
    #[inline(never)]
    fn judge_anew(&mut self, facts: &JobFacts, asked: &Asked<'_>, choice: Choice, gap: Nanos) {
        let Some([least_bytes, most_bytes]) = alike(asked.work_bytes) else { return };
        let mut standing = Standing {
            epoch: self.answers.epoch(),
            choice,
            stands: false,
            shape: asked.shape,
            judged_at: self.history.arrivals(),
            draws_from: 0,
            gap_max: Nanos(gap.0 + gap.0 / GAP_DIVISOR),
            depth_max: 0,
            backlog_bytes_max: 0,
        };
        let until = standing.judged_at + JOBS_MAX;
        let facts = JobFacts { work_bytes: least_bytes, ..*facts };
        let [least, most] =
            [least_bytes, most_bytes].map(|work_bytes| Asked { work_bytes, ..*asked });
        for (ends, asked) in self.ends.iter_mut().zip([&least, &most]) {
            for (state, slot) in ends.iter_mut().zip(&mut self.slots) {
                slot.update(state, asked);
                state.depth = 0;
                slot.estimate(state, asked, 0, until);
            }
        }
        let slot = &self.slots[choice.device()];
        for depth in DEPTHS.into_iter().filter(|depth| *depth < slot.capabilities.queue_depth) {
            let backlog_bytes = depth * MEANS * self.history.mean_bytes();
            let state = &mut self.ends[1][choice.device()];
            state.depth = depth;
            slot.estimate(state, &most, backlog_bytes, until);
            let gap = Some(standing.gap_max);
            let ends = self.ends.each_ref();
            let [least, most] = ends.map(|devices| Snapshot { devices, waiting: 0, gap });
            let Some(draws_from) = self.policy.stands(choice, &facts, &least, &most) else { break };
            (standing.stands, standing.draws_from) = (true, draws_from);
            (standing.depth_max, standing.backlog_bytes_max) = (depth, backlog_bytes);
        }
        self.history.kind(facts.op, asked.work_bytes).standing = Some(standing);
    }
}

/// So many jobs may come until the policy is asked again: what will be forgotten by then is taken to be so now.
const JOBS_MAX: u64 = 1_024;

/// And so many must have come, whatever changed.
const JOBS_MIN: u64 = 32;

/// The gap may become longer by so large a part.
const GAP_DIVISOR: u64 = 4;

/// Jobs inside, of so many times the mean size, that are tried one after the other.
const DEPTHS: [usize; 8] = [0, 1, 2, 4, 8, 16, 32, 64];
const MEANS: usize = 2;
