//! The criteria for a compression service on the same host, compared with the monolith at one fixed load, at
//! the maximum throughput and at every value size. The fixed load is that of \[CacheTax\], or the highest
//! load that all compared configurations sustain. The median of the runs' ratios is compared with a limit.
//! The module measures nothing.

use units::{ByteCount, Op};

use super::Part;
use super::plan::PAPER_RATE_PER_S;
use super::results::{LOAD_BYTES, Point, Quantile, Results, id, mix, ops, verb};
use crate::base::ACHIEVED_MIN;
use crate::base::rows::{Criterion, Limit, Row, Rows, Runs, Spread};
use crate::testbed::{Compressor, Configuration, Sample, StoreRoute, Topology, VIRTUAL};

/// The loads that are tried for the criteria, starting with that of \[CacheTax\] (1/s).
pub(super) const RATES_PER_S: [f64; 6] =
    [PAPER_RATE_PER_S, 3_000.0, 2_000.0, 1_500.0, 1_000.0, 500.0];

/// A number of a sample to which criteria apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    Latency(Quantile),
    /// The CPU time of frontend and compression service together per request.
    HostCpu,
    /// The throughput of a closed loop of clients (requests per second).
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

    /// Returns one op per criterion. A metric that measures all ops together has one criterion.
    fn ops(self, gets: u32) -> Vec<Op> {
        match self {
            Metric::Latency(_) => ops(gets),
            Metric::HostCpu | Metric::Maximum => vec![Op::Decompress],
        }
    }

    fn point(self, configuration: Configuration, gets: u32) -> Point {
        match self {
            Metric::Maximum => Point::maximum(configuration, gets),
            _ => Point::carried(configuration, gets),
        }
    }

    fn value(self, sample: &Sample, op: Op) -> f64 {
        match self {
            // If the configuration does not sustain the load, the latency is the length of the queue.
            Metric::Latency(_) if sample.achieved() < ACHIEVED_MIN => f64::NAN,
            Metric::Latency(quantile) => sample.latency_us(op, quantile),
            Metric::HostCpu => sample.host_us(),
            Metric::Maximum => sample.achieved_per_s(),
        }
    }
}

/// The limits for the ratios to the monolith with its best software.
const OVER_BEST: [(Metric, Limit); 4] = [
    (Metric::Latency(Quantile::P50), Limit::AtMost(0.75)),
    (Metric::Latency(Quantile::P90), Limit::AtMost(0.6)),
    (Metric::Maximum, Limit::AtLeast(2.5)),
    (Metric::HostCpu, Limit::AtMost(1.0)),
];

/// The limits for the ratios to the monolith with the same accelerator. The service may cost 15 % more.
const OVER_SAME: [(Metric, Limit); 3] = [
    (Metric::Latency(Quantile::P50), Limit::AtMost(1.15)),
    (Metric::Latency(Quantile::P90), Limit::AtMost(1.15)),
    (Metric::Maximum, Limit::AtLeast(0.85)),
];

impl Results {
    /// Adds the rows and the criteria of the lane.
    pub(super) fn write_criteria(&self, rows: &mut Rows) {
        if self.plan.has(Part::Sizes) && self.plan.configurations.iter().any(is_lane_iaa) {
            self.write_break_even(rows);
        }
        for route in StoreRoute::ALL {
            let configured = |topology, compressor| Configuration::new(topology, compressor, route);
            let lane = configured(Topology::Lane, Compressor::Iaa);
            for gets in self.plan.criteria_gets().filter(|_| self.plan.has(Part::Criteria)) {
                if self.plan.measures(lane) {
                    self.plan
                        .by_route(route)
                        .for_each(|configuration| self.write_numbers(rows, configuration, gets));
                }
                for (metric, limit) in OVER_BEST {
                    self.judge(
                        rows,
                        [lane, configured(Topology::Monolith, Compressor::Best)],
                        gets,
                        metric,
                        limit,
                    );
                }
                for (metric, limit) in OVER_SAME {
                    self.judge(
                        rows,
                        [lane, configured(Topology::Monolith, Compressor::Iaa)],
                        gets,
                        metric,
                        limit,
                    );
                }
            }
            if self.plan.has(Part::Sizes) {
                let either = configured(Topology::Lane, Compressor::LeastLatency);
                self.judge_sizes(rows, either, configured(Topology::Monolith, Compressor::Best));
            }
        }
    }

    /// Returns each run's number at the load of the criteria. It is NaN if the run is invalid.
    pub(super) fn numbers(
        &self,
        metric: Metric,
        configuration: Configuration,
        gets: u32,
        op: Op,
    ) -> Vec<f64> {
        let samples = self.samples(&metric.point(configuration, gets)).into_iter();
        samples.map(|sample| sample.map_or(f64::NAN, |sample| metric.value(sample, op))).collect()
    }

    /// Adds the rows of the numbers themselves, and a row of the maximum divided by that of the monolith in software.
    fn write_numbers(&self, rows: &mut Rows, configuration: Configuration, gets: u32) {
        for metric in Metric::ALL {
            for op in metric.ops(gets) {
                let values = self.numbers(metric, configuration, gets, op);
                let at = format!("{}.{}", id(LOAD_BYTES), mix(gets, op));
                let what = format!(
                    "{}: {}",
                    configuration.name(),
                    self.subject(metric, configuration, gets, op)
                );
                let reason = self.reason(metric, configuration, gets);
                let name = metric.id();
                if metric != Metric::Maximum {
                    let id = format!("carried.{}.{name}.{at}", configuration.id());
                    rows.add(id, what, metric.unit(), values, configuration.devices(), reason);
                    continue;
                }
                let id = format!("{name}.{}.{at}", configuration.id());
                rows.add(
                    id,
                    what.clone(),
                    metric.unit(),
                    values.clone(),
                    configuration.devices(),
                    reason,
                );
                if configuration == configuration.base()
                    || !self.plan.measures(configuration.base())
                {
                    continue;
                }
                let base = self.numbers(metric, configuration.base(), gets, op);
                let ratios = values.iter().zip(&base).map(|(ours, base)| ours / base);
                let what = format!("{what}, over the monolith's in software");
                let reason = self.reason(metric, configuration, gets);
                let reason = reason.or_else(|| self.reason(metric, configuration.base(), gets));
                let id = format!("ratio.{}.{name}.{at}", configuration.id());
                rows.add(id, what, "ratio", ratios, configuration.devices(), reason);
            }
        }
    }

    fn judge(
        &self,
        rows: &mut Rows,
        [configuration, base]: [Configuration; 2],
        gets: u32,
        metric: Metric,
        limit: Limit,
    ) {
        if !self.plan.measures(configuration) || !self.plan.measures(base) {
            return;
        }
        for op in metric.ops(gets) {
            let ours = self.numbers(metric, configuration, gets, op);
            let base_values = self.numbers(metric, base, gets, op);
            let ratios = ours.iter().zip(&base_values).map(|(ours, base)| ours / base);
            let ratios: Vec<f64> = ratios.collect();
            let what = format!(
                "{}: {}, over that of {}",
                configuration.name(),
                self.subject(metric, configuration, gets, op),
                base.name()
            );
            let at = format!("{}.{}", id(LOAD_BYTES), mix(gets, op));
            let id = format!("bar.{}.{}.over_{}.{at}", metric.id(), configuration.id(), base.id());
            let runs = Some(Runs::new(ratios.iter().copied(), self.plan.runs));
            let row = |reason| {
                Row::from_values(id, what, "ratio", ratios, configuration.devices(), reason)
            };
            if let Some(why) = self.limited(metric, base, gets) {
                let why = format!("not judged: {} does at least that: {why}", base.name());
                rows.set(row(Some(why)), runs, limit, None);
                continue;
            }
            let reason = self.reason(metric, configuration, gets);
            rows.judge(row(reason.or_else(|| self.reason(metric, base, gets))), runs, limit);
        }
    }

    /// Returns the reason why the maximum may not be the configuration's limit: in at least one run the load generator
    /// could not offer more.
    fn limited(&self, metric: Metric, configuration: Configuration, gets: u32) -> Option<String> {
        let samples = self.points.get(&metric.point(configuration, gets))?;
        let busy = samples.iter().find(|sample| sample.report.generator.was_bottleneck)?;
        let why = busy.report.generator.reason.clone().unwrap_or_default();
        (metric == Metric::Maximum).then_some(why)
    }

    /// Returns the text that names the measured number and the load.
    fn subject(&self, metric: Metric, configuration: Configuration, gets: u32, op: Op) -> String {
        let name = metric.name();
        let per_s = self.carried_per_s.get(&(configuration.route, gets));
        let load = match per_s {
            _ if metric == Metric::Maximum => String::new(),
            Some(per_s) if *per_s < PAPER_RATE_PER_S => {
                format!(" at {per_s}/s (not all carry the paper's {PAPER_RATE_PER_S}/s)")
            }
            Some(per_s) => format!(" at {per_s}/s"),
            None => " (no load is carried by all)".to_owned(),
        };
        let of_op = if matches!(metric, Metric::Latency(_)) {
            format!(" of {}s", verb(op))
        } else {
            String::new()
        };
        format!("{name}{of_op}, {LOAD_BYTES}, {gets} % gets{load}")
    }

    /// Returns the reason why a number is missing or has to be read with care.
    fn reason(&self, metric: Metric, configuration: Configuration, gets: u32) -> Option<String> {
        let point = metric.point(configuration, gets);
        let limited = self.limited(metric, configuration, gets);
        let maximum = limited.map(|why| format!("at least; not its own limit: {why}"));
        let unfound = metric != Metric::Maximum
            && !self.carried_per_s.contains_key(&(configuration.route, gets));
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

    /// Judges every size up to 128 KiB. The configuration may be at most a little slower than the base, and it must be
    /// faster from the predicted break-even size on.
    fn judge_sizes(&self, rows: &mut Rows, configuration: Configuration, base: Configuration) {
        if !self.plan.measures(configuration) || !self.plan.measures(base) {
            return;
        }
        let sizes = self.plan.sizes.iter().copied().filter(|size| *size <= SIZE_BYTES_MAX);
        for (size, gets) in
            sizes.flat_map(|size| self.plan.criteria_gets().map(move |gets| (size, gets)))
        {
            for op in ops(gets) {
                for quantile in [Quantile::P50, Quantile::P90] {
                    self.judge_size(rows, [configuration, base], (size, gets, op), quantile);
                }
            }
        }
    }

    fn judge_size(
        &self,
        rows: &mut Rows,
        [configuration, base]: [Configuration; 2],
        (size, gets, op): (ByteCount, u32, Op),
        quantile: Quantile,
    ) {
        let times = |side| self.latency_us(&Point::at_size(side, size, gets), op, quantile);
        let both: Vec<(f64, f64)> = times(configuration).into_iter().zip(times(base)).collect();
        let reason = self.invalid(&Point::at_size(configuration, size, gets));
        let reason = reason.or_else(|| self.invalid(&Point::at_size(base, size, gets)));
        let at = format!("{}.over_{}", configuration.id(), base.id());
        let at = format!("{at}.{}.{}.{}", quantile.id(), id(size), mix(gets, op));
        let what = format!(
            "{}: {} of {}s, {size}, {gets} % gets, {}/s",
            configuration.name(),
            quantile.name(),
            verb(op),
            self.plan.rate_per_s
        );
        let mut judge = |name: &str, over: &str, unit, values: Vec<f64>, limit| {
            let (id, what) =
                (format!("bar.{name}.{at}"), format!("{what}, {over} {}", base.name()));
            let runs = Runs::new(values.iter().copied(), self.plan.runs);
            let row =
                Row::from_values(id, what, unit, values, configuration.devices(), reason.clone());
            rows.judge(row, Some(runs), limit);
        };
        let excess = both.iter().map(|(ours, base)| ours - EXCESS_RATIO * base).collect();
        judge("excess", "less 1.05 times that of", "us", excess, Limit::AtMost(EXCESS_US));
        let pays = self.break_even(op).is_some_and(|pays| size >= pays);
        if pays && quantile == Quantile::P50 {
            let ratios = both.iter().map(|(ours, base)| ours / base).collect();
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

    /// Returns the smallest size from which on the lane should be faster, according to the stages that were each
    /// measured alone.
    fn break_even(&self, op: Op) -> Option<ByteCount> {
        let stages = self.stages.iter().filter(|((_, name), _)| *name == op.name());
        let mut found = None;
        for ((size, _), runs) in stages {
            let gains = runs.iter().map(|stages| {
                stages.best.p50_us - stages.way_us(Topology::Lane) - stages.device.p50_us
            });
            match Spread::from_values(gains) {
                Some(gain) if gain.median > 0.0 => found = found.or(Some(*size)),
                _ => found = None,
            }
        }
        found
    }
}

/// Returns one line for each criterion that does not apply to a value size. The criteria by size have one
/// common line with the number that passed, and a separate line for each that failed or is unknown.
pub(super) fn summary(criteria: &[Criterion]) -> Vec<String> {
    let (by_size, others): (Vec<&Criterion>, Vec<&Criterion>) =
        criteria.iter().partition(|criterion| is_by_size(criterion));
    let mut lines: Vec<String> = others.into_iter().map(Criterion::line).collect();
    if !by_size.is_empty() {
        let met = by_size.iter().filter(|criterion| criterion.passed == Some(true)).count();
        lines.push(format!("bars by size: {met} of {} met", by_size.len()));
        lines.extend(
            by_size
                .into_iter()
                .filter(|criterion| criterion.passed != Some(true))
                .map(Criterion::line),
        );
    }
    lines
}

/// Returns whether the criterion applies to one value size.
pub(super) fn is_by_size(criterion: &Criterion) -> bool {
    ["bar.excess.", "bar.faster."].iter().any(|name| criterion.id.starts_with(name))
}

fn is_lane_iaa(configuration: &Configuration) -> bool {
    (configuration.topology, configuration.compressor) == (Topology::Lane, Compressor::Iaa)
}

/// The largest value size for which criteria apply.
const SIZE_BYTES_MAX: ByteCount = ByteCount::kib(128);

/// A latency of up to `EXCESS_RATIO` times that of the base plus `EXCESS_US` does not count as slower.
const EXCESS_RATIO: f64 = 1.05;
const EXCESS_US: f64 = 5.0;

#[cfg(test)]
mod tests {
    use units::Nanos;

    use super::*;
    use crate::cache::plan::Plan;
    use crate::cache::results::Stages;
    use crate::testbed::Stage;

    fn nothing_measured() -> Results {
        Results::new(Plan {
            configurations: Configuration::all(StoreRoute::Direct).collect(),
            parts: vec![Part::Criteria, Part::Sizes],
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

    /// Returns stages in which the lane and its device take a given time. The best software takes 10 us.
    fn runs(lane_and_device_us: f64) -> Vec<Stages> {
        let stage = |p50_us| Stage { p50_us };
        let lane = Some(stage(lane_and_device_us - 1.0));
        let (device, best, other) = (stage(1.0), stage(10.0), stage(99.0));
        vec![Stages { software: other, busy: other, best, device, hop: None, lane }]
    }

    #[test]
    fn a_size_breaks_even_if_all_above_it_do() {
        let break_even = |of_sizes: [f64; 3]| {
            let mut results = nothing_measured();
            for (kib, us) in [1, 4, 16].into_iter().zip(of_sizes) {
                let op = Op::Compress.name();
                results.stages.insert((ByteCount::kib(kib), op), runs(us));
            }
            assert_eq!(results.break_even(Op::Decompress), None, "nothing is known of it");
            results.break_even(Op::Compress).map(|size| size.0 >> 10)
        };
        assert_eq!(break_even([11.0, 9.0, 9.0]), Some(4));
        assert_eq!(break_even([9.0, 11.0, 9.0]), Some(16));
        assert_eq!(break_even([9.0, 9.0, 10.0]), None);
    }

    #[test]
    fn a_criterion_without_a_number_is_not_judged() {
        let mut rows = Rows::new("cache", &harness::Machine::here(), "idle");
        nothing_measured().write_criteria(&mut rows);
        let count = |part: &str| {
            rows.criteria.iter().filter(|criterion| criterion.id.contains(part)).count()
        };
        assert!(rows.criteria.iter().all(|criterion| criterion.passed.is_none()));
        // The lane is compared with the best software and with the same accelerator. Latencies are judged for gets and
        // for sets.
        assert_eq!((count(".p50.lane"), count(".max.lane")), (4, 2));
        assert_eq!((count("bar.host_cpu."), count("bar.excess.")), (1, 4));
        assert_eq!(
            summary(&rows.criteria).len(),
            rows.criteria.len() + 1,
            "one line is of all sizes"
        );
    }
}
