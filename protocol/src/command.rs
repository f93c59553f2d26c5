//! The commands as values. The session decides what a command does to an item, and [`crate::reply`]
//! has the answers. Times are as the client sent them, in seconds: zero never expires, a negative
//! time has expired, and a time above 30 days is a Unix time.

use crate::counter::Direction;
use crate::key::{Key, MetaKey};
use crate::meta::Meta;
use crate::tokens::Tokens;

/// One command line. If a command has a body ([`Command::body_bytes`]), the body follows the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// The commands `get`, `gets`, `gat` and `gats`.
    Get(Get<'a>),
    /// The commands `set`, `add`, `replace`, `append`, `prepend` and `cas`.
    Store(Store<'a>),
    /// The command `delete`.
    Delete {
        /// The key to delete.
        key: Key<'a>,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// The commands `incr` and `decr`.
    Arithmetic(Arithmetic<'a>),
    /// The command `touch`.
    Touch {
        /// The key to touch.
        key: Key<'a>,
        /// The item's new expiry, in seconds.
        exptime_s: i32,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// The command `flush_all`.
    FlushAll {
        /// The delay in seconds; zero or less means now.
        delay_s: i32,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// The command `verbosity`.
    Verbosity {
        /// The requested level.
        level: u32,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// The command `version`.
    Version,
    /// The command `quit`.
    Quit,
    /// The command `stats`. Its arguments name the wanted page.
    Stats {
        /// The arguments that followed `stats`.
        arguments: Tokens<'a>,
    },
    /// An operator's command. The server decides which of these it supports.
    Admin(Admin<'a>),
    /// The meta command `mg`.
    MetaGet(Meta<'a>),
    /// The meta command `ms`.
    MetaSet(MetaSet<'a>),
    /// The meta command `md`.
    MetaDelete(Meta<'a>),
    /// The meta command `ma`.
    MetaArithmetic(MetaArithmetic<'a>),
    /// The meta command `me`.
    MetaDebug {
        /// The item to describe.
        key: MetaKey<'a>,
    },
    /// The meta command `mn`.
    MetaNoop,
}

impl Command<'_> {
    /// Returns how many bytes follow the line: the value and its CR LF. Returns none for a command
    /// without a value.
    pub const fn body_bytes(&self) -> Option<usize> {
        match self {
            Command::Store(store) => Some(store.value_bytes + 2),
            Command::MetaSet(set) => Some(set.value_bytes + 2),
            _ => None,
        }
    }
}

/// The command `get`, `gets`, `gat` or `gats`. Every key has been checked. `gat 0` has no keys and
/// is answered with only `END`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// The keys to look up, in order.
    pub keys: Keys<'a>,
    /// Whether the reply carries the CAS (gets and gats).
    pub with_cas: bool,
    /// The new expiry for gat and gats, in seconds.
    pub touch_exptime_s: Option<i32>,
}

/// The keys of a get line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a>(pub(crate) Tokens<'a>);

impl<'a> Keys<'a> {
    /// Returns the list with only this key.
    pub const fn one(key: Key<'a>) -> Self {
        Self(Tokens::new(key.bytes()))
    }

    /// Returns whether there is exactly one key. It does not count further keys.
    pub fn is_one(self) -> bool {
        let mut tokens = self.0;
        tokens.next().is_some() && tokens.is_empty()
    }

    /// Returns the first `count` keys, and the remaining keys if there are any.
    pub fn split_at(self, count: usize) -> (Self, Option<Self>) {
        let (first, rest) = self.0.split_at(count);
        (Self(first), rest.map(Self))
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = Key<'a>;
    fn next(&mut self) -> Option<Key<'a>> {
        self.0.next().and_then(Key::from_token)
    }
}

/// The operation of a storage command, and the condition under which it stores the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreVerb {
    /// Stores the value in any case.
    Set,
    /// Stores the value only if there is no item.
    Add,
    /// Stores the value only if there is an item.
    Replace,
    /// Appends the value to the item's value.
    Append,
    /// Prepends the value to the item's value.
    Prepend,
    /// Stores the value only if the item has the given CAS.
    Cas,
}

impl StoreVerb {
    /// Returns the name of the text command.
    pub const fn name(self) -> &'static str {
        match self {
            StoreVerb::Set => "set",
            StoreVerb::Add => "add",
            StoreVerb::Replace => "replace",
            StoreVerb::Append => "append",
            StoreVerb::Prepend => "prepend",
            StoreVerb::Cas => "cas",
        }
    }
}

/// A storage command. Its value follows the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// The verb.
    pub verb: StoreVerb,
    /// The key.
    pub key: Key<'a>,
    /// The client's flags, which only clients interpret.
    pub client_flags: u32,
    /// The expiry, in seconds.
    pub exptime_s: i32,
    /// The length of the value without its CR LF (bytes).
    pub value_bytes: usize,
    /// The CAS of `cas`; zero for other verbs.
    pub cas: u64,
    /// Whether the client wants no answer.
    pub noreply: bool,
}

/// The command `incr` or `decr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic<'a> {
    /// The direction.
    pub direction: Direction,
    /// The key.
    pub key: Key<'a>,
    /// The amount by which the number changes.
    pub delta: u64,
    /// Whether the client wants no answer.
    pub noreply: bool,
}

/// The meta command `ms`. Its value follows the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaSet<'a> {
    /// The key and the flags.
    pub meta: Meta<'a>,
    /// The mode. With flag `C`, the modes set and replace become [`StoreVerb::Cas`]. An append or
    /// prepend with a nonzero `C` requires that the old item has that CAS.
    pub verb: StoreVerb,
    /// The length of the value without its CR LF (bytes).
    pub value_bytes: usize,
}

/// The meta command `ma`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaArithmetic<'a> {
    /// The key and the flags, which include the delta.
    pub meta: Meta<'a>,
    /// The direction.
    pub direction: Direction,
}

/// A command for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admin<'a> {
    /// The verb.
    pub verb: AdminVerb,
    /// The arguments that followed the verb.
    pub arguments: Tokens<'a>,
    /// Whether the client wants no answer.
    pub noreply: bool,
}

/// The operators' commands that memcached 1.6.18 knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum AdminVerb {
    CacheMemlimit,
    Extstore,
    Lru,
    LruCrawler,
    RefreshCerts,
    Shutdown,
    Slabs,
    Watch,
}
