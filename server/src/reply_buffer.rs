//! A queue of bytes to write to a socket. Small pieces are copied together and large values are queued
//! without a copy; one call writes both. The queue has no socket: the caller writes when the socket is ready.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::Bytes;

use crate::budget::UNCHARGED_BYTES_MAX;

/// A queue of bytes to write.
#[derive(Debug, Default)]
pub(crate) struct ReplyBuffer {
    sealed: VecDeque<Bytes>,
    tail: Vec<u8>,
    /// The number of bytes of the first piece that are already written.
    written: usize,
    sealed_bytes: usize,
    /// The number of pieces that are long enough to be charged to a budget.
    long_pieces: usize,
}

impl ReplyBuffer {
    /// Returns the buffer to which lines and small values are appended.
    pub(crate) fn text(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Appends a value. A large value is not copied.
    pub(crate) fn value(&mut self, value: Bytes) {
        if value.len() < GATHER_BYTES_MAX {
            self.tail.extend_from_slice(&value);
            return;
        }
        self.seal();
        self.sealed_bytes += value.len();
        self.long_pieces += usize::from(value.len() > UNCHARGED_BYTES_MAX);
        self.sealed.push_back(value);
    }

    /// Puts bytes in front of the queued ones. Nothing may have been written yet.
    pub(crate) fn prepend(&mut self, head: Vec<u8>) {
        self.seal();
        self.sealed_bytes += head.len();
        self.sealed.push_front(Bytes::from(head));
    }

    /// Returns whether any queued piece is charged to a budget.
    pub(crate) const fn is_charged(&self) -> bool {
        self.long_pieces > 0
    }

    /// Returns the number of bytes not yet written.
    pub(crate) fn len(&self) -> usize {
        self.sealed_bytes + self.tail.len() - self.written
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all queued bytes.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Appends another queue. Nothing of `other` may have been written yet.
    pub(crate) fn append(&mut self, other: Self) {
        other.into_parts().into_iter().for_each(|part| self.value(part));
    }

    /// Returns the queued bytes, with large values as separate parts. Nothing may have been written yet.
    pub(crate) fn into_parts(mut self) -> Vec<Bytes> {
        self.seal();
        self.sealed.into()
    }

    /// Writes with one call of `write` and returns the number of bytes left. The size of the call is bounded,
    /// so that other tasks of the thread do not wait for long.
    ///
    /// # Errors
    /// Returns the error of `write`, or `WriteZero` if `write` writes nothing.
    pub(crate) fn write(
        &mut self,
        write: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.sealed.is_empty() {
            // This is the usual case: all bytes are in one piece.
            let rest = &self.tail[self.written..];
            let bytes = write(&[IoSlice::new(&rest[..rest.len().min(CALL_BYTES_MAX)])])?;
            return self.wrote(bytes);
        }
        let mut slices = std::array::from_fn::<_, SLICES_MAX, _>(|_| IoSlice::new(&[]));
        let mut count = 0;
        let mut skip = self.written;
        let mut bytes_left = CALL_BYTES_MAX;
        for piece in self.sealed.iter().map(|piece| &piece[..]).chain([&self.tail[..]]) {
            if count == SLICES_MAX || bytes_left == 0 {
                break;
            }
            if piece.len() > skip {
                let bytes = (piece.len() - skip).min(bytes_left);
                slices[count] = IoSlice::new(&piece[skip..skip + bytes]);
                count += 1;
                bytes_left -= bytes;
            }
            skip = skip.saturating_sub(piece.len());
        }
        let bytes = write(&slices[..count])?;
        self.wrote(bytes)
    }

    /// Records that `bytes` bytes were written. Returns the number of bytes left.
    fn wrote(&mut self, bytes: usize) -> io::Result<usize> {
        if bytes == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.advance(bytes);
        Ok(self.len())
    }

    fn advance(&mut self, bytes: usize) {
        self.written += bytes;
        while let Some(piece) = self.sealed.front() {
            if self.written < piece.len() {
                return;
            }
            self.written -= piece.len();
            self.sealed_bytes -= piece.len();
            self.long_pieces -= usize::from(piece.len() > UNCHARGED_BYTES_MAX);
            self.sealed.pop_front();
        }
        if self.written == self.tail.len() {
            self.written = 0;
            self.tail.clear();
            // An idle connection keeps at most one page.
            if self.tail.capacity() > IDLE_BYTES_MAX {
                self.tail.shrink_to(IDLE_BYTES_MAX);
            }
            if self.sealed.capacity() > 0 {
                self.sealed.shrink_to(0);
            }
        }
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.sealed_bytes += tail.len();
            self.long_pieces += usize::from(tail.len() > UNCHARGED_BYTES_MAX);
            self.sealed.push_back(Bytes::from(tail));
        }
    }
}

/// The size from which values are passed as a slice to the kernel instead of being copied (bytes).
const GATHER_BYTES_MAX: usize = 8 << 10;

/// The maximum number of slices in one call.
const SLICES_MAX: usize = 16;

/// The maximum number of bytes in one call. The kernel copies them in some tens of microseconds.
pub(crate) const CALL_BYTES_MAX: usize = 128 << 10;

const IDLE_BYTES_MAX: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_written_once_and_in_order() {
        for step in [1, 7, 4_096, 1 << 20] {
            let mut out = ReplyBuffer::default();
            let mut expected = Vec::new();
            for round in 0..20u8 {
                out.text().extend_from_slice(&[round; 33]);
                expected.extend_from_slice(&[round; 33]);
                let value = vec![round | 0x80; if round % 3 == 0 { 10_000 } else { 100 }];
                expected.extend_from_slice(&value);
                out.value(Bytes::from(value));
            }
            assert_eq!(out.len(), expected.len());
            let mut written: Vec<u8> = Vec::new();
            while !out.is_empty() {
                let sink = |slices: &[IoSlice<'_>]| {
                    let before = written.len();
                    written.extend(slices.iter().flat_map(|slice| slice.iter()).take(step));
                    Ok(written.len() - before)
                };
                out.write(sink).expect("the sink takes bytes");
            }
            assert_eq!(written, expected);
        }
    }
}
