//! Whether the server should be sent clients: not while it drains, and not while none of its stores can be reached. It
//! asks by connecting anew, so that a store that nobody used yet is judged as well; one answer holds for a moment,
//! however many ask.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

pub(super) struct Readiness {
    draining: AtomicBool,
    /// Addresses of the ring, Unix sockets as `unix:PATH`; none with the embedded store.
    servers: Vec<String>,
    last: Mutex<Option<Probe>>,
}

struct Probe {
    at: Instant,
    result: Result<(), String>,
}

impl Readiness {
    pub(super) fn new(servers: Vec<String>) -> Self {
        Self { draining: AtomicBool::new(false), servers, last: Mutex::default() }
    }

    pub(super) fn begin_drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Why the server is not ready, if it is not; a connection attempt may take `connect_ms`, within reason.
    pub(super) async fn check(&self, connect_ms: u64) -> Result<(), String> {
        let reached = match self.servers.is_empty() {
            true => Ok(()),
            false if self.is_draining() => Ok(()),
            false => self.probe(Duration::from_millis(connect_ms).min(CONNECT_MAX)).await,
        };
        if self.is_draining() { Err("draining".to_owned()) } else { reached }
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    async fn probe(&self, limit: Duration) -> Result<(), String> {
        let mut last = self.last.lock().await;
        if let Some(probe) = &*last
            && probe.at.elapsed() < PROBE_HOLDS
        {
            return probe.result.clone();
        }
        let result = any_reached(&self.servers, limit).await;
        *last = Some(Probe { at: Instant::now(), result: result.clone() });
        result
    }
}

/// Tries all at once; the first that answers is enough.
async fn any_reached(servers: &[String], limit: Duration) -> Result<(), String> {
    let mut attempts = JoinSet::new();
    for server in servers {
        attempts.spawn(reach(server.clone(), limit));
    }
    let mut why = String::new();
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => why = error,
            Err(error) => why = error.to_string(),
        }
    }
    Err(format!("none of {} stores can be reached; {why}", servers.len()))
}

async fn reach(server: String, limit: Duration) -> Result<(), String> {
    let attempt = async {
        match server.strip_prefix("unix:") {
            Some(path) => UnixStream::connect(path).await.map(drop),
            None => TcpStream::connect(&server).await.map(drop),
        }
    };
    match tokio::time::timeout(limit, attempt).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("{server}: {error}")),
        Err(_) => Err(format!("{server}: no answer within {} ms", limit.as_millis())),
    }
}

/// Probes commonly wait for one second.
const CONNECT_MAX: Duration = Duration::from_millis(500);

/// Shorter than any prober's period, so that each of its probes sees the servers as they are.
const PROBE_HOLDS: Duration = Duration::from_millis(500);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    async fn check(servers: Vec<String>) -> Result<(), String> {
        Readiness::new(servers).check(200).await
    }

    #[tokio::test]
    async fn one_server_of_the_ring_is_enough() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let live = listener.local_addr().unwrap().to_string();
        let dead = "127.0.0.1:1".to_owned();
        assert_eq!(check(Vec::new()).await, Ok(()));
        assert_eq!(check(vec![dead.clone(), live]).await, Ok(()));
        let why = check(vec![dead]).await.unwrap_err();
        assert!(why.contains("127.0.0.1:1"), "{why}");
    }

    #[tokio::test]
    async fn a_draining_server_is_not_ready() {
        let readiness = Readiness::new(Vec::new());
        readiness.begin_drain();
        assert_eq!(readiness.check(200).await, Err("draining".to_owned()));
    }
}
