//! Why predictions deviate. Every predicted row that is more than a tenth off its published number gets a sentence
//! about the cause of its group: a figure in a scenario, or a part of one. A sentence is `measured` where the
//! simulator's stages show the cause, `calculated` where printed numbers do, and `a guess` where neither does. The
//! numbers in it come from the rows.

use super::row_index::RowIndex;
use crate::base::rows::{Kind, Row};

/// The text in front of every cause, after another reason if there is one.
pub(super) const CAUSE: &str = "; cause, ";

/// Adds a cause to the reason of every prediction that is more than a tenth off.
pub(super) fn explain(rows: &mut [Row]) {
    let causes: Vec<Option<String>> = {
        let by_id = RowIndex::new(rows);
        rows.iter().map(|row| is_off(row).then(|| cause(row, &by_id))).collect()
    };
    for (row, cause) in rows.iter_mut().zip(causes) {
        let Some(cause) = cause else { continue };
        row.reason = Some(match row.reason.take() {
            Some(reason) => format!("{reason}{CAUSE}{cause}"),
            None => format!("{}{cause}", CAUSE.trim_start_matches("; ")),
        });
    }
}

/// Returns whether a row is a prediction that is more than a tenth off its published number.
pub(super) fn is_off(row: &Row) -> bool {
    let off = |(published, ours): (f64, f64)| {
        published != ours && (ours / published - 1.0).abs() > DEVIATION_MAX
    };
    row.kind == Kind::Predicted && row.published.zip(row.ours).is_some_and(off)
}

/// Returns the cause of a row's deviation.
fn cause(row: &Row, rows: &RowIndex<'_>) -> String {
    let parts: Vec<&str> = row.id.split('.').collect();
    let has = |start: &str| parts.iter().any(|part| part.starts_with(start));
    let scenario = parts.get(1).copied().unwrap_or_default();
    match parts[0] {
        "p99" | "p99_growth" if has("chiplets") => chiplets(row, rows),
        _ if has("pes_") && !parts.contains(&"pes_8") => pes(&parts, rows),
        "p99" | "mean" => times(row, &parts, scenario, rows),
        "p99_reduction" | "mean_reduction" => reductions(&parts, scenario, rows),
        "ablation_reduction" => ablation(&parts, scenario, rows),
        "order" | "throughput_ratio" if has("relief_apps") => relief_apps(row, &parts),
        "order" | "order_as_published" | "pair" | "accelflow_best" => orders(scenario, rows),
        "p99_margin" => {
            let of = times(row, &["p99", scenario, "accelflow"], scenario, rows);
            format!("that of the P99s, of which this is a difference: {of}")
        }
        "max_throughput" | "mean_throughput" | "max_throughput_ratio" | "mean_throughput_ratio" => {
            throughput(&parts, rows)
        }
        "overhead" => overhead(&parts, rows),
        "utilisation" => UTILISATION.to_owned(),
        "fallback_share" => fallbacks(scenario, rows),
        _ => UNKNOWN.to_owned(),
    }
}

/// Returns the cause of a response time, of figures 11, 12 and 13.
fn times(row: &Row, parts: &[&str], scenario: &str, rows: &RowIndex<'_>) -> String {
    let architecture = parts.get(2).copied().unwrap_or_default();
    let is_above = row.published.zip(row.ours).is_some_and(|(published, ours)| ours > published);
    let busy = busy(scenario, architecture, rows);
    if scenario == "window" {
        return format!(
            "measured: the mean of the services is fitted, and here a service waits once for each visit to the \
             server that is full ({busy}), so that its time follows the number of its visits; the published times \
             do not"
        );
    }
    if row.id.contains(".load_") {
        return "calculated: at these loads, too, cores and PEs have less than half of the work that they can do, \
                and only RELIEF's manager has more; the published times grow with the load as where requests wait"
            .to_owned();
    }
    if is_above {
        return format!(
            "a guess: figure 1's work of this service alone takes nearly the published time ({busy})"
        );
    }
    match (scenario, architecture) {
        ("steady", _) => format!(
            "measured: little waits ({busy}); the published time has waiting in it that published inputs at a \
             steady load do not give"
        ),
        (_, "non_acc") => format!(
            "measured: requests wait for their own core only ({busy}); a guess: the paper's load comes in longer bursts"
        ),
        _ => format!(
            "measured: with accelerators requests hardly wait even for their own core ({busy}); a guess: the \
             paper's load comes in longer bursts"
        ),
    }
}

/// Returns how busy an architecture's servers are, for a sentence.
fn busy(scenario: &str, architecture: &str, rows: &RowIndex<'_>) -> String {
    let stage = |what: &str| rows.quote(&format!("stage.{scenario}.{architecture}.{what}"));
    let cores = format!("cores are busy for {}", stage("cores"));
    match architecture {
        "non_acc" => cores,
        "cpu_centric" | "cohort" | "accelflow" => {
            format!("{cores}, TCP's PEs for {}", stage("tcp"))
        }
        _ => {
            format!("{cores}, TCP's PEs for {}, the manager for {}", stage("tcp"), stage("manager"))
        }
    }
}

fn reductions(parts: &[&str], scenario: &str, rows: &RowIndex<'_>) -> String {
    let other = parts.get(2).copied().unwrap_or_default();
    format!(
        "measured: beside the work itself AccelFlow can save only what the other waits, and in `{scenario}` that \
         is little ({})",
        busy(scenario, other, rows)
    )
}

/// Returns the cause of a share of ops that fall back to a core.
fn fallbacks(scenario: &str, rows: &RowIndex<'_>) -> String {
    let busy = match scenario {
        "peak" => rows.quote("utilisation.tcp"),
        _ => rows.quote(&format!("stage.{scenario}.accelflow.tcp")),
    };
    format!(
        "measured: TCP's PEs, the busiest, are busy for {busy}, and what does not fit their queue nearly always \
         fits the overflow area, whose size is assumed"
    )
}

/// Returns the cause of a step of figure 13.
fn ablation(parts: &[&str], scenario: &str, rows: &RowIndex<'_>) -> String {
    let stage = |architecture: &str, what: &str| {
        rows.quote(&format!("stage.{scenario}.{architecture}.{what}"))
    };
    match parts.get(2).copied().unwrap_or_default() {
        "per_type_queues" => format!(
            "measured: the head of the one queue hardly ever waits for a PE, since TCP's, the busiest, are busy \
             for {}; the manager, which both have, is busy for {} and {}",
            stage("relief", "tcp"),
            stage("relief", "manager"),
            stage("per_type_queues", "manager")
        ),
        _ => format!(
            "measured: what the steps can take away is waiting for the manager, which is busy for {} under \
             RELIEF, for {} with direct transfers and for {} with branches in the dispatchers; where little waits \
             for it, they gain little",
            stage("relief", "manager"),
            stage("direct", "manager"),
            stage("control_flow", "manager")
        ),
    }
}

fn orders(scenario: &str, rows: &RowIndex<'_>) -> String {
    let stage = |what: &str| rows.quote(&format!("stage.{scenario}.{what}"));
    let p99 = |architecture: &str| rows.quote(&format!("p99.{scenario}.{architecture}"));
    match scenario {
        "steady" => format!(
            "measured: RELIEF's one manager of 1.5 us is busy for {} and makes ops wait, while the cores that \
             take CPU-Centric's interrupts are busy for {} only",
            stage("relief.manager"),
            stage("cpu_centric.cores")
        ),
        _ => format!(
            "measured: the P99s of CPU-Centric, RELIEF and Cohort are close ({}, {} and {}), so that which is \
             ahead differs from service to service, as it does in the paper, but in other services",
            p99("cpu_centric"),
            p99("relief"),
            p99("cohort")
        ),
    }
}

/// Returns the cause of a throughput of figure 14 or section VII-C5.
fn throughput(parts: &[&str], rows: &RowIndex<'_>) -> String {
    let tcp = rows.quote("utilisation.tcp");
    let at = parts.iter().find(|part| part.starts_with("speed_"));
    match (parts[0], parts.get(2).copied().unwrap_or_default(), at) {
        (_, _, Some(_)) => "calculated: RELIEF's manager takes 1.5 us for a completion however fast the PEs are, \
                            and with slow ones TCP's PEs limit both architectures alike"
            .to_owned(),
        ("max_throughput_ratio", "deadline", _) => format!(
            "measured: what limits is TCP ({tcp} at 51.6 K/s), whose work no order of its queue makes less"
        ),
        ("max_throughput" | "mean_throughput", "relief", _) => {
            "calculated: 30.6 ops of a request take the manager 46 us, so it is full at 21.8 K/s, where the \
             published bars are beyond that for four of eight services"
                .to_owned()
        }
        ("mean_throughput_ratio", _, _) => "that of the two throughputs, of which this is the ratio (rows \
                                            mean_throughput.steady)"
            .to_owned(),
        (_, "non_acc", _) => "calculated: figure 1's work of the mix fills 36 cores at 34 K/s, and until then little \
                              waits; the published bars are reached with cores 18 % busy"
            .to_owned(),
        _ => format!(
            "measured: a P99 stays within five times figure 1's time even where TCP's PEs are full ({tcp} busy at \
             51.6 K/s): at 80 K/s a third of TCP's ops go to cores, which have time for them"
        ),
    }
}

/// Returns the cause of a share of orchestration, of figures 3 and 17.
fn overhead(parts: &[&str], rows: &RowIndex<'_>) -> String {
    match parts.get(1).copied().unwrap_or_default() {
        "cpu_centric" => format!(
            "measured: 36 cores take the interrupts at once at every load, as they are busy for {} at 13.4 K/s; \
             the published share grows as where interrupts wait for a core",
            rows.quote("stage.steady.cpu_centric.cores")
        ),
        "hw_manager" | "relief" => {
            "measured: every op has 1.5 us of the manager, published, and waits for it as soon as it has other work; \
             a guess: the paper's manager handles several completions at once"
                .to_owned()
        }
        _ => "calculated: 18 instructions at 2.4 GHz are 7.5 ns, of ops that hold a PE for some 10 us; the \
              published share must count more than the dispatchers' instructions"
            .to_owned(),
    }
}

fn chiplets(row: &Row, rows: &RowIndex<'_>) -> String {
    let hops = rows.quote("contradiction.chiplet_hops");
    if row.id.starts_with("p99_growth") {
        return format!(
            "calculated: a hop of 60 cycles takes 25 ns, and two for each of 87 ops take {hops}, of a P99 of some ms"
        );
    }
    let scenario = row.id.split('.').nth(1).unwrap_or_default();
    let of = times(row, &["p99", scenario, "accelflow"], scenario, rows);
    format!("that of figure 11's P99s, since chiplets change them by less than 1 %: {of}")
}

/// Returns the cause of a number with another count of PEs.
fn pes(parts: &[&str], rows: &RowIndex<'_>) -> String {
    let tcp = rows.quote("utilisation.tcp");
    if parts[0] == "encrypt_fallback_share" {
        return format!(
            "calculated: encryption's PEs are busy for {} at 51.6 K/s with eight, so its queue does not fill with \
             fewer; TCP's does ({tcp})",
            rows.quote("utilisation.encryption")
        );
    }
    let scenario = parts.get(1).copied().unwrap_or_default();
    if parts.iter().any(|part| ["pes_16", "pes_36"].contains(part)) {
        return "measured: with so many PEs nothing waits for TCP's, and the times are those of the work itself; \
                the published ones are not"
            .to_owned();
    }
    if scenario == "steady" && parts.contains(&"pes_4") && parts[0] != "throughput_loss" {
        return format!(
            "measured: TCP's four PEs have half of the work that they can do at 13.4 K/s ({tcp} of eight at 51.6 \
             K/s), so that P99s grow little and are below the published ones as with eight"
        );
    }
    format!(
        "calculated: one kind of PE limits, TCP's ({tcp} of eight at 51.6 K/s), so that fewer PEs carry as much \
         less; two are full at 13.4 K/s. The published loss is less, as where the work is balanced"
    )
}

/// Returns the cause of a ratio of figure 15.
fn relief_apps(row: &Row, parts: &[&str]) -> String {
    let convolution = ["canny", "deblur", "harris"].iter().any(|name| parts.contains(name));
    let objective = row.id.contains("relief_apps_objective");
    match (parts[0], convolution, objective) {
        ("order", _, _) => "that of the ratios of figure 15, whose order this counts".to_owned(),
        (_, true, false) => "measured: one convolution unit is busy for 99.9 % of the time under RELIEF already, \
                             so that no architecture can do more"
            .to_owned(),
        (_, _, true) => "a guess: AccelFlow's entries hold pointers, so it loads from memory what RELIEF finds in \
                         a scratchpad, and its times are longer for that"
            .to_owned(),
        (_, false, _) if row.id.contains("entries_hold_arguments") => {
            "a guess: an entry holds less than all arguments".to_owned()
        }
        _ => "measured: AccelFlow loads from memory what RELIEF finds in a scratchpad, unless its entries hold \
              more than a pointer; how much they hold is not published"
            .to_owned(),
    }
}

const UTILISATION: &str = "calculated: the ratios of the accelerators' shares follow from figure 1 and the \
                           speedups, and the published ones do not; a guess: the paper counts a PE as busy while \
                           its data comes or its output waits";
const UNKNOWN: &str = "not known";
/// The greatest deviation without a cause, as a share of the published number.
const DEVIATION_MAX: f64 = 0.1;
