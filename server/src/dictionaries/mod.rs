//! The dictionaries of this process: which one new values of a class of keys are stored with, and all that stored
//! values may need. A thread trains them ([`trainer`]) on samples of the values that clients set. This module neither
//! compresses nor decompresses a client's value, and does not know where dictionaries are shared with other processes.

mod class;
mod exchange;
mod samples;
mod start;
mod thread;
mod trainer;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use ahash::RandomState;
use device::{Dictionary, TenantId};
use parking_lot::RwLock;
use policy::KeyClasses;
use policy::form::DICTIONARY_VALUE_BYTES_MAX;
use policy::key_class::{self, NAME_BYTES_MAX};
use units::{ByteCount, DictionaryId};

use crate::memory::trainer_bytes;

pub(crate) use class::{Choice, Class, Tries};
pub(crate) use exchange::{Exchange, ExchangeRequest, Missing};
use samples::SampleMemory;
pub(crate) use start::{adopt, start_trainer};
pub(crate) use thread::TrainerThread;
pub(crate) use trainer::{Publisher, Trainer, TrainerCounters, TrainerOptions};

/// The dictionaries and the classes of a process. All workers and the trainer share it.
#[derive(Debug)]
pub(crate) struct Dictionaries {
    rule: KeyClasses,
    seed: RandomState,
    classes: RwLock<HashMap<u64, Arc<Class>, RandomState>>,
    known: RwLock<Known>,
    samples: SampleMemory,
    memory_max: ByteCount,
    /// The memory of all dictionaries and samples (bytes), as of the trainer's last turn.
    memory_bytes: AtomicU64,
}

/// The dictionaries that stored values may need, by id.
#[derive(Debug, Default)]
struct Known {
    by_id: HashMap<DictionaryId, Arc<Dictionary>, RandomState>,
    /// The ids in the order in which they came, the oldest first.
    order: Vec<DictionaryId>,
    /// Dictionaries that were replaced or removed. The codec of a worker holds the one with which it wrote last, until
    /// it writes with another one.
    left: Vec<Weak<Dictionary>>,
}

impl Dictionaries {
    /// Makes a set without dictionaries. Dictionaries and samples together take at most `memory_max`.
    pub(crate) fn new(prefixes: Vec<String>, memory_max: ByteCount) -> Self {
        Self {
            rule: KeyClasses::new(prefixes),
            seed: RandomState::new(),
            classes: RwLock::default(),
            known: RwLock::default(),
            samples: SampleMemory::new(memory_max.as_usize() / SAMPLES_SHARE),
            memory_max,
            memory_bytes: AtomicU64::new(0),
        }
    }

    /// Returns the class of a value that is about to be written, counts the value, and samples it if it is its turn.
    /// Returns none if the value belongs to one class too many.
    pub(crate) fn class(&self, tenant: TenantId, key: &[u8], value: &[u8]) -> Option<Arc<Class>> {
        let mut name = [0; NAME_BYTES_MAX];
        let name = self.rule.name(key, &mut name);
        let class = self.find(tenant, name)?;
        if class.count(value.len()) && value.len() <= DICTIONARY_VALUE_BYTES_MAX {
            class.sample(self.seed.hash_one(key), value, &self.samples);
        }
        Some(class)
    }

    /// Returns the dictionary with this id, if this process has it.
    pub(crate) fn get(&self, id: DictionaryId) -> Option<Arc<Dictionary>> {
        self.known.read().by_id.get(&id).cloned()
    }

    /// Adds a dictionary that stored values need, or replaces an equal one. Returns false if another dictionary has its
    /// id, or there is no memory for it.
    pub(crate) fn add(&self, dictionary: &Arc<Dictionary>) -> bool {
        let id = dictionary.id();
        let mut known = self.known.write();
        if known.by_id.get(&id).is_some_and(|other| other.content() != dictionary.content()) {
            return false;
        }
        let current = self.current_ids();
        let is_unused = |other: &DictionaryId| *other != id && !current.contains(other);
        while !self.has_memory(&known, dictionary) {
            let Some(at) = known.order.iter().position(is_unused) else { return false };
            let oldest = known.order[at];
            known.remove(oldest);
        }
        known.insert(dictionary);
        true
    }

    /// Makes the class of a key store new values with this dictionary, or without any, and samples it no more. Returns
    /// false if there is no memory for the dictionary or the class.
    pub(crate) fn fix(&self, key: &[u8], dictionary: Option<&Arc<Dictionary>>) -> bool {
        let mut name = [0; NAME_BYTES_MAX];
        let class = self.find(TenantId::default(), self.rule.name(key, &mut name));
        let Some(class) = class else { return false };
        class.want_samples(0);
        match dictionary {
            None => class.choose(Choice::Plain),
            Some(dictionary) if self.add(dictionary) => {
                class.choose(Choice::Dictionary(Arc::clone(dictionary)));
            }
            Some(_) => return false,
        }
        true
    }

    /// Returns the content of every dictionary, each after its length, for [`Dictionaries::restore`].
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for dictionary in self.all() {
            bytes.extend((dictionary.content().len() as u32).to_le_bytes());
            bytes.extend(dictionary.content());
        }
        bytes
    }

    /// Adds the dictionaries in these bytes, up to the first that is none. Values that need another one are misses.
    pub(crate) fn restore(&self, mut bytes: &[u8]) {
        while let Some((length, rest)) = bytes.split_first_chunk() {
            let content = rest.split_at_checked(u32::from_le_bytes(*length) as usize);
            let Some((content, rest)) = content else { break };
            let Ok(dictionary) = Dictionary::from_content(content.to_vec()) else { break };
            self.add(&Arc::new(dictionary));
            bytes = rest;
        }
        self.tidy();
    }

    /// Removes a dictionary. The values that need it become misses, and classes that use it go on without.
    pub(crate) fn forget(&self, id: DictionaryId) {
        for (_, class) in self.classes() {
            if class.dictionary().is_some_and(|dictionary| dictionary.id() == id) {
                class.choose(Choice::Plain);
            }
        }
        self.known.write().remove(id);
    }

    /// Removes a class. Its keys make a new one when they are written again.
    fn remove_class(&self, hash: u64) {
        if let Some(class) = self.classes.write().remove(&hash) {
            drop(class.samples().lock().take(&self.samples));
        }
    }

    /// Removes a dictionary with which a value was not the one that was written, unless a class here uses it. It is
    /// then searched for again.
    pub(crate) fn distrust(&self, id: DictionaryId) {
        if !self.is_current(id) {
            self.forget(id);
        }
    }

    /// Returns whether a class of this process uses the dictionary, which was good on samples of its values.
    pub(crate) fn is_current(&self, id: DictionaryId) -> bool {
        self.current_ids().contains(&id)
    }

    /// Returns every class with its hash.
    pub(crate) fn classes(&self) -> Vec<(u64, Arc<Class>)> {
        let classes = self.classes.read();
        classes.iter().map(|(hash, class)| (*hash, Arc::clone(class))).collect()
    }

    /// Returns every dictionary, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Dictionary>> {
        let known = self.known.read();
        known.order.iter().filter_map(|id| known.by_id.get(id)).cloned().collect()
    }

    /// Returns the memory of dictionaries and samples (bytes), as of the trainer's last turn.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Returns the memory that items cannot have: that of dictionaries and samples, and once there is a dictionary,
    /// what the trainer keeps between its turns.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        let has_dictionary = !self.known.read().by_id.is_empty();
        let trainer = if has_dictionary { trainer_bytes(self.memory_max) } else { ByteCount(0) };
        self.memory_bytes() + trainer.0
    }

    /// Releases the memory for writing of dictionaries that no class uses any more, and counts the memory. No worker
    /// waits while the new forms are made.
    fn tidy(&self) {
        let current = self.current_ids();
        let is_idle = |dictionary: &Arc<Dictionary>| {
            dictionary.has_writer() && !current.contains(&dictionary.id())
        };
        for idle in self.all().into_iter().filter(is_idle) {
            let reading = Arc::new(idle.for_reading());
            let mut known = self.known.write();
            if known.by_id.contains_key(&idle.id()) {
                known.insert(&reading);
            }
        }
        let left_bytes = self.known.write().left_bytes();
        let bytes = self.known.read().memory_bytes() + left_bytes + self.samples.used_bytes();
        self.memory_bytes.store(bytes as u64, Ordering::Relaxed);
    }

    fn find(&self, tenant: TenantId, name: &[u8]) -> Option<Arc<Class>> {
        let hash = self.seed.hash_one((tenant, name));
        let rest = || self.seed.hash_one((tenant, REST_NAME.as_bytes()));
        {
            // Where there are too many classes, most keys are of the shared one. No worker waits for another then.
            let classes = self.classes.read();
            let shared = || (classes.len() >= CLASSES_MAX).then(|| classes.get(&rest())).flatten();
            if let Some(class) = classes.get(&hash).or_else(shared) {
                return Some(Arc::clone(class));
            }
        }
        let rest = rest();
        let mut classes = self.classes.write();
        let (hash, name) = match classes.len() {
            0..CLASSES_MAX => (hash, key_class::printable(name)),
            CLASSES_MAX..CLASSES_AND_RESTS_MAX => (rest, REST_NAME.to_owned()),
            _ => return classes.get(&rest).map(Arc::clone),
        };
        Some(Arc::clone(classes.entry(hash).or_insert_with(|| Arc::new(Class::new(tenant, name)))))
    }

    fn current_ids(&self) -> Vec<DictionaryId> {
        let classes = self.classes();
        let dictionaries = classes.iter().filter_map(|(_, class)| class.dictionary());
        dictionaries.map(|dictionary| dictionary.id()).collect()
    }

    /// Returns whether a dictionary fits beside the known ones, one of which it may replace.
    fn has_memory(&self, known: &Known, new: &Dictionary) -> bool {
        let replaced_bytes = known.by_id.get(&new.id()).map_or(0, |old| old.memory_bytes());
        let samples_bytes = self.memory_max.as_usize() / SAMPLES_SHARE;
        let others_bytes = known.memory_bytes() - replaced_bytes;
        others_bytes + new.memory_bytes() + samples_bytes <= self.memory_max.as_usize()
    }
}

impl Known {
    /// Adds a dictionary, or replaces the one with its id.
    fn insert(&mut self, dictionary: &Arc<Dictionary>) {
        match self.by_id.insert(dictionary.id(), Arc::clone(dictionary)) {
            Some(replaced) if Arc::ptr_eq(&replaced, dictionary) => {}
            Some(replaced) => self.left.push(Arc::downgrade(&replaced)),
            None => self.order.push(dictionary.id()),
        }
    }

    fn remove(&mut self, id: DictionaryId) {
        self.order.retain(|other| *other != id);
        let removed = self.by_id.remove(&id);
        self.left.extend(removed.as_ref().map(Arc::downgrade));
    }

    /// Returns the memory of dictionaries that are not known any more and still held.
    fn left_bytes(&mut self) -> usize {
        self.left.retain(|left| left.strong_count() > 0);
        self.left.iter().filter_map(Weak::upgrade).map(|left| left.memory_bytes()).sum()
    }

    fn memory_bytes(&self) -> usize {
        self.by_id.values().map(|dictionary| dictionary.memory_bytes()).sum()
    }
}

/// The number of classes. The keys of further classes of a tenant share one, so that the samples of two tenants are
/// never mixed.
const CLASSES_MAX: usize = 64;

/// The number of classes and of such shared ones.
const CLASSES_AND_RESTS_MAX: usize = 2 * CLASSES_MAX;

/// The name of a tenant's class for all keys beyond the other classes.
const REST_NAME: &str = "(other)";

/// Samples get one part in this many of the memory, and dictionaries the rest.
const SAMPLES_SHARE: usize = 4;

#[cfg(test)]
mod tests;
