//! Decides what a job asks of the library, and answers the jobs that need no library: it takes no empty input and no
//! empty output. There are no calls and no pointers.

use device::{DeviceError, Job, Outcome, Polynomial, Task};

use super::outcome::Asked;

/// The next step for a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// The answer is known.
    Over(Outcome),
    /// The library has to answer.
    Run(Asked),
}

/// Returns the plan for a job whose task is accepted. The answer of a job that is over is in its output.
/// `blames_the_stream` says whether an error of a decompression can only be the stream's.
pub(super) fn plan(job: &mut Job, transfer_bytes_max: usize, blames_the_stream: bool) -> Plan {
    let room_bytes = job.output.capacity().saturating_sub(job.output_offset);
    let input_bytes = job.input.len();
    match job.task {
        Task::Compress { .. } if input_bytes == 0 && room_bytes >= EMPTY_STREAM.len() => {
            over_with(job, &EMPTY_STREAM)
        }
        Task::Compress { .. } if input_bytes == 0 || room_bytes == 0 => {
            Plan::Over(Outcome::DoesNotFit)
        }
        Task::Compress { .. } => {
            Plan::Run(Asked::Compress { room_bytes: room_bytes.min(transfer_bytes_max) })
        }
        Task::Decompress { original_bytes, .. } if original_bytes > room_bytes => NO_ROOM,
        Task::Decompress { .. } if input_bytes == 0 => invalid("no deflate stream: it is empty"),
        Task::Decompress { original_bytes, .. } => {
            Plan::Run(Asked::Decompress { input_bytes, original_bytes, blames_the_stream })
        }
        Task::Checksum { polynomial } => {
            let result_bytes = checksum_bytes(polynomial);
            match input_bytes {
                _ if result_bytes > room_bytes => NO_ROOM,
                0 => over_with(job, &[0; 8][..result_bytes]),
                _ => Plan::Run(Asked::Checksum { result_bytes }),
            }
        }
        Task::Encrypt { .. } | Task::Decrypt { .. } | Task::Copy => {
            Plan::Over(Outcome::Failed(DeviceError::Fault("qpl has no such operation")))
        }
    }
}

/// Returns the size of a checksum.
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

const NO_ROOM: Plan = invalid("the output buffer has no room for the result");

/// A final block of the fixed code that holds its end and nothing else.
const EMPTY_STREAM: [u8; 2] = [0x03, 0x00];
