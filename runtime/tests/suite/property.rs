//! Tests that no job is lost or delivered twice, whatever the order of events and whatever the devices do wrong. Every
//! result equals software's result, every buffer returns to its pool, and every job is counted once.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::Waker;

use crate::common::*;
use device::{FaultPlan, Job, Loss, Pool, TenantId};
use policy::Reason;
use proptest::prelude::*;
use runtime::{Limits, Runtime, Ticket};
use units::{ByteCount, ManualClock, Nanos};

#[derive(Clone, Debug)]
enum Event {
    Compress,
    Decompress,
    Turn,
    /// Claims one of the held tickets. The index is taken modulo their number.
    Claim(usize),
    Detach(usize),
    Advance(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Compress),
        4 => Just(Event::Decompress),
        4 => Just(Event::Turn),
        3 => any::<usize>().prop_map(Event::Claim),
        1 => any::<usize>().prop_map(Event::Detach),
        2 => (0..TIMEOUT.0).prop_map(Event::Advance),
        1 => Just(Event::Advance(2 * REPROBE.0)),
    ]
}

fn plan() -> impl Strategy<Value = FaultPlan> {
    let lost = (prop::option::of(0..12u64), prop::sample::select(vec![Loss::Reported, Loss::Hang]));
    (any::<u64>(), 0..5u64, 0..5u64, 0..6u64, lost).prop_map(
        |(seed, fail_every, refuse_every, delay_polls, (lose_after, loss))| FaultPlan {
            seed,
            fail_every,
            refuse_every,
            delay_polls,
            // A device that reports its loss at once does not open.
            lose_after: lose_after.map(|after| after + 1),
            loss,
            ..FaultPlan::default()
        },
    )
}

/// A runtime, and the test's knowledge about its jobs.
struct Model {
    core: Runtime,
    clock: ManualClock,
    pool: Pool,
    held: Vec<(u64, Ticket)>,
    submitted: u64,
    delivered: u64,
}

impl Model {
    fn new(plans: [FaultPlan; 2], limits: Limits, batch: usize) -> Self {
        let clock = ManualClock::default();
        let [first, second] = plans.map(faulty);
        let mut config = config(vec![software(), first, second], Arc::new(clock.clone()));
        config.limits = limits;
        let mut core = Runtime::new(config, Waker::noop()).expect("the devices open");
        core.set_dequeue_batch(NonZeroUsize::new(batch).expect("not zero"));
        let pool = Pool::heap(ByteCount(0));
        Self { core, clock, pool, held: Vec::new(), submitted: 0, delivered: 0 }
    }

    fn apply(&mut self, event: &Event) {
        let any = |index: usize| index % self.held.len();
        match *event {
            Event::Compress => self.submit(compress),
            Event::Decompress => self.submit(decompress),
            Event::Turn => {
                self.core.turn();
            }
            Event::Advance(by) => self.clock.advance(Nanos(by)),
            Event::Claim(_) | Event::Detach(_) if self.held.is_empty() => {}
            Event::Claim(index) => {
                self.claim(any(index));
            }
            Event::Detach(index) => {
                let (_, ticket) = self.held.swap_remove(any(index));
                self.core.detach(ticket);
            }
        }
    }

    fn submit(&mut self, job: fn(&Pool, u64) -> Box<Job>) {
        let tag = self.submitted;
        let mut job = job(&self.pool, tag);
        job.tenant = TenantId(tag as u16 % 3);
        job.deadline = tag.is_multiple_of(2).then(|| Nanos(tag % 7 * TIMEOUT.0));
        let ticket = self.core.submit(job);
        self.held.push((tag, ticket));
        self.submitted += 1;
    }

    fn claim(&mut self, index: usize) -> bool {
        let (tag, ticket) = self.held[index];
        let ready = self.core.is_finished(ticket);
        let finished = claim(&mut self.core, ticket);
        assert_eq!(finished.is_some(), ready);
        if let Some(finished) = finished {
            check(&finished, tag);
            self.held.swap_remove(index);
            self.delivered += 1;
        }
        ready
    }

    /// Turns past every timeout and delay. No job may still be inside a device afterwards.
    fn settle(&mut self) {
        for _ in 0..10 {
            self.clock.advance(Nanos(TIMEOUT.0 / 4));
            self.core.turn();
        }
        for index in (0..self.held.len()).rev() {
            assert!(self.claim(index), "a job was lost");
        }
        assert_eq!(self.core.outstanding().polled, None);
    }
}

fn limits() -> impl Strategy<Value = Limits> {
    let some = (1..4usize, 0..6usize);
    let some =
        some.prop_map(|(tenant_jobs_max, waiting_max)| Limits { tenant_jobs_max, waiting_max });
    prop_oneof![Just(Limits::NONE), some]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_job_is_lost_or_delivered_twice(
        plans in [plan(), plan()],
        limits in limits(),
        batch in 1..9usize,
        events in prop::collection::vec(event(), 1..120),
    ) {
        let mut model = Model::new(plans, limits, batch);
        events.iter().for_each(|event| model.apply(event));
        model.settle();
        let metrics = model.core.metrics();
        let counted: u64 = metrics.paths().iter().map(|path| path.jobs).sum();
        let timeouts: u64 = metrics.losses().iter().map(|(_, _, timeouts)| timeouts).sum();
        let by_reason = metrics.fallbacks().into_iter();
        let redone: u64 =
            by_reason.filter(|row| row.1 == Reason::Timeout).map(|(_, _, count)| count).sum();
        // A detached job that timed out has no path. Nor has a job that was detached while it waited.
        let ended = counted + timeouts - redone;
        if limits == Limits::NONE {
            prop_assert_eq!(ended, model.submitted);
        }
        prop_assert!(ended <= model.submitted && ended + metrics.detached() >= model.submitted);
        prop_assert!(model.delivered + metrics.detached() <= model.submitted);
        if model.core.outstanding().jobs == 0 {
            prop_assert_eq!(model.pool.outstanding().0, 0);
        }
        let pool = model.pool.clone();
        drop(model);
        prop_assert_eq!(pool.outstanding().0, 0);
    }
}
