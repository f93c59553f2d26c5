//! Metrics of this process from the kernel, under the usual names of Prometheus exporters. On systems without
//! `/proc`, only some of them are available.

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::exposition::Exposition;

/// Writes the `process_` families.
pub(super) fn write(page: &mut Exposition, started_unix_s: f64) {
    page.counter("process_cpu_seconds_total", "User and system CPU time.")
        .sample(&[], clock_s(ClockId::ProcessCPUTime));
    page.gauge("process_start_time_seconds", "Start of the process since the Unix epoch.")
        .sample(&[], started_unix_s);
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        page.gauge("process_max_fds", "Limit on open file descriptors.").sample(&[], limit);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        // The directory itself is open while it is read.
        let open = open.count().saturating_sub(1);
        page.gauge("process_open_fds", "Open file descriptors.").sample(&[], open);
    }
    if let Some(stat) = Stat::read() {
        page.gauge("process_threads", "Threads.").sample(&[], stat.threads);
        page.gauge("process_virtual_memory_bytes", "Virtual memory.")
            .sample(&[], stat.virtual_bytes);
        page.gauge("process_resident_memory_bytes", "Resident memory.")
            .sample(&[], stat.resident_pages.saturating_mul(page_size() as u64));
    }
}

/// Returns the time at which this process started, or the current time if the start is unknown.
pub(super) fn started_unix_s() -> f64 {
    let now_s = units::unix_time().as_secs_f64();
    let Some(stat) = Stat::read() else { return now_s };
    let started_boot_s = stat.start_ticks as f64 / clock_ticks_per_second() as f64;
    now_s - (clock_s(ClockId::Boottime) - started_boot_s).max(0.0)
}

fn clock_s(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The fields of `/proc/self/stat`, which proc(5) numbers from 1. Field 2 is the name in parentheses.
#[derive(Debug, PartialEq)]
struct Stat {
    threads: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn read() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/self/stat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name may hold anything, parentheses included.
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse().ok();
        Some(Self {
            threads: field(20)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_past_a_hostile_name() {
        let text = "7 (a) R 1 (b) S 1 7 7 0 -1 64 1 0 0 0 2 1 0 0 20 0 5 0 900 4096 12 99 1 1";
        let stat = Stat { threads: 5, start_ticks: 900, virtual_bytes: 4096, resident_pages: 12 };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!(Stat::parse("7 (a) R 1"), None);
    }

    #[test]
    fn the_process_started_before_now() {
        let started = started_unix_s();
        let now = units::unix_time().as_secs_f64();
        assert!(started <= now && started > now - 86_400.0, "{started} {now}");
    }
}
