//! One configuration as running processes: memcached, the store service, the compression service, the frontend.

use std::path::{Path, PathBuf};

use drivers::qpl;
use harness::{Machine, Process, Spent, free_path, metrics, start_memcached};
use load::Address;
use units::{ByteCount, Op};

use super::configuration::{Configuration, Door, Place, VIRTUAL, Work};

/// What holds the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A memcached server.
    Memcached,
    /// A store service's own.
    Embedded,
}

/// What the deployments of an experiment share.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// What holds the items.
    pub backing: Backing,
    /// Where they run.
    pub machine: &'a Machine,
    /// A scheduler that is told what the processes do.
    pub scheduler: Option<&'a str>,
    /// QPL's library, where the environment does not name it.
    pub qpl_library: Option<&'a Path>,
}

/// How a frontend reaches a compression service.
#[derive(Clone, Debug)]
pub enum Way {
    Grpc(api::Address),
    Lane(PathBuf),
}

/// A running configuration. Dropping it ends its processes.
pub struct Deployment {
    /// What runs.
    pub configuration: Configuration,
    /// The frontend first: it ends before those that it asks.
    processes: Vec<Process>,
    address: Address,
    frontend_admin: String,
    /// Of the process that (de)compresses.
    compressing_admin: String,
    compression: Option<Way>,
}

impl Deployment {
    /// Starts the processes and waits until they serve.
    ///
    /// # Errors
    /// Which of them does not serve, and why.
    pub fn start(configuration: Configuration, site: &Site<'_>) -> Result<Self, String> {
        let mut processes = Vec::new();
        let store = site.store(configuration.door, &mut processes)?;
        let (mut compression, mut service_admin) = (None, None);
        if configuration.is_microservice() {
            let (way, admin) = site.compression(configuration, &mut processes)?;
            (compression, service_admin) = (Some(way), Some(admin));
        }
        let place = match &compression {
            None => here(configuration.work),
            Some(way) => there(configuration.work, way),
        };
        let args = words("serve --role frontend --listen 127.0.0.1:0 --threads 1");
        let more = vec![format!("--store={store}"), format!("--memory={MEMORY}")];
        let form = words(form(configuration.work));
        let args = [args, more, form, place, site.reporting()].concat();
        let mut process = site.rebate("frontend", &args, 1)?;
        let [frontend_admin, address] = process.lines_after(["admin on ", "listening on "])?;
        processes.push(process);
        processes.reverse();
        Ok(Self {
            configuration,
            processes,
            address: address.parse().map_err(|error| format!("{address:?}: {error}"))?,
            compressing_admin: service_admin.unwrap_or_else(|| frontend_admin.clone()),
            frontend_admin,
            compression,
        })
    }

    /// Where clients connect.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The compression service, if it is one of its own.
    pub fn compression(&self) -> Option<&Way> {
        self.compression.as_ref()
    }

    /// What each process has had of the cores so far, by name.
    pub fn spent(&self) -> Vec<(String, Spent)> {
        self.processes.iter().map(|own| (own.name().to_owned(), own.spent())).collect()
    }

    /// The frontend's jobs of an op so far, and how long they took together from submission to completion (s).
    ///
    /// # Errors
    /// That the page could not be read.
    pub fn frontend_jobs(&self, op: Op) -> Result<(f64, f64), String> {
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
    pub fn strays(&self) -> Result<f64, String> {
        let way = match self.configuration.place {
            Place::Monolith => None,
            Place::Microservice => Some("device=\"remote-"),
            Place::Lane => Some("device=\"lane-"),
        };
        let device = self.configuration.device();
        let own = format!("device=\"{}\"", device.unwrap_or(VIRTUAL));
        let mut pages = vec![(&self.compressing_admin, own.as_str())];
        pages.extend(way.map(|way| (&self.frontend_admin, way)));
        let mut strays = 0.0;
        for (page, own) in pages {
            strays += metrics(page, "rebate_fallback_total")?.iter().map(|own| own.1).sum::<f64>();
            // Where the frontend's policy has the choice, no place of its is a stray's.
            if device.is_none() && page == &self.frontend_admin {
                continue;
            }
            let jobs = metrics(page, "rebate_jobs_total")?;
            let elsewhere = jobs.iter().filter(|(labels, _)| !labels.contains(own));
            strays += elsewhere.map(|own| own.1).sum::<f64>();
        }
        Ok(strays)
    }

    /// Jobs done by the process that (de)compresses.
    ///
    /// # Errors
    /// That the page could not be read.
    pub fn jobs(&self) -> Result<f64, String> {
        let found = metrics(&self.compressing_admin, "rebate_jobs_total")?;
        let done = found.iter().filter(|(labels, _)| labels.contains("outcome=\"done\""));
        Ok(done.map(|(_, count)| count).sum())
    }

    /// Completions of the virtual device, and those that could not be on time.
    ///
    /// # Errors
    /// That the page could not be read.
    pub fn late(&self) -> Result<(f64, f64), String> {
        let found = metrics(&self.compressing_admin, "rebate_device_counter_total")?;
        let of = |counter: &str| {
            let label = format!("counter=\"{counter}\"");
            found.iter().filter(|(labels, _)| labels.contains(&label)).map(|own| own.1).sum()
        };
        Ok((of("jobs"), of("late")))
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        if let Some(Way::Lane(path)) = &self.compression {
            // A killed service leaves its socket behind.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Site<'_> {
    /// Starts what holds the items, and tells how a frontend reaches it.
    fn store(&self, door: Door, processes: &mut Vec<Process>) -> Result<String, String> {
        let held = match self.backing {
            Backing::Memcached => {
                let (memcached, port) = start_memcached(MEMORY, 1, self.core(4))?;
                processes.push(memcached);
                format!("memcached://127.0.0.1:{port}")
            }
            Backing::Embedded => "embedded".to_owned(),
        };
        if door == Door::Direct {
            return Ok(held);
        }
        let args = words("serve --role store --grpc-listen 127.0.0.1:0 --threads 1");
        let more = [format!("--store={held}"), format!("--memory={MEMORY}")];
        let mut process = self.rebate("store", &[args, more.to_vec()].concat(), 3)?;
        let [address] = process.lines_after(["grpc on "])?;
        processes.push(process);
        Ok(format!("grpc://{address}"))
    }

    /// Starts the compression service; tells the way to it, and where its pages are.
    fn compression(
        &self,
        configuration: Configuration,
        processes: &mut Vec<Process>,
    ) -> Result<(Way, String), String> {
        let lane = free_path();
        let (listen, beginning) = match configuration.place {
            Place::Lane => (format!("--lane-listen={}", lane.display()), "lane on "),
            _ => ("--grpc-listen=127.0.0.1:0".to_owned(), "grpc on "),
        };
        let args = words("serve --role compression --threads 1");
        let args = [args, vec![listen], here(configuration.work), self.reporting()].concat();
        let mut process = self.rebate("compression", &args, 2)?;
        let [admin, address] = process.lines_after(["admin on ", beginning])?;
        processes.push(process);
        let way = match configuration.place {
            Place::Lane => Way::Lane(lane),
            _ => Way::Grpc(address.parse().map_err(|error| format!("{address:?}: {error}"))?),
        };
        Ok((way, admin))
    }

    fn rebate(&self, name: &str, args: &[String], process: usize) -> Result<Process, String> {
        let library = self.qpl_library.map(|path| (qpl::LIBRARY_VARIABLE, path.as_os_str()));
        Process::rebate_with(name, args, self.core(process), library)
    }

    /// The load generator has the first core.
    fn core(&self, process: usize) -> Option<usize> {
        self.machine.core(process, PROCESSES)
    }

    fn reporting(&self) -> Vec<String> {
        self.scheduler.map(|scheduler| format!("--scheduler={scheduler}")).into_iter().collect()
    }
}

/// What a process is told that (de)compresses by itself.
fn here(work: Work) -> Vec<String> {
    let place = match work {
        Work::Software | Work::Best | Work::Nothing => "--policy always-software".to_owned(),
        Work::QplSoftware => format!("{OFFLOAD} --device {}", qpl::Path::Software.device()),
        Work::QplHardware => format!("{OFFLOAD} --device {}", qpl::Path::Hardware.device()),
        Work::Iaa | Work::LeastLatency => format!("{OFFLOAD} --device {VIRTUAL} --allow-virtual"),
    };
    [words(ALONE), words(&place)].concat()
}

/// What a frontend is told that has a compression service.
fn there(work: Work, way: &Way) -> Vec<String> {
    let address = match way {
        Way::Grpc(address) => address.to_string(),
        Way::Lane(path) => format!("lane:{}", path.display()),
    };
    let policy = match work {
        Work::LeastLatency => "--policy least-latency",
        _ => OFFLOAD,
    };
    [vec![format!("--compression={address}")], words(ALONE), words(policy)].concat()
}

/// The form of values that a frontend writes.
const fn form(work: Work) -> &'static str {
    match work {
        Work::Best => "--codec auto",
        Work::Nothing => "--compress off",
        _ => "--codec deflate --set compress.readable_by=iaa",
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
pub const PROCESSES: usize = 6;
