//! Remembers which refusals of which clients were logged, so that each is logged once per client. All are counted where
//! they happen.

use std::collections::VecDeque;
use std::net::IpAddr;

use parking_lot::Mutex;

/// Returns whether this is the first such refusal of a client, among the clients that were logged last. `peer` is none
/// for clients of Unix sockets.
pub(crate) fn is_first(peer: Option<IpAddr>, what: &'static str) -> bool {
    let mut logged = LOGGED.lock();
    if logged.contains(&(peer, what)) {
        return false;
    }
    if logged.len() == LOGGED_MAX {
        logged.pop_front();
    }
    logged.push_back((peer, what));
    true
}

/// The clients whose refusal was logged last, for all threads.
static LOGGED: Mutex<VecDeque<(Option<IpAddr>, &str)>> = Mutex::new(VecDeque::new());

/// The maximum number of clients that are remembered. Beyond it, a client may be logged again.
const LOGGED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_logged_once_per_reason() {
        let peer = Some(IpAddr::from([192, 0, 2, 1]));
        assert!(is_first(peer, "a"));
        assert!(!is_first(peer, "a"));
        assert!(is_first(peer, "b"));
        for number in 0..LOGGED_MAX as u32 {
            is_first(Some(IpAddr::from(number.to_be_bytes())), "a");
        }
        assert!(LOGGED.lock().len() <= LOGGED_MAX);
        assert!(is_first(peer, "a"), "older clients are forgotten");
    }
}
