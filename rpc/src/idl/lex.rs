//! Splits an IDL into words, numbers and signs, each with its line. Comments are dropped. String
//! literals are not supported.

use super::IdlError;

/// A token of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    Number(i64),
    Mark(char),
}

/// Returns the tokens of a text, each with its line.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, IdlError> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '#' => to_line_end(rest),
            '/' if rest.starts_with("//") => to_line_end(rest),
            '/' if rest.starts_with("/*") => match rest.find("*/") {
                Some(end) => end + 2,
                None => return Err(IdlError { line, what: "a comment without its end".into() }),
            },
            _ if first.is_whitespace() => first.len_utf8(),
            _ if first.is_ascii_alphabetic() || first == '_' => {
                let length = span(rest, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
                found.push((line, Token::Word(rest[..length].to_owned())));
                length
            }
            _ if first.is_ascii_digit() || first == '-' => {
                let length = 1 + span(&rest[1..], |c| c.is_ascii_digit());
                let digits = &rest[..length];
                let wrong = || IdlError { line, what: format!("{digits} is no number") };
                found.push((line, Token::Number(digits.parse().map_err(|_| wrong())?)));
                length
            }
            _ if "{}()<>:,;=*".contains(first) => {
                found.push((line, Token::Mark(first)));
                1
            }
            _ => return Err(IdlError { line, what: format!("{first:?} has no meaning here") }),
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    Ok(found)
}

fn to_line_end(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

fn span(text: &str, inside: impl Fn(char) -> bool) -> usize {
    text.find(|c| !inside(c)).unwrap_or(text.len())
}
