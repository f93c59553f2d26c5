//! Trains dictionaries with zstd's trainer in little memory. The trainer that zstd offers without parameters counts in
//! tables of 10 MiB, which is more than a small cache can hide; the binding of `zstd` has no other one.

use std::ffi::c_uint;

use device::dictionary::{BYTES_MAX, BYTES_MIN};
use device::{Dictionary, DictionaryError};
use zstd::zstd_safe::zstd_sys::{
    ZDICT_fastCover_params_t, ZDICT_isError, ZDICT_optimizeTrainFromBuffer_fastCover,
    ZDICT_params_t,
};

/// Trains a dictionary of at most `bytes_max` on samples of the values that it will be used for. This takes 0.6 MiB
/// besides the samples. Dictionaries on some hundred KiB of samples are as good as those of [`Dictionary::train`], and
/// trained in less than half the time (docs/decisions/0031-dictionaries.md).
///
/// # Errors
/// [`DictionaryError::Length`] if `bytes_max` is too small, and [`DictionaryError::TooFewSamples`] if the samples are
/// too few or too short, or have nothing in common.
pub fn train(samples: &[&[u8]], bytes_max: usize) -> Result<Dictionary, DictionaryError> {
    if bytes_max < BYTES_MIN {
        return Err(DictionaryError::Length { bytes: bytes_max });
    }
    let useless = DictionaryError::TooFewSamples { samples: samples.len() };
    let Ok(count) = c_uint::try_from(samples.len()) else { return Err(useless) };
    let sizes: Vec<usize> = samples.iter().map(|sample| sample.len()).collect();
    let joined = samples.concat();
    let mut content = vec![0; bytes_max.min(BYTES_MAX)];
    let mut parameters = PARAMETERS;
    // SAFETY: `content` is `content.len()` bytes that may be written. `joined` has the sum of the `count` sizes that
    // `sizes` holds, one after the other, as zdict.h requires. `parameters` is a whole, initialized structure. The
    // function keeps none of the pointers, and with no further threads it has ended its use of them when it returns.
    let written = unsafe {
        ZDICT_optimizeTrainFromBuffer_fastCover(
            content.as_mut_ptr().cast(),
            content.len(),
            joined.as_ptr().cast(),
            sizes.as_ptr(),
            count,
            &mut parameters,
        )
    };
    // SAFETY: the function compares a number and touches no memory.
    if unsafe { ZDICT_isError(written) } != 0 || written > content.len() {
        return Err(useless);
    }
    content.truncate(written);
    Dictionary::from_content(content)
}

/// Those of `ZDICT_trainFromBuffer`, but for `f`: the trainer counts in tables of 2^f entries, which have 10 bytes each
/// together.
const PARAMETERS: ZDICT_fastCover_params_t = ZDICT_fastCover_params_t {
    k: 0,
    d: 8,
    f: 16,
    steps: 4,
    nbThreads: 1,
    splitPoint: 0.0,
    accel: 1,
    shrinkDict: 0,
    shrinkDictMaxRegression: 0,
    zParams: ZDICT_params_t { compressionLevel: 3, notificationLevel: 0, dictID: 0 },
};

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn records(first: usize, count: usize) -> Vec<Vec<u8>> {
        let record = |n: usize| {
            let (id, user) = (n * 7_919 % 999_983, n * 104_729 % 9_999_991);
            format!(
                r#"{{"id":{id},"type":"order","user":{{"id":{user},"plan":"team"}},"total":{n}}}"#
            )
        };
        (first..first + count).map(|n| record(n).into_bytes()).collect()
    }

    fn stream_bytes(dictionary: Dictionary) -> usize {
        let values = records(50_000, 500);
        let dictionary = Arc::new(dictionary);
        let sizes = dictionary.stream_bytes(values.iter().map(Vec::as_slice));
        sizes.into_iter().map(|size| size.expect("records shrink")).sum()
    }

    #[test]
    fn its_dictionaries_are_as_good_as_those_of_the_large_tables() {
        let records = records(0, 1_000);
        let samples: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        for bytes in [1 << 10, 4 << 10] {
            let ours = stream_bytes(train(&samples, bytes).expect("records have much in common"));
            let usual = stream_bytes(Dictionary::train(&samples, bytes).expect("the same"));
            assert!(ours as f64 <= usual as f64 * 1.02, "{bytes}: {ours} and {usual}");
        }
    }

    #[test]
    fn bad_samples_and_lengths_are_refused() {
        let useless = |samples: usize| Some(DictionaryError::TooFewSamples { samples });
        assert_eq!(train(&[], 4_096).err(), useless(0));
        assert_eq!(train(&[b"".as_slice(); 100], 4_096).err(), useless(100));
        assert_eq!(train(&[b"one".as_slice()], 4_096).err(), useless(1));
        let length = DictionaryError::Length { bytes: 10 };
        assert_eq!(train(&[b"x".as_slice(); 100], 10).err(), Some(length));
    }
}
