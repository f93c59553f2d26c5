//! Sealed values: encrypts stored forms with their key and tenant as associated data, and opens them. `keys` reads the
//! file of keys, and `nonces` has the nonces. What a sealed value looks like is in `store::frame`, and `values.rs`
//! decides which values are sealed. All ciphers run as jobs of the runtime.

mod keys;
mod nonces;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use device::{
    AssociatedData, Chain, DeviceError, Follow, Input, Job, Key, KeyName, Nonce, Outcome, Pool,
    StepDone, TAG_BYTES, Task,
};
use policy::Reason;
use runtime::{Finished, TokioRuntime};
use store::frame::{self, Inspected, KeyId, SealedHeader};
use units::Nanos;

use crate::counters::Counters;
use crate::job_stages;
use crate::values::Stored;
use keys::KeyRing;
pub(crate) use keys::ValueKeys;
pub use keys::check;
use nonces::Nonces;

/// One worker's way to seal and open values.
#[derive(Clone)]
pub(crate) struct Sealer(Rc<Parts>);

struct Parts {
    runtime: TokioRuntime,
    pool: Pool,
    /// The keys. Without them nothing is sealed, and no sealed value can be read.
    keys: Option<Arc<ValueKeys>>,
    /// The name that is bound to every value besides its key.
    tenant: String,
    /// The keys as this worker last saw them, and the nonces for the active one.
    seen: RefCell<Option<Seen>>,
    seals: Cell<bool>,
    requires: Cell<bool>,
    /// True if software may open a value after a device failed to.
    software_reads: bool,
    counters: Arc<Counters>,
}

struct Seen {
    version: u64,
    ring: Arc<KeyRing>,
    nonces: Nonces,
}

/// A stored form that was sealed, and what opening it took.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) stored: Bytes,
    pub(crate) service: Nanos,
    /// The device that opened it.
    pub(crate) device: usize,
    /// The op that followed in the same chain, if one did.
    pub(crate) followed_by: Option<Finished>,
}

/// What seals one value.
pub(crate) struct Seal {
    pub(crate) header: SealedHeader,
    pub(crate) task: Task,
    ring: Arc<KeyRing>,
}

/// The reason why a sealed value cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotOpened {
    /// This process does not have the key.
    UnknownKey,
    /// The tag is wrong: the value was altered, belongs to another key or tenant, or was sealed with another secret.
    WrongTag,
    /// No device opened the value, and software was not allowed to.
    NoDevice,
}

impl Sealer {
    pub(crate) fn new(
        (runtime, pool): (TokioRuntime, Pool),
        keys: Option<Arc<ValueKeys>>,
        tenant: &str,
        software_reads: bool,
        counters: Arc<Counters>,
    ) -> Self {
        Self(Rc::new(Parts {
            runtime,
            pool,
            keys,
            tenant: tenant.to_owned(),
            seen: RefCell::default(),
            seals: Cell::new(false),
            requires: Cell::new(false),
            software_reads,
            counters,
        }))
    }

    /// Sets whether new values are sealed, and whether only sealed values are readable.
    pub(crate) fn set_mode(&self, seals: bool, requires: bool) {
        self.0.seals.set(seals && self.0.keys.is_some());
        self.0.requires.set(requires);
    }

    /// Returns whether new values are sealed.
    #[inline]
    pub(crate) fn seals(&self) -> bool {
        self.0.seals.get()
    }

    /// Returns whether a value without a seal is unreadable.
    #[inline]
    pub(crate) fn requires_seal(&self) -> bool {
        self.0.requires.get()
    }

    /// Returns what seals the next value, which belongs to `key`.
    pub(crate) fn next_seal(&self, key: &[u8], original_bytes: usize) -> Seal {
        let (ring, nonce) = self.next_nonce().expect("a process without keys seals nothing");
        let active = ring.active();
        let original_bytes = u32::try_from(original_bytes).expect("items are at most 1 GiB");
        let header = SealedHeader { key_id: active.id, original_bytes, nonce };
        let task = Task::Encrypt {
            key: active.key.clone(),
            nonce: Nonce(nonce),
            associated: self.associated(&header, key),
        };
        Seal { header, task, ring }
    }

    /// Counts a value that was sealed.
    pub(crate) fn count_sealed(&self, seal: &Seal, sealed_bytes: usize) {
        let active = seal.ring.active();
        self.0.counters.values.written_sealed.up();
        active.usage.count(active.id, sealed_bytes);
    }

    /// Seals the stored form of the value of `key`, which has `original_bytes` in its logical form. The result is never
    /// the plaintext: if nothing could encrypt it, it is a value that no reader can open.
    pub(crate) async fn seal(
        &self,
        key: &[u8],
        stored: Stored<'_>,
        original_bytes: usize,
    ) -> Bytes {
        let Parts { runtime, pool, counters, .. } = &*self.0;
        let Seal { header, task, ring } = self.next_seal(key, original_bytes);
        let active = ring.active();
        let input = match stored {
            Stored::Shared(stored) | Stored::WithLogical { stored, .. } => Input::heap(stored),
            Stored::Slice(bytes) => {
                counters.values.copies.up();
                counters.values.copied_bytes.add(bytes.len() as u64);
                let mut buffer = pool.take(bytes.len());
                buffer.extend(bytes);
                Input::pooled(buffer, 0..bytes.len())
            }
        };
        let form = input.bytes().clone();
        let sealed_bytes = form.len() + SealedHeader::OVERHEAD_BYTES;
        let job = |input: Input| {
            let mut job = Job::new(task.clone(), input, pool.take_heap(sealed_bytes));
            job.output_offset = SealedHeader::BYTES;
            Box::new(job)
        };
        let mut finished = job_stages::run(runtime, job(input)).await;
        if !matches!(finished.outcome, Outcome::Done { .. }) {
            let input = Input::heap(form);
            finished = job_stages::run_again(runtime, job(input)).await;
        }
        let mut output = finished.job.output;
        if matches!(finished.outcome, Outcome::Done { .. }) {
            counters.values.written_sealed.up();
        } else {
            counters.values.seals_failed.up();
            output.space()[..sealed_bytes].fill(0);
            output.set_len(sealed_bytes);
        }
        active.usage.count(active.id, sealed_bytes);
        output[..SealedHeader::BYTES].copy_from_slice(&header.encode());
        output.freeze(0..sealed_bytes)
    }

    /// Opens a sealed value of `key`, whose ciphertext is at `body`. The op of `follow` may run behind it in the same
    /// chain. Does not count the result.
    pub(crate) async fn open(
        &self,
        key: &[u8],
        header: &SealedHeader,
        sealed: &Bytes,
        body: Range<usize>,
        (deadline, follow): (Option<Nanos>, Option<Arc<dyn Follow>>),
    ) -> Result<Opened, NotOpened> {
        let Parts { runtime, pool, .. } = &*self.0;
        let task = self.decryption(key, header).ok_or(NotOpened::UnknownKey)?;
        let form_bytes = body.len().saturating_sub(TAG_BYTES);
        let job = || {
            let input = Input::heap(sealed.slice(body.clone()));
            let output = pool.take_heap(form_bytes);
            Box::new(Job { deadline, ..Job::new(task.clone(), input, output) })
        };
        // The stored form is the value itself, without a checksum that would tell of a wrong result.
        let is_unframed = form_bytes == header.original_bytes as usize;
        let mut finished = match follow {
            _ if is_unframed && runtime.has_foreign_devices() => {
                job_stages::run_in_software(runtime, job(), Reason::Policy).await
            }
            None => job_stages::run(runtime, job()).await,
            Some(follow) => {
                let mut job = job();
                job.chain = Some(Chain::new(&job, vec![follow]));
                let stage = job_stages::open(&mut job);
                let (finished, first) = runtime.run_chain(job).await;
                job_stages::close(stage, &finished);
                let opened = finished.job.chain.as_ref().and_then(|chain| chain.done().first());
                // The seal is open, whatever became of the op behind it.
                if let Some(StepDone { result, service, .. }) = opened.cloned() {
                    let (device, followed_by) = (first.device, Some(finished));
                    return Ok(Opened { stored: result, service, device, followed_by });
                }
                finished
            }
        };
        let device = finished.path.device;
        if device != 0 && !matches!(finished.outcome, Outcome::Done { .. }) {
            if !self.0.software_reads {
                return Err(NotOpened::NoDevice);
            }
            // Software repeats the job, so that no value is lost to a faulty device.
            finished = job_stages::run_again(runtime, job()).await;
            if matches!(finished.outcome, Outcome::Done { .. }) {
                runtime.report_misread(device);
            }
        }
        match finished.outcome {
            Outcome::Done { output_bytes } => Ok(Opened {
                stored: finished.job.output.freeze(0..output_bytes),
                service: finished.service,
                device: finished.path.device,
                followed_by: None,
            }),
            Outcome::Failed(DeviceError::InvalidInput(_)) => Err(NotOpened::WrongTag),
            Outcome::Failed(_) | Outcome::DoesNotFit => Err(NotOpened::NoDevice),
        }
    }

    /// Opens a sealed value in software, after a device gave a form that cannot be right. Blames the device if it was
    /// wrong.
    pub(crate) async fn open_again(
        &self,
        key: &[u8],
        header: &SealedHeader,
        (sealed, body): (&Bytes, Range<usize>),
        (device, wrong): (usize, &Bytes),
    ) -> Option<Bytes> {
        let task = self.decryption(key, header)?;
        let form_bytes = body.len().saturating_sub(TAG_BYTES);
        let input = Input::heap(sealed.slice(body));
        let job = Box::new(Job::new(task, input, self.0.pool.take_heap(form_bytes)));
        let finished = job_stages::run_again(&self.0.runtime, job).await;
        let Outcome::Done { output_bytes } = finished.outcome else { return None };
        let form = finished.job.output.freeze(0..output_bytes);
        if form != *wrong {
            self.0.counters.values.device_corrupt.up();
            self.0.runtime.report_misread(device);
        }
        Some(form)
    }

    /// Returns the stored form of a value of this process's own, such as a dictionary. Returns none for a sealed value
    /// that cannot be opened, and for one without a seal where that is required.
    pub(crate) async fn open_form(&self, key: &[u8], stored: Bytes) -> Option<Bytes> {
        if !frame::looks_sealed(&stored) {
            return (!self.requires_seal()).then_some(stored);
        }
        let Inspected::Sealed { header, body } = frame::inspect(&stored, usize::MAX) else {
            return None;
        };
        let opened = self.open(key, &header, &stored, body, (None, None)).await;
        opened.ok().map(|opened| opened.stored)
    }

    /// Returns the task that opens a sealed value of `key`, or none if this process does not have the key of its seal.
    fn decryption(&self, key: &[u8], header: &SealedHeader) -> Option<Task> {
        let ring = self.ring()?;
        let found = ring.find(header.key_id)?;
        let (nonce, associated) = (Nonce(header.nonce), self.associated(header, key));
        Some(Task::Decrypt { key: found.key.clone(), nonce, associated })
    }

    fn associated(&self, header: &SealedHeader, key: &[u8]) -> AssociatedData {
        AssociatedData::from(&header.associated_data(&self.0.tenant, key)[..])
    }

    /// Returns the key of this name, if this process has the same one.
    pub(crate) fn key(&self, name: KeyName) -> Option<Key> {
        let ring = self.ring()?;
        let found = ring.find(KeyId::new(name.id)?)?;
        (found.key.name() == Some(name)).then(|| found.key.clone())
    }

    fn ring(&self) -> Option<Arc<KeyRing>> {
        self.with_seen(|seen| Arc::clone(&seen.ring))
    }

    fn next_nonce(&self) -> Option<(Arc<KeyRing>, [u8; 12])> {
        self.with_seen(|seen| (Arc::clone(&seen.ring), seen.nonces.next()))
    }

    /// Calls `with` with the keys as they are now.
    fn with_seen<T>(&self, with: impl FnOnce(&mut Seen) -> T) -> Option<T> {
        let keys = self.0.keys.as_ref()?;
        let mut seen = self.0.seen.borrow_mut();
        let version = keys.version();
        if seen.as_ref().is_none_or(|seen| seen.version != version) {
            *seen = Some(Seen { version, ring: keys.current(), nonces: Nonces::draw() });
        }
        seen.as_mut().map(with)
    }
}
