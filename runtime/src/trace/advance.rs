//! Runs a strand: one instruction after the other, on the calling core, until it waits for something or ends. Jobs go
//! to the runtime, which decides where they run.

use std::rc::Rc;

use device::{DeviceError, Job, Outcome, Task};
use prost::bytes::Bytes;
use units::{Nanos, Op};

use super::engine::{Engine, Failure, origin};
use super::error::{Cause, Malformed};
use super::functions::{is_received, layout};
use super::jobs::{Given, Made, given};
use super::kernels;
use super::live::{Fields, Join, State, Strand};
use super::memory::{Memory, Step};
use super::metrics::{Counted, FALLBACKS, Ran};
use super::ports::Answer;
use crate::core::Runtime;
use crate::entry::Finished;

/// The continuation after an instruction.
enum Flow {
    On,
    Park(State),
    /// The strand waits for an answer that has already arrived.
    Resume(usize),
    /// The path is over.
    Over,
}

impl Engine {
    /// Runs the strand as far as possible.
    pub(super) fn advance(&mut self, core: &mut Runtime, mut strand: Box<Strand>) {
        let memory = Rc::clone(&strand.memory);
        loop {
            if self.bytes_left == 0 {
                return self.park(strand, State::Ready);
            }
            match self.step(core, &mut strand, &memory) {
                Ok(Flow::On) => {}
                Ok(Flow::Park(state)) => return self.park(strand, state),
                Ok(Flow::Resume(program)) => {
                    let received = strand.early.take().flatten();
                    return self.resume(core, strand, program, received);
                }
                Ok(Flow::Over) => return self.close(&strand),
                Err(failure) => return self.fail(core, strand, failure),
            }
        }
    }

    fn step(
        &mut self,
        core: &mut Runtime,
        strand: &mut Strand,
        memory: &Memory,
    ) -> Result<Flow, Failure> {
        let program = memory.program(strand.program);
        match &program.steps[strand.at] {
            Step::Run { op, due, is_first } => {
                let (op, is_first) = (*op, *is_first);
                let flow = self.run(core, strand, (op, *due, is_first));
                return flow.map_err(|cause| Failure { op: Some(op), cause });
            }
            Step::Trans(from, to) => {
                self.spend(strand.payload.len());
                let schema = self.schema.as_ref();
                let payload = kernels::transform(schema, &strand.payload, *from, *to);
                strand.payload =
                    payload.map_err(|malformed| Failure::from_cause(malformed.into()))?;
                strand.format = trace::Format::new(*to);
                strand.at += 1;
                self.fits(strand.payload.len()).map_err(Failure::from_cause)?;
            }
            Step::Branch { condition, on_false } => {
                self.read_fields(strand)
                    .map_err(|malformed| Failure::from_cause(malformed.into()))?;
                let given = &self.runs[strand.run].input.fields;
                let holds = strand.fields.hold(condition, &program.fields, given);
                strand.at = if holds { strand.at + 1 } else { *on_false };
            }
            Step::Jump(to) => strand.at = *to,
            Step::Fork { arms, join } => self.fork(strand, arms, *join),
            Step::Arrive { is_first } => return Ok(self.arrive(strand, *is_first)),
            Step::Notify => {
                self.ended(strand, core.now());
                return Ok(Flow::Over);
            }
            Step::Tail(program) => {
                (strand.program, strand.at) = (*program, 0);
                // The other trace may read other fields of the same payload.
                strand.fields.values = None;
            }
            Step::Await { program, within } => {
                if strand.early.is_some() {
                    return Ok(Flow::Resume(*program));
                }
                let since = core.now();
                let within = within.unwrap_or(self.limits.answer_within);
                let until = Nanos(since.0.saturating_add(within.0));
                return Ok(Flow::Park(State::Awaiting { program: *program, since, until }));
            }
        }
        Ok(Flow::On)
    }

    fn run(
        &mut self,
        core: &mut Runtime,
        strand: &mut Strand,
        (op, due, is_first): (Op, Option<Nanos>, bool),
    ) -> Result<Flow, Cause> {
        if let Some(job) = self.function_job(core, strand, op) {
            return self.submit_made(core, strand, job, due);
        }
        let payload = match op {
            Op::Compress | Op::Decompress | Op::Encrypt | Op::Decrypt | Op::Checksum | Op::Copy => {
                return self.submit(core, strand, (op, due, is_first));
            }
            Op::Serialize | Op::Deserialize | Op::Rpc => self.kernel(strand, op)?,
            Op::Tcp if is_first => {
                let live = &self.runs[strand.run];
                let message = strand.payload.clone();
                let payload = self.tcp.receive(&origin(strand, live), message)?;
                self.spend(PORT_BYTES);
                payload
            }
            Op::Tcp => {
                self.send(strand)?;
                strand.payload.clone()
            }
            Op::LoadBalance => {
                let live = &self.runs[strand.run];
                let picked = self.load_balance.pick(&origin(strand, live), &strand.payload)?;
                self.runs[strand.run].core = Some(picked);
                self.spend(PORT_BYTES);
                strand.payload.clone()
            }
            // The checks allow this op only at the ends of paths.
            Op::Notify => strand.payload.clone(),
        };
        self.fits(payload.len())?;
        let ran = if matches!(op, Op::Tcp | Op::LoadBalance) { Ran::Port } else { Ran::Kernel };
        self.done(core, strand, payload, (due, ran))?;
        Ok(Flow::On)
    }

    fn kernel(&mut self, strand: &Strand, op: Op) -> Result<Bytes, Cause> {
        self.spend(strand.payload.len());
        let (schema, payload) = (self.schema.as_ref(), &strand.payload);
        Ok(match op {
            Op::Serialize => kernels::serialize(schema, payload, layout(strand.format))?,
            Op::Deserialize => kernels::deserialize(schema, payload)?,
            _ if is_received(strand.format) => {
                let call = kernels::called(payload)?;
                self.runs[strand.run].function = Some(call.function);
                call.arguments
            }
            _ => kernels::call(&self.runs[strand.run].input.function, payload.clone()),
        })
    }

    fn send(&mut self, strand: &mut Strand) -> Result<(), Cause> {
        self.spend(PORT_BYTES);
        self.read_fields(strand)?;
        let live = &self.runs[strand.run];
        let program = strand.program();
        let given = &live.input.fields;
        let mut holds = |condition: &_| strand.fields.hold(condition, &program.fields, given);
        let awaits = program.awaits(strand.at + 1, &mut holds);
        strand.early = None;
        let answer = awaits.then(|| Answer::new(&self.inbox, strand.key));
        self.tcp.send(&origin(strand, live), strand.payload.clone(), answer)?;
        Ok(())
    }

    fn submit(
        &mut self,
        core: &mut Runtime,
        strand: &mut Strand,
        (op, due, _): (Op, Option<Nanos>, bool),
    ) -> Result<Flow, Cause> {
        let live = &self.runs[strand.run];
        let session = live.input.session.as_deref();
        let made = self.maker.make(op, &strand.payload, session)?;
        let job = match made.expect("ops that are no jobs are kernels or ports") {
            Made::Job(job) => job,
            Made::Stream(job, frame) => {
                strand.frame = Some(frame);
                job
            }
            Made::Payload(payload) => {
                self.spend(payload.len());
                self.done(core, strand, payload, (due, Ran::Kernel))?;
                return Ok(Flow::On);
            }
        };
        self.submit_made(core, strand, job, due)
    }

    /// Submits the op's job, or stores it in the overflow area.
    fn submit_made(
        &mut self,
        core: &mut Runtime,
        strand: &mut Strand,
        mut job: Box<Job>,
        due: Option<Nanos>,
    ) -> Result<Flow, Cause> {
        let live = &self.runs[strand.run];
        job.tag = strand.key;
        job.tenant = live.input.tenant;
        job.class = live.input.class;
        job.deadline = deadline(live.started, due, live.input.deadline);
        job.chain = self.chain(core, strand, &job);
        let live = &self.runs[strand.run];
        // Only later steps wait in the overflow area. For the first step the core that begins the trace tries once. For
        // later steps there is no caller that could try again.
        if live.steps > 0 && self.limits.overflow_max > 0 && core.is_saturated(&job) {
            if self.overflow.len() < self.limits.overflow_max {
                self.metrics.up(Counted::Overflowed);
                return Ok(Flow::Park(State::Overflowed(job)));
            }
            self.metrics.up(Counted::OverflowFull);
        }
        self.submit_job(core, strand, job)
    }

    /// Submits the job to the runtime. If the job is done at once, its result is used at once.
    fn submit_job(
        &mut self,
        core: &mut Runtime,
        strand: &mut Strand,
        job: Box<Job>,
    ) -> Result<Flow, Cause> {
        let work_bytes = job.work_bytes();
        let placed = if job.chain.is_some() { core.submit_chain(job) } else { Err(job) };
        let ticket = placed.unwrap_or_else(|mut alone| {
            alone.chain = None;
            core.submit(alone)
        });
        let Some(finished) = core.take(ticket) else {
            core.assign_to_hook(ticket);
            return Ok(Flow::Park(State::InFlight(ticket)));
        };
        self.spend(work_bytes);
        self.use_result(core, strand, finished)?;
        Ok(Flow::On)
    }

    /// Submits a job that waited and for which there is space now.
    pub(super) fn submit_overflowed(
        &mut self,
        core: &mut Runtime,
        mut strand: Box<Strand>,
        job: Box<Job>,
    ) {
        let op = job.task.op();
        match self.submit_job(core, &mut strand, job) {
            Ok(Flow::Park(state)) => self.park(strand, state),
            Ok(_) => self.advance(core, strand),
            Err(cause) => self.fail(core, strand, Failure { op: Some(op), cause }),
        }
    }

    /// Uses the result of the strand's job.
    pub(super) fn take_result(
        &mut self,
        core: &mut Runtime,
        strand: &mut Strand,
        finished: Finished,
    ) -> Result<(), Failure> {
        let op = finished.job.task.op();
        self.use_result(core, strand, finished).map_err(|cause| Failure { op: Some(op), cause })
    }

    fn use_result(
        &mut self,
        core: &mut Runtime,
        strand: &mut Strand,
        finished: Finished,
    ) -> Result<(), Cause> {
        let path = finished.path;
        if path.device == 0 && FALLBACKS.contains(&path.reason) {
            self.metrics.up(Counted::Fallback(path.reason));
            self.runs[strand.run].fallbacks += 1;
        }
        let ran = if path.device == 0 { Ran::Software } else { Ran::Device };
        let mut finished = finished;
        self.take_chain(core, strand, &mut finished.job, ran)?;
        let due = strand.due();
        let op = finished.job.task.op();
        let function = matches!(finished.job.task, Task::Function(_)).then_some(op);
        let is_refused = matches!(finished.outcome, Outcome::Failed(DeviceError::InvalidInput(_)));
        let payload = match function {
            // The job's error is short, and the kernel says more.
            Some(op @ (Op::Serialize | Op::Deserialize | Op::Rpc)) if is_refused => {
                let payload = self.kernel(strand, op)?;
                self.fits(payload.len())?;
                Given::Payload(payload)
            }
            _ => given(finished, strand.frame.take())?,
        };
        let payload = match payload {
            Given::Payload(result) if function.is_some() && !is_refused => {
                let payload = self.take_function(strand, op, result)?;
                self.fits(payload.len())?;
                payload
            }
            Given::Payload(payload) => payload,
            Given::Checksum(checksum) => {
                self.runs[strand.run].checksum = Some(checksum);
                strand.payload.clone()
            }
        };
        self.done(core, strand, payload, (due, ran))
    }

    /// Completes the step of an op whose result is `payload`.
    pub(super) fn done(
        &mut self,
        core: &mut Runtime,
        strand: &mut Strand,
        payload: Bytes,
        (due, ran): (Option<Nanos>, Ran),
    ) -> Result<(), Cause> {
        let Step::Run { op, .. } = strand.program().steps[strand.at] else { return Ok(()) };
        let format = strand.format.after(op);
        strand.format = format.map_err(|takes| Malformed::because(takes, strand.format))?;
        strand.payload = payload;
        strand.at += 1;
        if matches!(op, Op::Decrypt | Op::Rpc | Op::Deserialize) {
            strand.fields.unwrapped = Some((strand.payload.clone(), strand.format));
            strand.fields.values = None;
        }
        let live = &mut self.runs[strand.run];
        live.steps += 1;
        self.metrics.up(Counted::Step(op, ran));
        let deadline = deadline(live.started, due, live.input.deadline);
        if deadline.is_some_and(|deadline| core.now() > deadline) {
            self.metrics.up(Counted::Late);
        }
        Ok(())
    }

    /// Reads the fields that the program's branches need, once per payload.
    fn read_fields(&mut self, strand: &mut Strand) -> Result<(), Malformed> {
        if strand.fields.values.is_some() {
            return Ok(());
        }
        let names = &strand.memory.program(strand.program).fields;
        strand.fields.values = Some(match &strand.fields.unwrapped {
            Some((payload, format)) if !names.is_empty() => {
                self.bytes_left = self.bytes_left.saturating_sub(payload.len());
                kernels::read_fields(self.schema.as_ref(), payload, *format, names)?
            }
            _ => vec![None; names.len()],
        });
        Ok(())
    }

    /// Continues the strand as the first arm, and starts a new strand for each other arm.
    fn fork(&mut self, strand: &mut Strand, arms: &[usize], join: Option<usize>) {
        if let Some(at) = join {
            let (run, missing, outer) = (strand.run, arms.len(), strand.join);
            let join = Join { run, missing, at, first: None, outer };
            strand.join = Some(self.joins.insert(join));
        }
        let (first, others) = arms.split_first().expect("a fork has two arms");
        for arm in others {
            let key = self.new_key();
            let other = strand.fork(key, *arm);
            self.runs[strand.run].strands += 1;
            self.park(Box::new(other), State::Ready);
        }
        strand.at = *first;
    }

    fn arrive(&mut self, strand: &mut Strand, is_first: bool) -> Flow {
        let place = strand.join.expect("an arm that arrives is of a fork that joins");
        let join = &mut self.joins[place];
        join.missing -= 1;
        if is_first {
            let payload = std::mem::take(&mut strand.payload);
            let fields = std::mem::take(&mut strand.fields);
            join.first = Some((payload, strand.format, fields));
        }
        if join.missing > 0 {
            return Flow::Over;
        }
        let join = self.joins.remove(place);
        let first: (Bytes, _, Fields) = join.first.expect("every arm has arrived");
        (strand.payload, strand.format, strand.fields) = first;
        (strand.at, strand.join) = (join.at, join.outer);
        Flow::On
    }

    fn spend(&mut self, bytes: usize) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes.max(1));
    }
}

impl Failure {
    fn from_cause(cause: Cause) -> Self {
        Self { op: None, cause }
    }
}

/// Returns the earlier of the step's deadline and the deadline of the whole trace.
fn deadline(started: Nanos, due: Option<Nanos>, all: Option<Nanos>) -> Option<Nanos> {
    let due = due.map(|due| Nanos(started.0.saturating_add(due.0)));
    due.into_iter().chain(all).min()
}

/// A call of a port counts as much as the work on this many bytes.
const PORT_BYTES: usize = 512;
