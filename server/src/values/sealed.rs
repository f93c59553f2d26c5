//! Sealed values: the last step of a value's path to the store, and the first one of its way back.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use device::{Chain, Follow, Key, KeyName, Outcome, Task};
use runtime::Finished;
use store::frame::{self, Inspected, SealedHeader};

use super::chains::{OpenedFrame, SealedStream};
use super::{Body, Coding, Limits, Logical, Reading, SealCost, Stored, Values, is_whole};
use crate::job_stages;
use crate::sealing::{NotOpened, Opened};

impl Values {
    /// Returns the stored form of a value that no frame belongs around.
    #[cold]
    pub(super) async fn pack_unchanged<'a>(&self, key: &[u8], body: Body<'a>) -> Stored<'a> {
        let original_bytes = body.as_slice().len();
        match self.0.sealer.seals() && !self.0.raw {
            true => Box::pin(self.seal(key, body.into_stored(), original_bytes)).await,
            false => body.into_stored(),
        }
    }

    pub(super) async fn seal<'a>(
        &self,
        key: &[u8],
        stored: Stored<'a>,
        original_bytes: usize,
    ) -> Stored<'a> {
        Stored::Shared(self.0.sealer.seal(key, stored, original_bytes).await)
    }

    /// Compresses and seals a value in one chain. If its stream saves too little, returns the stored form without a
    /// seal. The flag says whether it is sealed.
    pub(super) async fn compress_sealed<'a>(
        &self,
        key: &[u8],
        body: Body<'a>,
        coding: Coding,
        limits: Limits,
    ) -> (Stored<'a>, bool) {
        let (mut job, plan) = self.compression(body, coding, limits);
        let original = plan.original.clone();
        let seal = self.0.sealer.next_seal(key, original.len());
        let stream = Arc::new(SealedStream::new(key, plan, &seal, self.0.pool.clone()));
        job.chain = Some(Chain::new(&job, vec![Arc::clone(&stream) as Arc<dyn Follow>]));
        let stage = job_stages::open(&mut job);
        let (finished, first) = self.0.runtime.run_chain(job).await;
        job_stages::close(stage, &finished);
        let is_sealed = matches!(finished.job.task, Task::Encrypt { .. });
        let Outcome::Done { output_bytes } = finished.outcome else {
            return (self.incompressible(key, original), false);
        };
        if !is_sealed {
            let Finished { job, .. } = finished;
            return match stream.frame_again(job.output, job.output_offset) {
                Some(form) => {
                    self.0.counters.values.written_compressed.up();
                    let original_bytes = original.len();
                    (self.seal(key, Stored::Shared(form), original_bytes).await, true)
                }
                None => (self.incompressible(key, original), false),
            };
        }
        if let Some((checksum, stream_bytes)) = stream.written() {
            self.0.runtime.wrote(first.device, checksum, stream_bytes);
        }
        self.0.counters.values.written_compressed.up();
        let sealed_bytes = SealedHeader::BYTES + output_bytes;
        self.0.sealer.count_sealed(&seal, sealed_bytes);
        let sealed = finished.job.output.freeze(0..sealed_bytes);
        (self.compressed(key, sealed, original), true)
    }

    /// Returns the key of this name, if this process has the same one.
    pub(crate) fn key(&self, name: KeyName) -> Option<Key> {
        self.0.sealer.key(name)
    }

    /// Returns whether new values are sealed, so that the store cannot count them.
    pub(crate) fn seals(&self) -> bool {
        !self.0.raw && self.0.sealer.seals()
    }

    #[cold]
    pub(super) fn unpack_unchanged(&self, stored: Bytes) -> Logical {
        if !self.0.raw && self.0.sealer.requires_seal() {
            self.0.counters.values.unsealed_refused.up();
            return Logical::Unreadable;
        }
        Logical::Value(stored)
    }

    /// Returns the logical form of a sealed value.
    pub(super) async fn unseal(
        &self,
        reading: Reading<'_>,
        header: SealedHeader,
        stored: &Bytes,
        body: Range<usize>,
    ) -> Logical {
        let counters = &self.0.counters.values;
        let Reading { key, deadline, .. } = reading;
        let follow = OpenedFrame::new(&header, self.0.original_bytes_max, &self.0.pool);
        let with = (deadline, Some(follow as Arc<dyn Follow>));
        let Opened { stored: mut form, service, device, mut followed_by } =
            match self.0.sealer.open(key, &header, stored, body.clone(), with).await {
                Ok(opened) => opened,
                Err(NotOpened::WrongTag) => {
                    counters.seal_wrong.up();
                    return self.unopened();
                }
                Err(NotOpened::UnknownKey) => {
                    counters.seal_key_unknown.up();
                    return Logical::Unreadable;
                }
                Err(NotOpened::NoDevice) => {
                    counters.no_device.up();
                    return Logical::Unreadable;
                }
            };
        if self.0.runtime.is_foreign(device)
            && !matches!(frame::inspect(&form, self.0.original_bytes_max), Inspected::Frame { .. })
        {
            // Only a frame has a checksum, and software opens what has none.
            let sealed = (stored, body);
            match self.0.sealer.open_again(key, &header, sealed, (device, &form)).await {
                Some(right) => (form, followed_by) = (right, None),
                None => {
                    counters.seal_wrong.up();
                    return self.unopened();
                }
            }
        }
        counters.read_sealed.up();
        let reading =
            Reading { seal: SealCost { bytes: stored.len() - form.len(), service }, ..reading };
        match frame::inspect(&form, self.0.original_bytes_max) {
            Inspected::Foreign => {
                counters.read_framed.up();
                Logical::Value(form)
            }
            Inspected::Frame { header, payload } => match followed_by {
                Some(finished) if is_whole(&finished, &header, key) => {
                    self.served(reading, &header, payload.len(), finished)
                }
                followed_by => {
                    let wrong = followed_by.filter(is_wrong_of_device);
                    if wrong.is_some() {
                        counters.device_corrupt.up();
                    }
                    let logical = self.open(reading, header, form.slice(payload)).await;
                    if let (Some(wrong), Logical::Value(_)) = (wrong, &logical) {
                        self.0.runtime.report_misread(wrong.path.device);
                    }
                    logical
                }
            },
            // No writer makes these.
            Inspected::Sealed { .. } | Inspected::Invalid(_) => {
                counters.frame_invalid.up();
                Logical::Unreadable
            }
        }
    }

    /// Returns what a value is that begins like a sealed one and is none of ours. In a closed fleet nobody can read it.
    pub(super) fn unopened(&self) -> Logical {
        if self.0.sealer.requires_seal() { Logical::Damaged } else { Logical::Unreadable }
    }

    /// Returns whether a value that begins like a sealed one is readable by nobody, as far as this process can tell:
    /// in a fleet that serves only sealed values, it is none, or its tag is wrong for a key of ours. Without its
    /// dictionary an opened value is lost as well.
    pub(super) async fn has_broken_seal(&self, key: &[u8], stored: Bytes) -> bool {
        let is_closed = self.0.sealer.requires_seal();
        let (header, body) = match frame::inspect(&stored, self.0.original_bytes_max) {
            Inspected::Sealed { header, body } => (header, body),
            Inspected::Invalid(reason) => return is_closed && reason.is_of_seal(),
            Inspected::Foreign | Inspected::Frame { .. } => return false,
        };
        match self.0.sealer.open(key, &header, &stored, body, (None, None)).await {
            Err(NotOpened::WrongTag) => is_closed,
            Err(NotOpened::UnknownKey | NotOpened::NoDevice) => false,
            Ok(Opened { stored: form, .. }) if frame::looks_sealed(&form) => false,
            Ok(Opened { stored: form, .. }) => Box::pin(self.is_damaged(key, form)).await,
        }
    }

    /// Returns the logical length of a stored value like [`Values::logical_bytes`], after opening its seal.
    pub(crate) async fn verified_bytes(&self, key: &[u8], stored: &Bytes) -> Option<usize> {
        let bytes = self.logical_bytes(stored)?;
        if self.0.raw || !frame::looks_sealed(stored) {
            return Some(bytes);
        }
        match frame::inspect(stored, self.0.original_bytes_max) {
            Inspected::Sealed { header, body } => {
                let opened =
                    Box::pin(self.0.sealer.open(key, &header, stored, body, (None, None))).await;
                if matches!(opened, Err(NotOpened::WrongTag)) {
                    self.0.counters.values.seal_wrong.up();
                }
                opened.ok().map(|_| bytes)
            }
            _ => Some(bytes),
        }
    }
}

/// Returns whether a device gave a result without an error, which is wrong.
fn is_wrong_of_device(finished: &Finished) -> bool {
    finished.path.device != 0 && matches!(finished.outcome, Outcome::Done { .. })
}
