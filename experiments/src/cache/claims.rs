//! The two claims of \[CacheTax\]: at every size (figure 1) and at every load (figure 2) the microservice with the
//! accelerator is marginally faster than the monolith in software, in the median and in the tail. The paper's monolith
//! compresses with QPL's software path, which takes longer than the codec of the other baseline here. Each claim is
//! judged against both baselines. The module does arithmetic and measures nothing.

use units::{ByteCount, Op};

use super::Part;
use super::results::{LOAD_BYTES, Point, Quantile, Results, ops, verb};
use crate::base::rows::{Kind, Limit, Row, Rows, Spread};
use crate::testbed::{Compressor, Configuration, StoreRoute, Topology};

/// The software of the monolith.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Baseline {
    /// QPL's software path, the baseline of the paper.
    Qpl,
    /// ISA-L's deflate, which makes the same streams.
    IsaL,
}

impl Baseline {
    /// Both baselines. That of the paper is first.
    const ALL: [Self; 2] = [Self::Qpl, Self::IsaL];

    const fn id(self) -> &'static str {
        match self {
            Self::Qpl => "qpl",
            Self::IsaL => "isa_l",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Qpl => "QPL's software path, the paper's baseline",
            Self::IsaL => "ISA-L",
        }
    }
}

/// A ratio of the latencies of both configurations in one point, with the point in words.
struct Found {
    at: String,
    ratio: f64,
}

impl Results {
    /// Adds a row with a verdict for each claim, baseline and op. The row's number is the greatest ratio over all
    /// points, because the paper claims all of them.
    pub(super) fn write_claims(&self, rows: &mut Rows) {
        let both = [offload(), monolith(Compressor::Software)];
        if !both.into_iter().all(|configuration| self.plan.measures(configuration)) {
            return;
        }
        for baseline in Baseline::ALL {
            for op in [Op::Decompress, Op::Compress] {
                if self.plan.has(Part::Sizes) {
                    self.claim(rows, "figure_1", baseline, op, self.by_size(baseline, op));
                }
                if self.plan.has(Part::Loads) {
                    self.claim(rows, "figure_2", baseline, op, self.by_load(baseline, op));
                }
            }
        }
    }

    fn claim(&self, rows: &mut Rows, figure: &str, baseline: Baseline, op: Op, found: Vec<Found>) {
        let all = found.iter().filter(|found| found.ratio.is_finite());
        let holds = all.clone().filter(|found| found.ratio < 1.0).count();
        let count = all.clone().count();
        let worst = all.clone().max_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let best = all.min_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let id = format!("claim.{figure}.{}.{}", baseline.id(), verb(op));
        let what = format!(
            "{}: the microservice with the accelerator over the monolith with {}, {}s: the greatest \
             ratio of all points",
            figure.replace('_', " "),
            baseline.name(),
            verb(op)
        );
        let reason = worst.zip(best).map(|(worst, best)| {
            let of_qpl = match (baseline, self.measures_qpl()) {
                (Baseline::Qpl, false) => "; the monolith's time with QPL is calculated",
                _ => "",
            };
            format!(
                "below 1 at {holds} of {count} points; greatest at {}, least {:.2} at {}{of_qpl}",
                worst.at, best.ratio, best.at
            )
        });
        let values = worst.map(|worst| worst.ratio);
        let row = Row::from_values(id, what, "ratio", values, offload().devices(), reason);
        let row = if baseline == Baseline::Qpl && !self.measures_qpl() {
            row.by(Kind::Computed)
        } else {
            row
        };
        rows.judge(row, None, Limit::Below(1.0));
    }

    fn measures_qpl(&self) -> bool {
        self.plan.measures(monolith(Compressor::QplSoftware))
    }

    /// Returns the ratios of figure 1: the sizes up to 128 KiB, in every mix, as median and 90th percentile.
    fn by_size(&self, baseline: Baseline, op: Op) -> Vec<Found> {
        let sizes = self.plan.sizes.iter().filter(|size| **size <= FIGURE_1_BYTES_MAX);
        let mut found = Vec::new();
        for &size in sizes {
            for &gets in self.plan.gets.iter().filter(|gets| ops(**gets).contains(&op)) {
                let at = format!("{size}, {gets} % gets");
                let point = |configuration| Point::at_size(configuration, size, gets);
                found.extend(self.ratios(&at, baseline, op, size, &point));
            }
        }
        found
    }

    /// Returns the ratios of figure 2: every load, at 64 KiB.
    fn by_load(&self, baseline: Baseline, op: Op) -> Vec<Found> {
        let mut found = Vec::new();
        for &per_s in &self.plan.loads_per_s {
            let point = |configuration| Point::at_load(configuration, per_s);
            let at = format!("{per_s}/s");
            found.extend(self.ratios(&at, baseline, op, LOAD_BYTES, &point));
        }
        found
    }

    fn ratios(
        &self,
        at: &str,
        baseline: Baseline,
        op: Op,
        size: ByteCount,
        point: &dyn Fn(Configuration) -> Point,
    ) -> Vec<Found> {
        let each = [Quantile::P50, Quantile::P90].into_iter().map(|quantile| {
            let of = |configuration| self.latency_us(&point(configuration), op, quantile);
            let ours = of(offload());
            let to: Vec<f64> = match baseline {
                Baseline::IsaL => of(monolith(Compressor::Software)),
                Baseline::Qpl if self.measures_qpl() => of(monolith(Compressor::QplSoftware)),
                Baseline::Qpl => {
                    let isa_l = of(monolith(Compressor::Software)).into_iter();
                    isa_l.map(|us| us + qpl_added_us(op, size)).collect()
                }
            };
            let ratios = ours.iter().zip(&to).map(|(ours, to)| ours / to);
            let ratio = Spread::from_values(ratios).map_or(f64::NAN, |spread| spread.median);
            Found { at: format!("{at}, {}", quantile.name()), ratio }
        });
        each.collect()
    }
}

fn offload() -> Configuration {
    Configuration::new(Topology::Microservice, Compressor::Iaa, StoreRoute::Grpc)
}

fn monolith(compressor: Compressor) -> Configuration {
    Configuration::new(Topology::Monolith, compressor, StoreRoute::Grpc)
}

/// Returns the time that QPL's software path takes for a value beyond that of ISA-L (us). It is linear between the two
/// sizes at which both were measured, and beyond them.
fn qpl_added_us(op: Op, size: ByteCount) -> f64 {
    let [(small, at_small), (large, at_large)] =
        if op == Op::Compress { QPL_COMPRESS_ADDED_US } else { QPL_DECOMPRESS_ADDED_US };
    let share = (size.0 as f64 - small) / (large - small);
    at_small + share * (at_large - at_small)
}

/// The time of QPL's software path less that of ISA-L, by size in bytes (us): 28.5 less 16.9 us and 318 less 122 us
/// (docs/measurements/single-figures.md).
const QPL_COMPRESS_ADDED_US: [(f64, f64); 2] = [(4_096.0, 11.6), (65_536.0, 196.0)];
/// The same for decompression: 10.4 less 10.5 us, and 78.9 less 79.1 us.
const QPL_DECOMPRESS_ADDED_US: [(f64, f64); 2] = [(4_096.0, -0.1), (65_536.0, -0.2)];

/// The largest value of figure 1.
const FIGURE_1_BYTES_MAX: ByteCount = ByteCount::kib(128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qpl_takes_longer_to_compress_only() {
        assert!((qpl_added_us(Op::Compress, ByteCount::kib(64)) - 196.0).abs() < 1e-9);
        assert!((qpl_added_us(Op::Compress, ByteCount::kib(4)) - 11.6).abs() < 1e-9);
        let larger = qpl_added_us(Op::Compress, ByteCount::kib(128));
        assert!((larger - (196.0 + 184.4 * 64.0 / 60.0)).abs() < 1e-9, "{larger}");
        assert!(qpl_added_us(Op::Decompress, ByteCount::kib(64)).abs() < 1.0);
    }
}
