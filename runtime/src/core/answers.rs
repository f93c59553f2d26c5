//! What the policy answered last: while the same devices are open it is not asked again for jobs that are alike to it.
//! Nothing is decided here.

use std::ops::Range;

use device::Job;
use policy::Choice;

use crate::slot::{OPS, Shape};

/// By op, the last answer that holds for other jobs too.
pub(super) struct Answers {
    known: [Answer; OPS],
    /// How often the open devices, the policy, or costs that it weighs became others.
    epoch: u64,
}

#[derive(Clone)]
struct Answer {
    shape: Shape,
    sizes: Range<usize>,
    epoch: u64,
    choice: Option<Choice>,
}

impl Default for Answers {
    fn default() -> Self {
        let none = Answer { shape: Shape::NONE, sizes: 0..0, epoch: 0, choice: None };
        // None was learnt in an epoch that is.
        Self { known: std::array::from_fn(|_| none.clone()), epoch: 1 }
    }
}

impl Answers {
    /// The answer for the job, if it is known.
    #[inline]
    pub(super) fn of(&self, job: &Job) -> Option<Choice> {
        let answer = &self.known[job.task.op().index() % OPS];
        let holds = answer.epoch == self.epoch
            && answer.shape == Shape::of(&job.task)
            && answer.sizes.contains(&job.work_bytes())
            && job.deadline.is_none();
        if holds { answer.choice } else { None }
    }

    /// The answer holds for jobs of this shape and of these sizes.
    pub(super) fn learn(&mut self, job: &Job, sizes: Range<usize>, choice: Choice) {
        let (shape, epoch) = (Shape::of(&job.task), self.epoch);
        let choice = Some(choice);
        self.known[job.task.op().index() % OPS] = Answer { shape, sizes, epoch, choice };
    }

    /// Changes whenever what was learnt may no longer hold.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Other devices are open now, or the policy, or what it is told of costs, is another one.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.epoch += 1;
    }
}
