//! The fabric that moves payloads: A-DMA engines, the network between chiplets, and memory. The time at which
//! each part of the fabric becomes free is known in advance, so a move needs no event. A mesh link is as fast
//! as an engine, so it has no separate queue.

use super::ids::Site;
use super::spec::Spec;
use super::topology::Topology;
use crate::Picos;

/// The place of a payload, and the time from which the payload is there.
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
    /// The total time for which engines were busy.
    pub(super) engines_busy: Picos,
    /// The total time for which links between chiplets were busy.
    pub(super) links_busy: Picos,
}

/// The path from one place to another.
#[derive(Clone, Copy, Debug)]
struct Way {
    latency: Picos,
    /// The link between chiplets that the path uses, if it uses one.
    link: Option<u8>,
}

/// The time per byte, in units of 2^-20 ps.
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

    /// Moves `bytes` of a payload with the engine that becomes free first. Returns the time at which they arrive.
    #[inline(always)]
    pub(super) fn carry(&mut self, payload: Payload, to: Site, bytes: u32) -> Picos {
        let Payload { site, ready } = payload;
        // Any engine that is already free gives the same result, and in most calls there is one.
        let free = self.engines.iter().position(|free| *free <= ready);
        let first = free.unwrap_or_else(|| self.first_free());
        let engine = &mut self.engines[first];
        let start = ready.max(*engine);
        let hold = self.setup + self.engine.time(bytes);
        let mut arrived = start + hold;
        *engine = arrived;
        self.engines_busy += hold;
        let way = self.ways[site.index()][to.index()];
        if let Some(link) = way.link {
            let link = &mut self.links[usize::from(link)];
            let sending = self.link.time(bytes);
            *link = start.max(*link) + sending;
            self.links_busy += sending;
            arrived = arrived.max(*link);
        }
        arrived + way.latency
    }

    /// Returns the index of the engine that becomes free first.
    #[inline(never)]
    fn first_free(&self) -> usize {
        let first = self.engines.iter().enumerate().min_by_key(|(_, free)| **free);
        first.map_or(0, |(index, _)| index)
    }

    /// Reads `bytes` from memory. The read begins at `start`, which is `now` or later. Returns the time at
    /// which the bytes are there. A read that begins later does not delay other reads before its start.
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

    /// Returns the time for `bytes`, to the nearest picosecond.
    #[inline]
    pub(super) fn time(self, bytes: u32) -> Picos {
        let parts = u128::from(bytes) * u128::from(self.0) + (1 << (PARTS_LOG2 - 1));
        Picos((parts >> PARTS_LOG2) as u64)
    }
}

/// The binary logarithm of the number of [`Pace`] units in a picosecond.
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
        // The setup takes 10 ns, 768 bytes take 20 ns at 38.4 GB/s, and one hop takes 1.25 ns.
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
