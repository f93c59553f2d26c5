//! TLS for the connections of this process, in both directions, with rustls. `server` and `client` build credentials
//! from files and build them again when the files change. `session` is one connection without a socket. `stream` is a
//! session on a TCP socket of tokio.
//!
//! The crate offers only TLS 1.2 and 1.3 with the suites that rustls considers safe. It opens no socket, logs nothing
//! and counts nothing: its caller gets errors and decides.

mod client;
mod error;
mod files;
mod identity;
mod server;
mod session;
mod stream;

pub use client::{Client, ClientOptions, outgoing, set_outgoing};
pub use error::{CredentialError, HandshakeFailure};
pub use files::Stamps;
pub use identity::Identity;
pub use server::{ClientAuth, Server, ServerOptions, Version, suite_names};
pub use session::{
    CONNECTION_BYTES_MAX, EXPORTED_KEY_BYTES, HELD_BYTES_MAX, Session, Wire, held_bytes,
};
pub use stream::{Stream, handshake};

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The protocol that a connection speaks inside TLS. It decides what both ends offer as ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// memcached's commands, and other protocols without a name in ALPN. Nothing is offered.
    Plain,
    /// HTTP/2, for gRPC: `h2`.
    Http2,
    /// HTTP/1, for the admin pages: `http/1.1`.
    Http1,
}

impl Application {
    const ALL: [Application; 3] = [Application::Plain, Application::Http2, Application::Http1];

    fn alpn(self) -> Vec<Vec<u8>> {
        match self {
            Application::Plain => Vec::new(),
            Application::Http2 => vec![b"h2".to_vec()],
            Application::Http1 => vec![b"http/1.1".to_vec()],
        }
    }
}

/// Returns the cryptography of every session.
fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

fn shared_provider() -> Arc<CryptoProvider> {
    Arc::new(provider())
}
