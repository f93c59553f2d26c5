//! Accelerators that are reached through DPDK, and what it asks of the machine for hardware: a driver that lets go of
//! the device, huge pages, memory that may be locked. Its software devices need none of it.

use drivers::host::{Capability, DPDK, Machine, MemoryLock, PciAccelerator, PciKind};
use units::ByteCount;

use super::Wanted;
use super::finding::{Finding, Mend, Severity};

pub(super) fn findings(machine: &Machine, wanted: Wanted) -> Vec<Finding> {
    let present = machine.pci.iter();
    let present: Vec<_> =
        present.filter(|own| matches!(own.kind, PciKind::Qat | PciKind::BlueField)).collect();
    let mut found: Vec<Finding> = present.iter().map(|own| device(own)).collect();
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
    // A BlueField stays with its kernel driver (mlx5_core), which DPDK shares.
    if found.kind == PciKind::BlueField || found.driver.as_deref() == Some("vfio-pci") {
        return Finding::new(Severity::Ok, address, format!("{what}: dpdk-{address}"));
    }
    let what = format!("{what}: DPDK needs it, or a virtual function of it, behind vfio-pci");
    let commands = vec![format!("sudo dpdk-devbind.py --bind=vfio-pci {address}")];
    Finding::new(Severity::Note, address, what).mend(Mend::root("hands it over", commands))
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
    Finding::new(Severity::of(wanted.dpdk), "huge pages", what)
        .mend(Mend::root("sets some aside, until the next boot", commands))
}

fn memory_lock(machine: &Machine, wanted: Wanted) -> Option<Finding> {
    let MemoryLock::Bytes(bytes) = machine.process.memory_lock? else { return None };
    if bytes >= LOCKED_BYTES || machine.process.has(Capability::IpcLock) {
        return None;
    }
    let what = format!("{} is too little for hardware behind DPDK (vfio)", ByteCount(bytes));
    let how = "raises it; systemd: LimitMEMLOCK=infinity";
    let commands = vec!["ulimit -l unlimited".to_owned()];
    let severity = Severity::of(wanted.dpdk);
    Some(Finding::new(severity, "memlock", what).mend(Mend::root(how, commands)))
}

/// vfio locks all memory that devices reach: DPDK's heap, some hundred MiB.
const LOCKED_BYTES: u64 = 512 << 20;
