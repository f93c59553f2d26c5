//! The credentials with which this process connects to others. A process has one set of them, for all servers and
//! services that it uses, because it is one party to each of them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection};
use tokio::net::TcpStream;

use crate::error::invalid;
use crate::files::Stamps;
use crate::{Application, CredentialError, Session, Stream, files, handshake, identity};

/// The files and rules of a client's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// The authorities of servers' certificates in PEM.
    pub ca_file: PathBuf,
    /// This client's certificate and chain in PEM, for servers that ask for one. It may also have the key.
    pub cert_file: Option<PathBuf>,
    /// The private key in PEM. If `None`, the key is in `cert_file`.
    pub key_file: Option<PathBuf>,
    /// The name that certificates of servers must have. If `None`, it is the host of the server's address.
    pub server_name: Option<String>,
}

impl ClientOptions {
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.ca_file].into_iter().chain(&self.cert_file).chain(&self.key_file)
    }
}

/// The credentials of a client, in the version that was last loaded.
pub struct Client {
    options: ClientOptions,
    server_name: Option<ServerName<'static>>,
    loaded: RwLock<Loaded>,
    /// The state of the files at the last attempt to load them.
    tried: Mutex<Stamps>,
}

struct Loaded {
    by_application: [Arc<ClientConfig>; Application::ALL.len()],
    /// The time at which this client's certificate expires, if it has one.
    expires_unix_s: Option<i64>,
}

impl Client {
    /// Loads the files.
    ///
    /// # Errors
    /// Returns the first problem of the files or the options.
    pub fn load(options: ClientOptions) -> Result<Self, CredentialError> {
        let server_name = options.server_name.clone().map(|name| {
            let wrong = |_| CredentialError::Option(format!("{name:?} is no name of a server"));
            ServerName::try_from(name.clone()).map_err(wrong)
        });
        let server_name = server_name.transpose()?;
        let tried = Mutex::new(Stamps::of(options.paths()));
        let loaded = RwLock::new(load(&options)?);
        Ok(Self { options, server_name, loaded, tried })
    }

    /// Loads the files again, for new connections.
    ///
    /// # Errors
    /// Returns the problem, and keeps the credentials in use.
    pub fn reload(&self) -> Result<(), CredentialError> {
        let mut tried = self.tried.lock();
        *tried = Stamps::of(self.options.paths());
        let loaded = load(&self.options)?;
        *self.loaded.write() = loaded;
        Ok(())
    }

    /// Returns whether a file has changed since the last attempt to load it.
    pub fn has_changed(&self) -> bool {
        Stamps::of(self.options.paths()) != *self.tried.lock()
    }

    /// Returns the time at which this client's certificate or one of its chain expires (s since the Unix epoch), if it
    /// has a certificate.
    pub fn expires_unix_s(&self) -> Option<i64> {
        self.loaded.read().expires_unix_s
    }

    /// Begins a session with the server at `host`, which may be a name or an IP address.
    ///
    /// # Errors
    /// Returns an error if `host` can be neither.
    pub fn session(&self, host: &str, application: Application) -> io::Result<Session> {
        self.begin(self.config(application), host)
    }

    fn config(&self, application: Application) -> Arc<ClientConfig> {
        Arc::clone(&self.loaded.read().by_application[application as usize])
    }

    fn begin(&self, config: Arc<ClientConfig>, host: &str) -> io::Result<Session> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => {
                let bare = host.trim_start_matches('[').trim_end_matches(']');
                ServerName::try_from(bare.to_owned()).map_err(invalid)?
            }
        };
        let connection = ClientConnection::new(config, name).map_err(invalid)?;
        Ok(Session::new(Connection::from(connection)))
    }

    /// Connects to `address`, which is `HOST:PORT`, and performs the handshake.
    ///
    /// # Errors
    /// Returns the system's error, or that of the handshake. There is no time limit.
    pub async fn connect(&self, address: &str, application: Application) -> io::Result<Stream> {
        self.open(address, self.config(application)).await
    }

    async fn open(&self, address: &str, config: Arc<ClientConfig>) -> io::Result<Stream> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let mut session = self.begin(config, host)?;
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        handshake(&socket, &mut session).await?;
        Ok(Stream::new(socket, session))
    }

    /// Connects to `address`, which is `HOST:PORT`, and returns the time at which the certificate that the server
    /// shows, or one of its chain, expires (s since the Unix epoch). The connection ends at once.
    ///
    /// # Errors
    /// Returns the system's error, or that of the handshake, also for a certificate that has expired. There is no time
    /// limit.
    pub async fn expiry_at(&self, address: &str, application: Application) -> io::Result<i64> {
        let mut config = ClientConfig::clone(&self.config(application));
        // A session that is resumed has the certificate of the first one, which may have been replaced since.
        config.resumption = Resumption::disabled();
        let stream = self.open(address, Arc::new(config)).await?;
        let expires_unix_s = stream.peer_expires_unix_s();
        expires_unix_s.ok_or_else(|| {
            let problem = "a certificate without a readable time of expiry";
            io::Error::new(io::ErrorKind::InvalidData, problem)
        })
    }
}

fn load(options: &ClientOptions) -> Result<Loaded, CredentialError> {
    let provider = crate::shared_provider();
    let authorities = files::certificates(&options.ca_file)?;
    let roots = Arc::new(files::roots(&authorities, &options.ca_file)?);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
        .build()
        .map_err(|error| files::content(&options.ca_file, &error.to_string()))?;
    let path = options.cert_file.as_ref().unwrap_or(&options.ca_file);
    let pair = |error| CredentialError::Pair { path: path.clone(), error };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_webpki_verifier(verifier);
    let (config, expires_unix_s) = match &options.cert_file {
        None => (builder.with_no_client_auth(), None),
        Some(cert_file) => {
            let chain = files::certificates(cert_file)?;
            let key = files::key(options.key_file.as_ref().unwrap_or(cert_file))?;
            let expires_unix_s = identity::expires_unix_s(&chain).ok_or_else(|| {
                files::content(cert_file, "a certificate has no readable time of expiry")
            })?;
            (builder.with_client_auth_cert(chain, key).map_err(pair)?, Some(expires_unix_s))
        }
    };
    let by_application = Application::ALL.map(|application| {
        let mut config = config.clone();
        config.alpn_protocols = application.alpn();
        Arc::new(config)
    });
    Ok(Loaded { by_application, expires_unix_s })
}

static OUTGOING: RwLock<Option<Arc<Client>>> = RwLock::new(None);

/// Sets the credentials of this process for its own connections. They replace earlier ones.
pub fn set_outgoing(client: Arc<Client>) {
    *OUTGOING.write() = Some(client);
}

/// Returns the credentials of this process for its own connections.
///
/// # Errors
/// Returns an error if there are none.
pub fn outgoing() -> io::Result<Arc<Client>> {
    let none = || {
        let problem = "an address with tls:// needs a file with the authorities of servers";
        io::Error::new(io::ErrorKind::InvalidInput, problem)
    };
    OUTGOING.read().clone().ok_or_else(none)
}
