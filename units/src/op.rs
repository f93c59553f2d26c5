//! The kinds of tax work, with their names in metrics, traces and on the command line.

use std::fmt;

/// One kind of tax work. `Tcp`, `LoadBalance` and `Notify` are ports of traces: a handler of the caller does them, and
/// no device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Op {
    Compress,
    Decompress,
    Encrypt,
    Decrypt,
    Checksum,
    Copy,
    Serialize,
    Deserialize,
    Rpc,
    Tcp,
    LoadBalance,
    Notify,
}

impl Op {
    /// Every op, in the order of its index.
    pub const ALL: [Op; 12] = [
        Op::Compress,
        Op::Decompress,
        Op::Encrypt,
        Op::Decrypt,
        Op::Checksum,
        Op::Copy,
        Op::Serialize,
        Op::Deserialize,
        Op::Rpc,
        Op::Tcp,
        Op::LoadBalance,
        Op::Notify,
    ];

    /// Returns the position in [`Op::ALL`], for tables indexed by op.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the word for the op in metrics, configuration and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Compress => "compress",
            Op::Decompress => "decompress",
            Op::Encrypt => "encrypt",
            Op::Decrypt => "decrypt",
            Op::Checksum => "checksum",
            Op::Copy => "copy",
            Op::Serialize => "serialize",
            Op::Deserialize => "deserialize",
            Op::Rpc => "rpc",
            Op::Tcp => "tcp",
            Op::LoadBalance => "load-balance",
            Op::Notify => "notify",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_the_position_in_all() {
        for (index, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op.index(), index);
        }
    }
}
