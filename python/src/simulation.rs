//! Runs the simulator for one point of a sweep under some architectures. It runs without the interpreter's lock, and
//! stops between replications when Python has a signal to handle. Results are plain data, so that they can be sent
//! between processes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sim::{Assignment, Entries, Interval, Plan, Recordings, Report, System, SystemError, Verdict};

use crate::value_error;

/// Adds this file's types and functions to the extension module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(architectures, module)?)?;
    module.add_function(wrap_pyfunction!(files, module)?)?;
    module.add_function(wrap_pyfunction!(recording, module)?)?;
    module.add_function(wrap_pyfunction!(scenarios, module)?)?;
    module.add_function(wrap_pyfunction!(simulate, module)?)?;
    module.add_function(wrap_pyfunction!(sources, module)?)
}

/// The time between two checks whether Python was interrupted.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Returns the scenarios that are compiled in.
#[pyfunction]
pub(crate) fn scenarios() -> Vec<&'static str> {
    sim::scenarios()
}

/// Returns the architectures with these names of a specification's system. Without names, it returns those
/// that the specification compares. The name `all` selects every architecture.
#[pyfunction]
#[pyo3(signature = (spec, set, names, files = None))]
pub(crate) fn architectures(
    spec: &str,
    set: Vec<(String, String)>,
    names: Vec<String>,
    files: Option<BTreeMap<String, String>>,
) -> PyResult<Vec<&'static str>> {
    let system = System::read(&entries(spec, &set, files.as_ref())?).map_err(value_error)?;
    system.architectures(&names).map_err(raised)
}

/// Returns every key of a specification with its value, kind and source. If `files` is given, the texts of files come
/// from it.
#[pyfunction]
#[pyo3(signature = (spec, set, files = None))]
pub(crate) fn sources(
    spec: &str,
    set: Vec<(String, String)>,
    files: Option<BTreeMap<String, String>>,
) -> PyResult<Vec<(String, String, String, String)>> {
    let read = |path: &Path, bytes_max| text(path, bytes_max, files.as_ref());
    let mut entries = sim::entries(spec, &read).map_err(value_error)?;
    for (key, value) in &set {
        entries.set(key, value).map_err(value_error)?;
    }
    let row = |(key, value, kind, source): (&str, String, &str, &str)| {
        (key.to_owned(), value, kind.to_owned(), source.to_owned())
    };
    Ok(entries.sources().map(row).collect())
}

/// Returns the texts of a specification's files by path, for a process that cannot read them. A compiled-in scenario
/// has no files. For each set of keys in `sets`, the result also has the recordings that the specification names with
/// these keys.
#[pyfunction]
#[pyo3(signature = (spec, sets = Vec::new()))]
pub(crate) fn files(
    spec: &str,
    sets: Vec<Vec<(String, String)>>,
) -> PyResult<BTreeMap<String, String>> {
    let read = RefCell::new(BTreeMap::new());
    let open = |path: &Path, bytes_max: usize| {
        let text = sim::file_text(path, bytes_max)?;
        read.borrow_mut().insert(path.display().to_string(), text.clone());
        Ok(text)
    };
    let entries = sim::entries(spec, &open).map_err(value_error)?;
    let mut known = Recordings::default();
    for set in sets {
        sim::set(entries.clone(), &assignments(&set), &mut known, &open).map_err(value_error)?;
    }
    Ok(read.into_inner())
}

/// Returns a hash of the recording that a specification names with these keys set. Returns none if it names no
/// recording.
#[pyfunction]
#[pyo3(signature = (spec, set, files = None))]
pub(crate) fn recording(
    spec: &str,
    set: Vec<(String, String)>,
    files: Option<BTreeMap<String, String>>,
) -> PyResult<Option<String>> {
    let found = entries(spec, &set, files.as_ref())?.recording_hash();
    Ok(found.map(|hash| format!("{hash:016x}")))
}

/// Simulates a specification with these keys set, under these architectures, with common random numbers. Returns a
/// dictionary for each architecture, with its rows and its reductions relative to the others.
#[pyfunction]
#[pyo3(signature = (spec, set, architectures, *, seed, runs, precision, threads, files))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn simulate<'py>(
    py: Python<'py>,
    spec: &str,
    set: Vec<(String, String)>,
    architectures: Vec<String>,
    seed: u64,
    runs: u32,
    precision: Option<f64>,
    threads: Option<usize>,
    files: Option<BTreeMap<String, String>>,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let system = System::read(&entries(spec, &set, files.as_ref())?).map_err(value_error)?;
    let chosen = system.architectures(&architectures).map_err(raised)?;
    let cores = thread::available_parallelism().map_or(1, |threads| threads.get().min(1_024));
    let plan = Plan {
        seed,
        extent: system.extent(),
        replications_min: runs,
        replications_max: if precision.is_some() { runs.saturating_mul(20) } else { runs },
        precision,
        threads: threads.unwrap_or(cores),
        ..Plan::default()
    };
    let study = |architecture: &&str| study(py, &plan, &system, architecture);
    let reports = chosen.iter().map(study).collect::<PyResult<Vec<Report>>>()?;
    let one = |at: usize| result(py, &chosen, &reports, at);
    (0..reports.len()).map(one).collect()
}

/// Returns the keys of a specification after `set` is applied, and the recording that they name.
fn entries(
    spec: &str,
    set: &[(String, String)],
    files: Option<&BTreeMap<String, String>>,
) -> PyResult<Entries> {
    let read = |path: &Path, bytes_max| text(path, bytes_max, files);
    sim::read_entries(spec, &assignments(set), &read).map_err(value_error)
}

fn assignments(set: &[(String, String)]) -> Vec<Assignment> {
    set.iter().map(|(key, value)| Assignment::new(key, value)).collect()
}

/// Returns the text of a file. If `files` is given, the text comes from it instead of the disk.
fn text(
    path: &Path,
    bytes_max: usize,
    files: Option<&BTreeMap<String, String>>,
) -> Result<String, String> {
    let Some(files) = files else { return sim::file_text(path, bytes_max) };
    let found = files.get(&path.display().to_string()).cloned();
    found.ok_or_else(|| "not among the files that were sent".to_owned())
}

/// Converts a system's error into a Python exception.
fn raised(error: SystemError) -> PyErr {
    match error {
        SystemError::Invalid(problem) => value_error(problem),
        SystemError::Failed(problem) => PyRuntimeError::new_err(problem),
    }
}

/// Runs a study on other threads. Meanwhile this thread waits without the interpreter's lock and checks for signals.
fn study(py: Python<'_>, plan: &Plan, system: &System, architecture: &str) -> PyResult<Report> {
    let stopped = AtomicBool::new(false);
    let (done, over) = sync_channel::<()>(1);
    // The closure that runs without the interpreter's lock must be shareable, so this is a mutex. Only this thread uses
    // it.
    let over = Mutex::new(over);
    thread::scope(|scope| {
        let study = scope.spawn(|| {
            // A panic also drops this sender, so the waiting thread always notices the end.
            let _done = done;
            system.simulate_unless(&stopped, architecture, plan, &|_| ())
        });
        let mut signal = None;
        while let Err(RecvTimeoutError::Timeout) = py.detach(|| wait(&over)) {
            if signal.is_none()
                && let Err(error) = py.check_signals()
            {
                stopped.store(true, Ordering::Relaxed);
                signal = Some(error);
            }
        }
        let report = py.detach(|| study.join());
        match (signal, report) {
            (Some(signal), _) => Err(signal),
            (None, Ok(report)) => report.map_err(raised),
            (None, Err(panic)) => std::panic::resume_unwind(panic),
        }
    })
}

/// Waits until the study is over or it is time to check for signals.
fn wait(over: &Mutex<Receiver<()>>) -> Result<(), RecvTimeoutError> {
    over.lock().map_or(Err(RecvTimeoutError::Disconnected), |over| over.recv_timeout(CHECK_EVERY))
}

fn result<'py>(
    py: Python<'py>,
    chosen: &[&'static str],
    reports: &[Report],
    at: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let report = &reports[at];
    let dict = PyDict::new(py);
    dict.set_item("architecture", chosen[at])?;
    dict.set_item("seed", report.seed)?;
    dict.set_item("replications", report.replications)?;
    dict.set_item("events", report.events)?;
    dict.set_item("verdict", report.verdict.name())?;
    dict.set_item("precise", report.precise)?;
    if let Verdict::Refused { reason, .. } = &report.verdict {
        dict.set_item("reason", reason)?;
    }
    let flat = |found: Option<Interval>| found.map(|one| (one.value, one.ci95[0], one.ci95[1]));
    let rows = report.rows().into_iter().map(|(name, metric, found)| (name, metric, flat(found)));
    dict.set_item("rows", rows.collect::<Vec<_>>())?;
    let against = chosen.iter().zip(reports).filter_map(|(other, theirs)| {
        let found = report.reduction(theirs).filter(|_| *other != chosen[at])?;
        Some((*other, flat(Some(found.mean)), flat(found.p99)))
    });
    dict.set_item("reductions", against.collect::<Vec<_>>())?;
    Ok(dict)
}
