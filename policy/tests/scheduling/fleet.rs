//! Services whose jobs run in software or on shared devices, first come, first served. The services report once a
//! second and follow the scheduler's decisions. Times have noise, and sizes are distributed log-uniformly.

use std::collections::BTreeMap;

use device::machine::Line;
use device::{Class, TenantId};
use policy::scheduling::{Decision, Gain, JobReport, Scheduling, SizeSums};
use policy::{DeviceState, FittedOffload, JobFacts, Offload, Placement, Policy, Snapshot};
use units::{Nanos, Op, Prng};

/// The services' cores, which have other work in addition to jobs. A core's load decides how much it costs to hold the
/// core. That cost decides where jobs go, and thereby the load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cores {
    /// The time that a request takes in addition to its job (ns).
    pub(crate) beside_ns: f64,
    /// The time of the core to submit an offloaded job and to continue after it (ns).
    pub(crate) host_ns: f64,
    /// For each service, the time spent since its last report (ns), and the number of jobs.
    spent: Vec<(f64, f64)>,
    /// For each service, its load in its last report, and the time for which a request then held the core (ns).
    were: Vec<(f64, f64)>,
}

impl Cores {
    pub(crate) fn new(services: usize, beside_ns: f64, host_ns: f64) -> Self {
        let nothing = vec![(0.0, 0.0); services];
        Self { beside_ns, host_ns, spent: nothing.clone(), were: nothing }
    }

    /// Returns the mean time that a completion waits for the core, because of the core's other work.
    fn wait_ns(&self, service: usize) -> f64 {
        let (busy, held_ns) = self.were[service];
        held_ns * busy / (1.0 - busy.min(0.95))
    }

    fn spend(&mut self, service: usize, job_ns: f64) {
        self.spent[service].0 += self.beside_ns + job_ns;
        self.spent[service].1 += 1.0;
    }

    /// Returns the load of the core in the last second.
    fn report(&mut self, service: usize) -> f64 {
        let (spent_ns, jobs) = std::mem::take(&mut self.spent[service]);
        let busy = (spent_ns / 1e9).min(1.0);
        self.were[service] = (busy, spent_ns / jobs.max(1.0));
        busy
    }
}

#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) line: Line,
    pub(crate) jobs: u64,
    free_ns: f64,
    in_flight: Vec<f64>,
}

/// The false statements that one of the services makes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Nonsense {
    Slow,
    Quick,
    Huge,
    WrongSizes,
    Nothing,
}

impl Nonsense {
    pub(crate) const ALL: [Nonsense; 5] =
        [Self::Slow, Self::Quick, Self::Huge, Self::WrongSizes, Self::Nothing];

    fn distort(self, device: &str, sums: SizeSums) -> SizeSums {
        let times = if device == "software" { 100 } else { 1 };
        match self {
            Self::Slow => SizeSums { service_ns: sums.service_ns * times, ..sums },
            Self::Quick => SizeSums { service_ns: sums.service_ns / times, ..sums },
            Self::Huge => SizeSums { service_ns: u64::MAX, queueing_ns: u64::MAX, ..sums },
            Self::WrongSizes => SizeSums { work_bytes: sums.work_bytes * 9, ..sums },
            Self::Nothing => SizeSums { service_ns: 0, queueing_ns: 0, ..sums },
        }
    }
}

pub(crate) type Sums = BTreeMap<(String, u32), SizeSums>;

pub(crate) struct Fleet {
    pub(crate) software: Line,
    pub(crate) devices: Vec<Shared>,
    pub(crate) scheduling: Scheduling,
    pub(crate) outlier_one_in: u64,
    pub(crate) nonsense: Option<Nonsense>,
    /// The rate of jobs of each service.
    pub(crate) jobs_per_s: f64,
    /// The cores, if their load is measured.
    pub(crate) cores: Option<Cores>,
    /// The number of times that a decision changed.
    pub(crate) changes: u64,
    pub(crate) jobs: u64,
    /// The jobs that ran, over all services.
    pub(crate) ran: Sums,
    prng: Prng,
    policy: FittedOffload,
    sums: Vec<Sums>,
    now_ns: f64,
}

const JOBS_PER_S: f64 = 1_000.0;
const QUEUE: usize = 64;

impl Fleet {
    pub(crate) fn new(services: usize, software: Line, devices: &[Line]) -> Self {
        let shared = |line: &Line| Shared { line: *line, jobs: 0, free_ns: 0.0, in_flight: vec![] };
        let mut fleet = Self {
            software,
            devices: devices.iter().map(shared).collect(),
            scheduling: Scheduling::new(Nanos::secs(1)),
            outlier_one_in: u64::MAX,
            nonsense: None,
            jobs_per_s: JOBS_PER_S,
            cores: None,
            changes: 0,
            jobs: 0,
            prng: Prng::new(7),
            policy: FittedOffload::new(0, (0, 0), 0, &[]),
            sums: vec![Sums::new(); services],
            ran: Sums::new(),
            now_ns: 1e9,
        };
        fleet.follow();
        fleet
    }

    pub(crate) fn with_seed(self, seed: u64) -> Self {
        Self { prng: Prng::new(seed), ..self }
    }

    /// Returns the same services with a scheduler that knows nothing.
    pub(crate) fn anew(self) -> Self {
        let scheduling = Scheduling::new(Nanos::secs(1));
        let mut fleet = Self { scheduling, ..self };
        fleet.follow();
        fleet
    }

    pub(crate) fn now(&self) -> Nanos {
        Nanos(self.now_ns as u64)
    }

    pub(crate) fn decision(&self, device: &str) -> Option<&Decision> {
        self.scheduling.decisions().find(|decision| decision.device == device)
    }

    pub(crate) fn bytes_min(&self, device: &str) -> u64 {
        self.decision(device).map_or(0, |decision| decision.bytes_min)
    }

    /// Returns the gain of the jobs that ran.
    pub(crate) fn gain(&self) -> Gain {
        let ran = self.ran.iter().map(|((device, _), sums)| (device.as_str(), *sums));
        self.scheduling.gain(Op::Compress, ran).expect("software is known")
    }

    /// Runs the services. They report one after the other, evenly over the second.
    pub(crate) fn run_s(&mut self, seconds: u64) {
        let services = self.sums.len();
        for _ in 0..seconds {
            for reporter in 0..services {
                let end_ns = self.now_ns + 1e9 / services as f64;
                let gap_ns = 1e9 / (self.jobs_per_s * services as f64);
                loop {
                    let next_ns = self.now_ns - gap_ns * (1.0 - self.prng.unit()).ln();
                    if next_ns >= end_ns {
                        break;
                    }
                    self.now_ns = next_ns;
                    self.job();
                }
                self.now_ns = end_ns;
                self.report(reporter);
            }
        }
    }

    fn job(&mut self) {
        let bytes = (128.0 * 1_024_f64.powf(self.prng.unit())) as usize;
        let now_ns = self.now_ns;
        let mut states = vec![state(0)];
        for device in &mut self.devices {
            device.in_flight.retain(|done_ns| *done_ns > now_ns);
            states.push(state(device.in_flight.len()));
        }
        let facts = JobFacts {
            op: Op::Compress,
            dialect: None,
            work_bytes: bytes,
            class: Class::LatencyCritical,
            tenant: TenantId(0),
            time_left: None,
            last: None,
        };
        let choice = self.policy.place(&facts, &Snapshot::new(&states), self.prng.bits());
        let outlier = self.prng.below(self.outlier_one_in) == 0;
        let noise = 0.8 + 0.4 * self.prng.unit();
        let service = self.prng.below(self.sums.len() as u64) as usize;
        let (name, service_ns, waited_ns) = if choice.placement == Placement::Software {
            ("software".to_owned(), self.software.at(bytes) * noise, 0.0)
        } else {
            let device = &mut self.devices[choice.device() - 1];
            let service_ns = device.line.at(bytes) * noise;
            let start_ns = device.free_ns.max(now_ns);
            device.free_ns = start_ns + service_ns;
            device.in_flight.push(device.free_ns);
            device.jobs += 1;
            (name(choice.device()), service_ns, start_ns - now_ns)
        };
        // The core polled late.
        let service_ns = if outlier { 100.0 * service_ns } else { service_ns };
        let (waited_ns, host_ns) = self.on_core(service, choice.placement, service_ns, waited_ns);
        self.jobs += 1;
        let key = (name, bytes.ilog2());
        for sums in [&mut self.sums[service], &mut self.ran] {
            let total = sums.entry(key.clone()).or_default();
            total.log2 = bytes.ilog2();
            total.jobs += 1;
            total.work_bytes += bytes as u64;
            total.service_ns += service_ns as u64;
            total.queueing_ns += waited_ns as u64;
            total.host_jobs += u64::from(host_ns.is_some());
            total.host_ns += host_ns.unwrap_or(0.0) as u64;
        }
    }

    /// Returns the time that a job waits in addition to its service, including the wait for the core. Also
    /// returns the job's core time, if it is measured.
    fn on_core(
        &mut self,
        service: usize,
        placement: Placement,
        service_ns: f64,
        waited_ns: f64,
    ) -> (f64, Option<f64>) {
        let Some(cores) = &mut self.cores else { return (waited_ns, None) };
        let (held_ns, wait_ns) = match placement {
            Placement::Software => (service_ns, 0.0),
            Placement::Sync => (cores.host_ns + service_ns + waited_ns, 0.0),
            Placement::Async => {
                (cores.host_ns, -(1.0 - self.prng.unit()).ln() * cores.wait_ns(service))
            }
        };
        cores.spend(service, held_ns);
        let is_sampled = placement != Placement::Software && self.prng.below(31) == 0;
        (waited_ns + wait_ns, is_sampled.then_some(cores.host_ns))
    }

    fn report(&mut self, reporter: usize) {
        let sums = std::mem::take(&mut self.sums[reporter]);
        let mut by_device: BTreeMap<String, Vec<SizeSums>> = BTreeMap::new();
        for ((device, _), size_sums) in sums {
            let distortion = self.nonsense.filter(|_| reporter == 0);
            let size_sums =
                distortion.map_or(size_sums, |nonsense| nonsense.distort(&device, size_sums));
            by_device.entry(device).or_default().push(size_sums);
        }
        let now = self.now();
        let busy = self.cores.as_mut().map_or(0.0, |cores| cores.report(reporter));
        for (device, sizes) in &by_device {
            let (covered, op) = (Nanos::secs(1), Op::Compress);
            let reporter = format!("service-{reporter}");
            let report = JobReport { reporter: &reporter, op, device, covered, busy, sizes };
            self.scheduling.observe(&report, now);
        }
        if self.scheduling.decide(now) {
            self.changes += 1;
            self.follow();
        }
    }

    fn follow(&mut self) {
        let index = |device: &str| {
            (1..=self.devices.len()).find(|index| name(*index) == device).unwrap_or(0)
        };
        let offload = |decision: &Decision| Offload {
            op: decision.op,
            device: index(&decision.device),
            bytes_min: decision.bytes_min as usize,
            weight: decision.weight,
            wait_bytes_max: decision.wait_bytes_max as usize,
        };
        let offloads: Vec<Offload> = self.scheduling.decisions().map(offload).collect();
        let every = self.scheduling.probe_every();
        let sizes = (1_024, 1 << 20);
        self.policy = FittedOffload::new(self.devices.len(), sizes, every, &offloads);
    }
}

fn name(device: usize) -> String {
    if device == 1 { "virtual".to_owned() } else { format!("virtual-{device}") }
}

fn state(depth: usize) -> DeviceState {
    DeviceState {
        eligible: true,
        healthy: true,
        depth,
        capacity: QUEUE,
        estimated: None,
        host: None,
    }
}
