//! The measurements by point, and the numbers that follow from them by arithmetic: ratios to the monolith in software,
//! the sum of the stages divided by the difference that it should explain, and the share of the codec's cost that an
//! accelerator saves.

use std::collections::BTreeMap;

use units::{ByteCount, Op};

use super::Part;
use super::plan::Plan;
use crate::base::rows::{Rows, Spread};
use crate::testbed::{Compressor, Configuration, Sample, Stage, StoreRoute, Topology, Usage};

/// All measurements, run by run.
pub(super) struct Results {
    pub(super) plan: Plan,
    pub(super) points: BTreeMap<Point, Vec<Sample>>,
    /// The stages by size and op.
    pub(super) stages: BTreeMap<(ByteCount, &'static str), Vec<Stages>>,
    /// The knees by configuration.
    pub(super) knees: BTreeMap<String, Vec<Knee>>,
    /// The load of the criteria by route and mix (1/s): the highest of [`super::criteria::RATES_PER_S`] that
    /// all compared configurations sustained.
    pub(super) carried_per_s: BTreeMap<(StoreRoute, u32), f64>,
    /// The configurations that could not be measured here, with the reasons.
    pub(super) left_out: Vec<(Configuration, String)>,
}

/// The highest load that the configuration sustained in one run (1/s).
#[derive(Clone, Debug)]
pub(super) struct Knee {
    pub(super) per_s: f64,
    /// The reason why a higher load failed, if the cause was not the configuration.
    pub(super) limit: Option<String>,
}

/// The stages in which a microservice with an accelerator differs from a monolith in software.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stages {
    pub(super) software: Stage,
    /// The software codec on a core that runs its jobs back to back.
    pub(super) busy: Stage,
    /// The software codec that is fastest on this machine.
    pub(super) best: Stage,
    pub(super) device: Stage,
    /// The hop to a compression service over gRPC, if there is one.
    pub(super) hop: Option<Stage>,
    /// The hop to a compression service over a lane, if there is one.
    pub(super) lane: Option<Stage>,
}

impl Stages {
    /// Returns the time from the frontend to the place of a job and back (us), or NaN if it was not measured.
    pub(super) fn way_us(&self, topology: Topology) -> f64 {
        let way = match topology {
            Topology::Monolith => return 0.0,
            Topology::Microservice => self.hop,
            Topology::Lane => self.lane,
        };
        way.map_or(f64::NAN, |way| way.p50_us)
    }
}

/// One configuration under one load.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    configuration: String,
    kind: PointKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PointKind {
    Size { size: ByteCount, gets: u32 },
    Saturated { size: ByteCount, gets: u32 },
    Load { per_s: u64 },
    Carried { gets: u32 },
    Maximum { gets: u32 },
}

impl Point {
    pub(super) fn at_size(configuration: Configuration, size: ByteCount, gets: u32) -> Self {
        Self { configuration: configuration.id(), kind: PointKind::Size { size, gets } }
    }

    pub(super) fn saturated(configuration: Configuration, size: ByteCount, gets: u32) -> Self {
        Self { configuration: configuration.id(), kind: PointKind::Saturated { size, gets } }
    }

    pub(super) fn at_load(configuration: Configuration, per_s: f64) -> Self {
        let kind = PointKind::Load { per_s: per_s.round() as u64 };
        Self { configuration: configuration.id(), kind }
    }

    /// Makes the point at the highest load that was tried and that all compared configurations carry. The criteria
    /// compare them there.
    pub(super) fn carried(configuration: Configuration, gets: u32) -> Self {
        Self { configuration: configuration.id(), kind: PointKind::Carried { gets } }
    }

    /// Makes the point of the criteria at the maximum throughput, with clients in a closed loop.
    pub(super) fn maximum(configuration: Configuration, gets: u32) -> Self {
        Self { configuration: configuration.id(), kind: PointKind::Maximum { gets } }
    }
}

/// A quantile of a sample's latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantile {
    P50,
    P90,
}

impl Quantile {
    pub(super) const fn id(self) -> &'static str {
        match self {
            Quantile::P50 => "p50",
            Quantile::P90 => "p90",
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Quantile::P50 => "median",
            Quantile::P90 => "90th percentile",
        }
    }
}

impl Sample {
    /// Returns a quantile of an op's latency (us). It is NaN if the sample has no such request.
    pub(super) fn latency_us(&self, op: Op, quantile: Quantile) -> f64 {
        let results = if op == Op::Compress { &self.report.set } else { &self.report.get };
        let latency = results.latency;
        match quantile {
            _ if latency.count == 0 => f64::NAN,
            Quantile::P50 => latency.p50_ns as f64 / 1e3,
            Quantile::P90 => latency.p90_ns as f64 / 1e3,
        }
    }
}

impl Results {
    pub(super) fn new(plan: Plan) -> Self {
        Self {
            plan,
            points: BTreeMap::new(),
            stages: BTreeMap::new(),
            knees: BTreeMap::new(),
            carried_per_s: BTreeMap::new(),
            left_out: Vec::new(),
        }
    }

    /// Returns the samples of a point, run by run. An invalid sample is None.
    pub(super) fn samples(&self, point: &Point) -> Vec<Option<&Sample>> {
        let samples = self.points.get(point).map(Vec::as_slice).unwrap_or_default();
        samples
            .iter()
            .map(|sample| Some(sample).filter(|sample| sample.invalid.is_none()))
            .collect()
    }

    /// Returns the reason why runs of a point are invalid, if any are.
    pub(super) fn invalid(&self, point: &Point) -> Option<String> {
        let samples = self.points.get(point)?;
        let reasons: Vec<&str> =
            samples.iter().filter_map(|sample| sample.invalid.as_deref()).collect();
        let first = reasons.first()?;
        Some(format!("{} of {} runs not valid: {first}", reasons.len(), samples.len()))
    }

    /// Returns a quantile of the latency of each run (us).
    pub(super) fn latency_us(&self, point: &Point, op: Op, quantile: Quantile) -> Vec<f64> {
        let samples = self.samples(point).into_iter();
        samples
            .map(|sample| sample.map_or(f64::NAN, |sample| sample.latency_us(op, quantile)))
            .collect()
    }

    /// Writes all rows.
    pub(super) fn write(&self, rows: &mut Rows) {
        for &configuration in &self.plan.configurations {
            if self.plan.has(Part::Sizes) {
                self.write_sizes(rows, configuration);
                self.write_freed(rows, configuration);
            }
            self.write_loads(rows, configuration);
        }
        self.write_stages(rows);
        self.write_criteria(rows);
        self.write_claims(rows);
        for (configuration, why) in &self.left_out {
            let what = format!("{}: not measured", configuration.name());
            let (id, why) = (format!("left_out.{}", configuration.id()), Some(why.clone()));
            rows.add(id, what, "", [], Vec::new(), why);
        }
    }

    fn write_sizes(&self, rows: &mut Rows, configuration: Configuration) {
        for &size in &self.plan.sizes {
            for &gets in &self.plan.gets {
                for op in ops(gets) {
                    for quantile in [Quantile::P50, Quantile::P90] {
                        self.write_latency(rows, configuration, size, gets, op, quantile);
                    }
                    self.write_attribution(rows, configuration, size, gets, op);
                    self.write_in_place(rows, configuration, size, gets, op);
                }
                self.write_utilisation(rows, configuration, size, gets);
            }
        }
    }

    fn write_latency(
        &self,
        rows: &mut Rows,
        configuration: Configuration,
        size: ByteCount,
        gets: u32,
        op: Op,
        quantile: Quantile,
    ) {
        let point = Point::at_size(configuration, size, gets);
        let times = self.latency_us(&point, op, quantile);
        let at = format!("{}.{}.{}.{}", configuration.id(), quantile.id(), id(size), mix(gets, op));
        let rate = self.plan.rate_per_s;
        let what = format!(
            "{}: {} of {}s, {size}, {gets} % gets, {rate}/s offered",
            configuration.name(),
            quantile.name(),
            verb(op)
        );
        let reason = self.invalid(&point);
        rows.add(
            format!("latency.{at}"),
            what.clone(),
            "us",
            times.clone(),
            configuration.devices(),
            reason.clone(),
        );
        let rest = format!("{}.{}.{}", quantile.id(), id(size), mix(gets, op));
        for base in self.bases(configuration) {
            let to = Point::at_size(base, size, gets);
            let reason = reason.clone().or_else(|| self.invalid(&to));
            let to = self.latency_us(&to, op, quantile);
            let ratios = times.iter().zip(&to).map(|(ours, to)| ours / to);
            let over = if base == configuration.base() {
                String::new()
            } else {
                format!("_over_{}", base.id())
            };
            let what = format!("{what}, over that of {}", base.name());
            let at = format!("ratio.{}{over}.{rest}", configuration.id());
            rows.add(at, what, "ratio", ratios, configuration.devices(), reason);
        }
    }

    /// Returns the configurations by which this one's latency is divided. The first is the monolith in software. The
    /// microservice of \[CacheTax\] with an accelerator, over either transport, is also divided by the monolith with
    /// the library that the paper uses, if that monolith was measured.
    fn bases(&self, configuration: Configuration) -> Vec<Configuration> {
        let exact =
            Configuration::new(Topology::Monolith, Compressor::QplSoftware, configuration.route);
        let is_papers =
            configuration.is_microservice() && configuration.compressor == Compressor::Iaa;
        let both =
            [(configuration.base(), configuration != configuration.base()), (exact, is_papers)];
        let wanted = both.into_iter().filter(|(base, wanted)| *wanted && self.plan.measures(*base));
        wanted.map(|(base, _)| base).collect()
    }

    /// Writes each process's CPU utilisation and wait for a core, and the share of requests answered in time.
    fn write_utilisation(
        &self,
        rows: &mut Rows,
        configuration: Configuration,
        size: ByteCount,
        gets: u32,
    ) {
        let point = Point::at_size(configuration, size, gets);
        let Some(samples) = self.points.get(&point) else { return };
        let mut by_process: BTreeMap<&str, Vec<Usage>> = BTreeMap::new();
        for sample in samples {
            for (process, usage) in &sample.usage {
                by_process.entry(process).or_default().push(*usage);
            }
        }
        for (process, usages) in by_process {
            let at = format!("{}.{process}.{}.get{gets}", configuration.id(), id(size));
            let reason = self.invalid(&point);
            let what = format!(
                "{}: share of a core that the {process} takes, {size}",
                configuration.name()
            );
            let shares = usages.iter().map(|usage| usage.share);
            let (share, wait) = (format!("utilisation.{at}"), format!("core_wait.{at}"));
            rows.add(share, what, "cores", shares, configuration.devices(), reason.clone());
            let what = format!(
                "{}: time per request that the {process} waits for a core, {size}",
                configuration.name()
            );
            let waits = usages.iter().map(|usage| usage.waited_us);
            rows.add(wait, what, "us", waits, configuration.devices(), reason);
        }
        let achieved = samples.iter().map(Sample::achieved);
        let at = format!("{}.{}.get{gets}", configuration.id(), id(size));
        let what =
            format!("{}: requests answered in time over offered, {size}", configuration.name());
        let reason = self.invalid(&point);
        rows.add(
            format!("achieved.{at}"),
            what,
            "ratio",
            achieved,
            configuration.devices(),
            reason,
        );
    }

    fn write_loads(&self, rows: &mut Rows, configuration: Configuration) {
        for &per_s in &self.plan.loads_per_s {
            let point = Point::at_load(configuration, per_s);
            if !self.points.contains_key(&point) {
                continue;
            }
            for quantile in [Quantile::P50, Quantile::P90] {
                let times = self.latency_us(&point, Op::Decompress, quantile);
                let at = format!("{}.{}.{}", configuration.id(), quantile.id(), id(LOAD_BYTES));
                let what = format!(
                    "{}: {} of gets, {LOAD_BYTES}, {LOAD_GETS} % gets, {per_s}/s offered",
                    configuration.name(),
                    quantile.name()
                );
                let count = self.points.get(&point).map_or(0, Vec::len);
                let runs = self.plan.runs;
                let few = || (count < runs).then(|| format!("{count} of {runs} runs came so far"));
                let reason = self.invalid(&point).or_else(few);
                let id = format!("load.{at}.{per_s}_per_s");
                rows.add(id, what, "us", times, configuration.devices(), reason);
            }
        }
        if let Some(knees) = self.knees.get(&configuration.id()) {
            let precision = self.plan.knee_precision * 100.0;
            let what = format!(
                "{}: highest load kept up with, {LOAD_BYTES}, to within {precision:.0} %",
                configuration.name()
            );
            let at = format!("knee.{}.{}.get{LOAD_GETS}", configuration.id(), id(LOAD_BYTES));
            let limit = knees.iter().find_map(|knee| knee.limit.clone());
            let limit = limit.map(|limit| format!("at least; not its own limit: {limit}"));
            let values = knees.iter().map(|knee| knee.per_s);
            rows.add(at, what, "1/s", values, configuration.devices(), limit);
        }
    }

    /// Writes the share of the codec's cost that the accelerator saves in a busy frontend.
    fn write_freed(&self, rows: &mut Rows, configuration: Configuration) {
        if configuration
            != Configuration::new(Topology::Monolith, Compressor::Iaa, configuration.route)
        {
            return;
        }
        for &size in &self.plan.sizes {
            for &gets in &self.plan.gets {
                let point = Point::saturated(configuration, size, gets);
                let base = Point::saturated(configuration.base(), size, gets);
                let runs = self.samples(&point).into_iter().zip(self.samples(&base)).enumerate();
                let freed: Vec<f64> = runs
                    .map(|(run, (ours, base))| match (ours, base) {
                        (Some(ours), Some(base)) => {
                            freed(ours, base) / self.codec_us(size, gets, run)
                        }
                        _ => f64::NAN,
                    })
                    .collect();
                if !freed.is_empty() {
                    let at = format!("{}.{}.get{gets}", configuration.id(), id(size));
                    let what = format!(
                        "{}: frontend CPU freed over the codec's own, saturated, {size}, \
                         {gets} % gets",
                        configuration.name()
                    );
                    let id = format!("codec_cpu_freed.{at}");
                    let reason = self.invalid(&point).or_else(|| self.invalid(&base));
                    rows.add(id, what, "ratio", freed, configuration.devices(), reason);
                }
            }
        }
    }

    /// Returns the software codec's time on a busy core per request of this mix (us).
    fn codec_us(&self, size: ByteCount, gets: u32, run: usize) -> f64 {
        let busy = |op: Op| {
            let runs = self.stages.get(&(size, op.name()));
            runs.and_then(|runs| runs.get(run)).map_or(f64::NAN, |stages| stages.busy.p50_us)
        };
        let share = f64::from(gets) / 100.0;
        share * busy(Op::Decompress) + (1.0 - share) * busy(Op::Compress)
    }

    fn write_stages(&self, rows: &mut Rows) {
        for ((size, op), runs) in &self.stages {
            type Time = fn(&Stages) -> f64;
            let stages: [(&str, Time, bool); 6] = [
                ("software", |stages| stages.software.p50_us, false),
                ("busy_software", |stages| stages.busy.p50_us, false),
                ("best_software", |stages| stages.best.p50_us, false),
                ("device", |stages| stages.device.p50_us, true),
                ("hop", |stages| stages.way_us(Topology::Microservice), false),
                ("lane", |stages| stages.way_us(Topology::Lane), false),
            ];
            let topologies: Vec<Topology> = self
                .plan
                .configurations
                .iter()
                .map(|configuration| configuration.topology)
                .collect();
            let is_there = |stage: &str| match stage {
                "hop" => topologies.contains(&Topology::Microservice),
                "lane" => topologies.contains(&Topology::Lane),
                _ => true,
            };
            for (stage, time, is_virtual) in
                stages.into_iter().filter(|(stage, ..)| is_there(stage))
            {
                let devices =
                    if is_virtual { vec![crate::testbed::VIRTUAL.to_owned()] } else { Vec::new() };
                let what = format!("{stage} alone, {op} {size}: median");
                let id = format!("stage.{stage}.{op}.p50.{}", id(*size));
                rows.add(id, what, "us", runs.iter().map(time), devices, None);
            }
        }
    }

    /// Returns the summary that is printed at the end of a run.
    pub(super) fn summary(&self) -> String {
        let size = self.plan.sizes.iter().copied().filter(|size| *size <= LOAD_BYTES).max();
        let gets = self.plan.gets.iter().copied().filter(|gets| *gets > 0).max_by_key(|gets| {
            // The summary uses the mix that is nearest to that of the load sweep.
            std::cmp::Reverse(gets.abs_diff(LOAD_GETS))
        });
        let (Some(size), Some(gets)) = (size, gets) else { return String::new() };
        if !self.plan.has(Part::Sizes) && !self.plan.has(Part::Loads) {
            return String::new();
        }
        let (rate, runs) = (self.plan.rate_per_s, self.plan.runs);
        let mut lines = vec![
            format!(
                "{size}, {gets} % gets, {rate}/s; latency of gets in us, medians of {runs} runs"
            ),
            format!("{:<72} {:>8} {:>8} {:>10}", "", "p50", "p90", "knee, 1/s"),
        ];
        for &configuration in &self.plan.configurations {
            let point = Point::at_size(configuration, size, gets);
            let median = |quantile| {
                let spread = Spread::from_values(self.latency_us(&point, Op::Decompress, quantile));
                spread.map_or("-".to_owned(), |spread| format!("{:.1}", spread.median))
            };
            let knees = self.knees.get(&configuration.id()).map(Vec::as_slice).unwrap_or_default();
            let knee = Spread::from_values(knees.iter().map(|knee| knee.per_s))
                .map_or("-".to_owned(), |knee| format!("{:.0}", knee.median));
            let (p50, p90) = (median(Quantile::P50), median(Quantile::P90));
            let route =
                if configuration.route == StoreRoute::Direct { ", memcached directly" } else { "" };
            let name = format!("{}{route}", configuration.name());
            lines.push(format!("{name:<72} {p50:>8} {p90:>8} {knee:>10}"));
        }
        lines.push("virtual IAA: emulated from published figures, not hardware".to_owned());
        lines.join("\n")
    }
}

/// Returns the frontend's CPU time per request that the accelerator saves compared with software (us).
fn freed(ours: &Sample, base: &Sample) -> f64 {
    let core_us = |sample: &Sample| sample.usage.get("frontend").map_or(f64::NAN, |u| u.core_us);
    core_us(base) - core_us(ours)
}

/// Returns the ops that occur in a mix.
pub(super) fn ops(gets: u32) -> Vec<Op> {
    let both = [(gets > 0, Op::Decompress), (gets < 100, Op::Compress)];
    both.into_iter().filter(|(has, _)| *has).map(|(_, op)| op).collect()
}

/// Returns the request that causes an op: a get decompresses and a set compresses.
pub(super) const fn verb(op: Op) -> &'static str {
    if matches!(op, Op::Compress) { "set" } else { "get" }
}

/// Returns a mix for row ids. The name has the share of gets. The name for the sets of a mix with gets ends with
/// `.set`.
pub(super) fn mix(gets: u32, op: Op) -> String {
    let sets = op == Op::Compress && gets > 0;
    if sets { format!("get{gets}.set") } else { format!("get{gets}") }
}

/// Returns a size for row ids.
pub(super) fn id(size: ByteCount) -> String {
    size.to_string().replace(' ', "")
}

/// The size at which figure 2 of \[CacheTax\] was measured.
pub(super) const LOAD_BYTES: ByteCount = ByteCount::kib(64);

/// The share of gets in the load sweep (percent). \[CacheTax\] states no mix, and most requests to caches are gets (see
/// the presets in `specs/workloads`).
pub(super) const LOAD_GETS: u32 = 90;
