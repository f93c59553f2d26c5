//! DPDK's compression devices, `dpdk-NAME`, in builds with the feature `dpdk`. Any other build knows the names and says
//! what it lacks.

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
