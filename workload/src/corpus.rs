//! Reads a corpus, which is the concatenated files of a directory. Values are slices of the corpus.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The concatenated bytes of a directory's files.
#[derive(Clone, Debug)]
pub struct Corpus {
    pub(crate) bytes: Vec<u8>,
}

/// The reason why no corpus could be read from a directory. The operator must correct the path or the files.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// A file or directory could not be read.
    #[error("cannot read {path} of the corpus: {error}", path = path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
    /// The directory has no bytes in regular files.
    #[error("{path} has no file with a byte in it; a corpus needs one", path = .0.display())]
    Empty(PathBuf),
}

impl Corpus {
    /// Reads every regular file under `directory`, in the order of the paths, up to 256 MiB in all. Links are not
    /// followed.
    pub fn read(directory: &Path) -> Result<Self, CorpusError> {
        let mut bytes = Vec::new();
        for path in regular_files(directory)? {
            let bytes_left = CORPUS_BYTES_MAX - bytes.len() as u64;
            let read =
                File::open(&path).and_then(|file| file.take(bytes_left).read_to_end(&mut bytes));
            read.map_err(|error| CorpusError::Unreadable { path, error })?;
        }
        if bytes.is_empty() {
            return Err(CorpusError::Empty(directory.to_owned()));
        }
        Ok(Self { bytes })
    }
}

fn regular_files(directory: &Path) -> Result<Vec<PathBuf>, CorpusError> {
    let (mut files, mut open) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(path) = open.pop() {
        let unreadable = |error| CorpusError::Unreadable { path: path.clone(), error };
        for entry in fs::read_dir(&path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let kind = entry.file_type().map_err(unreadable)?;
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The largest corpus (bytes). A larger one would only make the start slower: a value has at most 1 GiB and typically
/// far less than 1 MiB.
const CORPUS_BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_joined_in_the_order_of_their_paths() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir(root.path().join("b")).expect("a directory within");
        for (name, text) in [("c", "three"), ("a", "one"), ("b/x", "two")] {
            fs::write(root.path().join(name), text).expect("a file");
        }
        assert_eq!(Corpus::read(root.path()).expect("a corpus").bytes, b"onetwothree");
    }

    #[test]
    fn an_empty_or_missing_directory_is_refused() {
        let root = tempfile::tempdir().expect("a directory");
        assert!(matches!(Corpus::read(root.path()), Err(CorpusError::Empty(_))));
        let missing = root.path().join("missing");
        assert!(matches!(Corpus::read(&missing), Err(CorpusError::Unreadable { .. })));
    }
}
