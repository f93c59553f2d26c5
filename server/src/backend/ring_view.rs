//! A worker's copy of the list of servers, with its links to them. It finds the server of a key, or what takes its
//! place while the server is out. It never changes: a new version of the list replaces it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use units::limits::EXPTIME_RELATIVE_MAX_S;

use crate::budget::Permit;
use crate::config::LostKeys;
use crate::members::{self, Member, RingState};
use crate::reply_buffer::ReplyBuffer;
use crate::upstream::{
    Expect, InteractiveLoad, Issued, Limits, Link, LinkError, LinkFault, Timing, Traffic,
};

/// A version of the list of servers, and this worker's links to them.
pub(crate) struct View {
    state: Arc<RingState>,
    /// The links, in the order of the ring's indexes.
    seats: Vec<Seat>,
}

struct Seat {
    link: Link,
    is_out: bool,
    probe: Rc<ProbeSlot>,
}

/// A probe that was not answered in time. The next round waits for it again and sends no other.
pub(crate) type ProbeSlot = RefCell<Option<Issued>>;

/// What a link is made of.
pub(crate) struct LinkParts {
    pub(crate) timing: Cell<Timing>,
    pub(crate) limits: Limits,
    pub(crate) load: Rc<InteractiveLoad>,
}

/// The way of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// The index of the server.
    seat: usize,
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The server owns the key.
    Direct,
    /// The server is the next one, because the key's server is out.
    Next,
    /// The key's server is out, and no other takes its place.
    None,
}

/// The limit on the life of items that a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound(Option<u32>);

impl Bound {
    /// Returns the expiry time for an item that a client gave this one. Both are memcached's: 0 for never, seconds
    /// up to 30 days, Unix times above, and negative numbers for items that have expired.
    #[inline]
    pub(super) fn limit(self, exptime_s: i32) -> i32 {
        match self.0 {
            None => exptime_s,
            Some(most_s) => shorter(exptime_s, most_s),
        }
    }

    /// Like `limit`, where no expiry time means never.
    #[inline]
    pub(super) fn limit_or_set(self, exptime_s: Option<i32>) -> Option<i32> {
        match self.0 {
            None => exptime_s,
            Some(most_s) => Some(shorter(exptime_s.unwrap_or(0), most_s)),
        }
    }
}

#[cold]
fn shorter(exptime_s: i32, most_s: u32) -> i32 {
    shorter_at(exptime_s, most_s, units::unix_time().as_secs())
}

fn shorter_at(exptime_s: i32, most_s: u32, unix_s: u64) -> i32 {
    let left_s = match u32::try_from(exptime_s) {
        Err(_) => return exptime_s,
        Ok(0) => u32::MAX,
        Ok(left_s @ ..=EXPTIME_RELATIVE_MAX_S) => left_s,
        Ok(at_s) => match u64::from(at_s).checked_sub(unix_s) {
            None | Some(0) => return exptime_s,
            Some(left_s) => u32::try_from(left_s).unwrap_or(u32::MAX),
        },
    };
    left_s.min(most_s).min(EXPTIME_RELATIVE_MAX_S) as i32
}

impl View {
    /// Creates the view of a version of the list. Links to servers that were in `old` are kept.
    pub(super) fn new(state: &Arc<RingState>, parts: &LinkParts, old: Option<&View>) -> Self {
        let seat = |seat: &members::Seat| {
            let is_out = seat.is_out;
            if let Some(old) = old.and_then(|old| old.seat(&seat.member)) {
                if old.is_out && !is_out {
                    old.link.forget_failures();
                }
                return Seat { link: old.link.clone(), is_out, probe: Rc::clone(&old.probe) };
            }
            let (timing, limits) = (parts.timing.get(), parts.limits.clone());
            let link = Link::new(&seat.member, timing, limits, &parts.load);
            Seat { link, is_out, probe: Rc::default() }
        };
        Self { state: Arc::clone(state), seats: state.seats.iter().map(seat).collect() }
    }

    /// Ends the links to servers that are not in `new`.
    pub(super) fn retire_all_but(&self, new: &View) {
        for (seat, old) in self.state.seats.iter().zip(&self.seats) {
            if new.seat(&seat.member).is_none() {
                old.link.retire();
            }
        }
    }

    /// Returns the version of the list.
    pub(crate) fn state(&self) -> &Arc<RingState> {
        &self.state
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        self.seats.iter().map(|seat| &seat.link)
    }

    /// Returns the links with the probes that they have not answered.
    pub(crate) fn probes(&self) -> impl Iterator<Item = (Link, Rc<ProbeSlot>)> {
        self.seats.iter().map(|seat| (seat.link.clone(), Rc::clone(&seat.probe)))
    }

    fn seat(&self, member: &Arc<Member>) -> Option<&Seat> {
        let seats = self.state.seats.iter().zip(&self.seats);
        seats.filter(|(seat, _)| Arc::ptr_eq(&seat.member, member)).map(|(_, seat)| seat).next()
    }

    /// Returns whether the keys of gets are misses if their server cannot answer.
    #[inline]
    pub(super) fn may_miss(&self) -> bool {
        self.state.lost_keys != LostKeys::Error
    }

    /// Returns the way of a request about `key`.
    #[inline]
    pub(super) fn route(&self, key: &[u8]) -> Route {
        let owner = self.state.ring.server(key);
        match self.seats.get(owner) {
            Some(seat) if !seat.is_out => Route { seat: owner, way: Way::Direct },
            _ => self.detour(key, owner),
        }
    }

    #[cold]
    fn detour(&self, key: &[u8], owner: usize) -> Route {
        let next = match self.state.lost_keys {
            LostKeys::Next => self.state.ring.first_good(key, |server| !self.seats[server].is_out),
            LostKeys::Error | LostKeys::Miss => None,
        };
        match next {
            Some(next) => {
                self.state.seats[owner].member.moved.up();
                Route { seat: next, way: Way::Next }
            }
            None => Route { seat: owner, way: Way::None },
        }
    }

    /// Sends a request on its way.
    #[inline]
    pub(super) fn request(
        &self,
        route: Route,
        traffic: Traffic,
        expect: Expect,
        granted: Option<Permit>,
        compose: impl FnOnce(&mut ReplyBuffer, Bound),
    ) -> Issued {
        let bound = match route.way {
            Way::Direct => Bound(None),
            Way::Next => Bound(Some(self.state.next_ttl_s)),
            Way::None => return Issued::failed(self.error(route.seat)),
        };
        let link = &self.seats[route.seat].link;
        link.request_with_permit(traffic, expect, granted, |out| compose(out, bound))
    }

    /// Returns the error for the keys of a server that is out, or of a ring without servers.
    #[cold]
    fn error(&self, owner: usize) -> LinkError {
        let Some(seat) = self.state.seats.get(owner) else {
            let fault = LinkFault::Down("no server of the ring is known yet".to_owned());
            return LinkError { fault, server: None };
        };
        LinkError { fault: LinkFault::Out, server: Some(Arc::clone(&seat.member)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_shortens_every_longer_life() {
        let unix_s = 1_790_000_000;
        for (exptime_s, bounded_s) in [
            (0, 10),
            (5, 5),
            (11, 10),
            (2_592_000, 10),
            (1_790_000_003, 3),
            (1_790_000_100, 10),
            (1_700_000_000, 1_700_000_000),
            (-1, -1),
        ] {
            assert_eq!(shorter_at(exptime_s, 10, unix_s), bounded_s, "{exptime_s}");
        }
    }

    #[test]
    fn without_a_bound_no_life_changes() {
        assert_eq!(Bound(None).limit(0), 0);
        assert_eq!(Bound(None).limit_or_set(None), None);
        assert_eq!(Bound(Some(10)).limit_or_set(None), Some(10));
    }
}
