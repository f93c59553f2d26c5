//! Where a configuration's latency differs from the monolith's in software, and what explains it: the stages measured
//! alone, and the jobs as they were under the load itself.

use units::{ByteCount, Op};

use super::findings::{Findings, Point, Quantile, id, mix, verb};
use crate::base::rows::{Rows, Spread};
use crate::testbed::{Configuration, Sample, Work};

impl Findings {
    /// The sum of the stages over the difference to the monolith in software.
    pub(super) fn write_explained(
        &self,
        rows: &mut Rows,
        own: Configuration,
        size: ByteCount,
        gets: u32,
        op: Op,
    ) {
        let Some(found) = self.explained(own, size, gets, op) else { return };
        let at = format!("{}.p50.{}.{}", own.id(), id(size), mix(gets, op));
        let what = format!(
            "{}: stages measured alone over the measured difference of medians, {size}, \
             {gets} % gets, {}s",
            own.name(),
            verb(op)
        );
        let differences: Vec<f64> = found.iter().map(|own| own.difference_us).collect();
        let sums: Vec<f64> = found.iter().map(|own| own.stages_us).collect();
        let rest: Vec<f64> =
            sums.iter().zip(&differences).map(|(sum, whole)| whole - sum).collect();
        let base = Point::at_size(own.base(), size, gets);
        let reason = self.invalid(&Point::at_size(own, size, gets)).or_else(|| self.invalid(&base));
        let whole = Spread::of(differences.clone());
        // Of medians: with a difference near zero the ratio of a single run means nothing.
        let ratio =
            whole.zip(Spread::of(sums.clone())).map(|(whole, sum)| sum.median / whole.median);
        let near_zero = whole.is_some_and(|whole| whole.low < 0.0 && whole.high > 0.0);
        let near_zero = near_zero.then(|| "the runs differ in the difference's sign".to_owned());
        let remark = reason.clone().or(near_zero);
        rows.add(format!("explained.{at}"), what, "ratio", ratio, own.devices(), remark);
        let parts = [
            ("difference", "difference of medians to the monolith in software", differences),
            ("stages", "the stages' sum that is to explain it", sums),
            ("unexplained", "what is left of the difference", rest),
        ];
        for (name, what, values) in parts {
            let what = format!("{}: {what}", own.name());
            let (id, reason) = (format!("{name}.{at}"), reason.clone());
            rows.add(id, what, "us", values, own.devices(), reason);
        }
    }

    /// Means under the load itself: of latency, and of the job within it. What their differences to the monolith in
    /// software leave of each other is not the codec's, the device's or the hop's.
    pub(super) fn write_in_place(
        &self,
        rows: &mut Rows,
        own: Configuration,
        size: ByteCount,
        gets: u32,
        op: Op,
    ) {
        let means = |own: Configuration| -> Vec<(f64, f64)> {
            let samples = self.samples(&Point::at_size(own, size, gets)).into_iter();
            let of = |sample: &Sample| {
                let report = &sample.report;
                let report = if op == Op::Compress { &report.set } else { &report.get };
                let job_us = sample.job_us.get(op.name()).copied().unwrap_or(f64::NAN);
                (report.latency.mean_ns / 1e3, job_us)
            };
            samples.map(|sample| sample.map_or((f64::NAN, f64::NAN), of)).collect()
        };
        if own.work == Work::Nothing {
            return;
        }
        let found = means(own);
        let at = format!("{}.mean.{}.{}", own.id(), id(size), mix(gets, op));
        let reason = self.invalid(&Point::at_size(own, size, gets));
        let name = own.name();
        let what = format!("{name}: a {op} job under the load, from submission to completion");
        let jobs = found.iter().map(|own| own.1);
        rows.add(format!("in_place.{at}"), what, "us", jobs, own.devices(), reason.clone());
        if !self.is_compared(own) {
            return;
        }
        let base = means(own.base());
        let reason = reason.or_else(|| self.invalid(&Point::at_size(own.base(), size, gets)));
        let differences = found.iter().zip(&base);
        let differences: Vec<(f64, f64)> =
            differences.map(|(own, base)| (own.0 - base.0, own.1 - base.1)).collect();
        let what = format!("{name}: difference of mean latencies to the monolith in software");
        let latency = Spread::of(differences.iter().map(|own| own.0));
        let job = Spread::of(differences.iter().map(|own| own.1));
        rows.add(
            format!("difference.{at}"),
            what,
            "us",
            differences.iter().map(|own| own.0),
            own.devices(),
            reason.clone(),
        );
        let what = format!("{name}: difference of jobs in place over the difference of latencies");
        let ratio = job.zip(latency).map(|(job, latency)| job.median / latency.median);
        rows.add(format!("explained_in_place.{at}"), what, "ratio", ratio, own.devices(), reason);
    }

    /// Whether it does the same as the monolith in software, elsewhere or by other means, and that was measured too.
    fn is_compared(&self, own: Configuration) -> bool {
        let is_other = own != own.base() && !matches!(own.work, Work::Best | Work::Nothing);
        is_other && self.plan.measures(own.base())
    }

    /// Per run; none for the base itself, and where the stages are not those of the work.
    pub(super) fn explained(
        &self,
        own: Configuration,
        size: ByteCount,
        gets: u32,
        op: Op,
    ) -> Option<Vec<Explained>> {
        if !self.is_compared(own) || !matches!(own.work, Work::Software | Work::Iaa) {
            return None;
        }
        let p50 = |configuration| {
            self.latency_us(&Point::at_size(configuration, size, gets), op, Quantile::P50)
        };
        let stages = self.stages.get(&(size, op.name()))?;
        let runs = p50(own).into_iter().zip(p50(own.base())).zip(stages);
        Some(
            runs.map(|((ours, base), stages)| {
                let (software_us, device_us) = if own.work == Work::Iaa {
                    (stages.software.p50_us, stages.device.p50_us)
                } else {
                    (0.0, 0.0)
                };
                Explained {
                    difference_us: ours - base,
                    stages_us: stages.way_us(own.place) + device_us - software_us,
                }
            })
            .collect(),
        )
    }
}

/// One run's difference and what is to explain it (us).
#[derive(Clone, Copy, Debug)]
pub(super) struct Explained {
    pub(super) difference_us: f64,
    pub(super) stages_us: f64,
}
