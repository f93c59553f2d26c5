//! The keys that a reload may change. A reload that would need a restart changes nothing at all, so that the running
//! configuration is always one that some file described.

use super::keys::{Change, KEYS};
use super::{Config, lookup, to_table};

/// Returns the keys that differ and can change now. If any key needs a restart, returns the keys that need one as an
/// error.
pub fn diff_for_reload(old: &Config, new: &Config) -> Result<Vec<&'static str>, Vec<&'static str>> {
    // Values in flight have what the other parts leave, and cannot have less while they are in use.
    let sum_is_set = new.server.memory_max.0 != 0;
    if sum_is_set && new.server.connections_max > old.server.connections_max {
        return Err(vec!["server.connections_max (raised under server.memory_max)"]);
    }
    let (old, new) = (to_table(old).unwrap_or_default(), to_table(new).unwrap_or_default());
    let changed = KEYS.iter().filter(|key| lookup(&old, key) != lookup(&new, key));
    let (hot, restart): (Vec<_>, Vec<_>) = changed.partition(|key| key.change == Change::Hot);
    if restart.is_empty() {
        Ok(hot.into_iter().map(|key| key.name).collect())
    } else {
        Err(restart.into_iter().map(|key| key.name).collect())
    }
}
