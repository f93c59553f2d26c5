//! The configurations of the experiment: the process that (de)compresses values, the software or device that does it,
//! and the route to the store.

/// One configuration of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Configuration {
    /// The process in which values are (de)compressed.
    pub topology: Topology,
    /// The software or device that (de)compresses values.
    pub compressor: Compressor,
    /// The route by which the frontend reaches memcached.
    pub route: StoreRoute,
}

/// The process in which values are (de)compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topology {
    /// The frontend (de)compresses.
    Monolith,
    /// A compression service (de)compresses. The frontend reaches it over gRPC.
    Microservice,
    /// A compression service on the same host (de)compresses. The frontend reaches it over shared memory.
    Lane,
}

/// The software or device that (de)compresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compressor {
    /// Software equivalent to QPL's software path: ISA-L deflate, a 4 KiB window and dynamic Huffman codes.
    Software,
    /// The codec and the window that are fastest on this machine for each size.
    Best,
    /// QPL's software path itself.
    QplSoftware,
    /// An IAA of this machine, used through QPL.
    QplHardware,
    /// A virtual IAA.
    Iaa,
    /// A virtual IAA or the frontend's own core. The policy chooses whichever it expects to be faster.
    LeastLatency,
    /// Nothing, because clients send compressed bytes. The work that remains is the lower bound for all other
    /// configurations.
    Nothing,
}

/// The route by which the frontend reaches memcached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreRoute {
    /// The frontend calls the store service over gRPC.
    Grpc,
    /// The frontend calls memcached without a service between them.
    Direct,
}

impl StoreRoute {
    /// All routes.
    pub const ALL: [StoreRoute; 2] = [StoreRoute::Grpc, StoreRoute::Direct];
}

impl Configuration {
    /// All configurations. The first four are the two of \[CacheTax\] and the two that combine their parts.
    /// An index never changes, because figures take their colours from it.
    const ALL: [(Topology, Compressor); 11] = [
        (Topology::Monolith, Compressor::Software),
        (Topology::Monolith, Compressor::Iaa),
        (Topology::Microservice, Compressor::Software),
        (Topology::Microservice, Compressor::Iaa),
        (Topology::Monolith, Compressor::Best),
        (Topology::Lane, Compressor::Software),
        (Topology::Lane, Compressor::Iaa),
        (Topology::Lane, Compressor::LeastLatency),
        (Topology::Monolith, Compressor::QplSoftware),
        (Topology::Monolith, Compressor::QplHardware),
        (Topology::Monolith, Compressor::Nothing),
    ];

    /// Returns all configurations that reach the store by this route.
    pub fn all(route: StoreRoute) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().map(move |(topology, compressor)| Self {
            topology,
            compressor,
            route,
        })
    }

    /// Makes a configuration.
    pub const fn new(topology: Topology, compressor: Compressor, route: StoreRoute) -> Self {
        Self { topology, compressor, route }
    }

    /// Returns the index among [`Configuration::all`].
    pub fn index(self) -> usize {
        let wanted = (self.topology, self.compressor);
        Self::ALL.iter().position(|other| *other == wanted).unwrap_or(0)
    }

    /// Returns the configuration with this id.
    pub fn named(id: &str) -> Option<Self> {
        StoreRoute::ALL
            .into_iter()
            .flat_map(Self::all)
            .find(|configuration| configuration.id() == id)
    }

    /// Returns the configuration that ratios divide by, unless their row names another.
    pub const fn base(self) -> Self {
        Self::new(Topology::Monolith, Compressor::Software, self.route)
    }

    /// Returns whether a separate service (de)compresses.
    pub fn is_microservice(self) -> bool {
        self.topology != Topology::Monolith
    }

    /// Returns whether a virtual device is in the path.
    pub const fn is_emulated(self) -> bool {
        matches!(self.compressor, Compressor::Iaa | Compressor::LeastLatency)
    }

    /// Returns the virtual devices in the path.
    pub fn devices(self) -> Vec<String> {
        if self.is_emulated() { vec![VIRTUAL.to_owned()] } else { Vec::new() }
    }

    /// Returns the only device that may run the jobs, or None if the policy chooses.
    pub const fn device(self) -> Option<&'static str> {
        match self.compressor {
            Compressor::Software | Compressor::Best | Compressor::Nothing => Some("software"),
            Compressor::QplSoftware => Some(drivers::qpl::Path::Software.device()),
            Compressor::QplHardware => Some(drivers::qpl::Path::Hardware.device()),
            Compressor::Iaa => Some(VIRTUAL),
            Compressor::LeastLatency => None,
        }
    }

    /// Returns the configuration's id in rows.
    pub fn id(self) -> String {
        let topology = match self.topology {
            Topology::Monolith => "monolith",
            Topology::Microservice => "microservice",
            Topology::Lane => "lane",
        };
        let compressor = match self.compressor {
            Compressor::Software => "software",
            Compressor::Best => "best",
            Compressor::QplSoftware => "qpl_software",
            Compressor::QplHardware => "qpl_hardware",
            Compressor::Iaa => "iaa",
            Compressor::LeastLatency => "least_latency",
            Compressor::Nothing => "pass_through",
        };
        let route = if self.route == StoreRoute::Direct { "_direct" } else { "" };
        format!("{topology}_{compressor}{route}")
    }

    /// Returns the configuration's name for people.
    pub fn name(self) -> String {
        let topology = match self.topology {
            Topology::Monolith => "monolith",
            Topology::Microservice => "microservice",
            Topology::Lane => "microservice over a lane",
        };
        let compressor = match self.compressor {
            Compressor::Software => "software",
            Compressor::Best => "best software",
            Compressor::QplSoftware => "QPL's software path",
            Compressor::QplHardware => "IAA through QPL",
            Compressor::Iaa => "virtual IAA",
            Compressor::LeastLatency => "virtual IAA where quicker",
            Compressor::Nothing => "pass-through",
        };
        format!("{topology}, {compressor}")
    }

    /// Returns the configuration's name at the end of a line in a figure.
    pub fn label(self) -> String {
        let topology = match self.topology {
            Topology::Monolith => "mono",
            Topology::Microservice => "micro",
            Topology::Lane => "lane",
        };
        let compressor = match self.compressor {
            Compressor::Software => "software",
            Compressor::Best => "best",
            Compressor::QplSoftware => "QPL",
            Compressor::QplHardware => "QPL IAA",
            Compressor::Iaa => "IAA",
            Compressor::LeastLatency => "quicker",
            Compressor::Nothing => "floor",
        };
        format!("{topology} {compressor}")
    }
}

/// The accelerator of \[CacheTax\], emulated.
pub const VIRTUAL: &str = "virtual-iaa";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_is_found_by_its_id_alone() {
        for configuration in StoreRoute::ALL.into_iter().flat_map(Configuration::all) {
            assert_eq!(Configuration::named(&configuration.id()), Some(configuration));
        }
        assert_eq!(Configuration::named("lane"), None);
    }
}
