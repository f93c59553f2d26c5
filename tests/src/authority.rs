//! An authority of a test, with the certificates that it signs.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    date_time_ymd,
};
use tempfile::TempDir;

/// An authority and the files in its folder: `ca.pem`, and `NAME.pem` and `NAME.key` for what it has signed.
pub struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// Creates the authority, and a certificate `server` that is valid for long.
    ///
    /// # Panics
    /// Panics if there is no folder.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let authority = Self { folder, issuer };
        std::fs::write(authority.path("ca.pem"), authority.issuer.pem()).expect("it is written");
        authority.sign("server", 2100);
        authority
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path of a file as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes `NAME.pem` and `NAME.key`, valid until the end of this year.
    ///
    /// # Panics
    /// Panics if they cannot be written.
    pub fn sign(&self, name: &str, year: i32) {
        self.write(name, self.signed(name, year));
    }

    /// Writes `NAME.pem` and `NAME.key`, valid for this time from now.
    ///
    /// # Panics
    /// Panics if they cannot be written.
    pub fn sign_for(&self, name: &str, left: Duration) {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("a date after 1970");
        let not_after = date_time_ymd(1970, 1, 1) + since_epoch + left;
        self.write(name, self.signed_with(name, |params| params.not_after = not_after));
    }

    fn write(&self, name: &str, (certificate, key): (String, String)) {
        std::fs::write(self.path(&format!("{name}.key")), key).expect("it is written");
        std::fs::write(self.path(&format!("{name}.pem")), certificate).expect("it is written");
    }

    /// Returns a certificate for this host with the subject `CN=NAME`, and its key.
    ///
    /// # Panics
    /// Panics if there are no random numbers.
    pub fn signed(&self, name: &str, year: i32) -> (String, String) {
        self.signed_with(name, |params| params.not_after = date_time_ymd(year, 12, 31))
    }

    fn signed_with(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (String, String) {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2000, 1, 1);
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// Returns the flags with which a server of this authority has its certificate.
    pub fn server_flags(&self) -> [String; 4] {
        let set = |key: &str, file: &str| format!("tls.{key}={}", self.text(file));
        let flag = || "--set".to_owned();
        [flag(), set("cert_file", "server.pem"), flag(), set("key_file", "server.key")]
    }

    /// Returns the flags with which a server asks clients for certificates of this authority.
    pub fn client_auth_flags(&self, word: &str) -> [String; 4] {
        let flag = || "--set".to_owned();
        let ca = format!("tls.ca_file={}", self.text("ca.pem"));
        [flag(), ca, flag(), format!("tls.client_auth={word}")]
    }

    /// Returns the flags with which a server trusts the servers of this authority.
    pub fn upstream_flags(&self) -> [String; 2] {
        ["--set".to_owned(), format!("tls.upstream_ca_file={}", self.text("ca.pem"))]
    }
}
