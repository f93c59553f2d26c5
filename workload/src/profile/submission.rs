//! Computes the cost of a submission for the submitting core from the points of a profile.

use serde::{Deserialize, Serialize};
use units::Nanos;

use super::Figure;
use super::curve::{LatencyPoint, line};

/// The submission path and the capacity of an accelerator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accelerator {
    /// The place of the accelerator, as seen from the submitting core.
    pub attachment: Figure<Attachment>,
    /// The number of jobs that run at the same time.
    pub engines: Figure<u64>,
    /// The number of queues that the engines take jobs from, if it is published.
    pub work_queues: Option<Figure<u64>>,
    /// The number of jobs that all queues hold together. Further submissions are refused.
    pub entries_total: Figure<u64>,
    /// The time from the submission of a typical job to the earliest poll that is worthwhile (ns).
    pub expected_poll_ns: Figure<u64>,
    /// The time that the submitting core spends on a single submission, by the size of the job. A list of one
    /// point is a constant. Beyond the last point the last slope continues.
    pub submit: Vec<LatencyPoint>,
    /// The cost of each submission in a batch without polls. If empty, each costs as much as a single one.
    #[serde(default)]
    pub submit_batch: Vec<SubmitBatchPoint>,
}

/// The place of the accelerator, as seen from the submitting core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attachment {
    /// The accelerator is on the chip of the core.
    OnChip,
    /// The accelerator is behind a bus.
    OffChip,
}

/// The cost of each submission in a batch without polls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitBatchPoint {
    /// The number of jobs that are submitted without a poll between them. The first point has 1 job.
    pub jobs: u64,
    /// The cost of the batch divided by its jobs (ns).
    pub ns_per_job: Figure<u64>,
}

impl Accelerator {
    /// Returns the cost of the `nth` submission of a batch without polls: the cost of a single submission of
    /// this size, scaled by the ratio of the `nth` to the first submission in `submit_batch`.
    pub(super) fn submit(&self, bytes: u64, nth: u64) -> Nanos {
        let lone = line(&self.submit, bytes);
        let Some(first) = self.submit_batch.first().filter(|_| nth > 1) else {
            return Nanos(lone.round() as u64);
        };
        let added = self.batch_total(nth) - self.batch_total(nth - 1);
        let share = (added / first.ns_per_job.value.max(1) as f64).max(0.0);
        Nanos((lone * share).round() as u64)
    }

    /// Returns the cost of the first `jobs` submissions together (ns). Beyond the last point each submission costs as
    /// much as at that point.
    fn batch_total(&self, jobs: u64) -> f64 {
        let after = self.submit_batch.iter().position(|point| jobs <= point.jobs);
        let total = |point: &SubmitBatchPoint| (point.jobs * point.ns_per_job.value) as f64;
        match after.map(|index| (index.checked_sub(1), &self.submit_batch[index])) {
            Some((None, first)) => total(first),
            Some((Some(before), right)) => {
                let left = &self.submit_batch[before];
                let span = (right.jobs - left.jobs) as f64;
                total(left) + (total(right) - total(left)) * (jobs - left.jobs) as f64 / span
            }
            None => {
                self.submit_batch.last().map_or(0.0, |last| (jobs * last.ns_per_job.value) as f64)
            }
        }
    }

    pub(super) fn figures_mut(&mut self) -> impl Iterator<Item = &mut Figure<u64>> {
        let lone = self.submit.iter_mut().map(|point| &mut point.ns);
        let together = self.submit_batch.iter_mut().map(|point| &mut point.ns_per_job);
        lone.chain(together).chain([&mut self.expected_poll_ns])
    }
}
