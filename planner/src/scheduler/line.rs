//! A straight line that gives a job's time from its size. It is fitted to the means of size classes, and both of its
//! coefficients have an uncertainty.

use model::{Provenance, Quantity};

/// Jobs of approximately the same size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    pub(crate) jobs: f64,
    /// The mean size of the jobs (bytes).
    pub(crate) bytes: f64,
    /// The mean time of the jobs (ns).
    pub(crate) ns: f64,
}

/// The straight line of a job's time over its size: `fixed_ns + ns_per_byte * bytes`.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) fixed_ns: Quantity,
    pub(crate) ns_per_byte: Quantity,
}

impl Line {
    /// Fits a line through the classes by least squares of the relative error. If the classes have only one size, the
    /// fixed part of the time is unknown: it ranges from none to all of it.
    pub(crate) fn through(classes: &[Class]) -> Option<Self> {
        let jobs: f64 = classes.iter().map(|class| class.jobs).sum();
        let smallest = classes.iter().map(|class| class.bytes).fold(f64::INFINITY, f64::min);
        let largest = classes.iter().map(|class| class.bytes).fold(0.0, f64::max);
        if jobs <= 0.0 || smallest <= 0.0 {
            return None;
        }
        if largest / smallest < SPAN_MIN {
            let mean = |value: fn(&Class) -> f64| {
                classes.iter().map(|class| class.jobs * value(class)).sum::<f64>() / jobs
            };
            let (ns, bytes) = (mean(|class| class.ns), mean(|class| class.bytes));
            return Some(Self {
                fixed_ns: Quantity::range(0.0, ns, Provenance::Measured),
                ns_per_byte: Quantity::range(0.0, ns / bytes, Provenance::Measured),
            });
        }
        Some(least_squares(classes))
    }

    /// Returns the time at a size (ns).
    pub(crate) fn at(&self, bytes: f64) -> f64 {
        self.fixed_ns.stated + self.ns_per_byte.stated * bytes
    }
}

fn least_squares(classes: &[Class]) -> Line {
    let (mut s11, mut s12, mut s22, mut y1, mut y2) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for class in classes {
        let variance = NOISE * NOISE / class.jobs + BEND * BEND;
        let weight = 1.0 / (variance * class.ns.max(1.0).powi(2));
        s11 += weight;
        s12 += weight * class.bytes;
        s22 += weight * class.bytes * class.bytes;
        y1 += weight * class.ns;
        y2 += weight * class.bytes * class.ns;
    }
    let determinant = s11 * s22 - s12 * s12;
    let (fixed, slope) = ((y1 * s22 - y2 * s12) / determinant, (y2 * s11 - y1 * s12) / determinant);
    let (fixed, slope) = match () {
        () if fixed < 0.0 => (0.0, y2 / s22),
        () if slope < 0.0 => (y1 / s11, 0.0),
        () => (fixed, slope),
    };
    let within = |value: f64, variance: f64| {
        let reach = Z * variance.max(0.0).sqrt();
        Quantity::within((value - reach).max(0.0), value, value + reach, Provenance::Measured)
    };
    Line {
        fixed_ns: within(fixed, s22 / determinant),
        ns_per_byte: within(slope, s11 / determinant),
    }
}

/// Half of the width of a 95 % interval, in standard deviations.
const Z: f64 = 1.959_964;

/// The standard deviation of a single job's time, as a share of that time.
const NOISE: f64 = 0.5;

/// The distance of a class's mean from the line, as a share of the mean. It does not fall with the number of jobs.
const BEND: f64 = 0.05;

/// Sizes whose ratio is below this number count as a single size.
const SPAN_MIN: f64 = 1.5;

#[cfg(test)]
mod tests {
    use model::Spread;

    use super::*;

    fn class(bytes: f64, ns: f64) -> Class {
        Class { jobs: 1_000.0, bytes, ns }
    }

    #[test]
    fn a_line_is_found_with_its_interval() {
        let classes = [1_000.0, 5_000.0, 20_000.0].map(|bytes| class(bytes, 2_000.0 + 0.5 * bytes));
        let line = Line::through(&classes).expect("jobs");
        assert!((line.fixed_ns.stated - 2_000.0).abs() < 1.0, "{line:?}");
        assert!((line.ns_per_byte.stated - 0.5).abs() < 1e-3);
        let Spread::Interval { low, high } = line.fixed_ns.spread else { panic!("{line:?}") };
        assert!(low < 2_000.0 && high > 2_000.0 && high < 3_000.0, "{low} {high}");
    }

    #[test]
    fn one_size_leaves_open_how_its_time_is_made_up() {
        let line = Line::through(&[class(4_000.0, 6_000.0), class(5_000.0, 6_000.0)]);
        let line = line.expect("jobs");
        assert_eq!(line.fixed_ns.spread, Spread::Range { low: 0.0, high: 6_000.0 });
        assert!((line.at(4_500.0) - 6_000.0).abs() < 1e-9);
        assert!(Line::through(&[]).is_none());
    }

    #[test]
    fn a_line_never_falls_and_never_starts_below_nothing() {
        let falls = Line::through(&[class(1_000.0, 9_000.0), class(9_000.0, 5_000.0)]);
        assert_eq!(falls.expect("jobs").ns_per_byte.stated, 0.0);
        let steep = Line::through(&[class(1_000.0, 100.0), class(9_000.0, 9_000.0)]);
        assert_eq!(steep.expect("jobs").fixed_ns.stated, 0.0);
    }
}
