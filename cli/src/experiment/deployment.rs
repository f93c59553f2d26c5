//! One configuration as running processes: memcached, the store service, the compression service, the frontend.

use load::Address;
use units::{ByteCount, Op};

use super::configuration::{Configuration, Door, Software, VIRTUAL};
use super::machine::Machine;
use super::process::{Process, Spent, metrics, start_memcached};

/// What holds the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    Memcached,
    /// A store service's own.
    Embedded,
}

/// A running configuration. Dropping it ends its processes.
pub(crate) struct Deployment {
    pub(crate) configuration: Configuration,
    /// The frontend first: it ends before those that it asks.
    processes: Vec<Process>,
    address: Address,
    frontend_admin: String,
    /// Of the process that (de)compresses.
    compressing_admin: String,
    compression: Option<api::Address>,
}

impl Deployment {
    /// Starts the processes and waits until they serve. `scheduler` is told what they do.
    ///
    /// # Errors
    /// Which of them does not serve, and why.
    pub(crate) fn start(
        configuration: Configuration,
        backing: Backing,
        machine: &Machine,
        scheduler: Option<&str>,
    ) -> Result<Self, String> {
        // The load generator has the first core.
        let core = |process| machine.core(process, PROCESSES);
        let mut processes = Vec::new();
        let held = match backing {
            Backing::Memcached => {
                let (memcached, port) = start_memcached(MEMORY, 1, core(4))?;
                processes.push(memcached);
                format!("memcached://127.0.0.1:{port}")
            }
            Backing::Embedded => "embedded".to_owned(),
        };
        let store = match (configuration.door, backing) {
            (Door::Direct, _) => held,
            (Door::Grpc, _) => {
                let args = words("serve --role store --grpc-listen 127.0.0.1:0 --threads 1");
                let more = [format!("--store={held}"), format!("--memory={MEMORY}")];
                let args = [args, more.to_vec()].concat();
                let mut process = Process::rebate("store", &args, core(3))?;
                let [address] = process.lines_after(["grpc on "])?;
                processes.push(process);
                format!("grpc://{address}")
            }
        };
        let reporting = scheduler.map(|scheduler| format!("--scheduler={scheduler}"));
        let reporting: Vec<String> = reporting.into_iter().collect();
        let mut compression = None;
        if configuration.microservice {
            let args = words("serve --role compression --grpc-listen 127.0.0.1:0 --threads 1");
            let args = [args, here(configuration), reporting.clone()].concat();
            let mut process = Process::rebate("compression", &args, core(2))?;
            let [admin, address] = process.lines_after(["admin on ", "grpc on "])?;
            processes.push(process);
            compression = Some((admin, address));
        }
        let args = words("serve --role frontend --listen 127.0.0.1:0 --threads 1");
        let codec = match configuration.software {
            Software::Seed => words("--codec deflate --set compress.readable_by=iaa"),
            Software::Best => words("--codec auto"),
        };
        let place = match &compression {
            Some((_, address)) => {
                [vec![format!("--compression={address}")], words(ALONE), words(OFFLOAD)].concat()
            }
            None => here(configuration),
        };
        let more = vec![format!("--store={store}"), format!("--memory={MEMORY}")];
        let args = [args, more, codec, place, reporting].concat();
        let mut process = Process::rebate("frontend", &args, core(1))?;
        let [frontend_admin, address] = process.lines_after(["admin on ", "listening on "])?;
        processes.push(process);
        processes.reverse();
        let compressing_admin =
            compression.as_ref().map_or(&frontend_admin, |(admin, _)| admin).clone();
        let compression = compression.map(|(_, address)| address.parse());
        Ok(Self {
            configuration,
            processes,
            address: address.parse().map_err(|error| format!("{address:?}: {error}"))?,
            frontend_admin,
            compressing_admin,
            compression: compression.transpose().map_err(|error| format!("{error}"))?,
        })
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The compression service, if it is one of its own.
    pub(crate) fn compression(&self) -> Option<&api::Address> {
        self.compression.as_ref()
    }

    /// What each process has had of the cores so far, by name.
    pub(crate) fn spent(&self) -> Vec<(String, Spent)> {
        self.processes.iter().map(|own| (own.name().to_owned(), own.spent())).collect()
    }

    /// The frontend's jobs of an op so far, and how long they took together from submission to completion (s).
    ///
    /// # Errors
    /// That the page could not be read.
    pub(crate) fn frontend_jobs(&self, op: Op) -> Result<(f64, f64), String> {
        let label = format!("op=\"{}\"", op.name());
        let sum = |name: &str| -> Result<f64, String> {
            let found = metrics(&self.frontend_admin, name)?;
            let own = found.iter().filter(|(labels, _)| labels.contains(&label));
            Ok(own.map(|(_, value)| value).sum())
        };
        Ok((sum("rebate_jobs_total")?, sum("rebate_job_seconds_total")?))
    }

    /// Jobs that ran, or were tried, anywhere but where this configuration has them run.
    ///
    /// # Errors
    /// That a page could not be read.
    pub(crate) fn strays(&self) -> Result<f64, String> {
        let here = if self.configuration.accelerated { VIRTUAL } else { "software" };
        let mut pages = vec![(&self.compressing_admin, format!("device=\"{here}\""))];
        if self.configuration.microservice {
            pages.push((&self.frontend_admin, "device=\"remote-".to_owned()));
        }
        let mut strays = 0.0;
        for (page, own) in pages {
            let elsewhere = metrics(page, "rebate_jobs_total")?.into_iter();
            strays += elsewhere
                .filter(|(labels, _)| !labels.contains(&own))
                .map(|own| own.1)
                .sum::<f64>();
            strays += metrics(page, "rebate_fallback_total")?.iter().map(|own| own.1).sum::<f64>();
        }
        Ok(strays)
    }

    /// Jobs done by the process that (de)compresses.
    ///
    /// # Errors
    /// That the page could not be read.
    pub(crate) fn jobs(&self) -> Result<f64, String> {
        let found = metrics(&self.compressing_admin, "rebate_jobs_total")?;
        let done = found.iter().filter(|(labels, _)| labels.contains("outcome=\"done\""));
        Ok(done.map(|(_, count)| count).sum())
    }

    /// Completions of the virtual device, and those that could not be on time.
    ///
    /// # Errors
    /// That the page could not be read.
    pub(crate) fn late(&self) -> Result<(f64, f64), String> {
        let found = metrics(&self.compressing_admin, "rebate_device_counter_total")?;
        let of = |counter: &str| {
            let label = format!("counter=\"{counter}\"");
            found.iter().filter(|(labels, _)| labels.contains(&label)).map(|own| own.1).sum()
        };
        Ok((of("jobs"), of("late")))
    }
}

/// What a process is told that (de)compresses by itself.
fn here(configuration: Configuration) -> Vec<String> {
    if configuration.accelerated {
        [words(ALONE), words(OFFLOAD), words(&format!("--device {VIRTUAL} --allow-virtual"))]
            .concat()
    } else {
        [words(ALONE), words("--policy always-software")].concat()
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// No pool of workers: one core a process, as in the seed.
const ALONE: &str = "--workers 0 --admin-listen 127.0.0.1:0";

/// Every size goes to the accelerator, as in the seed.
const OFFLOAD: &str = "--policy bounded-offload --set runtime.offload_bytes_min=0";

/// Nothing is ever evicted in an experiment on latency.
const MEMORY: ByteCount = ByteCount::mib(256);

/// Load generator, frontend, compression, store, memcached, scheduler.
pub(crate) const PROCESSES: usize = 6;
