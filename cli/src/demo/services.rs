//! Briefly compares the configurations: monolith or microservices, software or a virtual accelerator, over gRPC or a
//! lane. It also measures the stages that cause the differences. The long form is `rebate reproduce cache`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use units::{ByteCount, Op};

use experiments::testbed::{
    Backing, Compressor, Configuration, Deployment, Load, Probe, Sample, Site, StoreRoute, Topology,
};
use harness::{Awake, Machine};

use crate::terminal::{WIDTH, numbers, wrapped};

/// The results of all configurations, and the stages, for all value sizes.
#[derive(Debug, Serialize)]
pub(super) struct Services {
    pub(super) store: &'static str,
    pub(super) offered_per_s: f64,
    pub(super) get_share: f64,
    pub(super) points: Vec<ServicePoint>,
    pub(super) stages: Vec<StagePoint>,
}

/// The results of one configuration at one value size.
#[derive(Debug, Serialize)]
pub(super) struct ServicePoint {
    #[serde(skip)]
    pub(super) configuration: Configuration,
    pub(super) id: String,
    pub(super) value_bytes: ByteCount,
    pub(super) p50_us: f64,
    pub(super) p90_us: f64,
    /// The CPU time of all processes of the configuration per request (us).
    pub(super) core_us: f64,
    /// The CPU time of the frontend per request (us).
    pub(super) frontend_core_us: f64,
    /// Whether a virtual device is in the path.
    pub(super) emulated: bool,
    pub(super) invalid: Option<String>,
}

/// The median time of each stage of a get at one value size (us). Each stage is measured alone.
#[derive(Debug, Serialize)]
pub(super) struct StagePoint {
    pub(super) value_bytes: ByteCount,
    pub(super) software_us: f64,
    pub(super) device_us: f64,
    pub(super) hop_us: f64,
    pub(super) lane_us: f64,
}

impl Services {
    /// Measures the configurations. Calls `step` with a name before each of the [`Services::STEPS`] steps.
    ///
    /// # Errors
    /// A process does not serve, or a value was wrong.
    pub(super) fn measure(
        backing: Backing,
        mut step: impl FnMut(&str),
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<Self>, String> {
        let machine = Machine::here();
        step("starting five configurations");
        let _awake = Awake::start();
        let site = Site { backing, machine: &machine, scheduler: None, qpl_library: None };
        let start = |(topology, compressor)| {
            Deployment::start(Configuration::new(topology, compressor, StoreRoute::Grpc), &site)
        };
        let deployments: Vec<_> = SHOWN.into_iter().map(start).collect::<Result<_, _>>()?;
        let mut services = Self {
            store: match backing {
                Backing::Memcached => "memcached",
                Backing::Embedded => "embedded",
            },
            offered_per_s: RATE_PER_S,
            get_share: GET_SHARE,
            points: Vec::new(),
            stages: Vec::new(),
        };
        for size in SIZES {
            for deployment in &deployments {
                step(&format!("{}, {size}", deployment.configuration.name()));
                let load = Load::open(size, GET_SHARE, RATE_PER_S);
                let sample = Sample::take(deployment, &load, stop)?;
                if stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                services.points.push(ServicePoint::from_sample(
                    deployment.configuration,
                    size,
                    &sample,
                )?);
            }
            step(&format!("stages alone, {size}"));
            services.stages.push(StagePoint::measure(size, &deployments)?);
        }
        Ok(Some(services))
    }

    /// The number of steps of `measure`.
    pub(super) const STEPS: usize = 1 + SIZES.len() * (SHOWN.len() + 1);

    /// Formats the comparison as text.
    pub(super) fn table(&self) -> String {
        let title = format!(
            "five configurations: {} behind a gRPC store, {:.0} % gets, {:.0} requests/s; \
             the IAA is virtual: emulated from published figures",
            self.store,
            self.get_share * 100.0,
            self.offered_per_s
        );
        let head = ["", "values", "get p50 us", "get p90 us", "CPU us/req", "of frontend", ""];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.points.iter().map(ServicePoint::row));
        let mut lines = wrapped(&title, WIDTH);
        lines.extend(numbers(&rows));
        lines.extend(self.stages.iter().map(|stage| stage.sentence()));
        lines.join("\n")
    }
}

impl ServicePoint {
    fn row(&self) -> Vec<String> {
        let number = |value: f64| format!("{value:.1}");
        vec![
            self.configuration.name().to_owned(),
            self.value_bytes.to_string(),
            number(self.p50_us),
            number(self.p90_us),
            number(self.core_us),
            number(self.frontend_core_us),
            self.invalid.as_ref().map(|why| format!("({why})")).unwrap_or_default(),
        ]
    }

    fn from_sample(
        configuration: Configuration,
        size: ByteCount,
        sample: &Sample,
    ) -> Result<Self, String> {
        let wrong = sample.report.wrong.count;
        if wrong > 0 {
            return Err(format!("{}: {wrong} values read were wrong", configuration.name()));
        }
        let latency = sample.report.get.latency;
        let frontend = sample.usage.get("frontend").map_or(0.0, |usage| usage.core_us);
        Ok(Self {
            configuration,
            id: configuration.id(),
            value_bytes: size,
            p50_us: latency.p50_ns as f64 / 1e3,
            p90_us: latency.p90_ns as f64 / 1e3,
            core_us: sample.usage.values().map(|usage| usage.core_us).sum(),
            frontend_core_us: frontend,
            emulated: configuration.is_emulated(),
            invalid: sample.invalid.clone(),
        })
    }
}

impl StagePoint {
    /// Describes the sum of the stages. It omits the device if its emulation could not be on time.
    fn sentence(&self) -> String {
        let Self { value_bytes, software_us, device_us, hop_us, lane_us } = self;
        let sum = hop_us + device_us - software_us;
        if sum.is_finite() {
            let lane = sum - hop_us + lane_us;
            return format!(
                "{value_bytes}: hop {hop_us:.1} + device {device_us:.1} - software codec \
                 {software_us:.1} = {sum:+.1} us to expect of the microservice with the \
                 accelerator; over a lane, with a hop of {lane_us:.1}, {lane:+.1} us"
            );
        }
        format!(
            "{value_bytes}: hop {hop_us:.1} us, lane {lane_us:.1} us, software codec \
             {software_us:.1} us; the virtual device's emulation was late on this machine, so its \
             stage does not hold"
        )
    }

    fn measure(value_bytes: ByteCount, deployments: &[Deployment]) -> Result<Self, String> {
        let probe =
            Probe { value_bytes, op: Op::Decompress, rate_per_s: RATE_PER_S, jobs: STAGE_JOBS };
        let hop = |topology| {
            let deployment =
                deployments.iter().find(|deployment| deployment.configuration.topology == topology);
            let way = deployment.and_then(Deployment::compression);
            probe.hop(way.ok_or("no deployment has a compression service")?)
        };
        Ok(Self {
            value_bytes,
            software_us: probe.software()?.p50_us,
            device_us: probe.device()?.p50_us,
            hop_us: hop(Topology::Microservice)?.p50_us,
            lane_us: hop(Topology::Lane)?.p50_us,
        })
    }
}

/// The two configurations of \[CacheTax\], the two other combinations of their parts, and one with a lane.
const SHOWN: [(Topology, Compressor); 5] = [
    (Topology::Monolith, Compressor::Software),
    (Topology::Monolith, Compressor::Iaa),
    (Topology::Microservice, Compressor::Software),
    (Topology::Microservice, Compressor::Iaa),
    (Topology::Lane, Compressor::Iaa),
];

const SIZES: [ByteCount; 2] = [ByteCount::kib(4), ByteCount::kib(64)];

/// The request rate (1/s). It is far below any limit, so that the latency contains no queueing.
const RATE_PER_S: f64 = 500.0;
const GET_SHARE: f64 = 0.9;
const STAGE_JOBS: usize = 200;
