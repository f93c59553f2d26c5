//! Sealed values: the last step of a value's path to the store, and the first one of its way back.

use std::ops::Range;

use bytes::Bytes;
use store::frame::{self, Inspected, SealedHeader};

use super::{Body, Logical, Reading, SealCost, Stored, Values};
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
        let Opened { stored: form, service } =
            match self.0.sealer.open(key, &header, stored, body, deadline).await {
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
        counters.read_sealed.up();
        let reading =
            Reading { seal: SealCost { bytes: stored.len() - form.len(), service }, ..reading };
        match frame::inspect(&form, self.0.original_bytes_max) {
            Inspected::Foreign => {
                counters.read_framed.up();
                Logical::Value(form)
            }
            Inspected::Frame { header, payload } => {
                self.open(reading, header, form.slice(payload)).await
            }
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
        match self.0.sealer.open(key, &header, &stored, body, None).await {
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
                let opened = Box::pin(self.0.sealer.open(key, &header, stored, body, None)).await;
                if matches!(opened, Err(NotOpened::WrongTag)) {
                    self.0.counters.values.seal_wrong.up();
                }
                opened.ok().map(|_| bytes)
            }
            _ => Some(bytes),
        }
    }
}
