//! T1, T2 and T3 without the executor: the same jobs and kernels, awaited one by one by the caller. It is what a
//! service falls back to when a trace gives its input back, and what the executor is measured against. It sends
//! nothing: the message is its caller's.

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

/// Receives as T1 does: returns the function and the arguments of a received message. `run` runs a job.
///
/// # Errors
/// The message is not one, is too large at some step, or a job failed.
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

/// Responds as T2 does, or as T3 where the answer is to be compressed: returns the message to send.
///
/// # Errors
/// The answer is not JSON, is too large at some step, or a job failed.
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

/// A kernel's result; that of a job is bounded before it is made.
fn bounded(maker: &Maker, payload: Bytes) -> Result<Bytes, Cause> {
    maker.fits(payload.len()).map(|()| payload)
}

async fn step<F: Future<Output = Finished>>(
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
