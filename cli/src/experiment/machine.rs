//! The machine that an experiment runs on: what to call it, and which core each process may have to itself.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

/// The machine, in words, and its class.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// Processor, cores, memory, kernel.
    pub(crate) description: String,
    /// `2c`, `16c`: the number of cores.
    pub(crate) class: String,
    /// Those that this process may run on.
    #[serde(skip)]
    cores: Vec<usize>,
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
        let own = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| own.is_set(*core)).collect();
        let count = cores.len();
        let processor = field(&read("/proc/cpuinfo"), "model name");
        let memory_kib = field(&read("/proc/meminfo"), "MemTotal");
        let memory_kib = memory_kib.split(' ').next().and_then(|kib| kib.parse::<u64>().ok());
        let memory_gib = memory_kib.unwrap_or(0) >> 20;
        let kernel = read("/proc/sys/kernel/osrelease");
        let description =
            format!("{processor}, {count} cores, {memory_gib} GiB, Linux {}", kernel.trim());
        Self { description, class: format!("{count}c"), cores }
    }

    /// The core of the n-th process; none where there are fewer cores than processes, and the system deals them out.
    pub(crate) fn core(&self, process: usize, processes: usize) -> Option<usize> {
        if self.cores.len() < processes { None } else { self.cores.get(process).copied() }
    }

    /// Keeps the calling thread, and those that it starts, on the first core where each process has one.
    pub(crate) fn keep_to_first_core(&self, processes: usize) {
        if let Some(core) = self.core(0, processes) {
            let mut own = CpuSet::new();
            own.set(core);
            // Not being pinned costs precision and nothing else; the page says what was asked for.
            let _ = sched_setaffinity(None, &own);
        }
    }
}
