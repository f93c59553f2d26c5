//! The estimate of the speedup by the model's own equations. Its inputs come from the unaccelerated run and a
//! microbenchmark, not from the accelerated service. Cycles are nanoseconds here, which changes no ratio.

use model::{Design, Parameters, Strategy, Threading, Values};

/// The average request without acceleration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unaccelerated {
    /// The whole time of a request (ns).
    pub(super) request_ns: f64,
    /// The number of kernel calls per request.
    pub(super) calls: f64,
    /// The time of the kernel calls, including the time that they add to the rest of the request (ns).
    pub(super) kernel_ns: f64,
}

/// The cost of a call of the accelerated kernel, measured by a microbenchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Call {
    /// The core waits for the call. The average call takes a fixed time and a time for its bytes.
    Awaited { fixed_ns: f64, bytes_ns: f64 },
    /// The core does other work during the call. A call takes `host_ns` on the host, which includes its
    /// thread switches of `switch_ns` each, and `device_ns` on the device.
    Beside { host_ns: f64, switch_ns: f64, device_ns: f64 },
}

/// The inputs of the model, and its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) values: Values,
    /// The throughput with acceleration divided by that of the unaccelerated run.
    pub(super) speedup: f64,
    /// The speedup by Amdahl's law: the kernel is faster by the accelerator's factor, and nothing else changes.
    pub(super) amdahl: f64,
}

/// Evaluates the model.
///
/// # Errors
/// A parameter is outside its range; the text names it.
pub(super) fn estimate(
    host: Unaccelerated,
    call: Call,
    design: &Design,
) -> Result<Estimate, String> {
    let values = values(host, call, design);
    let parameters = Parameters::new(values).map_err(|error| error.to_string())?;
    let speedup = model::speedup(&parameters, design);
    let peak = match call {
        Call::Awaited { .. } => values.a,
        Call::Beside { device_ns, .. } => (host.kernel_ns / host.calls / device_ns).max(1.0),
    };
    let amdahl = 1.0 / (1.0 - values.alpha + values.alpha / peak);
    Ok(Estimate { values, speedup, amdahl })
}

/// Returns the parameters of the paper's table 5.
fn values(host: Unaccelerated, call: Call, design: &Design) -> Values {
    let alpha = (host.kernel_ns / host.request_ns).min(1.0);
    let call_ns = host.kernel_ns / host.calls;
    let none = Values {
        c: host.request_ns,
        alpha,
        n: host.calls,
        o0: 0.0,
        q: 0.0,
        l: 0.0,
        o1: 0.0,
        a: f64::INFINITY,
    };
    match call {
        Call::Awaited { fixed_ns, bytes_ns } => {
            let a = (call_ns / bytes_ns).max(1.0);
            match design.strategy {
                Strategy::OnChip => Values { o0: fixed_ns, a, ..none },
                Strategy::OffChip | Strategy::Remote => Values { l: fixed_ns, a, ..none },
            }
        }
        Call::Beside { host_ns, switch_ns, .. } => {
            let switches = switches(design);
            // A switch is part of the host's time, so it never takes longer than the host's time.
            let o1 = if switches == 0.0 { 0.0 } else { switch_ns.min(host_ns / switches) };
            Values { o0: (host_ns - switches * o1).max(0.0), o1, ..none }
        }
    }
}

/// Returns the number of thread switches of one offload in the equation for throughput.
fn switches(design: &Design) -> f64 {
    match design.threading {
        Threading::SyncOs => 2.0,
        Threading::AsyncDistinct => 1.0,
        Threading::Sync | Threading::Async | Threading::AsyncNoResponse => 0.0,
    }
}

/// Fits a line to the points (x, y) by least squares. Returns the two parts of y at the mean of x: the part
/// that does not depend on x, and the part that does. Both are at least 0.
pub(super) fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len().max(1) as f64;
    let mean = |value: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
    let covariance = mean(&|point| (point.0 - x) * (point.1 - y));
    let variance = mean(&|point| (point.0 - x).powi(2));
    let slope = if variance > 0.0 { covariance / variance } else { 0.0 };
    let fixed = (y - slope * x).clamp(0.0, y.max(0.0));
    (fixed, (y - fixed).max(f64::MIN_POSITIVE))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Unaccelerated = Unaccelerated { request_ns: 1_000.0, calls: 0.5, kernel_ns: 400.0 };

    fn left_ns(call: Call, threading: Threading, strategy: Strategy) -> f64 {
        let design = Design::new(threading, strategy);
        let estimate = estimate(HOST, call, &design).expect("valid");
        (HOST.request_ns / estimate.speedup).round()
    }

    #[test]
    fn a_request_keeps_its_rest_and_the_calls_remaining_cost() {
        let awaited = Call::Awaited { fixed_ns: 60.0, bytes_ns: 100.0 };
        assert_eq!(left_ns(awaited, Threading::Sync, Strategy::OnChip), 600.0 + 0.5 * 160.0);
        assert_eq!(left_ns(awaited, Threading::Sync, Strategy::OffChip), 600.0 + 0.5 * 160.0);
        let beside = Call::Beside { host_ns: 300.0, switch_ns: 100.0, device_ns: 400.0 };
        for threading in [Threading::Async, Threading::SyncOs, Threading::AsyncDistinct] {
            assert_eq!(left_ns(beside, threading, Strategy::OffChip), 600.0 + 0.5 * 300.0);
        }
        // These switches would take longer than the whole time that the host spends.
        let slow = Call::Beside { host_ns: 300.0, switch_ns: 1_000.0, device_ns: 400.0 };
        assert_eq!(left_ns(slow, Threading::SyncOs, Strategy::OffChip), 600.0 + 0.5 * 300.0);
        assert_eq!(left_ns(beside, Threading::AsyncDistinct, Strategy::Remote), 600.0 + 150.0);
    }

    #[test]
    fn amdahls_law_ignores_overheads() {
        let design = Design::new(Threading::Sync, Strategy::OffChip);
        let awaited = Call::Awaited { fixed_ns: 60.0, bytes_ns: 100.0 };
        let found = estimate(HOST, awaited, &design).expect("valid");
        assert_eq!((found.values.a, found.values.l), (8.0, 60.0));
        assert!((found.amdahl - 1.0 / (0.6 + 0.4 / 8.0)).abs() < 1e-12);
        let beside = Call::Beside { host_ns: 300.0, switch_ns: 0.0, device_ns: 800.0 };
        let design = Design::new(Threading::Async, Strategy::OffChip);
        assert_eq!(estimate(HOST, beside, &design).map(|estimate| estimate.amdahl), Ok(1.0));
        let nothing = Unaccelerated { request_ns: 0.0, ..HOST };
        assert!(estimate(nothing, beside, &design).is_err());
    }

    #[test]
    fn a_line_has_no_part_below_zero() {
        let (fixed, bytes) = line(&[(0.0, 10.0), (10.0, 30.0), (20.0, 50.0)]);
        assert!((fixed - 10.0).abs() < 1e-9 && (bytes - 20.0).abs() < 1e-9);
        let (fixed, bytes) = line(&[(10.0, 5.0), (20.0, 25.0)]);
        assert_eq!((fixed, bytes), (0.0, 15.0));
        let (fixed, bytes) = line(&[(10.0, 5.0), (10.0, 7.0)]);
        assert!(fixed == 6.0 && bytes > 0.0);
    }
}
