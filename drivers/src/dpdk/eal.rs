//! DPDK's environment abstraction layer (EAL). It runs once per process, for all devices. It starts on a thread that
//! then ends, so that no thread of this program is pinned or becomes a thread of DPDK. Its log goes to this program's
//! log. EAL is never stopped: the kernel reclaims devices and memory when the process ends.

use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::{fs, io, thread};

use device::DeviceError;

use super::arguments;
use super::names::{self, Place};
use super::sys::{self, Description};

/// The proof that EAL runs in this process.
#[derive(Clone, Copy, Debug)]
pub struct Eal(());

impl Eal {
    /// Starts EAL for the named devices with the operator's arguments (`given`, as for any DPDK application). If EAL
    /// already runs with the same arguments, adds the devices that it does not have yet.
    ///
    /// # Errors
    /// [`DeviceError::Misconfigured`]: EAL refuses to start, runs with other arguments, or cannot add a device.
    pub fn start(devices: &[String], given: &[String]) -> Result<Self, DeviceError> {
        static STARTED: Mutex<Option<Started>> = Mutex::new(None);
        let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
        let located: Vec<(String, Place)> =
            devices.iter().map(|device| (device.clone(), names::place(device, sysfs()))).collect();
        if let Some((device, _)) = located.iter().find(|(_, place)| *place == Place::Unknown)
            && given.is_empty()
        {
            return Err(DeviceError::Misconfigured(format!(
                "dpdk-{device}: there is no such device; hardware goes by its PCI address \
                 (0000:03:00.0), software by its driver (compress_isal)"
            )));
        }
        let started = started.get_or_insert_with(|| {
            let all = arguments::complete(&located, given, &processors());
            Started { devices: devices.to_vec(), given: given.to_vec(), result: init(&all) }
        });
        if let Err(what) = &started.result {
            let first = started.devices.join(", ");
            let what = match started.devices == devices {
                true => what.clone(),
                false => format!("{what}. It starts once per process, and that was for: {first}"),
            };
            return Err(DeviceError::Misconfigured(what));
        }
        if started.given != given {
            return Err(DeviceError::Misconfigured(format!(
                "DPDK starts once per process, and runs already with the arguments {:?}",
                started.given.join(" ")
            )));
        }
        let has = Self(()).devices();
        for (device, place) in &located {
            if !has.iter().any(|present| names::same(present, device, sysfs())) {
                add(device, place)?;
            }
        }
        Ok(Self(()))
    }

    /// Returns the compressdevs that EAL found, in EAL's order.
    pub fn devices(self) -> Vec<String> {
        self.descriptions().map(|found| name(&found.name)).collect()
    }

    /// Returns whether devices use this process's virtual addresses.
    pub(super) fn has_own_addresses(self) -> bool {
        // SAFETY: EAL runs (`Eal` is proof); the call only reads.
        unsafe { sys::rebate_dpdk_iova_is_va() == 1 }
    }

    pub(super) fn descriptions(self) -> impl Iterator<Item = Description> {
        // SAFETY: EAL runs; the call only reads.
        let count = unsafe { sys::rebate_dpdk_count() };
        (0..count).map(describe)
    }
}

/// The arguments with which EAL was started, and the result.
struct Started {
    devices: Vec<String>,
    given: Vec<String>,
    result: Result<(), String>,
}

/// Adds a device to the running EAL. If the device is not a compression device, opening it fails later.
fn add(device: &str, place: &Place) -> Result<(), DeviceError> {
    let text = CString::new(arguments::probed(device, place)).unwrap_or_default();
    // SAFETY: EAL runs, `STARTED` is locked, and the text is terminated.
    let status = unsafe { sys::rebate_dpdk_probe(text.as_ptr()) };
    if status == 0 {
        return Ok(());
    }
    let error = io::Error::from_raw_os_error(-status);
    let found = Eal(()).devices().join(", ");
    Err(DeviceError::Misconfigured(format!(
        "DPDK has no device {device:?} and cannot add it ({error}); it found: {found}"
    )))
}

/// Returns the folder that resolves the names of devices to addresses.
pub(super) fn sysfs() -> &'static Path {
    Path::new("/sys")
}

fn describe(device: u32) -> Description {
    let mut description = std::mem::MaybeUninit::<Description>::zeroed();
    // SAFETY: the pointer is to space for one description. All of its fields are integers, so zero is a valid value.
    // The shim writes within the description and copies texts with their ends.
    unsafe {
        sys::rebate_dpdk_describe(device, description.as_mut_ptr());
        description.assume_init()
    }
}

pub(super) fn name(text: &[c_char; 64]) -> String {
    let bytes = text.map(|byte| byte.to_ne_bytes()[0]);
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or(c"");
    text.to_string_lossy().into_owned()
}

fn init(arguments: &[String]) -> Result<(), String> {
    let said = arguments.join(" ");
    let strings: Result<Vec<_>, _> = arguments.iter().cloned().map(CString::new).collect();
    let strings =
        strings.map_err(|_| format!("a DPDK argument has a zero byte in it: {said:?}"))?;
    let status = thread::Builder::new()
        .name("dpdk-start".to_owned())
        .spawn(move || start(strings))
        .map_err(|error| format!("no thread to start DPDK on: {error}"))?
        .join()
        .map_err(|_| "the thread that starts DPDK panicked".to_owned())?;
    if status == 0 {
        tracing::info!(arguments = said, "DPDK runs");
        return Ok(());
    }
    let error = io::Error::from_raw_os_error(-status);
    let lines = problems().join("; ");
    Err(format!(
        "DPDK did not start ({error}): {lines}. Its arguments were: {said}. Software devices need \
         none of yours; hardware needs huge pages, a vfio or mlx5 driver and access to both; \
         REBATE_DPDK_ARGS adds arguments"
    ))
}

/// Starts EAL on this thread, which becomes EAL's main thread.
fn start(arguments: Vec<CString>) -> i32 {
    let count = i32::try_from(arguments.len()).expect("a command line's length");
    // EAL permutes the array and keeps pointers to the texts, so neither is ever freed.
    let mut pointers: Vec<*mut c_char> = arguments.into_iter().map(CString::into_raw).collect();
    pointers.push(std::ptr::null_mut());
    let array = pointers.leak().as_mut_ptr();
    // SAFETY: `array` has `count` terminated texts and a null, all writable and never freed; `on_log` is a function
    // for as long as the process runs; `STARTED` lets one thread come here once.
    unsafe { sys::rebate_dpdk_init(count, array, on_log) }
}

/// Returns the processors that this process may use, in the kernel's format.
fn processors() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map_or("0", str::trim).to_owned()
}

/// Writes a line of DPDK's log to this program's log.
extern "C" fn on_log(level: u32, text: *const c_char, bytes: usize) {
    // SAFETY: the shim passes `bytes` bytes that are valid for the call.
    let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), bytes) };
    let text = String::from_utf8_lossy(text);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match level {
            0..=ERR => {
                keep_problem(line);
                tracing::error!(target: "dpdk", "{line}");
            }
            WARNING => tracing::warn!(target: "dpdk", "{line}"),
            _ => tracing::debug!(target: "dpdk", "{line}"),
        }
    }
}

/// The first errors that DPDK logged. They are reported when EAL fails to start.
static PROBLEMS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn keep_problem(line: &str) {
    let mut problems = PROBLEMS.lock().unwrap_or_else(PoisonError::into_inner);
    if problems.len() < PROBLEMS_MAX {
        problems.push(line.to_owned());
    }
}

fn problems() -> Vec<String> {
    PROBLEMS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

const PROBLEMS_MAX: usize = 6;

/// `RTE_LOG_ERR` and `RTE_LOG_WARNING`. A lower number is worse.
const ERR: u32 = 4;
const WARNING: u32 = 5;
