//! Experiment 5: Cache-1 as an open loop, from idle past saturation, for every policy. It also shows whether the
//! policies that see the load are as good as the best of the other policies.

use std::collections::BTreeMap;

use report::{Axis, Figure, Panel, Section};
use sim::{RuntimeModel, RuntimeRun};
use units::Nanos;
use workload::PayloadClass;

use super::closed::warm;
use super::mode::Mode;
use super::modes::CACHE1;
use super::open::{Open, WARM_UP};
use super::page::{colour, figure, line, origin};
use super::platform::Platform;
use super::sample::{Sample, behind, invalid};
use super::setup::Setup;
use super::simulated;
use super::work::Work;
use crate::base::Spread;
use crate::base::figures::table;
use crate::base::rows::{Kind, Row, Rows};

/// Measures, adds the rows, and returns the section of the page with the figures. An interrupted run has the
/// results of the passes that were complete by then.
///
/// # Errors
/// A job failed, or the run has to stop before any pass through all loads is complete.
pub(super) fn run(setup: &Setup, rows: &mut Rows) -> Result<Section, String> {
    let work = Work::of_preset(&setup.stock, CACHE1, PayloadClass::Html)?;
    let (mut figures, mut tables) = (Vec::new(), Vec::new());
    for platform in setup.platforms() {
        let found = match warm(platform, &work)
            .and_then(|()| Measurements::measure(setup, platform, &work))
        {
            Ok(found) => found,
            Err(_) if setup.session.is_stopped() && !figures.is_empty() => break,
            Err(error) => return Err(error),
        };
        found.write(rows);
        let first = rows.rows.len();
        found.write_followed(rows);
        figures.push(found.figure());
        let caption = format!("{}: beside the best static policy", platform.name);
        tables.push(table(&caption, rows.rows[first..].iter()));
        let first = rows.rows.len();
        found.write_simulated(rows, &work, setup.plan.window);
        let caption = format!("{}: the simulator's answer over the runtime's", platform.name);
        if rows.rows.len() > first {
            let over = rows.rows[first..].iter().filter(|row| row.unit == "ratio");
            tables.push(table(&caption, over));
        }
        if setup.session.is_stopped() {
            break;
        }
    }
    if setup.session.is_stopped() {
        rows.unfinished = Some("interrupted within loads: the runs that were whole".into());
    }
    Ok(Section {
        heading: "From idle past saturation".into(),
        prose: vec![
            "Cache-1, html, requests due at random (Poisson) times; latency counts from then. A \
             line ends where less than 99.5 % of the requests are answered in the window: beyond \
             that latency is the length of the queue. The paper has closed loops only, and leaves \
             policies that see load to future work."
                .into(),
        ],
        figures,
        tables,
        ..Section::default()
    })
}

/// Returns the seed from which all random numbers of a run follow.
fn seed(run: usize, rate_per_s: f64) -> u64 {
    (run as u64) << 32 | rate_per_s as u64
}

/// A sample with its mode and offered load (1/s).
type Taken = ((Mode, u64), Sample);

/// The samples by mode and offered load (1/s).
struct Measurements<'a> {
    platform: &'a Platform,
    loads_per_s: Vec<f64>,
    /// The number of complete passes through all loads.
    runs: usize,
    samples: BTreeMap<(Mode, u64), Vec<Sample>>,
}

impl<'a> Measurements<'a> {
    fn measure(setup: &Setup, platform: &'a Platform, work: &Work) -> Result<Self, String> {
        let plan = &setup.plan;
        let mut loads_per_s = plan.loads_per_s.clone();
        loads_per_s.sort_by(f64::total_cmp);
        loads_per_s.dedup_by_key(|per_s| *per_s as u64);
        setup.session.begin("loads", plan.runs * Mode::ALL.len() * loads_per_s.len());
        let mut found = Self { platform, loads_per_s, runs: 0, samples: BTreeMap::new() };
        for run in 0..plan.runs {
            let taken = match found.run_through(setup, work, run) {
                Ok(taken) => taken,
                Err(_) if setup.session.is_stopped() && run > 0 => break,
                Err(error) => return Err(error),
            };
            for (at, sample) in taken {
                found.samples.entry(at).or_default().push(sample);
            }
            found.runs += 1;
        }
        Ok(found)
    }

    /// Makes one pass through all loads.
    fn run_through(&self, setup: &Setup, work: &Work, run: usize) -> Result<Vec<Taken>, String> {
        let mut taken = Vec::new();
        // A mode is dropped at the load at which it falls behind, because beyond that load only the queue grows.
        let mut open: Vec<Mode> = Mode::ALL.to_vec();
        for &rate_per_s in &self.loads_per_s {
            let mut kept_up = Vec::new();
            for mode in Mode::ALL {
                let what = format!("{}, {rate_per_s}/s, {}", mode.id(), self.platform.id);
                if !open.contains(&mode) {
                    setup.session.take(&what, || Ok(()))?;
                    continue;
                }
                let (window, seed) = (setup.plan.window, seed(run, rate_per_s));
                let open = Open { rate_per_s, window, batch: None, seed };
                let sample = setup.session.take(&what, || open.run(self.platform, mode, work))?;
                if sample.kept_up() {
                    kept_up.push(mode);
                }
                taken.push(((mode, rate_per_s as u64), sample));
            }
            open = kept_up;
        }
        Ok(taken)
    }

    fn samples(&self, mode: Mode, per_s: f64) -> &[Sample] {
        self.samples.get(&(mode, per_s as u64)).map_or(&[], Vec::as_slice)
    }

    /// Returns a quantile of the latency of each run that kept up (us).
    fn quantile_us(&self, mode: Mode, per_s: f64, share: f64) -> Vec<f64> {
        self.samples(mode, per_s).iter().map(|sample| sample.quantile_kept_up_us(share)).collect()
    }

    /// Returns the 99th percentile if all runs kept up, and otherwise None.
    fn p99_us(&self, mode: Mode, per_s: f64) -> Option<Spread> {
        let spread = Spread::from_values(self.quantile_us(mode, per_s, 0.99));
        spread.filter(|spread| spread.count == self.runs)
    }

    fn at(&self, mode: Mode, per_s: f64) -> String {
        format!("{}.cache1.{per_s}_per_s.{}", mode.id(), self.platform.id)
    }

    fn write(&self, rows: &mut Rows) {
        for mode in Mode::ALL {
            for &per_s in &self.loads_per_s {
                let samples = self.samples(mode, per_s);
                if samples.is_empty() {
                    continue;
                }
                let name = format!("{}, {}", mode.name(), self.platform.name);
                let mut add = |metric: &str, what: &str, unit, values: Vec<f64>| {
                    let id = format!("{metric}.{}", self.at(mode, per_s));
                    let what = format!("{name}, {per_s}/s offered: {what}");
                    let reason = invalid(samples).or_else(|| behind(samples));
                    rows.add(id, what, unit, values, self.platform.virtuals(mode), reason);
                };
                let answered = samples.iter().map(|sample| sample.achieved * per_s).collect();
                add("throughput", "answered in the window", "1/s", answered);
                add("p50", "median latency", "us", self.quantile_us(mode, per_s, 0.5));
                add("p99", "99th percentile", "us", self.quantile_us(mode, per_s, 0.99));
            }
        }
    }

    /// Compares the policies that see the load with the best of the others, at every load.
    fn write_followed(&self, rows: &mut Rows) {
        for mode in [Mode::LeastLatency, Mode::LeastHostCycles] {
            let mut wins = 0;
            for &per_s in &self.loads_per_s {
                let statics = Mode::PAPER.map(|other| (other, self.p99_us(other, per_s)));
                let known = statics.iter().filter_map(|(mode, p99)| p99.map(|p99| (*mode, p99)));
                let best = known.min_by(|a, b| a.1.median.total_cmp(&b.1.median));
                let (Some(p99), Some((other, best))) = (self.p99_us(mode, per_s), best) else {
                    continue;
                };
                wins += usize::from(p99.high < best.low);
                let id = format!("p99_over_best.{}", self.at(mode, per_s));
                let what = format!(
                    "{}, {}, {per_s}/s: p99 over that of the best static policy",
                    mode.name(),
                    self.platform.name
                );
                let theirs = self.quantile_us(other, per_s, 0.99);
                let ours = self.quantile_us(mode, per_s, 0.99);
                let ratios = ours.iter().zip(theirs).map(|(ours, best)| ours / best);
                let reason = Some(format!("the best is {}", other.name()));
                rows.add(id, what, "ratio", ratios, self.platform.virtuals(mode), reason);
            }
            let id = format!("loads_better.{}.cache1.{}", mode.id(), self.platform.id);
            let what = format!(
                "{}, {}: loads at which all its runs are better than all of the best static one",
                mode.name(),
                self.platform.name
            );
            rows.add(id, what, "loads", [wins as f64], self.platform.virtuals(mode), None);
        }
    }

    /// Compares the simulator's numbers for the same loads with the measured ones. It takes medians over as many runs,
    /// with the same seeds for the arrivals.
    fn write_simulated(&self, rows: &mut Rows, work: &Work, window: Nanos) {
        let warm_up = Nanos(window.0 / WARM_UP);
        for mode in Mode::ALL {
            if let Some(ratio) = simulated::over_model(self.platform, mode, work) {
                self.compute(
                    rows,
                    mode,
                    &format!("simulated_over_model.p50.{}.cache1.{}", mode.id(), self.platform.id),
                    ("median latency where nobody waits, simulated over the model's", "ratio"),
                    vec![ratio],
                );
            }
            for &per_s in &self.loads_per_s {
                let samples = self.samples(mode, per_s);
                let load = (per_s, window, warm_up);
                let Some(plan) = simulated::open_loop(self.platform, mode, work, load) else {
                    return;
                };
                let runs = |plan: &RuntimeModel| -> Vec<RuntimeRun> {
                    (0..samples.len()).map(|run| plan.run(seed(run, per_s))).collect()
                };
                let p99_us = |runs: &[RuntimeRun]| {
                    runs.iter().filter_map(|run| run.quantile_us(0.99)).collect::<Vec<f64>>()
                };
                let found = runs(&plan);
                self.write_ratios(rows, mode, per_s, &found);
                let id = format!("simulated.p99.{}", self.at(mode, per_s));
                let what = format!("{per_s}/s: 99th percentile, simulated");
                self.compute(rows, mode, &id, (&what, "us"), p99_us(&found));
                if let Some(free) = simulated::unweighed(&plan) {
                    let id = format!("simulated.p99_choice_free.{}", self.at(mode, per_s));
                    let what = format!("{what}, weighing the places taking no time");
                    self.compute(rows, mode, &id, (&what, "us"), p99_us(&runs(&free)));
                }
            }
        }
    }

    /// Adds a row with a computed number. Nothing is run for it.
    fn compute(
        &self,
        rows: &mut Rows,
        mode: Mode,
        id: &str,
        (what, unit): (&str, &'static str),
        values: Vec<f64>,
    ) {
        let what = format!("{}, {what}", mode.name());
        let row =
            Row::from_values(id.to_owned(), what, unit, values, self.platform.virtuals(mode), None);
        rows.rows.push(row.by(Kind::Computed));
    }

    fn write_ratios(&self, rows: &mut Rows, mode: Mode, per_s: f64, runs: &[RuntimeRun]) {
        let samples = self.samples(mode, per_s);
        let mut add = |metric: &str, what: &str, ratios: Vec<f64>| {
            let id = format!("simulated_over_measured.{metric}.{}", self.at(mode, per_s));
            let what = format!("{}, {per_s}/s: {what}", mode.name());
            let reason = invalid(samples).or_else(|| behind(samples));
            rows.add(id, what, "ratio", ratios, self.platform.virtuals(mode), reason);
        };
        let pairs = || samples.iter().zip(runs);
        let throughput = pairs().map(|(sample, run)| run.achieved / sample.achieved);
        add("throughput", "requests answered in the window", throughput.collect());
        let p50 = pairs().map(|(sample, run)| {
            run.quantile_us(0.5).unwrap_or(f64::NAN) / sample.quantile_kept_up_us(0.5)
        });
        add("p50", "median latency", p50.collect());
    }

    fn figure(&self) -> Figure {
        let panel = |title: &str, share: f64| {
            let lines = Mode::ALL.into_iter().map(|mode| {
                let at = |per_s: &f64| (*per_s / 1e3, self.quantile_us(mode, *per_s, share));
                let origin = origin(&self.platform.virtuals(mode));
                line(mode.name(), colour(mode), origin, self.loads_per_s.iter().map(at))
            });
            let x = Axis::linear("offered load (1000 requests/s)");
            Panel::lines(title, x, Axis::log10("latency (us)"), lines.collect())
        };
        let panels = vec![panel("median", 0.5), panel("99th percentile", 0.99)];
        let id = format!("open-loop-{}", self.platform.id);
        figure(id, format!("Cache-1, open loop: {}.", self.platform.name), panels)
    }
}
