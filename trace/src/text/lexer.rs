//! Splits text into words, numbers and signs, each with its place. Comments are collected for the
//! formatter.

use super::Place;

/// A word, number or sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    Word(&'a str),
    /// Digits and the letters directly behind them.
    Number(&'a str),
    Sign(&'a str),
    /// A character that the language does not have.
    Stray(&'a str),
    End,
}

impl<'a> Token<'a> {
    /// Returns the token as error messages show it.
    pub(crate) fn shown(self) -> String {
        match self {
            Token::Word(text) | Token::Number(text) | Token::Sign(text) | Token::Stray(text) => {
                format!("`{text}`")
            }
            Token::End => "the end of the text".to_owned(),
        }
    }
}

/// A comment. Its text goes from `#` to the end of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Comment {
    pub(crate) place: Place,
    pub(crate) text: String,
    /// Whether the comment is alone on its line.
    pub(crate) alone: bool,
}

pub(crate) struct Lexer<'a> {
    rest: &'a str,
    place: Place,
    /// The line of the last token.
    line: usize,
    pub(crate) comments: Vec<Comment>,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Lexer<'a> {
        let place = Place { line: 1, column: 1 };
        Lexer { rest: text, place, line: 0, comments: Vec::new() }
    }

    pub(crate) fn next(&mut self) -> (Token<'a>, Place) {
        self.blank();
        let place = self.place;
        let Some(first) = self.rest.chars().next() else { return (Token::End, place) };
        self.line = place.line;
        let token = if first.is_ascii_alphabetic() || first == '_' {
            Token::Word(self.take(word_bytes(self.rest)))
        } else if first.is_ascii_digit() {
            let bytes = self.rest.find(|c: char| !c.is_ascii_alphanumeric());
            Token::Number(self.take(bytes.unwrap_or(self.rest.len())))
        } else if let Some(sign) = SIGNS.iter().find(|sign| self.rest.starts_with(**sign)) {
            Token::Sign(self.take(sign.len()))
        } else {
            Token::Stray(self.take(first.len_utf8()))
        };
        (token, place)
    }

    /// Skips blanks, and collects comments.
    fn blank(&mut self) {
        loop {
            let spaces = self.rest.len() - self.rest.trim_start().len();
            self.take(spaces);
            if !self.rest.starts_with('#') {
                return;
            }
            let place = self.place;
            let alone = self.line != place.line;
            let text = self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
            self.comments.push(Comment { place, text: text.trim_end().to_owned(), alone });
        }
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        for c in taken.chars() {
            if c == '\n' {
                self.place = Place { line: self.place.line + 1, column: 1 };
            } else {
                self.place.column += 1;
            }
        }
        taken
    }
}

/// Returns the length of a word (bytes). A word consists of letters, digits, `_`, `.` and `-`. A
/// `-` that begins an arrow ends the word.
fn word_bytes(text: &str) -> usize {
    let bytes = text.as_bytes();
    let goes_on = |at: usize| match bytes[at] {
        b'-' => bytes.get(at + 1) != Some(&b'>'),
        byte => byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.',
    };
    (0..bytes.len()).find(|at| !goes_on(*at)).unwrap_or(bytes.len())
}

/// All signs, with longer signs first.
const SIGNS: [&str; 12] = ["->", "==", "!=", "<=", ">=", "<", ">", "{", "}", "(", ")", ","];
