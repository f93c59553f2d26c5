//! Opens DPDK's compression devices in builds with the feature `dpdk`. Other builds have no such devices.

use std::sync::Arc;

use device::Device;

/// Opens the DPDK devices with these names. DPDK's arguments come from the environment.
///
/// # Errors
/// DPDK or a device does not start. The text gives the reason.
#[cfg(feature = "dpdk")]
pub fn open(names: &[String]) -> Result<Vec<Arc<dyn Device>>, String> {
    use crate::dpdk::{ARGUMENTS_VARIABLE, Dpdk, DpdkOptions, Eal};

    if names.is_empty() {
        return Ok(Vec::new());
    }
    let given = std::env::var(ARGUMENTS_VARIABLE).unwrap_or_default();
    let given: Vec<_> = given.split_whitespace().map(str::to_owned).collect();
    let eal = Eal::start(names, &given).map_err(|error| error.to_string())?;
    let opened = names.iter().map(|name| {
        let device = Dpdk::open(eal, name, DpdkOptions::default());
        device.map(|device| Arc::new(device) as Arc<dyn Device>).map_err(|error| error.to_string())
    });
    opened.collect()
}

/// Returns no devices, because this build has no DPDK.
///
/// # Errors
/// This build never returns an error.
#[cfg(not(feature = "dpdk"))]
pub fn open(_: &[String]) -> Result<Vec<Arc<dyn Device>>, String> {
    Ok(Vec::new())
}
