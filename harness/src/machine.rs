//! Describes the machine that an experiment runs on, and chooses a core for each process.

use serde::Serialize;

/// A description of the machine, and its class.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor, cores, memory and kernel.
    pub description: String,
    /// The number of cores, as in `2c` or `16c`.
    pub class: String,
    /// The cores that this process may run on.
    #[serde(skip)]
    cores: Vec<usize>,
    /// The CPU time of all cores when the machine was described.
    #[serde(skip)]
    pub begun: CoreTime,
}

/// The CPU time of all cores since boot, and the part of it that the host gave to other guests (ticks).
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreTime {
    all: u64,
    stolen: u64,
}

impl CoreTime {
    fn now() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// Reads the first line of `/proc/stat` (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal. The
    /// fields after these are already counted in the first two.
    fn parse(text: &str) -> Self {
        let words = text.lines().next().unwrap_or_default().split_whitespace().skip(1).take(8);
        let ticks: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        Self { all: ticks.iter().sum(), stolen: ticks.get(7).copied().unwrap_or(0) }
    }

    /// Returns the share of the cores' time since `self` that the host gave to other guests. If it is above
    /// zero, they disturbed the measurement.
    pub fn stolen_since(self) -> f64 {
        self.stolen_until(Self::now())
    }

    fn stolen_until(self, now: Self) -> f64 {
        let all = now.all.saturating_sub(self.all).max(1);
        now.stolen.saturating_sub(self.stolen) as f64 / all as f64
    }
}

impl Machine {
    /// Describes this machine.
    pub fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once(':'));
            value.map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let cores = units::cores::allowed().unwrap_or_default();
        let count = cores.len();
        let processor = field(&read("/proc/cpuinfo"), "model name");
        let memory_kib = field(&read("/proc/meminfo"), "MemTotal");
        let memory_kib = memory_kib.split(' ').next().and_then(|kib| kib.parse::<u64>().ok());
        let memory_gib = memory_kib.unwrap_or(0) >> 20;
        let kernel = read("/proc/sys/kernel/osrelease");
        let description =
            format!("{processor}, {count} cores, {memory_gib} GiB, Linux {}", kernel.trim());
        Self { description, class: format!("{count}c"), cores, begun: CoreTime::now() }
    }

    /// Returns the core of the process with index `process`. It returns `None` if there are fewer cores than processes.
    /// The system then distributes the processes.
    pub fn core(&self, process: usize, processes: usize) -> Option<usize> {
        if self.cores.len() < processes { None } else { self.cores.get(process).copied() }
    }

    /// Pins the calling thread, and the threads that it starts, to the first core if there is a core for each process.
    pub fn keep_to_first_core(&self, processes: usize) {
        if let Some(core) = self.core(0, processes) {
            // Without pinning the times are only less precise. The page names the cores that were requested.
            let _ = units::cores::pin(core);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CoreTime;

    #[test]
    fn stolen_time_is_a_share_of_all_time_counted_once() {
        let at = |text: &str| CoreTime::parse(text);
        let begun = at("cpu  100 0 50 850 0 0 0 10 40 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
        let now = at("cpu  150 0 60 880 0 0 0 20 90 0\n");
        assert!((begun.stolen_until(now) - 0.1).abs() < 1e-9);
        assert!(now.stolen_until(begun).abs() < 1e-9, "no clock goes back");
        assert!(at("").stolen_until(at("")).abs() < 1e-9, "a system that does not say");
    }
}
