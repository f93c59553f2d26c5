//! The counters of an executor since its start. Only the executor writes them, and any thread may read them.
//! The runtime's metrics also count where each job of a trace ran, like for any job.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use device::TenantId;
use policy::Reason;
use units::Op;

use super::error::CauseKind;

/// One executor's counters.
#[derive(Debug)]
pub struct TraceMetrics {
    cells: [AtomicU64; CELLS],
    /// The number of traces in flight, for every tenant that has any.
    tenants: Mutex<HashMap<TenantId, usize>>,
}

/// An event that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// A trace that was started.
    Started,
    /// A trace whose end was reported to its caller.
    Reported,
    /// A trace whose caller stopped waiting.
    GivenUp,
    /// A path that failed after the caller had its result.
    FailedLater,
    /// A job that waited in the overflow area.
    Overflowed,
    /// A job that found the overflow area full.
    OverflowFull,
    /// A step that was done after its deadline.
    Late,
    /// An answer that did not come in time.
    Unanswered,
    /// A trace that was refused and not started. The field is the cause of the refusal.
    Refused(CauseKind),
    /// A trace that was started and failed, so that its caller got the input back. The field is the cause of the
    /// failure.
    Failed(CauseKind),
    /// A job that went to software because a device failed, lost or kept it, or because no device had space. The field
    /// says which of these happened.
    Fallback(Reason),
    /// An op of a trace that ran. The fields are the op and the place where it ran.
    Step(Op, Ran),
}

/// The place where an op of a trace ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// A job on a device.
    Device,
    /// A job in software.
    Software,
    /// A kernel on the calling core. This includes a decompression that only reads a stored payload.
    Kernel,
    /// The service's port.
    Port,
}

impl Ran {
    /// Returns the name that metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            Ran::Device => "device",
            Ran::Software => "software",
            Ran::Kernel => "kernel",
            Ran::Port => "port",
        }
    }
}

impl Counted {
    /// Returns every event that can be counted.
    pub fn all() -> impl Iterator<Item = Counted> {
        let of = |op| ran(op).iter().map(move |ran| Counted::Step(op, *ran));
        ALONE
            .into_iter()
            .chain(REFUSALS.into_iter().map(Counted::Refused))
            .chain(FAILURES.into_iter().map(Counted::Failed))
            .chain(FALLBACKS.into_iter().map(Counted::Fallback))
            .chain(Op::ALL.into_iter().flat_map(of))
    }

    fn index(self) -> usize {
        match self {
            Counted::Started => 0,
            Counted::Reported => 1,
            Counted::GivenUp => 2,
            Counted::FailedLater => 3,
            Counted::Overflowed => 4,
            Counted::OverflowFull => 5,
            Counted::Late => 6,
            Counted::Unanswered => 7,
            Counted::Refused(cause) => REFUSED + cause as usize,
            Counted::Failed(cause) => FAILED + cause as usize,
            Counted::Fallback(reason) => FALLBACK + reason as usize,
            Counted::Step(op, ran) => STEP + op.index() * PLACES + ran as usize,
        }
    }
}

impl Default for TraceMetrics {
    fn default() -> Self {
        Self { cells: std::array::from_fn(|_| AtomicU64::new(0)), tenants: Mutex::default() }
    }
}

impl TraceMetrics {
    /// Returns how often the event was counted.
    pub fn read(&self, what: Counted) -> u64 {
        self.cells[what.index()].load(Ordering::Relaxed)
    }

    /// Adds to an event that only one thread counts, without a locked instruction.
    pub fn add(&self, what: Counted, by: u64) {
        let cell = &self.cells[what.index()];
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    pub(crate) fn up(&self, what: Counted) {
        self.add(what, 1);
    }

    /// Returns the number of traces in flight by tenant, for tenants that have any.
    pub fn live(&self) -> Vec<(TenantId, usize)> {
        let mut live: Vec<_> =
            self.tenants().iter().map(|(tenant, live)| (*tenant, *live)).collect();
        live.sort_unstable_by_key(|(tenant, _)| tenant.0);
        live
    }

    pub(crate) fn live_of(&self, tenant: TenantId) -> usize {
        self.tenants().get(&tenant).copied().unwrap_or(0)
    }

    pub(crate) fn enter(&self, tenant: TenantId) {
        *self.tenants().entry(tenant).or_default() += 1;
    }

    pub(crate) fn leave(&self, tenant: TenantId) {
        let mut tenants = self.tenants();
        if let Some(live) = tenants.get_mut(&tenant) {
            *live -= 1;
            if *live == 0 {
                tenants.remove(&tenant);
            }
        }
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<TenantId, usize>> {
        // A panic under the lock cannot leave an operation half done.
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const ALONE: [Counted; 8] = [
    Counted::Started,
    Counted::Reported,
    Counted::GivenUp,
    Counted::FailedLater,
    Counted::Overflowed,
    Counted::OverflowFull,
    Counted::Late,
    Counted::Unanswered,
];

/// The causes for which a trace is not started.
const REFUSALS: [CauseKind; 4] =
    [CauseKind::Unknown, CauseKind::TooLarge, CauseKind::TenantFull, CauseKind::Full];

/// The causes for which a started trace returns its input.
const FAILURES: [CauseKind; 8] = [
    CauseKind::TooLarge,
    CauseKind::Malformed,
    CauseKind::NoSession,
    CauseKind::NoNonce,
    CauseKind::NoAnswer,
    CauseKind::PeerGone,
    CauseKind::Port,
    CauseKind::Device,
];

/// The reasons for which software replaces a device.
pub(crate) const FALLBACKS: [Reason; 4] =
    [Reason::QueueFull, Reason::DeviceLost, Reason::DeviceFault, Reason::Timeout];

/// Returns the places where an op may run.
const fn ran(op: Op) -> &'static [Ran] {
    match op {
        Op::Compress | Op::Encrypt | Op::Decrypt | Op::Checksum | Op::Copy => {
            &[Ran::Device, Ran::Software]
        }
        // A frame may store its payload unchanged.
        Op::Decompress => &[Ran::Device, Ran::Software, Ran::Kernel],
        // They are jobs if a device does them.
        Op::Serialize | Op::Deserialize | Op::Rpc => &[Ran::Device, Ran::Software, Ran::Kernel],
        Op::LoadBalance => &[Ran::Device, Ran::Software, Ran::Port],
        Op::Tcp => &[Ran::Port],
        // The checks allow this op only at the ends of paths.
        Op::Notify => &[],
    }
}

const REFUSED: usize = ALONE.len();
const FAILED: usize = REFUSED + CauseKind::COUNT;
const FALLBACK: usize = FAILED + CauseKind::COUNT;
const STEP: usize = FALLBACK + Reason::ALL.len();
const PLACES: usize = Ran::Port as usize + 1;
const CELLS: usize = STEP + Op::ALL.len() * PLACES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_counted_has_a_cell_of_its_own() {
        let metrics = TraceMetrics::default();
        for what in Counted::all() {
            assert_eq!(metrics.read(what), 0, "{what:?} shares its cell");
            metrics.up(what);
        }
        assert_eq!(Counted::all().count(), 24 + 26, "26 steps");
    }

    #[test]
    fn tenants_are_those_that_have_traces_in_flight() {
        let metrics = TraceMetrics::default();
        for tenant in [7, 3, 7] {
            metrics.enter(TenantId(tenant));
        }
        assert_eq!(metrics.live(), [(TenantId(3), 1), (TenantId(7), 2)]);
        metrics.leave(TenantId(3));
        metrics.leave(TenantId(3));
        assert_eq!((metrics.live_of(TenantId(7)), metrics.live_of(TenantId(3))), (2, 0));
        assert_eq!(metrics.live().len(), 1);
    }
}
