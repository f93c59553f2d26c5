//! The held-out cases. They were defined on 2026-11-22, before they or their mixes were measured, and no
//! microbenchmark was designed for them. Compared with the other cases, the accelerators have different
//! kernels, and the kernels have different sizes and shares. They are reported separately and must not be
//! changed: they test the model only because their results were unknown when it was made.

use super::{
    By, Case, DOCUMENTS, Kernel, OFF_ASYNC, OFF_SYNC, ON, PAGES, REMOTE, SYNC, VALUES, case,
};

/// Returns every held-out case.
pub(in super::super) fn held_out() -> Vec<Case> {
    let encrypted = ("held_out.aes_ni", "AES-NI, 2 % of the documents encrypted");
    let checked = ("held_out.crc32c", "hardware CRC-32C, four in ten are sets");
    let deflated = ("held_out.iaa.sync", "virtual IAA deflates, the core waits");
    let inflated = ("held_out.iaa.async", "virtual IAA inflates small values, the core goes on");
    let beside = ("held_out.worker.async", "another core deflates, the thread goes on");
    let remote = ("held_out.remote.lane", "a compression service over shared memory inflates");
    let cases = [
        case(encrypted, Kernel::Cipher, ON, SYNC, DOCUMENTS).encrypted(0.02),
        case(checked, Kernel::Checksum, ON, SYNC, VALUES).gets(0.6).encrypted(0.5).compressed(0.5),
        case(deflated, Kernel::Compress, By::VirtualIaa(1), OFF_SYNC, PAGES)
            .gets(0.5)
            .compressed(0.5),
        case(inflated, Kernel::Decompress, By::VirtualIaa(16), OFF_ASYNC, VALUES).compressed(0.7),
        case(beside, Kernel::Compress, By::Worker(16), OFF_ASYNC, DOCUMENTS)
            .gets(0.5)
            .encrypted(1.0)
            .compressed(0.1),
        case(remote, Kernel::Decompress, By::Lane(8), REMOTE, DOCUMENTS)
            .encrypted(1.0)
            .compressed(0.2)
            .of_process(),
    ];
    cases.into_iter().map(|case| Case { is_held_out: true, ..case }).collect()
}
