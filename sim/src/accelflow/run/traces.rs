//! Traces that wait: for an answer, which may not come in time, or for a tenant's other traces to end. The run does
//! what follows the wait.

use super::*;

impl Run<'_> {
    /// The trace that receives an answer sleeps in TCP's input queue.
    pub(super) fn wait(&mut self, token: u32, ready: Picos, agenda: &mut Agenda<Event>) {
        let (op, state) = (self.op(token), self.tokens[token as usize]);
        let kind = op.kind;
        if self.model.spec.work.remote_ns == 0.0 {
            self.enqueue(token, op, ready, false, agenda);
            return;
        }
        let remote = self.remote(&state, kind);
        self.time_out(token, remote);
        self.stations[usize::from(kind)].asleep += 1;
        let time = ready + remote.min(self.model.spec.work.timeout);
        agenda.at(time, Event::Answer { token });
    }

    /// Handles the end of a wait: the answer is here, or it has not come in time and a core is told.
    pub(super) fn answer(&mut self, token: u32, agenda: &mut Agenda<Event>) {
        let op = self.op(token);
        self.stations[usize::from(op.kind)].asleep -= 1;
        match (self.tokens[token as usize].failed, self.model.queues) {
            (true, Queues::None) => self.fail(token, agenda),
            (true, _) => agenda.after(self.model.notify, Event::Failed { token }),
            (false, Queues::None) => self.run_on_core(token, agenda),
            (false, _) => self.enqueue(token, op, agenda.now(), false, agenda),
        }
    }

    /// The request ends without having been answered; a part of one does, and the others go on to their own ends.
    pub(super) fn fail(&mut self, token: u32, agenda: &mut Agenda<Event>) {
        self.end_trace(token, agenda);
        if self.tokens[token as usize].parent == WHOLE {
            self.complete(token, agenda);
        } else {
            self.join(token, agenda);
        }
    }

    /// Returns the time that the other side takes, which is the same for all architectures.
    fn remote(&self, state: &Token, kind: u8) -> Picos {
        let hash = crate::streams::mix(state.draw(state.at, kind, &self.model.sizes).0 ^ REMOTE);
        let unit = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        Picos::from_ns(-ln(unit) * self.model.spec.work.remote_ns)
    }

    fn time_out(&mut self, token: u32, remote: Picos) {
        if remote > self.model.spec.work.timeout {
            self.counts.timeouts += 1;
            self.tokens[token as usize].failed = true;
        }
    }

    /// A trace starts: true if its tenant has as many as it may and this one is held back.
    pub(super) fn held(&mut self, token: u32, place: usize) -> bool {
        let Some(limit) = self.model.spec.tenants.traces_max else { return false };
        let state = &mut self.tokens[token as usize];
        let tenant = &mut self.tenants[usize::from(state.tenant)];
        if tenant.live >= limit {
            tenant.held.push_back((token, place));
            return true;
        }
        tenant.live += 1;
        state.traced = true;
        false
    }

    pub(super) fn end_trace(&mut self, token: u32, agenda: &mut Agenda<Event>) {
        let state = &mut self.tokens[token as usize];
        if !state.traced {
            return;
        }
        state.traced = false;
        let tenant = &mut self.tenants[usize::from(state.tenant)];
        tenant.live -= 1;
        if let Some((held, place)) = tenant.held.pop_front() {
            self.advance(held, place, agenda.now(), agenda);
        }
    }
}

/// Tells the draws of answers from those of sizes.
const REMOTE: u64 = 0x5851_f42d_4c95_7f2d;
