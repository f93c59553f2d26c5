//! Flags that several commands of `rebate rpc` share, and the conversion of their values.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use load::rpc::{Calls, MIXES, Mix};
use rpc_server::{RpcError, RpcLayout};

use crate::terminal::CliError;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Layout {
    /// One thread for sockets, engine and handler.
    Inline,
    /// Two threads: one for sockets and engine (NetCore), one for the handler (AppCore).
    TwoThread,
    /// Four threads: sockets (NetCore), receiving and sending engine (RxEngine, TxEngine), handler (AppCore).
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
    /// Workload in table V of the Arcalis paper, which defines the calls and their shares.
    #[arg(long, value_name = "NAME", default_value = "memc_mid",
          value_parser = PossibleValuesParser::new(MIXES))]
    workload: String,
    /// Fraction of the requests that are sets, instead of that of the workload (memc_ workloads only).
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    set_ratio: Option<f64>,
    /// Bytes of keys and values, only for memc_ workloads: by default k8_v8 for memc_tiny, otherwise k16_v32.
    #[arg(long, value_name = "kK_vV", value_parser = shape)]
    shape: Option<(usize, usize)>,
    /// Number of keys or posts.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    keys: u64,
    /// Zipf exponent of the popularity of keys or posts; 0 is uniform. The paper does not state its exponent.
    #[arg(long, value_name = "ALPHA", default_value_t = 0.99, allow_negative_numbers = true)]
    zipf: f64,
    /// Seed of the random draws. The same seed gives the same keys.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
}

/// The names of the flags of [`MixFlags`], for a command that refuses them together with a file.
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

/// Turns an error of the caller into bad usage, and an error of the machine into a failure.
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
