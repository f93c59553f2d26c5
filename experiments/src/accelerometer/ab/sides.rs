//! The two sides of a case: the same service over the same items on the same core. Only side B has the
//! accelerator. The module measures nothing.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use crate::accelerometer::service::{
    Checksum, Cipher, KEY_BYTES, Kernel, Load, Offload, Ops, Runner, Service, Task, Team, What,
    keep_to,
};
use device::virtual_device::VirtualCounters;
use device::{Device, Software, Virtual, VirtualOptions, Worker};
use drivers::{Lane, LaneOptions, Remote, RemoteOptions};
use store::embedded::{Embedded, Options};
use units::ByteCount;
use workload::DeviceProfile;

use super::cases::{By, Case};
use drivers::ENGINES;
use harness::{Machine, Process, TIMEOUT};

/// Both sides of a case, started and warmed up.
pub(super) struct Sides {
    pub(super) a: Team,
    pub(super) b: Team,
    /// The core on which both sides run.
    pub(super) core: Option<usize>,
    accelerator: Accelerator,
}

/// The device for jobs, and the processes and files that must live as long as the device.
#[derive(Default)]
struct Accelerator {
    device: Option<Arc<dyn Device>>,
    emulation: Option<Arc<Virtual>>,
    _service: Option<Process>,
    _socket: Option<Socket>,
}

impl Sides {
    /// Starts both sides, fills their shared store, and lets each side serve for a while.
    ///
    /// # Errors
    /// The text says what does not start.
    pub(super) fn start(case: &Case, machine: &Machine) -> Result<Self, String> {
        let (core, other) = (machine.core(0, CORES), machine.core(1, CORES));
        let accelerator = Accelerator::start(case.by, other)?;
        let load = Arc::new(Load::new(&case.mix).map_err(|error| error.to_string())?);
        let options = Options { limit: STORE_BYTES, evict: false, seed: SEED };
        let store = Arc::new(Embedded::new(options));
        let side = |accelerated: bool| {
            let (store, load, runner_case) = (Arc::clone(&store), Arc::clone(&load), case.clone());
            let device = accelerator.device.clone().filter(|_| accelerated);
            let build = move |index: usize| {
                let side = u64::from(accelerated);
                let first_nonce = (2 * index as u64 + side) << 48;
                let service =
                    Service::new(Arc::clone(&store), ops(&runner_case, accelerated), first_nonce);
                let software: Arc<dyn Device> = Arc::new(Software::new(ENGINES));
                let offload = device
                    .clone()
                    .zip(runner_case.by.window())
                    .map(|(device, window)| Offload { op: runner_case.op(), device, window });
                Runner::new(
                    service,
                    Arc::clone(&load),
                    runner_case.kernel,
                    &software,
                    offload.as_ref(),
                )
            };
            Team::start(case.threads, core, !accelerated, Arc::new(build))
        };
        let sides = Self { a: side(false)?, b: side(true)?, core, accelerator };
        sides.warm(case)?;
        Ok(sides)
    }

    /// Serves requests until the emulation has all results that it will need and the caches are filled.
    fn warm(&self, case: &Case) -> Result<(), String> {
        let count = WARM_REQUESTS_PER_KEY * case.mix.keys;
        let task = Task { what: What::Serve, seed: SEED, count };
        self.b.run(task)?;
        self.a.run(Task { count: count / WARM_REQUESTS_PER_KEY, ..task })?;
        Ok(())
    }

    /// Returns the counters of the emulation so far, or None if the case has no emulation.
    pub(super) fn counters(&self) -> Option<VirtualCounters> {
        self.accelerator.emulation.as_ref().map(|emulation| emulation.counters())
    }

    /// Returns the virtual devices in the path of the accelerated side.
    pub(super) fn virtuals(&self) -> Vec<String> {
        self.accelerator.emulation.iter().map(|emulation| emulation.name().to_owned()).collect()
    }
}

/// Returns the cipher and the checksum of a side. If the case's kernel has no device, side A uses tables for
/// it, and so does side B of an A/A run. All other kernels use the processor's instructions.
fn ops(case: &Case, accelerated: bool) -> Ops {
    let by_tables = |kernel| case.kernel == kernel && case.by.window().is_none() && !accelerated;
    // Both sides of an A/A run are equal.
    let alike = |kernel| case.kernel == kernel && case.by == By::Nothing;
    let cipher = by_tables(Kernel::Cipher) || alike(Kernel::Cipher);
    let cipher = if cipher { Cipher::table(&KEY) } else { Cipher::processor(&KEY) };
    let checksum = if by_tables(Kernel::Checksum) { Checksum::Table } else { Checksum::Processor };
    Ops { cipher, checksum }
}

impl Accelerator {
    fn start(by: By, core: Option<usize>) -> Result<Self, String> {
        match by {
            By::Nothing | By::Instructions => Ok(Self::default()),
            By::VirtualIaa(_) => {
                let profile = DeviceProfile::find("iaa").map_err(|error| error.to_string())?;
                let device = Virtual::new(&profile, ENGINES, VirtualOptions::default());
                let device = Arc::new(device.map_err(|error| error.to_string())?);
                let emulation = Some(Arc::clone(&device));
                Ok(Self { device: Some(device), emulation, ..Self::default() })
            }
            By::Worker(_) => {
                let start = move || {
                    keep_to(core);
                    Worker::start(NonZeroUsize::MIN, WORKER_QUEUE_DEPTH, ENGINES)
                };
                // A new thread starts on the core of the thread that spawned it.
                let started = std::thread::spawn(start).join();
                let worker = started.map_err(|_| "the worker did not start".to_owned())?;
                let worker = worker.map_err(|error| error.to_string())?;
                Ok(Self { device: Some(Arc::new(worker)), ..Self::default() })
            }
            By::Grpc(_) => {
                let service = ["--grpc-listen=127.0.0.1:0".to_owned()];
                let (process, address) = compression_service(service, "grpc on ", core)?;
                let address = address.parse().map_err(|error| format!("{address:?}: {error}"))?;
                let (timeout, connect_timeout) = (TIMEOUT, TIMEOUT);
                let options = RemoteOptions { timeout, connect_timeout, ..Default::default() };
                let remote = Remote::new(address, &options);
                let remote = remote.map_err(|error| error.to_string())?;
                let device: Option<Arc<dyn Device>> = Some(Arc::new(remote));
                Ok(Self { device, _service: Some(process), ..Self::default() })
            }
            By::Lane(_) => {
                let name = format!("rebate-ab-{}.lane", std::process::id());
                let socket = std::env::temp_dir().join(name);
                let listen = [format!("--lane-listen={}", socket.display())];
                let (process, _) = compression_service(listen, "lane on ", core)?;
                let options = LaneOptions { timeout: TIMEOUT, ..Default::default() };
                let lane = Lane::new(&socket, &options);
                let device: Option<Arc<dyn Device>> = Some(Arc::new(lane));
                let (_service, _socket) = (Some(process), Some(Socket(socket)));
                Ok(Self { device, _service, _socket, ..Self::default() })
            }
        }
    }
}

/// A path that is deleted when this value is dropped.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        // A killed service leaves its socket behind.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Starts a service that compresses in software on `core`. Returns its process and its address.
fn compression_service(
    listen: [String; 1],
    beginning: &str,
    core: Option<usize>,
) -> Result<(Process, String), String> {
    let args = "serve --role compression --threads 1 --workers 0 --admin-listen 127.0.0.1:0 \
                --policy always-software";
    let args: Vec<String> = args.split_whitespace().map(str::to_owned).chain(listen).collect();
    let mut process = Process::rebate("compression", &args, core)?;
    let [address] = process.lines_after([beginning])?;
    Ok((process, address))
}

/// The number of cores: one for the service and one for its accelerator.
const CORES: usize = 2;
const KEY: [u8; KEY_BYTES] = [0x5A; KEY_BYTES];
const STORE_BYTES: ByteCount = ByteCount::mib(256);
const WORKER_QUEUE_DEPTH: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");
/// The number of warm-up requests per key. After the warm-up, about 0.1 % of the results are missing.
const WARM_REQUESTS_PER_KEY: usize = 10;
const SEED: u64 = 17;
