//! Lists the accelerators of this machine for `rebate devices`, in use or not. Each has the name of the device that
//! uses or would use it.

use drivers::host::{
    DPDK, IdxdDevice, IdxdKind, Machine, Obstacle, PciAccelerator, PciKind, WorkQueue,
};
use serde::Serialize;
use units::ByteCount;

/// An accelerator of this machine.
#[derive(Debug, Serialize)]
pub(super) struct Accelerator {
    /// The kernel's name for the accelerator, or its PCI address.
    pub(super) name: String,
    pub(super) product: String,
    /// For accelerators of idxd this is `enabled` or `disabled`. For others it is the driver that has the accelerator.
    pub(super) state: String,
    pub(super) numa_node: Option<u16>,
    /// The devices of Rebate that use the accelerator, or would use it.
    pub(super) used_as: String,
    /// The reason why the accelerator cannot be used, if any.
    pub(super) obstacle: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) work_queues: Vec<Queue>,
}

/// A work queue of an IAA or DSA.
#[derive(Debug, Serialize)]
pub(super) struct Queue {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) mode: String,
    #[serde(rename = "type")]
    pub(super) owner: String,
    pub(super) entries: u64,
    pub(super) threshold: u64,
    pub(super) block_on_fault: bool,
    pub(super) transfer_bytes_max: Option<u64>,
    /// The reasons why this process cannot use the queue.
    pub(super) obstacles: Vec<&'static str>,
}

/// Lists all accelerators, those with work queues first.
pub(super) fn accelerators(machine: &Machine) -> Vec<Accelerator> {
    let known = machine.idxd.iter().map(idxd);
    let missing = |kind, pci| {
        let none = machine.idxd_of(kind).next().is_none();
        machine.pci_of(pci).filter(move |_| none).map(undriven)
    };
    let others = machine.pci.iter();
    let others = others.filter(|device| !matches!(device.kind, PciKind::Iaa | PciKind::Dsa));
    known
        .chain(missing(IdxdKind::Iaa, PciKind::Iaa))
        .chain(missing(IdxdKind::Dsa, PciKind::Dsa))
        .chain(others.map(behind_dpdk))
        .collect()
}

fn idxd(device: &IdxdDevice) -> Accelerator {
    let generation = device.generation.map_or(String::new(), |n| format!(", generation {n}"));
    let usable = device.usable().next().is_some();
    let (used_as, obstacle) = match device.kind {
        IdxdKind::Iaa if usable => (IAA_USED_AS, None),
        IdxdKind::Iaa => (IAA_USED_AS, Some("no usable work queue; see rebate doctor")),
        IdxdKind::Dsa => (NOTHING, Some("no driver in Rebate; virtual-dsa emulates one")),
    };
    Accelerator {
        name: device.name.clone(),
        product: format!("{}{generation}", device.kind.name()),
        state: device.state.clone(),
        numa_node: device.numa_node,
        used_as: used_as.to_owned(),
        obstacle: obstacle.map(str::to_owned),
        work_queues: device.queues.iter().map(queue).collect(),
    }
}

fn queue(queue: &WorkQueue) -> Queue {
    Queue {
        name: queue.name.clone(),
        state: queue.state.clone(),
        mode: queue.mode.clone(),
        owner: queue.owner.clone(),
        entries: queue.entries,
        threshold: queue.threshold,
        block_on_fault: queue.block_on_fault,
        transfer_bytes_max: queue.transfer_bytes_max,
        obstacles: queue.obstacles.iter().map(|obstacle| word(*obstacle)).collect(),
    }
}

impl Queue {
    /// Describes the queue's limits in a few words.
    pub(super) fn limits(&self) -> String {
        let largest = self
            .transfer_bytes_max
            .map_or(String::new(), |bytes| format!(", jobs up to {}", ByteCount(bytes)));
        let fault = if self.block_on_fault { "" } else { ", does not wait for pages" };
        format!("{} entries, threshold {}{largest}{fault}", self.entries, self.threshold)
    }
}

/// Describes an obstacle to using a work queue, in a few words for a list.
fn word(obstacle: Obstacle) -> &'static str {
    match obstacle {
        Obstacle::NoSharedMemory => "no SVM",
        Obstacle::Unconfigured => "not set up",
        Obstacle::NotForUsers => "kernel's own",
        Obstacle::Dedicated => "dedicated",
        Obstacle::Disabled => "disabled",
        Obstacle::NoNode => "no file under /dev",
        Obstacle::NoAccess => "no access",
    }
}

fn undriven(found: &PciAccelerator) -> Accelerator {
    let used_as = if found.kind == PciKind::Iaa { IAA_USED_AS } else { NOTHING };
    pci(found, used_as.to_owned(), Some("the driver idxd does not have it; see rebate doctor"))
}

fn behind_dpdk(found: &PciAccelerator) -> Accelerator {
    let missing = (!DPDK).then_some("this build has no DPDK (cargo feature dpdk)");
    let address = &found.address;
    let (used_as, obstacle) = match (found.kind, found.driver.as_deref()) {
        (PciKind::Qat, _) => {
            (NOTHING.to_owned(), Some("DPDK takes its virtual functions; see rebate doctor"))
        }
        (PciKind::QatVirtual, Some("vfio-pci")) => (format!("dpdk-{address}_qat_comp"), None),
        (PciKind::QatVirtual, _) => {
            (format!("dpdk-{address}_qat_comp"), Some("not behind vfio-pci; see rebate doctor"))
        }
        _ => (format!("dpdk-{address}"), None),
    };
    pci(found, used_as, missing.or(obstacle))
}

fn pci(found: &PciAccelerator, used_as: String, obstacle: Option<&str>) -> Accelerator {
    Accelerator {
        name: found.address.clone(),
        product: found.product.to_owned(),
        state: found
            .driver
            .clone()
            .map_or("no driver".to_owned(), |driver| format!("driver {driver}")),
        numa_node: found.numa_node,
        used_as,
        obstacle: obstacle.map(str::to_owned),
        work_queues: Vec::new(),
    }
}

const IAA_USED_AS: &str = "qpl-hardware";
const NOTHING: &str = "-";
