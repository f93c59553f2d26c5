//! A simulated network of hosts: TCP connections with delays, partial reads and writes, resets, partitions and hosts
//! that vanish. Everything that is random is drawn from one seed, and every event has its place in one queue.

mod agenda;
mod endpoint;
mod pipe;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use server::simulated::{Connecting, Connection, Listener, Network};
use tokio::sync::oneshot;
use tokio::time::Instant;
use units::Prng;

use crate::trace::Trace;
use agenda::{Agenda, Event};
pub use endpoint::Endpoint;
use pipe::Pipe;

/// A host, which has one address: `10.0.0.N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host(pub u8);

impl Host {
    /// Returns the host's address.
    pub fn ip(self) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, self.0).into()
    }

    /// Returns `HOST:PORT` of memcached's port on this host.
    pub fn memcached(self) -> String {
        format!("{}:{PORT}", self.ip())
    }

    /// Returns whether this is a server of the ring.
    pub(crate) fn is_store(self) -> bool {
        (11..20).contains(&self.0)
    }

    fn from_address(address: SocketAddr) -> Option<Self> {
        match address.ip() {
            IpAddr::V4(ip) if ip.octets()[..3] == [10, 0, 0] => Some(Self(ip.octets()[3])),
            _ => None,
        }
    }
}

const PORT: u16 = 11_211;
/// What the text of every host's address begins with.
pub const SUBNET: &str = "10.0.0.";

/// What the network does all the time, apart from single faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// The share of segments that are delayed, and the longest delay (ms).
    pub delayed: f64,
    /// The longest delay of a segment (ms).
    pub delay_max_ms: u64,
    /// The share of reads that return only a part of the bytes that have arrived.
    pub short_reads: f64,
    /// The share of writes that take only a part of the bytes for which there is room.
    pub short_writes: f64,
    /// The share of writes that take nothing, although there is room.
    pub blocked_writes: f64,
    /// The bytes that a connection holds in one direction, from the writer to the reader.
    pub window_bytes: usize,
    /// The rate of each connection to a server of the ring, in each direction, if it is limited (bytes per ms).
    pub store_bytes_per_ms: Option<u64>,
}

/// The network of all hosts. Clones share it.
#[derive(Clone)]
pub struct Net {
    state: Arc<Mutex<State>>,
    wake: Arc<tokio::sync::Notify>,
}

pub(crate) struct State {
    start: Instant,
    random: Prng,
    pub(crate) weather: Weather,
    agenda: Agenda,
    listeners: BTreeMap<SocketAddr, ListenerState>,
    connections: BTreeMap<u64, Pair>,
    next_connection: u64,
    next_port: u16,
    /// The directions in which nothing arrives, with the time at which that ends (ms).
    cut: BTreeMap<(Host, Host), u64>,
    /// Hosts whose connections vanish without a word.
    silent: BTreeSet<Host>,
    trace: Trace,
    wake: Arc<tokio::sync::Notify>,
}

#[derive(Default)]
struct ListenerState {
    waiting: VecDeque<(u64, SocketAddr)>,
    waker: Option<Waker>,
}

/// A connection: what each end sends, and the state of each end.
struct Pair {
    ends: [End; 2],
    /// `pipes[n]` carries what end `n` sends.
    pipes: [Pipe; 2],
    /// True if nothing arrives in either direction any more, and nobody knows.
    is_lost: bool,
}

struct End {
    host: Host,
    address: SocketAddr,
    is_open: bool,
    has_shut_down: bool,
    failure: Option<io::ErrorKind>,
    read_waker: Option<Waker>,
    write_waker: Option<Waker>,
    /// The time until which writes take nothing (ms).
    blocked_until_ms: u64,
    /// The client's end waits for this answer to its connection attempt.
    connecting: Option<oneshot::Sender<io::Result<()>>>,
}

impl End {
    fn new(host: Host, address: SocketAddr) -> Self {
        Self {
            host,
            address,
            is_open: true,
            has_shut_down: false,
            failure: None,
            read_waker: None,
            write_waker: None,
            blocked_until_ms: 0,
            connecting: None,
        }
    }

    fn wake(&mut self) {
        self.read_waker.take().into_iter().chain(self.write_waker.take()).for_each(Waker::wake);
    }
}

impl Net {
    /// Makes a network, whose time starts now.
    pub fn new(seed: u64, weather: Weather, trace: Trace) -> Self {
        let wake = Arc::new(tokio::sync::Notify::new());
        let state = State {
            start: Instant::now(),
            random: Prng::new(seed),
            weather,
            agenda: Agenda::default(),
            listeners: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_connection: 3,
            next_port: 10_000,
            cut: BTreeMap::new(),
            silent: BTreeSet::new(),
            trace,
            wake: Arc::clone(&wake),
        };
        Self { state: Arc::new(Mutex::new(state)), wake }
    }

    /// Delivers what is due, for as long as the future is polled.
    pub async fn run(&self) {
        loop {
            let next = self.state.lock().deliver_due();
            match next {
                None => self.wake.notified().await,
                Some(at) => {
                    tokio::select! {
                        biased;
                        () = self.wake.notified() => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
            }
        }
    }

    /// Returns the network as one host sees it.
    pub fn of_host(&self, host: Host) -> Arc<HostNetwork> {
        Arc::new(HostNetwork { net: self.clone(), host })
    }

    /// Lets nothing arrive at `to` from `from` for a time. What is sent meanwhile arrives afterwards.
    pub fn cut(&self, from: Host, to: Host, time: Duration) {
        let mut state = self.state.lock();
        let until_ms = state.now_ms() + time.as_millis() as u64;
        let end_ms = state.cut.entry((from, to)).or_default();
        *end_ms = until_ms.max(*end_ms);
    }

    /// Resets every connection between two hosts.
    pub fn reset(&self, one: Host, other: Host) {
        let mut state = self.state.lock();
        for id in state.between(one, other) {
            state.reset(id);
        }
    }

    /// Loses every connection between two hosts: nothing arrives on them any more, and the ends learn it only from
    /// their own time limits, or from the system after [`GIVEN_UP_AFTER`].
    pub fn lose(&self, one: Host, other: Host) {
        let mut state = self.state.lock();
        let at_ms = state.now_ms() + GIVEN_UP_AFTER.as_millis() as u64;
        for id in state.between(one, other) {
            if let Some(pair) = state.connections.get_mut(&id) {
                pair.is_lost = true;
            }
            state.schedule(at_ms, Event::GiveUp(id));
        }
    }

    /// Makes the ends of a host's connections close without telling the peers, as when its power fails, or ends that.
    pub fn set_silent(&self, host: Host, is_silent: bool) {
        let mut state = self.state.lock();
        if is_silent {
            state.silent.insert(host);
        } else {
            state.silent.remove(&host);
        }
    }

    /// Replaces the weather.
    pub fn set_weather(&self, weather: Weather) {
        self.state.lock().weather = weather;
    }

    /// Returns the number of connections of which an end on this host is open.
    pub fn open_at(&self, host: Host) -> usize {
        let state = self.state.lock();
        let is_here = |end: &End| end.host == host && end.is_open;
        state.connections.values().filter(|pair| pair.ends.iter().any(is_here)).count()
    }

    pub(crate) async fn connect(&self, from: Host, address: &str) -> io::Result<Endpoint> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "not a host of the network");
        let to: SocketAddr = address.parse().map_err(|_| invalid())?;
        let server = Host::from_address(to).ok_or_else(invalid)?;
        let (told, answer) = oneshot::channel();
        let id = self.state.lock().begin_connection(from, server, to, told);
        // It owns the client's end from now on, so that a caller that gives up closes it.
        let endpoint = Endpoint::new(self.clone(), id, 0);
        match answer.await {
            Ok(Ok(())) => Ok(endpoint),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
}

/// The network as one host sees it.
pub struct HostNetwork {
    net: Net,
    host: Host,
}

impl Network for HostNetwork {
    fn connect(&self, address: &str) -> Connecting {
        let (net, host, address) = (self.net.clone(), self.host, address.to_owned());
        Box::pin(async move {
            let endpoint = net.connect(host, &address).await?;
            Ok(Box::new(endpoint) as Box<dyn Connection>)
        })
    }

    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(self.listen_here(address)?))
    }
}

impl HostNetwork {
    /// Listens on an address of this host.
    ///
    /// # Errors
    /// The address is in use, or not one of this host.
    pub fn listen_here(&self, address: &str) -> io::Result<ListeningPort> {
        let address: SocketAddr =
            address.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        if Host::from_address(address) != Some(self.host) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let mut state = self.net.state.lock();
        if state.listeners.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        state.listeners.insert(address, ListenerState::default());
        Ok(ListeningPort { net: self.net.clone(), address })
    }

    /// Connects to an address.
    ///
    /// # Errors
    /// The connection is refused or reset.
    pub async fn connect_to(&self, address: &str) -> io::Result<Endpoint> {
        self.net.connect(self.host, address).await
    }
}

/// A listener on one host.
pub struct ListeningPort {
    net: Net,
    address: SocketAddr,
}

impl ListeningPort {
    /// Polls for the next client and its address.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<(Endpoint, SocketAddr)> {
        let mut state = self.net.state.lock();
        let Some(listener) = state.listeners.get_mut(&self.address) else { return Poll::Pending };
        match listener.waiting.pop_front() {
            Some((id, from)) => Poll::Ready((Endpoint::new(self.net.clone(), id, 1), from)),
            None => {
                listener.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Listener for ListeningPort {
    fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(Box<dyn Connection>, SocketAddr)>> {
        self.poll_next(context)
            .map(|(endpoint, from)| Ok((Box::new(endpoint) as Box<dyn Connection>, from)))
    }
}

impl Drop for ListeningPort {
    fn drop(&mut self) {
        let mut state = self.net.state.lock();
        let listener = state.listeners.remove(&self.address);
        for (id, _) in listener.into_iter().flat_map(|listener| listener.waiting) {
            state.close(id, 1);
        }
    }
}

/// The time after which a system gives up a connection on which nothing arrives: 120 s until the first keepalive
/// probe, and nine probes of 75 s.
pub const GIVEN_UP_AFTER: Duration = Duration::from_secs(120 + 9 * 75);
