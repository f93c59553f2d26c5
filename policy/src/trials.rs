//! Trains dictionaries on samples of values, and measures what these values would take with and without them. It uses
//! the codecs directly, because nobody waits for these results and no placement is to be learnt from them. It draws no
//! samples and changes no choice: [`crate::dictionary`] decides.

use std::sync::Arc;

use device::engines::BUILT_IN;
use device::{Dialect, Dictionary, DictionaryError, Engine, Level};
use store::frame::{FrameVersion, Header};

use crate::dictionary::is_worth_more;
use crate::{Form, FormPolicy};

/// Samples on which forms are compared.
pub struct Trials<'a> {
    form: FormPolicy,
    /// The samples on which dictionaries are trained.
    train: Vec<&'a [u8]>,
    /// The other samples, on which forms are measured.
    test: Vec<&'a [u8]>,
}

impl<'a> Trials<'a> {
    /// Divides samples, whose order must not matter: two thirds to train on, one third to measure.
    pub fn new(form: FormPolicy, samples: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let (mut train, mut test) = (Vec::new(), Vec::new());
        for (index, sample) in samples.into_iter().enumerate() {
            if index % 3 == 0 { test.push(sample) } else { train.push(sample) }
        }
        Self { form, train, test }
    }

    /// Returns the bytes of the measured samples themselves.
    pub fn logical_bytes(&self) -> usize {
        self.test.iter().map(|value| value.len()).sum()
    }

    /// Returns the bytes that the measured samples take without a dictionary. The codecs take some hundred KiB
    /// meanwhile.
    pub fn plain_bytes(&self) -> u64 {
        let (mut engines, mut space) = (BUILT_IN.map(|make| make()), Vec::new());
        let stored_bytes = |value: &&[u8]| {
            let form = self.form.choose(value);
            let stream_bytes = match form {
                Form::Compressed { dialect, level, .. } => {
                    stream_bytes(&mut engines, dialect, level, value, &mut space)
                }
                _ => None,
            };
            let header_bytes = FrameVersion::V2.header_bytes(0, value.len());
            form.stored_bytes(value.len(), header_bytes, stream_bytes) as u64
        };
        self.test.iter().map(stored_bytes).sum()
    }

    /// Returns the bytes that the measured samples take with a dictionary.
    pub fn bytes_with(&self, dictionary: &Arc<Dictionary>) -> u64 {
        let streams = dictionary.stream_bytes(self.test.iter().copied());
        let stored_bytes = |(stream_bytes, value): (Option<usize>, &&[u8])| {
            let form = self.form.choose_with_dictionary(value);
            form.stored_bytes(value.len(), Header::DICTIONARY_HEADER_BYTES, stream_bytes) as u64
        };
        streams.into_iter().zip(&self.test).map(stored_bytes).sum()
    }

    /// Trains dictionaries of several lengths, and returns the best one, which writes with more effort if that is worth
    /// it, and the bytes that the measured samples take with it. This takes some ten milliseconds. Two dictionaries are
    /// in memory at once.
    pub fn train(
        &self,
        train: impl Fn(&[&[u8]], usize) -> Result<Dictionary, DictionaryError>,
    ) -> Option<(Arc<Dictionary>, u64)> {
        let samples_bytes: usize = self.train.iter().map(|sample| sample.len()).sum();
        let lengths =
            LENGTHS.into_iter().filter(|bytes| *bytes <= samples_bytes / SAMPLES_PER_BYTE);
        let measured = |dictionary: Dictionary| {
            let dictionary = Arc::new(dictionary);
            let bytes = self.bytes_with(&dictionary);
            (dictionary, bytes)
        };
        let trained = lengths.filter_map(|bytes| train(&self.train, bytes).ok().map(measured));
        let best = trained.reduce(better)?;
        if self.form.level == Level::Fast {
            return Some(best);
        }
        let with_effort = measured(best.0.with_effort());
        Some(better(best, with_effort))
    }
}

/// Returns the better one of two dictionaries with the bytes of the samples. The second one costs more.
fn better(
    cheaper: (Arc<Dictionary>, u64),
    other: (Arc<Dictionary>, u64),
) -> (Arc<Dictionary>, u64) {
    if is_worth_more(other.1, cheaper.1) { other } else { cheaper }
}

fn stream_bytes(
    engines: &mut [Box<dyn Engine>],
    dialect: Dialect,
    level: Level,
    value: &[u8],
    space: &mut Vec<u8>,
) -> Option<usize> {
    space.resize(value.len(), 0);
    let engine = engines.iter_mut().find(|engine| engine.codec() == dialect.codec)?;
    engine.compress(dialect, level, value, space).ok()
}

/// The lengths of new dictionaries (bytes). For records of some hundred bytes, 4 KiB are as good as more.
const LENGTHS: [usize; 3] = [1 << 10, 4 << 10, 16 << 10];

/// The bytes of samples for each byte of a dictionary. With fewer, the dictionary contains the samples themselves.
const SAMPLES_PER_BYTE: usize = 8;

/// The most samples of one training. Twice as many give dictionaries that are hardly better
/// (docs/decisions/0031-dictionaries.md).
pub const SAMPLES_MAX: usize = 1_000;

/// The most bytes of the samples of one training.
pub const SAMPLES_BYTES_MAX: usize = 512 << 10;

/// The fewest samples of one training, unless there is memory for fewer only.
pub const SAMPLES_MIN: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dictionary::{Trial, Verdict};

    fn records(count: usize) -> Vec<Vec<u8>> {
        let record = |n: usize| {
            format!(r#"{{"id":{},"type":"order","plan":"team","paid":true}}"#, n * 7_919 % 999_983)
        };
        (0..count).map(|n| record(n).into_bytes()).collect()
    }

    fn trained(form: FormPolicy, values: &[Vec<u8>]) -> (Trial, Option<Arc<Dictionary>>) {
        let trials = Trials::new(form, values.iter().map(Vec::as_slice));
        let (dictionary, candidate_bytes) = trials.train(Dictionary::train).unzip();
        let trial =
            Trial { plain_bytes: trials.plain_bytes(), current_bytes: None, candidate_bytes };
        (trial, dictionary)
    }

    #[test]
    fn records_are_worth_a_dictionary() {
        let (trial, dictionary) = trained(FormPolicy::default(), &records(600));
        assert_eq!(trial.verdict(), Verdict::Adopt, "{trial:?}");
        let content = dictionary.map(|dictionary| dictionary.content().len());
        assert!(content.is_some_and(|bytes| bytes <= 1 << 10), "{content:?}");
    }

    #[test]
    fn fast_levels_try_no_effort() {
        let fast = FormPolicy { level: Level::Fast, ..FormPolicy::default() };
        let (_, dictionary) = trained(fast, &records(600));
        assert!(dictionary.is_some_and(|dictionary| !dictionary.has_effort()));
    }

    #[test]
    fn a_dictionary_has_eight_bytes_of_samples_for_each_byte() {
        // Two thirds of 150 records are 5 KiB, which is too little for 1 KiB.
        assert!(trained(FormPolicy::default(), &records(150)).1.is_none());
    }

    #[test]
    fn values_stay_plain_where_compression_is_off() {
        let off = FormPolicy { compress: false, ..FormPolicy::default() };
        let (trial, _) = trained(off, &records(600));
        assert_eq!(trial.verdict(), Verdict::Keep);
    }
}
