//! The kinds of chains, by which costs are learnt and chains are counted.

use std::sync::Arc;

use device::{Chain, Follow};
use units::Op;

/// The kind of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainKind {
    /// A value on its way to the store.
    CompressEncrypt,
    /// A value on its way back.
    DecryptDecompress,
    /// A message that is received: decrypted, perhaps unwrapped, and deserialized.
    Receive,
    /// A message that is sent: perhaps compressed, serialized, perhaps wrapped, and encrypted.
    Send,
    /// Any other chain.
    Other,
}

impl ChainKind {
    /// Every kind, in the order of its index.
    pub const ALL: [ChainKind; 5] = [
        ChainKind::CompressEncrypt,
        ChainKind::DecryptDecompress,
        ChainKind::Receive,
        ChainKind::Send,
        ChainKind::Other,
    ];

    /// Returns the name that metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            ChainKind::CompressEncrypt => "compress+encrypt",
            ChainKind::DecryptDecompress => "decrypt+decompress",
            ChainKind::Receive => "decrypt+deserialize",
            ChainKind::Send => "serialize+encrypt",
            ChainKind::Other => "other",
        }
    }

    /// Returns the kind of this chain.
    pub fn from_chain(chain: &Chain) -> Self {
        match (chain.first(), chain.follows()) {
            (Op::Compress, [follow]) if follow.op() == Op::Encrypt => Self::CompressEncrypt,
            (Op::Decrypt, [follow]) if follow.op() == Op::Decompress => Self::DecryptDecompress,
            (Op::Decrypt, [.., last]) if last.op() == Op::Deserialize => Self::Receive,
            (first, follows) if is_sent(first, follows) => Self::Send,
            _ => Self::Other,
        }
    }
}

fn is_sent(first: Op, follows: &[Arc<dyn Follow>]) -> bool {
    let mut ops = std::iter::once(first).chain(follows.iter().map(|follow| follow.op()));
    follows.last().is_some_and(|last| last.op() == Op::Encrypt) && ops.any(|op| op == Op::Serialize)
}
