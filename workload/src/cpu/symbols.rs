//! The distinct symbols of a profile. The rules are applied to each symbol once. Symbols beyond the limit are counted
//! and match no rule.

use super::events::{KINDS, Kind};
use super::rules::{Ranks, Rules, TABLES};

/// The facts about one symbol.
pub(super) struct Symbol {
    /// The symbol, then a zero byte and the library, if there is one.
    name: Box<[u8]>,
    pub(super) ranks: [Ranks; TABLES],
}

impl Symbol {
    /// Returns the symbol as text for a person: `symbol (library)`.
    pub(super) fn text(&self) -> String {
        let mut halves = self.name.splitn(2, |byte| *byte == 0).map(String::from_utf8_lossy);
        let (symbol, library) = (halves.next().unwrap_or_default(), halves.next());
        library.map_or(symbol.to_string(), |library| format!("{symbol} ({library})"))
    }
}

/// All symbols, by name. The hash table stores indices only, so that a lookup allocates no key.
pub(super) struct Symbols {
    hasher: ahash::RandomState,
    /// The slots of a hash table with open addressing. A slot has an index in `symbols` plus 1, or 0 if it is empty.
    slots: Vec<u32>,
    symbols: Vec<Symbol>,
    /// The weight of the samples whose leaf is this symbol, by kind. Each symbol has one entry.
    leaf_weights: Vec<[u64; KINDS]>,
    bytes: usize,
    symbols_max: usize,
    name: Vec<u8>,
    beyond: u64,
}

impl Symbols {
    pub(super) fn new(symbols_max: usize) -> Self {
        let hasher = ahash::RandomState::new();
        let (slots, name) = (vec![0; 1 << 12], Vec::with_capacity(NAME_BYTES_MAX));
        let (symbols, leaf_weights) = (Vec::new(), Vec::new());
        Self { hasher, slots, symbols, leaf_weights, bytes: 0, symbols_max, name, beyond: 0 }
    }

    /// Returns the index of a symbol. Returns none if the limit is reached and the symbol is new.
    pub(super) fn index(&mut self, rules: &Rules, symbol: &[u8], library: &[u8]) -> Option<u32> {
        self.name.clear();
        self.name.extend_from_slice(&symbol[..symbol.len().min(SYMBOL_BYTES_MAX)]);
        if !library.is_empty() {
            self.name.push(0);
            self.name.extend_from_slice(&library[library.len().saturating_sub(LIBRARY_MAX)..]);
        }
        let hash = self.hasher.hash_one(self.name.as_slice());
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while let Some(index) = self.slots[slot].checked_sub(1) {
            if *self.symbols[index as usize].name == *self.name {
                return Some(index);
            }
            slot = (slot + 1) & mask;
        }
        let fits = self.symbols.len() < self.symbols_max;
        if !fits || self.bytes + self.name.len() > NAMES_BYTES_MAX {
            self.beyond += 1;
            return None;
        }
        self.bytes += self.name.len();
        let ranks = rules.ranks(symbol, library);
        self.symbols.push(Symbol { name: self.name.as_slice().into(), ranks });
        self.leaf_weights.push([0; KINDS]);
        self.slots[slot] = self.symbols.len() as u32;
        if self.symbols.len() * 2 > self.slots.len() {
            self.grow();
        }
        Some(self.symbols.len() as u32 - 1)
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        self.slots = vec![0; mask + 1];
        for (index, symbol) in self.symbols.iter().enumerate() {
            let mut slot = self.hasher.hash_one(&*symbol.name) as usize & mask;
            while self.slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = index as u32 + 1;
        }
    }

    pub(super) fn get(&self, index: u32) -> &Symbol {
        &self.symbols[index as usize]
    }

    pub(super) fn add_leaf_weight(&mut self, index: u32, kind: Kind, weight: u64) {
        let total = &mut self.leaf_weights[index as usize][kind as usize];
        *total = total.saturating_add(weight);
    }

    /// Returns each symbol with the weight of the samples of `kind` that have the symbol as their leaf.
    pub(super) fn with_leaf_weights(&self, kind: Kind) -> impl Iterator<Item = (&Symbol, u64)> {
        let weights = self.leaf_weights.iter().map(move |by_kind| by_kind[kind as usize]);
        self.symbols.iter().zip(weights)
    }

    pub(super) fn count(&self) -> usize {
        self.symbols.len()
    }

    /// Returns the number of frames whose symbol was not stored because of the limit.
    pub(super) fn beyond(&self) -> u64 {
        self.beyond
    }
}

const SYMBOL_BYTES_MAX: usize = 1_024;
const LIBRARY_MAX: usize = 255;
const NAME_BYTES_MAX: usize = SYMBOL_BYTES_MAX + 1 + LIBRARY_MAX;
/// The most bytes of all names together.
const NAMES_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_has_one_index() {
        let rules = Rules::compiled_in().expect("they are ours");
        let mut symbols = Symbols::new(5_000);
        let name = |index: u32| format!("symbol{index}");
        for index in 0..5_000 {
            assert_eq!(symbols.index(&rules, name(index).as_bytes(), b""), Some(index));
        }
        for index in 0..5_000 {
            assert_eq!(symbols.index(&rules, name(index).as_bytes(), b""), Some(index));
        }
        assert_eq!(symbols.index(&rules, b"symbol0", b"libc.so"), None);
        assert_eq!(symbols.beyond(), 1);
        assert_eq!(symbols.get(7).text(), "symbol7");
    }
}
