//! The trace memory: the registered traces as programs in which every name is an index. It never changes while one of
//! its traces runs. Registering other traces creates another memory.

use std::sync::Arc;

use trace::{Base, Catalog, Condition, End, Format, Instruction, compile};
use units::{Nanos, Op};

/// The registered traces.
pub(crate) struct Memory {
    catalog: Catalog,
    programs: Vec<Program>,
}

/// A registered trace.
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) takes: Format,
    pub(crate) steps: Vec<Step>,
    /// The fields that the program's branches read.
    pub(crate) fields: Arc<[String]>,
}

/// One instruction.
pub(crate) enum Step {
    Run {
        op: Op,
        /// The deadline of this step, counted from the start of the trace, or of the first trace if traces continue
        /// each other. A step without its own deadline has the first deadline of the ops that follow it, up to the next
        /// branch, fork or end.
        due: Option<Nanos>,
        /// Whether this is the first step of its trace, where a `tcp` op receives instead of sends.
        is_first: bool,
    },
    Trans(Base, Base),
    Branch {
        condition: Arc<Condition>,
        on_false: usize,
    },
    Jump(usize),
    Fork {
        arms: Vec<usize>,
        join: Option<usize>,
    },
    Arrive {
        is_first: bool,
    },
    Notify,
    /// Continues with this program.
    Tail(usize),
    Await {
        program: usize,
        within: Option<Nanos>,
    },
}

impl Memory {
    pub(crate) fn new(catalog: Catalog) -> Self {
        let programs = catalog.traces().iter().map(|trace| {
            let instructions = compile(trace);
            let steps = (0..instructions.len()).map(|at| step(&catalog, &instructions, at));
            let steps: Vec<Step> = steps.collect();
            let fields = fields(&steps).into();
            Program { name: trace.name.clone(), takes: trace.takes, steps, fields }
        });
        let programs = programs.collect();
        Self { catalog, programs }
    }

    /// Returns the index of the trace with this name.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.catalog.address(name).map(usize::from)
    }

    pub(crate) fn program(&self, place: usize) -> &Program {
        &self.programs[place]
    }
}

impl Program {
    /// Returns whether a path that continues at `at` waits for an answer before its next op.
    pub(crate) fn awaits(&self, mut at: usize, holds: &mut dyn FnMut(&Condition) -> bool) -> bool {
        loop {
            at = match &self.steps[at] {
                Step::Await { .. } => return true,
                Step::Trans(..) => at + 1,
                Step::Jump(to) => *to,
                Step::Branch { condition, .. } if holds(condition) => at + 1,
                Step::Branch { on_false, .. } => *on_false,
                Step::Run { .. }
                | Step::Fork { .. }
                | Step::Arrive { .. }
                | Step::Notify
                | Step::Tail(_) => return false,
            }
        }
    }
}

fn step(catalog: &Catalog, all: &[Instruction], at: usize) -> Step {
    let place = |name: &str| {
        usize::from(catalog.address(name).expect("a catalog is checked: every trace is there"))
    };
    match &all[at] {
        Instruction::Run { op, .. } => {
            Step::Run { op: *op, due: due(&all[at..]), is_first: at == 0 }
        }
        Instruction::Trans(from, to) => Step::Trans(*from, *to),
        Instruction::Branch { condition, on_false } => Step::Branch {
            condition: Arc::new(condition.clone()),
            on_false: usize::from(*on_false),
        },
        Instruction::Jump(to) => Step::Jump(usize::from(*to)),
        Instruction::Fork { arms, join } => Step::Fork {
            arms: arms.iter().copied().map(usize::from).collect(),
            join: join.map(usize::from),
        },
        Instruction::Arrive { arm } => Step::Arrive { is_first: *arm == 0 },
        Instruction::End(End::Notify) => Step::Notify,
        Instruction::End(End::Tail(name)) => Step::Tail(place(name)),
        Instruction::End(End::Await { trace, within }) => {
            Step::Await { program: place(trace), within: *within }
        }
    }
}

/// Returns the first deadline of the following steps, up to the next branch, fork or end. An early step
/// leaves its slack to the next step, and a late step leaves less time.
fn due(from: &[Instruction]) -> Option<Nanos> {
    for instruction in from {
        match instruction {
            Instruction::Run { due: Some(due), .. } => return Some(*due),
            Instruction::Run { due: None, .. } | Instruction::Trans(..) => {}
            _ => return None,
        }
    }
    None
}

fn fields(steps: &[Step]) -> Vec<String> {
    let mut fields: Vec<String> = Vec::new();
    for step in steps {
        if let Step::Branch { condition, .. } = step {
            condition.visit(&mut |name, _| {
                if !fields.iter().any(|known| known == name) {
                    fields.push(name.to_owned());
                }
            });
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use trace::read;

    use super::*;

    fn memory(text: &str) -> Memory {
        Memory::new(read(&[("test", text)]).expect("no faults"))
    }

    #[test]
    fn a_step_is_due_with_the_next_deadline() {
        let memory = memory(
            "field f flag\ntrace t takes json { serialize rpc due 5us copy \
             if f { tcp due 9us } notify }",
        );
        let dues = memory.program(0).steps.iter().filter_map(|step| match step {
            Step::Run { due, .. } => Some(*due),
            _ => None,
        });
        let us = |count| Some(Nanos::micros(count));
        assert_eq!(dues.collect::<Vec<_>>(), [us(5), us(5), None, us(9)]);
    }

    #[test]
    fn an_awaited_answer_is_known_at_the_send() {
        let memory = memory(
            "field f flag\ntrace t takes bytes { copy tcp if f { await r } else { notify } }\n\
             trace r takes bytes { tcp notify }",
        );
        let program = memory.program(0);
        assert!(program.awaits(2, &mut |_| true));
        assert!(!program.awaits(2, &mut |_| false));
        assert_eq!(program.fields[..], ["f".to_owned()]);
    }

    #[test]
    fn the_twelve_templates_are_programs() {
        let memory = Memory::new(trace::accelflow());
        for trace in trace::accelflow().traces() {
            let program = memory.program(memory.find(&trace.name).expect("registered"));
            let runs = program.steps.iter().filter(|step| matches!(step, Step::Run { .. }));
            assert_eq!(runs.count(), trace.invocations(), "{}", trace.name);
        }
    }
}
