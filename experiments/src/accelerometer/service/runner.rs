//! One thread that makes requests and answers them, or runs a microbenchmark. Several runners on one core are
//! a team. Jobs of one op may go to a device. All other jobs run in software on this thread.

use std::hint::black_box;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use bytes::Bytes;
use device::{Completion, Device, Job, Queue, Waiting};
use rustix::time::{ClockId, clock_gettime};
use slab::Slab;
use units::{Op, Prng};

use crate::accelerometer::service::cache::{HEADER_BYTES, Pending, Service, Step, seal};
use crate::accelerometer::service::load::Load;
use crate::accelerometer::service::micro::{Call, Micro};
use crate::accelerometer::service::request::{COMPRESSED, ENCRYPTED, Request};
use crate::accelerometer::service::watch::{Clock, Off, Stage, Stages, Watch};

/// The tax that a case accelerates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Encryption and decryption.
    Cipher,
    /// Checksums.
    Checksum,
    /// Compression.
    Compress,
    /// Decompression.
    Decompress,
}

impl Kernel {
    /// Returns the stage that counts the kernel's time.
    pub(crate) const fn stage(self) -> Stage {
        match self {
            Kernel::Cipher => Stage::SecureIo,
            Kernel::Checksum => Stage::Checksum,
            Kernel::Compress => Stage::Compress,
            Kernel::Decompress => Stage::Decompress,
        }
    }

    /// Returns whether a request calls the kernel.
    pub(crate) fn is_called_by(self, request: &Request) -> bool {
        match self {
            Kernel::Cipher => request.flags & ENCRYPTED != 0,
            Kernel::Checksum => true,
            Kernel::Compress => request.flags & COMPRESSED != 0 && !request.is_get,
            Kernel::Decompress => request.flags & COMPRESSED != 0 && request.is_get,
        }
    }
}

/// The device that runs the jobs of one op instead of software.
#[derive(Clone)]
pub(crate) struct Offload {
    /// The op, either compression or decompression.
    pub(crate) op: Op,
    /// The device.
    pub(crate) device: Arc<dyn Device>,
    /// The greatest number of jobs in flight. With one, the thread waits for each job.
    pub(crate) window: usize,
}

/// The work of a thread, and how often the thread repeats it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    /// The kind of work.
    pub(crate) what: What,
    /// The seed of the draws. The same seed gives the same requests.
    pub(crate) seed: u64,
    /// The number of requests, or of calls in a microbenchmark.
    pub(crate) count: usize,
}

/// The kinds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The thread serves requests.
    Serve,
    /// The thread serves requests and reads a clock at every stage.
    Watch,
    /// The thread calls only the kernel. The inputs are those of all calls of the load, or of one quarter of
    /// the calls by size.
    Kernel(Kernel, Option<usize>),
    /// The thread makes the requests of `Serve`, with filler work in place of the service. The number is the
    /// pieces of filler work for each MiB that a request reads.
    Filled(Kernel, u64, Calls),
}

/// The handling of the kernel's calls in a run with filler work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    /// The calls are left out.
    None,
    /// The calls are made.
    Made,
    /// The calls are made, with a clock read before and after each.
    Watched,
}

/// The measurements of a task.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// The number of requests or calls.
    pub(crate) count: usize,
    /// The number of kernel calls.
    pub(crate) calls: usize,
    /// The bytes that the kernel calls read.
    pub(crate) bytes: u64,
    /// The time of the thread on its core (ns).
    pub(crate) cpu_ns: f64,
    /// The time of the process on all cores (ns).
    pub(crate) process_ns: f64,
    /// The time that a device reports for its jobs (ns).
    pub(crate) device_ns: f64,
    /// The time by stage, if the task was watched.
    pub(crate) stages: Stages,
}

impl Sample {
    /// Adds the sample of another thread.
    pub(crate) fn and(mut self, other: &Self) -> Self {
        self.count += other.count;
        self.calls += other.calls;
        self.bytes += other.bytes;
        self.cpu_ns += other.cpu_ns;
        self.device_ns += other.device_ns;
        self
    }
}

/// A thread's service, load and device.
pub(crate) struct Runner {
    service: Service,
    load: Arc<Load>,
    kernel: Kernel,
    software: Box<dyn Queue>,
    offload: Option<(Op, usize, Waiting, Box<dyn Queue>)>,
    in_flight: Slab<Pending>,
    done: Vec<Completion>,
    /// The time of the device's jobs in the current task (ns).
    device_ns: u64,
    micro: Option<Micro>,
}

impl Runner {
    /// Makes a runner on the calling thread. Completions will wake this thread.
    ///
    /// # Errors
    /// A device opens no queue.
    pub(crate) fn new(
        service: Service,
        load: Arc<Load>,
        kernel: Kernel,
        software: &Arc<dyn Device>,
        offload: Option<&Offload>,
    ) -> Result<Self, String> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let open = |device: &Arc<dyn Device>| {
            device.open_queue(waker.clone()).map_err(|error| format!("{}: {error}", device.name()))
        };
        let offload = offload.map(|offload| {
            let waiting = offload.device.capabilities().waiting;
            open(&offload.device).map(|queue| (offload.op, offload.window, waiting, queue))
        });
        Ok(Self {
            service,
            load,
            kernel,
            software: open(software)?,
            offload: offload.transpose()?,
            in_flight: Slab::new(),
            done: Vec::new(),
            device_ns: 0,
            micro: None,
        })
    }

    /// Stores every value.
    ///
    /// # Errors
    /// The errors of [`Runner::run`].
    pub(crate) fn fill(&mut self) -> Result<(), String> {
        let load = Arc::clone(&self.load);
        load.sets().try_for_each(|set| self.serve(&set.bytes, &mut Off))?;
        self.drain(&mut Off)
    }

    /// Does the task.
    ///
    /// # Errors
    /// A request was not answered, or a job failed.
    pub(crate) fn run(&mut self, task: Task) -> Result<Sample, String> {
        let (cpu, process) = (now_ns(ClockId::ThreadCPUTime), now_ns(ClockId::ProcessCPUTime));
        self.device_ns = 0;
        let mut sample = match task.what {
            What::Serve => self.requests(task, &mut Off)?,
            What::Watch => {
                let mut clock = Clock::start();
                let sample = self.requests(task, &mut clock)?;
                let cpu_ns = now_ns(ClockId::ThreadCPUTime) - cpu;
                Sample { stages: clock.stages().within(cpu_ns), ..sample }
            }
            What::Kernel(kernel, quarter) => self.kernel_calls(kernel, quarter, task)?,
            What::Filled(kernel, pieces, Calls::Watched) => {
                let mut clock = Clock::start();
                let sample = self.filled(kernel, pieces, true, task, &mut clock)?;
                let cpu_ns = now_ns(ClockId::ThreadCPUTime) - cpu;
                Sample { stages: clock.stages().within(cpu_ns), ..sample }
            }
            What::Filled(kernel, pieces, calls) => {
                self.filled(kernel, pieces, calls == Calls::Made, task, &mut Off)?
            }
        };
        sample.cpu_ns = now_ns(ClockId::ThreadCPUTime) - cpu;
        sample.device_ns = self.device_ns as f64;
        sample.process_ns = now_ns(ClockId::ProcessCPUTime) - process;
        Ok(sample)
    }

    fn requests(&mut self, task: Task, watch: &mut impl Watch) -> Result<Sample, String> {
        let load = Arc::clone(&self.load);
        let mut random = Prng::new(task.seed);
        let mut sample = Sample { count: task.count, ..Sample::default() };
        for _ in 0..task.count {
            let request = load.draw(&mut random);
            sample.calls += usize::from(self.kernel.is_called_by(request));
            watch.lap(Stage::Load);
            self.serve(&request.bytes, watch)?;
        }
        self.drain(watch)?;
        Ok(sample)
    }

    fn serve(&mut self, bytes: &Bytes, watch: &mut impl Watch) -> Result<(), String> {
        match self.service.begin(bytes, watch)? {
            Step::Done => Ok(()),
            Step::Job(job, pending) => self.job(job, pending, watch),
        }
    }

    /// Runs the job here or submits it to the device, depending on its op.
    fn job(
        &mut self,
        mut job: Box<Job>,
        pending: Pending,
        watch: &mut impl Watch,
    ) -> Result<(), String> {
        let op = job.task.op();
        let Some((_, window, _, _)) = self.offload.as_ref().filter(|offload| offload.0 == op)
        else {
            self.software
                .try_submit(job)
                .map_err(|refused| format!("software: {:?}", refused.reason))?;
            self.software.poll(&mut self.done);
            let completion = self.done.pop().ok_or("software finishes at once")?;
            return self.service.finish(pending, &completion, stage(op), watch);
        };
        let window = *window;
        while self.in_flight.len() >= window {
            self.collect(true, watch)?;
        }
        job.tag = self.in_flight.insert(pending) as u64;
        let (_, _, _, queue) = self.offload.as_mut().ok_or("there is a device")?;
        queue.try_submit(job).map_err(|refused| format!("the device: {:?}", refused.reason))?;
        watch.lap(stage(op));
        if window == 1 {
            return self.drain(watch);
        }
        self.collect(false, watch)
    }

    /// Finishes the completed jobs. If `wait` is set, it waits until at least one job has completed.
    fn collect(&mut self, wait: bool, watch: &mut impl Watch) -> Result<(), String> {
        let Some((op, window, waiting, queue)) = self.offload.as_mut() else { return Ok(()) };
        let (op, alone) = (*op, *window == 1);
        while queue.poll(&mut self.done) == 0 && wait {
            match waiting {
                Waiting::Signalled => {
                    watch.lap(stage(op));
                    thread::park();
                    watch.lap(Stage::Blocked);
                }
                _ => std::hint::spin_loop(),
            }
        }
        // With a window of one the thread has nothing else to do, so the wait is part of the job's stage.
        watch.lap(if wait && !alone { Stage::Wait } else { stage(op) });
        while let Some(completion) = self.done.pop() {
            self.device_ns += completion.service.0;
            let pending = self.in_flight.try_remove(completion.job.tag as usize);
            let pending = pending.ok_or("a completion of no job")?;
            self.service.finish(pending, &completion, stage(op), watch)?;
        }
        Ok(())
    }

    fn drain(&mut self, watch: &mut impl Watch) -> Result<(), String> {
        while !self.in_flight.is_empty() {
            self.collect(true, watch)?;
        }
        Ok(())
    }

    /// Returns the microbenchmark's inputs. The first call makes them from the stored values.
    fn micro(&mut self, kernel: Kernel) -> Result<Micro, String> {
        match self.micro.take() {
            Some(micro) => Ok(micro),
            None => Micro::new(&self.service, &self.load, kernel),
        }
    }

    fn kernel_calls(
        &mut self,
        kernel: Kernel,
        quarter: Option<usize>,
        task: Task,
    ) -> Result<Sample, String> {
        let mut micro = self.micro(kernel)?;
        let mut sample = Sample { count: task.count, calls: task.count, ..Sample::default() };
        let mut steps = micro.steps(quarter, task.seed);
        for _ in 0..task.count {
            let index = micro.step(&mut steps);
            sample.bytes += micro.calls[index].input.len() as u64;
            if kernel == Kernel::Cipher {
                micro.touch(index);
            }
            self.call(&mut micro, index)?;
        }
        self.drain(&mut Off)?;
        self.micro = Some(micro);
        Ok(sample)
    }

    /// Makes the same requests as `requests`, with filler work in place of the service. As in `requests`, the
    /// thread does other work while a call is offloaded.
    fn filled(
        &mut self,
        kernel: Kernel,
        pieces_per_mib: u64,
        is_called: bool,
        task: Task,
        watch: &mut impl Watch,
    ) -> Result<Sample, String> {
        let mut micro = self.micro(kernel)?;
        let load = Arc::clone(&self.load);
        let mut random = Prng::new(task.seed);
        let mut sample = Sample { count: task.count, ..Sample::default() };
        for _ in 0..task.count {
            let request = load.draw(&mut random).index;
            if let Some(index) = micro.of_request[request] {
                micro.touch(index);
                watch.lap(Stage::Load);
                if is_called {
                    self.call(&mut micro, index)?;
                    sample.calls += 1;
                }
                watch.lap(kernel.stage());
            }
            micro.filler.spend(&micro.reads[request], pieces_per_mib);
        }
        self.drain(&mut Off)?;
        self.micro = Some(micro);
        Ok(sample)
    }

    fn call(&mut self, micro: &mut Micro, index: usize) -> Result<(), String> {
        let Call { input, original_bytes, is_get } = &micro.calls[index];
        let ops = self.service.ops();
        match micro.kernel {
            Kernel::Cipher if *is_get => {
                black_box(self.service.unseal(&input[HEADER_BYTES..])?);
                Ok(())
            }
            Kernel::Cipher => {
                seal(&ops.cipher, index as u64, &mut micro.scratch);
                black_box(&micro.scratch);
                Ok(())
            }
            Kernel::Checksum => {
                black_box(ops.checksum.crc32c(input));
                Ok(())
            }
            Kernel::Compress => {
                let job = self.service.compression(input.clone());
                self.job(job, Pending::Probe, &mut Off)
            }
            Kernel::Decompress => {
                let job = self.service.decompression(input.clone(), *original_bytes);
                self.job(job, Pending::Probe, &mut Off)
            }
        }
    }
}

const fn stage(op: Op) -> Stage {
    match op {
        Op::Compress => Stage::Compress,
        _ => Stage::Decompress,
    }
}

fn now_ns(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos() as f64
}

/// Wakes a sleeping thread when a completion arrives.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns the time of one switch between two threads of one core (ns). The threads wake each other and go to sleep in
/// turn.
///
/// # Errors
/// A thread cannot be started.
pub(crate) fn switch_ns(core: Option<usize>, count: usize) -> Result<f64, String> {
    let builder = || thread::Builder::new();
    let ping_pong = move || -> Result<f64, String> {
        crate::accelerometer::service::team::keep_to(core);
        let first = thread::current();
        let (turn, rounds) = (Arc::new(std::sync::atomic::AtomicUsize::new(0)), count);
        let other_turn = Arc::clone(&turn);
        let other = builder().spawn(move || {
            crate::accelerometer::service::team::keep_to(core);
            for round in 0..rounds {
                while other_turn.load(std::sync::atomic::Ordering::Acquire) != 2 * round + 1 {
                    thread::park();
                }
                other_turn.store(2 * round + 2, std::sync::atomic::Ordering::Release);
                first.unpark();
            }
        });
        let other = other.map_err(|error| error.to_string())?;
        let start = Instant::now();
        for round in 0..count {
            turn.store(2 * round + 1, std::sync::atomic::Ordering::Release);
            other.thread().unpark();
            while turn.load(std::sync::atomic::Ordering::Acquire) != 2 * round + 2 {
                thread::park();
            }
        }
        let elapsed = start.elapsed().as_nanos() as f64;
        other.join().map_err(|_| "the other thread ended".to_owned())?;
        Ok(elapsed / (2 * count) as f64)
    };
    let thread = builder().spawn(ping_pong).map_err(|error| error.to_string())?;
    thread.join().map_err(|_| "the thread ended".to_owned())?
}
