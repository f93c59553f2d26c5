//! Tests of the remote device against services in this process. The services are honest, gone or lying.

mod service;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use api::Address;
use api::v1::RunResponse;
use api::v1::run_response::Outcome as Answer;
use bytes::Bytes;
use device::{Device, DeviceError, Job, Outcome, Queue, RefusedReason, Waiting};
use drivers::{Remote, RemoteOptions};
use service::{Manner, Service};
use support::{Signal, TEXT, TIMEOUT, compress, decompress, open, pool, wait};
use tonic::{Code, Status};
use units::{ByteCount, ManualClock, Nanos};

/// Returns options whose timeout is longer than any job here takes, however busy the machine is.
fn patient() -> RemoteOptions {
    let work_bytes_max = ByteCount::mib(16);
    let timeout = Duration::from_secs(600);
    RemoteOptions { work_bytes_max, timeout, connect_timeout: TIMEOUT, ..RemoteOptions::default() }
}

fn remote(address: &Address) -> Remote {
    Remote::new(address.clone(), &patient()).expect("an address")
}

/// Returns a device whose service outlives its test, because other tests of the suite may still use it.
fn served() -> Arc<dyn Device> {
    static SERVICE: std::sync::OnceLock<Service> = std::sync::OnceLock::new();
    Arc::new(remote(&SERVICE.get_or_init(|| Service::start(Manner::Honest)).address))
}

device::device_contract!(contract, served());

fn outcome_of(manner: Manner, job: Box<Job>) -> Outcome {
    let service = Service::start(manner);
    let mut queue = open(&remote(&service.address));
    queue.try_submit(job).expect("room");
    wait(queue.as_mut(), 1).remove(0).outcome
}

fn poll_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_job_says_what_the_service_spent_on_it() {
    let service = Service::start(Manner::Honest);
    let remote = remote(&service.address);
    assert_eq!(remote.name(), format!("remote-{}", service.address));
    assert_eq!(remote.capabilities().waiting, Waiting::Signalled);
    let mut queue = open(&remote);
    assert!(remote.completes_alone(), "a thread of its own serves the connection");
    queue.try_submit(compress(&pool())).expect("room");
    let completion = wait(queue.as_mut(), 1).remove(0);
    assert_eq!(completion.service, Nanos(7));
    let Outcome::Done { output_bytes } = completion.outcome else { panic!("{completion:?}") };
    let stream = completion.job.output.freeze(0..output_bytes);
    queue.try_submit(decompress(&pool(), stream, TEXT.len())).expect("room");
    assert_eq!(&wait(queue.as_mut(), 1).remove(0).job.output[..], TEXT);
}

#[test]
fn on_a_current_thread_executor_everything_happens_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = Address::Unix(folder.path().join("socket"));
    let service = Service::start_at(path, Manner::Honest);
    let remote = remote(&service.address);
    let options = tokio::runtime::LocalOptions::default();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let executor = builder.enable_all().build_local(options).expect("an executor");
    executor.block_on(async {
        let signal = Arc::new(Signal::default());
        let waker = Waker::from(Arc::clone(&signal));
        let mut queue = remote.open_queue(waker).expect("opens");
        assert!(!remote.completes_alone(), "this thread serves the connection");
        for _ in 0..100 {
            queue.try_submit(compress(&pool())).expect("room");
            let mut done = Vec::new();
            while queue.poll(&mut done) == 0 {
                tokio::time::timeout(TIMEOUT, signal.0.notified()).await.expect("is woken");
            }
            assert!(matches!(done[0].outcome, Outcome::Done { .. }), "{done:?}");
        }
        let described = remote.describe().await.expect("an answer");
        assert_eq!(described.work_bytes_max, 7);
    });
}

#[test]
fn a_deadline_bounds_the_services_time() {
    let service = Service::start(Manner::TellTimeout);
    let clock = ManualClock::default();
    clock.advance(Nanos::secs(5));
    let options =
        RemoteOptions { timeout: Duration::from_secs(60), clock: Arc::new(clock), ..patient() };
    let remote = Remote::new(service.address.clone(), &options).expect("an address");
    let mut queue = open(&remote);
    let deadlines = [(None, "60000000u"), (Some(25), "20000000u"), (Some(99), "60000000u")];
    for (deadline_s, expected) in deadlines {
        let deadline = deadline_s.map(Nanos::secs);
        let job = Job { deadline, ..*compress(&pool()) };
        queue.try_submit(Box::new(job)).expect("room");
        let done = wait(queue.as_mut(), 1).remove(0);
        assert_eq!(&done.job.output[..], expected.as_bytes(), "{deadline_s:?}");
    }
}

#[test]
fn each_status_is_someones_to_act_on() {
    let refused_with =
        |code| outcome_of(Manner::Refuse(Status::new(code, "no")), compress(&pool()));
    assert_eq!(refused_with(Code::DeadlineExceeded), Outcome::Failed(DeviceError::Timeout));
    assert_eq!(refused_with(Code::ResourceExhausted), Outcome::Failed(DeviceError::Busy));
    assert_eq!(refused_with(Code::Unavailable), Outcome::Failed(DeviceError::Lost));
    for code in [Code::InvalidArgument, Code::Internal, Code::OutOfRange] {
        let outcome = refused_with(code);
        assert!(matches!(outcome, Outcome::Failed(DeviceError::Fault(_))), "{code:?}: {outcome:?}");
    }
    for code in [Code::Unimplemented, Code::Unauthenticated, Code::PermissionDenied] {
        let outcome = refused_with(code);
        let is_ours = matches!(outcome, Outcome::Failed(DeviceError::Misconfigured(_)));
        assert!(is_ours, "{code:?}: {outcome:?}");
    }
}

#[test]
fn an_impossible_answer_is_a_fault() {
    let say = |outcome: i32, bytes: usize, job: Box<Job>| {
        let payload = Bytes::from(vec![7; bytes]);
        outcome_of(Manner::Say(RunResponse { outcome, payload, ..RunResponse::default() }), job)
    };
    let read = || decompress(&pool(), Bytes::from_static(b"x"), 600);
    let write = || compress(&pool());
    let (done, tight) = (Answer::Done as i32, Answer::DoesNotFit as i32);
    let capacity = compress(&pool()).output.capacity();
    for (outcome, bytes, job) in [
        (done, 599, read()),
        (done, 601, read()),
        (done, 0, read()),
        (done, 64 << 20, read()),
        (done, 0, write()),
        (done, capacity + 1, write()),
        (tight, 0, read()),
        (Answer::InvalidInput as i32, 0, write()),
        (Answer::Fault as i32, 0, write()),
        (Answer::Unspecified as i32, 0, write()),
        (77, 0, read()),
    ] {
        let got = say(outcome, bytes, job);
        let fault = matches!(got, Outcome::Failed(DeviceError::Fault(_)));
        assert!(fault, "{outcome} with {bytes} bytes: {got:?}");
    }
    assert_eq!(say(tight, 0, write()), Outcome::DoesNotFit);
    assert_eq!(say(done, 600, read()), Outcome::Done { output_bytes: 600 });
    let invalid = say(Answer::InvalidInput as i32, 0, read());
    assert!(matches!(invalid, Outcome::Failed(DeviceError::InvalidInput(_))), "{invalid:?}");
}

#[test]
fn the_service_learns_of_a_cancelled_job() {
    let service = Service::start(Manner::Hang);
    let options = RemoteOptions { jobs_per_call: 1, ..patient() };
    let mut queue = open(&Remote::new(service.address.clone(), &options).expect("an address"));
    for tag in 1..=3 {
        let mut job = compress(&pool());
        job.tag = tag;
        queue.try_submit(job).expect("room");
    }
    poll_until("three calls arrive", || {
        queue.poll(&mut Vec::new());
        service.in_flight.load(Ordering::SeqCst) == 3
    });
    queue.cancel(2);
    queue.cancel(9);
    assert_eq!(queue.pending(), 3);
    let done = wait(queue.as_mut(), 1);
    assert_eq!((done[0].job.tag, queue.pending()), (2, 2));
    assert_eq!(done[0].outcome, Outcome::Failed(DeviceError::Cancelled));
    poll_until("the call ends", || service.in_flight.load(Ordering::SeqCst) == 2);
}

#[test]
fn a_dropped_queue_gives_its_buffers_back() {
    let service = Service::start(Manner::Hang);
    let pool = pool();
    let mut queue = open(&remote(&service.address));
    queue.try_submit(compress(&pool)).expect("room");
    poll_until("the call arrives", || {
        queue.poll(&mut Vec::new());
        service.in_flight.load(Ordering::SeqCst) == 1
    });
    drop(queue);
    assert_eq!(pool.outstanding(), ByteCount(0));
    poll_until("the call ends", || service.in_flight.load(Ordering::SeqCst) == 0);
}

/// Returns whether a queue without its service refuses a job as lost. The queue may not know yet that the service is
/// gone. A job that it accepts until then must complete as lost.
fn refuses_as_lost(queue: &mut dyn Queue) -> bool {
    match queue.try_submit(compress(&pool())) {
        Err(refused) => assert_eq!(refused.reason, RefusedReason::Lost),
        Ok(()) => {
            let outcome = wait(queue, 1).remove(0).outcome;
            assert_eq!(outcome, Outcome::Failed(DeviceError::Lost));
            return false;
        }
    }
    true
}

#[test]
fn a_new_queue_finds_a_returned_service() {
    // The test uses a path and no port, because another process may take a released port before the test uses it
    // again.
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let address = Address::Unix(path.clone());
    let service = Service::start_at(address.clone(), Manner::Hang);
    let remote = remote(&address);
    let mut queue = open(&remote);
    for _ in 0..5 {
        queue.try_submit(compress(&pool())).expect("room");
    }
    poll_until("a call arrives", || {
        queue.poll(&mut Vec::new());
        service.in_flight.load(Ordering::SeqCst) > 0
    });
    drop(service);
    let done = wait(queue.as_mut(), 5);
    let lost = Outcome::Failed(DeviceError::Lost);
    assert!(done.iter().all(|completion| completion.outcome == lost), "{done:?}");
    poll_until("it refuses jobs", || refuses_as_lost(queue.as_mut()));
    let mut early = open(&remote);
    poll_until("one that was opened early does, too", || refuses_as_lost(early.as_mut()));

    std::fs::remove_file(path).expect("the service left it");
    let _service = Service::start_at(address, Manner::Honest);
    let mut queue = open(&remote);
    queue.try_submit(compress(&pool())).expect("room");
    let outcome = &wait(queue.as_mut(), 1)[0].outcome;
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
}

#[test]
fn a_queue_holds_as_many_jobs_as_it_says() {
    let service = Service::start(Manner::Hang);
    let options = RemoteOptions { queue_depth: 3, ..patient() };
    let remote = Remote::new(service.address.clone(), &options).expect("an address");
    let mut queue = open(&remote);
    for _ in 0..3 {
        queue.try_submit(compress(&pool())).expect("room");
    }
    let refused = queue.try_submit(compress(&pool())).expect_err("three are inside");
    assert_eq!(refused.reason, RefusedReason::Full);
}

/// Returns this many different texts for jobs that share a call.
fn texts(count: usize) -> Vec<Bytes> {
    (0..count)
        .map(|number| format!("{number} {}", "rose ".repeat(20)).into_bytes().into())
        .collect()
}

fn of_text(text: &Bytes) -> Box<Job> {
    let mut job = compress(&pool());
    job.input = device::Input::heap(text.clone());
    job
}

/// Compresses and decompresses the texts, submitted together. Returns how many texts came back unchanged.
fn there_and_back(queue: &mut dyn Queue, texts: &[Bytes]) -> usize {
    for (tag, text) in texts.iter().enumerate() {
        queue.try_submit(Box::new(Job { tag: tag as u64, ..*of_text(text) })).expect("room");
    }
    for done in wait(queue, texts.len()) {
        let Outcome::Done { output_bytes } = done.outcome else { panic!("{done:?}") };
        let (tag, stream) = (done.job.tag, done.job.output.freeze(0..output_bytes));
        let job = decompress(&pool(), stream, texts[tag as usize].len());
        queue.try_submit(Box::new(Job { tag, ..*job })).expect("room");
    }
    let back = wait(queue, texts.len());
    back.iter().filter(|done| done.job.output[..] == texts[done.job.tag as usize]).count()
}

#[test]
fn short_jobs_share_a_call() {
    let service = Service::start(Manner::Honest);
    let mut queue = open(&remote(&service.address));
    let shared = || service.shared.load(Ordering::SeqCst);
    assert_eq!((there_and_back(queue.as_mut(), &texts(1)), shared()), (1, 0), "alone");
    assert_eq!((there_and_back(queue.as_mut(), &texts(10)), shared()), (10, 2));
    // One of the jobs has an invalid stream, and the others are valid.
    for text in texts(3) {
        queue.try_submit(of_text(&text)).expect("room");
    }
    queue.try_submit(decompress(&pool(), Bytes::from_static(b"x"), 600)).expect("room");
    let outcomes: Vec<Outcome> =
        wait(queue.as_mut(), 4).into_iter().map(|completion| completion.outcome).collect();
    let done = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Done { .. })).count();
    let invalid =
        |outcome: &&Outcome| matches!(outcome, Outcome::Failed(DeviceError::InvalidInput(_)));
    assert_eq!((done, outcomes.iter().filter(invalid).count(), shared()), (3, 1, 3));
    // These are more jobs than a call may have.
    let count = api::wire::JOBS_PER_CALL_MAX + 2;
    assert_eq!((there_and_back(queue.as_mut(), &texts(count)), shared() >= 7), (count, true));
    // These are short jobs with much output space. They take three calls of two jobs, and one call for the job whose
    // space alone exceeds the limit of a call.
    let before = shared();
    let third = api::wire::JOBS_BYTES_MAX / 3;
    for capacity in [third, third, third + 2, third, 3 * third + 3, third, third] {
        let mut job = of_text(&texts(1)[0]);
        job.output = pool().take(capacity);
        queue.try_submit(job).expect("room");
    }
    let done = wait(queue.as_mut(), 7);
    assert!(
        done.iter().all(|completion| matches!(completion.outcome, Outcome::Done { .. })),
        "{done:?}"
    );
    assert_eq!(shared() - before, 3);
}

#[test]
fn long_and_hurried_jobs_go_alone() {
    let service = Service::start(Manner::Honest);
    let mut queue = open(&remote(&service.address));
    let long = Bytes::from(vec![b'z'; 20_000]);
    for _ in 0..2 {
        let mut job = of_text(&long);
        job.output = pool().take(30_000);
        queue.try_submit(job).expect("room");
        let deadline = Some(Nanos::millis(1));
        queue.try_submit(Box::new(Job { deadline, ..*compress(&pool()) })).expect("room");
    }
    wait(queue.as_mut(), 4);
    assert_eq!(service.shared.load(Ordering::SeqCst), 0);
}

#[test]
fn an_old_service_gets_jobs_one_by_one() {
    let service = Service::start(Manner::OneByOne);
    let mut queue = open(&remote(&service.address));
    for _ in 0..2 {
        assert_eq!(there_and_back(queue.as_mut(), &texts(5)), 5);
    }
    assert_eq!(service.shared.load(Ordering::SeqCst), 1, "it is asked once");
}

#[test]
fn jobs_of_a_shared_call_fail_alone() {
    let outcomes = |manner| {
        let service = Service::start(manner);
        let mut queue = open(&remote(&service.address));
        for text in texts(3) {
            queue.try_submit(of_text(&text)).expect("room");
        }
        let done = wait(queue.as_mut(), 3).into_iter();
        done.map(|completion| completion.outcome).collect::<Vec<_>>()
    };
    let busy = outcomes(Manner::Refuse(Status::resource_exhausted("full")));
    assert!(busy.iter().all(|outcome| *outcome == Outcome::Failed(DeviceError::Busy)), "{busy:?}");
    let full = RunResponse { outcome: Answer::Busy as i32, ..RunResponse::default() };
    let busy = outcomes(Manner::Say(full));
    assert!(busy.iter().all(|outcome| *outcome == Outcome::Failed(DeviceError::Busy)), "{busy:?}");
    let few = outcomes(Manner::OneTooFew);
    let faults =
        few.iter().filter(|outcome| matches!(outcome, Outcome::Failed(DeviceError::Fault(_))));
    assert_eq!(faults.count(), 1, "{few:?}");
}

#[test]
fn a_job_of_a_shared_call_can_be_cancelled() {
    let service = Service::start(Manner::Hang);
    let mut queue = open(&remote(&service.address));
    let submit = |queue: &mut dyn Queue, tags: std::ops::RangeInclusive<u64>| {
        for tag in tags {
            queue.try_submit(Box::new(Job { tag, ..*compress(&pool()) })).expect("room");
        }
    };
    let cancelled = |queue: &mut dyn Queue, tag| {
        queue.cancel(tag);
        let done = wait(queue, 1);
        assert_eq!(done[0].outcome, Outcome::Failed(DeviceError::Cancelled));
        assert_eq!((done.len(), done[0].job.tag), (1, tag));
    };
    submit(queue.as_mut(), 1..=3);
    cancelled(queue.as_mut(), 2);
    poll_until("the others arrive", || {
        queue.poll(&mut Vec::new());
        service.in_flight.load(Ordering::SeqCst) == 2
    });
    cancelled(queue.as_mut(), 3);
    // Another job has the same key now, and the answer of the first call must not complete it.
    submit(queue.as_mut(), 4..=4);
    assert_eq!(queue.pending(), 2);
    drop(service);
    let tags: Vec<u64> = wait(queue.as_mut(), 2).iter().map(|done| done.job.tag).collect();
    assert!(tags.contains(&1) && tags.contains(&4), "{tags:?}");
}
