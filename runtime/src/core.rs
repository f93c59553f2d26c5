//! The core of the runtime, which works with any executor: submit, turn, claim. Each thread has one instance. It blocks
//! only in a sync placement, and there for at most the job timeout.
//!
//! A job's life: `submit` asks the policy and submits the job to a device queue (software runs it at once). `turn`
//! polls the queues, redoes in software the jobs that a device failed, lost or did not finish in time, and wakes the
//! owners. `claim` returns the finished job. A job whose ticket is dropped with `detach` keeps its buffers until the
//! device returns it.
//!
//! A device is retired if it is lost, keeps a job too long or is wrong too often. It gets no jobs until a later probe
//! job returns and is right.

mod chain;
mod complete;
pub(crate) mod completion_hook;
mod decision_cache;
mod fair;
mod recover;
mod submit;
mod verify;

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use device::{Device, DeviceError, Job, Task};
use policy::{DeviceState, Policy};
use units::{Nanos, Op, Prng};

use crate::admission::AdmissionQueue;
use crate::config::{Fallback, RuntimeConfig, StartError};
use crate::entry::{Entry, Finished, State, Ticket};
use crate::history::History;
use crate::job_table::JobTable;
use crate::metrics::Metrics;
use crate::reputation::Reputation;
use crate::slot::{OPS, Slot};
use crate::time::Time;

use completion_hook::Hooked;
use decision_cache::DecisionCache;

/// One core's runtime.
pub struct Runtime {
    devices: Devices,
    jobs: Jobs,
    decisions: Decisions,
    clock: Clock,
    metrics: Arc<Metrics>,
}

/// The devices as this core sees them.
struct Devices {
    slots: Vec<Slot>,
    /// The number of retired slots.
    retired: usize,
    dequeue_batch: usize,
    reprobe_after: Nanos,
    waker: Waker,
    reputation: Arc<Reputation>,
    /// The number of changes of the reputation that were already applied.
    reputation_seen: u64,
}

/// The jobs between submission and claim.
struct Jobs {
    table: JobTable,
    /// The number of finished jobs that were not yet claimed.
    unclaimed: usize,
    /// The queue of waiting jobs, if there are limits.
    admission: Option<Box<AdmissionQueue>>,
    /// The jobs that wait to be redone in software.
    fallbacks: VecDeque<Box<Job>>,
    /// The number of bytes of jobs that may still be redone in software before the next turn.
    fallback_bytes_left: usize,
    hooked: Hooked,
    /// Whether any job had a tenant other than the default one.
    has_tenants: bool,
}

/// The inputs of placement decisions, and the cached decisions.
struct Decisions {
    policy: Arc<dyn Policy>,
    /// Whether the policy uses costs.
    uses_costs: bool,
    /// Whether costs are recorded. They are recorded if the policy uses them, or once a job had a deadline.
    records_costs: bool,
    /// The fallback of each op.
    fallback: [Fallback; OPS],
    /// Whether the ops of a chain may go to a device in one trip.
    chains: bool,
    /// The device states that were last passed to the policy.
    states: Vec<DeviceState>,
    /// The device states for a chain as a whole and for each of its ops. They are kept so that a decision allocates no
    /// memory.
    chain_states: Vec<Vec<DeviceState>>,
    cache: DecisionCache,
    history: History,
    draws: Prng,
}

/// The clock, and the times of periodic work.
struct Clock {
    time: Time,
    job_timeout: Nanos,
    next_expiry_check: Nanos,
    /// The number of jobs until the core time of a job is measured again, if no costs are recorded.
    until_sampled: u32,
}

impl Runtime {
    /// Opens one queue per device. Device 0 must be software that can read what every other device writes. Another
    /// device that is lost starts retired, and a probe takes it into service once it is back.
    ///
    /// # Errors
    /// [`StartError`] says what is missing or which device did not open.
    pub fn new(config: RuntimeConfig, waker: &Waker) -> Result<Self, StartError> {
        config.check()?;
        let slots = open_slots(&config, waker)?;
        let states: Vec<_> = slots.iter().map(Slot::state).collect();
        let mut fallback = [Fallback::Prefer; OPS];
        fallback[Op::Compress.index()] = config.compress;
        fallback[Op::Decompress.index()] = config.decompress;
        let names = config.devices.iter().map(|device| device.name().to_owned()).collect();
        let metrics = Metrics::new(names);
        let is_retired = |index: &usize| slots[*index].retired.is_some();
        let retired = (0..slots.len()).filter(is_retired);
        let retired = retired.inspect(|index| metrics.count_lost(*index)).count();
        let mut runtime = Self {
            devices: Devices {
                slots,
                retired,
                dequeue_batch: usize::MAX,
                reprobe_after: config.reprobe_after,
                waker: waker.clone(),
                reputation: config.reputation,
                reputation_seen: 0,
            },
            jobs: Jobs {
                table: JobTable::default(),
                unclaimed: 0,
                admission: None,
                fallbacks: VecDeque::new(),
                fallback_bytes_left: 0,
                hooked: Hooked::default(),
                has_tenants: false,
            },
            decisions: Decisions {
                uses_costs: config.policy.uses_costs(),
                records_costs: config.policy.uses_costs(),
                policy: config.policy,
                fallback,
                cache: DecisionCache::new(&states),
                states,
                chains: config.chains,
                chain_states: Vec::new(),
                history: History::default(),
                draws: Prng::new(config.seed),
            },
            clock: Clock {
                time: Time::exact(config.clock),
                job_timeout: config.job_timeout,
                next_expiry_check: Nanos(0),
                until_sampled: 1,
            },
            metrics: Arc::new(metrics),
        };
        runtime.set_limits(config.limits);
        Ok(runtime)
    }

    /// Returns the counters of this core, which any thread can read.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Sets the policy for the next and later jobs.
    pub fn set_policy(&mut self, policy: Arc<dyn Policy>) {
        self.decisions.uses_costs = policy.uses_costs();
        self.decisions.records_costs |= self.decisions.uses_costs;
        self.decisions.policy = policy;
        self.decisions.cache.forget();
    }

    /// Returns whether the policy needs the number of owners that wait for the core, see [`Runtime::submit_among`].
    pub fn uses_costs(&self) -> bool {
        self.decisions.uses_costs
    }

    /// Bounds the number of completions of each device that one turn delivers. It is unbounded at first. A small bound
    /// keeps a burst of completions from delaying the thread's other work.
    pub fn set_dequeue_batch(&mut self, max: NonZeroUsize) {
        self.devices.dequeue_batch = max.get();
    }

    /// Sets the resolution of the clock. One reading of the clock serves everything that happens within about
    /// `resolution`. This suits drivers that turn without pause while a device must be polled. With zero, the default,
    /// the clock is read for every job. Times in completions and metrics may be too long by up to about `resolution`.
    pub fn set_time_resolution(&mut self, resolution: Nanos) {
        self.clock.time.set_resolution(resolution);
    }

    /// Returns whether `claim` would return the job now.
    pub fn is_finished(&self, ticket: Ticket) -> bool {
        self.jobs.table.get(ticket).is_some_and(Entry::is_finished)
    }

    /// Returns the finished job, or stores the waker to call when it finishes.
    ///
    /// # Panics
    /// Panics if the ticket was claimed or detached before.
    #[inline]
    pub fn claim(&mut self, ticket: Ticket, context: &mut Context<'_>) -> Poll<Finished> {
        let claimed = self.jobs.table.claim(ticket, context.waker());
        if claimed.is_ready() {
            self.jobs.unclaimed -= 1;
        }
        claimed
    }

    /// Drops the caller's interest in a job. The job keeps its buffers until its device returns it, then the buffers
    /// are dropped. A ticket that was claimed or detached before is ignored.
    pub fn detach(&mut self, ticket: Ticket) {
        let Some(entry) = self.jobs.table.get_mut(ticket) else { return };
        match entry.state {
            State::Finished => {
                self.jobs.unclaimed -= 1;
                self.jobs.table.close(ticket);
            }
            State::Waiting | State::Awaited | State::Hooked => {
                entry.state = State::Detached;
                let device = entry.choice.device();
                self.metrics.count_detached();
                if let Some(job) = self.stop_waiting(device, ticket) {
                    drop(job);
                    self.devices.slots[device].waiting -= 1;
                    return self.jobs.table.close(ticket);
                }
                self.devices.slots[device].cancel(ticket.mark());
            }
            State::Detached | State::Free => {}
        }
    }

    /// Polls every device that has jobs, redoes failed jobs in software and wakes the owners. Jobs time out
    /// only here and in sync placements.
    pub fn turn(&mut self) -> Outstanding {
        let outstanding = self.poll_once();
        if outstanding.polled.is_none() {
            self.park();
        }
        outstanding
    }

    /// Turns like `turn`, for a driver that always turns again soon or calls [`park`](Self::park). Until
    /// then, one reading of the clock may serve the jobs that arrive.
    pub fn poll_once(&mut self) -> Outstanding {
        if self.is_idle() {
            self.park();
            return self.outstanding();
        }
        let now = self.clock.time.refresh();
        self.turn_at(now)
    }

    /// Returns whether no job is inside a device or waits for one.
    fn is_idle(&self) -> bool {
        self.devices.slots.iter().all(|slot| slot.in_flight == 0)
            && self.jobs.fallbacks.is_empty()
            && self.jobs.admission.as_ref().is_none_or(|admission| admission.waiting() == 0)
            && !self.has_hooked()
    }

    /// Tells the runtime that the driver does not turn until more jobs arrive. The next job reads the clock.
    pub fn park(&mut self) {
        self.clock.time.expire();
    }

    /// Reads the clock, for a driver that needs the time to decide whether to turn.
    pub(crate) fn refresh_clock(&mut self) -> Nanos {
        self.clock.time.refresh()
    }

    /// Turns like `poll_once`, at the time `now` that the caller has just read.
    pub(crate) fn turn_at(&mut self, now: Nanos) -> Outstanding {
        self.allow_fallbacks();
        self.serve_fallbacks();
        if self.devices.reputation.changes() != self.devices.reputation_seen {
            self.follow_reputation();
        }
        for device in 0..self.devices.slots.len() {
            if self.devices.slots[device].in_flight > 0 {
                self.poll_slot(device, self.devices.dequeue_batch);
            }
        }
        self.expire(now);
        if self.jobs.admission.as_ref().is_some_and(|admission| admission.waiting() > 0) {
            self.serve_waiting(now);
        }
        self.call_hook();
        self.outstanding()
    }

    /// Returns the number of jobs submitted since the start.
    pub(crate) fn arrivals(&self) -> u64 {
        self.decisions.history.arrivals()
    }

    /// Returns the jobs in flight, and when the driver must turn to learn of their completion.
    pub fn outstanding(&self) -> Outstanding {
        let turn_within = self.clock.expiry_check_every();
        let waiting = self.jobs.admission.as_ref().map_or(0, |admission| admission.waiting());
        let jobs = waiting + self.jobs.fallbacks.len();
        let polled = (!self.jobs.fallbacks.is_empty()).then_some(Nanos(0));
        let mut outstanding = Outstanding { jobs, polled, turn_within };
        for slot in &self.devices.slots {
            outstanding.jobs += slot.in_flight;
            if let Some(expected) = slot.poll_within() {
                let sooner = outstanding.polled.map_or(expected, |other| other.min(expected));
                outstanding.polled = Some(sooner);
            }
        }
        self.with_hooked(outstanding)
    }
}

fn open_slots(config: &RuntimeConfig, waker: &Waker) -> Result<Vec<Slot>, StartError> {
    let open = |(index, device): (usize, &Arc<dyn Device>)| {
        let every = config.verify_every.filter(|_| !device.runs_own_code());
        match Slot::open(device, waker.clone(), every) {
            Err(DeviceError::Lost) if index > 0 => {
                Ok(Slot::lost(device, every, config.clock.now(), config.reprobe_after))
            }
            opened => opened.map_err(|error| StartError::Open(device.name().to_owned(), error)),
        }
    };
    config.devices.iter().enumerate().map(open).collect()
}

impl Decisions {
    fn fallback(&self, task: &Task) -> Fallback {
        self.fallback_of(task.op())
    }

    fn fallback_of(&self, op: Op) -> Fallback {
        self.fallback[op.index() % OPS]
    }

    fn may_fall_back(&self, task: &Task) -> bool {
        self.fallback(task) == Fallback::Prefer
    }
}

impl Clock {
    fn expiry_check_every(&self) -> Nanos {
        Nanos(self.job_timeout.0 / EXPIRY_CHECKS_PER_TIMEOUT)
    }
}

/// The jobs in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// The number of jobs not yet returned.
    pub jobs: usize,
    /// The time until the first completion that must be polled is expected. None if no device must be polled.
    pub polled: Option<Nanos>,
    /// The longest time between two turns while jobs are outstanding. A turn finds overdue jobs.
    pub turn_within: Nanos,
}

/// The number of searches for overdue jobs per timeout. A driver that turns as often redoes a job at most a
/// quarter of the timeout late. A runtime that polls without pause does not search more often.
const EXPIRY_CHECKS_PER_TIMEOUT: u64 = 8;

/// The message of the panic if a job has no entry.
const HAS_ENTRY: &str = "a job has its entry until its end";
