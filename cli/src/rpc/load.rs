//! `rebate rpc load`: a closed loop over TCP, against our server or any Thrift server with the same IDL.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};

use clap::Args;
use load::rpc::{RpcLoadError, RpcReport, RpcSpec};
use units::Nanos;

use super::flags::MixFlags;
use crate::terminal::{CliError, print_json, print_line, stop_on_signal};

#[derive(Debug, Args)]
pub(super) struct Load {
    /// Address of the service, HOST:PORT.
    #[arg(value_name = "ADDR")]
    address: String,
    /// Number of connections, each with one request in flight.
    #[arg(short, long, value_name = "N", default_value_t = 4)]
    connections: usize,
    /// Duration of the load.
    #[arg(short, long, value_name = "TIME", default_value = "5s")]
    duration: Nanos,
    /// End after this many requests, or earlier if the duration is over.
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    #[command(flatten)]
    mix: MixFlags,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

impl Load {
    pub(super) fn run(self) -> Result<(), CliError> {
        let found: Vec<_> = self.address.to_socket_addrs().into_iter().flatten().collect();
        if found.is_empty() {
            let problem = format!("{:?} is no address; give HOST:PORT", self.address);
            return Err(CliError::Usage(problem));
        }
        let failed = |error| CliError::Failed(format!("{}: {error}", self.address));
        let spec = RpcSpec {
            address: listening(&found).map_err(failed)?,
            connections: self.connections,
            duration: self.duration,
            requests: self.requests,
            mix: self.mix.mix()?,
            seed: self.mix.seed,
        };
        let stop = stop_on_signal()?;
        let report = load::rpc::run(&spec, &stop).map_err(|error| match error {
            RpcLoadError::BadSpec(problem) => CliError::Usage(problem),
            error => CliError::failed(error),
        })?;
        self.show(&report)?;
        if report.wrong > 0 {
            return Err(CliError::Failed(format!("{} answers were wrong", report.wrong)));
        }
        if report.exceptions > 0 {
            let problem = format!("{} requests were answered with exceptions", report.exceptions);
            return Err(CliError::Failed(problem));
        }
        Ok(())
    }

    fn show(&self, report: &RpcReport) -> Result<(), CliError> {
        if self.json {
            return print_json(report);
        }
        let micros = |ns: u64| ns as f64 / 1e3;
        print_line(&format!(
            "{} requests in {:.1} s, {:.0} a second: {} writes, {} reads, {} misses, {} wrong\n\
             latency p50 {:.1} us, p99 {:.1} us, max {:.1} us (closed loop, {} connections)",
            report.requests,
            report.seconds,
            report.requests_per_second,
            report.writes,
            report.reads,
            report.misses,
            report.wrong,
            micros(report.p50_ns),
            micros(report.p99_ns),
            micros(report.max_ns),
            self.connections,
        ));
        Ok(())
    }
}

/// Returns the first of a name's addresses on which a process listens. A single address is returned without a test.
fn listening(found: &[SocketAddr]) -> io::Result<SocketAddr> {
    match found {
        [one] => Ok(*one),
        several => TcpStream::connect(several)?.peer_addr(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use harness::Port;

    #[test]
    fn of_several_addresses_the_one_that_listens_is_loaded() {
        let nobodys = Port::free().expect("a port");
        let there = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (closed, open) = (nobodys.address(), there.local_addr().expect("bound"));
        assert_eq!(listening(&[closed, open]).ok(), Some(open));
        assert_eq!(listening(&[closed]).ok(), Some(closed), "the load says what is wrong");
        assert!(listening(&[closed, closed]).is_err());
    }
}
