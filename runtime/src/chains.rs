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
            (Op::Decrypt, follows) if has(follows, Op::Deserialize) => Self::Receive,
            (Op::Serialize, [.., last]) if last.op() == Op::Encrypt => Self::Send,
            (_, follows @ [.., last])
                if last.op() == Op::Encrypt && has(follows, Op::Serialize) =>
            {
                Self::Send
            }
            _ => Self::Other,
        }
    }
}

fn has(follows: &[Arc<dyn Follow>], op: Op) -> bool {
    follows.iter().any(|follow| follow.op() == op)
}
