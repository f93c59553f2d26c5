//! Orders requests if the store does not: requests of a session with the same key must not be in flight
//! together, unless they only read.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use protocol::Key;
use protocol::command::Command;
use smallvec::SmallVec;

/// The hashes of the keys of a session's requests in flight. Keys with equal hashes count as one.
#[derive(Default)]
pub(super) struct InFlightKeys(HashMap<u64, Effect>);

/// The effect of a request on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The request has no effect that another read can observe.
    Reads,
    Changes,
}

impl InFlightKeys {
    /// Adds the keys of a command. Returns false and adds nothing if any must wait for a request in flight.
    pub(super) fn add_command(&mut self, command: &Command<'_>) -> bool {
        let key = match command {
            Command::Get(get) => {
                let reads = get.touch_exptime_s.is_none();
                let effect = if reads { Effect::Reads } else { Effect::Changes };
                return self.add(get.keys.map(Key::bytes), effect);
            }
            Command::Store(store) => store.key.bytes(),
            Command::Delete { key, .. } | Command::Touch { key, .. } => key.bytes(),
            // A meta get can change and report the time of the last access and whether the item was fetched.
            Command::MetaGet(meta) => meta.key.bytes(),
            _ => unreachable!("a command that is served alone"),
        };
        self.add([key], Effect::Changes)
    }

    /// Adds the keys of a request. Returns false and adds nothing if any must wait for a request in flight.
    pub(super) fn add<'a>(
        &mut self,
        keys: impl IntoIterator<Item = &'a [u8]>,
        effect: Effect,
    ) -> bool {
        let hashes: SmallVec<[u64; 1]> = keys.into_iter().map(hash).collect();
        let meets = |other: &Effect| effect == Effect::Changes || *other == Effect::Changes;
        if hashes.iter().any(|hash| self.0.get(hash).is_some_and(meets)) {
            return false;
        }
        self.0.extend(hashes.into_iter().map(|hash| (hash, effect)));
        true
    }

    /// Removes all keys, after all requests were answered.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

fn hash(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_waits_for_its_key() {
        let (a, b): (&[u8], &[u8]) = (b"a", b"b");
        let mut in_flight = InFlightKeys::default();
        assert!(in_flight.add([a, b], Effect::Reads));
        assert!(in_flight.add([a], Effect::Reads));
        assert!(!in_flight.add([a], Effect::Changes));
        assert!(!in_flight.add([b], Effect::Changes));
        in_flight.clear();
        assert!(in_flight.add([a], Effect::Changes));
        assert!(!in_flight.add([b, a], Effect::Reads));
        assert!(in_flight.add([b], Effect::Changes), "a refused request leaves nothing behind");
        assert!(!in_flight.add([a], Effect::Changes));
    }
}
