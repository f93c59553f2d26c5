//! The service's end of one lane. It reads jobs from the client's ring and writes answers to its own ring. Everything
//! that the client wrote is read once, checked, and copied before it is used. A client that breaks the rules of the
//! rings loses its lane. A client that submits an invalid job gets that job refused. The caller decides what a job
//! may cost and what runs it.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use bytes::Bytes;
use device::lane::{
    LaneCounters, NoResult, Pause, Problem, RESULT_AT, Request, RequestForm, Results, ServedLane,
    Taken, Ticket,
};
use device::{Buffer, Pool};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use units::{ByteCount, Nanos};

use super::entry::{Completion, Followed, Submission, Work};
use super::link::fresh;
use super::{MESSAGE_BYTES_MAX, PROTOCOL, inputs_bytes, results_bytes};
use crate::shared::handshake::{self, AWAKE};
use crate::shared::memory::{Blocks, ENTRIES, LocalHalf, PeerHalf, Region, Word};
use crate::shared::poller::Poller;
use crate::shared::socket::{self, Greeting, SocketState, Users};
use crate::shared::{cpu, shares_its_core};

/// Results in the region that the client may read.
struct Unread {
    _output: Buffer,
    _first: Option<Bytes>,
}

/// One client's lane. It belongs to the thread that serves it.
pub struct LaneServer {
    socket: Arc<UnixStream>,
    local: LocalHalf,
    peer: PeerHalf,
    /// The memory of results. `results` is the pool over it.
    region: Arc<Region>,
    results: Pool,
    /// The number of submissions read.
    taken: u64,
    /// The number of answers written. `published` counts those published, and `read` those that the client read.
    written: u64,
    published: u64,
    read: u64,
    /// The number of jobs without an answer.
    in_flight: u64,
    /// The results of answers that the client has not read.
    unread: VecDeque<Option<Unread>>,
    rung: u64,
    sleeps: u64,
    /// The value of `sleeps` when doorbells were last read. Earlier sleeps have no unread doorbell.
    sleeps_read: u64,
    poller: Poller,
    counters: LaneCounters,
}

impl LaneServer {
    /// Answers a client's greeting. Returns none if the greeting has not arrived yet. `work_bytes_max` is the size of
    /// the largest job that this service accepts. The size of a job is the size of its input, or of its result if the
    /// job decompresses. A client whose jobs may be larger is refused. `work_bytes_max` also determines the space for
    /// this lane's results and the largest region that the client may pass. Both limits are per lane. An honest client
    /// passes the same region with all of its lanes. A client that makes a new region for each lane is limited only by
    /// the number of lanes that it gets.
    ///
    /// # Errors
    /// [`Problem`]: the peer cannot be a client of this process.
    pub fn greet(
        socket: &Arc<UnixStream>,
        work_bytes_max: ByteCount,
    ) -> Result<Option<Self>, Problem> {
        Users::current().check(socket).map_err(Problem::Peer)?;
        let greeting = socket::greeting(socket, &PROTOCOL).map_err(Problem::Peer)?;
        let Some(Greeting { passed, bytes_max: asked }) = greeting else { return Ok(None) };
        if asked > work_bytes_max.0 {
            let (asked, both) = (ByteCount(asked), "give both the same store.item_bytes_max");
            return Err(Problem::Peer(format!(
                "its values may have {asked}, and this service takes {work_bytes_max}: {both}"
            )));
        }
        let peer = PeerHalf::map(&passed).map_err(Problem::Peer)?;
        let (bytes, max) = (peer.region_bytes(), inputs_bytes(work_bytes_max));
        if bytes > max {
            let why = "and may have at most: it is for longer values than this service takes";
            return Err(Problem::Peer(format!(
                "its memory has room for {bytes} bytes {why}: {max}"
            )));
        }
        let local = LocalHalf::new().map_err(Problem::Memory)?;
        let region = Region::new(results_bytes(work_bytes_max)).map_err(Problem::Memory)?;
        let greeted =
            socket::greet(socket, &PROTOCOL, local.file(), region.file(), work_bytes_max.0);
        greeted.map_err(|error| Problem::Peer(error.to_string()))?;
        // The pool retains nothing, because any other size may need the space of a returned block.
        let blocks = Blocks::with_padding(&region, RESULT_AT);
        let results = Pool::registered(Arc::new(blocks), ByteCount(0));
        Ok(Some(Self {
            socket: Arc::clone(socket),
            local,
            peer,
            region,
            results,
            taken: 0,
            written: 0,
            published: 0,
            read: 0,
            in_flight: 0,
            unread: VecDeque::new(),
            rung: AWAKE,
            sleeps: 0,
            sleeps_read: 0,
            poller: Poller::default(),
            counters: LaneCounters::default(),
        }))
    }

    /// Reads the doorbells that have arrived. Returns false if the client is gone.
    pub fn read_doorbells(&self) -> bool {
        socket::read_doorbells(self.socket.as_fd()) == SocketState::Open
    }

    /// Waits for a job. It is for a thread that serves only this lane. Returns true when there may be a job
    /// or when `limit` has passed. Returns false when the client is gone.
    pub fn wait(&mut self, limit: Duration) -> bool {
        while self.pause() == Pause::Poll {
            if self.peer.word(Word::Tail) != self.taken {
                return true;
            }
            std::hint::spin_loop();
        }
        let limit = Timespec::try_from(limit).ok();
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, limit.as_ref()) {
            Ok(0) => true,
            _ => self.read_doorbells(),
        }
    }

    /// Returns the number of jobs that were read and not yet answered.
    pub fn in_flight(&self) -> usize {
        self.in_flight as usize
    }

    /// Records the time of a poll that found a job.
    fn note_work(&mut self) {
        self.poller.found();
    }

    fn count_copy(&mut self, bytes: usize) {
        self.counters.copies += 1;
        self.counters.copied_bytes += bytes as u64;
    }

    /// Frees the results that the client has read.
    fn reclaim(&mut self) -> Result<(), Problem> {
        let read = self.peer.word(Word::Head).wrapping_sub(self.read);
        if read > self.published.wrapping_sub(self.read) {
            return Err(Problem::Peer("it claims to have read answers that there are not".into()));
        }
        self.unread.drain(..read as usize);
        self.read = self.read.wrapping_add(read);
        Ok(())
    }

    fn write(&mut self, entry: Completion) {
        self.local.put(self.written, entry.encode());
        self.written = self.written.wrapping_add(1);
        self.in_flight -= 1;
    }

    /// Copies the message of a job. Returns none if it is not within the client's memory.
    fn message(&mut self, offset: u64, bytes: u32) -> Option<Bytes> {
        let bytes = Some(bytes as usize).filter(|bytes| *bytes <= MESSAGE_BYTES_MAX)?;
        let mut message = vec![0; bytes];
        self.peer.copy(offset, &mut message).then(|| message.into())
    }

    /// Returns a result in the local region and its range in its buffer. Copies the result if it is in other memory.
    fn in_lane_memory(
        &mut self,
        output: Buffer,
        part: Range<usize>,
    ) -> Option<(Buffer, Range<usize>)> {
        if self.region.offset_of(&output[part.clone()]).is_some() {
            return Some((output, part));
        }
        let bytes = part.len();
        let mut copy = self.output(bytes)?;
        copy.extend(&output[part]);
        self.count_copy(bytes);
        Some((copy, 0..bytes))
    }

    /// Does the same for the result of a first op.
    fn first_in_lane_memory(&mut self, first: Bytes) -> Option<Bytes> {
        if self.region.offset_of(&first).is_some() {
            return Some(first);
        }
        let mut copy = self.output(first.len())?;
        copy.extend(&first);
        self.count_copy(first.len());
        Some(copy.freeze(0..first.len()))
    }

    /// Returns the position and the size of a result in the local region (bytes).
    fn place(&self, result: &[u8]) -> (u64, u32) {
        let offset = self.region.offset_of(result).expect("the result is in this region");
        (offset, result.len() as u32)
    }
}

impl ServedLane for LaneServer {
    fn take(&mut self) -> Result<Taken, Problem> {
        let fresh = fresh(self.peer.word(Word::Tail), self.taken);
        // This comes after the read of the tail. Before the client published a job, it had read enough answers to
        // have space for the job.
        self.reclaim()?;
        let is_full = self.in_flight + self.unread.len() as u64 >= ENTRIES;
        match fresh {
            Some(0) => return Ok(Taken::Nothing),
            Some(_) if !is_full => {}
            Some(_) => return Err(Problem::Peer("it has more jobs than a lane holds".into())),
            None => return Err(Problem::Peer("it claims jobs that cannot be".into())),
        }
        let words = self.peer.entry(self.taken);
        self.taken = self.taken.wrapping_add(1);
        self.in_flight += 1;
        self.note_work();
        let submission = match Submission::decode(words) {
            Ok(submission) => submission,
            Err(mark) => {
                self.fail(Ticket(mark), NoResult::Refused, Nanos(0));
                return Ok(Taken::Refused);
            }
        };
        let Submission { mark, work, class, tenant, offset, input_bytes, .. } = submission;
        let Submission { output_bytes, time_left, trace, .. } = submission;
        let form = match work {
            Work::Task(task) => Some(RequestForm::Task(task)),
            Work::Message { offset, bytes } => {
                self.message(offset, bytes).map(RequestForm::Message)
            }
        };
        let Some(form) = form else {
            self.fail(Ticket(mark), NoResult::Refused, Nanos(0));
            return Ok(Taken::Refused);
        };
        Ok(Taken::Job(Request {
            form,
            tenant,
            class,
            input_bytes: input_bytes as usize,
            output_bytes: output_bytes as usize,
            time_left,
            trace,
            offset,
            ticket: Ticket(mark),
        }))
    }

    fn copy_input(&mut self, request: &Request, to: &mut Buffer) -> bool {
        let bytes = request.input_bytes;
        let Some(space) = to.space().get_mut(..bytes) else { return false };
        if !self.peer.copy(request.offset, space) {
            return false;
        }
        to.set_len(bytes);
        self.count_copy(bytes);
        true
    }

    fn output(&self, bytes: usize) -> Option<Buffer> {
        self.results.take_registered(bytes)
    }

    fn outputs(&self) -> &Pool {
        &self.results
    }

    fn finish(&mut self, ticket: Ticket, results: Results, service: Nanos) -> bool {
        let Results { first, output, part, follow_key_unknown } = results;
        let first_service = first.as_ref().map(|(_, service)| *service);
        let first = first.and_then(|(first, _)| self.first_in_lane_memory(first));
        let last = self.in_lane_memory(output, part);
        let Some((output, part)) = last.filter(|_| first.is_some() == first_service.is_some())
        else {
            self.fail(ticket, NoResult::Busy, service);
            return false;
        };
        let (offset, output_bytes) = self.place(&output[part]);
        let follow = match (&first, first_service) {
            (Some(first), Some(service)) => {
                let (offset, bytes) = self.place(first);
                Followed::Yes { offset, bytes, service }
            }
            _ if follow_key_unknown => Followed::KeyUnknown,
            _ => Followed::No,
        };
        let (mark, answer) = (ticket.0, Ok(()));
        self.write(Completion { mark, answer, offset, output_bytes, follow, service });
        self.unread.push_back(Some(Unread { _output: output, _first: first }));
        true
    }

    fn fail(&mut self, ticket: Ticket, why: NoResult, service: Nanos) {
        let (mark, answer) = (ticket.0, Err(why));
        self.write(Completion {
            mark,
            answer,
            offset: 0,
            output_bytes: 0,
            follow: Followed::No,
            service,
        });
        self.unread.push_back(None);
    }

    fn publish(&mut self) {
        if self.published == self.written {
            return;
        }
        self.published = self.written;
        self.local.word(Word::Cpu).store(cpu(), Ordering::Relaxed);
        self.local.word(Word::Head).store(self.taken, Ordering::Release);
        let (local, peer, written) = (&self.local, &self.peer, self.written);
        let must_ring = handshake::publish(
            || local.word(Word::Tail).store(written, Ordering::Release),
            || fence(Ordering::SeqCst),
            || peer.word(Word::Asleep),
            &mut self.rung,
        );
        if must_ring {
            self.counters.doorbells += 1;
            socket::ring(self.socket.as_fd());
        }
    }

    fn pause(&mut self) -> Pause {
        let peer = &self.peer;
        if self.poller.goes_on(|| !shares_its_core(peer)) {
            self.local.word(Word::Asleep).store(AWAKE, Ordering::Relaxed);
            return Pause::Poll;
        }
        self.sleeps += 1;
        let (local, peer, taken, sleeps) = (&self.local, &self.peer, self.taken, self.sleeps);
        local.word(Word::Cpu).store(cpu(), Ordering::Relaxed);
        let may_sleep = handshake::fall_asleep(
            || local.word(Word::Asleep).store(sleeps, Ordering::Relaxed),
            || fence(Ordering::SeqCst),
            || peer.word(Word::Tail) != taken,
        );
        if may_sleep { Pause::Sleep } else { Pause::Poll }
    }

    fn drain_doorbells(&mut self, may_be_disconnected: bool) -> bool {
        // There is at most one doorbell per sleep.
        if !may_be_disconnected && self.sleeps - self.sleeps_read < socket::UNREAD_MAX {
            return true;
        }
        self.sleeps_read = self.sleeps;
        self.read_doorbells()
    }

    fn take_counters(&mut self) -> LaneCounters {
        std::mem::take(&mut self.counters)
    }

    fn answers(&self) -> (u64, u64) {
        (self.published, self.read)
    }

    fn held(&self) -> ByteCount {
        ByteCount(self.region.used_bytes() as u64)
    }
}
