//! Arcalis: the near-cache RPC engine between a network core and an application core. The engine is `rpc`'s own object,
//! so its commands, states and messages are those of the functional version; this module gives them time. Beside it the
//! same services on one core. It holds no second state machine and reads no files.
//!
//! ```text
//! window -> NetCore -- words --> command interface --> Rx -- App.Recv --> AppCore
//!    ^------ NetCore <-- Net.Resp -- Tx <-- command interface <-- words ----'
//! ```
//!
//! A word reaches the command interface half an access after it left its core, and what a load returns reaches the core
//! half an access after it left the interface. An engine is BUSY with a header, drains while its memory operations and
//! what is done with their bytes take time, and is DONE for as long as it tells a core.

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
const BUILTIN: [(&str, &str); 2] = [
    ("arcalis", include_str!("../../../specs/sim/arcalis.toml")),
    ("arcalis-dagger", include_str!("../../../specs/sim/arcalis-dagger.toml")),
];

/// The scenarios that are compiled in.
pub const SCENARIOS: [&str; 2] = ["arcalis", "arcalis-dagger"];

/// The bytes of a Set's packet in addition to its key and its value.
pub const SET_OVERHEAD_BYTES: usize = 48;

/// The text of a specification that is compiled in, by its file's or its scenario's name.
pub fn builtin(name: &str) -> Option<&'static str> {
    let name = name.strip_suffix(".toml").unwrap_or(name);
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The place of the engine, or its absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// No engine: the network, the RPC layer and the handler on one core.
    Cpu,
    /// The engine is next to the last-level cache.
    NearCache,
    /// The engine is on the same chip, across the mesh.
    OnChip,
    /// Behind a processor interconnect.
    Upi,
    /// Behind PCIe.
    Pcie,
}

impl Attachment {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Cpu, Self::NearCache, Self::OnChip, Self::Upi, Self::Pcie];
    /// The attachments with an engine.
    pub const ENGINES: [Self; 4] = [Self::NearCache, Self::OnChip, Self::Upi, Self::Pcie];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::NearCache => "near-cache",
            Self::OnChip => "on-chip",
            Self::Upi => "upi",
            Self::Pcie => "pcie",
        }
    }

    /// The attachment of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|attachment| attachment.name() == name)
    }
}

/// A workload with an engine, or without, ready to be simulated any number of times from any thread.
#[derive(Clone, Debug)]
pub struct Arcalis {
    spec: Spec,
    service: Service,
    /// The messages, by function of the workload.
    messages: Vec<Messages>,
    /// The time of a load of the command page, there and back; none without an engine.
    access_ns: Option<f64>,
}

impl Arcalis {
    /// The model of `spec` with the engine at `attachment`.
    ///
    /// # Errors
    /// Which message cannot be simulated.
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

    /// Runs this many requests once and also returns what the engine saw: its words, its states and its frames.
    /// # Errors
    /// Why it could not be finished.
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

    /// Returns which function the next request calls, by its place in the workload.
    fn next(&self, draws: &mut Draws) -> usize {
        let mut left = draws.unit();
        let mut at = 0;
        while at + 1 < self.spec.mix.len() && left >= self.spec.mix[at].share {
            left -= self.spec.mix[at].share;
            at += 1;
        }
        at
    }

    /// Returns the time of the application for a request of this function.
    fn handler(&self, function: usize) -> Picos {
        Picos::from_ns(self.spec.mix[function].handler_ns)
    }

    /// Returns the time to read its record and to write its answer.
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

    /// Requests come when others are done, so there is none.
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
