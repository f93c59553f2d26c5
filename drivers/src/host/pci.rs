//! Accelerators, recognised by their vendor and device numbers on the PCI bus. They are found even if no driver is
//! loaded. The numbers come from Linux (drivers/dma/idxd, drivers/crypto/intel/qat: adf_accel_devices.h) and from
//! DPDK (drivers/common/mlx5).

use super::files::Files;

/// The kind of an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PciKind {
    /// Intel IAA, driven by idxd.
    Iaa,
    /// Intel DSA, driven by idxd.
    Dsa,
    /// The physical function of an Intel QAT. The kernel drives it and creates virtual functions from it.
    Qat,
    /// A virtual function of an Intel QAT, which DPDK drives.
    QatVirtual,
    /// An NVIDIA BlueField with a compression engine.
    BlueField,
}

/// One function of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciAccelerator {
    /// The address of the function, such as `0000:6b:00.0`.
    pub address: String,
    /// The kind of the device.
    pub kind: PciKind,
    /// The vendor's name of the device.
    pub product: &'static str,
    /// The kernel driver that is bound to the function.
    pub driver: Option<String>,
    /// The NUMA node of the device, if the kernel knows it.
    pub numa_node: Option<u16>,
}

pub(super) fn read(files: &Files) -> Vec<PciAccelerator> {
    let addresses = files.names(DEVICES).into_iter();
    let found = addresses.filter_map(|address| {
        let path = |file: &str| format!("{DEVICES}/{address}/{file}");
        let (vendor, device) = (files.number(&path("vendor"))?, files.number(&path("device"))?);
        let known = KNOWN.iter().find(|known| known.0 == vendor && known.1 == device)?;
        Some(PciAccelerator {
            kind: known.2,
            product: known.3,
            driver: files.link(&path("driver")),
            numa_node: files.text(&path("numa_node")).and_then(|node| node.parse().ok()),
            address,
        })
    });
    found.collect()
}

const DEVICES: &str = "sys/bus/pci/devices";

const INTEL: u64 = 0x8086;
const MELLANOX: u64 = 0x15B3;

/// The known devices, each with vendor, device, kind and name.
const KNOWN: [(u64, u64, PciKind, &str); 21] = [
    (INTEL, 0x0CFE, PciKind::Iaa, "Intel IAA"),
    (INTEL, 0x1216, PciKind::Iaa, "Intel IAA"),
    (INTEL, 0xB02D, PciKind::Iaa, "Intel IAA"),
    (INTEL, 0x0B25, PciKind::Dsa, "Intel DSA"),
    (INTEL, 0x11FB, PciKind::Dsa, "Intel DSA"),
    (INTEL, 0x4940, PciKind::Qat, "Intel QAT 4xxx"),
    (INTEL, 0x4941, PciKind::QatVirtual, "Intel QAT 4xxx, virtual function"),
    (INTEL, 0x4942, PciKind::Qat, "Intel QAT 401xx"),
    (INTEL, 0x4943, PciKind::QatVirtual, "Intel QAT 401xx, virtual function"),
    (INTEL, 0x4944, PciKind::Qat, "Intel QAT 402xx"),
    (INTEL, 0x4945, PciKind::QatVirtual, "Intel QAT 402xx, virtual function"),
    (INTEL, 0x4946, PciKind::Qat, "Intel QAT 420xx"),
    (INTEL, 0x4947, PciKind::QatVirtual, "Intel QAT 420xx, virtual function"),
    (INTEL, 0x37C8, PciKind::Qat, "Intel QAT C62x"),
    (INTEL, 0x37C9, PciKind::QatVirtual, "Intel QAT C62x, virtual function"),
    (INTEL, 0x19E2, PciKind::Qat, "Intel QAT C3xxx"),
    (INTEL, 0x19E3, PciKind::QatVirtual, "Intel QAT C3xxx, virtual function"),
    (INTEL, 0x0435, PciKind::Qat, "Intel QAT DH895xCC"),
    (INTEL, 0x0443, PciKind::QatVirtual, "Intel QAT DH895xCC, virtual function"),
    (MELLANOX, 0xA2D6, PciKind::BlueField, "NVIDIA BlueField-2"),
    (MELLANOX, 0xA2DC, PciKind::BlueField, "NVIDIA BlueField-3"),
];
