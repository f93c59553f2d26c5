//! Decides what to request from the library for a job. Answers jobs that cannot use the library, because the library
//! accepts no empty input and no empty output. The module makes no calls and has no pointers.

use device::{DeviceError, Job, Outcome, Polynomial, Task};

use super::outcome::Asked;

/// The next step of a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// The outcome is known without the library.
    Over(Outcome),
    /// The library must run the job.
    Run(Asked),
}

/// Returns the plan for a job whose task is accepted. If the job is over, its result is already in its output.
/// `blames_the_stream` says whether an error of a decompression can only be the stream's fault.
pub(super) fn plan(job: &mut Job, transfer_bytes_max: usize, blames_the_stream: bool) -> Plan {
    let capacity_bytes = job.output.capacity().saturating_sub(job.output_offset);
    let input_bytes = job.input.len();
    match job.task {
        Task::Compress { .. } if input_bytes == 0 && capacity_bytes >= EMPTY_STREAM.len() => {
            over_with(job, &EMPTY_STREAM)
        }
        Task::Compress { .. } if input_bytes == 0 || capacity_bytes == 0 => {
            Plan::Over(Outcome::DoesNotFit)
        }
        Task::Compress { .. } => {
            Plan::Run(Asked::Compress { capacity_bytes: capacity_bytes.min(transfer_bytes_max) })
        }
        Task::Decompress { original_bytes, .. } if original_bytes > capacity_bytes => {
            OUTPUT_TOO_SMALL
        }
        Task::Decompress { .. } if input_bytes == 0 => invalid("no deflate stream: it is empty"),
        Task::Decompress { original_bytes, .. } => {
            Plan::Run(Asked::Decompress { input_bytes, original_bytes, blames_the_stream })
        }
        Task::Checksum { polynomial } => {
            let result_bytes = checksum_bytes(polynomial);
            match input_bytes {
                _ if result_bytes > capacity_bytes => OUTPUT_TOO_SMALL,
                0 => over_with(job, &[0; 8][..result_bytes]),
                _ => Plan::Run(Asked::Checksum { result_bytes }),
            }
        }
        Task::Encrypt { .. } | Task::Decrypt { .. } | Task::Copy | Task::Function(_) => {
            Plan::Over(Outcome::Failed(DeviceError::Fault("qpl has no such operation")))
        }
    }
}

/// Returns the size of a checksum (bytes).
pub(super) const fn checksum_bytes(polynomial: Polynomial) -> usize {
    match polynomial {
        Polynomial::Crc32c => 4,
        Polynomial::Crc64 => 8,
    }
}

fn over_with(job: &mut Job, result: &[u8]) -> Plan {
    let (offset, output_bytes) = (job.output_offset, result.len());
    job.output.space()[offset..offset + output_bytes].copy_from_slice(result);
    job.output.set_len(offset + output_bytes);
    Plan::Over(Outcome::Done { output_bytes })
}

const fn invalid(what: &'static str) -> Plan {
    Plan::Over(Outcome::Failed(DeviceError::InvalidInput(what)))
}

const OUTPUT_TOO_SMALL: Plan = invalid("the output buffer has no room for the result");

/// A final block of the fixed code that contains only its end.
const EMPTY_STREAM: [u8; 2] = [0x03, 0x00];
