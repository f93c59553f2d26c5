//! The finished parts of a long experiment. They are stored next to its results until the results are written, so that
//! an interrupted run can continue with the remaining parts. Each part is one line, which is added when the part is
//! done. The key of a part names everything that determines it. The caller defines what a value means. A line that was
//! cut off is dropped.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The finished parts, with the file that stores them.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    path: PathBuf,
    file: File,
    done: BTreeMap<String, Value>,
}

impl Checkpoint {
    /// Reads the complete lines of `FOLDER/NAME.unfinished`. It creates the file if there is none.
    ///
    /// # Errors
    /// The file cannot be read or written, or it was not written by this type.
    pub(crate) fn open(folder: &Path, name: &str) -> Result<Self, String> {
        let path = folder.join(format!("{name}.unfinished"));
        let bad = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut open = OpenOptions::new();
        let mut file = open.read(true).append(true).create(true).open(&path).map_err(bad)?;
        let size = file.metadata().map_err(bad)?.len();
        if size > BYTES_MAX {
            let path = path.display();
            return Err(format!(
                "{path} has {size} bytes; at most {BYTES_MAX} are read: remove it"
            ));
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(bad)?;
        let (length, done) = whole(&text);
        if length == 0 && !text.is_empty() && text.contains(&b'\n') {
            return Err(format!("{}: its first line is no part of ours", path.display()));
        }
        file.set_len(length as u64).map_err(bad)?;
        Ok(Self { path, file, done })
    }

    /// Returns the number of finished parts.
    pub(crate) fn len(&self) -> usize {
        self.done.len()
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the part with this key, or None if it is absent or unreadable.
    pub(crate) fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_value(self.done.get(key)?.clone()).ok()
    }

    /// Adds a part.
    ///
    /// # Errors
    /// The part cannot be written.
    pub(crate) fn put(&mut self, key: &str, part: &impl Serialize) -> Result<(), String> {
        let bad = |error: &dyn std::fmt::Display| format!("{}: {error}", self.path.display());
        let value = serde_json::to_value(part).map_err(|error| bad(&error))?;
        let line = format!("{}\n", json!({ "key": key, "part": value }));
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| bad(&error))?;
        self.done.insert(key.to_owned(), value);
        Ok(())
    }

    /// Removes the file, after all results are written.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub(crate) fn finish(self) -> Result<(), String> {
        std::fs::remove_file(&self.path)
            .map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

/// Returns the length of the complete lines at the start, and the parts in them.
fn whole(text: &[u8]) -> (usize, BTreeMap<String, Value>) {
    let (mut length, mut done) = (0, BTreeMap::new());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let Ok(Value::Object(mut found)) = serde_json::from_slice(line) else { break };
        let (Some(Value::String(key)), Some(part)) = (found.remove("key"), found.remove("part"))
        else {
            break;
        };
        if !line.ends_with(b"\n") {
            break;
        }
        done.insert(key, part);
        length += line.len();
    }
    (length, done)
}

const BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_parts_are_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut checkpoint = Checkpoint::open(folder.path(), "name").expect("new");
        checkpoint.put("a", &[1, 2]).expect("written");
        checkpoint.put("b", &u64::MAX).expect("written");
        let path = folder.path().join("name.unfinished");
        let text = std::fs::read_to_string(&path).expect("a file");
        for cut in [text.len() - 1, text.len() - 5] {
            std::fs::write(&path, &text[..cut]).expect("written");
            let checkpoint = Checkpoint::open(folder.path(), "name").expect("whole in part");
            assert_eq!(
                (checkpoint.get("a"), checkpoint.get::<u64>("b")),
                (Some([1, 2]), None),
                "{cut}"
            );
        }
        let mut checkpoint = Checkpoint::open(folder.path(), "name").expect("whole");
        checkpoint.put("b", &u64::MAX).expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), text, "as if never cut");
        assert_eq!((checkpoint.len(), checkpoint.get("b")), (2, Some(u64::MAX)));
        assert_eq!(checkpoint.get::<String>("b"), None, "another form is not taken");
        checkpoint.finish().expect("removed");
        assert!(!path.exists());
    }

    #[test]
    fn a_file_of_another_kind_is_not_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("name.unfinished");
        std::fs::write(&path, "notes\nof mine\n").expect("written");
        let error = Checkpoint::open(folder.path(), "name").expect_err("refused");
        assert!(error.contains("no part of ours"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), "notes\nof mine\n");
    }
}
