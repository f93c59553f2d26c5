//! A simulated machine: files in a folder, as Linux has them. The process on it has user 4242, whoever runs the tests.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// The files of the machine. Their folder is removed with this value.
pub(crate) struct Machine(tempfile::TempDir);

impl Machine {
    /// Creates a machine with two cores and no accelerators.
    pub(crate) fn plain() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.write("proc/sys/kernel/osrelease", "6.8.0-41-generic\n");
        machine.write("proc/cmdline", "root=/dev/sda1 quiet\n");
        let flags = "sse4_2 pclmulqdq aes avx2 avx512f avx512dq avx512cd avx512bw avx512vl";
        machine.write("proc/cpuinfo", &format!("processor\t: 0\nflags\t\t: {flags}\n"));
        let ids = "Uid:\t4242\t4242\t4242\t4242\nGid:\t77\t77\t77\t77\nGroups:\t77\n";
        machine.write("proc/self/status", &format!("{ids}CapEff:\t0000000000000000\n"));
        machine.write(
            "proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units\n\
             Max locked memory         8388608              8388608              bytes\n",
        );
        machine.write("sys/devices/system/node/node0/cpulist", "0-1\n");
        machine
    }

    /// Creates a machine with one IAA and one work queue that anyone may use.
    pub(crate) fn with_iaa() -> Self {
        let machine = Self::plain();
        machine.write("sys/class/iommu/dmar0/x", "");
        machine.write("sys/module/idxd/refcnt", "1");
        machine.write("usr/lib64/libaccel-config.so.1", "");
        machine.pci("0000:6a:02.0", "0x8086", "0x0cfe", "idxd");
        machine.device(&[
            ("state", "enabled"),
            ("version", "0x100"),
            ("numa_node", "0"),
            ("pasid_enabled", "1"),
            ("max_work_queues_size", "128"),
            ("engine1.0/group_id", "0"),
        ]);
        machine.queue(&[
            ("state", "enabled"),
            ("mode", "shared"),
            ("type", "user"),
            ("driver_name", "user"),
            ("size", "128"),
            ("threshold", "127"),
            ("block_on_fault", "1"),
            ("max_transfer_size", "2097152"),
        ]);
        machine.write("dev/iax/wq1.0", "");
        machine.mode("dev/iax/wq1.0", 0o666);
        machine
    }

    /// Creates a machine with one QAT, which the kernel's driver uses, and one of its virtual functions.
    pub(crate) fn with_qat() -> Self {
        let machine = Self::plain();
        machine.pci("0000:6b:00.0", "0x8086", "0x4940", "4xxx");
        machine.pci("0000:6b:00.1", "0x8086", "0x4941", "4xxxvf");
        machine
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file with this text.
    pub(crate) fn write(&self, path: &str, text: &str) -> &Self {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Sets attributes of the IAA.
    pub(crate) fn device(&self, attributes: &[(&str, &str)]) -> &Self {
        for (name, text) in attributes {
            self.write(&format!("sys/bus/dsa/devices/iax1/{name}"), &format!("{text}\n"));
        }
        self
    }

    /// Sets attributes of the IAA's work queue.
    pub(crate) fn queue(&self, attributes: &[(&str, &str)]) -> &Self {
        for (name, text) in attributes {
            self.device(&[(&format!("wq1.0/{name}"), text)]);
        }
        self
    }

    /// Removes a file or a folder.
    pub(crate) fn remove(&self, path: &str) -> &Self {
        let path = self.root().join(path);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
        self
    }

    /// Sets the permissions of a file.
    pub(crate) fn mode(&self, path: &str, mode: u32) -> &Self {
        fs::set_permissions(self.root().join(path), fs::Permissions::from_mode(mode)).unwrap();
        self
    }

    fn pci(&self, address: &str, vendor: &str, device: &str, driver: &str) {
        let folder = format!("sys/bus/pci/devices/{address}");
        self.write(&format!("{folder}/vendor"), vendor);
        self.write(&format!("{folder}/device"), device);
        self.write(&format!("{folder}/numa_node"), "0\n");
        let target = format!("../../../../bus/pci/drivers/{driver}");
        symlink(target, self.root().join(folder).join("driver")).unwrap();
    }
}
