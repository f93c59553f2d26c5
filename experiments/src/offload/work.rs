//! The requests and their data. A request is one compression, or an encryption followed by a compression, as in the web
//! server of \[OffloadSched\]. Inputs are made once, before the measurement. The module measures no times.

use std::sync::Arc;

use bytes::Bytes;
use device::cipher::{AssociatedData, KEY_BYTES, NONCE_BYTES};
use device::{
    Class, Codec, Dialect, Input, Job, Key, Level, Nonce, Outcome, Pool, TAG_BYTES, Task,
};
use runtime::{Core, Finished};
use units::{ByteCount, Nanos, Prng};
use workload::{PayloadClass, Preset, SizeDist, Sizes, Values, Weighting};

/// Requests of one kind. Clones share the data.
#[derive(Clone)]
pub(super) struct Work {
    inputs: Arc<[Bytes]>,
    /// The key that encrypts each input first, or None if inputs are not encrypted.
    key: Option<Key>,
    class: Class,
}

/// The result of one request.
pub(super) struct Done {
    /// The time in software on the calling core, or 0 if the job ran elsewhere.
    pub(super) software: Nanos,
}

impl Work {
    /// Makes compressions with the sizes of a preset. Each size occurs in proportion to its probability.
    ///
    /// # Errors
    /// There is no such preset.
    pub(super) fn of_preset(
        stock: &Stock,
        name: &str,
        class: PayloadClass,
    ) -> Result<Self, String> {
        let preset = Preset::find(name).map_err(|error| error.to_string())?;
        let sizes = Sizes::new(&preset.value_bytes.value, Weighting::Calls);
        let sizes = sizes.map_err(|error| error.to_string())?;
        let at = |index: usize| sizes.at((index as f64 + 0.5) / INPUTS as f64);
        let lengths: Vec<usize> = (0..INPUTS).map(at).collect();
        Ok(Self {
            inputs: stock.inputs(class, &lengths)?,
            key: None,
            class: Class::LatencyCritical,
        })
    }

    /// Makes the web server's requests: objects of 8 KiB are encrypted, then compressed.
    ///
    /// # Errors
    /// The errors of [`Work::of_preset`].
    pub(super) fn web_server(stock: &Stock) -> Result<Self, String> {
        let work = Self::of_preset(stock, "web-server-8kib", PayloadClass::Html)?;
        Ok(Self { key: Some(Key::new(&[7; KEY_BYTES])), ..work })
    }

    /// Makes a few compressions of one size.
    ///
    /// # Errors
    /// The errors of [`Work::of_preset`].
    pub(super) fn of_size(
        stock: &Stock,
        size: ByteCount,
        class: PayloadClass,
    ) -> Result<Self, String> {
        let inputs = stock.inputs(class, &[size.as_usize(); INPUTS_OF_SIZE])?;
        Ok(Self { inputs, key: None, class: Class::LatencyCritical })
    }

    /// Returns the same requests as batch requests, for which only the total throughput counts.
    pub(super) fn batch(&self) -> Self {
        Self { class: Class::Batch, ..self.clone() }
    }

    /// Returns the number of different inputs.
    pub(super) fn count(&self) -> usize {
        self.inputs.len()
    }

    /// Returns the sizes of the compressions (bytes).
    pub(super) fn sizes_bytes(&self) -> Vec<u64> {
        self.inputs.iter().map(|input| input.len() as u64).collect()
    }

    /// Returns the mean over all compressions of `value`, whose argument is a compression's size (bytes).
    pub(super) fn mean(&self, value: impl Fn(u64) -> f64) -> f64 {
        let tag_bytes = if self.key.is_some() { TAG_BYTES } else { 0 };
        let each = self.inputs.iter().map(|input| value((input.len() + tag_bytes) as u64));
        each.sum::<f64>() / self.inputs.len() as f64
    }

    /// Returns the compression job of a request, for callers that need the job itself.
    pub(super) fn job(&self, index: usize, pool: &Pool) -> Box<Job> {
        self.compression(Input::heap(self.inputs[index].clone()), pool)
    }

    /// Makes one request.
    ///
    /// # Errors
    /// A job was not done; the text has its outcome.
    pub(super) async fn request(
        &self,
        core: &Core,
        index: usize,
        pool: &Pool,
    ) -> Result<Done, String> {
        let mut software = Nanos(0);
        let plain = Input::heap(self.inputs[index].clone());
        let input = match &self.key {
            None => plain,
            Some(key) => {
                let done = core.run(encryption(plain, key, index, pool)).await;
                // Only the compression can be offloaded, so only its software time counts.
                let bytes = check(&done)?;
                Input::pooled(done.job.output, 0..bytes)
            }
        };
        let done = core.run(self.compression(input, pool)).await;
        check(&done)?;
        if done.path.device == 0 {
            software += done.service;
        }
        Ok(Done { software })
    }

    fn compression(&self, input: Input, pool: &Pool) -> Box<Job> {
        let dialect = Dialect::new(Codec::Deflate);
        let output = pool.take(input.len() + input.len() / 8 + STREAM_SLACK_BYTES);
        let mut job = Job::new(Task::Compress { dialect, level: Level::Default }, input, output);
        job.class = self.class;
        Box::new(job)
    }
}

/// Returns an encryption job. The nonce of each object is the same in every pass: an emulation makes its results before
/// the measurement, and it can do so only if the ciphertext repeats. No service may reuse nonces like this.
fn encryption(input: Input, key: &Key, index: usize, pool: &Pool) -> Box<Job> {
    let mut nonce = [0; NONCE_BYTES];
    nonce[..8].copy_from_slice(&(index as u64).to_le_bytes());
    let output = pool.take(input.len() + TAG_BYTES);
    let (key, nonce) = (key.clone(), Nonce(nonce));
    let task = Task::Encrypt { key, nonce, associated: AssociatedData::NONE };
    Box::new(Job::new(task, input, output))
}

/// Returns the size of the result (bytes).
///
/// # Errors
/// The job was not done; the text has its outcome.
pub(super) fn check(done: &Finished) -> Result<usize, String> {
    match &done.outcome {
        Outcome::Done { output_bytes } => Ok(*output_bytes),
        other => Err(format!("a {} job ended with {other:?}", done.job.task.op().name())),
    }
}

/// The data of each class, made once. All inputs are slices of this data.
pub(super) struct Stock(Vec<(PayloadClass, Bytes)>);

impl Stock {
    /// Makes bytes of the four classes of \[OffloadSched\].
    ///
    /// # Errors
    /// The size is not valid.
    pub(super) fn new() -> Result<Self, String> {
        let sizes = Sizes::new(&SizeDist::Fixed { bytes: STOCK_BYTES as u64 }, Weighting::Calls);
        let sizes = sizes.map_err(|error| error.to_string())?;
        let class_bytes = |class| {
            let values = Values::synthetic(class, sizes.clone(), STOCK_BYTES, SEED);
            let mut bytes = Vec::with_capacity(STOCK_BYTES);
            values.append_to(0, 0, &mut bytes);
            (class, Bytes::from(bytes))
        };
        Ok(Self(CLASSES.map(class_bytes).to_vec()))
    }

    /// Returns one input for each length.
    fn inputs(&self, class: PayloadClass, lengths: &[usize]) -> Result<Arc<[Bytes]>, String> {
        let found = self.0.iter().find(|(known, _)| *known == class);
        let (_, bytes) = found.ok_or_else(|| format!("no data of class {class}"))?;
        let mut random = Prng::new(SEED);
        let slice = |length: &usize| {
            let last = bytes.len().saturating_sub(*length) as u64;
            let start = random.below(last + 1) as usize;
            bytes.slice(start..(start + length).min(bytes.len()))
        };
        Ok(lengths.iter().map(slice).collect())
    }
}

/// The classes of data in table 2.1 of \[OffloadSched\].
pub(super) const CLASSES: [PayloadClass; 4] =
    [PayloadClass::Html, PayloadClass::Numeric, PayloadClass::Random, PayloadClass::Repeat];

/// The size of the data of a class (bytes). It is as long as several of the largest jobs.
const STOCK_BYTES: usize = 4 << 20;

/// The number of inputs. The mean over this many sizes is within one percent of the distribution's mean.
const INPUTS: usize = 512;

const INPUTS_OF_SIZE: usize = 2;

/// The number of bytes by which compression may enlarge incompressible bytes.
const STREAM_SLACK_BYTES: usize = 1 << 10;

const SEED: u64 = 1;
