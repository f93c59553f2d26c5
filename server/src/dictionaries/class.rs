//! One class of keys: the dictionary that its new values are stored with, its samples, and its counters. Workers read
//! and count; only the trainer changes the choice.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use device::{Dictionary, TenantId};
use parking_lot::{Mutex, RwLock};
use policy::payoff;

use super::samples::{SampleMemory, Samples};

/// A class of keys whose values share a dictionary.
#[derive(Debug)]
pub(crate) struct Class {
    tenant: TenantId,
    name: String,
    choice: RwLock<Choice>,
    samples: Mutex<Samples>,
    /// One of this many writes is sampled. It is 0 while no samples are wanted.
    stride: AtomicU32,
    /// The values written, in all workers.
    writes: AtomicU64,
    logical_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    /// The tries to compress values, without and with memory to spare.
    tries: [Tries; 2],
}

/// The recent tries to compress values of a class.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    /// The tries in a row that saved too little.
    failures: AtomicU32,
    /// The values since the class was found to save little.
    values: AtomicU32,
}

impl Tries {
    /// Returns whether the next value should be tried. Few are while none of the last ones saved enough.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        let values_per_try = payoff::values_per_try(self.failures.load(Ordering::Relaxed));
        values_per_try == 1
            || self.values.fetch_add(1, Ordering::Relaxed).is_multiple_of(values_per_try)
    }

    /// Records whether a value that was tried has saved enough.
    #[inline]
    pub(crate) fn record(&self, has_paid: bool) {
        let failures = self.failures.load(Ordering::Relaxed);
        let next = if has_paid { 0 } else { failures.saturating_add(1) };
        if next != failures {
            self.failures.store(next, Ordering::Relaxed);
        }
    }
}

/// How new values of a class are stored.
#[derive(Clone, Debug, Default)]
pub(crate) enum Choice {
    /// There were not enough samples yet. Values are stored without a dictionary.
    #[default]
    Undecided,
    /// No dictionary saves enough.
    Plain,
    /// Values are stored with this dictionary.
    Dictionary(Arc<Dictionary>),
}

impl fmt::Display for Choice {
    /// Writes `undecided`, `plain` or the id of the dictionary.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Undecided => f.write_str("undecided"),
            Choice::Plain => f.write_str("plain"),
            Choice::Dictionary(dictionary) => write!(f, "{}", dictionary.id()),
        }
    }
}

impl Class {
    pub(super) fn new(tenant: TenantId, name: String) -> Self {
        Self {
            tenant,
            name,
            choice: RwLock::default(),
            samples: Mutex::default(),
            stride: AtomicU32::new(1),
            writes: AtomicU64::new(0),
            logical_bytes: AtomicU64::new(0),
            stored_bytes: AtomicU64::new(0),
            tries: Default::default(),
        }
    }

    /// Returns the tries to compress values while the store has memory to spare or not.
    pub(crate) const fn tries(&self, is_spare: bool) -> &Tries {
        &self.tries[is_spare as usize]
    }

    pub(crate) fn tenant(&self) -> TenantId {
        self.tenant
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn choice(&self) -> Choice {
        self.choice.read().clone()
    }

    /// Returns the dictionary for new values.
    pub(crate) fn dictionary(&self) -> Option<Arc<Dictionary>> {
        match &*self.choice.read() {
            Choice::Dictionary(dictionary) => Some(Arc::clone(dictionary)),
            Choice::Undecided | Choice::Plain => None,
        }
    }

    pub(super) fn choose(&self, choice: Choice) {
        *self.choice.write() = choice;
        // What the last form did not save, this one may.
        self.tries.iter().for_each(|tries| tries.record(true));
    }

    /// Counts a value that is about to be written, and returns whether it should be sampled.
    pub(super) fn count(&self, value_bytes: usize) -> bool {
        let writes = self.writes.fetch_add(1, Ordering::Relaxed);
        self.logical_bytes.fetch_add(value_bytes as u64, Ordering::Relaxed);
        let stride = self.stride.load(Ordering::Relaxed);
        stride > 0 && writes.is_multiple_of(u64::from(stride))
    }

    /// Counts the stored form of a value.
    pub(crate) fn count_stored(&self, stored_bytes: usize) {
        self.stored_bytes.fetch_add(stored_bytes as u64, Ordering::Relaxed);
    }

    /// Adds a sample. A worker that would have to wait for the trainer skips it.
    pub(super) fn sample(&self, key_hash: u64, value: &[u8], memory: &SampleMemory) {
        if let Some(mut samples) = self.samples.try_lock() {
            samples.add(key_hash, value, memory);
            if samples.is_full() {
                self.stride.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Wants samples from now on, one of `stride` writes.
    pub(super) fn want_samples(&self, stride: u32) {
        self.stride.store(stride, Ordering::Relaxed);
    }

    pub(super) fn wants_samples(&self) -> bool {
        self.stride.load(Ordering::Relaxed) > 0
    }

    pub(super) fn samples(&self) -> &Mutex<Samples> {
        &self.samples
    }

    /// Returns the number of values written, their bytes and the bytes of their stored forms.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            writes: self.writes.load(Ordering::Relaxed),
            logical_bytes: self.logical_bytes.load(Ordering::Relaxed),
            stored_bytes: self.stored_bytes.load(Ordering::Relaxed),
        }
    }
}

/// What a class has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Values written.
    pub(crate) writes: u64,
    /// The bytes of these values.
    pub(crate) logical_bytes: u64,
    /// The bytes of their stored forms.
    pub(crate) stored_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried_of(class: &Class, values: usize) -> usize {
        let tries = class.tries(true);
        let is_tried = || tries.is_due().then(|| tries.record(false)).is_some();
        std::iter::repeat_with(is_tried).take(values).filter(|tried| *tried).count()
    }

    #[test]
    fn a_class_that_saves_little_is_rarely_tried() {
        let class = Class::new(TenantId::default(), "text:*".to_owned());
        assert_eq!(tried_of(&class, 16), 16);
        let tried = tried_of(&class, 64_000);
        assert!((1_000..1_200).contains(&tried), "{tried}");
        assert!(class.tries(false).is_due(), "another threshold has its own tries");
    }

    #[test]
    fn a_value_that_saves_enough_or_another_form_starts_again() {
        let class = Class::new(TenantId::default(), "text:*".to_owned());
        for restart in [
            |class: &Class| class.tries(true).record(true),
            |class: &Class| {
                class.choose(Choice::Plain);
            },
        ] {
            tried_of(&class, 10_000);
            restart(&class);
            assert_eq!(tried_of(&class, 16), 16);
        }
    }
}
