//! `rebate rpc`: flags of the Thrift services and of their load. The services are the crate `server`'s, the load is the
//! crate `load`'s.

use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use load::rpc::{RpcLoadError, RpcReport, RpcSpec};
use server::rpc::{MESSAGE_BYTES_MAX, RpcLayout, RpcOptions, RpcServer, RpcService};
use units::{ByteCount, Nanos, SystemClock};

use crate::load::{stop_on_signal, time};
use crate::{EXIT_FAILED, EXIT_USAGE, say};

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
    Serve(Serve),
    /// Load a Memcached service in a closed loop, and compare every byte.
    Load(Load),
}

#[derive(Debug, Args)]
struct Serve {
    /// What to serve.
    #[arg(long, value_enum)]
    service: Service,
    /// Where to listen; port 0 is any.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9090")]
    listen: SocketAddr,
    /// Which threads do it.
    #[arg(long, value_enum, default_value = "inline")]
    layout: Layout,
    /// Budget of the store that memcached and post-storage keep things in.
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    memory: ByteCount,
    /// The longest message, in and out: 1KiB to 64MiB.
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    message_bytes_max: ByteCount,
    /// Connections at once; more are closed as they come.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    connections_max: usize,
}

#[derive(Debug, Args)]
struct Load {
    /// Where the service listens.
    #[arg(value_name = "ADDR")]
    address: String,
    /// Connections, each with one request under way.
    #[arg(short, long, value_name = "N", default_value_t = 4)]
    connections: usize,
    /// For how long.
    #[arg(short, long, value_name = "TIME", default_value = "5s", value_parser = time)]
    duration: Nanos,
    /// End after this many requests, if the time is not over before.
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// The part of the requests that are sets: 0.2, 0.5 and 0.8 are memc_low, memc_mid and memc_high.
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, allow_negative_numbers = true)]
    set_ratio: f64,
    /// Keys in all, each connection's its own.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    keys: u64,
    /// The Zipf exponent of the keys' popularity; 0 is uniform.
    #[arg(long, value_name = "ALPHA", default_value_t = 0.99, allow_negative_numbers = true)]
    zipf: f64,
    /// Lengths of keys and values (bytes): k8_v8 is memc_tiny, k16_v32 memc_small.
    #[arg(long, value_name = "kK_vV", default_value = "k16_v32", value_parser = shape)]
    shape: (usize, usize),
    /// The same seed asks for the same keys.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The report for programs.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Service {
    /// Set and Get on our store: rpc/idl/memcached.thrift.
    Memcached,
    /// StorePost, ReadPost and ReadPosts: rpc/idl/post_storage.thrift.
    PostStorage,
    /// ComposeUniqueId: rpc/idl/unique_id.thrift.
    UniqueId,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Layout {
    /// One thread: sockets, engine and handler.
    Inline,
    /// Two threads: sockets with the engine, and the handler.
    Engine,
}

impl Rpc {
    /// Exit codes: 0 done, 1 the work failed, 2 bad usage.
    pub(crate) fn run(self) -> ExitCode {
        let done = match self.verb {
            Verb::Serve(serve) => serve.run(),
            Verb::Load(load) => load.run(),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err((code, problem)) => {
                eprintln!("rebate: {problem}");
                code.into()
            }
        }
    }
}

impl Serve {
    fn run(self) -> Result<(), (u8, String)> {
        if !MESSAGE_BYTES_MAX.contains(&self.message_bytes_max.0) {
            let what = format!("--message-bytes-max {}", self.message_bytes_max);
            return Err((EXIT_USAGE, format!("{what} is not valid; give 1KiB to 64MiB")));
        }
        let service = match self.service {
            Service::Memcached => RpcService::Memcached,
            Service::PostStorage => RpcService::PostStorage,
            Service::UniqueId => RpcService::UniqueId,
        };
        let options = RpcOptions {
            layout: match self.layout {
                Layout::Inline => RpcLayout::Inline,
                Layout::Engine => RpcLayout::Engine,
            },
            message_bytes_max: self.message_bytes_max,
            memory: self.memory,
            connections_max: self.connections_max,
            ..RpcOptions::new(service, self.listen)
        };
        let failed = |what: &str, error: std::io::Error| (EXIT_FAILED, format!("{what}: {error}"));
        if let Err(problem) = crate::os::allow_connections(self.connections_max) {
            eprintln!("rebate: {problem}");
        }
        let stop = stop_on_signal().map_err(|error| failed("cannot handle signals", error))?;
        let server = RpcServer::start(&options, Arc::new(SystemClock::new()));
        let server = server.map_err(|error| failed(&self.listen.to_string(), error))?;
        say(&format!("listening on {}", server.address()));
        while !stop.load(Ordering::Relaxed) && !server.has_ended() {
            thread::sleep(LOOK_EVERY);
        }
        let counts = server.counts();
        server.stop().map_err(|error| failed("the service ended", error))?;
        say(&format!(
            "{} requests answered and {} messages refused on {} connections",
            counts.requests, counts.refused, counts.connections
        ));
        Ok(())
    }
}

impl Load {
    fn run(self) -> Result<(), (u8, String)> {
        let address = self.address.to_socket_addrs().ok().and_then(|mut found| found.next());
        let address = address.ok_or_else(|| {
            (EXIT_USAGE, format!("{:?} is no address; give HOST:PORT", self.address))
        })?;
        let spec = RpcSpec {
            address,
            connections: self.connections,
            duration: self.duration,
            requests: self.requests,
            set_ratio: self.set_ratio,
            keys: self.keys,
            zipf_alpha: self.zipf,
            key_bytes: self.shape.0,
            value_bytes: self.shape.1,
            seed: self.seed,
        };
        let stop = stop_on_signal()
            .map_err(|error| (EXIT_FAILED, format!("cannot handle signals: {error}")))?;
        let report = load::rpc::run(&spec, &stop).map_err(|error| match error {
            RpcLoadError::BadSpec(problem) => (EXIT_USAGE, problem),
            error => (EXIT_FAILED, error.to_string()),
        })?;
        self.show(&report)?;
        if report.wrong > 0 {
            return Err((EXIT_FAILED, format!("{} values read were wrong", report.wrong)));
        }
        if report.exceptions > 0 {
            let problem = format!("{} requests were answered with exceptions", report.exceptions);
            return Err((EXIT_FAILED, problem));
        }
        Ok(())
    }

    fn show(&self, report: &RpcReport) -> Result<(), (u8, String)> {
        if self.json {
            let text = serde_json::to_string_pretty(report);
            say(&text.map_err(|error| (EXIT_FAILED, error.to_string()))?);
            return Ok(());
        }
        let micros = |ns: u64| ns as f64 / 1e3;
        say(&format!(
            "{} requests in {:.1} s, {:.0} a second: {} sets, {} gets, {} misses, {} wrong\n\
             latency p50 {:.1} us, p99 {:.1} us, max {:.1} us (closed loop, {} connections)",
            report.requests,
            report.seconds,
            report.requests_per_second,
            report.sets,
            report.gets,
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

/// `k16_v32`: keys of 16 bytes and values of 32.
fn shape(text: &str) -> Result<(usize, usize), String> {
    let parts = text.strip_prefix('k').and_then(|rest| rest.split_once("_v"));
    let numbers = parts.and_then(|(key, value)| key.parse().ok().zip(value.parse().ok()));
    numbers.ok_or_else(|| format!("{text:?} is no shape; write k8_v8 or k16_v32"))
}

/// How soon a signal is seen.
const LOOK_EVERY: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "Examples:
  rebate rpc serve --service memcached --listen 127.0.0.1:9090
  rebate rpc serve --service post-storage --layout engine
  rebate rpc load 127.0.0.1:9090 --set-ratio 0.2 --shape k8_v8 --duration 10s

docs/operating/rpc.md has the services, the layouts and clients in other languages.";
