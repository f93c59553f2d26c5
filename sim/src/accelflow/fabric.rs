//! The fabric that moves payloads: A-DMA engines, the network between chiplets, memory. Each is free at a known time,
//! so a move needs no event. A mesh link is as fast as an engine, so there is no separate queue for it.

use super::ids::Site;
use super::spec::Spec;
use super::topology::Topology;
use crate::Picos;

/// A payload: where it is, and from when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload {
    pub(super) site: Site,
    pub(super) ready: Picos,
}

#[derive(Clone, Debug)]
pub(super) struct Fabric {
    engines: Vec<Picos>,
    links: Vec<Picos>,
    memory: Picos,
    setup: Picos,
    engine: Pace,
    link: Pace,
    memory_latency: Picos,
    memory_pace: Pace,
    ways: [[Way; Site::COUNT]; Site::COUNT],
    /// Time that engines were busy.
    pub(super) engines_busy: Picos,
    /// Time that links between chiplets were busy.
    pub(super) links_busy: Picos,
}

/// The path from one place to another.
#[derive(Clone, Copy, Debug)]
struct Way {
    latency: Picos,
    /// The link between chiplets that it takes, if it takes one.
    link: Option<u8>,
}

/// The time per byte, in whole parts of a picosecond.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace(u64);

impl Fabric {
    pub(super) fn new(spec: &Spec, topology: &Topology) -> Self {
        let hardware = &spec.hardware;
        let way = |from: usize, to: usize| Way {
            latency: Picos::from_ns(topology.latency_ns[from][to]),
            link: topology.link[from][to],
        };
        Self {
            engines: vec![Picos(0); hardware.dma_engines as usize],
            links: vec![Picos(0); topology.links],
            memory: Picos(0),
            setup: Picos::from_ns(hardware.dma_setup_ns),
            engine: Pace::new(hardware.dma_ns_per_byte),
            link: Pace::new(hardware.link_ns_per_byte),
            memory_latency: Picos::from_ns(hardware.memory_ns),
            memory_pace: Pace::new(hardware.memory_ns_per_byte),
            ways: std::array::from_fn(|from| std::array::from_fn(|to| way(from, to))),
            engines_busy: Picos(0),
            links_busy: Picos(0),
        }
    }

    /// Moves `bytes` of a payload and returns when they have landed. The engine that is free first takes them.
    #[inline(always)]
    pub(super) fn carry(&mut self, payload: Payload, to: Site, bytes: u32) -> Picos {
        let Payload { site, ready } = payload;
        // One that is free already does as well as any, and mostly there is one.
        let free = self.engines.iter().position(|free| *free <= ready);
        let first = free.unwrap_or_else(|| self.first_free());
        let engine = &mut self.engines[first];
        let start = ready.max(*engine);
        let hold = self.setup + self.engine.time(bytes);
        let mut landed = start + hold;
        *engine = landed;
        self.engines_busy += hold;
        let way = self.ways[site.index()][to.index()];
        if let Some(link) = way.link {
            let link = &mut self.links[usize::from(link)];
            let sending = self.link.time(bytes);
            *link = start.max(*link) + sending;
            self.links_busy += sending;
            landed = landed.max(*link);
        }
        landed + way.latency
    }

    /// The engine that is free first, where all are busy.
    #[inline(never)]
    fn first_free(&self) -> usize {
        let first = self.engines.iter().enumerate().min_by_key(|(_, free)| **free);
        first.map_or(0, |(index, _)| index)
    }

    /// Reads `bytes` from memory from `start` on, which is `now` or later, and returns when they are there. A read that
    /// starts later delays no other until then.
    pub(super) fn read(&mut self, bytes: u32, now: Picos, start: Picos) -> Picos {
        let time = self.memory_pace.time(bytes);
        self.memory = now.max(self.memory) + time;
        self.memory.max(start + time) + self.memory_latency
    }
}

impl Pace {
    pub(super) fn new(ns_per_byte: f64) -> Self {
        Self((ns_per_byte * 1e3 * (1u64 << PARTS_LOG2) as f64 + 0.5) as u64)
    }

    /// The nearest whole picosecond.
    #[inline]
    pub(super) fn time(self, bytes: u32) -> Picos {
        let parts = u128::from(bytes) * u128::from(self.0) + (1 << (PARTS_LOG2 - 1));
        Picos((parts >> PARTS_LOG2) as u64)
    }
}

/// The parts of a picosecond, as a power of two.
const PARTS_LOG2: u32 = 20;

#[cfg(test)]
mod tests {
    use units::Op;

    use super::super::ids::Kind;
    use super::super::tests::spec;
    use super::*;

    fn fabric(set: &[(&str, &str)]) -> Fabric {
        let spec = spec("steady", set);
        Fabric::new(&spec, &Topology::new(&spec.hardware.distances))
    }

    #[test]
    fn engines_are_shared_and_links_have_bandwidth() {
        let set = [("hardware.dma_engines", "2"), ("hardware.inter_chiplet_gb_per_s", "1")];
        let mut fabric = fabric(&set);
        let tcp = |ready| Payload { site: Kind::TCP.into(), ready };
        let encrypt = Site::from(Kind::from_op(Op::Encrypt).expect("an accelerator"));
        let beside = |fabric: &mut Fabric| fabric.carry(tcp(Picos(0)), encrypt, 768);
        let out = |fabric: &mut Fabric| fabric.carry(tcp(Picos::micros(1)), Site::CORES, 1_000);
        // 10 ns and 768 bytes at 38.4 GB/s, one hop of 1.25 ns.
        assert_eq!(beside(&mut fabric), Picos(31_250));
        assert_eq!(beside(&mut fabric), Picos(31_250));
        assert_eq!(beside(&mut fabric), Picos(61_250), "both engines are busy");
        let apart = out(&mut fabric);
        assert!(apart > Picos::micros(2) + Picos::nanos(25), "{apart:?}");
        assert!(out(&mut fabric) > apart + Picos::nanos(990));
    }

    #[test]
    fn memory_has_bandwidth_and_latency() {
        let mut fabric = fabric(&[]);
        let now = Picos(0);
        assert_eq!(fabric.read(4_096, now, now), Picos::nanos(110));
        assert_eq!(fabric.read(4_096, now, now), Picos::nanos(120));
        assert_eq!(fabric.read(4_096, now, Picos::micros(1)), Picos::nanos(1_110));
        assert_eq!(
            fabric.read(4_096, now, now),
            Picos::nanos(140),
            "what starts later is no hold-up"
        );
    }
}
