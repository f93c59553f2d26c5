//! An item, and the changes that a fetch makes to it.

use bytes::Bytes;

use super::record::TIME_MODULUS_S;
use super::shard::Flushed;

/// What the store knows of an item besides its key and value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Item {
    /// The version. Every change of the value gives the item a later one.
    pub(super) cas: u64,
    /// The CAS that a client gave the item, or 0 if clients see the version.
    pub(super) given_cas: u64,
    pub(super) flags: u32,
    /// The time at which the item expires; 0 for never.
    pub(super) exptime_s: u32,
    /// The time at which the item was stored or last counted as accessed, modulo
    /// [`TIME_MODULUS_S`].
    pub(super) time_s: u32,
    pub(super) fetched: bool,
    pub(super) stale: bool,
    pub(super) token_sent: bool,
    pub(super) key_is_binary: bool,
}

impl Item {
    /// Builds a fresh item. It gets its version when it is stored.
    pub(super) fn new(item: &NewItem<'_>, now_s: u32) -> Self {
        Self {
            cas: 0,
            given_cas: 0,
            flags: item.flags,
            exptime_s: item.exptime_s,
            time_s: now_s % TIME_MODULUS_S,
            fetched: false,
            stale: false,
            token_sent: false,
            key_is_binary: item.key_is_binary,
        }
    }

    /// Applies `fetch` to the item and returns its result. Marks that the fetch itself leaves, such
    /// as the access time, are not in the result.
    pub(super) fn visit(
        &mut self,
        fetch: &Fetch<'_>,
        value: Bytes,
        created: bool,
        now_s: u32,
    ) -> Fetched {
        let (ttl_exptime_s, mut won) = self.apply(fetch.steps, created);
        let (stale, token_sent) = (self.stale, self.token_sent);
        if fetch.meta {
            won |= stale && !token_sent;
            self.token_sent |= won;
        }
        let fetched = Fetched {
            value,
            flags: self.flags,
            cas: self.shown_cas(),
            version: self.known_version(),
            exptime_s: ttl_exptime_s,
            idle_s: self.idle_s(now_s),
            hit_before: self.fetched,
            key_is_binary: self.key_is_binary,
            created,
            stale,
            token_sent,
            won,
        };
        if fetch.bump {
            self.bump(now_s);
        }
        fetched
    }

    /// Applies the steps in order. Returns the expiry time at [`Step::Ttl`] (without this step, the
    /// final expiry time), and whether the caller won the right to refill the item.
    pub(super) fn apply(&mut self, steps: &[Step], created: bool) -> (u32, bool) {
        let (mut seen, mut won) = (None, false);
        for &step in steps {
            match step {
                Step::Ttl => seen = Some(self.exptime_s),
                Step::Touch(exptime_s) => self.exptime_s = exptime_s,
                Step::Vivify(exptime_s) if created => {
                    self.exptime_s = exptime_s;
                    won = true;
                }
                Step::Vivify(_) => {}
                Step::Recache(before_s) => {
                    let ends_soon = self.exptime_s != 0 && self.exptime_s < before_s;
                    won |= ends_soon && !created && !self.token_sent;
                }
            }
        }
        (seen.unwrap_or(self.exptime_s), won)
    }

    /// Returns the CAS that clients see.
    pub(super) const fn shown_cas(&self) -> u64 {
        if self.given_cas == 0 { self.cas } else { self.given_cas }
    }

    /// Returns the time since the last access (s).
    pub(super) const fn idle_s(&self, now_s: u32) -> u32 {
        now_s.wrapping_sub(self.time_s) % TIME_MODULUS_S
    }

    /// Returns the version, if clients see it as the CAS.
    pub(super) fn known_version(&self) -> Option<u64> {
        (self.given_cas == 0).then_some(self.cas)
    }

    /// Returns why the item has ended, or none if it is alive.
    pub(super) fn end(&self, now_s: u32, flushed: &Flushed) -> Option<End> {
        if self.cas < flushed.cas {
            return Some(End::Flushed);
        }
        (self.exptime_s != 0 && self.exptime_s <= now_s).then_some(End::Expired)
    }

    /// Updates the access time. As in memcached, the first fetch only marks the item as fetched,
    /// and the access time changes from the second fetch on.
    fn bump(&mut self, now_s: u32) {
        if self.fetched {
            self.time_s = now_s % TIME_MODULUS_S;
        }
        self.fetched = true;
    }
}

/// The reason why an item has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Expired,
    Flushed,
}

/// A value to store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewItem<'a> {
    /// The stored form. The store copies it.
    pub value: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// The time at which the item expires, on the store's clock; 0 for never.
    pub exptime_s: u32,
    /// Whether the client sent the key in base64. Replies then also carry the key in base64.
    pub key_is_binary: bool,
}

/// The parameters of a fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetch<'a> {
    /// Whether the fetch counts as an access, for eviction and for later values of `hit_before` and
    /// `idle_s`.
    pub bump: bool,
    /// Whether a stale item gives the caller the right to refill it. Meta gets do this and classic
    /// gets do not.
    pub meta: bool,
    /// The changes to the item's lifetime, in the client's order, which matters to memcached.
    pub steps: &'a [Step],
}

impl Fetch<'_> {
    /// A classic get.
    pub const GET: Self = Self { bump: true, meta: false, steps: &[] };
    /// A fetch that leaves no mark on the item.
    pub const PEEK: Self = Self { bump: false, meta: false, steps: &[] };
}

/// A change that a meta command makes to an item's lifetime. Times are on the store's clock, and 0
/// stands for never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Flag `T`: sets the time at which the item expires.
    Touch(u32),
    /// Flag `N`: creates a missing item with an empty value, which expires at this time. The caller
    /// that creates it wins the right to fill it.
    Vivify(u32),
    /// Flag `R`: if the item expires before this time, the first caller wins the right to refill
    /// it.
    Recache(u32),
    /// Flag `t`: the result's `exptime_s` is the expiry time at this step.
    Ttl,
}

/// What a fetch shows of an item before it copies the value.
#[derive(Clone, Copy, Debug)]
pub struct Glimpse<'a> {
    /// The item's CAS.
    pub cas: u64,
    /// The item's version, see [`Fetched::version`].
    pub version: Option<u64>,
    /// The client's flags.
    pub flags: u32,
    /// The stored form, or none if it is long, because it is then in several pieces.
    pub value: Option<&'a [u8]>,
}

/// An item as a fetch found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The stored form.
    pub value: Bytes,
    /// The client's flags.
    pub flags: u32,
    /// The item's CAS.
    pub cas: u64,
    /// The version, which no other value of any key ever has. None if a client gave the item its CAS, because such a
    /// CAS may be used again.
    pub version: Option<u64>,
    /// The time at which the item expires, on the store's clock; 0 for never. See [`Step::Ttl`].
    pub exptime_s: u32,
    /// The seconds between the item's last access and this fetch.
    pub idle_s: u32,
    /// Whether the item was fetched before.
    pub hit_before: bool,
    /// Whether the item's key was sent in base64.
    pub key_is_binary: bool,
    /// Whether this fetch created the item ([`Step::Vivify`]).
    pub created: bool,
    /// Whether the item is marked stale.
    pub stale: bool,
    /// Whether another caller won the right to refill the item.
    pub token_sent: bool,
    /// Whether this caller won the right to refill the item.
    pub won: bool,
}
