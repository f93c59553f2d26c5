//! Writes random text of a bounded length: words by Zipf's law, identifiers built from the words, numbers and tokens.

use std::io::Write;
use std::sync::LazyLock;

use units::Prng;

use crate::Popularity;

/// A text under construction, up to `length` bytes.
pub(crate) struct Text {
    out: Vec<u8>,
    length: usize,
    prng: Prng,
}

impl Text {
    pub(super) fn new(length: usize, prng: Prng) -> Self {
        Self { out: Vec::with_capacity(length + 1024), length, prng }
    }

    pub(super) fn is_full(&self) -> bool {
        self.free_bytes() == 0
    }

    /// Returns the bytes up to the length of the text.
    pub(super) fn free_bytes(&self) -> usize {
        self.length.saturating_sub(self.out.len())
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.out.truncate(self.length);
        self.out
    }

    pub(super) fn put(&mut self, text: &str) {
        self.put_bytes(text.as_bytes());
    }

    pub(super) fn put_bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends random bytes.
    pub(super) fn put_random(&mut self, bytes: usize) {
        let begin = self.out.len();
        self.out.resize(begin + bytes, 0);
        self.prng.fill(&mut self.out[begin..]);
    }

    /// Appends random hexadecimal digits.
    pub(super) fn put_hexadecimal(&mut self, digits: usize) {
        for _ in 0..digits {
            let digit = b"0123456789abcdef"[self.prng.below(16) as usize];
            self.out.push(digit);
        }
    }

    pub(super) fn put_format(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.out.write_fmt(arguments).expect("a vector takes every write");
    }

    /// Returns a word of the language. Words come up by Zipf's law.
    pub(super) fn word(&mut self) -> &'static str {
        VOCABULARY.words[VOCABULARY.ranks.draw(&mut self.prng) as usize]
    }

    /// Returns any word. All words have the same probability.
    pub(super) fn rare_word(&mut self) -> &'static str {
        let words = &VOCABULARY.words;
        words[self.prng.below(words.len() as u64) as usize]
    }

    pub(super) fn one_of(&mut self, choices: &[&'static str]) -> &'static str {
        choices[self.prng.below(choices.len() as u64) as usize]
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.prng.unit() < probability
    }

    /// Returns a whole number from `low` to `high`.
    pub(super) fn number(&mut self, low: u64, high: u64) -> u64 {
        low + self.prng.below(high - low + 1)
    }
}

/// The words of the language, and how often each is used.
struct Vocabulary {
    words: Vec<&'static str>,
    ranks: Popularity,
}

static VOCABULARY: LazyLock<Vocabulary> = LazyLock::new(|| {
    let words: Vec<_> = WORDS.split_ascii_whitespace().collect();
    let ranks = Popularity::zipf(words.len() as u64, 0.75);
    Vocabulary { words, ranks }
});

/// The words of the text: frequent English words first, then the vocabulary of a technical manual.
const WORDS: &str = "\
    the of a to is in and for be that are with this as if it or by not an from can on which will \
    value returns when object may used has string should at type have method use function but \
    class all code other number no any one list error set return new only default module each \
    same name using given first file argument was more these then also arguments time into its \
    call example data called must some there than such otherwise result specified note see \
    following two instance bytes key changed version line process does where attribute current \
    raised integer values thread support before system available test option after passed \
    objects sequence methods character length exception returned without path encoding output \
    input statement command interface server event connection request response buffer memory \
    limit timeout signal handler context manager iterator generator package import library \
    standard environment variable directory message queue lock task loop socket address protocol \
    header field record parser format pattern match group search replace start stop index offset \
    position width precision float decimal fraction random seed sample mean median variance \
    deviation distribution matrix vector graph node edge tree root leaf parent child depth \
    breadth order stable sort merge heap stack frame trace debug profile measure cost benefit \
    cache store load save restore archive compress expand stream block chunk window digest hash \
    secret token certificate trust chain client session cookie cursor database table column row \
    schema query commit rollback transaction isolation level warning notice deprecated removed \
    added since future annotation hint static dynamic binding scope global local closure \
    decorator descriptor property getter setter abstract concrete inheritance override mixin \
    sentinel singleton factory builder visitor observer locale calendar month day hour minute \
    second zone daylight epoch platform architecture kernel driver device interrupt register \
    pointer segment alignment padding endian signed unsigned overflow underflow rounding \
    truncation ceiling floor modulo quotient remainder exponent logarithm";
