//! Results as one row a number, each architecture's written at once when it is done, so that a sweep that is interrupted
//! keeps what it has. The last row of each is its `events`: what has none was cut off and is made again.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use sim::accelflow::Architecture;
use sim::{Interval, Verdict};

use super::points::Sweep;
use super::{Here, Outcome};

pub(super) struct Csv {
    file: File,
    path: String,
    /// The first columns of what the file already has.
    done: BTreeSet<String>,
}

impl Csv {
    /// A file with one column for each sweep; with `resume` it keeps what is whole in it.
    pub(super) fn open(path: &Path, sweeps: &[Sweep], resume: bool) -> Result<Self, String> {
        let bad = |error: std::io::Error| format!("--csv {}: {error}", path.display());
        let keys: String = sweeps.iter().map(|sweep| format!("{},", quoted(&sweep.key))).collect();
        let header =
            format!("spec,{keys}architecture,seed,runs,verdict,name,metric,value,low,high\n");
        let mut text = header.clone();
        let mut done = BTreeSet::new();
        if resume && path.exists() {
            let old = std::fs::read_to_string(path).map_err(bad)?;
            let Some(rows) = old.strip_prefix(&header) else {
                let path = path.display();
                return Err(format!("--resume: {path} has other columns; name another file"));
            };
            (text, done) = whole(header, rows);
        }
        std::fs::write(path, text).map_err(bad)?;
        let file = OpenOptions::new().append(true).open(path).map_err(bad)?;
        Ok(Self { file, path: path.display().to_string(), done })
    }

    /// True if the file has it already.
    pub(super) fn has(&self, here: &Here<'_>, architecture: Architecture) -> bool {
        self.done.contains(&start(here, architecture))
    }

    /// Adds all numbers of one architecture.
    pub(super) fn write(&mut self, here: &Here<'_>, outcome: &Outcome) -> Result<(), String> {
        let rows = rows(here, outcome);
        let written = self.file.write_all(rows.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| format!("--csv {}: {error}", self.path))
    }
}

/// The rows of runs that end, and their first columns.
fn whole(header: String, rows: &str) -> (String, BTreeSet<String>) {
    let (mut text, mut block, mut done) = (header, String::new(), BTreeSet::new());
    for row in rows.split_inclusive('\n') {
        block.push_str(row);
        if let Some((start, _)) = row.split_once(END)
            && row.ends_with('\n')
        {
            // Before the verdict, which is a word.
            done.extend(start.rsplit_once(',').map(|(start, _)| start.to_owned()));
            text.push_str(&block);
            block.clear();
        }
    }
    (text, done)
}

/// The columns that name a run.
fn start(here: &Here<'_>, architecture: Architecture) -> String {
    let values: String = here.point.iter().map(|one| format!("{},", quoted(&one.value))).collect();
    let spec = quoted(here.spec);
    format!("{spec},{values}{},{},{}", architecture.name(), here.seed, here.runs)
}

fn rows(here: &Here<'_>, outcome: &Outcome) -> String {
    let report = &outcome.report;
    let verdict = match report.verdict {
        Verdict::Steady => "steady",
        Verdict::Window => "window",
        Verdict::Refused { .. } => "refused",
    };
    let start = format!("{},{verdict}", start(here, outcome.architecture));
    let row = |name: &str, metric: &str, found: Option<Interval>| match found {
        Some(Interval { value, ci95: [low, high] }) => {
            format!("{start},{name},{metric},{value},{low},{high}\n")
        }
        None => format!("{start},{name},{metric},,,\n"),
    };
    let mut rows = String::new();
    for response in &report.responses {
        rows += &row(&response.name, "mean_ns", response.mean_ns);
        rows += &row(&response.name, "p99_ns", response.p99_ns);
    }
    let across = report.across();
    rows += &row("all", "mean_ns", across.as_ref().map(|across| across.mean_ns));
    rows += &row("all", "p99_ns", across.and_then(|across| across.p99_ns));
    for fact in &report.facts {
        rows += &row(&fact.name, "fact", fact.value);
    }
    rows + &format!("{start}{END}{},,\n", report.events)
}

/// A field as CSV has it.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

const END: &str = ",all,events,";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_is_dropped() {
        let rows = "s,2,relief,1,10,steady,a,mean_ns,1,1,1\ns,2,relief,1,10,steady,all,events,9,,\n\
                    s,4,relief,1,10,steady,a,mean_ns,1,1,1\ns,4,relief,1,10,steady,all,events,9";
        let (text, done) = whole("h\n".to_owned(), rows);
        assert_eq!(text.lines().count(), 3);
        assert_eq!(done.into_iter().collect::<Vec<_>>(), ["s,2,relief,1,10"]);
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
