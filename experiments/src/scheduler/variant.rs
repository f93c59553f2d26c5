//! The compared variants of the cache. Each is a frontend with the same virtual IAA, and one of them follows the
//! scheduler.

use load::Address;
use units::ByteCount;

use crate::testbed::VIRTUAL;
use harness::{Machine, Port, Process, metrics};

/// A way to decide where a job runs. For jobs of one size, a static policy with a threshold behaves like one variant of
/// [`Variant::STATIC`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Variant {
    /// Runs all jobs on the calling core.
    Software,
    /// Offloads all jobs to the accelerator. The core does other work in the meantime.
    Offload,
    /// Does the same as `Offload` in another process. This is the A/A control, which shows how far two equal processes
    /// differ.
    AaControl,
    /// Offloads all jobs to the accelerator. The core waits for it.
    Wait,
    /// Follows the scheduler.
    Fitted,
}

impl Variant {
    pub(super) const ALL: [Variant; 5] =
        [Variant::Software, Variant::Offload, Variant::AaControl, Variant::Wait, Variant::Fitted];
    pub(super) const STATIC: [Variant; 3] = [Variant::Software, Variant::Offload, Variant::Wait];

    pub(super) const fn id(self) -> &'static str {
        match self {
            Variant::Software => "software",
            Variant::Offload => "offload",
            Variant::AaControl => "twin",
            Variant::Wait => "wait",
            Variant::Fitted => "fitted",
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Variant::Software => "always software",
            Variant::Offload => "always offloaded",
            Variant::AaControl => "always offloaded, in another process",
            Variant::Wait => "always offloaded, waiting",
            Variant::Fitted => "as the scheduler says",
        }
    }

    /// Returns the virtual devices in the path.
    pub(super) fn devices(self) -> Vec<String> {
        if self == Variant::Software { Vec::new() } else { vec![VIRTUAL.to_owned()] }
    }

    fn policy(self) -> &'static str {
        match self {
            Variant::Software => "always-software",
            Variant::Offload | Variant::AaControl | Variant::Fitted => "bounded-offload",
            Variant::Wait => "sync-offload",
        }
    }
}

/// All variants, as running processes.
pub(super) struct Variants {
    frontends: Vec<(Variant, Frontend)>,
    core: Option<usize>,
    /// The port that is reserved for the scheduler.
    port: Port,
    /// The scheduler and the address of its admin page. It is dropped last, because a frontend reports to it.
    scheduler: Option<(Process, String)>,
}

/// The process of one variant.
pub(super) struct Frontend {
    process: Process,
    admin: String,
    pub(super) address: Address,
}

impl Variants {
    /// Starts all frontends, but not the scheduler. Until the scheduler runs, every variant with an accelerator
    /// offloads all jobs.
    ///
    /// # Errors
    /// The text says which process does not serve, and why.
    pub(super) fn start(machine: &Machine) -> Result<Self, String> {
        let core = machine.core(1, super::CORES);
        let port = Port::free().map_err(|error| format!("no free port: {error}"))?;
        let mut frontends = Vec::new();
        for variant in Variant::ALL {
            let follows = match variant {
                Variant::Fitted => vec![format!("--scheduler={}", port.address())],
                _ => Vec::new(),
            };
            let everything = "--set runtime.offload_bytes_min=0";
            let policy = words(&format!("--policy {} {everything}", variant.policy()));
            let memory = vec![format!("--memory={MEMORY}")];
            let device = words(&format!("--device {VIRTUAL} --allow-virtual"));
            let args = [words(FRONTEND), memory, device, policy, follows].concat();
            let mut process = Process::rebate(variant.id(), &args, core)?;
            let [admin, address] = process.lines_after(["admin on ", "listening on "])?;
            let address = address.parse().map_err(|error| format!("{address:?}: {error}"))?;
            frontends.push((variant, Frontend { process, admin, address }));
        }
        Ok(Self { frontends, core, port, scheduler: None })
    }

    /// Starts the scheduler, which has no measurements yet. The emulated device must already remember its results: a
    /// device that computes them when the scheduler first tries it would look as slow as software.
    ///
    /// # Errors
    /// The text says why the scheduler does not serve.
    pub(super) fn start_scheduler(&mut self) -> Result<(), String> {
        let listen = format!("--grpc-listen={}", self.port.address());
        let args = [words(SCHEDULER), vec![listen]].concat();
        let mut process = Process::rebate("scheduler", &args, self.core)?;
        let [admin] = process.lines_after(["admin on "])?;
        self.scheduler = Some((process, admin));
        Ok(())
    }

    pub(super) fn frontend(&self, variant: Variant) -> &Frontend {
        let started = self.frontends.iter().find(|(name, _)| *name == variant);
        &started.expect("every variant was started").1
    }

    /// Returns the scheduler's active parameters as text: the size from which each op is offloaded, and the size up to
    /// which the core waits for it. The text is empty if there is no scheduler or it has decided nothing.
    ///
    /// # Errors
    /// The scheduler's page of metrics could not be read.
    pub(super) fn active_parameters(&self) -> Result<String, String> {
        let Some((_, admin)) = &self.scheduler else { return Ok(String::new()) };
        let from = metrics(admin, "rebate_scheduler_offload_bytes_min{")?;
        let waits = metrics(admin, "rebate_scheduler_wait_bytes_max{")?;
        let shown = from.iter().zip(waits).map(|((labels, from), (_, waits))| {
            let op = labels.split('"').nth(1).unwrap_or("?");
            format!("{op} from {from} B, waited for up to {waits} B")
        });
        Ok(shown.collect::<Vec<_>>().join("; "))
    }

    /// Returns the CPU time of the scheduler so far (s).
    pub(super) fn scheduler_cpu_s(&self) -> f64 {
        self.scheduler.as_ref().map_or(0.0, |(process, _)| process.cpu_s())
    }
}

impl Frontend {
    /// Returns the CPU time so far (s).
    pub(super) fn cpu_s(&self) -> f64 {
        self.process.cpu_s()
    }

    /// Returns the number of the virtual device's jobs, and the number of late ones among them.
    ///
    /// # Errors
    /// The page of metrics could not be read.
    pub(super) fn device_jobs(&self) -> Result<(f64, f64), String> {
        let counters = metrics(&self.admin, "rebate_device_counter_total")?;
        let sum = |counter: &str| {
            let label = format!("counter=\"{counter}\"");
            let chosen = counters.iter().filter(|(labels, _)| labels.contains(&label));
            chosen.map(|(_, value)| value).sum()
        };
        Ok((sum("jobs"), sum("late")))
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

const SCHEDULER: &str = "serve --role scheduler --admin-listen 127.0.0.1:0 --threads 1 \
    --set scheduler.parameters=fitted --set scheduler.report_every_ms=250";

/// The arguments of a frontend. The process has one core, an accelerator, an embedded store, and no pool of workers. It
/// keeps no decompressed values, because the jobs that decompress them are what is placed.
const FRONTEND: &str = "serve --role frontend --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 \
    --threads 1 --workers 0 --store embedded --codec deflate --set compress.readable_by=iaa \
    --set values.hot_share=0";

/// The memory of the store. It is large enough that nothing is evicted.
const MEMORY: ByteCount = ByteCount::mib(64);
