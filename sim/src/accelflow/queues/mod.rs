//! The queues in which ops wait for a PE or a core, and the order in which they get it. Each discipline has one file. A
//! run is generic over its discipline, so it never checks which discipline it has.

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

    /// Returns why no steady state can exist, or none if one can.
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

/// A queueing discipline with its lists. The defaults fit a server with accelerators whose queues have no bound.
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

    /// Starts an op, or lets it wait for a PE or a core. `by_core` says that a core submits it.
    fn enqueue(
        run: &mut Run<'_, Self>,
        op: &OpStep,
        entry: Waiting,
        by_core: bool,
        agenda: &mut Schedule<Self>,
    );

    /// Executes the token's current step, which is neither a fork nor an end. Returns when an output entry that held
    /// its payload is clear.
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

    /// Adds the demand of a step that is made `per_ps` times per picosecond.
    fn add_demand(model: &AccelFlow, step: &Step, per_ps: f64, demand: &mut Demand) {
        demand.add_accelerated(model, step, per_ps);
    }

    /// Returns a text that names a component with more work than it can do, if there is one.
    fn overloaded(demand: &Demand, hardware: &spec::Hardware) -> Option<String> {
        demand.over_servers(0.0, hardware).or_else(|| demand.over_accelerators(hardware))
    }

    /// Returns whether nothing waits in the discipline's lists.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        true
    }
}

/// The event that a PE is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done;

/// Starts an entry on a PE for a manager. The PE is held while the data is on the way.
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

/// Handles the end of an op on a PE that a manager controls: the manager decides what follows, and the PE is free.
/// Returns false if the op did not end.
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
    run.hand_over(unit.kind, token, handoff, agenda.now(), agenda);
    run.stations[unit.kind].give(unit.pe);
    true
}
