//! Flags that several commands share, and the values that they stand for.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use load::rpc::{Calls, MIXES, Mix};
use rpc_server::{RpcError, RpcLayout, RpcService};

use crate::terminal::CliError;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Layout {
    /// One thread: sockets, engine and handler.
    Inline,
    /// Two threads: sockets with the engine (NetCore), and the handler (AppCore).
    TwoThread,
    /// Four threads: sockets (NetCore), the engine's halves (RxEngine, TxEngine), and the handler (AppCore).
    FourThread,
}

impl From<Layout> for RpcLayout {
    fn from(layout: Layout) -> Self {
        match layout {
            Layout::Inline => Self::Inline,
            Layout::TwoThread => Self::TwoThread,
            Layout::FourThread => Self::FourThread,
        }
    }
}

/// The flags that choose the mix of requests.
#[derive(Debug, Args)]
pub(super) struct MixFlags {
    /// A workload of the Arcalis paper's table V: calls of a service and their shares.
    #[arg(long, value_name = "NAME", default_value = "memc_mid",
          value_parser = PossibleValuesParser::new(MIXES))]
    workload: String,
    /// The part of the requests that are sets; for the memc_ workloads, in place of their own.
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    set_ratio: Option<f64>,
    /// Lengths of keys and values (bytes), for the memc_ workloads: k8_v8 is memc_tiny's, k16_v32 the others'.
    #[arg(long, value_name = "kK_vV", value_parser = shape)]
    shape: Option<(usize, usize)>,
    /// Keys or posts in all.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    keys: u64,
    /// The Zipf exponent of their popularity; 0 is uniform. The paper does not give its own.
    #[arg(long, value_name = "ALPHA", default_value_t = 0.99, allow_negative_numbers = true)]
    zipf: f64,
    /// The same seed asks for the same keys.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
}

/// The flags of [`MixFlags`], for a command that also accepts a file instead of them.
pub(super) const MIX_FLAGS: [&str; 6] = ["workload", "set_ratio", "shape", "keys", "zipf", "seed"];

impl MixFlags {
    pub(super) fn mix(&self) -> Result<Mix, CliError> {
        let mut mix = Mix::named(&self.workload).expect("clap takes no other names");
        (mix.keys, mix.zipf_alpha) = (self.keys, self.zipf);
        match &mut mix.calls {
            Calls::Memcached { set_ratio, key_bytes, value_bytes } => {
                *set_ratio = self.set_ratio.unwrap_or(*set_ratio);
                (*key_bytes, *value_bytes) = self.shape.unwrap_or((*key_bytes, *value_bytes));
            }
            _ if self.set_ratio.is_some() || self.shape.is_some() => {
                let problem = format!(
                    "--set-ratio and --shape are for the memc_ workloads, not for {}",
                    self.workload
                );
                return Err(CliError::Usage(problem));
            }
            _ => {}
        }
        mix.check().map_err(CliError::Usage)?;
        Ok(mix)
    }
}

/// Returns the service with this name in `rpc::services::IDL`.
pub(super) fn service(name: &str) -> RpcService {
    match name {
        "post_storage" => RpcService::PostStorage,
        "unique_id" => RpcService::UniqueId,
        _ => RpcService::Memcached,
    }
}

/// Maps an error to the person who can fix it: the caller or the operator of the machine.
pub(super) fn problem_of(error: &RpcError) -> CliError {
    match error {
        RpcError::BadOptions(_) => CliError::usage(error),
        RpcError::Io(_) => CliError::failed(error),
    }
}

/// Parses a shape: `k16_v32` means keys of 16 bytes and values of 32.
fn shape(text: &str) -> Result<(usize, usize), String> {
    let parts = text.strip_prefix('k').and_then(|rest| rest.split_once("_v"));
    let numbers = parts.and_then(|(key, value)| key.parse().ok().zip(value.parse().ok()));
    numbers.ok_or_else(|| format!("{text:?} is no shape; write k8_v8 or k16_v32"))
}
