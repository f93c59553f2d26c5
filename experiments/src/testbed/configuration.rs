//! The configurations of the experiment: where (de)compression runs, by what, and how the store is reached.

/// One way to run the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Configuration {
    /// Where values are (de)compressed.
    pub place: Place,
    /// What (de)compresses them.
    pub work: Work,
    /// How the frontend reaches memcached.
    pub door: Door,
}

/// Where values are (de)compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In the frontend.
    Monolith,
    /// In a compression service, over gRPC.
    Microservice,
    /// In a compression service on the same host, over shared memory.
    Lane,
}

/// What (de)compresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Software as QPL's software path does it: ISA-L, deflate within 4 KiB, dynamic Huffman codes.
    Software,
    /// The codec and the window that are fastest here for each size.
    Best,
    /// QPL's software path itself.
    QplSoftware,
    /// An IAA of this machine, through QPL.
    QplHardware,
    /// A virtual IAA.
    Iaa,
    /// A virtual IAA or the frontend's own core, whichever its policy expects to be quicker.
    LeastLatency,
    /// Nothing: clients bring compressed bytes. What is left is the floor of all others.
    Nothing,
}

/// How the frontend reaches memcached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Door {
    /// Through the store service.
    Grpc,
    /// By itself.
    Direct,
}

impl Door {
    /// Both.
    pub const ALL: [Door; 2] = [Door::Grpc, Door::Direct];
}

impl Configuration {
    /// The seed's two and the two that cross them first, then what came later: a place never changes, since figures
    /// take their colours from it.
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

    /// All that reach the store so.
    pub fn all(door: Door) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().map(move |(place, work)| Self { place, work, door })
    }

    /// This one.
    pub const fn new(place: Place, work: Work, door: Door) -> Self {
        Self { place, work, door }
    }

    /// Where it stands among [`Configuration::all`].
    pub fn index(self) -> usize {
        let own = (self.place, self.work);
        Self::ALL.iter().position(|other| *other == own).unwrap_or(0)
    }

    /// The one of this id.
    pub fn named(id: &str) -> Option<Self> {
        Door::ALL.into_iter().flat_map(Self::all).find(|own| own.id() == id)
    }

    /// What every ratio is against, unless its row names another.
    pub const fn base(self) -> Self {
        Self::new(Place::Monolith, Work::Software, self.door)
    }

    /// Whether (de)compression is a service of its own.
    pub fn is_microservice(self) -> bool {
        self.place != Place::Monolith
    }

    /// Whether a virtual device is in the path.
    pub const fn is_emulated(self) -> bool {
        matches!(self.work, Work::Iaa | Work::LeastLatency)
    }

    /// The virtual devices in the path.
    pub fn devices(self) -> Vec<String> {
        if self.is_emulated() { vec![VIRTUAL.to_owned()] } else { Vec::new() }
    }

    /// The only device that may do its jobs; none where that is the policy's choice.
    pub const fn device(self) -> Option<&'static str> {
        match self.work {
            Work::Software | Work::Best | Work::Nothing => Some("software"),
            Work::QplSoftware => Some(drivers::qpl::Path::Software.device()),
            Work::QplHardware => Some(drivers::qpl::Path::Hardware.device()),
            Work::Iaa => Some(VIRTUAL),
            Work::LeastLatency => None,
        }
    }

    /// As row ids have it.
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

    /// As people read it.
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

    /// The same at the end of a line in a figure.
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

/// The accelerator of the seed, emulated.
pub const VIRTUAL: &str = "virtual-iaa";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_is_found_by_its_id_alone() {
        for own in Door::ALL.into_iter().flat_map(Configuration::all) {
            assert_eq!(Configuration::named(&own.id()), Some(own));
        }
        assert_eq!(Configuration::named("lane"), None);
    }
}
