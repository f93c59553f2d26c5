//! Compiles a trace to a list of instructions with jumps, for code that runs or simulates it. A
//! position in the trace is then an index in this list. This module runs nothing.

use units::{Nanos, Op};

use crate::condition::Condition;
use crate::payload::Base;
use crate::tree::{End, Node, Trace, goes_on};

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Invokes the op. The next instruction follows when the op is done.
    Run {
        /// The number of the step in the trace, which the position mark uses.
        step: u8,
        /// The op.
        op: Op,
        /// The deadline of the op. See [`Run::due`](crate::Run::due).
        due: Option<Nanos>,
    },
    /// Transforms the payload from the first base to the second.
    Trans(Base, Base),
    /// Continues with the next instruction if the condition holds, and at `on_false` otherwise.
    Branch {
        /// The condition.
        condition: Condition,
        /// The index of the instruction that follows if the condition does not hold.
        on_false: u16,
    },
    /// Continues at the instruction with this index.
    Jump(u16),
    /// Continues at all arms at once.
    Fork {
        /// The index of the first instruction of each arm.
        arms: Vec<u16>,
        /// The index of the instruction that follows with the first arm's payload when all arms
        /// have arrived. It is none if every arm ends by itself.
        join: Option<u16>,
    },
    /// Reports that this arm of the innermost open fork has arrived.
    Arrive {
        /// The number of the arm.
        arm: u8,
    },
    /// Ends the path.
    End(End),
}

/// Returns all instructions of a checked trace.
pub fn compile(trace: &Trace) -> Vec<Instruction> {
    let mut compiler = Compiler { out: Vec::new(), steps: 0 };
    compiler.block(&trace.body);
    compiler.out
}

/// Returns the index of the instruction at a position mark. Mark 0 is the start of the trace.
/// Returns none if no step has this mark.
pub fn at_mark(program: &[Instruction], mark: u8) -> Option<usize> {
    let is_step = |one: &Instruction| matches!(one, Instruction::Run { step, .. } if *step == mark);
    if mark == 0 { Some(0) } else { program.iter().position(is_step) }
}

struct Compiler {
    out: Vec<Instruction>,
    steps: u8,
}

impl Compiler {
    fn here(&self) -> u16 {
        u16::try_from(self.out.len()).expect("a checked trace has a few hundred instructions")
    }

    fn block(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Run(run) => {
                    let step = self.steps;
                    self.steps += 1;
                    self.out.push(Instruction::Run { step, op: run.op, due: run.due });
                }
                Node::Trans(from, to) => self.out.push(Instruction::Trans(*from, *to)),
                Node::Branch(branch) => {
                    self.branch(&branch.condition, &branch.on_true, &branch.on_false);
                }
                Node::Fork(fork) => self.fork(&fork.arms, fork.join),
                Node::End(end) => self.out.push(Instruction::End(end.clone())),
            }
        }
    }

    fn branch(&mut self, condition: &Condition, on_true: &[Node], on_false: &[Node]) {
        let at = self.out.len();
        self.out.push(Instruction::Branch { condition: condition.clone(), on_false: 0 });
        self.block(on_true);
        // A path that ends needs no jump, and an empty second arm needs no jump over it.
        let skips = !on_false.is_empty() && goes_on(on_true);
        let jump = self.out.len();
        if skips {
            self.out.push(Instruction::Jump(0));
        }
        let target = self.here();
        if let Instruction::Branch { on_false, .. } = &mut self.out[at] {
            *on_false = target;
        }
        self.block(on_false);
        if skips {
            self.out[jump] = Instruction::Jump(self.here());
        }
    }

    fn fork(&mut self, arms: &[Vec<Node>], join: bool) {
        let at = self.out.len();
        self.out.push(Instruction::Fork { arms: Vec::new(), join: None });
        let mut starts = Vec::with_capacity(arms.len());
        for (arm, nodes) in (0..).zip(arms) {
            starts.push(self.here());
            self.block(nodes);
            if join {
                self.out.push(Instruction::Arrive { arm });
            }
        }
        let join = join.then(|| self.here());
        self.out[at] = Instruction::Fork { arms: starts, join };
    }
}
