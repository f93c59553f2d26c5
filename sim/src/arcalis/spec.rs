//! Defines the keys of a specification: attachment, engine, memory, cores, functions, messages and the
//! workload. Each key has a range, and unknown keys are refused. The files give the source of each value.

use super::Attachment;
use super::messages::{FUNCTIONS, Function, Shapes};
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
    /// The workload's name.
    pub workload: String,
    /// The number of requests in flight.
    pub window: u32,
    pub(super) access_ns: [f64; Attachment::ENGINES.len()],
    pub(super) engine: EngineCosts,
    pub(super) memory: MemoryCosts,
    pub(super) net: NetCosts,
    pub(super) core: CoreCosts,
    pub(super) mix: Vec<Share>,
    pub(super) shapes: Shapes,
}

/// The costs of the engine. Fields named `cycles` count cycles of the engine.
#[derive(Clone, Debug)]
pub(super) struct EngineCosts {
    pub(super) cycle_ns: f64,
    pub(super) command_cycles: f64,
    pub(super) header_cycles: f64,
    pub(super) dispatch_cycles: f64,
    pub(super) deserialize_cycles: f64,
    pub(super) load_cycles_per_byte: f64,
    pub(super) deserialize_cycles_per_byte: f64,
    pub(super) serialize_cycles: f64,
    pub(super) serialize_cycles_per_byte: f64,
    pub(super) finish_cycles: f64,
    pub(super) decoupled: bool,
    pub(super) cache_bytes: f64,
    pub(super) depth: usize,
}

#[derive(Clone, Debug)]
pub(super) struct MemoryCosts {
    pub(super) buffers: usize,
    pub(super) buffer_bytes: usize,
    pub(super) page_bytes: usize,
    pub(super) miss_ns: f64,
    pub(super) misses_in_flight: f64,
    pub(super) tlb_entries: usize,
    pub(super) walk_ns: f64,
    pub(super) fault_share: f64,
    pub(super) fault: Picos,
}

#[derive(Clone, Debug)]
pub(super) struct NetCosts {
    pub(super) receive_ns: f64,
    pub(super) send_ns: f64,
}

#[derive(Clone, Debug)]
pub(super) struct CoreCosts {
    /// The time in which a core issues one word.
    pub(super) command_ns: f64,
    pub(super) in_ns_per_byte: f64,
    pub(super) out_ns_per_byte: f64,
}

/// The share of a function in the workload, and its costs.
#[derive(Clone, Debug)]
pub(super) struct Share {
    pub(super) function: Function,
    /// The share of the requests. The shares of a workload sum to 1.
    pub(super) share: f64,
    pub(super) handler_ns: f64,
    pub(super) software_ns: f64,
}

impl Spec {
    /// Reads a specification from `entries` and refuses unknown keys.
    ///
    /// # Errors
    /// Returns the first value that cannot be used, with its place and the valid values.
    pub fn read(entries: &Entries) -> Result<Self, SpecError> {
        let mut from = entries.clone();
        let (workload, mix) = workload(&mut from)?;
        let memory = memory(&mut from)?;
        let engine = engine(&mut from)?;
        let most = memory.buffers.min(engine.depth) as u32;
        let core_ns = 1.0 / from.number("core.clock_ghz", 0.01, 100.0)?;
        let spec = Self {
            name: entries.name.clone(),
            about: entries.about.clone(),
            extent: Extent::Requests(u64::from(from.whole("run.requests", 1, 1 << 22)?)),
            window: from.whole("run.window", 1, most)?,
            access_ns: access_ns(&mut from)?,
            net: NetCosts {
                receive_ns: from.number("net.receive_ns", 0.0, NS_MAX)?,
                send_ns: from.number("net.send_ns", 0.0, NS_MAX)?,
            },
            core: CoreCosts {
                command_ns: core_ns * from.number("core.command_cycles", 0.0, CYCLES_MAX)?,
                in_ns_per_byte: from.number("core.in_ns_per_byte", 0.0, 1e3)?,
                out_ns_per_byte: from.number("core.out_ns_per_byte", 0.0, 1e3)?,
            },
            shapes: shapes(&mut from)?,
            workload,
            engine,
            memory,
            mix,
        };
        from.finish(entries)?;
        Ok(spec)
    }

    /// Returns the names of the workload's functions, in order.
    pub fn functions(&self) -> impl Iterator<Item = &'static str> {
        self.mix.iter().map(|share| share.function.name())
    }
}

/// Returns the names of a specification's workloads.
pub fn workloads(entries: &Entries) -> Vec<String> {
    entries.names("workloads")
}

fn access_ns(from: &mut Entries) -> Result<[f64; 4], SpecError> {
    let mut ns = |key: &str| from.number(&format!("attachment.{key}"), 0.0, NS_MAX);
    Ok([ns("near_cache_ns")?, ns("on_chip_ns")?, ns("upi_ns")?, ns("pcie_ns")?])
}

fn engine(from: &mut Entries) -> Result<EngineCosts, SpecError> {
    let cycle_ns = 1.0 / from.number("engine.clock_ghz", 0.01, 100.0)?;
    let mut cycles = |key: &str| from.number(&format!("engine.{key}"), 0.0, CYCLES_MAX);
    Ok(EngineCosts {
        cycle_ns,
        command_cycles: cycles("command_cycles")?,
        header_cycles: cycles("header_cycles")?,
        dispatch_cycles: cycles("dispatch_cycles")?,
        deserialize_cycles: cycles("deserialize_cycles")?,
        load_cycles_per_byte: cycles("load_cycles_per_byte")?,
        deserialize_cycles_per_byte: cycles("deserialize_cycles_per_byte")?,
        serialize_cycles: cycles("serialize_cycles")?,
        serialize_cycles_per_byte: cycles("serialize_cycles_per_byte")?,
        finish_cycles: cycles("finish_cycles")?,
        decoupled: from.word("engine.decoupled", &["no", "yes"])? == 1,
        cache_bytes: f64::from(from.whole("engine.cache_kib", 0, 1 << 20)?) * 1_024.0,
        depth: from.whole("engine.depth", 1, 4_096)? as usize,
    })
}

fn memory(from: &mut Entries) -> Result<MemoryCosts, SpecError> {
    let known = from.clone();
    let pages = from.whole("memory.page_kib", 4, 2_048)?;
    if pages != 4 && pages != 2_048 {
        let problem = format!("memory.page_kib is {pages}; it must be 4 or 2048");
        return Err(known.refuse("memory.page_kib", &problem));
    }
    Ok(MemoryCosts {
        buffers: from.whole("memory.buffers", 1, 1_024)? as usize,
        buffer_bytes: from.whole("memory.buffer_bytes", 256, 16_384)?.next_multiple_of(64) as usize,
        page_bytes: pages as usize * 1_024,
        miss_ns: from.number("memory.miss_ns", 0.0, NS_MAX)?,
        misses_in_flight: from.number("memory.misses_in_flight", 1.0, 1e3)?,
        tlb_entries: from.whole("memory.tlb_entries", 1, 4_096)? as usize,
        walk_ns: from.number("memory.walk_ns", 0.0, NS_MAX)?,
        // Above one half, few requests would get through.
        fault_share: from.number("memory.fault_share", 0.0, 0.5)?,
        fault: Picos::from_ns(from.number("memory.fault_ns", 0.0, NS_MAX)?),
    })
}

fn shapes(from: &mut Entries) -> Result<Shapes, SpecError> {
    let mut whole = |key: &str, low, high| {
        from.whole(&format!("shapes.{key}"), low, high).map(|count| count as usize)
    };
    Ok(Shapes {
        key_bytes: whole("key_bytes", 1, 250)?,
        value_bytes: whole("value_bytes", 0, 16_384)?,
        text_bytes: whole("text_bytes", 0, 16_384)?,
        mentions: whole("mentions", 0, 64)?,
        posts: whole("posts", 0, 64)?,
        carrier_entries: whole("carrier_entries", 0, 64)?,
        carrier_bytes: whole("carrier_bytes", 0, 1_024)?,
    })
}

/// Takes the keys of all workloads, and returns the name and the functions of the chosen workload.
fn workload(from: &mut Entries) -> Result<(String, Vec<Share>), SpecError> {
    let names = from.names("workloads");
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let chosen = from.word("run.workload", &known)?;
    let mut mix = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let found = shares(from, name)?;
        if index == chosen {
            mix = found;
        }
    }
    let costs = FUNCTIONS.map(|function| -> Result<(f64, f64), SpecError> {
        let key = |what: &str| format!("functions.{}.{what}", function.name());
        let handler_ns = from.number(&key("handler_ns"), 0.0, NS_MAX)?;
        Ok((handler_ns, from.number(&key("software_ns"), 0.0, NS_MAX)?))
    });
    for (function, costs) in FUNCTIONS.into_iter().zip(costs) {
        let costs = costs?;
        if let Some(share) = mix.iter_mut().find(|share| share.function == function) {
            (share.handler_ns, share.software_ns) = costs;
        }
    }
    Ok((names[chosen].clone(), mix))
}

/// Returns the functions of a workload, in order. All of them belong to one service.
fn shares(from: &mut Entries, workload: &str) -> Result<Vec<Share>, SpecError> {
    let section = format!("workloads.{workload}");
    let known = from.clone();
    let named = from.below(&section);
    let mut mix: Vec<Share> = Vec::new();
    for function in FUNCTIONS.into_iter().filter(|one| named.iter().any(|name| name == one.name()))
    {
        let key = format!("{section}.{}", function.name());
        if let Some(first) = mix.first()
            && first.function.service() != function.service()
        {
            let problem = format!(
                "{key}: a workload has functions of one service, and {} is of another",
                first.function.name()
            );
            return Err(known.refuse(&key, &problem));
        }
        let share = from.number(&key, 0.0, 1.0)?;
        mix.push(Share { function, share, handler_ns: 0.0, software_ns: 0.0 });
    }
    let sum: f64 = mix.iter().map(|part| part.share).sum();
    if (sum - 1.0).abs() > SHARES_ROUNDING {
        let last = named.last().map(|name| format!("{section}.{name}")).unwrap_or_default();
        let rounded = (sum * 1e4).round() / 1e4;
        let problem = format!("{section}: its shares are {rounded} together; they must be 1");
        return Err(known.refuse(&last, &problem));
    }
    mix.retain(|part| part.share > 0.0);
    mix.iter_mut().for_each(|part| part.share /= sum);
    Ok(mix)
}

const NS_MAX: f64 = 1e9;
const CYCLES_MAX: f64 = 1e6;
const SHARES_ROUNDING: f64 = 1e-3;
