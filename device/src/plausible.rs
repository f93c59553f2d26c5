//! A check of a stream that takes some tens of instructions and finds most garbage. It tells whether the
//! beginning of the stream can belong to a stream of the given input. It decodes only the first symbols, so a
//! stream that passes may still be wrong.

use crate::codec::Codec;
use crate::engines::implementation;

/// Returns true if `stream` cannot be `original` in this codec. A result of false proves nothing, because only
/// decompression can tell.
pub fn contradicts(codec: Codec, original: &[u8], stream: &[u8]) -> bool {
    if original.is_empty() {
        return false;
    }
    !(implementation(codec).may_be)(original, stream)
}

/// Returns whether the two slices are equal up to the end of the shorter slice.
pub(crate) fn agree(original: &[u8], literals: &[u8]) -> bool {
    let bytes = original.len().min(literals.len()).min(LITERALS_MAX);
    original[..bytes] == literals[..bytes]
}

/// The most bytes that are compared.
const LITERALS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Dialect, Level};
    use crate::contract::payload::Payload;
    use crate::engines::{BUILT_IN, EngineSet};
    use crate::{Input, Job, Outcome, Pool, Task};
    use units::{ByteCount, Prng};

    fn stream(codec: Codec, level: Level, original: &[u8]) -> Vec<u8> {
        let output = Pool::heap(ByteCount(0)).take(2 * original.len() + 1_024);
        let task = Task::Compress { dialect: Dialect::new(codec), level };
        let mut job = Job::new(task, Input::heap(original.to_vec().into()), output);
        match EngineSet::open(&BUILT_IN).run(&mut job) {
            Outcome::Done { output_bytes } => job.output[..output_bytes].to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_true_stream_is_contradicted() {
        let mut draws = Prng::new(7);
        for round in 0..300 {
            let bytes_max = [300, 5_000, 200_000][round % 3];
            let class = Payload::ALL[draws.below(Payload::ALL.len() as u64) as usize];
            let original = class.bytes(draws.below(bytes_max) as usize, draws.bits());
            for codec in Codec::ALL {
                for level in [Level::Fast, Level::Default, Level::High] {
                    let stream = stream(codec, level, &original);
                    let case = (codec, level, class, original.len());
                    assert!(!contradicts(codec, &original, &stream), "{case:?}");
                }
            }
        }
    }

    #[test]
    fn short_inputs_of_every_byte_are_not_contradicted() {
        for codec in Codec::ALL {
            for byte in 0..=255_u8 {
                for original in [vec![byte], vec![byte; 9], vec![byte, !byte, byte, 7, byte]] {
                    let stream = stream(codec, Level::Default, &original);
                    assert!(!contradicts(codec, &original, &stream), "{codec:?} {original:?}");
                }
            }
        }
    }

    #[test]
    fn nearly_all_garbage_is_contradicted() {
        let original = Payload::Text.bytes(4_096, 1);
        let mut draws = Prng::new(1);
        for codec in Codec::ALL {
            let missed = (0..10_000).filter(|_| {
                let mut garbage = vec![0; 1_000];
                draws.fill(&mut garbage);
                !contradicts(codec, &original, &garbage)
            });
            let missed = missed.count();
            assert!(missed < 300, "{codec:?}: {missed} of 10,000 were missed");
        }
        for garbage in [vec![], vec![0; 500], vec![0xAB; 500], original.clone(), vec![0xFF; 500]] {
            for codec in Codec::ALL {
                assert!(
                    contradicts(codec, &original, &garbage),
                    "{codec:?} {:?}",
                    &garbage.first()
                );
            }
        }
    }
}
