//! The cost of a job as a function of its size and of the queue depth. It consists of plain numbers, which
//! policies read and a scheduler may send.

use crate::break_even::BreakEven;
use crate::parameters::BadParameter;

/// The number of bounds of the size classes, including the first and the last.
pub(super) const KNOTS: usize = 9;
/// The bounds of the size classes (bytes). The last class continues beyond its upper bound.
pub(super) const KNOT_BYTES: [f64; KNOTS] =
    [0.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 4_194_304.0];

/// Returns the class of a size, and the position of the size in the class: 0 at the lower bound, 1 at the upper bound,
/// more than 1 beyond the last bound.
pub(super) fn place(bytes: usize) -> (usize, f64) {
    let class = class_of(bytes);
    let (low, high) = (KNOT_BYTES[class], KNOT_BYTES[class + 1]);
    (class, (bytes as f64 - low) / (high - low))
}

/// Returns the class of a size.
#[inline]
pub(super) fn class_of(bytes: usize) -> usize {
    // The bounds are powers of four from 256 on. Class 0 ends at 2^8, class 1 at 2^10.
    ((bytes | 64).ilog2() as usize / 2 - 3).min(KNOTS - 2)
}

/// The time as a function of the size. It is a straight line in each size class, continuous at the bounds, and never
/// falls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeCurve {
    knots_ns: [f64; KNOTS],
}

/// One size class, in which the time is `fixed_ns + ns_per_byte * bytes` from `from_bytes` to `to_bytes`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeClass {
    /// The lower bound of the class (bytes).
    pub from_bytes: u64,
    /// The upper bound of the class, where the next class starts (bytes). The last class continues beyond it.
    pub to_bytes: u64,
    /// The time at size 0 of the straight line in this class (ns).
    pub fixed_ns: f64,
    /// The slope of the straight line in this class (ns per byte).
    pub ns_per_byte: f64,
}

impl SizeCurve {
    /// Makes a curve that is one line for all sizes: `fixed_ns + ns_per_byte * bytes`.
    pub fn line(fixed_ns: f64, ns_per_byte: f64) -> Result<Self, BadParameter> {
        let valid = "a number of at least 0 and at most 1e15";
        for (field, value) in [("fixed_ns", fixed_ns), ("ns_per_byte", ns_per_byte)] {
            if !(0.0..=1e15).contains(&value) {
                return Err(BadParameter::new(field, value, valid));
            }
        }
        Ok(Self::from_knots(KNOT_BYTES.map(|bytes| fixed_ns + ns_per_byte * bytes)))
    }

    /// Makes a curve through these times (ns) at the bounds of the size classes, for example times that another process
    /// sent. A time below the previous one is raised to it.
    pub fn through(knots_ns: [f64; KNOTS]) -> Result<Self, BadParameter> {
        let valid = "a number of at least 0 and at most 1e22";
        match knots_ns.iter().find(|value| !(0.0..=1e22).contains(*value)) {
            Some(value) => Err(BadParameter::new("knots_ns", value, valid)),
            None => Ok(Self::from_knots(knots_ns)),
        }
    }

    /// Returns the times (ns) at the bounds of the size classes.
    pub const fn knots_ns(&self) -> [f64; KNOTS] {
        self.knots_ns
    }

    /// Makes a curve through these times (ns) at the bounds of the size classes. A time below the previous one is
    /// raised to it.
    pub(super) fn from_knots(mut knots_ns: [f64; KNOTS]) -> Self {
        for index in 1..KNOTS {
            knots_ns[index] = knots_ns[index].max(knots_ns[index - 1]);
        }
        Self { knots_ns }
    }

    /// Returns the time (ns) at `bytes`.
    pub fn at(&self, bytes: usize) -> f64 {
        let (class, along) = place(bytes);
        let (low, high) = (self.knots_ns[class], self.knots_ns[class + 1]);
        low + (high - low) * along
    }

    /// Returns the straight line of the time over the size in every size class.
    pub fn classes(&self) -> [SizeClass; KNOTS - 1] {
        std::array::from_fn(|class| {
            let (from, to) = (KNOT_BYTES[class], KNOT_BYTES[class + 1]);
            let (low, high) = (self.knots_ns[class], self.knots_ns[class + 1]);
            let ns_per_byte = (high - low) / (to - from);
            SizeClass {
                from_bytes: from as u64,
                to_bytes: to as u64,
                fixed_ns: low - ns_per_byte * from,
                ns_per_byte,
            }
        })
    }

    /// Returns the size from which on this curve is below `other` for all larger sizes.
    pub fn break_even(&self, other: &SizeCurve) -> BreakEven {
        let saved: [f64; KNOTS] =
            std::array::from_fn(|knot| other.knots_ns[knot] - self.knots_ns[knot]);
        let last = KNOTS - 1;
        let slope = (saved[last] - saved[last - 1]) / (KNOT_BYTES[last] - KNOT_BYTES[last - 1]);
        if slope < 0.0 || (slope == 0.0 && saved[last] <= 0.0) {
            return BreakEven::Never;
        }
        if saved[last] <= 0.0 {
            return BreakEven::Above(KNOT_BYTES[last] - saved[last] / slope);
        }
        // The crossing lies in the last class whose lower bound does not pay.
        match (0..last).rev().find(|knot| saved[*knot] <= 0.0) {
            None => BreakEven::Above(0.0),
            Some(knot) => {
                let along = -saved[knot] / (saved[knot + 1] - saved[knot]);
                let width = KNOT_BYTES[knot + 1] - KNOT_BYTES[knot];
                BreakEven::Above(KNOT_BYTES[knot] + along * width)
            }
        }
    }
}

/// The cost of jobs of one op on one device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostCurve {
    /// The time from submission to completion on the idle device.
    pub service: SizeCurve,
    /// The host time of one offload: submission, polling and wake-up. On the calling core it is the whole time of the
    /// job.
    pub host: SizeCurve,
    /// The number of jobs that the device serves at once, as estimated from the jobs of this queue. If the
    /// queue is long, the device completes `lanes` jobs per service time.
    pub lanes: f64,
    /// The value at size 0 (ns) of the line that estimates the service times of the jobs ahead. `service` is
    /// the same line with corrections per size class.
    pub(super) ahead_fixed_ns: f64,
    /// The slope (ns per byte) of the line that estimates the service times of the jobs ahead.
    pub(super) ahead_ns_per_byte: f64,
    /// The mean relative error of an estimate for a single job, noise included. It is 1 before the first observation.
    pub spread: f64,
    /// The number of observations so far.
    pub observations: u64,
}

impl CostCurve {
    /// Makes an initial curve, for example from a device profile. `service` and `host` are lines (ns, ns per byte), and
    /// `lanes` is the number of jobs served at once.
    pub fn prior(service: (f64, f64), host: (f64, f64), lanes: f64) -> Result<Self, BadParameter> {
        let curves = (SizeCurve::line(service.0, service.1)?, SizeCurve::line(host.0, host.1)?);
        Self::new(curves, lanes, service)
    }

    /// Makes a curve from its parts, for example parts that another process sent: the service and host curves, the
    /// number of jobs served at once, and the line (ns, ns per byte) that estimates the service times of the jobs
    /// ahead.
    pub fn new(
        (service, host): (SizeCurve, SizeCurve),
        lanes: f64,
        ahead: (f64, f64),
    ) -> Result<Self, BadParameter> {
        if !(1.0..=1e6).contains(&lanes) {
            return Err(BadParameter::new("lanes", lanes, "a number from 1 to 1000000"));
        }
        SizeCurve::line(ahead.0, ahead.1)?;
        let (ahead_fixed_ns, ahead_ns_per_byte) = ahead;
        let (spread, observations) = (1.0, 0);
        Ok(Self { service, host, lanes, ahead_fixed_ns, ahead_ns_per_byte, spread, observations })
    }

    /// Returns the line (ns, ns per byte) that estimates the service times of the jobs ahead.
    pub const fn ahead(&self) -> (f64, f64) {
        (self.ahead_fixed_ns, self.ahead_ns_per_byte)
    }

    /// Returns the expected time from submission to completion (ns) of a job of `bytes` if the device holds
    /// `depth_jobs` jobs with `backlog_bytes` in all.
    pub fn estimate(&self, bytes: usize, depth_jobs: usize, backlog_bytes: usize) -> f64 {
        self.service.at(bytes) + self.wait_ns(depth_jobs, backlog_bytes)
    }

    /// Returns the expected wait (ns) of a job behind `depth_jobs` jobs with `backlog_bytes` in all.
    pub fn wait_ns(&self, depth_jobs: usize, backlog_bytes: usize) -> f64 {
        let turns = turns(depth_jobs as f64, self.lanes);
        if turns <= 0.0 {
            return 0.0;
        }
        let mean_bytes = backlog_bytes as f64 / depth_jobs as f64;
        turns * (self.ahead_fixed_ns + self.ahead_ns_per_byte * mean_bytes)
    }

    /// Returns the fraction of the capacity of all lanes that a load of `jobs_per_s` and `bytes_per_s` takes.
    pub fn occupancy(&self, jobs_per_s: f64, bytes_per_s: f64) -> f64 {
        let work_ns = jobs_per_s * self.ahead_fixed_ns + bytes_per_s * self.ahead_ns_per_byte;
        work_ns * 1e-9 / self.lanes
    }
}

/// Returns the time that a job waits behind `depth` others, as a multiple of their mean service time.
pub(super) fn turns(depth: f64, lanes: f64) -> f64 {
    (depth - lanes + lanes / (lanes + 1.0)).max(0.0) / lanes
}

/// Returns the mean number of jobs ahead up to which a job does not wait. It is above zero.
pub(super) fn free_jobs(lanes: f64) -> f64 {
    lanes - lanes / (lanes + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore)]
    fn places_are_between_their_bounds() {
        for bytes in (0..5_000_000).step_by(37).chain(KNOT_BYTES.map(|bytes| bytes as usize)) {
            let (class, along) = place(bytes);
            assert!(
                along >= 0.0 && (along < 1.0 || class == KNOTS - 2),
                "{bytes}: {class} {along}"
            );
        }
        assert_eq!((place(256), place(255).0, place(1_024).0), ((1, 0.0), 0, 2));
    }

    #[test]
    fn a_line_is_the_line_everywhere() {
        let curve = SizeCurve::line(500.0, 0.25).expect("valid");
        for bytes in [0, 1, 255, 256, 5_000, 1 << 20, 1 << 24] {
            assert!((curve.at(bytes) - (500.0 + 0.25 * bytes as f64)).abs() < 1e-6, "{bytes}");
        }
        for class in curve.classes() {
            assert!(
                (class.fixed_ns - 500.0).abs() < 1e-6 && (class.ns_per_byte - 0.25).abs() < 1e-9
            );
        }
        assert!(SizeCurve::line(f64::NAN, 1.0).is_err());
        assert!(SizeCurve::line(1.0, -1.0).is_err());
    }

    #[test]
    fn curves_break_even_where_they_cross() {
        let line = |fixed, slope| SizeCurve::line(fixed, slope).expect("valid");
        let above = |device: SizeCurve, software| device.break_even(&software).bytes();
        assert!((above(line(2_000.0, 0.1), line(100.0, 1.1)) - 1_900.0).abs() < 1e-6);
        assert!((above(line(1e7, 0.1), line(0.0, 1.1)) - 1e7).abs() < 1e-3);
        assert_eq!(above(line(10.0, 0.1), line(100.0, 1.1)), 0.0);
        assert_eq!(line(100.0, 2.0).break_even(&line(10.0, 1.0)), BreakEven::Never);
        assert_eq!(line(100.0, 1.0).break_even(&line(100.0, 1.0)), BreakEven::Never);
        // A device that is cheaper for small jobs and dearer for large ones has no size from which offloading pays.
        assert_eq!(line(10.0, 2.0).break_even(&line(100.0, 1.0)), BreakEven::Never);
    }

    #[test]
    fn jobs_wait_for_those_ahead() {
        let curve = CostCurve::prior((1_000.0, 1.0), (50.0, 0.0), 1.0).expect("valid");
        assert_eq!(curve.estimate(1_000, 0, 0), 2_000.0);
        // The job waits for half of the running job and all of the waiting one.
        assert_eq!(curve.estimate(1_000, 2, 2_000), 2_000.0 + 1.5 * 2_000.0);
        let wide = CostCurve::prior((1_000.0, 1.0), (50.0, 0.0), 4.0).expect("valid");
        assert_eq!(wide.wait_ns(3, 9_000), 0.0);
        assert_eq!(wide.wait_ns(4, 4_000), 2_000.0 / 5.0);
        assert!((wide.occupancy(1e6, 1e9) - 0.5).abs() < 1e-12);
        assert!(CostCurve::prior((1.0, 1.0), (1.0, 1.0), 0.0).is_err());
    }

    #[test]
    fn a_curve_survives_being_taken_apart() {
        let curve = CostCurve::prior((1_000.0, 1.0), (50.0, 0.5), 4.0).expect("valid");
        let sent = [curve.service, curve.host].map(|part| part.knots_ns());
        let [service, host] = sent.map(|knots| SizeCurve::through(knots).expect("valid"));
        assert_eq!(CostCurve::new((service, host), curve.lanes, curve.ahead()), Ok(curve));
        assert!(SizeCurve::through([f64::NAN; KNOTS]).is_err());
        assert!(CostCurve::new((service, host), 4.0, (-1.0, 0.0)).is_err());
    }
}
