//! `rebate rpc record`: writes the packets of a workload into a file.

use std::path::PathBuf;

use clap::Args;
use load::rpc::Recording;

use super::flags::MixFlags;
use crate::terminal::{CliError, check_writable, print_line};

#[derive(Debug, Args)]
pub(super) struct Record {
    /// File to write. An existing file is replaced.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Number of requests, 1 to 10000000, in addition to those that fill the store first.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    requests: usize,
    #[command(flatten)]
    mix: MixFlags,
}

impl Record {
    pub(super) fn run(self) -> Result<(), CliError> {
        if !(1..=RECORDED_MAX).contains(&self.requests) {
            let problem = format!("{} requests; give 1 to {RECORDED_MAX}", self.requests);
            return Err(CliError::Usage(problem));
        }
        check_writable("FILE", &self.file)?;
        let recording = Recording::from_mix(&self.mix.mix()?, self.requests, self.mix.seed)
            .map_err(CliError::usage)?;
        recording.write(&self.file).map_err(CliError::failed)?;
        print_line(&format!(
            "{}: {} packets of {}, after {} that fill the store",
            self.file.display(),
            recording.frames() - recording.warm(),
            recording.service(),
            recording.warm(),
        ));
        Ok(())
    }
}

const RECORDED_MAX: usize = 10_000_000;
