//! Turns a device's report of a finished operation into an outcome. This is a pure function. The numbers of a report
//! may have any value, so it accepts a size only if the buffer has space for it. It reads and retries nothing.

use device::{DeviceError, Outcome};

/// The facts about a requested operation that are needed to check its report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) direction: Direction,
    /// The size of the input (bytes). The device must consume all of it.
    pub(super) input_bytes: usize,
    /// True if an error of the device means an invalid stream. This is so if the device is a program on this
    /// core, which has no hardware faults.
    pub(super) blames_the_stream: bool,
    /// The kind of the bytes that followed the stream.
    pub(super) followed_by: Follow,
}

/// The bytes that the device may read behind a stream. They show whether it misses the stream's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follow {
    Nothing,
    Zeros,
    /// Bytes of one bits, for a second run of the operation. A whole stream gives the same output as with
    /// zeros. A stream whose last code or stored block was completed by zeros gives another output.
    Ones,
}

/// The direction of the work, and the space for its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Compression into `capacity_bytes`.
    Compress { capacity_bytes: usize },
    /// Decompression to exactly `original_bytes`.
    Decompress { original_bytes: usize },
}

/// Returns the outcome. `status` is an `enum rte_comp_op_status`. `consumed` and `produced` are the bytes that the
/// device claims to have consumed and produced. Returns none if the device consumed some of the zeros that followed
/// the stream. In that case either the device reads ahead or the stream has no end. To find out which, the caller runs
/// the job again with bytes of all ones behind the stream.
pub(super) fn outcome(asked: Asked, status: u32, consumed: u32, produced: u32) -> Option<Outcome> {
    let (consumed, produced) = (consumed as usize, produced as usize);
    Some(match asked.direction {
        Direction::Compress { capacity_bytes } => match status {
            SUCCESS if consumed != asked.input_bytes => fault("the device read another length"),
            SUCCESS if produced == 0 || produced > capacity_bytes => {
                fault("the device states an impossible size of its result")
            }
            SUCCESS => Outcome::Done { output_bytes: produced },
            OUT_OF_SPACE_TERMINATED | OUT_OF_SPACE_RECOVERABLE => Outcome::DoesNotFit,
            _ => other(status),
        },
        Direction::Decompress { original_bytes } => match status {
            SUCCESS => return decompressed(asked, original_bytes, consumed, produced),
            OUT_OF_SPACE_TERMINATED | OUT_OF_SPACE_RECOVERABLE => invalid(LONGER),
            ERROR if asked.blames_the_stream => invalid("not a deflate stream"),
            _ => other(status),
        },
    })
}

fn decompressed(
    asked: Asked,
    original_bytes: usize,
    consumed: usize,
    produced: usize,
) -> Option<Outcome> {
    let beyond = consumed > asked.input_bytes;
    Some(match asked.followed_by {
        Follow::Nothing if beyond => fault("the device read more than it was given"),
        _ if produced > original_bytes => invalid(LONGER),
        _ if produced < original_bytes => invalid("deflate stream is shorter than stated"),
        Follow::Zeros if beyond => return None,
        _ if consumed < asked.input_bytes => invalid("bytes follow the deflate stream"),
        Follow::Nothing | Follow::Zeros | Follow::Ones => Outcome::Done { output_bytes: produced },
    })
}

fn other(status: u32) -> Outcome {
    Outcome::Failed(error(status))
}

/// Returns the error of an operation that failed with `status`.
pub(super) fn error(status: u32) -> DeviceError {
    DeviceError::Fault(match status {
        NOT_PROCESSED => "the device did not process the operation",
        INVALID_ARGS => "the device refused the operation's arguments",
        ERROR => "the device reports an error",
        INVALID_STATE => "the device refused the operation in its state",
        OUT_OF_SPACE_TERMINATED | OUT_OF_SPACE_RECOVERABLE => "the device ran out of space",
        _ => "the device reports a status that is not DPDK's",
    })
}

fn fault(what: &'static str) -> Outcome {
    Outcome::Failed(DeviceError::Fault(what))
}

fn invalid(what: &'static str) -> Outcome {
    Outcome::Failed(DeviceError::InvalidInput(what))
}

/// Returns the outcome for a stream whose result changed with the bytes behind it.
pub(super) fn ends_early() -> Outcome {
    invalid("deflate stream ends early")
}

const LONGER: &str = "deflate stream is longer than stated";

const SUCCESS: u32 = 0;
const NOT_PROCESSED: u32 = 1;
const INVALID_ARGS: u32 = 2;
const ERROR: u32 = 3;
const INVALID_STATE: u32 = 4;
const OUT_OF_SPACE_TERMINATED: u32 = 5;
const OUT_OF_SPACE_RECOVERABLE: u32 = 6;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIRECTIONS: [Direction; 3] = [
        Direction::Compress { capacity_bytes: 1_000 },
        Direction::Decompress { original_bytes: 1_000 },
        Direction::Decompress { original_bytes: 0 },
    ];
    const FOLLOWS: [Follow; 3] = [Follow::Nothing, Follow::Zeros, Follow::Ones];

    fn every(direction: Direction, input_bytes: usize) -> impl Iterator<Item = Asked> {
        FOLLOWS.into_iter().flat_map(move |followed_by| {
            [false, true].map(|blames_the_stream| Asked {
                direction,
                input_bytes,
                blames_the_stream,
                followed_by,
            })
        })
    }

    /// Checks four rules. Only a success gives a result. A result fits its space and has the stated size. A
    /// compression never ends with an outcome of decompression, or the reverse. Only a decompression that
    /// consumed zeros and gave the whole result runs a second time.
    fn check(asked: Asked, status: u32, consumed: u32, produced: u32) {
        let (read_bytes, written_bytes) = (consumed as usize, produced as usize);
        let judged = outcome(asked, status, consumed, produced);
        let allowed = match (asked.direction, judged) {
            (Direction::Decompress { original_bytes }, None) => {
                asked.followed_by == Follow::Zeros
                    && written_bytes == original_bytes
                    && read_bytes > asked.input_bytes
            }
            (Direction::Compress { .. }, None) => false,
            (_, Some(Outcome::Done { .. })) if status != SUCCESS => false,
            (Direction::Compress { capacity_bytes }, Some(Outcome::Done { output_bytes })) => {
                output_bytes == written_bytes
                    && (1..=capacity_bytes).contains(&output_bytes)
                    && read_bytes == asked.input_bytes
            }
            (Direction::Decompress { original_bytes }, Some(Outcome::Done { output_bytes })) => {
                output_bytes == original_bytes
                    && written_bytes == original_bytes
                    && (read_bytes == asked.input_bytes
                        || asked.followed_by == Follow::Ones && read_bytes > asked.input_bytes)
            }
            (Direction::Compress { .. }, Some(Outcome::DoesNotFit)) => status != SUCCESS,
            (Direction::Decompress { .. }, Some(Outcome::DoesNotFit)) => false,
            (direction, Some(Outcome::Failed(DeviceError::InvalidInput(_)))) => {
                matches!(direction, Direction::Decompress { .. })
            }
            (_, Some(Outcome::Failed(error))) => matches!(error, DeviceError::Fault(_)),
        };
        assert!(allowed, "{asked:?} {status} {consumed} {produced}");
    }

    #[test]
    fn every_status_with_every_hostile_size_is_judged() {
        let sizes = [0, 1, 299, 300, 301, 999, 1_000, 1_001, 1 << 31, u32::MAX];
        for asked in DIRECTIONS.into_iter().flat_map(|direction| every(direction, 300)) {
            for status in (0..=16).chain([1 << 31, u32::MAX]) {
                for (consumed, produced) in
                    sizes.iter().flat_map(|one| sizes.iter().map(move |two| (*one, *two)))
                {
                    check(asked, status, consumed, produced);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_numbers_are_judged(
            status in 0u32..8, consumed: u32, produced: u32, capacity_bytes: usize,
        ) {
            let both = [
                Direction::Compress { capacity_bytes },
                Direction::Decompress { original_bytes: capacity_bytes },
                Direction::Decompress { original_bytes: produced as usize },
            ];
            for direction in both {
                for input_bytes in [consumed as usize, capacity_bytes] {
                    for asked in every(direction, input_bytes) {
                        check(asked, status, consumed, produced);
                    }
                }
            }
        }
    }

    #[test]
    fn each_status_names_who_must_act() {
        let [compress, decompress, _] = DIRECTIONS;
        let outcome_of = |direction, status, blames_the_stream| {
            let followed_by = Follow::Nothing;
            let asked = Asked { direction, input_bytes: 300, blames_the_stream, followed_by };
            outcome(asked, status, 300, 1_000).expect("nothing followed")
        };
        let is_fault = |outcome| matches!(outcome, Outcome::Failed(DeviceError::Fault(_)));
        let is_invalid = |outcome| matches!(outcome, Outcome::Failed(DeviceError::InvalidInput(_)));
        for blames in [false, true] {
            let done = Outcome::Done { output_bytes: 1_000 };
            assert_eq!(outcome_of(compress, SUCCESS, blames), done);
            assert_eq!(outcome_of(decompress, SUCCESS, blames), done);
            for status in [OUT_OF_SPACE_TERMINATED, OUT_OF_SPACE_RECOVERABLE] {
                assert_eq!(outcome_of(compress, status, blames), Outcome::DoesNotFit);
                assert!(is_invalid(outcome_of(decompress, status, blames)));
            }
            for status in [NOT_PROCESSED, INVALID_ARGS, INVALID_STATE, 7] {
                assert!(is_fault(outcome_of(compress, status, blames)), "{status}");
                assert!(is_fault(outcome_of(decompress, status, blames)), "{status}");
            }
            assert!(is_fault(outcome_of(compress, ERROR, blames)));
        }
        assert!(is_invalid(outcome_of(decompress, ERROR, true)));
        assert!(
            is_fault(outcome_of(decompress, ERROR, false)),
            "software can tell whose fault it is"
        );
    }

    #[test]
    fn short_and_long_streams_are_told_apart() {
        let direction = Direction::Decompress { original_bytes: 1_000 };
        let outcome_after = |followed_by, consumed, produced| {
            let asked = Asked { direction, input_bytes: 300, blames_the_stream: true, followed_by };
            outcome(asked, SUCCESS, consumed, produced)
        };
        for (consumed, produced, expected) in [
            (300, 1_001, "longer than stated"),
            (301, 1_001, "longer than stated"),
            (300, 999, "shorter than stated"),
            (299, 1_000, "bytes follow"),
        ] {
            for followed_by in [Follow::Zeros, Follow::Ones] {
                let Some(Outcome::Failed(error)) = outcome_after(followed_by, consumed, produced)
                else {
                    panic!("{consumed} {produced} is no result");
                };
                assert!(error.to_string().contains(expected), "{error}");
            }
        }
        let done = Some(Outcome::Done { output_bytes: 1_000 });
        assert_eq!(outcome_after(Follow::Zeros, 300, 1_000), done);
        assert_eq!(outcome_after(Follow::Zeros, 308, 1_000), None);
        assert_eq!(outcome_after(Follow::Ones, 308, 1_000), done);
    }
}
