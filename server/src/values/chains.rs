//! What follows the first op of a sealed value's chain: the seal behind a compression, and the decompression behind a
//! decryption. Devices call these, so they hold what they need and nothing of the worker.

use std::sync::{Arc, Mutex, PoisonError};

use device::{Buffer, Dialect, Follow, Next, Pool, Task};
use policy::form::framed_bytes;
use store::frame::{self, Encoding, Inspected, SealedHeader};
use units::Op;

use super::Compression;
use crate::sealing::Seal;

/// Frames a stream and encrypts the frame.
pub(super) struct SealedStream {
    key: Box<[u8]>,
    plan: Compression,
    header: SealedHeader,
    task: Task,
    pool: Pool,
    /// The checksum of the frame and the length of the stream, once there is one.
    written: Mutex<Option<(u32, usize)>>,
}

impl SealedStream {
    pub(super) fn new(key: &[u8], plan: Compression, seal: &Seal, pool: Pool) -> Self {
        Self {
            key: key.into(),
            plan,
            header: seal.header,
            task: seal.task.clone(),
            pool,
            written: Mutex::default(),
        }
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
        let stream_bytes = output.len().checked_sub(offset)?;
        framed_bytes(self.plan.header_bytes, stream_bytes, self.plan.stored_bytes_max)?;
        let header = self.plan.header(&self.key, stream_bytes);
        header.encode(output);
        let written = Some((header.checksum, stream_bytes));
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = written;
        let form_bytes = output.len();
        let mut sealed = self.pool.take_heap(form_bytes + SealedHeader::OVERHEAD_BYTES);
        sealed.extend(&self.header.encode());
        Some(Next {
            task: self.task.clone(),
            input: 0..form_bytes,
            output: sealed,
            output_offset: SealedHeader::BYTES,
            dictionary: None,
        })
    }
}

/// Decompresses the frame that was sealed, if it is a compressed one. A dictionary is found by its id in the frame,
/// which only the worker can do, so such a frame ends the chain.
pub(super) struct OpenedFrame {
    original_bytes: usize,
    original_bytes_max: usize,
    pool: Pool,
}

impl OpenedFrame {
    pub(super) fn new(header: &SealedHeader, original_bytes_max: usize, pool: &Pool) -> Arc<Self> {
        let original_bytes = header.original_bytes as usize;
        Arc::new(Self { original_bytes, original_bytes_max, pool: pool.clone() })
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
            input: offset + payload.start..offset + payload.end,
            output: self.pool.take_heap(original_bytes),
            output_offset: 0,
            dictionary: None,
        })
    }
}
