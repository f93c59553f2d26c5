//! Chains of a trace: the ops directly behind a step that one device runs without giving the payload back. The policy
//! decides whether the chain goes in one trip. If it does not, or if a device ends the chain early, the strand continues
//! as it does without chains: with the next step, from the payload that there is.
//!
//! Only ops that are prepared from the result before them alone are in chains. A branch, a port and a change of layout
//! end a chain.

use std::sync::Arc;

use device::cipher::NONCE_BYTES;
use device::{
    AssociatedData, Buffer, Chain, Dialect, Follow, Function, Job, Key, Next, Nonce, Pool,
    StepDone, TAG_BYTES, Task,
};
use prost::bytes::Bytes;
use trace::Format;
use units::Op;

use super::engine::Engine;
use super::error::{Cause, Malformed};
use super::functions::{is_received, split};
use super::jobs::{checked, frame_header};
use super::live::Strand;
use super::memory::Step;
use super::metrics::Ran;
use crate::core::Runtime;

/// An op of a chain.
struct TraceFollow {
    work: Work,
    /// The form of the result before it.
    before: Before,
    /// The expected size of the result before it (bytes).
    work_bytes: usize,
    payload_bytes_max: usize,
    pool: Pool,
}

enum Work {
    Function(Function),
    Encrypt(Key, Nonce),
}

/// The form of an op's result, which says which part of it the next op reads.
enum Before {
    Payload,
    /// A call that was unwrapped. The next op reads its arguments.
    Call,
    /// A stream of this original. The next op reads its frame.
    Stream(Bytes, Dialect),
}

impl Follow for TraceFollow {
    fn op(&self) -> Op {
        match &self.work {
            Work::Function(function) => function.kind().op(),
            Work::Encrypt(..) => Op::Encrypt,
        }
    }

    fn work_bytes(&self) -> usize {
        self.work_bytes
    }

    fn prepare(&self, output: &mut Buffer, offset: usize) -> Option<Next> {
        let end = output.len();
        let input = match &self.before {
            Before::Payload => offset..end,
            Before::Call => end - split(&output[offset..])?.1.len()..end,
            Before::Stream(original, dialect) => {
                let header = frame_header(*dialect, original, end - offset);
                header.encode(&mut output[..]);
                0..end
            }
        };
        let (task, output, output_offset) = match &self.work {
            Work::Function(function) => (Task::Function(function.clone()), self.pool.take(0), 0),
            Work::Encrypt(key, nonce) => {
                let bytes = NONCE_BYTES + input.len() + TAG_BYTES;
                if bytes > self.payload_bytes_max {
                    return None;
                }
                let mut output = self.pool.take(bytes);
                output.extend(&nonce.0);
                let (key, nonce) = (key.clone(), *nonce);
                (
                    Task::Encrypt { key, nonce, associated: AssociatedData::NONE },
                    output,
                    NONCE_BYTES,
                )
            }
        };
        Some(Next { task, input, output, output_offset, dictionary: None })
    }

    fn prepare_again(&self, output: &mut Buffer, offset: usize) -> Option<Next> {
        match self.work {
            // The nonce may have been used. The strand encrypts with another one.
            Work::Encrypt(..) => None,
            Work::Function(_) => self.prepare(output, offset),
        }
    }
}

impl Engine {
    /// Returns the chain of the strand's job: the ops directly behind it, as far as a device runs one after the other.
    pub(super) fn chain(
        &mut self,
        core: &Runtime,
        strand: &Strand,
        job: &Job,
    ) -> Option<Box<Chain>> {
        let mut follows: Vec<Arc<dyn Follow>> = Vec::new();
        let steps = &strand.program().steps;
        let (mut at, mut format) = (strand.at, strand.format);
        let mut op = job.task.op();
        loop {
            let mut next = at + 1;
            while let Step::Jump(to) = steps[next] {
                next = to;
            }
            let Step::Run { op: second, .. } = steps[next] else { break };
            let Some(after) = format.after(op).ok().filter(|_| core.has_succession(op, second))
            else {
                break;
            };
            let Some(work) = self.chained(core, strand, second, after) else { break };
            let before = match (&job.task, op) {
                (Task::Compress { dialect, .. }, Op::Compress) => {
                    Before::Stream(job.input.bytes().clone(), *dialect)
                }
                (_, Op::Rpc) if is_received(format) => Before::Call,
                _ => Before::Payload,
            };
            follows.push(Arc::new(TraceFollow {
                work,
                before,
                work_bytes: job.work_bytes(),
                payload_bytes_max: self.limits.payload_bytes_max,
                pool: self.maker.pool.clone(),
            }));
            (at, format, op) = (next, after, second);
        }
        (!follows.is_empty()).then(|| Chain::new(job, follows))
    }

    /// Returns the work of an op in a chain, or none if it cannot be in one.
    fn chained(&self, core: &Runtime, strand: &Strand, op: Op, format: Format) -> Option<Work> {
        if op == Op::Encrypt {
            let session = self.runs[strand.run].input.session.as_ref()?;
            return session.seal().map(|(key, nonce)| Work::Encrypt(key, nonce));
        }
        self.function(core, strand, op, format).map(Work::Function)
    }

    /// Completes the steps of a chain that are done, except for the job's own op. A step counts as run where the last
    /// one ran; the metrics of the runtime know the path of each.
    pub(super) fn take_chain(
        &mut self,
        core: &mut Runtime,
        strand: &mut Strand,
        job: &mut Job,
        ran: Ran,
    ) -> Result<(), Cause> {
        let Some(chain) = job.chain.take() else { return Ok(()) };
        for (at, step) in chain.done().iter().enumerate() {
            let next = chain.done().get(at + 1).map_or(&job.input, |next| &next.input);
            let payload = self.chained_payload(strand, step, next.bytes())?;
            self.fits(payload.len())?;
            let due = strand.due();
            self.done(core, strand, payload, (due, ran))?;
            while let Step::Jump(to) = strand.program().steps[strand.at] {
                strand.at = to;
            }
        }
        Ok(())
    }

    /// Returns the payload after a step of a chain. `read` is what the next op has read.
    fn chained_payload(
        &mut self,
        strand: &mut Strand,
        step: &StepDone,
        read: &Bytes,
    ) -> Result<Bytes, Cause> {
        match step.task.op() {
            Op::Decompress => match strand.frame.take() {
                Some(header) => checked(&header, step.result.clone()),
                None => Ok(step.result.clone()),
            },
            Op::Rpc if is_received(strand.format) => {
                self.take_function(strand, Op::Rpc, step.result.clone())
            }
            Op::Compress => Ok(read.clone()),
            op if matches!(step.task, Task::Function(_)) => {
                self.take_function(strand, op, step.result.clone())
            }
            // In front of this result is its nonce.
            Op::Encrypt => Err(Malformed::because("a chain", "an op behind encrypt").into()),
            _ => Ok(step.result.clone()),
        }
    }
}

impl Runtime {
    /// Returns whether a device other than software runs the second op behind the first without giving the payload
    /// back, and the configuration allows it.
    fn has_succession(&self, first: Op, second: Op) -> bool {
        self.allows_chains() && self.other_slots().any(|slot| slot.successions.has(first, second))
    }
}
