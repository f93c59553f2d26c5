//! Compares `protocol::counter::apply` with a model that reads the value as C does, in wider integers and byte by byte.
//! The result or refusal and the bytes must be equal, and the bytes in front of them must not change.

use arbitrary::Arbitrary;
use protocol::counter::{Direction, NonNumeric, apply};

#[derive(Arbitrary, Debug)]
pub(super) enum Stored<'a> {
    Bytes(&'a [u8]),
    /// A value that is nearly always a number.
    Number {
        before: &'a [u8],
        magnitude: u128,
        digits: u8,
        after: &'a [u8],
    },
}

pub(super) fn fuzz(input: (Stored<'_>, bool, u64, Vec<u8>)) {
    let (stored, up, delta, before) = input;
    let stored = stored.bytes();
    let direction = if up { Direction::Increment } else { Direction::Decrement };
    let mut out = before.clone();
    let result = apply(&stored, direction, delta, &mut out);

    let (kept, written) = out.split_at(before.len());
    assert_eq!(kept, before, "what was in the buffer is not its business");
    let Some(number) = read(&stored) else {
        assert_eq!((result, written), (Err(NonNumeric), &b""[..]));
        return;
    };
    let expected = if up {
        (number + u128::from(delta)) % (1 << 64)
    } else {
        number.saturating_sub(delta.into())
    };
    assert_eq!(result.map(u128::from), Ok(expected));
    let digits = expected.to_string().into_bytes();
    assert_eq!(written.len(), digits.len().max(stored.len()));
    assert!(written.starts_with(&digits));
    assert!(written[digits.len()..].iter().all(|byte| *byte == b' '));
    assert_eq!(read(written), Some(expected), "what is stored is a number again");
}

impl Stored<'_> {
    fn bytes(self) -> Vec<u8> {
        match self {
            Stored::Bytes(bytes) => bytes.to_vec(),
            Stored::Number { before, magnitude, digits, after } => {
                let digits = usize::from(digits % 24);
                let number = format!("{:0digits$}", magnitude >> (magnitude % 128));
                [before, number.as_bytes(), after].concat()
            }
        }
    }
}

/// Reads the value as memcached's `safe_strtoull` does.
fn read(stored: &[u8]) -> Option<u128> {
    let text = stored.split(|byte| *byte == 0).next()?;
    let mut rest = text;
    while let [b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C, tail @ ..] = rest {
        rest = tail;
    }
    let minus = rest.first() == Some(&b'-');
    if let [b'-' | b'+', tail @ ..] = rest {
        rest = tail;
    }
    let (mut magnitude, mut digits) = (0u128, 0);
    while let [digit @ b'0'..=b'9', tail @ ..] = rest {
        magnitude = (magnitude * 10 + u128::from(digit - b'0')).min(1 << 64);
        digits += 1;
        rest = tail;
    }
    let ends = matches!(rest, [] | [b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C, ..]);
    if digits == 0 || magnitude == 1 << 64 || !ends {
        return None;
    }
    let number = if minus && magnitude > 0 { (1 << 64) - magnitude } else { magnitude };
    let suspect = number >= 1 << 63 && text.contains(&b'-');
    (!suspect).then_some(number)
}
