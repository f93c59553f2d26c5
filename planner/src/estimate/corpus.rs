//! Reads a folder whose files are values. The name of a file, relative to the folder, is its key. There is no server,
//! so there are no rates and no reuse.

use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use units::limits::{ITEM_BYTES_MAX_DEFAULT, KEY_BYTES_MAX};

use super::classes::{Classes, plan};
use super::listing::Listed;
use super::memory::{SlabSettings, Slabs, item_bytes};
use super::probe::{VALUE_BYTES_MAX, Value};
use super::reading::{Reading, SourceFacts};
use super::{Error, Options, Progress, Run};

/// Reads the folder.
pub(super) fn read_corpus(
    folder: &Path,
    options: &Options,
    run: &mut Run<'_>,
) -> Result<Reading, Error> {
    let slabs = Slabs::new(SlabSettings::default(), &[]);
    let mut classes = Classes::new(&options.prefixes, options.values, options.seed);
    let mut left_out = 0_u64;
    for path in files(folder, run)? {
        let key = key(folder, &path);
        let bytes = fs::metadata(&path).map_err(|error| unreadable(&path, &error))?.len();
        let item_bytes =
            item_bytes(key.len(), usize::try_from(bytes).unwrap_or(usize::MAX / 2), false);
        if item_bytes > ITEM_BYTES_MAX_DEFAULT.0 || key.len() > KEY_BYTES_MAX {
            left_out += 1;
            continue;
        }
        let memory = slabs.item_bytes(item_bytes);
        classes.add(Listed { key, expires: false, accessed_s: None, item_bytes }, memory);
    }
    let items = classes.items();
    if items == 0 {
        let text = format!("--corpus {}: the folder has no file of up to 1 MiB", folder.display());
        return Err(Error::Input(text));
    }
    classes.shuffle();
    let values = read_values(folder, &classes, options, run)?;
    let mut notes =
        vec!["There is no server: rates, reuse and expiry times are not known.".to_owned()];
    if left_out > 0 {
        notes.push(format!(
            "{left_out} files were left out: a value has at most 1 MiB, and a key at most {KEY_BYTES_MAX} bytes."
        ));
    }
    Ok(Reading {
        source: SourceFacts {
            name: folder.display().to_string(),
            items,
            items_listed: items,
            values_read: values.len(),
            ..SourceFacts::default()
        },
        classes: classes.into_list(),
        values,
        slabs,
        has_cas: true,
        has_sizes: true,
        rates: None,
        observed: None,
        beside: options.beside,
        evicts: None,
        notes,
    })
}

fn read_values(
    folder: &Path,
    classes: &Classes,
    options: &Options,
    run: &mut Run<'_>,
) -> Result<Vec<Value>, Error> {
    let wanted = plan(classes.list(), options.values, VALUE_BYTES_MAX);
    let mut values = Vec::new();
    for (at, (class, listed)) in wanted.iter().enumerate() {
        if run.stop.load(Ordering::Relaxed) {
            break;
        }
        let path = folder.join(std::ffi::OsStr::from_bytes(&listed.key));
        let bytes = read(&path).map_err(|error| unreadable(&path, &error))?;
        let (class, key) = (*class, listed.key.clone());
        values.push(Value { class, key, expires: false, has_flags: false, bytes });
        let fraction = at as f64 / wanted.len() as f64;
        run.report(Progress { part: "read", fraction, message: format!("{at} values read") });
    }
    if values.is_empty() { Err(Error::Stopped) } else { Ok(values) }
}

/// Reads a file, which may have grown since it was listed, as far as a value goes.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(ITEM_BYTES_MAX_DEFAULT.0).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns every file below the folder. Links are not followed, so the search ends.
fn files(folder: &Path, run: &Run<'_>) -> Result<Vec<PathBuf>, Error> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        let unreadable = |error| unreadable(&folder, &error);
        for entry in fs::read_dir(&folder).map_err(unreadable)? {
            if run.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let entry = entry.map_err(unreadable)?;
            let kind = entry.file_type().map_err(unreadable)?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn key(folder: &Path, path: &Path) -> Vec<u8> {
    path.strip_prefix(folder).unwrap_or(path).as_os_str().as_bytes().to_vec()
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::Input(format!("--corpus {}: {error}", path.display()))
}
