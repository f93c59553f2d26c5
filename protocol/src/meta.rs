//! The common parts of meta commands: a key and flags, the flags in the order in which they are answered. The parser
//! knows which flags exist and when they are wrong; nothing here checks.

use crate::key::MetaKey;
use crate::tokens::Tokens;

/// The key and the flags of mg, ms, md and ma.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// The item's key, decoded.
    pub key: MetaKey<'a>,
    /// The flags, checked.
    pub flags: MetaFlags<'a>,
}

/// The flags of a meta command: each at most once, in the client's order, the numeric ones read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaFlags<'a> {
    pub(crate) seen: Letters,
    pub(crate) all: Flags<'a>,
    /// `T`: the new expiry, in seconds.
    pub exptime_s: Option<i32>,
    /// `N`: create on a miss, with this expiry, in seconds.
    pub vivify_exptime_s: Option<i32>,
    /// `R`: win the right to refresh if less than this is left, in seconds.
    pub recache_s: Option<i32>,
    /// `F`: the client flags to store.
    pub client_flags: u32,
    /// `C`: the CAS the item must have. For ma zero means any.
    pub compare: Option<u64>,
    /// `D`: by how much ma moves; 1 unless given.
    pub delta: u64,
    /// `J`: what ma creates on a miss with `N`; 0 unless given.
    pub initial: u64,
    /// `M`: the mode's letter.
    pub mode: Option<u8>,
}

impl<'a> MetaFlags<'a> {
    /// Returns whether the flag was given.
    pub const fn has(&self, letter: u8) -> bool {
        self.seen.contains(letter)
    }

    /// Returns what followed the flag's letter, empty for a bare one; none if the flag was not given.
    pub fn argument(&self, letter: u8) -> Option<&'a [u8]> {
        if self.has(letter) { self.all.argument(letter) } else { None }
    }

    /// All flags in the client's order.
    pub const fn iter(&self) -> Flags<'a> {
        self.all
    }

    /// `q`: the nominal answer is not wanted. [`crate::reply`] knows which that is.
    pub const fn is_quiet(&self) -> bool {
        self.has(b'q')
    }

    /// `v`: the value is wanted.
    pub const fn wants_value(&self) -> bool {
        self.has(b'v')
    }
}

impl Default for MetaFlags<'_> {
    fn default() -> Self {
        Self {
            seen: Letters(0),
            all: Flags(Tokens::new(b"")),
            exptime_s: None,
            vivify_exptime_s: None,
            recache_s: None,
            client_flags: 0,
            compare: None,
            delta: 1,
            initial: 0,
            mode: None,
        }
    }
}

/// Flags as a line holds them, of a request or a response: a letter, then its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags<'a>(pub(crate) Tokens<'a>);

impl<'a> Flags<'a> {
    /// Returns whether the flag is there.
    pub fn has(self, letter: u8) -> bool {
        self.argument(letter).is_some()
    }

    /// Returns what followed the flag's letter, empty for a bare one; none if the flag is not there.
    pub fn argument(mut self, letter: u8) -> Option<&'a [u8]> {
        self.find_map(|(flag, argument)| (flag == letter).then_some(argument))
    }

    /// The flag's argument as a plain number.
    pub fn number(self, letter: u8) -> Option<u64> {
        self.argument(letter).and_then(crate::number::decimal)
    }
}

impl<'a> Iterator for Flags<'a> {
    type Item = (u8, &'a [u8]);
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (letter, argument) = self.0.next()?.split_first()?;
        Some((*letter, argument))
    }
}

/// A set of ASCII letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Letters(u64);

impl Letters {
    /// The letters of `text`.
    pub(crate) const fn from_text(text: &[u8]) -> Self {
        let mut set = Self(0);
        let mut index = 0;
        while index < text.len() {
            set.0 |= Self::bit(text[index]);
            index += 1;
        }
        set
    }

    pub(crate) const fn contains(self, letter: u8) -> bool {
        self.0 & Self::bit(letter) != 0
    }

    pub(crate) fn insert(&mut self, letter: u8) {
        self.0 |= Self::bit(letter);
    }

    const fn bit(letter: u8) -> u64 {
        if letter.is_ascii_alphabetic() { 1 << (letter - b'A') } else { 0 }
    }
}
