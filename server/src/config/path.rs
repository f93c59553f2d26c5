//! The path of a value to the store: a program of ops, which is compiled once. The way back is the same in reverse, and
//! is read from the stored value itself, so that values which took another path stay readable.

use serde::{Deserialize, Serialize};

/// An op on the way of a value to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum ValueOp {
    Compress,
    Encrypt,
}

impl ValueOp {
    const fn name(self) -> &'static str {
        match self {
            ValueOp::Compress => "compress",
            ValueOp::Encrypt => "encrypt",
        }
    }
}

/// The steps of a path. Every step runs where the policy places it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ValuePath {
    /// Whether values are compressed, if that saves enough.
    pub(crate) compresses: bool,
    /// Whether the result is sealed.
    pub(crate) seals: bool,
}

impl ValuePath {
    /// Compiles a path.
    ///
    /// # Errors
    /// Describes the first op that has no place there.
    pub(crate) fn compile(ops: &[ValueOp]) -> Result<Self, String> {
        let mut path = Self::default();
        for op in ops {
            let step = match op {
                ValueOp::Compress if path.seals => {
                    return Err("has compress behind encrypt, and encrypted bytes do not shrink; \
                                give [\"compress\", \"encrypt\"]"
                        .to_owned());
                }
                ValueOp::Compress => &mut path.compresses,
                ValueOp::Encrypt => &mut path.seals,
            };
            if std::mem::replace(step, true) {
                return Err(format!("has {} twice; give each op once", op.name()));
            }
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::ValueOp::{Compress, Encrypt};
    use super::*;

    #[test]
    fn a_path_has_each_op_once_and_encrypts_last() {
        let compile = |ops: &[ValueOp]| ValuePath::compile(ops).ok();
        let path = |compresses, seals| Some(ValuePath { compresses, seals });
        assert_eq!(compile(&[]), path(false, false));
        assert_eq!(compile(&[Compress]), path(true, false));
        assert_eq!(compile(&[Encrypt]), path(false, true));
        assert_eq!(compile(&[Compress, Encrypt]), path(true, true));
        assert_eq!(compile(&[Encrypt, Compress]), None);
        assert_eq!(compile(&[Encrypt, Encrypt]), None);
        assert_eq!(compile(&[Compress, Compress]), None);
    }
}
