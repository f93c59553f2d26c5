//! Splits a line as memcached does: only runs of spaces separate tokens, and there are no quotes.

use std::iter::FusedIterator;

use memchr::memchr;

/// The tokens of the rest of a line. The iterator is cheap to copy and to restart.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    /// Returns the tokens of `line`, whose line end has been removed.
    pub const fn new(line: &'a [u8]) -> Self {
        Self { rest: line }
    }

    /// Returns whether no token is left.
    pub fn is_empty(self) -> bool {
        self.rest.iter().all(|&byte| byte == b' ')
    }

    /// Returns the first `count` tokens, and the remaining tokens if there are any.
    pub(crate) fn split_at(self, count: usize) -> (Self, Option<Self>) {
        let mut rest = self;
        if rest.by_ref().take(count).count() < count || rest.is_empty() {
            return (self, None);
        }
        let first = &self.rest[..self.rest.len() - rest.rest.len()];
        (Self { rest: first }, Some(rest))
    }

    /// Returns an upper bound of the length of every token (bytes).
    pub(crate) const fn token_bytes_max(self) -> usize {
        self.rest.len()
    }

    /// Returns whether the last token is `noreply`. memcached ignores `noreply` elsewhere.
    pub fn ends_in_noreply(self) -> bool {
        self.last() == Some(b"noreply")
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|&byte| byte != b' ')?;
        let rest = &self.rest[start..];
        let (token, rest) = rest.split_at(memchr(b' ', rest).unwrap_or(rest.len()));
        self.rest = rest;
        Some(token)
    }
}

impl FusedIterator for Tokens<'_> {}

impl PartialEq for Tokens<'_> {
    /// Compares the tokens in order. The number of spaces between them does not matter.
    fn eq(&self, other: &Self) -> bool {
        Iterator::eq(*self, *other)
    }
}

impl Eq for Tokens<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_spaces_separate_once() {
        let tokens: Vec<&[u8]> = Tokens::new(b"  get  a\tb   c ").collect();
        assert_eq!(tokens, [&b"get"[..], b"a\tb", b"c"]);
        assert_eq!(Tokens::new(b"    ").next(), None);
        assert_eq!(Tokens::new(b"a  b"), Tokens::new(b" a b "));
    }

    #[test]
    fn a_split_loses_no_token_and_makes_none() {
        let all = Tokens::new(b" a bb  ccc ");
        for count in 0..5 {
            let (first, rest) = all.split_at(count);
            assert_eq!(first.count(), count.min(3));
            assert_eq!(rest.map_or(0, Iterator::count), 3 - count.min(3));
        }
        assert_eq!(all.split_at(3).1, None);
    }

    #[test]
    fn noreply_counts_only_at_the_end() {
        assert!(Tokens::new(b"k 1 noreply ").ends_in_noreply());
        assert!(!Tokens::new(b"k noreply 1").ends_in_noreply());
        assert!(!Tokens::new(b"").ends_in_noreply());
    }
}
