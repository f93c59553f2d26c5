//! The rules: which role each client has. A role is what an identity may do. `file` and `token_file` make the rules.

use std::collections::HashMap;
use std::sync::Arc;

use super::network::Network;
use super::origin::{Origin, Peer};
use super::quota::Usage;
use super::rights::Rights;
use super::secret::Secret;

/// The rules of a file.
#[derive(Default)]
pub(super) struct Rules {
    pub(super) users: Vec<User>,
    pub(super) networks: Vec<(Network, Arc<Grant>)>,
    pub(super) peers: Vec<(PeerRule, Arc<Grant>)>,
    /// Names of certificates.
    pub(super) certificates: Vec<(String, Arc<Grant>)>,
    /// What clients may do whom no other rule names.
    pub(super) anonymous: Option<Arc<Grant>>,
    /// True if logins are only those of memcached's text protocol, as with its `-Y`.
    pub(super) is_text_only: bool,
}

/// A user who logs in with a password.
pub(super) struct User {
    pub(super) name: Vec<u8>,
    pub(super) secret: Secret,
    pub(super) grant: Arc<Grant>,
}

/// The users of processes at the other ends of Unix sockets. A field that is unset matches all.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerRule {
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
}

/// What one identity may do, and what it uses.
pub(super) struct Grant {
    /// The name of the identity in the log, such as `user web`.
    pub(super) identity: String,
    pub(super) role: Arc<Role>,
    pub(super) usage: Arc<Usage>,
}

/// What the identities of a role may do. Rates and limits hold for each identity by itself.
#[derive(Debug)]
pub(super) struct Role {
    pub(super) rights: Rights,
    /// The beginning that every key of a command must have.
    pub(super) key_prefix: Vec<u8>,
    /// The tenant of the jobs that the identity sends to the compression service.
    pub(super) tenant: Option<u16>,
    pub(super) requests_per_s: Option<u64>,
    pub(super) bytes_per_s: Option<u64>,
    pub(super) connections: Option<usize>,
    /// True if a client over its quota gets an error; false if it waits.
    pub(super) refuses_over_quota: bool,
}

impl Role {
    /// Returns the role that may do everything.
    pub(super) const fn everything() -> Self {
        Self {
            rights: Rights::ALL,
            key_prefix: Vec::new(),
            tenant: None,
            requests_per_s: None,
            bytes_per_s: None,
            connections: None,
            refuses_over_quota: false,
        }
    }
}

impl PeerRule {
    fn matches(self, peer: Peer) -> bool {
        self.uid.is_none_or(|uid| uid == peer.uid) && self.gid.is_none_or(|gid| gid == peer.gid)
    }
}

impl Rules {
    /// Returns what a client may do before it logs in. A certificate goes before the user of a process, and this
    /// before the address. Of several networks, the narrowest counts, and of several other rules the first.
    pub(super) fn of_origin(&self, origin: &Origin) -> Option<&Arc<Grant>> {
        let names = &origin.certificate;
        let certified = self.certificates.iter().find(|(name, _)| names.contains(name));
        let by_peer = || {
            let peer = origin.peer?;
            self.peers.iter().find(|(rule, _)| rule.matches(peer)).map(|(_, grant)| grant)
        };
        let by_address = || {
            let address = origin.address?;
            let around = self.networks.iter().filter(|(network, _)| network.contains(address));
            // Of networks that are equally narrow, `max_by_key` returns the last.
            let narrowest = around.rev().max_by_key(|(network, _)| network.bits());
            narrowest.map(|(_, grant)| grant)
        };
        let known = certified.map(|(_, grant)| grant).or_else(by_peer).or_else(by_address);
        known.or(self.anonymous.as_ref())
    }

    /// Returns what each identity uses, to be kept over a reload.
    pub(super) fn usages(&self) -> HashMap<&str, &Arc<Usage>> {
        let users = self.users.iter().map(|user| &user.grant);
        let grants = users
            .chain(self.networks.iter().map(|(_, grant)| grant))
            .chain(self.peers.iter().map(|(_, grant)| grant))
            .chain(self.certificates.iter().map(|(_, grant)| grant))
            .chain(&self.anonymous);
        grants.map(|grant| (&grant.identity[..], &grant.usage)).collect()
    }
}
