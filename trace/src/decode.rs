//! Decodes encoded traces. Bytes that are not a trace are refused, and a decoded trace encodes to
//! the same bytes again. Decoding allocates in proportion to its input and recurses no deeper than
//! the language allows.

use thiserror::Error;
use units::{Nanos, Op};

use crate::condition::{Comparison, Condition};
use crate::encode::{
    Head, Kind, LOGIC_AND, LOGIC_NOT, LOGIC_OR, SIDE_DEADLINES, SIDE_TAKES, SIDE_TENANT,
    SIDE_UNITS, SIDE_VERSION, TAIL_AT_ONCE, TAIL_AWAITED, TAIL_AWAITED_WITHIN, TEST_FLAG, VERSION,
    WORD_BYTES, op_from_code,
};
use crate::fault::What;
use crate::limits::{DEPTH_MAX, INVOCATIONS_MAX};
use crate::payload::{Base, Format};
use crate::tree::{Branch, End, Fork, Node, Run, Trace};

/// The reason why bytes are not a valid trace.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum DecodeError {
    #[error("{found} bytes; it takes {expected}")]
    Length { found: usize, expected: usize },
    #[error("version {0}; this is version 1")]
    Version(u64),
    #[error("bits that version 1 keeps zero are set in {0}")]
    Reserved(&'static str),
    #[error("step {step}: no op has code {code}")]
    OpCode { step: usize, code: u64 },
    #[error("step {0} follows an empty one")]
    Gap(usize),
    #[error("mark {mark}; there are {steps} steps")]
    Mark { mark: u8, steps: usize },
    #[error("{0:#06X} is no format")]
    Format(u16),
    #[error("unit {at}: {what}")]
    Unit { at: usize, what: &'static str },
    #[error("the units speak of {used} steps; there are {steps}")]
    Steps { used: usize, steps: usize },
    #[error("deadlines are said to be there, and none is")]
    NoDeadline,
    #[error("well formed, but not sound: {0}")]
    Unsound(What),
}

/// Looks up fields by their slots and traces by their addresses.
pub(crate) trait Symbols {
    fn field(&self, slot: u8) -> Option<&str>;
    fn trace(&self, address: u16) -> Option<&str>;
}

/// Returns the trace that these bytes encode. The trace is not checked.
pub(crate) fn decode(
    name: &str,
    bytes: &[u8],
    symbols: &dyn Symbols,
) -> Result<(Trace, Head), DecodeError> {
    let side = word(bytes, 1).ok_or(length(bytes, 2))?;
    let ops = op_codes(word(bytes, 0).ok_or(length(bytes, 2))?)?;
    let head = head(side, ops.len())?;
    let takes = (side >> SIDE_TAKES) as u16;
    let takes = Format::from_bits(takes).ok_or(DecodeError::Format(takes))?;
    let count = usize::from((side >> SIDE_UNITS) as u8);
    let with_deadlines = side >> SIDE_DEADLINES & 1 == 1;
    let dues_at = WORD_BYTES * (2 + count.div_ceil(4));
    let dues_words = if with_deadlines { ops.len().div_ceil(2) } else { 0 };
    let expected = dues_at + WORD_BYTES * dues_words;
    if bytes.len() != expected {
        return Err(DecodeError::Length { found: bytes.len(), expected });
    }
    let units: Vec<u16> = bytes[2 * WORD_BYTES..dues_at]
        .chunks_exact(2)
        .map(|unit| u16::from_le_bytes([unit[0], unit[1]]))
        .collect();
    let (units, padding) = units.split_at(count);
    if padding.iter().any(|unit| *unit != 0) {
        return Err(DecodeError::Reserved("the units' last word"));
    }
    let dues = deadlines(&bytes[dues_at..], ops.len(), with_deadlines)?;
    let mut reader = Reader { symbols, ops: &ops, dues: &dues, units, at: 0, step: 0 };
    let (body, _) = reader.block(0)?;
    if reader.step != ops.len() {
        return Err(DecodeError::Steps { used: reader.step, steps: ops.len() });
    }
    Ok((Trace { name: name.to_owned(), takes, body }, head))
}

fn word(bytes: &[u8], index: usize) -> Option<u64> {
    let bytes = bytes.get(index * WORD_BYTES..(index + 1) * WORD_BYTES)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

fn length(bytes: &[u8], words: usize) -> DecodeError {
    DecodeError::Length { found: bytes.len(), expected: words * WORD_BYTES }
}

fn head(side: u64, steps: usize) -> Result<Head, DecodeError> {
    let version = side >> SIDE_VERSION & 0xF;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    if side >> (SIDE_DEADLINES + 1) != 0 {
        return Err(DecodeError::Reserved("the side word"));
    }
    let mark = (side & 0xF) as u8;
    if usize::from(mark) >= steps {
        return Err(DecodeError::Mark { mark, steps });
    }
    Ok(Head { tenant: (side >> SIDE_TENANT) as u16, mark })
}

fn op_codes(word: u64) -> Result<Vec<Op>, DecodeError> {
    let mut ops = Vec::with_capacity(INVOCATIONS_MAX);
    for step in 0..INVOCATIONS_MAX {
        let code = word >> (4 * step) & 0xF;
        if code == 0 {
            continue;
        }
        if ops.len() < step {
            return Err(DecodeError::Gap(step));
        }
        ops.push(op_from_code(code).ok_or(DecodeError::OpCode { step, code })?);
    }
    Ok(ops)
}

fn deadlines(bytes: &[u8], steps: usize, are_there: bool) -> Result<Vec<u32>, DecodeError> {
    if !are_there {
        return Ok(vec![0; steps]);
    }
    let mut dues: Vec<u32> = bytes
        .chunks_exact(4)
        .map(|due| u32::from_le_bytes([due[0], due[1], due[2], due[3]]))
        .collect();
    if dues.drain(steps..).any(|padding| padding != 0) {
        return Err(DecodeError::Reserved("the deadlines' last word"));
    }
    if dues.iter().all(|due| *due == 0) {
        return Err(DecodeError::NoDeadline);
    }
    Ok(dues)
}

/// The element that ended a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Arm,
    Close,
    Last,
}

struct Reader<'a> {
    symbols: &'a dyn Symbols,
    ops: &'a [Op],
    dues: &'a [u32],
    units: &'a [u16],
    at: usize,
    step: usize,
}

impl Reader<'_> {
    fn wrong<T>(&self, what: &'static str) -> Result<T, DecodeError> {
        Err(DecodeError::Unit { at: self.at.saturating_sub(1), what })
    }

    fn take(&mut self) -> Option<u16> {
        let unit = *self.units.get(self.at)?;
        self.at += 1;
        Some(unit)
    }

    fn block(&mut self, depth: usize) -> Result<(Vec<Node>, Stop), DecodeError> {
        let mut nodes = Vec::new();
        while let Some(unit) = self.take() {
            let operand = unit >> 8;
            self.steps(usize::from(unit >> 3 & 0x1F), &mut nodes)?;
            let kind = Kind::ALL.into_iter().find(|kind| *kind as u16 == unit & 7);
            match kind {
                None => return self.wrong("kind 0 stands only behind the last unit"),
                Some(Kind::Arm | Kind::Close | Kind::Notify) if operand != 0 => {
                    return self.wrong("it has no operand");
                }
                Some(Kind::Arm | Kind::Close) if depth == 0 => {
                    return self.wrong("nothing is open that it could divide or close");
                }
                Some(Kind::Arm) => return Ok((nodes, Stop::Arm)),
                Some(Kind::Close) => return Ok((nodes, Stop::Close)),
                Some(Kind::Branch | Kind::Fork) if depth == DEPTH_MAX => {
                    return self.wrong("nested too deep");
                }
                Some(Kind::Branch) => nodes.push(self.branch(operand, depth)?),
                Some(Kind::Fork) => nodes.push(self.fork(operand, depth)?),
                Some(Kind::Trans) => nodes.push(self.transform(operand)?),
                Some(Kind::Tail) => nodes.push(Node::End(self.tail(operand)?)),
                Some(Kind::Notify) => nodes.push(Node::End(End::Notify)),
            }
        }
        if depth > 0 {
            return self.wrong("a branch or fork is not closed");
        }
        Ok((nodes, Stop::Last))
    }

    fn steps(&mut self, run: usize, nodes: &mut Vec<Node>) -> Result<(), DecodeError> {
        let end = self.step + run;
        let Some(ops) = self.ops.get(self.step..end) else {
            return self.wrong("it follows more steps than there are");
        };
        let dues = &self.dues[self.step..end];
        nodes.extend(ops.iter().zip(dues).map(|(op, due)| {
            let due = (*due != 0).then_some(Nanos(u64::from(*due)));
            Node::Run(Run { op: *op, due })
        }));
        self.step = end;
        Ok(())
    }

    fn branch(&mut self, operand: u16, depth: usize) -> Result<Node, DecodeError> {
        let condition = self.condition(usize::from(operand))?;
        let (on_true, stop) = self.block(depth + 1)?;
        let mut on_false = Vec::new();
        if stop == Stop::Arm {
            let (nodes, stop) = self.block(depth + 1)?;
            if stop == Stop::Arm {
                return self.wrong("a branch has two arms");
            }
            if nodes.is_empty() {
                return self.wrong("an empty second arm is left out");
            }
            on_false = nodes;
        }
        Ok(Node::Branch(Branch { condition, on_true, on_false }))
    }

    fn fork(&mut self, operand: u16, depth: usize) -> Result<Node, DecodeError> {
        if operand > 1 {
            return self.wrong("a fork joins (1) or does not (0)");
        }
        let mut arms = Vec::new();
        loop {
            let (arm, stop) = self.block(depth + 1)?;
            arms.push(arm);
            if stop == Stop::Close {
                return Ok(Node::Fork(Fork { arms, join: operand == 1 }));
            }
        }
    }

    fn transform(&mut self, operand: u16) -> Result<Node, DecodeError> {
        match (Base::from_code((operand & 0xF) as u8), Base::from_code((operand >> 4) as u8)) {
            (Some(from), Some(to)) => Ok(Node::Trans(from, to)),
            _ => self.wrong("no such base"),
        }
    }

    fn tail(&mut self, operand: u16) -> Result<End, DecodeError> {
        let Some(address) = self.take() else { return self.wrong("its address is missing") };
        let Some(name) = self.symbols.trace(address) else {
            return self.wrong("no trace has this address");
        };
        let trace = name.to_owned();
        match operand {
            TAIL_AT_ONCE => Ok(End::Tail(trace)),
            TAIL_AWAITED => Ok(End::Await { trace, within: None }),
            TAIL_AWAITED_WITHIN => {
                let micros = self.number()?;
                Ok(End::Await { trace, within: Some(Nanos::micros(u64::from(micros))) })
            }
            _ => self.wrong("a tail is 0, 1 or 3"),
        }
    }

    fn number(&mut self) -> Result<u32, DecodeError> {
        match (self.take(), self.take()) {
            (Some(low), Some(high)) => Ok(u32::from(low) | u32::from(high) << 16),
            _ => self.wrong("its number is missing"),
        }
    }

    fn condition(&mut self, units: usize) -> Result<Condition, DecodeError> {
        let end = self.at + units;
        let mut stack: Vec<Condition> = Vec::new();
        while self.at < end {
            let Some(unit) = self.take() else { return self.wrong("its condition is cut off") };
            let (slot, test) = ((unit & 0xFF) as u8, unit >> 8);
            if matches!(test, LOGIC_NOT | LOGIC_AND | LOGIC_OR) && slot != 0 {
                return self.wrong("logic has no slot");
            }
            let mut pop = || stack.pop();
            let made = match test {
                LOGIC_NOT => pop().map(Condition::not),
                LOGIC_AND => pop().zip(pop()).map(|(right, left)| left.and(right)),
                LOGIC_OR => pop().zip(pop()).map(|(right, left)| left.or(right)),
                _ => Some(self.test(slot, test)?),
            };
            match made {
                Some(condition) => stack.push(condition),
                None => return self.wrong("logic on nothing"),
            }
        }
        match (stack.pop(), stack.is_empty(), self.at == end) {
            (Some(condition), true, true) => Ok(condition),
            _ => self.wrong("a condition is one expression within its units"),
        }
    }

    fn test(&mut self, slot: u8, test: u16) -> Result<Condition, DecodeError> {
        let Some(field) = self.symbols.field(slot) else {
            return self.wrong("no field has this slot");
        };
        let field = field.to_owned();
        if test == TEST_FLAG {
            return Ok(Condition::Flag(field));
        }
        let comparison = Comparison::ALL.into_iter().find(|known| *known as u16 == test);
        match comparison {
            Some(comparison) => Ok(Condition::Number(field, comparison, self.number()?)),
            None => self.wrong("no such test"),
        }
    }
}
