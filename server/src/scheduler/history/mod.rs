//! Stores the reports of each instance: its counts since its first report, and the recent differences between
//! reports. Memory is bounded: the oldest differences are dropped first, and a report that still does not fit
//! is refused. Functions take the time as an argument and never wait or send.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use api::v1::ReportRequest;
use units::{ByteCount, Nanos};

use super::Refusal;
use super::counts::{self, Counted, Counts, Key};

/// The limits on what is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) instances_max: usize,
    /// The limit of the memory, including names.
    pub(crate) memory: ByteCount,
    /// The time for which differences, and instances without reports, are kept.
    pub(crate) keep: Nanos,
    /// The time without reports after which a new instance may replace this one.
    pub(crate) silent_after: Nanos,
}

/// The reports of all instances.
#[derive(Debug)]
pub(crate) struct History {
    bounds: Bounds,
    instances: BTreeMap<String, Instance>,
    sums_bytes: u64,
    steps_bytes: u64,
}

#[derive(Debug)]
struct Instance {
    sums: Sums,
    sums_bytes: u64,
    /// The steps, oldest first.
    steps: VecDeque<Step>,
    reported: Nanos,
}

/// The counts of an instance since it first reported.
#[derive(Clone, Debug, Default)]
struct Sums {
    role: String,
    epoch: u64,
    uptime_ms: u64,
    revision: u64,
    /// The last few past epochs.
    ended: VecDeque<u64>,
    /// The total time of past epochs (ms).
    before_ms: u64,
    counts: BTreeMap<Arc<Key>, Sum>,
}

#[derive(Clone, Debug, Default)]
struct Sum {
    /// The counts of past epochs.
    before: Counts,
    /// The counts in the last report.
    last: Counts,
}

/// The counts that one report added.
#[derive(Debug)]
pub(crate) struct Step {
    end: Nanos,
    pub(super) covered_ms: u64,
    pub(super) more: Vec<(Arc<Key>, Counts)>,
    bytes: u64,
}

/// The filter of a query. An empty text matches everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// The length of the requested window that ends now (ms). 0 requests the whole history.
    pub(crate) last_ms: u64,
    pub(crate) instance: String,
    pub(crate) role: String,
    pub(crate) op: String,
    pub(crate) device: String,
}

/// The counts of one instance.
#[derive(Clone, Debug)]
pub(crate) struct InstanceSnapshot {
    pub(crate) instance: String,
    pub(crate) role: String,
    pub(crate) age_ms: u64,
    pub(crate) uptime_ms: u64,
    pub(crate) covered_ms: u64,
    pub(crate) revision: u64,
    pub(crate) counted: Counted,
}

impl History {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, instances: BTreeMap::new(), sums_bytes: 0, steps_bytes: 0 }
    }

    /// Stores the counts that the report adds, and returns them as a step. Returns `None` if it adds nothing.
    ///
    /// # Errors
    /// Returns a [`Refusal`], without a change of the history.
    pub(crate) fn report(
        &mut self,
        report: &ReportRequest,
        now: Nanos,
    ) -> Result<Option<&Step>, Refusal> {
        counts::name("instance", &report.instance, INSTANCE_BYTES_MAX)?;
        counts::name("role", &report.role, ROLE_BYTES_MAX)?;
        let counted = counts::read(report)?;
        self.forget(now);
        let known = self.instances.get(&report.instance);
        let sums = known.map(|known| known.sums.clone()).unwrap_or_default();
        let (sums, mut step) = sums.follow(known.is_some(), report, counted)?;
        step.end = now;
        let evicted = if known.is_some() { None } else { self.evicted(now)? };
        let sums_bytes = sums.bytes(&report.instance);
        let freed = known.map_or(0, |known| known.sums_bytes)
            + evicted
                .as_ref()
                .and_then(|name| self.instances.get(name))
                .map_or(0, |i| i.sums_bytes);
        let lasting = self.sums_bytes - freed + sums_bytes;
        self.fits(lasting + step.bytes, &report.instance)?;
        if let Some(name) = evicted {
            self.remove(&name);
        }
        self.evict_steps(lasting + step.bytes);
        self.sums_bytes = lasting;
        let kept = self.instances.entry(report.instance.clone()).or_insert_with(|| Instance {
            sums: Sums::default(),
            sums_bytes: 0,
            steps: VecDeque::new(),
            reported: now,
        });
        (kept.sums, kept.sums_bytes, kept.reported) = (sums, sums_bytes, now);
        if step.covered_ms == 0 && step.more.is_empty() {
            return Ok(None);
        }
        self.steps_bytes += step.bytes;
        kept.steps.push_back(step);
        Ok(kept.steps.back())
    }

    /// Returns the counts that match the filter, by instance.
    pub(crate) fn query(&self, filter: &Filter, now: Nanos) -> Vec<InstanceSnapshot> {
        let wanted = |(name, instance): &(&String, &Instance)| {
            let of = |wanted: &str, is: bool| wanted.is_empty() || is;
            let mut roles = instance.sums.role.split(',');
            of(&filter.instance, filter.instance == **name)
                && of(&filter.role, roles.any(|role| role == filter.role))
        };
        let gather = |(name, instance): (&String, &Instance)| {
            let (covered_ms, mut counted) = match filter.last_ms {
                0 => instance.sums.all(),
                last_ms => instance.last(millis(last_ms), now),
            };
            counted.retain(|key, _| filter.takes(key));
            InstanceSnapshot {
                instance: name.clone(),
                role: instance.sums.role.clone(),
                age_ms: now.since(instance.reported).0 / MS,
                uptime_ms: instance.sums.uptime_ms,
                covered_ms,
                revision: instance.sums.revision,
                counted,
            }
        };
        self.instances.iter().filter(wanted).map(gather).collect()
    }

    /// Returns the memory of the history.
    pub(crate) fn bytes(&self) -> ByteCount {
        ByteCount(self.sums_bytes + self.steps_bytes)
    }

    /// Drops differences older than `keep`, and instances whose last report is older than that.
    fn forget(&mut self, now: Nanos) {
        let oldest = now.since(self.bounds.keep);
        let (mut sums_bytes, mut steps_bytes) = (self.sums_bytes, self.steps_bytes);
        self.instances.retain(|_, instance| {
            while instance.steps.front().is_some_and(|step| step.end < oldest) {
                steps_bytes -= instance.steps.pop_front().map_or(0, |step| step.bytes);
            }
            let stays = instance.reported >= oldest;
            if !stays {
                sums_bytes -= instance.sums_bytes;
            }
            stays
        });
        (self.sums_bytes, self.steps_bytes) = (sums_bytes, steps_bytes);
    }

    /// Returns the instance that a new one must replace at the limit. Fails if none may be replaced.
    fn evicted(&self, now: Nanos) -> Result<Option<String>, Refusal> {
        let max = self.bounds.instances_max;
        if self.instances.len() < max {
            return Ok(None);
        }
        let silent = self.instances.iter().min_by_key(|(_, instance)| instance.reported);
        let leaves = |at: Nanos| now.since(at) >= self.bounds.silent_after;
        match silent.filter(|(_, instance)| leaves(instance.reported)) {
            Some((name, _)) => Ok(Some(name.clone())),
            None => Err(Refusal::Exhausted(format!(
                "{max} instances report, as many as scheduler.instances_max allows"
            ))),
        }
    }

    fn fits(&self, bytes: u64, instance: &str) -> Result<(), Refusal> {
        let memory = self.bounds.memory;
        let problem = || {
            Refusal::Exhausted(format!(
                "the counts of {instance:?} do not fit into scheduler.history_bytes_max = {memory}"
            ))
        };
        if bytes <= memory.0 { Ok(()) } else { Err(problem()) }
    }

    /// Drops the oldest differences until `lasting` bytes fit in addition to the remaining differences.
    fn evict_steps(&mut self, lasting: u64) {
        while lasting + self.steps_bytes > self.bounds.memory.0 {
            let fronts = self.instances.values_mut().filter(|instance| !instance.steps.is_empty());
            let oldest = fronts.min_by_key(|instance| instance.steps.front().map(|step| step.end));
            let Some(step) = oldest.and_then(|instance| instance.steps.pop_front()) else { return };
            self.steps_bytes -= step.bytes;
        }
    }

    fn remove(&mut self, name: &str) {
        if let Some(instance) = self.instances.remove(name) {
            self.sums_bytes -= instance.sums_bytes;
            self.steps_bytes -= instance.steps.iter().map(|step| step.bytes).sum::<u64>();
        }
    }
}

impl Instance {
    /// Returns the time that the steps of the period `last` until now cover, and the sum of their counts. A step counts
    /// if at least half of it is in this period.
    fn last(&self, last: Nanos, now: Nanos) -> (u64, Counted) {
        let mut covered_ms = 0_u64;
        let mut counted = Counted::new();
        for step in self.steps.iter().rev() {
            let age = now.since(step.end);
            if age > last {
                break;
            }
            if age.0.saturating_add(millis(step.covered_ms / 2).0) > last.0 {
                continue;
            }
            covered_ms = covered_ms.saturating_add(step.covered_ms);
            for (key, more) in &step.more {
                match counted.get_mut(&**key) {
                    Some(sum) => sum.add(more),
                    None => drop(counted.insert(Key::clone(key), more.clone())),
                }
            }
        }
        (covered_ms, counted)
    }
}

impl Sums {
    /// Returns the sums after a report, and the step that it adds.
    fn follow(
        mut self,
        known: bool,
        report: &ReportRequest,
        counted: Counted,
    ) -> Result<(Self, Step), Refusal> {
        if known && report.epoch != self.epoch {
            self.begin_anew(report)?;
        }
        let back = |what: String| {
            Refusal::Back(format!("{what} went back without a new epoch (instance {:?})", {
                &report.instance
            }))
        };
        let Some(covered_ms) = report.uptime_ms.checked_sub(self.uptime_ms) else {
            let (now, was) = (report.uptime_ms, self.uptime_ms);
            return Err(back(format!("uptime_ms = {now}, reported as {was} before,")));
        };
        let mut more = Vec::new();
        for (key, now) in counted {
            let last = self.counts.get(&key).map(|sum| &sum.last);
            let last = last.cloned().unwrap_or_default();
            let added = now.since(&last).map_err(|slot| {
                let name = counts::slot_name(&key, slot);
                let (now, was) = (now.get(slot), last.get(slot));
                back(format!("{name} of {key:?} = {now}, reported as {was} before,"))
            })?;
            if !added.is_empty() {
                let key = Arc::new(key);
                let sum = self.counts.entry(Arc::clone(&key)).or_default();
                sum.last = now;
                more.push((key, added));
            }
        }
        if self.counts.len() > KEYS_MAX {
            return Err(Refusal::Invalid(format!(
                "{} paths and devices of one instance; valid is up to {KEYS_MAX}",
                self.counts.len()
            )));
        }
        self.share_keys(&mut more);
        self.role.clone_from(&report.role);
        self.epoch = report.epoch;
        self.uptime_ms = report.uptime_ms;
        self.revision = report.parameters_revision;
        let bytes = size_of::<Step>() as u64
            + more.iter().map(|(_, counts)| POINTER_BYTES + counts.bytes()).sum::<u64>();
        Ok((self, Step { end: Nanos(0), covered_ms, more, bytes }))
    }

    /// Begins a new epoch after a restart of the process. The counts of earlier epochs remain in the sums.
    fn begin_anew(&mut self, report: &ReportRequest) -> Result<(), Refusal> {
        if self.ended.contains(&report.epoch) {
            return Err(Refusal::Back(format!(
                "epoch {} of instance {:?} is over: another process reports under this name; give \
                 each its own scheduler.instance",
                report.epoch, report.instance
            )));
        }
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(self.epoch);
        self.before_ms = self.before_ms.saturating_add(self.uptime_ms);
        self.uptime_ms = 0;
        for sum in self.counts.values_mut() {
            let last = std::mem::take(&mut sum.last);
            sum.before.add(&last);
        }
        Ok(())
    }

    /// Replaces the keys of a step with the equal keys of the sums, so that they share memory.
    fn share_keys(&self, more: &mut [(Arc<Key>, Counts)]) {
        for (key, _) in more {
            if let Some((held, _)) = self.counts.get_key_value(&**key) {
                *key = Arc::clone(held);
            }
        }
    }

    fn all(&self) -> (u64, Counted) {
        let sum = |(key, sum): (&Arc<Key>, &Sum)| {
            let mut all = sum.before.clone();
            all.add(&sum.last);
            (Key::clone(key), all)
        };
        (self.before_ms.saturating_add(self.uptime_ms), self.counts.iter().map(sum).collect())
    }

    fn bytes(&self, name: &str) -> u64 {
        let sums = self
            .counts
            .iter()
            .map(|(key, sum)| POINTER_BYTES + key.bytes() + sum.before.bytes() + sum.last.bytes());
        (size_of::<Instance>() + name.len() + self.role.len()) as u64 + sums.sum::<u64>()
    }
}

impl Filter {
    fn takes(&self, key: &Key) -> bool {
        let op = match key {
            Key::Path { op, .. } => self.op.is_empty() || self.op == *op,
            // The counts of a device are not specific to an op.
            Key::Device { .. } | Key::Fallback { .. } => true,
            Key::Process => return true,
        };
        op && (self.device.is_empty() || self.device == key.device())
    }
}

/// Converts milliseconds, with saturation.
fn millis(count: u64) -> Nanos {
    Nanos(count.saturating_mul(MS))
}

const MS: u64 = 1_000_000;

/// The longest name of an instance (bytes), which is also the limit of the configuration key.
pub(super) const INSTANCE_BYTES_MAX: usize = 128;
/// The longest list of roles (bytes). All five roles take 45 bytes.
pub(super) const ROLE_BYTES_MAX: usize = 64;

/// The maximum number of keys of an instance, over all its epochs. The keys are devices, fallbacks and paths,
/// which are combinations of op, device, placement and reason.
const KEYS_MAX: usize = 1_024;

/// The number of past epochs that are stored, to detect two processes that report under one name.
const ENDED_MAX: usize = 8;

/// The memory of an `Arc` and its entry in a map (bytes).
const POINTER_BYTES: u64 = 32;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
