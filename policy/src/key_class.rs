//! The class of a key: keys whose values are likely to have content in common, so that one dictionary serves them
//! all. It follows from the key's text alone. This module does not know which classes exist, nor what they are for.

/// The rule that gives each key its class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyClasses {
    /// Prefixes of keys that the operator made classes of, the longest first.
    prefixes: Vec<String>,
}

impl KeyClasses {
    /// Makes a rule in which all keys with one of these prefixes are of a class with the prefix as its name.
    pub fn new(mut prefixes: Vec<String>) -> Self {
        prefixes.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        prefixes.dedup();
        Self { prefixes }
    }

    /// Writes the class name of `key` to `name` and returns it.
    ///
    /// A key that has none of the prefixes consists of segments between the delimiters `: / . - _ |`. A segment with a
    /// digit names one item, so `*` stands for it: `user:1234:profile` is of the class `user:*:profile`. A segment of
    /// at least three letters and then only digits keeps its letters: `order1234` is of the class `order*`.
    pub fn name<'a>(&self, key: &[u8], name: &'a mut [u8; NAME_BYTES_MAX]) -> &'a [u8] {
        let mut bytes = 0;
        let mut push = |part: &[u8]| {
            let kept = part.len().min(NAME_BYTES_MAX - bytes);
            name[bytes..bytes + kept].copy_from_slice(&part[..kept]);
            bytes += kept;
        };
        match self.prefixes.iter().find(|prefix| key.starts_with(prefix.as_bytes())) {
            Some(prefix) => push(prefix.as_bytes()),
            None => push_pattern(key, push),
        }
        &name[..bytes]
    }
}

/// Returns a class name as text. Bytes that are no printable ASCII become `?`.
pub fn printable(name: &[u8]) -> String {
    let printable = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' };
    name.iter().map(printable).collect()
}

/// Calls `push` with the consecutive parts of the pattern of `key`.
fn push_pattern(key: &[u8], mut push: impl FnMut(&[u8])) {
    let mut rest = key;
    loop {
        let end = rest.iter().position(|byte| is_delimiter(*byte));
        let (segment, delimiter) = rest.split_at(end.unwrap_or(rest.len()));
        match segment.iter().position(u8::is_ascii_digit) {
            None => push(segment),
            Some(letters) => {
                if letters >= LETTERS_MIN && is_numbered(segment, letters) {
                    push(&segment[..letters]);
                }
                push(b"*");
            }
        }
        let Some((delimiter, after)) = delimiter.split_first_chunk::<1>() else { return };
        push(delimiter);
        rest = after;
    }
}

/// The bytes of a class name that are looked at. Two classes that differ only behind them are one class.
pub const NAME_BYTES_MAX: usize = 64;

/// The fewest letters in front of digits that are taken for a word. Hexadecimal numbers often begin with one or two.
const LETTERS_MIN: usize = 3;

const fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b':' | b'/' | b'.' | b'-' | b'_' | b'|')
}

/// Returns whether the first `letters` bytes are letters, and all others are digits.
fn is_numbered(segment: &[u8], letters: usize) -> bool {
    let (word, number) = segment.split_at(letters);
    word.iter().all(u8::is_ascii_alphabetic) && number.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(classes: &KeyClasses, key: &[u8]) -> String {
        printable(classes.name(key, &mut [0; NAME_BYTES_MAX]))
    }

    #[test]
    fn segments_with_digits_become_stars() {
        let cases = [
            ("user:1234:profile", "user:*:profile"),
            ("user:99:profile", "user:*:profile"),
            ("key:0000001", "key:*"),
            ("session_ab3f9c", "session_*"),
            ("order1234", "order*"),
            ("ab12", "*"),
            ("a1b2c3", "*"),
            ("/static/app.js", "/static/app.js"),
            ("v2/users/77", "*/users/*"),
            ("plain", "plain"),
            ("", ""),
            (":", ":"),
            ("a::7", "a::*"),
        ];
        for (key, expected) in cases {
            assert_eq!(name(&KeyClasses::default(), key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn the_longest_prefix_of_the_operator_wins() {
        let prefixes = ["user:", "user:12", ""].map(str::to_owned).to_vec();
        let classes = KeyClasses::new(prefixes[..2].to_vec());
        assert_eq!(name(&classes, b"user:1234:profile"), "user:12");
        assert_eq!(name(&classes, b"user:34:profile"), "user:");
        assert_eq!(name(&classes, b"order:34"), "order:*");
        assert_eq!(name(&KeyClasses::new(prefixes), b"order:34"), "");
    }

    #[test]
    fn a_name_is_printable_and_bounded() {
        let classes = KeyClasses::default();
        assert_eq!(name(&classes, b"\xFF\x00:1"), "??:*");
        assert_eq!(name(&classes, &[b'x'; 250]).len(), NAME_BYTES_MAX);
        assert_eq!(name(&classes, &[b':'; 250]).len(), NAME_BYTES_MAX);
        let long = KeyClasses::new(vec!["p".repeat(100)]);
        assert_eq!(name(&long, &[b'p'; 250]).len(), NAME_BYTES_MAX);
    }
}
