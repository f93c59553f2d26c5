//! `rebate rpc`: the flags of the Thrift services, of their load and of replays. The services are in the crate
//! `rpc-server`. The requests, and the model that checks answers, are in the crate `load`, and the runs in process in
//! `experiments`.

mod flags;
mod load;
mod record;
mod replay;
mod serve;
mod soak;

use clap::{Args, Subcommand};

use crate::terminal::CliError;

/// The commands of `rebate rpc`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Rpc {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Serve a Thrift service (binary protocol, framed) through the near-cache RPC engine.
    Serve(serve::Serve),
    /// Load a service in a closed loop and check every byte of its answers.
    Load(load::Load),
    /// Record the packets of a workload into a file.
    Record(record::Record),
    /// Replay packets without sockets in this process, and compare layouts on the same number of cores.
    Replay(replay::Replay),
    /// Send a mix of all workloads in this process and compare every answer with a model of the stores.
    Soak(soak::Soak),
}

impl Rpc {
    /// Runs the command. The exit code is 0 for success, 1 if the work failed, and 2 for bad usage.
    pub(crate) fn run(self) -> Result<(), CliError> {
        match self.verb {
            Verb::Serve(serve) => serve.run(),
            Verb::Load(load) => load.run(),
            Verb::Record(record) => record.run(),
            Verb::Replay(replay) => replay.run(),
            Verb::Soak(soak) => soak.run(),
        }
    }
}

const EXAMPLES: &str = "Examples:
  rebate rpc serve --service memcached --listen 127.0.0.1:9090
  rebate rpc serve --service post-storage --layout four-thread --cores 2-5
  rebate rpc load 127.0.0.1:9090 --workload memc_low --shape k8_v8 --duration 10s
  rebate rpc record packets --workload post_mid --requests 100000
  rebate rpc replay packets --layout inline,two-thread --json
  rebate rpc soak --requests 10000000 --layout two-thread

docs/operating/rpc.md describes the services, the layouts and clients in other languages.";
