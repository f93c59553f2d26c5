//! Keeps order where the store does not keep it: requests of one session that are in flight together must not use the
//! same key. Two requests that only read may.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use protocol::Key;
use protocol::command::Command;
use smallvec::SmallVec;

/// The keys of a session's requests in flight, by their hashes. Two keys with the same hash wait for each other as
/// well.
#[derive(Default)]
pub(super) struct UnderWay(HashMap<u64, Effect>);

/// The effect of a request on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// The request has no effect that another reading request could notice.
    Reads,
    Changes,
}

impl UnderWay {
    /// Adds the keys of a command that may be in flight with others. Returns the same as `add`.
    pub(super) fn add_command(&mut self, command: &Command<'_>) -> bool {
        let key = match command {
            Command::Get(get) => {
                let reads = get.touch_exptime_s.is_none();
                let effect = if reads { Effect::Reads } else { Effect::Changes };
                return self.add(get.keys.map(Key::bytes), effect);
            }
            Command::Store(store) => store.key.bytes(),
            Command::Delete { key, .. } | Command::Touch { key, .. } => key.bytes(),
            // A meta get can tell when the item was last requested, and whether it was requested before.
            Command::MetaGet(meta) => meta.key.bytes(),
            _ => unreachable!("a command that is served alone"),
        };
        self.add([key], Effect::Changes)
    }

    /// Adds a request's keys. Returns false and adds nothing if one of the keys has to wait for a request in flight.
    fn add<'a>(&mut self, keys: impl IntoIterator<Item = &'a [u8]>, effect: Effect) -> bool {
        let hashes: SmallVec<[u64; 1]> = keys.into_iter().map(hash).collect();
        let meets = |other: &Effect| effect == Effect::Changes || *other == Effect::Changes;
        if hashes.iter().any(|hash| self.0.get(hash).is_some_and(meets)) {
            return false;
        }
        self.0.extend(hashes.into_iter().map(|hash| (hash, effect)));
        true
    }

    /// Removes all keys, because all requests are answered.
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
        let mut under_way = UnderWay::default();
        assert!(under_way.add([a, b], Effect::Reads));
        assert!(under_way.add([a], Effect::Reads));
        assert!(!under_way.add([a], Effect::Changes));
        assert!(!under_way.add([b], Effect::Changes));
        under_way.clear();
        assert!(under_way.add([a], Effect::Changes));
        assert!(!under_way.add([b, a], Effect::Reads));
        assert!(under_way.add([b], Effect::Changes), "a refused request leaves nothing behind");
        assert!(!under_way.add([a], Effect::Changes));
    }
}
