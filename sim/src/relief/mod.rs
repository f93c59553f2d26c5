//! RELIEF's own applications: graphs of tasks on seven kinds of coarse-grained accelerators that share one memory. They
//! run under RELIEF as its public code implements it, and under AccelFlow. A model is a function of a specification and
//! an orchestrator. The specification reads no files and gives the source of every number.

mod accelflow;
mod graph;
mod public;
mod run;
mod spec;

pub use spec::{Spec, applications_of};

use crate::study::{Extent, Names, RunError, Sample, Simulate};
use crate::{Agenda, ArrivalSpec, Arrivals, Streams};

/// The specifications that are compiled in, each with its name.
const BUILTIN: [(&str, &str); 1] = [("relief", include_str!("../../../specs/sim/relief.toml"))];

/// The scenarios that are compiled in.
pub const SCENARIOS: [&str; 1] = ["relief"];

/// Returns the text of a compiled-in specification, by the name of its file or scenario.
pub fn builtin(name: &str) -> Option<&'static str> {
    let name = name.strip_suffix(".toml").unwrap_or(name);
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The orchestrator that decides what the accelerators do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orchestrator {
    /// RELIEF's manager, as its public code implements it.
    Relief,
    /// AccelFlow's dispatchers.
    AccelFlow,
}

impl Orchestrator {
    /// All orchestrators.
    pub const ALL: [Self; 2] = [Self::Relief, Self::AccelFlow];

    /// Returns the name of the orchestrator.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relief => "relief",
            Self::AccelFlow => "accelflow",
        }
    }

    /// Returns the orchestrator of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|orchestrator| orchestrator.name() == name)
    }
}

/// An application under an orchestrator, ready to be simulated any number of times from any thread.
#[derive(Clone, Debug)]
pub struct Applications {
    spec: Spec,
    orchestrator: Orchestrator,
    /// The arrival process. It is none if the next request arrives when another one is done.
    arrivals: Option<Arrivals>,
}

impl Applications {
    /// Returns the model of `spec` under `orchestrator`.
    ///
    /// # Errors
    /// Returns the reason why the load cannot be used.
    pub fn new(spec: &Spec, orchestrator: Orchestrator) -> Result<Self, String> {
        let arrivals = spec.per_s.map(|per_s| match &spec.recorded {
            Some(gaps_ns) => Arrivals::recorded(gaps_ns, per_s),
            None => Arrivals::new(&ArrivalSpec::Poisson { per_s }),
        });
        let arrivals = arrivals.transpose().map_err(|bad| format!("load.per_s: {bad}"))?;
        Ok(Self { spec: spec.clone(), orchestrator, arrivals })
    }

    /// Returns the accelerator with the most work. The second value is the time for which a request's tasks compute on
    /// it, divided by its number of instances (ns).
    fn busiest_ns(&self) -> (usize, f64) {
        let mut sums = [0.0; spec::ACCELERATORS.len()];
        for task in &self.spec.graph.tasks {
            sums[usize::from(task.accelerator)] += task.compute.as_ns();
        }
        let each = sums.map(|sum| sum / f64::from(self.spec.instances));
        let most = each.iter().copied().fold(0.0, f64::max);
        (each.iter().position(|sum| *sum == most).unwrap_or(0), most)
    }
}

impl Simulate for Applications {
    fn names(&self) -> Names {
        let utilisation = spec::ACCELERATORS.map(|kind| format!("{kind}.utilisation"));
        let facts = ["throughput_per_s", "manager.utilisation", "memory.utilisation"];
        let shares = ["tasks.forward_share", "tasks.write_share", "deadline.missed_share"];
        let facts = facts.into_iter().chain(shares).chain(["events_per_request"]);
        Names {
            responses: vec![self.spec.application.clone()],
            facts: facts.map(str::to_owned).chain(utilisation).collect(),
        }
    }

    /// Returns an error text if an accelerator is overloaded.
    fn overload(&self) -> Option<String> {
        let (kind, busy_ns) = self.busiest_ns();
        let load = self.spec.per_s? * busy_ns * 1e-9;
        (load >= 1.0).then(|| {
            let kind = spec::ACCELERATORS[kind];
            format!("{kind}: {load:.2} times what can be done is asked for")
        })
    }

    fn replicate(
        &self,
        streams: &Streams,
        extent: Extent,
        events_max: u64,
    ) -> Result<Sample, RunError> {
        let extent = if self.overload().is_some() { extent.overloaded() } else { extent };
        let mut run = run::Run::new(self, streams, extent);
        let mut agenda = Agenda::with_capacity(AGENDA_CAPACITY);
        run.start(&mut agenda);
        let end = crate::run(&mut run, &mut agenda, events_max);
        RunError::check(end, run.fault.take(), events_max)?;
        Ok(run.sample(&agenda))
    }
}

const AGENDA_CAPACITY: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Entries;

    /// Returns the specification of an application with some keys changed.
    pub(super) fn spec(application: &str, set: &[(&str, &str)]) -> Spec {
        let text = builtin("relief").expect("compiled in");
        let mut entries =
            Entries::read("relief", text, &|name| Err(name.to_owned())).expect("valid");
        for (key, value) in [("run.application", application)].iter().chain(set) {
            entries.set(key, value).expect("a key");
        }
        Spec::read(&entries).expect("valid")
    }

    fn sample(
        orchestrator: Orchestrator,
        application: &str,
        set: &[(&str, &str)],
    ) -> (Names, Sample) {
        let model = Applications::new(&spec(application, set), orchestrator).expect("a model");
        let requests = Extent::Requests(200);
        let sample = model.replicate(&Streams::new(1, 0), requests, 1 << 32).expect("a sample");
        (model.names(), sample)
    }

    fn fact(of: &(Names, Sample), name: &str) -> f64 {
        let index = of.0.facts.iter().position(|fact| fact == name).expect(name);
        of.1.facts[index]
    }

    /// Settings for one request at a time, in which only computing takes time. The response time is then the longest
    /// path through the graph.
    const FREE: [(&str, &str); 6] = [
        ("load.in_flight", "1"),
        ("moves.dma_gb_per_s", "1e8"),
        ("moves.memory_gb_per_s", "1e8"),
        ("moves.direct_gb_per_s", "1e8"),
        ("moves.scratchpad_gb_per_s", "1e8"),
        ("manager.completion_ns", "0"),
    ];

    #[test]
    fn a_chain_alone_takes_what_its_tasks_compute() {
        // Deblur is a chain: 35 + 10 + 5 (1546 + 11 + 1546 + 11) us.
        for orchestrator in Orchestrator::ALL {
            let found = sample(orchestrator, "deblur", &FREE);
            let times = &found.1.responses[0];
            assert_eq!(times.len(), 200);
            let slowest = times.iter().max().copied().expect("some") as f64 * 1e-6;
            assert!((slowest - 15_615.0).abs() < 2.0, "{}: {slowest}", orchestrator.name());
        }
    }

    #[test]
    fn accelerators_are_busy_for_what_is_computed_on_them() {
        for orchestrator in Orchestrator::ALL {
            for (application, elem_us) in [("gru", 8.0 * 156.0), ("lstm", 8.0 * 183.0)] {
                let set = [&FREE[1..], &[("load.in_flight", "8")]].concat();
                let found = sample(orchestrator, application, &set);
                let name = orchestrator.name();
                let per_s = fact(&found, "throughput_per_s");
                // Only the single elem-matrix is used, and it is never idle.
                assert!(
                    (per_s * elem_us * 1e-6 - 1.0).abs() < 0.02,
                    "{name} {application}: {per_s}"
                );
                assert!(fact(&found, "elem-matrix.utilisation") > 0.97, "{name} {application}");
            }
        }
    }

    #[test]
    fn public_relief_forwards_and_writes_what_nobody_takes_at_once() {
        let alone = sample(Orchestrator::Relief, "deblur", &[("load.in_flight", "1")]);
        // A chain that runs alone forwards everything except its result and what is used again later.
        assert!(
            fact(&alone, "tasks.forward_share") > 0.4,
            "{}",
            fact(&alone, "tasks.forward_share")
        );
        assert!(fact(&alone, "tasks.write_share") < 0.7);
        let contended = sample(Orchestrator::Relief, "gru", &[("load.in_flight", "8")]);
        assert!(fact(&contended, "manager.utilisation") > 0.01);
        let dispatched = sample(Orchestrator::AccelFlow, "gru", &[("load.in_flight", "8")]);
        assert_eq!(fact(&dispatched, "manager.utilisation"), 0.0);
    }

    #[test]
    fn an_interrupt_for_every_move_costs_throughput() {
        let per_s = |dma_ns: &'static str| {
            let set = [("load.in_flight", "8"), ("manager.dma_ns", dma_ns)];
            fact(&sample(Orchestrator::Relief, "lstm", &set), "throughput_per_s")
        };
        assert!(per_s("1500") < per_s("0"));
    }

    #[test]
    fn what_entries_hold_need_not_be_loaded() {
        let per_s = |hold: &'static str| {
            let set = [("load.in_flight", "8"), ("accelflow.entries_hold", hold)];
            fact(&sample(Orchestrator::AccelFlow, "gru", &set), "throughput_per_s")
        };
        assert!(per_s("pointer") < per_s("payload") && per_s("payload") < per_s("arguments"));
    }

    #[test]
    fn a_window_ends_though_another_request_follows_each() {
        for orchestrator in Orchestrator::ALL {
            let spec = spec("deblur", &FREE);
            let model = Applications::new(&spec, orchestrator).expect("a model");
            let window = Extent::WindowPs(crate::Picos::from_ns(100e6));
            let sample = model.replicate(&Streams::new(1, 0), window, 1 << 20).expect("it ends");
            // Each request takes 15,615 us, so the seventh begins within the window.
            assert_eq!(sample.responses[0].len(), 7);
        }
    }

    #[test]
    fn overload_is_said_before_a_run() {
        let over = |per_s: &'static str| {
            let spec = spec("canny", &[("load.per_s", per_s)]);
            Applications::new(&spec, Orchestrator::Relief).expect("a model").overload()
        };
        assert_eq!(over("300"), None);
        let text = over("400").expect("overloaded");
        assert!(text.starts_with("convolution: 1.1"), "{text}");
    }
}
