//! Runs a command of this program under callgrind, valgrind's simulation of a core's caches and branch predictor. Reads
//! the counts of each thread's functions. Callgrind measures no times and does not model pipelines.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::ops::{AddAssign, Sub};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The counted events, by callgrind's names. The caches are the first-level caches.
pub(super) const EVENTS: [&str; 10] =
    ["Ir", "Dr", "Dw", "I1mr", "D1mr", "D1mw", "Bc", "Bcm", "Bi", "Bim"];

/// A count of each of the [`EVENTS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts([u64; EVENTS.len()]);

/// The counts of a thread's functions, by name. The counts of a function are the sums over all calls to it. They
/// include the functions that it called.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Thread(BTreeMap<String, Counts>);

impl Counts {
    /// Returns the sum of these events.
    pub(super) fn sum(self, names: &[&str]) -> u64 {
        let chosen = EVENTS.iter().zip(self.0).filter(|(name, _)| names.contains(name));
        chosen.map(|(_, count)| count).sum()
    }

    /// Sets the count of an event.
    #[cfg(test)]
    pub(super) fn with(mut self, event: &str, count: u64) -> Self {
        let index = EVENTS.iter().position(|name| *name == event).expect("an event");
        self.0[index] = count;
        self
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, other)| *count += other);
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(count, other)| {
            *count = count.saturating_sub(other);
        });
        self
    }
}

impl Thread {
    /// Returns the counts of the function whose path ends with `name`, in any module. Returns none if this thread did
    /// not call the function, or if the compiler inlined every call.
    pub(super) fn whole(&self, name: &str) -> Option<Counts> {
        let mut sum = None;
        for (_, counts) in self.0.iter().filter(|(path, _)| path.ends_with(name)) {
            *sum.get_or_insert_with(Counts::default) += *counts;
        }
        sum
    }

    /// Reads the output of callgrind, in which names and positions are written in full.
    fn read(text: &str) -> Result<Self, String> {
        let mut thread = Self::default();
        let (mut columns, mut called) = (Vec::new(), None);
        for line in text.lines() {
            if let Some(names) = line.strip_prefix("events: ") {
                let index = |name| EVENTS.iter().position(|event| *event == name);
                columns = names.split_whitespace().map(index).collect();
            } else if let Some(name) = line.strip_prefix("cfn=") {
                called = Some(name.to_owned());
            } else if line.starts_with(|first: char| first.is_ascii_digit()) {
                let counts = counts(line, &columns)?;
                // The line after `cfn` and `calls` counts the call. All other lines count a function's own code.
                if let Some(name) = called.take() {
                    *thread.0.entry(name).or_default() += counts;
                }
            }
        }
        if columns.is_empty() { Err("it has no events".to_owned()) } else { Ok(thread) }
    }
}

/// Reads a line that has a position and a count for each column. Missing columns at the end are zero.
fn counts(line: &str, columns: &[Option<usize>]) -> Result<Counts, String> {
    let mut counts = Counts::default();
    for (column, word) in columns.iter().zip(line.split_whitespace().skip(1)) {
        let count: u64 = word.parse().map_err(|_| format!("{line:?} is no line of counts"))?;
        if let Some(index) = column {
            counts.0[*index] += count;
        }
    }
    Ok(counts)
}

/// Runs this program with `arguments` under callgrind and returns each thread that has counts. Callgrind writes its
/// files to `folder`.
///
/// # Errors
/// The text says why there are no counts.
pub(super) fn run<S: AsRef<OsStr>>(arguments: &[S], folder: &Path) -> Result<Vec<Thread>, String> {
    let program = std::env::current_exe().map_err(|error| format!("no program: {error}"))?;
    let mut command = Command::new("valgrind");
    command.args(FLAGS);
    command.arg(format!("--callgrind-out-file={}", folder.join(OUT).display()));
    command.arg(program).args(arguments).stdin(Stdio::null());
    let output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => "this machine has no valgrind".to_owned(),
        _ => format!("valgrind: {error}"),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rev().find(|line| !line.starts_with("==")).unwrap_or_default();
        return Err(format!("under valgrind it ended with {}: {last}", output.status));
    }
    files(folder)?.iter().map(|file| take(file)).collect()
}

/// Reads a file and removes it.
fn take(file: &Path) -> Result<Thread, String> {
    let problem = |problem: String| format!("{}: {problem}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| problem(error.to_string()))?;
    std::fs::remove_file(file).map_err(|error| problem(error.to_string()))?;
    Thread::read(&text).map_err(problem)
}

/// Returns the files of counts, one for each thread. The number of the thread is at the end of the file's name. The
/// file without a number is empty and not returned.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let listed = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let paths = listed.filter_map(|entry| Some(entry.ok()?.path()));
    let is_count = |path: &PathBuf| {
        let number = path.file_name().and_then(OsStr::to_str).and_then(|n| n.strip_prefix(OUT));
        number.is_some_and(|number| number.starts_with('-'))
    };
    Ok(paths.filter(is_count).collect())
}

const OUT: &str = "callgrind.out";
const FLAGS: [&str; 10] = [
    "--tool=callgrind",
    "--cache-sim=yes",
    "--branch-sim=yes",
    // These are the caches of the simulated cores of [Arcalis] table IV.
    "--I1=32768,8,64",
    "--D1=32768,8,64",
    "--LL=33554432,16,64",
    "--separate-threads=yes",
    "--compress-strings=no",
    "--compress-pos=no",
    // Without this flag a thread that never waits prevents all other threads from running.
    "--fair-sched=yes",
];

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "version: 1\ncreator: callgrind-3.19.0\npid: 7\npositions: line\n\
        events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw Bc Bcm Bi Bim \nsummary: 99 1\n\n\
        ob=/bin/rebate\nfl=main.rs\nfn=cli::main\n10 5 2 1\nfi=inlined.rs\n11 2\n\
        cfi=x.rs\ncfn=server::turn\ncalls=3 20\n12 70 10 5 1 2 3 9 9 9 4 1 2 1\n13 1\n\n\
        fn=server::turn\n20 30 4\ncfn=server::respond\ncalls=3 40\n21 40 6 5 1 2 3\n";

    #[test]
    fn a_function_has_the_counts_of_its_calls() {
        let thread = Thread::read(TEXT).expect("callgrind's form");
        let turn = thread.whole("::turn").expect("called");
        assert_eq!((turn.sum(&["Ir"]), turn.sum(&["Dr", "Dw"])), (70, 15));
        assert_eq!((turn.sum(&["D1mr", "D1mw"]), turn.sum(&["Bc", "Bi"])), (5, 6));
        assert_eq!(
            (turn.sum(&["Bcm", "Bim"]), turn.sum(&["I1mr"])),
            (2, 1),
            "not the last level's"
        );
        let respond = thread.whole("respond").expect("called");
        assert_eq!((turn - respond).sum(&["Ir"]), 30);
        assert_eq!(thread.whole("main"), None, "nobody calls it");
        assert_eq!(thread.whole("::nothing"), None);
    }

    #[test]
    fn text_that_is_not_callgrinds_is_refused() {
        assert!(Thread::read("").is_err());
        assert!(Thread::read("events: Ir\nfn=a\n1 many\n").is_err());
    }
}
