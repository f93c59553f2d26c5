//! The configurations of the experiment: where (de)compression runs, by what, and how the store is reached.

use serde::Serialize;

/// One way to run the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Configuration {
    /// Whether (de)compression is a service of its own, over gRPC.
    pub(crate) microservice: bool,
    /// Whether an accelerator does it; here a virtual one.
    pub(crate) accelerated: bool,
    /// What software does it, in the absence of an accelerator.
    pub(crate) software: Software,
    /// How the frontend reaches memcached.
    pub(crate) door: Door,
}

/// A software baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Software {
    /// As QPL's software path: ISA-L, deflate within 4 KiB, dynamic Huffman codes.
    Seed,
    /// The codec and the window that are fastest here for each size.
    Best,
}

/// How the frontend reaches memcached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Door {
    /// Through the store service.
    Grpc,
    /// By itself.
    Direct,
}

impl Configuration {
    const fn new(microservice: bool, accelerated: bool, software: Software, door: Door) -> Self {
        Self { microservice, accelerated, software, door }
    }

    /// The seed's two, the two that cross them, and the monolith with the best software.
    pub(crate) const fn all(door: Door) -> [Self; 5] {
        [
            Self::new(false, false, Software::Seed, door),
            Self::new(false, true, Software::Seed, door),
            Self::new(true, false, Software::Seed, door),
            Self::new(true, true, Software::Seed, door),
            Self::new(false, false, Software::Best, door),
        ]
    }

    /// The four of the comparison.
    pub(crate) fn four(door: Door) -> Vec<Self> {
        Self::all(door).into_iter().filter(|own| own.software == Software::Seed).collect()
    }

    /// What every ratio is against.
    pub(crate) const fn base(self) -> Self {
        Self::new(false, false, Software::Seed, self.door)
    }

    /// As row ids have it.
    pub(crate) fn id(self) -> String {
        let place = if self.microservice { "microservice" } else { "monolith" };
        let by = match (self.accelerated, self.software) {
            (true, _) => "iaa",
            (false, Software::Seed) => "software",
            (false, Software::Best) => "best",
        };
        let door = if self.door == Door::Direct { "_direct" } else { "" };
        format!("{place}_{by}{door}")
    }

    /// As people read it.
    pub(crate) fn name(self) -> String {
        let place = if self.microservice { "microservice" } else { "monolith" };
        let by = match (self.accelerated, self.software) {
            (true, _) => "virtual IAA",
            (false, Software::Seed) => "software",
            (false, Software::Best) => "best software",
        };
        format!("{place}, {by}")
    }

    /// The same at the end of a line in a figure.
    pub(crate) fn label(self) -> String {
        let place = if self.microservice { "micro" } else { "mono" };
        let by = match (self.accelerated, self.software) {
            (true, _) => "IAA",
            (false, Software::Seed) => "software",
            (false, Software::Best) => "best",
        };
        format!("{place} {by}")
    }

    /// The virtual devices in the path.
    pub(crate) fn devices(self) -> Vec<String> {
        if self.accelerated { vec![VIRTUAL.to_owned()] } else { Vec::new() }
    }
}

/// The accelerator of the seed, emulated.
pub(crate) const VIRTUAL: &str = "virtual-iaa";
