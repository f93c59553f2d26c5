//! Checks the work queues of one IAA: which can be used, why the nearest one cannot be used, and the commands that fix
//! it. The commands set a queue up again with accel-config, because a disabled queue loses its settings.

use drivers::host::{IdxdDevice, Machine, Node, Obstacle, WorkQueue};
use units::ByteCount;

use super::Wanted;
use super::finding::{Finding, Mend, Severity};

/// Returns the findings. If `needed` is set, the configuration requires this device.
pub(super) fn findings(
    machine: &Machine,
    device: &IdxdDevice,
    needed: bool,
    wanted: &Wanted,
) -> Vec<Finding> {
    let usable: Vec<&WorkQueue> = device.usable().collect();
    if usable.is_empty() {
        return vec![unusable(machine, device, Severity::if_needed(needed))];
    }
    let names: Vec<_> = usable.iter().map(|queue| queue.name.as_str()).collect();
    let node = device.numa_node.map_or(String::new(), |node| format!(", NUMA node {node}"));
    let what = format!(
        "{} of {} work queues can be used: {}{node}",
        usable.len(),
        device.queues.len(),
        names.join(", ")
    );
    let mut found = vec![Finding::new(Severity::Ok, &device.name, what)];
    found.extend(usable.into_iter().filter_map(|queue| weak(device, queue, wanted)));
    found
}

/// Reports a usable queue that will fail some jobs.
fn weak(device: &IdxdDevice, queue: &WorkQueue, wanted: &Wanted) -> Option<Finding> {
    let small =
        queue.transfer_bytes_max.map(ByteCount).filter(|limit| *limit < wanted.transfer_bytes);
    let anew = |how| Mend::root(how, anew(device, queue));
    if let Some(limit) = small {
        let what = format!(
            "max_transfer_size is {limit}; the driver sends jobs of up to {} \
             (runtime.qpl_transfer_bytes_max), and one that is refused for its size takes the \
             device out of use",
            wanted.transfer_bytes
        );
        let how = format!(
            "sets it up anew, which fails the jobs in it; or whoever configures the server sets \
             runtime.qpl_transfer_bytes_max to {limit}, and larger jobs stay in software"
        );
        let severity = Severity::if_needed(wanted.iaa);
        return Some(Finding::new(severity, &queue.name, what).mend(anew(&how)));
    }
    (!queue.block_on_fault).then(|| {
        let what = "block_on_fault is 0: a job that meets a page that is not there is repeated the \
                    first time, and later ones fail and are redone in software";
        let mend = anew("sets it up anew, which fails the jobs in it");
        Finding::new(Severity::Note, &queue.name, what.to_owned()).mend(mend)
    })
}

fn unusable(machine: &Machine, device: &IdxdDevice, severity: Severity) -> Finding {
    let nearest = device.queues.iter().min_by_key(|queue| {
        let unconfigured = queue.obstacles.contains(&Obstacle::Unconfigured);
        (unconfigured, queue.obstacles.len())
    });
    let Some(queue) = nearest else {
        let what = "the kernel shows no work queue".to_owned();
        let commands = vec![format!("sudo accel-config list --idle | grep -A3 {}", device.name)];
        let mend = Mend::root("looks whether the device is healthy", commands);
        return Finding::new(severity, &device.name, what).mend(mend);
    };
    let about = format!("{}/{}", device.name, queue.name);
    // Missing access to memory is reported first, in a separate finding.
    let decisive = queue.obstacles.iter().find(|obstacle| **obstacle != Obstacle::NoSharedMemory);
    let Some(obstacle) = decisive.copied() else {
        let what = "set up, but of no use without SVM; see IOMMU".to_owned();
        return Finding::new(severity, &about, what);
    };
    Finding::new(severity, &about, what(queue, obstacle, machine))
        .mend(mend(machine, device, queue, obstacle))
}

fn what(queue: &WorkQueue, obstacle: Obstacle, machine: &Machine) -> String {
    match obstacle {
        Obstacle::NoSharedMemory => "no SVM".to_owned(),
        Obstacle::Unconfigured => "no work queue of the device is set up".to_owned(),
        Obstacle::NotForUsers if machine.iaa_crypto_loaded => {
            "the kernel's iaa_crypto has taken it for itself".to_owned()
        }
        Obstacle::NotForUsers => format!("of type {}, and processes need type user", queue.owner),
        Obstacle::Dedicated => "dedicated to one process; QPL takes shared queues only".to_owned(),
        Obstacle::Disabled => "set up, but not enabled".to_owned(),
        Obstacle::NoNode => "enabled, but its file under /dev/iax is missing".to_owned(),
        Obstacle::NoAccess => match queue.node {
            Node::Present { uid, gid, mode, .. } => format!(
                "this process (user {}) may not read and write its file: user {uid}, group {gid}, \
                 mode {mode:04o}",
                machine.process.uid
            ),
            Node::Absent => "this process may not use its file".to_owned(),
        },
    }
}

fn mend(machine: &Machine, device: &IdxdDevice, queue: &WorkQueue, obstacle: Obstacle) -> Mend {
    let path = queue.node_path(device);
    match obstacle {
        Obstacle::Disabled => Mend::root("enables it", enable(device, queue)),
        Obstacle::NotForUsers if machine.iaa_crypto_loaded => {
            let unload = "sudo modprobe --remove iaa_crypto".to_owned();
            let commands = [unload].into_iter().chain(anew(device, queue)).collect();
            Mend::root("takes it back and sets it up for processes", commands)
        }
        Obstacle::NoNode => {
            let how = "lets it in where this is a container; otherwise udev makes it";
            Mend::root(how, vec![format!("docker run --device {path} ...")])
        }
        Obstacle::NoAccess => {
            let group = machine.process.gids.first().copied().unwrap_or(0);
            let commands =
                vec![format!("sudo chgrp {group} {path}"), format!("sudo chmod 660 {path}")];
            let how = "gives it to the server's group, until the next boot (a udev rule keeps it)";
            Mend::root(how, commands)
        }
        Obstacle::Unconfigured => {
            let mut how = "sets one up".to_owned();
            if device.queues.iter().any(|other| other.state == ENABLED) {
                how.push_str(", for which all queues of the device stop");
            }
            Mend::root(&how, from_nothing(device, queue))
        }
        Obstacle::NoSharedMemory | Obstacle::NotForUsers | Obstacle::Dedicated => {
            Mend::root("sets it up as a shared queue for processes", anew(device, queue))
        }
    }
}

fn enable(device: &IdxdDevice, queue: &WorkQueue) -> Vec<String> {
    let name = &device.name;
    let first =
        (device.state != ENABLED).then(|| format!("sudo accel-config enable-device {name}"));
    let then = format!("sudo accel-config enable-wq {name}/{}", queue.name);
    first.into_iter().chain([then]).collect()
}

/// Returns the commands that set up an existing queue again, with its entries and our settings.
fn anew(device: &IdxdDevice, queue: &WorkQueue) -> Vec<String> {
    let name = format!("{}/{}", device.name, queue.name);
    let disable = format!("sudo accel-config disable-wq {name}");
    let disable = (queue.state == ENABLED).then_some(disable);
    let settings = settings(&name, queue.group.unwrap_or(0), "", queue.entries);
    disable.into_iter().chain([settings]).chain(enable(device, queue)).collect()
}

/// Returns the commands that set up a device from nothing. Entries and engines can be assigned only while the device is
/// disabled.
fn from_nothing(device: &IdxdDevice, queue: &WorkQueue) -> Vec<String> {
    let name = &device.name;
    let entries = device.entries.unwrap_or(128);
    let disable = format!("sudo accel-config disable-device {name}");
    let mut commands: Vec<_> = (device.state == ENABLED).then_some(disable).into_iter().collect();
    let engine =
        |engine: &String| format!("sudo accel-config config-engine {name}/{engine} --group-id=0");
    commands.extend(device.engines.iter().map(engine));
    let size = format!(" --wq-size={entries}");
    commands.push(settings(&format!("{name}/{}", queue.name), 0, &size, entries));
    commands.push(format!("sudo accel-config enable-device {name}"));
    commands.push(format!("sudo accel-config enable-wq {name}/{}", queue.name));
    commands
}

/// Returns the command with the queue's settings. `group` is the group of the engines that work on the queue.
fn settings(name: &str, group: u64, size: &str, entries: u64) -> String {
    // One entry stays free for privileged submitters, as accel-config's manual recommends.
    let threshold = entries.saturating_sub(1).max(1);
    format!(
        "sudo accel-config config-wq {name} --group-id={group}{size} --mode=shared \\\n  \
         --type=user --driver-name=user --name=rebate --priority=10 --threshold={threshold} \\\n  \
         --block-on-fault=1 --max-transfer-size={TRANSFER_BYTES}"
    )
}

/// The largest transfer (bytes). This is the default of Linux and of `runtime.qpl_transfer_bytes_max`.
const TRANSFER_BYTES: u64 = 2 << 20;

const ENABLED: &str = "enabled";
