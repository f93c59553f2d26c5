//! Runs simulations: `scripts/simulate --seeds 1000`, or one again with `scripts/simulate --seed 7 --faults 0,2`.

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use simulation::run::{Outcome, run};
use simulation::scenario::Scenario;
use simulation::shrink::shrink;
use simulation::watchdog::{self, Watchdog};

/// Runs whole deployments in simulated time, each from one seed. Exits with 1 after the first that fails.
#[derive(Parser)]
struct Options {
    /// Number of seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed. Without it, the seeds begin at the time of day, so that each night has others.
    #[arg(long)]
    from: Option<u64>,
    /// Runs only this seed, and prints its trace.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Runs a seed without what was added later: the binary protocol, logins and clients that look at others.
    #[arg(long, requires = "seed")]
    plain: bool,
    /// The faults of the run that are kept, by their numbers. Without it, all are.
    #[arg(long, value_delimiter = ',', requires = "seed")]
    faults: Option<Vec<usize>>,
    /// Runs only seeds with a kind of deployment or fault whose name contains this, such as `Hostile(Greedy`. It can be
    /// repeated, and all of them are then needed.
    #[arg(long, value_name = "KIND")]
    with: Vec<String>,
    /// Goes on after a seed that fails.
    #[arg(long)]
    keep_going: bool,
    /// Lines of the trace that are printed.
    #[arg(long, default_value_t = 60)]
    lines: usize,
}

/// Runs a scenario on an event loop of its own.
fn run_alone(scenario: &Scenario) -> Outcome {
    let _watchdog = Watchdog::start(scenario.seed, watchdog::RUN_MAX);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("an event loop without sockets needs nothing");
    run(&runtime, scenario)
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(seed) = options.seed {
        return run_one(seed, &options);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let from = options.from.unwrap_or(now.as_secs() * 1_000_000);
    let begun = Instant::now();
    let (mut simulated, mut answered, mut sent, mut unfinished) = (Duration::ZERO, 0, 0, 0);
    let (mut done, mut failed) = (0, 0);
    let is_meant = |scenario: &Scenario| {
        let kinds = scenario.kinds();
        options.with.iter().all(|with| kinds.iter().any(|kind| kind.contains(with)))
    };
    for scenario in (from..from + options.seeds).map(Scenario::draw).filter(is_meant) {
        let outcome = run_alone(&scenario);
        done += 1;
        simulated += outcome.simulated;
        answered += outcome.answered;
        sent += outcome.sent;
        unfinished += outcome.unfinished;
        if !outcome.problems.is_empty() {
            failed += 1;
            report(&scenario, outcome, options.lines);
            if !options.keep_going {
                break;
            }
        }
    }
    let real_s = begun.elapsed().as_secs_f64();
    println!(
        "{done} seeds from {from}, {failed} failed: {answered} of {sent} requests answered, \
         {unfinished} keys too complex to check, {:.0} simulated seconds in {real_s:.1} s \
         ({:.0} per second, {:.0} seeds per hour)",
        simulated.as_secs_f64(),
        simulated.as_secs_f64() / real_s,
        f64::from(done) * 3_600.0 / real_s,
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one seed, and prints what happens.
fn run_one(seed: u64, options: &Options) -> ExitCode {
    let mut scenario = match options.plain {
        true => Scenario::draw_plain(seed),
        false => Scenario::draw(seed),
    };
    if let Some(kept) = &options.faults {
        scenario.keep_faults(kept);
    }
    print!("seed {seed}: {scenario}");
    let outcome = run_alone(&scenario);
    print_outcome(&outcome, options.lines);
    if outcome.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Shrinks a run that failed, and prints the rest of it with the command that repeats it.
fn report(scenario: &Scenario, outcome: Outcome, lines: usize) {
    let seed = scenario.seed;
    println!("seed {seed} fails with {} faults", scenario.faults.len());
    let first = outcome.problems.first().cloned().unwrap_or_default();
    println!("  {}", first.lines().next().unwrap_or_default());
    let (kept, outcome) = shrink(scenario, outcome, run_alone);
    let mut shrunk = scenario.clone();
    shrunk.keep_faults(&kept);
    print!("It still fails like this: {shrunk}");
    print_outcome(&outcome, lines);
    let kept: Vec<String> = kept.iter().map(usize::to_string).collect();
    let faults = match kept.is_empty() {
        // An index that no fault has keeps none.
        true => "99".to_owned(),
        false => kept.join(","),
    };
    println!("Repeat it: scripts/simulate --seed {seed} --faults {faults}");
}

fn print_outcome(outcome: &Outcome, lines: usize) {
    let skipped = outcome.trace.len().saturating_sub(lines);
    for line in &outcome.trace[skipped..] {
        println!("{line}");
    }
    for problem in &outcome.problems {
        println!("WRONG: {problem}");
    }
    println!(
        "{} of {} requests answered in {:.1} simulated s, digest {:016x}",
        outcome.answered,
        outcome.sent,
        outcome.simulated.as_secs_f64(),
        outcome.digest
    );
}
