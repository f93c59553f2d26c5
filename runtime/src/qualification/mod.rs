//! Qualification finds out whether a device does what it says and whether software can replace it. This
//! happens when a process starts, not when a device fails. Every result is read back. Qualification has no
//! counters and does not judge devices in service: the runtime does that from the outcomes of jobs.

mod fallback;
mod problem;
mod timeout;
mod trip;

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use device::{Capabilities, Device, DeviceError, Queue, RefusedReason};
use units::Prng;

use crate::no_queue::NoQueue;

pub use fallback::fallback;
pub use problem::Problem;
pub use trip::{CodecTrip, Trip, round_trip};

/// Runs one round trip of every kind of job on the device. It then runs the same jobs on a failing device, and software
/// must return them. Each job may take `timeout`.
///
/// # Errors
/// The reason why the device must not be used, or is not known to work; see [`Problem::disqualifies`].
pub fn qualify(
    device: &Arc<dyn Device>,
    software: &Arc<dyn Device>,
    timeout: Duration,
) -> Result<(), Problem> {
    let sample = sample();
    round_trip(device.as_ref(), software.as_ref(), &sample, timeout)?;
    fallback(device, device.capabilities(), software, &sample, timeout)
}

/// Runs only the round trips of [`qualify`], for a service that qualifies its devices in its own process.
///
/// # Errors
/// Fails like [`qualify`].
pub fn qualify_service(
    service: &Arc<dyn Device>,
    software: &Arc<dyn Device>,
    timeout: Duration,
) -> Result<(), Problem> {
    round_trip(service.as_ref(), software.as_ref(), &sample(), timeout).map(|_| ())
}

/// Runs only the fallback test of [`qualify`], for a device that must not receive jobs. A software device
/// that is made to fail replaces the device.
///
/// # Errors
/// Fails like [`qualify`].
pub fn qualify_fallback(
    can: &Capabilities,
    software: &Arc<dyn Device>,
    timeout: Duration,
) -> Result<(), Problem> {
    fallback(software, can, software, &sample(), timeout)
}

/// Returns a replacement for the device that accepts no job. Its counters say that the device was withdrawn.
pub fn withdrawn(device: &Arc<dyn Device>) -> Arc<dyn Device> {
    let capabilities = Capabilities {
        writes: Vec::new(),
        reads: Vec::new(),
        kernels: Vec::new(),
        dictionaries: false,
        ..device.capabilities().clone()
    };
    Arc::new(Withdrawn { inner: Arc::clone(device), capabilities })
}

struct Withdrawn {
    inner: Arc<dyn Device>,
    capabilities: Capabilities,
}

impl Device for Withdrawn {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_queue(&self, _waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(NoQueue(RefusedReason::Unsupported)))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters().into_iter().chain([("withdrawn", 1)]).collect()
    }
}

/// Returns random words, always the same ones. The text compresses, and no two parts of it are equal.
fn sample() -> Bytes {
    let mut draws = Prng::new(SEED);
    let mut text = String::with_capacity(SAMPLE_BYTES + LONGEST_WORD_BYTES);
    while text.len() < SAMPLE_BYTES {
        text.push_str(WORDS[draws.below(WORDS.len() as u64) as usize]);
    }
    text.truncate(SAMPLE_BYTES);
    Bytes::from(text)
}

/// The size of the sample. Many cached values have this size, and from about this size on an accelerator is
/// worthwhile.
const SAMPLE_BYTES: usize = 4_096;

const WORDS: [&str; 16] = [
    "cache ", "value ", "of ", "a ", "frame", ", ", "window ", "stream ", "and ", "then ",
    "device ", "its ", "queue ", "back", ". ", "tenant ",
];

const LONGEST_WORD_BYTES: usize = 8;

const SEED: u64 = 4;
