//! Reads memcached's file of users and passwords (`-Y`): lines `USER:PASSWORD`, of which the first eight count, as in
//! memcached 1.6.18. Every user may do everything. There is no other way in.

use std::path::Path;
use std::sync::Arc;

use super::file::{read_bounded, warn_if_readable};
use super::rules::{Grant, Role, Rules, User};
use super::secret::Hasher;

/// Reads the rules. A user that `old` has too keeps what it has used.
///
/// # Errors
/// Describes what is wrong, with the path.
pub(super) fn read(path: &Path, hasher: &Hasher, old: &Rules) -> Result<Rules, String> {
    let text = read_bounded(path)?;
    let entries = entries(&text).map_err(|line| {
        format!("{}:{line}: a malformed entry; give USER:PASSWORD", path.display())
    })?;
    if entries.len() > ENTRIES_MAX {
        tracing::warn!("{}: only the first {ENTRIES_MAX} entries count", path.display());
    }
    warn_if_readable(path);
    let usages = old.usages();
    let role = Arc::new(Role::everything());
    let users = entries.into_iter().take(ENTRIES_MAX).map(|(name, password)| {
        let identity = format!("user {name}");
        let usage = usages.get(&identity[..]).map(|usage| Arc::clone(usage)).unwrap_or_default();
        let grant = Arc::new(Grant { identity, role: Arc::clone(&role), usage });
        let secret = hasher.plain(password.as_bytes());
        User { name: name.as_bytes().to_vec(), secret, grant }
    });
    Ok(Rules { users: users.collect(), is_text_only: true, ..Rules::default() })
}

/// Returns the users and passwords, or the number of a line that has no colon.
fn entries(text: &str) -> Result<Vec<(&str, &str)>, usize> {
    text.split_terminator('\n')
        .enumerate()
        .map(|(index, line)| entry(line).ok_or(index + 1))
        .collect()
}

fn entry(line: &str) -> Option<(&str, &str)> {
    // memcached ends a password at the first of these bytes, and looks for the colon before it does.
    let (name, password) = line.split_once(':')?;
    let end = password.find(['\r', '\0']).unwrap_or(password.len());
    Some((name, &password[..end]))
}

/// The number of entries that memcached reads.
const ENTRIES_MAX: usize = 8;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn entries_are_split_as_in_memcached() {
        assert_eq!(entries(""), Ok(vec![]));
        assert_eq!(entries("a:b:c\r\nu:\n:p\n"), Ok(vec![("a", "b:c"), ("u", ""), ("", "p")]));
        assert_eq!(entries("a:b"), Ok(vec![("a", "b")]));
        for (text, line) in [("\n", 1), ("a:b\n\n", 2), ("# x\na:b\n", 1), ("a:b\nc", 2)] {
            assert_eq!(entries(text), Err(line), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("tokens");
            std::fs::write(&path, &bytes).unwrap();
            if let Ok(rules) = read(&path, &Hasher::new(), &Rules::default()) {
                prop_assert!(rules.users.len() <= ENTRIES_MAX);
                let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                prop_assert!(lines.clone().all(|line| line.contains(&b':')));
                prop_assert_eq!(rules.users.len(), lines.count().min(ENTRIES_MAX));
            }
        }
    }
}
