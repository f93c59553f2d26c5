//! The traces T1, T2 and T3 without the executor: the caller awaits the same jobs and kernels one by one. A
//! service falls back to this code when a trace returns its input, and a bench compares the executor with it.
//! The caller sends the messages.

use std::future::Future;

use device::Job;
use prost::bytes::Bytes;
use trace::{Base, Format};
use units::Op;

use super::error::Cause;
use super::input::TraceInput;
use super::jobs::{Given, Made, Maker, given};
use super::kernels::{self, COMPRESSED, Documents, Layout};
use crate::entry::Finished;

/// Receives a message like T1: returns its function and its arguments. `run` runs a job.
///
/// # Errors
/// Fails if the message is malformed, if it is too large at some step, or if a job failed.
pub async fn receive<F: Future<Output = Finished>>(
    run: impl Fn(Box<Job>) -> F,
    maker: &Maker,
    input: &TraceInput,
) -> Result<(String, Bytes), Cause> {
    let message = step(&run, maker, Op::Decrypt, &input.payload, input).await?;
    let call = kernels::called(&message)?;
    let mut payload = bounded(maker, kernels::deserialize(&Documents, &call.arguments)?)?;
    let json = Format::new(Base::Json);
    let fields = kernels::read_fields(&Documents, &payload, json, &[COMPRESSED.to_owned()])?;
    if fields[0].is_some_and(|flag| flag != 0) {
        let text = kernels::transform(&Documents, &payload, Base::Json, Base::String)?;
        payload = bounded(maker, text)?;
        payload = step(&run, maker, Op::Decompress, &payload, input).await?;
    }
    Ok((call.function, payload))
}

/// Responds like T2, or like T3 if the answer must be compressed: returns the message to send.
///
/// # Errors
/// Fails if the answer is not JSON, if it is too large at some step, or if a job failed.
pub async fn respond<F: Future<Output = Finished>>(
    run: impl Fn(Box<Job>) -> F,
    maker: &Maker,
    input: &TraceInput,
    compress: bool,
) -> Result<Bytes, Cause> {
    let (payload, layout) = if compress {
        (step(&run, maker, Op::Compress, &input.payload, input).await?, Layout::Compressed)
    } else {
        (input.payload.clone(), Layout::Bare(Base::Json))
    };
    let message = bounded(maker, kernels::serialize(&Documents, &payload, layout)?)?;
    let message = bounded(maker, kernels::call(&input.function, message))?;
    step(&run, maker, Op::Encrypt, &message, input).await
}

/// Checks the size of a kernel's result. The size of a job's result is checked before the job is created.
fn bounded(maker: &Maker, payload: Bytes) -> Result<Bytes, Cause> {
    maker.fits(payload.len()).map(|()| payload)
}

/// Runs one op on a payload, with the keys of the input's session.
///
/// # Errors
/// Fails if the payload does not have the op's format, if the result is too large, or if the job failed.
///
/// # Panics
/// Panics if no device does this op.
pub async fn step<F: Future<Output = Finished>>(
    run: &impl Fn(Box<Job>) -> F,
    maker: &Maker,
    op: Op,
    payload: &Bytes,
    input: &TraceInput,
) -> Result<Bytes, Cause> {
    let made = maker.make(op, payload, input.session.as_deref())?;
    let (job, frame) = match made.expect("a device does this op") {
        Made::Payload(payload) => return Ok(payload),
        Made::Job(job) => (job, None),
        Made::Stream(job, frame) => (job, Some(frame)),
    };
    match given(run(job).await, frame)? {
        Given::Payload(payload) => Ok(payload),
        Given::Checksum(_) => Ok(payload.clone()),
    }
}
