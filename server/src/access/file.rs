//! Reads `server.access_file`: roles, and the identities that have them, as TOML. A file with any mistake is refused as
//! a whole, because a rule that is left out could open what should be closed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use units::ByteCount;

use super::quota::Usage;
use super::rights::Rights;
use super::rules::{Grant, PeerRule, Role, Rules, User};
use super::secret::Hasher;

/// Reads the rules. An identity that `old` has too keeps what it has used.
///
/// # Errors
/// Describes what is wrong, with the path.
pub(super) fn read(path: &Path, hasher: &Hasher, old: &Rules) -> Result<Rules, String> {
    let text = read_bounded(path)?;
    let rules = parse(&text, hasher, old);
    let rules = rules.map_err(|problem| format!("{}: {problem}", path.display()))?;
    if !rules.users.is_empty() {
        warn_if_readable(path);
    }
    Ok(rules)
}

/// Returns the text of a file of rules.
///
/// # Errors
/// It cannot be read, is longer than [`FILE_BYTES_MAX`], or is not UTF-8.
pub(crate) fn read_bounded(path: &Path) -> Result<String, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut text = String::new();
    let file = File::open(path).map_err(wrong)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(wrong)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("{}: longer than {FILE_BYTES_MAX} bytes", path.display()));
    }
    Ok(text)
}

/// Warns if users of the system can read a file with secrets who are neither its owner nor in its group.
pub(crate) fn warn_if_readable(path: &Path) {
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o004 != 0 {
        let path = path.display();
        tracing::warn!("{path} has secrets and everybody can read it: chmod o-r {path}");
    }
}

/// Describes an error without the text of the file and without its values, because these may be secrets.
pub(crate) fn problem_without_text(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let message = error.message();
    let is_about_a_value =
        ["invalid type", "invalid value"].iter().any(|start| message.starts_with(start));
    let shown = match message.split_once(", expected ") {
        Some((_, expected)) if is_about_a_value => format!("a value is not {expected}"),
        _ if is_about_a_value => "a value is not valid".to_owned(),
        _ => message.lines().next().unwrap_or_default().to_owned(),
    };
    format!("line {line}: {shown}")
}

fn parse(text: &str, hasher: &Hasher, old: &Rules) -> Result<Rules, String> {
    let written: Written =
        toml::from_str(text).map_err(|error| problem_without_text(text, &error))?;
    let roles = written.roles.into_iter().map(|(name, role)| {
        let made = role.check().map_err(|problem| format!("role {name}: {problem}"))?;
        Ok((name, Arc::new(made)))
    });
    let roles = roles.collect::<Result<BTreeMap<_, _>, String>>()?;
    let usages = old.usages();
    let mut grants = Grants { roles, usages, given: BTreeSet::new() };
    let mut rules = Rules::default();
    for user in written.users {
        let grant = grants.give(format!("user {}", user.name), &user.role)?;
        rules.users.push(user.check(grant, hasher)?);
    }
    for NetworkRule { cidr, role } in written.networks {
        let network = cidr.parse()?;
        rules.networks.push((network, grants.give(format!("network {cidr}"), &role)?));
    }
    for UnixRule { uid, gid, role } in written.unix {
        let shown = |id: Option<u32>| id.map_or("any".to_owned(), |id| id.to_string());
        let identity = format!("unix uid={} gid={}", shown(uid), shown(gid));
        if uid.is_none() && gid.is_none() {
            return Err(format!("{identity}: give uid, gid or both"));
        }
        rules.peers.push((PeerRule { uid, gid }, grants.give(identity, &role)?));
    }
    for CertificateRule { name, role } in written.certificates {
        let grant = grants.give(format!("certificate {name}"), &role)?;
        rules.certificates.push((name, grant));
    }
    if let Some(Anonymous { role }) = written.anonymous {
        rules.anonymous = Some(grants.give("anonymous".to_owned(), &role)?);
    }
    Ok(rules)
}

/// The identities that have got their roles.
struct Grants<'o> {
    roles: BTreeMap<String, Arc<Role>>,
    usages: HashMap<&'o str, &'o Arc<Usage>>,
    given: BTreeSet<String>,
}

impl Grants<'_> {
    fn give(&mut self, identity: String, role: &str) -> Result<Arc<Grant>, String> {
        let unknown = || {
            let known: Vec<_> = self.roles.keys().map(String::as_str).collect();
            format!("{identity}: there is no role {role:?}; the roles are: {}", known.join(", "))
        };
        let role = Arc::clone(self.roles.get(role).ok_or_else(unknown)?);
        if !self.given.insert(identity.clone()) {
            return Err(format!("{identity} is there twice"));
        }
        let usage = self.usages.get(&identity[..]).map(|usage| Arc::clone(usage));
        Ok(Arc::new(Grant { identity, role, usage: usage.unwrap_or_default() }))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    roles: BTreeMap<String, WrittenRole>,
    #[serde(default)]
    users: Vec<WrittenUser>,
    #[serde(default)]
    networks: Vec<NetworkRule>,
    #[serde(default)]
    unix: Vec<UnixRule>,
    #[serde(default)]
    certificates: Vec<CertificateRule>,
    anonymous: Option<Anonymous>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRole {
    commands: Vec<String>,
    #[serde(default)]
    key_prefix: String,
    tenant: Option<u16>,
    requests_per_s: Option<u64>,
    bytes_per_s: Option<ByteCount>,
    connections: Option<usize>,
    #[serde(default)]
    over_quota: OverQuota,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OverQuota {
    #[default]
    Wait,
    Refuse,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenUser {
    name: String,
    password: Option<String>,
    password_sha256: Option<String>,
    role: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkRule {
    cidr: String,
    role: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnixRule {
    uid: Option<u32>,
    gid: Option<u32>,
    role: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateRule {
    name: String,
    role: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Anonymous {
    role: String,
}

impl WrittenRole {
    fn check(self) -> Result<Role, String> {
        let mut rights = Rights::NONE;
        for name in &self.commands {
            let unknown =
                || format!("commands: {name:?} is unknown; give any of {}", Rights::names());
            rights = rights.and(Rights::named(name).ok_or_else(unknown)?);
        }
        // A role of one prefix must not reach the keys of others.
        let ciphers = Rights::CIPHER_SERVICE;
        let of_all_keys = Rights::FLUSH.and(Rights::DUMP).and(Rights::ADMIN).and(ciphers);
        let has_of_all_keys = of_all_keys.missing_in(rights) != of_all_keys;
        if !self.key_prefix.is_empty() && has_of_all_keys {
            return Err("key_prefix: flush, dump, admin and cipher-service act on all keys, so a \
                        role with a prefix cannot have them"
                .to_owned());
        }
        if self.key_prefix.len() > KEY_BYTES_MAX {
            return Err(format!("key_prefix: longer than a key, which has {KEY_BYTES_MAX} bytes"));
        }
        if self.tenant.is_some_and(|tenant| !(1..=TENANT_MAX).contains(&tenant)) {
            return Err(format!("tenant: give a number from 1 to {TENANT_MAX}"));
        }
        let bytes_per_s = self.bytes_per_s.map(|bytes| bytes.0);
        for (name, limit) in [("requests_per_s", self.requests_per_s), ("bytes_per_s", bytes_per_s)]
        {
            if limit.is_some_and(|limit| !(1..=RATE_MAX).contains(&limit)) {
                return Err(format!("{name}: give a number from 1 to {RATE_MAX}"));
            }
        }
        Ok(Role {
            rights,
            key_prefix: self.key_prefix.into_bytes(),
            tenant: self.tenant,
            requests_per_s: self.requests_per_s,
            bytes_per_s,
            connections: self.connections,
            refuses_over_quota: matches!(self.over_quota, OverQuota::Refuse),
        })
    }
}

impl WrittenUser {
    fn check(self, grant: Arc<Grant>, hasher: &Hasher) -> Result<User, String> {
        let wrong = |problem: String| format!("user {}: {problem}", self.name);
        // memcached's text protocol separates user and password by a blank, and HTTP's Basic by a colon.
        let is_plain = |byte: u8| (0x21..=0x7e).contains(&byte) && byte != b':';
        if self.name.is_empty() || !self.name.bytes().all(is_plain) {
            return Err(wrong("a name has printable ASCII without blanks and colons".to_owned()));
        }
        let secret = match (&self.password, &self.password_sha256) {
            (Some(password), None) if password.len() < PASSWORD_BYTES_MIN => {
                return Err(wrong(format!("password: give at least {PASSWORD_BYTES_MIN} bytes")));
            }
            (Some(password), None) if password.contains([' ', '\0', '\r', '\n']) => {
                return Err(wrong("password: it may have no blank and no line end".to_owned()));
            }
            (Some(password), None) => hasher.plain(password.as_bytes()),
            (None, Some(salted)) => hasher
                .salted(salted)
                .map_err(|problem| wrong(format!("password_sha256: it {problem}")))?,
            _ => return Err(wrong("give either password or password_sha256".to_owned())),
        };
        Ok(User { name: self.name.into_bytes(), secret, grant })
    }
}

/// The longest file (bytes).
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The longest key (bytes).
const KEY_BYTES_MAX: usize = 250;

/// The shortest password in plain text (bytes). Shorter ones can be guessed.
const PASSWORD_BYTES_MIN: usize = 8;

/// The highest tenant that a role may name. The numbers above it are given to connections.
pub(crate) const TENANT_MAX: u16 = 0x7fff;

/// The highest rate. Nothing reaches it, and sums with it do not overflow.
const RATE_MAX: u64 = 1 << 40;
