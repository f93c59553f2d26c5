//! Tests of one side of a lane when the other side breaks a rule, or answers a job that no one waits for. The steps
//! are fixed, while the attacks of [`super::hostile`] are drawn.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use device::{Device, DeviceError, Job, Outcome, Queue, RefusedReason};
use drivers::lane::{LaneServer, NoResult, Pause, Problem, ServedLane, Taken};
use drivers::{Lane, LaneOptions};
use rustix::net::{SendFlags, send};
use rustix::process::{Uid, geteuid};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity, set_thread_res_uid};
use tokio::runtime::{Builder, LocalOptions};
use units::{ByteCount, Nanos};

use super::hostile::{ASLEEP, CPU, ENTRIES, HEAD, Half, RING, TAIL, greeting, write_job};
use super::support::{TIMEOUT, compress, pool};

/// A waker that counts its calls.
#[derive(Default)]
struct Calls(AtomicUsize);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A service that answers when the test tells it to.
struct Answerer {
    socket: UnixStream,
    half: Half,
    client: File,
    written: u64,
}

impl Answerer {
    /// Returns whether the client waits for a doorbell.
    fn is_client_asleep(&self) -> bool {
        let mut word = [0; 8];
        self.client.read_exact_at(&mut word, ASLEEP).expect("a half");
        word != [0; 8]
    }

    /// Answers the job with this mark as busy, and rings the doorbell.
    fn answer(&mut self, mark: u64) {
        let at = RING + self.written % ENTRIES * 64;
        for (number, word) in (0..).zip([mark, 5, 0, 0, 1, 0, 0, 0]) {
            self.half.set(at + number * 8, word);
        }
        self.written += 1;
        self.half.set(TAIL, self.written);
        // It rings even if the client does not sleep. As with any doorbell, a full socket means that the client has
        // been woken already.
        let _ = send(self.socket.as_fd(), b"!", SendFlags::DONTWAIT);
    }
}

/// Returns the mark of the `number`th job of a queue with one job at a time.
fn mark(number: u64) -> u64 {
    number << 32
}

fn tagged(tag: u64) -> Box<Job> {
    let mut job = compress(&pool());
    job.tag = tag;
    job
}

/// Runs a test with the queue of a lane that holds one job, and with its service. The test runs on an executor of
/// this thread.
fn one_job_lane(test: impl AsyncFnOnce(Box<dyn Queue>, Answerer, Arc<Calls>)) {
    one_job_lane_on(Builder::new_current_thread().enable_all(), test);
}

fn one_job_lane_on(
    executor: &mut Builder,
    test: impl AsyncFnOnce(Box<dyn Queue>, Answerer, Arc<Calls>),
) {
    let executor = executor.build_local(LocalOptions::default()).expect("an executor");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lane");
    let listener = UnixListener::bind(&path).expect("a free path");
    executor.block_on(async {
        let lane = Lane::new(&path, &LaneOptions { queue_depth: 1, ..LaneOptions::default() });
        let calls = Arc::new(Calls::default());
        let queue = lane.open_queue(Waker::from(Arc::clone(&calls))).expect("opens");
        let (socket, _) = listener.accept().expect("the queue connects");
        let client = greeting(&socket);
        let half = Half::new();
        half.greet(&socket);
        test(queue, Answerer { socket, half, client, written: 0 }, calls).await;
    });
}

/// Returns the number of times that the queue calls its waker in 50 ms without a poll.
async fn calls_in_a_while(calls: &Calls) -> usize {
    let before = calls.0.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(50)).await;
    calls.0.load(Ordering::SeqCst) - before
}

#[test]
fn a_late_answer_keeps_nobody_busy() {
    one_job_lane(async |mut queue, mut service, calls| {
        let mut done = Vec::new();
        queue.try_submit(tagged(1)).expect("room");
        calls_in_a_while(&calls).await;
        queue.cancel(1);
        assert_eq!((queue.poll(&mut done), queue.pending()), (1, 0));
        assert_eq!(done[0].outcome, Outcome::Failed(DeviceError::Cancelled));
        service.answer(mark(1));
        let asked = calls_in_a_while(&calls).await;
        assert!(asked < 5, "asks {asked} times to be polled, and has nothing");

        queue.try_submit(tagged(2)).expect("what was given up is answered and gone");
        service.answer(mark(2));
        let start = Instant::now();
        while calls_in_a_while(&calls).await == 0 {
            assert!(start.elapsed() < TIMEOUT, "an answer that is waited for wakes");
        }
        assert_eq!((queue.poll(&mut done), queue.pending()), (1, 0));
        assert_eq!(done[1].outcome, Outcome::Failed(DeviceError::Busy));
    });
}

#[test]
fn a_service_that_answers_an_idle_lane_keeps_nobody_busy() {
    one_job_lane(async |mut queue, mut service, calls| {
        calls_in_a_while(&calls).await;
        service.answer(mark(1));
        let asked = calls_in_a_while(&calls).await;
        assert!(asked < 5, "asks {asked} times to be polled, and has nothing");
        queue.try_submit(tagged(1)).expect("room");
        calls_in_a_while(&calls).await;
        drop((queue, service));
    });
}

/// In simulated time, because on a slow machine an answer takes so long that sleeping is right.
fn asleep_in_rounds_of(round: Duration) -> usize {
    let mut asleep = 0;
    let mut executor = Builder::new_current_thread();
    one_job_lane_on(executor.enable_all().start_paused(true), async |mut queue, mut service, _| {
        let mut done = Vec::new();
        queue.try_submit(tagged(1)).expect("room");
        for number in 1..=ROUNDS {
            // The watcher polls in these yields. One takes longer than the other, because tokio checks for events.
            tokio::time::advance(round).await;
            tokio::task::yield_now().await;
            asleep += usize::from(service.is_client_asleep());
            service.answer(mark(number));
            assert_eq!(queue.poll(&mut done), 1);
            queue.try_submit(tagged(number + 1)).expect("room");
        }
    });
    asleep
}

const ROUNDS: u64 = 300;

#[test]
fn a_busy_task_keeps_its_lane_awake() {
    let (soon, late) = (
        asleep_in_rounds_of(Duration::from_micros(5)),
        asleep_in_rounds_of(Duration::from_micros(70)),
    );
    assert!(soon < 3, "asleep in {soon} of {ROUNDS} rounds of 5 us");
    assert!(late > 250, "asleep in {late} of {ROUNDS} rounds of 70 us");
}

fn served(half: &Half) -> (UnixStream, Result<Option<LaneServer>, Problem>) {
    let (client, service) = UnixStream::pair().expect("two sockets");
    half.greet(&client);
    (client, LaneServer::greet(&Arc::new(service), ByteCount::mib(1)))
}

#[test]
fn a_client_with_too_many_jobs_is_cut() {
    for reads in [false, true] {
        let half = Half::new();
        let (_client, serving) = served(&half);
        let mut serving = serving.expect("a client").expect("has greeted");
        for number in 0..=ENTRIES {
            write_job(&half, number, &mut || 1);
        }
        half.set(TAIL, ENTRIES);
        for _ in 0..ENTRIES {
            if let Taken::Job(request) = serving.take().expect("an honest client so far") {
                serving.fail(request.ticket, NoResult::Busy, Nanos(1));
            }
        }
        serving.publish();
        assert!(matches!(serving.take(), Ok(Taken::Nothing)), "full, and none is submitted");
        if reads {
            half.set(HEAD, 1);
        }
        half.set(TAIL, ENTRIES + 1);
        match serving.take() {
            Err(Problem::Peer(why)) => assert!(!reads && why.contains("more jobs"), "{why}"),
            other => assert!(reads && !matches!(other, Ok(Taken::Nothing)), "{other:?}"),
        }
    }
}

#[test]
fn the_service_decides_how_much_memory_it_gives() {
    let most = 64 << 20;
    assert!(matches!(served(&Half::with_padding(most)).1, Ok(Some(_))));
    let refused = served(&Half::with_padding(most + 64)).1.err().expect("too long a region");
    assert!(refused.to_string().contains("longer values"), "{refused}");
}

#[test]
fn a_client_with_larger_values_gets_no_lane() {
    for (work_bytes_max, is_served) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        let (client, service) = UnixStream::pair().expect("two sockets");
        Half::new().greet_for(&client, work_bytes_max);
        match LaneServer::greet(&Arc::new(service), ByteCount::mib(1)) {
            Ok(serving) => assert!(is_served && serving.is_some(), "{work_bytes_max}"),
            Err(refused) => {
                assert!(!is_served && refused.to_string().contains("takes 1MiB"), "{refused}");
            }
        }
    }
}

#[test]
fn a_service_never_polls_for_a_client_on_its_own_core() {
    // This runs in its own thread, which stays on its core.
    let in_thread = || {
        let here = sched_getcpu();
        let mut set = CpuSet::new();
        set.set(here);
        sched_setaffinity(None, &set).expect("it runs there already");
        for (client, expected) in [(here, Pause::Sleep), (here + 1, Pause::Poll)] {
            let half = Half::new();
            let (_client, serving) = served(&half);
            let mut serving = serving.expect("a client").expect("has greeted");
            half.set(CPU, client as u64 + 1);
            assert_eq!(serving.pause(), expected, "the client on {client}, the service on {here}");
        }
    };
    std::thread::spawn(in_thread).join().expect("no panic");
}

/// Runs a function in a thread of another user, if this process may become another user.
fn as_another_user<T: Send + 'static>(does: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can be another user");
        return None;
    }
    let other = Uid::from_raw(10_001);
    let in_thread = move || {
        set_thread_res_uid(other, other, other).expect("root may");
        does()
    };
    Some(std::thread::spawn(in_thread).join().expect("no panic"))
}

#[test]
fn neither_side_has_a_lane_with_another_user() {
    let pair = as_another_user(|| UnixStream::pair().expect("two sockets"));
    let Some((client, service)) = pair else { return };
    Half::new().greet(&client);
    let refused = LaneServer::greet(&Arc::new(service), ByteCount::mib(1)).err().expect("refused");
    assert!(refused.to_string().contains("runs as user 10001"), "{refused}");

    let folder = tempfile::tempdir().expect("a folder");
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), all).expect("it is this user's");
    let path = folder.path().join("lane");
    let at = path.clone();
    let listener = as_another_user(move || UnixListener::bind(at).expect("a free path"));
    let lane = Lane::new(&path, &LaneOptions::default());
    let mut queue = lane.open_queue(Waker::noop().clone()).expect("opens");
    let refused = queue.try_submit(tagged(1)).expect_err("the service is not one");
    assert_eq!(refused.reason, RefusedReason::Lost);
    drop(listener);
}
