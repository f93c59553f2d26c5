//! Distributions of durations. The caller passes the stream of random numbers.

use serde::{Deserialize, Serialize};
use workload::{SizeDist, Sizes, Weighting};

use crate::draws::ln;
use crate::{Draws, Picos};

/// The distribution of a duration, as in a specification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[allow(missing_docs)]
pub enum DurationSpec {
    /// A duration that is always `ns`.
    Fixed { ns: f64 },
    /// An exponential duration, which has no memory.
    Exponential { mean_ns: f64 },
    /// The sum of `stages` equal exponential stages. It varies less than an exponential duration.
    Erlang { mean_ns: f64, stages: u32 },
    /// A draw from one of two exponential distributions, each of which contributes half of the mean. It
    /// varies more than an exponential duration and has the squared coefficient of variation `cv2`.
    Hyperexponential { mean_ns: f64, cv2: f64 },
    /// Measured quantiles `[probability, ns]`, from probability 0 to 1, with linear interpolation.
    Quantiles { points: Vec<(f64, f64)> },
    /// `fixed_ns` plus `ns_per_byte` for each byte of a size from a workload.
    Bytes { sizes: SizeDist, fixed_ns: f64, ns_per_byte: f64 },
}

/// A number in a specification that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} is {value}; {valid}")]
pub struct BadValue {
    /// The path of keys to the value, such as `outer.key`.
    pub key: String,
    /// The value.
    pub value: String,
    /// The valid values.
    pub valid: String,
}

/// A checked distribution from which durations are drawn.
#[derive(Clone, Debug)]
pub struct Durations {
    kind: Kind,
    mean_ps: f64,
}

#[derive(Clone, Debug)]
enum Kind {
    Fixed(Picos),
    Exponential,
    Erlang { stage_ps: f64, stages: u32 },
    Hyperexponential { first_share: f64, first_ps: f64, second_ps: f64 },
    Quantiles(Vec<(f64, f64)>),
    Bytes { sizes: Box<Sizes>, fixed_ps: f64, ps_per_byte: f64 },
}

impl Durations {
    /// Checks `spec` and makes a distribution from it.
    pub fn new(spec: &DurationSpec) -> Result<Self, BadValue> {
        let (kind, mean_ns) = match spec {
            DurationSpec::Fixed { ns } => {
                BadValue::check("fixed.ns", *ns, 0.0, NS_MAX)?;
                (Kind::Fixed(Picos::from_ns(*ns)), *ns)
            }
            DurationSpec::Exponential { mean_ns } => {
                BadValue::check("exponential.mean_ns", *mean_ns, 0.0, NS_MAX)?;
                (Kind::Exponential, *mean_ns)
            }
            DurationSpec::Erlang { mean_ns, stages } => {
                BadValue::check("erlang.mean_ns", *mean_ns, 0.0, NS_MAX)?;
                BadValue::check("erlang.stages", f64::from(*stages), 1.0, STAGES_MAX)?;
                let stage_ps = mean_ns * 1e3 / f64::from(*stages);
                (Kind::Erlang { stage_ps, stages: *stages }, *mean_ns)
            }
            DurationSpec::Hyperexponential { mean_ns, cv2 } => {
                BadValue::check("hyperexponential.mean_ns", *mean_ns, 0.0, NS_MAX)?;
                BadValue::check("hyperexponential.cv2", *cv2, 1.0, CV2_MAX)?;
                (hyperexponential(*mean_ns, *cv2), *mean_ns)
            }
            DurationSpec::Quantiles { points } => (quantiles(points)?, mean_of(points)),
            DurationSpec::Bytes { sizes, fixed_ns, ns_per_byte } => {
                BadValue::check("bytes.fixed_ns", *fixed_ns, 0.0, NS_MAX)?;
                BadValue::check("bytes.ns_per_byte", *ns_per_byte, 0.0, NS_MAX)?;
                let sizes = checked_sizes("bytes.sizes", sizes)?;
                let mean_ns = fixed_ns + ns_per_byte * sizes.mean_bytes();
                let (fixed_ps, ps_per_byte) = (fixed_ns * 1e3, ns_per_byte * 1e3);
                (Kind::Bytes { sizes: Box::new(sizes), fixed_ps, ps_per_byte }, mean_ns)
            }
        };
        Ok(Self { kind, mean_ps: mean_ns * 1e3 })
    }

    /// Draws one duration.
    #[inline]
    pub fn draw(&self, draws: &mut Draws) -> Picos {
        match self.kind {
            Kind::Exponential => nearest(self.mean_ps * draws.exponential()),
            _ => self.draw_any(draws),
        }
    }

    /// Draws from any kind of distribution. The function is too long to be inlined into callers.
    #[inline(never)]
    fn draw_any(&self, draws: &mut Draws) -> Picos {
        nearest(match &self.kind {
            Kind::Fixed(time) => return *time,
            Kind::Exponential => self.mean_ps * draws.exponential(),
            Kind::Erlang { stage_ps, stages } => {
                let product = (0..*stages).fold(1.0, |product, _| product * (1.0 - draws.unit()));
                -stage_ps * ln(product.max(f64::MIN_POSITIVE))
            }
            Kind::Hyperexponential { first_share, first_ps, second_ps } => {
                let mean_ps = if draws.unit() < *first_share { first_ps } else { second_ps };
                mean_ps * draws.exponential()
            }
            Kind::Quantiles(points) => {
                let u = draws.unit();
                let upper = points.partition_point(|point| point.0 <= u).clamp(1, points.len() - 1);
                let ((low, from), (high, to)) = (points[upper - 1], points[upper]);
                from + (to - from) * ((u - low) / (high - low))
            }
            Kind::Bytes { sizes, fixed_ps, ps_per_byte } => {
                fixed_ps + ps_per_byte * sizes.at(draws.unit()) as f64
            }
        })
    }

    /// Returns the mean (ns). For a distribution of sizes it is accurate to about one percent.
    pub fn mean_ns(&self) -> f64 {
        self.mean_ps * 1e-3
    }
}

impl BadValue {
    /// Refuses a `value` outside `low..=high`.
    pub(crate) fn check(key: &str, value: f64, low: f64, high: f64) -> Result<(), Self> {
        let fits = value >= low && value <= high;
        if fits {
            return Ok(());
        }
        let high = if high < 1e6 { high.to_string() } else { format!("{high:e}") };
        Err(Self::new(key, value, format!("it must be a number from {low} to {high}")))
    }

    pub(crate) fn new(key: &str, value: impl ToString, valid: impl Into<String>) -> Self {
        Self { key: key.to_owned(), value: value.to_string(), valid: valid.into() }
    }

    /// Returns the same error for the key `outer.key`.
    pub(crate) fn under(self, outer: &str) -> Self {
        Self { key: format!("{outer}.{}", self.key), ..self }
    }
}

/// Checks a distribution of sizes and makes it ready for draws.
pub(crate) fn checked_sizes(key: &str, sizes: &SizeDist) -> Result<Sizes, BadValue> {
    Sizes::new(sizes, Weighting::Calls)
        .map_err(|bad| BadValue::new(bad.field, bad.value, bad.valid).under(key))
}

/// Returns the nearest whole picosecond.
#[inline]
pub(crate) fn nearest(ps: f64) -> Picos {
    Picos((ps + 0.5) as u64)
}

/// Returns a hyperexponential distribution with balanced means: each branch contributes half of the mean.
fn hyperexponential(mean_ns: f64, cv2: f64) -> Kind {
    let first_share = (1.0 + ((cv2 - 1.0) / (cv2 + 1.0)).sqrt()) / 2.0;
    let half_ps = mean_ns * 1e3 / 2.0;
    let (first_ps, second_ps) = (half_ps / first_share, half_ps / (1.0 - first_share));
    Kind::Hyperexponential { first_share, first_ps, second_ps }
}

fn quantiles(points: &[(f64, f64)]) -> Result<Kind, BadValue> {
    let key = "quantiles.points";
    let rising = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
    let ends = points.first().is_some_and(|point| point.0 == 0.0)
        && points.last().is_some_and(|point| point.0 == 1.0);
    if points.len() < 2 || points.len() > POINTS_MAX || !ends || !points.windows(2).all(rising) {
        let valid = format!("2 to {POINTS_MAX} points [probability, ns], rising from 0 to 1");
        return Err(BadValue::new(key, format!("{} points", points.len()), valid));
    }
    for point in points {
        BadValue::check(key, point.1, 0.0, NS_MAX)?;
    }
    Ok(Kind::Quantiles(points.iter().map(|(share, ns)| (*share, ns * 1e3)).collect()))
}

fn mean_of(points: &[(f64, f64)]) -> f64 {
    points.windows(2).map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0).sum()
}

/// The longest duration (ns), which is eleven days. The clock covers 213 days, so that several of them fit.
pub(crate) const NS_MAX: f64 = 1e15;
/// The maximum number of stages. The product of more uniform draws could underflow.
const STAGES_MAX: f64 = 64.0;
/// The largest squared coefficient of variation. Above it, one draw in many thousands contributes half of the
/// mean, and no run is long enough to contain sufficiently many of these draws.
const CV2_MAX: f64 = 1e4;
const POINTS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the mean of many draws, and returns the mean and the squared coefficient of variation.
    fn moments(spec: DurationSpec) -> (f64, f64) {
        let durations = Durations::new(&spec).expect("valid");
        let mut stream = Draws::new(units::Prng::new(5));
        let draws: Vec<f64> = (0..400_000).map(|_| durations.draw(&mut stream).as_ns()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>();
        let expected = durations.mean_ns();
        assert!((mean / expected - 1.0).abs() < 0.02, "{spec:?}: mean {mean}, not {expected}");
        (mean, variance / draws.len() as f64 / mean / mean)
    }

    #[test]
    fn draws_have_the_stated_mean_and_spread() {
        let close = |spec, cv2: f64| {
            let (_, found) = moments(spec);
            assert!((found - cv2).abs() < 0.03 * cv2.max(1.0), "{found}, not {cv2}");
        };
        close(DurationSpec::Fixed { ns: 12.5 }, 0.0);
        close(DurationSpec::Exponential { mean_ns: 800.0 }, 1.0);
        close(DurationSpec::Erlang { mean_ns: 800.0, stages: 4 }, 0.25);
        close(DurationSpec::Hyperexponential { mean_ns: 800.0, cv2: 4.0 }, 4.0);
        // The durations are uniform from 0 to 600, so their variance is 600^2 / 12.
        close(DurationSpec::Quantiles { points: vec![(0.0, 0.0), (1.0, 600.0)] }, 1.0 / 3.0);
        let sizes = SizeDist::Fixed { bytes: 100 };
        close(DurationSpec::Bytes { sizes, fixed_ns: 50.0, ns_per_byte: 0.5 }, 0.0);
    }

    #[test]
    fn faults_name_key_value_and_range() {
        let fault = |spec| Durations::new(&spec).expect_err("invalid").to_string();
        assert_eq!(
            fault(DurationSpec::Erlang { mean_ns: 1.0, stages: 0 }),
            "erlang.stages is 0; it must be a number from 1 to 64"
        );
        assert!(fault(DurationSpec::Exponential { mean_ns: f64::NAN }).contains("NaN"));
        assert!(fault(DurationSpec::Hyperexponential { mean_ns: 1.0, cv2: 0.5 }).contains("cv2"));
        for points in [vec![], vec![(0.0, 5.0), (1.0, 4.0)], vec![(0.1, 1.0), (1.0, 4.0)]] {
            assert!(fault(DurationSpec::Quantiles { points }).contains("rising"));
        }
        let sizes = SizeDist::Uniform { min_bytes: 9, max_bytes: 1 };
        let bad = fault(DurationSpec::Bytes { sizes, fixed_ns: 0.0, ns_per_byte: 1.0 });
        assert!(bad.starts_with("bytes.sizes."), "{bad}");
    }
}
