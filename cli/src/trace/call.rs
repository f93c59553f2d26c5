//! `rebate trace call`: sends one request to the example service of traces. The request's traces on the caller's side
//! run here, in software.

use std::io::Read;

use clap::Args;
use humantime::parse_duration;
use runtime::trace::{Cause, TraceError};
use server::config::split_tls;
use server::programs::{CallError, ProgramClient};
use tokio::task::LocalSet;
use units::Nanos;

use crate::terminal::{CliError, print};
use crate::tls::TlsFlags;

#[derive(Debug, Args)]
pub(super) struct Call {
    /// Address of the service, tls://HOST:PORT.
    #[arg(value_name = "ADDR")]
    address: String,
    /// Function to call: echo, read, write, call or fetch.
    #[arg(value_name = "FUNCTION")]
    function: String,
    /// Arguments of the function as JSON; - reads stdin.
    #[arg(value_name = "JSON")]
    arguments: String,
    /// Send the arguments compressed.
    #[arg(long)]
    compress: bool,
    /// Time limit for the connection, and for the answer.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    within: std::time::Duration,
    #[command(flatten)]
    tls: TlsFlags,
}

impl Call {
    pub(super) fn run(self) -> Result<(), CliError> {
        self.tls.apply()?;
        let (true, address) = split_tls(&self.address) else {
            let address = &self.address;
            let problem = format!("{address} has no TLS: give tls://{address} and --tls-ca");
            return Err(CliError::Usage(problem));
        };
        let credentials = ::tls::outgoing().map_err(|_| {
            CliError::Usage(format!("{}: give --tls-ca, whose authorities sign it", self.address))
        })?;
        let arguments = self.arguments()?;
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let executor =
            executor.map_err(|error| CliError::Failed(format!("cannot start: {error}")))?;
        let call = self.call(address, &credentials, arguments);
        let answer = LocalSet::new().block_on(&executor, call)?;
        print(&answer);
        print("\n");
        Ok(())
    }

    async fn call(
        &self,
        address: &str,
        credentials: &::tls::Client,
        arguments: Vec<u8>,
    ) -> Result<bytes::Bytes, CliError> {
        let within_ns = u64::try_from(self.within.as_nanos()).unwrap_or(u64::MAX);
        let connected = ProgramClient::connect(address, credentials, Nanos(within_ns));
        let connected = tokio::time::timeout(self.within, connected).await;
        let at = |why: &dyn std::fmt::Display| CliError::Failed(format!("{}: {why}", self.address));
        let client = match connected {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(at(&error)),
            Err(_) => return Err(at(&format_args!("no answer within {:?}", self.within))),
        };
        match client.call(&self.function, arguments, self.compress).await {
            Ok(answer) => Ok(answer),
            Err(CallError::Trace(error)) if is_callers(&error) => Err(CliError::usage(error.cause)),
            Err(error) => Err(at(&error)),
        }
    }

    fn arguments(&self) -> Result<Vec<u8>, CliError> {
        if self.arguments != "-" {
            return Ok(self.arguments.clone().into_bytes());
        }
        let mut bytes = Vec::new();
        let read = std::io::stdin().lock().take(INPUT_BYTES_MAX).read_to_end(&mut bytes);
        read.map_err(|error| CliError::Usage(format!("stdin: {error}")))?;
        Ok(bytes)
    }
}

/// Returns whether the arguments caused the error, and not the contents of the answer.
fn is_callers(error: &TraceError) -> bool {
    error.trace == "T9" && matches!(error.cause, Cause::Malformed(_) | Cause::TooLarge { .. })
}

/// The most bytes that are read from the input. A trace refuses a payload of this length.
const INPUT_BYTES_MAX: u64 = 2 << 20;
