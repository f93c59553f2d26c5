//! What follows the first op of a sealed value's chain: the seal behind a compression, and the decompression behind a
//! decryption. Devices call these, so they hold what they need and nothing of the worker. A device in another process
//! gets them as messages, from which [`RequestedFollow`] makes them again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use api::prost::Message;
use api::v1;
use api::v1::follow::Op as FollowOp;
use bytes::Bytes;
use device::{Buffer, Dialect, Follow, Job, Next, Pool, TAG_BYTES, Task};
use policy::form::framed_bytes;
use store::frame::{self, Encoding, FrameVersion, Inspected, SealedHeader};
use units::Op;
use units::limits::FRAME_HEADER_BYTES_MAX;

use super::{Compression, stated_window};
use crate::sealing::Seal;

/// Frames a stream and encrypts the frame.
pub(super) struct SealedStream {
    key: Box<[u8]>,
    plan: Compression,
    task: Task,
    /// What is in front of the ciphertext.
    front: Box<[u8]>,
    memory: ResultMemory,
    /// The checksum of the frame and the length of the stream, once there is one.
    written: Mutex<Option<(u32, usize)>>,
    /// Whether the stream was written again, so that another nonce must seal it.
    must_seal_anew: AtomicBool,
}

impl SealedStream {
    pub(super) fn new(key: &[u8], plan: Compression, seal: &Seal, pool: Pool) -> Self {
        Self {
            key: key.into(),
            plan,
            task: seal.task.clone(),
            front: seal.header.encode().into(),
            memory: ResultMemory::Heap(pool),
            written: Mutex::default(),
            must_seal_anew: AtomicBool::new(false),
        }
    }

    /// Returns the frame around a stream that was written again, or none if the chain ended for another reason.
    pub(super) fn frame_again(&self, mut output: Buffer, offset: usize) -> Option<Bytes> {
        if !self.must_seal_anew.load(Ordering::Relaxed) {
            return None;
        }
        let start = self.frame(&mut output, offset)?;
        let end = output.len();
        Some(output.freeze(start..end))
    }

    /// Writes the header in front of the stream, which begins at `offset`. Returns where the frame begins, or none if
    /// it saves too little.
    fn frame(&self, output: &mut Buffer, offset: usize) -> Option<usize> {
        let stream_bytes = output.len().checked_sub(offset)?;
        let start = offset.checked_sub(self.plan.header_bytes)?;
        framed_bytes(self.plan.header_bytes, stream_bytes, self.plan.stored_bytes_max)?;
        let header = self.plan.header(&self.key, stream_bytes);
        header.encode(&mut output[start..]);
        let written = Some((header.checksum, stream_bytes));
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = written;
        Some(start)
    }

    /// Returns the checksum of the frame and the length of its stream.
    pub(super) fn written(&self) -> Option<(u32, usize)> {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follow for SealedStream {
    fn op(&self) -> Op {
        Op::Encrypt
    }

    fn work_bytes(&self) -> usize {
        // Streams are about half as long as their values.
        self.plan.header_bytes + self.plan.original.len() / 2
    }

    fn prepare(&self, output: &mut Buffer, offset: usize) -> Option<Next> {
        let form = self.frame(output, offset)?..output.len();
        let mut sealed = self.memory.take(self.front.len() + form.len() + TAG_BYTES)?;
        sealed.extend(&self.front);
        Some(Next {
            task: self.task.clone(),
            input: form.into(),
            output: sealed,
            output_offset: self.front.len(),
            dictionary: None,
        })
    }

    /// Another engine may write another stream, and the nonce may have sealed the first one.
    fn prepare_again(&self, _output: &mut Buffer, _offset: usize) -> Option<Next> {
        self.must_seal_anew.store(true, Ordering::Relaxed);
        None
    }

    fn message(&self) -> Option<Vec<u8>> {
        if self.plan.dictionary_id.is_some() {
            return None;
        }
        let (name, nonce, associated) = self.task.named_cipher()?;
        let cipher = v1::Cipher::new(name.id, &name.check, &nonce.0, associated.as_slice());
        let seal = v1::SealStream {
            item_key: self.key.to_vec().into(),
            frame_version: self.plan.version.number().into(),
            frame_bytes_max: u32::try_from(self.plan.stored_bytes_max).ok()?,
            cipher: Some(cipher),
        };
        Some(v1::Follow { op: Some(FollowOp::SealStream(seal)) }.encode_to_vec())
    }
}

/// Decompresses the frame that was sealed, if it is a compressed one. A dictionary is found by its id in the frame,
/// which only the worker can do, so such a frame ends the chain.
pub(super) struct OpenedFrame {
    original_bytes: usize,
    original_bytes_max: usize,
    /// The space in front of the value (bytes).
    front_bytes: usize,
    memory: ResultMemory,
}

impl OpenedFrame {
    pub(super) fn new(header: &SealedHeader, original_bytes_max: usize, pool: &Pool) -> Arc<Self> {
        let original_bytes = header.original_bytes as usize;
        let memory = ResultMemory::Heap(pool.clone());
        Arc::new(Self { original_bytes, original_bytes_max, front_bytes: 0, memory })
    }
}

impl Follow for OpenedFrame {
    fn op(&self) -> Op {
        Op::Decompress
    }

    fn work_bytes(&self) -> usize {
        self.original_bytes
    }

    fn prepare(&self, output: &mut Buffer, offset: usize) -> Option<Next> {
        let form = output.get(offset..)?;
        let Inspected::Frame { header, payload } = frame::inspect(form, self.original_bytes_max)
        else {
            return None;
        };
        let Encoding::Compressed(codec) = header.encoding else { return None };
        let original_bytes = header.original_bytes as usize;
        if header.dictionary_id.is_some() || original_bytes != self.original_bytes {
            return None;
        }
        let window_log2 = (header.window_log2 != 0).then_some(header.window_log2);
        let task = Task::Decompress { dialect: Dialect { codec, window_log2 }, original_bytes };
        Some(Next {
            task,
            input: (offset + payload.start..offset + payload.end).into(),
            output: self.memory.take(self.front_bytes + original_bytes)?,
            output_offset: self.front_bytes,
            dictionary: None,
        })
    }

    fn message(&self) -> Option<Vec<u8>> {
        let open = v1::OpenFrame { original_bytes: u32::try_from(self.original_bytes).ok()? };
        Some(v1::Follow { op: Some(FollowOp::OpenFrame(open)) }.encode_to_vec())
    }
}

/// The memory for results.
#[derive(Clone)]
pub(crate) enum ResultMemory {
    /// The heap of this pool.
    Heap(Pool),
    /// The memory of this pool, and nothing beside it.
    Registered(Pool),
}

impl ResultMemory {
    /// Returns a buffer, or none if there is no memory.
    pub(crate) fn take(&self, bytes: usize) -> Option<Buffer> {
        match self {
            ResultMemory::Heap(pool) => Some(pool.take_heap(bytes)),
            ResultMemory::Registered(pool) => pool.take_registered(bytes),
        }
    }
}

/// What another process wants to follow a job of its own.
#[derive(Debug)]
pub(crate) enum RequestedFollow {
    SealStream { item_key: Bytes, version: FrameVersion, frame_bytes_max: usize, task: Task },
    OpenFrame { original_bytes: usize },
}

impl RequestedFollow {
    /// Returns the largest result (bytes), for a first result of at most `first_bytes_max`.
    pub(crate) fn output_bytes_max(&self, first_bytes_max: usize) -> usize {
        match self {
            RequestedFollow::SealStream { frame_bytes_max, .. } => {
                first_bytes_max.min(*frame_bytes_max) + FRAME_HEADER_BYTES_MAX + TAG_BYTES
            }
            RequestedFollow::OpenFrame { original_bytes } => *original_bytes,
        }
    }

    /// Makes what follows this job. Its result goes to `memory` and has `front_bytes` unused bytes in front of it.
    /// Returns none if nothing can follow the job.
    pub(crate) fn follow(
        self,
        job: &Job,
        (memory, front_bytes): (ResultMemory, usize),
    ) -> Option<Arc<dyn Follow>> {
        match self {
            RequestedFollow::SealStream { item_key, version, frame_bytes_max, task } => {
                let seal = (item_key, version, frame_bytes_max, task);
                Some(Arc::new(seal_stream(job, seal, (memory, front_bytes))))
            }
            RequestedFollow::OpenFrame { original_bytes } => Some(Arc::new(OpenedFrame {
                original_bytes,
                original_bytes_max: original_bytes,
                front_bytes,
                memory,
            })),
        }
    }
}

/// Makes what seals the stream of this job in the way that another process asks for.
fn seal_stream(
    job: &Job,
    (item_key, version, frame_bytes_max, task): (Bytes, FrameVersion, usize, Task),
    (memory, front_bytes): (ResultMemory, usize),
) -> SealedStream {
    let dialect = job.task.dialect().expect("it follows a compression");
    let original = job.input.bytes().clone();
    let window_log2 = stated_window(dialect, original.len());
    let plan = Compression {
        version,
        codec: dialect.codec,
        window_log2,
        dictionary_id: None,
        header_bytes: version.header_bytes(window_log2, original.len()),
        original,
        stored_bytes_max: frame_bytes_max,
    };
    SealedStream {
        key: item_key.to_vec().into(),
        plan,
        task,
        front: vec![0; front_bytes].into(),
        memory,
        written: Mutex::default(),
        must_seal_anew: AtomicBool::new(false),
    }
}

#[cfg(test)]
mod tests {
    use device::cipher::{KEY_BYTES, NONCE_BYTES};
    use device::{AssociatedData, Chain, Codec, Input, Key, Level, Nonce};
    use units::{ByteCount, Nanos};

    use super::*;

    /// Returns a job whose compression is done, and the seal that follows it.
    fn compressed() -> (Job, usize, Arc<SealedStream>) {
        let dialect = Dialect::new(Codec::Deflate);
        let original = Bytes::from("a text that repeats, ".repeat(100));
        let pool = Pool::heap(ByteCount(0));
        let task = Task::Compress { dialect, level: Level::Fast };
        let mut job = Job::new(task, Input::heap(original), pool.take(4_000));
        job.output_offset = FRAME_HEADER_BYTES_MAX;
        let key = Key::new(&[1; KEY_BYTES]);
        let nonce = Nonce([1; NONCE_BYTES]);
        let task = Task::Encrypt { key, nonce, associated: AssociatedData::NONE };
        let seal = (Bytes::from("key"), FrameVersion::V2, 4_000, task);
        let follow = Arc::new(seal_stream(&job, seal, (ResultMemory::Heap(pool), 0)));
        job.chain = Some(Chain::new(&job, vec![Arc::clone(&follow) as Arc<dyn Follow>]));
        // What follows looks only at the length of a stream.
        let stream_bytes = 100;
        job.output.set_len(job.output_offset + stream_bytes);
        (job, stream_bytes, follow)
    }

    #[test]
    fn a_nonce_seals_one_stream_only() {
        let (mut job, stream_bytes, follow) = compressed();
        let takes = |_: &Task, _: usize| true;
        assert!(job.advance(stream_bytes, Nanos(1), takes));
        assert!(matches!(job.task, Task::Encrypt { .. }));
        assert_eq!(follow.written().map(|(_, bytes)| bytes), Some(stream_bytes));
        let none = Pool::heap(ByteCount(0)).take(1);
        assert_eq!(follow.frame_again(none, 0), None, "nothing was done again");

        let (mut job, stream_bytes, follow) = compressed();
        job.chain.iter_mut().for_each(|chain| chain.set_redone());
        assert!(!job.advance(stream_bytes, Nanos(1), takes), "its seal may exist already");
        let at = job.output_offset;
        let form = follow.frame_again(job.output, at).expect("a frame to seal with another nonce");
        assert!(matches!(frame::inspect(&form, 10_000), Inspected::Frame { .. }));
    }
}
