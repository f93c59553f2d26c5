//! Defines the keys of a specification: hardware, costs, work, load and the length of the simulation. Each
//! key has a valid range, and unknown keys are refused. The files give the source of each value.

use std::sync::Arc;

use trace::Catalog;
use units::Op;

use super::branches::{Branches, FIELDS};
use super::fabric::Pace;
use super::ids::{KINDS, Kind};
use super::sizes::SizeShape;
use super::topology::Distances;
use crate::entries::{Entries, SpecError};
use crate::{ArrivalSpec, Arrivals, BadValue, DurationSpec, Extent, Picos};

/// A checked specification.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The name of the scenario.
    pub name: String,
    /// One sentence about the scenario.
    pub about: String,
    /// The length of a replication.
    pub extent: Extent,
    /// The maximum number of requests and parts of requests in flight.
    pub tokens_max: usize,
    pub(super) hardware: Hardware,
    pub(super) dispatcher: Dispatcher,
    pub(super) costs: Costs,
    pub(super) tenants: Tenants,
    pub(super) branches: Branches,
    pub(super) work: Work,
    pub(super) load: Load,
    pub(super) accelerators: Vec<Accelerator>,
    pub(super) services: Vec<Service>,
}

#[derive(Clone, Debug)]
pub(super) struct Hardware {
    pub(super) cores: u32,
    /// Whether any core takes the work of any request. Otherwise a request belongs to one core.
    pub(super) shares_cores: bool,
    pub(super) pes: u32,
    pub(super) input_entries: usize,
    pub(super) output_entries: usize,
    pub(super) inline_bytes: u32,
    pub(super) overflow_entries: usize,
    pub(super) enqueue: Picos,
    pub(super) dma_engines: u32,
    pub(super) dma_setup_ns: f64,
    pub(super) dma_ns_per_byte: f64,
    pub(super) scratchpad: Picos,
    pub(super) scratchpad_pace: Pace,
    pub(super) wipe: Picos,
    pub(super) memory_ns: f64,
    pub(super) memory_ns_per_byte: f64,
    pub(super) atm_ns: f64,
    pub(super) notify_ns: f64,
    pub(super) distances: Distances,
    pub(super) link_ns_per_byte: f64,
    pub(super) tlb_misses: Share,
    pub(super) tlb_walk: Picos,
    pub(super) page_faults: Share,
    pub(super) page_fault: Picos,
}

/// A share of all hashes: those whose lower 32 bits are below this number. The upper bits select sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share(u64);

#[derive(Clone, Debug)]
pub(super) struct Dispatcher {
    pub(super) instructions: u32,
    pub(super) branch_instructions: u32,
    pub(super) end_instructions: u32,
    pub(super) transform_instructions: u32,
    pub(super) instruction_ns: f64,
    pub(super) discipline: Order,
}

/// The order in which a PE takes the ready entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Fifo,
    Priority,
    Deadline,
}

#[derive(Clone, Debug)]
pub(super) struct Costs {
    pub(super) occupancy: f64,
    pub(super) manager_ns: f64,
    pub(super) manager_branch_ns: f64,
    pub(super) manager_transform_ns: f64,
    pub(super) manager_large_ns: f64,
    pub(super) manager_dma_ns: f64,
    pub(super) interrupt_ns: f64,
    pub(super) cohort_ns: f64,
    pub(super) enqueue_ns: f64,
    pub(super) cohort_pairs: Vec<(Kind, Kind)>,
}

#[derive(Clone, Debug)]
pub(super) struct Tenants {
    pub(super) count: u32,
    /// The maximum number of live traces of a tenant, or none without a limit.
    pub(super) traces_max: Option<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) app_stages: u32,
    pub(super) remote_ns: f64,
    pub(super) timeout: Picos,
    pub(super) slo_factor: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Load {
    total_per_s: f64,
    process: Process,
    burst_factor: f64,
    burst_on_us: f64,
    burst_off_us: f64,
}

/// The arrival process of a service's requests.
#[derive(Clone, Debug)]
enum Process {
    Poisson,
    Bursty,
    /// Requests arrive with independent gaps that have this squared coefficient of variation.
    Renewal(f64),
    /// Requests arrive with these gaps (ns). The gaps repeat from the start and are scaled to the load.
    Recorded(Arc<[f64]>),
}

/// The parameters of one accelerator.
#[derive(Clone, Debug)]
pub(super) struct Accelerator {
    pub(super) speedup: f64,
    pub(super) sizes: SizeShape,
}

/// One service: its time on a core, and the parts of this time.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) time_ns: f64,
    /// The shares of the time, by category in the order of [`CATEGORIES`].
    pub(super) shares: [f64; 7],
    pub(super) weight: f64,
    pub(super) priority: u32,
}

/// The categories of figure 1.
const CATEGORIES: [&str; 7] =
    ["tcp", "encryption", "rpc", "serialization", "compression", "load_balance", "app"];
/// The index of the category of application work.
pub(super) const APP: usize = 6;

/// Returns the category to which an op's time belongs.
pub(super) fn category(op: Op) -> usize {
    match op {
        Op::Tcp => 0,
        Op::Encrypt | Op::Decrypt => 1,
        Op::Rpc => 2,
        Op::Serialize | Op::Deserialize => 3,
        Op::Compress | Op::Decompress => 4,
        Op::LoadBalance => 5,
        Op::Checksum | Op::Copy | Op::Notify => APP,
    }
}

impl Spec {
    /// Reads a specification from `entries` and refuses unknown keys. The services must be in `catalog`.
    ///
    /// # Errors
    /// Returns the first value that cannot be used, with its place and the valid values.
    pub fn read(entries: &Entries, catalog: &Catalog) -> Result<Self, SpecError> {
        let mut from = entries.clone();
        let cycle_ns = 1.0 / from.number("hardware.clock_ghz", 0.01, 100.0)?;
        let extent = extent(&mut from)?;
        let spec = Self {
            name: entries.name.clone(),
            about: entries.about.clone(),
            tokens_max: from.whole("run.tokens_max", 1, 1 << 24)? as usize,
            extent,
            dispatcher: dispatcher(&mut from, cycle_ns)?,
            hardware: hardware(&mut from, cycle_ns)?,
            costs: costs(&mut from)?,
            tenants: Tenants {
                count: from.whole("tenants.count", 1, 65_535)?,
                traces_max: Some(from.whole("tenants.traces_max", 0, 1 << 24)?).filter(|n| *n > 0),
            },
            branches: branches(&mut from)?,
            work: Work {
                app_stages: from.whole("work.app_stages", 0, 64)?,
                remote_ns: from.number("work.remote_ns", 0.0, NS_MAX)?,
                timeout: Picos::from_ns(from.number("work.timeout_ns", 0.0, NS_MAX)?),
                slo_factor: from.number("work.slo_factor", 1e-3, 1e6)?,
            },
            load: load(&mut from, extent)?,
            accelerators: accelerators(&mut from)?,
            services: services(&mut from, catalog)?,
        };
        from.finish(entries)?;
        Ok(spec)
    }

    /// Returns the names of the services, in order.
    pub fn services(&self) -> impl Iterator<Item = &str> {
        self.services.iter().map(|service| service.name.as_str())
    }

    /// Returns the requests per second of all services together.
    pub fn total_per_s(&self) -> f64 {
        self.load.total_per_s
    }

    /// Returns the arrivals of a service's requests.
    pub(super) fn arrivals(&self, service: &Service) -> Result<Arrivals, BadValue> {
        let weights: f64 = self.services.iter().map(|service| service.weight).sum();
        let per_s = self.load.total_per_s * service.weight / weights;
        match &self.load.process {
            Process::Poisson => Arrivals::new(&ArrivalSpec::Poisson { per_s }),
            Process::Bursty => Arrivals::new(&self.load.bursts(per_s)),
            Process::Renewal(cv2) => {
                let gap = DurationSpec::Hyperexponential { mean_ns: 1e9 / per_s, cv2: *cv2 };
                Arrivals::new(&ArrivalSpec::Gaps { gap })
            }
            Process::Recorded(gaps_ns) => Arrivals::recorded(gaps_ns, per_s),
        }
    }
}

impl Load {
    /// Returns a bursty arrival process with this mean rate.
    fn bursts(&self, per_s: f64) -> ArrivalSpec {
        let (on, off) = (self.burst_on_us, self.burst_off_us);
        let on_per_s = per_s * self.burst_factor;
        let off_per_s = (per_s * (on + off) - on_per_s * on) / off;
        ArrivalSpec::Bursty {
            on_per_s,
            // Rounding can give a rate slightly below zero if nothing arrives in the off phases.
            off_per_s: off_per_s.max(0.0),
            on_mean_ns: on * 1e3,
            off_mean_ns: off * 1e3,
        }
    }
}

fn extent(from: &mut Entries) -> Result<Extent, SpecError> {
    let requests = from.whole("run.requests", 1, 1 << 22)?;
    let window_us = from.number("run.window_us", 0.0, 1e9)?;
    Ok(if window_us > 0.0 {
        Extent::WindowPs(Picos::from_ns(window_us * 1e3))
    } else {
        Extent::Requests(u64::from(requests))
    })
}

impl Share {
    /// Makes the share of all hashes that has this size.
    fn new(share: f64) -> Self {
        Self((share * (1u64 << 32) as f64).ceil() as u64)
    }

    /// Returns whether the hash falls into the share.
    #[inline]
    pub(super) fn has(self, hash: u64) -> bool {
        u64::from(hash as u32) < self.0
    }

    /// Returns whether the share is greater than zero.
    #[inline]
    pub(super) fn is_any(self) -> bool {
        self.0 > 0
    }
}

fn hardware(from: &mut Entries, cycle_ns: f64) -> Result<Hardware, SpecError> {
    let mut number =
        |key: &str, low: f64, high: f64| from.number(&format!("hardware.{key}"), low, high);
    let per_byte = |gb_per_s: f64| 1.0 / gb_per_s;
    let tries = number("enqueue_tries", 1.0, 1_000.0)?;
    let enqueue = Picos::from_ns((tries - 1.0) * number("enqueue_retry_ns", 0.0, NS_MAX)?);
    let dma_ns_per_byte = per_byte(number("dma_gb_per_s", RATE_MIN, RATE_MAX)?);
    let scratchpad_ns_per_byte = per_byte(number("scratchpad_gb_per_s", RATE_MIN, RATE_MAX)?);
    let memory_ns_per_byte = per_byte(number("memory_gb_per_s", RATE_MIN, RATE_MAX)?);
    let link_ns_per_byte = per_byte(number("inter_chiplet_gb_per_s", RATE_MIN, RATE_MAX)?);
    let wipe = Picos::from_ns(number("wipe_ns", 0.0, NS_MAX)?);
    let tlb_walk = Picos::from_ns(number("tlb_walk_ns", 0.0, NS_MAX)?);
    let page_fault = Picos::from_ns(number("page_fault_ns", 0.0, NS_MAX)?);
    Ok(Hardware {
        dma_setup_ns: number("dma_setup_ns", 0.0, NS_MAX)?,
        scratchpad: Picos::from_ns(number("scratchpad_ns", 0.0, NS_MAX)?),
        memory_ns: number("memory_ns", 0.0, NS_MAX)?,
        atm_ns: number("atm_ns", 0.0, NS_MAX)?,
        notify_ns: cycle_ns * number("notify_cycles", 0.0, 1e9)?,
        tlb_misses: Share::new(number("tlb_miss_share", 0.0, 1.0)?),
        page_faults: Share::new(number("page_fault_share", 0.0, 1.0)?),
        distances: Distances {
            hop_ns: cycle_ns * number("hop_cycles", 0.0, 1e6)?,
            core_hops: number("core_hops", 0.0, 1e3)?,
            inter_chiplet_ns: cycle_ns * number("inter_chiplet_cycles", 0.0, 1e9)?,
            chiplets: from.whole("hardware.chiplets", 1, 6)?,
        },
        cores: from.whole("hardware.cores", 1, 4_096)?,
        shares_cores: from.word("hardware.request_cores", &["any", "one"])? == 0,
        pes: from.whole("hardware.pes", 1, 255)?,
        input_entries: from.whole("hardware.input_entries", 1, 1 << 24)? as usize,
        output_entries: from.whole("hardware.output_entries", 1, 1 << 24)? as usize,
        inline_bytes: from.whole("hardware.inline_bytes", 0, 1 << 30)?,
        overflow_entries: from.whole("hardware.overflow_entries", 0, 1 << 24)? as usize,
        dma_engines: from.whole("hardware.dma_engines", 1, 64)?,
        enqueue,
        dma_ns_per_byte,
        scratchpad_pace: Pace::new(scratchpad_ns_per_byte),
        memory_ns_per_byte,
        link_ns_per_byte,
        wipe,
        tlb_walk,
        page_fault,
    })
}

fn dispatcher(from: &mut Entries, cycle_ns: f64) -> Result<Dispatcher, SpecError> {
    let per_cycle = from.number("dispatcher.instructions_per_cycle", 0.01, 100.0)?;
    let order = from.word("dispatcher.discipline", &["fifo", "priority", "deadline"])?;
    Ok(Dispatcher {
        instructions: from.whole("dispatcher.instructions", 0, INSTRUCTIONS_MAX)?,
        branch_instructions: from.whole("dispatcher.branch_instructions", 0, INSTRUCTIONS_MAX)?,
        end_instructions: from.whole("dispatcher.end_instructions", 0, INSTRUCTIONS_MAX)?,
        transform_instructions: from.whole(
            "dispatcher.transform_instructions",
            0,
            INSTRUCTIONS_MAX,
        )?,
        instruction_ns: cycle_ns / per_cycle,
        discipline: [Order::Fifo, Order::Priority, Order::Deadline][order],
    })
}

fn costs(from: &mut Entries) -> Result<Costs, SpecError> {
    let pair = |text: &str| {
        let (first, second) = text.split_once('>')?;
        let kind = |name: &str| Kind::all().find(|kind| kind.op().name() == name);
        Some((kind(first)?, kind(second)?))
    };
    let names = KINDS.map(Op::name).join(", ");
    let valid = format!("a list of pairs such as \"tcp>decrypt\", of {names}");
    let cohort_pairs = from.list("costs.cohort_pairs", &valid, pair)?;
    let mut ns = |key: &str| from.number(&format!("costs.{key}"), 0.0, NS_MAX);
    Ok(Costs {
        manager_ns: ns("manager_ns")?,
        manager_branch_ns: ns("manager_branch_ns")?,
        manager_transform_ns: ns("manager_transform_ns")?,
        manager_large_ns: ns("manager_large_ns")?,
        manager_dma_ns: ns("manager_dma_ns")?,
        interrupt_ns: ns("interrupt_ns")?,
        cohort_ns: ns("cohort_ns")?,
        enqueue_ns: ns("enqueue_ns")?,
        occupancy: from.number("costs.occupancy", 0.01, 1e3)?,
        cohort_pairs,
    })
}

fn branches(from: &mut Entries) -> Result<Branches, SpecError> {
    let mut all = [1.0; FIELDS.len()];
    for (probability, field) in all.iter_mut().zip(FIELDS) {
        let key = format!("branches.{}", field.replace('-', "_"));
        *probability = from.number(&key, 0.0, 1.0)?;
    }
    Ok(Branches(all))
}

fn load(from: &mut Entries, extent: Extent) -> Result<Load, SpecError> {
    let burst_on_us = from.number("load.burst_on_us", 1e-3, 1e9)?;
    let burst_off_us = from.number("load.burst_off_us", 1e-3, 1e9)?;
    // Above this factor, the rate in the off phases would be negative.
    let most = (burst_on_us + burst_off_us) / burst_on_us;
    // A replication at this rate ends well before the clock overflows.
    let least = match extent {
        Extent::Requests(count) => (count as f64 / RUN_S_MAX).max(PER_S_MIN),
        Extent::WindowPs(_) => PER_S_MIN,
    };
    let gap_cv2 = from.number("load.gap_cv2", 1.0, 1e3)?;
    let process = match from.word("load.process", &["poisson", "bursty", "recorded", "renewal"])? {
        0 => Process::Poisson,
        1 => Process::Bursty,
        3 => Process::Renewal(gap_cv2),
        _ => Process::Recorded(from.recorded()?),
    };
    from.recording_key()?;
    Ok(Load {
        total_per_s: from.number("load.total_per_s", least, 1e12)?,
        process,
        burst_factor: from.number("load.burst_factor", 1.0, most)?,
        burst_on_us,
        burst_off_us,
    })
}

fn accelerators(from: &mut Entries) -> Result<Vec<Accelerator>, SpecError> {
    let upper_share = from.number("work.upper_share", 0.51, 0.999)?;
    let size_share = from.number("work.size_share", 0.0, 1.0)?;
    let accelerator = |op: &Op| -> Result<Accelerator, SpecError> {
        let key = |what: &str| format!("accelerators.{}.{what}", op.name());
        let max_kb = from.number(&key("max_kb"), 1e-3, 1e6)?;
        let median_kb = from.number(&key("median_kb"), 1e-3, max_kb)?;
        let min_kb = from.number(&key("min_kb"), 0.0, median_kb)?;
        let [min_bytes, median_bytes, max_bytes] =
            [min_kb, median_kb, max_kb].map(|kb| kb * BYTES_PER_KB);
        let sizes = SizeShape { min_bytes, median_bytes, max_bytes, upper_share, size_share };
        Ok(Accelerator { speedup: from.number(&key("speedup"), 1e-3, 1e6)?, sizes })
    };
    KINDS.iter().map(accelerator).collect()
}

fn services(from: &mut Entries, catalog: &Catalog) -> Result<Vec<Service>, SpecError> {
    // The services are in the catalog's order, which is the published order.
    let named = from.names("services");
    let services = catalog.services().iter().filter(|service| named.contains(&service.name));
    let services = services.map(|service| -> Result<Service, SpecError> {
        let key = |what: &str| format!("services.{}.{what}", service.name);
        let mut shares = [0.0; CATEGORIES.len()];
        let mut left = 1.0 + SHARES_ROUNDING;
        for (share, name) in shares.iter_mut().zip(CATEGORIES) {
            *share = from.number(&key(name), 0.0, f64::max(left, 0.0))?;
            left -= *share;
        }
        Ok(Service {
            name: service.name.clone(),
            time_ns: 1e3 * from.number(&key("time_us"), 0.0, 1e9)?,
            shares,
            weight: from.number(&key("weight"), 1e-6, 1e6)?,
            priority: from.whole(&key("priority"), 0, 255)?,
        })
    });
    services.collect()
}

const NS_MAX: f64 = 1e12;
/// The longest run (s). The clock counts up to 1.8e7 s.
const RUN_S_MAX: f64 = 1e6;
const PER_S_MIN: f64 = 1e-3;
/// The smallest rate of a transfer (GB/s).
const RATE_MIN: f64 = 1e-3;
const RATE_MAX: f64 = 1e9;
const INSTRUCTIONS_MAX: u32 = 1_000_000;
/// A kilobyte has 1,024 bytes here, because \[AccelFlow\]'s queue entries of 2 KB are 2,048 bytes.
const BYTES_PER_KB: f64 = 1_024.0;
/// The amount by which the sum of shares that were read from a drawing may exceed one.
const SHARES_ROUNDING: f64 = 0.02;
