//! Threads on one core, each with its own runner, which run one task after another. With several threads the core has
//! something to run while one of them sleeps.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::accelerometer::service::runner::{Runner, Sample, Task};

/// A function that makes the runner of a thread. It is called on that thread.
pub(crate) type Build = dyn Fn(usize) -> Result<Runner, String> + Send + Sync;

/// The threads of a service. Dropping the team stops them.
pub(crate) struct Team {
    members: Vec<Member>,
}

struct Member {
    tasks: Option<Sender<Task>>,
    answers: Receiver<Result<Done, String>>,
    thread: Option<JoinHandle<()>>,
}

/// A sample, with the start and the end of its measurement.
struct Done(Sample, Instant, Instant);

impl Team {
    /// Starts `threads` threads on that core, or on any core if there is none. The first thread fills the store if
    /// `fill` is set.
    ///
    /// # Errors
    /// A runner could not be built.
    pub(crate) fn start(
        threads: usize,
        core: Option<usize>,
        fill: bool,
        build: Arc<Build>,
    ) -> Result<Self, String> {
        let member = |index: usize| {
            let (tasks, todo) = channel::<Task>();
            let (answer, answers) = channel();
            let build = Arc::clone(&build);
            let work = move || {
                keep_to(core);
                let built = build(index).and_then(|mut runner| {
                    if fill && index == 0 {
                        runner.fill()?
                    }
                    Ok(runner)
                });
                let mut runner = match built {
                    Ok(runner) => runner,
                    Err(problem) => return drop(answer.send(Err(problem))),
                };
                let now = Instant::now();
                if answer.send(Ok(Done(Sample::default(), now, now))).is_ok() {
                    serve(&mut runner, &todo, &answer);
                }
            };
            let thread = thread::Builder::new().name(format!("service-{index}")).spawn(work);
            let thread = thread.map_err(|error| error.to_string())?;
            let member = Member { tasks: Some(tasks), answers, thread: Some(thread) };
            member.answer()?;
            Ok(member)
        };
        Ok(Self { members: (0..threads).map(member).collect::<Result<_, String>>()? })
    }

    /// Runs the task, shared among the threads. Returns the sample and the time until the last thread finished (ns).
    ///
    /// # Errors
    /// A request was not answered, a job failed, or a thread ended.
    pub(crate) fn run(&self, task: Task) -> Result<(Sample, f64), String> {
        self.share(task, &self.members)
    }

    /// Runs the task on one thread, while the others sleep.
    ///
    /// # Errors
    /// A request was not answered, a job failed, or a thread ended.
    pub(crate) fn run_alone(&self, task: Task) -> Result<Sample, String> {
        self.share(task, &self.members[..1]).map(|(sample, _)| sample)
    }

    fn share(&self, task: Task, members: &[Member]) -> Result<(Sample, f64), String> {
        let count = task.count.div_ceil(members.len());
        for (index, member) in members.iter().enumerate() {
            let seed = task.seed.wrapping_mul(members.len() as u64).wrapping_add(index as u64);
            let sent = member.tasks.as_ref().map(|tasks| tasks.send(Task { seed, count, ..task }));
            sent.and_then(Result::ok).ok_or("a thread of the service ended")?;
        }
        let done: Vec<Done> = members.iter().map(Member::answer).collect::<Result<_, String>>()?;
        let start = done.iter().map(|done| done.1).min();
        let end = done.iter().map(|done| done.2).max();
        let elapsed = start.zip(end).map_or(0, |(start, end)| end.duration_since(start).as_nanos());
        let (first, others) = done.split_first().ok_or("a team has a thread")?;
        let sample = others.iter().fold(first.0, |all, other| all.and(&other.0));
        Ok((sample, elapsed as f64))
    }
}

impl Member {
    fn answer(&self) -> Result<Done, String> {
        self.answers.recv().map_err(|_| "a thread of the service ended".to_owned())?
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(|member| drop(member.tasks.take()));
        for member in &mut self.members {
            // A thread that panicked has already printed its message on standard error.
            let _ = member.thread.take().map(JoinHandle::join);
        }
    }
}

fn serve(runner: &mut Runner, todo: &Receiver<Task>, answer: &Sender<Result<Done, String>>) {
    for task in todo {
        let start = Instant::now();
        let done = runner.run(task).map(|sample| Done(sample, start, Instant::now()));
        if answer.send(done).is_err() {
            return;
        }
    }
}

/// Pins the calling thread, and the threads that it starts, to a core.
pub(crate) fn keep_to(core: Option<usize>) {
    // If the thread cannot be pinned, the measurement is less precise, and nothing else changes.
    let _ = core.map(units::cores::pin);
}

#[cfg(test)]
mod tests {
    use device::{Device, Software, Worker};
    use std::num::NonZeroUsize;
    use store::embedded::{Embedded, Options};
    use units::{ByteCount, Op};
    use workload::{PayloadClass, SizeDist};

    use super::*;
    use crate::accelerometer::service::runner::{Calls, Kernel, Offload, What};
    use crate::accelerometer::service::watch::Stage;
    use crate::accelerometer::service::{Checksum, Cipher, Load, Mix, Ops, Service};

    /// Starts a team with as many sets as gets. Another thread compresses all values.
    fn team(threads: usize, window: usize) -> Team {
        let mix = Mix {
            keys: 20,
            sizes: SizeDist::Fixed { bytes: 500 },
            payload: PayloadClass::Html,
            gets: 0.5,
            compressed: 1.0,
            encrypted: 0.5,
        };
        let load = Arc::new(Load::new(&mix).expect("sizes"));
        let limit = ByteCount::mib(8);
        let options = Options { limit, evict: true, seed: 1 };
        let store = Arc::new(Embedded::new(options));
        let software: Arc<dyn Device> = Arc::new(Software::default());
        let depth = NonZeroUsize::new(8).expect("not zero");
        let worker = Worker::start(NonZeroUsize::MIN, depth, &device::engines::BUILT_IN);
        let device: Arc<dyn Device> = Arc::new(worker.expect("a thread"));
        let offload = Offload { op: Op::Compress, device, window };
        let build = move |index: usize| {
            let ops = Ops { cipher: Cipher::processor(&[1; 32]), checksum: Checksum::Processor };
            let service = Service::new(Arc::clone(&store), ops, (index as u64) << 32);
            let load = Arc::clone(&load);
            Runner::new(service, load, Kernel::Compress, &software, Some(&offload))
        };
        Team::start(threads, None, true, Arc::new(build)).expect("threads")
    }

    #[test]
    fn every_request_is_answered_in_each_waiting_mode() {
        for (threads, window) in [(1, 1), (1, 4), (3, 1)] {
            let team = team(threads, window);
            let (sample, elapsed) =
                team.run(Task { what: What::Serve, seed: 3, count: 300 }).expect("answers");
            assert_eq!(sample.count, 300);
            assert!((100..200).contains(&sample.calls), "{} sets", sample.calls);
            assert!(sample.cpu_ns > 0.0 && elapsed > 0.0);
            let watched = team.run_alone(Task { what: What::Watch, seed: 3, count: 100 });
            let stages = watched.expect("answers").stages;
            assert!(stages.ns(Stage::Compress) > 0.0 && stages.ns(Stage::Decompress) > 0.0);
            let filled = |calls| {
                let what = What::Filled(Kernel::Compress, 1_000, calls);
                team.run(Task { what, seed: 3, count: 300 }).expect("answers").0
            };
            let calls = [Calls::None, Calls::Made].map(|calls| filled(calls).calls);
            assert_eq!(calls, [0, sample.calls], "the requests of the service with that seed");
            let watched = filled(Calls::Watched);
            assert!(watched.stages.ns(Stage::Compress) > 0.0 || threads > 1);
            let what = What::Kernel(Kernel::Compress, Some(3));
            let (calls, _) = team.run(Task { what, seed: 3, count: 30 }).expect("answers");
            assert_eq!((calls.calls, calls.bytes), (30, 30 * 500));
        }
    }
}
