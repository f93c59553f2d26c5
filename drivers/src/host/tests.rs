//! Tests with an invented machine: a fact in its files is read, and a fact that is in no file is absent.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::*;

/// Writes files at their paths under the root.
fn write(root: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn queue(root: &Path, name: &str, changes: &[(&str, &str)]) {
    let folder = format!("sys/bus/dsa/devices/iax1/{name}");
    let usual = [
        ("state", "enabled\n"),
        ("mode", "shared\n"),
        ("type", "user\n"),
        ("driver_name", "user\n"),
        ("size", "64\n"),
        ("threshold", "60\n"),
        ("block_on_fault", "1\n"),
        ("group_id", "2\n"),
        ("max_transfer_size", "2097152\n"),
    ];
    for (file, text) in usual.iter().chain(changes) {
        write(root, &[(&format!("{folder}/{file}"), text)]);
    }
    let node = format!("dev/iax/{name}");
    write(root, &[(&node, "")]);
    fs::set_permissions(root.join(node), fs::Permissions::from_mode(0o666)).unwrap();
}

fn device(root: &Path) {
    write(
        root,
        &[
            ("sys/bus/dsa/devices/iax1/state", "enabled\n"),
            ("sys/bus/dsa/devices/iax1/version", "0x100\n"),
            ("sys/bus/dsa/devices/iax1/numa_node", "-1\n"),
            ("sys/bus/dsa/devices/iax1/pasid_enabled", "1\n"),
            ("sys/bus/dsa/devices/iax1/engine1.0/group_id", "0\n"),
            ("sys/bus/dsa/devices/iaxX/state", "enabled\n"),
            (
                "proc/self/status",
                "Uid:\t0 4242 0 0\nGid:\t0 77 0 0\nGroups:\t5 6\nCapEff:\t20000\n",
            ),
        ],
    );
}

#[test]
fn an_empty_root_is_a_machine_without_anything() {
    let root = tempfile::tempdir().unwrap();
    let machine = Machine::read(root.path());
    assert!(machine.idxd.is_empty() && machine.pci.is_empty() && machine.iommus.is_empty());
    assert_eq!((machine.kernel_version(), machine.huge_free_bytes), (None, 0));
    assert!(!machine.x86 && !machine.accel_config && !machine.idxd_loaded);
    assert_eq!(machine.process.memory_lock, None);
}

#[test]
fn each_obstacle_is_found_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    device(root);
    queue(root, "wq1.0", &[]);
    queue(root, "wq1.1", &[("mode", "dedicated"), ("state", "disabled")]);
    queue(root, "wq1.2", &[("type", "none"), ("size", "0"), ("group_id", "-1\n")]);
    queue(root, "wq1.3", &[("type", "kernel"), ("driver_name", "crypto")]);
    queue(root, "wq1.4", &[]);
    fs::set_permissions(root.join("dev/iax/wq1.4"), fs::Permissions::from_mode(0o660)).unwrap();
    queue(root, "wq1.10", &[]);
    fs::remove_file(root.join("dev/iax/wq1.10")).unwrap();
    let machine = Machine::read(root);
    let [device] = &machine.idxd[..] else { panic!("one device: {machine:?}") };
    let obstacles_of = |device: &IdxdDevice| {
        let queues = device.queues.iter();
        queues.map(|queue| (queue.name.clone(), queue.obstacles.clone())).collect::<Vec<_>>()
    };
    let expected = [
        ("wq1.0", vec![]),
        ("wq1.1", vec![Obstacle::Dedicated, Obstacle::Disabled]),
        ("wq1.2", vec![Obstacle::Unconfigured]),
        ("wq1.3", vec![Obstacle::NotForUsers]),
        ("wq1.4", vec![Obstacle::NoAccess]),
        ("wq1.10", vec![Obstacle::NoNode]),
    ];
    let expected = expected.map(|(name, obstacles)| (name.to_owned(), obstacles));
    assert_eq!(obstacles_of(device), expected);
    assert_eq!((device.numa_node, device.generation), (None, Some(1)));
    assert_eq!(device.engines, ["engine1.0"]);
    assert_eq!((device.queues[0].group, device.queues[2].group), (Some(2), None));
    assert_eq!(device.usable().next().unwrap().transfer_bytes_max, Some(2 << 20));

    write(root, &[("sys/bus/dsa/devices/iax1/pasid_enabled", "0")]);
    let machine = Machine::read(root);
    assert_eq!(machine.idxd[0].queues[0].obstacles, [Obstacle::NoSharedMemory]);
}

#[test]
fn a_capability_overrides_owner_group_and_others() {
    let (uid, gids) = (4_242, vec![77, 5]);
    let plain = Process { uid, gids, ..Process::default() };
    assert!(plain.may_use(4_242, 0, 0o600) && !plain.may_use(4_242, 0, 0o066));
    assert!(plain.may_use(0, 5, 0o060) && !plain.may_use(0, 5, 0o606));
    assert!(plain.may_use(0, 0, 0o006) && !plain.may_use(0, 0, 0o664));
    let above = Process { capabilities: 1 << 1, ..plain };
    assert!(above.may_use(0, 0, 0));
}

#[test]
fn pci_functions_are_known_by_their_numbers_whatever_their_driver() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let path = |address: &str, file: &str| format!("sys/bus/pci/devices/{address}/{file}");
    for (address, vendor, device) in [
        ("0000:6b:00.0", "0x8086", "0x4940"),
        ("0000:6b:00.1", "0x8086", "0x4941"),
        ("0000:03:00.0", "0x15b3", "0xa2d6"),
        ("0000:00:1f.0", "0x8086", "0x1234"),
    ] {
        write(root, &[(&path(address, "vendor"), vendor), (&path(address, "device"), device)]);
    }
    write(root, &[(&path("0000:6b:00.0", "numa_node"), "1")]);
    symlink("/sys/bus/pci/drivers/vfio-pci", root.join(path("0000:6b:00.0", "driver"))).unwrap();
    let machine = Machine::read(root);
    let [blue, qat, function] = &machine.pci[..] else { panic!("three: {:?}", machine.pci) };
    assert_eq!((qat.kind, function.kind), (PciKind::Qat, PciKind::QatVirtual));
    assert_eq!((blue.kind, blue.driver.as_deref()), (PciKind::BlueField, None));
    assert_eq!((qat.product, qat.numa_node), ("Intel QAT 4xxx", Some(1)));
    assert_eq!(qat.driver.as_deref(), Some("vfio-pci"));
}

#[test]
fn numbers_of_the_system_are_read_from_their_tables() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let limits = "Limit            Soft Limit Hard Limit Units\n\
                  Max locked memory         8388608    unlimited  bytes\n";
    write(
        root,
        &[
            ("proc/sys/kernel/osrelease", "6.8.0-41-generic\n"),
            (
                "proc/cpuinfo",
                "processor\t: 0\nflags\t\t: aes avx2\n\nprocessor\t: 1\nflags\t: no\n",
            ),
            ("proc/self/limits", limits),
            ("sys/devices/system/node/node1/x", ""),
            ("sys/devices/system/node/node2/cpulist", "4-7,12\n"),
            ("sys/devices/system/cpu/cpu4/topology/physical_package_id", "1\n"),
            ("sys/devices/system/node/node3/cpulist", "\n"),
            ("sys/devices/system/node/node0/x", ""),
            ("sys/devices/system/node/online", "0-1"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "3"),
            ("usr/lib64/libaccel-config.so.1", ""),
        ],
    );
    let machine = Machine::read(root);
    assert_eq!(machine.kernel_version(), Some((6, 8)));
    assert!(machine.x86 && machine.has_flag("avx2") && !machine.has_flag("no"));
    assert_eq!(machine.process.memory_lock, Some(MemoryLock::Bytes(8 << 20)));
    assert_eq!(machine.numa_nodes, [0, 1, 2], "the last has memory alone");
    assert_eq!(machine.sockets, BTreeMap::from([(2, 1)]));
    assert_eq!(machine.huge_free_bytes, 6 << 20);
    assert!(machine.accel_config);
}
