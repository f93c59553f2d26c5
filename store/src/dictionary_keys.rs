//! The reserved keys under which a store has dictionaries. Servers and `rebate dict` use the same ones.

use units::DictionaryId;

/// Returns the key of one copy of a dictionary. The first copy is number 0.
pub fn copy(id: DictionaryId, copy: usize) -> String {
    format!("{COPY_PREFIX}{id}:{copy}")
}

/// Returns the key of the id of the dictionary that a class of a tenant uses.
pub fn of_class(tenant: u16, class: &str) -> String {
    format!("{CLASS_PREFIX}{tenant}:{class}")
}

/// Returns whether a key is reserved.
pub fn is_reserved(key: &[u8]) -> bool {
    [COPY_PREFIX, CLASS_PREFIX].iter().any(|prefix| key.starts_with(prefix.as_bytes()))
}

/// The content of the key of a dictionary that an operator dropped.
pub const DROPPED: &[u8] = b"dropped";

/// The number of copies in a ring, so that the loss of one server loses no dictionary.
pub const COPIES_MAX: usize = 3;

const COPY_PREFIX: &str = "rebate-dictionary:";
const CLASS_PREFIX: &str = "rebate-dictionary-of:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_dictionaries_are_reserved() {
        let id = DictionaryId::new(0x00_A1B2).expect("an id");
        assert_eq!(copy(id, 2), "rebate-dictionary:00a1b2:2");
        assert_eq!(of_class(7, "user:*"), "rebate-dictionary-of:7:user:*");
        assert!(is_reserved(copy(id, 0).as_bytes()) && is_reserved(of_class(0, "").as_bytes()));
        assert!(!is_reserved(b"rebate-dictionaries") && !is_reserved(b"user:1"));
    }
}
