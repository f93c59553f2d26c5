//! Jobs with chains: the policy places the whole chain, or says that its ops go apart. Once it is placed, such a job is
//! submitted, polled and recovered like any other.

use device::{Chain, Job};
use policy::{ChainChoice, ChainStep, Choice, DeviceState, JobFacts, Placement, Snapshot};
use units::Nanos;

use super::Runtime;
use super::submit::facts;
use crate::config::Fallback;
use crate::entry::Ticket;
use crate::slot::{JobShape, Slot};

impl Runtime {
    /// Places a job with its chain, so that one device runs all of it. Returns the job if its ops must be placed one by
    /// one.
    ///
    /// # Errors
    /// The job, unchanged, if the policy or the configuration wants the ops apart.
    pub fn submit_chain(&mut self, job: Box<Job>) -> Result<Ticket, Box<Job>> {
        self.allow_fallbacks();
        let now = self.clock.time.now();
        match self.choose_for_chain(&job, now) {
            Some(choice) => {
                self.decisions.history.count();
                Ok(self.place(job, choice, now))
            }
            None => {
                job.chain.iter().for_each(|chain| self.metrics.count_apart(chain));
                Err(job)
            }
        }
    }

    /// Returns whether the configuration allows chains.
    pub(crate) fn allows_chains(&self) -> bool {
        self.decisions.chains
    }

    fn choose_for_chain(&mut self, job: &Job, now: Nanos) -> Option<Choice> {
        let chain = job.chain.as_ref().filter(|_| self.decisions.chains)?;
        // The configuration of an op is for jobs of that op.
        let prefers = |op: units::Op| self.decisions.fallback_of(op) == Fallback::Prefer;
        let mut ops = chain.follows().iter().map(|follow| follow.op());
        if !prefers(chain.first()) || !ops.all(prefers) {
            return None;
        }
        if self.devices.retired > 0
            && self.devices.reputation.changes() != self.devices.reputation_seen
        {
            self.follow_reputation();
        }
        if self.devices.retired > 0
            && self.devices.slots.iter().any(|slot| slot.may_probe(job, now))
        {
            // The first op by itself tells whether the device works again.
            return None;
        }
        let drawn = self.draw(job, now);
        let mut states = std::mem::take(&mut self.decisions.chain_states);
        self.update_chain_states(&mut states, job, chain);
        let snapshots = states.iter().map(|states| Snapshot {
            devices: states,
            waiting: self.jobs.unclaimed,
            gap: drawn.gap,
        });
        let whole_facts = JobFacts { op: chain.first(), ..facts(job, chain.work_bytes(), now) };
        let mut all = std::iter::once(whole_facts)
            .chain(std::iter::once(whole_facts))
            .chain(chain.follows().iter().map(|follow| JobFacts {
                op: follow.op(),
                dialect: None,
                work_bytes: follow.work_bytes(),
                ..whole_facts
            }))
            .zip(snapshots)
            .map(|(job, snapshot)| ChainStep { job, snapshot });
        let whole = all.next()?;
        let apart: Vec<ChainStep<'_>> = all.collect();
        let chosen = self.decisions.policy.place_chain(&whole, &apart, drawn.draw);
        drop(apart);
        self.decisions.chain_states = states;
        let ChainChoice::Whole(mut choice) = chosen else { return None };
        if choice.placement == Placement::Sync
            && !self.devices.slots[choice.device()].device.completes_alone()
        {
            choice.placement = Placement::Async;
        }
        if job.deadline.is_some() {
            self.decisions.records_costs = true;
            choice = self.in_time(choice, job, now);
        }
        Some(choice)
    }

    /// Updates the states of the devices: for the whole chain, for its first op, and for each following op.
    fn update_chain_states(
        &mut self,
        states: &mut Vec<Vec<DeviceState>>,
        job: &Job,
        chain: &Chain,
    ) {
        states.resize_with(2 + chain.follows().len(), Vec::new);
        let arrivals = self.decisions.history.arrivals();
        let uses_costs = self.decisions.uses_costs;
        let shape = JobShape::new(job);
        for states in states.iter_mut() {
            states.clear();
        }
        for slot in &mut self.devices.slots {
            let mut first = slot.state();
            slot.update(&mut first, &shape);
            let mut whole = first;
            whole.eligible &= runs_whole(slot, chain);
            let backlog_bytes = slot.backlog_bytes();
            let estimate = |state: &mut DeviceState, kind: usize, bytes: usize| {
                if uses_costs {
                    slot.estimate_kind(state, (kind, bytes), backlog_bytes, arrivals);
                }
            };
            estimate(&mut whole, shape.kind, shape.work_bytes);
            estimate(&mut first, chain.first().index(), shape.work_bytes);
            states[0].push(whole);
            states[1].push(first);
            for (states, follow) in states[2..].iter_mut().zip(chain.follows()) {
                let mut state = first;
                state.eligible = state.healthy && slot.capabilities.has_op(follow.op());
                (state.estimated, state.host) = (None, None);
                estimate(&mut state, follow.op().index(), follow.work_bytes());
                states.push(state);
            }
        }
    }
}

/// Returns whether the device runs all ops of the chain in one trip.
fn runs_whole(slot: &Slot, chain: &Chain) -> bool {
    let has = |op| slot.capabilities.has_op(op);
    chain.follows().iter().all(|follow| has(follow.op()))
        && chain.successions().all(|(first, second)| slot.successions.has(first, second))
}
