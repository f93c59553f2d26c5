//! Zstandard with a dictionary, for small values. The frames have neither a magic number nor the dictionary's id,
//! because the frame of `store` has both. They have a content size, which takes no more space than the window that
//! would stand there instead.

use std::sync::Arc;

use units::ZstdFrame;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat, ResetDirective};

use super::zstd::{NO_MEMORY, REFUSED_PARAMETER, read_error, write_error};
use crate::codec::EngineError;
use crate::dictionary::Dictionary;
use crate::job::DeviceError;

/// The library's contexts for one thread.
#[derive(Default)]
pub(crate) struct ZstdDictionary {
    writer: Option<Writer>,
    reader: Option<DCtx<'static>>,
}

impl ZstdDictionary {
    /// Compresses all of `input` to the start of `output`. Returns the size of the result.
    pub(crate) fn compress(
        &mut self,
        dictionary: &Arc<Dictionary>,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, EngineError> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(Writer::open().map_err(EngineError::Device)?),
        };
        let written = writer.compress(dictionary, input, output);
        if written.as_ref().is_err_and(|error| *error == UNENDED) {
            self.writer = None;
        }
        written
    }

    /// Decompresses one stream, which must fill `output` exactly.
    pub(crate) fn decompress(
        &mut self,
        dictionary: &Dictionary,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), DeviceError> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            None => self.reader.insert(open_reader()?),
        };
        match reader.decompress_using_ddict(output, input, dictionary.reader()) {
            Ok(bytes) if bytes == output.len() => Ok(()),
            Ok(_) => Err(DeviceError::InvalidInput("zstd frame is shorter than stated")),
            Err(code) => Err(read_error(code)),
        }
    }
}

/// A compression context. It refers to the dictionary of the last job, which therefore stays alive with it.
struct Writer {
    context: CCtx<'static>,
    dictionary: Option<Arc<Dictionary>>,
}

impl Writer {
    fn open() -> Result<Self, DeviceError> {
        let mut context = CCtx::try_create().ok_or(NO_MEMORY)?;
        let parameters = [
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ContentSizeFlag(true),
            CParameter::ChecksumFlag(false),
            CParameter::DictIdFlag(false),
        ];
        for parameter in parameters {
            context.set_parameter(parameter).map_err(|_| REFUSED_PARAMETER)?;
        }
        Ok(Self { context, dictionary: None })
    }

    fn compress(
        &mut self,
        dictionary: &Arc<Dictionary>,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, EngineError> {
        if !self.dictionary.as_ref().is_some_and(|held| Arc::ptr_eq(held, dictionary)) {
            // The context keeps a pointer to the dictionary, so the old one is released after the new one is set.
            let writer = dictionary.writer().ok_or(EngineError::Device(NO_MEMORY))?;
            let referred = self.context.ref_cdict(writer);
            referred.map_err(|_| EngineError::Device(REFUSED_PARAMETER))?;
            self.dictionary = Some(Arc::clone(dictionary));
        }
        let written = self.context.compress2(output, input);
        written.map_err(|code| {
            // A failed call leaves the session inside its frame.
            if self.context.reset(ResetDirective::SessionOnly).is_err() {
                return UNENDED;
            }
            write_error(code)
        })
    }
}

/// The context is inside a frame that it does not give up, so a new context is needed.
const UNENDED: EngineError = EngineError::Device(DeviceError::Fault("zstd did not end its frame"));

fn open_reader() -> Result<DCtx<'static>, DeviceError> {
    let mut context = DCtx::try_create().ok_or(NO_MEMORY)?;
    let format = DParameter::Format(FrameFormat::Magicless);
    context.set_parameter(format).map_err(|_| REFUSED_PARAMETER)?;
    Ok(context)
}

/// Checks the structure of the frame, and the size that it states. The literals of a stream with a dictionary say
/// nothing about the beginning of its input.
pub(crate) fn may_be(original: &[u8], stream: &[u8]) -> bool {
    let frame = ZstdFrame::parse_magicless(stream);
    frame.is_some_and(|frame| frame.content_bytes == Some(original.len() as u64))
}

#[cfg(test)]
mod tests {
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

    fn trained(bytes: usize) -> Arc<Dictionary> {
        let records = records(0, 2_000);
        let samples: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        Arc::new(Dictionary::train(&samples, bytes).expect("records have much in common"))
    }

    #[test]
    fn records_shrink_and_come_back() {
        let (mut engine, dictionary) = (ZstdDictionary::default(), trained(4_096));
        let mut stored_bytes = 0;
        let records = records(9_000, 500);
        for record in &records {
            let mut stream = vec![0; record.len()];
            let written = engine.compress(&dictionary, record, &mut stream).expect("it shrinks");
            stored_bytes += written;
            assert!(may_be(record, &stream[..written]));
            let mut read = vec![0; record.len()];
            assert_eq!(engine.decompress(&dictionary, &stream[..written], &mut read), Ok(()));
            assert_eq!(&read, record);
        }
        let raw_bytes: usize = records.iter().map(Vec::len).sum();
        assert!(stored_bytes * 5 < raw_bytes * 2, "{stored_bytes} of {raw_bytes}");
    }

    #[test]
    fn dictionaries_alternate_in_one_context() {
        let mut engine = ZstdDictionary::default();
        let record = &records(9_000, 1)[0];
        for round in 0..20 {
            let dictionary = trained(if round % 2 == 0 { 1_024 } else { 2_048 });
            let mut stream = vec![0; record.len()];
            let written = engine.compress(&dictionary, record, &mut stream).expect("it shrinks");
            let mut read = vec![0; record.len()];
            assert_eq!(engine.decompress(&dictionary, &stream[..written], &mut read), Ok(()));
            assert_eq!(&read, record);
        }
    }

    #[test]
    fn writes_on_after_a_frame_that_did_not_fit() {
        let (mut engine, dictionary) = (ZstdDictionary::default(), trained(4_096));
        let record = &records(9_000, 1)[0];
        let refused = engine.compress(&dictionary, record, &mut [0; 12]);
        assert_eq!(refused, Err(EngineError::DoesNotFit));
        let mut stream = vec![0; record.len()];
        assert!(engine.compress(&dictionary, record, &mut stream).is_ok());
    }

    #[test]
    fn a_frame_states_its_size_within_two_bytes() {
        let (mut engine, dictionary) = (ZstdDictionary::default(), trained(4_096));
        for bytes in [1, 100, 255, 256, 20_000] {
            let value = vec![b'x'; bytes];
            let mut stream = vec![0; bytes + 20];
            engine.compress(&dictionary, &value, &mut stream).expect("ample room");
            let expected: &[u8] = if bytes < 256 { &[0x20] } else { &[0x60] };
            assert_eq!(&stream[..1], expected, "{bytes}");
        }
    }

    #[test]
    fn damage_is_an_error_or_another_value() {
        let (mut engine, dictionary) = (ZstdDictionary::default(), trained(4_096));
        let record = &records(9_000, 1)[0];
        let mut stream = vec![0; record.len()];
        let written = engine.compress(&dictionary, record, &mut stream).expect("it shrinks");
        stream.truncate(written);
        let mut read = vec![0; record.len()];
        for bytes in 0..written {
            assert!(engine.decompress(&dictionary, &stream[..bytes], &mut read).is_err());
        }
        let mut longer = stream.clone();
        longer.push(0);
        assert!(engine.decompress(&dictionary, &longer, &mut read).is_err());
        assert!(engine.decompress(&dictionary, &stream, &mut read[1..]).is_err());
    }
}
