//! The counts of a run, and the single numbers computed from them.

use super::ids::{ByKind, KINDS};
use super::spec::Spec;
use crate::Picos;

/// The counts of a run. The counts of its windows are added.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) duration: Picos,
    pub(super) events: u64,
    pub(super) requests: u64,
    /// The invocations of each accelerator, including fallbacks.
    pub(super) ops: ByKind<u64>,
    pub(super) overflows: u64,
    /// The fallbacks to cores, by accelerator.
    pub(super) fallbacks: ByKind<u64>,
    /// The number of ops that took their payload from the scratchpad where it was produced.
    pub(super) forwards: u64,
    pub(super) wipes: u64,
    pub(super) tlb_misses: u64,
    pub(super) page_faults: u64,
    pub(super) timeouts: u64,
    /// The number of requests that ended without an answer.
    pub(super) failed: u64,
    pub(super) missed: u64,
    pub(super) dispatches: u64,
    pub(super) instructions: u64,
    pub(super) pes_busy: ByKind<Picos>,
    pub(super) cores_busy: Picos,
    /// The part of `cores_busy` in which cores decided what follows an accelerator's op.
    pub(super) visits: Picos,
    pub(super) manager_busy: Picos,
    pub(super) engines_busy: Picos,
    pub(super) links_busy: Picos,
    /// The time from the end of an op to the decision about what follows. It includes waiting for the component that
    /// decides: a dispatcher, the manager or a core.
    pub(super) deciding: Picos,
    /// The time from the decision about what follows an op until the data has arrived or a core is notified.
    pub(super) moving: Picos,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Counts) {
        let sums = [
            (&mut self.events, other.events),
            (&mut self.requests, other.requests),
            (&mut self.overflows, other.overflows),
            (&mut self.forwards, other.forwards),
            (&mut self.wipes, other.wipes),
            (&mut self.tlb_misses, other.tlb_misses),
            (&mut self.page_faults, other.page_faults),
            (&mut self.timeouts, other.timeouts),
            (&mut self.failed, other.failed),
            (&mut self.missed, other.missed),
            (&mut self.dispatches, other.dispatches),
            (&mut self.instructions, other.instructions),
        ];
        sums.into_iter().for_each(|(sum, more)| *sum += more);
        let times = [
            (&mut self.duration, other.duration),
            (&mut self.cores_busy, other.cores_busy),
            (&mut self.visits, other.visits),
            (&mut self.manager_busy, other.manager_busy),
            (&mut self.engines_busy, other.engines_busy),
            (&mut self.links_busy, other.links_busy),
            (&mut self.deciding, other.deciding),
            (&mut self.moving, other.moving),
        ];
        times.into_iter().for_each(|(sum, more)| *sum += more);
        self.pes_busy.iter_mut().zip(other.pes_busy.iter()).for_each(|(sum, more)| *sum += *more);
        let by_kind = [(&mut self.ops, &other.ops), (&mut self.fallbacks, &other.fallbacks)];
        for (sums, other) in by_kind {
            sums.iter_mut().zip(other.iter()).for_each(|(sum, more)| *sum += more);
        }
    }

    /// Returns the facts in the order of [`names`].
    pub(super) fn facts(&self, spec: &Spec) -> Vec<f64> {
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let time = |part: Picos, servers: u32| {
            share(part.0 as f64, self.duration.0 as f64 * f64::from(servers))
        };
        let of = |part: u64, whole: u64| share(part as f64, whole as f64);
        let (ops, fallbacks): (u64, u64) = (self.ops.iter().sum(), self.fallbacks.iter().sum());
        let hardware = &spec.hardware;
        let pes: Picos = self.pes_busy.iter().fold(Picos(0), |sum, busy| sum + *busy);
        let working = pes + self.cores_busy.since(self.visits);
        let handled = (working + self.deciding + self.moving).0 as f64;
        let mut facts = vec![
            time(self.cores_busy, hardware.cores),
            time(self.manager_busy, 1),
            time(self.engines_busy, hardware.dma_engines),
        ];
        facts.extend(self.pes_busy.iter().map(|busy| time(*busy, hardware.pes)));
        facts.extend([
            of(self.overflows, ops),
            of(fallbacks, ops),
            of(self.forwards, ops),
            of(self.wipes, ops),
            of(self.tlb_misses, ops),
            of(self.page_faults, ops),
            of(self.instructions, self.dispatches),
            share(self.deciding.0 as f64, handled),
            share(self.moving.0 as f64, handled),
            1e6 * of(self.timeouts, self.requests),
            of(self.failed, self.requests),
            of(self.missed, self.requests),
            of(ops, self.requests),
            of(self.events, self.requests),
        ]);
        facts.extend([share(pes.0 as f64, handled), share(working.since(pes).0 as f64, handled)]);
        facts.extend(
            self.fallbacks.iter().zip(self.ops.iter()).map(|(fallbacks, all)| of(*fallbacks, *all)),
        );
        facts
    }
}

/// Returns the names of [`Counts::facts`].
pub(super) fn names() -> Vec<String> {
    let mut names =
        ["cores.utilisation", "manager.utilisation", "dma.utilisation"].map(str::to_owned).to_vec();
    names.extend(KINDS.map(|kind| format!("{}.utilisation", kind.name())));
    let shares = [
        "ops.overflow_share",
        "ops.fallback_share",
        "ops.forward_share",
        "ops.wipe_share",
        "ops.tlb_miss_share",
        "ops.page_fault_share",
        "dispatcher.instructions",
        "orchestration.share",
        "transfer.share",
        "timeouts_per_million",
        "requests.failed_share",
        "slo.missed_share",
        "ops_per_request",
        "events_per_request",
        "accelerators.time_share",
        "cores.time_share",
    ];
    names.extend(shares.map(str::to_owned));
    names.extend(KINDS.map(|kind| format!("{}.fallback_share", kind.name())));
    names
}
