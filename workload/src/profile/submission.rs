//! The way in which jobs reach an accelerator, and its cost for the submitting core. It is arithmetic on a profile's
//! points, and submits nothing.

use serde::{Deserialize, Serialize};
use units::Nanos;

use super::Figure;
use super::curve::{LatencyPoint, line};

/// The way in which jobs reach an accelerator, and how many it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accelerator {
    /// The place of the submitting core.
    pub attachment: Figure<Attachment>,
    /// Jobs that run at the same time.
    pub engines: Figure<u64>,
    /// The number of queues that the engines take jobs from, if it is published.
    pub work_queues: Option<Figure<u64>>,
    /// Jobs that all queues hold together; above it a submission is refused.
    pub entries_total: Figure<u64>,
    /// The time at which the first poll of a typical job pays.
    pub expected_poll_ns: Figure<u64>,
    /// The cost of a lone submission for the core that makes it, by the bytes of the job. One point is a constant, and
    /// beyond the last point the last slope goes on.
    pub submit: Vec<LatencyPoint>,
    /// The cost of each of several submissions that go out together. Without points they cost as much as lone ones.
    #[serde(default)]
    pub submit_batch: Vec<SubmitBatchPoint>,
}

/// The place of the submitting core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attachment {
    /// On the accelerator's own chip.
    OnChip,
    /// Behind a bus.
    OffChip,
}

/// The cost of each of several submissions that go out together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitBatchPoint {
    /// Jobs submitted with no poll between them; the first point is 1.
    pub jobs: u64,
    /// The cost of all of them over their number.
    pub ns_per_job: Figure<u64>,
}

impl Accelerator {
    /// Returns the cost of the `nth` of several submissions without a poll between them, so that the first n cost n
    /// times what the curve says for n. By size it is in proportion to the lone ones.
    pub(super) fn submit(&self, bytes: u64, nth: u64) -> Nanos {
        let lone = line(&self.submit, bytes);
        let Some(first) = self.submit_batch.first().filter(|_| nth > 1) else {
            return Nanos(lone.round() as u64);
        };
        let added = self.batch_total(nth) - self.batch_total(nth - 1);
        let share = (added / first.ns_per_job.value.max(1) as f64).max(0.0);
        Nanos((lone * share).round() as u64)
    }

    /// Returns the cost of the first `jobs` together (ns). Beyond the last point each costs what that point says.
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
