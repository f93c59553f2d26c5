//! The flags with which a command connects to addresses that begin with `tls://`.

use std::path::PathBuf;
use std::sync::Arc;

use ::tls::{Client, ClientOptions};
use clap::Args;

use crate::terminal::CliError;

/// The flags of a command that connects to servers.
#[derive(Debug, Default, Args)]
pub(crate) struct TlsFlags {
    /// Authorities that sign the certificates of servers at tls:// addresses, in PEM.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Certificate to show to servers that ask for one, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_cert: Option<PathBuf>,
    /// Private key of that certificate, if it is not in the same file.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Name that the certificates of servers must have, instead of the host of the address.
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_server_name: Option<String>,
}

impl TlsFlags {
    /// Loads the credentials for all connections of this process, if there are any.
    pub(crate) fn apply(&self) -> Result<(), CliError> {
        let Some(ca_file) = self.tls_ca.clone() else { return Ok(()) };
        let client = Client::load(ClientOptions {
            ca_file,
            cert_file: self.tls_cert.clone(),
            key_file: self.tls_key.clone(),
            server_name: self.tls_server_name.clone(),
        });
        let client = client.map_err(|error| CliError::Usage(error.to_string()))?;
        ::tls::set_outgoing(Arc::new(client));
        Ok(())
    }
}
