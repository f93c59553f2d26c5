//! The cases of the A/B runs. A case says which tax of the example service is accelerated, by which accelerator, and
//! how the service waits for it. The module has data only.

mod held_out;

use crate::accelerometer::service::{Kernel, Mix};
use model::{Design, Strategy, Threading};
use units::Op;
use workload::{PayloadClass, SizeDist};

pub(super) use held_out::held_out;

/// One A/B test. The two sides differ only in the accelerator (`by`).
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    pub(super) kernel: Kernel,
    pub(super) by: By,
    pub(super) design: Design,
    pub(super) mix: Mix,
    /// The number of the service's threads, which all run on one core.
    pub(super) threads: usize,
    /// The kind of time in which throughput is counted.
    pub(super) per: Per,
    /// True if the case was not measured before the model's estimate was first compared with it.
    pub(super) is_held_out: bool,
}

/// The accelerator of the kernel on the B side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// No accelerator: the difference between the sides is noise.
    Nothing,
    /// The processor's instructions.
    Instructions,
    /// The virtual IAA. The number is the greatest number of jobs in flight.
    VirtualIaa(usize),
    /// A thread on another core. The number is the greatest number of jobs in flight.
    Worker(usize),
    /// A compression service in another process over gRPC. The number is the greatest number of jobs in flight.
    Grpc(usize),
    /// A compression service in another process over shared memory. The number is the greatest number of jobs in
    /// flight.
    Lane(usize),
}

impl By {
    /// Returns the greatest number of jobs in flight, or None if the accelerator has no jobs.
    pub(super) const fn window(self) -> Option<usize> {
        match self {
            By::Nothing | By::Instructions => None,
            By::VirtualIaa(window) | By::Worker(window) | By::Grpc(window) | By::Lane(window) => {
                Some(window)
            }
        }
    }
}

/// The kind of time that counts as the cost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Per {
    /// The CPU time of the service's thread.
    Thread,
    /// The CPU time of the process. It is used if each connection has its own thread.
    Process,
    /// The wall time of the core. It is used if the core runs another thread of the service while one waits.
    Wall,
}

impl Per {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Per::Thread => "CPU time of the thread",
            Per::Process => "CPU time of the process",
            Per::Wall => "wall time of the core",
        }
    }
}

impl Case {
    /// Returns the op that the device executes.
    pub(super) fn op(&self) -> Op {
        if self.kernel == Kernel::Compress { Op::Compress } else { Op::Decompress }
    }
}

/// Returns every case that is not held out, with the A/A run first. Only a small share of the requests calls
/// a cipher or a codec. These shares were chosen for the first microbenchmark, which did not measure the time
/// that a kernel adds to the rest of a request. The present microbenchmark measures some of it, and the
/// held-out cases call their kernels more often.
pub(super) fn all() -> Vec<Case> {
    [on_chip(), off_chip(), remote()].concat()
}

fn on_chip() -> Vec<Case> {
    let a_a = ("a_a", "nothing: both sides alike");
    let values = ("aes_ni.small", "AES-NI, 3 % of the values encrypted");
    let pages = ("aes_ni.pages", "AES-NI, 5 % of the pages encrypted");
    let crc_values = ("crc32c.small", "hardware CRC-32C over values");
    let crc_pages = ("crc32c.pages", "hardware CRC-32C over pages");
    let checked = |case: Case| case.encrypted(1.0).compressed(1.0);
    vec![
        case(a_a, Kernel::Cipher, By::Nothing, SYNC, VALUES).encrypted(0.03),
        case(values, Kernel::Cipher, ON, SYNC, VALUES).encrypted(0.03),
        case(pages, Kernel::Cipher, ON, SYNC, PAGES).encrypted(0.05).compressed(0.5),
        checked(case(crc_values, Kernel::Checksum, ON, SYNC, VALUES)),
        checked(case(crc_pages, Kernel::Checksum, ON, SYNC, PAGES)),
    ]
}

fn off_chip() -> Vec<Case> {
    let inflate = |name, by, design, sizes| case(name, Kernel::Decompress, by, design, sizes);
    let pages = |case: Case| case.gets(0.7).compressed(1.0);
    let documents = |case: Case| case.encrypted(1.0).compressed(0.15);
    let sync = ("iaa.sync", "virtual IAA inflates, the core waits");
    let beside = ("iaa.async", "virtual IAA inflates, the core goes on");
    let worker = ("worker.async", "another core inflates, the thread goes on");
    let sleeps = ("worker.sync_os", "another core inflates, the core runs another thread");
    vec![
        pages(inflate(sync, By::VirtualIaa(1), OFF_SYNC, PAGES)),
        pages(inflate(beside, By::VirtualIaa(16), OFF_ASYNC, PAGES)),
        documents(inflate(worker, By::Worker(16), OFF_ASYNC, DOCUMENTS)),
        documents(inflate(sleeps, By::Worker(1), OFF_SYNC_OS, DOCUMENTS)).on_threads(8),
    ]
}

/// Returns the cases with a remote service. They have only sets, and a fifth of the sets is compressed.
fn remote() -> Vec<Case> {
    let deflate = |name, by| {
        let case = case(name, Kernel::Compress, by, REMOTE, DOCUMENTS);
        case.gets(0.0).encrypted(1.0).compressed(0.2).of_process()
    };
    vec![
        deflate(("remote.grpc", "a compression service over gRPC deflates"), By::Grpc(8)),
        deflate(("remote.lane", "a compression service over shared memory deflates"), By::Lane(8)),
    ]
}

/// The least and the greatest value size (bytes). The sizes between them have a log-uniform distribution.
const VALUES: (u64, u64) = (512, 8 << 10);
const PAGES: (u64, u64) = (2 << 10, 16 << 10);
const DOCUMENTS: (u64, u64) = (16 << 10, 128 << 10);

const ON: By = By::Instructions;
const SYNC: (Threading, Strategy) = (Threading::Sync, Strategy::OnChip);
const OFF_SYNC: (Threading, Strategy) = (Threading::Sync, Strategy::OffChip);
const OFF_ASYNC: (Threading, Strategy) = (Threading::Async, Strategy::OffChip);
const OFF_SYNC_OS: (Threading, Strategy) = (Threading::SyncOs, Strategy::OffChip);
/// The design with a remote service. The thread of the connection receives the responses.
const REMOTE: (Threading, Strategy) = (Threading::AsyncDistinct, Strategy::Remote);

fn case(
    (id, name): (&'static str, &'static str),
    kernel: Kernel,
    by: By,
    (threading, strategy): (Threading, Strategy),
    (least, most): (u64, u64),
) -> Case {
    let mean = (most - least) as f64 / (most as f64 / least as f64).ln();
    let mix = Mix {
        // There are so many values that a requested one is seldom in the core's own cache.
        keys: (VALUES_BYTES / mean) as usize,
        sizes: SizeDist::Quantiles { points: vec![(0.0, least), (1.0, most)] },
        payload: PayloadClass::Html,
        gets: 0.9,
        compressed: 0.0,
        encrypted: 0.0,
    };
    let design = Design::new(threading, strategy);
    let (threads, per, is_held_out) = (1, Per::Thread, false);
    Case { id, name, kernel, by, design, mix, threads, per, is_held_out }
}

impl Case {
    fn gets(mut self, share: f64) -> Self {
        self.mix.gets = share;
        self
    }

    fn compressed(mut self, share: f64) -> Self {
        self.mix.compressed = share;
        self
    }

    fn encrypted(mut self, share: f64) -> Self {
        self.mix.encrypted = share;
        self
    }

    fn on_threads(self, threads: usize) -> Self {
        Self { threads, per: Per::Wall, ..self }
    }

    fn of_process(self) -> Self {
        Self { per: Per::Process, ..self }
    }
}

const VALUES_BYTES: f64 = 8e6;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn held_out_cases_differ_from_the_shown_ones() {
        let (shown, held_out) = (all(), held_out());
        assert!(held_out.iter().all(|case| case.is_held_out && case.design.check().is_ok()));
        let mix = |case: &Case| format!("{:?} {:?} {:?}", case.kernel, case.by, case.mix);
        let known: HashSet<String> = shown.iter().map(mix).collect();
        assert!(held_out.iter().all(|case| !known.contains(&mix(case))));
        let ids: HashSet<&str> = shown.iter().chain(&held_out).map(|case| case.id).collect();
        assert_eq!(ids.len(), shown.len() + held_out.len());
    }

    #[test]
    fn every_design_and_strategy_has_a_case() {
        let cases = all();
        let ids: HashSet<&str> = cases.iter().map(|case| case.id).collect();
        assert_eq!(ids.len(), cases.len());
        assert!(cases.iter().filter(|case| case.by != By::Nothing).count() >= 8);
        for threading in [Threading::Sync, Threading::SyncOs, Threading::Async] {
            assert!(cases.iter().any(|case| case.design.threading == threading), "{threading}");
        }
        for strategy in Strategy::ALL {
            assert!(cases.iter().any(|case| case.design.strategy == strategy), "{strategy:?}");
        }
        assert!(cases.iter().all(|case| case.design.check().is_ok()));
        let alone = |case: &Case| case.by.window().is_none_or(|window| window > 1);
        let sleeps = |case: &Case| case.design.threading == Threading::SyncOs;
        assert!(cases.iter().filter(|case| sleeps(case)).all(|case| case.threads > 1));
        assert!(cases.iter().filter(|case| alone(case)).all(|case| case.threads == 1));
    }
}
