//! Simulates the benchmark of \[OffloadSched\]: a number of tasks on one core, each of which makes its requests one
//! after the other, without software's part in them. Every request is one compression, which the device makes while the
//! core runs other tasks. The core polls the device when a polling interval has passed, and at once if no task is
//! ready. A poll takes the core's time whether or not it finds a completion, and takes a limited number of completions.
//!
//! The device is the timeline of the emulated device, with the same profile. The caller states all costs of the core.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use device::virtual_device::{Cost, Timeline};
use units::{Nanos, Prng};
use workload::DeviceProfile;

/// The parameters of the closed loop.
#[derive(Clone, Debug)]
pub struct ClosedLoop {
    /// The profile of the device.
    pub device: DeviceProfile,
    /// The factor on the time between two jobs that the device starts. It is 1 for the profile's own pace.
    pub pace: f64,
    /// The sizes of the jobs (bytes), each equally likely.
    pub sizes_bytes: Vec<u64>,
    /// The number of tasks.
    pub tasks: usize,
    /// The number of requests of each task.
    pub requests: usize,
    /// The greatest number of tasks that have begun and not ended. Each has one request in flight.
    pub in_flight: usize,
    /// The core's time for a request in addition to the submission that the profile states: switches between tasks,
    /// and what a request does besides its compression.
    pub core: Nanos,
    /// The core's time for a poll.
    pub poll: Nanos,
    /// The shortest time from the end of a poll to the next one while tasks are ready.
    pub poll_interval: Nanos,
    /// The greatest number of completions that a poll takes.
    pub dequeue_batch: usize,
}

/// The results of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedRun {
    /// The latency of each request, from the end of the task's request before it (ns), ascending.
    pub latency_ns: Vec<u64>,
    /// The time of the whole run.
    pub elapsed: Nanos,
    /// The number of polls that found a completion.
    pub polls_with_completions: usize,
    /// The mean number of jobs that were complete when a poll looked, over the polls that found at least one.
    pub completed_per_poll: f64,
}

impl ClosedRun {
    /// Returns the requests answered per second.
    pub fn per_s(&self) -> f64 {
        self.latency_ns.len() as f64 / (self.elapsed.0.max(1) as f64 / 1e9)
    }

    /// Returns the latency that this share of the requests does not exceed (us), or none without requests.
    pub fn quantile_us(&self, share: f64) -> Option<f64> {
        let last = self.latency_ns.len().checked_sub(1)?;
        let rank = (share * self.latency_ns.len() as f64).ceil().max(1.0) as usize - 1;
        Some(self.latency_ns[rank.min(last)] as f64 / 1e3)
    }

    /// Returns the share of the requests that took less than the limit.
    pub fn under(&self, limit: Nanos) -> f64 {
        let under = self.latency_ns.partition_point(|ns| *ns < limit.0);
        under as f64 / self.latency_ns.len().max(1) as f64
    }
}

impl ClosedLoop {
    /// Simulates one run. The sizes follow from the seed.
    ///
    /// # Panics
    /// Panics without sizes, if no task may be in flight, if a poll takes no completion, or if the device has no
    /// compression. The caller ensures that none of these is the case.
    pub fn run(&self, seed: u64) -> ClosedRun {
        let accelerator = self.device.accelerator.as_ref().expect("a device has an accelerator");
        assert!(self.in_flight > 0 && self.dequeue_batch > 0, "a loop that ends");
        let machine = Machine {
            plan: self,
            timeline: Timeline::new(accelerator),
            random: Prng::new(seed),
            now: Nanos(0),
            ready: VecDeque::new(),
            on_device: BinaryHeap::new(),
            submissions: 0,
            burst: 0,
            latency_ns: Vec::with_capacity(self.tasks * self.requests),
            polls: 0,
            completed: 0,
        };
        machine.run()
    }
}

/// A task that waits for the core or for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Task {
    /// The number of requests that it has yet to end, including the one in flight.
    left: usize,
    /// The time when its request began.
    begun: Nanos,
    is_in_request: bool,
}

struct Machine<'a> {
    plan: &'a ClosedLoop,
    timeline: Timeline,
    random: Prng,
    now: Nanos,
    ready: VecDeque<Task>,
    /// The tasks whose jobs the device has, with the time when each job is done and its submission's number.
    on_device: BinaryHeap<Reverse<(Nanos, usize, Task)>>,
    submissions: usize,
    /// The number of submissions since the last poll.
    burst: u64,
    latency_ns: Vec<u64>,
    polls: usize,
    completed: usize,
}

impl Machine<'_> {
    fn run(mut self) -> ClosedRun {
        let mut unstarted = self.plan.tasks;
        for _ in 0..self.plan.in_flight.min(self.plan.tasks) {
            self.start(&mut unstarted);
        }
        // At least one task runs between two polls, also if a poll costs nothing and has no interval.
        let (mut next_poll, mut has_polled) = (Nanos(0), false);
        loop {
            let is_due = (self.now >= next_poll && !has_polled) || self.ready.is_empty();
            if is_due && !self.on_device.is_empty() {
                self.poll();
                (next_poll, has_polled) = (self.now + self.plan.poll_interval, true);
                continue;
            }
            let Some(task) = self.ready.pop_front() else { break };
            has_polled = false;
            self.resume(task, &mut unstarted);
        }
        self.latency_ns.sort_unstable();
        let completed_per_poll = self.completed as f64 / self.polls.max(1) as f64;
        ClosedRun {
            latency_ns: self.latency_ns,
            elapsed: self.now,
            polls_with_completions: self.polls,
            completed_per_poll,
        }
    }

    /// Makes a task ready that has not begun, if there is one.
    fn start(&mut self, unstarted: &mut usize) {
        if let Some(left) = unstarted.checked_sub(1) {
            *unstarted = left;
            let (left, begun) = (self.plan.requests, self.now);
            self.ready.push_back(Task { left, begun, is_in_request: false });
        }
    }

    /// Ends the task's request, if it has one, and begins the next one.
    fn resume(&mut self, mut task: Task, unstarted: &mut usize) {
        if task.is_in_request {
            self.latency_ns.push(self.now.since(task.begun).0);
            task.left -= 1;
            task.begun = self.now;
        }
        if task.left == 0 {
            return self.start(unstarted);
        }
        task.is_in_request = true;
        let plan = self.plan;
        let index = self.random.below(plan.sizes_bytes.len() as u64) as usize;
        let bytes = plan.sizes_bytes[index];
        self.burst += 1;
        self.now += plan.core + plan.device.submit_nth(bytes, self.burst);
        let op = plan.device.compress().expect("the device compresses");
        // Published latencies include the submission of a single job.
        let engine = op.latency(bytes).since(plan.device.submit(bytes));
        let interval = Nanos((op.interval(bytes).0 as f64 * plan.pace).round() as u64);
        assert!(self.timeline.reserve(self.now), "the device has an entry for every task");
        let done = self.timeline.admit(self.now, Cost { engine, interval });
        self.submissions += 1;
        self.on_device.push(Reverse((done, self.submissions, task)));
    }

    /// Polls the device. A core without a ready task polls until it finds a completion.
    fn poll(&mut self) {
        let plan = self.plan;
        self.burst = 0;
        let next = self.on_device.peek().map_or(Nanos(0), |Reverse((done, ..))| *done);
        if self.ready.is_empty() {
            let idle_ns = next.since(self.now).0;
            let polls_ns = idle_ns.div_ceil(plan.poll.0.max(1)) * plan.poll.0.max(1);
            self.now += Nanos(polls_ns);
        }
        let looked = self.now;
        self.now += plan.poll;
        let completed = self.on_device.iter().filter(|Reverse((done, ..))| *done <= looked).count();
        self.polls += usize::from(completed > 0);
        self.completed += completed;
        for _ in 0..completed.min(plan.dequeue_batch) {
            if let Some(Reverse((_, _, task))) = self.on_device.pop() {
                self.ready.push_back(task);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(in_flight: usize) -> ClosedLoop {
        ClosedLoop {
            device: DeviceProfile::find("bluefield2").expect("compiled in"),
            pace: 1.0,
            sizes_bytes: vec![8 << 10],
            tasks: 100,
            requests: 100,
            in_flight,
            core: Nanos(100),
            poll: Nanos(0),
            poll_interval: Nanos(0),
            dequeue_batch: 16,
        }
    }

    #[test]
    fn one_task_takes_the_latency_of_each_request() {
        let found = plan(1).run(1);
        let op = plan(1).device.compress().expect("compresses").latency(8 << 10);
        assert_eq!(found.latency_ns.len(), 10_000);
        assert_eq!(found.latency_ns[0], op.0 + 100);
        assert_eq!(found.elapsed.0, 10_000 * (op.0 + 100));
    }

    #[test]
    fn many_tasks_are_limited_by_the_device() {
        let found = plan(100).run(1);
        let pace = plan(1).device.compress().expect("compresses").interval(8 << 10);
        let expected = 1e9 / pace.0 as f64;
        assert!((found.per_s() / expected - 1.0).abs() < 0.01, "{} {expected}", found.per_s());
        let slower = ClosedLoop { pace: 2.0, ..plan(100) }.run(1);
        assert!((slower.per_s() / expected - 0.5).abs() < 0.01, "{}", slower.per_s());
        // Little's law: 100 requests are in flight all the time, but for the ends of the run.
        let mean_ns = found.latency_ns.iter().sum::<u64>() as f64 / 1e4;
        let in_flight = mean_ns * found.per_s() / 1e9;
        assert!((95.0..=101.0).contains(&in_flight), "{in_flight}");
    }

    #[test]
    fn polls_that_cost_take_throughput_when_they_are_frequent() {
        let costly = |interval_ns, batch| {
            let (poll, poll_interval) = (Nanos(20_000), Nanos(interval_ns));
            ClosedLoop { poll, poll_interval, dequeue_batch: batch, ..plan(100) }.run(1)
        };
        let (often, seldom) = (costly(50, 16), costly(100_000, 100));
        assert!(often.per_s() < 0.5 * seldom.per_s(), "{} {}", often.per_s(), seldom.per_s());
        let single = costly(50, 1);
        assert!((single.per_s() / (1e9 / 20_763.0) - 1.0).abs() < 0.02, "{}", single.per_s());
        assert_eq!(often, costly(50, 16), "a run follows from its seed");
    }
}
