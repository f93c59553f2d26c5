//! The policy's last decisions: while the same devices are open, the policy is not asked again for similar jobs.
//! Nothing is decided here.

use std::ops::Range;

use device::Job;
use policy::Choice;

use crate::slot::{OPS, TaskShape};

/// The last decision of each op that holds for other jobs too.
pub(super) struct DecisionCache {
    known: [Decision; OPS],
    /// The number of changes of the open devices, the policy, or the costs that it uses.
    epoch: u64,
}

#[derive(Clone)]
struct Decision {
    shape: TaskShape,
    sizes: Range<usize>,
    epoch: u64,
    choice: Option<Choice>,
}

impl Default for DecisionCache {
    fn default() -> Self {
        let none = Decision { shape: TaskShape::NONE, sizes: 0..0, epoch: 0, choice: None };
        // None was learnt in an epoch that is.
        Self { known: std::array::from_fn(|_| none.clone()), epoch: 1 }
    }
}

impl DecisionCache {
    /// The answer for the job, if it is known.
    #[inline]
    pub(super) fn get(&self, job: &Job) -> Option<Choice> {
        let decision = &self.known[job.task.op().index() % OPS];
        let holds = decision.epoch == self.epoch
            && decision.shape == TaskShape::from_task(&job.task)
            && decision.sizes.contains(&job.work_bytes())
            && job.deadline.is_none();
        if holds { decision.choice } else { None }
    }

    /// The answer holds for jobs of this shape and of these sizes.
    pub(super) fn insert(&mut self, job: &Job, sizes: Range<usize>, choice: Choice) {
        let (shape, epoch) = (TaskShape::from_task(&job.task), self.epoch);
        let choice = Some(choice);
        self.known[job.task.op().index() % OPS] = Decision { shape, sizes, epoch, choice };
    }

    /// Changes whenever what was learnt may no longer hold.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Forgets all decisions, because the open devices, the policy or its knowledge of costs changed.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.epoch += 1;
    }
}
