//! Every cell of the grid measured with every arm in turn, and what that says: the scheduler against the best static
//! policy in each cell, and against each static policy over all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::ProgressBar;
use units::ByteCount;

use super::arm::{Arm, Arms};
use super::plan::Plan;
use super::sample::{Load, Sample};
use crate::experiment::VIRTUAL;
use crate::reproduce::Spread;
use crate::reproduce::rows::{Limit, Row, Rows};

/// What was measured.
pub(super) struct Grid {
    pub(super) plan: Plan,
    pub(super) cells: Vec<Cell>,
    /// CPU time of the scheduler over that of the frontend that follows it.
    scheduler_share: f64,
}

/// One size at one load.
pub(super) struct Cell {
    pub(super) size: ByteCount,
    /// As a share of what the best static policy answers.
    pub(super) load: f64,
    pub(super) rate_per_s: f64,
    samples: BTreeMap<Arm, Vec<Sample>>,
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
    /// Measures all cells.
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
        let cpu_s = || (arms.scheduler_cpu_s(), arms.of(Arm::Fitted).cpu_s());
        let before = cpu_s();
        let mut cells = Vec::new();
        for (&size, most_per_s) in plan.sizes.iter().zip(highest) {
            for &load in &plan.loads {
                let rate_per_s = (most_per_s * load).round().max(1.0);
                let mut cell = Cell::new(size, load, rate_per_s);
                cell.measure(&plan, arms, stop, bar)?;
                cells.push(cell);
            }
        }
        bar.finish_and_clear();
        let after = cpu_s();
        let scheduler_share = (after.0 - before.0) / (after.1 - before.1).max(f64::MIN_POSITIVE);
        Ok(Self { plan, cells, scheduler_share })
    }

    /// For each size the most requests per second that any static policy answers. By then every virtual device has
    /// made the results of all values.
    fn highest(
        plan: &Plan,
        arms: &Arms,
        stop: &Arc<AtomicBool>,
        bar: &ProgressBar,
    ) -> Result<Vec<f64>, String> {
        let of_size = |size: &ByteCount| {
            bar.set_message(format!("{size}: the highest load"));
            let mut most_per_s = 0.0_f64;
            for arm in Arm::ALL {
                let per_s = Load::saturating(*size).answered_per_s(arms.of(arm), stop)?;
                most_per_s = if arm == Arm::Fitted { most_per_s } else { most_per_s.max(per_s) };
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
        let within = self.cells.iter().filter(|cell| cell.is_within()).count();
        let all = self.cells.len() as f64;
        let what = format!("cells in which the scheduler is within {} % of the best", percent());
        let row = self.row("cells_within".into(), what, "cells", [within as f64]);
        rows.judge(row, None, Limit::AtLeast(all));
        let (mut beaten, policies) = (0, self.over_statics());
        let count = policies.len() as f64;
        for (policy, over) in policies {
            let spread = Spread::of(over.iter().copied());
            beaten += usize::from(spread.is_some_and(|own| own.low > 1.0));
            let what = format!("{}: latency over the scheduler's, over all cells", policy.name());
            let row = self.row(format!("over_scheduler.{}", policy.id()), what, "ratio", over);
            rows.judge(row, spread, Limit::Above(1.0));
        }
        let what = "static policies that the scheduler beats in every run".to_owned();
        let row = self.row("statics_beaten".into(), what, "policies", [beaten as f64]);
        rows.judge(row, None, Limit::AtLeast(count));
        let what = "CPU time of the scheduler over that of the frontend that follows it".to_owned();
        let share = [self.scheduler_share];
        rows.rows.push(self.row("scheduler_cpu".into(), what, "ratio", share));
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

    /// By static policy and run: its latency over the scheduler's, the geometric mean of all cells.
    pub(super) fn over_statics(&self) -> Vec<(Static, Vec<f64>)> {
        let of = |policy: Static| {
            let over = (0..self.plan.runs).map(|run| {
                let ratio = |cell: &Cell| {
                    let [own, other] = [Arm::Fitted, policy.at(cell.size)]
                        .map(|arm| cell.of(arm).get(run).map_or(f64::NAN, |own| own.latency_us));
                    (other / own).ln()
                };
                (self.cells.iter().map(ratio).sum::<f64>() / self.cells.len() as f64).exp()
            });
            (policy, over.collect())
        };
        Static::all(&self.plan.sizes).into_iter().map(of).collect()
    }

    fn invalid(&self) -> Option<String> {
        let count = self.cells.iter().filter(|cell| cell.invalid().is_some()).count();
        (count > 0).then(|| format!("{count} cells have runs that do not hold"))
    }

    /// For the terminal.
    pub(super) fn summary(&self) -> String {
        let mut lines = vec![format!(
            "{:>8} {:>5} {:>9} {:>10} {:>10} {:>10} {:>10} {:>8}  in force",
            "size", "load", "per s", "software", "offload", "wait", "scheduler", "to best"
        )];
        for cell in &self.cells {
            let [software, offload, wait, fitted] = Arm::ALL.map(|arm| cell.median_us(arm));
            let over = Spread::of(cell.over_best()).map_or(f64::NAN, |own| own.median);
            let (size, load, per_s) = (cell.size.to_string(), cell.load, cell.rate_per_s);
            let mark = if cell.is_within() { ' ' } else { '!' };
            lines.push(format!(
                "{size:>8} {load:>5} {per_s:>9} {software:>10.1} {offload:>10.1} {wait:>10.1} \
                 {fitted:>10.1} {over:>7.3}{mark}  {}{}",
                cell.in_force,
                cell.invalid().map_or(String::new(), |why| format!(" ({why})"))
            ));
        }
        for (policy, over) in self.over_statics() {
            let Some(own) = Spread::of(over) else { continue };
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
        Self { size, load, rate_per_s, samples, in_force }
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
                let sample = load.take(arms.of(arm), stop)?;
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

    pub(super) fn latencies_us(&self, arm: Arm) -> Vec<f64> {
        self.of(arm).iter().map(|sample| sample.latency_us).collect()
    }

    fn median_us(&self, arm: Arm) -> f64 {
        Spread::of(self.latencies_us(arm)).map_or(f64::NAN, |own| own.median)
    }

    /// The static policy that is best here.
    pub(super) fn best(&self) -> Arm {
        let by_median = |a: &Arm, b: &Arm| self.median_us(*a).total_cmp(&self.median_us(*b));
        Arm::STATIC.into_iter().min_by(by_median).unwrap_or(Arm::Software)
    }

    /// By run: the scheduler's latency over that of the best static policy.
    pub(super) fn over_best(&self) -> Vec<f64> {
        let best = self.latencies_us(self.best());
        self.latencies_us(Arm::Fitted).iter().zip(best).map(|(own, best)| own / best).collect()
    }

    fn is_within(&self) -> bool {
        Spread::of(self.over_best()).is_some_and(|own| own.median <= OVER_BEST_MAX)
    }

    fn invalid(&self) -> Option<String> {
        let all = self.samples.iter().flat_map(|(arm, own)| own.iter().map(move |own| (arm, own)));
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
        let over = self.over_best();
        let spread = Spread::of(over.iter().copied());
        let best = self.best().name();
        let what = format!("{of}: the scheduler's latency over that of the best, {best}");
        let devices = vec![VIRTUAL.to_owned()];
        let reason = Some(format!("in force: {}", self.in_force));
        let row = Row::of(format!("over_best.{at}"), what, "ratio", over, devices, reason);
        rows.judge(row, spread, Limit::AtMost(OVER_BEST_MAX));
    }
}

fn percent() -> f64 {
    ((OVER_BEST_MAX - 1.0) * 100.0).round()
}

/// What cannot do this has no core to itself, and its loads would say nothing.
const PER_S_MIN: f64 = 100.0;

/// A scheduler that has decided nothing after so many seconds decides nothing in time.
const FIRST_LOADS_MAX: usize = 10;

/// The scheduler's latency is at most so many times that of the best static policy.
const OVER_BEST_MAX: f64 = 1.05;

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [ByteCount; 3] = [ByteCount(256), ByteCount(1_024), ByteCount(4_096)];

    fn sample(latency_us: f64) -> Sample {
        Sample { latency_us, core_us: 1.0, achieved: 1.0, invalid: None }
    }

    fn cell(size: ByteCount, latencies_us: [f64; 4]) -> Cell {
        let mut cell = Cell::new(size, 0.5, 100.0);
        for (arm, latency_us) in Arm::ALL.into_iter().zip(latencies_us) {
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
        let grid = Grid { plan, cells, scheduler_share: 0.0 };
        let within: Vec<bool> = grid.cells.iter().map(Cell::is_within).collect();
        assert_eq!(within, [true, false]);
        assert_eq!((grid.cells[0].best(), grid.cells[1].best()), (Arm::Software, Arm::Wait));
        let over = grid.over_statics();
        let of = |id: &str| over.iter().find(|(own, _)| own.id() == id).expect("there").1[0];
        let own = (10.4 * 10.6_f64).sqrt();
        assert!((of("software") - 20.0 / own).abs() < 1e-9);
        assert!((of("wait_from_1KiB") - 10.0 / own).abs() < 1e-9);
        let mut rows = Rows::new("scheduler", &crate::experiment::Machine::here(), "idle");
        grid.write(&mut rows);
        let met = |id: &str| rows.bars.iter().find(|bar| bar.id == id).expect("judged").met;
        assert_eq!(met("cells_within"), Some(false));
        assert_eq!(met("over_scheduler.software"), Some(true));
        assert_eq!(met("over_scheduler.wait_from_1KiB"), Some(false));
    }

    fn plan() -> Plan {
        use units::Nanos;
        let (warmup, duration, settle) = (Nanos(0), Nanos(0), Nanos(0));
        Plan { sizes: Vec::new(), loads: vec![0.5], runs: 1, warmup, duration, settle }
    }
}
