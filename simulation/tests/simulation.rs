//! The short form of the simulation: fixed seeds, and fresh ones, within twenty seconds.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
    let scenario = Scenario::draw(seed);
    let outcome = run_alone(&scenario);
    let problems = outcome.problems.join("\n");
    let repeat = format!("Repeat it: scripts/simulate --seed {seed}");
    assert!(problems.is_empty(), "{scenario}{problems}\n{repeat}");
    outcome
}

#[test]
fn runs_of_one_seed_are_the_same() {
    for seed in 1..3 {
        let (first, second) = (check(seed), check(seed));
        assert_eq!(first.digest, second.digest, "seed {seed}");
        assert_eq!(first.simulated, second.simulated, "seed {seed}");
    }
}

#[test]
fn fixed_seeds_find_nothing() {
    within(Duration::from_secs(4), 1_000..1_100);
}

#[test]
fn fresh_seeds_find_nothing() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a date").as_secs();
    let from = now * 1_000_000;
    within(Duration::from_secs(4), from..from + 100_000);
}

/// Runs seeds until the time is over, and at least one.
fn within(limit: Duration, seeds: std::ops::Range<u64>) {
    let begun = Instant::now();
    for seed in seeds {
        check(seed);
        if begun.elapsed() > limit {
            break;
        }
    }
}
