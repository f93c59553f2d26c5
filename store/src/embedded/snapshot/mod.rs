//! A snapshot of an embedded store: all living items in one stream, from which another process builds a
//! store with other options. Damage anywhere gives an error and no store. This module opens no file and
//! reads no clock. docs/format.md has the bytes.

mod chunks;
mod facts;
mod items;
#[cfg(test)]
mod tests;

use std::io::{self, Read, Write};

use thiserror::Error;

use super::{Embedded, Options};
use chunks::{SectionReader, SnapshotWriter};
use facts::{Facts, Totals};
use items::ItemLoader;

pub use facts::About;

/// The name of a section's contents: four characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionKind(pub [u8; 4]);

/// A part of a snapshot beside the items. Its bytes have a meaning only for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The kind. A snapshot has at most one section of a kind.
    pub kind: SectionKind,
    /// Whether the items are of no use without this section. A reader that does not know the kind of a
    /// required section refuses the snapshot; it skips other sections.
    pub is_required: bool,
    /// The contents, at most [`SECTION_BYTES_MAX`] in all sections together.
    pub bytes: Vec<u8>,
}

/// The current time on two clocks. The difference between the dates of two moments is the time for which
/// there was no process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time on the store's clock (s).
    pub now_s: u32,
    /// The date (s since the Unix epoch).
    pub unix_s: u64,
}

/// A store that was built from a snapshot.
#[derive(Debug)]
pub struct Restored {
    /// The store.
    pub store: Embedded,
    /// The sections of the kinds that the caller knows.
    pub sections: Vec<Section>,
    /// What the snapshot says about its writer.
    pub about: About,
    /// The date of the snapshot (s since the Unix epoch).
    pub created_unix_s: u64,
    /// The result for the items.
    pub items: RestoredItems,
}

/// The number of a snapshot's items by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoredItems {
    /// The items in the store.
    pub loaded: u64,
    /// The items that expired or were flushed while there was no process.
    pub expired: u64,
    /// The items that were evicted because the store is smaller than the one before.
    pub evicted: u64,
    /// The items that the store does not accept, because they are longer than it allows.
    pub skipped: u64,
}

/// The number of items and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// The items.
    pub items: u64,
    /// The bytes of their keys and values.
    pub bytes: u64,
}

/// The reason why a snapshot gives no store.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The bytes do not begin as a snapshot.
    #[error("it is not a snapshot of a store")]
    Foreign,
    /// The snapshot has a format that this version does not read.
    #[error("it has format {found}, and this version reads only format {FORMAT_VERSION}")]
    Version {
        /// The snapshot's format.
        found: u32,
    },
    /// The bytes are not those that were written.
    #[error("it is damaged: {problem} (chunk {chunk})")]
    Damaged {
        /// The number of the chunk, from 0.
        chunk: u64,
        /// The problem.
        problem: &'static str,
    },
    /// The items need a section that this version does not know.
    #[error("its items need a section {kind:?}, which this version does not know")]
    UnknownSection {
        /// The kind of the section.
        kind: String,
    },
    /// The bytes could not be read.
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
}

/// The version of the format.
pub const FORMAT_VERSION: u32 = 1;

/// The most bytes of all sections beside the items.
pub const SECTION_BYTES_MAX: usize = 64 << 20;

/// Returns whether a file with these first bytes is a snapshot, of any format.
pub fn is_snapshot(first: &[u8]) -> bool {
    first.starts_with(&chunks::MAGIC)
}

impl Embedded {
    /// Writes a snapshot of all living items. It holds a few hundred KiB of memory, and a shard's lock while
    /// it writes the items of one segment. Other clients must not change items meanwhile: an item that
    /// moves could be missed.
    ///
    /// # Errors
    /// The error of `out`, or [`io::ErrorKind::InvalidInput`] for sections that are too long.
    pub fn save(
        &self,
        out: impl Write,
        sections: &[Section],
        about: &About,
        now: Moment,
    ) -> io::Result<Saved> {
        let section_bytes: usize = sections.iter().map(|section| section.bytes.len()).sum();
        if section_bytes > SECTION_BYTES_MAX {
            let text = format!("sections of {section_bytes} bytes; at most {SECTION_BYTES_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut out = SnapshotWriter::begin(out)?;
        out.section(FACTS, true, |part| part.put(&Facts::gather(self, about, now).encode()))?;
        for Section { kind, is_required, bytes } in sections {
            out.section(*kind, *is_required, |part| part.put(bytes))?;
        }
        let saved = out.section(ITEMS, true, |part| items::write(self, part, now.now_s))?;
        out.section(END, true, |part| part.put(&Totals(saved).encode()))?;
        out.finish()?;
        Ok(saved)
    }

    /// Builds a store from a snapshot. `known` are the kinds of sections that the caller understands. Values
    /// longer than `value_bytes_max` are skipped. If the store is smaller than the one that was saved, it
    /// evicts as it always does, whatever `options` say about later evictions.
    ///
    /// Times continue as if the process had never ended. If the date is before that of the snapshot, no
    /// time has passed.
    ///
    /// # Errors
    /// A [`SnapshotError`] if any byte is not as it was written, or if this version cannot read the snapshot.
    pub fn restore(
        options: Options,
        known: &[SectionKind],
        input: impl Read,
        value_bytes_max: usize,
        now: Moment,
    ) -> Result<Restored, SnapshotError> {
        let mut input = SectionReader::begin(input)?;
        let first = input.next_section()?;
        if first.kind != FACTS {
            return Err(input.damaged("it does not begin with its facts"));
        }
        let facts = Facts::read(&mut input)?;
        let mut loading = Loading {
            store: Embedded::new(Options { evict: true, ..options }),
            items: ItemLoader::new(&facts, value_bytes_max, now),
            sections: Vec::new(),
            saved: None,
        };
        while loading.section(&mut input, known)? {}
        let store = loading.items.finish(loading.store, &facts, options.evict);
        let items = RestoredItems {
            loaded: store.stats().curr_items,
            evicted: store.stats().evictions,
            ..loading.items.counts
        };
        let Facts { about, created_unix_s, .. } = facts;
        Ok(Restored { store, sections: loading.sections, about, created_unix_s, items })
    }

    /// Makes all later versions larger than `version`, so that versions that clients got from an earlier
    /// process match no item of this one.
    pub fn begin_versions_after(&self, version: u64) {
        let version = version.min(facts::VERSION_MAX);
        self.cas_last.fetch_max(version, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A snapshot that is being read.
struct Loading {
    store: Embedded,
    items: ItemLoader,
    sections: Vec<Section>,
    /// The items that were read, once they were.
    saved: Option<Saved>,
}

impl Loading {
    /// Reads the next section. Returns false after the last one.
    fn section<R: Read>(
        &mut self,
        input: &mut SectionReader<R>,
        known: &[SectionKind],
    ) -> Result<bool, SnapshotError> {
        let head = input.next_section()?;
        let is_repeated = self.sections.iter().any(|section| section.kind == head.kind)
            || head.kind == ITEMS && self.saved.is_some();
        if is_repeated || head.kind == FACTS {
            return Err(input.damaged("a section is repeated"));
        }
        match head.kind {
            ITEMS => self.saved = Some(self.items.read(&self.store, input)?),
            END => {
                if self.saved != Some(Totals::read(input)?.0) {
                    return Err(input.damaged("the totals are not those of the items"));
                }
                input.expect_end()?;
                return Ok(false);
            }
            kind if known.contains(&kind) => {
                let read: usize = self.sections.iter().map(|section| section.bytes.len()).sum();
                let bytes = input.rest_of_section(SECTION_BYTES_MAX - read)?;
                self.sections.push(Section { kind, is_required: head.is_required, bytes });
            }
            SectionKind(name) if head.is_required => {
                let kind = String::from_utf8_lossy(&name).into_owned();
                return Err(SnapshotError::UnknownSection { kind });
            }
            _ => input.skip_section()?,
        }
        Ok(true)
    }
}

const FACTS: SectionKind = SectionKind(*b"FACT");
const ITEMS: SectionKind = SectionKind(*b"ITEM");
const END: SectionKind = SectionKind(*b"END ");
