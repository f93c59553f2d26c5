//! The flat form of messages between engine and application: a tree of blocks that is read in
//! place. This module knows neither a schema nor the wire format.
//!
//! A block has a head of 8 bytes, slots of 8 bytes each, and the bytes to which the slots point. The head of
//! a struct has a bit for every field, which is set if the field is present. The head of a list is its count.
//! The head of a map is twice its count, and keys and values alternate. A slot holds a number or a pointer.
//! The low 32 bits of a pointer are the target's distance from the start of the slot's block, and the upper
//! 32 bits are the target's length, both in bytes. Distances are relative to the block, so a block can be
//! copied unchanged, together with all blocks below it.

use crate::command::Code;

/// Writes blocks into a buffer, starting at its beginning. Content that does not fit is an error,
/// [`Code::Oversized`].
#[derive(Debug)]
pub struct Build<'a> {
    bytes: &'a mut [u8],
    used: usize,
}

impl<'a> Build<'a> {
    /// Begins to write into this buffer. Its old content does not matter.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, used: 0 }
    }

    /// Returns the number of bytes written so far.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Makes a block with `slots` empty slots and returns its place. The place identifies the block
    /// in the other methods.
    pub fn block(&mut self, slots: usize) -> Result<usize, Code> {
        let size = slots.checked_add(1).and_then(|words| words.checked_mul(WORD));
        self.reserve(size.ok_or(Code::Oversized)?).map(|(at, bytes)| {
            bytes.fill(0);
            at
        })
    }

    /// Sets the field in this slot to a number.
    pub fn set(&mut self, block: usize, slot: usize, word: u64) {
        self.put(block, slot, word);
        self.mark(block, slot);
    }

    /// Sets the field in this slot to a string.
    pub fn set_bytes(&mut self, block: usize, slot: usize, bytes: &[u8]) -> Result<(), Code> {
        self.put_bytes(block, slot, bytes)?;
        self.mark(block, slot);
        Ok(())
    }

    /// Sets the field in this slot to the block `child`. The block must be complete, because bytes
    /// that are written later do not belong to it.
    pub fn set_block(&mut self, block: usize, slot: usize, child: usize) {
        self.link(block, slot, child);
        self.mark(block, slot);
    }

    /// Copies the block of a [`View`] with all blocks below it, and returns the place of the copy.
    pub fn copy(&mut self, view: View<'_>) -> Result<usize, Code> {
        self.append(view.0)
    }

    /// Fills a slot without marking its field as present. Use it for lists, and if the caller
    /// writes the head itself.
    pub fn put(&mut self, block: usize, slot: usize, word: u64) {
        let at = block + WORD * (slot + 1);
        self.bytes[at..at + WORD].copy_from_slice(&word.to_le_bytes());
    }

    /// Fills a slot with a string, as [`Build::put`] does with a number.
    pub fn put_bytes(&mut self, block: usize, slot: usize, bytes: &[u8]) -> Result<(), Code> {
        let at = self.append(bytes)?;
        self.put(block, slot, pointer(at - block, bytes.len()));
        Ok(())
    }

    /// Fills a slot with a complete block, as [`Build::put`] does with a number.
    pub fn link(&mut self, block: usize, slot: usize, child: usize) {
        self.put(block, slot, pointer(child - block, self.used - child));
    }

    /// Writes the head of a block.
    pub fn head(&mut self, block: usize, head: u64) {
        self.bytes[block..block + WORD].copy_from_slice(&head.to_le_bytes());
    }

    fn mark(&mut self, block: usize, slot: usize) {
        let head = View(&self.bytes[block..]).head();
        self.head(block, head | 1 << slot);
    }

    fn append(&mut self, bytes: &[u8]) -> Result<usize, Code> {
        let padded = bytes.len().checked_next_multiple_of(WORD).ok_or(Code::Oversized)?;
        let (at, place) = self.reserve(padded)?;
        let (begin, rest) = place.split_at_mut(bytes.len());
        begin.copy_from_slice(bytes);
        rest.fill(0);
        Ok(at)
    }

    fn reserve(&mut self, size: usize) -> Result<(usize, &mut [u8]), Code> {
        let at = self.used;
        let end = at.checked_add(size).filter(|end| *end <= self.bytes.len().min(SIZE_MAX));
        self.used = end.ok_or(Code::Oversized)?;
        Ok((at, &mut self.bytes[at..self.used]))
    }
}

/// A block that is read in place. Reads never leave the bytes: an invalid distance is an error,
/// [`Code::Malformed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Returns the block at the beginning of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the block with all blocks below it, in a form that can be stored.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the head: the bits of the present fields, or the number of items.
    pub fn head(self) -> u64 {
        self.0.first_chunk().map_or(0, |head| u64::from_le_bytes(*head))
    }

    /// Returns whether the field in this slot is present.
    pub fn has(self, slot: usize) -> bool {
        self.head() >> slot & 1 != 0
    }

    /// Returns the number of items of a list, or twice the number of entries of a map.
    pub fn count(self) -> usize {
        usize::try_from(self.head()).unwrap_or(usize::MAX)
    }

    /// Returns the number in the slot.
    pub fn word(self, slot: usize) -> Result<u64, Code> {
        let at = slot.checked_add(1).and_then(|slot| slot.checked_mul(WORD));
        let word = at.and_then(|at| self.0.get(at..)).and_then(|rest| rest.first_chunk());
        word.map(|word| u64::from_le_bytes(*word)).ok_or(Code::Malformed)
    }

    /// Returns the string in the slot.
    pub fn string(self, slot: usize) -> Result<&'a [u8], Code> {
        let word = self.word(slot)?;
        let (distance, length) = ((word & SIZE_MAX as u64) as usize, (word >> 32) as usize);
        let rest = self.0.get(distance..).and_then(|rest| rest.get(..length));
        rest.ok_or(Code::Malformed)
    }

    /// Returns the block in the slot.
    pub fn block(self, slot: usize) -> Result<Self, Code> {
        self.string(slot).map(View)
    }

    /// Checks that this block can be a function's result. If the function returns a value, its
    /// result has exactly one field. Otherwise the result has at most one field.
    pub fn check_result(self, returns: bool) -> Result<(), Code> {
        match self.head().count_ones() {
            1 => Ok(()),
            0 if !returns && self.0.len() >= WORD => Ok(()),
            _ => Err(Code::Malformed),
        }
    }

    /// Returns a field's number, if the field is present.
    pub fn get(self, slot: usize) -> Option<u64> {
        self.has(slot).then(|| self.word(slot).ok()).flatten()
    }

    /// Returns a field's string, if the field is present.
    pub fn get_string(self, slot: usize) -> Option<&'a [u8]> {
        self.has(slot).then(|| self.string(slot).ok()).flatten()
    }

    /// Returns a field's block, if the field is present.
    pub fn get_block(self, slot: usize) -> Option<Self> {
        self.has(slot).then(|| self.block(slot).ok()).flatten()
    }
}

fn pointer(distance: usize, length: usize) -> u64 {
    distance as u64 | (length as u64) << 32
}

/// The size of a head and of a slot (bytes).
const WORD: usize = 8;
/// The maximum distance or length in a pointer (bytes). Both have 32 bits.
const SIZE_MAX: usize = u32::MAX as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_in_place_and_can_be_moved() {
        let mut bytes = [0xAA; 256];
        let mut build = Build::new(&mut bytes);
        let outer = build.block(2).expect("room");
        let inner = build.block(2).expect("room");
        build.set(inner, 1, 7);
        build.set_bytes(inner, 0, b"abc").expect("room");
        build.set_block(outer, 1, inner);
        let used = build.used();
        let view = View::new(&bytes[..used]);
        assert!(!view.has(0) && view.has(1));
        let inner = view.get_block(1).expect("there");
        assert_eq!((inner.get_string(0), inner.get(1)), (Some(&b"abc"[..]), Some(7)));

        let mut other = [0; 256];
        let mut build = Build::new(&mut other);
        let outer = build.block(9).expect("room");
        let copy = build.copy(inner).expect("room");
        build.set_block(outer, 3, copy);
        let copied = View::new(&other).get_block(3).expect("there");
        assert_eq!(copied.bytes(), inner.bytes());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut bytes = [0; 24];
        let mut build = Build::new(&mut bytes);
        assert_eq!(build.block(usize::MAX), Err(Code::Oversized));
        assert_eq!(build.block(1), Ok(0));
        assert_eq!(build.put_bytes(0, 0, b"123456789"), Err(Code::Oversized));
        assert_eq!(build.put_bytes(0, 0, b"12345678"), Ok(()));
    }

    #[test]
    fn reading_stays_inside() {
        let wild = [0xFF; 24];
        let view = View::new(&wild);
        assert_eq!(view.string(0), Err(Code::Malformed));
        assert_eq!(view.word(2), Err(Code::Malformed));
        assert_eq!(view.word(usize::MAX), Err(Code::Malformed));
        assert_eq!(View::new(&[]).head(), 0);
    }
}
