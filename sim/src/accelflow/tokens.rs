//! The requests and parts of requests in flight, and the random draws for them.

use std::ops::{Index, IndexMut};

use super::ids::{ByKind, Kind, TokenId};
use super::sizes::{SizePoint, SizeTable};
use crate::Picos;

/// A request, or a part of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) born: Picos,
    /// The key of the token's random draws, which is the same for all architectures.
    pub(super) key: u64,
    /// The time that a core takes for this token, as a multiple of the mean.
    pub(super) app: f64,
    /// The request to which this part belongs, if the token is a part.
    pub(super) parent: TokenId,
    /// The number of this token's parts in flight.
    pub(super) parts: u32,
    pub(super) at: u16,
    /// The step for which a size was drawn last.
    pub(super) drawn: u16,
    pub(super) last_draw: Draw,
    pub(super) service: u16,
    pub(super) tenant: u16,
    /// The core to which the request belongs, if each request belongs to one.
    pub(super) core: u16,
    /// Whether the token is among its tenant's live traces.
    pub(super) traced: bool,
    pub(super) failed: bool,
}

/// The size of a payload, and the hash that selected it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Draw {
    pub(super) hash: u64,
    pub(super) point: SizePoint,
}

/// The tokens in flight, by number.
#[derive(Debug)]
pub(super) struct Tokens {
    all: Vec<Token>,
    /// The numbers of removed tokens, which can be used again.
    vacant: Vec<TokenId>,
}

impl Token {
    /// Returns the draw for the op at step `at`.
    #[inline(always)]
    pub(super) fn draw(&self, at: u16, kind: Kind, sizes: &ByKind<SizeTable>) -> Draw {
        let hash =
            crate::streams::mix(self.key.wrapping_add(u64::from(at).wrapping_mul(STEP_STRIDE)));
        Draw { hash, point: sizes[kind].draw(hash) }
    }
}

impl Tokens {
    pub(super) fn new() -> Self {
        let (all, vacant) = (Vec::with_capacity(CAPACITY), Vec::with_capacity(CAPACITY));
        Self { all, vacant }
    }

    pub(super) fn add(&mut self, token: Token) -> TokenId {
        let next = self.next();
        match self.vacant.pop() {
            Some(_) => self[next] = token,
            None => self.all.push(token),
        }
        next
    }

    /// Returns the number that the next token gets.
    pub(super) fn next(&self) -> TokenId {
        self.vacant.last().copied().unwrap_or(TokenId(self.all.len() as u32))
    }

    pub(super) fn remove(&mut self, token: TokenId) {
        self.vacant.push(token);
    }

    /// Returns the number of requests and parts of requests in flight.
    pub(super) fn live(&self) -> usize {
        self.all.len() - self.vacant.len()
    }
}

impl Index<TokenId> for Tokens {
    type Output = Token;

    #[inline(always)]
    fn index(&self, token: TokenId) -> &Token {
        &self.all[token.index()]
    }
}

impl IndexMut<TokenId> for Tokens {
    #[inline(always)]
    fn index_mut(&mut self, token: TokenId) -> &mut Token {
        &mut self.all[token.index()]
    }
}

/// The step number of a token without a draw.
pub(super) const NOT_DRAWN: u16 = u16::MAX;
const CAPACITY: usize = 1_024;
/// The difference between the hash inputs of successive steps. It is odd, so that the steps' draws differ.
const STEP_STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
