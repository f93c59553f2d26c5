//! Measures every cell of the grid with every variant in turn. It compares the scheduler with the best static
//! policy in each cell, and with each static policy over all cells. Invalid runs are not compared, and a
//! criterion that includes an invalid run has no verdict. A policy that does not sustain a load counts as
//! worse than any policy that sustains it, without a number.

use std::collections::BTreeMap;

use units::ByteCount;

use super::plan::Plan;
use super::sample::{Load, Sample};
use super::variant::{Variant, Variants};
use crate::base::rows::{Limit, Row, Rows, Runs};
use crate::base::{Session, Spread};
use crate::testbed::VIRTUAL;

/// The measured grid.
pub(super) struct Grid {
    pub(super) plan: Plan,
    pub(super) cells: Vec<Cell>,
    /// The scheduler's CPU time, divided by that of the frontend that follows it.
    scheduler_share: f64,
    /// The place at which the measurement was interrupted, or None if it was not. An interrupted grid has only the
    /// cells that were done by then.
    pub(super) unfinished: Option<String>,
}

/// One value size at one load.
pub(super) struct Cell {
    pub(super) size: ByteCount,
    /// The load as a share of the highest load that the best static policy answers.
    pub(super) load: f64,
    pub(super) rate_per_s: f64,
    samples: BTreeMap<Variant, Vec<Sample>>,
    /// The number of runs that were repeated.
    reruns: usize,
    /// The scheduler's active parameters after the last run.
    active_parameters: String,
}

/// A policy whose decision depends on a job's size alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Static {
    /// The variant that runs jobs of at least `from` bytes. Smaller jobs run in software.
    variant: Variant,
    from: ByteCount,
}

impl Static {
    /// Returns all static policies, without duplicates that make the same decisions on these sizes.
    pub(super) fn all(sizes: &[ByteCount]) -> Vec<Self> {
        let mut all = vec![Self { variant: Variant::Software, from: ByteCount(0) }];
        for variant in [Variant::Offload, Variant::Wait] {
            let from = |(index, size): (usize, &ByteCount)| match index {
                0 => Self { variant, from: ByteCount(0) },
                _ => Self { variant, from: *size },
            };
            all.extend(sizes.iter().enumerate().map(from));
        }
        all
    }

    /// Returns the variant for jobs of a size. Policies with the same decision share the measurement.
    fn at(self, size: ByteCount) -> Variant {
        if size >= self.from { self.variant } else { Variant::Software }
    }

    pub(super) fn id(self) -> String {
        match self.from.0 {
            0 => self.variant.id().to_owned(),
            _ => format!("{}_from_{}", self.variant.id(), self.from),
        }
    }

    pub(super) fn name(self) -> String {
        match (self.variant, self.from.0) {
            (variant, 0) => variant.name().to_owned(),
            (Variant::Wait, _) => format!("offloaded from {} on, waiting", self.from),
            _ => format!("offloaded from {} on", self.from),
        }
    }
}

impl Grid {
    /// Measures all cells. If it is stopped, it returns the cells that are done by then.
    ///
    /// # Errors
    /// The text says what could not be measured.
    pub(super) fn measure(
        plan: Plan,
        variants: &mut Variants,
        session: &Session,
    ) -> Result<Self, String> {
        let highest = Self::highest(&plan, variants, session)?;
        variants.start_scheduler()?;
        // The frontend finds the scheduler within two seconds. The scheduler decides as soon as it knows the times of
        // both software and the device.
        for _ in 0..FIRST_LOADS_MAX {
            let load = Load::open(plan.sizes[0], highest[0] * plan.loads[0]);
            load.answered_per_s(variants.frontend(Variant::Fitted), &session.stop)?;
            if !variants.active_parameters()?.is_empty() {
                break;
            }
        }
        let samples = plan.sizes.len() * plan.loads.len() * plan.runs * Variant::ALL.len();
        session.progress.restart(samples as u64);
        let mut grid =
            Self { plan, cells: Vec::new(), scheduler_share: f64::NAN, unfinished: None };
        let end = grid.fill(&highest, variants, session);
        session.progress.end();
        grid.end(end, session.is_stopped(), &session.progress.message())
    }

    /// Measures one cell after another.
    fn fill(
        &mut self,
        highest: &[f64],
        variants: &Variants,
        session: &Session,
    ) -> Result<(), String> {
        let cpu_s = || (variants.scheduler_cpu_s(), variants.frontend(Variant::Fitted).cpu_s());
        let before = cpu_s();
        let plan = self.plan.clone();
        for (&size, most_per_s) in plan.sizes.iter().zip(highest) {
            for &load in &plan.loads {
                let rate_per_s = (most_per_s * load).round().max(1.0);
                let mut cell = Cell::new(size, load, rate_per_s);
                cell.measure(&plan, variants, session)?;
                self.cells.push(cell);
                // Both processes still run at this point. The signal that stops this process may stop them as well.
                let after = cpu_s();
                let frontend_s = (after.1 - before.1).max(f64::MIN_POSITIVE);
                self.scheduler_share = (after.0 - before.0) / frontend_s;
            }
        }
        Ok(())
    }

    /// Returns the grid. If it was stopped at `place`, the grid has only the cells that were done by then.
    fn end(
        mut self,
        end: Result<(), String>,
        is_stopped: bool,
        place: &str,
    ) -> Result<Self, String> {
        if end.is_ok() || !is_stopped || self.cells.is_empty() {
            return end.map(|()| self);
        }
        let cells = &self.cells;
        self.plan.sizes.retain(|size| cells.iter().any(|cell| cell.size == *size));
        self.unfinished = Some(format!("interrupted at {place}"));
        Ok(self)
    }

    /// Returns, for each size, the highest throughput of a static policy that the load generator can offer
    /// (1/s). As a side effect, every virtual device computes and remembers the results of all values.
    fn highest(plan: &Plan, variants: &Variants, session: &Session) -> Result<Vec<f64>, String> {
        let highest = |size: &ByteCount| {
            session.progress.set_message(format!("{size}: the highest load"));
            let (mut most_per_s, mut best) = (0.0_f64, Variant::Software);
            for variant in Variant::ALL {
                let frontend = variants.frontend(variant);
                let per_s = Load::saturating(*size).answered_per_s(frontend, &session.stop)?;
                if Variant::STATIC.contains(&variant) && per_s > most_per_s {
                    (most_per_s, best) = (per_s, variant);
                }
            }
            let share = plan.loads.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
            for _ in 0..OFFERS_MAX {
                let load = Load::open(*size, most_per_s * share);
                let busy = load.generator_busy(variants.frontend(best), &session.stop)?;
                if busy <= GENERATOR_BUSY_MAX {
                    break;
                }
                most_per_s *= GENERATOR_BUSY_MAX / busy.min(1.0) * OFFER_LESS;
            }
            match most_per_s >= PER_S_MIN {
                true => Ok(most_per_s),
                false => {
                    Err(format!("{size}: only {most_per_s:.0} requests/s; is the machine busy?"))
                }
            }
        };
        plan.sizes.iter().map(highest).collect()
    }

    /// Adds the rows and the verdicts on the criteria.
    pub(super) fn write(&self, rows: &mut Rows) {
        self.cells.iter().for_each(|cell| cell.write(rows));
        let within: Vec<_> = self.cells.iter().map(Cell::is_within).collect();
        let what = format!("cells in which the scheduler is within {} % of the best", percent());
        self.judge_all(rows, ("cells_within", what, "cells"), &within);
        let mut beaten = Vec::new();
        for (policy, over) in self.over_statics() {
            let passed = all(over.iter().map(|ratio| (!ratio.is_nan()).then_some(*ratio > 1.0)));
            beaten.push(passed);
            let runs = Runs::new(numbers(&over), self.plan.runs);
            let what = format!(
                "{}: latency over the scheduler's, over all cells it carries; above 1 in every run",
                policy.name()
            );
            let id = format!("over_scheduler.{}", policy.id());
            let row = self.row(id, what, "ratio", numbers(&over));
            let reason = row.reason.clone().or_else(|| self.overloaded(policy));
            let passed = self.if_complete(passed);
            rows.set(Row { reason, ..row }, Some(runs), Limit::Above(1.0), passed);
        }
        let what = "static policies that the scheduler beats in every run".to_owned();
        self.judge_all(rows, ("statics_beaten", what, "policies"), &beaten);
        let what =
            "a second process that always offloads: latency over the first's, over all cells";
        rows.rows.push(self.row("twin".into(), what.to_owned(), "ratio", self.over_control()));
        let what = "runs taken again because something else kept the load from its core";
        let reruns: usize = self.cells.iter().map(|cell| cell.reruns).sum();
        rows.rows.push(self.row("taken_again".into(), what.to_owned(), "runs", [reruns as f64]));
        let what = "CPU time of the scheduler over that of the frontend that follows it".to_owned();
        let share = [self.scheduler_share];
        rows.rows.push(self.row("scheduler_cpu".into(), what, "ratio", share));
    }

    /// Adds a row with the number of passed criteria. The row passes if all of them pass.
    fn judge_all(
        &self,
        rows: &mut Rows,
        (id, what, unit): (&str, String, &'static str),
        each: &[Option<bool>],
    ) {
        let count = each.iter().filter(|passed| **passed == Some(true)).count();
        let row = self.row(id.to_owned(), what, unit, [count as f64]);
        let limit = Limit::AtLeast(each.len() as f64);
        let passed = self.if_complete(all(each.iter().copied()));
        rows.set(row, None, limit, passed);
    }

    /// Returns the verdict on a criterion over all cells, or None if some cells are missing.
    fn if_complete(&self, passed: Option<bool>) -> Option<bool> {
        passed.filter(|_| self.unfinished.is_none())
    }

    fn row(
        &self,
        id: String,
        what: String,
        unit: &'static str,
        values: impl IntoIterator<Item = f64>,
    ) -> Row {
        Row::from_values(id, what, unit, values, vec![VIRTUAL.to_owned()], self.invalid())
    }

    /// Returns, for each static policy, one ratio per run. In each cell, the policy's latency is divided by the
    /// scheduler's. The ratio is the geometric mean of these quotients over the cells whose load the policy sustains.
    /// It is zero if the scheduler does not sustain the load of one of these cells. It is NaN if a run is invalid or
    /// the policy sustains no load.
    pub(super) fn over_statics(&self) -> Vec<(Static, Vec<f64>)> {
        let ratios = |policy: Static| {
            let over = (0..self.plan.runs).map(|run| {
                let both = |cell: &Cell| {
                    [Variant::Fitted, policy.at(cell.size)].map(|variant| {
                        cell.samples(variant).get(run).map_or(f64::NAN, Sample::compared_us)
                    })
                };
                // In the other cells the policy is worse than a variant that sustains the load, but there is
                // no number for that. These cells do not help the scheduler, which must be better than the
                // policy in the remaining cells.
                let carried = self.cells.iter().map(both).filter(|pair| !pair[1].is_infinite());
                let logs: Vec<f64> =
                    carried.map(|[scheduler, policy]| (policy / scheduler).ln()).collect();
                (logs.iter().sum::<f64>() / logs.len() as f64).exp()
            });
            (policy, over.collect())
        };
        Static::all(&self.plan.sizes).into_iter().map(ratios).collect()
    }

    /// Returns one ratio per run. In each cell, the latency of the A/A control is divided by that of always offloading.
    /// The ratio is the geometric mean of these quotients over the cells whose load both sustain.
    fn over_control(&self) -> Vec<f64> {
        let of_run = |run: usize| {
            let in_cell = |cell: &Cell| cell.over_offload(Variant::AaControl).get(run).copied();
            let ratios = numbers(&self.cells.iter().filter_map(in_cell).collect::<Vec<_>>());
            (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
        };
        (0..self.plan.runs).map(of_run).collect()
    }

    /// Returns a remark on the number of cells in which a policy or the scheduler does not sustain the load,
    /// if there are any.
    fn overloaded(&self, policy: Static) -> Option<String> {
        let count = |variant: &dyn Fn(&Cell) -> Variant| {
            self.cells.iter().filter(|cell| cell.overloaded(variant(cell)).is_some()).count()
        };
        let (policys, schedulers) =
            (count(&|cell| policy.at(cell.size)), count(&|_| Variant::Fitted));
        let cells = self.cells.len();
        (policys + schedulers > 0).then(|| {
            let why = "where it is worse without a number";
            format!(
                "overloaded in {policys} of {cells} cells, {why} (the scheduler: in {schedulers})"
            )
        })
    }

    fn invalid(&self) -> Option<String> {
        let count = self.cells.iter().filter(|cell| cell.invalid().is_some()).count();
        (count > 0).then(|| format!("{count} cells have runs that do not hold"))
    }

    /// Returns the results as text for the terminal.
    pub(super) fn summary(&self) -> String {
        let mut lines = vec![format!(
            "{:>8} {:>5} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}  in force",
            "size", "load", "per s", "software", "offload", "A/A", "wait", "scheduler", "to best"
        )];
        for cell in &self.cells {
            let [software, offload, control, wait, fitted] =
                Variant::ALL.map(|variant| cell.median_us(variant));
            let over = ranked_median(cell.over_best()).unwrap_or(f64::NAN);
            let (size, load, per_s) = (cell.size.to_string(), cell.load, cell.rate_per_s);
            let mark = cell.is_within().map_or('?', |within| if within { ' ' } else { '!' });
            lines.push(format!(
                "{size:>8} {load:>5} {per_s:>9} {software:>10.1} {offload:>10.1} {control:>10.1} \
                 {wait:>10.1} {fitted:>10.1} {over:>7.3}{mark}  {}{}",
                cell.active_parameters,
                cell.invalid().map_or(String::new(), |why| format!(" ({why})"))
            ));
        }
        for (policy, over) in self.over_statics() {
            let Some(spread) = Spread::from_values(numbers(&over)) else { continue };
            let (median, low, high) = (spread.median, spread.low, spread.high);
            let name = policy.name();
            lines.push(format!("{name:<40} {median:.3} ({low:.3} to {high:.3}) of the scheduler"));
        }
        lines.join("\n")
    }
}

impl Cell {
    fn new(size: ByteCount, load: f64, rate_per_s: f64) -> Self {
        let (samples, active_parameters) = (BTreeMap::new(), String::new());
        Self { size, load, rate_per_s, samples, reruns: 0, active_parameters }
    }

    fn measure(
        &mut self,
        plan: &Plan,
        variants: &Variants,
        session: &Session,
    ) -> Result<(), String> {
        let load = Load::open(self.size, self.rate_per_s);
        let settle = Load { duration: plan.settle, ..load };
        settle.answered_per_s(variants.frontend(Variant::Fitted), &session.stop)?;
        let load = Load { warmup: plan.warmup, duration: plan.duration, ..load };
        for run in 0..plan.runs {
            for variant in Variant::ALL.into_iter().cycle().skip(run).take(Variant::ALL.len()) {
                let (size, per_s) = (self.size, self.rate_per_s);
                session.progress.set_message(format!("{size} at {per_s}/s, {}", variant.name()));
                let (sample, reruns) =
                    load.take_undisturbed(variants.frontend(variant), &session.stop)?;
                self.reruns += reruns;
                self.samples.entry(variant).or_default().push(sample);
                session.progress.advance(1);
            }
        }
        self.active_parameters = variants.active_parameters()?;
        Ok(())
    }

    fn samples(&self, variant: Variant) -> &[Sample] {
        self.samples.get(&variant).map_or(&[], Vec::as_slice)
    }

    /// Returns [`Sample::compared_us`] by run.
    pub(super) fn latencies_us(&self, variant: Variant) -> Vec<f64> {
        self.samples(variant).iter().map(Sample::compared_us).collect()
    }

    /// Returns the median latency of the valid runs, or infinity if at most half of them sustained the load.
    fn median_us(&self, variant: Variant) -> f64 {
        let valid = self.latencies_us(variant).into_iter().filter(|latency| !latency.is_nan());
        ranked_median(valid).unwrap_or(f64::INFINITY)
    }

    /// Returns the best static policy of this cell. If any policy sustains the load, only such policies are
    /// considered.
    pub(super) fn best(&self) -> Variant {
        let by_median =
            |a: &Variant, b: &Variant| self.median_us(*a).total_cmp(&self.median_us(*b));
        Variant::STATIC.into_iter().min_by(by_median).unwrap_or(Variant::Software)
    }

    /// Returns, by run, the scheduler's latency divided by that of the best static policy. It is zero if only
    /// the scheduler sustains the load, and infinite if only the best policy does. It is NaN if neither
    /// sustains the load or a run is invalid.
    pub(super) fn over_best(&self) -> Vec<f64> {
        let best = self.latencies_us(self.best());
        self.latencies_us(Variant::Fitted)
            .iter()
            .zip(best)
            .map(|(ours, best)| ours / best)
            .collect()
    }

    /// Returns, by run, a variant's latency divided by that of always offloading.
    fn over_offload(&self, variant: Variant) -> Vec<f64> {
        let offload = self.latencies_us(Variant::Offload);
        let pairs = self.latencies_us(variant).into_iter().zip(offload);
        pairs.map(|(latency, offload)| latency / offload).collect()
    }

    /// Returns whether the scheduler is close enough to the best policy. It is None if a run of any variant except the
    /// A/A control is invalid, because that variant could be the best.
    fn is_within(&self) -> Option<bool> {
        let median = ranked_median(self.over_best()).filter(|_| self.invalid().is_none());
        median.map(|ratio| ratio <= OVER_BEST_MAX)
    }

    /// Returns a remark that a variant does not sustain the load, if a valid run shows it.
    fn overloaded(&self, variant: Variant) -> Option<String> {
        let samples = self.samples(variant).iter();
        let overloaded =
            samples.filter(|sample| sample.invalid.is_none() && sample.is_overloaded());
        let least = overloaded.map(|sample| sample.achieved).reduce(f64::min)?;
        let name = variant.name();
        Some(format!("{name} is overloaded: only {:.0} % answered in its worst run", 100.0 * least))
    }

    fn invalid(&self) -> Option<String> {
        let judged = self.samples.iter().filter(|(variant, _)| **variant != Variant::AaControl);
        let all =
            judged.flat_map(|(variant, samples)| samples.iter().map(move |one| (variant, one)));
        let mut reasons = all.filter_map(|(variant, sample)| {
            sample.invalid.as_ref().map(|reason| format!("{}: {reason}", variant.name()))
        });
        reasons.next()
    }

    fn write(&self, rows: &mut Rows) {
        let at = format!("{}.load_{}", self.size, self.load);
        let load = format!("{}, {}/s", self.size, self.rate_per_s);
        for variant in Variant::ALL {
            let samples = self.samples(variant);
            let invalid = samples.iter().find_map(|sample| sample.invalid.clone());
            let invalid = invalid.or_else(|| self.overloaded(variant));
            let mut add = |metric: &str, what: &str, unit, values: Vec<f64>| {
                let id = format!("{metric}.{}.{at}", variant.id());
                let what = format!("{}, {load}: {what}", variant.name());
                rows.add(id, what, unit, values, variant.devices(), invalid.clone());
            };
            add("latency", "median latency", "us", self.latencies_us(variant));
            let core_us = samples.iter().map(|sample| sample.core_us).collect();
            add("core", "CPU time per request", "us", core_us);
            let achieved = samples.iter().map(|sample| sample.achieved).collect();
            add("achieved", "answered of what was offered", "ratio", achieved);
        }
        let control = numbers(&self.over_offload(Variant::AaControl));
        let what = format!("{load}: the latency of a second process that always offloads over its");
        let devices = Variant::AaControl.devices();
        let row =
            Row::from_values(format!("twin.{at}"), what, "ratio", control, devices, self.invalid());
        rows.rows.push(row);
        let over = numbers(&self.over_best());
        let runs = Runs::new(over.iter().copied(), self.samples(Variant::Fitted).len());
        let best = self.best().name();
        let what = format!("{load}: the scheduler's latency over that of the best, {best}");
        let devices = vec![VIRTUAL.to_owned()];
        let overloaded = Variant::ALL.into_iter().filter_map(|variant| self.overloaded(variant));
        let active = format!("in force: {}", self.active_parameters);
        let reasons = self.invalid().into_iter().chain(overloaded).chain([active]);
        let reason = Some(reasons.collect::<Vec<_>>().join("; "));
        let row = Row::from_values(format!("over_best.{at}"), what, "ratio", over, devices, reason);
        rows.set(row, Some(runs), Limit::AtMost(OVER_BEST_MAX), self.is_within());
    }
}

/// Returns the median, which may be infinite. Returns None without values or if one value is NaN.
fn ranked_median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = f64::midpoint(
        *values.get(values.len().checked_sub(1)? / 2)?,
        *values.get(values.len() / 2)?,
    );
    values.iter().all(|value| !value.is_nan()).then_some(middle)
}

/// Returns the ratios that are finite and above zero. Only these are quotients of two measured latencies.
fn numbers(ratios: &[f64]) -> Vec<f64> {
    ratios.iter().copied().filter(|ratio| ratio.is_finite() && *ratio > 0.0).collect()
}

/// Returns true if all are true and false if any is false. Otherwise it returns None.
fn all(each: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let each: Vec<Option<bool>> = each.into_iter().collect();
    let known = each.iter().all(Option::is_some);
    if each.contains(&Some(false)) { Some(false) } else { known.then_some(true) }
}

fn percent() -> f64 {
    ((OVER_BEST_MAX - 1.0) * 100.0).round()
}

/// The least throughput of a saturated frontend (1/s). If it is lower, other work uses the frontend's core,
/// and the measurement has no meaning.
const PER_S_MIN: f64 = 100.0;

/// The greatest utilisation of the load generator. A busier load generator may itself limit the measurement.
const GENERATOR_BUSY_MAX: f64 = 0.75;
// The most times that the load is reduced until the generator is less busy. Each time the load is reduced a little more
// than the generator's utilisation requires.
const OFFERS_MAX: usize = 4;
const OFFER_LESS: f64 = 0.97;

/// The greatest number of initial loads, of one second each, before the scheduler's first decision. If it has
/// decided nothing by then, the measurement begins anyway.
const FIRST_LOADS_MAX: usize = 10;

/// The limit for the scheduler's latency, as a multiple of that of the best static policy.
const OVER_BEST_MAX: f64 = 1.05;

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [ByteCount; 3] = [ByteCount(256), ByteCount(1_024), ByteCount(4_096)];

    fn sample(latency_us: f64) -> Sample {
        let (core_us, achieved) = (1.0, 1.0);
        Sample { latency_us, core_us, achieved, invalid: None, is_disturbed: false }
    }

    fn cell(size: ByteCount, latencies_us: [f64; 4]) -> Cell {
        let mut cell = Cell::new(size, 0.5, 100.0);
        let judged = Variant::ALL.into_iter().filter(|variant| *variant != Variant::AaControl);
        for (variant, latency_us) in judged.zip(latencies_us) {
            cell.samples.insert(variant, vec![sample(latency_us); 2]);
        }
        cell
    }

    #[test]
    fn static_policies_differ_on_the_sizes() {
        let all = Static::all(&SIZES);
        assert_eq!(all.len(), 7);
        let decisions: Vec<Vec<Variant>> =
            all.iter().map(|policy| SIZES.iter().map(|size| policy.at(*size)).collect()).collect();
        for (index, decision) in decisions.iter().enumerate() {
            assert!(!decisions[..index].contains(decision), "{:?}", all[index]);
        }
        assert_eq!(all[2].id(), "offload_from_1KiB");
        assert_eq!(
            (all[2].at(SIZES[0]), all[2].at(SIZES[1])),
            (Variant::Software, Variant::Offload)
        );
    }

    #[test]
    fn the_scheduler_is_compared_in_each_cell_and_over_all() {
        let plan = Plan { sizes: SIZES[..2].to_vec(), runs: 2, ..plan() };
        let cells = vec![
            cell(SIZES[0], [10.0, 20.0, 40.0, 10.4]),
            cell(SIZES[1], [40.0, 20.0, 10.0, 10.6]),
        ];
        let grid = grid(plan, cells);
        let within: Vec<_> = grid.cells.iter().map(Cell::is_within).collect();
        assert_eq!(within, [Some(true), Some(false)]);
        assert_eq!(
            (grid.cells[0].best(), grid.cells[1].best()),
            (Variant::Software, Variant::Wait)
        );
        let over = grid.over_statics();
        let ratio =
            |id: &str| over.iter().find(|(policy, _)| policy.id() == id).expect("there").1[0];
        let scheduler = (10.4 * 10.6_f64).sqrt();
        assert!((ratio("software") - 20.0 / scheduler).abs() < 1e-9);
        assert!((ratio("wait_from_1KiB") - 10.0 / scheduler).abs() < 1e-9);
        let mut rows = Rows::new("scheduler", &harness::Machine::here(), "idle");
        grid.write(&mut rows);
        let passed = |id: &str| {
            rows.criteria.iter().find(|criterion| criterion.id == id).expect("judged").passed
        };
        assert_eq!(passed("cells_within"), Some(false));
        assert_eq!(passed("over_scheduler.software"), Some(true));
        assert_eq!(passed("over_scheduler.wait_from_1KiB"), Some(false));
    }

    fn verdicts(grid: &Grid) -> BTreeMap<String, Option<bool>> {
        let mut rows = Rows::new("scheduler", &harness::Machine::here(), "idle");
        grid.write(&mut rows);
        rows.criteria.into_iter().map(|criterion| (criterion.id, criterion.passed)).collect()
    }

    #[test]
    fn an_invalid_run_leaves_its_criteria_unjudged() {
        let mut disturbed = cell(SIZES[0], [10.0, 20.0, 40.0, 10.0]);
        let wait = disturbed.samples.get_mut(&Variant::Wait).expect("there");
        wait[0] = Sample { invalid: Some("late".into()), ..sample(1.0) };
        assert_eq!((disturbed.best(), disturbed.is_within()), (Variant::Software, None));
        let other = cell(SIZES[1], [40.0, 20.0, 10.0, 10.0]);
        let plan = Plan { sizes: SIZES[..2].to_vec(), runs: 2, ..plan() };
        let grid = grid(plan, vec![disturbed, other]);
        let verdicts = verdicts(&grid);
        let over_best = format!("over_best.{}.load_0.5", SIZES[0]);
        assert_eq!((verdicts[&over_best], verdicts["cells_within"]), (None, None));
        assert_eq!(
            (verdicts["over_scheduler.wait"], verdicts["statics_beaten"]),
            (None, Some(false))
        );
        assert_eq!(verdicts["over_scheduler.software"], Some(true));
    }

    #[test]
    fn a_policy_is_beaten_in_every_run_or_not_at_all() {
        let with_software = |each_us: [f64; 3]| {
            let mut cell = cell(SIZES[0], [10.0, 20.0, 40.0, 10.0]);
            cell.samples.values_mut().for_each(|samples| *samples = vec![samples[0].clone(); 3]);
            cell.samples.insert(Variant::Software, each_us.map(sample).to_vec());
            verdicts(&grid(Plan { sizes: SIZES[..1].to_vec(), runs: 3, ..plan() }, vec![cell]))
        };
        let (always, mostly) =
            (with_software([20.0, 11.0, 20.0]), with_software([20.0, 9.0, 20.0]));
        assert_eq!(
            (always["over_scheduler.software"], always["statics_beaten"]),
            (Some(true), Some(true))
        );
        assert_eq!(
            (mostly["over_scheduler.software"], mostly["statics_beaten"]),
            (Some(false), Some(false))
        );
    }

    #[test]
    fn an_overloaded_policy_is_worse_without_a_number() {
        let overload = |cell: &mut Cell, variant| {
            let overloaded = Sample { achieved: 0.5, ..sample(1.0) };
            cell.samples.insert(variant, vec![overloaded; 2]);
        };
        let mut first = cell(SIZES[0], [10.0, 20.0, 40.0, 10.0]);
        overload(&mut first, Variant::Wait);
        assert_eq!((first.best(), first.is_within()), (Variant::Software, Some(true)));
        assert_eq!(first.median_us(Variant::Wait), f64::INFINITY);
        let second = cell(SIZES[1], [40.0, 20.0, 10.0, 20.0]);
        let plan = Plan { sizes: SIZES[..2].to_vec(), runs: 2, ..plan() };
        let mut grid = grid(plan, vec![first, second]);
        let wait = |grid: &Grid| {
            let over = grid.over_statics();
            over.iter().find(|(policy, _)| policy.id() == "wait").expect("there").1[0]
        };
        // The mean is over the one cell whose load the policy sustains.
        assert!((wait(&grid) - 0.5).abs() < 1e-9);
        assert_eq!(verdicts(&grid)["over_scheduler.wait"], Some(false));
        overload(&mut grid.cells[1], Variant::Fitted);
        assert_eq!((wait(&grid), grid.cells[1].is_within()), (0.0, Some(false)));
        assert_eq!(verdicts(&grid)["over_scheduler.software"], Some(false));
        for variant in Variant::STATIC {
            overload(&mut grid.cells[1], variant);
        }
        assert_eq!(grid.cells[1].is_within(), None, "nobody carries it");
    }

    #[test]
    fn an_interrupted_grid_keeps_the_cells_that_are_done() {
        let measured =
            |cells: Vec<Cell>| grid(Plan { sizes: SIZES.to_vec(), runs: 2, ..plan() }, cells);
        let done = || vec![cell(SIZES[0], [10.0, 20.0, 40.0, 10.0])];
        let failed = || Err("no answer".to_owned());
        let end = |cells, end, is_stopped| measured(cells).end(end, is_stopped, "1KiB at 5/s");
        assert_eq!(end(done(), failed(), false).err().as_deref(), Some("no answer"));
        assert_eq!(end(vec![], failed(), true).err().as_deref(), Some("no answer"));
        assert_eq!(end(done(), Ok(()), true).expect("all").unfinished, None);
        let kept = end(done(), failed(), true).expect("a cell is done");
        assert_eq!(kept.unfinished.as_deref(), Some("interrupted at 1KiB at 5/s"));
        assert_eq!(kept.plan.sizes, SIZES[..1]);
        let verdicts = verdicts(&kept);
        assert_eq!(
            verdicts[&format!("over_best.{}.load_0.5", SIZES[0])],
            Some(true),
            "its own cell"
        );
        assert_eq!((verdicts["cells_within"], verdicts["over_scheduler.wait"]), (None, None));
    }

    fn grid(plan: Plan, cells: Vec<Cell>) -> Grid {
        Grid { plan, cells, scheduler_share: 0.0, unfinished: None }
    }

    fn plan() -> Plan {
        use units::Nanos;
        let (warmup, duration, settle) = (Nanos(0), Nanos(0), Nanos(0));
        Plan { sizes: Vec::new(), loads: vec![0.5], runs: 1, warmup, duration, settle }
    }
}
