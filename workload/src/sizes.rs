//! Maps a uniform number to a size by a distribution. So the size of a key's value is a function of the key and need
//! not be stored.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};
use units::Prng;

/// A distribution of sizes. Fields are in bytes unless they are exponents or shares. Draws are rounded and limited to
/// the bounds of the distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[allow(missing_docs)]
pub enum SizeDist {
    /// The same size for every draw.
    Fixed { bytes: u64 },
    /// All sizes from `min_bytes` to `max_bytes` with the same probability.
    Uniform { min_bytes: u64, max_bytes: u64 },
    /// A log-normal distribution with the given mean and the standard deviation `sigma` of its logarithm.
    LogNormal { mean_bytes: f64, sigma: f64, min_bytes: u64, max_bytes: u64 },
    /// Generalized Pareto: `location + scale ((1 - u)^-shape - 1) / shape`.
    GeneralizedPareto { location: f64, scale: f64, shape: f64, min_bytes: u64, max_bytes: u64 },
    /// Generalized extreme value: `location + scale ((-ln u)^-shape - 1) / shape`.
    GeneralizedExtremeValue {
        location: f64,
        scale: f64,
        shape: f64,
        min_bytes: u64,
        max_bytes: u64,
    },
    /// Measured quantiles `[probability, bytes]`, from probability 0 to 1. Between two quantiles the logarithm of the
    /// size is linear.
    Quantiles { points: Vec<(f64, u64)> },
    /// Several distributions, each with its share of the draws.
    Mixture { parts: Vec<SizePart> },
}

/// One distribution of a [`SizeDist::Mixture`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizePart {
    /// The fraction of all draws. The shares of a mixture sum to 1.
    pub share: f64,
    /// The distribution of these draws. It cannot be a mixture.
    pub sizes: SizeDist,
}

/// The unit that a distribution counts: calls or bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weighting {
    /// Each call counts once.
    #[default]
    Calls,
    /// Each call counts once per byte, so large sizes come up more often.
    Bytes,
}

/// The reason why a size distribution cannot be drawn from.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} is {value}; {valid}")]
pub struct BadSizes {
    /// The name of the field.
    pub field: &'static str,
    /// The value of the field as text.
    pub value: String,
    /// The values that are valid.
    pub valid: &'static str,
}

/// A checked distribution, ready to be drawn from.
#[derive(Clone, Debug)]
pub struct Sizes {
    dist: SizeDist,
    mean_bytes: f64,
    /// The end of each cell of the grid, as (cumulative share of the bytes, cumulative share of the calls).
    /// It is empty if the weighting is by calls.
    by_bytes: Vec<(f64, f64)>,
}

impl SizeDist {
    /// Returns the largest size that can be drawn.
    pub fn max_bytes(&self) -> u64 {
        match self {
            Self::Fixed { bytes } => *bytes,
            Self::Uniform { max_bytes, .. }
            | Self::LogNormal { max_bytes, .. }
            | Self::GeneralizedPareto { max_bytes, .. }
            | Self::GeneralizedExtremeValue { max_bytes, .. } => *max_bytes,
            Self::Quantiles { points } => points.last().map_or(0, |point| point.1),
            Self::Mixture { parts } => {
                parts.iter().map(|part| part.sizes.max_bytes()).max().unwrap_or(0)
            }
        }
    }

    fn check(&self) -> Result<(), BadSizes> {
        match self {
            Self::Fixed { bytes } => check_bounds(*bytes, *bytes),
            Self::Uniform { min_bytes, max_bytes } => check_bounds(*min_bytes, *max_bytes),
            Self::LogNormal { mean_bytes, sigma, min_bytes, max_bytes } => {
                check_number("mean_bytes", *mean_bytes, 1e-3, "a number of at least 0.001")?;
                check_number("sigma", *sigma, 0.0, "a number of at least 0")?;
                check_bounds(*min_bytes, *max_bytes)
            }
            Self::GeneralizedPareto { location, scale, shape, min_bytes, max_bytes }
            | Self::GeneralizedExtremeValue { location, scale, shape, min_bytes, max_bytes } => {
                check_number("location", *location, f64::MIN, "a number")?;
                check_number("scale", *scale, 1e-9, "a number above 0")?;
                check_number("shape", *shape, f64::MIN, "a number")?;
                check_bounds(*min_bytes, *max_bytes)
            }
            Self::Quantiles { points } => check_points(points),
            Self::Mixture { parts } => check_parts(parts),
        }
    }

    /// Returns the unrounded size at `u` in `[0, 1)`. The distribution must be checked.
    fn at(&self, u: f64) -> f64 {
        match self {
            Self::Fixed { bytes } => *bytes as f64,
            Self::Uniform { min_bytes, max_bytes } => {
                let span = (max_bytes - min_bytes) as f64 + 1.0;
                (*min_bytes as f64 + (u * span).floor()).min(*max_bytes as f64)
            }
            Self::LogNormal { mean_bytes, sigma, min_bytes, max_bytes } => {
                let z = Normal::standard().inverse_cdf(u.max(f64::MIN_POSITIVE));
                let log = mean_bytes.ln() - sigma * sigma / 2.0 + sigma * z;
                clip(log.exp(), *min_bytes, *max_bytes)
            }
            Self::GeneralizedPareto { location, scale, shape, min_bytes, max_bytes } => {
                clip(location + scale * box_cox(-(-u).ln_1p(), *shape), *min_bytes, *max_bytes)
            }
            Self::GeneralizedExtremeValue { location, scale, shape, min_bytes, max_bytes } => {
                let log = -(-u.max(f64::MIN_POSITIVE).ln()).ln();
                clip(location + scale * box_cox(log, *shape), *min_bytes, *max_bytes)
            }
            Self::Quantiles { points } => at_points(points, u),
            Self::Mixture { parts } => at_parts(parts, u),
        }
    }
}

impl Sizes {
    /// Checks `dist` and prepares it for draws under `weighting`.
    pub fn new(dist: &SizeDist, weighting: Weighting) -> Result<Self, BadSizes> {
        dist.check()?;
        let mut cells = grid();
        let mut total = 0.0;
        let mut from = 0.0;
        let mut squares = 0.0;
        for (share, to) in &mut cells {
            let bytes = dist.at((from + *to) / 2.0);
            total += bytes * (*to - from);
            squares += bytes * bytes * (*to - from);
            (*share, from) = (total, *to);
        }
        let by_calls = weighting == Weighting::Calls || total == 0.0;
        let mean_bytes = if by_calls { total } else { squares / total };
        cells.iter_mut().for_each(|cell| cell.0 /= total);
        let by_bytes = if by_calls { Vec::new() } else { cells };
        Ok(Self { dist: dist.clone(), mean_bytes, by_bytes })
    }

    /// Returns the size at `u` in `[0, 1)`. The same `u` always gives the same size.
    pub fn at(&self, u: f64) -> usize {
        let u = if self.by_bytes.is_empty() { u } else { self.byte_weighted(u) };
        self.dist.at(u).round() as usize
    }

    /// Draws a size.
    pub fn draw(&self, prng: &mut Prng) -> usize {
        self.at(prng.unit())
    }

    /// Returns the mean size of a draw (bytes), with an error of about one percent.
    pub fn mean_bytes(&self) -> f64 {
        self.mean_bytes
    }

    /// Converts a cumulative share `u` of the bytes into the cumulative share of the calls at the same size.
    fn byte_weighted(&self, u: f64) -> f64 {
        let cells = &self.by_bytes;
        let index = cells.partition_point(|cell| cell.0 <= u).min(cells.len() - 1);
        let (low, from) = if index == 0 { (0.0, 0.0) } else { cells[index - 1] };
        let (high, to) = cells[index];
        let inside = if high > low { ((u - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 };
        (from + (to - from) * inside).min(UNIT_BELOW_ONE)
    }
}

/// Returns (0, end) for each cell of the grid over which sums are taken. The cells have equal widths, but the
/// last cell is halved repeatedly, because heavy tails have their bytes there.
fn grid() -> Vec<(f64, f64)> {
    let cell = 1.0 / GRID_CELLS as f64;
    let even = (1..GRID_CELLS).map(|index| index as f64 * cell);
    let fine = (1..=GRID_HALVINGS).map(|halving| 1.0 - cell * 0.5f64.powi(halving));
    even.chain(fine).chain([1.0]).map(|end| (0.0, end)).collect()
}

fn at_points(points: &[(f64, u64)], u: f64) -> f64 {
    let index = points.partition_point(|point| point.0 <= u).clamp(1, points.len() - 1);
    let ((low, from), (high, to)) = (points[index - 1], points[index]);
    let (from, to) = ((from.max(1) as f64).ln(), (to.max(1) as f64).ln());
    (from + (to - from) * ((u - low) / (high - low)).clamp(0.0, 1.0)).exp()
}

fn at_parts(parts: &[SizePart], u: f64) -> f64 {
    let mut start = 0.0;
    for part in &parts[..parts.len() - 1] {
        if u < start + part.share {
            return part.sizes.at(((u - start) / part.share).min(UNIT_BELOW_ONE));
        }
        start += part.share;
    }
    let last = &parts[parts.len() - 1];
    last.sizes.at(((u - start) / last.share).min(UNIT_BELOW_ONE))
}

/// Returns `(e^(shape log) - 1) / shape`, which is `log` itself at shape 0.
fn box_cox(log: f64, shape: f64) -> f64 {
    if shape.abs() < 1e-9 { log } else { (shape * log).exp_m1() / shape }
}

fn clip(bytes: f64, min_bytes: u64, max_bytes: u64) -> f64 {
    bytes.max(min_bytes as f64).min(max_bytes as f64)
}

fn check_number(
    field: &'static str,
    value: f64,
    lowest: f64,
    valid: &'static str,
) -> Result<(), BadSizes> {
    let fits = value.is_finite() && value >= lowest;
    if fits { Ok(()) } else { Err(BadSizes { field, value: value.to_string(), valid }) }
}

fn check_bounds(min_bytes: u64, max_bytes: u64) -> Result<(), BadSizes> {
    let refuse =
        |field, value: u64, valid| Err(BadSizes { field, value: value.to_string(), valid });
    if max_bytes > SIZE_BYTES_MAX {
        return refuse("max_bytes", max_bytes, "the largest size is 1073741824 bytes (1 GiB)");
    }
    if min_bytes > max_bytes {
        return refuse("min_bytes", min_bytes, "it must not be above max_bytes");
    }
    Ok(())
}

fn check_points(points: &[(f64, u64)]) -> Result<(), BadSizes> {
    let refuse = |value, valid| Err(BadSizes { field: "points", value, valid });
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return refuse("empty".to_owned(), "give at least [0, smallest] and [1, largest]");
    };
    if points.len() < 2 || first.0 != 0.0 || last.0 != 1.0 {
        return refuse(format!("{points:?}"), "probabilities must run from 0 to 1");
    }
    for pair in points.windows(2) {
        // The comparison also fails for a probability that is not a number.
        let rises = pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        if !rises {
            return refuse(format!("{pair:?}"), "probabilities must rise and sizes must not fall");
        }
    }
    check_bounds(first.1, last.1)
}

fn check_parts(parts: &[SizePart]) -> Result<(), BadSizes> {
    let refuse = |field, value, valid| Err(BadSizes { field, value, valid });
    for part in parts {
        if !(part.share > 0.0 && part.share <= 1.0) {
            return refuse("share", part.share.to_string(), "a share is above 0 and at most 1");
        }
        if matches!(part.sizes, SizeDist::Mixture { .. }) {
            return refuse("sizes", "a mixture".to_owned(), "a mixture has no mixtures within");
        }
        part.sizes.check()?;
    }
    let sum: f64 = parts.iter().map(|part| part.share).sum();
    if (sum - 1.0).abs() > 1e-6 {
        return refuse("parts", format!("of shares that sum to {sum}"), "the sum must be 1");
    }
    Ok(())
}

/// The number of cells in the even part of the grid. With twice as many cells, sums over the presets change by less
/// than 0.1 %.
const GRID_CELLS: usize = 4_096;
/// The number of times that the last cell is halved. The finest cell covers one call in four billion.
const GRID_HALVINGS: i32 = 20;
/// The largest size (bytes), which is memcached's largest `-I`. A larger size is a mistake in a file.
const SIZE_BYTES_MAX: u64 = 1 << 30;
const UNIT_BELOW_ONE: f64 = 1.0 - f64::EPSILON / 2.0;

const _: () = assert!(SIZE_BYTES_MAX == units::limits::ITEM_BYTES_MAX_HIGHEST.0);

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(sizes: &Sizes) -> f64 {
        let mut prng = Prng::new(2);
        (0..400_000).map(|_| sizes.draw(&mut prng) as f64).sum::<f64>() / 400_000.0
    }

    fn calls(dist: &SizeDist) -> Sizes {
        Sizes::new(dist, Weighting::Calls).expect("valid sizes")
    }

    #[test]
    fn log_normal_sizes_are_finite_at_the_ends() {
        let (mean_bytes, min_bytes, max_bytes) = (1030.0, 1, 1 << 20);
        let at = |sigma, u| {
            calls(&SizeDist::LogNormal { mean_bytes, sigma, min_bytes, max_bytes }).at(u)
        };
        assert_eq!([0.0, UNIT_BELOW_ONE].map(|u| at(0.0, u)), [1030, 1030]);
        assert_eq!((at(1.0, 0.0), at(3.0, UNIT_BELOW_ONE)), (1, 1 << 20));
    }

    #[test]
    fn means_are_those_of_the_formulas() {
        let (min_bytes, max_bytes) = (0, 1 << 30);
        let log_normal =
            SizeDist::LogNormal { mean_bytes: 1030.0, sigma: 1.0, min_bytes, max_bytes };
        let pareto = SizeDist::GeneralizedPareto {
            location: 0.0,
            scale: 214.476,
            shape: 0.348238,
            min_bytes,
            max_bytes,
        };
        let uniform = SizeDist::Uniform { min_bytes: 1, max_bytes: 8 };
        let expected = [(log_normal, 1030.0), (pareto, 214.476 / (1.0 - 0.348238)), (uniform, 4.5)];
        for (dist, expected) in expected {
            let sizes = calls(&dist);
            assert!((sizes.mean_bytes() / expected - 1.0).abs() < 0.01, "{}", sizes.mean_bytes());
            assert!((mean(&sizes) / expected - 1.0).abs() < 0.02, "{dist:?} {}", mean(&sizes));
        }
    }

    #[test]
    fn quantiles_are_met_and_joined_in_log_space() {
        let dist = SizeDist::Quantiles { points: vec![(0.0, 1), (0.5, 100), (1.0, 10_000)] };
        let sizes = calls(&dist);
        assert_eq!([0.0, 0.25, 0.5, 0.75].map(|u| sizes.at(u)), [1, 10, 100, 1_000]);
        assert_eq!(sizes.at(UNIT_BELOW_ONE), 10_000);
    }

    #[test]
    fn byte_weighted_draws_follow_the_bytes() {
        let parts = vec![
            SizePart { share: 0.9, sizes: SizeDist::Fixed { bytes: 10 } },
            SizePart { share: 0.1, sizes: SizeDist::Fixed { bytes: 910 } },
        ];
        let dist = SizeDist::Mixture { parts };
        let sizes = Sizes::new(&dist, Weighting::Bytes).expect("valid sizes");
        let mut prng = Prng::new(4);
        let small = (0..100_000).filter(|_| sizes.draw(&mut prng) == 10).count();
        assert!((small as f64 / 100_000.0 - 0.09).abs() < 0.005, "{small}");
        assert!((sizes.mean_bytes() - (0.09 * 10.0 + 0.91 * 910.0)).abs() < 5.0);
    }

    #[test]
    fn bad_distributions_are_refused_with_the_value() {
        let bad = [
            SizeDist::Uniform { min_bytes: 9, max_bytes: 3 },
            SizeDist::Fixed { bytes: 1 << 40 },
            SizeDist::Quantiles { points: vec![] },
            SizeDist::Quantiles { points: vec![(0.0, 1), (0.9, 2)] },
            SizeDist::Quantiles { points: vec![(0.0, 1), (f64::NAN, 2), (1.0, 3)] },
            SizeDist::LogNormal { mean_bytes: f64::NAN, sigma: 1.0, min_bytes: 0, max_bytes: 1 },
            SizeDist::Mixture { parts: vec![] },
            SizeDist::Mixture {
                parts: vec![SizePart { share: 0.5, sizes: SizeDist::Fixed { bytes: 1 } }],
            },
        ];
        for dist in bad {
            let error = Sizes::new(&dist, Weighting::Calls).expect_err("refused");
            assert!(!error.to_string().is_empty(), "{dist:?}");
        }
    }
}
