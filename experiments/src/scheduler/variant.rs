//! The ways to run the cache that are compared: one frontend each, with the same virtual IAA, and the scheduler that
//! one of them follows.

use load::Address;
use units::ByteCount;

use crate::testbed::VIRTUAL;
use harness::{Machine, Port, Process, metrics};

/// What decides where a job runs. At one size a static policy with a threshold does one of the first three to all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Arm {
    /// Everything on the calling core.
    Software,
    /// Everything to the accelerator, the core doing other work meanwhile.
    Offload,
    /// The same in another process: how far two are apart that are alike.
    Twin,
    /// Everything to the accelerator, waiting for it.
    Wait,
    /// As the scheduler says.
    Fitted,
}

impl Arm {
    pub(super) const ALL: [Arm; 5] =
        [Arm::Software, Arm::Offload, Arm::Twin, Arm::Wait, Arm::Fitted];
    pub(super) const STATIC: [Arm; 3] = [Arm::Software, Arm::Offload, Arm::Wait];

    pub(super) const fn id(self) -> &'static str {
        match self {
            Arm::Software => "software",
            Arm::Offload => "offload",
            Arm::Twin => "twin",
            Arm::Wait => "wait",
            Arm::Fitted => "fitted",
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Arm::Software => "always software",
            Arm::Offload => "always offloaded",
            Arm::Twin => "always offloaded, in another process",
            Arm::Wait => "always offloaded, waiting",
            Arm::Fitted => "as the scheduler says",
        }
    }

    /// The virtual devices in the path.
    pub(super) fn devices(self) -> Vec<String> {
        if self == Arm::Software { Vec::new() } else { vec![VIRTUAL.to_owned()] }
    }

    fn policy(self) -> &'static str {
        match self {
            Arm::Software => "always-software",
            Arm::Offload | Arm::Twin | Arm::Fitted => "bounded-offload",
            Arm::Wait => "sync-offload",
        }
    }
}

/// All of them, running.
pub(super) struct Arms {
    frontends: Vec<(Arm, Frontend)>,
    core: Option<usize>,
    /// Where the scheduler is to be.
    port: Port,
    /// Ends last: a frontend reports to it.
    scheduler: Option<(Process, String)>,
}

/// One of them.
pub(super) struct Frontend {
    process: Process,
    admin: String,
    pub(super) address: Address,
}

impl Arms {
    /// Starts all but the scheduler: until there is one, every arm with an accelerator uses it for everything.
    ///
    /// # Errors
    /// Which process does not serve, and why.
    pub(super) fn start(machine: &Machine) -> Result<Self, String> {
        let core = machine.core(1, super::CORES);
        let port = Port::free().map_err(|error| format!("no free port: {error}"))?;
        let mut frontends = Vec::new();
        for arm in Arm::ALL {
            let follows = match arm {
                Arm::Fitted => vec![format!("--scheduler={}", port.address())],
                _ => Vec::new(),
            };
            let everything = "--set runtime.offload_bytes_min=0";
            let policy = words(&format!("--policy {} {everything}", arm.policy()));
            let memory = vec![format!("--memory={MEMORY}")];
            let device = words(&format!("--device {VIRTUAL} --allow-virtual"));
            let args = [words(FRONTEND), memory, device, policy, follows].concat();
            let mut process = Process::rebate(arm.id(), &args, core)?;
            let [admin, address] = process.lines_after(["admin on ", "listening on "])?;
            let address = address.parse().map_err(|error| format!("{address:?}: {error}"))?;
            frontends.push((arm, Frontend { process, admin, address }));
        }
        Ok(Self { frontends, core, port, scheduler: None })
    }

    /// Starts the scheduler, which knows nothing. The emulated device by now remembers its results: one that makes them
    /// when it is first tried would look as slow as software.
    ///
    /// # Errors
    /// Why it does not serve.
    pub(super) fn start_scheduler(&mut self) -> Result<(), String> {
        let listen = format!("--grpc-listen={}", self.port.address());
        let args = [words(SCHEDULER), vec![listen]].concat();
        let mut process = Process::rebate("scheduler", &args, self.core)?;
        let [admin] = process.lines_after(["admin on "])?;
        self.scheduler = Some((process, admin));
        Ok(())
    }

    pub(super) fn of(&self, arm: Arm) -> &Frontend {
        let found = self.frontends.iter().find(|(own, _)| *own == arm);
        &found.expect("every arm was started").1
    }

    /// From and up to which sizes each op is offloaded and waited for, as the scheduler has it now.
    ///
    /// # Errors
    /// That its page could not be read.
    pub(super) fn in_force(&self) -> Result<String, String> {
        let Some((_, admin)) = &self.scheduler else { return Ok(String::new()) };
        let of = |name| metrics(admin, name);
        let (from, waits) =
            (of("rebate_scheduler_offload_bytes_min{")?, of("rebate_scheduler_wait_bytes_max{")?);
        let shown = from.iter().zip(waits).map(|((labels, from), (_, waits))| {
            let op = labels.split('"').nth(1).unwrap_or("?");
            format!("{op} from {from} B, waited for up to {waits} B")
        });
        Ok(shown.collect::<Vec<_>>().join("; "))
    }

    /// CPU time of the scheduler so far (s).
    pub(super) fn scheduler_cpu_s(&self) -> f64 {
        self.scheduler.as_ref().map_or(0.0, |(process, _)| process.cpu_s())
    }
}

impl Frontend {
    /// CPU time so far (s).
    pub(super) fn cpu_s(&self) -> f64 {
        self.process.cpu_s()
    }

    /// Jobs of the virtual device, and those that could not be on time.
    ///
    /// # Errors
    /// That the page could not be read.
    pub(super) fn late(&self) -> Result<(f64, f64), String> {
        let found = metrics(&self.admin, "rebate_device_counter_total")?;
        let of = |counter: &str| {
            let label = format!("counter=\"{counter}\"");
            found.iter().filter(|(labels, _)| labels.contains(&label)).map(|own| own.1).sum()
        };
        Ok((of("jobs"), of("late")))
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

const SCHEDULER: &str = "serve --role scheduler --admin-listen 127.0.0.1:0 --threads 1 \
    --set scheduler.parameters=fitted --set scheduler.report_every_ms=250";

/// One core a process, an accelerator and no pool of workers; the store is the process's own.
const FRONTEND: &str = "serve --role frontend --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 \
    --threads 1 --workers 0 --store embedded --codec deflate --set compress.readable_by=iaa";

/// Nothing is ever evicted.
const MEMORY: ByteCount = ByteCount::mib(64);
