//! Counts the instructions and other events of a request with callgrind. One count is for a core that runs
//! both the functional engine and the handler. The other count is for the application core if the engine runs
//! on another core. The rows are compared with the reductions of \[Arcalis\], whose engine is hardware and
//! executes no instructions.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::callgrind::{self, Counts};
use super::runner::WORKLOADS;
use crate::base::rows::{Kind, Row};

/// A folder for recordings and counts. It is removed when this value is dropped.
struct Folder(PathBuf);

/// The counts of one workload for `requests` requests.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// The counts of a core that runs both the engine and the handler.
    inline: Counts,
    /// The counts of the application core if the engine runs on another core.
    application: Counts,
    /// The part of `inline` that belongs to the handler.
    handler: Counts,
    requests: f64,
}

/// The size of a replay.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// The number of requests of the shorter replay.
    requests: u32,
    keys: u32,
}

const WHOLE: Extent = Extent { requests: 4_000, keys: 10_000 };
const QUICK: Extent = Extent { requests: 300, keys: 300 };

/// A metric: its name in ids, its description, and the events whose sum it is.
type Metric = (&'static str, &'static str, &'static [&'static str]);

const METRICS: [Metric; 6] = [
    ("instructions", "instructions", &["Ir"]),
    ("data_accesses", "loads and stores", &["Dr", "Dw"]),
    ("l1i_misses", "misses of the first instruction cache", &["I1mr"]),
    ("l1d_misses", "misses of the first data cache", &["D1mr", "D1mw"]),
    ("branches", "branches", &["Bc", "Bi"]),
    ("mispredicted", "branches predicted wrong", &["Bcm", "Bim"]),
];

/// A reduction over the workloads: the metric, its name in \[Arcalis\], the published least and most (%), and the place
/// where they are printed.
type Saved = (Metric, &'static str, Option<[f64; 2]>, &'static str);

const SAVED: [Saved; 3] = [
    (METRICS[0], "instructions_saved", Some([65.4, 85.7]), "figure 13"),
    (METRICS[1], "data_cache_accesses_saved", Some([19.6, 48.6]), "figure 13"),
    (METRICS[4], "branches_saved", None, "figure 13 has none"),
];

/// Misses per thousand instructions: the metric, its name in \[Arcalis\], and the published least and most over the
/// workloads. The first pair is without Arcalis and the second is with it.
const MISSES: [(Metric, &str, [[f64; 2]; 2]); 2] = [
    (METRICS[2], "l1i_mpki", [[4.9, 32.8], [0.9, 28.3]]),
    (METRICS[3], "l1d_mpki", [[5.4, 13.3], [14.9, 25.5]]),
];

/// Returns the rows. Without valgrind they have a reason instead of a number. Workloads that are not counted because of
/// `stopped` are left out.
pub(super) fn rows(quick: bool, stopped: &dyn Fn() -> bool) -> Vec<Row> {
    let extent = if quick { QUICK } else { WHOLE };
    match Folder::new() {
        Ok(folder) => as_rows(stopped, |workload| count_workload(workload, extent, &folder.0)),
        Err(reason) => over_all(Err(&reason)),
    }
}

/// Counts workloads until one cannot be counted, and returns the rows of the workloads before it.
fn as_rows(
    stopped: &dyn Fn() -> bool,
    mut count: impl FnMut(&str) -> Result<Counted, String>,
) -> Vec<Row> {
    let mut done = Vec::new();
    let ended = WORKLOADS.into_iter().filter(|_| !stopped()).try_for_each(|workload| {
        done.push((workload, count(workload)?));
        Ok::<_, String>(())
    });
    let over_all = match ended {
        Ok(()) if done.len() == WORKLOADS.len() => over_all(Ok(&done)),
        // A signal that stops this process also ends callgrind. Its error is then not a reason.
        Err(reason) if !stopped() => over_all(Err(&reason)),
        _ => Vec::new(),
    };
    done.iter().flat_map(workload_rows).chain(over_all).collect()
}

/// Returns the rows over all workloads. They have the counts, or the reason why there are none.
fn over_all(counted: Result<&[(&str, Counted)], &str>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |id: &str, place: &str, published, unit, which, get: &dyn Fn(&Counted) -> f64| {
        rows.push(match counted {
            Ok(all) => {
                let values = all.iter().map(|(_, counted)| get(counted));
                let ours = if which == "least" {
                    values.fold(f64::INFINITY, f64::min)
                } else {
                    values.fold(f64::NEG_INFINITY, f64::max)
                };
                let numbers = (published, Some(ours));
                Row::modelled(id, place, numbers, unit, Kind::Measured).because(OURS)
            }
            Err(reason) => Row::unreachable(id, place, published, unit, reason),
        });
    };
    for (end, which) in ["least", "most"].into_iter().enumerate() {
        for ((_, _, events), name, published, place) in SAVED {
            let (id, published) = (format!("{name}.{which}"), published.map(|both| both[end]));
            row(&id, place, published, "%", which, &|counted| saved(counted, events));
        }
        for ((_, _, events), name, [without, with]) in MISSES {
            let id = |side: &str| format!("{name}.{side}.{which}");
            let inline = |counted: &Counted| per_thousand(counted.inline, events);
            row(&id("cpu"), FIGURE_14, Some(without[end]), "1", which, &inline);
            let application = |counted: &Counted| per_thousand(counted.application, events);
            row(&id("arcalis"), FIGURE_14, Some(with[end]), "1", which, &application);
        }
    }
    rows
}

/// Returns the rows of one workload.
fn workload_rows((workload, counted): &(&str, Counted)) -> Vec<Row> {
    let sides = [
        ("inline", counted.inline),
        ("application", counted.application),
        ("handler", counted.handler),
    ];
    let mut rows = Vec::new();
    for (side, counts) in sides {
        for (metric, words, events) in METRICS {
            let ours = counts.sum(events) as f64 / counted.requests;
            let id = format!("counted.{metric}.{workload}.{side}");
            let what = format!("{words} of a request, simulated by callgrind: {side}");
            rows.push(Row::modelled(&id, &what, (None, Some(ours)), "1", Kind::Measured));
        }
    }
    rows
}

/// Returns the share of events that the application core saves compared with the inline core (%).
fn saved(counted: &Counted, events: &[&str]) -> f64 {
    100.0 * (1.0 - counted.application.sum(events) as f64 / counted.inline.sum(events) as f64)
}

fn per_thousand(counts: Counts, events: &[&str]) -> f64 {
    1e3 * counts.sum(events) as f64 / counts.sum(&["Ir"]) as f64
}

/// Counts a workload by replaying a recording twice: in full and up to the middle. The difference belongs to
/// the second half and excludes the start of the program.
fn count_workload(workload: &str, extent: Extent, folder: &Path) -> Result<Counted, String> {
    let recording = folder.join("requests");
    let recording = recording.to_str().ok_or("the folder's name is no text")?;
    let requests = extent.requests;
    record(workload, extent, recording)?;
    let all = |layout: &str, functions: &[&str]| {
        let replay = |requests: u32| {
            let requests = requests.to_string();
            let words = ["rpc", "replay", recording, "--layout", layout, "--requests", &requests];
            // With named cores the command also measures round trips between two cores, which takes too long under
            // callgrind.
            let words = [&words[..], &["--runs", "1", "--cores", "any"]].concat();
            let threads = callgrind::run(&words, folder)?;
            let whole = |name: &&str| {
                let found = threads.iter().find_map(|thread| thread.whole(name));
                found.ok_or_else(|| format!("this build has no function {name} of its own"))
            };
            functions.iter().map(whole).collect::<Result<Vec<Counts>, String>>()
        };
        let (short, long) = (replay(requests)?, replay(2 * requests)?);
        Ok::<_, String>(long.into_iter().zip(short).map(|(long, short)| long - short).collect())
    };
    let inline: Vec<Counts> = all("inline", &["Exchange::turn", "handlers::respond"])?;
    let application: Vec<Counts> = all("two-thread", &["AppCore::handle"])?;
    Ok(Counted {
        inline: inline[0],
        handler: inline[1],
        application: application[0],
        requests: f64::from(requests),
    })
}

fn record(workload: &str, extent: Extent, file: &str) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| format!("no program: {error}"))?;
    let [requests, keys] = [2 * extent.requests, extent.keys].map(|count| count.to_string());
    let mut command = Command::new(program);
    command.args(["rpc", "record", file, "--workload", workload]);
    let output = command.args(["--requests", &requests, "--keys", &keys]).output();
    let output = output.map_err(|error| format!("rpc record: {error}"))?;
    if !output.status.success() {
        return Err(format!("rpc record: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(())
}

impl Folder {
    fn new() -> Result<Self, String> {
        let name = format!("rebate-counted-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The system removes temporary files that cannot be removed here.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const FIGURE_14: &str = "figure 14: misses in a thousand instructions";
const OURS: &str = "ours in software: the application core beside an engine on another, over one core \
                    that does all; the paper's engine is hardware";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_workloads_keep_their_rows() {
        let counts = Counts::default().with("Ir", 1000);
        let one = Counted { inline: counts, application: counts, handler: counts, requests: 1.0 };
        let first = |workload: &str| match workload {
            "memc_low" => Ok(one),
            _ => Err("ended by a signal".to_owned()),
        };
        let calls = std::cell::Cell::new(0);
        let is_stopped = || calls.replace(calls.get() + 1) > 1;
        let (interrupted, failed) = (as_rows(&is_stopped, first), as_rows(&|| false, first));
        assert_eq!(interrupted.len(), 3 * METRICS.len());
        assert!(interrupted.iter().all(|row| row.kind == Kind::Measured));
        assert_eq!(failed.len(), interrupted.len() + 2 * SAVED.len() + 4 * MISSES.len());
        assert_eq!(
            as_rows(&|| false, |_| Ok(one)).iter().filter(|row| row.ours.is_none()).count(),
            0
        );
        assert!(as_rows(&|| true, first).is_empty());
    }

    #[test]
    fn published_numbers_have_rows_even_without_valgrind() {
        let counts = |instructions| Counts::default().with("Ir", instructions).with("Dr", 10);
        let all = WORKLOADS.map(|workload| {
            let (inline, application) = (counts(1000), counts(250));
            (workload, Counted { inline, application, handler: counts(100), requests: 10.0 })
        });
        let (with, without) = (over_all(Ok(&all)), over_all(Err("no valgrind")));
        assert_eq!(without.len(), 2 * SAVED.len() + 4 * MISSES.len());
        for (row, missing) in with.iter().zip(&without) {
            assert_eq!((&row.id, row.published), (&missing.id, missing.published));
            assert_eq!((row.kind, missing.kind), (Kind::Measured, Kind::Unreachable));
        }
        let ours = |id: &str| with.iter().find(|row| row.id == id).and_then(|row| row.ours);
        assert_eq!(ours("instructions_saved.least"), Some(75.0));
        assert_eq!(ours("data_cache_accesses_saved.most"), Some(0.0));
        assert_eq!(ours("l1i_mpki.cpu.most"), Some(0.0));
        let one = workload_rows(&all[0]);
        let ours = |id: &str| one.iter().find(|row| row.id == id).and_then(|row| row.ours);
        assert_eq!(ours("counted.instructions.memc_low.inline"), Some(100.0));
        assert_eq!(ours("counted.instructions.memc_low.handler"), Some(10.0));
    }
}
