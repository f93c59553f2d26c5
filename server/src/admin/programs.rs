//! The part of the metrics page for executors of programs and for the connections whose requests use them. Labels name
//! the tenants of roles, and the tenant of each connection whose role has none. Jobs of traces are counted with all
//! other jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use runtime::trace::{Counted, TraceMetrics};

use super::exposition::Exposition;
use super::metrics::Workers;

/// Writes the numbers of connections and requests, by outcome.
pub(super) fn connections(page: &mut Exposition, workers: &Workers<'_>) {
    page.counter("rebate_program_requests_total", "Requests for programs, by what came of them.")
        .sample(&[("result", "answered")], workers.sum(|c| &c.programs.requests_answered))
        .sample(&[("result", "refused")], workers.sum(|c| &c.programs.requests_refused));
    page.counter(
        "rebate_program_by_hand_total",
        "Messages done in software because their program gave them back.",
    )
    .sample(&[("message", "request")], workers.sum(|c| &c.programs.received_in_software))
    .sample(&[("message", "answer")], workers.sum(|c| &c.programs.answered_in_software));
}

/// Writes the counters of the executors.
pub(super) fn executors(page: &mut Exposition, executors: &[Arc<TraceMetrics>]) {
    let sum = |what| executors.iter().map(|executor| executor.read(what)).sum::<u64>();
    for (name, help, what) in ALONE {
        page.counter(name, help).sample(&[], sum(what));
    }
    let mut refused =
        page.counter("rebate_programs_refused_total", "Programs not started, by cause.");
    for what in Counted::all() {
        if let Counted::Refused(cause) = what {
            refused.sample(&[("cause", cause.name())], sum(what));
        }
    }
    let help = "Programs that gave their input back for the caller to do, by cause.";
    let mut failed = page.counter("rebate_programs_failed_total", help);
    for what in Counted::all() {
        if let Counted::Failed(cause) = what {
            failed.sample(&[("cause", cause.name())], sum(what));
        }
    }
    let mut steps =
        page.counter("rebate_program_steps_total", "Ops of programs, by where they ran.");
    for what in Counted::all() {
        if let Counted::Step(op, ran) = what {
            steps.sample(&[("op", op.name()), ("on", ran.name())], sum(what));
        }
    }
    let help = "Jobs of programs that went to software instead of a device, by reason.";
    let mut fallbacks = page.counter("rebate_program_fallback_total", help);
    for what in Counted::all() {
        if let Counted::Fallback(reason) = what {
            fallbacks.sample(&[("reason", reason.name())], sum(what));
        }
    }
    page.counter(
        "rebate_program_overflow_total",
        "Jobs in the middle of programs for a full device.",
    )
    .sample(&[("result", "waited")], sum(Counted::Overflowed))
    .sample(&[("result", "no_room")], sum(Counted::OverflowFull));
    let mut live = BTreeMap::new();
    for (tenant, count) in executors.iter().flat_map(|executor| executor.live()) {
        *live.entry(tenant.0).or_insert(0) += count;
    }
    page.gauge("rebate_programs_live", "Programs under way.")
        .sample(&[], live.values().sum::<usize>());
    let mut family = page.gauge("rebate_programs_tenant_live", "Programs under way, by tenant.");
    for (tenant, count) in live {
        family.sample(&[("tenant", &tenant.to_string())], count);
    }
}

const ALONE: [(&str, &str, Counted); 6] = [
    ("rebate_programs_started_total", "Programs started.", Counted::Started),
    ("rebate_programs_finished_total", "Programs whose caller has their end.", Counted::Reported),
    ("rebate_programs_given_up_total", "Programs whose caller went away first.", Counted::GivenUp),
    (
        "rebate_programs_failed_later_total",
        "Paths that failed after their program had finished.",
        Counted::FailedLater,
    ),
    ("rebate_program_steps_late_total", "Steps done after they were due.", Counted::Late),
    ("rebate_program_unanswered_total", "Answers that did not come in time.", Counted::Unanswered),
];
