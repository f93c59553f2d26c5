//! The places of the accelerators and the distances between them. A mesh connects the places within a chiplet, and a
//! link connects any two chiplets.

use super::ids::Site;

/// The chiplet of each place, for 1 to 6 chiplets. \[AccelFlow\] section VII-C1 gives the organisations for
/// 1, 2, 3, 4 and 6. For 5, this project puts (De)Ser on the chiplet of RPC. LdB is always with the cores.
const CHIPLETS: [[u8; Site::COUNT]; 6] = [
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [1, 1, 1, 1, 1, 1, 1, 1, 0, 0],
    [1, 1, 1, 2, 2, 2, 2, 2, 0, 0],
    [1, 1, 1, 2, 2, 2, 3, 3, 0, 0],
    [1, 2, 2, 3, 3, 3, 4, 4, 0, 0],
    [1, 2, 2, 3, 4, 4, 5, 5, 0, 0],
];

/// The (row, column) of each accelerator in the mesh of its chiplet, from figure 6. The unused position of
/// the figure is taken as the exit of the mesh.
const PLACE: [(i32, i32); 8] = [(0, 0), (0, 1), (1, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 2)];
const MESH_EXIT: (i32, i32) = (2, 1);

/// The paths between places.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Topology {
    /// The latency (ns) from one place to another.
    pub(super) latency_ns: [[f64; Site::COUNT]; Site::COUNT],
    /// The link that a path uses, by its two places. It is none within a chiplet.
    pub(super) link: [[Option<u8>; Site::COUNT]; Site::COUNT],
    /// The number of links.
    pub(super) links: usize,
}

/// The parameters from which latencies are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distances {
    pub(super) chiplets: u32,
    pub(super) hop_ns: f64,
    pub(super) core_hops: f64,
    pub(super) inter_chiplet_ns: f64,
}

impl Topology {
    /// Returns the paths for an organisation into 1 to 6 chiplets.
    pub(super) fn new(distances: &Distances) -> Self {
        let chiplet = CHIPLETS[distances.chiplets as usize - 1];
        let hops_to_exit = |place: usize| match PLACE.get(place) {
            Some(at) => hops(*at, MESH_EXIT),
            None => distances.core_hops,
        };
        let mut topology = Self {
            latency_ns: [[0.0; Site::COUNT]; Site::COUNT],
            link: [[None; Site::COUNT]; Site::COUNT],
            links: (distances.chiplets * distances.chiplets) as usize,
        };
        for from in 0..Site::COUNT {
            for to in 0..Site::COUNT {
                let beside = from.min(to) >= PLACE.len();
                let mesh = match (PLACE.get(from), PLACE.get(to)) {
                    (Some(a), Some(b)) if chiplet[from] == chiplet[to] => hops(*a, *b),
                    _ if beside => distances.core_hops,
                    _ => hops_to_exit(from) + hops_to_exit(to),
                };
                let mut latency_ns = mesh * distances.hop_ns;
                if chiplet[from] != chiplet[to] {
                    latency_ns += distances.inter_chiplet_ns;
                    let link = u32::from(chiplet[from]) * distances.chiplets;
                    topology.link[from][to] = Some(link as u8 + chiplet[to]);
                }
                topology.latency_ns[from][to] = latency_ns;
            }
        }
        topology
    }
}

fn hops(from: (i32, i32), to: (i32, i32)) -> f64 {
    f64::from((from.0 - to.0).abs() + (from.1 - to.1).abs())
}

#[cfg(test)]
mod tests {
    use units::Op;

    use super::super::ids::Kind;
    use super::*;

    fn topology(chiplets: u32) -> Topology {
        let distances =
            Distances { chiplets, hop_ns: 1.25, core_hops: 6.0, inter_chiplet_ns: 25.0 };
        Topology::new(&distances)
    }

    #[test]
    fn more_chiplets_are_longer_ways() {
        let at = |op| Kind::from_op(op).expect("an accelerator").index();
        let (tcp, decrypt, balance) = (at(Op::Tcp), at(Op::Decrypt), at(Op::LoadBalance));
        assert_eq!(topology(2).latency_ns[tcp][decrypt], 2.5);
        assert_eq!(topology(2).link[tcp][decrypt], None);
        assert!(topology(6).latency_ns[tcp][decrypt] > 25.0);
        assert!(
            topology(2).latency_ns[tcp][Site::CORES.index()] > 25.0
                && topology(1).latency_ns[tcp][Site::CORES.index()] < 25.0
        );
        for chiplets in 1..=6 {
            assert_eq!(
                topology(chiplets).link[balance][Site::CORES.index()],
                None,
                "LdB is with the cores"
            );
            let total = |topology: Topology| topology.latency_ns.concat().iter().sum::<f64>();
            if chiplets > 1 {
                assert!(total(topology(chiplets)) > total(topology(chiplets - 1)));
            }
            let links = topology(chiplets).links;
            let highest = topology(chiplets).link.concat().into_iter().flatten().max();
            assert!(highest.is_none_or(|link| usize::from(link) < links));
        }
        assert_eq!(Kind::from_op(Op::Copy), None);
    }
}
