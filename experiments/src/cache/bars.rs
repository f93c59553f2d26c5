//! What a compression service next door must come to beside the monolith: at the seed's load, or the highest that all
//! carry; as fast as answers come; and at every size. Ratios are made run by run, and their median is held against the
//! limit. Nothing is measured here.

use units::{ByteCount, Op};

use super::Part;
use super::findings::{Findings, LOAD_BYTES, Point, Quantile, id, mix, ops, verb};
use super::plan::SEED_RATE_PER_S;
use crate::base::rows::{Bar, Limit, Row, Rows, Runs, Spread};
use crate::testbed::{Configuration, Door, Place, Sample, VIRTUAL, Work};

/// The loads that are tried for the bars, the seed's first (1/s).
pub(super) const RATES_PER_S: [f64; 6] =
    [SEED_RATE_PER_S, 3_000.0, 2_000.0, 1_500.0, 1_000.0, 500.0];

/// A configuration keeps up while it answers this share of what is offered.
pub(crate) const ACHIEVED_MIN: f64 = 0.98;

/// A number of a sample that bars are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    Latency(Quantile),
    /// CPU time of frontend and compression service together per request.
    HostCpu,
    /// Requests per second, as fast as answers come.
    Maximum,
}

impl Metric {
    pub(super) const ALL: [Metric; 4] = [
        Metric::Latency(Quantile::P50),
        Metric::Latency(Quantile::P90),
        Metric::HostCpu,
        Metric::Maximum,
    ];

    pub(super) const fn id(self) -> &'static str {
        match self {
            Metric::Latency(quantile) => quantile.id(),
            Metric::HostCpu => "host_cpu",
            Metric::Maximum => "max",
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Metric::Latency(quantile) => quantile.name(),
            Metric::HostCpu => "CPU of frontend and compression per request",
            Metric::Maximum => "requests/s as fast as answers come",
        }
    }

    pub(super) const fn unit(self) -> &'static str {
        match self {
            Metric::Latency(_) | Metric::HostCpu => "us",
            Metric::Maximum => "1/s",
        }
    }

    /// The ops that it has numbers of their own for; of the others the first stands for both.
    fn ops(self, gets: u32) -> Vec<Op> {
        match self {
            Metric::Latency(_) => ops(gets),
            Metric::HostCpu | Metric::Maximum => vec![Op::Decompress],
        }
    }

    fn point(self, own: Configuration, gets: u32) -> Point {
        match self {
            Metric::Maximum => Point::maximum(own, gets),
            _ => Point::carried(own, gets),
        }
    }

    fn of(self, sample: &Sample, op: Op) -> f64 {
        match self {
            // Of a load that is not carried it is the length of the queue.
            Metric::Latency(_) if sample.achieved() < ACHIEVED_MIN => f64::NAN,
            Metric::Latency(quantile) => sample.latency_us(op, quantile),
            Metric::HostCpu => sample.host_us(),
            Metric::Maximum => sample.achieved_per_s(),
        }
    }
}

/// Against the monolith in its best software.
const OVER_BEST: [(Metric, Limit); 4] = [
    (Metric::Latency(Quantile::P50), Limit::AtMost(0.75)),
    (Metric::Latency(Quantile::P90), Limit::AtMost(0.6)),
    (Metric::Maximum, Limit::AtLeast(2.5)),
    (Metric::HostCpu, Limit::AtMost(1.0)),
];

/// Against the monolith with the same accelerator: the service costs what a function call costs.
const OVER_SAME: [(Metric, Limit); 3] = [
    (Metric::Latency(Quantile::P50), Limit::AtMost(1.15)),
    (Metric::Latency(Quantile::P90), Limit::AtMost(1.15)),
    (Metric::Maximum, Limit::AtLeast(0.85)),
];

impl Findings {
    /// Rows and bars of the lane.
    pub(super) fn write_bars(&self, rows: &mut Rows) {
        if self.plan.has(Part::Sizes) && self.plan.configurations.iter().any(is_lane_iaa) {
            self.write_break_even(rows);
        }
        for door in Door::ALL {
            let own = |place, work| Configuration::new(place, work, door);
            let lane = own(Place::Lane, Work::Iaa);
            for gets in self.plan.bar_gets().filter(|_| self.plan.has(Part::Bars)) {
                if self.plan.measures(lane) {
                    self.plan.of(door).for_each(|own| self.write_numbers(rows, own, gets));
                }
                for (metric, limit) in OVER_BEST {
                    self.judge(rows, [lane, own(Place::Monolith, Work::Best)], gets, metric, limit);
                }
                for (metric, limit) in OVER_SAME {
                    self.judge(rows, [lane, own(Place::Monolith, Work::Iaa)], gets, metric, limit);
                }
            }
            if self.plan.has(Part::Sizes) {
                let either = own(Place::Lane, Work::LeastLatency);
                self.judge_sizes(rows, either, own(Place::Monolith, Work::Best));
            }
        }
    }

    /// A number of each run where the bars are; not a number where the run does not hold.
    pub(super) fn numbers(
        &self,
        metric: Metric,
        own: Configuration,
        gets: u32,
        op: Op,
    ) -> Vec<f64> {
        let samples = self.samples(&metric.point(own, gets)).into_iter();
        samples.map(|own| own.map_or(f64::NAN, |own| metric.of(own, op))).collect()
    }

    /// The numbers themselves; and the maximum over the monolith's in software, as other ratios are.
    fn write_numbers(&self, rows: &mut Rows, own: Configuration, gets: u32) {
        for metric in Metric::ALL {
            for op in metric.ops(gets) {
                let values = self.numbers(metric, own, gets, op);
                let at = format!("{}.{}", id(LOAD_BYTES), mix(gets, op));
                let what = format!("{}: {}", own.name(), self.subject(metric, own, gets, op));
                let reason = self.reason(metric, own, gets);
                let name = metric.id();
                if metric != Metric::Maximum {
                    let id = format!("carried.{}.{name}.{at}", own.id());
                    rows.add(id, what, metric.unit(), values, own.devices(), reason);
                    continue;
                }
                let id = format!("{name}.{}.{at}", own.id());
                rows.add(id, what.clone(), metric.unit(), values.clone(), own.devices(), reason);
                if own == own.base() || !self.plan.measures(own.base()) {
                    continue;
                }
                let base = self.numbers(metric, own.base(), gets, op);
                let ratios = values.iter().zip(&base).map(|(own, base)| own / base);
                let what = format!("{what}, over the monolith's in software");
                let reason = self.reason(metric, own, gets);
                let reason = reason.or_else(|| self.reason(metric, own.base(), gets));
                let id = format!("ratio.{}.{name}.{at}", own.id());
                rows.add(id, what, "ratio", ratios, own.devices(), reason);
            }
        }
    }

    fn judge(
        &self,
        rows: &mut Rows,
        [own, base]: [Configuration; 2],
        gets: u32,
        metric: Metric,
        limit: Limit,
    ) {
        if !self.plan.measures(own) || !self.plan.measures(base) {
            return;
        }
        for op in metric.ops(gets) {
            let ours = self.numbers(metric, own, gets, op);
            let base_values = self.numbers(metric, base, gets, op);
            let ratios = ours.iter().zip(&base_values).map(|(own, base)| own / base);
            let ratios: Vec<f64> = ratios.collect();
            let what = format!(
                "{}: {}, over that of {}",
                own.name(),
                self.subject(metric, own, gets, op),
                base.name()
            );
            let at = format!("{}.{}", id(LOAD_BYTES), mix(gets, op));
            let id = format!("bar.{}.{}.over_{}.{at}", metric.id(), own.id(), base.id());
            let runs = Some(Runs::of(ratios.iter().copied(), self.plan.runs));
            let row = |reason| Row::of(id, what, "ratio", ratios, own.devices(), reason);
            if let Some(why) = self.limited(metric, base, gets) {
                let why = format!("not judged: {} does at least that: {why}", base.name());
                rows.set(row(Some(why)), runs, limit, None);
                continue;
            }
            let reason = self.reason(metric, own, gets);
            rows.judge(row(reason.or_else(|| self.reason(metric, base, gets))), runs, limit);
        }
    }

    /// Why the most that was answered is not the most there is: in a run at least, what asked could not ask for more.
    fn limited(&self, metric: Metric, own: Configuration, gets: u32) -> Option<String> {
        let samples = self.points.get(&metric.point(own, gets))?;
        let busy = samples.iter().find(|own| own.report.generator.was_bottleneck)?;
        let why = busy.report.generator.reason.clone().unwrap_or_default();
        (metric == Metric::Maximum).then_some(why)
    }

    /// What is measured, and at which load.
    fn subject(&self, metric: Metric, own: Configuration, gets: u32, op: Op) -> String {
        let name = metric.name();
        let per_s = self.carried_per_s.get(&(own.door, gets));
        let load = match per_s {
            _ if metric == Metric::Maximum => String::new(),
            Some(per_s) if *per_s < SEED_RATE_PER_S => {
                format!(" at {per_s}/s (not all carry the seed's {SEED_RATE_PER_S}/s)")
            }
            Some(per_s) => format!(" at {per_s}/s"),
            None => " (no load is carried by all)".to_owned(),
        };
        let of = if matches!(metric, Metric::Latency(_)) {
            format!(" of {}s", verb(op))
        } else {
            String::new()
        };
        format!("{name}{of}, {LOAD_BYTES}, {gets} % gets{load}")
    }

    /// Why a number is missing or to be read with care.
    fn reason(&self, metric: Metric, own: Configuration, gets: u32) -> Option<String> {
        let point = metric.point(own, gets);
        let limited = self.limited(metric, own, gets);
        let maximum = limited.map(|why| format!("at least; not its own limit: {why}"));
        let unfound =
            metric != Metric::Maximum && !self.carried_per_s.contains_key(&(own.door, gets));
        let unfound = unfound.then(|| {
            let lowest = RATES_PER_S[RATES_PER_S.len() - 1];
            format!("not even {lowest}/s were carried by all that are compared")
        });
        let overloaded = || {
            let least = self.points.get(&point)?.iter().map(Sample::achieved).reduce(f64::min)?;
            let is_latency = matches!(metric, Metric::Latency(_));
            let why =
                || format!("only {:.0} % answered in time, in one run at least", least * 100.0);
            (is_latency && least < ACHIEVED_MIN).then(why)
        };
        self.invalid(&point).or(maximum).or(unfound).or_else(overloaded)
    }

    /// Every size up to 128 KiB: hardly ever slower, and quicker from the predicted break-even on.
    fn judge_sizes(&self, rows: &mut Rows, own: Configuration, base: Configuration) {
        if !self.plan.measures(own) || !self.plan.measures(base) {
            return;
        }
        let sizes = self.plan.sizes.iter().copied().filter(|size| *size <= SIZE_BYTES_MAX);
        for (size, gets) in
            sizes.flat_map(|size| self.plan.bar_gets().map(move |gets| (size, gets)))
        {
            for op in ops(gets) {
                for quantile in [Quantile::P50, Quantile::P90] {
                    self.judge_size(rows, [own, base], (size, gets, op), quantile);
                }
            }
        }
    }

    fn judge_size(
        &self,
        rows: &mut Rows,
        [own, base]: [Configuration; 2],
        (size, gets, op): (ByteCount, u32, Op),
        quantile: Quantile,
    ) {
        let times = |of| self.latency_us(&Point::at_size(of, size, gets), op, quantile);
        let both: Vec<(f64, f64)> = times(own).into_iter().zip(times(base)).collect();
        let reason = self.invalid(&Point::at_size(own, size, gets));
        let reason = reason.or_else(|| self.invalid(&Point::at_size(base, size, gets)));
        let at = format!("{}.over_{}", own.id(), base.id());
        let at = format!("{at}.{}.{}.{}", quantile.id(), id(size), mix(gets, op));
        let what = format!(
            "{}: {} of {}s, {size}, {gets} % gets, {}/s",
            own.name(),
            quantile.name(),
            verb(op),
            self.plan.rate_per_s
        );
        let mut judge = |name: &str, over: &str, unit, values: Vec<f64>, limit| {
            let (id, what) =
                (format!("bar.{name}.{at}"), format!("{what}, {over} {}", base.name()));
            let runs = Runs::of(values.iter().copied(), self.plan.runs);
            let row = Row::of(id, what, unit, values, own.devices(), reason.clone());
            rows.judge(row, Some(runs), limit);
        };
        let excess = both.iter().map(|(own, base)| own - EXCESS_RATIO * base).collect();
        judge("excess", "less 1.05 times that of", "us", excess, Limit::AtMost(EXCESS_US));
        let pays = self.break_even(op).is_some_and(|pays| size >= pays);
        if pays && quantile == Quantile::P50 {
            let ratios = both.iter().map(|(own, base)| own / base).collect();
            judge("faster", "over that of", "ratio", ratios, Limit::Below(1.0));
        }
    }

    fn write_break_even(&self, rows: &mut Rows) {
        for op in [Op::Decompress, Op::Compress] {
            let found = self.break_even(op);
            let what = "smallest size from which lane and device take less than the best software";
            let none = || "at no size measured do lane and device take less".to_owned();
            let reason = found.is_none().then(none);
            rows.add(
                format!("break_even.lane_iaa.{}", op.name()),
                format!("{what}, {op}"),
                "B",
                found.map(|size| size.0 as f64),
                vec![VIRTUAL.to_owned()],
                reason,
            );
        }
    }

    /// The smallest size from which the stages, each measured alone, say that the lane pays.
    fn break_even(&self, op: Op) -> Option<ByteCount> {
        let stages = self.stages.iter().filter(|((_, name), _)| *name == op.name());
        let mut found = None;
        for ((size, _), runs) in stages {
            let gains = runs
                .iter()
                .map(|own| own.best.p50_us - own.way_us(Place::Lane) - own.device.p50_us);
            match Spread::of(gains) {
                Some(gain) if gain.median > 0.0 => found = found.or(Some(*size)),
                _ => found = None,
            }
        }
        found
    }
}

/// The bars at one load, each in a line; of those by size how many are met, and which are not.
pub(super) fn summary(bars: &[Bar]) -> Vec<String> {
    let (by_size, others): (Vec<&Bar>, Vec<&Bar>) = bars.iter().partition(|bar| is_by_size(bar));
    let mut lines: Vec<String> = others.into_iter().map(Bar::line).collect();
    if !by_size.is_empty() {
        let met = by_size.iter().filter(|bar| bar.met == Some(true)).count();
        lines.push(format!("bars by size: {met} of {} met", by_size.len()));
        lines.extend(by_size.into_iter().filter(|bar| bar.met != Some(true)).map(Bar::line));
    }
    lines
}

/// Whether it is about one of many sizes.
pub(super) fn is_by_size(bar: &Bar) -> bool {
    ["bar.excess.", "bar.faster."].iter().any(|name| bar.id.starts_with(name))
}

fn is_lane_iaa(own: &Configuration) -> bool {
    (own.place, own.work) == (Place::Lane, Work::Iaa)
}

/// A value of the sizes that bars are about is this large at most.
const SIZE_BYTES_MAX: ByteCount = ByteCount::kib(128);

/// So much slower is not slower.
const EXCESS_RATIO: f64 = 1.05;
const EXCESS_US: f64 = 5.0;

#[cfg(test)]
mod tests {
    use units::Nanos;

    use super::*;
    use crate::cache::findings::Stages;
    use crate::cache::plan::Plan;
    use crate::testbed::Stage;

    fn nothing_measured() -> Findings {
        Findings::new(Plan {
            configurations: Configuration::all(Door::Direct).collect(),
            parts: vec![Part::Bars, Part::Sizes],
            sizes: vec![LOAD_BYTES],
            gets: vec![90],
            rate_per_s: 500.0,
            loads_per_s: Vec::new(),
            runs: 1,
            warmup: Nanos(0),
            duration: Nanos(0),
            stage_jobs: 1,
            knee_precision: 1.0,
        })
    }

    /// What a lane and its device take, the best software taking 10 us.
    fn runs(lane_and_device_us: f64) -> Vec<Stages> {
        let stage = |p50_us| Stage { p50_us };
        let lane = Some(stage(lane_and_device_us - 1.0));
        let (device, best, other) = (stage(1.0), stage(10.0), stage(99.0));
        vec![Stages { software: other, busy: other, best, device, hop: None, lane }]
    }

    #[test]
    fn a_size_breaks_even_if_all_above_it_do() {
        let break_even = |of_sizes: [f64; 3]| {
            let mut findings = nothing_measured();
            for (kib, us) in [1, 4, 16].into_iter().zip(of_sizes) {
                let op = Op::Compress.name();
                findings.stages.insert((ByteCount::kib(kib), op), runs(us));
            }
            assert_eq!(findings.break_even(Op::Decompress), None, "nothing is known of it");
            findings.break_even(Op::Compress).map(|size| size.0 >> 10)
        };
        assert_eq!(break_even([11.0, 9.0, 9.0]), Some(4));
        assert_eq!(break_even([9.0, 11.0, 9.0]), Some(16));
        assert_eq!(break_even([9.0, 9.0, 10.0]), None);
    }

    #[test]
    fn a_bar_without_a_number_is_there_and_neither_met_nor_missed() {
        let mut rows = Rows::new("cache", &harness::Machine::here(), "idle");
        nothing_measured().write_bars(&mut rows);
        let count = |part: &str| rows.bars.iter().filter(|bar| bar.id.contains(part)).count();
        assert!(rows.bars.iter().all(|bar| bar.met.is_none()));
        // Over the best software and over the same accelerator; latencies for gets and for sets.
        assert_eq!((count(".p50.lane"), count(".max.lane")), (4, 2));
        assert_eq!((count("bar.host_cpu."), count("bar.excess.")), (1, 4));
        assert_eq!(summary(&rows.bars).len(), rows.bars.len() + 1, "one line is of all sizes");
    }
}
