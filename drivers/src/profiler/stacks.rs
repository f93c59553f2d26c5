//! Counts the stacks of samples: the addresses of the function that ran and of its callers.

use std::collections::HashMap;

use framehop::{CacheNative, MayAllocateDuringUnwind, UnwindRegsNative, Unwinder};

use super::modules::{Modules, TableUnwinder};
use super::sampler::{Registers, Sample};

/// The stacks of a profile.
pub(super) struct Stacks {
    unwinder: TableUnwinder,
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// The number of samples of each stack. Its addresses are those to look up, from the function that ran to the root.
    pub(super) counts: HashMap<Vec<u64>, u64>,
    /// The number of samples that are not in `counts`.
    pub(super) lost: u64,
}

impl Stacks {
    pub(super) fn new(modules: &Modules) -> Self {
        Self {
            unwinder: modules.unwinder(),
            cache: CacheNative::new(),
            counts: HashMap::new(),
            lost: 0,
        }
    }

    /// Counts a sample. Beyond the limit of different stacks it counts as one of its function without callers.
    pub(super) fn add(&mut self, sample: &Sample<'_>) {
        let mut stack = self.unwind(sample);
        if self.counts.len() >= STACKS_MAX && !self.counts.contains_key(&stack) {
            stack.truncate(1);
        }
        *self.counts.entry(stack).or_default() += 1;
    }

    fn unwind(&mut self, sample: &Sample<'_>) -> Vec<u64> {
        let Sample { registers, stack } = sample;
        let mut read = |address: u64| {
            let at = address.checked_sub(registers.stack).ok_or(())?;
            let bytes = stack.get(usize::try_from(at).map_err(|_| ())?..).ok_or(())?;
            bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes)).ok_or(())
        };
        let native = native(*registers);
        let mut frames =
            self.unwinder.iter_frames(registers.instruction, native, &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        // An error means that the copy of the stack ends here.
        while let Ok(Some(frame)) = frames.next() {
            addresses.push(frame.address_for_lookup());
            if addresses.len() == FRAMES_MAX {
                break;
            }
        }
        addresses
    }
}

#[cfg(target_arch = "x86_64")]
fn native(registers: Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.instruction, registers.stack, registers.frame)
}

#[cfg(target_arch = "aarch64")]
fn native(registers: Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.link, registers.stack, registers.frame)
}

/// The most different stacks of a profile. A stack of 50 frames takes half a kilobyte.
const STACKS_MAX: usize = 16_384;

/// The most frames of a stack.
const FRAMES_MAX: usize = 256;
