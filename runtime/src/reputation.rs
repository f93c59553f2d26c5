//! The knowledge about devices that all runtimes of a process share: which devices are out of service because their
//! results were wrong, and which device wrote which stream. On the fast path, jobs only read a counter here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use device::Device;
use units::Nanos;

use crate::breaker::{Breaker, Wrong};

/// The reputation of a process's devices, which all its runtimes share.
pub struct Reputation {
    breakers: Mutex<Vec<Breaker>>,
    /// Whether a device may return wrong results even if this process's codecs are right.
    is_foreign: Vec<bool>,
    /// The number of times that a breaker opened or closed.
    changes: AtomicU64,
    /// The devices that wrote the latest streams, by the checksums of their frames.
    writers: Box<[AtomicU64]>,
}

impl Reputation {
    /// Creates the reputation of these devices, about which nothing is known yet.
    pub fn new(devices: &[Arc<dyn Device>]) -> Arc<Self> {
        let is_foreign: Vec<_> = devices.iter().map(|device| !device.runs_own_code()).collect();
        let places = if is_foreign.contains(&true) { WRITERS } else { 1 };
        Arc::new(Self {
            breakers: Mutex::new(vec![Breaker::default(); devices.len()]),
            is_foreign,
            changes: AtomicU64::new(0),
            writers: (0..places).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Records which device wrote the stream of the frame with this checksum.
    #[inline]
    pub fn wrote(&self, device: usize, checksum: u32, stream_bytes: usize) {
        if device <= 0xFF && self.is_foreign(device) {
            let place = checksum as usize & (self.writers.len() - 1);
            self.writers[place].store(note(device, checksum, stream_bytes), Ordering::Relaxed);
        }
    }

    /// Returns the device that wrote the stream, if its record still exists, and removes the record.
    pub(crate) fn writer(&self, checksum: u32, stream_bytes: usize) -> Option<usize> {
        let place = &self.writers[checksum as usize & (self.writers.len() - 1)];
        let known = place.load(Ordering::Relaxed);
        let device = (known & 0xFF) as usize;
        let is_it = known != 0 && known == note(device, checksum, stream_bytes);
        let is_first =
            is_it && place.compare_exchange(known, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        is_first.then_some(device)
    }

    #[inline]
    pub(crate) fn is_foreign(&self, device: usize) -> bool {
        self.is_foreign.get(device).copied().unwrap_or(false)
    }

    /// Returns whether results of any device can be wrong.
    pub(crate) fn has_foreign(&self) -> bool {
        self.is_foreign.contains(&true)
    }

    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns the time of the device's next probe, or none if the device is in service.
    pub(crate) fn probe_at(&self, device: usize) -> Option<Nanos> {
        self.breakers().get(device).and_then(Breaker::probe_at)
    }

    /// Records that the device gave `jobs` results since the last call, and that a result that was read back is right.
    pub(crate) fn right(&self, device: usize, jobs: u64) {
        if let Some(breaker) = self.breakers().get_mut(device) {
            breaker.count(jobs);
            breaker.right();
        }
    }

    /// Records `jobs` results since the last call, and a fault. Returns true if this retires the device.
    pub(crate) fn wrong(
        &self,
        device: usize,
        how: Wrong,
        jobs: u64,
        now: Nanos,
        first_wait: Nanos,
    ) -> bool {
        let opened = self.breakers().get_mut(device).is_some_and(|breaker| {
            breaker.count(jobs);
            breaker.wrong(how, now, first_wait)
        });
        self.changes.fetch_add(u64::from(opened), Ordering::Relaxed);
        opened
    }

    /// Returns whether a job may probe the device now, and the next probe's time. None if it is in service.
    pub(crate) fn try_probe(
        &self,
        device: usize,
        now: Nanos,
        first_wait: Nanos,
    ) -> Option<(bool, Nanos)> {
        let mut breakers = self.breakers();
        let breaker = breakers.get_mut(device)?;
        let may = breaker.try_probe(now, first_wait);
        breaker.probe_at().map(|probe_at| (may, probe_at))
    }

    /// Records that a probe's result is right.
    pub(crate) fn close(&self, device: usize) {
        let mut breakers = self.breakers();
        if let Some(breaker) = breakers.get_mut(device).filter(|breaker| breaker.is_open()) {
            breaker.close();
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn breakers(&self) -> MutexGuard<'_, Vec<Breaker>> {
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Packs the frame's checksum, the low bits of the stream's length, and the device into a word. The length
/// detects most stored values that were changed but still carry the same checksum.
#[inline]
fn note(device: usize, checksum: u32, stream_bytes: usize) -> u64 {
    u64::from(checksum) << 32 | (stream_bytes as u64 & 0xFF_FFFF) << 8 | (device as u64 & 0xFF)
}

/// The number of latest streams whose writers are known. It is a power of two, and the records take 128 KiB.
const WRITERS: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use device::{FaultPlan, Faulty, Software};

    fn reputation() -> Arc<Reputation> {
        let software: Arc<dyn Device> = Arc::new(Software::default());
        let foreign = Arc::new(Faulty::new(Arc::clone(&software), FaultPlan::default()));
        Reputation::new(&[software, foreign])
    }

    #[test]
    fn the_writer_of_a_stream_is_told_once() {
        let shared = reputation();
        shared.wrote(1, 0xDEAD_BEEF, 700);
        assert_eq!(shared.writer(0xDEAD_BEEF, 701), None, "someone else made it longer");
        assert_eq!(shared.writer(0xDEAD_BEEE, 700), None);
        assert_eq!(shared.writer(0xDEAD_BEEF, 700), Some(1));
        assert_eq!(shared.writer(0xDEAD_BEEF, 700), None);
    }

    #[test]
    fn what_this_process_wrote_itself_is_not_noted() {
        let shared = reputation();
        shared.wrote(0, 0xDEAD_BEEF, 700);
        assert_eq!(shared.writer(0xDEAD_BEEF, 700), None);
        assert!(!shared.is_foreign(0) && shared.is_foreign(1));
    }

    #[test]
    fn every_runtime_sees_that_a_device_is_kept_from_service() {
        let shared = reputation();
        let before = shared.changes();
        while !shared.wrong(1, Wrong::ReadBack, 1, Nanos(0), Nanos(9)) {}
        assert_eq!((shared.changes(), shared.probe_at(1)), (before + 1, Some(Nanos(9))));
        assert_eq!(shared.try_probe(1, Nanos(8), Nanos(9)), Some((false, Nanos(9))));
        assert_eq!(shared.try_probe(1, Nanos(9), Nanos(9)), Some((true, Nanos(27))));
        shared.close(1);
        assert_eq!((shared.changes(), shared.probe_at(1)), (before + 2, None));
    }
}
