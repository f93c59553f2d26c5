//! One item and what looking at it does to it.

use bytes::Bytes;

use super::shard::Flushed;

/// An item as the store holds it. Its key is next to it.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) value: Bytes,
    pub(super) cas: u64,
    pub(super) flags: u32,
    /// The time at which it ends; 0 for never.
    pub(super) exptime_s: u32,
    /// The time at which it was stored or last counted as accessed.
    pub(super) time_s: u32,
    pub(super) fetched: bool,
    pub(super) stale: bool,
    pub(super) token_sent: bool,
    pub(super) key_is_binary: bool,
}

impl Item {
    /// A fresh item; it becomes a version when it is stored.
    pub(super) fn new(item: NewItem, now_s: u32) -> Self {
        Self {
            value: item.value,
            cas: 0,
            flags: item.flags,
            exptime_s: item.exptime_s,
            time_s: now_s,
            fetched: false,
            stale: false,
            token_sent: false,
            key_is_binary: item.key_is_binary,
        }
    }

    /// Answers `fetch`, then leaves its marks; the answer shows the item as it was before them.
    pub(super) fn visit(&mut self, fetch: &Fetch<'_>, created: bool, now_s: u32) -> Fetched {
        let (ttl_exptime_s, mut won) = self.apply(fetch.steps, created);
        let (stale, token_sent) = (self.stale, self.token_sent);
        if fetch.meta {
            won |= stale && !token_sent;
            self.token_sent |= won;
        }
        let fetched = Fetched {
            value: self.value.clone(),
            flags: self.flags,
            cas: self.cas,
            exptime_s: ttl_exptime_s,
            idle_s: now_s.saturating_sub(self.time_s),
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

    /// Takes the steps in their order. Answers the expiry time that [`Step::Ttl`] saw (without one,
    /// the last) and whether the right to refill was won.
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

    /// Returns why the item's time has come, if it has.
    pub(super) fn end(&self, now_s: u32, flushed: &Flushed) -> Option<End> {
        let flush_came = flushed.until_s != 0 && flushed.until_s <= now_s;
        if self.cas < flushed.cas || (flush_came && self.time_s <= flushed.until_s) {
            return Some(End::Flushed);
        }
        (self.exptime_s != 0 && self.exptime_s <= now_s).then_some(End::Expired)
    }

    /// Moves the access time. As in memcached, the first fetch only marks the item fetched, and the access time moves
    /// from the second fetch on.
    fn bump(&mut self, now_s: u32) {
        if self.fetched {
            self.time_s = now_s;
        }
        self.fetched = true;
    }
}

/// The reason why an item is no longer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Expired,
    Flushed,
}

/// A value to store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewItem {
    /// The stored form. It is kept as it is: a slice of a larger buffer keeps all of that buffer
    /// alive, which the budget does not see.
    pub value: Bytes,
    /// The client's flags.
    pub flags: u32,
    /// The time at which it ends, on the store's clock; 0 for never.
    pub exptime_s: u32,
    /// The client sent the key in base64 and gets it back so.
    pub key_is_binary: bool,
}

/// The parameters of a look at an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetch<'a> {
    /// Whether this counts as an access, for eviction and for later `hit_before` and `idle_s`.
    pub bump: bool,
    /// Whether a stale item hands out the right to refill it, as meta gets do and classic ones do
    /// not.
    pub meta: bool,
    /// The further steps, in the order in which the client wrote them; the order matters to memcached.
    pub steps: &'a [Step],
}

impl Fetch<'_> {
    /// A classic get.
    pub const GET: Self = Self { bump: true, meta: false, steps: &[] };
    /// A look that leaves no mark.
    pub const PEEK: Self = Self { bump: false, meta: false, steps: &[] };
}

/// Something a meta command does to an item's life; times are on the store's clock, 0 for never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Flag `T`: sets when the item ends.
    Touch(u32),
    /// Flag `N`: a missing item is made, empty, to end then, and its maker wins the right to fill
    /// it.
    Vivify(u32),
    /// Flag `R`: if the item ends before then, the first to ask wins the right to refill it.
    Recache(u32),
    /// Flag `t`: the answer's `exptime_s` is the one at this point.
    Ttl,
}

/// An item as a fetch found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The stored form.
    pub value: Bytes,
    /// The client's flags.
    pub flags: u32,
    /// The version.
    pub cas: u64,
    /// The time at which it ends, on the store's clock; 0 for never. See [`Step::Ttl`].
    pub exptime_s: u32,
    /// Seconds since it was last accessed, before this fetch.
    pub idle_s: u32,
    /// It was fetched before.
    pub hit_before: bool,
    /// Its key was sent in base64.
    pub key_is_binary: bool,
    /// This fetch made it ([`Step::Vivify`]).
    pub created: bool,
    /// It is marked stale.
    pub stale: bool,
    /// Somebody else won the right to refill it.
    pub token_sent: bool,
    /// The caller won the right to refill it.
    pub won: bool,
}
