//! Rights: the classes of commands that a role allows, and the rights and keys of each command.

use std::fmt;

use protocol::command::{AdminVerb, Command};
use protocol::meta::Meta;

/// A set of classes of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights(u16);

impl Rights {
    pub(crate) const NONE: Self = Self(0);
    /// Getting values, and learning what is stored.
    pub(crate) const READ: Self = Self(1);
    /// Storing and changing items, including when they expire.
    pub(crate) const WRITE: Self = Self(1 << 1);
    pub(crate) const DELETE: Self = Self(1 << 2);
    /// Removing all items at once.
    pub(crate) const FLUSH: Self = Self(1 << 3);
    pub(crate) const STATS: Self = Self(1 << 4);
    /// Listing the keys of all items.
    pub(crate) const DUMP: Self = Self(1 << 5);
    /// Commands that change or stop the server.
    pub(crate) const ADMIN: Self = Self(1 << 6);
    /// The store service over gRPC. Its calls also need the rights of the commands that they make.
    pub(crate) const STORE_SERVICE: Self = Self(1 << 7);
    /// The compression service over gRPC and over lanes.
    pub(crate) const COMPRESSION_SERVICE: Self = Self(1 << 8);
    /// The scheduler service over gRPC.
    pub(crate) const SCHEDULER_SERVICE: Self = Self(1 << 9);
    /// The service of programs.
    pub(crate) const PROGRAMS_SERVICE: Self = Self(1 << 10);
    /// Ciphers by the compression service, with the keys of this process.
    pub(crate) const CIPHER_SERVICE: Self = Self(1 << 11);
    /// The rights whose commands the audit log has even if they are allowed.
    const ADMINISTRATIVE: Self = Self::FLUSH.and(Self::DUMP).and(Self::ADMIN);
    /// Every right.
    pub(crate) const ALL: Self = Self((1 << NAMES.len()) - 1);

    /// Returns whether this set has every right of `needed`.
    pub(crate) const fn contain(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the audit log has a command that needs these rights even if it is allowed.
    pub(crate) fn is_administrative(self) -> bool {
        self != Self::NONE && Self::ADMINISTRATIVE.contain(self)
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the rights of this set that `granted` lacks.
    pub(crate) const fn missing_in(self, granted: Self) -> Self {
        self.without(granted)
    }

    /// Returns the right with this name, or all rights for `all`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        if name == "all" {
            return Some(Self::ALL);
        }
        NAMES.iter().position(|known| *known == name).map(|index| Self(1 << index))
    }

    /// Returns the names of the rights.
    pub(crate) fn names() -> String {
        format!("all, {}", NAMES.join(", "))
    }
}

/// The names of the rights in the file, in the order of their bits.
const NAMES: [&str; 12] = [
    "read",
    "write",
    "delete",
    "flush",
    "stats",
    "dump",
    "admin",
    "store-service",
    "compression-service",
    "scheduler-service",
    "programs-service",
    "cipher-service",
];

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = NAMES.iter().enumerate().filter(|(index, _)| self.contain(Self(1 << index)));
        for (place, (_, name)) in names.enumerate() {
            if place > 0 {
                f.write_str(" and ")?;
            }
            f.write_str(name)?;
        }
        Ok(())
    }
}

/// Returns the rights that a command needs.
pub(crate) fn needed(command: &Command<'_>) -> Rights {
    match command {
        Command::Version | Command::Quit | Command::MetaNoop => Rights::NONE,
        Command::Get(get) if get.touch_exptime_s.is_some() => Rights::READ.and(Rights::WRITE),
        Command::Get(_) | Command::MetaDebug { .. } => Rights::READ,
        Command::MetaGet(meta) if changes_item(meta) => Rights::READ.and(Rights::WRITE),
        Command::MetaGet(_) => Rights::READ,
        Command::Store(_) | Command::MetaSet(_) | Command::Touch { .. } => Rights::WRITE,
        // The reply has the number.
        Command::Arithmetic(_) | Command::MetaArithmetic(_) => Rights::READ.and(Rights::WRITE),
        Command::MetaDelete(meta)
            if meta.flags.has(b'I') || meta.flags.has(b'x') || meta.flags.exptime_s.is_some() =>
        {
            Rights::DELETE.and(Rights::WRITE)
        }
        Command::Delete { .. } | Command::MetaDelete(_) => Rights::DELETE,
        Command::FlushAll { .. } => Rights::FLUSH,
        Command::Stats { arguments } => match { *arguments }.next() {
            // The page of dictionaries names classes after keys.
            Some(b"cachedump" | b"dictionaries") => Rights::DUMP,
            Some(b"reset" | b"conns") => Rights::ADMIN,
            _ => Rights::STATS,
        },
        Command::Admin(admin) => match ({ admin.arguments }.next(), admin.verb) {
            (Some(b"metadump" | b"mgdump"), AdminVerb::LruCrawler) => Rights::DUMP,
            _ => Rights::ADMIN,
        },
        Command::Verbosity { .. } => Rights::ADMIN,
    }
}

/// Returns whether an mg changes when the item expires, or makes an item.
fn changes_item(meta: &Meta<'_>) -> bool {
    [b'T', b'N', b'R', b'E'].into_iter().any(|flag| meta.flags.has(flag))
        || meta.flags.exptime_s.is_some()
}

/// Returns whether the audit log has this command even if it is allowed.
pub(crate) fn is_administrative(command: &Command<'_>) -> bool {
    needed(command).is_administrative()
}

/// Calls `visit` with each key of a command until it returns false. Returns whether it never did.
pub(crate) fn for_each_key(command: &Command<'_>, mut visit: impl FnMut(&[u8]) -> bool) -> bool {
    match command {
        Command::Get(get) => get.keys.into_iter().all(|key| visit(&key)),
        Command::Store(store) => visit(&store.key),
        Command::Delete { key, .. } | Command::Touch { key, .. } => visit(key),
        Command::Arithmetic(arithmetic) => visit(&arithmetic.key),
        Command::MetaGet(meta) | Command::MetaDelete(meta) => visit(meta.key.bytes()),
        Command::MetaSet(set) => visit(set.meta.key.bytes()),
        Command::MetaArithmetic(arithmetic) => visit(arithmetic.meta.key.bytes()),
        Command::MetaDebug { key } => visit(key.bytes()),
        Command::FlushAll { .. }
        | Command::Verbosity { .. }
        | Command::Version
        | Command::Quit
        | Command::Stats { .. }
        | Command::Admin(_)
        | Command::MetaNoop => true,
    }
}

/// Returns the first key of a command, for the log.
pub(crate) fn first_key(command: &Command<'_>) -> Vec<u8> {
    let mut first = Vec::new();
    for_each_key(command, |key| {
        first.extend_from_slice(key);
        false
    });
    first
}

/// Returns the name of a command for the log.
pub(crate) fn command_name(command: &Command<'_>) -> &'static str {
    match command {
        Command::Get(get) if get.touch_exptime_s.is_some() => "gat",
        Command::Get(_) => "get",
        Command::Store(store) => store.verb.name(),
        Command::Delete { .. } => "delete",
        Command::Arithmetic(_) => "incr or decr",
        Command::Touch { .. } => "touch",
        Command::FlushAll { .. } => "flush_all",
        Command::Verbosity { .. } => "verbosity",
        Command::Version => "version",
        Command::Quit => "quit",
        Command::Stats { arguments } => match { *arguments }.next() {
            Some(b"cachedump") => "stats cachedump",
            Some(b"conns") => "stats conns",
            Some(b"reset") => "stats reset",
            _ => "stats",
        },
        Command::Admin(admin) => match admin.verb {
            AdminVerb::CacheMemlimit => "cache_memlimit",
            AdminVerb::Extstore => "extstore",
            AdminVerb::Lru => "lru",
            AdminVerb::LruCrawler => "lru_crawler",
            AdminVerb::RefreshCerts => "refresh_certs",
            AdminVerb::Shutdown => "shutdown",
            AdminVerb::Slabs => "slabs",
            AdminVerb::Watch => "watch",
        },
        Command::MetaGet(_) => "mg",
        Command::MetaSet(_) => "ms",
        Command::MetaDelete(_) => "md",
        Command::MetaArithmetic(_) => "ma",
        Command::MetaDebug { .. } => "me",
        Command::MetaNoop => "mn",
    }
}
