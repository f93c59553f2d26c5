//! A cost curve that is prepared for one estimate per job. For each size class it stores the straight lines of the
//! service time and the host time over the size. It also stores the extra time of a queue, with all divisions done
//! beforehand. Its estimates equal those of the curve except for rounding. It does not learn.

use super::curve::{CostCurve, KNOTS, class_of, free_jobs};

/// The cost of jobs on one device from its [`CostCurve`], prepared for fast estimates.
#[derive(Clone, Copy, Debug)]
pub struct Estimates {
    classes: [Class; KNOTS - 1],
    /// The number of jobs ahead up to which a job does not wait.
    free_jobs: f64,
    /// The time that each further job ahead adds: `wait_ns` (ns), and `wait_ns_per_byte` per byte of the mean size of
    /// the jobs ahead.
    wait_ns: f64,
    wait_ns_per_byte: f64,
}

/// The straight lines of the service time and of the host time over the size in one size class. Each line is (ns, ns
/// per byte).
#[derive(Clone, Copy, Debug)]
struct Class {
    service: [f64; 2],
    host: [f64; 2],
}

impl Estimates {
    /// Prepares the estimates of this curve.
    pub fn new(curve: &CostCurve) -> Self {
        let (service, host) = (curve.service.classes(), curve.host.classes());
        let classes = std::array::from_fn(|class| {
            let [service, host] =
                [service[class], host[class]].map(|line| [line.fixed_ns, line.ns_per_byte]);
            Class { service, host }
        });
        let (ahead_ns, ahead_ns_per_byte) = curve.ahead();
        Self {
            classes,
            free_jobs: free_jobs(curve.lanes),
            wait_ns: ahead_ns / curve.lanes,
            wait_ns_per_byte: ahead_ns_per_byte / curve.lanes,
        }
    }

    /// Returns the time that [`CostCurve::estimate`] returns and the host time of the job (both ns).
    #[inline]
    pub fn at(&self, bytes: usize, depth_jobs: usize, backlog_bytes: usize) -> (f64, f64) {
        let Class { service, host } = &self.classes[class_of(bytes)];
        let size = real(bytes);
        let service_ns = service[0] + service[1] * size;
        let host_ns = host[0] + host[1] * size;
        (service_ns + self.wait_ns(depth_jobs, backlog_bytes), host_ns)
    }

    #[inline]
    fn wait_ns(&self, depth_jobs: usize, backlog_bytes: usize) -> f64 {
        let depth = real(depth_jobs);
        let jobs_ahead = depth - self.free_jobs;
        // This also holds without jobs ahead, which would have no mean size.
        if jobs_ahead <= 0.0 {
            return 0.0;
        }
        let mean_bytes = real(backlog_bytes) / depth;
        jobs_ahead * (self.wait_ns + self.wait_ns_per_byte * mean_bytes)
    }
}

/// Returns a count as a floating-point number. The conversion goes through a signed integer, which takes one
/// instruction. From an unsigned integer it would take five. Counts of a machine fit into a signed integer.
#[inline]
fn real(count: usize) -> f64 {
    count as i64 as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{CostFit, Observation};
    use units::Nanos;

    fn agree(curve: &CostCurve) {
        let estimates = Estimates::new(curve);
        for bytes in [0, 1, 255, 256, 1_000, 5_000, 70_000, 1 << 20, 5 << 20, 1 << 33] {
            for depth in [0, 1, 2, 3, 4, 5, 31, 256] {
                let backlog = depth * 3_000;
                let (latency_ns, host_ns) = estimates.at(bytes, depth, backlog);
                let expected = [curve.estimate(bytes, depth, backlog), curve.host.at(bytes)];
                for (estimated, expected) in [latency_ns, host_ns].into_iter().zip(expected) {
                    let off = (estimated - expected).abs();
                    assert!(off <= 1e-9 * expected, "{bytes} {depth}: {estimated} {expected}");
                }
            }
        }
    }

    #[test]
    fn they_say_what_the_curve_says() {
        for lanes in [1.0, 2.5, 4.0, 64.0] {
            agree(&CostCurve::prior((1_000.0, 0.7), (300.0, 0.02), lanes).expect("valid"));
        }
        agree(&CostCurve::prior((0.0, 0.0), (0.0, 0.0), 1.0).expect("valid"));
        let prior = CostCurve::prior((1_000.0, 0.7), (300.0, 0.02), 4.0).expect("valid");
        let mut fit = CostFit::new(prior);
        for step in 0..500_u64 {
            let bytes = 64 << (step % 13);
            let took = 900 + bytes as u64 / 3 + (step * step) % 400;
            let (latency, host) = (Nanos(took * (1 + step % 3)), Nanos(took / 4));
            let (depth_jobs, backlog_bytes) = ((step % 3) as usize, (step % 3) as usize * 2_000);
            let at = Nanos(10_000 * step);
            fit.observe(&Observation { at, bytes, latency, depth_jobs, backlog_bytes, host });
        }
        agree(fit.curve());
    }
}
