//! Who a certificate says that its owner is, and until when it is valid.

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;
use x509_parser::x509::{AttributeTypeAndValue, RelativeDistinguishedName, X509Name};

/// The identity of a peer whose certificate was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The subject, such as `CN=frontend, O=Example`. A backslash stands in front of each `,`, `+` and backslash of a
    /// value, so that two subjects never have the same text.
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
        Some(Self { subject: subject(parsed.subject()), names: names.unwrap_or_default() })
    }
}

fn subject(name: &X509Name<'_>) -> String {
    let part = |part: &RelativeDistinguishedName<'_>| {
        part.iter().map(attribute).collect::<Vec<_>>().join(" + ")
    };
    name.iter_rdn().map(part).collect::<Vec<_>>().join(", ")
}

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    let alone = RelativeDistinguishedName::new(vec![attribute.clone()]);
    // The name of the kind has no `=`, and the library escapes nothing in the value.
    let text = X509Name::new(vec![alone], &[]).to_string();
    let Some((kind, value)) = text.split_once('=') else { return text };
    let mut escaped = format!("{kind}=");
    for letter in value.chars() {
        if matches!(letter, ',' | '+' | '\\') {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
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

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn subject_of(parts: &[(DnType, &str)]) -> String {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Identity::from_certificate(certificate.der()).expect("it is readable").subject
    }

    #[test]
    fn a_value_cannot_look_like_several_parts_of_a_subject() {
        use DnType::{CommonName, OrganizationName};
        let honest = subject_of(&[(CommonName, "web"), (OrganizationName, "Example")]);
        assert_eq!(honest, "CN=web, O=Example");
        let forged = subject_of(&[(CommonName, "web, O=Example")]);
        assert_eq!(forged, "CN=web\\, O=Example");
        assert_eq!(subject_of(&[(CommonName, "a + b\\, c=ü")]), "CN=a \\+ b\\\\\\, c=ü");
    }
}
