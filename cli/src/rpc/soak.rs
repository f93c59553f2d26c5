//! `rebate rpc soak`: the flags of a soak in process, and what it prints.

use clap::Args;
use experiments::rpc::soak;
use rpc_server::{RpcCores, WINDOW};

use super::flags::{Layout, problem_of};
use crate::terminal::{CliError, print_json, print_line};

#[derive(Debug, Args)]
pub(super) struct Soak {
    /// Total number of requests, including those that fill the stores and those that are broken on purpose.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    requests: u64,
    /// Thread layout.
    #[arg(long, value_enum, default_value = "inline")]
    layout: Layout,
    /// Cores of the threads: a list such as 0,2-4; any (the kernel chooses); or auto (the kernel chooses for
    /// one thread, several threads get the first cores that this process may use).
    #[arg(long, value_name = "CORES", default_value = "auto")]
    cores: RpcCores,
    /// Number of requests in flight, 1 to 16.
    #[arg(long, value_name = "N", default_value_t = 16)]
    window: usize,
    /// Seed of the random draws. The same seed gives the same requests.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

impl Soak {
    pub(super) fn run(self) -> Result<(), CliError> {
        if self.requests == 0 || !WINDOW.contains(&self.window) {
            let problem = "give 1 request or more, and a window of 1 to 16".to_owned();
            return Err(CliError::Usage(problem));
        }
        let soak = soak::Soak {
            requests: self.requests,
            layout: self.layout.into(),
            cores: self.cores.clone(),
            window: self.window,
            seed: self.seed,
        };
        let soaked = soak.run().map_err(|error| problem_of(&error))?;
        self.show(&soaked)?;
        let requests = soaked.requests;
        match soaked.answers.bad() {
            0 if requests == self.requests => Ok(()),
            0 => {
                let asked = self.requests;
                Err(CliError::Failed(format!("{requests} answers to {asked} requests")))
            }
            bad => Err(CliError::Failed(format!("{bad} answers were not what they have to be"))),
        }
    }

    fn show(&self, soaked: &soak::Soaked) -> Result<(), CliError> {
        if self.json {
            return print_json(soaked);
        }
        let soak::Soaked { layout, requests, seconds, answers } = soaked;
        let (right, due) = (answers.right, answers.refused_rightly);
        print_line(&format!(
            "{requests} requests in {seconds:.1} s, layout {layout}: {right} answered as they have \
             to be, {due} of them by a refusal; {} wrong, {} refused, {} lost",
            answers.wrong, answers.refused, answers.misses,
        ));
        Ok(())
    }
}
