//! The executor of traces: which traces it admits, where it stores strands between two turns, how paths end, and who is
//! notified. `advance.rs` contains the steps of a strand. The engine starts nothing by itself: the runtime's turns call
//! it.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use prost::bytes::Bytes;
use slab::Slab;
use trace::{Catalog, Format};
use units::{Nanos, Op};

use super::config::{TraceConfig, TraceLimits};
use super::error::{Cause, TraceError};
use super::input::{Ended, TraceInput};
use super::jobs::Maker;
use super::kernels::Schema;
use super::live::{Fields, Join, Live, Reported, State, Strand};
use super::memory::Memory;
use super::metrics::{Counted, TraceMetrics};
use super::ports::{Event, Inbox, LoadBalance, Notify, Origin, Received, Tcp};
use crate::core::Runtime;
use crate::core::completion_hook::CompletionHook;
use crate::entry::Finished;

/// All traces in flight on one runtime.
pub(crate) struct Engine {
    memory: Rc<Memory>,
    pub(super) limits: TraceLimits,
    pub(super) tcp: Box<dyn Tcp>,
    pub(super) load_balance: Box<dyn LoadBalance>,
    notify: Box<dyn Notify>,
    pub(super) schema: Arc<dyn Schema>,
    pub(super) maker: Maker,
    pub(super) inbox: Rc<Inbox>,
    pub(super) runs: Slab<Live>,
    /// The strands with their serial numbers. An entry holds no strand while the strand advances.
    strands: Slab<(u32, Option<Box<Strand>>)>,
    pub(super) joins: Slab<Join>,
    /// The last serial number. It distinguishes the runs and strands that reuse an entry.
    serial: u32,
    ready: VecDeque<u64>,
    pub(super) overflow: VecDeque<u64>,
    /// Whether the last call stopped before it had checked all of the overflow.
    is_cut_off: bool,
    /// The time limits of the strands that wait for an answer, one per strand.
    timers: BTreeSet<(Nanos, u64)>,
    /// The bytes of work that the current call may still do on the calling core.
    pub(super) bytes_left: usize,
    pub(super) metrics: Arc<TraceMetrics>,
}

/// The reason why a strand does not continue.
pub(super) struct Failure {
    pub(super) op: Option<Op>,
    pub(super) cause: Cause,
}

impl Engine {
    pub(crate) fn new(config: TraceConfig, inbox: Rc<Inbox>) -> Self {
        let maker = Maker {
            dialect: config.dialect,
            level: config.level,
            pool: config.pool,
            payload_bytes_max: config.limits.payload_bytes_max,
        };
        Self {
            memory: Rc::new(Memory::new(config.catalog)),
            limits: config.limits,
            tcp: config.tcp,
            load_balance: config.load_balance,
            notify: config.notify,
            schema: config.schema,
            maker,
            inbox,
            runs: Slab::new(),
            strands: Slab::new(),
            joins: Slab::new(),
            serial: 0,
            ready: VecDeque::new(),
            overflow: VecDeque::new(),
            is_cut_off: false,
            timers: BTreeSet::new(),
            bytes_left: 0,
            metrics: Arc::default(),
        }
    }

    /// Returns the number of traces in flight or with a result that the caller has not read yet.
    pub(crate) fn live(&self) -> usize {
        self.runs.len()
    }

    /// Sets the traces for runs that start later.
    pub(crate) fn set_catalog(&mut self, catalog: Catalog) {
        self.memory = Rc::new(Memory::new(catalog));
    }

    /// Starts a trace and runs it as far as possible now. Returns the key of its run.
    pub(crate) fn start(
        &mut self,
        core: &mut Runtime,
        name: &str,
        input: TraceInput,
    ) -> Result<u64, Box<TraceError>> {
        let place = match self.admit(name, &input) {
            Ok(place) => place,
            Err(cause) => {
                self.metrics.up(Counted::Refused(cause.kind()));
                let trace = name.to_owned();
                return Err(Box::new(TraceError { input, trace, op: None, cause }));
            }
        };
        self.metrics.up(Counted::Started);
        self.metrics.enter(input.tenant);
        let serial = self.next_serial();
        let payload = input.payload.clone();
        let run = self.runs.insert(Live::new(serial, input, core.now()));
        let memory = Rc::clone(&self.memory);
        let format = memory.program(place).takes;
        let key = self.new_key();
        let strand = Strand::new(key, run, (memory, place), (payload, format));
        self.bytes_left = WORK_BYTES_PER_TURN;
        self.advance(core, Box::new(strand));
        self.serve_ready(core);
        Ok(key_of(run, serial))
    }

    fn admit(&self, name: &str, input: &TraceInput) -> Result<usize, Cause> {
        let place = self.memory.find(name).ok_or(Cause::Unknown)?;
        self.fits(input.payload.len())?;
        let limits = &self.limits;
        if self.runs.len() >= limits.live_max {
            return Err(Cause::Full { max: limits.live_max });
        }
        if self.metrics.live_of(input.tenant) >= limits.tenant_live_max {
            return Err(Cause::TenantFull { max: limits.tenant_live_max });
        }
        Ok(place)
    }

    pub(super) fn fits(&self, bytes: usize) -> Result<(), Cause> {
        let max = self.limits.payload_bytes_max;
        if bytes <= max { Ok(()) } else { Err(Cause::TooLarge { bytes, max }) }
    }

    /// Returns the result of the run once, or stores the waker if there is no result yet.
    pub(crate) fn claim(
        &mut self,
        key: u64,
        waker: &Waker,
    ) -> Poll<Result<Ended, Box<TraceError>>> {
        let run = place_of(key);
        let live = self.runs.get_mut(run).filter(|live| live.serial == serial_of(key));
        let live = live.expect("a run stays until its caller has looked");
        let reported = live.reported.take(waker);
        if reported.is_ready() && live.strands == 0 {
            self.runs.remove(run);
        }
        reported
    }

    fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }

    /// Reserves an entry for a strand and returns its key.
    pub(super) fn new_key(&mut self) -> u64 {
        let serial = self.next_serial();
        key_of(self.strands.insert((serial, None)), serial)
    }

    pub(super) fn park(&mut self, mut strand: Box<Strand>, state: State) {
        match &state {
            State::Ready => self.ready.push_back(strand.key),
            State::Overflowed(_) => self.overflow.push_back(strand.key),
            State::Awaiting { until, .. } => drop(self.timers.insert((*until, strand.key))),
            State::InFlight(_) => {}
        }
        strand.state = state;
        let key = strand.key;
        self.strands[place_of(key)].1 = Some(strand);
    }

    /// Returns the strand of this key, if it exists and is not advancing.
    fn unpark(&mut self, key: u64) -> Option<Box<Strand>> {
        let (serial, strand) = self.strands.get_mut(place_of(key))?;
        let strand = if *serial == serial_of(key) { strand.take() } else { None };
        if let Some(State::Awaiting { until, .. }) = strand.as_ref().map(|strand| &strand.state) {
            self.timers.remove(&(*until, key));
        }
        strand
    }

    /// Ends a path and reports the result to its caller and to the port.
    pub(super) fn ended(&mut self, strand: &Strand, now: Nanos) {
        let live = &mut self.runs[strand.run];
        let ended = live.end(strand.payload.clone(), strand.format, now);
        let origin = origin(strand, live);
        self.notify.ended(&origin, &ended);
        if live.reported.tell(Ok(ended)) {
            self.metrics.up(Counted::Reported);
        }
    }

    /// Removes a strand that has ended, and ends its run if this was the last strand.
    pub(super) fn close(&mut self, strand: &Strand) {
        self.strands.remove(place_of(strand.key));
        let live = &mut self.runs[strand.run];
        live.strands -= 1;
        if live.strands == 0 {
            self.end_run(strand.run);
        }
    }

    fn end_run(&mut self, run: usize) {
        let live = &self.runs[run];
        let tenant = live.input.tenant;
        if matches!(live.reported, Reported::Done) {
            self.runs.remove(run);
        }
        // Failed arms never arrive at their join, so the joins of the run are removed.
        if !self.joins.is_empty() {
            self.joins.retain(|_, join| join.run != run);
        }
        self.metrics.leave(tenant);
    }

    /// Fails the path. If the caller has received no result yet, it gets its input back and the whole run ends, because
    /// the caller then does all of the work itself.
    pub(super) fn fail(&mut self, core: &mut Runtime, strand: Box<Strand>, failure: Failure) {
        let live = &mut self.runs[strand.run];
        if live.reported.is_nothing() {
            self.metrics.up(Counted::Failed(failure.cause.kind()));
            let input = std::mem::replace(&mut live.input, TraceInput::new(Bytes::new()));
            // The tenant stays, because its traces are counted down when the run ends.
            live.input.tenant = input.tenant;
            let trace = strand.program().name.clone();
            let Failure { op, cause } = failure;
            live.reported.tell(Err(Box::new(TraceError { input, trace, op, cause })));
            self.stop_others(core, strand.run, strand.key);
        } else {
            self.metrics.up(Counted::FailedLater);
        }
        self.close(&strand);
    }

    /// Ends all strands of the run except this one.
    fn stop_others(&mut self, core: &mut Runtime, run: usize, but: u64) {
        if self.runs[run].strands == 1 && but != NO_KEY {
            return;
        }
        let others = self.strands.iter().filter_map(|(_, (_, strand))| strand.as_deref());
        let others = others.filter(|strand| strand.run == run && strand.key != but);
        let keys: Vec<u64> = others.map(|strand| strand.key).collect();
        for key in keys {
            let Some(strand) = self.unpark(key) else { continue };
            match strand.state {
                State::InFlight(ticket) => core.detach(ticket),
                State::Overflowed(_) => self.overflow.retain(|other| *other != key),
                State::Ready | State::Awaiting { .. } => {}
            }
            self.close(&strand);
        }
    }

    /// Cancels the run. If its caller already has a result, the remaining paths continue.
    fn give_up(&mut self, core: &mut Runtime, key: u64) {
        let run = place_of(key);
        let live = self.runs.get_mut(run).filter(|live| live.serial == serial_of(key));
        let Some(live) = live else { return };
        let knew = !live.reported.is_nothing();
        live.reported = Reported::Done;
        if live.strands == 0 {
            self.runs.remove(run);
        } else if !knew {
            self.metrics.up(Counted::GivenUp);
            self.stop_others(core, run, NO_KEY);
        }
    }

    fn serve_inbox(&mut self, core: &mut Runtime) {
        while let Some(event) = self.inbox.take() {
            match event {
                Event::GivenUp(key) => self.give_up(core, key),
                Event::Answer(key, received) => self.answered(core, key, received),
            }
        }
    }

    fn answered(&mut self, core: &mut Runtime, key: u64, received: Option<Received>) {
        let Some(mut strand) = self.unpark(key) else { return };
        if let State::Awaiting { program, .. } = strand.state {
            self.resume(core, strand, program, received);
        } else {
            strand.early = Some(received);
            self.strands[place_of(key)].1 = Some(strand);
        }
    }

    /// Continues the program with the answer.
    pub(super) fn resume(
        &mut self,
        core: &mut Runtime,
        mut strand: Box<Strand>,
        program: usize,
        received: Option<Received>,
    ) {
        let received = received.ok_or(Cause::PeerGone);
        let received = received.and_then(|one| self.fits(one.payload.len()).map(|()| one));
        match received {
            Ok(Received { payload, fields }) => {
                strand.program = program;
                strand.at = 0;
                strand.format = strand.program().takes;
                strand.payload = payload;
                strand.fields = Fields { received: fields, ..Fields::default() };
                self.advance(core, strand);
            }
            Err(cause) => self.fail(core, strand, Failure { op: Some(Op::Tcp), cause }),
        }
    }

    fn serve_finished(&mut self, core: &mut Runtime) {
        while self.bytes_left > 0
            && let Some(finished) = core.next_hooked()
        {
            // A strand that was stopped has detached its job.
            if let Some(strand) = self.unpark(finished.job.tag) {
                self.finished(core, strand, finished);
            }
        }
    }

    fn finished(&mut self, core: &mut Runtime, mut strand: Box<Strand>, finished: Finished) {
        match self.take_result(core, &mut strand, finished) {
            Ok(()) => self.advance(core, strand),
            Err(failure) => self.fail(core, strand, failure),
        }
    }

    fn serve_ready(&mut self, core: &mut Runtime) {
        while self.bytes_left > 0
            && let Some(key) = self.ready.pop_front()
        {
            if let Some(strand) = self.unpark(key) {
                self.advance(core, strand);
            }
        }
    }

    /// Submits the waiting jobs for which there is space now, the longest waiting first.
    fn serve_overflow(&mut self, core: &mut Runtime) {
        self.is_cut_off = false;
        for _ in 0..self.overflow.len() {
            if self.bytes_left == 0 {
                self.is_cut_off = true;
                return;
            }
            let Some(key) = self.overflow.pop_front() else { return };
            let Some(mut strand) = self.unpark(key) else { continue };
            let State::Overflowed(job) = std::mem::replace(&mut strand.state, State::Ready) else {
                continue;
            };
            // The devices that accept a job depend on its task and size, so each job is checked.
            if core.is_saturated(&job) {
                self.park(strand, State::Overflowed(job));
                continue;
            }
            self.submit_overflowed(core, strand, job);
        }
    }

    fn serve_timers(&mut self, core: &mut Runtime) {
        let now = core.now();
        while let Some((until, key)) = self.timers.first().copied()
            && until <= now
        {
            self.timers.pop_first();
            let Some(strand) = self.unpark(key) else { continue };
            let State::Awaiting { since, .. } = strand.state else { continue };
            self.metrics.up(Counted::Unanswered);
            let cause = Cause::NoAnswer(until.since(since));
            self.fail(core, strand, Failure { op: Some(Op::Tcp), cause });
        }
    }
}

impl CompletionHook for Engine {
    fn due(&self) -> Option<Nanos> {
        if !self.ready.is_empty() || !self.inbox.is_empty() || self.is_cut_off {
            return Some(Nanos(0));
        }
        self.timers.first().map(|(until, _)| *until)
    }

    fn on_completions(&mut self, core: &mut Runtime) {
        self.bytes_left = WORK_BYTES_PER_TURN;
        self.serve_inbox(core);
        self.serve_finished(core);
        self.serve_ready(core);
        self.serve_overflow(core);
        self.serve_timers(core);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The messages that ports and callers may still send are not read any more.
        self.inbox.close();
    }
}

impl Live {
    fn new(serial: u32, input: TraceInput, started: Nanos) -> Self {
        Self {
            serial,
            input,
            started,
            strands: 1,
            reported: Reported::Nothing(None),
            function: None,
            core: None,
            checksum: None,
            steps: 0,
            fallbacks: 0,
        }
    }

    fn end(&self, payload: Bytes, format: Format, now: Nanos) -> Ended {
        Ended {
            payload,
            format,
            function: self.function.as_ref().unwrap_or(&self.input.function).clone(),
            core: self.core,
            checksum: self.checksum,
            steps: self.steps,
            fallbacks: self.fallbacks,
            total: now.since(self.started),
        }
    }
}

impl Strand {
    fn new(
        key: u64,
        run: usize,
        (memory, program): (Rc<Memory>, usize),
        (payload, format): (Bytes, Format),
    ) -> Self {
        Self {
            key,
            run,
            memory,
            program,
            at: 0,
            payload,
            format,
            fields: Fields::default(),
            join: None,
            follows: Vec::new(),
            frame: None,
            early: None,
            state: State::Ready,
        }
    }
}

/// Returns the origin of a strand's payload (trace, tenant, connection), for a port.
pub(super) fn origin<'a>(strand: &'a Strand, live: &Live) -> Origin<'a> {
    let TraceInput { tenant, connection, .. } = live.input;
    Origin { trace: &strand.program().name, tenant, connection }
}

fn key_of(place: usize, serial: u32) -> u64 {
    let place = u32::try_from(place).expect("limits are far below");
    u64::from(place) | u64::from(serial) << 32
}

fn place_of(key: u64) -> usize {
    (key & u64::from(u32::MAX)) as usize
}

fn serial_of(key: u64) -> u32 {
    (key >> 32) as u32
}

/// A key that no strand has.
const NO_KEY: u64 = u64::MAX;

/// The payload bytes that one call processes on the calling core, in kernels and in software's jobs together. The limit
/// bounds the time that the thread's other tasks wait, like the limit for the jobs that a turn redoes.
const WORK_BYTES_PER_TURN: usize = 256 << 10;
