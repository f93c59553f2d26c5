//! A compression service behind a lane in this process. It has one thread per client, which runs jobs on software or
//! does not run them.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use device::{DeviceError, Input, Job, Outcome, Pool, Queue, Software};
use drivers::lane::{LaneServer, NoResult, Request, RequestForm, Results, ServedLane, Taken};
use units::ByteCount;

use crate::support;

/// The service's treatment of jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manner {
    Honest,
    /// The service accepts jobs and never answers them.
    Hang,
    /// The service answers jobs as busy.
    Busy,
}

/// A service. Dropping it disconnects its lanes.
pub(crate) struct Service {
    pub(crate) path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    pub(crate) fn start_at(path: &Path, manner: Manner) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).expect("a free path");
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut lanes = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                if stopping.load(Ordering::SeqCst) {
                    break;
                }
                let stop = Arc::clone(&stopping);
                lanes.push(thread::spawn(move || serve(stream, manner, &stop)));
            }
            for lane in lanes {
                lane.join().expect("a lane did not panic");
            }
        });
        Self { path: path.to_owned(), stop, thread: Some(thread) }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(&self.path);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the service did not panic");
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(stream: UnixStream, manner: Manner, stop: &AtomicBool) {
    let socket = Arc::new(stream);
    let mut serving = loop {
        match LaneServer::greet(&socket, ByteCount::mib(16)) {
            Ok(Some(serving)) => break serving,
            Ok(None) if !stop.load(Ordering::SeqCst) => thread::sleep(Duration::from_millis(1)),
            _ => return,
        }
    };
    let software = Software::new(drivers::ENGINES);
    let pool = Pool::heap(ByteCount::mib(4));
    let mut queue = device::Device::open_queue(&software, Waker::noop().clone()).expect("opens");
    let mut kept = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let mut taken = 0;
        while taken < 16 {
            match serving.take() {
                Ok(Taken::Nothing) => break,
                Ok(Taken::Refused) => {}
                Ok(Taken::Job(request)) => match manner {
                    Manner::Honest => run(&mut serving, queue.as_mut(), &pool, request),
                    Manner::Busy => serving.fail(request.ticket, NoResult::Busy, units::Nanos(0)),
                    Manner::Hang => kept.push(request),
                },
                Err(_) => return,
            }
            taken += 1;
        }
        serving.publish();
        if taken == 0 && !serving.wait(Duration::from_millis(20)) {
            return;
        }
    }
}

fn run(serving: &mut LaneServer, queue: &mut dyn Queue, pool: &Pool, request: Request) {
    let none = units::Nanos(0);
    let Some(output) = serving.output(request.output_bytes) else {
        return serving.fail(request.ticket, NoResult::Busy, none);
    };
    let mut input = pool.take(request.input_bytes);
    if !serving.copy_input(&request, &mut input) {
        return serving.fail(request.ticket, NoResult::Refused, none);
    }
    let input = Input::pooled(input, 0..request.input_bytes);
    let RequestForm::Task(task) = &request.form else {
        return serving.fail(request.ticket, NoResult::Refused, none);
    };
    let job = Job::new(task.clone(), input, output);
    let completion = support::run(queue, Box::new(job));
    let why = match completion.outcome {
        Outcome::Done { output_bytes } if output_bytes <= request.output_bytes => {
            let service = units::Nanos(7);
            let (output, part) = (completion.job.output, 0..output_bytes);
            let results = Results { first: None, output, part, follow_key_unknown: false };
            serving.finish(request.ticket, results, service);
            return;
        }
        Outcome::Done { .. } | Outcome::DoesNotFit => NoResult::DoesNotFit,
        Outcome::Failed(DeviceError::InvalidInput(_)) => NoResult::InvalidInput,
        Outcome::Failed(_) => NoResult::Fault,
    };
    serving.fail(request.ticket, why, none);
}
