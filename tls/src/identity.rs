//! Who a certificate says that its owner is, and until when it is valid.

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// The identity of a peer whose certificate was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The subject, such as `CN=frontend, O=Example`.
    pub subject: String,
    /// The alternative names: DNS names, mail addresses and URIs, each behind `DNS:`,
    /// `email:` or `URI:`, in the order of the certificate.
    pub names: Vec<String>,
}

impl Identity {
    /// Reads the identity of a certificate. Returns `None` if the certificate cannot be read.
    pub(crate) fn from_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = parse_x509_certificate(certificate).ok()?;
        let names = parsed.subject_alternative_name().ok().flatten();
        let names = names.map(|names| names.value.general_names.iter().filter_map(name).collect());
        Some(Self { subject: parsed.subject().to_string(), names: names.unwrap_or_default() })
    }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    let (kind, text) = match name {
        GeneralName::DNSName(text) => ("DNS", text),
        GeneralName::RFC822Name(text) => ("email", text),
        GeneralName::URI(text) => ("URI", text),
        _ => return None,
    };
    Some(format!("{kind}:{text}"))
}

/// Returns the time at which the first certificate of the chain expires (s since the Unix epoch).
pub(crate) fn expires_unix_s(chain: &[CertificateDer<'_>]) -> Option<i64> {
    let expires = |certificate: &CertificateDer<'_>| {
        let (_, parsed) = parse_x509_certificate(certificate).ok()?;
        Some(parsed.validity().not_after.timestamp())
    };
    chain.iter().filter_map(expires).min()
}
