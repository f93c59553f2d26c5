//! The meta commands that packets can express. They are those that this process sends for packets of its own clients,
//! for calls of the cache and store services, and to remove outdated and damaged values.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;

use protocol::{Key, MetaKey};
use smallvec::SmallVec;

use super::{
    ADD, DECREMENT, DELETE, EXISTS, GAT, GET, Header, INCREMENT, NON_NUMERIC, NON_NUMERIC_LINE,
    NOT_FOUND, NOT_STORED, REPLACE, SET, TOUCH, error, exptime, malformed, number,
};

/// The packet that says the same as a meta command.
pub(super) struct MetaPacket<'l> {
    pub(super) opcode: u8,
    pub(super) extras: SmallVec<[u8; 20]>,
    pub(super) key: Cow<'l, [u8]>,
    pub(super) cas: u64,
    pub(super) form: MetaForm,
}

/// How the answer to such a packet is written as a line.
#[derive(Clone, Copy, Debug)]
pub(super) enum MetaForm {
    /// The item with its value, its client flags and its CAS. A packet does not tell whether the item's key was sent in
    /// base64, so the line repeats this of the command.
    Item {
        is_base64: bool,
    },
    /// The same without the value, which the packet does not have either.
    Touched {
        is_base64: bool,
    },
    /// Whether something was changed: what other statuses than success mean, and the size to tell.
    Changed {
        others: Others,
        size: Option<usize>,
    },
    Number,
}

type Others = &'static [(u16, &'static str)];

/// The flags of a meta command that a packet can express.
#[derive(Default)]
struct Flags {
    is_base64: bool,
    with_value: bool,
    with_size: bool,
    client_flags: u32,
    exptime: Option<u32>,
    vivify_exptime: Option<u32>,
    compare: Option<u64>,
    mode: Option<u8>,
    delta: u64,
    initial: u64,
}

impl Flags {
    /// Reads flags. Returns none if one of them is not in `letters`.
    fn read<'l>(words: impl Iterator<Item = &'l [u8]>, letters: &[u8]) -> io::Result<Option<Self>> {
        let mut flags = Self::default();
        for word in words {
            let Some((letter, argument)) = word.split_first() else { continue };
            if !letters.contains(letter) {
                return Ok(None);
            }
            let text = Some(argument);
            match letter {
                b'b' => flags.is_base64 = true,
                b'v' => flags.with_value = true,
                b's' => flags.with_size = true,
                b'F' => flags.client_flags = number(text)?,
                b'T' => flags.exptime = Some(exptime(text)?),
                b'N' => flags.vivify_exptime = Some(exptime(text)?),
                b'C' => flags.compare = Some(number(text)?),
                b'D' => flags.delta = number(text)?,
                b'J' => flags.initial = number(text)?,
                b'M' => flags.mode = argument.first().map(u8::to_ascii_uppercase),
                // The answer has the client flags and the CAS anyway, and the caller knows the key.
                _ => {}
            }
        }
        Ok(Some(flags))
    }

    /// Returns the CAS of a packet that changes only the item with the CAS of the command. In a packet, 0 means any
    /// item. In a line it means no item, and no item has this CAS.
    fn cas(&self) -> u64 {
        self.compare.map_or(0, |cas| if cas == 0 { u64::MAX } else { cas })
    }
}

impl<'l> MetaPacket<'l> {
    /// Returns the packet for a command about `key`, with `value_bytes` of value. Returns none if there is no such
    /// packet.
    ///
    /// # Errors
    /// Returns an error for words that are no meta command, which is a defect.
    pub(super) fn new(
        verb: &[u8],
        key: &'l [u8],
        value_bytes: usize,
        words: impl Iterator<Item = &'l [u8]>,
    ) -> io::Result<Option<Self>> {
        let letters: &[u8] = match verb {
            b"mg" => b"bvfckT",
            b"ms" => b"bcsFTCM",
            b"md" => b"bC",
            b"ma" => b"bvcMDJNC",
            _ => return Ok(None),
        };
        let Some(flags) = Flags::read(words, letters)? else { return Ok(None) };
        let said = match verb {
            b"mg" => Some(get(&flags)),
            b"ms" => set(&flags, value_bytes),
            b"md" => {
                let others = &[(NOT_FOUND, "NF"), (EXISTS, "EX")];
                let form = MetaForm::Changed { others, size: None };
                Some((DELETE, SmallVec::new(), flags.cas(), form))
            }
            _ => count(&flags),
        };
        let Some((opcode, extras, cas, form)) = said else { return Ok(None) };
        let key = match flags.is_base64 {
            false => Cow::Borrowed(key),
            true => {
                let key = Key::new(key).ok().and_then(MetaKey::from_base64);
                let key = key.ok_or_else(|| malformed("a key that is no base64"))?;
                Cow::Owned(key.into_bytes().into_owned())
            }
        };
        Ok(Some(Self { opcode, extras, key, cas, form }))
    }
}

/// The opcode, extras and CAS of a packet, and the form of its answer.
type Said = (u8, SmallVec<[u8; 20]>, u64, MetaForm);

fn get(flags: &Flags) -> Said {
    let is_base64 = flags.is_base64;
    let (opcode, form) = match (flags.exptime, flags.with_value) {
        // There is no packet that asks for an item without its value.
        (None, _) => (GET, MetaForm::Item { is_base64 }),
        (Some(_), true) => (GAT, MetaForm::Item { is_base64 }),
        (Some(_), false) => (TOUCH, MetaForm::Touched { is_base64 }),
    };
    let extras = flags.exptime.map(u32::to_be_bytes);
    (opcode, extras.into_iter().flatten().collect(), 0, form)
}

fn set(flags: &Flags, value_bytes: usize) -> Option<Said> {
    let (opcode, others, cas): (_, Others, _) = match (flags.mode, flags.compare) {
        // An add compares nothing, as in memcached.
        (Some(b'E'), _) => (ADD, &[(EXISTS, "NS")], 0),
        (None | Some(b'S'), None) => (SET, &[], 0),
        (Some(b'R'), None) => (REPLACE, &[(NOT_FOUND, "NS")], 0),
        (None | Some(b'S' | b'R'), Some(_)) => {
            (SET, &[(EXISTS, "EX"), (NOT_FOUND, "NF")], flags.cas())
        }
        _ => return None,
    };
    let mut extras = SmallVec::new();
    extras.extend(flags.client_flags.to_be_bytes());
    extras.extend(flags.exptime.unwrap_or(0).to_be_bytes());
    let size = flags.with_size.then_some(value_bytes);
    Some((opcode, extras, cas, MetaForm::Changed { others, size }))
}

fn count(flags: &Flags) -> Option<Said> {
    let opcode = match flags.mode {
        None | Some(b'I') => INCREMENT,
        Some(b'D') => DECREMENT,
        _ => return None,
    };
    let mut extras = SmallVec::new();
    extras.extend(flags.delta.to_be_bytes());
    extras.extend(flags.initial.to_be_bytes());
    // With the greatest time, a missing item is not created.
    extras.extend(flags.vivify_exptime.unwrap_or(u32::MAX).to_be_bytes());
    // Counting is the one meta command for which the CAS 0 means any item.
    Some((opcode, extras, flags.compare.unwrap_or(0), MetaForm::Number))
}

impl MetaForm {
    /// Returns whether the answer has a value that passes through.
    pub(super) const fn has_value(self) -> bool {
        matches!(self, MetaForm::Item { .. })
    }

    /// Writes the line for an answer. `value` is that of an answer whose value does not pass through, and
    /// `value_bytes` is the length of one that does.
    pub(super) fn write(
        self,
        header: &Header,
        extras: &[u8],
        value: &[u8],
        value_bytes: usize,
        text: &mut VecDeque<u8>,
    ) -> io::Result<()> {
        let client_flags = || extras.first_chunk().map_or(0, |flags| u32::from_be_bytes(*flags));
        let cas = header.cas;
        let base64 = |is_base64| if is_base64 { " b" } else { "" };
        let line = match (self, header.status) {
            (MetaForm::Item { is_base64 }, 0) => {
                format!("VA {value_bytes} f{} c{cas}{}", client_flags(), base64(is_base64))
            }
            (MetaForm::Touched { is_base64 }, 0) => {
                format!("HD f{} c{cas}{}", client_flags(), base64(is_base64))
            }
            (MetaForm::Item { .. } | MetaForm::Touched { .. }, NOT_FOUND) => "EN".to_owned(),
            (MetaForm::Changed { size: None, .. }, 0) => format!("HD c{cas}"),
            (MetaForm::Changed { size: Some(size), .. }, 0) => format!("HD c{cas} s{size}"),
            (MetaForm::Changed { others, .. }, status)
                if let Some((_, line)) = others.iter().find(|(other, _)| *other == status) =>
            {
                (*line).to_owned()
            }
            (MetaForm::Number, 0) => {
                let number = value.first_chunk().map(|number| u64::from_be_bytes(*number));
                let number = number.ok_or_else(|| malformed("a number without its bytes"))?;
                let digits = number.to_string();
                format!("VA {} c{cas}\r\n{digits}", digits.len())
            }
            (MetaForm::Number, NOT_FOUND) => "NF".to_owned(),
            (MetaForm::Number, EXISTS) => "EX".to_owned(),
            (MetaForm::Number, NOT_STORED) => "NS".to_owned(),
            (MetaForm::Number, NON_NUMERIC) => NON_NUMERIC_LINE.to_owned(),
            (_, status) => error(status, value),
        };
        text.extend(line.bytes());
        text.extend(b"\r\n");
        Ok(())
    }
}
