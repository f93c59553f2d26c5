//! Opens the devices of this build that a configuration names, for a server. A policy decides which job goes to which
//! device.

mod accelerators;
mod configuration;
pub(crate) mod dpdk;
mod list;
mod opened;
mod routes;
mod sample;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use device::{Device, DeviceError, Software, Virtual, VirtualOptions, Worker, WorkerCores};
use drivers::qpl::{self, Huffman, NotANode, NumaNode, Qpl, QplOptions};
use drivers::{ENGINES, Lane, LaneOptions, Remote, RemoteOptions};
use server::config::{CompressionAddress, Config, HuffmanName, NotAnAddress, RuntimeSection};
use workload::{DeviceProfile, Variant};

pub(crate) use configuration::{Configuration, DeviceFlags, flag};
pub(crate) use list::Devices;
pub(crate) use opened::{Opened, Refused};
pub(crate) use sample::sample;

/// Opens every device that a server with this configuration has: software, compression services, QPL's paths, DPDK's
/// devices, virtual accelerators and the worker threads.
///
/// # Errors
/// A device cannot be opened. The error names the device and the reason.
pub(crate) fn open(config: &Config) -> Result<server::Devices, String> {
    let names = check(&config.runtime)?;
    let mut all: Vec<Arc<dyn Device>> = vec![Arc::new(Software::new(ENGINES))];
    let failed = |error: DeviceError| error.to_string();
    for address in &config.runtime.compression {
        all.push(service(address, config)?);
    }
    for path in &names.qpl {
        all.push(Arc::new(Qpl::open(*path, &qpl_options(&config.runtime)?).map_err(failed)?));
    }
    all.extend(drivers::dpdk_devices::open(&names.dpdk)?);
    for profile in &names.profiles {
        let options = VirtualOptions::default();
        all.push(Arc::new(Virtual::new(profile, ENGINES, options).map_err(failed)?));
    }
    let accelerators = all.len() - 1;
    if let Some(threads) = NonZeroUsize::new(config.runtime.workers).filter(|_| names.worker) {
        // The threads are not pinned, because services that share a host would all pin theirs to its last cores.
        let worker = Worker::start_on(WorkerCores::Any, threads, WORKER_QUEUE_DEPTH, ENGINES);
        all.push(Arc::new(worker.map_err(failed)?));
    }
    Ok(server::Devices { all, accelerators })
}

/// Opens a compression service, over the transport that its address names. The log names the transport.
fn service(address: &str, config: &Config) -> Result<Arc<dyn Device>, String> {
    let problem = |error: &dyn std::fmt::Display| format!("runtime.compression: {error}");
    let address: CompressionAddress =
        address.parse().map_err(|error: NotAnAddress| problem(&error))?;
    match address {
        CompressionAddress::Lane(path) => {
            tracing::info!("compression service at {}: a lane", path.display());
            Ok(Arc::new(Lane::new(&path, &lane_options(config))))
        }
        CompressionAddress::Grpc(address) => {
            tracing::info!("compression service at {address}: gRPC{}", local_hint(&address));
            let remote = Remote::new(address, &remote_options(config)?);
            Ok(Arc::new(remote.map_err(|error| problem(&error))?))
        }
    }
}

/// Returns a hint to use a lane if the address is on this host, and otherwise an empty text.
fn local_hint(address: &api::Address) -> &'static str {
    let is_local = match address {
        api::Address::Unix(_) => true,
        api::Address::Tcp(text) | api::Address::Tls(text) => {
            ["127.", "localhost:", "[::1]:"].iter().any(|host| text.starts_with(host))
        }
    };
    if is_local { "; it is on this host: a lane (lane:/PATH) would cost less" } else { "" }
}

/// The devices that `runtime.devices` names, by kind.
#[derive(Debug, Default)]
pub(crate) struct Named {
    qpl: Vec<qpl::Path>,
    dpdk: Vec<String>,
    profiles: Vec<DeviceProfile>,
    worker: bool,
}

/// Checks that every named device exists and may serve.
///
/// # Errors
/// A name is not valid. The error lists the valid names.
pub(crate) fn check(runtime: &RuntimeSection) -> Result<Named, String> {
    let mut named = Named::default();
    let addresses = runtime.compression.iter().map(|name| ("runtime.compression", name));
    let devices = runtime.devices.iter().map(|name| ("runtime.devices", name));
    let all: Vec<_> = addresses.chain(devices).collect();
    for (index, (key, name)) in all.iter().enumerate() {
        if all[..index].iter().any(|(_, earlier)| earlier == name) {
            return Err(format!("{key}: {name} is named twice"));
        }
    }
    for name in &runtime.devices {
        if name == "worker" {
            named.worker = true;
            continue;
        }
        if let Some(path) = qpl::Path::ALL.into_iter().find(|path| path.device() == name) {
            named.qpl.push(path);
            continue;
        }
        if let Some(device) = dpdk::known(name) {
            dpdk::check(name)?;
            named.dpdk.push(device.to_owned());
            continue;
        }
        let known = name.strip_prefix(VIRTUAL_PREFIX).ok_or_else(|| unknown(name))?;
        let profile = profile(known).map_err(|error| match error {
            workload::ProfileError::Unknown { .. } => unknown(name),
            error => format!("runtime.devices: {name}: {error}"),
        })?;
        if !runtime.allow_virtual {
            return Err(format!(
                "runtime.devices: {name} only emulates an accelerator; \
                 --allow-virtual (runtime.allow_virtual) lets it serve"
            ));
        }
        named.profiles.push(profile);
    }
    Ok(named)
}

/// Finds a device profile by its name. A suffix of the name may choose the low or the high end of the profile's ranges.
fn profile(name: &str) -> Result<DeviceProfile, workload::ProfileError> {
    let ends = [("-low", Variant::Low), ("-high", Variant::High)];
    let end = ends.iter().find_map(|(end, variant)| Some((name.strip_suffix(end)?, *variant)));
    let (name, variant) = end.unwrap_or((name, Variant::Stated));
    Ok(DeviceProfile::find(name)?.variant(variant))
}

fn unknown(name: &str) -> String {
    let virtuals: Vec<_> =
        DeviceProfile::names().map(|name| format!("{VIRTUAL_PREFIX}{name}")).collect();
    let virtuals = virtuals.join(", ");
    let qpl = qpl::Path::ALL.map(qpl::Path::device).join(", ");
    format!(
        "runtime.devices: no device is called {name:?}; there are worker, {qpl}, dpdk-NAME, \
         {virtuals} (each virtual one also with -low or -high), and virtual-FILE.toml for a \
         profile of your own"
    )
}

fn lane_options(config: &Config) -> LaneOptions {
    LaneOptions {
        timeout: service_timeout(config),
        work_bytes_max: config.store.item_bytes_max,
        ciphers: config.runtime.compression_ciphers,
        ..LaneOptions::default()
    }
}

/// Returns the configured options of QPL's devices. An environment variable names QPL's library.
///
/// # Errors
/// The NUMA node is not valid.
pub(crate) fn qpl_options(runtime: &RuntimeSection) -> Result<QplOptions, String> {
    let numa = runtime.qpl_numa.parse::<NumaNode>();
    Ok(QplOptions {
        library: None,
        numa: numa.map_err(|error: NotANode| format!("runtime.qpl_numa: {error}"))?,
        huffman: match runtime.qpl_huffman {
            HuffmanName::Dynamic => Huffman::Dynamic,
            HuffmanName::Fixed => Huffman::Fixed,
        },
        verify: runtime.qpl_verify,
        queue_depth: NonZeroUsize::new(runtime.qpl_queue_depth).unwrap_or(NonZeroUsize::MIN),
        transfer_bytes_max: runtime.qpl_transfer_bytes_max,
    })
}

/// Returns a service's time limit for a job, a little shorter than the runtime's. If the service reaches its limit,
/// only this job fails. If the runtime reaches its limit, it retires the whole service.
fn service_timeout(config: &Config) -> Duration {
    Duration::from_millis(config.runtime.job_timeout_ms) * 7 / 8
}

/// Returns the options of a compression service over gRPC.
///
/// # Errors
/// The file with the login is wrong.
fn remote_options(config: &Config) -> Result<RemoteOptions, String> {
    Ok(RemoteOptions {
        timeout: service_timeout(config),
        connect_timeout: Duration::from_millis(config.store.connect_timeout_ms),
        queue_depth: REMOTE_QUEUE_DEPTH,
        work_bytes_max: config.store.item_bytes_max,
        login: server::logins::compression(config)?,
        ciphers: config.runtime.compression_ciphers,
        ..RemoteOptions::default()
    })
}

const VIRTUAL_PREFIX: &str = "virtual-";

/// The most jobs in one queue of the worker device. It is enough for a few jobs per thread, so that no thread
/// is idle. It is small, so that the rest of a burst runs on the calling core and does not wait.
const WORKER_QUEUE_DEPTH: NonZeroUsize = NonZeroUsize::new(64).expect("above zero");

/// The most jobs that one worker has in flight at a compression service. This is enough to hide the latency at any rate
/// that one core can request.
const REMOTE_QUEUE_DEPTH: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn named(devices: &[&str], compression: &[&str], allow_virtual: bool) -> Config {
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
        let mut config = Config::default();
        config.runtime.devices = words(devices);
        config.runtime.compression = words(compression);
        config.runtime.allow_virtual = allow_virtual;
        config
    }

    #[test]
    fn services_come_before_virtual_devices_and_these_before_workers() {
        let services = ["127.0.0.1:1", "/run/c.sock", "lane:/run/lane"];
        let config = named(&["worker", "virtual-iaa-low"], &services, true);
        let devices = open(&config).expect("all exist");
        let names: Vec<_> = devices.all.iter().map(|device| device.name()).collect();
        let [first, second] = ["remote-127.0.0.1:1", "remote-unix:/run/c.sock"];
        let third = "lane-/run/lane";
        assert_eq!(names, ["software", first, second, third, "virtual-iaa-low", "worker"]);
        assert_eq!(devices.accelerators, 4);
    }

    #[test]
    fn the_keys_of_qpl_reach_its_driver() {
        let mut runtime = Config::default().runtime;
        let asked = |runtime: &RuntimeSection| format!("{:?}", qpl_options(runtime));
        assert_eq!(asked(&runtime), format!("{:?}", Ok::<_, String>(QplOptions::default())));
        runtime.qpl_huffman = HuffmanName::Fixed;
        (runtime.qpl_queue_depth, runtime.qpl_verify) = (7, false);
        runtime.qpl_transfer_bytes_max = units::ByteCount::kib(64);
        for (word, node) in [
            ("socket", NumaNode::Socket),
            ("current", NumaNode::Current),
            ("any", NumaNode::Any),
            ("3", NumaNode::Node(3)),
        ] {
            word.clone_into(&mut runtime.qpl_numa);
            let options = qpl_options(&runtime).expect("a node");
            assert_eq!((options.numa, options.huffman), (node, Huffman::Fixed));
            assert_eq!((options.queue_depth.get(), options.verify), (7, false));
            assert_eq!(options.transfer_bytes_max, units::ByteCount::kib(64));
        }
        // The driver accepts exactly the values that the table of keys accepts.
        let key = server::config::Key::named("runtime.qpl_numa").expect("it is a key");
        for word in ["socket", "any", "0", "65535", "65536", "-1", "node0", "", "Any"] {
            word.clone_into(&mut runtime.qpl_numa);
            let config = Config { runtime: runtime.clone(), ..Config::default() };
            let refused = server::config::validate(&config);
            let refused = refused.iter().any(|error| error.key == Some(key.name));
            assert_eq!(refused, qpl_options(&runtime).is_err(), "{word:?}");
        }
    }

    #[test]
    fn a_name_that_cannot_serve_says_what_could() {
        for (devices, compression, said) in [
            (&["qat"][..], &[][..], "there are worker, qpl-hardware, "),
            (&["qpl-auto", "qpl-auto"], &[], "qpl-auto is named twice"),
            (&["virtual-qat"], &[], "no device is called \"virtual-qat\""),
            (&["virtual-iaa"], &[], "--allow-virtual"),
            (&["virtual-/none.toml"], &[], "/none.toml"),
            (&["worker", "worker"], &[], "worker is named twice"),
            (&[], &["a:1", "a:1"], "a:1 is named twice"),
        ] {
            let problem = open(&named(devices, compression, false)).err().expect("is refused");
            assert!(problem.contains(said), "{problem}");
        }
    }
}
