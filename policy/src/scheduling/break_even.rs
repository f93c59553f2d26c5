//! Computes the gain of offloading all jobs of at least a given size, for the current mix of jobs, and the
//! size with the largest gain. It reads curves and rates, and stores nothing.

use model::cost::{CostCurve, SizeCurve};

use super::curve::CLASSES;

/// The known costs of one op.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    pub(super) software: &'a CostCurve,
    /// The device's service time.
    pub(super) service: &'a CostCurve,
    /// The device's service time plus the queueing time.
    pub(super) latency: &'a CostCurve,
    /// The core time of a job on the device, if it was measured. A software job uses the core for its whole
    /// time.
    pub(super) host: Option<&'a CostCurve>,
    /// The share of the time for which cores are busy.
    pub(super) busy: f64,
}

/// The cost of a job by size, in software and on a device: its time plus the wait of other jobs for the core.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs<'a> {
    software: &'a SizeCurve,
    service: &'a SizeCurve,
    latency: &'a SizeCurve,
    host: Option<&'a SizeCurve>,
    busy: f64,
    /// The time that other jobs wait for a core, per time for which it is held.
    pressure: f64,
}

impl<'a> Costs<'a> {
    pub(super) fn new(known: &Known<'a>) -> Self {
        let busy = if known.host.is_some() { known.busy.clamp(0.0, BUSY_MAX) } else { 0.0 };
        Self {
            software: &known.software.service,
            service: &known.service.service,
            latency: &known.latency.service,
            host: known.host.map(|host| &host.service),
            busy,
            pressure: pressure(busy),
        }
    }

    /// Returns the logarithm of a job's cost in software divided by its cost on the device.
    fn gain_ln(&self, bytes: usize) -> f64 {
        let (software, device) = (self.software.at(bytes), self.service.at(bytes));
        let held = self.host.map_or(0.0, |host| host.at(bytes));
        let here = software * (1.0 + self.pressure);
        let there = match is_waited_for(device, self.busy) {
            true => device + (device + held) * self.pressure,
            // If the core is busy when a job completes, the job waits for the core and not for the device. A device
            // that takes less of the core shortens this wait, so the wait must not count against the device.
            false => {
                let beside = (self.latency.at(bytes) - device).max(0.0) * (1.0 - self.busy);
                device + beside + held * self.pressure
            }
        };
        (here.max(1.0) / there.max(1.0)).ln()
    }
}

/// Returns the largest power of two from 2^`low` to 2^`high` bytes for which the core should wait for the
/// device. Returns 0 if there is no such size, or if the cores' load is unknown.
pub(super) fn wait_bytes_max(known: &Known<'_>, (low, high): (usize, usize)) -> u64 {
    let busy = if known.host.is_some() { known.busy.min(BUSY_MAX) } else { 0.0 };
    let pays = |log2: &usize| is_waited_for(known.service.service.at(1 << log2), busy);
    (low..=high).take_while(pays).last().map_or(0, |log2| 1 << log2)
}

/// Returns whether it is cheaper to hold the core while the device works than to release it and resume later.
/// Holding the core makes other jobs wait, and resuming costs the request a task switch.
fn is_waited_for(held_ns: f64, busy: f64) -> bool {
    busy > 0.0 && held_ns < WAIT_NS_MAX && held_ns * pressure(busy) < COME_BACK_NS
}

/// Returns the time that other jobs wait per time for which the core is held. It is the derivative of the mean wait in
/// an M/D/1 queue with respect to the service time.
fn pressure(busy: f64) -> f64 {
    let waiting = busy / (1.0 - busy);
    waiting + waiting * waiting / 2.0
}

/// The gains of all candidates for the size from which jobs are offloaded.
#[derive(Clone, Debug)]
pub(super) struct BreakEven {
    /// The size with the largest gain (log2 of bytes), or the upper end of all sizes if no size gains.
    pub(super) best_log2: f64,
    /// The mean gain over all jobs (natural logarithm), for each candidate from the largest size down.
    gains_ln: Vec<f64>,
    end: usize,
}

impl BreakEven {
    /// Computes the gains for jobs with these rates in the size classes from `low` to `high`.
    pub(super) fn new(
        costs: &Costs<'_>,
        jobs_per_s: &[f64; CLASSES],
        (low, high): (usize, usize),
    ) -> Self {
        let total: f64 = jobs_per_s[low..=high].iter().sum();
        let least = (total * RARE).max(f64::MIN_POSITIVE);
        let all = jobs_per_s[low..=high].iter().map(|rate| rate.max(least)).sum::<f64>();
        let mut gains_ln = vec![0.0];
        let (mut best, mut sum) = (0, 0.0);
        for step in 1..=(high + 1 - low) * STEPS_PER_CLASS {
            let bytes = log2_of(high + 1, step).exp2() as usize;
            let class = high - (step - 1) / STEPS_PER_CLASS;
            let share = jobs_per_s[class].max(least) / all / STEPS_PER_CLASS as f64;
            sum += share * costs.gain_ln(bytes);
            gains_ln.push(sum);
            if sum > gains_ln[best] {
                best = step;
            }
        }
        Self { best_log2: log2_of(high + 1, best), gains_ln, end: high + 1 }
    }

    /// Returns the size to use in place of `now_log2`. It returns `now_log2` if the best size is hardly better.
    pub(super) fn wanted_log2(&self, now_log2: f64) -> f64 {
        let steps = ((self.end as f64 - now_log2) * STEPS_PER_CLASS as f64).round();
        let now = (steps.max(0.0) as usize).min(self.gains_ln.len() - 1);
        let most = self.gains_ln.iter().copied().fold(0.0, f64::max);
        if most - self.gains_ln[now] < WORTH_LN { now_log2 } else { self.best_log2 }
    }
}

fn log2_of(end: usize, step: usize) -> f64 {
    end as f64 - step as f64 / STEPS_PER_CLASS as f64
}

const STEPS_PER_CLASS: usize = 8;

/// The minimum share of the jobs with which a size class counts. Classes with hardly any jobs get this share.
const RARE: f64 = 1e-4;

/// The largest share of time for which a core counts as busy. Reports are not exact enough to tell how long jobs wait
/// for a core that is nearly always busy.
const BUSY_MAX: f64 = 0.9;

/// The cost of releasing the core and resuming later (ns): wake-up, task switch, and work begun meanwhile.
const COME_BACK_NS: f64 = 1_000.0;

/// The maximum device time for which the core waits (ns). Other jobs would notice a longer wait.
const WAIT_NS_MAX: f64 = 20_000.0;

/// The minimum gain over all jobs together (natural logarithm) for which the current size changes. A smaller
/// gain is within the error of the curves.
const WORTH_LN: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(fixed_ns: f64, ns_per_byte: f64) -> CostCurve {
        CostCurve::prior((fixed_ns, ns_per_byte), (0.0, 0.0), 1.0).expect("a line")
    }

    fn jobs(from: usize, to: usize) -> [f64; CLASSES] {
        std::array::from_fn(|class| if (from..=to).contains(&class) { 100.0 } else { 0.0 })
    }

    fn known<'a>(software: &'a CostCurve, device: &'a CostCurve) -> Known<'a> {
        Known { software, service: device, latency: device, host: None, busy: 0.9 }
    }

    #[test]
    fn offloading_pays_from_where_the_lines_cross() {
        let (software, device) = (curve(1_000.0, 4.0), curve(9_000.0, 0.5));
        let costs = Costs::new(&known(&software, &device));
        let break_even = BreakEven::new(&costs, &jobs(7, 16), (7, 16));
        assert!((break_even.best_log2 - 2_286_f64.log2()).abs() < 0.2, "{}", break_even.best_log2);
        assert_eq!(break_even.wanted_log2(11.0), 11.0, "hardly worse");
        assert_eq!(break_even.wanted_log2(14.0), break_even.best_log2);
        assert_eq!(break_even.wanted_log2(40.0), break_even.best_log2);
    }

    #[test]
    fn a_device_slower_at_every_size_is_worth_nothing() {
        let (software, device) = (curve(1_000.0, 4.0), curve(9_000.0, 5.0));
        let costs = Costs::new(&known(&software, &device));
        let break_even = BreakEven::new(&costs, &jobs(7, 16), (7, 16));
        assert_eq!(break_even.best_log2, 17.0);
        assert_eq!(break_even.wanted_log2(10.0), 17.0);
    }

    #[test]
    fn a_rare_bad_size_does_not_decide() {
        let (software, mut knots) = (curve(1_000.0, 4.0), [9_000.0; 9]);
        knots[7..].fill(1e9);
        let odd = SizeCurve::through(knots).expect("valid");
        let device = CostCurve::new((odd, odd), 1.0, (9_000.0, 0.0)).expect("valid");
        let costs = Costs::new(&known(&software, &device));
        let mut rates = jobs(7, 17);
        rates[18] = 0.01;
        let break_even = BreakEven::new(&costs, &rates, (7, 18));
        assert!((break_even.best_log2 - 11.0).abs() < 0.3, "{}", break_even.best_log2);
    }

    #[test]
    fn a_busy_core_makes_what_holds_it_dearer() {
        // The device works longer than software, but takes a tenth of the core's time. Half of its time is spent in
        // waiting.
        let (software, host) = (curve(0.0, 4.0), curve(500.0, 0.0));
        let (service, latency) = (curve(2_000.0, 4.0), curve(4_000.0, 4.0));
        let known = |host, busy| Known {
            software: &software,
            service: &service,
            latency: &latency,
            host,
            busy,
        };
        let from = |host, busy| {
            let costs = Costs::new(&known(host, busy));
            BreakEven::new(&costs, &jobs(7, 16), (7, 16)).best_log2
        };
        let host = Some(&host);
        assert_eq!(from(host, 0.0), 17.0);
        assert!(from(host, 0.7) < from(host, 0.4) && from(host, 0.4) < 17.0);
        assert_eq!(from(None, 0.9), 17.0, "of what the core is held for nothing is known");
    }

    #[test]
    fn an_idle_core_waits_for_short_jobs() {
        let (software, device, host) = (curve(1_000.0, 4.0), curve(2_000.0, 1.0), curve(9.0, 0.0));
        let from = |busy| {
            let host = Some(&host);
            wait_bytes_max(&Known { busy, host, ..known(&software, &device) }, (8, 16))
        };
        assert_eq!((from(0.0), from(0.9)), (0, 0));
        assert!(from(0.1) > from(0.2) && from(0.2) > 0, "{} {}", from(0.1), from(0.2));
        assert!(from(0.001) <= 1 << 14, "however idle, nothing long: {}", from(0.001));
    }
}
