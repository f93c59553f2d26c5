//! Encodes a trace as words of 64 bits. The first word has the op codes, and the second is the side
//! word. Units for branches, transforms, forks and ends follow, and then the deadlines.
//! docs/format.md describes every byte. Only checked traces of a catalog are encoded.
//! [`decode`](crate::decode) reads the encoding.

use std::fmt;

use thiserror::Error;
use units::Op;

use crate::condition::{Comparison, Condition};
use crate::limits::INVOCATIONS_MAX;
use crate::tree::{End, Node, Trace};

/// The part of an encoded trace that changes while the trace runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The tenant of the trace.
    pub tenant: u16,
    /// The position mark: the step to run next. 0 is the start of the trace, including the nodes in
    /// front of its first step.
    pub mark: u8,
}

/// The reason why a trace cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum EncodeError {
    #[error("no trace is called {name}{hint}")]
    UnknownTrace { name: String, hint: String },
    #[error("mark {mark}: {name} has steps 0 to {last}")]
    Mark { mark: u8, name: String, last: usize },
}

/// Looks up the slots of fields and the addresses of traces by name.
pub(crate) trait Names {
    fn slot(&self, field: &str) -> u8;
    fn address(&self, trace: &str) -> u16;
}

/// Returns the encoding of a checked trace.
pub(crate) fn encode(trace: &Trace, head: Head, names: &dyn Names) -> Vec<u8> {
    let mut writer = Writer { names, ops: 0, dues: Vec::new(), run: 0, units: Vec::new() };
    writer.block(&trace.body);
    let with_deadlines = writer.dues.iter().any(|due| *due != 0);
    let side = u64::from(head.mark & 0xF)
        | VERSION << SIDE_VERSION
        | u64::from(head.tenant) << SIDE_TENANT
        | u64::from(trace.takes.bits()) << SIDE_TAKES
        | (writer.units.len() as u64) << SIDE_UNITS
        | u64::from(with_deadlines) << SIDE_DEADLINES;
    let mut bytes = Vec::with_capacity(64);
    bytes.extend(writer.ops.to_le_bytes());
    bytes.extend(side.to_le_bytes());
    bytes.extend(writer.units.iter().flat_map(|unit| unit.to_le_bytes()));
    bytes.resize(bytes.len().next_multiple_of(WORD_BYTES), 0);
    if with_deadlines {
        bytes.extend(writer.dues.iter().flat_map(|due| due.to_le_bytes()));
        bytes.resize(bytes.len().next_multiple_of(WORD_BYTES), 0);
    }
    bytes
}

/// Returns the 4-bit code of an op. `notify` ends a path and has no code.
pub(crate) fn op_code(op: Op) -> u64 {
    debug_assert!(op != Op::Notify, "checked: no invocation");
    op.index() as u64 + 1
}

/// Returns the op with this 4-bit code. Code 0 has no op.
pub(crate) fn op_from_code(code: u64) -> Option<Op> {
    let op = *Op::ALL.get(usize::try_from(code).ok()?.checked_sub(1)?)?;
    (op != Op::Notify).then_some(op)
}

/// Returns the number of 16-bit units that these nodes take in the encoding.
pub(crate) fn glue_units(nodes: &[Node]) -> usize {
    let one = |node: &Node| match node {
        Node::Run(_) => 0,
        Node::Trans(..) | Node::End(End::Notify) => 1,
        Node::End(End::Tail(_) | End::Await { within: None, .. }) => 2,
        Node::End(End::Await { within: Some(_), .. }) => 4,
        Node::Branch(branch) => {
            let separator = usize::from(!branch.on_false.is_empty());
            let arms = glue_units(&branch.on_true) + glue_units(&branch.on_false);
            2 + condition_units(&branch.condition) + separator + arms
        }
        Node::Fork(fork) => {
            let arms: usize = fork.arms.iter().map(|arm| glue_units(arm)).sum();
            1 + fork.arms.len().max(1) + arms
        }
    };
    nodes.iter().map(one).sum()
}

/// Returns the number of 16-bit units that a condition takes in the encoding.
pub(crate) fn condition_units(condition: &Condition) -> usize {
    match condition {
        Condition::Flag(_) => 1,
        Condition::Number(..) => 3,
        Condition::Not(inner) => 1 + condition_units(inner),
        Condition::And(left, right) | Condition::Or(left, right) => {
            1 + condition_units(left) + condition_units(right)
        }
    }
}

struct Writer<'a> {
    names: &'a dyn Names,
    ops: u64,
    dues: Vec<u32>,
    /// The number of steps since the last unit was written.
    run: u16,
    units: Vec<u16>,
}

impl Writer<'_> {
    fn block(&mut self, nodes: &[Node]) {
        for node in nodes {
            self.node(node);
        }
    }

    fn node(&mut self, node: &Node) {
        match node {
            Node::Run(run) => {
                let step = self.dues.len();
                debug_assert!(step < INVOCATIONS_MAX, "checked: at most 16");
                self.ops |= op_code(run.op) << (4 * step);
                let due = run.due.map_or(0, |due| due.0);
                self.dues.push(u32::try_from(due).unwrap_or(u32::MAX));
                self.run += 1;
            }
            Node::Trans(from, to) => self.unit(Kind::Trans, *from as u16 | (*to as u16) << 4),
            Node::Branch(branch) => {
                self.unit(Kind::Branch, condition_units(&branch.condition) as u16);
                self.condition(&branch.condition);
                self.block(&branch.on_true);
                if !branch.on_false.is_empty() {
                    self.unit(Kind::Arm, 0);
                    self.block(&branch.on_false);
                }
                self.unit(Kind::Close, 0);
            }
            Node::Fork(fork) => {
                self.unit(Kind::Fork, u16::from(fork.join));
                for (index, arm) in fork.arms.iter().enumerate() {
                    if index > 0 {
                        self.unit(Kind::Arm, 0);
                    }
                    self.block(arm);
                }
                self.unit(Kind::Close, 0);
            }
            Node::End(end) => self.end(end),
        }
    }

    fn end(&mut self, end: &End) {
        let Some(target) = end.target() else { return self.unit(Kind::Notify, 0) };
        let (operand, wait) = match end {
            End::Notify | End::Tail(_) => (TAIL_AT_ONCE, None),
            End::Await { within: None, .. } => (TAIL_AWAITED, None),
            End::Await { within, .. } => (TAIL_AWAITED_WITHIN, *within),
        };
        self.unit(Kind::Tail, operand);
        self.units.push(self.names.address(target));
        if let Some(time) = wait {
            self.number(u32::try_from(time.0 / 1_000).unwrap_or(u32::MAX));
        }
    }

    fn unit(&mut self, kind: Kind, operand: u16) {
        self.units.push(kind as u16 | self.run << 3 | operand << 8);
        self.run = 0;
    }

    fn number(&mut self, number: u32) {
        self.units.push((number & 0xFFFF) as u16);
        self.units.push((number >> 16) as u16);
    }

    /// Writes a condition in postfix order.
    fn condition(&mut self, condition: &Condition) {
        match condition {
            Condition::Flag(field) => {
                self.units.push(u16::from(self.names.slot(field)) | TEST_FLAG << 8);
            }
            Condition::Number(field, comparison, literal) => {
                let test = *comparison as u16;
                self.units.push(u16::from(self.names.slot(field)) | test << 8);
                self.number(*literal);
            }
            Condition::Not(inner) => {
                self.condition(inner);
                self.units.push(LOGIC_NOT << 8);
            }
            Condition::And(left, right) => {
                self.condition(left);
                self.condition(right);
                self.units.push(LOGIC_AND << 8);
            }
            Condition::Or(left, right) => {
                self.condition(left);
                self.condition(right);
                self.units.push(LOGIC_OR << 8);
            }
        }
    }
}

/// Formats an encoded trace as rows of one word each. A row has the word's offset, its bytes in
/// hexadecimal and its meaning.
pub fn dump(bytes: &[u8]) -> String {
    let mut out = String::new();
    let units = bytes.get(WORD_BYTES + 5).copied().map_or(0, usize::from);
    for (index, word) in bytes.chunks(WORD_BYTES).enumerate() {
        let what = match index {
            0 => "op codes",
            1 => "side word",
            _ if index < 2 + units.div_ceil(4) => "units",
            _ => "deadlines",
        };
        let hex: Vec<String> = word.iter().map(|byte| format!("{byte:02X}")).collect();
        fmt::Write::write_fmt(
            &mut out,
            format_args!("{:>4}  {}  {what}\n", index * WORD_BYTES, hex.join(" ")),
        )
        .expect("a string takes any text");
    }
    out
}

/// The kind of a unit: its lowest three bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Branch = 1,
    Arm = 2,
    Close = 3,
    Trans = 4,
    Fork = 5,
    Tail = 6,
    Notify = 7,
}

impl Kind {
    pub(crate) const ALL: [Kind; 7] =
        [Kind::Branch, Kind::Arm, Kind::Close, Kind::Trans, Kind::Fork, Kind::Tail, Kind::Notify];
}

pub(crate) const WORD_BYTES: usize = 8;
pub(crate) const VERSION: u64 = 1;
pub(crate) const SIDE_VERSION: u32 = 4;
pub(crate) const SIDE_TENANT: u32 = 8;
pub(crate) const SIDE_TAKES: u32 = 24;
pub(crate) const SIDE_UNITS: u32 = 40;
pub(crate) const SIDE_DEADLINES: u32 = 48;
pub(crate) const TAIL_AT_ONCE: u16 = 0;
pub(crate) const TAIL_AWAITED: u16 = 1;
pub(crate) const TAIL_AWAITED_WITHIN: u16 = 3;
pub(crate) const TEST_FLAG: u16 = 1;
pub(crate) const LOGIC_NOT: u16 = 8;
pub(crate) const LOGIC_AND: u16 = 9;
pub(crate) const LOGIC_OR: u16 = 10;

const _: () = assert!((Comparison::AtLeast as u16) < LOGIC_NOT);
