//! Looks for accelerators. For an Intel IAA it checks everything between the IAA and a process: driver, IOMMU, work
//! queues, rights and library (Linux idxd; requirements of QPL's hardware path).

use drivers::host::{Capability, IdxdDevice, IdxdKind, Machine, PciKind};
use drivers::qpl::NumaNode;

use super::Wanted;
use super::finding::{ADMINISTRATOR, Finding, Mend, Severity};
use super::work_queue;

pub(super) fn findings(machine: &Machine, wanted: Wanted) -> Vec<Finding> {
    let devices: Vec<&IdxdDevice> = machine.idxd_of(IdxdKind::Iaa).collect();
    let on_bus: Vec<&str> =
        machine.pci_of(PciKind::Iaa).map(|found| found.address.as_str()).collect();
    if devices.is_empty() && on_bus.is_empty() {
        return none(machine, wanted).into_iter().collect();
    }
    if devices.is_empty() {
        return vec![no_driver(machine, &on_bus, wanted)];
    }
    let usable: Vec<&IdxdDevice> =
        devices.iter().copied().filter(|device| device.usable().next().is_some()).collect();
    let mut found: Vec<Finding> = kernel(machine, &devices, wanted).into_iter().collect();
    found.extend(iommu(machine, &devices, wanted));
    let needed = wanted.iaa && usable.is_empty();
    for device in devices {
        found.extend(work_queue::findings(machine, device, needed, &wanted));
    }
    found.extend(library(machine, wanted));
    if !usable.is_empty() {
        found.extend(portal(machine));
        found.extend(numa(machine, &usable, wanted));
    }
    found
}

/// Reports that there is no IAA. This is a problem if the configuration needs an IAA. Otherwise it is a note,
/// which is omitted if there is another accelerator.
fn none(machine: &Machine, wanted: Wanted) -> Option<Finding> {
    if wanted.iaa {
        let what = "qpl-hardware is configured, and neither the PCI bus nor /sys/bus/dsa has an \
                    Intel IAA";
        let finding = Finding::new(Severity::Problem, "Intel IAA", what.to_owned());
        let how = "takes qpl-auto or no device at all here; in a virtual machine, the host's \
                   administrator passes an IAA through";
        return Some(finding.mend(Mend::text("Whoever configures the server", how.to_owned())));
    }
    let what = "none here. Looked for: Intel IAA and DSA (PCI, /sys/bus/dsa), Intel QAT and NVIDIA \
                BlueField (PCI). Software is fine: everything works without. What an IAA would \
                change is shown by `rebate demo`, which emulates one; docs/operating/iaa.md says \
                what it takes";
    let nothing = machine.pci.is_empty() && machine.idxd.is_empty();
    nothing.then(|| Finding::new(Severity::Note, "accelerators", what.to_owned()))
}

fn no_driver(machine: &Machine, on_bus: &[&str], wanted: Wanted) -> Finding {
    let addresses = on_bus.join(", ");
    let severity = Severity::if_needed(wanted.iaa);
    if machine.idxd_loaded {
        let what = format!("at {addresses}, but its driver idxd shows no device");
        let how = "reads why; VT-d must be on in the firmware";
        let commands = vec!["sudo dmesg | grep -i -e idxd -e dmar".to_owned()];
        return Finding::new(severity, "Intel IAA", what).mend(Mend::root(how, commands));
    }
    let what = format!("at {addresses}, but its driver idxd is not loaded");
    let commands = vec![
        "sudo modprobe idxd".to_owned(),
        "echo idxd | sudo tee /etc/modules-load.d/idxd.conf".to_owned(),
    ];
    Finding::new(severity, "Intel IAA", what)
        .mend(Mend::root("loads it, now and at boot", commands))
}

/// Checks the kernel's version. QPL's hardware path needs Linux 5.18. The second generation needs Linux 6.3 (QPL
/// documentation, system requirements).
fn kernel(machine: &Machine, devices: &[&IdxdDevice], wanted: Wanted) -> Option<Finding> {
    let newest = devices.iter().filter_map(|device| device.generation).max().unwrap_or(1);
    let (major, minor) = if newest > 1 { (6, 3) } else { (5, 18) };
    let old = machine.kernel_version().is_some_and(|version| version < (major, minor));
    old.then(|| {
        let what = format!(
            "too old for an IAA of generation {newest}: QPL needs Linux {major}.{minor} or later"
        );
        let how = "installs a newer kernel".to_owned();
        let severity = Severity::if_needed(wanted.iaa && !wanted.iaa_works);
        Finding::new(severity, "kernel", what).mend(Mend::text(ADMINISTRATOR, how))
    })
}

/// Checks the IOMMU. Without shared virtual memory no process can open a work queue.
fn iommu(machine: &Machine, devices: &[&IdxdDevice], wanted: Wanted) -> Option<Finding> {
    let without = devices.iter().filter(|device| !device.shared_memory);
    let without: Vec<_> = without.map(|device| device.name.as_str()).collect();
    if without.is_empty() {
        let what = "on; devices share the address space of processes (SVM)".to_owned();
        return Some(Finding::new(Severity::Ok, "IOMMU", what));
    }
    let severity = Severity::if_needed(wanted.iaa && without.len() == devices.len());
    let names = without.join(", ");
    let asked = KERNEL_ARGUMENTS.iter().all(|argument| {
        let given = machine.command_line.split_whitespace();
        given
            .filter_map(|word| word.strip_prefix("intel_iommu="))
            .any(|values| values.split(',').any(|value| value == *argument))
    });
    let off = if machine.iommus.is_empty() { "the IOMMU is off" } else { "the IOMMU has no SVM" };
    let what = format!("{off}: {names} cannot share the address space of processes (SVM)");
    let finding = Finding::new(severity, "IOMMU", what);
    Some(finding.mend(if asked {
        let how = "has asked the kernel for it already (intel_iommu=on,sm_on); switch on VT-d, \
                   ENQCMDS, ATS, PRI and PASID in the firmware, and on kernels that still refuse \
                   add no5lvl to the kernel's command line";
        Mend::text(ADMINISTRATOR, how.to_owned())
    } else {
        let grub = "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&intel_iommu=on,sm_on /' \
                    /etc/default/grub";
        let commands =
            vec![grub.to_owned(), "sudo update-grub".to_owned(), "sudo reboot".to_owned()];
        Mend::root(
            "starts the kernel with intel_iommu=on,sm_on (as here where GRUB is Debian's; Fedora, \
             RHEL: `sudo grubby --update-kernel=ALL --args=intel_iommu=on,sm_on` in place of the \
             first two); VT-d must be on in the firmware",
            commands,
        )
    }))
}

/// Checks that libaccel-config is installed. QPL opens it by its file name to find devices.
fn library(machine: &Machine, wanted: Wanted) -> Option<Finding> {
    (!machine.accel_config).then(|| {
        let what = "libaccel-config.so.1 is missing from the usual folders; QPL finds devices \
                    through it";
        let commands = vec!["sudo apt-get install accel-config libaccel-config1".to_owned()];
        let severity = Severity::if_needed(wanted.iaa && !wanted.iaa_works);
        Finding::new(severity, "accel-config", what.to_owned())
            .mend(Mend::root("installs it", commands))
    })
}

/// Checks for CAP_SYS_RAWIO. Since the fix of CVE-2024-21823 a process without this capability cannot map a work queue.
fn portal(machine: &Machine) -> Option<Finding> {
    let since = machine.kernel_version().is_some_and(|version| version >= (6, 9));
    (since && !machine.process.has(Capability::SysRawio)).then(|| {
        let what = "without CAP_SYS_RAWIO this process may not map work queues (Linux 6.9 and \
                    later); QPL then writes each descriptor through the kernel, which works and \
                    costs a system call";
        let how = "may give it to the server, who then can do much more; systemd: \
                   AmbientCapabilities=CAP_SYS_RAWIO";
        Finding::new(Severity::Note, "submission", what.to_owned())
            .mend(Mend::text(ADMINISTRATOR, how.to_owned()))
    })
}

/// Checks that every node has a device on its socket. By default QPL uses devices of the caller's socket. A device
/// whose node the kernel does not know counts as near every node.
fn numa(machine: &Machine, usable: &[&IdxdDevice], wanted: Wanted) -> Option<Finding> {
    if wanted.numa != NumaNode::Socket {
        return None;
    }
    let mut nodes: Vec<u16> =
        usable.iter().map(|device| device.numa_node).collect::<Option<_>>()?;
    nodes.sort_unstable();
    nodes.dedup();
    // A socket may be split into several nodes. The kernel assigns a device to one of them.
    let near = |node: &u16| {
        let socket = machine.sockets.get(node);
        nodes.iter().any(|usable_node| {
            usable_node == node || socket.is_some() && machine.sockets.get(usable_node) == socket
        })
    };
    let far = machine.numa_nodes.iter().filter(|node| !near(node));
    let far: Vec<String> = far.map(u16::to_string).collect();
    let here = nodes.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    (!far.is_empty()).then(|| {
        let what = format!(
            "IAAs that can be used are on node {here}, none on node {}; QPL takes those of the \
             calling thread's socket, and jobs from other sockets run in software",
            far.join(",")
        );
        let who = "Whoever starts the server";
        let how = "keeps it on a node that has one, or lets QPL take any (QPL 1.6 and later: \
                   --set runtime.qpl_numa=any), which costs the way between sockets"
            .to_owned();
        let command = format!("numactl --cpunodebind={here} --membind={here} rebate serve ...");
        let mend = Mend { who: who.to_owned(), how, commands: vec![command] };
        Finding::new(Severity::Note, "NUMA", what).mend(mend)
    })
}

/// The values that turn the IOMMU's shared virtual memory on, for kernels that do not enable it by default.
const KERNEL_ARGUMENTS: [&str; 2] = ["on", "sm_on"];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A machine with an IAA of the second generation, a kernel that is too old for it, and no libaccel-config.
    fn machine() -> Machine {
        let root = tempfile::tempdir().expect("a folder");
        let device = root.path().join("sys/bus/dsa/devices/iax1");
        fs::create_dir_all(&device).expect("a folder");
        for (file, text) in [("version", "0x200"), ("state", "enabled"), ("pasid_enabled", "1")] {
            fs::write(device.join(file), text).expect("a file");
        }
        let kernel = root.path().join("proc/sys/kernel");
        fs::create_dir_all(&kernel).expect("a folder");
        fs::write(kernel.join("osrelease"), "5.19.0\n").expect("a file");
        Machine::read(root.path())
    }

    #[test]
    fn what_a_working_device_does_without_is_no_problem() {
        let machine = machine();
        for (iaa_works, severity) in [(false, Severity::Problem), (true, Severity::Note)] {
            let wanted = Wanted { iaa: true, iaa_works, ..Wanted::default() };
            let found = findings(&machine, wanted);
            for about in ["kernel", "accel-config"] {
                let finding =
                    found.iter().find(|finding| finding.about == about).expect("it is found");
                assert_eq!(finding.severity, severity, "{about}");
            }
        }
    }
}
