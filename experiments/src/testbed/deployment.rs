//! One configuration as running processes: memcached, the store service, the compression service, the frontend.

use std::path::{Path, PathBuf};

use drivers::qpl;
use harness::{CpuUsage, Machine, Process, free_path, metrics, start_memcached};
use load::Address;
use units::{ByteCount, Op};

use super::configuration::{Compressor, Configuration, StoreRoute, Topology, VIRTUAL};

/// The program that holds the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A memcached server.
    Memcached,
    /// The store inside a store service.
    Embedded,
}

/// The settings that the deployments of an experiment share.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The program that holds the items.
    pub backing: Backing,
    /// The machine on which the processes run.
    pub machine: &'a Machine,
    /// The address of a scheduler to which the processes report.
    pub scheduler: Option<&'a str>,
    /// The path of QPL's library, or None if the environment names it.
    pub qpl_library: Option<&'a Path>,
}

/// A frontend's connection to a compression service.
#[derive(Clone, Debug)]
pub enum Transport {
    Grpc(api::Address),
    Lane(PathBuf),
}

/// A running configuration. Dropping it stops its processes.
pub struct Deployment {
    /// The configuration that runs.
    pub configuration: Configuration,
    /// The processes. The frontend is first, so that it ends before the services that it uses.
    processes: Vec<Process>,
    address: Address,
    frontend_admin: String,
    /// The admin address of the process that (de)compresses.
    compressing_admin: String,
    compression: Option<Transport>,
}

impl Deployment {
    /// Starts the processes and waits until they serve.
    ///
    /// # Errors
    /// The text names the process that does not serve, and says why.
    pub fn start(configuration: Configuration, site: &Site<'_>) -> Result<Self, String> {
        let mut processes = Vec::new();
        let store = site.store(configuration.route, &mut processes)?;
        let (mut compression, mut service_admin) = (None, None);
        if configuration.is_microservice() {
            let (transport, admin) = site.compression(configuration, &mut processes)?;
            (compression, service_admin) = (Some(transport), Some(admin));
        }
        let place = match &compression {
            None => here(configuration.compressor),
            Some(transport) => there(configuration.compressor, transport),
        };
        // The frontend keeps no decompressed values, because the cost of decompression is what is measured.
        let args = "serve --role frontend --listen 127.0.0.1:0 --threads 1";
        let args = words(&format!("{args} --set values.hot_share=0"));
        let more = vec![format!("--store={store}"), format!("--memory={MEMORY}")];
        let form = words(form(configuration.compressor));
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

    /// Returns the address to which clients connect.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the transport to the compression service, if there is one.
    pub fn compression(&self) -> Option<&Transport> {
        self.compression.as_ref()
    }

    /// Returns the CPU usage of each process so far, by name: its CPU time and the time that it waited for a core.
    pub fn cpu_usage(&self) -> Vec<(String, CpuUsage)> {
        self.processes
            .iter()
            .map(|process| (process.name().to_owned(), process.cpu_usage()))
            .collect()
    }

    /// Returns the number of the frontend's jobs of an op so far, and the sum of their times from submission to
    /// completion (s).
    ///
    /// # Errors
    /// The page of metrics could not be read.
    pub fn frontend_jobs(&self, op: Op) -> Result<(f64, f64), String> {
        let label = format!("op=\"{}\"", op.name());
        let sum = |name: &str| -> Result<f64, String> {
            let found = metrics(&self.frontend_admin, name)?;
            let of_op = found.iter().filter(|(labels, _)| labels.contains(&label));
            Ok(of_op.map(|(_, value)| value).sum())
        };
        Ok((sum("rebate_jobs_total")?, sum("rebate_job_seconds_total")?))
    }

    /// Returns the number of jobs that ran, or were tried, in another place than this configuration prescribes.
    ///
    /// # Errors
    /// A page of metrics could not be read.
    pub fn misplaced_jobs(&self) -> Result<f64, String> {
        let remote = match self.configuration.topology {
            Topology::Monolith => None,
            Topology::Microservice => Some("device=\"remote-"),
            Topology::Lane => Some("device=\"lane-"),
        };
        let device = self.configuration.device();
        let local = format!("device=\"{}\"", device.unwrap_or(VIRTUAL));
        let mut pages = vec![(&self.compressing_admin, local.as_str())];
        pages.extend(remote.map(|remote| (&self.frontend_admin, remote)));
        let mut misplaced = 0.0;
        for (page, expected) in pages {
            misplaced +=
                metrics(page, "rebate_fallback_total")?.iter().map(|sample| sample.1).sum::<f64>();
            // If the frontend's policy chooses the place, none of the frontend's jobs is misplaced.
            if device.is_none() && page == &self.frontend_admin {
                continue;
            }
            let jobs = metrics(page, "rebate_jobs_total")?;
            let elsewhere = jobs.iter().filter(|(labels, _)| !labels.contains(expected));
            misplaced += elsewhere.map(|sample| sample.1).sum::<f64>();
        }
        Ok(misplaced)
    }

    /// Returns the number of jobs done by the process that (de)compresses.
    ///
    /// # Errors
    /// The page of metrics could not be read.
    pub fn jobs(&self) -> Result<f64, String> {
        let found = metrics(&self.compressing_admin, "rebate_jobs_total")?;
        let done = found.iter().filter(|(labels, _)| labels.contains("outcome=\"done\""));
        Ok(done.map(|(_, count)| count).sum())
    }

    /// Returns the number of the virtual device's completions, and the number of those that were late.
    ///
    /// # Errors
    /// The page of metrics could not be read.
    pub fn late(&self) -> Result<(f64, f64), String> {
        let found = metrics(&self.compressing_admin, "rebate_device_counter_total")?;
        let sum = |counter: &str| {
            let label = format!("counter=\"{counter}\"");
            found.iter().filter(|(labels, _)| labels.contains(&label)).map(|sample| sample.1).sum()
        };
        Ok((sum("jobs"), sum("late")))
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        if let Some(Transport::Lane(path)) = &self.compression {
            // A killed service does not remove its socket.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Site<'_> {
    /// Starts the processes that hold the items, and returns the address that the frontend uses.
    fn store(&self, route: StoreRoute, processes: &mut Vec<Process>) -> Result<String, String> {
        let held = match self.backing {
            Backing::Memcached => {
                let (memcached, port) = start_memcached(MEMORY, 1, self.core(4))?;
                processes.push(memcached);
                format!("memcached://127.0.0.1:{port}")
            }
            Backing::Embedded => "embedded".to_owned(),
        };
        if route == StoreRoute::Direct {
            return Ok(held);
        }
        let args = words("serve --role store --grpc-listen 127.0.0.1:0 --threads 1");
        let more = [format!("--store={held}"), format!("--memory={MEMORY}")];
        let mut process = self.rebate("store", &[args, more.to_vec()].concat(), 3)?;
        let [address] = process.lines_after(["grpc on "])?;
        processes.push(process);
        Ok(format!("grpc://{address}"))
    }

    /// Starts the compression service. Returns the transport to it and its admin address.
    fn compression(
        &self,
        configuration: Configuration,
        processes: &mut Vec<Process>,
    ) -> Result<(Transport, String), String> {
        let lane = free_path();
        let (listen, beginning) = match configuration.topology {
            Topology::Lane => (format!("--lane-listen={}", lane.display()), "lane on "),
            _ => ("--grpc-listen=127.0.0.1:0".to_owned(), "grpc on "),
        };
        let args = words("serve --role compression --threads 1");
        let args = [args, vec![listen], here(configuration.compressor), self.reporting()].concat();
        let mut process = self.rebate("compression", &args, 2)?;
        let [admin, address] = process.lines_after(["admin on ", beginning])?;
        processes.push(process);
        let transport = match configuration.topology {
            Topology::Lane => Transport::Lane(lane),
            _ => Transport::Grpc(address.parse().map_err(|error| format!("{address:?}: {error}"))?),
        };
        Ok((transport, admin))
    }

    fn rebate(&self, name: &str, args: &[String], process: usize) -> Result<Process, String> {
        let library = self.qpl_library.map(|path| (qpl::LIBRARY_VARIABLE, path.as_os_str()));
        Process::rebate_with(name, args, self.core(process), library)
    }

    /// Returns the core of a process. The load generator runs on the first core.
    fn core(&self, process: usize) -> Option<usize> {
        self.machine.core(process, PROCESSES)
    }

    fn reporting(&self) -> Vec<String> {
        self.scheduler.map(|scheduler| format!("--scheduler={scheduler}")).into_iter().collect()
    }
}

/// Returns the arguments of a process that itself (de)compresses.
fn here(compressor: Compressor) -> Vec<String> {
    let place = match compressor {
        Compressor::Software | Compressor::Best | Compressor::Nothing => {
            "--policy always-software".to_owned()
        }
        Compressor::QplSoftware => format!("{OFFLOAD} --device {}", qpl::Path::Software.device()),
        Compressor::QplHardware => format!("{OFFLOAD} --device {}", qpl::Path::Hardware.device()),
        Compressor::Iaa | Compressor::LeastLatency => {
            format!("{OFFLOAD} --device {VIRTUAL} --allow-virtual")
        }
    };
    [words(ALONE), words(&place)].concat()
}

/// Returns the arguments of a frontend that uses a compression service.
fn there(compressor: Compressor, transport: &Transport) -> Vec<String> {
    let address = match transport {
        Transport::Grpc(address) => address.to_string(),
        Transport::Lane(path) => format!("lane:{}", path.display()),
    };
    let policy = match compressor {
        Compressor::LeastLatency => "--policy least-latency",
        _ => OFFLOAD,
    };
    [vec![format!("--compression={address}")], words(ALONE), words(policy)].concat()
}

/// Returns the arguments that choose the form in which a frontend writes values.
const fn form(compressor: Compressor) -> &'static str {
    match compressor {
        Compressor::Best => "--codec auto",
        Compressor::Nothing => "--compress off",
        _ => "--codec deflate --set compress.readable_by=iaa",
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// The arguments of every process: no pool of workers, because each process has one core here. (In \[CacheTax\],
/// containers share a socket of 28 cores.)
const ALONE: &str = "--workers 0 --admin-listen 127.0.0.1:0";

/// The arguments that send jobs of every size to the accelerator, as in \[CacheTax\].
const OFFLOAD: &str = "--policy bounded-offload --set runtime.offload_bytes_min=0";

/// The memory of the store. It is large enough for all items, so that none is evicted in an experiment on latency.
const MEMORY: ByteCount = ByteCount::mib(256);

/// The number of processes: load generator, frontend, compression, store, memcached and scheduler.
pub const PROCESSES: usize = 6;
