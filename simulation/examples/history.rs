//! Checks the history of clients against real processes, each of which is killed and stopped in turn:
//! `scripts/history --operations 310000`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use simulation::processes::{Options, Summary, run};

/// Runs clients against real processes that are killed (SIGKILL) and stopped (SIGSTOP) in turn, and searches for an
/// order of each key's requests in which every answer is right. Exits with 1 if there is none, or if anything else is
/// wrong.
#[derive(Parser)]
struct Flags {
    /// Requests that must be answered before the run ends.
    #[arg(long, default_value_t = 310_000)]
    operations: usize,
    /// The seed of what clients ask and of the times of faults. Without it, each run has another one. The answers of
    /// real processes differ between runs of one seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of clients.
    #[arg(long, default_value_t = 6)]
    clients: usize,
    /// One frontend with an embedded store, instead of two with a ring of three memcached servers.
    #[arg(long)]
    embedded: bool,
    /// Plants a defect: two memcached servers are behind one address of the ring.
    #[arg(long, conflicts_with = "embedded")]
    two_stores: bool,
    /// Goes on after a round in which something is wrong.
    #[arg(long)]
    keep_going: bool,
    /// The program. The default is the one that REBATE_BIN names, or else the one in the target folder.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Lines of what is wrong that are printed.
    #[arg(long, default_value_t = 80)]
    lines: usize,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let beside = std::env::current_exe().unwrap_or_default();
    let beside = beside.ancestors().nth(2).map(|folder| folder.join("rebate")).unwrap_or_default();
    let named = std::env::var_os("REBATE_BIN").map(PathBuf::from);
    let binary = flags.binary.or(named).unwrap_or(beside);
    if !binary.is_file() {
        eprintln!("no program at {}: build it, or set --binary", binary.display());
        return ExitCode::from(2);
    }
    let options = Options {
        binary,
        operations: flags.operations,
        seed: flags.seed.unwrap_or(now.as_secs()),
        clients: flags.clients,
        is_embedded: flags.embedded,
        has_two_stores: flags.two_stores,
        keep_going: flags.keep_going,
    };
    println!("seed {}", options.seed);
    let begun = Instant::now();
    let progress = |summary: &Summary| {
        if summary.rounds.is_multiple_of(10) {
            print_summary(summary, begun);
        }
    };
    let summary = match run(&options, progress) {
        Ok(summary) => summary,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    for problem in summary.problems.iter().take(flags.lines) {
        println!("WRONG: {problem}");
    }
    print_summary(&summary, begun);
    if summary.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_summary(summary: &Summary, begun: Instant) {
    println!(
        "{:.0} s: {} rounds, {} of {} requests answered, {} kills, {} stops, {} keys too complex to check, \
         {} unanswered requests in rounds without faults, recovery within {} ms, at most {} MiB per frontend",
        begun.elapsed().as_secs_f64(),
        summary.rounds,
        summary.answered,
        summary.sent,
        summary.kills,
        summary.stops,
        summary.unfinished,
        summary.unanswered_in_quiet,
        summary.recovery_max_ms,
        summary.rss_bytes_max >> 20,
    );
}
