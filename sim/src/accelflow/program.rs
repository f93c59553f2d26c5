//! Compiles the path of a service to a flat list of steps. A step says what a request does, how long this
//! takes, and which component does the work before the next step. The flags of the path are the most common outcomes of
//! its branches. Where a branch may have another outcome, the list has a choice between ways (`branches.rs`). The model
//! adds the cost of the branches.

use trace::{Catalog, End, Instruction, Stage, compile};
use units::Op;

use super::branches::{Branches, Outcomes, Passed, Way, ways};
use super::ids::Kind;
use super::orchestrators::{Glue, Handoff, Orchestrator, Via};
use super::spec::{APP, Service, Spec, category};
use crate::Picos;

/// The steps of a service, in order.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) steps: Vec<Step>,
    /// The mean number of times that a request executes each step.
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
    /// The request draws one of several ways, which lead to `join` or to the end of its part.
    Choose { ways: Vec<Way>, join: u16 },
    /// The request continues at this step.
    Jump(u16),
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
    branches: &'a Branches,
    /// The outcomes of the branches on the way that is being compiled.
    outcomes: Outcomes,
    /// Whether an unusual outcome has ended the request's part.
    is_over: bool,
    /// The jumps to the end of the request's part, whose index is not yet known.
    exits: Vec<usize>,
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
    let mut compiler = Compiler {
        catalog,
        steps,
        times,
        parallel: 1.0,
        arm: 0,
        branches: &spec.branches,
        outcomes: Outcomes::common(),
        is_over: false,
        exits: Vec::new(),
    };
    compiler.stages(path)?;
    compiler.end_part(Step::Done)?;
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
                    let exits = std::mem::take(&mut self.exits);
                    self.parallel *= f64::from(*times);
                    self.stages(path)?;
                    self.end_part(Step::Arrive)?;
                    (self.parallel, self.exits) = (outside, exits);
                    self.steps[fork] = Step::Fork { arms, join: self.here()? };
                }
                Stage::Run { trace, with } => self.chain(trace, with, &mut rest)?,
            }
        }
        Ok(())
    }

    /// Adds the last step of the request or of a part of it.
    fn end_part(&mut self, last: Step) -> Result<(), String> {
        let end = self.here()?;
        for exit in self.exits.drain(..) {
            self.steps[exit] = Step::Jump(end);
        }
        self.push(last);
        Ok(())
    }

    /// Adds the steps of a trace and of those that receive the answers to its messages. If branches may have several
    /// outcomes, the request draws one of several ways.
    fn chain(&mut self, trace: &str, with: &[String], rest: &mut &[Stage]) -> Result<(), String> {
        let (first, stages) = (self.steps.len(), *rest);
        self.outcomes = Outcomes::common();
        self.run(trace, with, None, rest)?;
        if !self.outcomes.vary() {
            return Ok(());
        }
        self.steps.truncate(first);
        self.times.truncate(first);
        self.push(Step::Choose { ways: Vec::new(), join: 0 });
        // The other ways pass over the stages that only the most common way runs.
        let consumed = &stages[..stages.len() - rest.len()];
        let (mut found, mut jumps) = (Vec::new(), Vec::new());
        let mut next = Some(Outcomes::common());
        while let Some(outcomes) = next {
            if found.len() == WAYS_MAX {
                return Err(format!("the branches of {trace} give more than {WAYS_MAX} ways"));
            }
            (self.outcomes, self.is_over) = (outcomes, false);
            let start = self.here()?;
            let mut left = consumed;
            self.run(trace, with, None, &mut left)?;
            let jump = self.push(Step::Jump(0));
            let jumps = if self.is_over { &mut self.exits } else { &mut jumps };
            jumps.push(jump);
            let probability = self.outcomes.probability();
            let steps = &mut self.times[usize::from(start)..];
            steps.iter_mut().for_each(|times| *times *= probability);
            found.push((probability, start));
            next = std::mem::replace(&mut self.outcomes, Outcomes::common()).following();
        }
        let join = self.here()?;
        jumps.into_iter().for_each(|jump| self.steps[jump] = Step::Jump(join));
        self.steps[first] = Step::Choose { ways: ways(&found), join };
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
                    let (branches, outcomes) = (self.branches, &mut self.outcomes);
                    let mut read = |field: &str| {
                        let usual = with.iter().any(|flag| flag == field);
                        u32::from(usual == outcomes.next(branches.common(field)))
                    };
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
                    self.is_over |= trace == ERROR && self.outcomes.leave_the_common_path();
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
            _ if self.outcomes.leave_the_common_path() => {
                let usual = USUAL.map(str::to_owned);
                self.run(awaited, &usual, last, rest)
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
            Step::Fork { .. }
            | Step::Notify
            | Step::Choose { .. }
            | Step::Jump(_)
            | Step::Arrive
            | Step::Done => None,
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
            let count = if counts[category] > 0.0 { counts[category] } else { 1.0 };
            service.time_ns * 1e3 * service.shares[category] / count
        };
        let enqueue_ps = spec.costs.enqueue_ns * 1e3;
        let mut time = Passed::default();
        let mut passed = Vec::with_capacity(self.steps.len());
        for index in 0..self.steps.len() {
            let submits = self.submits(index) as f64;
            time.reach(index, &self.steps[index], self.times[index]);
            match &mut self.steps[index] {
                Step::Core { ps, submits_ps } => {
                    *ps = each_ps(APP);
                    *submits_ps = submits * enqueue_ps;
                    time.add(*ps);
                }
                Step::Op(op) => {
                    op.cpu_ps = each_ps(category(op.kind.op()));
                    let speedup = spec.accelerators[op.kind.index()].speedup;
                    let pe_ps = spec.costs.occupancy * op.cpu_ps / speedup;
                    op.pe = Picos((pe_ps + 0.5) as u64);
                    time.add(pe_ps);
                }
                _ => {}
            }
            passed.push(time.ps);
        }
        let passed_ps = time.ps;
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
            Some(Step::Op(_) | Step::Choose { .. }) => 1,
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

/// The trace that tells the user of an error. After an unusual outcome it ends the request's part.
const ERROR: &str = "error";
/// The flags of a trace that only an unusual outcome runs, which the path does not name: a database finds what a cache
/// does not have.
const USUAL: [&str; 1] = ["found"];
/// The greatest number of ways through one chain of traces.
const WAYS_MAX: usize = 256;

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

    /// Sets every field of a branch to the value of the most common path with this probability.
    fn uncertain(probability: &'static str) -> Vec<(String, &'static str)> {
        let key = |field: &str| format!("branches.{}", field.replace('-', "_"));
        super::super::branches::FIELDS.map(|field| (key(field), probability)).to_vec()
    }

    #[test]
    fn ways_share_the_time_of_figure_1() {
        let set = uncertain("0.75");
        let set: Vec<(&str, &str)> =
            set.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        let (spec, catalog) = (spec("steady", &set), trace::accelflow());
        let orchestrator = Architecture::AccelFlow.orchestrator();
        for service in &spec.services {
            let found = program(service, &spec, &orchestrator, &catalog).expect("a program");
            let (mut ps, mut choices) = (0.0, 0);
            for (index, (step, times)) in found.steps.iter().zip(&found.times).enumerate() {
                match step {
                    Step::Op(op) => ps += times * op.cpu_ps,
                    Step::Core { ps: step_ps, .. } => ps += times * step_ps,
                    Step::Choose { ways, join } => {
                        choices += 1;
                        let of_ways: f64 =
                            ways.iter().map(|way| found.times[usize::from(way.start)]).sum();
                        assert!((of_ways - times).abs() < 1e-9, "{}: {of_ways}", service.name);
                        assert!(usize::from(*join) > index && ways.len() > 1);
                    }
                    _ => {}
                }
            }
            // No category is left out: rare ways have the ops that the most common path lacks.
            let all: f64 = service.shares.iter().sum();
            let expected = service.time_ns * all * 1e3;
            assert!((ps / expected - 1.0).abs() < 1e-9, "{}: {ps} {expected}", service.name);
            assert!(choices > 0, "{}", service.name);
            // Deadlines follow the mean way, so that an op of a long way may be due a little after the request.
            let budget = Picos::from_ns(service.time_ns * spec.work.slo_factor);
            let due = found.steps.iter().filter_map(|step| match step {
                Step::Op(op) => Some(op.due),
                _ => None,
            });
            assert!(due.max().is_some_and(|due| due.0 <= 2 * budget.0), "{}", service.name);
        }
    }

    #[test]
    fn a_miss_asks_the_database_and_an_error_ends_the_part() {
        let set = [("branches.hit", "0.5"), ("branches.exception", "0.5")];
        let (spec, catalog) = (spec("steady", &set), trace::accelflow());
        let orchestrator = Architecture::AccelFlow.orchestrator();
        let found = |name: &str| {
            let service = spec.services.iter().find(|one| one.name == name).expect("it is there");
            program(service, &spec, &orchestrator, &catalog).expect("a program").steps
        };
        let ways = |steps: &[Step]| {
            let ways = steps.iter().filter_map(|step| match step {
                Step::Choose { ways, .. } => Some(ways.len()),
                _ => None,
            });
            ways.collect::<Vec<_>>()
        };
        let read = found("ReadH");
        // A hit, and a miss whose write to the cache succeeds or not; then an RPC that succeeds or not.
        assert_eq!(ways(&read), [3, 2]);
        let fork = |step: &Step| matches!(step, Step::Fork { .. });
        assert_eq!(read.iter().filter(|step| fork(step)).count(), 2, "T6 in both ways of a miss");
        let done = read.len() as u16 - 1;
        let exits = read.iter().filter(|step| **step == Step::Jump(done)).count();
        assert_eq!(exits, 2, "both errors end the request");
        // Login's own path misses, so a hit passes over T6 and T7.
        assert_eq!(ways(&found("Login")), [3]);
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
                Step::Choose { .. } | Step::Jump(_) => "way",
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
                _ => 0.0,
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
