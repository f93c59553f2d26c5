//! Tests cost curves with a virtual device in virtual time. The device serves jobs in order on several lanes. The
//! service time is a fixed time plus a time per byte, with noise. The host sees a few completions late.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use model::cost::{CostCurve, CostFit, Observation};
use units::{Nanos, Prng};

#[derive(Clone, Copy)]
struct Device {
    lanes: usize,
    fixed_ns: f64,
    ns_per_byte: f64,
    noise: f64,
    /// One completion in `late_one_in` is seen a hundred service times late.
    late_one_in: u64,
}

const DEVICE: Device =
    Device { lanes: 4, fixed_ns: 2_000.0, ns_per_byte: 0.5, noise: 0.05, late_one_in: 100 };

impl Device {
    fn service_ns(&self, bytes: usize) -> f64 {
        self.fixed_ns + self.ns_per_byte * bytes as f64
    }

    fn slower(self, times: f64) -> Self {
        let (fixed_ns, ns_per_byte) = (self.fixed_ns * times, self.ns_per_byte * times);
        Self { fixed_ns, ns_per_byte, ..self }
    }
}

/// A queue in front of the device, at which jobs arrive at random.
struct Queue {
    prng: Prng,
    now_ns: f64,
    free_ns: Vec<f64>,
    /// The jobs in flight on the device: (the time at which the job is done (ns), bytes).
    in_flight: Vec<(f64, usize)>,
    unseen: BinaryHeap<Reverse<(u64, usize)>>,
    pending: Vec<Observation>,
    /// The smallest and the largest size (bytes). Sizes are spread evenly over the logarithm.
    sizes: (f64, f64),
    /// A job arrives only if fewer jobs than this are inside the device.
    depth_max: usize,
}

impl Queue {
    fn new(seed: u64) -> Self {
        Self {
            prng: Prng::new(seed),
            now_ns: 1e9,
            free_ns: Vec::new(),
            in_flight: Vec::new(),
            unseen: BinaryHeap::new(),
            pending: Vec::new(),
            sizes: (64.0, 65_536.0),
            depth_max: usize::MAX,
        }
    }

    fn bytes(&mut self) -> usize {
        let (low, high) = self.sizes;
        (low * (high / low).powf(self.prng.unit())) as usize
    }

    /// Makes one job arrive after `gap_ns` on average. Jobs that completed earlier are first passed to `fit`. Then
    /// `before` gets the fit, the job's size, the depth, the backlog, and the latency that the job will have (none if
    /// it is seen late).
    fn job(
        &mut self,
        device: &Device,
        gap_ns: f64,
        fit: &mut CostFit,
        mut before: impl FnMut(&CostFit, usize, usize, usize, Option<f64>),
    ) {
        self.now_ns += -gap_ns * (1.0 - self.prng.unit()).ln();
        if self.in_flight.len() >= self.depth_max {
            let done = self.in_flight.iter().map(|job| job.0);
            self.now_ns = self.now_ns.max(done.fold(f64::INFINITY, f64::min));
        }
        while let Some(Reverse((at, index))) = self.unseen.peek().copied() {
            if at as f64 > self.now_ns {
                break;
            }
            self.unseen.pop();
            if fit.due(Nanos(at)) {
                fit.observe(&self.pending[index]);
            }
        }
        let now_ns = self.now_ns;
        self.in_flight.retain(|(done, _)| *done > now_ns);
        let bytes = self.bytes();
        let (depth, backlog) =
            (self.in_flight.len(), self.in_flight.iter().map(|job| job.1).sum::<usize>());
        self.free_ns.resize(device.lanes, 0.0);
        let next = (0..device.lanes)
            .min_by(|one, other| self.free_ns[*one].total_cmp(&self.free_ns[*other]))
            .expect("lanes");
        let noise = 1.0 + device.noise * (2.0 * self.prng.unit() - 1.0);
        let done = self.free_ns[next].max(now_ns) + device.service_ns(bytes) * noise;
        self.free_ns[next] = done;
        self.in_flight.push((done, bytes));
        let late = self.prng.below(device.late_one_in) == 0;
        let seen = if late { done + 100.0 * device.service_ns(bytes) } else { done };
        before(fit, bytes, depth, backlog, (!late).then_some(done - now_ns));
        self.pending.push(Observation {
            at: Nanos(seen as u64),
            bytes,
            latency: Nanos((seen - now_ns) as u64),
            depth_jobs: depth,
            backlog_bytes: backlog,
            host: Nanos((300.0 + 0.02 * bytes as f64) as u64),
        });
        self.unseen.push(Reverse((seen as u64, self.pending.len() - 1)));
    }

    fn jobs(&mut self, count: usize, device: &Device, gap_ns: f64, fit: &mut CostFit) {
        (0..count).for_each(|_| self.job(device, gap_ns, fit, |_, _, _, _, _| ()));
    }
}

/// The mean size of the draws (bytes): 64 (2^10 - 1) / ln 2^10.
const MEAN_BYTES: usize = 9_445;

fn gap_ns(device: &Device, load: f64) -> f64 {
    device.service_ns(MEAN_BYTES) / device.lanes as f64 / load
}

fn cold() -> CostFit {
    // The prior is wrong by a factor of ten in both coefficients, and in the number of lanes.
    CostFit::new(CostCurve::prior((20_000.0, 0.05), (3_000.0, 0.0), 1.0).expect("valid"))
}

/// Returns the largest relative error of the estimate for an idle device, over sizes that were seen.
fn idle_error(fit: &CostFit, device: &Device) -> f64 {
    let off =
        |bytes: usize| (fit.curve().estimate(bytes, 0, 0) / device.service_ns(bytes) - 1.0).abs();
    [100, 300, 1_000, 4_096, 10_000, 60_000].map(off).into_iter().fold(0.0, f64::max)
}

#[test]
fn it_converges_from_cold_within_some_hundred_jobs() {
    for lanes in [1, 2, 4, 8, 16] {
        for load in [0.1, 0.5, 0.8] {
            let device = Device { lanes, ..DEVICE };
            let (mut fit, mut queue) = (cold(), Queue::new(lanes as u64));
            queue.jobs(400, &device, gap_ns(&device, load), &mut fit);
            let error = idle_error(&fit, &device);
            assert!(error < 0.2, "{lanes} lanes, load {load}: {error} {:?}", fit.curve());
        }
    }
}

#[test]
fn it_follows_a_tenfold_change_within_seconds() {
    for jobs_per_s in [20.0f64, 1_000.0, 20_000.0] {
        for times in [10.0, 0.1] {
            let (mut fit, mut queue) = (cold(), Queue::new(9));
            let gap_ns = 1e9 / jobs_per_s;
            queue.jobs((3.0 * jobs_per_s).max(400.0) as usize, &DEVICE, gap_ns, &mut fit);
            let changed = DEVICE.slower(times);
            queue.jobs((3.0 * jobs_per_s) as usize, &changed, gap_ns, &mut fit);
            let error = idle_error(&fit, &changed);
            assert!(error < 0.25, "{jobs_per_s}/s, {times} times: {error} {:?}", fit.curve());
        }
    }
}

/// On a line through zero an empty job is expected to take no time.
#[test]
fn an_empty_job_does_not_stop_learning() {
    for depth_jobs in [0, 3] {
        let mut fit = CostFit::new(CostCurve::prior((0.0, 1.0), (0.0, 1.0), 1.0).expect("valid"));
        let mut at = Nanos(0);
        let mut one = |fit: &mut CostFit, bytes: usize, latency: u64| {
            at += Nanos::micros(20);
            let (latency, host) = (Nanos(latency), Nanos(latency));
            let backlog_bytes = 0;
            fit.observe(&Observation { at, bytes, latency, depth_jobs, backlog_bytes, host });
        };
        one(&mut fit, 0, 100);
        (0..200).for_each(|_| one(&mut fit, 4_096, 40_960));
        let taken = fit.curve().estimate(4_096, depth_jobs, 0);
        assert!((taken / 40_960.0 - 1.0).abs() < 0.2, "{depth_jobs} ahead: {taken}");
    }
}

/// The device is always full, so no job shows the service time alone. The estimate at that depth must still follow the
/// change.
#[test]
fn it_follows_a_tenfold_change_of_a_saturated_device() {
    for (times, lanes) in [(10.0, 1), (10.0, 4), (0.1, 4)] {
        // The device is slow, so that some seconds have at most some hundred thousand jobs.
        let device = Device { lanes, ..DEVICE }.slower(100.0);
        let (mut fit, mut queue) = (cold(), Queue { depth_max: 32, ..Queue::new(2) });
        let gap_ns = 1.0;
        queue.jobs(5_000, &device, gap_ns, &mut fit);
        let changed = device.slower(times);
        let until = queue.now_ns + 2e9;
        while queue.now_ns < until {
            queue.job(&changed, gap_ns, &mut fit, |_, _, _, _, _| ());
        }
        let (mut estimated, mut taken) = (0.0, 0.0);
        for _ in 0..2_000 {
            queue.job(&changed, gap_ns, &mut fit, |fit, bytes, depth, backlog, took| {
                estimated += took.map_or(0.0, |_| fit.curve().estimate(bytes, depth, backlog));
                taken += took.unwrap_or(0.0);
            });
        }
        let error = estimated / taken - 1.0;
        assert!(error.abs() < 0.15, "{lanes} lanes, {times} times: {error} {:?}", fit.curve());
    }
}

/// Compares the mean estimate with the mean time that jobs then took, at each depth that at least 200 jobs found.
/// Returns the largest error of any depth, and the mean error of a job.
fn errors(device: &Device, load: f64, sizes: (f64, f64)) -> (f64, f64) {
    let (mut fit, mut queue) = (cold(), Queue { sizes, ..Queue::new(5) });
    let mean_bytes = (sizes.1 - sizes.0) / (sizes.1 / sizes.0).ln().max(1e-9);
    let mean_bytes = mean_bytes.max(sizes.0) as usize;
    let gap_ns = device.service_ns(mean_bytes) / device.lanes as f64 / load;
    queue.jobs(3_000, device, gap_ns, &mut fit);
    let mut depths = vec![(0u32, 0.0, 0.0); 400];
    for _ in 0..20_000 {
        queue.job(device, gap_ns, &mut fit, |fit, bytes, depth, backlog, took| {
            if let (Some(took), Some(slot)) = (took, depths.get_mut(depth)) {
                slot.0 += 1;
                slot.1 += fit.curve().estimate(bytes, depth, backlog);
                slot.2 += took;
            }
        });
    }
    let seen: Vec<_> = depths.into_iter().filter(|slot| slot.0 >= 200).collect();
    assert!(seen.len() >= 2, "there was a queue");
    let off = |slot: &(u32, f64, f64)| (slot.1 / slot.2 - 1.0).abs();
    let jobs: u32 = seen.iter().map(|slot| slot.0).sum();
    let mean = seen.iter().map(|slot| f64::from(slot.0) * off(slot)).sum::<f64>() / f64::from(jobs);
    (seen.iter().map(off).fold(0.0, f64::max), mean)
}

/// Each case has a range of sizes (bytes), the bound on the largest error of a depth, and the bound on the
/// mean error. A running job is on average longer than the mean of the jobs in the device. An estimate from
/// jobs and bytes cannot include this, so its errors are larger for mixed sizes.
const MIXES: [((f64, f64), f64, f64); 2] =
    [((4_096.0, 4_096.0), 0.20, 0.07), ((64.0, 65_536.0), 0.30, 0.08)];

#[test]
fn estimates_hold_with_queueing() {
    for (sizes, worst_max, mean_max) in MIXES {
        for lanes in [1, 3, 5, 8, 20] {
            for load in [0.5, 0.9] {
                let (worst, mean) = errors(&Device { lanes, ..DEVICE }, load, sizes);
                let text = format!("{sizes:?}, {lanes} lanes, load {load}: {worst:.3} {mean:.3}");
                println!("{text}");
                assert!(worst < worst_max && mean < mean_max, "{text}");
            }
        }
    }
}

#[test]
fn late_completions_do_not_move_it() {
    let device = Device { late_one_in: 20, ..DEVICE };
    let (mut fit, mut queue) = (cold(), Queue::new(3));
    queue.jobs(2_000, &device, gap_ns(&device, 0.5), &mut fit);
    let error = idle_error(&fit, &device);
    assert!(error < 0.15, "{error}");
}

#[test]
fn host_time_is_learnt_beside() {
    let (mut fit, mut queue) = (cold(), Queue::new(3));
    queue.jobs(500, &DEVICE, gap_ns(&DEVICE, 0.5), &mut fit);
    for bytes in [100, 4_096, 60_000] {
        let expected = 300.0 + 0.02 * bytes as f64;
        let error = fit.curve().host.at(bytes) / expected - 1.0;
        assert!(error.abs() < 0.1, "{bytes}: {error}");
    }
}

/// The costs are not on a line: they are those of software whose large jobs miss the cache.
#[test]
fn size_classes_bend_the_line() {
    let mut prng = Prng::new(1);
    let mut fit = cold();
    let cost =
        |bytes: usize| 200.0 + 1.0 * bytes as f64 + 4.0 * bytes.saturating_sub(16_384) as f64;
    for step in 0..20_000u64 {
        let bytes = (64.0 * 2f64.powf(10.0 * prng.unit())) as usize;
        let latency = Nanos((cost(bytes) * (0.95 + 0.1 * prng.unit())) as u64);
        let at = Nanos(1_000_000 * step);
        let (depth_jobs, backlog_bytes, host) = (0, 0, latency);
        fit.observe(&Observation { at, bytes, latency, depth_jobs, backlog_bytes, host });
    }
    for bytes in [1_024, 4_096, 16_384, 32_768, 65_536] {
        let error = fit.curve().estimate(bytes, 0, 0) / cost(bytes) - 1.0;
        assert!(error.abs() < 0.15, "{bytes}: {error}");
        let host = fit.curve().host.at(bytes) / cost(bytes) - 1.0;
        assert!(host.abs() < 0.15, "{bytes}: {host}");
    }
}

#[test]
fn equal_sizes_leave_the_shape_alone() {
    let prior = CostCurve::prior((1_000.0, 1.0), (100.0, 0.0), 1.0).expect("valid");
    let mut fit = CostFit::new(prior);
    for step in 0..5_000u64 {
        let at = Nanos(1_000_000 * step);
        let (bytes, latency) = (4_096, Nanos(10 * 5_096));
        let (depth_jobs, backlog_bytes, host) = (0, 0, Nanos(100));
        fit.observe(&Observation { at, bytes, latency, depth_jobs, backlog_bytes, host });
    }
    // The line is ten times the prior at the sizes that were seen, so it is also ten times the prior at other sizes.
    for bytes in [64, 4_096, 262_144] {
        let error = fit.curve().estimate(bytes, 0, 0) / (10.0 * prior.estimate(bytes, 0, 0)) - 1.0;
        assert!(error.abs() < 0.02, "{bytes}: {error}");
    }
}

#[test]
fn break_even_between_two_fits_is_the_devices() {
    let software = Device { fixed_ns: 100.0, ns_per_byte: 3.0, late_one_in: 1_000_000, ..DEVICE };
    let fitted = |device: &Device| {
        let (mut fit, mut queue) = (cold(), Queue::new(3));
        queue.jobs(3_000, device, gap_ns(device, 0.3), &mut fit);
        *fit.curve()
    };
    let bytes = fitted(&DEVICE).service.break_even(&fitted(&software).service).bytes();
    // The break-even size g solves 2000 + g/2 = 100 + 3 g.
    assert!((bytes / 760.0 - 1.0).abs() < 0.2, "{bytes}");
}

#[test]
fn a_known_device_is_sampled() {
    let (mut fit, mut queue) = (cold(), Queue::new(3));
    assert!((0..20).all(|_| fit.due(Nanos(0))), "a cold one observes everything");
    queue.jobs(3_000, &DEVICE, gap_ns(&DEVICE, 0.3), &mut fit);
    let now = Nanos(queue.now_ns as u64);
    assert_eq!((0..1_600).filter(|_| fit.due(now)).count(), 100);
    let late = Nanos(now.0 + 2_000_000);
    assert!(fit.due(late), "the first after a pause");
}

#[test]
fn memory_is_constant() {
    fn copies<T: Copy>() -> usize {
        size_of::<T>()
    }
    // A `Copy` type owns nothing on the heap.
    assert!(copies::<CostFit>() <= 2_560, "{}", copies::<CostFit>());
    assert!(copies::<CostCurve>() <= 256);
}

#[test]
#[ignore = "a measurement, asserts nothing and wants a quiet machine: \
            cargo test --release -p model --test suite -- --ignored --nocapture what_it_costs"]
fn what_it_costs() {
    let mut fit = cold();
    let mut prng = Prng::new(1);
    let jobs: Vec<(usize, usize)> =
        (0..4_096).map(|_| (64 + prng.below(1 << 16) as usize, prng.below(32) as usize)).collect();
    let rounds = 500;
    // The fastest round counts, because other work on the machine only adds time.
    let time = |what: &str, each: &mut dyn FnMut(usize, &(usize, usize))| {
        let round_ns = |round: usize| {
            let start = std::time::Instant::now();
            jobs.iter().enumerate().for_each(|(index, job)| each(round * jobs.len() + index, job));
            start.elapsed().as_nanos() as f64 / jobs.len() as f64
        };
        println!("{what}: {:.1} ns", (0..rounds).map(round_ns).fold(f64::INFINITY, f64::min));
    };
    time("observe", &mut |step, (bytes, depth)| {
        let latency = Nanos((2_000.0 + 0.5 * *bytes as f64) as u64 * (1 + *depth as u64 / 4));
        let (at, backlog_bytes, host) = (Nanos(1_000 * step as u64), depth * 30_000, Nanos(300));
        let (bytes, depth_jobs) = (*bytes, *depth);
        fit.observe(&Observation { at, bytes, latency, depth_jobs, backlog_bytes, host });
    });
    let mut due = 0;
    time("due", &mut |_, _| due += u64::from(fit.due(Nanos(0))));
    let mut sum = 0.0;
    let curve = *fit.curve();
    time("estimate", &mut |_, (bytes, depth)| {
        sum += curve.estimate(*bytes, *depth, depth * 30_000)
    });
    println!("({due} {sum:.0} {:?})", curve);
}
