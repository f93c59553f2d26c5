//! Handles traces that wait: for an answer, which may not arrive in time, or for the end of other traces of
//! the tenant. The run executes what follows the wait.

use super::*;
use crate::draws::ln;

impl<D: Discipline> Run<'_, D> {
    /// Lets the trace that receives an answer sleep in TCP's input queue until the answer arrives.
    pub(in crate::accelflow) fn wait(
        &mut self,
        token: TokenId,
        ready: Picos,
        agenda: &mut Schedule<D>,
    ) {
        let (op, state) = (self.op(token), self.tokens[token]);
        if self.model.spec.work.remote_ns == 0.0 {
            D::enqueue(self, op, Waiting { token, turn: 0, ready }, false, agenda);
            return;
        }
        let remote = self.remote(&state, op.kind);
        self.time_out(token, remote);
        self.stations[op.kind].asleep += 1;
        let time = ready + remote.min(self.model.spec.work.timeout);
        agenda.at(time, Event::Answer { token });
    }

    /// Handles the end of a wait: either the answer has arrived, or it is late and a core is notified.
    pub(super) fn answer(&mut self, token: TokenId, agenda: &mut Schedule<D>) {
        let op = self.op(token);
        self.stations[op.kind].asleep -= 1;
        if self.tokens[token].failed {
            D::unanswered(self, token, agenda);
        } else {
            let entry = Waiting { token, turn: 0, ready: agenda.now() };
            D::enqueue(self, op, entry, false, agenda);
        }
    }

    /// Ends a request without an answer. If the token is a part of a request, only this part ends, and the other parts
    /// continue to their ends.
    pub(in crate::accelflow) fn fail(&mut self, token: TokenId, agenda: &mut Schedule<D>) {
        self.end_trace(token, agenda);
        if self.tokens[token].parent == TokenId::NONE {
            self.complete(token, agenda);
        } else {
            self.join(token, agenda);
        }
    }

    /// Returns the time that the remote side takes to answer. It is the same for all architectures.
    fn remote(&self, state: &Token, kind: Kind) -> Picos {
        let hash = crate::streams::mix(state.draw(state.at, kind, &self.model.sizes).hash ^ REMOTE);
        let unit = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        Picos::from_ns(-ln(unit) * self.model.spec.work.remote_ns)
    }

    fn time_out(&mut self, token: TokenId, remote: Picos) {
        if remote > self.model.spec.work.timeout {
            self.counts.timeouts += 1;
            self.tokens[token].failed = true;
        }
    }

    /// Starts a trace, or holds it back if its tenant has as many live traces as allowed. Returns whether the trace is
    /// held back.
    pub(super) fn is_held(&mut self, token: TokenId, site: Site) -> bool {
        let Some(limit) = self.model.spec.tenants.traces_max else { return false };
        let state = &mut self.tokens[token];
        let tenant = &mut self.tenants[usize::from(state.tenant)];
        if tenant.live >= limit {
            tenant.held.push_back(Held { token, site });
            return true;
        }
        tenant.live += 1;
        state.traced = true;
        false
    }

    pub(super) fn end_trace(&mut self, token: TokenId, agenda: &mut Schedule<D>) {
        let state = &mut self.tokens[token];
        if !state.traced {
            return;
        }
        state.traced = false;
        let tenant = &mut self.tenants[usize::from(state.tenant)];
        tenant.live -= 1;
        if let Some(Held { token, site }) = tenant.held.pop_front() {
            self.advance(token, Payload { site, ready: agenda.now() }, agenda);
        }
    }
}

/// Separates the draws of answer times from the draws of sizes.
const REMOTE: u64 = 0x5851_f42d_4c95_7f2d;
