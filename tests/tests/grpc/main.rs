//! Tests gRPC with friendly and hostile clients: the cache, health and reflection, the end of the server, and arbitrary
//! bytes. After each test the server must serve the next client and hold no more memory than its budget allows.

mod cache;
mod flood;
mod hostile;
mod life;
mod rights;
mod wire;

use std::net::SocketAddr;
use std::time::Duration;

use api::tonic::transport::Channel;
use api::v1::cache_client::CacheClient;
use api::v1::{GetRequest, SetRequest};
use rebate_tests::{Port, Server, TIMEOUT, poll_for};

/// The most bytes that calls and sessions of the server may hold.
const BUDGET_BYTES: u64 = 32 << 20;

/// The memory outside of the budget (bytes): the program, the store of these tests, pooled buffers, memory that the
/// allocator does not return, and incoming headers and frames of each connection.
const SLACK_BYTES: u64 = 96 << 20;

/// A server with every service on one worker thread, and the runtime that its clients run on.
struct Grpc {
    server: Server,
    addr: SocketAddr,
    _port: Port,
    runtime: tokio::runtime::Runtime,
}

impl Grpc {
    fn start(args: &[&str]) -> Self {
        let budget = format!("runtime.inflight_bytes_max={BUDGET_BYTES}");
        let port = Port::free().expect("a free port");
        let addr = port.address().to_string();
        let ours = ["serve", "--listen", "127.0.0.1:0", "--grpc-listen", &addr];
        let more = ["--admin-listen", "127.0.0.1:0", "--threads", "1", "--set", &budget];
        let server = Server::rebate(&[&ours[..], &more, args].concat());
        let addr = server.printed("grpc on ").expect("the gRPC address is printed before");
        let addr = addr.parse().expect("an address");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Self { server, addr, _port: port, runtime: runtime.expect("a runtime") }
    }

    fn all() -> Self {
        Self::start(&["--role", "all", "--store", "embedded", "--memory", "16MiB"])
    }

    fn channel(&self) -> Channel {
        let _inside = self.runtime.enter();
        let address = self.addr.to_string().parse().expect("an address");
        api::wire::channel(&address, TIMEOUT).expect("a channel")
    }

    fn cache(&self) -> CacheClient<Channel> {
        CacheClient::new(self.channel()).max_decoding_message_size(64 << 20)
    }

    /// Checks that the server serves a new client and stays within its memory limit.
    fn assert_healthy(&mut self, after: &str) {
        assert!(self.server.exited().is_none(), "died of {after}: {}", self.server.output());
        let mut cache = self.cache();
        self.runtime.block_on(async {
            let turn = async {
                cache.set(set(b"well", b"and good")).await.expect("set");
                cache.get(get(b"well")).await.expect("get").into_inner()
            };
            let found = tokio::time::timeout(TIMEOUT, turn).await;
            let found = found.unwrap_or_else(|_| panic!("no answer after {after}"));
            assert_eq!(&found.value[..], b"and good", "{after}");
        });
        let rss_bytes = self.server.rss_bytes().expect("its memory");
        let rss_bytes_max = BUDGET_BYTES + SLACK_BYTES;
        assert!(rss_bytes < rss_bytes_max, "{rss_bytes} of {rss_bytes_max} bytes after {after}");
    }

    /// Waits until the server uses less than half a core. Returns false if it does not.
    fn rests(&self) -> bool {
        let window = Duration::from_millis(200);
        let ticks = || {
            let path = format!("/proc/{}/stat", self.server.id());
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let fields = text.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
            fields.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>()
        };
        let is_idle = || {
            let before = ticks();
            std::thread::sleep(window);
            (ticks() - before <= 10).then_some(())
        };
        poll_for(TIMEOUT, is_idle).is_some()
    }

    /// Returns the value of a sample on the metrics page.
    fn metric(&self, series: &str) -> u64 {
        let admin = self.server.admin().expect("admin pages");
        let page = wire::http(admin, "/metrics").expect("the page of metrics");
        let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series}")).trim().parse().expect("a number")
    }
}

fn set(key: &[u8], value: &[u8]) -> SetRequest {
    SetRequest { key: key.to_vec().into(), value: value.to_vec().into(), ..SetRequest::default() }
}

fn get(key: &[u8]) -> GetRequest {
    GetRequest { key: key.to_vec().into(), accepted_codecs: Vec::new() }
}
