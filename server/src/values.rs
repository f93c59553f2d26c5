//! Converts logical values to stored values and back: adds and removes the frame, and compresses and
//! decompresses with the runtime. All values pass through here, so that clients never get compressed bytes
//! that they cannot read, or the bytes of an unreadable value. `values/sealed.rs` has what sealed values need, and
//! `values/chains.rs` how their ops follow each other.

mod chains;
mod sealed;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use device::{
    Buffer, Codec, DeviceError, Dialect, Dictionary, Input, Job, Level, Outcome, Pool, Task,
};
use policy::form::framed_bytes;
use policy::{Form, FormPolicy, RawReason, Reason};
use runtime::{Finished, TokioRuntime};
use store::dictionary_keys::is_reserved;
use store::frame::{self, Encoding, FrameVersion, Header, Inspected, SealedHeader};
use units::limits::FRAME_HEADER_BYTES_MAX;
use units::{DictionaryId, Nanos};

use crate::config::Foreign;
use crate::counters::Counters;
use crate::dictionaries::{Exchange, Missing, Tries};
use crate::hot_values::{Candidate, HotValue, HotValues};
use crate::job_stages;
use crate::sealing::Sealer;
pub(crate) use chains::{RequestedFollow, ResultMemory};

/// One worker's conversion between logical and stored values.
#[derive(Clone)]
pub(crate) struct Values(Rc<Shared>);

struct Shared {
    runtime: TokioRuntime,
    pool: Pool,
    dictionaries: Exchange,
    rules: RefCell<Rules>,
    /// The longest logical value (bytes). Frames that claim more are refused before memory is allocated.
    original_bytes_max: usize,
    sealer: Sealer,
    counters: Arc<Counters>,
    /// True if software may decompress a value after a device failed to. False if devices are required.
    software_reads: bool,
    /// True if values are not converted.
    raw: bool,
    hot: Option<Arc<HotValues>>,
}

/// The rules of the conversion that a reload can change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) form: FormPolicy,
    pub(crate) foreign: Foreign,
    /// The version of the frames that are written.
    pub(crate) frame_version: FrameVersion,
    /// The longest value that is stored with a dictionary (bytes). It is 0 if none is.
    pub(crate) dictionary_value_bytes_max: usize,
    /// Whether values are sealed.
    pub(crate) seals: bool,
}

impl Rules {
    /// Tells the sealer which values it seals. A closed fleet that seals its values serves no others.
    fn set_mode(&self, sealer: &Sealer) {
        sealer.set_mode(self.seals, self.seals && self.foreign == Foreign::Forbid);
    }

    /// Returns the form for a value. Values of a class that saved too little lately are rarely tried.
    fn choose(&self, value: &[u8], has_dictionary: bool, tries: Option<&Tries>) -> Form {
        let form = match has_dictionary {
            true => self.form.choose_with_dictionary(value),
            false => self.form.choose(value),
        };
        match tries {
            Some(tries) if form.is_tried() && !tries.is_due() => {
                self.form.uncompressed(value, RawReason::NotTried)
            }
            _ => form,
        }
    }
}

/// A value from a client: a slice of the read buffer, a separate pool buffer, or a part of a message.
pub(crate) enum Body<'a> {
    Slice(&'a [u8]),
    Pooled(Buffer),
    Shared(Bytes),
}

impl<'a> Body<'a> {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Body::Slice(bytes) => bytes,
            Body::Pooled(buffer) => buffer,
            Body::Shared(bytes) => bytes,
        }
    }

    /// Returns the value unchanged as its stored form.
    fn into_stored(self) -> Stored<'a> {
        match self {
            Body::Slice(bytes) => Stored::Slice(bytes),
            Body::Shared(bytes) => Stored::Shared(bytes),
            Body::Pooled(buffer) => {
                let bytes = buffer.len();
                Stored::Shared(buffer.freeze(0..bytes))
            }
        }
    }
}

/// The stored form of a value.
#[derive(Debug)]
pub(crate) enum Stored<'a> {
    Slice(&'a [u8]),
    Shared(Bytes),
    /// The compressed form of a value that is kept in its logical form too.
    WithLogical {
        stored: Bytes,
        logical: Bytes,
    },
}

impl Stored<'_> {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Stored::Slice(bytes) => bytes,
            Stored::Shared(stored) | Stored::WithLogical { stored, .. } => stored,
        }
    }
}

/// The logical form of a stored value, for a client.
#[derive(Debug)]
pub(crate) enum Logical {
    Value(Bytes),
    /// The value cannot or must not be served. It is a miss.
    Unreadable,
    /// Software found the frame damaged, so that the value is lost. It is a miss too.
    Damaged,
}

/// A read of a value.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) key: &'a [u8],
    /// The version of the item in the embedded store, if its logical value may be kept.
    pub(crate) cas: Option<u64>,
    /// The time, on the worker's clock, until which the caller waits.
    pub(crate) deadline: Option<Nanos>,
    /// What the seal of the value took, if there was one.
    pub(crate) seal: SealCost,
}

/// What the seal of a value adds to it.
#[derive(Clone, Copy, Default)]
pub(crate) struct SealCost {
    bytes: usize,
    service: Nanos,
}

impl<'a> Reading<'a> {
    /// A read that says nothing about later reads of the item.
    pub(crate) fn new(key: &'a [u8]) -> Self {
        Self { key, cas: None, deadline: None, seal: SealCost::default() }
    }

    /// A client's read of this version of an item.
    pub(crate) fn with_version(key: &'a [u8], version: Option<u64>) -> Self {
        Self { cas: version, ..Self::new(key) }
    }
}

impl Values {
    pub(crate) fn new(
        runtime: TokioRuntime,
        pool: Pool,
        (dictionaries, sealer): (Exchange, Sealer),
        rules: Rules,
        limits: ReadLimits,
        counters: Arc<Counters>,
        hot: Option<Arc<HotValues>>,
    ) -> Self {
        rules.set_mode(&sealer);
        let rules = RefCell::new(rules);
        let ReadLimits { original_bytes_max, software_reads } = limits;
        Self(Rc::new(Shared {
            runtime,
            pool,
            dictionaries,
            sealer,
            rules,
            original_bytes_max,
            counters,
            software_reads,
            raw: false,
            hot,
        }))
    }

    /// Returns a conversion that leaves values unchanged, for a service whose clients convert them.
    pub(crate) fn as_stored(&self) -> Self {
        let Shared { runtime, pool, rules, counters, .. } = &*self.0;
        Self(Rc::new(Shared {
            runtime: runtime.clone(),
            pool: pool.clone(),
            dictionaries: self.0.dictionaries.clone(),
            sealer: self.0.sealer.clone(),
            rules: rules.clone(),
            original_bytes_max: self.0.original_bytes_max,
            counters: Arc::clone(counters),
            software_reads: self.0.software_reads,
            raw: true,
            hot: None,
        }))
    }

    /// Returns the pool for values that are read. A device may read its buffers in place. Memory for other
    /// uses comes from the pool's heap.
    pub(crate) fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// Returns the dictionaries that this worker can find.
    pub(crate) fn dictionaries(&self) -> &Exchange {
        &self.0.dictionaries
    }

    pub(crate) fn set_rules(&self, rules: Rules) {
        rules.set_mode(&self.0.sealer);
        *self.0.rules.borrow_mut() = rules;
    }

    /// Returns the stored form of the logical value of `key`. The caller waits until `deadline`, on the worker's
    /// clock.
    pub(crate) async fn pack<'a>(
        &self,
        key: &[u8],
        body: Body<'a>,
        deadline: Option<Nanos>,
    ) -> Stored<'a> {
        if self.0.raw || is_dictionary(key, body.as_slice()) {
            return self.pack_unchanged(key, body).await;
        }
        let mut rules = *self.0.rules.borrow();
        let is_spare = self.0.dictionaries.has_spare_memory();
        if is_spare {
            rules.form = rules.form.with_spare_memory();
        }
        let original_bytes = body.as_slice().len();
        let class = match (1..=rules.dictionary_value_bytes_max).contains(&original_bytes) {
            true => self.0.dictionaries.class(key, body.as_slice()),
            false => None,
        };
        let dictionary = class.as_ref().and_then(|class| class.dictionary());
        let tries = class.as_ref().map(|class| class.tries(is_spare));
        let form = rules.choose(body.as_slice(), dictionary.is_some(), tries);
        let mut is_sealed = false;
        let counters = &self.0.counters.values;
        let stored = match form {
            Form::Raw(reason) => self.raw(body, reason),
            Form::Wrapped => {
                counters.written_wrapped.up();
                let value = body.as_slice();
                Stored::Shared(self.small_frame(key, Encoding::Stored, value, value))
            }
            Form::SameFilled(byte) => {
                counters.written_same_filled.up();
                let frame = self.small_frame(key, Encoding::SameFilled, body.as_slice(), &[byte]);
                Stored::Shared(frame)
            }
            Form::Compressed { dialect, level, stored_bytes_max } => {
                let coding = Coding { dialect, level, dictionary: None };
                let limits = Limits { stored_bytes_max, deadline };
                self.compress(key, body, coding, limits, &mut is_sealed).await
            }
            Form::WithDictionary { stored_bytes_max } => {
                let dialect = Dialect::new(Codec::ZstdDictionary);
                let coding = Coding { dialect, level: rules.form.level, dictionary };
                let limits = Limits { stored_bytes_max, deadline };
                self.compress(key, body, coding, limits, &mut is_sealed).await
            }
        };
        if let Some(class) = &class {
            let seal_bytes = if is_sealed { SealedHeader::OVERHEAD_BYTES } else { 0 };
            let form_bytes = stored.as_slice().len() - seal_bytes;
            if form.is_tried() {
                class.tries(is_spare).record(form_bytes < original_bytes);
            }
            class.count_stored(form_bytes);
        }
        let stored = match self.0.sealer.seals() && !is_sealed {
            true => Box::pin(self.seal(key, stored, original_bytes)).await,
            false => stored,
        };
        counters.logical_bytes_written.add_unshared(original_bytes as u64);
        counters.stored_bytes_written.add_unshared(stored.as_slice().len() as u64);
        stored
    }

    /// Returns the logical form of a value that the store returned, which is `hot` if it is kept, or else `stored`.
    pub(crate) async fn read(
        &self,
        reading: Reading<'_>,
        stored: Bytes,
        hot: Option<HotValue>,
    ) -> Logical {
        let Some(HotValue { logical, stored_bytes }) = hot else {
            return self.unpack(reading, stored).await;
        };
        let counters = &self.0.counters.values;
        counters.read_hot.up();
        counters.stored_bytes_read.add(stored_bytes as u64);
        counters.logical_bytes_read.add(logical.len() as u64);
        Logical::Value(logical)
    }

    /// Returns the logical form of a stored value.
    pub(crate) async fn unpack(&self, reading: Reading<'_>, stored: Bytes) -> Logical {
        if self.0.raw || is_dictionary(reading.key, &stored) {
            return self.unpack_unchanged(stored);
        }
        let counters = &self.0.counters.values;
        let stored_bytes = stored.len() as u64;
        let logical = match frame::inspect(&stored, self.0.original_bytes_max) {
            // With `foreign = "forbid"`, every value that is not a number is written in a frame.
            Inspected::Foreign if self.forbids(&stored) => {
                match self.0.sealer.requires_seal() {
                    true => counters.unsealed_refused.up(),
                    false => counters.foreign_refused.up(),
                }
                Logical::Unreadable
            }
            Inspected::Frame { .. } if self.0.sealer.requires_seal() => {
                counters.unsealed_refused.up();
                Logical::Unreadable
            }
            Inspected::Sealed { header, body } => {
                Box::pin(self.unseal(reading, header, &stored, body)).await
            }
            Inspected::Invalid(reason) if reason.is_of_seal() => {
                counters.seal_invalid.up();
                self.unopened()
            }
            Inspected::Foreign => {
                counters.read_foreign.up_unshared();
                Logical::Value(stored)
            }
            Inspected::Invalid(reason) => {
                counters.frame_invalid.up();
                if reason.is_damage() { Logical::Damaged } else { Logical::Unreadable }
            }
            Inspected::Frame { header, payload } => {
                self.open(reading, header, stored.slice(payload)).await
            }
        };
        if let Logical::Value(value) = &logical {
            counters.stored_bytes_read.add_unshared(stored_bytes);
            counters.logical_bytes_read.add_unshared(value.len() as u64);
        }
        logical
    }

    /// Returns whether a stored value is short and is the logical value too. If so, counts it as read.
    #[inline]
    pub(crate) fn read_in_place(&self, key: &[u8], stored: &[u8]) -> bool {
        let is_plain = stored.len() <= IN_PLACE_BYTES_MAX
            && !self.0.raw
            && !frame::must_wrap(stored)
            && !is_reserved(key)
            && !self.forbids(stored);
        if is_plain {
            let counters = &self.0.counters.values;
            counters.read_foreign.up_unshared();
            counters.stored_bytes_read.add_unshared(stored.len() as u64);
            counters.logical_bytes_read.add_unshared(stored.len() as u64);
        }
        is_plain
    }

    /// Returns whether values are not converted.
    pub(crate) fn is_raw(&self) -> bool {
        self.0.raw
    }

    /// Returns whether software finds the frame damaged, so that no reader can decode it.
    pub(crate) async fn is_damaged(&self, key: &[u8], stored: Bytes) -> bool {
        // Older servers wrap no value that begins like a frame of version 2, so it may be theirs.
        let may_be_theirs = self.0.rules.borrow().frame_version == FrameVersion::V1;
        if self.0.raw {
            return false;
        }
        if frame::looks_sealed(&stored) {
            return Box::pin(self.has_broken_seal(key, stored)).await;
        }
        if may_be_theirs && !stored.starts_with(&frame::MAGIC) {
            return false;
        }
        let (header, payload) = match frame::inspect(&stored, self.0.original_bytes_max) {
            Inspected::Foreign | Inspected::Sealed { .. } => return false,
            Inspected::Invalid(reason) => return reason.is_damage(),
            Inspected::Frame { header, payload } => (header, stored.slice(payload)),
        };
        let dictionary = match self.dictionary(&header).await {
            Ok(dictionary) => dictionary,
            // Without its dictionary the value is lost, and must not keep clients from adding a new one.
            Err(missing) => return missing == Missing::Absent,
        };
        // Another dictionary may have the id of the right one, unless it has proved to be good here.
        if header.dictionary_id.is_some_and(|id| !self.0.dictionaries.is_current(id)) {
            return false;
        }
        let Encoding::Compressed(codec) = header.encoding else {
            let logical = self.open(Reading::new(key), header, payload).await;
            return matches!(logical, Logical::Damaged);
        };
        let original_bytes = header.original_bytes as usize;
        let window_log2 = (header.window_log2 != 0).then_some(header.window_log2);
        let task = Task::Decompress { dialect: Dialect { codec, window_log2 }, original_bytes };
        let output = self.0.pool.take_heap(original_bytes);
        let job = Job { dictionary, ..Job::new(task, Input::heap(payload), output) };
        let finished = self.0.runtime.run_in_software(Box::new(job), Reason::Policy).await;
        is_corrupt(&finished.outcome) && !is_whole(&finished, &header, key)
    }

    /// Returns the logical length of a stored value, or `None` if the value cannot be served.
    pub(crate) fn logical_bytes(&self, stored: &[u8]) -> Option<usize> {
        if self.0.raw {
            return Some(stored.len());
        }
        match frame::inspect(stored, self.0.original_bytes_max) {
            Inspected::Foreign if self.forbids(stored) => None,
            Inspected::Foreign => Some(stored.len()),
            Inspected::Frame { .. } if self.0.sealer.requires_seal() => None,
            Inspected::Frame { header, .. } => Some(header.original_bytes as usize),
            Inspected::Sealed { header, .. } => Some(header.original_bytes as usize),
            Inspected::Invalid(_) => None,
        }
    }

    /// Returns whether a stored value is a frame whose encoding the client `reads`. If so, counts it as read. Clients
    /// cannot announce that they read frames of version 2 or dictionaries, so these never pass.
    pub(crate) fn may_pass(&self, stored: &[u8], reads: impl Fn(Encoding) -> bool) -> bool {
        let Inspected::Frame { header, .. } = frame::inspect(stored, self.0.original_bytes_max)
        else {
            return false;
        };
        let is_passed = header.version == FrameVersion::V1 && !self.0.sealer.requires_seal();
        if !is_passed || !reads(header.encoding) {
            return false;
        }
        let counters = &self.0.counters.values;
        counters.read_as_frame.up();
        counters.stored_bytes_read.add(stored.len() as u64);
        counters.logical_bytes_read.add(u64::from(header.original_bytes));
        true
    }

    /// Returns the dictionary that the frame needs, or none if it needs none.
    async fn dictionary(&self, header: &Header) -> Result<Option<Arc<Dictionary>>, Missing> {
        match header.dictionary_id {
            None => Ok(None),
            Some(id) => self.0.dictionaries.find(id).await.map(Some),
        }
    }

    fn forbids(&self, stored: &[u8]) -> bool {
        let rules = self.0.rules.borrow();
        rules.foreign == Foreign::Forbid && (rules.seals || !frame::is_number(stored))
    }

    fn raw<'a>(&self, body: Body<'a>, reason: RawReason) -> Stored<'a> {
        self.0.counters.raw[reason as usize].up_unshared();
        body.into_stored()
    }

    fn small_frame(
        &self,
        key: &[u8],
        encoding: Encoding,
        original: &[u8],
        payload: &[u8],
    ) -> Bytes {
        let version = self.0.rules.borrow().frame_version;
        let header = Header::seal(version, encoding, 0, key, original, payload.len());
        let header_bytes = header.header_bytes();
        let bytes = header_bytes + payload.len();
        let mut buffer = self.0.pool.take_heap(bytes);
        let mut head = [0; FRAME_HEADER_BYTES_MAX];
        header.encode(&mut head);
        buffer.extend(&head[..header_bytes]);
        buffer.extend(payload);
        buffer.freeze(0..bytes)
    }

    /// Returns the frame of the compressed value, or the value as it is if its stream saves too little. If values are
    /// sealed, the seal may be in the same chain, and `is_sealed` then says so.
    async fn compress<'a>(
        &self,
        key: &[u8],
        body: Body<'a>,
        coding: Coding,
        limits: Limits,
        is_sealed: &mut bool,
    ) -> Stored<'a> {
        if self.0.sealer.seals() {
            let sealed = Box::pin(self.compress_sealed(key, body, coding, limits));
            let (stored, sealed) = sealed.await;
            *is_sealed = sealed;
            return stored;
        }
        let (job, plan) = self.compression(body, coding, limits);
        let finished = job_stages::run(&self.0.runtime, job).await;
        match finished.outcome {
            Outcome::Done { output_bytes }
                if framed_bytes(plan.header_bytes, output_bytes, plan.stored_bytes_max)
                    .is_some() =>
            {
                self.0.counters.values.written_compressed.up();
                let header = plan.header(key, output_bytes);
                self.0.runtime.wrote(finished.path.device, header.checksum, output_bytes);
                let mut output = finished.job.output;
                header.encode(&mut output);
                let stored = output.freeze(0..plan.header_bytes + output_bytes);
                self.compressed(key, stored, plan.original)
            }
            _ => self.incompressible(key, plan.original),
        }
    }

    /// Returns a compressed value, with its logical form if an earlier value of the key is kept in it.
    fn compressed(&self, key: &[u8], stored: Bytes, logical: Bytes) -> Stored<'static> {
        let hot = self.0.hot.as_ref();
        match hot.is_some_and(|hot| hot.would_renew(key, logical.len())) {
            true => Stored::WithLogical { stored, logical },
            false => Stored::Shared(stored),
        }
    }

    /// Returns the job that compresses the value, and what its frame needs.
    fn compression(
        &self,
        body: Body<'_>,
        Coding { dialect, level, dictionary }: Coding,
        Limits { stored_bytes_max, deadline }: Limits,
    ) -> (Box<Job>, Compression) {
        let original_bytes = body.as_slice().len();
        let dictionary_id = dictionary.as_ref().map(|dictionary| dictionary.id());
        let window_log2 = stated_window(dialect, original_bytes);
        let input = match body {
            Body::Slice(bytes) => {
                let counters = &self.0.counters.values;
                counters.copies.up();
                counters.copied_bytes.add(bytes.len() as u64);
                let mut buffer = self.0.pool.take(bytes.len());
                buffer.extend(bytes);
                Input::pooled(buffer, 0..original_bytes)
            }
            Body::Pooled(buffer) => Input::pooled(buffer, 0..original_bytes),
            Body::Shared(bytes) => Input::heap(bytes),
        };
        let original = input.bytes().clone();
        let output = self.0.pool.take_heap(stored_bytes_max);
        let mut job = Box::new(Job::new(Task::Compress { dialect, level }, input, output));
        let version = self.0.rules.borrow().frame_version;
        let header_bytes = match dictionary_id {
            Some(_) => Header::DICTIONARY_HEADER_BYTES,
            None => version.header_bytes(window_log2, original_bytes),
        };
        (job.output_offset, job.deadline, job.dictionary) = (header_bytes, deadline, dictionary);
        let codec = dialect.codec;
        let plan = Compression {
            version,
            codec,
            window_log2,
            dictionary_id,
            original,
            header_bytes,
            stored_bytes_max,
        };
        (job, plan)
    }

    /// Returns the stored form of a value whose stream saves too little.
    fn incompressible<'a>(&self, key: &[u8], original: Bytes) -> Stored<'a> {
        self.0.counters.raw[RawReason::DidNotShrink as usize].up();
        if frame::must_wrap(&original) || self.0.rules.borrow().form.wrap_all {
            return Stored::Shared(self.small_frame(key, Encoding::Stored, &original, &original));
        }
        Stored::Shared(original)
    }

    async fn open(&self, reading: Reading<'_>, header: Header, payload: Bytes) -> Logical {
        let counters = &self.0.counters.values;
        let value = match header.encoding {
            Encoding::Stored => payload,
            Encoding::SameFilled => {
                let bytes = header.original_bytes as usize;
                let mut buffer = self.0.pool.take_heap(bytes);
                buffer.space()[..bytes].fill(payload[0]);
                buffer.set_len(bytes);
                buffer.freeze(0..bytes)
            }
            Encoding::Compressed(codec) => {
                return self.decompress(reading, header, codec, payload).await;
            }
        };
        if !header.verify(reading.key, &value) {
            counters.frame_corrupt.up();
            return Logical::Damaged;
        }
        counters.read_framed.up();
        Logical::Value(value)
    }

    async fn decompress(
        &self,
        reading: Reading<'_>,
        header: Header,
        codec: Codec,
        payload: Bytes,
    ) -> Logical {
        let Reading { key, deadline, .. } = reading;
        let counters = &self.0.counters.values;
        let original_bytes = header.original_bytes as usize;
        let Ok(dictionary) = self.dictionary(&header).await else {
            counters.dictionary_missing.up();
            return Logical::Unreadable;
        };
        let window_log2 = (header.window_log2 != 0).then_some(header.window_log2);
        let dialect = Dialect { codec, window_log2 };
        let job = |payload: Bytes| {
            let task = Task::Decompress { dialect, original_bytes };
            let output = self.0.pool.take_heap(original_bytes);
            let dictionary = dictionary.clone();
            Box::new(Job { deadline, dictionary, ..Job::new(task, Input::heap(payload), output) })
        };
        let stream_bytes = payload.len();
        let mut finished = job_stages::run(&self.0.runtime, job(payload.clone())).await;
        if finished.path.device != 0 && !is_whole(&finished, &header, key) {
            // The runtime counts failures, but cannot detect a wrong result of a completed job.
            if matches!(finished.outcome, Outcome::Done { .. }) {
                counters.device_corrupt.up();
            }
            if !self.0.software_reads {
                counters.no_device.up();
                return Logical::Unreadable;
            }
            // Software repeats the job, so that no value is lost to a faulty device.
            let device = finished.path.device;
            finished = job_stages::run_again(&self.0.runtime, job(payload)).await;
            if is_whole(&finished, &header, key) {
                self.0.runtime.report_misread(device);
            }
        }
        if !is_whole(&finished, &header, key) {
            self.0.runtime.report_unreadable(header.checksum, stream_bytes);
            counters.frame_corrupt.up();
            if let Some(id) = header.dictionary_id.filter(|id| !self.0.dictionaries.is_current(*id))
            {
                self.0.dictionaries.distrust(id);
                return Logical::Unreadable;
            }
            let by_software = finished.path.device == 0 && is_corrupt(&finished.outcome);
            return if by_software { Logical::Damaged } else { Logical::Unreadable };
        }
        self.served(reading, &header, stream_bytes, finished)
    }

    /// Returns the value that was decompressed right, and offers it to the hot values.
    fn served(
        &self,
        Reading { key, cas, seal, .. }: Reading<'_>,
        header: &Header,
        stream_bytes: usize,
        finished: Finished,
    ) -> Logical {
        let original_bytes = header.original_bytes as usize;
        self.0.counters.values.read_compressed.up();
        if let (Some(hot), Some(cas)) = (&self.0.hot, cas) {
            let stored_bytes = header.header_bytes() + stream_bytes + seal.bytes;
            let logical = &finished.job.output[..original_bytes];
            let cost = finished.service + seal.service;
            hot.offer(&Candidate { key, cas, logical, stored_bytes, cost });
        }
        Logical::Value(finished.job.output.freeze(0..original_bytes))
    }
}

/// The longest value with which a get is answered in place (bytes). A longer copy would hold up writers of the shard.
const IN_PLACE_BYTES_MAX: usize = 4 << 10;

/// The limits on reading values.
pub(crate) struct ReadLimits {
    /// The longest logical value (bytes).
    pub(crate) original_bytes_max: usize,
    /// True if software may decompress a value after a device failed to.
    pub(crate) software_reads: bool,
}

/// Returns whether a value is a dictionary or belongs to one, which is stored as it is.
fn is_dictionary(key: &[u8], value: &[u8]) -> bool {
    is_reserved(key) && !frame::must_wrap(value)
}

/// What the frame of a value needs that is being compressed.
struct Compression {
    version: FrameVersion,
    codec: Codec,
    window_log2: u8,
    dictionary_id: Option<DictionaryId>,
    original: Bytes,
    header_bytes: usize,
    stored_bytes_max: usize,
}

impl Compression {
    /// Returns the header of the frame around a stream of this length.
    fn header(&self, key: &[u8], stream_bytes: usize) -> Header {
        let Self { version, codec, window_log2, ref original, .. } = *self;
        match self.dictionary_id {
            Some(id) => Header::seal_with_dictionary(id, key, original, stream_bytes),
            None => {
                let encoding = Encoding::Compressed(codec);
                Header::seal(version, encoding, window_log2, key, original, stream_bytes)
            }
        }
    }
}

/// The way in which a value is compressed.
struct Coding {
    dialect: Dialect,
    level: Level,
    dictionary: Option<Arc<Dictionary>>,
}

/// The limits on compressing a value.
struct Limits {
    stored_bytes_max: usize,
    deadline: Option<Nanos>,
}

fn is_whole(finished: &Finished, header: &Header, key: &[u8]) -> bool {
    matches!(finished.outcome, Outcome::Done { .. }) && header.verify(key, &finished.job.output)
}

/// Returns whether decompression failed because of the stream, and not for lack of time or memory.
fn is_corrupt(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Done { .. } | Outcome::Failed(DeviceError::InvalidInput(_)))
}

/// Returns the window size (log2) for the frame header: the requested window or, for a short deflate stream,
/// the window that its length implies.
fn stated_window(dialect: Dialect, original_bytes: usize) -> u8 {
    match dialect.window_log2 {
        Some(window_log2) => window_log2,
        None if dialect.satisfies(Dialect::IAA, original_bytes) => 12,
        None => 0,
    }
}
