//! The machine that an experiment runs on: what to call it, and which core each process may have to itself.

use std::num::NonZeroUsize;

use serde::Serialize;

/// The machine, in words, and its class.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// Processor, cores, memory, kernel.
    pub(crate) description: String,
    /// `2c`, `16c`: the number of cores.
    pub(crate) class: String,
    #[serde(skip)]
    cores: usize,
}

impl Machine {
    /// This one.
    pub(crate) fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once(':'));
            value.map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let processor = field(&read("/proc/cpuinfo"), "model name");
        let memory_kib = field(&read("/proc/meminfo"), "MemTotal");
        let memory_kib = memory_kib.split(' ').next().and_then(|kib| kib.parse::<u64>().ok());
        let memory_gib = memory_kib.unwrap_or(0) >> 20;
        let kernel = read("/proc/sys/kernel/osrelease");
        let description =
            format!("{processor}, {cores} cores, {memory_gib} GiB, Linux {}", kernel.trim());
        Self { description, class: format!("{cores}c"), cores }
    }

    /// The core of the n-th process; none where there are fewer cores than processes, and the system deals them out.
    pub(crate) fn core(&self, process: usize, processes: usize) -> Option<usize> {
        (self.cores >= processes).then_some(process)
    }
}
