//! The short form of the simulation: fixed seeds that have every kind of deployment and fault, and some fresh ones.
//! Their number is bounded by the CPU time of a debug build, because all tests of the workspace share the machine.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use harness::bench::thread_time;
use simulation::run::{Outcome, run};
use simulation::scenario::Scenario;
use simulation::watchdog::{self, Watchdog};

fn run_alone(scenario: &Scenario) -> Outcome {
    let _watchdog = Watchdog::start(scenario.seed, watchdog::RUN_MAX);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("an event loop without sockets needs nothing");
    run(&runtime, scenario)
}

fn check(seed: u64) -> Outcome {
    check_run(&Scenario::draw(seed), "")
}

fn check_run(scenario: &Scenario, flags: &str) -> Outcome {
    let seed = scenario.seed;
    let outcome = run_alone(scenario);
    let problems = outcome.problems.join("\n");
    let repeat = format!("Repeat it: scripts/simulate --seed {seed}{flags}");
    assert!(problems.is_empty(), "{scenario}{problems}\n{repeat}");
    outcome
}

/// Returns seeds that together have every kind of deployment and fault. Each is the one of all candidates with the most
/// new kinds for the work that it takes.
fn seeds_with_every_kind() -> Vec<u64> {
    let candidates: Vec<(Scenario, BTreeSet<String>)> = FIXED_SEEDS
        .map(|seed| {
            let scenario = Scenario::draw(seed);
            let kinds = scenario.kinds();
            (scenario, kinds)
        })
        .collect();
    let mut missing: BTreeSet<String> =
        candidates.iter().flat_map(|(_, kinds)| kinds.clone()).collect();
    assert!(missing.len() > 40, "{missing:?}");
    let mut seeds = Vec::new();
    while !missing.is_empty() {
        let worth = |(scenario, kinds): &&(Scenario, BTreeSet<String>)| {
            let new = kinds.intersection(&missing).count() as u64;
            new * 1_000_000 / scenario.work()
        };
        let (best, kinds) = candidates.iter().max_by_key(worth).expect("there are candidates");
        seeds.push(best.seed);
        missing.retain(|kind| !kinds.contains(kind));
    }
    seeds
}

#[test]
fn seeds_with_every_kind_of_fault_find_nothing() {
    for seed in seeds_with_every_kind() {
        let begun = thread_time();
        check(seed);
        println!("seed {seed}: {:.1} s of the CPU", (thread_time() - begun).as_secs_f64());
    }
}

#[test]
fn seeds_that_found_defects_find_nothing_now() {
    for seed in FOUND_DEFECTS {
        check_run(&Scenario::draw_plain(seed), " --plain");
    }
}

#[test]
fn runs_of_one_seed_are_the_same() {
    for seed in seeds_with_every_kind().into_iter().take(4) {
        let (first, second) = (check(seed), check(seed));
        assert_eq!(first.digest, second.digest, "seed {seed}");
        assert_eq!(first.simulated, second.simulated, "seed {seed}");
    }
}

#[test]
fn fresh_seeds_find_nothing() {
    let first = seed_of_commit();
    println!("the first fresh seed is {first}");
    let begun = thread_time();
    for seed in first.. {
        check(seed);
        if thread_time() - begun > FRESH_TIME {
            break;
        }
    }
}

/// Returns a seed that no commit before had, so that each one tries others and a failure comes back with its commit.
fn seed_of_commit() -> u64 {
    let head = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let id = head.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let digits = id.and_then(|id| String::from_utf8(id).ok()).unwrap_or_default();
    let commit = digits.get(..SEED_DIGITS).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    // A source archive has no commits. Its seeds begin with the time of day.
    let by_time = || SystemTime::now().duration_since(UNIX_EPOCH).expect("a date").as_secs();
    commit.unwrap_or_else(by_time) * 1_000_000
}

/// The candidates for seeds that are run each time.
const FIXED_SEEDS: std::ops::Range<u64> = 1_000..3_000;
/// Seeds with which a defect of the server was found, before there were other protocols. 1020: a store that started
/// empty within the second in which the one before had started gave the same versions again. 9144: a frontend did not
/// start while its accelerator was away. 488: a store without a file gave the versions of the one before again. 686: a
/// new value was marked as stale. 6759: an answer that was given up in the middle was followed by the end of a get.
/// 5812: a client that had sent much of a value held memory for which others waited.
/// 1795859525000000: a slow store was given up and marked down while a long value was on its way to it.
const FOUND_DEFECTS: [u64; 7] = [1_020, 9_144, 488, 686, 5_812, 6_759, 1_795_859_525_000_000];
/// The hexadecimal digits of a commit's name that become a seed: 44 bits, so that a million seeds follow each.
const SEED_DIGITS: usize = 11;
/// The CPU time after which no further fresh seed is run.
const FRESH_TIME: Duration = Duration::from_secs(3);
