//! Writes results as one row per number. The rows of an architecture are written at once when its study is done, so
//! that an interrupted sweep keeps what it has. If the machine stops, what was written in the last second may be lost.
//! The last row of each study is its `events`. A study without that row was cut off and is made again. Whole studies
//! are never overwritten.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use sim::{Interval, Sweep};

use super::{Outcome, StudyKey};

pub(super) struct Csv {
    file: File,
    path: String,
    /// The time at which everything written before was on the disk.
    synced: Instant,
    /// The first columns of the rows that the file already has.
    done: BTreeSet<String>,
}

impl Csv {
    /// Opens a file with one column for each sweep: a new file, or with `resume` an old one, of which whole studies are
    /// kept.
    pub(super) fn open(path: &Path, sweeps: &[Sweep], resume: bool) -> Result<Self, String> {
        let bad = |error: std::io::Error| format!("--csv {}: {error}", path.display());
        let keys: String = sweeps.iter().map(|sweep| format!("{},", quoted(&sweep.key))).collect();
        let header = format!(
            "spec,{keys}architecture,seed,runs,inputs,verdict,name,metric,value,low,high\n"
        );
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

    /// Tells whether the file has this study already.
    pub(super) fn has(&self, here: &StudyKey<'_>, architecture: &str) -> bool {
        self.done.contains(&start(here, architecture))
    }

    /// Adds all numbers of one architecture.
    pub(super) fn write(&mut self, here: &StudyKey<'_>, outcome: &Outcome) -> Result<(), String> {
        let written = self.file.write_all(rows(here, outcome).as_bytes());
        written.map_err(|error| format!("--csv {}: {error}", self.path))?;
        // Syncing takes the disk longer than many a study takes.
        if self.synced.elapsed() > SYNC_EVERY { self.sync() } else { Ok(()) }
    }

    /// Writes everything through to the disk.
    pub(super) fn sync(&mut self) -> Result<(), String> {
        self.file.sync_data().map_err(|error| format!("--csv {}: {error}", self.path))?;
        self.synced = Instant::now();
        Ok(())
    }
}

/// Returns the length of the rows of whole studies, and the first columns of those studies.
fn whole(rows: &str) -> (usize, BTreeSet<String>) {
    let (mut at, mut length, mut done) = (0, 0, BTreeSet::new());
    for row in rows.split_inclusive('\n') {
        at += row.len();
        if let Some((start, _)) = row.split_once(END)
            && row.ends_with('\n')
        {
            // The columns in front of the verdict, which is a word.
            done.extend(start.rsplit_once(',').map(|(start, _)| start.to_owned()));
            length = at;
        }
    }
    (length, done)
}

/// Returns the columns that name a study.
fn start(here: &StudyKey<'_>, architecture: &str) -> String {
    let values: String = here.point.iter().map(|one| format!("{},", quoted(&one.value))).collect();
    let spec = quoted(here.spec);
    let StudyKey { seed, runs, inputs, .. } = here;
    format!("{spec},{values}{architecture},{seed},{runs},{inputs:016x}")
}

fn rows(here: &StudyKey<'_>, outcome: &Outcome) -> String {
    let report = &outcome.report;
    let start = format!("{},{}", start(here, outcome.architecture), report.verdict.name());
    let row = |name: &str, metric: &str, found: Option<Interval>| match found {
        Some(Interval { value, ci95: [low, high] }) => {
            format!("{start},{name},{metric},{value},{low},{high}\n")
        }
        None => format!("{start},{name},{metric},,,\n"),
    };
    let rows = report.rows();
    let rows: String =
        rows.into_iter().map(|(name, metric, found)| row(name, metric, found)).collect();
    let precise = report.precise.map(|yes| format!("{start},all,precise,{},,\n", u8::from(yes)));
    rows + &precise.unwrap_or_default() + &format!("{start}{END}{},,\n", report.events)
}

/// Quotes a field for CSV.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

const END: &str = ",all,events,";

const SYNC_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_is_dropped() {
        let rows = "s,2,relief,1,10,f,steady,a,mean_ns,1,1,1\ns,2,relief,1,10,f,steady,all,events,9,,\n\
                    s,4,relief,1,10,f,steady,a,mean_ns,1,1,1\ns,4,relief,1,10,f,steady,all,events,9";
        let (length, done) = whole(rows);
        assert_eq!(rows[..length].lines().count(), 2);
        assert_eq!(done.into_iter().collect::<Vec<_>>(), ["s,2,relief,1,10,f"]);
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
