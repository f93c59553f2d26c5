//! TLS of this process: its credentials, which are loaded again when their files change, and the handshakes of its
//! listeners. Handshakes run on a thread of their own, so that their arithmetic delays no request of other clients. A
//! connection reaches its worker only after its handshake.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::tls::{
    Application, Client, ClientAuth, ClientOptions, CredentialError, HandshakeFailure,
    ServerOptions, Session, Version,
};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

use crate::accept::{Dispatcher, prepare_tcp};
use crate::certificates::{ExpiryWarning, ServerCertificates, unix_s};
use crate::config::{ClientAuthWord, Config, TlsConfig, TlsVersionWord};
use crate::counters;
use crate::once;
use crate::worker::{Accepted, ListenerProtocol};

/// The credentials of a process, and the counts of their use.
pub(crate) struct Tls {
    server: Option<::tls::Server>,
    client: Option<Arc<Client>>,
    handshake_max: Duration,
    handshakes_max: usize,
    pub(crate) counters: counters::Tls,
    /// The certificates that servers show to this process.
    pub(crate) servers: ServerCertificates,
    /// The time at which the certificates were loaded.
    loaded: Mutex<Instant>,
}

impl Tls {
    /// Loads the credentials that the configuration names.
    ///
    /// # Errors
    /// Describes the first file that cannot be used.
    pub(crate) fn load(config: &Config) -> Result<Self, String> {
        let tls = &config.tls;
        let told = |error: CredentialError| format!("tls: {error}");
        let server = server_options(tls).map(::tls::Server::load).transpose().map_err(told)?;
        let client = client_options(tls).map(Client::load).transpose().map_err(told)?;
        let client = client.map(Arc::new);
        if let Some(client) = &client {
            ::tls::set_outgoing(Arc::clone(client));
        }
        Ok(Self {
            server,
            client,
            handshake_max: Duration::from_millis(tls.handshake_timeout_ms),
            handshakes_max: tls.handshakes_max,
            counters: counters::Tls::default(),
            servers: ServerCertificates::default(),
            loaded: Mutex::new(Instant::now()),
        })
    }

    /// Returns whether there are any credentials.
    pub(crate) fn is_used(&self) -> bool {
        self.server.is_some() || self.client.is_some()
    }

    /// Returns the time at which the certificate of the listeners expires (s since the Unix epoch).
    pub(crate) fn expires_unix_s(&self) -> Option<i64> {
        self.server.as_ref().map(::tls::Server::expires_unix_s)
    }

    /// Returns the time at which the certificate expires that this process shows to other servers, if it has one (s
    /// since the Unix epoch).
    pub(crate) fn upstream_expires_unix_s(&self) -> Option<i64> {
        self.client.as_ref()?.expires_unix_s()
    }

    /// Returns the time since the certificate of the listeners was loaded, if there is one.
    pub(crate) fn since_loaded(&self) -> Option<Duration> {
        self.server.as_ref().map(|_| self.loaded.lock().elapsed())
    }

    /// Loads all files again, for new connections: those of the listeners and, independently of them, those of the
    /// connections to other servers. Counts and logs both results.
    ///
    /// # Errors
    /// Describes the first file of each set that cannot be used. The credentials of that set stay in use.
    pub(crate) fn reload(&self) -> Result<(), String> {
        let problems = [self.reload_listeners(), self.reload_upstream()];
        self.servers.ask_again();
        let problems: Vec<String> = problems.into_iter().filter_map(Result::err).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }

    fn reload_listeners(&self) -> Result<(), String> {
        let Some(server) = &self.server else { return Ok(()) };
        let result = server.reload();
        if result.is_ok() {
            *self.loaded.lock() = Instant::now();
        }
        let counters = (&self.counters.reloads, &self.counters.reloads_failed);
        report_reload("listeners", counters, result)
    }

    fn reload_upstream(&self) -> Result<(), String> {
        let Some(client) = &self.client else { return Ok(()) };
        let counters = (&self.counters.reloads_upstream, &self.counters.reloads_upstream_failed);
        report_reload("connections to other servers", counters, client.reload())
    }

    /// Loads the files again whenever they have changed, for as long as the future is polled.
    pub(crate) async fn watch(self: &Arc<Self>) {
        let (mut listeners, mut upstream) = <(ExpiryWarning, ExpiryWarning)>::default();
        loop {
            let now_unix_s = unix_s();
            if let Some(expires_unix_s) = self.expires_unix_s() {
                listeners.look("the TLS listeners", expires_unix_s, now_unix_s);
            }
            if let Some(expires_unix_s) = self.upstream_expires_unix_s() {
                upstream.look("this process towards other servers", expires_unix_s, now_unix_s);
            }
            tokio::time::sleep(WATCH_EVERY).await;
            let tls = Arc::clone(self);
            // A disk that hangs must not keep the thread from its other tasks.
            let looked = tokio::task::spawn_blocking(move || {
                if tls.server.as_ref().is_some_and(::tls::Server::has_changed) {
                    let _counted = tls.reload_listeners();
                }
                if tls.client.as_ref().is_some_and(|client| client.has_changed()) {
                    let _counted = tls.reload_upstream();
                }
            });
            let _ = looked.await;
        }
    }

    /// Performs the handshake of a connection, within the time limit. Counts the result.
    pub(crate) async fn handshake(
        &self,
        socket: &tokio::net::TcpStream,
        from: SocketAddr,
        application: Application,
    ) -> Option<Session> {
        let ended = tokio::time::timeout(self.handshake_max, self.converse(socket, application));
        let counters = &self.counters;
        match ended.await {
            Ok(Ok(session)) => {
                counters.handshakes.up();
                return Some(session);
            }
            Err(_) => {
                counters.failed_timeout.up();
                log_once(from, "a client did not complete its TLS handshake in time", None);
            }
            Ok(Err(error)) => {
                let (counter, what) = match HandshakeFailure::from_error(&error) {
                    HandshakeFailure::Plain => {
                        (&counters.failed_plain, "a client speaks without TLS to a TLS port")
                    }
                    HandshakeFailure::Version => {
                        (&counters.failed_version, "a client offers no allowed version of TLS")
                    }
                    HandshakeFailure::Certificate => (
                        &counters.failed_certificate,
                        "a client's certificate is not accepted, or it does not accept ours",
                    ),
                    HandshakeFailure::Closed => {
                        // Clients that go away, and probes of ports, are no news.
                        counters.failed_closed.up();
                        tracing::debug!(%error, "TLS handshake failed");
                        return None;
                    }
                    HandshakeFailure::Other => (&counters.failed_other, "a TLS handshake failed"),
                };
                counter.up();
                log_once(from, what, Some(&error));
            }
        }
        None
    }

    async fn converse(
        &self,
        socket: &tokio::net::TcpStream,
        application: Application,
    ) -> io::Result<Session> {
        let server = self.server.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let mut session = Session::accept(server, application)?;
        ::tls::handshake(socket, &mut session).await?;
        if let Some(identity) = session.identity() {
            tracing::debug!(subject = identity.subject, names = ?identity.names, "TLS client");
        }
        Ok(session)
    }
}

/// Counts and logs whether the certificates of `whose` were loaded again. `counters` are those of successes and of
/// failures.
fn report_reload(
    whose: &str,
    counters: (&counters::Counter, &counters::Counter),
    result: Result<(), CredentialError>,
) -> Result<(), String> {
    match result {
        Ok(()) => {
            counters.0.up();
            tracing::info!("the certificates of the {whose} were loaded again");
            Ok(())
        }
        Err(error) => {
            counters.1.up();
            tracing::warn!(
                "the certificates of the {whose} were not loaded again, the old ones stay: {error}"
            );
            Err(format!("{whose}: {error}"))
        }
    }
}

/// Logs a refused handshake, once per client and reason.
fn log_once(from: SocketAddr, what: &'static str, error: Option<&io::Error>) {
    let peer = from.ip().to_canonical();
    let error = error.map(ToString::to_string).unwrap_or_default();
    if once::is_first(Some(peer), what) {
        tracing::warn!(from = %peer, error, "{what}; more of this client are only counted");
    } else {
        tracing::debug!(error, "{what}");
    }
}

fn server_options(tls: &TlsConfig) -> Option<ServerOptions> {
    Some(ServerOptions {
        cert_file: tls.cert_file.clone()?,
        key_file: tls.key_file.clone(),
        ca_file: tls.ca_file.clone(),
        client_auth: match tls.client_auth {
            ClientAuthWord::None => ClientAuth::None,
            ClientAuthWord::Request => ClientAuth::Request,
            ClientAuthWord::Require => ClientAuth::Require,
        },
        min_version: match tls.min_version {
            TlsVersionWord::Tls12 => Version::Tls12,
            TlsVersionWord::Tls13 => Version::Tls13,
        },
        ciphers: tls.ciphers.clone(),
    })
}

fn client_options(tls: &TlsConfig) -> Option<ClientOptions> {
    let name = &tls.upstream_server_name;
    Some(ClientOptions {
        ca_file: tls.upstream_ca_file.clone()?,
        cert_file: tls.upstream_cert_file.clone(),
        key_file: tls.upstream_key_file.clone(),
        server_name: (!name.is_empty()).then(|| name.clone()),
    })
}

/// Accepts connections and performs their handshakes, for as long as the future is polled.
pub(crate) async fn accept(
    listener: &TcpListener,
    protocol: ListenerProtocol,
    dispatcher: &Dispatcher,
    tls: &Arc<Tls>,
) {
    let mut under_way = UnderWay::default();
    loop {
        under_way.make_room(tls).await;
        match listener.accept().await {
            Ok((socket, from)) => {
                let (dispatcher, tls) = (dispatcher.clone(), Arc::clone(tls));
                under_way.start(async move {
                    prepare_tcp(&socket);
                    let application = match protocol {
                        ListenerProtocol::Grpc => Application::Http2,
                        _ => Application::Plain,
                    };
                    let Some(session) = tls.handshake(&socket, from, application).await else {
                        return;
                    };
                    match socket.into_std() {
                        Ok(socket) => {
                            let accepted = TlsAccepted { socket, from, session };
                            dispatcher.dispatch(Accepted::Tls(Box::new(accepted), protocol));
                        }
                        Err(error) => {
                            tracing::warn!(%error, "a connection could not be taken over")
                        }
                    }
                });
            }
            Err(error) => dispatcher.errors.pause(&error).await,
        }
    }
}

/// A connection after its handshake, which no event loop has yet.
pub(crate) struct TlsAccepted {
    pub(crate) socket: TcpStream,
    /// The address of the client.
    pub(crate) from: SocketAddr,
    pub(crate) session: Session,
}

/// The handshakes of one listener.
#[derive(Default)]
struct UnderWay {
    tasks: JoinSet<()>,
    oldest_first: VecDeque<(Instant, AbortHandle)>,
}

impl UnderWay {
    fn start(&mut self, handshake: impl Future<Output = ()> + Send + 'static) {
        self.oldest_first.push_back((Instant::now(), self.tasks.spawn(handshake)));
    }

    /// Waits until there is room for another handshake. The oldest one is given up if it is slow, so that clients that
    /// begin handshakes and do not go on cannot lock out others.
    async fn make_room(&mut self, tls: &Tls) {
        while self.tasks.try_join_next().is_some() {}
        if self.oldest_first.len() < tls.handshakes_max {
            return;
        }
        self.oldest_first.retain(|(_, task)| !task.is_finished());
        while self.oldest_first.len() >= tls.handshakes_max {
            let Some((since, _)) = self.oldest_first.front() else { return };
            let left = SLOW_AFTER.saturating_sub(since.elapsed());
            if left.is_zero() {
                if let Some((_, slow)) = self.oldest_first.pop_front() {
                    slow.abort();
                    tls.counters.failed_replaced.up();
                }
                return;
            }
            // The end of any other handshake makes room earlier.
            let _ = tokio::time::timeout(left, self.tasks.join_next()).await;
            self.oldest_first.retain(|(_, task)| !task.is_finished());
        }
    }
}

/// The interval at which the files of credentials are looked at.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// The time after which a handshake may be given up for another one.
const SLOW_AFTER: Duration = Duration::from_millis(250);
