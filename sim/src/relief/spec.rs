//! Defines the keys of a specification: ops, applications, accelerators, moves, the manager and the load.
//! Each key has a valid range, and unknown keys are refused. The files give the source of each value.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::graph::{Graph, Line, Moves, Op};
use crate::entries::{Entries, SpecError};
use crate::{Extent, Picos};

/// A checked specification.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The name of the specification.
    pub name: String,
    /// One sentence about the specification.
    pub about: String,
    /// The length of a replication.
    pub extent: Extent,
    /// The name of the application.
    pub application: String,
    /// The number of requests per second. It is none if the next request arrives when another one is done.
    pub per_s: Option<f64>,
    in_flight: u32,
    /// The recorded gaps (ns) between requests, which replace Poisson arrivals.
    pub(super) recorded: Option<Arc<[f64]>>,
    pub(super) tokens_max: usize,
    pub(super) instances: u32,
    pub(super) graph: Graph,
    pub(super) moves: MoveCosts,
    pub(super) manager: ManagerCosts,
    pub(super) hold: Hold,
    pub(super) dispatcher: Picos,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MoveCosts {
    /// The cost of one DMA engine (ps per byte).
    pub(super) dma_ps_per_byte: f64,
    /// The cost of the memory, which all engines share (ps per byte).
    pub(super) memory_ps_per_byte: f64,
    /// The cost of a move from one scratchpad to another (ps per byte).
    pub(super) direct_ps_per_byte: f64,
    /// The cost of a move from a queue into the scratchpad next to it (ps per byte).
    pub(super) scratchpad_ps_per_byte: f64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ManagerCosts {
    pub(super) completion: Picos,
    pub(super) dma: Picos,
}

/// The content of an entry in AccelFlow's input queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// The entry holds the address in memory.
    Pointer,
    /// The entry holds the outputs of other tasks.
    Payload,
    /// The entry holds all arguments, including those from memory.
    Arguments,
}

/// The accelerators, in the order of their numbers.
pub(super) const ACCELERATORS: [&str; 7] = [
    "canny-non-max",
    "convolution",
    "edge-tracking",
    "elem-matrix",
    "grayscale",
    "harris-non-max",
    "isp",
];
/// Whether the driver of each accelerator lets a task work on the previous output in the same scratchpad.
pub(super) const COLOCATES: [bool; 7] = [false, true, false, true, false, false, false];
/// The number of the convolution accelerator, which does not overwrite an output that is its next argument.
pub(super) const CONVOLUTION: u8 = 1;

impl Spec {
    /// Reads a specification from `entries` and refuses unknown keys.
    ///
    /// # Errors
    /// Returns the first value that cannot be used, with its place and the valid values.
    pub fn read(entries: &Entries) -> Result<Self, SpecError> {
        let mut from = entries.clone();
        let ops = ops(&mut from)?;
        let dma_ns_per_byte = 1.0 / from.number("moves.dma_gb_per_s", RATE_MIN, RATE_MAX)?;
        let expected_ns_per_byte = from.number("manager.expected_ns_per_byte", 0.0, 1e6)?;
        let reckon = Moves { worst_ns_per_byte: dma_ns_per_byte, expected_ns_per_byte };
        let (application, graph) = applications(&mut from, &ops, &reckon)?;
        let mut ps_per_byte = |key: &str| -> Result<f64, SpecError> {
            Ok(1e3 / from.number(&format!("moves.{key}"), RATE_MIN, RATE_MAX)?)
        };
        let moves = MoveCosts {
            dma_ps_per_byte: 1e3 * dma_ns_per_byte,
            memory_ps_per_byte: ps_per_byte("memory_gb_per_s")?,
            direct_ps_per_byte: ps_per_byte("direct_gb_per_s")?,
            scratchpad_ps_per_byte: ps_per_byte("scratchpad_gb_per_s")?,
        };
        let words = ["pointer", "payload", "arguments"];
        let hold = from.word("accelflow.entries_hold", &words)?;
        let per_s = Some(from.number("load.per_s", 0.0, 1e9)?).filter(|per_s| *per_s > 0.0);
        let recorded = recorded(&mut from, per_s)?;
        let spec = Self {
            name: entries.name.clone(),
            about: entries.about.clone(),
            extent: Extent::Requests(u64::from(from.whole("run.requests", 1, 1 << 22)?)),
            per_s,
            recorded,
            in_flight: from.whole("load.in_flight", 1, 4_096)?,
            tokens_max: from.whole("run.tokens_max", 1, 1 << 20)? as usize,
            instances: from.whole("hardware.instances", 1, 64)?,
            manager: ManagerCosts {
                completion: Picos::from_ns(from.number("manager.completion_ns", 0.0, NS_MAX)?),
                dma: Picos::from_ns(from.number("manager.dma_ns", 0.0, NS_MAX)?),
            },
            hold: [Hold::Pointer, Hold::Payload, Hold::Arguments][hold],
            dispatcher: Picos::from_ns(from.number("accelflow.dispatcher_ns", 0.0, NS_MAX)?),
            application,
            graph,
            moves,
        };
        from.finish(entries)?;
        Ok(spec)
    }

    /// Returns the number of requests in flight, if the next request arrives when another one is done.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the time that a request takes alone if every move is from or to memory.
    pub fn critical(&self) -> Picos {
        self.graph.critical
    }
}

/// Returns the names of a specification's applications.
pub fn applications_of(entries: &Entries) -> Vec<String> {
    entries.names("applications")
}

fn recorded(from: &mut Entries, per_s: Option<f64>) -> Result<Option<Arc<[f64]>>, SpecError> {
    let known = from.clone();
    let is_recorded = from.word("load.process", &["poisson", "recorded"])? == 1;
    from.recording_key()?;
    if is_recorded && per_s.is_none() {
        let problem = "load.process is \"recorded\", whose rate is load.per_s: set it above 0";
        return Err(known.refuse("load.process", problem));
    }
    is_recorded.then(|| known.recorded()).transpose()
}

fn ops(from: &mut Entries) -> Result<BTreeMap<String, Op>, SpecError> {
    let mut ops = BTreeMap::new();
    for name in from.names("ops") {
        let key = |what: &str| format!("ops.{name}.{what}");
        let op = Op {
            accelerator: from.word(&key("accelerator"), &ACCELERATORS)? as u8,
            compute_ns: 1e3 * from.number(&key("compute_us"), 1e-3, 1e9)?,
            out_bytes: from.whole(&key("out_bytes"), 1, 1 << 30)?,
        };
        ops.insert(name, op);
    }
    Ok(ops)
}

/// Takes the keys of all applications, and returns the name and the graph of the chosen application.
fn applications(
    from: &mut Entries,
    ops: &BTreeMap<String, Op>,
    moves: &Moves,
) -> Result<(String, Graph), SpecError> {
    let names = from.names("applications");
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    let known = from.clone();
    let wanted = from.word("run.application", &words)?;
    let mut found = None;
    for (index, name) in names.iter().enumerate() {
        let key = |what: &str| format!("applications.{name}.{what}");
        let valid = "a list of lines NAME = OP INPUT...";
        let head = from.list(&key("head"), valid, Line::read)?;
        let cell = from.list(&key("cell"), valid, Line::read)?;
        let rounds = from.whole(&key("rounds"), 1, 256)?;
        let deadline = Picos::from_ns(1e3 * from.number(&key("deadline_us"), 1e-3, 1e9)?);
        let graph = Graph::new(&head, &cell, rounds, ops, deadline, moves);
        let graph = graph.map_err(|bad| known.refuse(&key("cell"), &format!("{name}: {bad}")))?;
        if index == wanted {
            found = Some((name.clone(), graph));
        }
    }
    found.ok_or_else(|| known.refuse("run.application", "there are no applications"))
}

const NS_MAX: f64 = 1e12;
/// The smallest rate of a move (GB/s).
const RATE_MIN: f64 = 1e-3;
const RATE_MAX: f64 = 1e9;
