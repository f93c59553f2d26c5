//! Peers that break every rule, for both ends of a lane. They send valid greetings, because any other greeting is
//! refused at once. After that they may write any word of their half at any time, as `draw` decides. The attacked end
//! must not panic and must not hold more than a lane may. Each of its own jobs must complete once. A test draws at
//! random, and the fuzz target `lane` draws from its input.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;

use api::prost::Message;
use api::v1;
use api::v1::follow::Op as FollowOp;
use bytes::Bytes;
use device::{
    AssociatedData, Buffer, Chain, Codec, Completion, Device, Dialect, Follow, Input, Job, Key,
    KeyName, Level, Next, Nonce, Outcome, Pool, TAG_BYTES, Task, Waiting,
};
use drivers::lane::{
    LaneServer, NoResult, Pause, Request, RequestForm, Results, ServedLane, Taken,
};
use drivers::{Lane, LaneOptions};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use units::{ByteCount, Nanos, Op};

/// The offsets of the words in the layout that `drivers::lane` describes.
pub(crate) const TAIL: u64 = 0;
pub(crate) const HEAD: u64 = 64;
pub(crate) const ASLEEP: u64 = 128;
pub(crate) const CPU: u64 = 192;
pub(crate) const RING: u64 = 4_096;
pub(crate) const ENTRIES: u64 = 256;
const HALF_BYTES: u64 = 20_480;
const REGION_BYTES: u64 = 256 << 10;

const GREETING: &[u8; 16] = b"REBALANE\x05\0\0\0\0\0\0\0";

/// A half that its owner writes as it likes, and its region.
pub(crate) struct Half(File, File);

impl Half {
    pub(crate) fn new() -> Self {
        Self::with_padding(REGION_BYTES)
    }

    pub(crate) fn with_padding(region_bytes: u64) -> Self {
        let [half, region] = [HALF_BYTES, region_bytes].map(|bytes| {
            let file = memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
            let file = file.expect("a memfd");
            ftruncate(&file, bytes).expect("room");
            fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
            File::from(file)
        });
        Self(half, region)
    }

    pub(crate) fn set(&self, at: u64, word: u64) {
        self.0.write_all_at(&word.to_ne_bytes(), at).expect("within the half");
    }

    pub(crate) fn greet(&self, socket: &UnixStream) {
        self.greet_for(socket, 64 << 10);
    }

    /// Sends a greeting with this limit on the size of a job's input, or of the result of a decompression (bytes).
    pub(crate) fn greet_for(&self, socket: &UnixStream, work_bytes_max: u64) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [self.0.as_fd(), self.1.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let limit = work_bytes_max.to_ne_bytes();
        let parts = [IoSlice::new(GREETING), IoSlice::new(&limit)];
        let sent = sendmsg(socket, &parts, &mut control, SendFlags::empty());
        assert_eq!(sent, Ok(24));
    }
}

/// Receives a greeting and returns the half that comes with it.
pub(crate) fn greeting(socket: &UnixStream) -> File {
    let mut bytes = [0; 24];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let read =
        recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::empty());
    assert_eq!((read.expect("a greeting").bytes, &bytes[..16]), (24, &GREETING[..]));
    let half = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    File::from(half.expect("a half"))
}

/// Returns a number that is usually near the limit `around`, where mistakes show.
fn number(draw: &mut dyn FnMut() -> u64, around: u64) -> u64 {
    match draw() % 8 {
        0 => draw(),
        1 => u64::MAX - draw() % 4,
        2 => around.wrapping_sub(1 + draw() % 3),
        3 => around + draw() % (2 * ENTRIES),
        _ => around + draw() % 4,
    }
}

/// Runs a client that attacks a service for `steps` steps.
pub(crate) fn attack_service(draw: &mut dyn FnMut() -> u64, steps: usize) {
    let (client, service) = UnixStream::pair().expect("two sockets");
    client.set_nonblocking(true).expect("can be set");
    let half = Half::new();
    half.greet(&client);
    let socket = Arc::new(service);
    let mut serving =
        LaneServer::greet(&socket, ByteCount::mib(1)).expect("a client").expect("has greeted");
    let pool = Pool::heap(ByteCount(0));
    let (mut tail, mut answers) = (0, 0);
    // `unread` has the bytes in the region for each answer that is not read. `head` is the client's claim of answers
    // read, and `read` is the number that the service has accepted.
    let (mut unread, mut head, mut read) = (VecDeque::new(), 0, 0);
    for _ in 0..steps {
        match draw() % 8 {
            0 => {
                // Half of the time, the client claims what an honest client would claim.
                head = if draw().is_multiple_of(2) { answers } else { number(draw, answers) };
                half.set(HEAD, head);
            }
            1 => half.set(ASLEEP, number(draw, 0)),
            2 => half.set(CPU, number(draw, 0)),
            3 => drop((&client).write(&[b'!'; 3_000][..(draw() % 3_000) as usize])),
            4 if draw().is_multiple_of(16) => half.set(TAIL, number(draw, tail)),
            _ => {
                write_job(&half, tail, draw);
                tail += 1;
                half.set(TAIL, tail);
            }
        }
        if draw().is_multiple_of(4) {
            continue;
        }
        loop {
            match serving.take() {
                Ok(Taken::Nothing) => break,
                Ok(Taken::Refused) => unread.push_back(0),
                Ok(Taken::Job(request)) => unread.push_back(answer(&mut serving, &pool, request)),
                Err(_) => return,
            }
            answers += 1;
            assert!(serving.in_flight() <= ENTRIES as usize);
        }
        // The loop did not end with an error, so the client's claim is allowed.
        unread.drain(..(head - read) as usize);
        read = head;
        assert_eq!(serving.held().0, unread.iter().sum::<u64>(), "results that nobody will read");
        serving.publish();
        while serving.pause() == Pause::Poll && !draw().is_multiple_of(4) {}
        if !serving.read_doorbells() {
            return;
        }
    }
}

/// Answers a job. Returns how many bytes of the lane's memory its result uses.
fn answer(serving: &mut LaneServer, pool: &Pool, request: Request) -> u64 {
    let bytes = request.output_bytes.min(1 << 20);
    let mut input = pool.take(request.input_bytes.min(1 << 20));
    let output = serving.output(bytes);
    let Some(mut output) = output.filter(|_| serving.copy_input(&request, &mut input)) else {
        serving.fail(request.ticket, NoResult::Busy, Nanos(1));
        return 0;
    };
    output.set_len(bytes);
    let mut held_bytes = output.capacity() as u64;
    // Some messages have two results.
    let is_chain = matches!(&request.form, RequestForm::Message(message) if message.len() > 64);
    let first = if is_chain { serving.output(7) } else { None };
    let first = first.map(|mut first| {
        held_bytes += first.capacity() as u64;
        first.set_len(7);
        (first.freeze(0..7), Nanos(1))
    });
    let results = Results { first, output, part: 0..bytes, follow_key_unknown: false };
    assert!(serving.finish(request.ticket, results, Nanos(1)), "it was at home");
    held_bytes
}

/// Writes a valid job, an almost valid job, or no job.
pub(crate) fn write_job(half: &Half, tail: u64, draw: &mut dyn FnMut() -> u64) {
    let at = RING + tail % ENTRIES * 64;
    let what = (1 + draw() % 2) | ((1 + draw() % 3) << 8) | (0xFF << 16);
    let sizes = (draw() % 3_000) | ((draw() % 9_000) << 32);
    let mut words = [tail, what, draw() % (REGION_BYTES + 64), sizes, draw() % 3, 0, 0, 0];
    if draw().is_multiple_of(3) {
        let message = [draw() % (REGION_BYTES + 64), draw() % 2_100];
        (words[1], words[5], words[6]) = (3, message[0], message[1]);
    }
    if draw().is_multiple_of(4) {
        words[(draw() % 8) as usize] = draw();
    }
    for (number, word) in (0..).zip(words) {
        half.set(at + number * 8, word);
    }
}

/// Runs a service at `path` that attacks a client for `steps` steps.
pub(crate) fn attack_client(path: &Path, draw: &mut dyn FnMut() -> u64, steps: usize) {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).expect("a free path");
    let waiting = Waiting::Polled { expected: Nanos(0) };
    let options = LaneOptions {
        waiting,
        work_bytes_max: ByteCount::kib(64),
        queue_depth: 1 + (draw() % ENTRIES) as usize,
        ciphers: true,
        ..LaneOptions::default()
    };
    let lane = Lane::new(path, &options);
    let mut queue = lane.open_queue(Waker::noop().clone()).expect("opens");
    let (service, _) = listener.accept().expect("the queue connects");
    service.set_nonblocking(true).expect("can be set");
    let theirs = greeting(&service);
    let half = Half::new();
    half.greet(&service);
    let pool = Pool::heap(ByteCount(0));
    let (mut tag, mut tail, mut submitted) = (0, 0, 0_u64);
    let mut in_flight = HashSet::new();
    for _ in 0..steps {
        match draw() % 8 {
            0 => half.set(HEAD, number(draw, submitted)),
            1 => half.set(ASLEEP, number(draw, 0)),
            2 => drop((&service).write(&[b'!'; 64])),
            3 if draw().is_multiple_of(32) => half.set(TAIL, number(draw, tail)),
            3 => queue.cancel(draw() % (tag + 1)),
            4 | 5 if submitted > tail => {
                write_answer(&half, &theirs, tail, submitted, draw);
                tail += 1;
                half.set(TAIL, tail);
            }
            _ => {
                tag += 1;
                if queue.try_submit(job(tag, &pool, draw)).is_ok() {
                    in_flight.insert(tag);
                    submitted += 1;
                }
            }
        }
        let mut done = Vec::new();
        queue.poll(&mut done);
        done.iter().for_each(|completion| account(&mut in_flight, completion));
        assert_eq!(queue.pending(), in_flight.len());
    }
    drop((service, listener));
    let mut done = Vec::new();
    for _ in 0..10_000 {
        queue.poll(&mut done);
    }
    done.iter().for_each(|completion| account(&mut in_flight, completion));
    assert!(in_flight.is_empty(), "{} jobs never came back", in_flight.len());
    drop((queue, done));
    assert_eq!(pool.outstanding(), ByteCount(0));
}

fn job(tag: u64, pool: &Pool, draw: &mut dyn FnMut() -> u64) -> Box<Job> {
    let dialect = Dialect::new(Codec::Deflate);
    let bytes = 1 + (draw() % 2_000) as usize;
    let input = Input::heap(Bytes::from(vec![7; bytes]));
    let compress = Task::Compress { dialect, level: Level::Fast };
    let task = match draw() % 4 {
        0 | 1 => compress,
        2 => Task::Decompress { dialect, original_bytes: (draw() % 5_000) as usize },
        _ => sealing(),
    };
    let mut job = Job::new(task, input, pool.take(5_000 + 24));
    (job.tag, job.output_offset) = (tag, (draw() % 25) as usize);
    if matches!(job.task, Task::Compress { .. }) && draw().is_multiple_of(2) {
        job.chain = Some(Chain::new(&job, vec![Arc::new(Sealed(pool.clone()))]));
    }
    Box::new(job)
}

/// Encrypts the result in front of it.
struct Sealed(Pool);

impl Follow for Sealed {
    fn op(&self) -> Op {
        Op::Encrypt
    }

    fn work_bytes(&self) -> usize {
        1_000
    }

    fn prepare(&self, output: &mut Buffer, offset: usize) -> Option<Next> {
        let input = offset..output.len();
        let output = self.0.take(input.len() + TAG_BYTES);
        Some(Next {
            task: sealing(),
            input: input.into(),
            output,
            output_offset: 0,
            dictionary: None,
        })
    }

    fn message(&self) -> Option<Vec<u8>> {
        let op = FollowOp::SealStream(v1::SealStream::default());
        Some(v1::Follow { op: Some(op) }.encode_to_vec())
    }
}

fn sealing() -> Task {
    let name = KeyName { id: 1, check: [1; 8] };
    let (key, nonce) = (Key::new(&[1; 32]).with_name(name), Nonce([1; 12]));
    Task::Encrypt { key, nonce, associated: AssociatedData::NONE }
}

fn account(in_flight: &mut HashSet<u64>, completion: &Completion) {
    assert!(in_flight.remove(&completion.job.tag), "a job came back twice");
    if let Outcome::Done { output_bytes } = completion.outcome {
        let job = &completion.job;
        assert_eq!(job.output.len(), job.output_offset + output_bytes);
        let exact = job.task.output_bytes(job.input.len());
        assert!(exact.is_none_or(|exact| exact == output_bytes), "{completion:?}");
    }
}

/// Writes a valid answer, an almost valid answer, or no answer.
fn write_answer(
    half: &Half,
    theirs: &File,
    tail: u64,
    submitted: u64,
    draw: &mut dyn FnMut() -> u64,
) {
    let asked = tail.max(submitted.saturating_sub(1 + draw() % 4)) % ENTRIES;
    let mut entry = [0; 32];
    theirs.read_exact_at(&mut entry, RING + asked * 64).expect("a ring");
    let word = |at: usize| u64::from_ne_bytes(entry[at..at + 8].try_into().expect("eight"));
    let output_bytes = word(24) >> 32;
    let offset = draw() % (REGION_BYTES + 64);
    let mut words = [word(0), 1 + draw() % 7, offset, output_bytes, draw(), 0, 0, 0];
    if draw().is_multiple_of(2) {
        let first_bytes = 1 + draw() % 3_000;
        (words[3], words[5]) = (first_bytes + TAG_BYTES as u64, draw() % (REGION_BYTES + 64));
        (words[6], words[7]) = (first_bytes, draw());
    }
    if draw().is_multiple_of(16) {
        words[(draw() % 8) as usize] = draw();
    }
    for (number, word) in (0..).zip(words) {
        half.set(RING + tail % ENTRIES * 64 + number * 8, word);
    }
}
