//! The ops over structured data as functions of jobs, for devices that do them. The kernels of `kernels.rs` compute the
//! results, wherever a job runs.

use std::sync::Arc;

use device::{Function, FunctionKind, Input, Job, Kernel, Task};
use prost::bytes::{BufMut, Bytes, BytesMut};
use trace::{Format, Wrap};
use units::Op;

use super::engine::{Engine, origin};
use super::error::{Cause, Malformed};
use super::kernels::{self, Layout};
use super::live::Strand;
use crate::core::Runtime;

impl Engine {
    /// Returns the op's job for the strand's payload, if a device does this op. Returns none for every other op.
    pub(super) fn function_job(&self, core: &Runtime, strand: &Strand, op: Op) -> Option<Box<Job>> {
        let function = self.function(core, strand, op, strand.format)?;
        let input = Input::heap(strand.payload.clone());
        Some(Box::new(Job::new(Task::Function(function), input, self.maker.pool.take(0))))
    }

    /// Returns the op's function for a payload of this format, if a device does this op.
    pub(super) fn function(
        &self,
        core: &Runtime,
        strand: &Strand,
        op: Op,
        format: Format,
    ) -> Option<Function> {
        let kind = kind(op).filter(|kind| core.has_kernel(kind.kernel()))?;
        Some(match kind {
            FunctionKind::Serialize => {
                let (schema, layout) = (Arc::clone(&self.schema), layout(format));
                Function::new(kind, move |payload| {
                    kernels::serialize(schema.as_ref(), payload, layout).map_err(what)
                })
            }
            FunctionKind::Deserialize => {
                let schema = Arc::clone(&self.schema);
                Function::new(kind, move |payload| {
                    kernels::deserialize(schema.as_ref(), payload).map_err(what)
                })
            }
            FunctionKind::Rpc if is_received(format) => Function::new(kind, unwrapped),
            FunctionKind::Rpc => {
                let name = self.runs[strand.run].input.function.clone();
                Function::new(kind, move |payload| Ok(kernels::call(&name, payload.clone())))
            }
            FunctionKind::LoadBalance => {
                let live = &self.runs[strand.run];
                self.load_balance.function(&origin(strand, live))?
            }
        })
    }

    /// Returns the next payload after the op's function has given `result`, and keeps what else the result says.
    ///
    /// # Errors
    /// Fails if the result is not one of the op's function.
    pub(super) fn take_function(
        &mut self,
        strand: &Strand,
        op: Op,
        result: Bytes,
    ) -> Result<Bytes, Cause> {
        match op {
            Op::Rpc if is_received(strand.format) => {
                let (name, arguments) = split(&result).ok_or_else(|| foreign(op))?;
                self.runs[strand.run].function = Some(name.to_owned());
                Ok(result.slice_ref(arguments))
            }
            Op::LoadBalance => {
                let picked = result.as_ref().try_into().map(u64::from_le_bytes);
                let picked = picked.map_err(|_| foreign(op))?;
                self.runs[strand.run].core = Some(picked as usize);
                Ok(strand.payload.clone())
            }
            _ => Ok(result),
        }
    }
}

/// Makes the function of a load balancer that picks this core for every request.
pub(super) fn always(core: usize) -> Function {
    let picked = Bytes::copy_from_slice(&(core as u64).to_le_bytes());
    Function::new(FunctionKind::LoadBalance, move |_| Ok(picked.clone()))
}

/// Returns the layout that `serialize` receives.
pub(super) fn layout(format: Format) -> Layout {
    match format.bare() {
        Some(base) => Layout::Bare(base),
        None => Layout::Compressed,
    }
}

/// Returns whether `rpc` unwraps a payload of this format. It wraps any other.
pub(super) fn is_received(format: Format) -> bool {
    format.wrap() == Some(Wrap::Message)
}

fn kind(op: Op) -> Option<FunctionKind> {
    FunctionKind::ALL.into_iter().find(|kind| kind.op() == op)
}

/// Unwraps a call: the length of its function's name, the name, and the arguments.
fn unwrapped(message: &Bytes) -> Result<Bytes, &'static str> {
    let call = kernels::called(message).map_err(what)?;
    let name = call.function.as_bytes();
    let mut result = BytesMut::with_capacity(LENGTH_BYTES + name.len() + call.arguments.len());
    result.put_u32_le(u32::try_from(name.len()).map_err(|_| "the name of a function")?);
    result.extend_from_slice(name);
    result.extend_from_slice(&call.arguments);
    Ok(result.freeze())
}

/// Splits an unwrapped call into the name of its function and its arguments.
pub(super) fn split(result: &[u8]) -> Option<(&str, &[u8])> {
    let length = u32::from_le_bytes(*result.first_chunk::<LENGTH_BYTES>()?) as usize;
    let end = LENGTH_BYTES.checked_add(length)?;
    let name = str::from_utf8(result.get(LENGTH_BYTES..end)?).ok()?;
    Some((name, &result[end..]))
}

fn what(malformed: Malformed) -> &'static str {
    malformed.what
}

fn foreign(op: Op) -> Cause {
    Malformed::because("a result", format!("it is none of {op}")).into()
}

const LENGTH_BYTES: usize = size_of::<u32>();

impl Runtime {
    /// Returns whether a device other than software has this kernel and is in use.
    pub(super) fn has_kernel(&self, kernel: Kernel) -> bool {
        self.others().any(|can| can.kernels.contains(&kernel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwrapped_call_has_its_function_and_its_arguments() {
        for (name, arguments) in [("user.get", &b"{}"[..]), ("", b""), ("n\u{e9}", &[0, 255])] {
            let message = kernels::call(name, Bytes::copy_from_slice(arguments));
            let result = unwrapped(&message).expect("our own");
            assert_eq!(split(&result), Some((name, arguments)));
        }
        assert!(unwrapped(&Bytes::from_static(&[0x0A, 0xFF])).is_err());
        for cut in
            [&b""[..], &[1, 0, 0], &[1, 0, 0, 0], &[255, 255, 255, 255, 9], &[1, 0, 0, 0, 255]]
        {
            assert_eq!(split(cut), None);
        }
    }
}
