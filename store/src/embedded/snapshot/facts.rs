//! The first and the last section of a snapshot: facts about the store and its writer, and the totals of the
//! items.

use std::io::Read;
use std::sync::atomic::Ordering;

use super::chunks::SectionReader;
use super::{Embedded, Moment, Saved, SnapshotError};

/// Facts about the writer of a snapshot, for logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The name and the version of the software, at most 255 bytes.
    pub software: String,
    /// The largest item that the writer's clients could set (bytes).
    pub item_bytes_max: u64,
}

/// The state of the store beside its items.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Facts {
    pub(super) about: About,
    pub(super) created_unix_s: u64,
    /// The budget of the store (bytes).
    pub(super) limit_bytes: u64,
    /// The number of items, including some that have ended.
    pub(super) items: u64,
    /// The last version that was given to an item.
    pub(super) cas_last: u64,
    /// The time until the end of the last second of a flush in the future (s), plus 1; 0 for none.
    pub(super) flush_left_s: u32,
}

impl Facts {
    pub(super) fn gather(store: &Embedded, about: &About, now: Moment) -> Self {
        let until_s = store.flush_until_s.load(Ordering::Acquire);
        Self {
            about: about.clone(),
            created_unix_s: now.unix_s,
            limit_bytes: store.limit.0,
            items: store.stats().curr_items,
            cas_last: store.cas_last.load(Ordering::Relaxed),
            flush_left_s: match until_s {
                0 => 0,
                until_s => until_s.saturating_add(1).saturating_sub(now.now_s),
            },
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.created_unix_s.to_le_bytes());
        bytes.extend(self.limit_bytes.to_le_bytes());
        bytes.extend(self.about.item_bytes_max.to_le_bytes());
        bytes.extend(self.items.to_le_bytes());
        bytes.extend(self.cas_last.to_le_bytes());
        bytes.extend(self.flush_left_s.to_le_bytes());
        let software = self.about.software.as_bytes();
        let software = &software[..software.len().min(usize::from(u8::MAX))];
        bytes.push(software.len() as u8);
        bytes.extend(software);
        bytes
    }

    pub(super) fn read<R: Read>(input: &mut SectionReader<R>) -> Result<Self, SnapshotError> {
        let mut number = || input.take().map(u64::from_le_bytes);
        let created_unix_s = number()?;
        let limit_bytes = number()?;
        let item_bytes_max = number()?;
        let items = number()?;
        let cas_last = number()?;
        let flush_left_s = u32::from_le_bytes(input.take()?);
        let [software_bytes] = input.take()?;
        let mut software = Vec::new();
        input.append(u64::from(software_bytes), &mut software)?;
        if cas_last > VERSION_MAX {
            return Err(input.damaged("the last version is too large"));
        }
        let software = String::from_utf8_lossy(&software).into_owned();
        let about = About { software, item_bytes_max };
        Ok(Self { about, created_unix_s, limit_bytes, items, cas_last, flush_left_s })
    }
}

/// The totals at the end of a snapshot.
pub(super) struct Totals(pub(super) Saved);

impl Totals {
    pub(super) fn encode(&self) -> [u8; 16] {
        let Saved { items, bytes } = self.0;
        let mut all = [0; 16];
        all[..8].copy_from_slice(&items.to_le_bytes());
        all[8..].copy_from_slice(&bytes.to_le_bytes());
        all
    }

    pub(super) fn read<R: Read>(input: &mut SectionReader<R>) -> Result<Self, SnapshotError> {
        let items = u64::from_le_bytes(input.take()?);
        let bytes = u64::from_le_bytes(input.take()?);
        Ok(Self(Saved { items, bytes }))
    }
}

/// The largest version that a record can hold.
pub(super) const VERSION_MAX: u64 = (1 << 48) - 1;
