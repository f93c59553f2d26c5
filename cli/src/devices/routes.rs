//! Finds the devices to which jobs would go under a configuration while no other job is in flight. It calls the policy
//! itself for each size. The policy has not yet learned costs or load here.

use device::cipher::{AssociatedData, KEY_BYTES, Key, NONCE_BYTES, Nonce};
use device::{Capabilities, Class, Dialect, Polynomial, TAG_BYTES, Task, TenantId};
use policy::{
    Choice, DeviceState, Form, FormPolicy, JobFacts, Placement, Policy, Reason, Snapshot,
};
use serde::Serialize;
use server::config::{Config, FallbackName, RuntimeSection, convert};
use units::{ByteCount, Op};

use super::sample;

/// A range of sizes of one op whose jobs go to the same device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Route {
    pub(super) op: &'static str,
    /// The smallest and the largest size that was tested (bytes). All powers of two between them have the same route.
    pub(super) bytes: [u64; 2],
    pub(super) device: String,
    pub(super) placement: &'static str,
    pub(super) reason: &'static str,
    pub(super) why: String,
}

/// The routes of all jobs.
#[derive(Debug, Serialize)]
pub(super) struct Routes {
    /// The policy in effect.
    pub(super) policy: &'static str,
    pub(super) routes: Vec<Route>,
    /// Hints about the routes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) hints: Vec<String>,
}

/// Returns the routes of every op, for sizes from 64 B to the largest item, but at most 16 MiB.
///
/// # Errors
/// The sample value cannot be generated.
pub(super) fn routes(config: &Config, devices: &server::Devices) -> Result<Routes, String> {
    let runtime = &config.runtime;
    let policy = convert::policy(runtime.policy, runtime, devices.all.len(), devices.accelerators);
    let largest = config.store.item_bytes_max.min(LARGEST).0;
    let sizes = (SMALLEST_LOG2..).map(|log2| 1u64 << log2).take_while(|size| *size <= largest);
    let sizes: Vec<u64> = sizes.collect();
    // The form in which values are written if compression is on.
    let form = FormPolicy { compress: true, ..convert::form(&config.compress) };
    let sample = sample(sizes.last().map_or(0, |size| *size as usize))?;
    let mut routes: Vec<Route> = Vec::new();
    for op in OPS {
        for size in &sizes {
            let value = &sample[..*size as usize];
            let Some(task) = task(op, &form, value) else { continue };
            let choice = choose(policy.as_ref(), runtime, devices, &task, value.len());
            let route = route(op, *size, choice, devices, runtime);
            match routes.last_mut().filter(|last| last.goes_as(&route)) {
                Some(last) => last.bytes[1] = *size,
                None => routes.push(route),
            }
        }
    }
    let learns = policy.uses_costs().then(|| LEARNS.to_owned());
    let hints = bound_to_window(&form, devices).into_iter().chain(learns).collect();
    Ok(Routes { policy: policy.name(), routes, hints })
}

impl Route {
    fn goes_as(&self, other: &Self) -> bool {
        let key = |route: &Self| (route.op, route.device.clone(), route.placement, route.reason);
        key(self) == key(other)
    }

    /// Formats the sizes for people.
    pub(super) fn sizes(&self) -> String {
        let [smallest, largest] = self.bytes.map(ByteCount);
        if smallest == largest { format!("{smallest}") } else { format!("{smallest} to {largest}") }
    }
}

fn route(
    op: Op,
    size: u64,
    choice: Choice,
    devices: &server::Devices,
    runtime: &RuntimeSection,
) -> Route {
    Route {
        op: op.name(),
        bytes: [size; 2],
        device: devices.all[choice.device()].name().to_owned(),
        placement: choice.placement.name(),
        reason: choice.reason.name(),
        why: why(choice.reason, runtime),
    }
}

/// Returns a hint if a device reads only streams with a limited window. Such a device gets only values that
/// were compressed with that window, which is not the default.
fn bound_to_window(form: &FormPolicy, devices: &server::Devices) -> Option<String> {
    let bound = devices.all.iter().find(|device| {
        let can = device.capabilities();
        !can.reads.is_empty() && can.reads.iter().all(|dialect| *dialect == Dialect::IAA)
    })?;
    form.window_log2.is_none().then(|| {
        format!(
            "{} reads deflate within a window of 4 KiB only: --set compress.readable_by=iaa writes \
             every new value so",
            bound.name()
        )
    })
}

/// Returns where the runtime would send a job if no other job is in flight.
fn choose(
    policy: &dyn Policy,
    runtime: &RuntimeSection,
    devices: &server::Devices,
    task: &Task,
    work_bytes: usize,
) -> Choice {
    let states: Vec<DeviceState> =
        devices.all.iter().map(|device| state(device.capabilities(), task, work_bytes)).collect();
    let snapshot = Snapshot::new(&states);
    let to = |device, reason| Choice::to(device, Placement::Async, reason);
    let fallback = match task {
        Task::Compress { .. } => runtime.fallback_compress,
        Task::Decompress { .. } => runtime.fallback_decompress,
        _ => FallbackName::Prefer,
    };
    match fallback {
        FallbackName::Forbid => Choice::software(Reason::Configured),
        FallbackName::Require => snapshot
            .first_open()
            .map_or(Choice::software(Reason::Ineligible), |device| to(device, Reason::Configured)),
        FallbackName::Prefer => policy.place(&facts(task, work_bytes), &snapshot, NO_PROBE),
    }
}

fn state(capabilities: &Capabilities, task: &Task, work_bytes: usize) -> DeviceState {
    DeviceState {
        eligible: capabilities.accepts(task, work_bytes),
        healthy: true,
        depth: 0,
        capacity: capabilities.queue_depth,
        estimated: None,
        host: None,
    }
}

fn facts(task: &Task, work_bytes: usize) -> JobFacts {
    JobFacts {
        op: task.op(),
        dialect: task.dialect(),
        work_bytes,
        class: Class::LatencyCritical,
        tenant: TenantId::default(),
        time_left: None,
        last: None,
    }
}

/// Returns the job for a value of this size, or `None` if the value would be stored unchanged.
fn task(op: Op, form: &FormPolicy, value: &[u8]) -> Option<Task> {
    let (key, nonce) = (Key::new(&[0; KEY_BYTES]), Nonce([0; NONCE_BYTES]));
    let associated = AssociatedData::NONE;
    match op {
        Op::Compress | Op::Decompress => {
            let Form::Compressed { dialect, level, .. } = form.choose(value) else { return None };
            Some(match op {
                Op::Compress => Task::Compress { dialect, level },
                _ => Task::Decompress { dialect, original_bytes: value.len() },
            })
        }
        Op::Encrypt => Some(Task::Encrypt { key, nonce, associated }),
        Op::Decrypt if value.len() > TAG_BYTES => Some(Task::Decrypt { key, nonce, associated }),
        Op::Decrypt => None,
        Op::Checksum => Some(Task::Checksum { polynomial: Polynomial::Crc32c }),
        _ => Some(Task::Copy),
    }
}

fn why(reason: Reason, runtime: &RuntimeSection) -> String {
    match reason {
        Reason::Policy => "the policy prefers it".to_owned(),
        Reason::OnlyDevice => "there is no other device".to_owned(),
        Reason::Small => {
            format!("under runtime.offload_bytes_min = {}", runtime.offload_bytes_min)
        }
        Reason::Large => format!("over runtime.inline_bytes_max = {}", runtime.inline_bytes_max),
        Reason::Ineligible => "no accelerator takes this op, dialect or size".to_owned(),
        Reason::Configured => "runtime.fallback_compress, fallback_decompress say so".to_owned(),
        Reason::QueueFull => "the others are full".to_owned(),
        Reason::DeviceLost | Reason::DeviceFault | Reason::Timeout => {
            "the device that would run it failed".to_owned()
        }
        Reason::Deadline => "a device would miss the deadline".to_owned(),
        Reason::Probe => "the arm not preferred, tried on purpose".to_owned(),
    }
}

/// The ops that devices do, in the order of the contract.
pub(super) const OPS: [Op; 6] =
    [Op::Compress, Op::Decompress, Op::Encrypt, Op::Decrypt, Op::Checksum, Op::Copy];

/// The logarithm of the smallest size that is tested, 64 B. Smaller values are not compressed.
const SMALLEST_LOG2: u32 = 6;

const LEARNS: &str = "this policy learns costs from the jobs that it serves; these are its answers before it has \
                      learnt any";

/// A draw with which a policy never probes, because policies probe only on small draws.
const NO_PROBE: u64 = u64::MAX;

/// The largest size that is tested. At larger sizes, the route can change only at a device's limit.
const LARGEST: ByteCount = ByteCount::mib(16);
