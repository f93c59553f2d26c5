//! What a core executes for a request, counted under callgrind: all of it where one core does everything, and the
//! application core's share where the functional engine has a core of its own. Rows beside the document's reductions;
//! its engine is hardware and takes no instructions, ours is the same work on another core.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::callgrind::{self, Counts};
use super::lab::WORKLOADS;
use crate::base::rows::{Kind, Row};

/// A folder for what is recorded and counted, gone with this.
struct Folder(PathBuf);

/// Of one workload, what this many requests came to.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// Engine and handler on one core.
    inline: Counts,
    /// The application core, beside an engine on the other.
    application: Counts,
    /// Of the inline core, the handler.
    handler: Counts,
    requests: f64,
}

/// How much is replayed.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// The shorter replay's.
    requests: u32,
    keys: u32,
}

const WHOLE: Extent = Extent { requests: 4_000, keys: 10_000 };
const QUICK: Extent = Extent { requests: 300, keys: 300 };

/// A metric: its name in ids, its words, the events it is the sum of.
type Metric = (&'static str, &'static str, &'static [&'static str]);

const METRICS: [Metric; 6] = [
    ("instructions", "instructions", &["Ir"]),
    ("data_accesses", "loads and stores", &["Dr", "Dw"]),
    ("l1i_misses", "misses of the first instruction cache", &["I1mr"]),
    ("l1d_misses", "misses of the first data cache", &["D1mr", "D1mw"]),
    ("branches", "branches", &["Bc", "Bi"]),
    ("mispredicted", "branches predicted wrong", &["Bcm", "Bim"]),
];

/// A reduction over the workloads: metric, the seed's name, its least and most (%), where it prints them.
type Saved = (Metric, &'static str, Option<[f64; 2]>, &'static str);

const SAVED: [Saved; 3] = [
    (METRICS[0], "instructions_saved", Some([65.4, 85.7]), "figure 13"),
    (METRICS[1], "data_cache_accesses_saved", Some([19.6, 48.6]), "figure 13"),
    (METRICS[4], "branches_saved", None, "figure 13 has none"),
];

/// Misses in a thousand instructions: metric, the seed's name, its least and most of the workloads without Arcalis and
/// with it.
const MISSES: [(Metric, &str, [[f64; 2]; 2]); 2] = [
    (METRICS[2], "l1i_mpki", [[4.9, 32.8], [0.9, 28.3]]),
    (METRICS[3], "l1d_mpki", [[5.4, 13.3], [14.9, 25.5]]),
];

/// The rows; without a number and with why where there is no valgrind. What `stopped` ends is left out.
pub(super) fn rows(quick: bool, stopped: &dyn Fn() -> bool) -> Vec<Row> {
    let extent = if quick { QUICK } else { WHOLE };
    match Folder::new() {
        Ok(folder) => as_rows(stopped, |workload| counted(workload, extent, &folder.0)),
        Err(reason) => over_all(Err(&reason)),
    }
}

/// Counts workloads until one cannot be counted; those before it have their rows.
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
        // A signal that ends this ended what counts as well: that is no reason.
        Err(reason) if !stopped() => over_all(Err(&reason)),
        _ => Vec::new(),
    };
    done.iter().flat_map(of_one).chain(over_all).collect()
}

/// The rows over all workloads: what they count to, or why there is nothing.
fn over_all(counted: Result<&[(&str, Counted)], &str>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |id: &str, place: &str, published, unit, which, of: &dyn Fn(&Counted) -> f64| {
        rows.push(match counted {
            Ok(all) => {
                let values = all.iter().map(|(_, own)| of(own));
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
            row(&id, place, published, "%", which, &|own| saved(own, events));
        }
        for ((_, _, events), name, [without, with]) in MISSES {
            let id = |side: &str| format!("{name}.{side}.{which}");
            let inline = |own: &Counted| per_thousand(own.inline, events);
            row(&id("cpu"), FIGURE_14, Some(without[end]), "1", which, &inline);
            let application = |own: &Counted| per_thousand(own.application, events);
            row(&id("arcalis"), FIGURE_14, Some(with[end]), "1", which, &application);
        }
    }
    rows
}

/// The rows of one workload.
fn of_one((workload, own): &(&str, Counted)) -> Vec<Row> {
    let sides =
        [("inline", own.inline), ("application", own.application), ("handler", own.handler)];
    let mut rows = Vec::new();
    for (side, counts) in sides {
        for (metric, words, events) in METRICS {
            let ours = counts.of(events) as f64 / own.requests;
            let id = format!("counted.{metric}.{workload}.{side}");
            let what = format!("{words} of a request, simulated by callgrind: {side}");
            rows.push(Row::modelled(&id, &what, (None, Some(ours)), "1", Kind::Measured));
        }
    }
    rows
}

fn saved(own: &Counted, events: &[&str]) -> f64 {
    100.0 * (1.0 - own.application.of(events) as f64 / own.inline.of(events) as f64)
}

fn per_thousand(counts: Counts, events: &[&str]) -> f64 {
    1e3 * counts.of(events) as f64 / counts.of(&["Ir"]) as f64
}

/// Replays a recording once whole and once to its half: what the second half adds has no start in it.
fn counted(workload: &str, extent: Extent, folder: &Path) -> Result<Counted, String> {
    let recording = folder.join("requests");
    let recording = recording.to_str().ok_or("the folder's name is no text")?;
    let requests = extent.requests;
    record(workload, extent, recording)?;
    let all = |layout: &str, functions: &[&str]| {
        let replay = |requests: u32| {
            let requests = requests.to_string();
            let words = ["rpc", "replay", recording, "--layout", layout, "--requests", &requests];
            // Where cores are named, round trips between two are measured too, which takes callgrind for ever.
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
    let own = std::env::current_exe().map_err(|error| format!("no program: {error}"))?;
    let [requests, keys] = [2 * extent.requests, extent.keys].map(|count| count.to_string());
    let mut command = Command::new(own);
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
        // What cannot be removed is left to the system's own sweep.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const FIGURE_14: &str = "figure 14: misses in a thousand instructions";
const OURS: &str = "ours in software: the application core beside an engine on another, over one core \
                    that does all; the document's engine is hardware";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_that_are_done_are_kept_when_one_is_interrupted_or_fails() {
        let counts = Counts::default().with("Ir", 1000);
        let one = Counted { inline: counts, application: counts, handler: counts, requests: 1.0 };
        let first = |workload: &str| match workload {
            "memc_low" => Ok(one),
            _ => Err("ended by a signal".to_owned()),
        };
        let asked = std::cell::Cell::new(0);
        let is_stopped = || asked.replace(asked.get() + 1) > 1;
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
    fn every_published_number_has_a_row_with_or_without_valgrind() {
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
        let one = of_one(&all[0]);
        let ours = |id: &str| one.iter().find(|row| row.id == id).and_then(|row| row.ours);
        assert_eq!(ours("counted.instructions.memc_low.inline"), Some(100.0));
        assert_eq!(ours("counted.instructions.memc_low.handler"), Some(10.0));
    }
}
