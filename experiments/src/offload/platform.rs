//! The platforms of the experiments. Each platform is a software implementation and one device. The module runs no job.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::virtual_device::VirtualCounters;
use device::{Device, Software, Virtual, VirtualOptions, Worker};
use drivers::qpl::{self, Qpl, QplOptions};
use runtime::{Fallback, Limits, RuntimeConfig};
use units::{Nanos, SystemClock};
use workload::DeviceProfile;

use super::mode::Mode;
use drivers::{ENGINES, dpdk_devices};
use harness::TIMEOUT;

/// Software on the calling core, and a device. Clones share both.
#[derive(Clone)]
pub(super) struct Platform {
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    software: Member,
    device: Member,
}

/// A device, with its emulation if it is emulated.
#[derive(Clone)]
struct Member {
    device: Arc<dyn Device>,
    emulation: Option<Arc<Virtual>>,
}

impl Platform {
    /// Makes the machine of \[OffloadSched\]: its software and its BlueField-2, both emulated.
    ///
    /// # Errors
    /// The errors of [`Virtual::new`].
    pub(super) fn published() -> Result<Self, String> {
        let (software, device) = (emulated(EPYC)?, emulated(BLUEFIELD)?);
        Ok(Self { id: "bluefield2", name: "virtual BlueField-2, EPYC 7542", software, device })
    }

    /// Makes a platform with the emulated BlueField-2 and the software of this build.
    ///
    /// # Errors
    /// The errors of [`Virtual::new`].
    pub(super) fn own_codec() -> Result<Self, String> {
        let (software, device) = (own_software(), emulated(BLUEFIELD)?);
        Ok(Self { id: "bluefield2_own", name: "virtual BlueField-2, own codec", software, device })
    }

    /// Makes a platform on which the BlueField-2's own cores use its accelerator. Nothing is published about the speed
    /// of software on these cores. The software here is therefore ours, and no result compares the device with it.
    ///
    /// # Errors
    /// The errors of [`Virtual::new`].
    pub(super) fn on_chip() -> Result<Self, String> {
        let (software, device) = (own_software(), emulated("bluefield2-arm")?);
        Ok(Self { id: "bluefield2_arm", name: "virtual BlueField-2, on-chip", software, device })
    }

    /// Makes a platform whose device is a thread on another core. Nothing is emulated. The second value is the number
    /// of that core, if the thread stays on one core.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn worker() -> Result<(Self, Option<usize>), String> {
        let worker = Worker::start(NonZeroUsize::MIN, WORKER_QUEUE_DEPTH, ENGINES);
        let worker = worker.map_err(|error| error.to_string())?;
        let core = worker.cores().first().copied().flatten();
        let device = Member { device: Arc::new(worker), emulation: None };
        let (id, name) = ("worker", "worker thread, own codec");
        Ok((Self { id, name, software: own_software(), device }, core))
    }

    /// Makes a platform for each installed codec library of another project: Intel QPL's software path if its
    /// library is named, and DPDK's ISA-L in a build with DPDK. Both run on the calling core, and nothing is
    /// emulated.
    ///
    /// # Errors
    /// A library is installed and does not open.
    pub(super) fn libraries(qpl: Option<&Path>) -> Result<Vec<Self>, String> {
        let on = |id, name, device| {
            let device = Member { device, emulation: None };
            Self { id, name, software: own_software(), device }
        };
        let mut all = Vec::new();
        if let Some(library) = qpl.map(Path::to_owned).or_else(named_qpl) {
            let options = QplOptions { library: Some(library), ..QplOptions::default() };
            let qpl =
                Qpl::open(qpl::Path::Software, &options).map_err(|error| error.to_string())?;
            all.push(on("qpl_software", "QPL's software path, own codec", Arc::new(qpl)));
        }
        if cfg!(feature = "dpdk") {
            let opened = dpdk_devices::open(&["compress_isal".to_owned()])?;
            let named = |device| on("dpdk_isal", "DPDK's ISA-L, own codec", device);
            all.extend(opened.into_iter().map(named));
        }
        Ok(all)
    }

    /// Returns the virtual devices on which jobs of a mode may run. Every mode can fall back to software.
    pub(super) fn virtuals(&self, mode: Mode) -> Vec<String> {
        let device = (mode != Mode::Software).then_some(&self.device);
        let used = [&self.software].into_iter().chain(device);
        let used = used.filter(|member| member.emulation.is_some());
        used.map(|member| member.device.name().to_owned()).collect()
    }

    /// Returns the name of the device if it is emulated. It is in the path of all jobs that did not run in
    /// software.
    pub(super) fn virtual_device(&self) -> Vec<String> {
        let emulated = self.device.emulation.is_some();
        emulated.then(|| self.device.device.name().to_owned()).into_iter().collect()
    }

    /// Returns the counters of the emulations so far.
    pub(super) fn counters(&self) -> Vec<VirtualCounters> {
        let members = [&self.software, &self.device];
        members
            .into_iter()
            .flat_map(|member| &member.emulation)
            .map(|emulation| emulation.counters())
            .collect()
    }

    /// Returns the profile of the device, or None if the device is not emulated.
    pub(super) fn profile(&self) -> Option<&DeviceProfile> {
        self.device.emulation.as_ref().map(|emulation| emulation.profile())
    }

    /// Returns the profiles of software and device if both are emulated, and otherwise None.
    pub(super) fn profiles(&self) -> Option<(&DeviceProfile, &DeviceProfile)> {
        Some((self.software.emulation.as_ref()?.profile(), self.profile()?))
    }

    /// Returns a runtime configuration over software and device, in which the mode's policy decides.
    pub(super) fn runtime(&self, mode: Mode) -> RuntimeConfig {
        let devices = [&self.software, &self.device].map(|side| Arc::clone(&side.device)).to_vec();
        RuntimeConfig {
            reputation: runtime::Reputation::new(&devices),
            devices,
            policy: mode.policy(),
            compress: Fallback::Prefer,
            decompress: Fallback::Prefer,
            // Past saturation jobs wait for a long time, and no job is lost here, so the timeout is long.
            job_timeout: Nanos::from(TIMEOUT),
            reprobe_after: Nanos::secs(1),
            clock: Arc::new(SystemClock::new()),
            seed: 1,
            limits: Limits::NONE,
            // The runtime of [OffloadSched] verifies no results.
            verify_every: None,
            chains: true,
        }
    }
}

fn emulated(profile: &str) -> Result<Member, String> {
    let profile = DeviceProfile::find(profile).map_err(|error| error.to_string())?;
    let device = Virtual::new(&profile, ENGINES, VirtualOptions::default());
    let device = Arc::new(device.map_err(|error| error.to_string())?);
    Ok(Member { device: Arc::clone(&device) as Arc<dyn Device>, emulation: Some(device) })
}

fn named_qpl() -> Option<PathBuf> {
    std::env::var_os(qpl::LIBRARY_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from)
}

fn own_software() -> Member {
    Member { device: Arc::new(Software::new(ENGINES)), emulation: None }
}

const BLUEFIELD: &str = "bluefield2";
const EPYC: &str = "epyc7542-isal";

/// The depth of the worker's queue. It holds all tasks of \[OffloadSched\] at once.
const WORKER_QUEUE_DEPTH: NonZeroUsize = NonZeroUsize::new(128).expect("above zero");
