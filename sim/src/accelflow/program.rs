//! Compiles the path of a service to a flat list of steps. A step says what a request does, how long this
//! takes, and which component does the work before the next step. The flags of the path decide the branches
//! at compile time, so the list has no branches. The model adds the cost of the branches.

use trace::{Catalog, End, Instruction, Stage, compile};
use units::Op;

use super::ids::Kind;
use super::orchestrators::{Glue, Handoff, Orchestrator, Via};
use super::spec::{APP, Service, Spec, category};
use crate::Picos;

/// The steps of a service, in order.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) steps: Vec<Step>,
    /// The number of times that a request executes each step.
    pub(super) times: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Application work on a core, and the time in which the core then submits ops.
    Core { ps: f64, submits_ps: f64 },
    /// An op of an accelerator.
    Op(OpStep),
    /// Parts of the request begin at the steps `arms`. When all parts have arrived, the request continues at `join`.
    Fork { arms: Vec<u16>, join: u16 },
    /// Notifies a core. This step is an arm of a fork that contains no op.
    Notify,
    /// A part of the request is done.
    Arrive,
    /// The request is done.
    Done,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct OpStep {
    pub(super) kind: Kind,
    pub(super) continuation: Continuation,
    /// Whether a core or a message begins a trace with this op.
    pub(super) begins: bool,
    /// The time of the op on a core.
    pub(super) cpu_ps: f64,
    /// The time for which the op occupies a PE.
    pub(super) pe: Picos,
    /// The accelerator that gets the op's output, if an op follows.
    pub(super) next: Option<Kind>,
    /// The deadline of the op, relative to the request's start.
    pub(super) due: Picos,
    /// The handoffs to what follows, first for a payload that fits an entry and then for a larger payload.
    pub(super) after: [Handoff; 2],
    branches: u32,
    transforms: u32,
    tail: bool,
}

/// The continuation after an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continuation {
    /// The request continues with the next step.
    Next,
    /// The request continues with the next step when the answer to its message has arrived.
    Await,
    /// A core is notified, and the request then continues with the next step.
    Notify,
}

struct Compiler<'a> {
    catalog: &'a Catalog,
    steps: Vec<Step>,
    times: Vec<f64>,
    /// The number of times that a request executes the step that is being added.
    parallel: f64,
    /// The index of the first step of the innermost fork arm. Ops before it do not belong to the arm.
    arm: usize,
}

/// Returns the program of `service`.
///
/// # Errors
/// Returns the reason why there is no program: an op has no accelerator, or a trace waits for a trace that
/// the path does not run.
pub(super) fn program(
    service: &Service,
    spec: &Spec,
    orchestrator: &Orchestrator,
    catalog: &Catalog,
) -> Result<Program, String> {
    let path = catalog.service(&service.name).map(|found| found.path.as_slice());
    let path = path.ok_or_else(|| format!("there is no service {}", service.name))?;
    let (steps, times) = (Vec::new(), Vec::new());
    let mut compiler = Compiler { catalog, steps, times, parallel: 1.0, arm: 0 };
    compiler.stages(path)?;
    compiler.push(Step::Done);
    let mut program = Program { steps: compiler.steps, times: compiler.times };
    program.spread(service, spec);
    program.orchestrate(spec, orchestrator);
    Ok(program)
}

impl Compiler<'_> {
    fn push(&mut self, step: Step) -> usize {
        self.steps.push(step);
        self.times.push(self.parallel);
        self.steps.len() - 1
    }

    fn here(&self) -> Result<u16, String> {
        u16::try_from(self.steps.len()).map_err(|_| "a path of more than 65,535 steps".to_owned())
    }

    fn stages(&mut self, path: &[Stage]) -> Result<(), String> {
        let mut rest = path;
        while let Some((stage, after)) = rest.split_first() {
            rest = after;
            match stage {
                Stage::Cpu => {
                    self.push(Step::Core { ps: 0.0, submits_ps: 0.0 });
                }
                Stage::Parallel { times, path } => {
                    let fork = self.push(Step::Fork { arms: Vec::new(), join: 0 });
                    let arms = vec![self.here()?; *times as usize];
                    let outside = self.parallel;
                    self.parallel *= f64::from(*times);
                    self.stages(path)?;
                    self.push(Step::Arrive);
                    self.parallel = outside;
                    self.steps[fork] = Step::Fork { arms, join: self.here()? };
                }
                Stage::Run { trace, with } => self.run(trace, with, None, &mut rest)?,
            }
        }
        Ok(())
    }

    /// Adds the steps of a trace from its start. `last` is the op whose dispatcher loaded the trace, if one did.
    fn run(
        &mut self,
        trace: &str,
        with: &[String],
        last: Option<usize>,
        rest: &mut &[Stage],
    ) -> Result<(), String> {
        let found = self.catalog.trace(trace).ok_or_else(|| format!("there is no {trace}"))?;
        let first = self.steps.len();
        self.follow(&compile(found), 0, with, None, rest)?;
        if let (None, Some(Step::Op(op))) = (last, self.steps.get_mut(first)) {
            op.begins = true;
        }
        Ok(())
    }

    /// Adds the steps of the instructions from `at` to an end. `last` is the op before them.
    fn follow(
        &mut self,
        code: &[Instruction],
        mut at: usize,
        with: &[String],
        mut last: Option<usize>,
        rest: &mut &[Stage],
    ) -> Result<(), String> {
        while let Some(instruction) = code.get(at) {
            at += 1;
            match instruction {
                Instruction::Run { op, .. } => last = Some(self.op(*op)?),
                Instruction::Trans(..) => {
                    self.last(last, |op| op.transforms += 1);
                }
                Instruction::Branch { condition, on_false } => {
                    self.last(last, |op| op.branches += 1);
                    let mut read = |field: &str| u32::from(with.iter().any(|flag| flag == field));
                    if !condition.holds(&mut read) {
                        at = usize::from(*on_false);
                    }
                }
                Instruction::Jump(to) => at = usize::from(*to),
                Instruction::Fork { arms, join } => {
                    self.fork(code, arms, with, last, rest)?;
                    let Some(join) = join else { return Ok(()) };
                    (at, last) = (usize::from(*join), None);
                }
                Instruction::Arrive { .. } => return Ok(()),
                Instruction::End(End::Notify) if last.is_some_and(|last| last < self.arm) => {
                    self.push(Step::Notify);
                    return Ok(());
                }
                Instruction::End(End::Notify) => {
                    self.last(last, |op| op.continuation = Continuation::Notify);
                    return Ok(());
                }
                Instruction::End(End::Tail(trace)) => {
                    self.last(last, |op| op.tail = true);
                    return self.run(trace, with, last, rest);
                }
                Instruction::End(End::Await { trace, .. }) => {
                    if last.is_some_and(|last| last < self.arm) {
                        return Err(format!(
                            "an arm of a fork waits for {trace} and sends nothing"
                        ));
                    }
                    self.last(last, |op| op.continuation = Continuation::Await);
                    return self.answer(trace, last, rest);
                }
            }
        }
        Ok(())
    }

    /// Adds the steps of the stage that receives the awaited answer.
    fn answer(
        &mut self,
        awaited: &str,
        last: Option<usize>,
        rest: &mut &[Stage],
    ) -> Result<(), String> {
        match rest.split_first() {
            Some((Stage::Run { trace, with }, after)) if trace == awaited => {
                *rest = after;
                self.run(trace, with, last, rest)
            }
            _ => Err(format!("a trace waits for {awaited}, which the path does not run next")),
        }
    }

    fn fork(
        &mut self,
        code: &[Instruction],
        arms: &[u16],
        with: &[String],
        last: Option<usize>,
        rest: &mut &[Stage],
    ) -> Result<(), String> {
        let fork = self.push(Step::Fork { arms: Vec::new(), join: 0 });
        let mut starts = Vec::with_capacity(arms.len());
        let outside = self.arm;
        for arm in arms {
            self.arm = self.steps.len();
            starts.push(self.here()?);
            self.follow(code, usize::from(*arm), with, last, rest)?;
            self.push(Step::Arrive);
        }
        self.arm = outside;
        self.steps[fork] = Step::Fork { arms: starts, join: self.here()? };
        Ok(())
    }

    fn op(&mut self, op: Op) -> Result<usize, String> {
        let kind = Kind::from_op(op).ok_or_else(|| format!("no accelerator does {}", op.name()))?;
        let none = Handoff { via: Via::Core, time: Picos(0), instructions: 0 };
        Ok(self.push(Step::Op(OpStep {
            kind,
            continuation: Continuation::Next,
            begins: false,
            cpu_ps: 0.0,
            pe: Picos(0),
            next: None,
            due: Picos(0),
            after: [none; 2],
            branches: 0,
            transforms: 0,
            tail: false,
        })))
    }

    /// Applies `change` to the op `last`. Without a `last` it does nothing, because a core does the work
    /// before the first op.
    fn last(&mut self, last: Option<usize>, change: impl FnOnce(&mut OpStep)) {
        if let Some(Step::Op(op)) = last.and_then(|last| self.steps.get_mut(last)) {
            change(op);
        }
    }
}

impl Step {
    /// Returns the category of figure 1 to which a core's time for this step belongs.
    fn category(&self) -> Option<usize> {
        match self {
            Step::Core { .. } => Some(APP),
            Step::Op(op) => Some(category(op.kind.op())),
            Step::Fork { .. } | Step::Notify | Step::Arrive | Step::Done => None,
        }
    }
}

impl Program {
    /// Spreads the time of each category evenly over the category's steps. The deadline of an op is the
    /// objective of the response time, times the fraction of the request's time up to the op's end.
    fn spread(&mut self, service: &Service, spec: &Spec) {
        let mut counts = [0.0; APP + 1];
        for (step, times) in self.steps.iter().zip(&self.times) {
            step.category().into_iter().for_each(|category| counts[category] += times);
        }
        let each_ps = |category: usize| {
            service.time_ns * 1e3 * service.shares[category] / f64::max(counts[category], 1.0)
        };
        let enqueue_ps = spec.costs.enqueue_ns * 1e3;
        let mut passed_ps = 0.0;
        let mut passed = Vec::with_capacity(self.steps.len());
        for index in 0..self.steps.len() {
            let submits = self.submits(index) as f64;
            match &mut self.steps[index] {
                Step::Core { ps, submits_ps } => {
                    *ps = each_ps(APP);
                    *submits_ps = submits * enqueue_ps;
                    passed_ps += *ps;
                }
                Step::Op(op) => {
                    op.cpu_ps = each_ps(category(op.kind.op()));
                    let speedup = spec.accelerators[op.kind.index()].speedup;
                    let pe_ps = spec.costs.occupancy * op.cpu_ps / speedup;
                    op.pe = Picos((pe_ps + 0.5) as u64);
                    passed_ps += pe_ps;
                }
                Step::Fork { .. } | Step::Notify | Step::Arrive | Step::Done => {}
            }
            passed.push(passed_ps);
        }
        let budget_ps = service.time_ns * 1e3 * spec.work.slo_factor;
        for (step, passed) in self.steps.iter_mut().zip(passed) {
            if let Step::Op(op) = step {
                op.due = Picos((budget_ps * passed / passed_ps.max(1.0)) as u64);
            }
        }
    }

    /// Returns the number of traces that a core starts after this step.
    fn submits(&self, step: usize) -> usize {
        match self.steps.get(step + 1) {
            Some(Step::Op(_)) => 1,
            Some(Step::Fork { arms, .. }) => arms.len(),
            _ => 0,
        }
    }

    fn orchestrate(&mut self, spec: &Spec, orchestrator: &Orchestrator) {
        for index in 0..self.steps.len() {
            let to = self.kind_behind(index);
            if let Step::Op(op) = &mut self.steps[index] {
                op.next = to;
                op.after = [false, true].map(|large| {
                    let glue = Glue {
                        from: op.kind,
                        to,
                        branches: op.branches,
                        transforms: op.transforms,
                        ends: op.tail || op.continuation != Continuation::Next,
                        loads: op.tail || op.continuation == Continuation::Await,
                        large,
                    };
                    (orchestrator.after)(&glue, spec)
                });
            }
        }
    }

    /// Returns the accelerator that gets the output of the op at `step`, if an op follows.
    fn kind_behind(&self, step: usize) -> Option<Kind> {
        match (&self.steps[step], self.steps.get(step + 1)) {
            (Step::Op(OpStep { continuation: Continuation::Next, .. }), Some(Step::Op(next))) => {
                Some(next.kind)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Architecture;
    use super::super::tests::spec;
    use super::*;

    fn programs(architecture: Architecture) -> Vec<(String, Program)> {
        let (spec, catalog) = (spec("steady", &[]), trace::accelflow());
        let orchestrator = architecture.orchestrator();
        let of = |one: &Service| {
            (one.name.clone(), program(one, &spec, &orchestrator, &catalog).expect("a program"))
        };
        spec.services.iter().map(of).collect()
    }

    #[test]
    fn ops_are_the_published_counts_and_their_times_figure_1() {
        let counts = [87.0, 28.0, 18.0, 30.0, 29.0, 19.0, 9.0, 25.0];
        let spec = spec("steady", &[]);
        for (((name, program), count), service) in
            programs(Architecture::AccelFlow).iter().zip(counts).zip(&spec.services)
        {
            let (mut ops, mut ps) = (0.0, 0.0);
            for (step, times) in program.steps.iter().zip(&program.times) {
                match step {
                    Step::Op(op) => (ops, ps) = (ops + times, ps + times * op.cpu_ps),
                    Step::Core { ps: step_ps, .. } => ps += times * step_ps,
                    _ => {}
                }
            }
            assert_eq!(ops, count, "{name}");
            let all: f64 = service.shares.iter().sum();
            let unused =
                if ["Login", "RegUsr"].contains(&name.as_str()) { service.shares[4] } else { 0.0 };
            let expected = service.time_ns * (all - unused);
            assert!((ps * 1e-3 / expected - 1.0).abs() < 1e-9, "{name}: {ps} {expected}");
        }
    }

    #[test]
    fn the_dispatchers_instructions_are_the_published_ones() {
        let (mut sum, mut count, mut most) = (0.0, 0.0, 0);
        for (_, program) in programs(Architecture::AccelFlow) {
            for (step, times) in program.steps.iter().zip(&program.times) {
                if let Step::Op(op) = step {
                    sum += times * f64::from(op.after[0].instructions);
                    count += times;
                    most = most.max(op.after[0].instructions);
                }
            }
        }
        // Of 245 ops, 53 end a trace, and 39 branches and 11 transforms follow ops. The paper gives an average of 18
        // and a maximum of about 50. It does not say which ops these are and how often they occur.
        let expected = f64::from(15 * 245 + 16 * 53 + 7 * 39 + 12 * 11) / 245.0;
        assert!((sum / count - expected).abs() < 1e-9, "{} {expected}", sum / count);
        assert_eq!(most, 15 + 2 * 7 + 12, "T10: two branches and a transform behind one op");
    }

    #[test]
    fn t6_goes_two_ways_and_joins() {
        let (_, login) = programs(Architecture::AccelFlow).swap_remove(4);
        let forks: Vec<&Step> =
            login.steps.iter().filter(|step| matches!(step, Step::Fork { .. })).collect();
        let [Step::Fork { arms, join }] = forks.as_slice() else { panic!("{forks:?}") };
        assert_eq!(arms.len(), 2);
        assert!(matches!(login.steps[usize::from(*join)], Step::Core { .. }));
    }

    #[test]
    fn an_arm_that_only_notifies_delays_none() {
        let text = "trace T takes json {
            serialize
            fork { notify } and { encrypt tcp notify }
        }
        service UniqId { cpu run T }";
        let catalog = trace::read(&[("own", text)]).expect("no faults");
        let spec = spec("steady", &[]);
        let service = spec.services.iter().find(|one| one.name == "UniqId").expect("it is there");
        let orchestrator = Architecture::AccelFlow.orchestrator();
        let found = program(service, &spec, &orchestrator, &catalog).expect("a program");
        let words: Vec<&str> = found
            .steps
            .iter()
            .map(|step| match step {
                Step::Op(op) if op.continuation == Continuation::Notify => "op, told",
                Step::Op(_) => "op",
                Step::Core { .. } => "core",
                Step::Fork { .. } => "fork",
                Step::Notify => "told",
                Step::Arrive => "arrive",
                Step::Done => "done",
            })
            .collect();
        let arms = ["told", "arrive", "op", "op, told", "arrive"];
        assert_eq!(words, [&["core", "op", "fork"][..], &arms, &["done"]].concat());
    }

    #[test]
    fn events_of_a_request_are_what_the_manual_says() {
        // One event for the arrival, one for each op that a dispatcher passes on, one for each core's work, and one for
        // each notification.
        let programs = programs(Architecture::AccelFlow);
        let of = |(_, program): &(String, Program)| {
            let each = |(step, times): (&Step, &f64)| match step {
                Step::Op(op) if op.continuation == Continuation::Notify => 2.0 * times,
                Step::Op(_) | Step::Core { .. } | Step::Notify => *times,
                Step::Fork { .. } | Step::Arrive | Step::Done => 0.0,
            };
            1.0 + program.steps.iter().zip(&program.times).map(each).sum::<f64>()
        };
        let mean = programs.iter().map(of).sum::<f64>() / programs.len() as f64;
        let manual = include_str!("../../../docs/operating/sim.md").split_whitespace();
        let manual = manual.collect::<Vec<_>>().join(" ");
        let said = manual.split_once(" events on average; a test computes");
        let said = said.and_then(|(before, _)| before.rsplit(' ').next()).expect("it is said");
        assert_eq!(said.parse(), Ok((mean * 10.0).round() / 10.0), "{mean}");
    }

    #[test]
    fn who_handles_a_branch_is_the_architectures() {
        let vias = |architecture| {
            let (_, unique) = programs(architecture).swap_remove(6);
            let of = |step: &Step| match step {
                Step::Op(op) => Some([op.after[0].via, op.after[1].via]),
                _ => None,
            };
            unique.steps.iter().filter_map(of).collect::<Vec<_>>()
        };
        use Via::{Core, Dispatcher, Manager};
        // T1: tcp, decrypt, rpc, deserialize with a branch, load-balance.
        assert_eq!(vias(Architecture::AccelFlow)[3], [Dispatcher, Dispatcher]);
        assert_eq!(vias(Architecture::ControlFlow)[3], [Dispatcher, Manager]);
        assert_eq!(vias(Architecture::Direct)[3], [Manager, Manager]);
        assert_eq!(vias(Architecture::Direct)[0], [Dispatcher, Manager]);
        assert_eq!(vias(Architecture::Relief)[0], [Manager, Manager]);
        assert_eq!(vias(Architecture::Cohort)[..2], [[Dispatcher, Core], [Core, Core]]);
        assert_eq!(vias(Architecture::CpuCentric)[0], [Core, Core]);
    }
}
