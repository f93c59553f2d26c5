//! DPDK's compression devices, `dpdk-NAME`, in builds with the feature `dpdk`. Other builds know the names and report
//! that DPDK is missing.

/// Returns DPDK's name for this device, if the device is one of DPDK's.
pub(super) fn known(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX).filter(|driver| !driver.is_empty())
}

/// Checks that this build has DPDK.
///
/// # Errors
/// This build has no DPDK.
pub(super) fn check(name: &str) -> Result<(), String> {
    if cfg!(feature = "dpdk") {
        return Ok(());
    }
    Err(format!(
        "runtime.devices: {name}: this build has no DPDK: build with --features dpdk \
         (docs/operating/dpdk.md)"
    ))
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
