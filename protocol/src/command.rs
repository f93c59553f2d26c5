//! The commands as values. What they mean to an item is the session's; which answers they get is in
//! [`crate::reply`]. Times are as the client sent them, in seconds: zero never expires, negative
//! has expired, above 30 days is a Unix time.

use crate::counter::Direction;
use crate::key::{Key, MetaKey};
use crate::meta::Meta;
use crate::tokens::Tokens;

/// One command line. Those with a body ([`Command::body_bytes`]) are followed by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// get, gets, gat, gats.
    Get(Get<'a>),
    /// set, add, replace, append, prepend, cas.
    Store(Store<'a>),
    /// delete.
    Delete {
        /// The key to delete.
        key: Key<'a>,
        /// Answer nothing.
        noreply: bool,
    },
    /// incr, decr.
    Arithmetic(Arithmetic<'a>),
    /// touch.
    Touch {
        /// The key to touch.
        key: Key<'a>,
        /// Its new expiry, in seconds.
        exptime_s: i32,
        /// Answer nothing.
        noreply: bool,
    },
    /// flush_all.
    FlushAll {
        /// The delay in seconds; zero and below mean now.
        delay_s: i32,
        /// Answer nothing.
        noreply: bool,
    },
    /// verbosity.
    Verbosity {
        /// The wanted level.
        level: u32,
        /// Answer nothing.
        noreply: bool,
    },
    /// version.
    Version,
    /// quit.
    Quit,
    /// stats, with which page is wanted.
    Stats {
        /// The arguments that followed `stats`.
        arguments: Tokens<'a>,
    },
    /// A request of an operator. The server decides what it knows of it.
    Admin(Admin<'a>),
    /// mg.
    MetaGet(Meta<'a>),
    /// ms.
    MetaSet(MetaSet<'a>),
    /// md.
    MetaDelete(Meta<'a>),
    /// ma.
    MetaArithmetic(MetaArithmetic<'a>),
    /// me.
    MetaDebug {
        /// The item to describe.
        key: MetaKey<'a>,
    },
    /// mn.
    MetaNoop,
}

impl Command<'_> {
    /// Returns how many bytes follow the line: the value and its CR LF. None for a command without a value.
    pub const fn body_bytes(&self) -> Option<usize> {
        match self {
            Command::Store(store) => Some(store.value_bytes + 2),
            Command::MetaSet(set) => Some(set.value_bytes + 2),
            _ => None,
        }
    }
}

/// get and its relatives. Every key has been checked; `gat 0` has none, and gets a plain `END`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// The keys to look up, in order.
    pub keys: Keys<'a>,
    /// Whether the reply carries the CAS (gets, gats).
    pub with_cas: bool,
    /// The new expiry of gat and gats, in seconds.
    pub touch_exptime_s: Option<i32>,
}

/// The keys of a get line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a>(pub(crate) Tokens<'a>);

impl<'a> Keys<'a> {
    /// Returns whether there is one key, without counting more of them.
    pub fn is_one(self) -> bool {
        let mut tokens = self.0;
        tokens.next().is_some() && tokens.is_empty()
    }

    /// The first `count` keys, and the others if there are any.
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

/// The condition and the manner in which a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreVerb {
    /// Whatever is there.
    Set,
    /// Stores only where no item is.
    Add,
    /// Stores only where an item is.
    Replace,
    /// Behind what is there.
    Append,
    /// Before what is there.
    Prepend,
    /// Stores only where the CAS is the stated one.
    Cas,
}

impl StoreVerb {
    /// The text command's name.
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

/// A storage command; its value follows the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// The verb.
    pub verb: StoreVerb,
    /// The key.
    pub key: Key<'a>,
    /// Opaque to everyone but the client.
    pub client_flags: u32,
    /// The expiry, in seconds.
    pub exptime_s: i32,
    /// The value's length without its CR LF.
    pub value_bytes: usize,
    /// The CAS of `cas`, else zero.
    pub cas: u64,
    /// Answer nothing.
    pub noreply: bool,
}

/// incr or decr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic<'a> {
    /// The direction.
    pub direction: Direction,
    /// The key.
    pub key: Key<'a>,
    /// The amount.
    pub delta: u64,
    /// Answer nothing.
    pub noreply: bool,
}

/// ms; its value follows the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaSet<'a> {
    /// Key and flags.
    pub meta: Meta<'a>,
    /// The mode, turned to [`StoreVerb::Cas`] where `C` is given to set or replace. An `M` of
    /// append or prepend with a nonzero `C` also requires that CAS of the old item.
    pub verb: StoreVerb,
    /// The value's length without its CR LF.
    pub value_bytes: usize,
}

/// ma.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaArithmetic<'a> {
    /// Key and flags; the delta is in the flags.
    pub meta: Meta<'a>,
    /// The direction.
    pub direction: Direction,
}

/// A command for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admin<'a> {
    /// The verb.
    pub verb: AdminVerb,
    /// The arguments that followed its name.
    pub arguments: Tokens<'a>,
    /// Answer nothing.
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
