//! Writes results with one row per number. The rows of a study are written as soon as the study is done, so that an
//! interrupted sweep keeps its finished studies. If the machine stops, the rows of the last second may be lost. The
//! last row of each study is its `events`. A study without this row was cut off and is simulated again. Complete
//! studies are never overwritten.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use csv::{ReaderBuilder, StringRecord, Writer};
use sim::Sweep;

use super::{Outcome, StudyKey};

pub(super) struct Csv {
    file: File,
    path: String,
    /// The last time at which all rows were on the disk.
    synced: Instant,
    /// The first columns of the studies that the file already has.
    done: BTreeSet<Vec<String>>,
}

impl Csv {
    /// Opens a file with one column for each sweep. The file must be new unless `resume` is set. With `resume`,
    /// complete studies of an existing file are kept.
    pub(super) fn open(path: &Path, sweeps: &[Sweep], resume: bool) -> Result<Self, String> {
        let bad = |error: std::io::Error| format!("--csv {}: {error}", path.display());
        let keys = sweeps.iter().map(|sweep| sweep.key.as_str());
        let columns: Vec<&str> = ["spec"].into_iter().chain(keys).chain(COLUMNS).collect();
        let header = text([columns]);
        let mut done = BTreeSet::new();
        let mut open = OpenOptions::new();
        let open = open.append(true).create(resume).create_new(!resume);
        let mut file = open.open(path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                format!("--csv {}: is there already; --resume goes on with it", path.display())
            }
            _ => bad(error),
        })?;
        let old = if resume { std::fs::read_to_string(path).map_err(bad)? } else { String::new() };
        if let Some(rows) = old.strip_prefix(&header) {
            let length;
            (length, done) = whole(rows);
            file.set_len((header.len() + length) as u64).map_err(bad)?;
        } else if header.starts_with(&old) {
            // The file is new, or the program was stopped before the first line was written.
            file.set_len(0).and_then(|()| file.write_all(header.as_bytes())).map_err(bad)?;
        } else {
            let path = path.display();
            return Err(format!("--resume: {path} has other columns; name another file"));
        }
        Ok(Self { file, path: path.display().to_string(), synced: Instant::now(), done })
    }

    /// Returns whether the file already has this study.
    pub(super) fn has(&self, here: &StudyKey<'_>, architecture: &str) -> bool {
        self.done.contains(&start(here, architecture))
    }

    /// Appends all numbers of one architecture.
    pub(super) fn write(&mut self, here: &StudyKey<'_>, outcome: &Outcome) -> Result<(), String> {
        let written = self.file.write_all(rows(here, outcome).as_bytes());
        written.map_err(|error| format!("--csv {}: {error}", self.path))?;
        // The file is not synced after each study, because syncing takes longer than many studies.
        if self.synced.elapsed() > SYNC_EVERY { self.sync() } else { Ok(()) }
    }

    /// Syncs the file to the disk.
    pub(super) fn sync(&mut self) -> Result<(), String> {
        self.file.sync_data().map_err(|error| format!("--csv {}: {error}", self.path))?;
        self.synced = Instant::now();
        Ok(())
    }
}

/// Returns the length of the rows of complete studies (bytes), and the first columns of these studies.
fn whole(rows: &str) -> (usize, BTreeSet<Vec<String>>) {
    let (mut length, mut done, mut row) = (0, BTreeSet::new(), StringRecord::new());
    let mut reader =
        ReaderBuilder::new().has_headers(false).flexible(true).from_reader(rows.as_bytes());
    while let Ok(true) = reader.read_record(&mut row) {
        let end = reader.position().byte() as usize;
        let columns: Vec<&str> = row.iter().collect();
        if let [start @ .., _, "all", "events", _, "", ""] = &columns[..]
            && rows[..end].ends_with('\n')
        {
            done.insert(start.iter().map(|&column| column.to_owned()).collect());
            length = end;
        }
    }
    (length, done)
}

/// Returns the columns that name a study.
fn start(here: &StudyKey<'_>, architecture: &str) -> Vec<String> {
    let StudyKey { seed, runs, inputs, .. } = here;
    let values = here.point.iter().map(|one| one.value.clone());
    let last =
        [architecture.to_owned(), seed.to_string(), runs.to_string(), format!("{inputs:016x}")];
    [here.spec.to_owned()].into_iter().chain(values).chain(last).collect()
}

fn rows(here: &StudyKey<'_>, outcome: &Outcome) -> String {
    let report = &outcome.report;
    let mut start = start(here, outcome.architecture);
    start.push(report.verdict.name().to_owned());
    let row = |name: &str, metric: &str, numbers: [String; 3]| {
        [&start[..], &[name.to_owned(), metric.to_owned()], &numbers].concat()
    };
    let one = |number: u64| [number.to_string(), String::new(), String::new()];
    let found = report.rows().into_iter().map(|(name, metric, found)| {
        let numbers = found.map(|found| [found.value, found.ci95[0], found.ci95[1]]);
        row(
            name,
            metric,
            numbers.map_or_else(Default::default, |all| all.map(|one| one.to_string())),
        )
    });
    let precise = report.precise.map(|yes| row("all", "precise", one(yes.into())));
    text(found.chain(precise).chain([row("all", "events", one(report.events))]))
}

/// Returns rows as CSV.
fn text(rows: impl IntoIterator<Item = impl IntoIterator<Item = impl AsRef<[u8]>>>) -> String {
    let mut writer = Writer::from_writer(Vec::new());
    rows.into_iter().for_each(|row| writer.write_record(row).expect("rows of one length"));
    let bytes = writer.into_inner().expect("a vector takes every write");
    String::from_utf8(bytes).expect("its fields are text")
}

/// The columns to the right of the sweeps' columns.
const COLUMNS: [&str; 10] =
    ["architecture", "seed", "runs", "inputs", "verdict", "name", "metric", "value", "low", "high"];

const SYNC_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_is_dropped() {
        let rows = "s,2,relief,1,10,f,steady,a,mean_ns,1,1,1\ns,2,relief,1,10,f,steady,all,events,9,,\n\
                    s,4,relief,1,10,f,steady,a,mean_ns,1,1,1\ns,4,relief,1,10,f,steady,all,events,9,,";
        let (length, done) = whole(rows);
        assert_eq!(rows[..length].lines().count(), 2);
        assert_eq!(
            done,
            BTreeSet::from([["s", "2", "relief", "1", "10", "f"].map(Into::into).into()])
        );
    }

    #[test]
    fn names_with_commas_quotes_and_lines_are_read_back() {
        let name = "a,\"b\"\nc";
        let rows = text([[name, "1", "f", "steady", "all", "events", "9", "", ""]]);
        let (length, done) = whole(&rows);
        assert_eq!((length, done.first().map(|start| start[0].as_str())), (rows.len(), Some(name)));
    }
}
