//! T1 without the executor: the same jobs and kernels, awaited one by one by the caller. It is what a service falls
//! back to, and what the executor is measured against.

use std::future::Future;

use bytes::Bytes;
use device::Job;
use runtime::Finished;
use runtime::trace::jobs::{Given, Made, Maker, given};
use runtime::trace::kernels::{COMPRESSED, Documents, called, deserialize, read_fields, transform};
use runtime::trace::{Cause, TraceInput};
use trace::{Base, Format};
use units::Op;

/// The function and the arguments of a received message; `run` runs a job.
pub(crate) async fn receive<F: Future<Output = Finished>>(
    run: impl Fn(Box<Job>) -> F,
    maker: &Maker,
    input: &TraceInput,
) -> Result<(String, Bytes), Cause> {
    let message = step(&run, maker, Op::Decrypt, &input.payload, input).await?;
    let call = called(&message)?;
    let mut payload = deserialize(&Documents, &call.arguments)?;
    let json = Format::of(Base::Json);
    let fields = read_fields(&Documents, &payload, json, &[COMPRESSED.to_owned()])?;
    if fields[0].is_some_and(|flag| flag != 0) {
        payload = transform(&Documents, &payload, Base::Json, Base::String)?;
        payload = step(&run, maker, Op::Decompress, &payload, input).await?;
    }
    Ok((call.function, payload))
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
