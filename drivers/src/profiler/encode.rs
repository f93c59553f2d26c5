//! Writes a profile in the format of pprof: <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use prost::Message;

use super::modules::Modules;
use super::stacks::Stacks;
use super::symbols::Symbols;

/// When and how the samples were taken.
pub(super) struct Recorded {
    pub(super) started: SystemTime,
    pub(super) length: Duration,
    pub(super) period: Duration,
}

/// The messages of `profile.proto`, without what is not written.
mod proto {
    use prost::Message;

    #[derive(Message)]
    pub(super) struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub(super) sample_types: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub(super) samples: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub(super) mappings: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub(super) locations: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub(super) functions: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub(super) strings: Vec<String>,
        #[prost(int64, tag = "9")]
        pub(super) time_ns: i64,
        #[prost(int64, tag = "10")]
        pub(super) duration_ns: i64,
        #[prost(message, optional, tag = "11")]
        pub(super) period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        pub(super) period: i64,
        #[prost(int64, repeated, tag = "13")]
        pub(super) comments: Vec<i64>,
    }

    #[derive(Clone, Copy, Message)]
    pub(super) struct ValueType {
        #[prost(int64, tag = "1")]
        pub(super) name: i64,
        #[prost(int64, tag = "2")]
        pub(super) unit: i64,
    }

    #[derive(Message)]
    pub(super) struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub(super) locations: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub(super) values: Vec<i64>,
    }

    #[derive(Message)]
    pub(super) struct Mapping {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(uint64, tag = "2")]
        pub(super) begin: u64,
        #[prost(uint64, tag = "3")]
        pub(super) end: u64,
        #[prost(uint64, tag = "4")]
        pub(super) file_offset: u64,
        #[prost(int64, tag = "5")]
        pub(super) file: i64,
        #[prost(bool, tag = "7")]
        pub(super) has_functions: bool,
    }

    #[derive(Message)]
    pub(super) struct Location {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(uint64, tag = "2")]
        pub(super) mapping: u64,
        #[prost(uint64, tag = "3")]
        pub(super) address: u64,
        #[prost(message, repeated, tag = "4")]
        pub(super) lines: Vec<Line>,
    }

    #[derive(Message)]
    pub(super) struct Line {
        #[prost(uint64, tag = "1")]
        pub(super) function: u64,
    }

    #[derive(Message)]
    pub(super) struct Function {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(int64, tag = "2")]
        pub(super) name: i64,
    }
}

/// Writes the stacks with the names of their functions.
pub(super) fn profile(modules: &Modules, stacks: &Stacks, recorded: &Recorded) -> Vec<u8> {
    let mut writer = Writer::new(modules);
    let (samples, count) = (writer.text("samples"), writer.text("count"));
    let (cpu, nanoseconds) = (writer.text("cpu"), writer.text("nanoseconds"));
    let cpu = proto::ValueType { name: cpu, unit: nanoseconds };
    writer.profile.sample_types = vec![proto::ValueType { name: samples, unit: count }, cpu];
    writer.profile.period_type = Some(cpu);
    let period = i64::try_from(recorded.period.as_nanos()).unwrap_or(i64::MAX);
    writer.profile.period = period;
    let started = recorded.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    writer.profile.time_ns = i64::try_from(started.as_nanos()).unwrap_or(i64::MAX);
    writer.profile.duration_ns = i64::try_from(recorded.length.as_nanos()).unwrap_or(i64::MAX);
    if stacks.lost > 0 {
        let comment = writer.text(&format!("{} samples were lost", stacks.lost));
        writer.profile.comments.push(comment);
    }
    // In the order of the addresses, so that functions get their ids in it.
    let sorted: BTreeMap<&Vec<u64>, &u64> = stacks.counts.iter().collect();
    for (stack, count) in sorted {
        let locations = writer.stack(stack);
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        let values = vec![count, count.saturating_mul(period)];
        writer.profile.samples.push(proto::Sample { locations, values });
    }
    writer.profile.encode_to_vec()
}

/// A profile in the making. Ids are one more than the index in the tables, because 0 means none.
struct Writer<'m> {
    modules: &'m Modules,
    profile: proto::Profile,
    texts: HashMap<String, i64>,
    /// The id of the mapping of each module, by the module's index, and the symbols of the module.
    mappings: HashMap<usize, (u64, Symbols)>,
    locations: HashMap<u64, u64>,
    functions: HashMap<i64, u64>,
    /// The location of the kernel, which has no address.
    kernel: Option<u64>,
}

impl<'m> Writer<'m> {
    fn new(modules: &'m Modules) -> Self {
        let mut writer = Self {
            modules,
            profile: proto::Profile::default(),
            texts: HashMap::new(),
            mappings: HashMap::new(),
            locations: HashMap::new(),
            functions: HashMap::new(),
            kernel: None,
        };
        // The format requires it to be the first text.
        writer.text("");
        writer
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(index) = self.texts.get(text) {
            return *index;
        }
        let index = self.profile.strings.len() as i64;
        self.profile.strings.push(text.to_owned());
        self.texts.insert(text.to_owned(), index);
        index
    }

    /// Returns the locations of a stack.
    fn stack(&mut self, stack: &[u64]) -> Vec<u64> {
        let kernel = stack.first().filter(|address| {
            let module = self.modules.find(**address).map(|index| &self.modules.all[index]);
            module.is_some_and(|module| module.is_in_kernel(**address))
        });
        let kernel = kernel.map(|_| self.kernel());
        let stack = stack.iter().map(|address| self.location(*address));
        kernel.into_iter().chain(stack).collect()
    }

    fn kernel(&mut self) -> u64 {
        if let Some(id) = self.kernel {
            return id;
        }
        let file = self.text(KERNEL);
        let mapping = self.mapping(proto::Mapping { file, ..proto::Mapping::default() });
        let id = self.add_location(mapping, 0, Some("[kernel]"));
        self.kernel = Some(id);
        id
    }

    fn location(&mut self, address: u64) -> u64 {
        if let Some(id) = self.locations.get(&address) {
            return *id;
        }
        let modules = self.modules;
        let id = match modules.find(address) {
            None => self.add_location(0, 0, None),
            Some(index) => {
                let module = &modules.all[index];
                let at = module.file_address(address);
                let (mapping, symbols) = match self.mappings.remove(&index) {
                    Some(known) => known,
                    None => (self.module(index), Symbols::new(module)),
                };
                let id = self.add_location(mapping, at, symbols.find(at));
                self.mappings.insert(index, (mapping, symbols));
                id
            }
        };
        self.locations.insert(address, id);
        id
    }

    fn module(&mut self, index: usize) -> u64 {
        let module = &self.modules.all[index];
        let file = self.text(&module.name);
        self.mapping(proto::Mapping {
            begin: module.file_address(module.mapped.start),
            end: module.file_address(module.mapped.end),
            file_offset: module.file_offset,
            file,
            has_functions: true,
            ..proto::Mapping::default()
        })
    }

    fn mapping(&mut self, mut mapping: proto::Mapping) -> u64 {
        mapping.id = self.profile.mappings.len() as u64 + 1;
        let id = mapping.id;
        self.profile.mappings.push(mapping);
        id
    }

    fn add_location(&mut self, mapping: u64, address: u64, name: Option<&str>) -> u64 {
        let lines = name.map(|name| proto::Line { function: self.function(name) });
        let id = self.profile.locations.len() as u64 + 1;
        let lines = lines.into_iter().collect();
        self.profile.locations.push(proto::Location { id, mapping, address, lines });
        id
    }

    fn function(&mut self, name: &str) -> u64 {
        let name = self.text(name);
        let next = self.profile.functions.len() as u64 + 1;
        let id = *self.functions.entry(name).or_insert(next);
        if id == next {
            self.profile.functions.push(proto::Function { id, name });
        }
        id
    }
}

/// perf's name of the kernel as a file.
const KERNEL: &str = "[kernel.kallsyms]";
