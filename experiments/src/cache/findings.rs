//! What was measured, by point, and what follows from it by arithmetic: ratios to the monolith in software, the sum of
//! the stages over the difference that it is to explain, and the codec's cost that an accelerator frees.

use std::collections::BTreeMap;

use units::{ByteCount, Op};

use super::Part;
use super::plan::Plan;
use crate::base::rows::{Rows, Spread};
use crate::testbed::{Configuration, Door, Place, Sample, Stage, Usage, Work};

/// Everything that was measured, run by run.
pub(super) struct Findings {
    pub(super) plan: Plan,
    pub(super) points: BTreeMap<Point, Vec<Sample>>,
    /// By size and op.
    pub(super) stages: BTreeMap<(ByteCount, &'static str), Vec<Stages>>,
    /// By configuration.
    pub(super) knees: BTreeMap<String, Vec<Knee>>,
    /// The load of the bars by door and mix (1/s): the highest of [`super::bars::RATES_PER_S`] that was carried.
    pub(super) carried_per_s: BTreeMap<(Door, u32), f64>,
    /// What could not be measured here, and why.
    pub(super) left_out: Vec<(Configuration, String)>,
}

/// The highest load that one run kept up with.
#[derive(Clone, Debug)]
pub(super) struct Knee {
    pub(super) per_s: f64,
    /// Why a higher load was not kept up with, if it was not for the configuration.
    pub(super) limit: Option<String>,
}

/// The stages that tell a microservice with an accelerator from a monolith in software.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stages {
    pub(super) software: Stage,
    /// The software codec on a core that does nothing else.
    pub(super) busy: Stage,
    /// The software codec that is fastest here.
    pub(super) best: Stage,
    pub(super) device: Stage,
    /// To a compression service over gRPC, where there is one.
    pub(super) hop: Option<Stage>,
    /// To one over a lane.
    pub(super) lane: Option<Stage>,
}

impl Stages {
    /// What the way to a job's place and back takes; not a number where it was not measured.
    pub(super) fn way_us(&self, place: Place) -> f64 {
        let way = match place {
            Place::Monolith => return 0.0,
            Place::Microservice => self.hop,
            Place::Lane => self.lane,
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

    /// At the load of the bars.
    pub(super) fn carried(configuration: Configuration, gets: u32) -> Self {
        Self { configuration: configuration.id(), kind: PointKind::Carried { gets } }
    }

    /// As fast as answers come, where the bars are.
    pub(super) fn maximum(configuration: Configuration, gets: u32) -> Self {
        Self { configuration: configuration.id(), kind: PointKind::Maximum { gets } }
    }
}

/// Which latency of a sample.
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
    /// A latency of an op (us); not a number where there was none.
    pub(super) fn latency_us(&self, op: Op, quantile: Quantile) -> f64 {
        let own = if op == Op::Compress { &self.report.set } else { &self.report.get };
        let latency = own.latency;
        match quantile {
            _ if latency.count == 0 => f64::NAN,
            Quantile::P50 => latency.p50_ns as f64 / 1e3,
            Quantile::P90 => latency.p90_ns as f64 / 1e3,
        }
    }
}

impl Findings {
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

    /// The samples of a point, run by run; those that do not hold as none.
    pub(super) fn samples(&self, point: &Point) -> Vec<Option<&Sample>> {
        let samples = self.points.get(point).map(Vec::as_slice).unwrap_or_default();
        samples.iter().map(|own| Some(own).filter(|own| own.invalid.is_none())).collect()
    }

    /// Why runs of a point do not hold.
    pub(super) fn invalid(&self, point: &Point) -> Option<String> {
        let samples = self.points.get(point)?;
        let reasons: Vec<&str> = samples.iter().filter_map(|own| own.invalid.as_deref()).collect();
        let first = reasons.first()?;
        Some(format!("{} of {} runs not valid: {first}", reasons.len(), samples.len()))
    }

    /// A latency of each run (us).
    pub(super) fn latency_us(&self, point: &Point, op: Op, quantile: Quantile) -> Vec<f64> {
        let samples = self.samples(point).into_iter();
        samples.map(|own| own.map_or(f64::NAN, |own| own.latency_us(op, quantile))).collect()
    }

    /// All rows.
    pub(super) fn write(&self, rows: &mut Rows) {
        for &configuration in &self.plan.configurations {
            if self.plan.has(Part::Sizes) {
                self.write_sizes(rows, configuration);
                self.write_freed(rows, configuration);
            }
            self.write_loads(rows, configuration);
        }
        self.write_stages(rows);
        self.write_bars(rows);
        for (own, why) in &self.left_out {
            let what = format!("{}: not measured", own.name());
            let (id, why) = (format!("left_out.{}", own.id()), Some(why.clone()));
            rows.add(id, what, "", [], Vec::new(), why);
        }
    }

    fn write_sizes(&self, rows: &mut Rows, own: Configuration) {
        for &size in &self.plan.sizes {
            for &gets in &self.plan.gets {
                for op in ops(gets) {
                    for quantile in [Quantile::P50, Quantile::P90] {
                        self.write_latency(rows, own, size, gets, op, quantile);
                    }
                    self.write_explained(rows, own, size, gets, op);
                    self.write_in_place(rows, own, size, gets, op);
                }
                self.write_utilisation(rows, own, size, gets);
            }
        }
    }

    fn write_latency(
        &self,
        rows: &mut Rows,
        own: Configuration,
        size: ByteCount,
        gets: u32,
        op: Op,
        quantile: Quantile,
    ) {
        let point = Point::at_size(own, size, gets);
        let times = self.latency_us(&point, op, quantile);
        let at = format!("{}.{}.{}.{}", own.id(), quantile.id(), id(size), mix(gets, op));
        let rate = self.plan.rate_per_s;
        let what = format!(
            "{}: {} of {}s, {size}, {gets} % gets, {rate}/s offered",
            own.name(),
            quantile.name(),
            verb(op)
        );
        let reason = self.invalid(&point);
        rows.add(
            format!("latency.{at}"),
            what.clone(),
            "us",
            times.clone(),
            own.devices(),
            reason.clone(),
        );
        let rest = format!("{}.{}.{}", quantile.id(), id(size), mix(gets, op));
        for base in self.bases(own) {
            let to = Point::at_size(base, size, gets);
            let reason = reason.clone().or_else(|| self.invalid(&to));
            let to = self.latency_us(&to, op, quantile);
            let ratios = times.iter().zip(&to).map(|(own, to)| own / to);
            let over =
                if base == own.base() { String::new() } else { format!("_over_{}", base.id()) };
            let what = format!("{what}, over that of {}", base.name());
            let at = format!("ratio.{}{over}.{rest}", own.id());
            rows.add(at, what, "ratio", ratios, own.devices(), reason);
        }
    }

    /// What its latencies are divided by: the monolith in software; and those of the seed's microservice with an
    /// accelerator, over either way, by the monolith with the seed's very library, where that was measured.
    fn bases(&self, own: Configuration) -> Vec<Configuration> {
        let exact = Configuration::new(Place::Monolith, Work::QplSoftware, own.door);
        let is_seeds = own.is_microservice() && own.work == Work::Iaa;
        let both = [(own.base(), own != own.base()), (exact, is_seeds)];
        let wanted = both.into_iter().filter(|(base, wanted)| *wanted && self.plan.measures(*base));
        wanted.map(|(base, _)| base).collect()
    }

    /// How busy the busiest process is: what latency beyond it is made of.
    fn write_utilisation(&self, rows: &mut Rows, own: Configuration, size: ByteCount, gets: u32) {
        let point = Point::at_size(own, size, gets);
        let Some(samples) = self.points.get(&point) else { return };
        let mut by_process: BTreeMap<&str, Vec<Usage>> = BTreeMap::new();
        for sample in samples {
            for (process, usage) in &sample.usage {
                by_process.entry(process).or_default().push(*usage);
            }
        }
        for (process, usages) in by_process {
            let at = format!("{}.{process}.{}.get{gets}", own.id(), id(size));
            let reason = self.invalid(&point);
            let what = format!("{}: share of a core that the {process} takes, {size}", own.name());
            let shares = usages.iter().map(|own| own.share);
            let (share, wait) = (format!("utilisation.{at}"), format!("core_wait.{at}"));
            rows.add(share, what, "cores", shares, own.devices(), reason.clone());
            let what = format!(
                "{}: time per request that the {process} waits for a core, {size}",
                own.name()
            );
            let waits = usages.iter().map(|own| own.waited_us);
            rows.add(wait, what, "us", waits, own.devices(), reason);
        }
        let achieved = samples.iter().map(Sample::achieved);
        let at = format!("{}.{}.get{gets}", own.id(), id(size));
        let what = format!("{}: requests answered in time over offered, {size}", own.name());
        let reason = self.invalid(&point);
        rows.add(format!("achieved.{at}"), what, "ratio", achieved, own.devices(), reason);
    }

    fn write_loads(&self, rows: &mut Rows, own: Configuration) {
        for &per_s in &self.plan.loads_per_s {
            let point = Point::at_load(own, per_s);
            if !self.points.contains_key(&point) {
                continue;
            }
            for quantile in [Quantile::P50, Quantile::P90] {
                let times = self.latency_us(&point, Op::Decompress, quantile);
                let at = format!("{}.{}.{}", own.id(), quantile.id(), id(LOAD_BYTES));
                let what = format!(
                    "{}: {} of gets, {LOAD_BYTES}, {LOAD_GETS} % gets, {per_s}/s offered",
                    own.name(),
                    quantile.name()
                );
                let count = self.points.get(&point).map_or(0, Vec::len);
                let runs = self.plan.runs;
                let few = || (count < runs).then(|| format!("{count} of {runs} runs came so far"));
                let reason = self.invalid(&point).or_else(few);
                let id = format!("load.{at}.{per_s}_per_s");
                rows.add(id, what, "us", times, own.devices(), reason);
            }
        }
        if let Some(knees) = self.knees.get(&own.id()) {
            let precision = self.plan.knee_precision * 100.0;
            let what = format!(
                "{}: highest load kept up with, {LOAD_BYTES}, to within {precision:.0} %",
                own.name()
            );
            let at = format!("knee.{}.{}.get{LOAD_GETS}", own.id(), id(LOAD_BYTES));
            let limit = knees.iter().find_map(|knee| knee.limit.clone());
            let limit = limit.map(|limit| format!("at least; not its own limit: {limit}"));
            let values = knees.iter().map(|knee| knee.per_s);
            rows.add(at, what, "1/s", values, own.devices(), limit);
        }
    }

    /// What the accelerator frees of what the codec costs a busy frontend.
    fn write_freed(&self, rows: &mut Rows, own: Configuration) {
        if own != Configuration::new(Place::Monolith, Work::Iaa, own.door) {
            return;
        }
        for &size in &self.plan.sizes {
            for &gets in &self.plan.gets {
                let point = Point::saturated(own, size, gets);
                let base = Point::saturated(own.base(), size, gets);
                let runs = self.samples(&point).into_iter().zip(self.samples(&base)).enumerate();
                let freed: Vec<f64> = runs
                    .map(|(run, (own, base))| match (own, base) {
                        (Some(own), Some(base)) => {
                            freed(own, base) / self.codec_us(size, gets, run)
                        }
                        _ => f64::NAN,
                    })
                    .collect();
                if !freed.is_empty() {
                    let at = format!("{}.{}.get{gets}", own.id(), id(size));
                    let what = format!(
                        "{}: frontend CPU freed over the codec's own, saturated, {size}, \
                         {gets} % gets",
                        own.name()
                    );
                    let id = format!("codec_cpu_freed.{at}");
                    let reason = self.invalid(&point).or_else(|| self.invalid(&base));
                    rows.add(id, what, "ratio", freed, own.devices(), reason);
                }
            }
        }
    }

    /// What the software codec costs a busy core per request of this mix (us).
    fn codec_us(&self, size: ByteCount, gets: u32, run: usize) -> f64 {
        let busy = |op: Op| {
            let runs = self.stages.get(&(size, op.name()));
            runs.and_then(|runs| runs.get(run)).map_or(f64::NAN, |own| own.busy.p50_us)
        };
        let share = f64::from(gets) / 100.0;
        share * busy(Op::Decompress) + (1.0 - share) * busy(Op::Compress)
    }

    fn write_stages(&self, rows: &mut Rows) {
        for ((size, op), runs) in &self.stages {
            type Of = fn(&Stages) -> f64;
            let stages: [(&str, Of, bool); 6] = [
                ("software", |own| own.software.p50_us, false),
                ("busy_software", |own| own.busy.p50_us, false),
                ("best_software", |own| own.best.p50_us, false),
                ("device", |own| own.device.p50_us, true),
                ("hop", |own| own.way_us(Place::Microservice), false),
                ("lane", |own| own.way_us(Place::Lane), false),
            ];
            let places: Vec<Place> = self.plan.configurations.iter().map(|own| own.place).collect();
            let is_there = |stage: &str| match stage {
                "hop" => places.contains(&Place::Microservice),
                "lane" => places.contains(&Place::Lane),
                _ => true,
            };
            for (stage, of, is_virtual) in stages.into_iter().filter(|own| is_there(own.0)) {
                let devices =
                    if is_virtual { vec![crate::testbed::VIRTUAL.to_owned()] } else { Vec::new() };
                let what = format!("{stage} alone, {op} {size}: median");
                let id = format!("stage.{stage}.{op}.p50.{}", id(*size));
                rows.add(id, what, "us", runs.iter().map(of), devices, None);
            }
        }
    }

    /// What to tell at the end of a run.
    pub(super) fn summary(&self) -> String {
        let size = self.plan.sizes.iter().copied().filter(|size| *size <= LOAD_BYTES).max();
        let gets = self.plan.gets.iter().copied().filter(|gets| *gets > 0).max_by_key(|gets| {
            // The mix nearest to the load sweep's.
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
        for &own in &self.plan.configurations {
            let point = Point::at_size(own, size, gets);
            let of = |quantile| {
                let spread = Spread::of(self.latency_us(&point, Op::Decompress, quantile));
                spread.map_or("-".to_owned(), |spread| format!("{:.1}", spread.median))
            };
            let knees = self.knees.get(&own.id()).map(Vec::as_slice).unwrap_or_default();
            let knee = Spread::of(knees.iter().map(|knee| knee.per_s))
                .map_or("-".to_owned(), |own| format!("{:.0}", own.median));
            let (p50, p90) = (of(Quantile::P50), of(Quantile::P90));
            let door = if own.door == Door::Direct { ", memcached directly" } else { "" };
            let name = format!("{}{door}", own.name());
            lines.push(format!("{name:<72} {p50:>8} {p90:>8} {knee:>10}"));
        }
        lines.push("virtual IAA: emulated from published figures, not hardware".to_owned());
        lines.join("\n")
    }
}

/// The frontend's CPU per request less than in software (us).
fn freed(own: &Sample, base: &Sample) -> f64 {
    let core_us = |sample: &Sample| sample.usage.get("frontend").map_or(f64::NAN, |u| u.core_us);
    core_us(base) - core_us(own)
}

/// The ops that a mix has.
pub(super) fn ops(gets: u32) -> Vec<Op> {
    let both = [(gets > 0, Op::Decompress), (gets < 100, Op::Compress)];
    both.into_iter().filter(|(has, _)| *has).map(|(_, op)| op).collect()
}

/// A get decompresses, a set compresses.
pub(super) const fn verb(op: Op) -> &'static str {
    if matches!(op, Op::Compress) { "set" } else { "get" }
}

/// A mix in row ids: gets unless there are none, sets of a mix by name.
pub(super) fn mix(gets: u32, op: Op) -> String {
    let sets = op == Op::Compress && gets > 0;
    if sets { format!("get{gets}.set") } else { format!("get{gets}") }
}

/// A size in row ids.
pub(super) fn id(size: ByteCount) -> String {
    size.to_string().replace(' ', "")
}

/// Where the seed's figure 2 is.
pub(super) const LOAD_BYTES: ByteCount = ByteCount::kib(64);

/// The seed gives no mix; caches are read mostly (the presets in `specs/workloads`).
pub(super) const LOAD_GETS: u32 = 90;
