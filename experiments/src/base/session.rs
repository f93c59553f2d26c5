//! One run of an experiment: the folder of its results, the flag that stops it, and the function that prints its lines.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use harness::{CoreTime, Progress};
use report::Report;
use sim::{Entries, Extent, System, SystemError};

use super::rows::Rows;
use super::{lines, published};

/// A run of an experiment. Clones belong to the same run.
#[derive(Clone, Debug)]
pub struct Session {
    pub(crate) out: PathBuf,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) progress: Progress,
    print: fn(&str),
}

/// The reason why there are no results.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The options cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The work failed.
    #[error("{0}")]
    Failed(String),
}

impl From<SystemError> for Problem {
    /// Turns the simulator's error into a failure. The experiment chooses the simulator's input, so the error is not
    /// the fault of a caller's option.
    fn from(error: SystemError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl Session {
    /// Makes a run whose results go to the folder `out`. The folder is created if it does not exist. The run
    /// ends early and cleanly once `stop` is set. `print` receives each line of the summary.
    pub fn new(out: &Path, stop: Arc<AtomicBool>, print: fn(&str)) -> Self {
        Self { out: out.to_owned(), stop, progress: Progress::new(0), print }
    }

    /// Returns whether the run was interrupted.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns an error if the run was interrupted.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.is_stopped() { Err("stopped".to_owned()) } else { Ok(()) }
    }

    /// Shows on the progress bar that a part with this number of samples begins.
    pub(crate) fn begin(&self, part: &'static str, samples: usize) {
        self.progress.set_part(part);
        self.progress.restart(samples as u64);
    }

    /// Takes one sample, unless the run was interrupted.
    ///
    /// # Errors
    /// The run was interrupted, or the sample failed. The text names the failed sample.
    pub(crate) fn take<T>(
        &self,
        what: &str,
        sample: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        self.progress.set_message(what.to_owned());
        self.check()?;
        let taken = sample().map_err(|error| format!("{what}: {error}"));
        self.progress.advance(1);
        taken
    }

    /// Prints lines of the summary.
    pub(crate) fn say(&self, lines: impl IntoIterator<Item = impl AsRef<str>>) {
        lines.into_iter().for_each(|line| (self.print)(line.as_ref()));
    }

    /// Creates the folder for results, and tries to write there, so that a bad path shows before anything is measured.
    pub(crate) fn make_folder(&self) -> Result<(), Problem> {
        let probe = self.out.join(".rebate");
        std::fs::create_dir_all(&self.out)
            .and_then(|()| std::fs::write(&probe, ""))
            .and_then(|()| std::fs::remove_file(&probe))
            .map_err(|error| Problem::Usage(format!("--out {}: {error}", self.out.display())))
    }

    /// Writes the rows and the page with this name, and prints their paths. The results of an interrupted run have
    /// other names, so they do not replace those of a finished run.
    ///
    /// # Errors
    /// The files cannot be written, or the run was interrupted.
    pub(crate) fn write(&self, rows: &Rows, page: &str, report: &Report) -> Result<(), Problem> {
        let mark = if rows.unfinished.is_some() { "unfinished-" } else { "" };
        let path = self.out.join(format!("{mark}{}.json", rows.name));
        let page = self.out.join(format!("{mark}{page}"));
        let text = lines::text(rows).map_err(|e| Problem::Failed(e.to_string()))?;
        for (path, text) in [(&path, text), (&page, report.html())] {
            std::fs::write(path, text)
                .map_err(|error| Problem::Failed(format!("{}: {error}", path.display())))?;
        }
        (self.print)(&format!("wrote {} and {}", path.display(), page.display()));
        let stolen = rows.begun.map_or(0.0, CoreTime::stolen_since);
        if stolen > STOLEN_NOTED {
            let percent = 100.0 * stolen;
            (self.print)(&format!(
                "note: for {percent:.1} % of the cores' time the host ran others"
            ));
        }
        // The results are written in any case, because a wrong entry of the list must not cost a measurement.
        published::check(rows).map_err(Problem::Failed)?;
        match &rows.unfinished {
            Some(at) => Err(Problem::Failed(format!("{at}; the rest is missing"))),
            None => Ok(()),
        }
    }
}

/// Reads a compiled-in specification, and sets keys in it.
///
/// # Errors
/// The text says what is wrong, and where.
pub(crate) fn entries(spec: &str, set: &[sim::Assignment]) -> Result<Entries, Problem> {
    sim::read_entries(spec, set, &sim::file_text).map_err(Problem::Failed)
}

/// Simulates this number of replications, on as many threads as the machine has, but at most 64.
pub(crate) fn study(
    system: &System,
    architecture: &str,
    replications: u32,
    extent: Extent,
) -> Result<sim::Report, Problem> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(64));
    let plan = sim::Plan {
        extent,
        replications_min: replications,
        replications_max: replications,
        threads,
        ..sim::Plan::default()
    };
    let report = system.simulate(architecture, &plan, &|_| {});
    Ok(report?)
}

/// The greatest share of the cores' time that the host may use for other work (steal time). Above it, the run
/// prints a note.
const STOLEN_NOTED: f64 = 0.01;

/// Returns the number of replications of a study: `runs`, or the usual number.
///
/// # Errors
/// `runs` is out of range.
pub(crate) fn replications(runs: Option<usize>, quick: bool) -> Result<u32, Problem> {
    let replications = runs.unwrap_or(if quick { 5 } else { 10 });
    match u32::try_from(replications) {
        Ok(replications @ 5..=100) => Ok(replications),
        _ => Err(Problem::Usage(format!("--runs is {replications}; it must be 5 to 100"))),
    }
}

#[cfg(test)]
mod tests {
    use harness::Machine;

    use super::*;

    #[test]
    fn an_interrupted_run_keeps_the_results_of_a_finished_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let session = Session::new(folder.path(), Arc::default(), |_| ());
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name));
        let mut rows = Rows::new("runtime", &Machine::here(), "idle");
        assert!(session.write(&rows, "runtime.html", &Report::default()).is_ok());
        let whole = read("runtime.json").expect("rows");
        assert!(!whole.contains("unfinished"));
        rows.unfinished = Some("interrupted within loads".to_owned());
        let end = session.write(&rows, "runtime.html", &Report::default());
        let Err(Problem::Failed(said)) = end else { panic!("it is not finished") };
        assert_eq!(said, "interrupted within loads; the rest is missing");
        assert_eq!(read("runtime.json").expect("rows"), whole, "it is not written over");
        let part = read("unfinished-runtime.json").expect("rows");
        assert!(part.contains("\"unfinished\": \"interrupted within loads\""), "{part}");
        assert!(read("unfinished-runtime.html").is_ok());
    }
}
