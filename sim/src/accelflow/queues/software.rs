//! The discipline of a server without accelerators. A core also does the ops of a request, and it continues
//! until the request ends, forks or waits.

use std::convert::Infallible;

use super::Discipline;
use crate::Picos;
use crate::accelflow::AccelFlow;
use crate::accelflow::branches::chosen;
use crate::accelflow::cores::{CoreJob, What};
use crate::accelflow::demand::Demand;
use crate::accelflow::fabric::Payload;
use crate::accelflow::ids::{Site, TokenId, Unit};
use crate::accelflow::program::{Continuation, OpStep, Step};
use crate::accelflow::run::{Run, Schedule};
use crate::accelflow::station::Waiting;

/// The discipline has no lists, because the cores have the queues.
#[derive(Debug, Default)]
pub(in crate::accelflow) struct Software;

impl Discipline for Software {
    type Event = Infallible;

    fn handle(
        _: &mut Run<'_, Self>,
        event: Infallible,
        _: Unit,
        _: TokenId,
        _: &mut Schedule<Self>,
    ) {
        match event {}
    }

    fn enqueue(
        run: &mut Run<'_, Self>,
        _: &OpStep,
        entry: Waiting,
        _: bool,
        agenda: &mut Schedule<Self>,
    ) {
        run_on_core(run, entry.token, agenda);
    }

    fn step(
        run: &mut Run<'_, Self>,
        token: TokenId,
        payload: Payload,
        agenda: &mut Schedule<Self>,
    ) -> Picos {
        run_on_core(run, token, agenda);
        payload.ready
    }

    fn segment_done(run: &mut Run<'_, Self>, token: TokenId, agenda: &mut Schedule<Self>) {
        let now = agenda.now();
        if matches!(run.step(token), Step::Op(_)) {
            // The request has sent a message and waits for the answer.
            run.tokens[token].at += 1;
            run.wait(token, now, agenda);
        } else {
            run.advance(token, Payload { site: Site::CORES, ready: now }, agenda);
        }
    }

    fn unanswered(run: &mut Run<'_, Self>, token: TokenId, agenda: &mut Schedule<Self>) {
        run.fail(token, agenda);
    }

    fn add_demand(_: &AccelFlow, step: &Step, per_ps: f64, demand: &mut Demand) {
        match step {
            Step::Core { ps, .. } => demand.cores += per_ps * ps,
            Step::Op(op) => demand.cores += per_ps * op.cpu_ps,
            _ => {}
        }
    }
}

fn run_on_core(run: &mut Run<'_, Software>, token: TokenId, agenda: &mut Schedule<Software>) {
    let state = run.tokens[token];
    let (mut at, mut ps) = (state.at, 0.0);
    loop {
        match &run.model.steps[usize::from(at)] {
            Step::Core { ps: step_ps, .. } => ps += step_ps * state.app,
            Step::Op(op) => {
                ps += op.cpu_ps * state.draw(at, op.kind, &run.model.sizes).point.factor();
                if op.continuation == Continuation::Await && run.model.spec.work.remote_ns > 0.0 {
                    break;
                }
            }
            Step::Notify => {}
            Step::Choose { ways, .. } => {
                at = chosen(ways, state.key, at);
                continue;
            }
            Step::Jump(to) => {
                at = *to;
                continue;
            }
            Step::Fork { .. } | Step::Arrive | Step::Done => break,
        }
        at += 1;
    }
    run.tokens[token].at = at;
    let time = Picos((ps + 0.5) as u64);
    run.offer_core(CoreJob { token, what: What::Segment, time }, agenda);
}
