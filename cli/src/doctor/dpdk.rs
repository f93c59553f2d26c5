//! Checks accelerators that are reached through DPDK, and what DPDK needs for hardware: a driver that releases the
//! device, huge pages, and memory that may be locked. DPDK's software devices need none of this.

use drivers::host::{Capability, DPDK, Machine, MemoryLock, PciAccelerator, PciKind};
use units::ByteCount;

use super::Wanted;
use super::finding::{ADMINISTRATOR, Finding, Mend, Severity};

pub(super) fn findings(machine: &Machine, wanted: Wanted) -> Vec<Finding> {
    let present = machine.pci.iter();
    let present: Vec<_> = present
        .filter(|accelerator| !matches!(accelerator.kind, PciKind::Iaa | PciKind::Dsa))
        .collect();
    let mut found: Vec<Finding> = present.iter().map(|accelerator| device(accelerator)).collect();
    if DPDK && (wanted.dpdk || !present.is_empty()) {
        found.push(huge_pages(machine, wanted));
        found.extend(memory_lock(machine, wanted));
    }
    found
}

fn device(found: &PciAccelerator) -> Finding {
    let node = found.numa_node.map_or(String::new(), |node| format!(", NUMA node {node}"));
    let driver = found.driver.as_deref().unwrap_or("no driver");
    let what = format!("{} ({driver}{node})", found.product);
    let address = &found.address;
    if !DPDK {
        let what = format!("{what}: reached through DPDK, which this build has not");
        let mend = Mend {
            who: "Whoever builds Rebate".to_owned(),
            how: "adds it (Debian: libdpdk-dev)".to_owned(),
            commands: vec!["cargo build --release -p cli --features dpdk".to_owned()],
        };
        return Finding::new(Severity::Note, address, what).mend(mend);
    }
    let note = |what: String| Finding::new(Severity::Note, address, what);
    let ok = |name: String| Finding::new(Severity::Ok, address, format!("{what}: {name}"));
    match found.kind {
        // The device stays with its kernel driver (mlx5_core), which DPDK shares.
        PciKind::BlueField | PciKind::Iaa | PciKind::Dsa => ok(format!("dpdk-{address}")),
        PciKind::Qat => {
            let what = format!("{what}: DPDK takes its virtual functions, never the device itself");
            let path = format!("/sys/bus/pci/devices/{address}/sriov_numvfs");
            let commands = vec![format!("echo 1 | sudo tee {path}")];
            note(what).mend(Mend::root("makes one, by the kernel's driver", commands))
        }
        PciKind::QatVirtual if found.driver.as_deref() == Some("vfio-pci") => {
            ok(format!("dpdk-{address}_qat_comp"))
        }
        PciKind::QatVirtual => {
            let what = format!("{what}: behind vfio-pci DPDK takes it, as dpdk-{address}_qat_comp");
            let commands = vec![
                "sudo modprobe vfio-pci".to_owned(),
                format!("sudo dpdk-devbind.py --bind=vfio-pci {address}"),
            ];
            note(what).mend(Mend::root("hands it over", commands))
        }
    }
}

fn huge_pages(machine: &Machine, wanted: Wanted) -> Finding {
    let free = machine.huge_free_bytes;
    if free > 0 {
        let what = format!("{} free", ByteCount(free));
        return Finding::new(Severity::Ok, "huge pages", what);
    }
    let what = "none free; hardware behind DPDK needs them".to_owned();
    let pages = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    let commands = vec![format!("echo 512 | sudo tee {pages}")];
    Finding::new(Severity::if_needed(wanted.dpdk), "huge pages", what)
        .mend(Mend::root("sets some aside, until the next boot", commands))
}

fn memory_lock(machine: &Machine, wanted: Wanted) -> Option<Finding> {
    let MemoryLock::Bytes(bytes) = machine.process.memory_lock? else { return None };
    if bytes >= LOCKED_BYTES || machine.process.has(Capability::IpcLock) {
        return None;
    }
    let what = format!("{} is too little for hardware behind DPDK (vfio)", ByteCount(bytes));
    // This is not a shell command. A shell's limits end with the shell, and the server is started elsewhere.
    let how = "raises it for the server: LimitMEMLOCK=infinity in its systemd unit, `--ulimit \
               memlock=-1` of docker run, or a line for its user in /etc/security/limits.conf";
    let severity = Severity::if_needed(wanted.dpdk);
    Some(Finding::new(severity, "memlock", what).mend(Mend::text(ADMINISTRATOR, how.to_owned())))
}

/// The memory that a process must be able to lock (bytes). vfio locks all memory that devices reach: DPDK's heap, some
/// hundred MiB.
const LOCKED_BYTES: u64 = 512 << 20;
