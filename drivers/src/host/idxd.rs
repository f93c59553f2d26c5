//! Intel IAA and DSA as their driver idxd shows them under /sys/bus/dsa, and the obstacles that keep a process from
//! using a work queue (Linux, Documentation/ABI/stable/sysfs-driver-dma-idxd). The kernel calls an IAA `iax`.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::files::Files;
use super::process::Process;

/// The kind of an idxd device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdxdKind {
    /// Compression, checksums, filters.
    Iaa,
    /// Copies and checksums.
    Dsa,
}

impl IdxdKind {
    /// Returns the common name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            IdxdKind::Iaa => "Intel IAA",
            IdxdKind::Dsa => "Intel DSA",
        }
    }

    const fn prefix(self) -> &'static str {
        match self {
            IdxdKind::Iaa => "iax",
            IdxdKind::Dsa => "dsa",
        }
    }
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdxdDevice {
    /// The kernel's name, such as `iax1`.
    pub name: String,
    /// The kind of the device.
    pub kind: IdxdKind,
    /// The generation of the device, from 1.
    pub generation: Option<u64>,
    /// `enabled` or `disabled`.
    pub state: String,
    /// The NUMA node of the device. It is none if the kernel does not know the node, which counts as any node.
    pub numa_node: Option<u16>,
    /// True if processes may pass their own addresses to the device (SVM).
    pub shared_memory: bool,
    /// The number of entries that all queues of the device share.
    pub entries: Option<u64>,
    /// The engines of the device.
    pub engines: Vec<String>,
    /// The work queues of the device, used or not.
    pub queues: Vec<WorkQueue>,
}

/// One work queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkQueue {
    /// The kernel's name, such as `wq1.0`.
    pub name: String,
    /// `enabled` or `disabled`.
    pub state: String,
    /// `shared` or `dedicated`.
    pub mode: String,
    /// `user`, `kernel` or `none`.
    pub owner: String,
    /// The driver that the queue is bound to or intended for.
    pub driver: String,
    /// The group of engines that serves the queue. It is none if the queue has no group.
    pub group: Option<u64>,
    /// The number of entries of the queue.
    pub entries: u64,
    /// The number of used entries from which a shared queue refuses jobs.
    pub threshold: u64,
    /// True if the device waits for missing pages.
    pub block_on_fault: bool,
    /// The largest input and output of a job, if the kernel states it (bytes).
    pub transfer_bytes_max: Option<u64>,
    /// The file that a process opens to use the queue.
    pub node: Node,
    /// The obstacles that keep this process from using the queue. It is empty if there are none.
    pub obstacles: Vec<Obstacle>,
}

/// The file through which a process reaches a work queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// The file does not exist.
    Absent,
    /// The file exists.
    Present {
        /// True if this process may read and write the file.
        usable: bool,
        /// The user who owns the file.
        uid: u32,
        /// The group that owns the file.
        gid: u32,
        /// The permissions of the file.
        mode: u32,
    },
}

/// An obstacle that keeps a process from using a work queue through QPL. QPL uses only shared queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The device has no shared virtual memory. No process can use any of its queues.
    NoSharedMemory,
    /// The queue is not configured.
    Unconfigured,
    /// The queue belongs to the kernel.
    NotForUsers,
    /// The queue is for one process only.
    Dedicated,
    /// The queue or its device is not enabled.
    Disabled,
    /// The file of the queue is missing.
    NoNode,
    /// This process may not open the file of the queue.
    NoAccess,
}

impl IdxdDevice {
    /// Returns the work queues that this process can use.
    pub fn usable(&self) -> impl Iterator<Item = &WorkQueue> {
        self.queues.iter().filter(|queue| queue.obstacles.is_empty())
    }
}

impl WorkQueue {
    /// Returns the path of the queue's file.
    pub fn node_path(&self, device: &IdxdDevice) -> String {
        node_path(device.kind, &self.name)
    }
}

pub(super) fn read(files: &Files, process: &Process) -> Vec<IdxdDevice> {
    let names = files.names(DEVICES);
    let mut devices: Vec<_> =
        names.iter().filter_map(|name| device(files, process, name)).collect();
    devices.sort_by_key(|device| ordinal(&device.name));
    devices
}

fn device(files: &Files, process: &Process, name: &str) -> Option<IdxdDevice> {
    let kind = [IdxdKind::Iaa, IdxdKind::Dsa].into_iter().find(|kind| {
        let number = name.strip_prefix(kind.prefix());
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    })?;
    let folder = format!("{DEVICES}/{name}");
    let inside = files.names(&folder);
    let text = |file: &str| files.text(&format!("{folder}/{file}"));
    let number = |file: &str| files.number(&format!("{folder}/{file}"));
    let children = |prefix: &'static str| inside.iter().filter(move |name| is_child(name, prefix));
    let mut device = IdxdDevice {
        name: name.to_owned(),
        kind,
        generation: number("version").map(|version| version >> 8),
        state: text("state").unwrap_or_default(),
        // An unknown node is -1, which does not parse as a node.
        numa_node: text("numa_node").and_then(|node| node.parse().ok()),
        shared_memory: number("pasid_enabled").unwrap_or(0) == 1,
        entries: number("max_work_queues_size"),
        engines: children("engine").cloned().collect(),
        queues: children("wq")
            .map(|queue| work_queue(files, process, kind, &folder, queue))
            .collect(),
    };
    let (enabled, shared_memory) = (device.state == ENABLED, device.shared_memory);
    for queue in &mut device.queues {
        queue.obstacles = obstacles(queue, enabled, shared_memory);
    }
    device.queues.sort_by_key(|queue| ordinal(&queue.name));
    Some(device)
}

fn work_queue(
    files: &Files,
    process: &Process,
    kind: IdxdKind,
    folder: &str,
    name: &str,
) -> WorkQueue {
    let text = |file: &str| files.text(&format!("{folder}/{name}/{file}")).unwrap_or_default();
    let number = |file: &str| files.number(&format!("{folder}/{name}/{file}"));
    WorkQueue {
        name: name.to_owned(),
        state: text("state"),
        mode: text("mode"),
        owner: text("type"),
        driver: text("driver_name"),
        // The file has -1 if the queue has no group.
        group: number("group_id"),
        entries: number("size").unwrap_or(0),
        threshold: number("threshold").unwrap_or(0),
        block_on_fault: number("block_on_fault") == Some(1),
        transfer_bytes_max: number("max_transfer_size"),
        node: node(files, process, &node_path(kind, name)),
        obstacles: Vec::new(),
    }
}

fn node(files: &Files, process: &Process, path: &str) -> Node {
    let Ok(found) = fs::metadata(files.path(path.trim_start_matches('/'))) else {
        return Node::Absent;
    };
    let (uid, gid, mode) = (found.uid(), found.gid(), found.mode() & 0o777);
    Node::Present { usable: process.may_use(uid, gid, mode), uid, gid, mode }
}

/// Returns the obstacles in the order in which they must be fixed.
fn obstacles(queue: &WorkQueue, device_enabled: bool, shared_memory: bool) -> Vec<Obstacle> {
    let mut found = Vec::new();
    let mut test = |holds: bool, obstacle| found.extend(holds.then_some(obstacle));
    test(!shared_memory, Obstacle::NoSharedMemory);
    let enabled = device_enabled && queue.state == ENABLED;
    let unconfigured = queue.entries == 0 || queue.owner == "none" || queue.owner.is_empty();
    if unconfigured {
        test(true, Obstacle::Unconfigured);
        return found;
    }
    test(queue.owner != "user", Obstacle::NotForUsers);
    test(queue.mode != "shared", Obstacle::Dedicated);
    test(!enabled, Obstacle::Disabled);
    if enabled && queue.owner == "user" {
        test(queue.node == Node::Absent, Obstacle::NoNode);
        let denied = matches!(queue.node, Node::Present { usable: false, .. });
        test(denied, Obstacle::NoAccess);
    }
    found
}

fn node_path(kind: IdxdKind, queue: &str) -> String {
    format!("/dev/{}/{queue}", kind.prefix())
}

/// Returns whether a name has the form `prefixN.M`.
fn is_child(name: &str, prefix: &str) -> bool {
    let numbers = name.strip_prefix(prefix).and_then(|rest| rest.split_once('.'));
    numbers.is_some_and(|(device, queue)| [device, queue].iter().all(|n| n.parse::<u32>().is_ok()))
}

/// Returns the numbers in a name, so that `wq1.10` sorts after `wq1.9`.
fn ordinal(name: &str) -> Vec<u32> {
    let numbers = name.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

const DEVICES: &str = "sys/bus/dsa/devices";
const ENABLED: &str = "enabled";
