//! How jobs reach an accelerator and what that costs the submitting core. Arithmetic on a profile's
//! points; it submits nothing.

use serde::{Deserialize, Serialize};
use units::Nanos;

use super::Figure;
use super::curve::{LatencyPoint, line};

/// How jobs reach an accelerator and how many it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accelerator {
    /// Where the submitting core is.
    pub attachment: Figure<Attachment>,
    /// Jobs that run at the same time.
    pub engines: Figure<u64>,
    /// Queues that the engines take jobs from, where it is published.
    pub work_queues: Option<Figure<u64>>,
    /// Jobs that all queues hold together; above it a submission is refused.
    pub entries_total: Figure<u64>,
    /// When the first poll of a typical job pays.
    pub expected_poll_ns: Figure<u64>,
    /// What a lone submission costs the core that makes it, by the bytes of the job; one point is a constant, and
    /// beyond the last the last slope goes on.
    pub submit: Vec<LatencyPoint>,
    /// What submissions that go out together cost each; without points they cost what lone ones do.
    #[serde(default)]
    pub submit_batch: Vec<SubmitBatchPoint>,
}

/// Where the submitting core is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attachment {
    /// On the accelerator's own chip.
    OnChip,
    /// Behind a bus.
    OffChip,
}

/// What each of several submissions costs that go out together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitBatchPoint {
    /// Jobs submitted with no poll between them; the first point is 1.
    pub jobs: u64,
    /// The cost of all of them over their number.
    pub ns_per_job: Figure<u64>,
}

impl Accelerator {
    /// What the `nth` of several submissions without a poll between them costs, so that the first n
    /// cost n times what the curve says for n. By size in proportion to the lone ones.
    pub(super) fn submit(&self, bytes: u64, nth: u64) -> Nanos {
        let lone = line(&self.submit, bytes);
        let Some(first) = self.submit_batch.first().filter(|_| nth > 1) else {
            return Nanos(lone.round() as u64);
        };
        let added = self.batch_total(nth) - self.batch_total(nth - 1);
        let share = (added / first.ns_per_job.value.max(1) as f64).max(0.0);
        Nanos((lone * share).round() as u64)
    }

    /// What the first `jobs` cost together (ns); beyond the last point each costs what it says.
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
