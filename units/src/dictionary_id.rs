//! The id of a dictionary. Frames state it, and `device` makes it from the dictionary's content.

use std::fmt;
use std::num::NonZeroU32;

/// The id of a dictionary: a number from 1 to [`DictionaryId::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DictionaryId(NonZeroU32);

impl DictionaryId {
    /// The highest id. The header has three bytes for it.
    pub const MAX: u32 = (1 << 24) - 1;

    /// Returns the dictionary id with this number, or none if the number is out of range.
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).filter(|number| number.get() <= Self::MAX).map(Self)
    }

    /// Returns the id that is written as these hexadecimal digits.
    pub fn from_hex(digits: &str) -> Option<Self> {
        u32::from_str_radix(digits, 16).ok().and_then(Self::new)
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for DictionaryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06x}", self.get())
    }
}
