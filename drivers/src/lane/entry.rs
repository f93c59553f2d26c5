//! Encodes jobs and answers as entries of the rings. An entry has eight words in the machine's byte order. Reading an
//! entry checks its content: every field must be in its range, and unused words must be zero. It does not depend on
//! who wrote the entry. The memory checks whether offsets are within a region.

use device::lane::NoResult;
use device::{Class, Codec, Dialect, Level, Task, TenantId};
use units::{Nanos, TraceContext};

use crate::shared::memory::ENTRY_WORDS;

type Words = [u64; ENTRY_WORDS];

/// A job that the client submits to the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Submission {
    /// The client's number for the job, which the answer repeats.
    pub(super) mark: u64,
    pub(super) work: Work,
    pub(super) class: Class,
    pub(super) tenant: TenantId,
    /// The position of the input in the client's region (bytes). `input_bytes` is its size.
    pub(super) offset: u64,
    pub(super) input_bytes: u32,
    /// The size above which a result is of no use (bytes).
    pub(super) output_bytes: u32,
    /// The time left until the job's deadline.
    pub(super) time_left: Option<Nanos>,
    /// The trace of the request that needs the job, if that is recorded. A message has its own.
    pub(super) trace: Option<TraceContext>,
}

/// What a job does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// One op, which an entry can express.
    Task(Task),
    /// What a message `rebate.v1.RunRequest` in the client's region says.
    Message {
        /// The position of the message (bytes).
        offset: u64,
        /// The size of the message (bytes).
        bytes: u32,
    },
}

/// The outcome of a job: it has a result, or there is a reason why not.
pub(super) type Answer = Result<(), NoResult>;

/// An answer that the service sends to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) mark: u64,
    pub(super) answer: Answer,
    /// The position of the result in the service's region (bytes). `output_bytes` is its size.
    pub(super) offset: u64,
    pub(super) output_bytes: u32,
    pub(super) follow: Followed,
    pub(super) service: Nanos,
}

/// Whether an op followed the job's own op, so that the answer has two results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Followed {
    No,
    /// It did not, because the service does not have the key.
    KeyUnknown,
    Yes {
        /// The position of the first op's result (bytes).
        offset: u64,
        /// The size of the first op's result (bytes).
        bytes: u32,
        /// The time that the first op took.
        service: Nanos,
    },
}

impl Submission {
    /// Returns the entry, or none for a task that lanes do not support.
    pub(super) fn encode(&self) -> Option<Words> {
        let (what, last) = match &self.work {
            Work::Task(task) => {
                (task_code(task)?, self.trace.map_or([0; 3], TraceContext::to_words))
            }
            Work::Message { offset, bytes } => (OP_MESSAGE, [*offset, u64::from(*bytes), 0]),
        };
        let class = match self.class {
            Class::LatencyCritical => 0,
            Class::Batch => 1,
        };
        let tenant = u64::from(self.tenant.0);
        let what = what | class << 32 | tenant << 40;
        let sizes = u64::from(self.input_bytes) | u64::from(self.output_bytes) << 32;
        // Zero means no limit, so a deadline that has passed becomes 1 ns.
        let time_left = self.time_left.map_or(0, |left| left.0.max(1));
        let [fifth, sixth, seventh] = last;
        Some([self.mark, what, self.offset, sizes, time_left, fifth, sixth, seventh])
    }

    /// Reads the entry. If it is not a valid job, returns its mark as the error.
    pub(super) fn decode(words: Words) -> Result<Self, u64> {
        let [mark, what, offset, sizes, time_left, last @ ..] = words;
        let (work, trace) = if what & 0xFFFF_FFFF == OP_MESSAGE {
            let [offset, bytes, rest] = last;
            let bytes = u32::try_from(bytes).ok().filter(|_| rest == 0);
            (bytes.map(|bytes| Work::Message { offset, bytes }), None)
        } else {
            let task = task(what, (sizes >> 32) as usize);
            (task.map(Work::Task), TraceContext::read_words(last).map_err(|_| mark)?)
        };
        let class = match byte(what, 4) {
            0 => Some(Class::LatencyCritical),
            1 => Some(Class::Batch),
            _ => None,
        };
        let (Some(work), Some(class), 0) = (work, class, what >> 56) else { return Err(mark) };
        Ok(Self {
            mark,
            work,
            class,
            tenant: TenantId((what >> 40) as u16),
            offset,
            input_bytes: sizes as u32,
            output_bytes: (sizes >> 32) as u32,
            time_left: (time_left != 0).then_some(Nanos(time_left)),
            trace,
        })
    }
}

impl Completion {
    pub(super) fn encode(&self) -> Words {
        let sizes = u64::from(self.output_bytes);
        let code = answer_code(self.answer);
        let [offset, bytes, last] = match self.follow {
            Followed::No => [0; 3],
            Followed::KeyUnknown => [0, 0, KEY_UNKNOWN],
            Followed::Yes { offset, bytes, service } => [offset, u64::from(bytes), service.0],
        };
        [self.mark, code, self.offset, sizes, self.service.0, offset, bytes, last]
    }

    /// Reads the entry. Returns none if it is not a valid answer.
    pub(super) fn decode(words: Words) -> Option<Self> {
        let [mark, code, offset, sizes, service, follow @ ..] = words;
        let answer = ANSWERS.into_iter().find(|answer| answer_code(*answer) == code)?;
        let output_bytes = u32::try_from(sizes).ok()?;
        // No result of an op that another op follows is empty.
        let follow = match follow {
            [0, 0, 0] => Followed::No,
            [0, 0, KEY_UNKNOWN] => Followed::KeyUnknown,
            [_, 0, _] => return None,
            [offset, bytes, service] => {
                let bytes = u32::try_from(bytes).ok()?;
                Followed::Yes { offset, bytes, service: Nanos(service) }
            }
        };
        Some(Self { mark, answer, offset, output_bytes, follow, service: Nanos(service) })
    }
}

/// Returns the low half of the word that says what a task does. Returns none for a task that needs a message, or that
/// lanes do not support.
fn task_code(task: &Task) -> Option<u64> {
    let (op, dialect, level) = match task {
        Task::Compress { dialect, level } => (OP_COMPRESS, dialect, level_code(*level)),
        Task::Decompress { dialect, .. } => (OP_DECOMPRESS, dialect, 0),
        Task::Encrypt { .. }
        | Task::Decrypt { .. }
        | Task::Checksum { .. }
        | Task::Copy
        | Task::Function(_) => return None,
    };
    let codec = u64::from(dialect.codec.frame_number());
    // Any wider window contains every value as a whole.
    let window = dialect.window_log2.map_or(NO_WINDOW, |log2| u64::from(log2.min(WINDOW_LOG2_MAX)));
    Some(op | codec << 8 | window << 16 | level << 24)
}

fn task(what: u64, output_bytes: usize) -> Option<Task> {
    let codec = Codec::from_frame_number(byte(what, 1) as u8)?;
    let window_log2 = match byte(what, 2) {
        NO_WINDOW => None,
        log2 if log2 <= u64::from(WINDOW_LOG2_MAX) => Some(log2 as u8),
        _ => return None,
    };
    let dialect = Dialect { codec, window_log2 };
    match (what & 0xFF, byte(what, 3)) {
        (OP_COMPRESS, level) => {
            let level = LEVELS.into_iter().find(|known| level_code(*known) == level)?;
            Some(Task::Compress { dialect, level })
        }
        (OP_DECOMPRESS, 0) => Some(Task::Decompress { dialect, original_bytes: output_bytes }),
        _ => None,
    }
}

fn byte(word: u64, number: u32) -> u64 {
    word >> (8 * number) & 0xFF
}

const fn level_code(level: Level) -> u64 {
    match level {
        Level::Default => 0,
        Level::Fast => 1,
        Level::High => 2,
    }
}

const LEVELS: [Level; 3] = [Level::Default, Level::Fast, Level::High];

const fn answer_code(answer: Answer) -> u64 {
    match answer {
        Ok(()) => 1,
        Err(NoResult::DoesNotFit) => 2,
        Err(NoResult::InvalidInput) => 3,
        Err(NoResult::Fault) => 4,
        Err(NoResult::Busy) => 5,
        Err(NoResult::Refused) => 6,
        Err(NoResult::UnknownKey) => 7,
    }
}

const ANSWERS: [Answer; 7] = [
    Ok(()),
    Err(NoResult::DoesNotFit),
    Err(NoResult::InvalidInput),
    Err(NoResult::Fault),
    Err(NoResult::Busy),
    Err(NoResult::Refused),
    Err(NoResult::UnknownKey),
];

/// The last word of an answer whose service does not have the key of the op that should follow.
const KEY_UNKNOWN: u64 = 1;

const OP_COMPRESS: u64 = 1;
const OP_DECOMPRESS: u64 = 2;
const OP_MESSAGE: u64 = 3;

/// The code for no window. Zero cannot be the code, because it means a window of one byte.
const NO_WINDOW: u64 = 0xFF;
const WINDOW_LOG2_MAX: u8 = 31;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_task() -> impl Strategy<Value = Task> {
        let codec = proptest::sample::select(Codec::ALL.as_slice());
        let window_log2 = proptest::option::of(0..=WINDOW_LOG2_MAX);
        let level = prop_oneof![Just(Level::Fast), Just(Level::Default), Just(Level::High)];
        (codec, window_log2, proptest::option::of(level), any::<u32>()).prop_map(
            |(codec, window_log2, level, bytes)| {
                let dialect = Dialect { codec, window_log2 };
                match level {
                    Some(level) => Task::Compress { dialect, level },
                    None => Task::Decompress { dialect, original_bytes: bytes as usize },
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_submission_is_read_as_it_was_written(
            task in any_task(),
            message in proptest::option::of(any::<(u64, u32)>()),
            (mark, offset, input_bytes, capacity) in any::<(u64, u64, u32, u32)>(),
            (tenant, batch, left) in any::<(u16, bool, Option<u64>)>(),
            trace in any::<Option<[u64; 3]>>(),
        ) {
            let output_bytes = task.output_bytes(0).map_or(capacity, |bytes| bytes as u32);
            let class = if batch { Class::Batch } else { Class::LatencyCritical };
            let time_left = left.map(|left| Nanos(left.max(1)));
            let tenant = TenantId(tenant);
            let trace = trace.and_then(|words| TraceContext::read_words(words).ok()).flatten();
            let (work, trace) = match message {
                Some((offset, bytes)) => (Work::Message { offset, bytes }, None),
                None => (Work::Task(task), trace),
            };
            let submission = Submission {
                mark, work, class, tenant, offset, input_bytes, output_bytes, time_left, trace,
            };
            let words = submission.encode().expect("has an entry");
            prop_assert_eq!(Submission::decode(words), Ok(submission));
        }

        #[test]
        fn any_words_are_read_or_refused(words in any::<[u64; ENTRY_WORDS]>(), small in 0..9_u64) {
            let mut words = words;
            words[1] = if small < 7 { small } else { words[1] };
            match Submission::decode(words) {
                Ok(submission) => prop_assert_eq!(submission.encode(), Some(words)),
                Err(mark) => prop_assert_eq!(mark, words[0]),
            }
            if let Some(completion) = Completion::decode(words) {
                prop_assert_eq!(completion.encode(), words);
            }
        }
    }

    #[test]
    fn exactly_the_written_answers_are_read() {
        for answer in ANSWERS {
            let yes = |offset, bytes| Followed::Yes { offset, bytes, service: Nanos(4) };
            let all = [Followed::No, Followed::KeyUnknown, yes(0, 3), yes(128, u32::MAX)];
            for follow in all {
                let (offset, output_bytes, service) = (64, 7, Nanos(9));
                let completion =
                    Completion { mark: 5, answer, offset, output_bytes, follow, service };
                assert_eq!(Completion::decode(completion.encode()), Some(completion));
            }
        }
        for word in [0, 8, u64::MAX] {
            assert_eq!(Completion::decode([5, word, 64, 7, 9, 0, 0, 0]), None);
        }
        assert_eq!(Completion::decode([5, 1, 64, 1 << 32, 9, 0, 0, 0]), None);
        assert_eq!(Completion::decode([5, 1, 64, 7, 9, 0, 0, 2]), None);
        assert_eq!(Completion::decode([5, 1, 64, 7, 9, 64, 0, 0]), None);
        assert_eq!(Completion::decode([5, 1, 64, 7, 9, 64, 1 << 32, 0]), None);
    }
}
