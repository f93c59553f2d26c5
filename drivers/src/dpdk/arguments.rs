//! Makes the arguments with which DPDK's environment abstraction layer (EAL) starts: the operator's
//! arguments, preceded by arguments that restrict EAL to what is needed. This is a pure function.

use super::names::{Place, full_address};

/// Returns all arguments. The program's name is the first. The operator's arguments (`given`) come last and take
/// precedence.
///
/// `cpus` is the kernel's list of the processors that this process may use.
pub(super) fn complete(devices: &[(String, Place)], given: &[String], cpus: &str) -> Vec<String> {
    let mut all: Vec<String> = [
        "rebate",
        "--no-telemetry",
        // The software drivers log every stream that does not fit as an error.
        "--log-level=*:warning",
        "--log-level=pmd.compress.*:critical",
    ]
    .map(str::to_owned)
    .to_vec();
    if !has(given, &["-l", "-c", "--lcores", "-s", "-S"]) {
        // There is one lcore on all of this process's processors, so EAL starts no worker threads and pins no thread.
        all.push(format!("--lcores=0@({cpus})"));
    }
    if !has(given, &["--iova-mode"]) {
        // Devices use this process's addresses, so any of EAL's memory can be passed to them in one piece.
        all.push("--iova-mode=va".to_owned());
    }
    let software = given.is_empty() && devices.iter().all(|(_, place)| *place == Place::Virtual);
    if software {
        all.extend(["--no-huge", "--no-pci", "-m", MEGABYTES].map(str::to_owned));
    }
    // EAL makes no files under /var/run and no second process, so two such processes on one machine do not collide.
    // `--in-memory` also keeps EAL's memory off the file system. It cannot be combined with the old kind of memory,
    // which EAL uses without huge pages.
    let old_memory = software || has(given, &["--no-huge", "--legacy-mem"]);
    all.push(if old_memory { "--no-shconf" } else { "--in-memory" }.to_owned());
    let unnamed = devices.iter().filter(|(device, place)| !mentions(given, device, place));
    all.extend(unnamed.filter_map(|(device, place)| match place {
        Place::Virtual => Some(format!("--vdev={device}")),
        Place::Pci { .. } => Some(format!("--allow={}", probed(device, place))),
        Place::Unknown => None,
    }));
    all.extend(given.iter().cloned());
    all
}

/// Returns the text that adds a device to a running EAL.
pub(super) fn probed(device: &str, place: &Place) -> String {
    match place {
        Place::Virtual => format!("vdev:{device}"),
        Place::Pci { address, mellanox: true } => format!("{address},class=compress"),
        Place::Pci { address, mellanox: false } => address.clone(),
        Place::Unknown => device.to_owned(),
    }
}

fn has(given: &[String], options: &[&str]) -> bool {
    given.iter().any(|argument| {
        let name = argument.split('=').next().unwrap_or(argument);
        // The value of a short option may follow without a space.
        let short = |option: &&&str| option.len() == 2 && argument.starts_with(**option);
        options.contains(&name) || options.iter().any(|option| short(&option))
    })
}

fn mentions(given: &[String], device: &str, place: &Place) -> bool {
    let is_it = |part: &str| match place {
        Place::Pci { address, .. } => {
            // The value of a short option may follow without a space, and may begin with a bus.
            let part = part.strip_prefix("-a").unwrap_or(part);
            full_address(part.strip_prefix("pci:").unwrap_or(part)).as_ref() == Some(address)
        }
        Place::Virtual | Place::Unknown => false,
    };
    let mut parts = given.iter().flat_map(|argument| argument.split(['=', ',']));
    parts.any(|part| part == device || is_it(part))
}

/// The fixed size of EAL's memory when it has no huge pages (MB). Unused parts take no physical memory.
const MEGABYTES: &str = "256";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::names::place;
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn arguments_for(devices: &str, given: &str) -> String {
        // On this machine every device of bus 3 is a Mellanox device.
        let located = |device: String| {
            let place = place(&device, Path::new("/nowhere"));
            let place = match place {
                Place::Pci { address, .. } => {
                    Place::Pci { mellanox: address.starts_with("0000:03:"), address }
                }
                other => other,
            };
            (device, place)
        };
        let devices: Vec<_> = words(devices).into_iter().map(located).collect();
        complete(&devices, &words(given), "0-3,7")[1..].join(" ")
    }

    const ALWAYS: &str = "--no-telemetry --log-level=*:warning --log-level=pmd.compress.*:critical";

    #[test]
    fn software_devices_need_no_huge_pages_or_bus() {
        let options = "--lcores=0@(0-3,7) --iova-mode=va --no-huge --no-pci -m 256 --no-shconf";
        let devices = "--vdev=compress_isal --vdev=compress_zlib1";
        assert_eq!(
            arguments_for("compress_isal compress_zlib1", ""),
            format!("{ALWAYS} {options} {devices}")
        );
    }

    #[test]
    fn hardware_is_allowed_by_its_address_and_gets_huge_pages() {
        let options = "--lcores=0@(0-3,7) --iova-mode=va --in-memory";
        let said = arguments_for("03:00.0 0000:3d:01.0_qat_comp", "");
        let allowed = "--allow=0000:03:00.0,class=compress --allow=0000:3d:01.0";
        assert_eq!(said, format!("{ALWAYS} {options} {allowed}"));
        assert_eq!(arguments_for("mlx5_7", ""), format!("{ALWAYS} {options}"), "it is not here");
    }

    #[test]
    fn what_the_operator_says_is_not_said_again() {
        let given =
            "-l2 --iova-mode=pa --vdev compress_isal,socket_id=0 -a 0000:03:00.0,class=compress";
        let said = arguments_for("compress_isal 0000:03:00.0", given);
        assert_eq!(said, format!("{ALWAYS} --in-memory {given}"));
        for given in ["-a 03:00.0", "-a03:00.0", "--allow=0000:03:00.0,x=1", "-a pci:0000:03:00.0"]
        {
            for device in ["0000:03:00.0", "03:00.0"] {
                assert!(
                    arguments_for(device, given).ends_with(&format!("--in-memory {given}")),
                    "{given}"
                );
            }
        }
        let given = "--lcores=1 --iova-mode=va --no-huge";
        let said = arguments_for("compress_isal", given);
        assert_eq!(said, format!("{ALWAYS} --no-shconf --vdev=compress_isal {given}"));
    }
}
