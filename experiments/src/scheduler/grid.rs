//! Every cell of the grid measured with every arm in turn, and what that says: the scheduler against the best static
//! policy in each cell, and against each static policy over all of them. Runs that do not hold are not compared, and
//! nothing is judged that they are part of; who does not carry a load is worse than who does, by no number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressBar;
use units::ByteCount;

use super::arm::{Arm, Arms};
use super::plan::Plan;
use super::sample::{Load, Sample};
use crate::base::Spread;
use crate::base::rows::{Limit, Row, Rows, Runs};
use crate::testbed::VIRTUAL;

/// What was measured.
pub(super) struct Grid {
    pub(super) plan: Plan,
    pub(super) cells: Vec<Cell>,
    /// CPU time of the scheduler over that of the frontend that follows it.
    scheduler_share: f64,
    /// Where somebody stopped it: what is there is of the cells that were done by then.
    pub(super) unfinished: Option<String>,
}

/// One size at one load.
pub(super) struct Cell {
    pub(super) size: ByteCount,
    /// As a share of what the best static policy answers.
    pub(super) load: f64,
    pub(super) rate_per_s: f64,
    samples: BTreeMap<Arm, Vec<Sample>>,
    /// How often a run was taken again.
    again: usize,
    /// What the scheduler had in force after the last run.
    in_force: String,
}

/// A policy that does not change: what it does depends on a job's size alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Static {
    /// What it does from the size on; below it is software's.
    arm: Arm,
    from: ByteCount,
}

impl Static {
    /// Every static policy that differs from the others on these sizes.
    pub(super) fn all(sizes: &[ByteCount]) -> Vec<Self> {
        let mut all = vec![Self { arm: Arm::Software, from: ByteCount(0) }];
        for arm in [Arm::Offload, Arm::Wait] {
            let from = |(index, size): (usize, &ByteCount)| match index {
                0 => Self { arm, from: ByteCount(0) },
                _ => Self { arm, from: *size },
            };
            all.extend(sizes.iter().enumerate().map(from));
        }
        all
    }

    /// What it does to jobs of a size: the same decisions are the same measurement.
    fn at(self, size: ByteCount) -> Arm {
        if size >= self.from { self.arm } else { Arm::Software }
    }

    pub(super) fn id(self) -> String {
        match self.from.0 {
            0 => self.arm.id().to_owned(),
            _ => format!("{}_from_{}", self.arm.id(), self.from),
        }
    }

    pub(super) fn name(self) -> String {
        match (self.arm, self.from.0) {
            (arm, 0) => arm.name().to_owned(),
            (Arm::Wait, _) => format!("offloaded from {} on, waiting", self.from),
            _ => format!("offloaded from {} on", self.from),
        }
    }
}

impl Grid {
    /// Measures all cells; stopped, those that are done by then.
    ///
    /// # Errors
    /// What could not be measured.
    pub(super) fn measure(
        plan: Plan,
        arms: &mut Arms,
        stop: &Arc<AtomicBool>,
        bar: &ProgressBar,
    ) -> Result<Self, String> {
        let highest = Self::highest(&plan, arms, stop, bar)?;
        arms.start_scheduler()?;
        // It is found within two seconds, and decides once both ways are known.
        for _ in 0..FIRST_LOADS_MAX {
            let load = Load::open(plan.sizes[0], highest[0] * plan.loads[0]);
            load.answered_per_s(arms.of(Arm::Fitted), stop)?;
            if !arms.in_force()?.is_empty() {
                break;
            }
        }
        let samples = plan.sizes.len() * plan.loads.len() * plan.runs * Arm::ALL.len();
        bar.set_length(samples as u64);
        let mut grid =
            Self { plan, cells: Vec::new(), scheduler_share: f64::NAN, unfinished: None };
        let end = grid.fill(&highest, arms, stop, bar);
        bar.finish_and_clear();
        grid.ended(end, stop.load(Ordering::Relaxed), &bar.message())
    }

    /// Measures cell after cell.
    fn fill(
        &mut self,
        highest: &[f64],
        arms: &Arms,
        stop: &Arc<AtomicBool>,
        bar: &ProgressBar,
    ) -> Result<(), String> {
        let cpu_s = || (arms.scheduler_cpu_s(), arms.of(Arm::Fitted).cpu_s());
        let before = cpu_s();
        let plan = self.plan.clone();
        for (&size, most_per_s) in plan.sizes.iter().zip(highest) {
            for &load in &plan.loads {
                let rate_per_s = (most_per_s * load).round().max(1.0);
                let mut cell = Cell::new(size, load, rate_per_s);
                cell.measure(&plan, arms, stop, bar)?;
                self.cells.push(cell);
                // While they are there: who stops this may stop them as well.
                let after = cpu_s();
                let own = (after.1 - before.1).max(f64::MIN_POSITIVE);
                self.scheduler_share = (after.0 - before.0) / own;
            }
        }
        Ok(())
    }

    /// What was measured: all of it, or what somebody who stopped it at some place left.
    fn ended(
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

    /// For each size the most requests per second that any static policy answers, and the load generator can offer. By
    /// then every virtual device has made the results of all values.
    fn highest(
        plan: &Plan,
        arms: &Arms,
        stop: &Arc<AtomicBool>,
        bar: &ProgressBar,
    ) -> Result<Vec<f64>, String> {
        let of_size = |size: &ByteCount| {
            bar.set_message(format!("{size}: the highest load"));
            let (mut most_per_s, mut best) = (0.0_f64, Arm::Software);
            for arm in Arm::ALL {
                let per_s = Load::saturating(*size).answered_per_s(arms.of(arm), stop)?;
                if Arm::STATIC.contains(&arm) && per_s > most_per_s {
                    (most_per_s, best) = (per_s, arm);
                }
            }
            let share = plan.loads.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
            for _ in 0..OFFERS_MAX {
                let load = Load::open(*size, most_per_s * share);
                let busy = load.generator_busy(arms.of(best), stop)?;
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
        plan.sizes.iter().map(of_size).collect()
    }

    /// What the numbers come to.
    pub(super) fn write(&self, rows: &mut Rows) {
        self.cells.iter().for_each(|cell| cell.write(rows));
        let within: Vec<_> = self.cells.iter().map(Cell::is_within).collect();
        let what = format!("cells in which the scheduler is within {} % of the best", percent());
        self.judge_all(rows, ("cells_within", what, "cells"), &within);
        let mut beaten = Vec::new();
        for (policy, over) in self.over_statics() {
            let met = all(over.iter().map(|own| (!own.is_nan()).then_some(*own > 1.0)));
            beaten.push(met);
            let runs = Runs::of(numbers(&over), self.plan.runs);
            let what = format!(
                "{}: latency over the scheduler's, over all cells it carries; above 1 in every run",
                policy.name()
            );
            let id = format!("over_scheduler.{}", policy.id());
            let row = self.row(id, what, "ratio", numbers(&over));
            let reason = row.reason.clone().or_else(|| self.overloaded(policy));
            let met = self.of_all_cells(met);
            rows.set(Row { reason, ..row }, Some(runs), Limit::Above(1.0), met);
        }
        let what = "static policies that the scheduler beats in every run".to_owned();
        self.judge_all(rows, ("statics_beaten", what, "policies"), &beaten);
        let what =
            "a second process that always offloads: latency over the first's, over all cells";
        rows.rows.push(self.row("twin".into(), what.to_owned(), "ratio", self.over_twin()));
        let what = "runs taken again because something else kept the load from its core";
        let again: usize = self.cells.iter().map(|cell| cell.again).sum();
        rows.rows.push(self.row("taken_again".into(), what.to_owned(), "runs", [again as f64]));
        let what = "CPU time of the scheduler over that of the frontend that follows it".to_owned();
        let share = [self.scheduler_share];
        rows.rows.push(self.row("scheduler_cpu".into(), what, "ratio", share));
    }

    /// How many are so, which all must be.
    fn judge_all(
        &self,
        rows: &mut Rows,
        (id, what, unit): (&str, String, &'static str),
        each: &[Option<bool>],
    ) {
        let count = each.iter().filter(|own| **own == Some(true)).count();
        let row = self.row(id.to_owned(), what, unit, [count as f64]);
        let limit = Limit::AtLeast(each.len() as f64);
        let met = self.of_all_cells(all(each.iter().copied()));
        rows.set(row, None, limit, met);
    }

    /// Nothing is judged by all cells where some are missing.
    fn of_all_cells(&self, met: Option<bool>) -> Option<bool> {
        met.filter(|_| self.unfinished.is_none())
    }

    fn row(
        &self,
        id: String,
        what: String,
        unit: &'static str,
        values: impl IntoIterator<Item = f64>,
    ) -> Row {
        Row::of(id, what, unit, values, vec![VIRTUAL.to_owned()], self.invalid())
    }

    /// By static policy and run: its latency over the scheduler's, the geometric mean of the cells whose load it
    /// carries. Nought where the scheduler does not carry one of those, not a number where a run does not hold.
    pub(super) fn over_statics(&self) -> Vec<(Static, Vec<f64>)> {
        let of = |policy: Static| {
            let over = (0..self.plan.runs).map(|run| {
                let both = |cell: &Cell| {
                    [Arm::Fitted, policy.at(cell.size)]
                        .map(|arm| cell.of(arm).get(run).map_or(f64::NAN, Sample::compared_us))
                };
                // In the others the policy is worse than who carries the load. That is worth no number, and does not
                // help who must beat it in the rest.
                let carried = self.cells.iter().map(both).filter(|own| !own[1].is_infinite());
                let ratios: Vec<f64> = carried.map(|[own, other]| (other / own).ln()).collect();
                (ratios.iter().sum::<f64>() / ratios.len() as f64).exp()
            });
            (policy, over.collect())
        };
        Static::all(&self.plan.sizes).into_iter().map(of).collect()
    }

    /// By run: how far two processes are apart that are alike, the geometric mean of the cells that both carry.
    fn over_twin(&self) -> Vec<f64> {
        let of_run = |run: usize| {
            let of_cell = |cell: &Cell| cell.over_offload(Arm::Twin).get(run).copied();
            let ratios = numbers(&self.cells.iter().filter_map(of_cell).collect::<Vec<_>>());
            (ratios.iter().map(|own| own.ln()).sum::<f64>() / ratios.len() as f64).exp()
        };
        (0..self.plan.runs).map(of_run).collect()
    }

    /// In how many cells a policy or the scheduler does not carry the load.
    fn overloaded(&self, policy: Static) -> Option<String> {
        let count = |of: &dyn Fn(&Cell) -> Arm| {
            self.cells.iter().filter(|cell| cell.overloaded(of(cell)).is_some()).count()
        };
        let (policys, own) = (count(&|cell| policy.at(cell.size)), count(&|_| Arm::Fitted));
        let cells = self.cells.len();
        (policys + own > 0).then(|| {
            let why = "where it is worse without a number";
            format!("overloaded in {policys} of {cells} cells, {why} (the scheduler: in {own})")
        })
    }

    fn invalid(&self) -> Option<String> {
        let count = self.cells.iter().filter(|cell| cell.invalid().is_some()).count();
        (count > 0).then(|| format!("{count} cells have runs that do not hold"))
    }

    /// For the terminal.
    pub(super) fn summary(&self) -> String {
        let mut lines = vec![format!(
            "{:>8} {:>5} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}  in force",
            "size", "load", "per s", "software", "offload", "twin", "wait", "scheduler", "to best"
        )];
        for cell in &self.cells {
            let [software, offload, twin, wait, fitted] = Arm::ALL.map(|arm| cell.median_us(arm));
            let over = ranked_median(cell.over_best()).unwrap_or(f64::NAN);
            let (size, load, per_s) = (cell.size.to_string(), cell.load, cell.rate_per_s);
            let mark = cell.is_within().map_or('?', |within| if within { ' ' } else { '!' });
            lines.push(format!(
                "{size:>8} {load:>5} {per_s:>9} {software:>10.1} {offload:>10.1} {twin:>10.1} \
                 {wait:>10.1} {fitted:>10.1} {over:>7.3}{mark}  {}{}",
                cell.in_force,
                cell.invalid().map_or(String::new(), |why| format!(" ({why})"))
            ));
        }
        for (policy, over) in self.over_statics() {
            let Some(own) = Spread::of(numbers(&over)) else { continue };
            let (median, low, high) = (own.median, own.low, own.high);
            let name = policy.name();
            lines.push(format!("{name:<40} {median:.3} ({low:.3} to {high:.3}) of the scheduler"));
        }
        lines.join("\n")
    }
}

impl Cell {
    fn new(size: ByteCount, load: f64, rate_per_s: f64) -> Self {
        let (samples, in_force) = (BTreeMap::new(), String::new());
        Self { size, load, rate_per_s, samples, again: 0, in_force }
    }

    fn measure(
        &mut self,
        plan: &Plan,
        arms: &Arms,
        stop: &Arc<AtomicBool>,
        bar: &ProgressBar,
    ) -> Result<(), String> {
        let load = Load::open(self.size, self.rate_per_s);
        let settle = Load { duration: plan.settle, ..load };
        settle.answered_per_s(arms.of(Arm::Fitted), stop)?;
        let load = Load { warmup: plan.warmup, duration: plan.duration, ..load };
        for run in 0..plan.runs {
            for arm in Arm::ALL.into_iter().cycle().skip(run).take(Arm::ALL.len()) {
                let (size, per_s) = (self.size, self.rate_per_s);
                bar.set_message(format!("{size} at {per_s}/s, {}", arm.name()));
                let (sample, again) = load.take_undisturbed(arms.of(arm), stop)?;
                self.again += again;
                self.samples.entry(arm).or_default().push(sample);
                bar.inc(1);
            }
        }
        self.in_force = arms.in_force()?;
        Ok(())
    }

    pub(super) fn of(&self, arm: Arm) -> &[Sample] {
        self.samples.get(&arm).map_or(&[], Vec::as_slice)
    }

    /// By run: see `Sample::compared_us`.
    pub(super) fn latencies_us(&self, arm: Arm) -> Vec<f64> {
        self.of(arm).iter().map(Sample::compared_us).collect()
    }

    /// Of the runs that hold; infinite where the load was carried in fewer than half of them.
    fn median_us(&self, arm: Arm) -> f64 {
        let holding = self.latencies_us(arm).into_iter().filter(|own| !own.is_nan());
        ranked_median(holding).unwrap_or(f64::INFINITY)
    }

    /// The static policy that is best here, of those that carry the load if any does.
    pub(super) fn best(&self) -> Arm {
        let by_median = |a: &Arm, b: &Arm| self.median_us(*a).total_cmp(&self.median_us(*b));
        Arm::STATIC.into_iter().min_by(by_median).unwrap_or(Arm::Software)
    }

    /// By run: the scheduler's latency over that of the best static policy. Nought where only the scheduler carries
    /// the load, infinite where it alone does not, not a number where neither does or a run does not hold.
    pub(super) fn over_best(&self) -> Vec<f64> {
        let best = self.latencies_us(self.best());
        self.latencies_us(Arm::Fitted).iter().zip(best).map(|(own, best)| own / best).collect()
    }

    /// By run: an arm's latency over that of always offloading.
    fn over_offload(&self, arm: Arm) -> Vec<f64> {
        let offload = self.latencies_us(Arm::Offload);
        self.latencies_us(arm).iter().zip(offload).map(|(own, offload)| own / offload).collect()
    }

    /// None where a run of any arm does not hold: another arm could be the best.
    fn is_within(&self) -> Option<bool> {
        let median = ranked_median(self.over_best()).filter(|_| self.invalid().is_none());
        median.map(|own| own <= OVER_BEST_MAX)
    }

    /// That an arm does not carry the load.
    fn overloaded(&self, arm: Arm) -> Option<String> {
        let own = self.of(arm).iter().filter(|own| own.invalid.is_none() && own.is_overloaded());
        let least = own.map(|own| own.achieved).reduce(f64::min)?;
        let name = arm.name();
        Some(format!("{name} is overloaded: only {:.0} % answered in its worst run", 100.0 * least))
    }

    fn invalid(&self) -> Option<String> {
        let judged = self.samples.iter().filter(|(arm, _)| **arm != Arm::Twin);
        let all = judged.flat_map(|(arm, own)| own.iter().map(move |own| (arm, own)));
        let mut why = all.filter_map(|(arm, own)| {
            own.invalid.as_ref().map(|why| format!("{}: {why}", arm.name()))
        });
        why.next()
    }

    fn write(&self, rows: &mut Rows) {
        let at = format!("{}.load_{}", self.size, self.load);
        let of = format!("{}, {}/s", self.size, self.rate_per_s);
        for arm in Arm::ALL {
            let own = self.of(arm);
            let invalid = own.iter().find_map(|sample| sample.invalid.clone());
            let invalid = invalid.or_else(|| self.overloaded(arm));
            let mut add = |metric: &str, what: &str, unit, values: Vec<f64>| {
                let id = format!("{metric}.{}.{at}", arm.id());
                let what = format!("{}, {of}: {what}", arm.name());
                rows.add(id, what, unit, values, arm.devices(), invalid.clone());
            };
            add("latency", "median latency", "us", self.latencies_us(arm));
            let core_us = own.iter().map(|sample| sample.core_us).collect();
            add("core", "CPU time per request", "us", core_us);
            let achieved = own.iter().map(|sample| sample.achieved).collect();
            add("achieved", "answered of what was offered", "ratio", achieved);
        }
        let twin = numbers(&self.over_offload(Arm::Twin));
        let what = format!("{of}: the latency of a second process that always offloads over its");
        let devices = Arm::Twin.devices();
        let row = Row::of(format!("twin.{at}"), what, "ratio", twin, devices, self.invalid());
        rows.rows.push(row);
        let over = numbers(&self.over_best());
        let runs = Runs::of(over.iter().copied(), self.of(Arm::Fitted).len());
        let best = self.best().name();
        let what = format!("{of}: the scheduler's latency over that of the best, {best}");
        let devices = vec![VIRTUAL.to_owned()];
        let overloaded = Arm::ALL.into_iter().filter_map(|arm| self.overloaded(arm));
        let in_force = format!("in force: {}", self.in_force);
        let reasons = self.invalid().into_iter().chain(overloaded).chain([in_force]);
        let reason = Some(reasons.collect::<Vec<_>>().join("; "));
        let row = Row::of(format!("over_best.{at}"), what, "ratio", over, devices, reason);
        rows.set(row, Some(runs), Limit::AtMost(OVER_BEST_MAX), self.is_within());
    }
}

/// The middle one, infinite ones among them; none where one is not a number, or without any.
fn ranked_median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = f64::midpoint(
        *values.get(values.len().checked_sub(1)? / 2)?,
        *values.get(values.len() / 2)?,
    );
    values.iter().all(|own| !own.is_nan()).then_some(middle)
}

/// Those of the ratios that are of two latencies.
fn numbers(ratios: &[f64]) -> Vec<f64> {
    ratios.iter().copied().filter(|own| own.is_finite() && *own > 0.0).collect()
}

/// Whether all are so: not if one is not, and not known if one is not known.
fn all(each: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let each: Vec<Option<bool>> = each.into_iter().collect();
    let known = each.iter().all(Option::is_some);
    if each.contains(&Some(false)) { Some(false) } else { known.then_some(true) }
}

fn percent() -> f64 {
    ((OVER_BEST_MAX - 1.0) * 100.0).round()
}

/// What cannot do this has no core to itself, and its loads would say nothing.
const PER_S_MIN: f64 = 100.0;

/// A load generator that is busier than this may be what is measured.
const GENERATOR_BUSY_MAX: f64 = 0.75;
/// It is given less until it is not, a little more each time than how busy it is asks for.
const OFFERS_MAX: usize = 4;
const OFFER_LESS: f64 = 0.97;

/// A scheduler that has decided nothing after so many seconds decides nothing in time.
const FIRST_LOADS_MAX: usize = 10;

/// The scheduler's latency is at most so many times that of the best static policy.
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
        let judged = Arm::ALL.into_iter().filter(|arm| *arm != Arm::Twin);
        for (arm, latency_us) in judged.zip(latencies_us) {
            cell.samples.insert(arm, vec![sample(latency_us); 2]);
        }
        cell
    }

    #[test]
    fn static_policies_are_all_that_differ_on_the_sizes() {
        let all = Static::all(&SIZES);
        assert_eq!(all.len(), 7);
        let decisions: Vec<Vec<Arm>> =
            all.iter().map(|own| SIZES.iter().map(|size| own.at(*size)).collect()).collect();
        for (index, own) in decisions.iter().enumerate() {
            assert!(!decisions[..index].contains(own), "{:?}", all[index]);
        }
        assert_eq!(all[2].id(), "offload_from_1KiB");
        assert_eq!((all[2].at(SIZES[0]), all[2].at(SIZES[1])), (Arm::Software, Arm::Offload));
    }

    #[test]
    fn the_scheduler_is_held_against_the_best_of_each_cell_and_each_policy_of_all() {
        let plan = Plan { sizes: SIZES[..2].to_vec(), runs: 2, ..plan() };
        let cells = vec![
            cell(SIZES[0], [10.0, 20.0, 40.0, 10.4]),
            cell(SIZES[1], [40.0, 20.0, 10.0, 10.6]),
        ];
        let grid = grid(plan, cells);
        let within: Vec<_> = grid.cells.iter().map(Cell::is_within).collect();
        assert_eq!(within, [Some(true), Some(false)]);
        assert_eq!((grid.cells[0].best(), grid.cells[1].best()), (Arm::Software, Arm::Wait));
        let over = grid.over_statics();
        let of = |id: &str| over.iter().find(|(own, _)| own.id() == id).expect("there").1[0];
        let own = (10.4 * 10.6_f64).sqrt();
        assert!((of("software") - 20.0 / own).abs() < 1e-9);
        assert!((of("wait_from_1KiB") - 10.0 / own).abs() < 1e-9);
        let mut rows = Rows::new("scheduler", &harness::Machine::here(), "idle");
        grid.write(&mut rows);
        let met = |id: &str| rows.bars.iter().find(|bar| bar.id == id).expect("judged").met;
        assert_eq!(met("cells_within"), Some(false));
        assert_eq!(met("over_scheduler.software"), Some(true));
        assert_eq!(met("over_scheduler.wait_from_1KiB"), Some(false));
    }

    fn met(grid: &Grid) -> BTreeMap<String, Option<bool>> {
        let mut rows = Rows::new("scheduler", &harness::Machine::here(), "idle");
        grid.write(&mut rows);
        rows.bars.into_iter().map(|bar| (bar.id, bar.met)).collect()
    }

    #[test]
    fn a_run_that_does_not_hold_leaves_what_it_is_part_of_unjudged() {
        let mut own = cell(SIZES[0], [10.0, 20.0, 40.0, 10.0]);
        let wait = own.samples.get_mut(&Arm::Wait).expect("there");
        wait[0] = Sample { invalid: Some("late".into()), ..sample(1.0) };
        assert_eq!((own.best(), own.is_within()), (Arm::Software, None));
        let other = cell(SIZES[1], [40.0, 20.0, 10.0, 10.0]);
        let plan = Plan { sizes: SIZES[..2].to_vec(), runs: 2, ..plan() };
        let grid = grid(plan, vec![own, other]);
        let met = met(&grid);
        let over_best = format!("over_best.{}.load_0.5", SIZES[0]);
        assert_eq!((met[&over_best], met["cells_within"]), (None, None));
        assert_eq!((met["over_scheduler.wait"], met["statics_beaten"]), (None, Some(false)));
        assert_eq!(met["over_scheduler.software"], Some(true));
    }

    #[test]
    fn a_policy_is_beaten_in_every_run_or_not_at_all() {
        let with_software = |each_us: [f64; 3]| {
            let mut own = cell(SIZES[0], [10.0, 20.0, 40.0, 10.0]);
            own.samples.values_mut().for_each(|own| *own = vec![own[0].clone(); 3]);
            own.samples.insert(Arm::Software, each_us.map(sample).to_vec());
            met(&grid(Plan { sizes: SIZES[..1].to_vec(), runs: 3, ..plan() }, vec![own]))
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
    fn who_does_not_carry_the_load_is_worse_and_its_queue_is_no_latency() {
        let overload = |cell: &mut Cell, arm| {
            let own = Sample { achieved: 0.5, ..sample(1.0) };
            cell.samples.insert(arm, vec![own; 2]);
        };
        let mut first = cell(SIZES[0], [10.0, 20.0, 40.0, 10.0]);
        overload(&mut first, Arm::Wait);
        assert_eq!((first.best(), first.is_within()), (Arm::Software, Some(true)));
        assert_eq!(first.median_us(Arm::Wait), f64::INFINITY);
        let second = cell(SIZES[1], [40.0, 20.0, 10.0, 20.0]);
        let plan = Plan { sizes: SIZES[..2].to_vec(), runs: 2, ..plan() };
        let mut grid = grid(plan, vec![first, second]);
        let wait = |grid: &Grid| {
            let over = grid.over_statics();
            over.iter().find(|(own, _)| own.id() == "wait").expect("there").1[0]
        };
        // Of the one cell whose load it carries.
        assert!((wait(&grid) - 0.5).abs() < 1e-9);
        assert_eq!(met(&grid)["over_scheduler.wait"], Some(false));
        overload(&mut grid.cells[1], Arm::Fitted);
        assert_eq!((wait(&grid), grid.cells[1].is_within()), (0.0, Some(false)));
        assert_eq!(met(&grid)["over_scheduler.software"], Some(false));
        for arm in Arm::STATIC {
            overload(&mut grid.cells[1], arm);
        }
        assert_eq!(grid.cells[1].is_within(), None, "nobody carries it");
    }

    #[test]
    fn who_stops_it_keeps_the_cells_that_are_done() {
        let measured =
            |cells: Vec<Cell>| grid(Plan { sizes: SIZES.to_vec(), runs: 2, ..plan() }, cells);
        let done = || vec![cell(SIZES[0], [10.0, 20.0, 40.0, 10.0])];
        let failed = || Err("no answer".to_owned());
        let end = |cells, end, is_stopped| measured(cells).ended(end, is_stopped, "1KiB at 5/s");
        assert_eq!(end(done(), failed(), false).err().as_deref(), Some("no answer"));
        assert_eq!(end(vec![], failed(), true).err().as_deref(), Some("no answer"));
        assert_eq!(end(done(), Ok(()), true).expect("all").unfinished, None);
        let kept = end(done(), failed(), true).expect("a cell is done");
        assert_eq!(kept.unfinished.as_deref(), Some("interrupted at 1KiB at 5/s"));
        assert_eq!(kept.plan.sizes, SIZES[..1]);
        let met = met(&kept);
        assert_eq!(met[&format!("over_best.{}.load_0.5", SIZES[0])], Some(true), "its own cell");
        assert_eq!((met["cells_within"], met["over_scheduler.wait"]), (None, None));
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
