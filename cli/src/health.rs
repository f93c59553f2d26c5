//! `rebate health`: asks a process over gRPC whether it serves, for the health checks of containers and for people. It
//! causes no load and checks one process only.

use std::time::Duration;

use api::{Address, Connection};
use clap::Args;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use units::Nanos;

use crate::terminal::{CliError, print_line};
use crate::tls::TlsFlags;

/// The flags of `rebate health`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Health {
    /// gRPC address of the process: HOST:PORT, tls://HOST:PORT or unix:/path.
    #[arg(value_name = "ADDR")]
    address: Address,
    /// Check one service of the process, given by its full name, instead of the whole process.
    #[arg(long, value_name = "NAME", default_value = "")]
    service: String,
    /// Time limit for the answer.
    #[arg(long, value_name = "TIME", default_value = "2s")]
    timeout: Nanos,
    #[command(flatten)]
    tls: TlsFlags,
}

impl Health {
    /// Prints what the process reports. The exit code is 0 if it serves.
    pub(crate) fn run(self) -> Result<(), CliError> {
        self.tls.apply()?;
        // A bad answer is also printed on stdout, because there is nothing more to say on stderr.
        let failed = || Err(CliError::Failed(String::new()));
        let (done, text) = match self.ask() {
            Ok(ServingStatus::Serving) => (Ok(()), "serving".to_owned()),
            Ok(ServingStatus::NotServing) => (failed(), "not serving".to_owned()),
            Ok(_) => (failed(), "unknown".to_owned()),
            Err(status) if status.code() == Code::NotFound => {
                let text = format!("{} has no service {:?}", self.address, self.service);
                (Err(CliError::Usage(String::new())), text)
            }
            Err(status) => (failed(), format!("{}: {}", self.address, status.message())),
        };
        print_line(&text);
        done
    }

    fn ask(&self) -> Result<ServingStatus, Status> {
        let options = tokio::runtime::LocalOptions::default();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let executor = builder.enable_all().build_local(options);
        let executor = executor.map_err(|error| Status::internal(error.to_string()))?;
        let limit = Duration::from(self.timeout);
        executor.block_on(async {
            let late =
                |_| Status::deadline_exceeded(format!("no answer within {} ms", limit.as_millis()));
            tokio::time::timeout(limit, self.call()).await.map_err(late)?
        })
    }

    async fn call(&self) -> Result<ServingStatus, Status> {
        let origin = api::wire::origin(&self.address)?;
        let opened = Connection::open(&self.address).await;
        let connection = opened.map_err(|error| Status::unavailable(error.to_string()))?;
        let mut client = HealthClient::with_origin(connection, origin);
        let question = HealthCheckRequest { service: self.service.clone() };
        Ok(client.check(question).await?.into_inner().status())
    }
}

const EXAMPLES: &str = "Examples:
  rebate health 127.0.0.1:50051
  rebate health unix:/run/rebate/grpc.sock --service rebate.v1.Compression --timeout 500ms
  rebate health tls://store-1:50051 --tls-ca ca.pem

Exit codes: 0 serving, 1 not serving or no answer, 2 bad usage or no such service.";
