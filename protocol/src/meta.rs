//! The common parts of meta commands: a key, and flags in the client's order, which is also their
//! order in the answer. The parser checks the flags, and this module does not.

use crate::key::MetaKey;
use crate::tokens::Tokens;

/// The key and the flags of mg, ms, md and ma.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// The key of the item, decoded.
    pub key: MetaKey<'a>,
    /// The checked flags.
    pub flags: MetaFlags<'a>,
}

/// The flags of a meta command. Each flag occurs at most once and in the client's order, and
/// numeric arguments are parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaFlags<'a> {
    pub(crate) seen: Letters,
    pub(crate) all: Flags<'a>,
    /// `T`: the new expiry, in seconds.
    pub exptime_s: Option<i32>,
    /// `N`: the expiry with which a missing item is created, in seconds.
    pub vivify_exptime_s: Option<i32>,
    /// `R`: the remaining time below which the client wins the right to refresh the item, in
    /// seconds.
    pub recache_s: Option<i32>,
    /// `F`: the client flags to store.
    pub client_flags: u32,
    /// `C`: the CAS that the item must have. Zero accepts any CAS in ma.
    pub compare: Option<u64>,
    /// `E`: the CAS that the item gets if it is changed or created, instead of one that the store chooses.
    pub given_cas: Option<u64>,
    /// `D`: the amount by which ma changes the number; 1 if absent.
    pub delta: u64,
    /// `J`: the number with which ma creates an item if `N` is given; 0 if absent.
    pub initial: u64,
    /// `M`: the letter of the mode.
    pub mode: Option<u8>,
}

impl<'a> MetaFlags<'a> {
    /// Builds the flags whose letters are in `text`, such as `f c T`, in this order. The caller sets
    /// the arguments of the flags that have any.
    pub fn from_letters(text: &'a [u8]) -> Self {
        let all = Flags(Tokens::new(text));
        Self { seen: Letters::from_text(text), all, ..Self::default() }
    }

    /// Returns whether the flag was given.
    pub const fn has(&self, letter: u8) -> bool {
        self.seen.contains(letter)
    }

    /// Returns the argument of the flag, which may be empty. Returns none if the flag was not
    /// given.
    pub fn argument(&self, letter: u8) -> Option<&'a [u8]> {
        if self.has(letter) { self.all.argument(letter) } else { None }
    }

    /// Returns all flags in the client's order.
    pub const fn iter(&self) -> Flags<'a> {
        self.all
    }

    /// Returns whether `q` was given: the client does not want the nominal answer. [`crate::reply`]
    /// knows which answer is nominal.
    pub const fn is_quiet(&self) -> bool {
        self.has(b'q')
    }

    /// Returns whether `v` was given: the client wants the value.
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
            given_cas: None,
            delta: 1,
            initial: 0,
            mode: None,
        }
    }
}

/// The flags of a request line or a response line. Each flag is a letter and its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags<'a>(pub(crate) Tokens<'a>);

impl<'a> Flags<'a> {
    /// Returns whether the flag is present.
    pub fn has(self, letter: u8) -> bool {
        self.argument(letter).is_some()
    }

    /// Returns the argument of the flag, which may be empty. Returns none if the flag is absent.
    pub fn argument(mut self, letter: u8) -> Option<&'a [u8]> {
        self.find_map(|(flag, argument)| (flag == letter).then_some(argument))
    }

    /// Returns the flag's argument as a plain number.
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
    /// Builds the set of the letters in `text`.
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
