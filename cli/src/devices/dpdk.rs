//! DPDK's compression devices, `dpdk-NAME`, in builds with the feature `dpdk`. Any other build knows the names and says
//! what it lacks.

use std::sync::Arc;

use device::Device;

/// What DPDK calls the device of that name, if it is one of DPDK's.
pub(super) fn known(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX).filter(|own| !own.is_empty())
}

/// Whether this build has DPDK at all.
///
/// # Errors
/// It has not.
pub(super) fn check(name: &str) -> Result<(), String> {
    if cfg!(feature = "dpdk") {
        return Ok(());
    }
    Err(format!(
        "runtime.devices: {name}: this build has no DPDK: build with --features dpdk \
         (docs/operating/dpdk.md)"
    ))
}

/// The devices that DPDK calls so, with the arguments in the environment.
///
/// # Errors
/// DPDK or a device that does not start, and why.
#[cfg(feature = "dpdk")]
pub(crate) fn open(names: &[String]) -> Result<Vec<Arc<dyn Device>>, String> {
    use drivers::dpdk::{ARGUMENTS_VARIABLE, Dpdk, DpdkOptions, Eal};

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

/// None: [`check`] has refused them all.
///
/// # Errors
/// Never.
#[cfg(not(feature = "dpdk"))]
pub(crate) fn open(_: &[String]) -> Result<Vec<Arc<dyn Device>>, String> {
    Ok(Vec::new())
}

const PREFIX: &str = "dpdk-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_build_with_the_feature_knows_its_devices() {
        assert_eq!(known("dpdk-compress_isal"), Some("compress_isal"));
        assert_eq!((known("dpdk-"), known("dpdk")), (None, None));
        let checked = check("dpdk-compress_isal");
        assert_eq!(checked.is_ok(), cfg!(feature = "dpdk"));
        if let Err(problem) = checked {
            assert!(problem.contains("build with --features dpdk"), "{problem}");
        }
    }
}
