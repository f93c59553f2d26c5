//! Tests policies that use costs, with the runtime and in virtual time. From the costs of completed jobs they
//! must choose the better arm when the device is idle, when it is busy, and when it changes. There is one
//! core with a run queue and software, and a device with one engine. The times are similar to those of
//! BlueField-2. Nothing is measured.

mod machine;
mod on_loop;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::common::*;
use device::machine::{Load, p99_us, settled};
use device::{Class, Job};
use machine::{Done, Machine};
use parking_lot::Mutex;
use policy::{
    AlwaysSoftware, AsyncOffload, Choice, JobFacts, LeastHostCycles, LeastLatency, Placement,
    Policy, Reason, Snapshot, SyncOffload,
};
use runtime::{CoreConfig, CoreLoop};
use units::{ManualClock, Nanos};

fn least_latency() -> Arc<dyn Policy> {
    Arc::new(LeastLatency { inline_bytes_max: 256 << 10 })
}

fn statics() -> [Arc<dyn Policy>; 3] {
    [
        Arc::new(AlwaysSoftware),
        Arc::new(SyncOffload { work_bytes_min: 0 }),
        Arc::new(AsyncOffload { work_bytes_min: 0 }),
    ]
}

fn run(policy: Arc<dyn Policy>, load: &Load) -> Vec<Done> {
    Machine::new(policy).run(load)
}

fn at_rate(per_second: f64) -> Load {
    Load::new(20_000, per_second)
}

/// Returns the jobs of a run without those in which the costs are learnt.
fn settled_at(policy: Arc<dyn Policy>, per_second: f64) -> Vec<Done> {
    let done = run(policy, &at_rate(per_second));
    settled(&done).copied().collect()
}

/// Returns the offloaded share of the jobs of these sizes that the policy placed without a probe.
fn offloaded(done: &[Done], sizes: Range<usize>) -> f64 {
    let chosen = done
        .iter()
        .filter(|one| one.result.reason != Reason::Probe && sizes.contains(&one.job.bytes));
    let (mut offloaded, mut all) = (0, 0);
    for one in chosen {
        offloaded += u32::from(one.result.device != 0);
        all += 1;
    }
    assert!(all > 0, "no job of {sizes:?}");
    f64::from(offloaded) / f64::from(all)
}

#[test]
fn at_low_load_each_size_goes_where_it_is_faster() {
    let done = settled_at(least_latency(), 10e3);
    // Below 310 bytes, software completes first.
    assert!(offloaded(&done, 0..200) < 0.05, "{}", offloaded(&done, 0..200));
    assert!(offloaded(&done, 500..usize::MAX) > 0.95, "{}", offloaded(&done, 500..usize::MAX));
    let probes = done.iter().filter(|one| one.result.reason == Reason::Probe).count();
    assert!(probes > 0 && probes * 100 < done.len(), "{probes} probes");
}

#[test]
fn it_follows_the_better_place_at_every_load() {
    println!("p99 (us): software, sync, async; least latency");
    let mut wins = 0;
    for per_second in [10e3, 100e3, 300e3, 400e3, 460e3] {
        let p99 = |policy| p99_us(settled_at(policy, per_second).iter());
        let others = statics().map(p99);
        let least = p99(least_latency());
        println!("{per_second:>8} {others:8.1?} {least:8.1}");
        let best = others.into_iter().fold(f64::INFINITY, f64::min);
        assert!(least <= 1.10 * best, "{per_second}: {least} against {others:?}");
        wins += usize::from(least < 0.95 * best);
    }
    assert!(wins >= 2, "better than every static policy at {wins} loads");
}

/// Returns the median and the 99th percentile (us) of the jobs after the first fifth.
fn on_our_loop(policy: Arc<dyn Policy>, load: on_loop::Load) -> [f64; 2] {
    let mut took = on_loop::run(policy, load);
    let mut took = took.split_off(took.len() / 5);
    took.sort_unstable();
    [50, 99].map(|percent| took[(took.len() - 1) * percent / 100].0 as f64 / 1e3)
}

/// Returns a load of this many jobs per second, whose placement takes no time, on a machine without pauses.
const fn alone(per_second: f64, jobs: u32) -> on_loop::Load {
    on_loop::Load { per_second, jobs, takes: Nanos(0), pauses: false }
}

/// Returns a load on a machine that pauses. The requests' time is chosen so that the medians of `AsyncOffload` from
/// 100,000 to 400,000 jobs per second equal those in bench/results/2c/runtime.json: 6.3, 6.6, 6.9, 7.9 and 9.6 us.
const fn beside(per_second: f64, jobs: u32) -> on_loop::Load {
    on_loop::Load { takes: Nanos(500), pauses: true, ..alone(per_second, jobs) }
}

/// Returns the 99th percentiles (us) of `LeastLatency` and of offloading everything.
fn beside_offloading(load: on_loop::Load) -> [f64; 2] {
    let offload = Arc::new(AsyncOffload { work_bytes_min: 0 });
    [least_latency(), offload].map(|policy| on_our_loop(policy, load)[1])
}

/// A regression test. At this load most jobs find at most one other job in the device. The runtime must not
/// learn the device's time for two jobs from its own expectation. Otherwise a third of the jobs is not sent
/// to the device, and the 99th percentile is 1.4 times as high.
#[test]
fn expectations_of_an_idle_device_do_not_confirm_themselves() {
    let [least, offloads] = beside_offloading(alone(75e3, 12_000));
    assert!(least <= 1.12 * offloads, "{least} against {offloads}");
}

/// Tests a load at which a core's pause delays many jobs (docs/measurements/offload-runtime.md).
#[test]
fn it_holds_a_busy_core_for_less() {
    let [least, offloads] = beside_offloading(beside(400e3, 40_000));
    assert!(least <= 1.08 * offloads, "{least} against {offloads}");
}

/// A policy that counts how often it is called. It can be made to return nothing from `valid_between`.
struct CountingPolicy {
    inner: Arc<dyn Policy>,
    says_what_is_valid: bool,
    times: AtomicUsize,
}

impl Policy for CountingPolicy {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn uses_costs(&self) -> bool {
        self.inner.uses_costs()
    }

    fn place(&self, job: &JobFacts, snapshot: &Snapshot<'_>, draw: u64) -> Choice {
        self.times.fetch_add(1, Ordering::Relaxed);
        self.inner.place(job, snapshot, draw)
    }

    fn valid_between(
        &self,
        choice: Choice,
        job: &JobFacts,
        least: &Snapshot<'_>,
        most: &Snapshot<'_>,
    ) -> Option<u32> {
        self.inner.valid_between(choice, job, least, most).filter(|_| self.says_what_is_valid)
    }
}

/// Compares cached decisions with a policy that is called for every job. Every job takes the same time in both cases,
/// to the nanosecond. It is therefore placed the same way, including probes, and the runtime learns the same.
#[test]
fn an_answer_that_stands_is_the_one_that_would_be_given() {
    let host_cycles: Arc<dyn Policy> =
        Arc::new(LeastHostCycles { latency_max: Nanos::micros(30), inline_bytes_max: 4_000 });
    for (policy, per_second) in
        [(least_latency(), 50e3), (least_latency(), 300e3), (host_cycles, 300e3)]
    {
        let load = beside(per_second, 10_000);
        let run = |says_what_is_valid| {
            let (inner, times) = (Arc::clone(&policy), AtomicUsize::new(0));
            let policy = Arc::new(CountingPolicy { inner, says_what_is_valid, times });
            let took = on_loop::run(Arc::clone(&policy) as _, load);
            (took, policy.times.load(Ordering::Relaxed))
        };
        let ((took, asked), (expected, always)) = (run(true), run(false));
        println!("{} at {per_second}/s: asked {asked} times of {always}", policy.name());
        assert_eq!(always, load.jobs as usize);
        assert!(asked < always / 2, "{asked}");
        assert_eq!(took, expected);
    }
}

#[test]
#[ignore = "prints a table, asserts nothing, some minutes: cargo test --release -p runtime --test suite \
            what_weighing -- --ignored --nocapture"]
fn what_weighing_adds_on_our_loop() {
    const LOADS: [f64; 10] = [10e3, 25e3, 50e3, 75e3, 100e3, 150e3, 200e3, 300e3, 400e3, 500e3];
    let row = |name: &str, policy: Arc<dyn Policy>, load: &dyn Fn(f64) -> on_loop::Load| {
        print!("{name:32}");
        for per_second in LOADS {
            let [p50, p99] = on_our_loop(Arc::clone(&policy), load(per_second));
            print!(" {p50:5.1}/{p99:5.1}");
        }
        println!();
    };
    println!("p50/p99 (us) by load");
    let offload: Arc<dyn Policy> = Arc::new(AsyncOffload { work_bytes_min: 0 });
    row("async", Arc::clone(&offload), &|per_second| alone(per_second, 100_000));
    row("async, requests, pauses", offload, &|per_second| beside(per_second, 200_000));
    for weighing in [0, 75, 150, 300].map(Nanos) {
        let with = |load: on_loop::Load| on_loop::Load { takes: load.takes + weighing, ..load };
        let name = format!("least, {} ns", weighing.0);
        row(&name, least_latency(), &|per_second| with(alone(per_second, 100_000)));
        let name = format!("{name}, requests, pauses");
        row(&name, least_latency(), &|per_second| with(beside(per_second, 200_000)));
    }
}

/// Measures the pauses of a thread that does nothing but read the clock.
#[test]
#[ignore = "prints what this machine does, asserts nothing, ten seconds: cargo test --release -p runtime --test suite \
            what_pauses -- --ignored --nocapture"]
fn what_pauses_the_machine_makes() {
    const SECONDS: u64 = 10;
    let last = units::cores::allowed().expect("known").pop().expect("one");
    units::cores::pin(last).expect("this process's");
    let (start, mut counts) = (Instant::now(), [0_u64; on_loop::Pauses::MEASURED.len()]);
    let mut before = start;
    while before.duration_since(start).as_secs() < SECONDS {
        let now = Instant::now();
        let took = now.duration_since(before).as_nanos() as u64;
        let class = on_loop::Pauses::MEASURED.iter().position(|(_, range)| range.contains(&took));
        if let Some(class) = class {
            counts[class] += 1;
        }
        before = now;
    }
    for ((before, range), count) in on_loop::Pauses::MEASURED.iter().zip(counts) {
        println!("{range:?} ns: {:.1} a second, drawn {before}", count as f64 / SECONDS as f64);
    }
}

#[test]
fn it_leaves_a_device_that_slows_tenfold_and_comes_back() {
    const SLOW: usize = 10_000;
    const FAST: usize = 40_000;
    const LEAVES_WITHIN: usize = 500;
    /// The number of jobs within which the device is used again: less than half a second. Only probes see a device that
    /// is not chosen.
    const RETURNS_WITHIN: usize = 20_000;
    let load = Load { slow: Some((SLOW..FAST, 10.0)), ..Load::new(80_000, 50e3) };
    let mut done = run(least_latency(), &load);
    done.sort_by_key(|one| one.job.index);
    let all = 0..usize::MAX;
    let share = |jobs: Range<usize>| offloaded(&done[jobs], all.clone());
    let before = share(SLOW / 2..SLOW);
    let first = share(SLOW + LEAVES_WITHIN..SLOW + 2 * LEAVES_WITHIN);
    let during = share(SLOW + LEAVES_WITHIN..FAST);
    let after = share(FAST + RETURNS_WITHIN..load.jobs);
    println!(
        "offloaded: before {before:.3}, at first {first:.3}, slow {during:.3}, after {after:.3}"
    );
    assert!(first < 0.1 && during < 0.05, "{first} {during}");
    assert!(after > 0.8 * before, "{after} against {before}");
}

#[test]
fn least_host_cycles_spares_the_core_within_its_bound() {
    let policy = LeastHostCycles { latency_max: Nanos::micros(100), inline_bytes_max: 256 << 10 };
    let policy: Arc<dyn Policy> = Arc::new(policy);
    for per_second in [50e3, 300e3] {
        let done = settled_at(Arc::clone(&policy), per_second);
        // An offload takes half a microsecond of the core, and software takes at least 1.6 us.
        assert!(offloaded(&done, 0..usize::MAX) > 0.95, "{per_second}");
    }
    let tight = LeastHostCycles { latency_max: Nanos::micros(3), inline_bytes_max: 256 << 10 };
    let done = settled_at(Arc::new(tight), 10e3);
    // From 4 KiB on, no arm completes within 3 us, and the device is the quicker arm. Small jobs are still offloaded to
    // spare the core.
    assert!(offloaded(&done, 64..300) > 0.9 && offloaded(&done, 4_096..8_192) > 0.9);
}

#[test]
fn latency_critical_jobs_keep_their_latency_beside_batch_jobs() {
    let done = run(least_latency(), &Load { batch: 0.5, ..at_rate(400e3) });
    let p99 = |class| p99_us(settled(&done).filter(|one| one.job.class == class));
    assert!(p99(Class::LatencyCritical) < p99(Class::Batch));
}

/// A policy that records its inputs, and offloads everything.
#[derive(Default)]
struct Shown(Mutex<Vec<(usize, Option<Nanos>, bool)>>);

impl Policy for Shown {
    fn name(&self) -> &'static str {
        "shown"
    }

    fn uses_costs(&self) -> bool {
        true
    }

    fn place(&self, job: &JobFacts, snapshot: &Snapshot<'_>, _: u64) -> Choice {
        let mut shown = self.0.lock();
        shown.push((snapshot.waiting, snapshot.gap, job.last.is_some()));
        let reason = if shown.len() == 1 { Reason::Probe } else { Reason::Policy };
        Choice::to(DEVICE, Placement::Async, reason)
    }
}

#[test]
fn our_loop_tells_the_policy_how_many_tasks_wait() {
    let (device, policy) = (Script::polled(), Arc::new(Shown::default()));
    let clock = ManualClock::default();
    let mut config = config(vec![software(), Arc::clone(&device) as _], Arc::new(clock.clone()));
    config.policy = Arc::clone(&policy) as _;
    let core_loop = CoreLoop::new(CoreConfig::new(config)).expect("the devices open");
    let pool = device::Pool::heap(units::ByteCount(0));
    for _ in 0..4 {
        let (core, job) = (core_loop.core().clone(), compress(&pool, 2));
        let (device, clock) = (Arc::clone(&device), clock.clone());
        core_loop.core().spawn(async move {
            clock.advance(Nanos(500));
            let job = core.run(job);
            device.do_one();
            job.await;
        });
    }
    core_loop.run();
    let shown = policy.0.lock();
    let waiting: Vec<_> = shown.iter().map(|(waiting, ..)| *waiting).collect();
    assert_eq!(waiting, [3, 2, 1, 0]);
    assert!(shown.iter().all(|(_, gap, _)| gap.is_some_and(|gap| gap.0 > 0)));
    let last: Vec<_> = shown.iter().map(|(.., last)| *last).collect();
    assert_eq!(last, [false, false, true, true], "a probe is no place to stay");
}

#[test]
fn unclaimed_jobs_count_as_waiting_for_the_core() {
    let (device, policy) = (Script::polled(), Arc::new(Shown::default()));
    let shown = Arc::clone(&policy);
    let mut rig = Rig::with(Arc::clone(&device) as _, |config| config.policy = policy);
    let first = [rig.submit(1), rig.submit(2), rig.submit(3)];
    (0..3).for_each(|_| device.do_one());
    rig.core.turn();
    let mut submit = || {
        rig.submit(4);
        shown.0.lock().last().expect("it was asked").0
    };
    assert_eq!(submit(), 3);
    rig.finished(first[0]);
    rig.core.detach(first[1]);
    rig.submit(5);
    assert_eq!(shown.0.lock().last().expect("it was asked").0, 1);
}

#[test]
fn weighing_costs_takes_no_allocation_per_job() {
    let mut machine = Machine::new(least_latency());
    let mut job: Option<Box<Job>> = Some(machine.job(2_000));
    let mut jobs = |count: usize| {
        for _ in 0..count {
            job = job.take().map(|job| machine.one(job));
        }
    };
    jobs(5_000);
    let counted = allocation_counter::measure(|| jobs(5_000));
    assert_eq!(counted.count_total, 0);
}
