//! The names and the locations of devices. The operator gives a PCI address. DPDK's drivers derive names from it
//! (`0000:3d:01.0_qat_comp`), and mlx5 uses the kernel's name for the InfiniBand device (`mlx5_0`). The module reads
//! sysfs and does not call DPDK.

use std::fs;
use std::path::Path;

/// The location at which EAL finds a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A virtual device, which EAL creates.
    Virtual,
    /// A device on the PCI bus. The address always has its domain. The driver of Mellanox devices must be
    /// restricted to compression, because otherwise it also takes the network ports.
    Pci { address: String, mellanox: bool },
    /// The name matches no known scheme.
    Unknown,
}

/// Returns the location of the device. Tests pass another folder instead of `/sys`.
pub(super) fn place(device: &str, sys: &Path) -> Place {
    if is_virtual(device) {
        return Place::Virtual;
    }
    let named = device.split('_').next().and_then(full_address);
    match named.or_else(|| of_infiniband(device, sys)) {
        Some(address) => {
            let vendor = sys.join("bus/pci/devices").join(&address).join("vendor");
            let vendor = fs::read_to_string(vendor).unwrap_or_default();
            Place::Pci { mellanox: vendor.trim() == MELLANOX, address }
        }
        None => Place::Unknown,
    }
}

/// Returns whether two names belong to the same device.
pub(super) fn same(one: &str, other: &str, sys: &Path) -> bool {
    one == other
        || matches!(
            (place(one, sys), place(other, sys)),
            (Place::Pci { address: one, .. }, Place::Pci { address: other, .. }) if one == other
        )
}

/// Returns a PCI address with its domain. Operators omit the domain if it is 0.
pub(super) fn full_address(text: &str) -> Option<String> {
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let (rest, function) = text.rsplit_once('.')?;
    let mut parts = rest.rsplitn(3, ':');
    let (slot, bus) = (number(parts.next()?)?, number(parts.next()?)?);
    let (domain, function) = (number(parts.next().unwrap_or("0"))?, number(function)?);
    Some(format!("{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"))
}

/// Returns whether EAL creates the device: its name is that of a software compression driver.
fn is_virtual(device: &str) -> bool {
    ["compress_isal", "compress_zlib"].iter().any(|driver| device.starts_with(driver))
}

fn of_infiniband(device: &str, sys: &Path) -> Option<String> {
    let name = Some(device).filter(|device| !device.contains('/'))?;
    let target = fs::read_link(sys.join("class/infiniband").join(name).join("device")).ok()?;
    full_address(target.file_name()?.to_str()?)
}

const MELLANOX: &str = "0x15b3";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Makes the sysfs folder of a machine with a BlueField.
    fn machine() -> tempfile::TempDir {
        let sys = tempfile::tempdir().expect("a folder");
        for (address, vendor) in [("0000:03:00.0", "0x15b3\n"), ("0000:3d:01.0", "0x8086\n")] {
            let folder = sys.path().join("bus/pci/devices").join(address);
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join("vendor"), vendor).expect("a file");
        }
        let folder = sys.path().join("class/infiniband/mlx5_0");
        fs::create_dir_all(&folder).expect("a folder");
        symlink("../../../0000:03:00.0", folder.join("device")).expect("a link");
        sys
    }

    #[test]
    fn every_name_of_a_device_leads_to_its_address() {
        let machine = machine();
        let place_of = |device| place(device, machine.path());
        let pci = |address: &str, mellanox| Place::Pci { address: address.to_owned(), mellanox };
        for device in ["0000:03:00.0", "03:00.0", "0:3:0.0", "mlx5_0"] {
            assert_eq!(place_of(device), pci("0000:03:00.0", true), "{device}");
        }
        for device in ["3d:01.0", "0000:3D:01.0", "0000:3d:01.0_qat_comp"] {
            assert_eq!(place_of(device), pci("0000:3d:01.0", false), "{device}");
        }
        for device in ["mlx5_1", "nothing", "../x", "3d:01", "", "a:b:c:d.e"] {
            assert_eq!(place_of(device), Place::Unknown, "{device}");
        }
        assert_eq!(place_of("compress_isal_2"), Place::Virtual);
    }

    #[test]
    fn names_match_by_device() {
        let machine = machine();
        let same = |one, other| same(one, other, machine.path());
        assert!(same("mlx5_0", "03:00.0") && same("0000:3d:01.0_qat_comp", "3d:01.0"));
        assert!(same("compress_isal", "compress_isal") && !same("compress_isal", "compress_zlib"));
        assert!(!same("mlx5_0", "3d:01.0") && !same("mlx5_1", "mlx5_2"));
    }
}
