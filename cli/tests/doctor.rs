//! Tests `rebate doctor` and `rebate devices` on simulated machines: trees of /sys, /proc and /dev in a folder. The
//! jobs of the round trips run on the real machine.

#![allow(clippy::unwrap_used)]

#[path = "doctor/machine.rs"]
mod machine;

use std::process::Command;

use machine::Machine;
use serde_json::Value;

/// Returns what a command printed, and its exit code.
fn run(machine: &Machine, args: &[&str]) -> (String, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rebate"));
    command.args(args).arg("--root").arg(machine.root());
    for variable in ["REBATE_QPL_LIBRARY", "REBATE_CONFIG", "REBATE_DPDK_ARGS", "RUST_LOG"] {
        command.env_remove(variable);
    }
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty(), "{errors}");
    (String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap())
}

fn json(machine: &Machine, args: &[&str]) -> (Value, i32) {
    let (text, code) = run(machine, &[args, &["--json"]].concat());
    (serde_json::from_str(&text).unwrap(), code)
}

/// Returns the lines about the machine. They do not depend on the machine on which the test runs.
fn about_machine(text: &str) -> String {
    let (machine, _) = text.split_once("one round trip").unwrap();
    machine.to_owned()
}

/// Returns severity, text and commands of the finding with this subject, or `None` if there is none.
fn finding(report: &Value, about: &str) -> Option<(String, String, Vec<String>)> {
    let finding =
        report["machine"].as_array().unwrap().iter().find(|finding| finding["about"] == about)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let commands = finding["mend"]["commands"].as_array().cloned().unwrap_or_default();
    Some((text(&finding["severity"]), text(&finding["what"]), commands.iter().map(text).collect()))
}

#[test]
fn a_machine_without_accelerators_is_told_that_software_is_fine() {
    let (text, code) = run(&Machine::plain(), &["doctor"]);
    assert_eq!(about_machine(&text), include_str!("doctor/plain.txt"));
    assert!(text.ends_with("devices of this configuration: software, worker\n"), "{text}");
    assert_eq!(code, 0);
}

#[test]
fn a_well_configured_iaa_is_all_ok() {
    let (text, code) = run(&Machine::with_iaa(), &["doctor"]);
    assert_eq!(about_machine(&text), include_str!("doctor/iaa.txt"));
    assert_eq!(code, 0);
}

#[test]
fn a_disabled_queue_is_a_problem_only_if_configured() {
    let machine = Machine::with_iaa();
    machine.queue(&[("state", "disabled")]).remove("dev/iax/wq1.0");
    let (text, code) = run(&machine, &["doctor"]);
    assert_eq!(about_machine(&text), include_str!("doctor/disabled.txt"));
    assert_eq!(code, 0);
    let (report, code) = json(&machine, &["doctor", "--device", "qpl-hardware"]);
    let (severity, _, commands) = finding(&report, "iax1/wq1.0").unwrap();
    assert_eq!((severity.as_str(), code), ("problem", 1));
    assert_eq!(commands, ["sudo accel-config enable-wq iax1/wq1.0"]);
    assert_eq!(report["ok"], false);
    assert_eq!(report["configured"], serde_json::json!(["software", "qpl-hardware"]));
}

#[test]
fn every_fault_of_an_iaa_names_its_fix() {
    type Change = fn(&Machine);
    let cases: [(Change, &str, &str, &str); 9] = [
        (
            |machine| {
                machine.queue(&[("mode", "dedicated")]);
            },
            "iax1/wq1.0",
            "QPL takes shared queues only",
            "sudo accel-config disable-wq iax1/wq1.0",
        ),
        (
            |machine| {
                machine.mode("dev/iax/wq1.0", 0o600);
            },
            "iax1/wq1.0",
            "(user 4242) may not read and write",
            "sudo chgrp 77 /dev/iax/wq1.0",
        ),
        (
            |machine| {
                machine.device(&[("pasid_enabled", "0")]).remove("sys/class/iommu");
            },
            "IOMMU",
            "the IOMMU is off: iax1 cannot share",
            "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&intel_iommu=on,sm_on /' /etc/default/grub",
        ),
        (
            |machine| {
                machine.queue(&[("size", "0"), ("type", "none"), ("state", "disabled")]);
            },
            "iax1/wq1.0",
            "no work queue of the device is set up",
            "sudo accel-config disable-device iax1",
        ),
        (
            |machine| {
                machine.queue(&[("type", "kernel")]).write("sys/module/iaa_crypto/refcnt", "0");
            },
            "iax1/wq1.0",
            "iaa_crypto has taken it",
            "sudo modprobe --remove iaa_crypto",
        ),
        (
            |machine| {
                machine.remove("dev/iax");
            },
            "iax1/wq1.0",
            "its file under /dev/iax is missing",
            "docker run --device /dev/iax/wq1.0 ...",
        ),
        (
            |machine| {
                machine.queue(&[("max_transfer_size", "65536")]);
            },
            "wq1.0",
            "max_transfer_size is 64KiB",
            "sudo accel-config disable-wq iax1/wq1.0",
        ),
        (
            |machine| {
                machine.remove("usr/lib64/libaccel-config.so.1");
            },
            "accel-config",
            "is missing",
            "sudo apt-get install accel-config libaccel-config1",
        ),
        (
            |machine| {
                machine.remove("sys/bus/dsa").remove("sys/module/idxd");
            },
            "Intel IAA",
            "at 0000:6a:02.0, but its driver idxd is not loaded",
            "sudo modprobe idxd",
        ),
    ];
    for (change, about, what, command) in cases {
        let machine = Machine::with_iaa();
        change(&machine);
        let (report, code) = json(&machine, &["doctor", "--device", "qpl-hardware"]);
        let (severity, said, commands) =
            finding(&report, about).unwrap_or_else(|| panic!("{about}: {report:#}"));
        assert_eq!((severity.as_str(), code), ("problem", 1), "{about}: {said}");
        assert!(said.contains(what), "{what}: {said}");
        assert_eq!(commands[0], command, "{said}");
        let (report, code) = json(&machine, &["doctor"]);
        assert_eq!((finding(&report, about).unwrap().0.as_str(), code), ("note", 0), "{said}");
    }
}

#[test]
fn keys_can_be_set_to_suit_the_machine() {
    let machine = Machine::with_iaa();
    machine.queue(&[("max_transfer_size", "65536")]);
    machine.write("sys/devices/system/node/node1/x", "");
    let hardware = ["doctor", "--device", "qpl-hardware"];
    let (report, _) = json(&machine, &hardware);
    let mend = |about: &str| {
        let all = report["machine"].as_array().unwrap();
        let finding = all.iter().find(|finding| finding["about"] == about).unwrap();
        finding["mend"]["how"].as_str().unwrap().to_owned()
    };
    assert!(mend("wq1.0").contains("runtime.qpl_transfer_bytes_max to 64KiB"), "{report:#}");
    assert!(mend("NUMA").contains("runtime.qpl_numa=any"), "{report:#}");
    let suited = ["--set", "runtime.qpl_transfer_bytes_max=64KiB", "--set", "runtime.qpl_numa=any"];
    let (report, _) = json(&machine, &[&hardware[..], &suited].concat());
    for about in ["wq1.0", "NUMA"] {
        assert_eq!(finding(&report, about), None);
    }
    let larger = ["--set", "runtime.qpl_transfer_bytes_max=128KiB"];
    let (report, _) = json(&machine, &[&hardware[..], &larger].concat());
    assert!(finding(&report, "wq1.0").unwrap().1.contains("jobs of up to 128KiB"));
}

#[test]
fn a_requested_iommu_is_a_matter_of_the_firmware() {
    let machine = Machine::with_iaa();
    machine.device(&[("pasid_enabled", "0")]);
    machine.write("proc/cmdline", "root=/dev/sda1 intel_iommu=on,sm_on quiet");
    machine.write("proc/sys/kernel/osrelease", "5.15.0-100-generic");
    let (text, _) = run(&machine, &["doctor"]);
    assert!(text.contains("switch on VT-d") && text.contains("no5lvl"), "{text}");
    assert!(!text.contains("update-grub"), "{text}");
    assert!(text.contains("QPL needs Linux 5.18 or later"), "{text}");
    assert!(text.contains("of no use without SVM; see IOMMU"), "{text}");
}

#[test]
fn what_costs_speed_alone_is_a_note() {
    let machine = Machine::with_iaa();
    machine.queue(&[("block_on_fault", "0")]);
    machine.write("sys/devices/system/node/node1/x", "");
    machine.write("proc/sys/kernel/osrelease", "6.9.0");
    machine.write("proc/cpuinfo", "processor : 0\nflags : sse4_2 pclmulqdq avx2\n");
    let (report, _) = json(&machine, &["doctor", "--device", "qpl-hardware"]);
    for (about, what) in [
        ("wq1.0", "block_on_fault is 0"),
        ("NUMA", "on node 0, none on node 1"),
        ("submission", "CAP_SYS_RAWIO"),
        ("processor", "no AES-NI: AES-GCM is slow"),
    ] {
        let (severity, said, _) = finding(&report, about).unwrap();
        assert!(severity == "note" && said.contains(what), "{about}: {severity} {said}");
    }
    // The second node is on the socket of the first, or it has only memory.
    for (node, list) in [("node0", "0-1\n"), ("node1", "2\n")] {
        machine.write(&format!("sys/devices/system/node/{node}/cpulist"), list);
    }
    for cpu in ["cpu0", "cpu2"] {
        let path = format!("sys/devices/system/cpu/{cpu}/topology/physical_package_id");
        machine.write(&path, "0\n");
    }
    assert!(finding(&json(&machine, &["doctor"]).0, "NUMA").is_none());
    machine.write("sys/devices/system/cpu/cpu2/topology/physical_package_id", "1\n");
    assert!(finding(&json(&machine, &["doctor"]).0, "NUMA").is_some());
    machine.write("sys/devices/system/node/node1/cpulist", "\n");
    assert!(finding(&json(&machine, &["doctor"]).0, "NUMA").is_none());
}

#[test]
fn commands_set_a_queue_up_again_in_its_group() {
    let machine = Machine::with_iaa();
    machine.queue(&[("mode", "dedicated"), ("group_id", "3")]);
    machine.device(&[("pasid_enabled", "0")]).remove("sys/class/iommu");
    let (report, _) = json(&machine, &["doctor", "--device", "qpl-hardware"]);
    let (_, _, commands) = finding(&report, "iax1/wq1.0").unwrap();
    assert!(commands.iter().any(|command| command.contains("--group-id=3 ")), "{commands:?}");
    for finding in report["machine"].as_array().unwrap() {
        for command in finding["mend"]["commands"].as_array().into_iter().flatten() {
            let command = command.as_str().unwrap();
            assert!(!command.contains('#'), "a comment: {command}");
        }
    }
}

#[test]
fn both_commands_see_an_unused_qat() {
    let machine = Machine::with_qat();
    let (report, code) = json(&machine, &["doctor"]);
    let (severity, said, _) = finding(&report, "0000:6b:00.0").unwrap();
    assert!(severity == "note" && said.contains("Intel QAT 4xxx (4xxx, NUMA node 0)"), "{said}");
    assert!(finding(&report, "accelerators").is_none() && code == 0);
    let advice = format!("{report:#}");
    assert!(!advice.contains("devbind.py --bind=vfio-pci 0000:6b:00.0"), "{advice}");
    if cfg!(feature = "dpdk") {
        let commands = |about| finding(&report, about).unwrap().2;
        let path = "/sys/bus/pci/devices/0000:6b:00.0/sriov_numvfs";
        assert_eq!(commands("0000:6b:00.0"), [format!("echo 1 | sudo tee {path}")]);
        assert!(commands("0000:6b:00.1")[1].ends_with("--bind=vfio-pci 0000:6b:00.1"));
    }
    let (report, _) = json(&machine, &["devices"]);
    let qat = &report["accelerators"][0];
    assert_eq!((&qat["name"], &qat["numa_node"]), (&"0000:6b:00.0".into(), &0.into()));
    assert_eq!(qat["used_as"], "-", "DPDK takes virtual functions");
    let function = &report["accelerators"][1];
    assert_eq!(function["used_as"], "dpdk-0000:6b:00.1_qat_comp");
}

#[test]
fn round_trips_of_the_configured_devices_are_made_and_right() {
    let machine = Machine::plain();
    let virtual_iaa = ["doctor", "--device", "worker,virtual-iaa", "--allow-virtual"];
    let (report, code) = json(&machine, &virtual_iaa);
    let trips = report["round_trips"].as_array().unwrap();
    let trip = |name: &str| trips.iter().find(|trip| trip["device"] == name).unwrap();
    assert_eq!((trips.len(), code), (3, 0), "{report:#}");
    assert_eq!(trip("software")["codecs"].as_array().unwrap().len(), 3);
    assert_eq!(trip("worker")["kernels"].as_array().unwrap().len(), 8);
    let codec = &trip("virtual-iaa")["codecs"][0];
    assert_eq!(codec["codec"], "deflate");
    assert!(codec["compress_us"].is_u64() && codec["decompress_us"].is_u64(), "{codec}");
    assert!((1..60_000).contains(&codec["compressed_bytes"].as_u64().unwrap()), "{codec}");
}

#[test]
fn a_missing_service_does_not_keep_others_from_being_tried() {
    // No process listens on port 1.
    let args = ["doctor", "--set", "runtime.compression=127.0.0.1:1"];
    let (report, code) = json(&Machine::plain(), &args);
    let devices = report["devices"].as_array().unwrap();
    let finding = |name: &str| devices.iter().find(|finding| finding["about"] == name).unwrap();
    assert_eq!(finding("remote-127.0.0.1:1")["severity"], "problem", "{report:#}");
    assert_eq!((&finding("worker")["severity"], code), (&"ok".into(), 1));
}

#[test]
fn devices_fit_a_terminal_and_say_where_jobs_go() {
    let machine = Machine::with_iaa();
    for machine in [&machine, &Machine::with_qat()] {
        let (text, code) = run(machine, &["devices"]);
        let wide: Vec<_> = text.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(wide.is_empty() && code == 0, "{wide:#?}");
    }
    let (text, _) = run(&machine, &["devices"]);
    assert!(text.contains("wq1.0") && text.contains("policy bounded-inline"), "{text}");

    let emulated = ["devices", "--device", "worker,virtual-iaa", "--allow-virtual"];
    let route = |args: &[&str], op: &str, bytes: u64| {
        let (report, _) = json(&machine, &[&emulated, args].concat());
        let routes = report["routes"]["routes"].as_array().unwrap().clone();
        let holds = |route: &&Value| {
            let [low, high] = [0, 1].map(|end| route["bytes"][end].as_u64().unwrap());
            route["op"] == op && (low..=high).contains(&bytes)
        };
        let route = routes.iter().find(holds).unwrap_or_else(|| panic!("{op} {bytes}"));
        format!("{} {}", route["device"], route["reason"]).replace('"', "")
    };
    let iaa = ["--set", "compress.readable_by=iaa"];
    assert_eq!(route(&iaa, "compress", 512), "software small");
    assert_eq!(route(&iaa, "compress", 65_536), "virtual-iaa policy");
    assert_eq!(route(&iaa, "decompress", 1 << 20), "virtual-iaa policy");
    assert_eq!(route(&[], "decompress", 65_536), "software ineligible");
    assert_eq!(route(&iaa, "copy", 1 << 20), "worker ineligible");
    let forbidden = ["--set", "runtime.fallback_compress=forbid"];
    assert_eq!(route(&forbidden, "compress", 4_096), "software configured");
    assert_eq!(route(&["--policy", "always-software"], "compress", 4_096), "software policy");
}

#[test]
fn a_device_that_does_not_open_is_listed_with_why() {
    let root = Machine::plain();
    for command in ["devices", "doctor"] {
        let mut wrong = Command::new(env!("CARGO_BIN_EXE_rebate"));
        let output = wrong.args([command, "--device", "qat"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("no device is called \"qat\""), "{said}");
    }
    let (report, code) = json(&root, &["devices", "--device", "qpl-software,worker"]);
    let refused = &report["refused"][0];
    if refused.is_object() {
        assert_eq!(refused["name"], "qpl-software");
        assert!(refused["why"].as_str().unwrap().contains("scripts/qpl.sh"), "{refused}");
    } else {
        println!("libqpl.so is installed here: that a missing one is listed was not tested");
    }
    let names = report["devices"].as_array().unwrap();
    assert!(names.iter().any(|device| device["name"] == "worker") && code == 0);
}
