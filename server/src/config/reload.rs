//! Computes the keys that a reload changes. A reload that includes a key that needs a restart is refused as a
//! whole, so that the running configuration always equals one that the operator wrote.

use super::keys::{Change, keys};
use super::{Config, StoreUrl, lookup, to_table};

/// Returns the keys that differ and can change now. If any key needs a restart, returns the keys that need one as an
/// error.
pub fn diff_for_reload(old: &Config, new: &Config) -> Result<Vec<&'static str>, Vec<&'static str>> {
    // Values in flight get the memory that the other parts leave. It cannot shrink while values use it.
    let sum_is_set = new.server.memory_max.0 != 0;
    if sum_is_set && new.server.connections_max > old.server.connections_max {
        return Err(vec!["server.connections_max (raised under server.memory_max)"]);
    }
    let urls = (old.store.url.parse::<StoreUrl>(), new.store.url.parse::<StoreUrl>());
    if let (Ok(old), Ok(new)) = urls
        && !old.is_same_kind(&new)
    {
        return Err(vec!["store.url (to another kind of store)"]);
    }
    let (old, new) = (to_table(old).unwrap_or_default(), to_table(new).unwrap_or_default());
    let changed = keys().filter(|key| lookup(&old, key) != lookup(&new, key));
    let (hot, restart): (Vec<_>, Vec<_>) = changed.partition(|key| key.change == Change::Hot);
    if restart.is_empty() {
        Ok(hot.into_iter().map(|key| key.name).collect())
    } else {
        Err(restart.into_iter().map(|key| key.name).collect())
    }
}
