//! Functions over structured data that a job brings along: serialization, deserialization, RPC and load balancing. The
//! contract does not know the layout of messages; a function does. Every device that advertises such a kernel gives the
//! result that the function gives. A function reads its input and nothing else.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use units::Op;

use crate::buffer::Buffer;
use crate::job::{DeviceError, Outcome};
use crate::kernels::Kernel;

/// The function of a job. A clone only increments a reference count.
#[derive(Clone)]
pub struct Function {
    kind: FunctionKind,
    body: Arc<Body>,
}

/// Computes the result, or says what is wrong with the input.
type Body = dyn Fn(&Bytes) -> Result<Bytes, &'static str> + Send + Sync;

/// The kind of work that a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FunctionKind {
    /// Serialization into a message.
    Serialize,
    /// Deserialization of a message.
    Deserialize,
    /// Wrapping a message into a call, or unwrapping it.
    Rpc,
    /// The choice of the core that continues a request.
    LoadBalance,
}

impl FunctionKind {
    /// Every kind.
    pub const ALL: [FunctionKind; 4] = [
        FunctionKind::Serialize,
        FunctionKind::Deserialize,
        FunctionKind::Rpc,
        FunctionKind::LoadBalance,
    ];

    /// Returns the op.
    pub const fn op(self) -> Op {
        match self {
            FunctionKind::Serialize => Op::Serialize,
            FunctionKind::Deserialize => Op::Deserialize,
            FunctionKind::Rpc => Op::Rpc,
            FunctionKind::LoadBalance => Op::LoadBalance,
        }
    }

    /// Returns the kernel that a device needs.
    pub const fn kernel(self) -> Kernel {
        match self {
            FunctionKind::Serialize => Kernel::Serialize,
            FunctionKind::Deserialize => Kernel::Deserialize,
            FunctionKind::Rpc => Kernel::Rpc,
            FunctionKind::LoadBalance => Kernel::LoadBalance,
        }
    }
}

impl Function {
    /// Makes a function of this kind. The same input must always give the same result.
    pub fn new(
        kind: FunctionKind,
        body: impl Fn(&Bytes) -> Result<Bytes, &'static str> + Send + Sync + 'static,
    ) -> Self {
        Self { kind, body: Arc::new(body) }
    }

    /// Returns the kind of work.
    pub const fn kind(&self) -> FunctionKind {
        self.kind
    }

    /// Computes the result.
    ///
    /// # Errors
    /// [`DeviceError::InvalidInput`] if the input is not what the function reads.
    pub fn apply(&self, input: &Bytes) -> Result<Bytes, DeviceError> {
        (self.body)(input).map_err(DeviceError::InvalidInput)
    }

    /// Computes the result and makes it the output, behind the first `offset` bytes. The size of a result is not known
    /// before, so the output adopts it. The space that the output had is not needed.
    pub(crate) fn run(&self, input: &Bytes, output: &mut Buffer, offset: usize) -> Outcome {
        let result = match self.apply(input) {
            Ok(result) => result,
            Err(error) => return Outcome::Failed(error),
        };
        let output_bytes = result.len();
        match offset {
            0 => output.adopt(result),
            _ => {
                let mut whole = vec![0; offset + output_bytes];
                let space = output.space();
                let header_bytes = offset.min(space.len());
                whole[..header_bytes].copy_from_slice(&space[..header_bytes]);
                whole[offset..].copy_from_slice(&result);
                output.adopt(whole.into());
            }
        }
        Outcome::Done { output_bytes }
    }
}

impl PartialEq for Function {
    /// Returns whether one is a clone of the other.
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
            && std::ptr::addr_eq(Arc::as_ptr(&self.body), Arc::as_ptr(&other.body))
    }
}

impl Eq for Function {}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({})", self.kind.op())
    }
}

#[cfg(test)]
mod tests {
    use units::ByteCount;

    use super::*;
    use crate::buffer::Pool;

    fn reversed() -> Function {
        Function::new(FunctionKind::Rpc, |input| match input.is_empty() {
            true => Err("nothing to reverse"),
            false => Ok(input.iter().rev().copied().collect()),
        })
    }

    #[test]
    fn a_result_may_be_longer_than_the_output() {
        let long = Bytes::from(vec![7; 100_000]);
        for offset in [0, 5] {
            let mut output = Pool::heap(ByteCount(0)).take(offset + 1);
            output.extend(&b"head!"[..offset]);
            let outcome = reversed().run(&long, &mut output, offset);
            assert_eq!(outcome, Outcome::Done { output_bytes: long.len() });
            assert_eq!(output[..offset], b"head!"[..offset]);
            assert_eq!(output[offset..], long[..]);
        }
    }

    #[test]
    fn an_input_that_is_none_is_the_callers_error() {
        let mut output = Pool::heap(ByteCount(0)).take(1);
        let outcome = reversed().run(&Bytes::new(), &mut output, 0);
        assert_eq!(outcome, Outcome::Failed(DeviceError::InvalidInput("nothing to reverse")));
    }

    #[test]
    fn only_clones_are_equal() {
        let function = reversed();
        assert_eq!(function, function.clone());
        assert_ne!(function, reversed());
    }
}
