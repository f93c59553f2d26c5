//! The connections and listeners of memcached clients, with what each of them does, for `stats conns` and for watchers.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Bound;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::stream::Stream;

/// The connections and listeners, by their file descriptors.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    started: Instant,
    all: Mutex<BTreeMap<RawFd, Arc<Connection>>>,
}

/// One end of a connection, or the address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    /// The path of a Unix socket, which clients do not have.
    Unix(Option<Arc<Path>>),
    /// The path of the Unix socket on which near clients connect.
    Near(Option<Arc<Path>>),
}

/// A connection or a listener.
#[derive(Debug)]
pub(crate) struct Connection {
    descriptor: RawFd,
    address: Address,
    /// The listener's address, or none if this is a listener.
    listener: Option<Address>,
    state: AtomicU8,
    /// The time of the last command since the table was made (s).
    last_command_s: AtomicU32,
    started: Instant,
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    Listens,
    /// It waits for a command.
    Reads,
    Serves,
    /// It waits for the rest of a value.
    ReadsValue,
    /// It waits until the client takes its answers.
    Writes,
    Watches,
}

impl State {
    const ALL: [(State, &'static str); 6] = [
        (State::Listens, "conn_listening"),
        (State::Reads, "conn_read"),
        (State::Serves, "conn_parse_cmd"),
        (State::ReadsValue, "conn_nread"),
        (State::Writes, "conn_mwrite"),
        (State::Watches, "conn_watch"),
    ];
}

/// The reason why a connection was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The client broke the protocol, or the connection failed.
    #[default]
    Error,
    /// The client wanted it.
    Normal,
    IdleTimeout,
    Shutdown,
}

impl CloseReason {
    /// Returns memcached's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            CloseReason::Error => "error",
            CloseReason::Normal => "normal",
            CloseReason::IdleTimeout => "idle_timeout",
            CloseReason::Shutdown => "shutdown",
        }
    }
}

impl Default for ConnectionTable {
    fn default() -> Self {
        Self { started: Instant::now(), all: Mutex::default() }
    }
}

impl ConnectionTable {
    /// Adds a client's connection until [`Self::leave`]. `from` is the client's address, if it has one.
    pub(crate) fn enter(&self, stream: &Stream, from: Option<SocketAddr>) -> Arc<Connection> {
        let address = from.map_or(Address::Unix(None), Address::Tcp);
        self.add(stream.descriptor(), address, Some(stream.local_address()), State::Reads)
    }

    /// Adds a listener.
    pub(crate) fn listen(&self, descriptor: RawFd, address: Address) {
        self.add(descriptor, address, None, State::Listens);
    }

    fn add(
        &self,
        descriptor: RawFd,
        address: Address,
        listener: Option<Address>,
        state: State,
    ) -> Arc<Connection> {
        let now_s = self.started.elapsed().as_secs() as u32;
        let connection = Arc::new(Connection {
            descriptor,
            address,
            listener,
            state: AtomicU8::new(state as u8),
            last_command_s: AtomicU32::new(now_s),
            started: self.started,
        });
        self.all.lock().insert(descriptor, Arc::clone(&connection));
        connection
    }

    /// Removes a connection, unless its descriptor already belongs to another one.
    pub(crate) fn leave(&self, connection: &Arc<Connection>) {
        let mut all = self.all.lock();
        if all.get(&connection.descriptor).is_some_and(|known| Arc::ptr_eq(known, connection)) {
            all.remove(&connection.descriptor);
        }
    }

    /// Returns some connections with descriptors above `after`, in their order.
    pub(crate) fn some_after(&self, after: RawFd) -> Vec<Arc<Connection>> {
        let all = self.all.lock();
        let rest = all.range((Bound::Excluded(after), Bound::Unbounded));
        rest.take(LISTED_AT_ONCE).map(|(_, connection)| Arc::clone(connection)).collect()
    }
}

impl Connection {
    pub(crate) const fn descriptor(&self) -> RawFd {
        self.descriptor
    }

    pub(crate) const fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// Records the time of a command.
    pub(crate) fn set_last_command(&self, at: Instant) {
        let at_s = at.duration_since(self.started).as_secs() as u32;
        self.last_command_s.store(at_s, Ordering::Relaxed);
    }

    /// Returns the names and values that `stats conns` has for this connection.
    pub(crate) fn facts(&self) -> Vec<(String, String)> {
        let state = self.state.load(Ordering::Relaxed);
        let known = State::ALL.iter().find(|(known, _)| *known as u8 == state);
        let state = known.map_or("conn_closing", |(_, name)| name);
        let now_s = self.started.elapsed().as_secs() as u32;
        let silent_s = now_s.saturating_sub(self.last_command_s.load(Ordering::Relaxed));
        let listener = self.listener.as_ref().map(|address| ("listen_addr", address.to_string()));
        let facts = [("addr", self.address.to_string())].into_iter().chain(listener);
        let facts = facts.chain([("state", state.to_owned())]);
        let facts = facts.chain([("secs_since_last_cmd", silent_s.to_string())]);
        let name = |name: &str| format!("{}:{name}", self.descriptor);
        facts.map(|(fact, value)| (name(fact), value)).collect()
    }
}

impl fmt::Display for Address {
    /// Writes memcached's form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address @ SocketAddr::V4(_)) => write!(f, "tcp:{address}"),
            Address::Tcp(SocketAddr::V6(address)) => {
                write!(f, "tcp6:[{}]:{}", address.ip(), address.port())
            }
            Address::Unix(Some(path)) => write!(f, "unix:{}", path.display()),
            Address::Near(Some(path)) => write!(f, "near:{}", path.display()),
            // memcached has only the number of the address family.
            Address::Unix(None) | Address::Near(None) => f.write_str("?:<AF 0>"),
        }
    }
}

/// The number of connections that are listed while others wait for the table.
const LISTED_AT_ONCE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(text: &str) -> Address {
        Address::Tcp(text.parse().expect("an address"))
    }

    #[test]
    fn addresses_are_written_as_in_memcached() {
        assert_eq!(tcp("127.0.0.1:11211").to_string(), "tcp:127.0.0.1:11211");
        assert_eq!(tcp("[::1]:80").to_string(), "tcp6:[::1]:80");
        let path = Address::Unix(Some(Path::new("/run/s").into()));
        assert_eq!(path.to_string(), "unix:/run/s");
    }

    #[test]
    fn a_descriptor_that_was_used_again_stays() {
        let table = ConnectionTable::default();
        let local = || Some(tcp("127.0.0.1:1"));
        let first = table.add(9, tcp("127.0.0.1:2"), local(), State::Reads);
        let second = table.add(9, tcp("127.0.0.1:3"), local(), State::Reads);
        table.leave(&first);
        assert_eq!(table.some_after(0).len(), 1);
        table.leave(&second);
        assert!(table.some_after(0).is_empty());
    }

    #[test]
    fn listing_goes_on_behind_the_last_descriptor() {
        let table = ConnectionTable::default();
        for descriptor in 3..1_003 {
            table.listen(descriptor, tcp("127.0.0.1:1"));
        }
        let (mut after, mut seen) = (-1, 0);
        loop {
            let some = table.some_after(after);
            let Some(last) = some.last() else { break };
            after = last.descriptor();
            seen += some.len();
            assert!(some.len() <= LISTED_AT_ONCE);
        }
        assert_eq!(seen, 1_000);
    }
}
