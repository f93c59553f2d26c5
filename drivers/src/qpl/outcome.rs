//! Turns the library's report of a finished job into an outcome. This is a pure function. The numbers of a report may
//! have any value, so it accepts a size only if the buffer has space for it. It reads and retries nothing.

use device::{DeviceError, Outcome};

use super::abi::status;

/// The facts about a requested job that are needed to check its report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Compression into `capacity_bytes`.
    Compress { capacity_bytes: usize },
    /// Decompression of all of `input_bytes` to exactly `original_bytes`. If `blames_the_stream` is true, an error is
    /// the stream's fault, because a program on this core runs the job. Otherwise an error may be the device's, and
    /// software must decide.
    Decompress { input_bytes: usize, original_bytes: usize, blames_the_stream: bool },
    /// A checksum whose size is `result_bytes`.
    Checksum { result_bytes: usize },
}

/// The report of the library.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    /// `qpl_status`.
    pub(super) status: u32,
    /// The bytes of the input that the library consumed.
    pub(super) read_bytes: u32,
    /// The bytes that the library wrote.
    pub(super) written_bytes: u32,
}

/// Returns the outcome of the job.
pub(super) fn outcome(asked: Asked, report: Report) -> Outcome {
    let written_bytes = report.written_bytes as usize;
    match (asked, report.status) {
        (Asked::Compress { capacity_bytes }, status::OK) => match written_bytes {
            1.. if written_bytes <= capacity_bytes => Outcome::Done { output_bytes: written_bytes },
            _ => fault("qpl states an impossible size of its result"),
        },
        (Asked::Compress { .. }, status::MORE_OUTPUT_NEEDED | status::OUTPUT_IS_SHORT) => {
            Outcome::DoesNotFit
        }
        (Asked::Decompress { input_bytes, original_bytes, blames_the_stream }, _) => {
            match decompressed(report, input_bytes, original_bytes) {
                Ok(()) => Outcome::Done { output_bytes: original_bytes },
                Err(DeviceError::InvalidInput(what)) if !blames_the_stream => fault(what),
                Err(error) => Outcome::Failed(error),
            }
        }
        (Asked::Checksum { result_bytes }, status::OK) => {
            Outcome::Done { output_bytes: result_bytes }
        }
        (_, code) => Outcome::Failed(error(code)),
    }
}

fn decompressed(
    report: Report,
    input_bytes: usize,
    original_bytes: usize,
) -> Result<(), DeviceError> {
    let invalid = |what| Err(DeviceError::InvalidInput(what));
    let (read_bytes, written_bytes) = (report.read_bytes as usize, report.written_bytes as usize);
    match report.status {
        status::OK if written_bytes > original_bytes.max(1) || read_bytes > input_bytes => {
            Err(DeviceError::Fault("qpl states an impossible size of its result"))
        }
        // The output of an empty result has space for one byte, so that a longer result is detected.
        status::OK if written_bytes > original_bytes => {
            invalid("deflate stream is longer than stated")
        }
        status::OK if written_bytes < original_bytes => {
            invalid("deflate stream is shorter than stated")
        }
        status::OK if read_bytes < input_bytes => invalid("bytes follow the deflate stream"),
        status::OK => Ok(()),
        status::MORE_OUTPUT_NEEDED | status::OUTPUT_IS_SHORT => {
            invalid("deflate stream is longer than stated")
        }
        status::MORE_INPUT_NEEDED => invalid("deflate stream ends early"),
        status::BAD_DISTANCE => invalid("deflate stream reaches back over 4 KiB, or nowhere"),
        status::INVALID_DEFLATE
        | status::BIG_HEADER..=status::REFERENCE_BEFORE_START
        | status::TOO_MANY_LENGTH_CODES
        | status::TOO_MANY_DISTANCE_CODES => invalid("not a deflate stream"),
        code => Err(error(code)),
    }
}

/// Returns the error for a status that concerns neither input nor output. The error says who must act.
fn error(code: u32) -> DeviceError {
    match code {
        status::QUEUES_BUSY => DeviceError::Busy,
        status::VERIFY_FAILED => DeviceError::Fault("the compressed form failed verification"),
        code if is_page_fault(code) => {
            DeviceError::Fault("page fault; set block_on_fault=1 on the work queue")
        }
        status::HARDWARE_TIMEOUT..=status::WATCHDOG => {
            DeviceError::Fault("the device gave the job up for taking too long")
        }
        status::NO_HARDWARE..=status::NO_WORK_QUEUES => DeviceError::Lost,
        status::NOT_SUPPORTED_BY_QUEUE => DeviceError::Misconfigured(
            "no work queue allows this operation; see its op_config".to_owned(),
        ),
        status::TRANSFER_TOO_LARGE => DeviceError::Misconfigured(
            "the job is over the work queue's max_transfer_size; raise it to 2 MiB or more"
                .to_owned(),
        ),
        _ => DeviceError::Fault("qpl refused or failed the job"),
    }
}

/// Returns whether the job failed because a page was missing, even after the library's only retry.
pub(super) const fn is_page_fault(code: u32) -> bool {
    matches!(
        code,
        status::PAGE_FAULT_READ
            | status::PAGE_REQUEST_READ
            | status::PAGE_REQUEST_TIMEOUT
            | status::PAGE_FAULT_WRITE
            | status::PAGE_REQUEST_WRITE
            | status::TRANSLATION_WRITE
    )
}

/// Returns the reason why a path cannot be used at all, from the status of `qpl_init_job`, and how to fix it.
pub(super) fn init_problem(code: u32) -> String {
    let what = match code {
        status::NO_HARDWARE => {
            "no Intel IAA that QPL supports; the processor has none, or its driver (idxd) is not \
             loaded, or ENQCMD is off (kernel: intel_iommu=on,sm_on)"
        }
        status::NO_ACCEL_CONFIG => {
            "libaccel-config.so.1 is missing or too old; QPL finds devices through it (Debian: \
             libaccel-config1)"
        }
        status::ACCEL_CONFIG_FAILED => "libaccel-config failed; is the idxd driver loaded?",
        status::NO_WORK_QUEUES => {
            "no work queue is usable: QPL needs one of mode shared and type user, enabled, and \
             this process needs read and write access to it under /dev/iax"
        }
        _ => "qpl_init_job failed",
    };
    format!("{what} (QPL status {code})")
}

fn fault(what: &'static str) -> Outcome {
    Outcome::Failed(DeviceError::Fault(what))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ASKED: [Asked; 5] = [
        Asked::Compress { capacity_bytes: 1_000 },
        read(1_000, true),
        read(0, true),
        read(1_000, false),
        Asked::Checksum { result_bytes: 8 },
    ];

    const fn read(original_bytes: usize, blames_the_stream: bool) -> Asked {
        Asked::Decompress { input_bytes: 300, original_bytes, blames_the_stream }
    }

    /// Checks three rules. Only a success gives a result. A result has the stated size and fits its space. An
    /// outcome that only one kind of job can have never ends another kind.
    fn check(asked: Asked, report: Report) {
        let written_bytes = report.written_bytes as usize;
        let allowed = match (asked, outcome(asked, report)) {
            (_, Outcome::Done { .. }) if report.status != status::OK => false,
            (Asked::Compress { capacity_bytes }, Outcome::Done { output_bytes }) => {
                output_bytes == written_bytes && (1..=capacity_bytes).contains(&output_bytes)
            }
            (
                Asked::Decompress { input_bytes, original_bytes, .. },
                Outcome::Done { output_bytes },
            ) => {
                output_bytes == original_bytes
                    && written_bytes == original_bytes
                    && report.read_bytes as usize == input_bytes
            }
            (Asked::Checksum { result_bytes }, Outcome::Done { output_bytes }) => {
                output_bytes == result_bytes
            }
            (Asked::Compress { .. }, Outcome::DoesNotFit) => report.status != status::OK,
            (_, Outcome::DoesNotFit) => false,
            (asked, Outcome::Failed(DeviceError::InvalidInput(_))) => {
                matches!(asked, Asked::Decompress { blames_the_stream: true, .. })
            }
            (_, Outcome::Failed(_)) => true,
        };
        assert!(allowed, "{asked:?} {report:?}");
    }

    #[test]
    fn every_status_with_every_hostile_size_is_judged() {
        let sizes = [0, 1, 299, 300, 301, 999, 1_000, 1_001, 1 << 31, u32::MAX];
        for asked in ASKED {
            for status in (0..1_000).chain([u32::MAX, 1 << 31]) {
                for (read_bytes, written_bytes) in
                    sizes.into_iter().flat_map(|read| sizes.map(|written| (read, written)))
                {
                    check(asked, Report { status, read_bytes, written_bytes });
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_numbers_are_judged(
            status in 0u32..1_000,
            read_bytes: u32,
            written_bytes: u32,
            capacity_bytes: usize,
            blames: bool,
        ) {
            let report = Report { status, read_bytes, written_bytes };
            check(Asked::Compress { capacity_bytes }, report);
            let (input_bytes, blames_the_stream) = (read_bytes as usize, blames);
            for original_bytes in [capacity_bytes, written_bytes as usize] {
                check(
                    Asked::Decompress { input_bytes, original_bytes, blames_the_stream },
                    report,
                );
            }
        }
    }

    #[test]
    fn each_kind_of_status_names_who_must_act() {
        let (read_bytes, written_bytes) = (300, 1_000);
        let outcome_of =
            |asked, status| outcome(asked, Report { status, read_bytes, written_bytes });
        let [compress, decompress, ..] = ASKED;
        assert_eq!(outcome_of(compress, 0), Outcome::Done { output_bytes: 1_000 });
        assert_eq!(outcome_of(decompress, 0), Outcome::Done { output_bytes: 1_000 });
        for status in [2, 225] {
            assert_eq!(outcome_of(compress, status), Outcome::DoesNotFit);
        }
        for status in [2, 3, 100, 201, 217, 218, 225, 235] {
            let judged = outcome_of(decompress, status);
            assert!(matches!(judged, Outcome::Failed(DeviceError::InvalidInput(_))), "{status}");
        }
        let by_device = |status, written_bytes| {
            outcome(read(1_000, false), Report { status, read_bytes, written_bytes })
        };
        let statuses = (200..300).map(|status| (status, 1_000));
        for (status, written_bytes) in
            statuses.chain([2, 3, 100].map(|code| (code, 0))).chain([(0, 999), (0, 0), (0, 1_001)])
        {
            let judged = by_device(status, written_bytes);
            assert!(
                matches!(judged, Outcome::Failed(DeviceError::Fault(_))),
                "{status} {judged:?}"
            );
        }
        assert_eq!(outcome_of(compress, 5), Outcome::Failed(DeviceError::Busy));
        for status in [6, 51, 219, 229, 303, 335, 336, 431, 999] {
            let judged = outcome_of(compress, status);
            assert!(matches!(judged, Outcome::Failed(DeviceError::Fault(_))), "{status}");
        }
        assert_eq!(outcome_of(compress, 503), Outcome::Failed(DeviceError::Lost));
        for status in [8, 319] {
            let judged = outcome_of(decompress, status);
            assert!(matches!(judged, Outcome::Failed(DeviceError::Misconfigured(_))), "{status}");
        }
    }
}
