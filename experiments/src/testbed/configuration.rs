//! The configurations of the experiment: where values are (de)compressed, what does it, and how the store is reached.

/// One way to run the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Configuration {
    /// The place where values are (de)compressed.
    pub place: Place,
    /// The software or device that (de)compresses them.
    pub work: Work,
    /// The way in which the frontend reaches memcached.
    pub door: Door,
}

/// The place where values are (de)compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The frontend.
    Monolith,
    /// A compression service, over gRPC.
    Microservice,
    /// A compression service on the same host, over shared memory.
    Lane,
}

/// The software or device that (de)compresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Software that does what QPL's software path does: ISA-L, deflate within 4 KiB, dynamic Huffman codes.
    Software,
    /// The codec and the window that are fastest here for each size.
    Best,
    /// QPL's software path itself.
    QplSoftware,
    /// An IAA of this machine, through QPL.
    QplHardware,
    /// A virtual IAA.
    Iaa,
    /// A virtual IAA or the frontend's own core. The policy chooses the one that it expects to be quicker.
    LeastLatency,
    /// Nothing: clients bring compressed bytes. The work that remains is the floor of all other configurations.
    Nothing,
}

/// The way in which the frontend reaches memcached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Door {
    /// Through the store service.
    Grpc,
    /// Without a service between them.
    Direct,
}

impl Door {
    /// All routes.
    pub const ALL: [Door; 2] = [Door::Grpc, Door::Direct];
}

impl Configuration {
    /// First the two of \[CacheTax\] and the two that cross them, then later ones. An index never changes, because
    /// figures take their colours from it.
    const ALL: [(Place, Work); 11] = [
        (Place::Monolith, Work::Software),
        (Place::Monolith, Work::Iaa),
        (Place::Microservice, Work::Software),
        (Place::Microservice, Work::Iaa),
        (Place::Monolith, Work::Best),
        (Place::Lane, Work::Software),
        (Place::Lane, Work::Iaa),
        (Place::Lane, Work::LeastLatency),
        (Place::Monolith, Work::QplSoftware),
        (Place::Monolith, Work::QplHardware),
        (Place::Monolith, Work::Nothing),
    ];

    /// Returns all configurations that reach the store by this route.
    pub fn all(door: Door) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().map(move |(place, work)| Self { place, work, door })
    }

    /// Makes a configuration.
    pub const fn new(place: Place, work: Work, door: Door) -> Self {
        Self { place, work, door }
    }

    /// Returns the index among [`Configuration::all`].
    pub fn index(self) -> usize {
        let wanted = (self.place, self.work);
        Self::ALL.iter().position(|other| *other == wanted).unwrap_or(0)
    }

    /// Returns the configuration with this id.
    pub fn named(id: &str) -> Option<Self> {
        Door::ALL.into_iter().flat_map(Self::all).find(|configuration| configuration.id() == id)
    }

    /// Returns the configuration that ratios divide by, unless their row names another.
    pub const fn base(self) -> Self {
        Self::new(Place::Monolith, Work::Software, self.door)
    }

    /// Returns whether a separate service (de)compresses.
    pub fn is_microservice(self) -> bool {
        self.place != Place::Monolith
    }

    /// Returns whether a virtual device is in the path.
    pub const fn is_emulated(self) -> bool {
        matches!(self.work, Work::Iaa | Work::LeastLatency)
    }

    /// Returns the virtual devices in the path.
    pub fn devices(self) -> Vec<String> {
        if self.is_emulated() { vec![VIRTUAL.to_owned()] } else { Vec::new() }
    }

    /// Returns the only device that may do the jobs, or None where the policy chooses.
    pub const fn device(self) -> Option<&'static str> {
        match self.work {
            Work::Software | Work::Best | Work::Nothing => Some("software"),
            Work::QplSoftware => Some(drivers::qpl::Path::Software.device()),
            Work::QplHardware => Some(drivers::qpl::Path::Hardware.device()),
            Work::Iaa => Some(VIRTUAL),
            Work::LeastLatency => None,
        }
    }

    /// Returns the id that rows use.
    pub fn id(self) -> String {
        let place = match self.place {
            Place::Monolith => "monolith",
            Place::Microservice => "microservice",
            Place::Lane => "lane",
        };
        let work = match self.work {
            Work::Software => "software",
            Work::Best => "best",
            Work::QplSoftware => "qpl_software",
            Work::QplHardware => "qpl_hardware",
            Work::Iaa => "iaa",
            Work::LeastLatency => "least_latency",
            Work::Nothing => "pass_through",
        };
        let door = if self.door == Door::Direct { "_direct" } else { "" };
        format!("{place}_{work}{door}")
    }

    /// Returns the name for people.
    pub fn name(self) -> String {
        let place = match self.place {
            Place::Monolith => "monolith",
            Place::Microservice => "microservice",
            Place::Lane => "microservice over a lane",
        };
        let work = match self.work {
            Work::Software => "software",
            Work::Best => "best software",
            Work::QplSoftware => "QPL's software path",
            Work::QplHardware => "IAA through QPL",
            Work::Iaa => "virtual IAA",
            Work::LeastLatency => "virtual IAA where quicker",
            Work::Nothing => "pass-through",
        };
        format!("{place}, {work}")
    }

    /// Returns the name at the end of a line in a figure.
    pub fn label(self) -> String {
        let place = match self.place {
            Place::Monolith => "mono",
            Place::Microservice => "micro",
            Place::Lane => "lane",
        };
        let work = match self.work {
            Work::Software => "software",
            Work::Best => "best",
            Work::QplSoftware => "QPL",
            Work::QplHardware => "QPL IAA",
            Work::Iaa => "IAA",
            Work::LeastLatency => "quicker",
            Work::Nothing => "floor",
        };
        format!("{place} {work}")
    }
}

/// The accelerator of \[CacheTax\], emulated.
pub const VIRTUAL: &str = "virtual-iaa";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_is_found_by_its_id_alone() {
        for configuration in Door::ALL.into_iter().flat_map(Configuration::all) {
            assert_eq!(Configuration::named(&configuration.id()), Some(configuration));
        }
        assert_eq!(Configuration::named("lane"), None);
    }
}
