//! Chains of a trace: the ops behind a step that one device runs without giving the payload back, as the output
//! dispatchers of \[AccelFlow\] do. The policy decides whether a chain goes in one trip. If it does not, or if a
//! device ends the chain early, the strand continues as it does without chains: with the next step, from the payload
//! that there is.
//!
//! Branches and changes of layout between two ops are a part of the chain. A chain is made for one way through its
//! branches. Where a payload takes another way, the chain ends.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use device::cipher::NONCE_BYTES;
use device::{
    AssociatedData, Buffer, Chain, Dialect, Follow, Function, Job, Key, Next, NextInput, Nonce,
    Pool, StepDone, TAG_BYTES, Task,
};
use prost::bytes::Bytes;
use store::Header;
use trace::{Base, Condition, Format};
use units::Op;

use super::engine::Engine;
use super::error::{Cause, Malformed};
use super::functions::{is_received, split};
use super::jobs::{checked, compressed_stream, frame_header};
use super::kernels::{self, Schema};
use super::live::{Fields, Strand};
use super::memory::{Program, Step};
use super::metrics::Ran;
use crate::core::Runtime;

/// An op of a chain, with what is between it and the op before it.
pub(super) struct TraceFollow {
    work: Work,
    /// The form of the result before it.
    before: Before,
    way: Way,
    /// The step of the op in its program.
    at: usize,
    /// The expected size of the result before it (bytes).
    work_bytes: usize,
    payload_bytes_max: usize,
    pool: Pool,
    passed: Mutex<Option<Passed>>,
}

enum Work {
    Function(Function),
    Encrypt(Key, Nonce),
    Decompress,
}

/// The form of an op's result, which says which part of it the next op reads.
enum Before {
    Payload,
    /// A call that was unwrapped. The next op reads its arguments.
    Call,
    /// A stream of this original. The next op reads its frame.
    Stream(Bytes, Dialect),
}

/// The branches and changes of layout between two ops.
struct Way {
    steps: Vec<Between>,
    /// What branches read. None if there is no branch.
    reads: Option<Reads>,
    schema: Arc<dyn Schema>,
}

enum Between {
    /// A branch, and the side on which the way goes on.
    Branch(Arc<Condition>, bool),
    Trans(Base, Base),
}

struct Reads {
    names: Arc<[String]>,
    /// The fields that came with the message, and those of the caller.
    received: Vec<(String, u32)>,
    given: Vec<(String, u32)>,
    /// The format of the payload, from which fields are read.
    format: Format,
}

/// What was found between two ops of a chain.
#[derive(Default)]
struct Passed {
    /// The values of the program's fields, if a branch has read them.
    values: Option<Vec<Option<u32>>>,
    /// The payload after the last change of layout, and its format.
    payload: Option<(Bytes, Format)>,
    /// The frame of the stream that is decompressed next.
    frame: Option<Header>,
}

impl Follow for TraceFollow {
    fn op(&self) -> Op {
        match &self.work {
            Work::Function(function) => function.kind().op(),
            Work::Encrypt(..) => Op::Encrypt,
            Work::Decompress => Op::Decompress,
        }
    }

    fn work_bytes(&self) -> usize {
        self.work_bytes
    }

    fn prepare(&self, output: &mut Buffer, offset: usize) -> Option<Next> {
        let part = self.before.part(output, offset)?;
        let mut passed = Passed::default();
        if !self.way.steps.is_empty() {
            passed = self.way.walk(&Bytes::copy_from_slice(&output[part.clone()]))?;
        }
        let made = passed.payload.as_ref().map(|(payload, _)| payload.clone());
        let bytes = made.as_ref().map_or(part.len(), Bytes::len);
        if bytes > self.payload_bytes_max {
            return None;
        }
        let mut input = made.map_or(NextInput::Part(part.clone()), NextInput::Made);
        let (task, next_output, output_offset) = match &self.work {
            Work::Function(function) => (Task::Function(function.clone()), self.pool.take(0), 0),
            Work::Encrypt(key, nonce) => {
                let bytes = NONCE_BYTES + bytes + TAG_BYTES;
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
            Work::Decompress => {
                let payload = match &input {
                    NextInput::Part(part) => &output[part.clone()],
                    NextInput::Made(bytes) => bytes,
                };
                let (header, stream, dialect) = compressed_stream(payload, self.payload_bytes_max)?;
                input = match input {
                    NextInput::Part(part) => {
                        NextInput::Part(part.start + stream.start..part.start + stream.end)
                    }
                    NextInput::Made(bytes) => NextInput::Made(bytes.slice(stream)),
                };
                let original_bytes = header.original_bytes as usize;
                passed.frame = Some(header);
                (Task::Decompress { dialect, original_bytes }, self.pool.take(original_bytes), 0)
            }
        };
        *self.passed.lock().unwrap_or_else(PoisonError::into_inner) = Some(passed);
        Some(Next { task, input, output: next_output, output_offset, dictionary: None })
    }

    fn prepare_again(&self, output: &mut Buffer, offset: usize) -> Option<Next> {
        match self.work {
            // The nonce may have been used. The strand encrypts with another one.
            Work::Encrypt(..) => None,
            Work::Function(_) | Work::Decompress => self.prepare(output, offset),
        }
    }
}

impl Before {
    /// Returns the part of the output that is the payload of the next op. It completes a frame. Returns none if the
    /// result is not of this form.
    fn part(&self, output: &mut Buffer, offset: usize) -> Option<Range<usize>> {
        let end = output.len();
        Some(match self {
            Self::Payload => offset..end,
            Self::Call => end - split(&output[offset..])?.1.len()..end,
            Self::Stream(original, dialect) => {
                let header = frame_header(*dialect, original, end - offset);
                header.encode(&mut output[..]);
                0..end
            }
        })
    }
}

impl Way {
    /// Goes the way with this payload. Returns none if the payload takes another one, or cannot be read. The strand
    /// then says why.
    fn walk(&self, unwrapped: &Bytes) -> Option<Passed> {
        let mut passed = Passed::default();
        let mut fields = Fields::default();
        if let Some(Reads { names, received, format, .. }) = &self.reads {
            fields.received.clone_from(received);
            let values = kernels::read_fields(self.schema.as_ref(), unwrapped, *format, names);
            fields.values = Some(values.ok()?);
        }
        let mut payload = unwrapped.clone();
        for step in &self.steps {
            match step {
                Between::Branch(condition, side) => {
                    let Reads { names, given, .. } = self.reads.as_ref()?;
                    if fields.hold(condition, names, given) != *side {
                        return None;
                    }
                }
                Between::Trans(from, to) => {
                    let schema = self.schema.as_ref();
                    payload = kernels::transform(schema, &payload, *from, *to).ok()?;
                    passed.payload = Some((payload.clone(), Format::new(*to)));
                }
            }
        }
        passed.values = fields.values;
        Some(passed)
    }
}

impl Engine {
    /// Returns the chain of the strand's job: the ops behind it, as far as a device runs one after the other. The
    /// strand keeps what follows until the job has ended.
    pub(super) fn chain(
        &mut self,
        core: &Runtime,
        strand: &mut Strand,
        job: &Job,
    ) -> Option<Box<Chain>> {
        strand.follows.clear();
        if !core.allows_chains() {
            return None;
        }
        let program = strand.program();
        let mut follows: Vec<Arc<TraceFollow>> = Vec::new();
        let (mut at, mut format, mut op) = (strand.at, strand.format, job.task.op());
        while let Ok(after) = format.after(op) {
            let mut steps = Vec::new();
            let Some((next, second, reads_format)) =
                next_op(core, program, (at + 1, op, after), &mut steps)
            else {
                break;
            };
            let Some(work) = self.work(core, strand, second, reads_format) else { break };
            let before = match (&job.task, op) {
                (Task::Compress { dialect, .. }, Op::Compress) => {
                    Before::Stream(job.input.bytes().clone(), *dialect)
                }
                (_, Op::Rpc) if is_received(format) => Before::Call,
                _ => Before::Payload,
            };
            let has_branch = steps.iter().any(|step| matches!(step, Between::Branch(..)));
            let reads = has_branch.then(|| Reads {
                names: Arc::clone(&program.fields),
                received: strand.fields.received.clone(),
                given: self.runs[strand.run].input.fields.clone(),
                format: after,
            });
            follows.push(Arc::new(TraceFollow {
                work,
                before,
                way: Way { steps, reads, schema: Arc::clone(&self.schema) },
                at: next,
                work_bytes: job.work_bytes(),
                payload_bytes_max: self.limits.payload_bytes_max,
                pool: self.maker.pool.clone(),
                passed: Mutex::default(),
            }));
            (at, format, op) = (next, reads_format, second);
        }
        if follows.is_empty() {
            return None;
        }
        let dispatched = follows.iter().map(|follow| Arc::clone(follow) as Arc<dyn Follow>);
        let chain = Chain::new(job, dispatched.collect());
        strand.follows = follows;
        Some(chain)
    }

    /// Returns the work of an op in a chain that reads this format, or none if it cannot be in one.
    fn work(&self, core: &Runtime, strand: &Strand, op: Op, format: Format) -> Option<Work> {
        match op {
            Op::Encrypt => {
                let session = self.runs[strand.run].input.session.as_ref()?;
                session.seal().map(|(key, nonce)| Work::Encrypt(key, nonce))
            }
            Op::Decompress => Some(Work::Decompress),
            _ => self.function(core, strand, op, format).map(Work::Function),
        }
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
        let follows = std::mem::take(&mut strand.follows);
        for ((at, step), follow) in chain.done().iter().enumerate().zip(follows) {
            let next = chain.done().get(at + 1).map_or(&job.input, |next| &next.input);
            let payload = self.chained_payload(strand, step, next.bytes())?;
            self.fits(payload.len())?;
            let due = strand.due();
            self.done(core, strand, payload, (due, ran))?;
            let passed = follow.passed.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Passed { values, payload, frame } = passed.unwrap_or_default();
            if values.is_some() {
                strand.fields.values = values;
            }
            if let Some((payload, format)) = payload {
                (strand.payload, strand.format) = (payload, format);
            }
            (strand.frame, strand.at) = (frame, follow.at);
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
            Op::Compress => Ok(read.clone()),
            // In front of this result is its nonce, and a port always follows.
            Op::Encrypt => Err(Malformed::because("a chain", "an op behind encrypt").into()),
            op if matches!(step.task, Task::Function(_)) => {
                self.take_function(strand, op, step.result.clone())
            }
            _ => Ok(step.result.clone()),
        }
    }
}

/// Returns the next op behind `at`, its step and the format that it reads, if a device runs it behind `op` without
/// giving the payload back. What is between them is added to `steps`. Of two sides of a branch it is the first that
/// leads to such an op.
fn next_op(
    core: &Runtime,
    program: &Program,
    (at, op, format): (usize, Op, Format),
    steps: &mut Vec<Between>,
) -> Option<(usize, Op, Format)> {
    match &program.steps[at] {
        Step::Run { op: second, .. } => {
            core.has_succession(op, *second).then_some((at, *second, format))
        }
        Step::Jump(to) => next_op(core, program, (*to, op, format), steps),
        Step::Trans(from, to) => {
            steps.push(Between::Trans(*from, *to));
            let found = next_op(core, program, (at + 1, op, Format::new(*to)), steps);
            found.or_else(|| {
                steps.pop();
                None
            })
        }
        // Fields are those of the payload as it was last unwrapped.
        Step::Branch { condition, on_false }
            if matches!(op, Op::Decrypt | Op::Rpc | Op::Deserialize) =>
        {
            [(true, at + 1), (false, *on_false)].into_iter().find_map(|(side, to)| {
                steps.push(Between::Branch(Arc::clone(condition), side));
                let found = next_op(core, program, (to, op, format), steps);
                found.or_else(|| {
                    steps.pop();
                    None
                })
            })
        }
        _ => None,
    }
}

impl Runtime {
    /// Returns whether a device other than software runs the second op behind the first without giving the payload
    /// back.
    fn has_succession(&self, first: Op, second: Op) -> bool {
        self.other_slots().any(|slot| slot.successions.has(first, second))
    }
}
