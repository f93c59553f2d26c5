//! Turns the counts of processes into queries. The numbers of a query are for one second. Alpha is the share
//! of cycles that the service spends on an op in software, or would spend without its devices. The time on a
//! device gives L and A, and the time for which jobs wait for the device gives Q. The host's cost of an
//! offload, o0, is the mean over the jobs whose host cost was sampled; without samples it is a range.

use std::collections::BTreeMap;

use api::v1::{InstanceCounts, PathCounts, QueryResponse};
use model::{Bin, Design, Provenance, Quantity, SizeHistogram, Strategy, Symbol, Threading};

use super::line::{Class, Line};
use super::{LiveQueries, LiveRequest};
use crate::query::{Parameter, Query, Sizes};

/// The jobs of one process and one op.
struct Work<'a> {
    instance: &'a InstanceCounts,
    op: &'a str,
    software: Sums,
    devices: BTreeMap<&'a str, Sums>,
}

/// The sums over the jobs of one op that ran in software, or on one device.
#[derive(Default)]
struct Sums {
    classes: BTreeMap<u32, Counted>,
    service_log2_ns: Vec<u64>,
    queueing_log2_ns: Vec<u64>,
    is_waited_for: bool,
}

#[derive(Clone, Copy, Default)]
struct Counted {
    jobs: f64,
    bytes: f64,
    service_ns: f64,
    queueing_ns: f64,
    host_jobs: f64,
    host_ns: f64,
}

/// Builds a query for each process, op and device whose counts suffice.
pub(crate) fn from_counts(response: &QueryResponse, request: &LiveRequest<'_>) -> LiveQueries {
    let mut live = LiveQueries { queries: Vec::new(), left_out: Vec::new() };
    for instance in &response.instances {
        let mut ops: BTreeMap<&str, Work<'_>> = BTreeMap::new();
        for path in instance.paths.iter().filter(|path| path.jobs > path.failed) {
            let work = ops.entry(&path.op).or_insert_with(|| Work::new(instance, &path.op));
            work.add(path);
        }
        for work in ops.into_values() {
            match work.queries(request) {
                Ok(queries) => live.queries.extend(queries),
                Err(why) => live.left_out.push(format!("{}: {why}", work.name())),
            }
        }
    }
    live
}

impl<'a> Work<'a> {
    fn new(instance: &'a InstanceCounts, op: &'a str) -> Self {
        Self { instance, op, software: Sums::default(), devices: BTreeMap::new() }
    }

    fn name(&self) -> String {
        format!("{}: {}", self.instance.instance, self.op)
    }

    fn add(&mut self, path: &'a PathCounts) {
        let sums = match path.placement.as_str() {
            "software" => &mut self.software,
            _ => self.devices.entry(&path.device).or_default(),
        };
        sums.is_waited_for |= path.placement == "sync";
        for size in &path.sizes {
            let counted = sums.classes.entry(size.log2).or_default();
            counted.jobs += size.jobs as f64;
            counted.bytes += size.work_bytes as f64;
            counted.service_ns += size.service_ns as f64;
            counted.queueing_ns += size.queueing_ns as f64;
            counted.host_jobs += size.host_jobs as f64;
            counted.host_ns += size.host_ns as f64;
        }
        add(&mut sums.service_log2_ns, &path.service_log2_ns);
        add(&mut sums.queueing_log2_ns, &path.queueing_log2_ns);
    }

    /// Returns one query for each device with enough jobs. If no device has enough jobs, it returns one query about the
    /// work alone, which device profiles can complete.
    fn queries(&self, request: &LiveRequest<'_>) -> Result<Vec<Query>, String> {
        let covered_s = self.instance.covered_ms as f64 / 1e3;
        if covered_s <= 0.0 || self.instance.cpu_ns == 0 {
            return Err("its CPU time in this while is not known".to_owned());
        }
        self.software.enough("in software")?;
        let software = Line::through(&self.software.means(|class| class.service_ns))
            .ok_or("its jobs in software have no size")?;
        let work = self.work(&software, covered_s, request)?;
        let mut lacking = Vec::new();
        let mut queries = Vec::new();
        for (device, sums) in &self.devices {
            match sums.enough(&format!("on {device}")) {
                Ok(()) => queries.extend(self.on(device, sums, &software, &work)),
                Err(why) => lacking.push(why),
            }
        }
        if queries.is_empty() && request.has_profiles {
            queries.push(work);
        }
        match (queries.is_empty(), lacking.is_empty()) {
            (false, _) => Ok(queries),
            (true, true) => Err("nothing was offloaded: --device NAME asks of a profile".into()),
            (true, false) => Err(lacking.join("; ")),
        }
    }

    /// Describes the process's costs per second if it had no devices: the host cycles (C), the fraction of them in the
    /// op (alpha), the number of calls (n), and the sizes.
    fn work(
        &self,
        software: &Line,
        covered_s: f64,
        request: &LiveRequest<'_>,
    ) -> Result<Query, String> {
        let here = self.software.sum(|class| class.service_ns);
        let elsewhere = self.in_software(software, |_| true);
        let (kernel_ns, jobs) = (here + elsewhere, self.jobs());
        // Devices within the process are software on its other threads, so their work is already in its CPU time.
        let outside = self.in_software(software, |device| !is_in_process(device));
        let c_ns = self.instance.cpu_ns as f64 + outside;
        let ghz = request.clock_ghz.unwrap_or(1.0);
        let mut query = Query::new(self.name(), self.name(), self.design(false, ""));
        query.op = self.op.to_owned();
        query.clock_ghz = Some(ghz);
        let source = |what: &str| format!("{what} of {covered_s:.0} s");
        let cycles = Quantity::exact(c_ns / covered_s * ghz, Provenance::Measured);
        let cpu = source("the process's CPU time, and what its offloaded jobs would take of it,");
        query.parameters.insert(Symbol::C, Parameter::new(cycles, cpu));
        if outside < elsewhere {
            query.notes.push(IN_PROCESS_NOTE.to_owned());
        }
        let alpha = (kernel_ns / c_ns).min(1.0);
        let reach = Z * ((1.0 + cv2(&self.software.service_log2_ns)) / self.software.jobs()).sqrt();
        let reach = reach + LINE_REACH * elsewhere / kernel_ns;
        let alpha = Quantity::within(
            (alpha * (1.0 - reach)).max(0.0),
            alpha,
            (alpha * (1.0 + reach)).min(1.0),
            Provenance::Measured,
        );
        let counted = format!("{:.0} jobs in software, {:.0} in all,", self.software.jobs(), jobs);
        query.parameters.insert(Symbol::Alpha, Parameter::new(alpha, source(&counted)));
        let n = (jobs / covered_s, Z * jobs.sqrt() / covered_s);
        let n = Quantity::within((n.0 - n.1).max(0.0), n.0, n.0 + n.1, Provenance::Measured);
        query.parameters.insert(Symbol::N, Parameter::new(n, source(&format!("{jobs:.0} jobs"))));
        let source = Some(source("jobs by powers of two"));
        let (histogram, provenance) = (self.sizes(covered_s)?, Provenance::Measured);
        query.sizes = Some(Sizes { histogram, provenance, source });
        if request.clock_ghz.is_none() {
            let unit = "cycles are those of a clock of 1 GHz, nanoseconds of CPU (--clock-ghz)";
            query.notes.push(unit.to_owned());
        }
        Ok(query)
    }

    /// Returns the time that the jobs of the selected devices would take in software (ns).
    fn in_software(&self, software: &Line, selects: impl Fn(&str) -> bool) -> f64 {
        let devices = self.devices.iter().filter(|(name, _)| selects(name));
        let classes = devices.flat_map(|(_, sums)| sums.means(|class| class.service_ns));
        classes.map(|class| class.jobs * software.at(class.bytes)).sum()
    }

    /// Returns `work` as a query about a device, with the times that were counted on that device.
    fn on(&self, device: &str, sums: &Sums, software: &Line, work: &Query) -> Option<Query> {
        let line = Line::through(&sums.means(|class| class.service_ns))?;
        let ghz = work.clock_ghz.unwrap_or(1.0);
        let mut query = work.clone();
        query.design = self.design(sums.is_waited_for, device);
        query.awaits_transfer = Some(sums.is_waited_for);
        query.id = format!("{} on {device}", self.name());
        query.device = Some(device.to_owned());
        let source = format!("{:.0} jobs on {device}", sums.jobs());
        let split = sums.host_split(&line.fixed_ns, ghz);
        if split.is_assumed {
            query.notes.push(format!(
                "o0 is not reported: what {device} takes whatever the size is o0 and L together, each \
                 from none to all of it"
            ));
        }
        query.parameters.insert(Symbol::O0, Parameter::new(split.o0, split.source));
        let rest = format!("what is left of the time whatever the size; {source}");
        query.parameters.insert(Symbol::L, Parameter::new(split.way, rest));
        let waits = sums.sum(|class| class.queueing_ns) / sums.jobs() * ghz;
        let reach = Z * ((1.0 + cv2(&sums.queueing_log2_ns)) / sums.jobs()).sqrt();
        let q = Quantity::within(
            (waits * (1.0 - reach)).max(0.0),
            waits,
            waits * (1.0 + reach),
            Provenance::Measured,
        );
        query.parameters.insert(Symbol::Q, Parameter::new(q, source.clone()));
        query
            .parameters
            .insert(Symbol::A, Parameter::new(peak(&line.ns_per_byte, software), source));
        if line.ns_per_byte.stated > software.ns_per_byte.stated {
            let note = format!("{device} takes longer per byte than software: A is 1");
            query.notes.push(note);
        }
        Some(query)
    }

    fn design(&self, is_waited_for: bool, device: &str) -> Design {
        let threading = if is_waited_for { Threading::Sync } else { Threading::Async };
        let is_remote = SERVICE_PREFIXES.iter().any(|prefix| device.starts_with(prefix));
        let strategy = if is_remote { Strategy::Remote } else { Strategy::OffChip };
        let mut design = Design::new(threading, strategy);
        // The runtime polls for completions or gets a signal, so the host pays for the submission and not for the
        // transfer.
        design.awaits_transfer = is_waited_for;
        design
    }

    fn jobs(&self) -> f64 {
        self.software.jobs() + self.devices.values().map(Sums::jobs).sum::<f64>()
    }

    /// Returns the sizes of the jobs in software and on all devices.
    fn sizes(&self, covered_s: f64) -> Result<SizeHistogram, String> {
        let mut classes: BTreeMap<u32, f64> = BTreeMap::new();
        for sums in self.devices.values().chain([&self.software]) {
            for (log2, class) in &sums.classes {
                *classes.entry(*log2).or_default() += class.jobs / covered_s;
            }
        }
        let bin = |(log2, calls): (u32, f64)| {
            let low_bytes = f64::from(log2).exp2();
            Bin { low_bytes, high_bytes: 2.0 * low_bytes, calls }
        };
        let bins = classes.into_iter().map(bin).collect();
        SizeHistogram::new(bins).map_err(|error| error.to_string())
    }
}

impl Sums {
    /// Returns the sum over all sizes. Adding zero makes the sum of nothing 0 and not -0.
    fn sum(&self, value: fn(&Counted) -> f64) -> f64 {
        self.classes.values().map(value).sum::<f64>() + 0.0
    }

    fn jobs(&self) -> f64 {
        self.sum(|class| class.jobs)
    }

    fn means(&self, value: fn(&Counted) -> f64) -> Vec<Class> {
        let class = |counted: &Counted| Class {
            jobs: counted.jobs,
            bytes: (counted.bytes / counted.jobs).max(1.0),
            ns: value(counted) / counted.jobs,
        };
        self.classes.values().filter(|counted| counted.jobs > 0.0).map(class).collect()
    }

    /// Splits the part of a job's time that does not depend on its size. One part is the host's setup of the offload
    /// (o0). The rest belongs to the transfer (L).
    fn host_split(&self, fixed_ns: &Quantity, ghz: f64) -> Split {
        let (jobs, ns) = (self.sum(|class| class.host_jobs), self.sum(|class| class.host_ns));
        let fixed = fixed_ns.stated.max(1.0) * ghz;
        if jobs < HOST_JOBS_MIN {
            // The host is assumed to take half of the fixed time. The range goes from none to all of it.
            let half = Quantity::range(0.0, fixed, Provenance::Assumed);
            let source = "not reported: a part of what the device takes whatever the size";
            return Split { o0: half.clone(), way: half, source: source.into(), is_assumed: true };
        }
        let mean = ns / jobs * ghz;
        let reach = mean * (Z * HOST_NOISE / jobs.sqrt() + HOST_BIAS);
        let most = match fixed_ns.spread {
            model::Spread::Interval { high, .. } | model::Spread::Range { high, .. } => high * ghz,
            _ => fixed,
        };
        // A device's time may include the submission, as published times do, or it may begin after the submission.
        let left = (fixed - mean).max(0.0);
        Split {
            o0: Quantity::within((mean - reach).max(0.0), mean, mean + reach, Provenance::Measured),
            way: Quantity::within(0.0, left, most.max(left), Provenance::Measured),
            source: format!("{jobs:.0} jobs sampled, from submission to their way back"),
            is_assumed: false,
        }
    }

    fn enough(&self, place: &str) -> Result<(), String> {
        let jobs = self.jobs();
        let problem = || format!("{jobs:.0} jobs {place}, needs {JOBS_MIN:.0}");
        if jobs >= JOBS_MIN { Ok(()) } else { Err(problem()) }
    }
}

/// The part of a job's time that does not depend on its size, split into the host's part (`o0`) and the part on the
/// device and on the way to it (`way`).
struct Split {
    o0: Quantity,
    way: Quantity,
    source: String,
    is_assumed: bool,
}

/// Returns the peak speedup of the device (A), with its interval. It is the time per byte in software divided by that
/// on the device, and at least 1.
fn peak(device: &Quantity, software: &Line) -> Quantity {
    use model::Spread::{Interval, Range};
    let most = |per_byte: f64| {
        (software.ns_per_byte.stated / per_byte.max(f64::MIN_POSITIVE)).clamp(1.0, FASTER_MAX)
    };
    let stated = most(device.stated);
    match &device.spread {
        Interval { low, high } | Range { low, high } => {
            Quantity::within(most(*high), stated, most(*low), Provenance::Measured)
        }
        _ => Quantity::exact(stated, Provenance::Measured),
    }
}

/// Returns whether a device uses the CPU time of the process. Such devices are worker threads, virtual
/// devices and libraries that run in software. A DPDK device is hardware if its name is a PCI address, and
/// otherwise a software driver. `qpl-auto` is opened only if there is no hardware.
fn is_in_process(device: &str) -> bool {
    let is_pci = |name: &str| {
        let (domain, rest) = name.split_once(':').unwrap_or_default();
        !domain.is_empty()
            && domain.chars().all(|letter| letter.is_ascii_hexdigit())
            && rest.contains('.')
    };
    ["worker", "qpl-software", "qpl-auto"].contains(&device)
        || device.starts_with("virtual-")
        || device.strip_prefix("dpdk-").is_some_and(|name| !is_pci(name))
}

fn add(sums: &mut Vec<u64>, counts: &[u64]) {
    sums.resize(sums.len().max(counts.len()), 0);
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum = sum.saturating_add(*count);
    }
}

/// Returns the squared coefficient of variation of times. The times are counted by powers of two, and are assumed to be
/// evenly distributed within each.
fn cv2(log2_ns: &[u64]) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for (log2, jobs) in log2_ns.iter().enumerate() {
        let (jobs, low) = (*jobs as f64, (log2 as f64).exp2());
        count += jobs;
        sum += jobs * 1.5 * low;
        squares += jobs * 7.0 / 3.0 * low * low;
    }
    if sum > 0.0 { (count * squares / (sum * sum) - 1.0).max(0.0) } else { 0.0 }
}

/// Half of the width of a 95 % interval, in standard deviations.
const Z: f64 = 1.959_964;

/// The relative error of the estimated time that jobs on devices would take in software.
const LINE_REACH: f64 = 0.1;

/// The least number of completions for a query. With fewer completions the intervals are as wide as the numbers.
const JOBS_MIN: f64 = 200.0;

/// The least number of samples of the host's cost of a job. With fewer samples, the cost is assumed.
const HOST_JOBS_MIN: f64 = 10.0;
/// The standard deviation of one sample of the host's cost, as a share of the mean.
const HOST_NOISE: f64 = 1.0;
/// The systematic error of the host's mean cost, as a share of the mean. A part of the cost of returning a
/// completion is a constant and not measured.
const HOST_BIAS: f64 = 0.1;

/// The largest peak speedup (A) of a device. A faster device's time per byte is too short to be measured.
const FASTER_MAX: f64 = 1e6;

const IN_PROCESS_NOTE: &str =
    "C has the work of devices within the process in it as it was spent: it is not added again";

/// The prefixes of the names of compression services, over gRPC or a lane. A service is another process, on the same
/// host or another one.
const SERVICE_PREFIXES: [&str; 2] = ["remote-", "lane-"];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api::v1::SizeCounts;

    use super::*;

    fn path(device: &str, jobs: u64, time: impl Fn(u64) -> u64) -> PathCounts {
        let size = |log2: u32| SizeCounts {
            log2,
            jobs,
            work_bytes: (jobs * 3) << (log2 - 1),
            service_ns: jobs * time(3 << (log2 - 1)),
            queueing_ns: if device == "software" { 0 } else { jobs * 500 },
            host_jobs: if device == "software" { 0 } else { jobs / 60 },
            host_ns: if device == "software" { 0 } else { jobs / 60 * 700 },
        };
        PathCounts {
            op: "compress".into(),
            device: device.into(),
            placement: if device == "software" { "software" } else { "async" }.into(),
            reason: "policy".into(),
            jobs: 3 * jobs,
            sizes: [10, 12, 14].map(size).to_vec(),
            service_log2_ns: [vec![0; 12], vec![3 * jobs]].concat(),
            queueing_log2_ns: [vec![0; 8], vec![3 * jobs]].concat(),
            ..PathCounts::default()
        }
    }

    /// A device that takes no CPU time of the process.
    const DEVICE: &str = "iaa-0";

    /// Returns the counts of ten seconds. Software takes 500 ns and 4 ns per byte. The device takes 2,000 ns and 0.2 ns
    /// per byte.
    fn response(in_software: u64, on_device: u64) -> QueryResponse {
        let paths = vec![
            path("software", in_software, |bytes| 500 + 4 * bytes),
            path(DEVICE, on_device, |bytes| 2_000 + bytes / 5),
        ];
        let instance = InstanceCounts {
            instance: "front-1".into(),
            covered_ms: 10_000,
            cpu_ns: 2_000_000_000,
            paths: paths.into_iter().filter(|path| path.jobs > 0).collect(),
            ..InstanceCounts::default()
        };
        QueryResponse { instances: vec![instance] }
    }

    fn live(response: &QueryResponse, has_profiles: bool) -> LiveQueries {
        let address = "127.0.0.1:1".parse().expect("an address");
        let last = Duration::from_secs(60);
        let request = LiveRequest {
            address: &address,
            last,
            login: None,
            op: None,
            clock_ghz: None,
            has_profiles,
        };
        from_counts(response, &request)
    }

    #[test]
    fn parameters_are_those_of_the_service_without_its_device() {
        let live = live(&response(1_000, 9_000), false);
        let [query] = live.queries.as_slice() else { panic!("{live:?}") };
        let stated = |symbol| query.stated(symbol).expect("known");
        // 30,000 jobs in 10 s have 1,536, 6,144 and 24,576 B.
        let kernel_ns = 10_000.0 * (3.0 * 500.0 + 4.0 * 32_256.0);
        let offloaded_ns = 0.9 * kernel_ns;
        assert!((stated(Symbol::N) - 3_000.0).abs() < 1e-6);
        assert!((stated(Symbol::C) / (2e9 + offloaded_ns) * 10.0 - 1.0).abs() < 1e-3);
        assert!((stated(Symbol::Alpha) / (kernel_ns / (2e9 + offloaded_ns)) - 1.0).abs() < 1e-3);
        assert!((stated(Symbol::A) - 20.0).abs() < 0.2, "{}", stated(Symbol::A));
        assert!((stated(Symbol::Q) - 500.0).abs() < 1e-6);
        let fixed = stated(Symbol::L) + stated(Symbol::O0);
        assert!((fixed - 2_000.0).abs() < 20.0, "{fixed}");
        assert!((stated(Symbol::O0) - 700.0).abs() < 1e-6, "{}", stated(Symbol::O0));
        assert_eq!(query.device.as_deref(), Some(DEVICE));
        let answer = crate::evaluate(query.clone(), 1).expect("an answer");
        let provenance = |symbol: &str| {
            let parameter = answer.parameters.iter().find(|parameter| parameter.symbol == symbol);
            parameter.expect("used").provenance
        };
        assert_eq!((provenance("alpha"), provenance("o0")), ("measured", "measured"));
        let mut unsampled = response(1_000, 9_000);
        for size in unsampled.instances[0].paths.iter_mut().flat_map(|path| &mut path.sizes) {
            (size.host_jobs, size.host_ns) = (0, 0);
        }
        let unsampled = self::live(&unsampled, false);
        let range = &unsampled.queries[0].parameters[&Symbol::O0].quantity;
        assert_eq!(range.provenance, Provenance::Assumed, "{range:?}");
        assert!(answer.speedup.value.expect("a value") > 1.5, "{answer:?}");
    }

    #[test]
    fn what_devices_within_the_process_spend_is_counted_once() {
        for device in ["virtual-iaa", "worker", "qpl-software", "qpl-auto", "dpdk-compress_isal"] {
            let mut response = response(1_000, 9_000);
            response.instances[0].paths[1].device = device.into();
            let live = live(&response, false);
            let [query] = live.queries.as_slice() else { panic!("{live:?}") };
            let cycles = query.stated(Symbol::C).expect("known");
            assert!((cycles - 2e8).abs() < 1.0, "{device}: {cycles}");
            assert!(query.notes.iter().any(|note| note == IN_PROCESS_NOTE), "{query:?}");
        }
    }

    #[test]
    fn hardware_and_services_take_no_time_of_the_process() {
        let devices = [
            ("qpl-hardware", Strategy::OffChip),
            ("dpdk-0000:3d:00.0_qat_comp", Strategy::OffChip),
            ("remote-10.0.0.7:9200", Strategy::Remote),
            ("lane-/run/rebate/lane", Strategy::Remote),
        ];
        for (device, strategy) in devices {
            let mut response = response(1_000, 9_000);
            response.instances[0].paths[1].device = device.into();
            let live = live(&response, false);
            let [query] = live.queries.as_slice() else { panic!("{live:?}") };
            assert!(query.stated(Symbol::C) > Some(3e8), "{device}");
            assert_eq!((query.design.strategy, query.awaits_transfer), (strategy, Some(false)));
        }
    }

    #[test]
    fn too_few_jobs_are_reported_with_the_number_needed() {
        let said = |in_software, on_device, has_profiles| {
            live(&response(in_software, on_device), has_profiles).left_out
        };
        assert_eq!(said(10, 100, false), ["front-1: compress: 30 jobs in software, needs 200"]);
        assert_eq!(said(100, 10, false), ["front-1: compress: 30 jobs on iaa-0, needs 200"]);
        assert!(said(100, 0, false)[0].contains("nothing was offloaded: --device"));
        assert_eq!(said(100, 0, true), [""; 0]);
        let mut old = response(100, 100);
        old.instances[0].cpu_ns = 0;
        assert!(live(&old, false).left_out[0].contains("CPU time"));
    }
}
