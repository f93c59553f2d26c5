//! An application as a graph of tasks: which outputs each task takes, how long it takes, and its deadline.
//! The graph is written as lines `NAME = OP INPUT...`. An input is the name of a task, `:BYTES` for bytes in
//! memory, or `^NAME|INPUT`. The last form is the output of task NAME in the previous round, or INPUT in the
//! first round. This INPUT may not begin with `^`. A graph does not contain the state of an accelerator.

use std::collections::BTreeMap;

use crate::Picos;

/// The costs of a kind of task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Op {
    /// The number of the accelerator that does the op.
    pub(super) accelerator: u8,
    pub(super) compute_ns: f64,
    pub(super) out_bytes: u32,
}

/// The source of a task's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Task(u16),
    /// A range of this many bytes in memory.
    Memory(u32),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Task {
    pub(super) accelerator: u8,
    pub(super) compute: Picos,
    pub(super) out_bytes: u32,
    pub(super) inputs: Vec<Input>,
    pub(super) children: Vec<u16>,
    /// The deadline from the request's start. It leaves enough time for all later tasks that depend on this task.
    pub(super) due: Picos,
    /// The runtime that the manager's list expects.
    pub(super) runtime: Picos,
}

/// An application as a graph.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Graph {
    /// The tasks. A task comes after its producers.
    pub(super) tasks: Vec<Task>,
    /// The length of the longest path through the graph, if every move is from or to memory.
    pub(super) critical: Picos,
}

/// A line of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    name: String,
    op: String,
    inputs: Vec<Argument>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Argument {
    Task(String),
    Memory(u32),
    Before(String, Box<Argument>),
}

/// The assumed costs of moves (ns per byte).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moves {
    /// The cost that deadlines assume.
    pub(super) worst_ns_per_byte: f64,
    /// The cost that the manager assumes.
    pub(super) expected_ns_per_byte: f64,
}

impl Line {
    /// Reads a line. Returns none if it does not have the form of a line.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (name, rest) = text.split_once('=')?;
        let mut words = rest.split_whitespace();
        let op = words.next()?.to_owned();
        let inputs = words.map(Argument::read).collect::<Option<Vec<Argument>>>()?;
        let name = name.trim();
        let fits = !name.is_empty() && !inputs.is_empty() && inputs.len() <= INPUTS_MAX;
        fits.then(|| Self { name: name.to_owned(), op, inputs })
    }
}

impl Argument {
    fn read(text: &str) -> Option<Self> {
        if let Some(bytes) = text.strip_prefix(':') {
            return bytes
                .parse()
                .ok()
                .filter(|bytes| (1..=BYTES_MAX).contains(bytes))
                .map(Self::Memory);
        }
        match text.strip_prefix('^') {
            Some(rest) => {
                let (name, first) = rest.split_once('|')?;
                // An alternative for the first round may not itself refer to a previous round. The recursion is
                // therefore shallow, however long the text is.
                let first = Some(first).filter(|first| !first.starts_with('^'))?;
                Some(Self::Before(name.to_owned(), Box::new(Self::read(first)?)))
            }
            None => Some(Self::Task(text.to_owned())),
        }
    }
}

impl Graph {
    /// Builds the graph of `head`, followed by this many rounds of `cell`.
    ///
    /// # Errors
    /// Returns the line that names an unknown op or an unknown task.
    pub(super) fn new(
        head: &[Line],
        cell: &[Line],
        rounds: u32,
        ops: &BTreeMap<String, Op>,
        deadline: Picos,
        moves: &Moves,
    ) -> Result<Self, String> {
        let mut graph = Self { tasks: Vec::new(), critical: Picos(0) };
        let mut known = BTreeMap::new();
        for line in head {
            graph.add(line, ops, &mut known, &BTreeMap::new())?;
        }
        let mut before = BTreeMap::new();
        for _ in 0..rounds {
            let mut names = known.clone();
            for line in cell {
                graph.add(line, ops, &mut names, &before)?;
            }
            before = names;
        }
        if graph.tasks.is_empty() {
            return Err("it has no tasks".to_owned());
        }
        graph.time(deadline, moves);
        Ok(graph)
    }

    fn add(
        &mut self,
        line: &Line,
        ops: &BTreeMap<String, Op>,
        known: &mut BTreeMap<String, u16>,
        before: &BTreeMap<String, u16>,
    ) -> Result<(), String> {
        let fault = |what: String| format!("{} = {}: {what}", line.name, line.op);
        let names = || ops.keys().cloned().collect::<Vec<_>>().join(", ");
        let op = ops.get(&line.op).ok_or_else(|| fault(format!("the ops are {}", names())))?;
        let task = self.tasks.len() as u16;
        if self.tasks.len() >= TASKS_MAX {
            return Err(fault(format!("more than {TASKS_MAX} tasks")));
        }
        let mut inputs = Vec::with_capacity(line.inputs.len());
        for from in &line.inputs {
            let found = from.find(known, before);
            let input = found.ok_or_else(|| fault(format!("there is no {from:?} before it")))?;
            if let Input::Task(from) = input {
                self.tasks[usize::from(from)].children.push(task);
            }
            inputs.push(input);
        }
        if known.insert(line.name.clone(), task).is_some() {
            return Err(fault("there is a task of this name".to_owned()));
        }
        self.tasks.push(Task {
            accelerator: op.accelerator,
            compute: Picos::from_ns(op.compute_ns),
            out_bytes: op.out_bytes,
            inputs,
            children: Vec::new(),
            due: Picos(0),
            runtime: Picos(0),
        });
        Ok(())
    }

    /// Returns the bytes of a task's arguments.
    pub(super) fn in_bytes(&self, task: &Task) -> u64 {
        task.inputs.iter().map(|input| u64::from(self.bytes(*input))).sum()
    }

    /// Returns the bytes of an argument.
    pub(super) fn bytes(&self, input: Input) -> u32 {
        match input {
            Input::Task(task) => self.tasks[usize::from(task)].out_bytes,
            Input::Memory(bytes) => bytes,
        }
    }

    /// Sets the deadline of each task such that all later tasks, including their moves, can be in time.
    fn time(&mut self, deadline: Picos, moves: &Moves) {
        let mut rest: Vec<u64> = vec![0; self.tasks.len()];
        for index in (0..self.tasks.len()).rev() {
            let task = &self.tasks[index];
            let bytes = (self.in_bytes(task) + u64::from(task.out_bytes)) as f64;
            let with = |ns_per_byte: f64| task.compute + Picos::from_ns(bytes * ns_per_byte);
            let (worst, runtime) =
                (with(moves.worst_ns_per_byte), with(moves.expected_ns_per_byte));
            let behind = task.children.iter().map(|child| rest[usize::from(*child)]);
            let behind = behind.max().unwrap_or(0);
            rest[index] = behind + worst.0;
            let task = &mut self.tasks[index];
            (task.due, task.runtime) = (Picos(deadline.0.saturating_sub(behind)), runtime);
        }
        self.critical = Picos(rest.into_iter().max().unwrap_or(0));
    }
}

impl Argument {
    fn find(&self, known: &BTreeMap<String, u16>, before: &BTreeMap<String, u16>) -> Option<Input> {
        match self {
            Self::Task(name) => known.get(name).copied().map(Input::Task),
            Self::Memory(bytes) => Some(Input::Memory(*bytes)),
            Self::Before(name, first) => match before.get(name) {
                Some(task) => Some(Input::Task(*task)),
                None if before.is_empty() => first.find(known, before),
                None => None,
            },
        }
    }
}

const INPUTS_MAX: usize = 4;
const BYTES_MAX: u32 = 1 << 30;
const TASKS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::super::tests::spec;
    use super::*;

    /// The deadlines in RELIEF's headers (us): the application, the index of the task there, and its deadline.
    const PUBLISHED: [(&str, usize, f64); 16] = [
        ("canny", 0, 13_564.0),
        ("canny", 1, 13_601.0),
        ("canny", 2, 15_177.0),
        ("canny", 3, 15_846.0),
        ("canny", 5, 15_885.0),
        ("canny", 10, 16_427.0),
        ("harris", 0, 14_026.0),
        ("harris", 2, 14_731.0),
        ("harris", 5, 14_812.0),
        ("harris", 8, 16_389.0),
        ("harris", 16, 16_542.0),
        ("deblur", 2, 1_908.0),
        ("gru", 0, 2_321.0),
        ("gru", 119, 7_000.0),
        ("lstm", 0, 3_687.0),
        ("lstm", 143, 7_000.0),
    ];

    #[test]
    fn tasks_are_due_when_the_public_headers_say() {
        let counts = [("canny", 12), ("deblur", 22), ("gru", 120), ("harris", 18), ("lstm", 144)];
        for (name, count) in counts {
            assert_eq!(spec(name, &[]).graph.tasks.len(), count, "{name}");
        }
        for (name, task, due_us) in PUBLISHED {
            let found = spec(name, &[]).graph.tasks[task].due.as_ns() * 1e-3;
            // The headers round each step to a microsecond.
            let slack = if name == "gru" || name == "lstm" { 20.0 } else { 8.0 };
            assert!((found - due_us).abs() <= slack, "{name} {task}: {found} for {due_us}");
        }
    }

    #[test]
    fn lines_that_cannot_be_used_are_refused() {
        for text in ["", "a", "a = ", "a = op", "= op :1", "a = op :0", "a = op ^b", "a = op :x"] {
            assert_eq!(Line::read(text), None, "{text:?}");
        }
        assert_eq!(Line::read("a = op ^a|^a|:1"), None);
        assert_eq!(Line::read(&format!("a = op {}:1", "^a|".repeat(1_000_000))), None);
        let op = Op { accelerator: 0, compute_ns: 1.0, out_bytes: 1 };
        let ops = BTreeMap::from([("op".to_owned(), op)]);
        let moves = Moves { worst_ns_per_byte: 0.0, expected_ns_per_byte: 0.0 };
        let graph = |cell: &[&str]| {
            let cell: Vec<Line> = cell.iter().map(|text| Line::read(text).expect(text)).collect();
            Graph::new(&[], &cell, 2, &ops, Picos(9), &moves)
        };
        assert_eq!(graph(&["a = op ^a|:1"]).expect("a chain").tasks[0].children, [1]);
        for (cell, why) in [
            (&["a = no :1"][..], "the ops are op"),
            (&["a = op b"], "there is no"),
            (&["a = op :1", "a = op :1"], "a task of this name"),
            (&["a = op ^b|:1"], "there is no"),
            (&[], "no tasks"),
        ] {
            assert!(graph(cell).expect_err(why).contains(why), "{cell:?}");
        }
    }
}
