//! `rebate rpc replay`: the flags of a replay in process, and what it prints.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use experiments::rpc::Tally;
use experiments::rpc::replay::{Plan, run};
use load::rpc::Recording;
use rpc_server::{RpcCores, WINDOW};
use units::ByteCount;

use super::flags::{Layout, MIX_FLAGS, MixFlags, problem_of};
use crate::terminal::{CliError, byte_count, print_json, print_line};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Replay {
    /// Recording from `rebate rpc record`. Without it, the packets of the workload are generated first.
    #[arg(value_name = "FILE", conflicts_with_all = MIX_FLAGS)]
    file: Option<PathBuf>,
    /// Thread layout. Several layouts are compared.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "inline")]
    layout: Vec<Layout>,
    /// Cores of the threads: a list such as 0,2-4 with a core for each thread of the largest layout; any (the
    /// kernel chooses); or auto (the first cores that this process may use).
    #[arg(long, value_name = "CORES", default_value = "auto")]
    cores: RpcCores,
    /// Number of requests in flight, 1 to 16. The layout inline always has one.
    #[arg(long, value_name = "N", default_value_t = 16)]
    window: usize,
    /// Number of requests per run and copy. The recording is repeated if it is shorter.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    requests: u64,
    /// Number of runs of each layout, 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: usize,
    /// Compare every answer with a model of the store. The comparison takes longer than the requests.
    #[arg(long)]
    check: bool,
    /// Memory of each copy's store.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = byte_count)]
    memory: ByteCount,
    /// Maximum length of a request or an answer, 1KiB to 64MiB.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = byte_count)]
    message_bytes_max: ByteCount,
    #[command(flatten)]
    mix: MixFlags,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

impl Replay {
    pub(super) fn run(self) -> Result<(), CliError> {
        for (flag, given, valid) in [
            ("--window", self.window as u64, *WINDOW.start() as u64..=*WINDOW.end() as u64),
            ("--runs", self.runs as u64, 1..=1_000),
            ("--requests", self.requests, 1..=u64::MAX),
        ] {
            if !valid.contains(&given) {
                let range = format!("{} to {}", valid.start(), valid.end());
                return Err(CliError::Usage(format!("{flag} {given} is not valid; give {range}")));
            }
        }
        let recording = match &self.file {
            Some(path) => Recording::read(path),
            None => {
                let recorded = self.requests.min(RECORDED_MAX) as usize;
                Recording::from_mix(&self.mix.mix()?, recorded, self.mix.seed)
            }
        };
        let recording = recording.map_err(CliError::usage)?;
        let plan = Plan {
            cores: self.cores.clone(),
            window: self.window,
            requests: self.requests,
            runs: self.runs,
            check: self.check,
            memory: self.memory,
            message_bytes_max: self.message_bytes_max,
            ..Plan::new(
                Arc::new(recording),
                self.layout.iter().map(|layout| (*layout).into()).collect(),
            )
        };
        let replayed = run(&plan).map_err(|error| problem_of(&error))?;
        if self.json {
            print_json(&replayed)?;
        } else {
            print_line(&replayed.to_string());
        }
        let Tally { misses, refused, wrong, .. } = replayed.answers();
        if misses + refused + wrong > 0 {
            let problem = format!(
                "{wrong} answers were wrong, {refused} requests refused; {misses} found nothing of \
                 what was stored, which {} of --memory may be too little for",
                self.memory
            );
            return Err(CliError::Failed(problem));
        }
        Ok(())
    }
}

/// The greatest number of packets that are generated if no file is given.
const RECORDED_MAX: u64 = 100_000;

const EXAMPLES: &str = "Examples:
  rebate rpc replay --workload memc_tiny --check
  rebate rpc replay packets --layout inline,two-thread --runs 9 --json
  rebate rpc replay --workload post_high --layout four-thread --cores any --window 1

Rows show the median of the runs, and the least and the greatest value. Rates are sums over all copies.";
