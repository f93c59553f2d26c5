//! Says who can fix a device that failed its round trip, and how. This depends on the kind of failure. `service.rs`
//! finds the reason why a compression service fails, because it knows where to look.

use device::{DeviceError, RefusedReason};
use runtime::qualification::Problem;

use super::finding::{ADMINISTRATOR, Mend};

/// Returns the way to fix the problem.
pub(super) fn mend(device: &str, problem: &Problem) -> Mend {
    match problem {
        Problem::Open(error) | Problem::Failed { error, .. } => of_error(device, error),
        Problem::Refused { reason: RefusedReason::Full, .. } => crowded(),
        Problem::Refused { reason: RefusedReason::Lost, .. } => gone(device),
        Problem::Refused { reason: RefusedReason::Unsupported, .. } => {
            reported(device, "it refuses what it says that it takes")
        }
        Problem::Late { .. } => late(device),
        Problem::DidNotShrink { .. } => reported(device, "it does not compress"),
        Problem::Fallback(_) => reported(device, "software does not stand in for it"),
        Problem::Wrong { .. } => Mend::text(
            ADMINISTRATOR,
            format!(
                "replaces it; until then whoever configures the server takes {device} out of \
                 runtime.devices. A server does not use it anyway. Stored values are safe, since \
                 every one carries a checksum"
            ),
        ),
    }
}

fn of_error(device: &str, error: &DeviceError) -> Mend {
    match error {
        DeviceError::Lost => gone(device),
        DeviceError::Busy => crowded(),
        DeviceError::Timeout => late(device),
        DeviceError::Fault(_) => Mend::root(
            "looks for its errors in the kernel's log, and resets or replaces it; until then its \
             jobs are redone in software",
            vec![KERNEL_LOG.to_owned()],
        ),
        DeviceError::Misconfigured(_) => Mend::text(
            "Whoever configures the server",
            format!("mends that, or takes {device} out of runtime.devices"),
        ),
        DeviceError::InvalidInput(_) | DeviceError::Cancelled => {
            reported(device, "it refuses a job that is valid")
        }
        // This kind of error is newer than the list above.
        _ => reported(device, "it fails for a reason without a name"),
    }
}

/// Returns the fix for a queue that another process occupies.
fn crowded() -> Mend {
    Mend::text(
        "Whoever runs the other processes on it",
        "gives them less to do on it, or the administrator gives each a queue of its own; until \
         then jobs that find no room run in software"
            .to_owned(),
    )
}

fn gone(device: &str) -> Mend {
    let how = format!(
        "reads in the kernel's log why it went, and brings it back; a server tries it again by \
         itself, at most 64 s later. One that is gone for good is taken out of runtime.devices \
         ({device})"
    );
    Mend::root(&how, vec![KERNEL_LOG.to_owned()])
}

fn late(device: &str) -> Mend {
    if IN_THIS_PROCESS.iter().any(|prefix| device.starts_with(prefix)) {
        let how = "gives it processor time: it is made of threads, or of the time that one asks \
                   for, and nothing else keeps it from its jobs";
        return Mend::text("Whoever runs this machine", how.to_owned());
    }
    let how = "resets it: it hangs. A server redoes its jobs in software after \
               runtime.job_timeout_ms each, and then retires it";
    Mend::root(how, vec![KERNEL_LOG.to_owned()])
}

/// Returns the advice to report a fault in a driver and to stop using the device.
fn reported(device: &str, why: &str) -> Mend {
    Mend::text(
        "Whoever configures the server",
        format!(
            "takes {device} out of runtime.devices and reports it, with what `rebate doctor \
             --json` says: {why}, which is a fault of its driver"
        ),
    )
}

const KERNEL_LOG: &str = "sudo dmesg | tail -n 50";

/// The prefixes of the names of devices without hardware.
const IN_THIS_PROCESS: [&str; 5] =
    ["software", "worker", "virtual-", "qpl-software", "dpdk-compress_"];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_kind_of_failure_is_someones_to_mend() {
        let failed = |error| Problem::Failed { op: "compress", error };
        let refused = |reason| Problem::Refused { op: "compress", reason };
        let late = Problem::Late { op: "compress", timeout: Duration::from_secs(2) };
        let wrong = Problem::Wrong { what: "compress", how: "zstd", why: String::new() };
        let misconfigured = DeviceError::Misconfigured("no such node".to_owned());
        for (problem, who, how) in [
            (late.clone(), ADMINISTRATOR, "resets it"),
            (failed(DeviceError::Timeout), ADMINISTRATOR, "resets it"),
            (refused(RefusedReason::Lost), ADMINISTRATOR, "brings it back"),
            (failed(DeviceError::Lost), ADMINISTRATOR, "brings it back"),
            (Problem::Open(DeviceError::Lost), ADMINISTRATOR, "brings it back"),
            (refused(RefusedReason::Full), "Whoever runs the other", "less to do"),
            (failed(DeviceError::Busy), "Whoever runs the other", "less to do"),
            (refused(RefusedReason::Unsupported), "Whoever configures", "reports it"),
            (failed(DeviceError::InvalidInput("it")), "Whoever configures", "reports it"),
            (failed(DeviceError::Fault("it")), ADMINISTRATOR, "kernel's log"),
            (failed(misconfigured.clone()), "Whoever configures", "mends that"),
            (Problem::Open(misconfigured), "Whoever configures", "mends that"),
            (Problem::DidNotShrink { op: "compress" }, "Whoever configures", "reports it"),
            (Problem::Fallback(String::new()), "Whoever configures", "reports it"),
            (wrong, ADMINISTRATOR, "replaces it"),
        ] {
            let found = mend("qpl-hardware", &problem);
            assert!(found.who.starts_with(who), "{problem:?}: {found:?}");
            assert!(found.how.contains(how), "{problem:?}: {found:?}");
        }
        let busy = mend("worker", &late);
        assert!(busy.how.contains("processor time") && busy.commands.is_empty(), "{busy:?}");
    }
}
