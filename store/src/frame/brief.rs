//! The brief form of a frame with a dictionary: without the bytes that the rest of the frame tells. Only a store that
//! knows for itself which of its values are brief can hold them, because the form has no magic. It is made and undone
//! within a process, so it has no version.

use units::zstd_frame;

use super::version2::{DESCRIPTORS, MAGIC_DICTIONARY, SHORT_HEADER_BYTES};

/// How a value is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As it is.
    Whole = 0,
    /// A frame whose value has a length of one byte, without magic, descriptor and the header of its only block.
    Brief = 1,
    /// The same of a frame whose value has a length of two bytes.
    Wide = 2,
}

impl Form {
    /// Returns the form of this number. Numbers that no form has stand for the whole value.
    pub(crate) const fn from_number(number: u16) -> Self {
        match number {
            1 => Form::Brief,
            2 => Form::Wide,
            _ => Form::Whole,
        }
    }

    /// Returns the form of a frame with a dictionary for a value of this length, if it has one block, which compresses.
    pub(crate) const fn for_dictionary(original_bytes: usize) -> Self {
        match original_bytes {
            0..WIDE_FROM_BYTES => Form::Brief,
            WIDE_FROM_BYTES..LONG_FROM_BYTES => Form::Wide,
            _ => Form::Whole,
        }
    }

    /// Returns the bytes that the form leaves out.
    pub(crate) const fn omitted_bytes(self) -> usize {
        match self {
            Form::Whole => 0,
            Form::Brief | Form::Wide => OMITTED_BYTES,
        }
    }

    /// Returns the descriptor of the zstd frame that is left out, and the bytes of the length behind it.
    const fn descriptor(self) -> Option<(u8, usize)> {
        match self {
            Form::Whole => None,
            Form::Brief => Some((DESCRIPTORS[0], 1)),
            Form::Wide => Some((DESCRIPTORS[1], 2)),
        }
    }
}

/// The form in which a value is held, and the parts of the value that this leaves. They are held one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brief<'a> {
    pub(crate) form: Form,
    /// Dictionary id and checksum; the length of the value; the only block.
    parts: [&'a [u8]; 3],
}

impl<'a> Brief<'a> {
    /// Returns the shortest form of a value.
    pub(crate) fn new(value: &'a [u8]) -> Self {
        let shortened = || match value.get(SHORT_HEADER_BYTES).copied() {
            Some(byte) if byte == DESCRIPTORS[0] => Self::shorten(value, Form::Brief),
            Some(byte) if byte == DESCRIPTORS[1] => Self::shorten(value, Form::Wide),
            _ => None,
        };
        let is_frame = value.first() == Some(&MAGIC_DICTIONARY);
        is_frame.then(shortened).flatten().unwrap_or_else(|| Self::whole(value))
    }

    /// Returns the value as it is.
    pub(crate) fn whole(value: &'a [u8]) -> Self {
        Self { form: Form::Whole, parts: [value, &[], &[]] }
    }

    /// Returns the length of the form (bytes).
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }

    /// Writes the form.
    ///
    /// # Panics
    /// If `out` has another length than the form.
    pub(crate) fn write(&self, mut out: &mut [u8]) {
        for part in self.parts {
            let (place, rest) = out.split_at_mut(part.len());
            place.copy_from_slice(part);
            out = rest;
        }
        assert!(out.is_empty(), "the form has {} bytes", self.len());
    }

    /// Returns the form of a frame whose only block is a compressed one.
    fn shorten(value: &'a [u8], form: Form) -> Option<Self> {
        let (_, length_bytes) = form.descriptor()?;
        let (head, stream) = value.split_at_checked(SHORT_HEADER_BYTES)?;
        let (length, block) = stream.get(1..)?.split_at_checked(length_bytes)?;
        let (header, content) = block.split_first_chunk()?;
        let is_only_one = *header == zstd_frame::last_block_header(content.len());
        is_only_one.then_some(Self { form, parts: [&head[1..], length, content] })
    }
}

/// Appends the value that is held in this form.
///
/// # Panics
/// If no value is held in these bytes.
pub(crate) fn expand(form: Form, held: &[u8], out: &mut Vec<u8>) {
    let Some((descriptor, length_bytes)) = form.descriptor() else {
        return out.extend_from_slice(held);
    };
    let (head, stream) = held.split_at(SHORT_HEADER_BYTES - 1);
    let (length, content) = stream.split_at(length_bytes);
    out.reserve(held.len() + OMITTED_BYTES);
    out.push(MAGIC_DICTIONARY);
    out.extend_from_slice(head);
    out.push(descriptor);
    out.extend_from_slice(length);
    out.extend(zstd_frame::last_block_header(content.len()));
    out.extend_from_slice(content);
}

/// The shortest value whose length has two bytes, and the shortest with four (bytes; RFC 8878, section 3.1.1.1.4).
const WIDE_FROM_BYTES: usize = 1 << 8;
const LONG_FROM_BYTES: usize = (1 << 16) + WIDE_FROM_BYTES;

/// The magic, the descriptor, and the header of the block.
const OMITTED_BYTES: usize = 1 + 1 + zstd_frame::BLOCK_HEADER_BYTES;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame with dictionary 7 whose only block has this content, and whose value has a length of so many bytes.
    fn frame(length_bytes: usize, content: &[u8]) -> Vec<u8> {
        let descriptor = if length_bytes == 1 { 0x20 } else { 0x60 };
        let head = [0xFD, 7, 0, 0, 1, 2, 3, 4, descriptor];
        let block = zstd_frame::last_block_header(content.len());
        [&head[..], &vec![9; length_bytes], &block, content].concat()
    }

    fn held(value: &[u8]) -> (Form, Vec<u8>) {
        let brief = Brief::new(value);
        let mut bytes = vec![0; brief.len()];
        brief.write(&mut bytes);
        (brief.form, bytes)
    }

    fn expanded(form: Form, held: &[u8]) -> Vec<u8> {
        let mut value = Vec::new();
        expand(form, held, &mut value);
        value
    }

    #[test]
    fn a_frame_with_one_block_lacks_five_bytes() {
        for (length_bytes, form) in [(1, Form::Brief), (2, Form::Wide)] {
            for content in [&b""[..], b"x", &[0; 300]] {
                let value = frame(length_bytes, content);
                let (found, bytes) = held(&value);
                assert_eq!((found, bytes.len() + 5), (form, value.len()));
                assert_eq!(expanded(found, &bytes), value);
            }
        }
    }

    #[test]
    fn other_values_are_whole() {
        let other_magic = [&[0xFC], &frame(1, b"content")[1..]].concat();
        let two_blocks = [&frame(1, b"content")[..], b"!"].concat();
        let mut raw_block = frame(1, b"content");
        raw_block[10] &= !0b110;
        let mut long_length = frame(2, b"content");
        long_length[8] = 0xA0;
        let short = frame(1, b"")[..12].to_vec();
        for value in [other_magic, two_blocks, raw_block, long_length, short, vec![0xFD], vec![]] {
            assert_eq!(held(&value), (Form::Whole, value.clone()));
            assert_eq!(expanded(Form::Whole, &value), value);
        }
    }

    proptest! {
        #[test]
        fn every_value_comes_back(
            wide in any::<bool>(),
            content in prop::collection::vec(any::<u8>(), 0..400),
            damage in prop::collection::vec((0usize..20, any::<u8>()), 0..3),
            bytes in 0usize..420,
        ) {
            let mut value = frame(1 + usize::from(wide), &content);
            for (at, byte) in damage {
                if let Some(place) = value.get_mut(at) {
                    *place = byte;
                }
            }
            value.truncate(bytes);
            let (form, held) = held(&value);
            prop_assert_eq!(held.len() + form.omitted_bytes(), value.len());
            prop_assert_eq!(expanded(form, &held), value);
        }
    }
}
