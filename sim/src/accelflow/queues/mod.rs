//! The queues in which ops wait for a PE or a core, and the order in which they are served. Each discipline
//! has one file. A run is generic over its discipline, so it never checks which discipline it has.

mod central;
mod hardware;
mod laxity;
mod per_type;
mod software;

pub(super) use central::Central;
pub(super) use hardware::Hardware;
pub(super) use laxity::Laxity;
pub(super) use per_type::PerType;
pub(super) use software::Software;

use super::AccelFlow;
use super::demand::Demand;
use super::fabric::Payload;
use super::ids::{Site, TokenId, Unit};
use super::program::{OpStep, Step};
use super::run::{self, Event, Run, Schedule, Window, WindowResult};
use super::spec::{self, Spec};
use super::station::{Shape, Span, Waiting};
use crate::Picos;
use crate::study::RunError;

/// The name of a discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queues {
    /// There are no accelerators, so ops run on cores.
    Software,
    /// Ops wait in one list of the manager for all accelerators, first in, first out.
    Central,
    /// Ops wait in a list of the manager for each accelerator, first in, first out.
    PerType,
    /// Ops wait in a list of the manager for each accelerator, ordered by laxity.
    Laxity,
    /// Ops wait in the finite input queues of the accelerators.
    Hardware,
}

impl Queues {
    /// Simulates one window, or a whole replication if it has no windows.
    pub(super) fn run(
        self,
        model: &AccelFlow,
        window: &Window<'_>,
    ) -> Result<WindowResult, RunError> {
        match self {
            Queues::Software => run::window::<Software>(model, window),
            Queues::Central => run::window::<Central>(model, window),
            Queues::PerType => run::window::<PerType>(model, window),
            Queues::Laxity => run::window::<Laxity>(model, window),
            Queues::Hardware => run::window::<Hardware>(model, window),
        }
    }

    /// Returns the reason why the model has no steady state, or none if it may have one.
    pub(super) fn overload(self, model: &AccelFlow) -> Option<String> {
        match self {
            Queues::Software => Demand::overload::<Software>(model),
            Queues::Central => Demand::overload::<Central>(model),
            Queues::PerType => Demand::overload::<PerType>(model),
            Queues::Laxity => Demand::overload::<Laxity>(model),
            Queues::Hardware => Demand::overload::<Hardware>(model),
        }
    }
}

/// A queueing discipline and its lists. The default methods are for accelerators with unbounded queues.
pub(super) trait Discipline: Default {
    /// The events of PEs.
    type Event: Copy;

    /// Returns the size of an accelerator's station.
    fn shape(spec: &Spec) -> Shape {
        Shape::without_queues(spec.hardware.pes)
    }

    /// Handles an event of a PE that works for a token.
    fn handle(
        run: &mut Run<'_, Self>,
        event: Self::Event,
        unit: Unit,
        token: TokenId,
        agenda: &mut Schedule<Self>,
    );

    /// Starts an op, or lets it wait for a PE or a core. `by_core` is true if a core submits the op.
    fn enqueue(
        run: &mut Run<'_, Self>,
        op: &OpStep,
        entry: Waiting,
        by_core: bool,
        agenda: &mut Schedule<Self>,
    );

    /// Executes the token's current step, which is neither a fork nor an end. Returns the time at which its
    /// payload's output entry is clear.
    #[inline(always)]
    fn step(
        run: &mut Run<'_, Self>,
        token: TokenId,
        payload: Payload,
        agenda: &mut Schedule<Self>,
    ) -> Picos {
        run.accelerated_step(token, payload, agenda)
    }

    /// Handles the end of a core's application work.
    fn segment_done(run: &mut Run<'_, Self>, token: TokenId, agenda: &mut Schedule<Self>) {
        let payload = Payload { site: Site::CORES, ready: agenda.now() };
        run.advance(token, payload, agenda);
    }

    /// Handles an answer that has not arrived in time.
    fn unanswered(run: &mut Run<'_, Self>, token: TokenId, agenda: &mut Schedule<Self>) {
        agenda.after(run.model.notify, Event::Failed { token });
    }

    /// Adds the demand of a step that is executed `per_ps` times per picosecond.
    fn add_demand(model: &AccelFlow, step: &Step, per_ps: f64, demand: &mut Demand) {
        demand.add_accelerated(model, step, per_ps);
    }

    /// Returns an error text that names an overloaded component, if there is one.
    fn overloaded(demand: &Demand, hardware: &spec::Hardware) -> Option<String> {
        demand.over_servers(0.0, hardware).or_else(|| demand.over_accelerators(hardware))
    }

    /// Returns whether the discipline's lists are empty.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        true
    }
}

/// The event that a PE is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done;

/// Starts an op on a PE that a manager controls. The PE is busy from now on, even if its data is on the way.
#[inline(never)]
fn begin_held<D: Discipline<Event = Done>>(
    run: &mut Run<'_, D>,
    unit: Unit,
    entry: Waiting,
    agenda: &mut Schedule<D>,
) {
    let op = run.op(entry.token);
    let start = agenda.now();
    let span = Span { start, ..run.service(op, entry, start) };
    let end = run.occupy(unit, entry, span);
    agenda.at(end, Event::Pe { event: Done, unit, token: entry.token });
}

/// Handles the end of an op on a PE that a manager controls. The manager decides what follows, and the PE
/// becomes free. Returns false if the op did not end.
#[inline(always)]
fn release_held<D: Discipline>(
    run: &mut Run<'_, D>,
    unit: Unit,
    token: TokenId,
    agenda: &mut Schedule<D>,
) -> bool {
    if !run.ends_service(unit, token, agenda) {
        return false;
    }
    let handoff = run.handoff(token);
    run.decide_next(unit.kind, token, handoff, agenda.now(), agenda);
    run.stations[unit.kind].give(unit.pe);
    true
}
