//! Tests how the drivers of QPL and DPDK read a device's report about a finished job, with any status and any
//! sizes. The driver must never report more bytes than the buffer can hold, or a result that the library did
//! not report as a success. An unknown status must be a fault. An error must name a party that can act. A job
//! must be retried only once.

use arbitrary::Arbitrary;
use device::{DeviceError, Outcome};

// The pure part of the drivers. It is private to them, so its source is included.
#[allow(dead_code)]
#[path = "../../drivers/src/qpl/abi.rs"]
mod abi;
#[allow(dead_code)]
#[path = "../../drivers/src/dpdk/outcome.rs"]
mod dpdk;
#[allow(dead_code)]
#[path = "../../drivers/src/qpl/outcome.rs"]
mod qpl;

#[derive(Arbitrary, Debug)]
pub(super) struct Completion {
    task: Task,
    /// The size of the output buffer, or the size that the output must have.
    stated: Bytes,
    input: Bytes,
    blames_the_stream: bool,
    status: Status,
    read: Reported,
    written: Reported,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
enum Task {
    Compress,
    Decompress,
    Checksum,
}

/// A buffer's size, which may exceed what the libraries can count.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Bytes {
    Few(u16),
    Any(u64),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Status {
    /// A low status. All statuses with a name are in this range.
    Low(u16),
    Any(u32),
}

/// A size as a device reports it.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Reported {
    /// The requested size, or a size close to it.
    Near(i8),
    Any(u32),
}

pub(super) fn fuzz(completion: Completion) {
    let status = match completion.status {
        Status::Low(status) => u32::from(status) % STATUS_END,
        Status::Any(status) => status,
    };
    let (input, stated) = (completion.input.get(), completion.stated.get());
    let (read, written) = (completion.read.near(input), completion.written.near(stated));
    by_qpl(&completion, qpl::Report { status, read_bytes: read, written_bytes: written });
    if completion.task != Task::Checksum {
        by_dpdk(&completion, status, read, written);
    }
}

fn by_qpl(completion: &Completion, report: qpl::Report) {
    let (input_bytes, stated) = (completion.input.get(), completion.stated.get());
    let blames_the_stream = completion.blames_the_stream;
    let asked = match completion.task {
        Task::Compress => qpl::Asked::Compress { capacity_bytes: stated },
        Task::Decompress => {
            let original_bytes = stated;
            qpl::Asked::Decompress { input_bytes, original_bytes, blames_the_stream }
        }
        Task::Checksum => qpl::Asked::Checksum { result_bytes: stated },
    };
    let outcome = qpl::outcome(asked, report);
    let (read, written) = (report.read_bytes as usize, report.written_bytes as usize);
    match (completion.task, &outcome) {
        (task, Outcome::Done { output_bytes }) => {
            assert_eq!(report.status, abi::status::OK, "{completion:?}");
            assert!(*output_bytes <= stated, "{completion:?}: {outcome:?}");
            assert!(task == Task::Compress || *output_bytes == stated, "{completion:?}");
            assert!(task == Task::Checksum || written == *output_bytes, "{completion:?}");
            assert!(task != Task::Decompress || read == input_bytes, "{completion:?}");
            assert!(task != Task::Compress || *output_bytes > 0, "no stream is empty");
        }
        (task, Outcome::DoesNotFit) => assert_eq!(task, Task::Compress, "{completion:?}"),
        (task, Outcome::Failed(DeviceError::InvalidInput(_))) => {
            assert!(task == Task::Decompress && blames_the_stream, "{completion:?}");
        }
        (_, Outcome::Failed(DeviceError::Busy)) => {
            assert_eq!(report.status, abi::status::QUEUES_BUSY, "{completion:?}");
        }
        (_, Outcome::Failed(DeviceError::Lost)) => {
            let lost = abi::status::NO_HARDWARE..=abi::status::NO_WORK_QUEUES;
            assert!(lost.contains(&report.status), "{completion:?}");
        }
        (_, Outcome::Failed(DeviceError::Fault(_) | DeviceError::Misconfigured(_))) => {}
        (_, Outcome::Failed(other)) => panic!("{completion:?}: nothing reports {other:?}"),
    }
    if report.status >= STATUS_END || qpl::is_page_fault(report.status) {
        assert!(is_fault(&outcome), "{completion:?}: {outcome:?}");
    }
}

fn by_dpdk(completion: &Completion, status: u32, read: u32, written: u32) {
    let (input_bytes, stated) = (completion.input.get(), completion.stated.get());
    let compresses = completion.task == Task::Compress;
    let direction = match compresses {
        true => dpdk::Direction::Compress { capacity_bytes: stated },
        false => dpdk::Direction::Decompress { original_bytes: stated },
    };
    for followed_by in [dpdk::Follow::Nothing, dpdk::Follow::Zeros, dpdk::Follow::Ones] {
        let blames_the_stream = completion.blames_the_stream;
        let asked = dpdk::Asked { direction, input_bytes, blames_the_stream, followed_by };
        let Some(outcome) = dpdk::outcome(asked, status, read, written) else {
            let ends = !compresses && read as usize > input_bytes && written as usize == stated;
            assert!(ends && followed_by == dpdk::Follow::Zeros, "{asked:?}: asked for again");
            continue;
        };
        match &outcome {
            Outcome::Done { output_bytes } => {
                assert_eq!((status, *output_bytes), (0, written as usize), "{asked:?}");
                assert!(*output_bytes <= stated, "{asked:?}: {outcome:?}");
                assert!(if compresses { written > 0 } else { *output_bytes == stated });
                let ahead = !compresses && followed_by == dpdk::Follow::Ones;
                let whole = read as usize == input_bytes || ahead && read as usize > input_bytes;
                assert!(whole, "{asked:?}: {read} B of the input read");
            }
            Outcome::DoesNotFit => assert!(compresses && status != 0, "{asked:?}"),
            Outcome::Failed(DeviceError::InvalidInput(_)) => assert!(!compresses, "{asked:?}"),
            _ => assert!(is_fault(&outcome), "{asked:?}: {outcome:?}"),
        }
        assert!(status < STATUS_END || is_fault(&outcome), "{asked:?}: {outcome:?}");
    }
}

fn is_fault(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(DeviceError::Fault(_)))
}

impl Bytes {
    fn get(self) -> usize {
        match self {
            Bytes::Few(bytes) => bytes.into(),
            Bytes::Any(bytes) => bytes as usize,
        }
    }
}

impl Reported {
    fn near(self, asked: usize) -> u32 {
        match self {
            Reported::Near(off) => (asked as u32).wrapping_add_signed(off.into()),
            Reported::Any(bytes) => bytes,
        }
    }
}

/// A status above all statuses that have a name in either library.
const STATUS_END: u32 = 1_000;
