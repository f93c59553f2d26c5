//! Who a client is, and what it may do. `origin` has what is known of a connection, `file` and `token_file` read the
//! rules that map clients to roles, `rules` finds the role of a client, `client` has the rights of one connection,
//! `login` checks passwords, `quota` limits rates, and `audit` logs refusals and administrative commands. This module
//! reads no commands from sockets and writes no replies.

mod audit;
mod client;
mod file;
mod login;
mod network;
mod origin;
mod quota;
mod rights;
mod rules;
mod secret;
mod token_file;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::Config;
use crate::counters::Control;
use audit::Audit;
pub(crate) use client::{Admission, Allowances, Client, Denial, NoPlace};
pub(crate) use file::{TENANT_MAX, problem_without_text, read_bounded, warn_if_readable};
use login::Logins;
pub(crate) use origin::Origin;
use parking_lot::RwLock;
pub(crate) use quota::Bucket;
pub(crate) use rights::{Rights, command_name, first_key, for_each_key, is_administrative, needed};
use rules::Rules;
use secret::Hasher;

/// The rules in effect, which all workers share. A reload replaces them.
pub(crate) struct Access {
    source: Option<Source>,
    rules: RwLock<Arc<Rules>>,
    /// The number of times that the rules were replaced. Clients look up their rights again when it changes.
    generation: AtomicU64,
    hasher: Hasher,
    logins: Logins,
    pub(crate) audit: Audit,
}

/// The file with the rules.
enum Source {
    /// `server.access_file`: identities, roles and quotas.
    Access(PathBuf),
    /// `server.token_file`: memcached's users and passwords. Each user may do everything.
    Tokens(PathBuf),
}

impl Source {
    fn from_config(config: &Config) -> Option<Self> {
        let server = &config.server;
        let access = server.access_file.clone().map(Source::Access);
        access.or_else(|| server.token_file.clone().map(Source::Tokens))
    }

    fn read(&self, hasher: &Hasher, old: &Rules) -> Result<Rules, String> {
        match self {
            Source::Access(path) => file::read(path, hasher, old),
            Source::Tokens(path) => token_file::read(path, hasher, old),
        }
    }
}

/// Checks the file with the rules, if the configuration names one.
///
/// # Errors
/// Describes what is wrong, with the path and the place.
pub fn check(config: &Config) -> Result<(), String> {
    let read = |source: Source| source.read(&Hasher::new(), &Rules::default());
    Source::from_config(config).map_or(Ok(()), |source| read(source).map(drop))
}

impl Access {
    /// Reads the file with the rules, if the configuration names one.
    ///
    /// # Errors
    /// Describes what is wrong with the file.
    pub(crate) fn open(config: &Config) -> Result<Self, String> {
        let (source, hasher) = (Source::from_config(config), Hasher::new());
        let rules = match &source {
            Some(source) => source.read(&hasher, &Rules::default())?,
            None => Rules::default(),
        };
        Ok(Self {
            source,
            rules: RwLock::new(Arc::new(rules)),
            generation: AtomicU64::new(0),
            hasher,
            logins: Logins::default(),
            audit: Audit::default(),
        })
    }

    /// Returns whether there are rules. Without rules, every client may do everything, except that the services for
    /// other processes are closed to clients of other hosts.
    pub(crate) fn has_rules(&self) -> bool {
        self.source.is_some()
    }

    /// Reads the file again. If it is wrong, the old rules stay. Counts and logs the result.
    pub(crate) fn reload(&self, control: &Control) {
        let Some(source) = &self.source else { return };
        let old = Arc::clone(&self.rules.read());
        match source.read(&self.hasher, &old) {
            Ok(rules) => {
                *self.rules.write() = Arc::new(rules);
                self.generation.fetch_add(1, Ordering::Release);
                control.access_reloads.up();
                Audit::reloaded();
            }
            Err(problem) => {
                control.access_reloads_failed.up();
                tracing::error!("access rules not reloaded, the old ones stay: {problem}");
            }
        }
    }

    fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read())
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
