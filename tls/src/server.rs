//! The credentials of a server: certificate, key, and the authorities of its clients. A reload takes them from the same
//! files, for new connections only. Tickets of earlier sessions stay valid, unless the authorities of clients changed.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};

use crate::files::Stamps;
use crate::{Application, CredentialError, files, identity};

/// Whether clients need a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// Clients are not asked for a certificate.
    None,
    /// Clients are asked for a certificate. One without is accepted, and one with a wrong certificate is refused.
    Request,
    /// Clients without an accepted certificate are refused.
    Require,
}

/// The oldest version of TLS that a server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Version {
    Tls12,
    Tls13,
}

/// The files and rules of a server's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// The certificate and its chain in PEM. It may also have the key.
    pub cert_file: PathBuf,
    /// The private key in PEM. If `None`, the key is in `cert_file`.
    pub key_file: Option<PathBuf>,
    /// The authorities of clients' certificates in PEM. Needed unless `client_auth` is [`ClientAuth::None`].
    pub ca_file: Option<PathBuf>,
    /// Whether clients need a certificate.
    pub client_auth: ClientAuth,
    /// The oldest version that is accepted.
    pub min_version: Version,
    /// The names of the suites of TLS 1.2 that are offered, as OpenSSL or the standard writes them. Empty for all.
    pub ciphers: Vec<String>,
}

impl ServerOptions {
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.cert_file].into_iter().chain(&self.key_file).chain(&self.ca_file)
    }
}

/// The credentials of a server, in the version that was last loaded.
pub struct Server {
    options: ServerOptions,
    loaded: RwLock<Loaded>,
    /// The state of the files at the last attempt to load them.
    tried: Mutex<Stamps>,
}

#[derive(Clone)]
struct Loaded {
    by_application: [Arc<ServerConfig>; Application::ALL.len()],
    expires_unix_s: i64,
    client_authorities: Vec<CertificateDer<'static>>,
    tickets: Arc<dyn ProducesTickets>,
}

impl Server {
    /// Loads the files.
    ///
    /// # Errors
    /// Returns the first problem of the files or the options.
    pub fn load(options: ServerOptions) -> Result<Self, CredentialError> {
        let tried = Stamps::of(options.paths());
        let loaded = Loaded::load(&options, None)?;
        Ok(Self { options, loaded: RwLock::new(loaded), tried: Mutex::new(tried) })
    }

    /// Loads the files again, for new connections.
    ///
    /// # Errors
    /// Returns the problem, and keeps the credentials in use. A certificate that does not belong to the key is one.
    pub fn reload(&self) -> Result<(), CredentialError> {
        let mut tried = self.tried.lock();
        *tried = Stamps::of(self.options.paths());
        let loaded = Loaded::load(&self.options, Some(&self.loaded.read()))?;
        *self.loaded.write() = loaded;
        Ok(())
    }

    /// Returns whether a file has changed since the last attempt to load it.
    pub fn has_changed(&self) -> bool {
        Stamps::of(self.options.paths()) != *self.tried.lock()
    }

    /// Returns the time at which the certificate or one of its chain expires (s since the Unix epoch).
    pub fn expires_unix_s(&self) -> i64 {
        self.loaded.read().expires_unix_s
    }

    pub(crate) fn config(&self, application: Application) -> Arc<ServerConfig> {
        Arc::clone(&self.loaded.read().by_application[application as usize])
    }
}

impl Loaded {
    fn load(options: &ServerOptions, old: Option<&Self>) -> Result<Self, CredentialError> {
        let chain = files::certificates(&options.cert_file)?;
        let key = files::key(options.key_file.as_ref().unwrap_or(&options.cert_file))?;
        let expires_unix_s = identity::expires_unix_s(&chain).ok_or_else(|| {
            files::content(&options.cert_file, "a certificate has no readable time of expiry")
        })?;
        let client_authorities = match (&options.ca_file, options.client_auth) {
            (_, ClientAuth::None) | (None, _) => Vec::new(),
            (Some(path), _) => files::certificates(path)?,
        };
        let tickets = match old {
            // A session of a client whose authority is no longer trusted must not be resumed.
            Some(old) if old.client_authorities == client_authorities => Arc::clone(&old.tickets),
            _ => rustls::crypto::ring::Ticketer::new().map_err(|error| {
                CredentialError::Option(format!("no keys for tickets: {error}"))
            })?,
        };
        let pair = |error| CredentialError::Pair { path: options.cert_file.clone(), error };
        let provider = Arc::new(with_ciphers(&options.ciphers)?);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions(options.min_version))
            .map_err(pair)?;
        let builder = match (&options.ca_file, options.client_auth) {
            (_, ClientAuth::None) => builder.with_no_client_auth(),
            (None, _) => {
                let problem = "certificates of clients need a file with their authorities";
                return Err(CredentialError::Option(problem.to_owned()));
            }
            (Some(path), auth) => {
                let roots = Arc::new(files::roots(&client_authorities, path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match auth {
                    ClientAuth::Request => verifier.allow_unauthenticated().build(),
                    _ => verifier.build(),
                };
                let verifier =
                    verifier.map_err(|error| files::content(path, &error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
        // Tickets hold the state of sessions, so the server stores none.
        config.ticketer = Arc::clone(&tickets);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let by_application = Application::ALL.map(|application| {
            let mut config = config.clone();
            config.alpn_protocols = application.alpn();
            Arc::new(config)
        });
        Ok(Self { by_application, expires_unix_s, client_authorities, tickets })
    }
}

fn versions(min: Version) -> &'static [&'static SupportedProtocolVersion] {
    static FROM_12: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match min {
        Version::Tls12 => &FROM_12,
        Version::Tls13 => &FROM_12[..1],
    }
}

/// Returns the provider with only these suites of TLS 1.2. As in OpenSSL's list, the suites of TLS 1.3 stay.
fn with_ciphers(names: &[String]) -> Result<CryptoProvider, CredentialError> {
    let mut provider = crate::provider();
    if names.is_empty() {
        return Ok(provider);
    }
    if let Some(unknown) = names.iter().find(|name| !suite_names().any(|known| known == **name)) {
        let known = suite_names().collect::<Vec<_>>().join(", ");
        let problem = format!("{unknown:?} is no cipher suite of this server; give any of {known}");
        return Err(CredentialError::Option(problem));
    }
    provider.cipher_suites.retain(|suite| {
        suite.tls13().is_some() || names.iter().any(|name| *name == name_of(suite))
    });
    Ok(provider)
}

/// Returns the names of all suites, as OpenSSL writes them.
pub fn suite_names() -> impl Iterator<Item = String> {
    crate::provider().cipher_suites.into_iter().map(|suite| name_of(&suite))
}

/// Returns the name of a suite as OpenSSL writes it: `ECDHE-RSA-AES128-GCM-SHA256`, or for TLS 1.3
/// `TLS_AES_128_GCM_SHA256`.
fn name_of(suite: &SupportedCipherSuite) -> String {
    match suite.suite() {
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => {
            "ECDHE-ECDSA-CHACHA20-POLY1305".to_owned()
        }
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => {
            "ECDHE-RSA-CHACHA20-POLY1305".to_owned()
        }
        suite => {
            let name = suite.as_str().unwrap_or_default();
            if let Some(rest) = name.strip_prefix("TLS13_") {
                return format!("TLS_{rest}");
            }
            let name = name.strip_prefix("TLS_").unwrap_or(name).replace("_WITH_", "_");
            name.replace("AES_", "AES").replace('_', "-")
        }
    }
}
