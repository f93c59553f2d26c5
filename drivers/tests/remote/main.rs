//! The remote device against services in this process: honest ones, gone ones and lying ones.

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
use device::{Device, DeviceError, Job, Outcome, RefusedReason, Waiting};
use drivers::{Remote, RemoteOptions};
use service::{Manner, Service};
use support::{PATIENCE, Signal, TEXT, compress, decompress, open, pool, wait};
use tonic::{Code, Status};
use units::{ByteCount, ManualClock, Nanos};

fn remote(address: &Address) -> Remote {
    let options = RemoteOptions {
        work_bytes_max: ByteCount::mib(16),
        timeout: Duration::from_secs(60),
        ..RemoteOptions::default()
    };
    Remote::new(address.clone(), &options).expect("an address")
}

/// The service outlives its test: other tests of the suite may still use it.
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
        assert!(start.elapsed() < PATIENCE, "{what}");
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
                tokio::time::timeout(PATIENCE, signal.0.notified()).await.expect("is woken");
            }
            assert!(matches!(done[0].outcome, Outcome::Done { .. }), "{done:?}");
        }
        let described = remote.describe().await.expect("an answer");
        assert_eq!(described.work_bytes_max, 7);
    });
}

#[test]
fn a_job_with_a_deadline_gives_the_service_no_more_time_than_that() {
    let service = Service::start(Manner::TellTimeout);
    let clock = ManualClock::default();
    clock.advance(Nanos::secs(5));
    let options = RemoteOptions {
        timeout: Duration::from_secs(60),
        clock: Arc::new(clock),
        ..RemoteOptions::default()
    };
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
    let of = |code| outcome_of(Manner::Refuse(Status::new(code, "no")), compress(&pool()));
    assert_eq!(of(Code::DeadlineExceeded), Outcome::Failed(DeviceError::Timeout));
    assert_eq!(of(Code::ResourceExhausted), Outcome::Failed(DeviceError::Busy));
    assert_eq!(of(Code::Unavailable), Outcome::Failed(DeviceError::Lost));
    for code in [Code::InvalidArgument, Code::Internal, Code::Unauthenticated, Code::OutOfRange] {
        let outcome = of(code);
        assert!(matches!(outcome, Outcome::Failed(DeviceError::Fault(_))), "{code:?}: {outcome:?}");
    }
    let outcome = of(Code::Unimplemented);
    assert!(matches!(outcome, Outcome::Failed(DeviceError::Misconfigured(_))), "{outcome:?}");
}

#[test]
fn an_answer_that_the_job_cannot_have_is_a_fault_and_never_written() {
    let say = |outcome: i32, bytes: usize, job: Box<Job>| {
        let payload = Bytes::from(vec![7; bytes]);
        outcome_of(Manner::Say(RunResponse { outcome, payload, ..RunResponse::default() }), job)
    };
    let read = || decompress(&pool(), Bytes::from_static(b"x"), 600);
    let write = || compress(&pool());
    let (done, tight) = (Answer::Done as i32, Answer::DoesNotFit as i32);
    let room = compress(&pool()).output.capacity();
    for (outcome, bytes, job) in [
        (done, 599, read()),
        (done, 601, read()),
        (done, 0, read()),
        (done, 64 << 20, read()),
        (done, 0, write()),
        (done, room + 1, write()),
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
fn a_cancelled_job_comes_back_at_once_and_the_service_is_told() {
    let service = Service::start(Manner::Hang);
    let mut queue = open(&remote(&service.address));
    for tag in 1..=3 {
        let mut job = compress(&pool());
        job.tag = tag;
        queue.try_submit(job).expect("room");
    }
    poll_until("three calls arrive", || {
        queue.poll(&mut Vec::new());
        service.inside.load(Ordering::SeqCst) == 3
    });
    queue.cancel(2);
    queue.cancel(9);
    assert_eq!(queue.pending(), 3);
    let done = wait(queue.as_mut(), 1);
    assert_eq!((done[0].job.tag, queue.pending()), (2, 2));
    assert_eq!(done[0].outcome, Outcome::Failed(DeviceError::Cancelled));
    poll_until("the call ends", || service.inside.load(Ordering::SeqCst) == 2);
}

#[test]
fn a_queue_dropped_with_jobs_inside_gives_their_buffers_back_at_once() {
    let service = Service::start(Manner::Hang);
    let pool = pool();
    let mut queue = open(&remote(&service.address));
    queue.try_submit(compress(&pool)).expect("room");
    poll_until("the call arrives", || {
        queue.poll(&mut Vec::new());
        service.inside.load(Ordering::SeqCst) == 1
    });
    drop(queue);
    assert_eq!(pool.outstanding(), ByteCount(0));
    poll_until("the call ends", || service.inside.load(Ordering::SeqCst) == 0);
}

#[test]
fn a_service_that_goes_takes_its_queue_and_a_new_queue_finds_it_again() {
    let service = Service::start(Manner::Hang);
    let address = service.address.clone();
    let remote = remote(&address);
    let mut queue = open(&remote);
    for _ in 0..5 {
        queue.try_submit(compress(&pool())).expect("room");
    }
    poll_until("a call arrives", || {
        queue.poll(&mut Vec::new());
        service.inside.load(Ordering::SeqCst) > 0
    });
    drop(service);
    let done = wait(queue.as_mut(), 5);
    let lost = Outcome::Failed(DeviceError::Lost);
    assert!(done.iter().all(|completion| completion.outcome == lost), "{done:?}");
    let refused = queue.try_submit(compress(&pool())).expect_err("the connection is gone");
    assert_eq!(refused.reason, RefusedReason::Lost);

    let mut early = open(&remote);
    early.try_submit(compress(&pool())).expect("not known to be gone yet");
    assert_eq!(wait(early.as_mut(), 1)[0].outcome, lost);

    let _service = Service::start_at(address, Manner::Honest);
    let mut queue = open(&remote);
    queue.try_submit(compress(&pool())).expect("room");
    let outcome = &wait(queue.as_mut(), 1)[0].outcome;
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
}

#[test]
fn a_queue_holds_as_many_jobs_as_it_says() {
    let service = Service::start(Manner::Hang);
    let options = RemoteOptions { queue_depth: 3, ..RemoteOptions::default() };
    let remote = Remote::new(service.address.clone(), &options).expect("an address");
    let mut queue = open(&remote);
    for _ in 0..3 {
        queue.try_submit(compress(&pool())).expect("room");
    }
    let refused = queue.try_submit(compress(&pool())).expect_err("three are inside");
    assert_eq!(refused.reason, RefusedReason::Full);
}
