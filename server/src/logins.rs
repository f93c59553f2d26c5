//! The logins with which this process uses stores and services. Their files are read again when they change: new
//! connections and calls then use the new password. A file that is wrong changes nothing.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::LoginFile;

use crate::config::{Config, StoreUrl, is_of_this_host, split_tls};
use crate::counters::Control;
use crate::upstream::StoreLogin;

/// The logins of a process.
pub(crate) struct Logins {
    pub(crate) store: Option<StoreLogin>,
    pub(crate) scheduler: Option<Arc<LoginFile>>,
    /// Devices have this file too. It is here to be read again.
    compression: Option<Arc<LoginFile>>,
}

/// Checks the files of logins that the configuration names.
///
/// # Errors
/// Describes what is wrong, with the key and the path.
pub fn check(config: &Config) -> Result<(), String> {
    Logins::open(config).map(drop)
}

/// Returns the login for compression services, if there is one.
///
/// # Errors
/// Describes what is wrong, with the key and the path.
pub fn compression(config: &Config) -> Result<Option<Arc<LoginFile>>, String> {
    open("runtime.compression_login_file", config.runtime.compression_login_file.as_deref())
}

fn open(key: &str, path: Option<&Path>) -> Result<Option<Arc<LoginFile>>, String> {
    let opened = path.map(LoginFile::open).transpose();
    opened.map_err(|error| format!("{key}: {error}"))
}

impl Logins {
    /// Reads the files that the configuration names.
    ///
    /// # Errors
    /// Describes what is wrong, with the key and the path.
    pub(crate) fn open(config: &Config) -> Result<Self, String> {
        let store = open("store.login_file", config.store.login_file.as_deref())?;
        let scheme = config.store.login;
        Ok(Self {
            store: store.map(|file| StoreLogin { file, scheme }),
            scheduler: open("scheduler.login_file", config.scheduler.login_file.as_deref())?,
            compression: compression(config)?,
        })
    }

    /// Warns about each password that crosses a network without TLS.
    pub(crate) fn warn_if_plain(&self, config: &Config) {
        if self.store.is_some() {
            match config.store.url.parse() {
                Ok(StoreUrl::Memcached(entries)) => {
                    let servers = entries.iter().filter_map(|entry| entry.source.host_port());
                    warn_if_plain("store.login_file", servers);
                }
                Ok(StoreUrl::Grpc(services)) => warn_if_plain("store.login_file", &services),
                Ok(StoreUrl::Embedded) | Err(_) => {}
            }
        }
        if self.compression.is_some() {
            let services = config.compression_services();
            warn_if_plain("runtime.compression_login_file", services);
        }
        if self.scheduler.is_some() {
            warn_if_plain("scheduler.login_file", [&config.scheduler.address]);
        }
        if config.runtime.compression_ciphers {
            for address in plain(config.compression_services()) {
                tracing::warn!(
                    "runtime.compression_ciphers: opened values come from {address} without TLS, \
                     and whoever reads the network has them; write tls://{address}"
                );
            }
        }
    }

    /// Reads the files again. Counts and logs the result.
    pub(crate) fn reload(&self, control: &Control) {
        self.files().for_each(|file| reload(file, control));
    }

    fn files(&self) -> impl Iterator<Item = &Arc<LoginFile>> {
        let store = self.store.iter().map(|login| &login.file);
        store.chain(&self.scheduler).chain(&self.compression)
    }

    /// Returns whether there are any logins.
    pub(crate) fn is_used(&self) -> bool {
        self.files().next().is_some()
    }

    /// Reads each file again whenever it has changed, for as long as the future is polled.
    pub(crate) async fn watch(&self, control: &Arc<Control>) {
        loop {
            tokio::time::sleep(WATCH_EVERY).await;
            let (files, control) = (self.files().cloned().collect::<Vec<_>>(), Arc::clone(control));
            // A disk that hangs must not keep the thread from its other tasks.
            let looked = tokio::task::spawn_blocking(move || {
                let changed = files.iter().filter(|file| file.has_changed());
                changed.for_each(|file| reload(file, &control));
            });
            let _ = looked.await;
        }
    }
}

fn warn_if_plain(key: &str, addresses: impl IntoIterator<Item: Display>) {
    for address in plain(addresses) {
        tracing::warn!(
            "{key}: the password goes to {address} without TLS, and whoever reads the network has \
             it; write tls://{address}"
        );
    }
}

/// Returns the addresses of other hosts without TLS.
fn plain(addresses: impl IntoIterator<Item: Display>) -> impl Iterator<Item = String> {
    let texts = addresses.into_iter().map(|address| address.to_string());
    texts.filter(|text| !text.is_empty() && !split_tls(text).0 && !is_of_this_host(text))
}

fn reload(file: &LoginFile, control: &Control) {
    match file.reload() {
        Ok(()) => {
            control.login_reloads.up();
            tracing::info!(file = %file.path().display(), "a login was read again");
        }
        Err(error) => {
            control.login_reloads_failed.up();
            tracing::error!("a login was not read again, the old one stays: {error}");
        }
    }
}

/// The interval at which the files are looked at.
const WATCH_EVERY: Duration = Duration::from_secs(1);
