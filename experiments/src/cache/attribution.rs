//! The differences between a configuration's latency and that of the monolith in software, and their explanation: the
//! stages, each measured alone, and the jobs, measured under the load itself.

use units::{ByteCount, Op};

use super::results::{Point, Quantile, Results, id, mix, verb};
use crate::base::rows::{Rows, Spread};
use crate::testbed::{Compressor, Configuration, Sample};

impl Results {
    /// Adds the rows that explain a difference in latency: the sum of the stages divided by the difference to the
    /// monolith in software, and the parts of this ratio.
    pub(super) fn write_attribution(
        &self,
        rows: &mut Rows,
        configuration: Configuration,
        size: ByteCount,
        gets: u32,
        op: Op,
    ) {
        let Some(found) = self.attribution(configuration, size, gets, op) else { return };
        let at = format!("{}.p50.{}.{}", configuration.id(), id(size), mix(gets, op));
        let what = format!(
            "{}: stages measured alone over the measured difference of medians, {size}, \
             {gets} % gets, {}s",
            configuration.name(),
            verb(op)
        );
        let differences: Vec<f64> = found.iter().map(|run| run.difference_us).collect();
        let sums: Vec<f64> = found.iter().map(|run| run.stages_us).collect();
        let rest: Vec<f64> =
            sums.iter().zip(&differences).map(|(sum, whole)| whole - sum).collect();
        let base = Point::at_size(configuration.base(), size, gets);
        let reason = self
            .invalid(&Point::at_size(configuration, size, gets))
            .or_else(|| self.invalid(&base));
        let whole = Spread::from_values(differences.clone());
        // This is a ratio of medians, because the ratio of a single run means nothing if its difference is near zero.
        let ratio = whole
            .zip(Spread::from_values(sums.clone()))
            .map(|(whole, sum)| sum.median / whole.median);
        let near_zero = whole.is_some_and(|whole| whole.low < 0.0 && whole.high > 0.0);
        let near_zero = near_zero.then(|| "the runs differ in the difference's sign".to_owned());
        let remark = reason.clone().or(near_zero);
        rows.add(format!("explained.{at}"), what, "ratio", ratio, configuration.devices(), remark);
        let parts = [
            ("difference", "difference of medians to the monolith in software", differences),
            ("stages", "the stages' sum that is to explain it", sums),
            ("unexplained", "what is left of the difference", rest),
        ];
        for (name, what, values) in parts {
            let what = format!("{}: {what}", configuration.name());
            let (id, reason) = (format!("{name}.{at}"), reason.clone());
            rows.add(id, what, "us", values, configuration.devices(), reason);
        }
    }

    /// Adds three rows: the mean job time under load, the difference between the mean latencies of the configuration
    /// and of the monolith in software, and the share of this difference that the job times explain. Codec, device and
    /// hop do not cause the rest.
    pub(super) fn write_in_place(
        &self,
        rows: &mut Rows,
        configuration: Configuration,
        size: ByteCount,
        gets: u32,
        op: Op,
    ) {
        let means = |configuration: Configuration| -> Vec<(f64, f64)> {
            let samples = self.samples(&Point::at_size(configuration, size, gets)).into_iter();
            let sample_means = |sample: &Sample| {
                let report = &sample.report;
                let report = if op == Op::Compress { &report.set } else { &report.get };
                let job_us = sample.job_us.get(op.name()).copied().unwrap_or(f64::NAN);
                (report.latency.mean_ns / 1e3, job_us)
            };
            samples.map(|sample| sample.map_or((f64::NAN, f64::NAN), sample_means)).collect()
        };
        if configuration.compressor == Compressor::Nothing {
            return;
        }
        let found = means(configuration);
        let at = format!("{}.mean.{}.{}", configuration.id(), id(size), mix(gets, op));
        let reason = self.invalid(&Point::at_size(configuration, size, gets));
        let (name, devices) = (configuration.name(), || configuration.devices());
        let what = format!("{name}: a {op} job under the load, from submission to completion");
        let jobs = found.iter().map(|run| run.1);
        rows.add(format!("in_place.{at}"), what, "us", jobs, devices(), reason.clone());
        if !self.is_compared(configuration) {
            return;
        }
        let base = means(configuration.base());
        let reason =
            reason.or_else(|| self.invalid(&Point::at_size(configuration.base(), size, gets)));
        let differences = found.iter().zip(&base);
        let differences: Vec<(f64, f64)> =
            differences.map(|(ours, base)| (ours.0 - base.0, ours.1 - base.1)).collect();
        let what = format!("{name}: difference of mean latencies to the monolith in software");
        let latency = Spread::from_values(differences.iter().map(|difference| difference.0));
        let job = Spread::from_values(differences.iter().map(|difference| difference.1));
        let latencies = differences.iter().map(|difference| difference.0);
        rows.add(format!("difference.{at}"), what, "us", latencies, devices(), reason.clone());
        let what = format!("{name}: difference of jobs in place over the difference of latencies");
        let ratio = job.zip(latency).map(|(job, latency)| job.median / latency.median);
        rows.add(format!("explained_in_place.{at}"), what, "ratio", ratio, devices(), reason);
    }

    /// Returns whether the configuration is compared with the monolith in software. It must do the same work with
    /// another topology or compressor, and the monolith must be measured too.
    fn is_compared(&self, configuration: Configuration) -> bool {
        let is_other = configuration != configuration.base()
            && !matches!(configuration.compressor, Compressor::Best | Compressor::Nothing);
        is_other && self.plan.measures(configuration.base())
    }

    /// Returns, for each run, the median latency of the configuration minus that of the monolith in software, and the
    /// sum of the stages that should explain this difference. Returns None for the monolith in software itself, and if
    /// the stages are not those of the configuration's work.
    pub(super) fn attribution(
        &self,
        configuration: Configuration,
        size: ByteCount,
        gets: u32,
        op: Op,
    ) -> Option<Vec<Attribution>> {
        if !self.is_compared(configuration)
            || !matches!(configuration.compressor, Compressor::Software | Compressor::Iaa)
        {
            return None;
        }
        let p50 = |configuration| {
            self.latency_us(&Point::at_size(configuration, size, gets), op, Quantile::P50)
        };
        let stages = self.stages.get(&(size, op.name()))?;
        let runs = p50(configuration).into_iter().zip(p50(configuration.base())).zip(stages);
        Some(
            runs.map(|((ours, base), stages)| {
                let (software_us, device_us) = if configuration.compressor == Compressor::Iaa {
                    (stages.software.p50_us, stages.device.p50_us)
                } else {
                    (0.0, 0.0)
                };
                Attribution {
                    difference_us: ours - base,
                    stages_us: stages.way_us(configuration.topology) + device_us - software_us,
                }
            })
            .collect(),
        )
    }
}

/// For one run, the median latency of a configuration minus that of the monolith in software, and the sum of the stages
/// that should explain this difference (us).
#[derive(Clone, Copy, Debug)]
pub(super) struct Attribution {
    pub(super) difference_us: f64,
    pub(super) stages_us: f64,
}
