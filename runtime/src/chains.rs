//! The kinds of chains, by which costs are learnt and chains are counted.

use device::Chain;
use units::Op;

/// The kind of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainKind {
    /// A value on its way to the store.
    CompressEncrypt,
    /// A value on its way back.
    DecryptDecompress,
    /// Any other chain.
    Other,
}

impl ChainKind {
    /// Every kind, in the order of its index.
    pub const ALL: [ChainKind; 3] =
        [ChainKind::CompressEncrypt, ChainKind::DecryptDecompress, ChainKind::Other];

    /// Returns the name that metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            ChainKind::CompressEncrypt => "compress+encrypt",
            ChainKind::DecryptDecompress => "decrypt+decompress",
            ChainKind::Other => "other",
        }
    }

    /// Returns the kind of this chain.
    pub fn from_chain(chain: &Chain) -> Self {
        match (chain.first(), chain.follows()) {
            (Op::Compress, [follow]) if follow.op() == Op::Encrypt => Self::CompressEncrypt,
            (Op::Decrypt, [follow]) if follow.op() == Op::Decompress => Self::DecryptDecompress,
            _ => Self::Other,
        }
    }
}
