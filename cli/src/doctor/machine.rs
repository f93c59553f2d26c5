//! Checks what every machine has: kernel, processor, and the memory that may be locked. Other modules check what only
//! accelerators need.

use drivers::host::{Capability, Machine, MemoryLock};
use units::ByteCount;

use super::finding::{Finding, Severity};

pub(super) fn findings(machine: &Machine) -> Vec<Finding> {
    let release = machine.kernel.as_deref().unwrap_or("of an unknown release");
    let kernel = Finding::new(Severity::Ok, "kernel", format!("Linux {release}"));
    [kernel].into_iter().chain(cpu(machine)).chain(memory_lock(machine)).collect()
}

/// Checks the processor features that codecs and kernels use if they find them at run time. Processors other than
/// x86-64 are not checked.
fn cpu(machine: &Machine) -> Option<Finding> {
    if !machine.x86 {
        return None;
    }
    let missing = FEATURES.iter().filter(|(flag, ..)| !machine.has_flag(flag));
    let missing: Vec<String> =
        missing.map(|(_, name, what)| format!("no {name}: {what} slow")).collect();
    if missing.is_empty() {
        let names: Vec<_> = FEATURES.iter().map(|(_, name, _)| *name).collect();
        let wide = AVX512.iter().all(|flag| machine.has_flag(flag));
        let wide = if wide { ", AVX-512" } else { "" };
        let what = format!("{}{wide}: codecs run at full speed", names.join(", "));
        return Some(Finding::new(Severity::Ok, "processor", what));
    }
    let what = format!(
        "{}. In a virtual machine its owner can show the host's processor (QEMU: -cpu host)",
        missing.join("; ")
    );
    Some(Finding::new(Severity::Note, "processor", what))
}

fn memory_lock(machine: &Machine) -> Option<Finding> {
    let limit = match machine.process.memory_lock? {
        _ if machine.process.has(Capability::IpcLock) => "unlimited (CAP_IPC_LOCK)".to_owned(),
        MemoryLock::Unlimited => "unlimited".to_owned(),
        MemoryLock::Bytes(bytes) => ByteCount(bytes).to_string(),
    };
    let what = format!("{limit}; only DPDK's hardware and `rebate memcached -k` lock memory");
    Some(Finding::new(Severity::Ok, "memlock", what))
}

/// The kernel's and the vendor's names of processor features, and the functions that are slow without them.
const FEATURES: [(&str, &str, &str); 4] = [
    ("sse4_2", "SSE4.2", "CRC-32C is"),
    ("pclmulqdq", "PCLMULQDQ", "CRC-64 and AES-GCM are"),
    ("aes", "AES-NI", "AES-GCM is"),
    ("avx2", "AVX2", "compression is"),
];

/// The features that ISA-L requires before it uses AVX-512.
const AVX512: [&str; 5] = ["avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"];
