//! A running compressdev. It is configured and started once per process, and all users of the device share
//! it. All of its queue pairs are set up at the start, because DPDK cannot add one to a running device. This
//! module assigns the queue pairs to queues.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, thread};

use device::{DeviceError, Pool};
use units::ByteCount;

use super::memory::EalMemory;
use super::queue::Leftover;
use super::sys::{self, Description};
use super::windows::Windows;
use super::{Eal, eal, names};

/// A started device.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) hardware: bool,
    pub(super) chains: bool,
    pub(super) shareable: bool,
    pub(super) windows: Windows,
    pub(super) compresses: bool,
    pub(super) decompresses: bool,
    /// The pool over memory that the device can access, for copies of data from other memory.
    pub(super) pool: Pool,
    pub(super) counters: Counters,
    dynamic: bool,
    queue_pairs: u16,
    free_pairs: Mutex<Vec<u16>>,
    shared: Mutex<Vec<(Kind, Transform)>>,
    /// The operations of closed queues that the device has not released.
    leftovers: Mutex<Vec<Leftover>>,
    /// The statuses that were already logged.
    warned: Mutex<Vec<u32>>,
}

/// The counters that only this kind of device has.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) copies: AtomicU64,
    pub(super) copied_bytes: AtomicU64,
    pub(super) abandoned_jobs: AtomicU64,
}

/// The parameters of a transform. A decompression has level 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) level: i32,
    pub(super) window_log2: u8,
}

/// A transform of this device (DPDK's private xform).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transform(pub(super) NonNull<c_void>);

// SAFETY: only the device dereferences the handle. `Transforms` decides which threads may use it at the same time.
unsafe impl Send for Transform {}

impl Port {
    /// Returns the running device with this name, and starts it if necessary.
    pub(super) fn open(
        eal: Eal,
        wanted: &str,
        queue_pairs: Option<u16>,
    ) -> Result<Arc<Self>, DeviceError> {
        static RUNNING: Mutex<Vec<Arc<Port>>> = Mutex::new(Vec::new());
        let mut running = lock(&RUNNING);
        let is_it = |name: &str| names::same(name, wanted, eal::sysfs());
        if let Some(port) = running.iter().find(|port| is_it(&port.name)) {
            return Ok(Arc::clone(port));
        }
        let found = eal.descriptions().position(|found| is_it(&eal::name(&found.name)));
        let id = found.ok_or_else(|| unknown(eal, wanted))?;
        let description = eal.descriptions().nth(id).expect("it was there a line above");
        let port = Arc::new(Self::start(eal, id as u32, &description, queue_pairs)?);
        running.push(Arc::clone(&port));
        Ok(port)
    }

    fn start(
        eal: Eal,
        id: u32,
        description: &Description,
        asked_pairs: Option<u16>,
    ) -> Result<Self, DeviceError> {
        let name = eal::name(&description.name);
        let hardware = !SOFTWARE.contains(&&*eal::name(&description.driver));
        let refuse = |why: String| Err(DeviceError::Misconfigured(format!("dpdk-{name}: {why}")));
        if description.deflate == 0 {
            return refuse("the device has no deflate, and we use nothing else of it".to_owned());
        }
        if hardware && !eal.has_own_addresses() {
            return refuse(
                "devices must see our own addresses: --iova-mode=va, and an IOMMU".to_owned(),
            );
        }
        let pairs =
            match (asked_pairs.unwrap_or_else(default_pairs).max(1), description.queue_pairs_max) {
                (wanted, 0) => wanted,
                (wanted, max) => wanted.min(max),
            };
        let transforms = u32::from(pairs) * QUEUE_DEPTH as u32;
        let transforms = u16::try_from(transforms).unwrap_or(u16::MAX);
        // SAFETY: EAL runs. The device is not started, because `RUNNING` is locked and does not contain it.
        let status = unsafe { sys::rebate_dpdk_start(id, pairs, RING_SIZE, transforms) };
        if status != 0 {
            let error = io::Error::from_raw_os_error(-status);
            return refuse(format!(
                "DPDK did not start it with {pairs} queue pairs ({error}); without huge pages \
                 its memory is what -m says"
            ));
        }
        let mut port = Self {
            id,
            name,
            hardware,
            // compress_zlib can chain mbufs, but does not say so.
            chains: description.chains != 0 || !hardware,
            shareable: description.shareable != 0,
            windows: Windows::new(
                description.window_log2_min,
                description.window_log2_max,
                description.window_log2_step,
            ),
            compresses: true,
            decompresses: true,
            pool: Pool::registered(Arc::new(EalMemory::new(eal)), ByteCount::mib(4)),
            counters: Counters::default(),
            dynamic: description.dynamic != 0,
            queue_pairs: pairs,
            free_pairs: Mutex::new((0..pairs).rev().collect()),
            shared: Mutex::new(Vec::new()),
            leftovers: Mutex::new(Vec::new()),
            warned: Mutex::new(Vec::new()),
        };
        port.compresses = port.can(Kind { level: 1, window_log2: port.windows.max });
        port.decompresses = port.can(Kind { level: 0, window_log2: port.windows.max });
        Ok(port)
    }

    /// Returns whether the device can make such a transform. The driver tries it, because the device's
    /// capabilities do not distinguish compression from decompression.
    fn can(&self, kind: Kind) -> bool {
        let made = self.make(kind);
        if let Some(transform) = made {
            self.free(transform);
        }
        made.is_some()
    }

    /// Keeps the unfinished operations of a closed queue until the device releases them.
    pub(super) fn keep(&self, leftover: Leftover) {
        lock(&self.leftovers).push(leftover);
    }

    /// Logs a status and its meaning when it first occurs. Outcomes do not contain the number.
    pub(super) fn warn_once(&self, status: u32, what: &DeviceError) {
        let mut warned = lock(&self.warned);
        if warned.len() < WARNED_MAX && !warned.contains(&status) {
            warned.push(status);
            tracing::warn!(device = self.name, "{what} (DPDK status {status}); said once");
        }
    }

    /// Returns a free queue pair for one thread. It may be the pair of a closed queue whose operations the
    /// device has released in the meantime.
    pub(super) fn take_pair(&self) -> Result<u16, DeviceError> {
        lock(&self.leftovers).retain_mut(|leftover| !leftover.is_over(self));
        lock(&self.free_pairs).pop().ok_or_else(|| {
            DeviceError::Misconfigured(format!(
                "dpdk-{}: all of its {} queue pairs are open, one for each thread that uses it",
                self.name, self.queue_pairs
            ))
        })
    }

    pub(super) fn return_pair(&self, pair: u16) {
        lock(&self.free_pairs).push(pair);
    }

    /// Returns a transform that several operations may use at once, if the device allows that.
    pub(super) fn shared(&self, kind: Kind) -> Option<Transform> {
        let mut shared = lock(&self.shared);
        if let Some((_, transform)) = shared.iter().find(|(known, _)| *known == kind) {
            return Some(*transform);
        }
        let transform = self.create(kind)?;
        shared.push((kind, transform));
        Some(transform)
    }

    /// Makes a transform that the caller must free.
    pub(super) fn make(&self, kind: Kind) -> Option<Transform> {
        let _one_at_a_time = lock(&self.shared);
        self.create(kind)
    }

    fn create(&self, kind: Kind) -> Option<Transform> {
        let mut transform = ptr::null_mut();
        let dynamic = self.dynamic.into();
        let (level, window_log2) = (kind.level, kind.window_log2);
        // SAFETY: the device runs and `shared` is locked. `transform` has space for one pointer. The device stated
        // support for this kind, because compress_isal 22.11 damages its own pool when it refuses a kind.
        let status = unsafe {
            sys::rebate_dpdk_transform_new(self.id, level, dynamic, window_log2, &raw mut transform)
        };
        NonNull::new(transform).filter(|_| status == 0).map(Transform)
    }

    pub(super) fn free(&self, transform: Transform) {
        let _one_at_a_time = lock(&self.shared);
        // SAFETY: the transform belongs to this device, and the caller promises that no operation uses it.
        unsafe { sys::rebate_dpdk_transform_free(self.id, transform.0.as_ptr()) };
    }

    pub(super) fn count_copy(&self, bytes: usize) {
        self.counters.copies.fetch_add(1, Ordering::Relaxed);
        self.counters.copied_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

fn unknown(eal: Eal, wanted: &str) -> DeviceError {
    let found = eal.devices();
    let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
    DeviceError::Misconfigured(format!(
        "DPDK has no compression device called {wanted:?}; it found: {found}"
    ))
}

/// Returns the default number of queue pairs: one for each thread of a server that uses all processors, and some for
/// occasional users.
fn default_pairs() -> u16 {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    u16::try_from(threads + 4).unwrap_or(u16::MAX)
}

/// Locks a list. No panic leaves these lists half changed, so a poisoned lock is safe to use.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most statuses that are logged. DPDK has seven.
const WARNED_MAX: usize = 16;

/// The DPDK drivers that work on the calling core, inside the submission.
const SOFTWARE: [&str; 2] = ["compress_isal", "compress_zlib"];

/// The largest number of jobs in one queue. It is enough to hide the latency of a device, and bounds the jobs
/// that wait for a poll.
pub(super) const QUEUE_DEPTH: usize = 64;

/// The size of a ring. It must be a power of two, and a ring holds one entry less than its size.
const RING_SIZE: u32 = 2 * QUEUE_DEPTH as u32;
