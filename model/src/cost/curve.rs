//! The cost as a function of size and depth: plain numbers that policies read and a scheduler may send.

use crate::break_even::BreakEven;
use crate::parameters::BadParameter;

/// The number of bounds of size classes.
pub(super) const KNOTS: usize = 9;
/// The sizes where classes meet (bytes). The last class goes on beyond its end.
pub(super) const KNOT_BYTES: [f64; KNOTS] =
    [0.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 4_194_304.0];

/// Returns the class of a size, and how far along the class it is: 0 at its start, 1 at its end, more beyond the last.
pub(super) fn place(bytes: usize) -> (usize, f64) {
    let class = class_of(bytes);
    let (low, high) = (KNOT_BYTES[class], KNOT_BYTES[class + 1]);
    (class, (bytes as f64 - low) / (high - low))
}

/// Returns the class of a size.
#[inline]
pub(super) fn class_of(bytes: usize) -> usize {
    // Bounds are powers of four from 256 on: class 0 ends at 2^8, class 1 at 2^10.
    ((bytes | 64).ilog2() as usize / 2 - 3).min(KNOTS - 2)
}

/// Time against size: a straight line in each size class, joined at their bounds, never falling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeCurve {
    knots_ns: [f64; KNOTS],
}

/// One size class: `fixed_ns + ns_per_byte * bytes` from `from_bytes` to `to_bytes`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeClass {
    /// The first size (bytes).
    pub from_bytes: u64,
    /// The size where the next class starts (bytes); the last class goes on.
    pub to_bytes: u64,
    /// The time where the line meets size 0 (ns).
    pub fixed_ns: f64,
    /// Its slope (ns per byte).
    pub ns_per_byte: f64,
}

impl SizeCurve {
    /// Makes one line for all sizes: `fixed_ns + ns_per_byte * bytes`.
    pub fn line(fixed_ns: f64, ns_per_byte: f64) -> Result<Self, BadParameter> {
        let valid = "a number of at least 0 and at most 1e15";
        for (field, value) in [("fixed_ns", fixed_ns), ("ns_per_byte", ns_per_byte)] {
            if !(0.0..=1e15).contains(&value) {
                return Err(BadParameter::new(field, value, valid));
            }
        }
        Ok(Self::from_knots(KNOT_BYTES.map(|bytes| fixed_ns + ns_per_byte * bytes)))
    }

    /// Makes a curve through these times (ns) at the bounds of the size classes, such as another process sent. A time
    /// that falls is lifted.
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

    /// Makes a curve through these times at the class bounds. A time that falls is lifted.
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

    /// Returns the line of every size class.
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

    /// Returns the size from which this curve stays below `other` for all larger sizes.
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
        // The last class whose start does not pay has the crossing in it.
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
    /// The host time of one offload: submission, polling, waking. On the calling core it is all of the time.
    pub host: SizeCurve,
    /// The jobs that the device serves at once, as seen from this queue: at depth, it drains `lanes` times as fast as
    /// one job.
    pub lanes: f64,
    /// The line under `service`, of which the jobs ahead are made: its value at size 0 (ns).
    pub(super) ahead_fixed_ns: f64,
    /// Its slope (ns per byte).
    pub(super) ahead_ns_per_byte: f64,
    /// The mean error of a single estimate, as a fraction of it, noise included. It is 1 before anything was seen.
    pub spread: f64,
    /// The number of observations so far.
    pub observations: u64,
}

impl CostCurve {
    /// Makes a curve to start from, such as a device profile's, of service and host as (ns, ns per byte), and the jobs
    /// served at once.
    pub fn prior(service: (f64, f64), host: (f64, f64), lanes: f64) -> Result<Self, BadParameter> {
        let curves = (SizeCurve::line(service.0, service.1)?, SizeCurve::line(host.0, host.1)?);
        Self::new(curves, lanes, service)
    }

    /// Makes a curve from its parts, such as another process sent: service and host, the jobs served at once, and the
    /// line (ns, ns per byte) of the jobs ahead.
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

    /// Returns the line (ns, ns per byte) that the jobs ahead are taken to follow.
    pub const fn ahead(&self) -> (f64, f64) {
        (self.ahead_fixed_ns, self.ahead_ns_per_byte)
    }

    /// Returns the expected time from submission to completion (ns) of a job of `bytes` that finds `depth_jobs` jobs of
    /// `backlog_bytes` in all inside the device.
    pub fn estimate(&self, bytes: usize, depth_jobs: usize, backlog_bytes: usize) -> f64 {
        self.service.at(bytes) + self.wait_ns(depth_jobs, backlog_bytes)
    }

    /// Returns the expected time (ns) until one of the lanes takes the next job.
    pub fn wait_ns(&self, depth_jobs: usize, backlog_bytes: usize) -> f64 {
        let turns = turns(depth_jobs as f64, self.lanes);
        if turns <= 0.0 {
            return 0.0;
        }
        let mean_bytes = backlog_bytes as f64 / depth_jobs as f64;
        turns * (self.ahead_fixed_ns + self.ahead_ns_per_byte * mean_bytes)
    }

    /// Returns the share of the device's time that a load takes: jobs and bytes per second over what all lanes drain.
    pub fn occupancy(&self, jobs_per_s: f64, bytes_per_s: f64) -> f64 {
        let work_ns = jobs_per_s * self.ahead_fixed_ns + bytes_per_s * self.ahead_ns_per_byte;
        work_ns * 1e-9 / self.lanes
    }
}

/// Returns how many mean services a job waits behind `depth` others.
pub(super) fn turns(depth: f64, lanes: f64) -> f64 {
    (depth - lanes + lanes / (lanes + 1.0)).max(0.0) / lanes
}

/// Returns the number of others that are, on average, no reason to wait; more than none.
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
        // Cheaper for small and dear for large jobs is no size to offload from.
        assert_eq!(line(10.0, 2.0).break_even(&line(100.0, 1.0)), BreakEven::Never);
    }

    #[test]
    fn jobs_wait_for_those_ahead() {
        let curve = CostCurve::prior((1_000.0, 1.0), (50.0, 0.0), 1.0).expect("valid");
        assert_eq!(curve.estimate(1_000, 0, 0), 2_000.0);
        // The job waits for half of the one running, and all of the other.
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
