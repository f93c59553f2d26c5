//! Compresses sampled values as Rebate would, and measures the stored sizes and the time that it takes here. Values do
//! not leave this module.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use device::{
    Codec, Dialect, Dictionary, EngineFactory, Input, Job, Level, Outcome, Pool, Software, Task,
};
use policy::dictionary::{Trial, Verdict};
use policy::form::{DICTIONARY_VALUE_BYTES_MAX, framed_bytes};
use policy::trials::{SAMPLES_BYTES_MAX, SAMPLES_MAX, SAMPLES_MIN, Trials};
use policy::{AlwaysSoftware, Form, FormPolicy};
use runtime::{BlockingRuntime, RuntimeConfig};
use store::embedded;
use store::frame::{Encoding, FrameVersion, Header};
use units::{ByteCount, SystemClock};

use super::Error;

/// One value in one stored form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// The stored size with the frame (bytes).
    pub(super) stored_bytes: usize,
    /// The part of it that the embedded store does not keep (bytes).
    pub(super) omitted_bytes: usize,
    /// The time to turn the value into its stored form (ns).
    pub(super) compress_ns: f64,
    /// The time to turn the stored form back into the value (ns).
    pub(super) decompress_ns: f64,
}

impl Measured {
    /// Returns the median times of several measurements of the same value.
    fn median(rounds: &[Self]) -> Self {
        let median = |time: fn(&Self) -> f64| {
            let mut times: Vec<f64> = rounds.iter().map(time).collect();
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        Self {
            compress_ns: median(|measured| measured.compress_ns),
            decompress_ns: median(|measured| measured.decompress_ns),
            ..rounds[0]
        }
    }
}

/// One value in every form.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Forms {
    /// The form without a dictionary.
    pub(super) plain: Measured,
    /// The form with a dictionary that was trained on other values, if there is one.
    pub(super) dictionary: Option<Measured>,
    /// The stored size with each codec of [`Codec::ALL`] (bytes).
    pub(super) codec_bytes: [usize; Codec::ALL.len()],
}

/// The caller's side of a measurement.
pub(super) trait Watcher {
    /// Called after each value that was compressed for the first time.
    fn advance(&mut self);

    /// Returns whether only as many values are to be measured as an estimate needs.
    fn hurries(&self) -> bool;
}

/// The codecs as a server runs them: each compression is a job in the runtime.
pub(super) struct Codecs {
    runtime: BlockingRuntime,
    pool: Pool,
    form: FormPolicy,
}

/// A value in a stored form.
struct Packed {
    stored_bytes: usize,
    compress_ns: f64,
    /// The stream, if the value is compressed.
    stream: Option<Stream>,
}

/// A stream with all that its reader needs.
struct Stream {
    header: Header,
    dialect: Dialect,
    dictionary: Option<Arc<Dictionary>>,
    bytes: Bytes,
}

/// How one stream is written.
struct Coding {
    dialect: Dialect,
    level: Level,
    dictionary: Option<Arc<Dictionary>>,
    /// The largest size of header and stream together (bytes).
    stored_bytes_max: usize,
}

impl Codecs {
    pub(super) fn new(engines: &[EngineFactory], form: FormPolicy) -> Result<Self, Error> {
        let config = RuntimeConfig::new(
            vec![Arc::new(Software::new(engines))],
            Arc::new(AlwaysSoftware),
            Arc::new(SystemClock::new()),
        );
        let runtime = BlockingRuntime::open(config)
            .map_err(|error| Error::Failed(format!("this machine runs no codecs: {error}")))?;
        Ok(Self { runtime, pool: Pool::heap(POOL_BYTES_MAX), form })
    }

    /// Measures the values of one class, whose order must be random. A dictionary is trained on one half of them and
    /// measured on the other half, and the reverse. Returns the forms of the first values: of all, unless the watcher
    /// hurries. Returns also the dictionary with which the values at even places were measured.
    pub(super) fn measure(
        &mut self,
        values: &[&[u8]],
        watcher: &mut impl Watcher,
    ) -> (Vec<Forms>, Option<Arc<Dictionary>>) {
        let plain = self.rounds(values, None, watcher);
        let (dictionary, trained) =
            self.cross_fitted(&values[..plain.len()], values, watcher).unzip();
        let count = dictionary.as_ref().map_or(plain.len(), |found| plain.len().min(found.len()));
        let forms = |at: usize| {
            let codec_bytes = Codec::ALL.map(|codec| {
                let form = FormPolicy { codec: Some(codec), window_log2: None, ..self.form };
                self.pack(form, values[at], None).stored_bytes
            });
            let dictionary = dictionary.as_ref().map(|found| found[at]);
            Forms { plain: plain[at], dictionary, codec_bytes }
        };
        ((0..count).map(forms).collect(), trained)
    }

    /// Measures each value in several rounds. A round compresses all values before it decompresses any. So the
    /// processor's caches have seen all other values in between, as in a server.
    fn rounds(
        &mut self,
        values: &[&[u8]],
        dictionary: Option<&Arc<Dictionary>>,
        watcher: &mut impl Watcher,
    ) -> Vec<Measured> {
        let mut all: Vec<Vec<Measured>> = Vec::new();
        for round in 0..ROUNDS {
            if round > 0 && watcher.hurries() {
                break;
            }
            let mut packed = Vec::with_capacity(values.len());
            for value in values {
                if packed.len() >= VALUES_MIN && watcher.hurries() {
                    break;
                }
                packed.push(self.pack(self.form, value, dictionary));
                if round == 0 {
                    watcher.advance();
                }
            }
            let measured = values.iter().zip(packed).map(|(value, one)| self.unpack(value, one));
            if round == 0 {
                all = measured.map(|one| vec![one]).collect();
            } else {
                all.iter_mut().zip(measured).for_each(|(rounds, one)| rounds.push(one));
            }
        }
        all.iter().map(|rounds| Measured::median(rounds)).collect()
    }

    /// Measures the first values with dictionaries that were trained on the other half of `samples`, which begin with
    /// these values. Returns also the dictionary of the values at even places. Returns none if the values have too
    /// little in common.
    fn cross_fitted(
        &mut self,
        values: &[&[u8]],
        samples: &[&[u8]],
        watcher: &mut impl Watcher,
    ) -> Option<(Vec<Measured>, Arc<Dictionary>)> {
        let fits = |value: &&[u8]| value.len() <= DICTIONARY_VALUE_BYTES_MAX;
        if samples.iter().copied().filter(fits).count() < SAMPLES_MIN {
            return None;
        }
        let trained = [0, 1].map(|parity| train(self.form, half(samples, parity).filter(fits)));
        let [Some(even), Some(odd)] = trained else { return None };
        let mut measured = |parity: usize, trained_on_other: &Arc<Dictionary>| {
            let values: Vec<&[u8]> = half(values, parity).collect();
            self.rounds(&values, Some(trained_on_other), watcher).into_iter()
        };
        let (mut evens, mut odds) = (measured(0, &odd), measured(1, &even));
        let next = |at| if at % 2 == 0 { evens.next() } else { odds.next() };
        let measured = (0..values.len()).map_while(next).collect();
        Some((measured, odd))
    }

    /// Turns a value into its stored form.
    fn pack(
        &mut self,
        policy: FormPolicy,
        value: &[u8],
        dictionary: Option<&Arc<Dictionary>>,
    ) -> Packed {
        let start = Instant::now();
        let form = match dictionary {
            Some(_) => policy.choose_with_dictionary(value),
            None => policy.choose(value),
        };
        let coding = match form {
            Form::Raw(_) | Form::Wrapped | Form::SameFilled(_) => None,
            Form::Compressed { dialect, level, stored_bytes_max } => {
                Some(Coding { dialect, level, dictionary: None, stored_bytes_max })
            }
            Form::WithDictionary { stored_bytes_max } => Some(Coding {
                dialect: Dialect::new(Codec::ZstdDictionary),
                level: policy.level,
                dictionary: dictionary.cloned(),
                stored_bytes_max,
            }),
        };
        let stream = coding.and_then(|coding| self.compress(coding, value));
        let header_bytes = match &stream {
            Some(stream) => stream.header.header_bytes(),
            None => VERSION.header_bytes(0, value.len()),
        };
        let stream_bytes = stream.as_ref().map(|stream| stream.bytes.len());
        let stored_bytes = form.stored_bytes(value.len(), header_bytes, stream_bytes);
        Packed { stored_bytes, compress_ns: nanos_since(start), stream }
    }

    /// Compresses a value. Returns none if it does not shrink enough.
    fn compress(&mut self, coding: Coding, value: &[u8]) -> Option<Stream> {
        let Coding { dialect, level, dictionary, stored_bytes_max } = coding;
        let id = dictionary.as_ref().map(|dictionary| dictionary.id());
        let header_bytes = match id {
            Some(_) => Header::DICTIONARY_HEADER_BYTES,
            None => VERSION.header_bytes(0, value.len()),
        };
        let mut input = self.pool.take(value.len());
        input.extend(value);
        let input = Input::pooled(input, 0..value.len());
        let output = self.pool.take_heap(stored_bytes_max);
        let mut job = Job::new(Task::Compress { dialect, level }, input, output);
        (job.output_offset, job.dictionary) = (header_bytes, dictionary.clone());
        let finished = self.runtime.run_blocking(Box::new(job));
        let Outcome::Done { output_bytes } = finished.outcome else { return None };
        let end = framed_bytes(header_bytes, output_bytes, stored_bytes_max)?;
        let encoding = Encoding::Compressed(dialect.codec);
        let header = match id {
            Some(id) => Header::seal_with_dictionary(id, KEY, value, output_bytes),
            None => Header::seal(VERSION, encoding, 0, KEY, value, output_bytes),
        };
        let bytes = finished.job.output.freeze(header_bytes..end);
        Some(Stream { header, dialect, dictionary, bytes })
    }

    /// Decompresses the stream and compares it with the value. If they differ, the value counts as not compressed.
    fn unpack(&mut self, value: &[u8], packed: Packed) -> Measured {
        let Packed { stored_bytes, compress_ns, stream } = packed;
        let raw = Measured { stored_bytes, omitted_bytes: 0, compress_ns, decompress_ns: 0.0 };
        let Some(stream) = stream else { return raw };
        let has_dictionary = stream.header.dictionary_id.is_some();
        let start = Instant::now();
        if !self.reads_back(stream) {
            return Measured { stored_bytes: value.len(), ..raw };
        }
        let decompress_ns = nanos_since(start);
        let omitted_bytes = if has_dictionary { embedded::omitted_bytes(value.len()) } else { 0 };
        Measured { omitted_bytes, decompress_ns, ..raw }
    }

    /// Decompresses a stream, and returns whether it is the value for which the header was sealed.
    fn reads_back(&mut self, stream: Stream) -> bool {
        let Stream { header, dialect, dictionary, bytes } = stream;
        let original_bytes = header.original_bytes as usize;
        let task = Task::Decompress { dialect, original_bytes };
        let output = self.pool.take_heap(original_bytes);
        let job = Job { dictionary, ..Job::new(task, Input::heap(bytes), output) };
        let finished = self.runtime.run_blocking(Box::new(job));
        matches!(finished.outcome, Outcome::Done { .. }) && header.verify(KEY, &finished.job.output)
    }
}

fn half<'a>(values: &[&'a [u8]], parity: usize) -> impl Iterator<Item = &'a [u8]> {
    values.iter().copied().skip(parity).step_by(2)
}

/// Trains dictionaries on values as a server does on its samples, and returns the one that it would adopt. Returns none
/// if the values have too little in common.
fn train<'a>(form: FormPolicy, values: impl Iterator<Item = &'a [u8]>) -> Option<Arc<Dictionary>> {
    let mut taken_bytes = 0;
    let within = |value: &&[u8]| {
        taken_bytes += value.len();
        taken_bytes <= SAMPLES_BYTES_MAX
    };
    let trials = Trials::new(form, values.take(SAMPLES_MAX).take_while(within));
    let (dictionary, bytes) = trials.train(Dictionary::train)?;
    let trial = Trial {
        plain_bytes: trials.plain_bytes(),
        current_bytes: None,
        candidate_bytes: Some(bytes),
    };
    (trial.verdict() == Verdict::Adopt).then_some(dictionary)
}

fn nanos_since(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64
}

/// The number of times that each value is measured. The median counts, so that an interruption does not.
const ROUNDS: usize = 3;

/// The values of each class that are measured even in a hurry.
const VALUES_MIN: usize = 30;

/// The version of the frames in which Rebate's embedded store holds values.
const VERSION: FrameVersion = FrameVersion::V2;

/// The key that all measurements use. The checksum of a frame covers the key of its item.
const KEY: &[u8] = b"user:1234:profile";

/// The bytes of returned buffers that are kept.
const POOL_BYTES_MAX: ByteCount = ByteCount::mib(8);

#[cfg(test)]
mod tests {
    use device::engines::BUILT_IN;
    use units::Prng;

    use super::*;

    /// Counts the values, and hurries from this one on.
    struct Counted {
        count: usize,
        hurries_from: usize,
    }

    impl Watcher for Counted {
        fn advance(&mut self) {
            self.count += 1;
        }

        fn hurries(&self) -> bool {
            self.count >= self.hurries_from
        }
    }

    fn records(count: usize) -> Vec<Vec<u8>> {
        let mut random = Prng::new(3);
        let record = |_| {
            let (id, user) = (random.below(1_000_000_000), random.below(10_000_000));
            format!(r#"{{"id":{id},"type":"invoice","user":{{"id":{user},"plan":"team"}},"n":7}}"#)
        };
        (0..count).map(record).map(String::into_bytes).collect()
    }

    fn measured_until(values: &[Vec<u8>], hurries_from: usize) -> Vec<Forms> {
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        let mut codecs = Codecs::new(&BUILT_IN, FormPolicy::default()).expect("codecs");
        codecs.measure(&values, &mut Counted { count: 0, hurries_from }).0
    }

    fn measured(values: &[Vec<u8>]) -> Vec<Forms> {
        let forms = measured_until(values, usize::MAX);
        assert_eq!(forms.len(), values.len());
        forms
    }

    #[test]
    fn a_hurry_measures_the_first_values() {
        let records = records(1_000);
        let forms = measured_until(&records, 100);
        // Thirty of each half of the first hundred.
        assert_eq!(forms.len(), 60);
        assert!(forms.iter().all(|forms| forms.dictionary.is_some()));
        assert_eq!(measured_until(&records[..100], 0).len(), VALUES_MIN);
    }

    #[test]
    fn a_dictionary_saves_where_codecs_alone_do_not() {
        let records = records(400);
        let forms = measured(&records);
        let sum = |bytes: &dyn Fn(&Forms) -> usize| forms.iter().map(bytes).sum::<usize>();
        let raw: usize = records.iter().map(Vec::len).sum();
        let with = sum(&|forms| forms.dictionary.map_or(0, |measured| measured.stored_bytes));
        assert!(with > 0 && with < raw * 6 / 10, "{with} of {raw}");
        assert!(sum(&|forms| forms.plain.stored_bytes) > with);
    }

    #[test]
    fn few_values_train_no_dictionary() {
        assert!(measured(&records(100)).iter().all(|forms| forms.dictionary.is_none()));
    }

    #[test]
    fn random_bytes_stay_as_they_are() {
        let mut value = vec![0; 2_000];
        Prng::new(1).fill(&mut value);
        let forms = measured(&[value]);
        assert_eq!(forms[0].plain.stored_bytes, 2_000);
        assert_eq!(forms[0].codec_bytes, [2_000; Codec::ALL.len()]);
        assert_eq!(forms[0].plain.decompress_ns, 0.0);
    }

    #[test]
    fn text_shrinks_and_takes_time() {
        let text = "the quick brown fox jumps over the lazy dog. ".repeat(50).into_bytes();
        let forms = measured(&[text]);
        assert!(forms[0].plain.stored_bytes < 200 && forms[0].codec_bytes[2] < 400);
        assert!(forms[0].plain.compress_ns > 0.0 && forms[0].plain.decompress_ns > 0.0);
    }

    #[test]
    fn one_repeated_byte_takes_a_header_and_a_byte() {
        let forms = measured(&[vec![7; 1_000]]);
        assert_eq!(forms[0].plain.stored_bytes, VERSION.header_bytes(0, 1_000) + 1);
    }
}
