//! Simulates Arcalis: the near-cache RPC engine between a network core and an application core. The engine is
//! that of the crate `rpc`, so its commands, states and messages are those of the functional version. This
//! module adds the times. It also simulates the same services on one core without an engine. It reads no
//! files.
//!
//! ```text
//! window -> NetCore -- words --> command interface --> Rx -- App.Recv --> AppCore
//!    ^------ NetCore <-- Net.Resp -- Tx <-- command interface <-- words ----'
//! ```
//!
//! A word takes half an access time from its core to the command interface. The result of a load takes half
//! an access time from the interface to its core. An engine half is BUSY while it handles a header, drains
//! while its memory operations and the work on their bytes take time, and is DONE while it notifies a core.

mod arena;
mod baseline;
mod counts;
mod messages;
mod run;
mod spec;

pub use run::Seen;
pub use spec::{Spec, workloads};

use messages::{Messages, Service};

use crate::study::{Extent, Names, RunError, Sample, Simulate};
use crate::{Agenda, Draws, Picos, Streams};

/// The specifications that are compiled in, each with its name.
const BUILTIN: [(&str, &str); 3] = [
    ("arcalis", include_str!("../../../specs/sim/arcalis.toml")),
    ("arcalis-dagger", include_str!("../../../specs/sim/arcalis-dagger.toml")),
    ("arcalis-measured", include_str!("../../../specs/sim/arcalis-measured.toml")),
];

/// The scenarios that are compiled in.
pub const SCENARIOS: [&str; 3] = ["arcalis", "arcalis-dagger", "arcalis-measured"];

/// The size of a Set's packet without the key and the value (bytes).
pub const SET_OVERHEAD_BYTES: usize = 48;

/// Returns the text of a compiled-in specification, by the name of its file or scenario.
pub fn builtin(name: &str) -> Option<&'static str> {
    let name = name.strip_suffix(".toml").unwrap_or(name);
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The place of the engine, or its absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// There is no engine: the network, the RPC layer and the handler run on one core.
    Cpu,
    /// The engine is next to the last-level cache.
    NearCache,
    /// The engine is on the same chip, across the mesh.
    OnChip,
    /// The engine is behind a processor interconnect.
    Upi,
    /// The engine is behind PCIe.
    Pcie,
}

impl Attachment {
    /// All attachments.
    pub const ALL: [Self; 5] = [Self::Cpu, Self::NearCache, Self::OnChip, Self::Upi, Self::Pcie];
    /// The attachments with an engine.
    pub const ENGINES: [Self; 4] = [Self::NearCache, Self::OnChip, Self::Upi, Self::Pcie];

    /// Returns the name of the attachment.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::NearCache => "near-cache",
            Self::OnChip => "on-chip",
            Self::Upi => "upi",
            Self::Pcie => "pcie",
        }
    }

    /// Returns the attachment of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|attachment| attachment.name() == name)
    }
}

/// A workload with or without an engine, ready to be simulated any number of times from any thread.
#[derive(Clone, Debug)]
pub struct Arcalis {
    spec: Spec,
    service: Service,
    /// The messages of each function of the workload.
    messages: Vec<Messages>,
    /// The round-trip time of a load of the command page. It is none without an engine.
    access_ns: Option<f64>,
}

impl Arcalis {
    /// Returns the model of `spec` with the engine at `attachment`.
    ///
    /// # Errors
    /// Returns a text that names a message that does not fit a buffer.
    pub fn new(spec: &Spec, attachment: Attachment) -> Result<Self, String> {
        let buffer_bytes = spec.memory.buffer_bytes;
        let messages = spec.mix.iter().map(|share| {
            Messages::new(share.function, &spec.shapes, buffer_bytes).map_err(|_| {
                let name = share.function.name();
                format!("a message of {name} is longer than memory.buffer_bytes, {buffer_bytes}")
            })
        });
        let service = spec.mix.first().ok_or("the workload has no functions")?.function.service();
        let place = Attachment::ENGINES.iter().position(|engine| *engine == attachment);
        Ok(Self {
            messages: messages.collect::<Result<_, _>>()?,
            access_ns: place.map(|place| spec.access_ns[place]),
            spec: spec.clone(),
            service,
        })
    }

    /// Runs this many requests once. Also returns the words, states and frames of the engine.
    ///
    /// # Errors
    /// Returns the reason why the run could not be finished.
    pub fn observe(&self, streams: &Streams, requests: u64) -> Result<(Sample, Seen), RunError> {
        let mut run = run::Run::new(self, streams, Extent::Requests(requests));
        run.watch();
        let sample = self.drive(&mut run, u64::MAX)?;
        Ok((sample, run.seen()))
    }

    fn drive(&self, run: &mut run::Run<'_>, events_max: u64) -> Result<Sample, RunError> {
        let mut agenda = Agenda::with_capacity(AGENDA_CAPACITY);
        run.start(&mut agenda);
        let end = crate::run(run, &mut agenda, events_max);
        RunError::check(end, run.fault.take(), events_max)?;
        Ok(run.sample(&agenda))
    }

    /// Draws the function of the next request. Returns its index in the workload.
    fn next(&self, draws: &mut Draws) -> usize {
        let mut left = draws.unit();
        let mut at = 0;
        while at + 1 < self.spec.mix.len() && left >= self.spec.mix[at].share {
            left -= self.spec.mix[at].share;
            at += 1;
        }
        at
    }

    /// Returns the application's time for a request of this function.
    fn handler(&self, function: usize) -> Picos {
        Picos::from_ns(self.spec.mix[function].handler_ns)
    }

    /// Returns the time to read the record of a request of this function and to write its answer.
    fn bytes(&self, function: usize) -> Picos {
        let (core, messages) = (&self.spec.core, &self.messages[function]);
        let read = core.in_ns_per_byte * messages.record_bytes as f64;
        Picos::from_ns(read + core.out_ns_per_byte * messages.response_bytes as f64)
    }
}

impl Simulate for Arcalis {
    fn names(&self) -> Names {
        Names {
            responses: self.spec.functions().map(str::to_owned).collect(),
            facts: counts::names(),
        }
    }

    /// Returns none. There is no overload, because a new request arrives only when another one is done.
    fn overload(&self) -> Option<String> {
        None
    }

    fn replicate(
        &self,
        streams: &Streams,
        extent: Extent,
        events_max: u64,
    ) -> Result<Sample, RunError> {
        if self.access_ns.is_none() {
            return Ok(baseline::sample(self, streams, extent));
        }
        self.drive(&mut run::Run::new(self, streams, extent), events_max)
    }
}

const AGENDA_CAPACITY: usize = 64;
