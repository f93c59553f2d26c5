//! AccelFlow's server: cores, nine accelerators with their queues and dispatchers, the fabric that moves payloads, and
//! the orchestrator. Each orchestrator has a file in `orchestrators/`, and each queueing discipline has a file in
//! `queues/`. A model is a function of a specification, an architecture and the traces. The specification reads no
//! files and gives the source of every number.

mod branches;
mod cores;
mod counts;
mod demand;
mod fabric;
mod ids;
mod orchestrators;
mod program;
mod queues;
mod run;
mod sizes;
mod spec;
mod station;
mod tokens;
mod topology;

pub use crate::entries::{Entries, KINDS, SpecError};
pub use orchestrators::Architecture;
pub use spec::Spec;

use trace::Catalog;

use branches::Way;
use ids::ByKind;
use program::{Program, Step};
use queues::Queues;
use run::Window;
use sizes::SizeTable;
use topology::Topology;

use crate::study::{Extent, Names, REQUESTS_MAX, RunError, Sample, Simulate};
use crate::{Arrivals, DurationSpec, Durations, Picos, Streams};

/// The specifications that are compiled in, each with its name.
const BUILTIN: [(&str, &str); 4] = [
    ("accelflow.toml", include_str!("../../../specs/sim/accelflow.toml")),
    ("accelflow-steady.toml", include_str!("../../../specs/sim/accelflow-steady.toml")),
    ("accelflow-window.toml", include_str!("../../../specs/sim/accelflow-window.toml")),
    ("accelflow-production.toml", include_str!("../../../specs/sim/accelflow-production.toml")),
];

/// The scenarios that are compiled in.
pub const SCENARIOS: [&str; 3] = ["steady", "window", "production"];

/// Returns the text of a compiled-in specification, by the name of its file or scenario.
pub fn builtin(name: &str) -> Option<&'static str> {
    let file =
        if SCENARIOS.contains(&name) { format!("accelflow-{name}.toml") } else { name.to_owned() };
    BUILTIN.iter().find(|(known, _)| *known == file).map(|(_, text)| *text)
}

/// An architecture under a load, ready to be simulated any number of times from any thread.
#[derive(Clone, Debug)]
pub struct AccelFlow {
    spec: Spec,
    queues: Queues,
    programs: Vec<Program>,
    /// The steps of all programs, concatenated.
    steps: Vec<Step>,
    /// The index of the first step of each service.
    starts: Vec<u16>,
    arrivals: Vec<Arrivals>,
    sizes: ByKind<SizeTable>,
    topology: Topology,
    /// The distribution of a core's time, scaled to a mean of one millisecond. It is none if the time does
    /// not vary.
    app: Option<Durations>,
    notify: Picos,
    /// The manager's time to handle an interrupt by DMA.
    manager_dma: Picos,
    /// The response time that the objective allows, for each service.
    due: Vec<Picos>,
}

impl AccelFlow {
    /// Returns the model of `spec` under `architecture`, with the services of `catalog`.
    ///
    /// # Errors
    /// Returns the reason why a service cannot be simulated.
    pub fn new(spec: &Spec, architecture: Architecture, catalog: &Catalog) -> Result<Self, String> {
        let orchestrator = architecture.orchestrator();
        let programs = spec.services.iter().map(|service| {
            program::program(service, spec, &orchestrator, catalog)
                .map_err(|problem| format!("service {}: {problem}", service.name))
        });
        let programs = programs.collect::<Result<Vec<Program>, String>>()?;
        let arrivals = spec.services.iter().map(|service| {
            let arrivals = spec.arrivals(service);
            arrivals.map_err(|bad| format!("load of service {}: {bad}", service.name))
        });
        let stages = spec.work.app_stages;
        let app = (stages > 0)
            .then(|| Durations::new(&DurationSpec::Erlang { mean_ns: APP_NS, stages }))
            .transpose();
        let (steps, starts) = flat(&programs)?;
        let due = |service: &spec::Service| Picos::from_ns(service.time_ns * spec.work.slo_factor);
        Ok(Self {
            arrivals: arrivals.collect::<Result<_, _>>()?,
            steps,
            starts,
            sizes: ByKind::from_fn(|kind| spec.accelerators[kind.index()].sizes.table()),
            topology: Topology::new(&spec.hardware.distances),
            app: app.map_err(|bad| bad.to_string())?,
            notify: Picos::from_ns(spec.hardware.notify_ns),
            manager_dma: Picos::from_ns(spec.costs.manager_dma_ns),
            due: spec.services.iter().map(due).collect(),
            queues: orchestrator.queues,
            spec: spec.clone(),
            programs,
        })
    }

    /// Returns the number of windows in one replication. It is large enough for a 99th percentile of every
    /// service, unless the requests of so many windows cannot be stored.
    fn windows(&self, window: Picos) -> u32 {
        let rarest = self.arrivals.iter().map(Arrivals::mean_gap_ns).fold(0.0, f64::max);
        let expected = window.as_ns() / rarest;
        let all = self.arrivals.iter().map(|arrivals| window.as_ns() / arrivals.mean_gap_ns());
        let most = f64::min(WINDOWS_MAX, EXPECTED_MAX / all.sum::<f64>());
        (KEPT_WINDOW / expected).ceil().min(most).max(1.0) as u32
    }
}

impl Simulate for AccelFlow {
    fn names(&self) -> Names {
        Names {
            responses: self.spec.services().map(str::to_owned).collect(),
            facts: counts::names(),
        }
    }

    /// Returns the reason why the model has no steady state, or none if it may have one.
    fn overload(&self) -> Option<String> {
        self.queues.overload(self)
    }

    fn replicate(
        &self,
        streams: &Streams,
        extent: Extent,
        events_max: u64,
    ) -> Result<Sample, RunError> {
        let (extent, windows) = match extent {
            Extent::Requests(_) if self.overload().is_some() => (extent.overloaded(), 1),
            Extent::Requests(_) => (extent, 1),
            Extent::WindowPs(window) => (extent, self.windows(window)),
        };
        let mut counts = counts::Counts::default();
        let mut responses: Vec<Vec<u64>> = vec![Vec::new(); self.programs.len()];
        for window in 0..windows {
            let events_max = events_max.saturating_sub(counts.events);
            let window = Window { streams, extent, number: window, events_max };
            let found = self.queues.run(self, &window)?;
            counts.add(&found.counts);
            if counts.requests > REQUESTS_MAX {
                return Err(RunError::TooManyRequests { limit: REQUESTS_MAX });
            }
            responses.iter_mut().zip(&found.responses).for_each(|(all, times)| all.extend(times));
        }
        let duration = Picos(counts.duration.0 / u64::from(windows));
        Ok(Sample { facts: counts.facts(&self.spec), responses, events: counts.events, duration })
    }
}

/// Returns the steps of all programs in one list, and the index at which each program begins.
fn flat(programs: &[Program]) -> Result<(Vec<Step>, Vec<u16>), String> {
    let (mut steps, mut starts) = (Vec::new(), Vec::new());
    for program in programs {
        let start = steps.len();
        if start + program.steps.len() > usize::from(u16::MAX) {
            return Err(format!("the services have more than {} steps together", u16::MAX));
        }
        let start = start as u16;
        starts.push(start);
        steps.extend(program.steps.iter().map(|step| match step {
            Step::Fork { arms, join } => Step::Fork {
                arms: arms.iter().map(|arm| start + arm).collect(),
                join: start + join,
            },
            Step::Choose { ways, join } => Step::Choose {
                ways: ways.iter().map(|way| Way { start: start + way.start, ..*way }).collect(),
                join: start + join,
            },
            Step::Jump(to) => Step::Jump(start + to),
            other => other.clone(),
        }));
    }
    Ok((steps, starts))
}

/// The mean of the draws of a core's time (ns).
const APP_NS: f64 = 1e6;
/// The expected number of requests of the rarest service in a replication. Its 99th percentile needs 1,000.
const KEPT_WINDOW: f64 = 1_300.0;
const WINDOWS_MAX: f64 = 10_000.0;
/// The highest expected number of requests in a replication of windows. It is half of what can be stored,
/// because more than the expected number may arrive.
const EXPECTED_MAX: f64 = (REQUESTS_MAX / 2) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the specification of a scenario with some keys changed.
    pub(super) fn spec(scenario: &str, set: &[(&str, &str)]) -> Spec {
        let text = builtin(scenario).expect("compiled in");
        let open = |name: &str| builtin(name).map(str::to_owned).ok_or_else(|| name.to_owned());
        let mut entries = Entries::read(scenario, text, &open).expect("valid");
        for (key, value) in set {
            entries.set(key, value).expect("a key");
        }
        Spec::read(&entries, &trace::accelflow()).expect("valid")
    }

    fn sample(architecture: Architecture, requests: u64, set: &[(&str, &str)]) -> Sample {
        let spec = spec("steady", set);
        let model = AccelFlow::new(&spec, architecture, &trace::accelflow()).expect("a model");
        let streams = Streams::new(1, 0);
        model.replicate(&streams, Extent::Requests(requests), 1 << 32).expect("a sample")
    }

    #[test]
    fn unloaded_times_are_the_programs_own() {
        // There is one service, nothing varies and nothing queues, so Non-acc takes the time of figure 1.
        let set = [("load.total_per_s", "10"), ("work.app_stages", "0"), ("work.size_share", "0")];
        let non_acc = sample(Architecture::NonAcc, 800, &set);
        for (times, service) in non_acc.responses.iter().zip(&spec("steady", &set).services) {
            let work: f64 = service.shares.iter().sum();
            let parallel =
                service.name == "CPost" || service.name == "Follow" || service.name == "Login";
            let expected = service.time_ns * work * 1e3;
            let slowest = *times.iter().max().expect("some") as f64;
            assert!(slowest <= expected + 1e3, "{}", service.name);
            assert!(
                parallel || slowest >= 0.94 * expected,
                "{}: {slowest} {expected}",
                service.name
            );
        }
        let faster = sample(Architecture::AccelFlow, 800, &set);
        let slower = sample(Architecture::Relief, 800, &set);
        let mean = |sample: &Sample| {
            crate::mean(&sample.responses.concat().iter().map(|t| *t as f64).collect::<Vec<_>>())
        };
        assert!(mean(&faster) < mean(&slower) && mean(&slower) < mean(&non_acc));
    }

    #[test]
    fn a_request_on_one_core_waits_where_others_are_idle() {
        let mean_ns = |cores: &str| {
            let set = [("hardware.request_cores", cores)];
            let times = sample(Architecture::NonAcc, 4_000, &set).responses.concat();
            crate::mean(&times.iter().map(|time| *time as f64 * 1e-3).collect::<Vec<_>>())
        };
        assert!(mean_ns("one") > 1.2 * mean_ns("any"), "{} {}", mean_ns("one"), mean_ns("any"));
        let text = over_text("production", "hardware.request_cores", "some");
        assert!(text.contains("any, one"), "{text}");
    }

    /// Returns the error of a scenario with a value that cannot be used.
    pub(super) fn over_text(scenario: &str, key: &str, value: &str) -> String {
        let text = builtin(scenario).expect("compiled in");
        let open = |name: &str| builtin(name).map(str::to_owned).ok_or_else(|| name.to_owned());
        let mut entries = Entries::read(scenario, text, &open).expect("valid");
        let set = entries.set(key, value).map(|()| Spec::read(&entries, &trace::accelflow()));
        match set {
            Ok(Err(error)) | Err(error) => error.to_string(),
            Ok(Ok(_)) => "it is accepted".to_owned(),
        }
    }

    #[test]
    fn windows_hold_a_percentile_of_every_service() {
        let windows = |per_s, weight| {
            let set = [("load.total_per_s", per_s), ("services.UniqId.weight", weight)];
            let spec = spec("window", &set);
            let model = AccelFlow::new(&spec, Architecture::AccelFlow, &trace::accelflow());
            let model = model.expect("a model");
            let Extent::WindowPs(window) = spec.extent else { panic!("a window") };
            let all: f64 =
                model.arrivals.iter().map(|one| window.as_ns() / one.mean_gap_ns()).sum();
            (model.windows(window), all)
        };
        let (usual, all) = windows("107200", "1");
        assert!(f64::from(usual) * all / 8.0 >= KEPT_WINDOW, "{usual} windows of {all}");
        // The rare service gets a millionth of the requests. Its percentile would need 1.3 thousand million requests.
        let (rare, all) = windows("10000000", "1e-6");
        assert!(rare >= 1 && f64::from(rare) * all <= EXPECTED_MAX, "{rare} windows of {all}");
        assert_eq!(windows("10", "1e-6").0, WINDOWS_MAX as u32);
    }

    #[test]
    fn overload_is_said_before_a_run() {
        let over = |architecture, per_s| {
            let spec = spec("steady", &[("load.total_per_s", per_s)]);
            let model = AccelFlow::new(&spec, architecture, &trace::accelflow()).expect("a model");
            model.overload()
        };
        assert_eq!(over(Architecture::NonAcc, "13400"), None);
        let text = over(Architecture::NonAcc, "40000").expect("overloaded");
        assert!(text.starts_with("cores: 1.1"), "{text}");
        assert!(
            over(Architecture::Relief, "40000").expect("overloaded").starts_with("the manager")
        );
        assert_eq!(over(Architecture::AccelFlow, "40000"), None);
        // TCP alone gets 3.7 times the work that it can do, and 36 cores cannot do the rest.
        let text = over(Architecture::AccelFlow, "200000").expect("overloaded");
        assert!(text.starts_with("cores: "), "{text}");
    }
}
