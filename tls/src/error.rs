//! The errors of credentials, and the reasons for which handshakes fail.

use std::io;
use std::path::PathBuf;

use rustls::{AlertDescription, Error};

/// The reason why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// A file could not be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file has no certificates or no key.
    #[error("{}: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is missing or wrong.
        problem: String,
    },
    /// The certificate and the key do not belong together, or cannot be used.
    #[error("{} with its key: {error}", path.display())]
    Pair {
        /// The file of the certificate.
        path: PathBuf,
        /// The error of rustls.
        error: Error,
    },
    /// An option is out of range.
    #[error("{0}")]
    Option(String),
}

/// The reason why a handshake failed, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// The first bytes were no TLS.
    Plain,
    /// The peer offers no version of TLS that is allowed here.
    Version,
    /// The peer has no acceptable certificate, or does not accept ours.
    Certificate,
    /// The peer closed the connection first.
    Closed,
    /// Any other reason, such as a malformed message or no common cipher suite.
    Other,
}

impl HandshakeFailure {
    /// Returns the reason for an error of [`crate::Session::handshake`].
    pub fn from_error(error: &io::Error) -> Self {
        let inner = error.get_ref();
        if inner.is_some_and(|inner| inner.is::<NotTls>()) {
            return Self::Plain;
        }
        match inner.and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(error) => Self::of_tls(error),
            None => Self::Closed,
        }
    }

    fn of_tls(error: &Error) -> Self {
        use rustls::PeerIncompatible as Incompatible;
        match error {
            Error::PeerIncompatible(
                Incompatible::SupportedVersionsExtensionRequired
                // Only clients before TLS 1.2 do without it.
                | Incompatible::SignatureAlgorithmsExtensionRequired
                | Incompatible::Tls12NotOffered
                | Incompatible::Tls12NotOfferedOrEnabled
                | Incompatible::Tls13RequiredForQuic,
            )
            | Error::AlertReceived(AlertDescription::ProtocolVersion) => Self::Version,
            Error::NoCertificatesPresented
            | Error::InvalidCertificate(_)
            | Error::AlertReceived(
                AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRequired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::UnsupportedCertificate,
            ) => Self::Certificate,
            _ => Self::Other,
        }
    }
}

/// The error for first bytes that cannot begin a TLS connection.
#[derive(Debug, thiserror::Error)]
#[error("the first bytes are no TLS: the peer speaks its protocol without it")]
pub(crate) struct NotTls;

/// Wraps an error of rustls, so that [`HandshakeFailure::from_error`] can find it.
pub(crate) fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
