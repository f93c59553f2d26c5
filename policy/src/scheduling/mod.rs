//! The scheduler's logic. The reports of processes on their jobs, by size, become cost curves per op and
//! device (`curve`). The curves become parameters of [`crate::FittedOffload`]: the size from which a device
//! pays (`break_even`, `control`), and the share that each device gets. The logic is pure: reports and the
//! time are arguments. It does not depend on who reports. A reporter that is far from the others is outvoted.
//! A single reporter is trusted only as fast as the curves follow.
//!
//! The scheduler compares devices by two times. The first is the current time of jobs from submission to
//! completion, including a device's queue and the path to it. The second is the time of a job on the calling
//! core: the busier the core is, the longer other jobs wait for it.

mod break_even;
mod control;
mod curve;

use std::collections::BTreeMap;

use model::cost::{CostCurve, SizeCurve};
use units::{Nanos, Op};

use break_even::{BreakEven, Costs, Known, wait_bytes_max};
use control::{Control, Levels, Waits};
use curve::{CLASSES, Curve};

/// The jobs of one process with one op on one device since its last report.
#[derive(Clone, Copy, Debug)]
pub struct JobReport<'a> {
    /// The name of the process.
    pub reporter: &'a str,
    /// The kind of work.
    pub op: Op,
    /// The device's name.
    pub device: &'a str,
    /// The time that the report covers.
    pub covered: Nanos,
    /// The share of the covered time for which the process's cores were busy, 0 to 1. It is 0 if it is not known.
    pub busy: f64,
    /// The sums by size class. Each class occurs once.
    pub sizes: &'a [SizeSums],
}

/// The sums of the jobs with at least 2^log2 bytes and less than 2^(log2+1) bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeSums {
    /// The size class.
    pub log2: u32,
    /// The number of jobs.
    pub jobs: u64,
    /// The sum of the jobs' sizes (bytes).
    pub work_bytes: u64,
    /// The sum of the service times of the jobs (ns).
    pub service_ns: u64,
    /// The sum of the queueing times of the jobs (ns).
    pub queueing_ns: u64,
    /// The number of jobs whose time on the calling core was measured.
    pub host_jobs: u64,
    /// The sum of the measured times on the calling core (ns).
    pub host_ns: u64,
}

/// The decision about one op on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The kind of work.
    pub op: Op,
    /// The device's name.
    pub device: String,
    /// The size below which jobs are not offloaded to the device (bytes).
    pub bytes_min: u64,
    /// The device's share, 1 to [`WEIGHT_MAX`].
    pub weight: u16,
    /// The largest job for which the calling thread waits (bytes). It is 0 if the thread waits for no job.
    pub wait_bytes_max: u64,
}

/// The knowledge about one op on one device.
#[derive(Clone, Copy, Debug)]
pub struct Fitted<'a> {
    /// The kind of work.
    pub op: Op,
    /// The device's name.
    pub device: &'a str,
    /// The curve of the service time.
    pub service: &'a CostCurve,
    /// The curve of the current time from submission to completion.
    pub latency: &'a CostCurve,
    /// The curve of a job's time on the calling core, if it was measured. It is none in software.
    pub host: Option<&'a CostCurve>,
    /// The number of jobs from which this was learnt.
    pub jobs: u64,
    /// The number of jobs whose reported values are impossible.
    pub refused_jobs: u64,
    /// The number of times that a process reported a value far from the value on which all reporting processes agree.
    pub doubted: u64,
    /// The sizes of the op that occurred recently (bytes): the start of the smallest class and the end of the largest.
    pub seen_bytes: Option<(u64, u64)>,
    /// The size from which the device pays by the current curves (bytes). The decision follows it.
    pub break_even_bytes: Option<u64>,
    /// The decision about this op and device. It is none for software, or if too little is known.
    pub decision: Option<&'a Decision>,
}

/// The time of all jobs in software, divided by their time with offloading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// The gain according to the curves if each job ran where the decisions send it.
    pub predicted: f64,
    /// The gain of the jobs as they ran.
    pub measured: f64,
}

/// The scheduler's state: everything that it has learnt and decided.
#[derive(Debug)]
pub struct Scheduling {
    tick: Nanos,
    next_tick: Nanos,
    ops: BTreeMap<Op, OpState>,
    probe_every: u32,
    rate: Rate,
    /// The number of reports that were dropped for lack of space.
    pub left_out: u64,
}

/// The smoothed rate of jobs of all ops (jobs per second), and the jobs reported since it was updated.
#[derive(Debug)]
struct Rate {
    jobs_per_s: f64,
    since: Nanos,
    jobs: f64,
}

impl Rate {
    fn count(&mut self, report: &JobReport<'_>, tick: Nanos) {
        let jobs = report.sizes.iter().map(|sums| sums.jobs as f64).sum::<f64>();
        // The first report of a process covers its whole life.
        self.jobs += jobs * (tick.0 as f64 / report.covered.0.max(1) as f64).min(1.0);
    }

    fn end(&mut self, now: Nanos) {
        let seconds = now.since(self.since).0 as f64 / 1e9;
        if seconds > 0.0 {
            self.jobs_per_s += (self.jobs / seconds - self.jobs_per_s) / RATE_TICKS;
            (self.jobs, self.since) = (0.0, now);
        }
    }

    /// Returns the number of jobs per probe, so that about one probe happens in [`PROBE_WITHIN_S`] seconds. The result
    /// is `now_every` unless the new number differs from it by more than a factor of 1.7.
    fn probe_every(&self, now_every: u32) -> u32 {
        let (most, least) = (f64::from(PROBE_EVERY), f64::from(PROBE_EVERY_COLD));
        let wanted = (self.jobs_per_s * PROBE_WITHIN_S).clamp(least, most).log2();
        let is_near = (wanted - f64::from(now_every).log2()).abs() <= PROBE_BAND_LOG2;
        if is_near { now_every } else { 1 << wanted.round() as u32 }
    }
}

/// The devices of one op.
#[derive(Debug)]
struct OpState {
    since: Nanos,
    /// The times when each size class last occurred.
    seen: [Nanos; CLASSES],
    /// The smoothed share of time for which the cores are busy.
    busy: f64,
    devices: BTreeMap<String, DeviceState>,
}

#[derive(Debug)]
struct DeviceState {
    curve: Curve,
    control: Control,
    waits: Waits,
    /// The last break-even size that was computed (the logarithm to base 2 of bytes), for reports.
    proposed_log2: Option<f64>,
    decision: Option<Decision>,
    /// The name of the process whose report first named the device.
    reporter: Box<str>,
}

impl DeviceState {
    fn new(reporter: &str) -> Self {
        let (curve, control, reporter) = (Curve::new(), Control::new(), reporter.into());
        let waits = Waits::default();
        Self { curve, control, waits, proposed_log2: None, decision: None, reporter }
    }
}

impl Scheduling {
    /// Creates a scheduler that decides at most once per `tick`. Reports should arrive at least as often.
    pub fn new(tick: Nanos) -> Self {
        let (ops, next_tick) = (BTreeMap::new(), Nanos(0));
        let rate = Rate { jobs_per_s: 0.0, since: Nanos(0), jobs: 0.0 };
        Self { tick, next_tick, ops, probe_every: PROBE_EVERY_COLD, rate, left_out: 0 }
    }

    /// Sets the shortest time between decisions.
    pub fn set_tick(&mut self, tick: Nanos) {
        self.tick = tick;
    }

    /// Updates the curves with a report.
    pub fn observe(&mut self, report: &JobReport<'_>, now: Nanos) {
        if !report.sizes.iter().any(|sums| sums.jobs > 0) || !self.has_capacity(report, now) {
            return;
        }
        self.rate.count(report, self.tick);
        let op = self.ops.entry(report.op).or_insert_with(|| OpState {
            since: now,
            seen: [Nanos(0); CLASSES],
            busy: 0.0,
            devices: BTreeMap::new(),
        });
        op.busy += (report.busy.clamp(0.0, 1.0) - op.busy) / BUSY_REPORTS;
        let name = report.device;
        if !op.devices.contains_key(name) {
            op.devices.insert(name.to_owned(), DeviceState::new(report.reporter));
        }
        if let Some(state) = op.devices.get_mut(name) {
            for class in state.curve.observe(report, self.tick, now) {
                op.seen[class] = now;
            }
        }
    }

    /// Returns whether the report's curve exists or may be created. To make space, this may remove a curve that had no
    /// report for a long time.
    fn has_capacity(&mut self, report: &JobReport<'_>, now: Nanos) -> bool {
        let known = self.ops.get(&report.op);
        if known.is_some_and(|op| op.devices.contains_key(report.device)) {
            return true;
        }
        let all = || self.ops.values().flat_map(|op| op.devices.values());
        let is_reporters = |device: &DeviceState| *device.reporter == *report.reporter;
        let has_its_part =
            all().filter(|device| is_reporters(device)).count() >= REPORTER_CURVES_MAX;
        if !has_its_part && all().count() < CURVES_MAX {
            return true;
        }
        let devices = self.ops.iter().flat_map(|(op, state)| {
            state.devices.iter().map(move |(name, device)| (device, *op, name))
        });
        let evictable = devices.filter(|(device, ..)| !has_its_part || is_reporters(device));
        let devices = evictable.map(|(device, op, name)| (device.curve.last(), op, name));
        let oldest = devices.min_by_key(|(last, ..)| *last);
        let evicted = oldest.filter(|(last, ..)| now.since(*last) >= STALE);
        let Some((_, op, name)) = evicted.map(|(last, op, name)| (last, op, name.clone())) else {
            self.left_out += 1;
            return false;
        };
        if let Some(op) = self.ops.get_mut(&op) {
            op.devices.remove(&name);
        }
        true
    }

    /// Makes new decisions if it is time. Returns whether any decision changed.
    pub fn decide(&mut self, now: Nanos) -> bool {
        if now < self.next_tick {
            return false;
        }
        self.next_tick = Nanos(now.0.saturating_add(self.tick.0));
        let mut changed = false;
        for (op, state) in &mut self.ops {
            changed |= state.decide(*op, now);
        }
        let cold = |op: &OpState| now.since(op.since) < COLD && op.is_undecided();
        let is_cold = self.ops.values().any(cold) || self.ops.is_empty();
        self.rate.end(now);
        let probe_every =
            if is_cold { PROBE_EVERY_COLD } else { self.rate.probe_every(self.probe_every) };
        changed |= probe_every != self.probe_every;
        self.probe_every = probe_every;
        changed
    }

    /// Returns the current decisions, by op and device.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        let devices = self.ops.values().flat_map(|op| op.devices.values());
        devices.filter_map(|device| device.decision.as_ref())
    }

    /// Returns the number of jobs per probe. A probe runs on a device that the decisions do not select.
    pub fn probe_every(&self) -> u32 {
        self.probe_every
    }

    /// Returns the curves, counts and decisions by op and device.
    pub fn fitted(&self, now: Nanos) -> impl Iterator<Item = Fitted<'_>> {
        self.ops.iter().flat_map(move |(op, state)| {
            let seen = state.seen(now);
            state.devices.iter().map(move |(name, device)| Fitted {
                op: *op,
                device: name,
                service: device.curve.service(),
                latency: device.curve.latency(),
                host: device.curve.host(),
                jobs: device.curve.jobs,
                refused_jobs: device.curve.refused_jobs,
                doubted: device.curve.doubted,
                seen_bytes: seen.map(|(low, high)| (1 << low, 1 << (high + 1))),
                break_even_bytes: device.proposed_log2.map(|log2| log2.exp2().round() as u64),
                decision: device.decision.as_ref(),
            })
        })
    }

    /// Returns the gain of offloading for these jobs of one op. `ran` has the sums of jobs with the device on
    /// which they ran. Returns none if software's cost is not known. For jobs that ran on a device, the time
    /// in software is an estimate from the current curve.
    pub fn gain<'a>(
        &self,
        op: Op,
        ran: impl IntoIterator<Item = (&'a str, SizeSums)>,
    ) -> Option<Gain> {
        let state = self.ops.get(&op)?;
        let software = &state.software()?.service;
        let (mut by_curve, mut predicted) = (0.0, 0.0);
        let (mut in_software, mut measured) = (0.0, 0.0);
        for (device, sums) in ran.into_iter().filter(|(_, sums)| sums.jobs > 0) {
            let bytes = sums.work_bytes / sums.jobs;
            let jobs = sums.jobs as f64;
            let there = jobs * software.at(bytes as usize);
            let took = sums.service_ns as f64 + sums.queueing_ns as f64;
            by_curve += there;
            predicted += jobs * state.expected_ns(bytes, software);
            in_software += if device == SOFTWARE { took } else { there };
            measured += took;
        }
        let gain = Gain { predicted: by_curve / predicted, measured: in_software / measured };
        (gain.predicted.is_finite() && gain.measured.is_finite()).then_some(gain)
    }
}

impl OpState {
    fn software(&self) -> Option<&CostCurve> {
        let software = self.devices.get(SOFTWARE)?;
        (software.curve.jobs >= JOBS_MIN).then(|| software.curve.service())
    }

    /// Returns the smallest and the largest class that occurred recently.
    fn seen(&self, now: Nanos) -> Option<(usize, usize)> {
        let of_late = |at: &Nanos| at.0 > 0 && now.since(*at) < SEEN;
        let low = self.seen.iter().position(of_late)?;
        Some((low, self.seen.iter().rposition(of_late)?))
    }

    /// Returns the mean time of a job on the devices to which the decisions send it (ns).
    fn expected_ns(&self, bytes: u64, software: &SizeCurve) -> f64 {
        let decided = self.devices.values().filter_map(|device| {
            let decision =
                device.decision.as_ref().filter(|decision| bytes >= decision.bytes_min)?;
            let weight = f64::from(decision.weight);
            Some((weight, weight * device.curve.latency().service.at(bytes as usize)))
        });
        let (weights, times) = decided.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        if weights > 0.0 { times / weights } else { software.at(bytes as usize) }
    }

    /// Returns whether a device has no decision, or there is no device other than software.
    fn is_undecided(&self) -> bool {
        let others = self.devices.iter().filter(|(name, _)| *name != SOFTWARE);
        let decided = others.clone().filter(|(_, device)| device.decision.is_some()).count();
        decided == 0 || decided < others.count()
    }

    fn decide(&mut self, op: Op, now: Nanos) -> bool {
        let Some(software) = self.software().copied() else { return false };
        let fresh = |device: &DeviceState| now.since(device.curve.last()) < STALE;
        let known = |state: &DeviceState| now.since(state.curve.last()) < SOFTWARE_STALE;
        if !self.devices.get(SOFTWARE).is_some_and(known) {
            return false;
        }
        let Some(seen) = self.seen(now) else { return false };
        let by_class = self.jobs_per_s(now);
        let rate = by_class.iter().sum::<f64>();
        let (busy, mut changed) = (self.busy, false);
        let others = self.devices.iter_mut().filter(|(name, _)| *name != SOFTWARE);
        for (name, device) in others {
            if device.curve.jobs < JOBS_MIN || !fresh(device) {
                continue;
            }
            let curve = &device.curve;
            let known = Known {
                software: &software,
                service: curve.service(),
                latency: curve.latency(),
                host: curve.host(),
                busy,
            };
            let break_even = BreakEven::new(&Costs::new(&known), &by_class, seen);
            let waited = device.waits.follow(wait_bytes_max(&known, (seen.0, seen.1 + 1)));
            device.proposed_log2 = Some(break_even.best_log2);
            let wanted = break_even.wanted_log2(device.control.log2());
            let levels = Levels::new(curve.service(), &software, rate);
            let moved = device.control.follow(wanted, levels) | waited;
            if moved || device.decision.is_none() {
                let (device_name, bytes_min) = (name.clone(), device.control.bytes_min());
                let weight =
                    device.decision.as_ref().map_or(WEIGHT_MAX, |decision| decision.weight);
                let wait_bytes_max = device.waits.bytes_max();
                device.decision =
                    Some(Decision { op, device: device_name, bytes_min, weight, wait_bytes_max });
                changed = true;
            }
        }
        self.share() | changed
    }

    /// Returns the rate of jobs by size class, on all devices together.
    fn jobs_per_s(&self, now: Nanos) -> [f64; CLASSES] {
        let mut sums = [0.0; CLASSES];
        for device in self.devices.values() {
            let rates = device.curve.jobs_per_s(now);
            sums.iter_mut().zip(rates).for_each(|(sum, rate)| *sum += rate);
        }
        sums
    }

    /// Sets each device's share in proportion to its speed, and returns whether a share changed. The load
    /// does not count, because the shares would then oscillate: a device with a small share responds sooner.
    fn share(&mut self) -> bool {
        let speed = |device: &DeviceState| {
            1.0 / device.curve.service().service.at(REFERENCE_BYTES).max(1.0)
        };
        let decided = |device: &&DeviceState| device.decision.is_some();
        let fastest = self.devices.values().filter(decided).map(speed).fold(0.0, f64::max);
        let mut changed = false;
        for device in self.devices.values_mut() {
            let wanted = f64::from(WEIGHT_MAX) * speed(device) / fastest;
            let Some(decision) = &mut device.decision else { continue };
            let now = f64::from(decision.weight);
            if (wanted / now).log2().abs() < WEIGHT_BAND_LOG2 {
                continue;
            }
            let bounded = wanted.clamp(now / WEIGHT_STEP, now * WEIGHT_STEP);
            let weight = (bounded.round() as u16).clamp(1, WEIGHT_MAX);
            changed |= weight != decision.weight;
            decision.weight = weight;
        }
        changed
    }
}

/// The name under which processes report the calling core.
pub const SOFTWARE: &str = "software";

/// The largest weight of a device, which determines its share of the jobs.
pub const WEIGHT_MAX: u16 = 100;

/// The size at which devices are compared (bytes).
const REFERENCE_BYTES: usize = 4_096;

/// The minimum number of jobs from which a cost is used. With fewer jobs, a single slow job would decide.
pub const JOBS_MIN: u64 = 32;

/// The time without jobs after which a device gets no new decision and may be forgotten.
const STALE: Nanos = Nanos::secs(30);

/// The time without jobs after which software is not used for comparison. It is long, because a device that
/// takes all jobs leaves few for software, and software is still the calling core. A scheduler that waited
/// for new jobs in software would keep using a device that slowed down.
const SOFTWARE_STALE: Nanos = Nanos::secs(600);

/// The time after which a size that did not occur again no longer counts.
const SEEN: Nanos = Nanos::secs(60);

/// The maximum number of curves: two ops on a hundred devices fit. Each curve takes some 20 KiB.
const CURVES_MAX: usize = 256;

/// The maximum number of curves that exist because of one process: every op on ten devices. It limits a process that
/// reports invented names.
const REPORTER_CURVES_MAX: usize = 64;

/// The time within which every arm is probed about once (s). With few jobs, a larger share of them are
/// probes. The cost per job is then at most the cost that is accepted while nothing is known.
const PROBE_WITHIN_S: f64 = 16.0;

/// The number of jobs per probe changes only if it differs from the computed number by more than a factor of 1.7.
const PROBE_BAND_LOG2: f64 = 0.75;

/// The number of ticks over which rates are smoothed.
const RATE_TICKS: f64 = 8.0;

/// The number of jobs per probe in the long run. If a probed arm is ten times as slow, this costs some 4 % of the mean,
/// and a 99th percentile does not show it.
const PROBE_EVERY: u32 = 256;

/// The number of jobs per probe until something is known. It is small enough for a decision within seconds of the first
/// thousands of jobs.
const PROBE_EVERY_COLD: u32 = 32;

/// The time for which a new op is probed at [`PROBE_EVERY_COLD`]. More probes would not help.
const COLD: Nanos = Nanos::secs(20);

/// The weight by which a device gets its share of the jobs changes only if it differs from the computed weight by a
/// third or more. A change at most doubles or halves a weight.
const WEIGHT_BAND_LOG2: f64 = 0.4;
const WEIGHT_STEP: f64 = 2.0;

/// The number of reports over which the cores' load is smoothed.
const BUSY_REPORTS: f64 = 8.0;
