//! `rebate rpc serve`: serves over TCP until a signal arrives.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rpc_server::{RpcCores, RpcError, RpcListen, RpcOptions, RpcServer, RpcService, RpcStages};
use units::{ByteCount, SystemClock};

use super::flags::{Layout, problem_of};
use crate::terminal::{CliError, byte_count, print_line, stop_on_signal, warn};

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Service to run.
    #[arg(long, value_enum)]
    service: Service,
    /// Address to listen on. With port 0, the system chooses a free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9090")]
    listen: SocketAddr,
    /// Thread layout.
    #[arg(long, value_enum, default_value = "inline")]
    layout: Layout,
    /// Cores of the threads: a list such as 0,2-4; any (the kernel chooses); or auto (the kernel chooses for
    /// one thread, several threads get the first cores that this process may use).
    #[arg(long, value_name = "CORES", default_value = "auto")]
    cores: RpcCores,
    /// Memory of the store of the services memcached and post-storage.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = byte_count)]
    memory: ByteCount,
    /// Maximum length of a request or an answer, 1KiB to 64MiB.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = byte_count)]
    message_bytes_max: ByteCount,
    /// Maximum number of connections. Further connections are closed at once.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    connections_max: usize,
    /// Print at the end the thread's time for network, RPC layer and handler. Needs the layout inline.
    #[arg(long)]
    time_stages: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Service {
    /// Set and Get on the embedded store (rpc/idl/memcached.thrift).
    Memcached,
    /// StorePost, ReadPost and ReadPosts (rpc/idl/post_storage.thrift).
    PostStorage,
    /// ComposeUniqueId (rpc/idl/unique_id.thrift).
    UniqueId,
}

impl Serve {
    pub(super) fn run(self) -> Result<(), CliError> {
        let service = match self.service {
            Service::Memcached => RpcService::Memcached,
            Service::PostStorage => RpcService::PostStorage,
            Service::UniqueId => RpcService::UniqueId,
        };
        let options = RpcOptions {
            layout: self.layout.into(),
            cores: self.cores.clone(),
            message_bytes_max: self.message_bytes_max,
            memory: self.memory,
            time_stages: self.time_stages,
            ..RpcOptions::new(service)
        };
        let listen = RpcListen { address: self.listen, connections_max: self.connections_max };
        let failed =
            |what: &str, error: std::io::Error| CliError::Failed(format!("{what}: {error}"));
        if let Err(problem) = crate::os::allow_connections(self.connections_max) {
            warn(&problem);
        }
        let stop = stop_on_signal()?;
        let server = RpcServer::start(&options, &listen, Arc::new(SystemClock::new()));
        let server = server.map_err(|error| match error {
            RpcError::Io(error) => failed(&self.listen.to_string(), error),
            error => problem_of(&error),
        })?;
        print_line(&format!("layout {}", server.placement()));
        print_line(&format!("listening on {}", server.address()));
        while !stop.load(Ordering::Relaxed) && !server.has_ended() {
            thread::sleep(CHECK_EVERY);
        }
        let (counts, layout) = (server.counts(), options.layout.name());
        let stages = server.stop().map_err(|error| failed("the service ended", error))?;
        print_line(&format!(
            "{} requests answered and {} messages refused on {} connections, layout {layout}",
            counts.requests, counts.refused, counts.connections
        ));
        if self.time_stages {
            print_line(&divided(&stages, counts.requests));
        }
        Ok(())
    }
}

fn divided(stages: &RpcStages, requests: u64) -> String {
    let each = |ns: u64| ns as f64 / requests.max(1) as f64;
    format!(
        "stages of {requests} requests: network {:.1} ns, rpc {:.1} ns, handler {:.1} ns a request",
        each(stages.network_ns),
        each(stages.rpc_ns),
        each(stages.handler_ns),
    )
}

/// The longest time until a signal is noticed.
const CHECK_EVERY: Duration = Duration::from_millis(50);
