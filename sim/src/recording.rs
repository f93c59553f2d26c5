//! Recorded arrivals: a text of times, converted to the gaps between them. This module reads no file and knows no
//! service. The caller passes the text, and the model decides which requests arrive with these gaps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::entries::SpecError;

/// The recordings of a sweep. Each of them is read once.
#[derive(Debug, Default)]
pub struct Recordings(BTreeMap<PathBuf, Recording>);

/// The gaps of a recording.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    gaps_ns: Arc<[f64]>,
    hash: u64,
}

impl Recordings {
    /// Returns the recording at `path`. `read` returns its text.
    pub(crate) fn get_or_read(
        &mut self,
        path: PathBuf,
        read: impl FnOnce(&Path) -> Result<String, SpecError>,
    ) -> Result<Recording, SpecError> {
        if let Some(found) = self.0.get(&path) {
            return Ok(found.clone());
        }
        let found = Recording::read(&path, &read(&path)?)?;
        let gaps = self.0.values().map(|one| one.gaps_ns.len()).sum::<usize>();
        if gaps + found.gaps_ns.len() > ALL_GAPS_MAX {
            let problem = format!("with this one, recordings have more than {ALL_GAPS_MAX} gaps");
            return Err(SpecError::at(&path.display().to_string(), 0, problem));
        }
        self.0.insert(path, found.clone());
        Ok(found)
    }
}

impl Recording {
    /// Reads the text of the file at `path`. Each line has a time in microseconds, and no time is before the previous
    /// one. Empty lines and lines that begin with `#` are ignored.
    fn read(path: &Path, text: &str) -> Result<Self, SpecError> {
        let file = path.display().to_string();
        let (mut gaps_ns, mut last, mut hash) = (Vec::new(), None, 0);
        for (line, word) in (1..).zip(text.lines().map(str::trim)) {
            if word.is_empty() || word.starts_with('#') {
                continue;
            }
            let bad = |problem: String| SpecError::at(&file, line, problem);
            let time = word.parse().ok().filter(|time: &f64| (0.0..=TIME_US_MAX).contains(time));
            let time = time.ok_or_else(|| {
                let shown: String = word.chars().take(SHOWN_CHARS).collect();
                bad(format!("{shown:?} is no time; write a number of us from 0 to {TIME_US_MAX}"))
            })?;
            if let Some(last) = last {
                if time < last {
                    return Err(bad(format!("{time} is before {last}; times ascend")));
                }
                if time - last > GAP_US_MAX {
                    return Err(bad(format!("{last} is {GAP_US_MAX} us before {time}, or more")));
                }
                if gaps_ns.len() == GAPS_MAX {
                    return Err(bad(format!("a recording has at most {} times", GAPS_MAX + 1)));
                }
                gaps_ns.push((time - last) * 1e3);
            }
            hash = crate::streams::mix(hash ^ time.to_bits());
            last = Some(time);
        }
        if gaps_ns.iter().sum::<f64>() <= 0.0 {
            let problem = "a recording has two times or more, not all of them the same";
            return Err(SpecError::at(&file, 0, problem));
        }
        Ok(Self { gaps_ns: gaps_ns.into(), hash })
    }

    pub(crate) fn gaps_ns(&self) -> Arc<[f64]> {
        Arc::clone(&self.gaps_ns)
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

/// The largest size of a recording's text, in bytes.
pub(crate) const RECORDING_BYTES_MAX: usize = 32 << 20;
/// The maximum number of gaps in one recording. They take 8 MiB.
const GAPS_MAX: usize = 1 << 20;
/// The maximum number of gaps in all recordings of a sweep.
const ALL_GAPS_MAX: usize = 16 * GAPS_MAX;
/// The largest time (us). It is 317 years, so times since any epoch are allowed.
const TIME_US_MAX: f64 = 1e16;
const GAP_US_MAX: f64 = crate::durations::NS_MAX / 1e3;
const SHOWN_CHARS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Recording, String> {
        Recording::read(Path::new("r.txt"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn times_become_gaps() {
        let found = read("# us\n1700000000000000\n\n 1700000000000000.5 \n1700000000000000.5");
        assert_eq!(*found.expect("two gaps").gaps_ns(), [500.0, 0.0]);
        assert_ne!(read("0\n1").expect("one").hash(), read("0\n2").expect("one").hash());
    }

    #[test]
    fn a_recording_is_read_once_and_all_together_are_bounded() {
        let mut known = Recordings::default();
        let first =
            known.get_or_read(PathBuf::from("a"), |_| Ok("0\n1".to_owned())).expect("one gap");
        let again =
            known.get_or_read(PathBuf::from("a"), |_| panic!("it is known")).expect("the same");
        assert!(Arc::ptr_eq(&first.gaps_ns, &again.gaps_ns));
        let long = Recording { gaps_ns: vec![1.0; GAPS_MAX].into(), hash: 0 };
        known.0.extend((0..16).map(|at| (PathBuf::from(format!("l{at}")), long.clone())));
        let error =
            known.get_or_read(PathBuf::from("b"), |_| Ok("0\n1".to_owned())).expect_err("many");
        assert_eq!(error.to_string(), "b: with this one, recordings have more than 16777216 gaps");
    }

    #[test]
    fn faults_name_file_and_line() {
        let fault = |text: &str| read(text).expect_err(text);
        assert!(fault("1\n2,CPost").starts_with("r.txt:2: \"2,CPost\" is no time; write a number"));
        assert!(fault("nan").starts_with("r.txt:1: \"nan\" is no time"));
        assert!(fault("-1").contains("\"-1\" is no time"));
        assert_eq!(fault("# x\n5\n4"), "r.txt:3: 4 is before 5; times ascend");
        assert!(
            fault("0\n1e13").starts_with("r.txt:2: 0 is 1000000000000 us before"),
            "a long gap"
        );
        for text in ["", "7", "7\n7\n7"] {
            assert!(fault(text).starts_with("r.txt: a recording has two times or more"), "{text}");
        }
        let long: String = (0..GAPS_MAX + 2).map(|time| format!("{time}\n")).collect();
        assert_eq!(fault(&long), "r.txt:1048578: a recording has at most 1048577 times");
    }
}
