//! Runs a whole server on what Thrift clients send: calls with arguments of any kind, calls with bytes changed, and any
//! bytes, in pieces of any length. Each call must be answered once, in order, by the name and the number that it has,
//! until the connection ends, and may end a connection only if its frame is wrong. Afterwards a memcached client and a
//! Thrift client must read the same items, and the server must hold no memory for anybody.

mod input;
mod network;
mod oracle;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use device::Software;
use server::simulated::{Disk, DiskAction, Environment, SimulatedServer};
use server::{Config, Devices};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use units::{ByteCount, Clock, Nanos};

pub(super) use input::Input;
use network::Network;

const MEMCACHED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
const THRIFT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 2);

thread_local! {
    static RUNTIME: Runtime =
        Builder::new_current_thread().enable_all().build().expect("a runtime");
}

pub(super) fn fuzz(input: Input<'_>) {
    RUNTIME.with(|runtime| LocalSet::new().block_on(runtime, run(&input)));
}

async fn run(input: &Input<'_>) {
    let network = Arc::new(Network::default());
    let server = start(input, &network);
    for client in input.clients() {
        let answers = network.converse(THRIFT, client.bytes.clone(), &client.pieces).await;
        oracle::check_answers(&client.bytes, &answers, input.item_bytes_max());
    }
    let mut line = b"gets".to_vec();
    input::names().for_each(|key| line.extend([b" ", &key[..]].concat()));
    line.extend(b"\r\n");
    let lines = network.converse(MEMCACHED, line, &[]).await;
    let call = oracle::get_many(input::names());
    let answer = network.converse(THRIFT, call.clone(), &[]).await;
    oracle::check_answers(&call, &answer, input.item_bytes_max());
    assert_eq!(oracle::items_of_lines(&lines), oracle::items_of_map(&answer), "what clients read");
    assert_eq!(server.connections_open(), 0, "connections");
    let held: u64 = server.budgets().iter().map(|(held, _)| held).sum();
    assert_eq!((held, server.pool_bytes().iter().sum::<u64>()), (0, 0), "budget and buffers");
    assert_eq!(server.problem(), None);
}

fn start(input: &Input<'_>, network: &Arc<Network>) -> SimulatedServer {
    let mut config = Config::default();
    config.server.listen = vec![MEMCACHED.to_string()];
    config.server.thrift_listen = vec![THRIFT.to_string()];
    config.server.threads = 1;
    config.store.memory = ByteCount::mib(4);
    config.store.item_bytes_max = ByteCount(input.item_bytes_max() as u64);
    let environment = Environment {
        network: Arc::clone(network) as Arc<dyn server::simulated::Network>,
        disk: Arc::new(NoDisk),
        clock: Arc::new(Stopped),
        unix_ms: 1_800_000_000_000,
        seed: 1,
    };
    let devices = Devices { accelerators: 0, all: vec![Arc::new(Software::default())] };
    SimulatedServer::start(&environment, config, devices).expect("the server starts")
}

/// A clock that stands still, so that no item expires between two looks at it.
struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Nanos {
        Nanos(1)
    }
}

/// A disk that nobody uses.
struct NoDisk;

impl Disk for NoDisk {
    fn room(&self, bytes: usize) -> std::io::Result<usize> {
        Ok(bytes)
    }

    fn act(&self, _: DiskAction) -> std::io::Result<()> {
        Ok(())
    }
}
