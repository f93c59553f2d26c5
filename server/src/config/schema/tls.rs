//! The section `[tls]`: the certificates of this process, and those that it accepts.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::keys::{Key, Kind, TIME_MS_MAX, restart};

/// The certificates of this process, and those that it accepts. Files are in PEM, and are read again when they change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// The certificate and chain of the listeners with `tls://`. Such a listener does not start without it.
    pub cert_file: Option<PathBuf>,
    /// The private key. If unset, it is in `cert_file`.
    pub key_file: Option<PathBuf>,
    /// The authorities that sign certificates of clients. Needed with `client_auth`.
    pub ca_file: Option<PathBuf>,
    /// `none` asks clients for no certificate, `request` refuses only wrong ones, `require` also refuses clients
    /// without one.
    pub client_auth: ClientAuthWord,
    /// The oldest version of TLS, `1.2` or `1.3`.
    pub min_version: TlsVersionWord,
    /// Suites of TLS 1.2 by OpenSSL's names. Empty means all of them, which are safe. A client that shares none of them
    /// is refused.
    pub ciphers: Vec<String>,
    /// Time limit of a handshake. If it is too low, clients far away cannot connect.
    pub handshake_timeout_ms: u64,
    /// Handshakes under way at one listener. At the limit, clients wait, and replace one that takes more than 250 ms.
    pub handshakes_max: usize,
    /// The authorities that sign certificates of other servers and services, at addresses with `tls://`. Needed for
    /// such addresses.
    pub upstream_ca_file: Option<PathBuf>,
    /// The certificate that this process shows to them.
    pub upstream_cert_file: Option<PathBuf>,
    /// The key for it. If unset, it is in `upstream_cert_file`.
    pub upstream_key_file: Option<PathBuf>,
    /// The name that their certificates must have. Empty means the host of each address.
    pub upstream_server_name: String,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            cert_file: None,
            key_file: None,
            ca_file: None,
            client_auth: ClientAuthWord::None,
            min_version: TlsVersionWord::Tls12,
            ciphers: Vec::new(),
            handshake_timeout_ms: 5_000,
            handshakes_max: 256,
            upstream_ca_file: None,
            upstream_cert_file: None,
            upstream_key_file: None,
            upstream_server_name: String::new(),
        }
    }
}

/// The keys of the section, in the order of the fields.
pub(super) const KEYS: &[Key] = &[
    restart("tls.cert_file", Kind::Path),
    restart("tls.key_file", Kind::Path),
    restart("tls.ca_file", Kind::Path),
    restart("tls.client_auth", Kind::Choice(&["none", "request", "require"])),
    restart("tls.min_version", Kind::Choice(&["1.2", "1.3"])),
    restart("tls.ciphers", Kind::Names),
    restart("tls.handshake_timeout_ms", Kind::Count(1, TIME_MS_MAX)),
    restart("tls.handshakes_max", Kind::Count(1, HANDSHAKES_MAX)),
    restart("tls.upstream_ca_file", Kind::Path),
    restart("tls.upstream_cert_file", Kind::Path),
    restart("tls.upstream_key_file", Kind::Path),
    restart("tls.upstream_server_name", Kind::Name),
];

/// The maximum number of handshakes under way at a listener. Each has a file descriptor and some KiB of memory.
const HANDSHAKES_MAX: i64 = 65_536;

/// Whether clients need a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum ClientAuthWord {
    None,
    Request,
    Require,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum TlsVersionWord {
    #[serde(rename = "1.2")]
    Tls12,
    #[serde(rename = "1.3")]
    Tls13,
}
