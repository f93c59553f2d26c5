//! An authority of a test, with the certificates that it signs.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tls::{Client, ClientOptions};

/// An authority, and the files in its folder: `ca.pem`, and for each name that it has signed `NAME.pem` with both the
/// certificate and the key.
pub(crate) struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
        let authority = Self { folder, issuer: issuer.expect("a certificate") };
        std::fs::write(authority.path("ca.pem"), authority.issuer.pem()).expect("it is written");
        authority
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        Path::new(self.folder.path()).join(name)
    }

    /// Signs a certificate for this host with the subject `CN=NAME`.
    pub(crate) fn sign(&self, name: &str) -> PathBuf {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let path = self.path(&format!("{name}.pem"));
        let both = certificate.pem() + &key.serialize_pem();
        std::fs::write(&path, both).expect("it is written");
        path
    }

    /// Returns a client that trusts this authority, with the certificate of `name`, if one is given.
    pub(crate) fn client(&self, name: Option<&str>) -> Client {
        Client::load(ClientOptions {
            ca_file: self.path("ca.pem"),
            cert_file: name.map(|name| self.path(&format!("{name}.pem"))),
            key_file: None,
            server_name: None,
        })
        .expect("credentials")
    }
}
