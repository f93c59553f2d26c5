//! The machine as drivers see it: the kernel, the processor, the IOMMU, accelerators and their work queues, and their
//! users. The module reads the files of /sys, /proc, /dev and the library folders under a root, so that tests can use
//! an invented tree. It opens no device and changes nothing. Its only judgement is whether a work queue can be used.

mod files;
mod idxd;
mod pci;
mod process;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

pub use idxd::{IdxdDevice, IdxdKind, Node, Obstacle, WorkQueue};
pub use pci::{PciAccelerator, PciKind};
pub use process::{Capability, MemoryLock, Process};

use files::Files;

/// The machine as its files describe it. A fact that no file states is absent and never guessed.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The kernel's release, such as `6.8.0-41-generic`.
    pub kernel: Option<String>,
    /// True if the processor is x86-64. This module knows the names of flags only for x86-64.
    pub x86: bool,
    /// The flags of the first processor, with the kernel's names.
    pub cpu_flags: Vec<String>,
    /// NUMA nodes that are online and have processors.
    pub numa_nodes: Vec<u16>,
    /// The socket of each node in `numa_nodes`, if the kernel states it.
    pub sockets: BTreeMap<u16, u64>,
    /// IOMMUs that the kernel has enabled.
    pub iommus: Vec<String>,
    /// The command line that the kernel was started with.
    pub command_line: String,
    /// True if the driver of IAA and DSA is loaded.
    pub idxd_loaded: bool,
    /// True if the kernel's own user of IAA, iaa_crypto, is loaded. It takes every work queue that exists.
    pub iaa_crypto_loaded: bool,
    /// Intel IAA and DSA devices that the driver knows.
    pub idxd: Vec<IdxdDevice>,
    /// Accelerators on the PCI bus, including those in `idxd`.
    pub pci: Vec<PciAccelerator>,
    /// True if libaccel-config is installed, the library through which QPL finds devices.
    pub accel_config: bool,
    /// The total size of free huge pages of all page sizes (bytes).
    pub huge_free_bytes: u64,
    /// The process that read the files.
    pub process: Process,
}

impl Machine {
    /// Reads the files under `root`, which is `/` except in tests.
    pub fn read(root: &Path) -> Self {
        let files = Files::under(root);
        let cpu = files.text("proc/cpuinfo").unwrap_or_default();
        let process = Process::read(&files);
        let numa_nodes = numa_nodes(&files);
        Self {
            kernel: files.text("proc/sys/kernel/osrelease"),
            x86: field(&cpu, "flags").is_some(),
            cpu_flags: words(field(&cpu, "flags").unwrap_or_default()),
            sockets: sockets(&files, &numa_nodes),
            numa_nodes,
            iommus: files.names("sys/class/iommu"),
            command_line: files.text("proc/cmdline").unwrap_or_default(),
            idxd_loaded: files.exists("sys/module/idxd")
                || files.exists("sys/bus/dsa/drivers/idxd"),
            iaa_crypto_loaded: files.exists("sys/module/iaa_crypto"),
            idxd: idxd::read(&files, &process),
            pci: pci::read(&files),
            accel_config: LIBRARY_FOLDERS
                .iter()
                .any(|folder| files.exists(&format!("{folder}/libaccel-config.so.1"))),
            huge_free_bytes: huge_free_bytes(&files),
            process,
        }
    }

    /// Returns the major and the minor version number of the kernel.
    pub fn kernel_version(&self) -> Option<(u32, u32)> {
        let mut numbers = self.kernel.as_deref()?.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    /// Returns whether the processor has this flag.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.cpu_flags.iter().any(|present| present == flag)
    }

    /// Returns the devices of a kind that the driver knows.
    pub fn idxd_of(&self, kind: IdxdKind) -> impl Iterator<Item = &IdxdDevice> {
        self.idxd.iter().filter(move |device| device.kind == kind)
    }

    /// Returns the accelerators of a kind on the PCI bus.
    pub fn pci_of(&self, kind: PciKind) -> impl Iterator<Item = &PciAccelerator> {
        self.pci.iter().filter(move |device| device.kind == kind)
    }
}

/// Returns the value of the first line with the form `name : value`.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns the sorted numbers of the entries `prefixN` in a folder.
fn numbered(files: &Files, folder: &str, prefix: &str) -> Vec<u16> {
    let names = files.names(folder);
    let numbers = names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok());
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

/// Returns the nodes that have processors. Nodes with only memory (CXL, HBM) list no processors, and no thread runs
/// on them.
fn numa_nodes(files: &Files) -> Vec<u16> {
    let mut nodes = numbered(files, NODES, "node");
    let has_none =
        |node: &u16| files.text(&format!("{NODES}/node{node}/cpulist")).as_deref() == Some("");
    nodes.retain(|node| !has_none(node));
    nodes
}

/// Returns the socket of each node, which is that of the node's first processor.
fn sockets(files: &Files, nodes: &[u16]) -> BTreeMap<u16, u64> {
    let socket = |node: &u16| {
        let list = files.text(&format!("{NODES}/node{node}/cpulist"))?;
        let first: u32 = list.split([',', '-']).next()?.parse().ok()?;
        let package = format!("{CPUS}/cpu{first}/topology/physical_package_id");
        Some((*node, files.number(&package)?))
    };
    nodes.iter().filter_map(socket).collect()
}

fn huge_free_bytes(files: &Files) -> u64 {
    let sizes = files.names("sys/kernel/mm/hugepages");
    let free = sizes.iter().filter_map(|size| {
        let kib: u64 = size.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let free = files.number(&format!("sys/kernel/mm/hugepages/{size}/free_hugepages"))?;
        free.checked_mul(kib)?.checked_mul(1_024)
    });
    free.fold(0, u64::saturating_add)
}

/// True if this build drives devices through DPDK.
pub const DPDK: bool = cfg!(feature = "dpdk");

const NODES: &str = "sys/devices/system/node";
const CPUS: &str = "sys/devices/system/cpu";

/// The folders in which loaders search on the distributions that package libaccel-config.
const LIBRARY_FOLDERS: [&str; 5] =
    ["usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib", "usr/local/lib64"];
