//! The sections of a snapshot as chunks with checksums. A reader sees a byte only after its chunk's checksum
//! was verified. This file does not know what sections contain.

use std::io::{self, ErrorKind, Read, Write};

use super::{FORMAT_VERSION, SectionKind, SnapshotError};
use crate::checksum;

/// Writes the sections of a snapshot.
pub(super) struct SnapshotWriter<W> {
    out: W,
    /// The number of the next chunk.
    number: u64,
    buffer: Vec<u8>,
}

/// The section that is being written.
pub(super) struct Part<'w, W> {
    to: &'w mut SnapshotWriter<W>,
    kind: SectionKind,
    is_required: bool,
}

impl<W: Write> SnapshotWriter<W> {
    /// Writes the snapshot's first bytes.
    pub(super) fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(&MAGIC)?;
        out.write_all(&FORMAT_VERSION.to_le_bytes())?;
        Ok(Self { out, number: 0, buffer: Vec::with_capacity(CHUNK_BYTES_MAX) })
    }

    /// Writes a section, whose bytes `write` puts into the part.
    pub(super) fn section<T>(
        &mut self,
        kind: SectionKind,
        is_required: bool,
        write: impl FnOnce(&mut Part<'_, W>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut part = Part { to: self, kind, is_required };
        let result = write(&mut part)?;
        part.end_chunk(0)?;
        Ok(result)
    }

    /// Flushes everything to the output and returns it.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Part<'_, W> {
    pub(super) fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.to.buffer.len() == CHUNK_BYTES_MAX {
                self.end_chunk(IS_CONTINUED)?;
            }
            let space = CHUNK_BYTES_MAX - self.to.buffer.len();
            let (now, later) = bytes.split_at(space.min(bytes.len()));
            self.to.buffer.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    fn end_chunk(&mut self, continued: u32) -> io::Result<()> {
        let required = if self.is_required { IS_REQUIRED } else { 0 };
        let SnapshotWriter { out, number, buffer } = &mut *self.to;
        let fields = Fields { kind: self.kind, flags: continued | required, bytes: buffer.len() };
        out.write_all(&fields.encode(fields.checksum(*number, buffer)))?;
        out.write_all(buffer)?;
        *number += 1;
        buffer.clear();
        Ok(())
    }
}

/// The first fields of a chunk.
#[derive(Clone, Copy)]
struct Fields {
    kind: SectionKind,
    flags: u32,
    bytes: usize,
}

impl Fields {
    fn covered(self) -> [u8; COVERED_BYTES] {
        let mut covered = [0; COVERED_BYTES];
        covered[..4].copy_from_slice(&self.kind.0);
        covered[4..8].copy_from_slice(&self.flags.to_le_bytes());
        covered[8..].copy_from_slice(&(self.bytes as u32).to_le_bytes());
        covered
    }

    /// Returns the checksum over the chunk's number, its fields and its contents. With the number, chunks
    /// cannot change places unnoticed.
    fn checksum(self, number: u64, contents: &[u8]) -> u32 {
        let sum = checksum::of_bytes(&number.to_le_bytes());
        checksum::append(checksum::append(sum, &self.covered()), contents)
    }

    fn encode(self, checksum: u32) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..COVERED_BYTES].copy_from_slice(&self.covered());
        header[COVERED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    fn decode(header: [u8; HEADER_BYTES]) -> (Self, u32) {
        let [k0, k1, k2, k3, f0, f1, f2, f3, b0, b1, b2, b3, c0, c1, c2, c3] = header;
        let fields = Self {
            kind: SectionKind([k0, k1, k2, k3]),
            flags: u32::from_le_bytes([f0, f1, f2, f3]),
            bytes: u32::from_le_bytes([b0, b1, b2, b3]) as usize,
        };
        (fields, u32::from_le_bytes([c0, c1, c2, c3]))
    }
}

/// Reads the sections of a snapshot.
pub(super) struct SectionReader<R> {
    input: R,
    /// The number of the next chunk.
    number: u64,
    kind: SectionKind,
    is_continued: bool,
    /// The contents of the current chunk, and how many of its bytes were taken.
    chunk: Vec<u8>,
    taken: usize,
}

/// The beginning of a section.
pub(super) struct SectionHead {
    pub(super) kind: SectionKind,
    pub(super) is_required: bool,
}

impl<R: Read> SectionReader<R> {
    /// Reads the snapshot's first bytes.
    pub(super) fn begin(mut input: R) -> Result<Self, SnapshotError> {
        let mut first = [0; MAGIC.len() + 4];
        input.read_exact(&mut first).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => SnapshotError::Foreign,
            _ => SnapshotError::Read(error),
        })?;
        let (magic, version) = first.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(SnapshotError::Foreign);
        }
        let found = u32::from_le_bytes(version.try_into().unwrap_or_default());
        if found != FORMAT_VERSION {
            return Err(SnapshotError::Version { found });
        }
        let kind = SectionKind(*b"    ");
        Ok(Self { input, number: 0, kind, is_continued: false, chunk: Vec::new(), taken: 0 })
    }

    /// Begins the next section. The one before must have been read to its end.
    pub(super) fn next_section(&mut self) -> Result<SectionHead, SnapshotError> {
        if !self.is_at_end()? {
            return Err(self.damaged("a section is longer than its contents"));
        }
        let fields = self.next_chunk()?;
        self.kind = fields.kind;
        Ok(SectionHead { kind: fields.kind, is_required: fields.flags & IS_REQUIRED != 0 })
    }

    /// Returns whether all bytes of the section were taken.
    pub(super) fn is_at_end(&mut self) -> Result<bool, SnapshotError> {
        while self.taken == self.chunk.len() && self.is_continued {
            let kind = self.kind;
            if self.next_chunk()?.kind != kind {
                return Err(self.damaged("a section is not continued"));
            }
        }
        Ok(self.taken == self.chunk.len())
    }

    /// Takes the next `N` bytes of the section.
    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let mut bytes = [0; N];
        let mut filled = 0;
        self.pieces(N as u64, |piece| {
            bytes[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        })?;
        Ok(bytes)
    }

    /// Appends the next `count` bytes of the section to `bytes`, whose memory grows only with what was read.
    pub(super) fn append(&mut self, count: u64, bytes: &mut Vec<u8>) -> Result<(), SnapshotError> {
        self.pieces(count, |piece| bytes.extend_from_slice(piece))
    }

    /// Skips the next `count` bytes of the section.
    pub(super) fn skip(&mut self, count: u64) -> Result<(), SnapshotError> {
        self.pieces(count, |_| ())
    }

    /// Returns the bytes up to the section's end.
    pub(super) fn rest_of_section(&mut self, bytes_max: usize) -> Result<Vec<u8>, SnapshotError> {
        let mut bytes = Vec::new();
        while !self.is_at_end()? {
            bytes.extend_from_slice(&self.chunk[self.taken..]);
            self.taken = self.chunk.len();
            if bytes.len() > bytes_max {
                return Err(self.damaged("its sections are too long"));
            }
        }
        Ok(bytes)
    }

    pub(super) fn skip_section(&mut self) -> Result<(), SnapshotError> {
        while !self.is_at_end()? {
            self.taken = self.chunk.len();
        }
        Ok(())
    }

    /// Checks that nothing is behind the last section.
    pub(super) fn expect_end(&mut self) -> Result<(), SnapshotError> {
        let is_at_end = self.is_at_end()?;
        match self.input.read_exact(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof && is_at_end => Ok(()),
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(error.into()),
            _ => Err(self.damaged("there are bytes behind its end")),
        }
    }

    /// Returns an error about the current chunk.
    pub(super) fn damaged(&self, problem: &'static str) -> SnapshotError {
        SnapshotError::Damaged { chunk: self.number.saturating_sub(1), problem }
    }

    fn pieces(&mut self, count: u64, mut show: impl FnMut(&[u8])) -> Result<(), SnapshotError> {
        let mut left = count;
        while left > 0 {
            if self.is_at_end()? {
                return Err(self.damaged("a section ends too early"));
            }
            let rest = &self.chunk[self.taken..];
            let piece = &rest[..rest.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            show(piece);
            left -= piece.len() as u64;
            self.taken += piece.len();
        }
        Ok(())
    }

    fn next_chunk(&mut self) -> Result<Fields, SnapshotError> {
        let number = self.number;
        self.number += 1;
        let mut header = [0; HEADER_BYTES];
        self.input.read_exact(&mut header).map_err(|error| self.unreadable(error))?;
        let (fields, checksum) = Fields::decode(header);
        if fields.bytes > CHUNK_BYTES_MAX {
            return Err(self.damaged("a chunk is too long"));
        }
        self.chunk.resize(fields.bytes, 0);
        self.input.read_exact(&mut self.chunk).map_err(|error| self.unreadable(error))?;
        if fields.checksum(number, &self.chunk) != checksum {
            return Err(self.damaged("the checksum is wrong"));
        }
        if fields.flags & !(IS_CONTINUED | IS_REQUIRED) != 0 {
            return Err(self.damaged("a flag is unknown"));
        }
        self.taken = 0;
        self.is_continued = fields.flags & IS_CONTINUED != 0;
        Ok(fields)
    }

    fn unreadable(&self, error: io::Error) -> SnapshotError {
        match error.kind() {
            ErrorKind::UnexpectedEof => self.damaged("it ends too early"),
            _ => SnapshotError::Read(error),
        }
    }
}

/// The first bytes of a snapshot. The first one is in no text, and the last one shows a changed line end.
pub(super) const MAGIC: [u8; 8] = *b"\x93REBATE\n";

/// Kind (4), flags (4), length of the contents (4), checksum (4).
pub(super) const HEADER_BYTES: usize = 16;
const COVERED_BYTES: usize = 12;

/// The section continues in the next chunk.
const IS_CONTINUED: u32 = 1;
/// A reader that does not know the section's kind must refuse the snapshot.
const IS_REQUIRED: u32 = 2;

/// The most bytes of a chunk's contents: what a writer and a reader hold.
pub(super) const CHUNK_BYTES_MAX: usize = 256 << 10;
