//! Recorded packets for a replay: the frames of one service in their order. The first frames fill the service's store.
//! A file consists of a line of text and then the frames as they were sent, each behind its length. A file that is not
//! a recording is refused with the reason before any of its frames is replayed.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use rpc::wire::FRAME_HEAD_BYTES;
use thiserror::Error;

use super::generator::Generator;
use super::mix::Mix;

/// The recorded frames of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    service: &'static str,
    warm: usize,
    bytes: Vec<u8>,
    /// The end of each frame in `bytes`.
    ends: Vec<usize>,
}

/// The reason why there is no recording.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// The file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is not a recording.
    #[error("{path}: {problem}")]
    Bad {
        /// The path.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
    /// The mix and the requests need more space than a recording may have.
    #[error(
        "{frames} packets of up to {frame_bytes} B; give fewer keys or requests, or shorter \
         values: {frames_max} of that length at most"
    )]
    Large {
        /// The number of frames, including those that fill the store.
        frames: u64,
        /// The length of the longest frame.
        frame_bytes: u64,
        /// The greatest number of frames of that length.
        frames_max: u64,
    },
}

impl Recording {
    /// Creates an empty recording of this service, by its name in [`rpc::services::IDL`].
    pub fn new(service: &str) -> Option<Self> {
        let (service, _) = rpc::services::IDL.iter().find(|(name, _)| *name == service)?;
        Some(Self { service, warm: 0, bytes: Vec::new(), ends: Vec::new() })
    }

    /// Records requests that store something under every key, followed by requests of a mix.
    ///
    /// # Errors
    /// The frames might need more than a file of 1 GiB.
    pub fn from_mix(mix: &Mix, requests: usize, seed: u64) -> Result<Self, RecordingError> {
        check(mix, requests)?;
        let mut recording = Self::new(mix.service()).expect("a mix is of a service that is there");
        let mut generator = Generator::new(mix, seed);
        let mut frame = Vec::new();
        while generator.warm(&mut frame) {
            recording.push(&frame);
        }
        recording.warm = recording.ends.len();
        for _ in 0..requests {
            generator.request(&mut frame);
            recording.push(&frame);
        }
        Ok(recording)
    }

    /// Adds a frame with its head.
    pub fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    /// Returns the service's name in [`rpc::services::IDL`].
    pub fn service(&self) -> &'static str {
        self.service
    }

    /// Returns the number of frames at the beginning that only fill the store. They are sent once and not counted.
    pub fn warm(&self) -> usize {
        self.warm
    }

    /// Returns the number of all frames, including those that fill the store.
    pub fn frames(&self) -> usize {
        self.ends.len()
    }

    /// Returns the frame at index `number`.
    ///
    /// # Panics
    /// There are not that many frames.
    pub fn frame(&self, number: usize) -> &[u8] {
        let begin = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.bytes[begin..self.ends[number]]
    }

    /// Writes the recording to a file and replaces the file's content.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), RecordingError> {
        let written = || {
            let mut file = BufWriter::new(File::create(path)?);
            let (frames, bytes) = (self.ends.len(), self.bytes.len());
            let [service, warm] = [self.service.to_owned(), self.warm.to_string()];
            writeln!(file, "{MAGIC} {service} warm={warm} frames={frames} bytes={bytes}")?;
            file.write_all(&self.bytes)?;
            file.flush()
        };
        written().map_err(|error| RecordingError::File { path: path.into(), error })
    }

    /// Reads a recording from a file.
    ///
    /// # Errors
    /// The file cannot be read, is longer than 1 GiB, or is not a recording.
    pub fn read(path: &Path) -> Result<Self, RecordingError> {
        let failed = |error| RecordingError::File { path: path.into(), error };
        let bad = |problem| RecordingError::Bad { path: path.into(), problem };
        let file = File::open(path).map_err(failed)?;
        let mut bytes = Vec::new();
        // One byte more than allowed is read, because the length is unknown beforehand if this is not a regular file.
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(bad(format!("longer than {} MiB", FILE_BYTES_MAX >> 20)));
        }
        Self::parse(bytes).map_err(bad)
    }

    fn parse(mut bytes: Vec<u8>) -> Result<Self, String> {
        let head = bytes.iter().take(HEAD_BYTES_MAX).position(|byte| *byte == b'\n');
        let words = head.and_then(|end| std::str::from_utf8(&bytes[..end]).ok());
        let words = words.and_then(|words| words.strip_prefix(MAGIC)).map(str::trim_start);
        let Some((words, end)) = words.zip(head) else {
            return Err(format!("no recording: its first line does not begin with `{MAGIC}`"));
        };
        let mut words = words.split(' ');
        let service = words.next().unwrap_or("");
        let Some(mut recording) = Self::new(service) else {
            let known = rpc::services::IDL.map(|(name, _)| name).join(", ");
            return Err(format!("a recording of {service:?}; known are {known}"));
        };
        let mut number = |name: &str| {
            let word = words.next().and_then(|word| word.strip_prefix(name));
            let number = word.and_then(|word| word.strip_prefix('=')?.parse::<usize>().ok());
            number.ok_or_else(|| format!("its first line has no {name}=NUMBER in its place"))
        };
        let [warm, frames, length] = [number("warm")?, number("frames")?, number("bytes")?];
        if frames > FRAMES_MAX {
            return Err(format!("{frames} frames; {FRAMES_MAX} at most"));
        }
        bytes.drain(..=end);
        if bytes.len() != length {
            let there = bytes.len();
            return Err(format!(
                "{there} B of frames, and its first line says {length}: cut short?"
            ));
        }
        recording.ends = ends(&bytes, frames)?;
        if recording.ends.len() != frames {
            let there = recording.ends.len();
            return Err(format!("{there} frames, and its first line says {frames}"));
        }
        if warm > frames {
            return Err(format!("{warm} frames fill the store, and it has {frames}"));
        }
        if warm == frames {
            return Err("nothing to replay: all of its frames only fill the store".to_owned());
        }
        Ok(Self { warm, bytes, ..recording })
    }
}

/// Refuses a mix that would need too many bytes, before any frame is made. Every frame counts with the length of a
/// frame that writes, because those are the longest.
fn check(mix: &Mix, requests: usize) -> Result<(), RecordingError> {
    let mut generator = Generator::new(mix, 1);
    let mut frame = Vec::new();
    let is_warm = generator.warm(&mut frame);
    if !is_warm {
        generator.request(&mut frame);
    }
    let warm = if is_warm { mix.keys } else { 0 };
    let (frames, frame_bytes) = (warm + requests as u64, frame.len() as u64);
    let frames_max = (FILE_BYTES_MAX - HEAD_BYTES_MAX as u64) / frame_bytes;
    match frames > frames_max {
        true => Err(RecordingError::Large { frames, frame_bytes, frames_max }),
        false => Ok(()),
    }
}

/// Returns the end of each frame. `frames` is the number that the first line announces.
fn ends(bytes: &[u8], frames: usize) -> Result<Vec<usize>, String> {
    let (mut ends, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let number = ends.len();
        if number == frames {
            return Err(format!("more frames than the {frames} that its first line says"));
        }
        let Some(head) = bytes[at..].first_chunk::<FRAME_HEAD_BYTES>() else {
            return Err(format!("frame {number} ends within its length"));
        };
        let length = i32::from_be_bytes(*head);
        let rest = bytes.len() - at - FRAME_HEAD_BYTES;
        match usize::try_from(length).ok().filter(|length| *length <= rest) {
            Some(length) => at += FRAME_HEAD_BYTES + length,
            None => return Err(format!("frame {number} says {length} B, and {rest} B are left")),
        }
        ends.push(at);
    }
    Ok(ends)
}

/// The beginning of a recording's first line. The number is the version.
const MAGIC: &str = "rebate-rpc 1";
const HEAD_BYTES_MAX: usize = 256;
const FILE_BYTES_MAX: u64 = 1 << 30;
/// The greatest number of frames in a file. No frame has less than 32 bytes.
const FRAMES_MAX: usize = FILE_BYTES_MAX as usize / 32;

#[cfg(test)]
mod tests {
    use super::super::mix::{Calls, MIXES};
    use super::super::oracle::{Expected, Oracle, Verdict};
    use super::*;

    #[test]
    fn a_written_recording_is_read_back_unchanged() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("packets");
        for name in MIXES {
            let mix = Mix { keys: 20, ..Mix::named(name).expect("known") };
            let recording = Recording::from_mix(&mix, 50, 7).expect("small");
            recording.write(&path).expect("written");
            assert_eq!(Recording::read(&path).expect("read"), recording, "{name}");
            assert_eq!(recording.frames(), recording.warm() + 50);
            assert_eq!(recording.warm(), if name == "unique_id" { 0 } else { 20 });
            assert_ne!(Recording::from_mix(&mix, 50, 8).expect("small"), recording, "{name}");
        }
    }

    #[test]
    fn a_recording_that_is_too_large_is_refused_beforehand() {
        let tiny = Mix::named("memc_tiny").expect("known");
        let calls = Calls::Memcached { set_ratio: 0.1, key_bytes: 16, value_bytes: 1_000_000 };
        let large = Mix { keys: 1_000, calls, ..tiny.clone() };
        let ids = Mix::named("unique_id").expect("known");
        for (mix, requests) in
            [(Mix { keys: 1 << 32, ..tiny }, 1), (large, 100), (ids, usize::MAX >> 1)]
        {
            let problem = Recording::from_mix(&mix, requests, 1).expect_err("too much").to_string();
            assert!(problem.contains("of that length at most"), "{problem}");
        }
    }

    #[test]
    fn files_that_are_none_say_what_is_wrong() {
        let frame = b"\0\0\0\x02ab";
        let with = |head: &str, frames: &[u8]| [head.as_bytes(), b"\n", frames].concat();
        let good = "rebate-rpc 1 memcached warm=1 frames=2 bytes=12";
        assert!(Recording::parse(with(good, &frame.repeat(2))).is_ok());
        for (bytes, words) in [
            (Vec::new(), "does not begin with"),
            (vec![0xFF; 1000], "does not begin with"),
            (with("rebate-rpc 2 memcached", b""), "does not begin with"),
            (with("rebate-rpc 1 mail warm=0 frames=0 bytes=0", b""), "known are memcached"),
            (with("rebate-rpc 1 memcached warm=x frames=0 bytes=0", b""), "warm=NUMBER"),
            (with("rebate-rpc 1 memcached warm=0 frames=1", b""), "bytes=NUMBER"),
            (with(good, frame), "cut short"),
            (with("rebate-rpc 1 memcached warm=0 frames=3 bytes=6", frame), "1 frames"),
            (
                with("rebate-rpc 1 memcached warm=0 frames=1 bytes=12", &frame.repeat(2)),
                "the 1 that",
            ),
            (with("rebate-rpc 1 memcached warm=0 frames=99999999 bytes=6", frame), "at most"),
            (with("rebate-rpc 1 memcached warm=2 frames=1 bytes=6", frame), "fill the store"),
            (with("rebate-rpc 1 memcached warm=1 frames=1 bytes=6", frame), "nothing to replay"),
            (with("rebate-rpc 1 memcached warm=0 frames=1 bytes=5", b"\0\0\0\x02a"), "1 B are"),
            (with("rebate-rpc 1 memcached warm=0 frames=1 bytes=5", b"\xff\0\0\0a"), "B are left"),
            (with("rebate-rpc 1 memcached warm=0 frames=1 bytes=2", b"\0\0"), "within its length"),
        ] {
            let problem = Recording::parse(bytes).expect_err(words);
            assert!(problem.contains(words), "{problem}");
        }
    }

    #[test]
    fn the_oracle_knows_every_request_of_every_mix() {
        for name in MIXES {
            let mix = Mix { keys: 20, ..Mix::named(name).expect("known") };
            let recording = Recording::from_mix(&mix, 200, 7).expect("small");
            let mut oracle = Oracle::new(recording.service()).expect("known");
            let mut found = 0;
            for number in 0..recording.frames() {
                let expected = oracle.expect(recording.frame(number));
                assert_ne!(expected, Expected::Refusal, "{name}");
                let (Expected::Frame(frame) | Expected::Found(frame)) = &expected else { continue };
                found += u32::from(matches!(expected, Expected::Found(_)));
                assert_eq!(oracle.judge(&expected, frame), Verdict::Right, "{name}");
                for byte in [FRAME_HEAD_BYTES + 3, frame.len() - 1] {
                    let mut other = frame.clone();
                    other[byte] ^= 4;
                    assert_eq!(oracle.judge(&expected, &other), Verdict::Wrong, "{name}, {byte}");
                }
                assert_eq!(oracle.judge(&expected, &[]), Verdict::Wrong, "{name}");
            }
            assert_eq!(found > 0, name != "unique_id", "{name}");
        }
    }

    #[test]
    fn misses_of_a_full_store_are_told_from_refusals() {
        let mix = Mix { keys: 1, ..Mix::named("memc_tiny").expect("known") };
        let mut generator = Generator::new(&mix, 1);
        let mut frame = Vec::new();
        assert!(generator.warm(&mut frame));
        let mut oracle = Oracle::new("memcached").expect("known");
        oracle.expect(&frame);
        while generator.request(&mut frame) {}
        let found = oracle.expect(&frame);
        let Expected::Frame(miss) = Oracle::new("memcached").expect("known").expect(&frame) else {
            panic!("an empty store has nothing");
        };
        assert_eq!(oracle.judge(&found, &miss), Verdict::Miss);
        let mut refusal = [0; 256];
        let code = rpc::Code::UnknownFunction;
        let length = rpc::wire::refusal(&frame, code, &mut refusal).expect("a call");
        assert_eq!(oracle.judge(&found, &refusal[..length]), Verdict::Refused);
        // No function has this name, so the answer must be a refusal.
        frame[12] = b'X';
        assert_eq!(oracle.expect(&frame), Expected::Refusal);
        assert_eq!(oracle.judge(&Expected::Refusal, &refusal[..length]), Verdict::Right);
        assert_eq!(oracle.judge(&Expected::Refusal, &miss), Verdict::Wrong);
        // A hit is wrong, and not a miss, if nothing was stored.
        let Expected::Found(hit) = found else { panic!("it was stored") };
        assert_eq!(oracle.judge(&Expected::Frame(miss), &hit), Verdict::Wrong);
    }

    #[test]
    fn numbers_have_to_rise() {
        let mut oracle = Oracle::new("unique_id").expect("known");
        let recording = Recording::from_mix(&Mix::named("unique_id").expect("known"), 1, 1);
        let recording = recording.expect("small");
        let expected = oracle.expect(recording.frame(0));
        let Expected::Number(head) = &expected else { panic!("{expected:?}") };
        let answer = |number: i64| [head, &number.to_be_bytes()[..], &[0]].concat();
        assert_eq!(oracle.judge(&expected, &answer(5)), Verdict::Right);
        assert_eq!(oracle.judge(&expected, &answer(5)), Verdict::Wrong);
        assert_eq!(oracle.judge(&expected, &answer(6)), Verdict::Right);
        assert_eq!(oracle.judge(&expected, &answer(7)[..20]), Verdict::Wrong);
    }
}
