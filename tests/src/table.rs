//! The text form of the command table: rows of bytes to send, grouped by story. The table contains no answers, because
//! the answers are memcached's.
//!
//! ```text
//! == Story
//! = row title                    a title may use {k} and the variables of `each`
//! each n = 1 63 64               one row for every word; several lines multiply
//! exclusive                      changes what other rows see (flush_all): runs alone, at the end
//! differs embedded: why          equality is not expected of configurations with this prefix
//! > get {k}                      a step: the line with CR LF
//! >> set {k} 0 0 1\r\n           a step: the bytes as they are
//! ? get {k} => END\r\n           a step repeated until it is answered so
//! % set {k} 0 0 1\r\nx           a step sent in two writes, cut at every place in turn
//! ??, %%                        as ? and %, but without a CR LF at the end of what is sent
//! ```
//!
//! `{k}` is the key of the row and always has six bytes. The escapes are `\r`, `\n`, `\t`, `\0`, `\\` and `\xNN`. The
//! other braces are listed at [`expand`].

use std::time::{SystemTime, UNIX_EPOCH};

use crate::answer::CasNumbers;
use crate::packet::packet;
use crate::payload::{base64, payload};

/// A row of the table: a short conversation on one connection.
#[derive(Clone, Debug)]
pub struct Row {
    /// The group that the row belongs to.
    pub story: String,
    /// The fact that the row shows.
    pub title: String,
    /// The steps that are sent, in order.
    pub steps: Vec<Step>,
    /// The declared differences.
    pub differs: Vec<Difference>,
    /// True if the row must run alone.
    pub exclusive: bool,
}

impl Row {
    /// Returns the declared reason why `configuration` may answer this row differently.
    pub fn reason(&self, configuration: &str) -> Option<&str> {
        let applies = |difference: &&Difference| configuration.starts_with(&difference.prefix);
        self.differs.iter().find(applies).map(|difference| difference.reason.as_str())
    }
}

/// A declaration that some configurations may answer a row differently, and the reason.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The beginning of the names of these configurations.
    pub prefix: String,
    /// The reason for the difference.
    pub reason: String,
}

/// One step of a row. Its templates are expanded when it is sent.
#[derive(Clone, Debug)]
pub enum Step {
    /// The bytes are sent once.
    Send(String),
    /// The first text is sent repeatedly until the answer equals the second text.
    Until(String, String),
    /// The bytes are sent in two writes, once for each position at which they can be cut.
    Cuts(String),
}

/// Reads a table.
///
/// # Panics
/// The text is not a table. The message has the line number.
pub fn parse(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut story = String::new();
    let mut draft: Option<Draft> = None;
    for (index, line) in text.lines().enumerate() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "" | "#" => {}
            "==" | "=" => {
                rows.extend(draft.take().into_iter().flat_map(Draft::rows));
                if word == "==" {
                    story = rest.to_owned();
                } else {
                    draft = Some(Draft::new(&story, rest));
                }
            }
            _ => {
                let known = draft.as_mut().and_then(|draft| draft.take(word, rest));
                assert!(known.is_some(), "line {} of the table: {line:?}", index + 1);
            }
        }
    }
    rows.extend(draft.into_iter().flat_map(Draft::rows));
    rows
}

/// Gives every row its key and replaces `{k}` in titles and steps.
pub fn with_keys(mut rows: Vec<Row>) -> Vec<Row> {
    for (index, row) in rows.iter_mut().enumerate() {
        let key = format!("k{index:05}");
        row.substitute("{k}", &key);
    }
    rows
}

/// Returns the bytes of a template. It expands escapes and these words in braces: `class:length` (a payload),
/// `b64:text`, `cas` or `cas:index` (a number seen in this row, the newest or the indexth), `now+seconds`,
/// `repeat:count:text`, `list:count:prefix` (words `prefix0 prefix1 ...`), and `p:opcode field=text ...` (a packet of
/// the binary protocol, see the module `packet`).
///
/// # Panics
/// The template is malformed. The table is part of the test.
pub fn expand(template: &str, cas: &CasNumbers) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find(['\\', '{']) {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let tail = &rest[at..];
        if tail.starts_with('{') {
            let end = closing(tail).unwrap_or_else(|| panic!("open brace in {template:?}"));
            let bytes = braces(&tail[1..end], cas);
            out.extend(
                bytes.unwrap_or_else(|| panic!("unknown {} in {template:?}", &tail[..=end])),
            );
            rest = &tail[end + 1..];
        } else {
            let (byte, length) =
                escape(tail).unwrap_or_else(|| panic!("unknown escape in {template:?}"));
            out.push(byte);
            rest = &tail[length..];
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

impl Row {
    fn substitute(&mut self, variable: &str, value: &str) {
        self.title = self.title.replace(variable, value);
        for step in &mut self.steps {
            match step {
                Step::Send(text) | Step::Cuts(text) => *text = text.replace(variable, value),
                Step::Until(text, wanted) => {
                    *text = text.replace(variable, value);
                    *wanted = wanted.replace(variable, value);
                }
            }
        }
    }
}

/// A row whose `each` lines have not been expanded.
struct Draft {
    row: Row,
    each: Vec<(String, Vec<String>)>,
}

impl Draft {
    fn new(story: &str, title: &str) -> Self {
        let row = Row {
            story: story.to_owned(),
            title: title.to_owned(),
            steps: Vec::new(),
            differs: Vec::new(),
            exclusive: false,
        };
        Self { row, each: Vec::new() }
    }

    fn take(&mut self, word: &str, rest: &str) -> Option<()> {
        match word {
            "exclusive" => self.row.exclusive = true,
            "each" => {
                let (name, words) = rest.split_once(" = ")?;
                let words = words.split(' ').map(str::to_owned).collect();
                self.each.push((format!("{{{name}}}"), words));
            }
            "differs" => {
                let (prefix, reason) = rest.split_once(": ")?;
                let difference = Difference { prefix: prefix.into(), reason: reason.into() };
                self.row.differs.push(difference);
            }
            ">" => self.row.steps.push(Step::Send(format!("{rest}\\r\\n"))),
            ">>" => self.row.steps.push(Step::Send(rest.to_owned())),
            "?" | "??" => {
                let (line, wanted) = rest.split_once(" => ")?;
                let end = if word == "?" { "\\r\\n" } else { "" };
                self.row.steps.push(Step::Until(format!("{line}{end}"), wanted.to_owned()));
            }
            "%%" => self.row.steps.push(Step::Cuts(rest.to_owned())),
            "%" => self.row.steps.push(Step::Cuts(format!("{rest}\\r\\n"))),
            _ => return None,
        }
        Some(())
    }

    fn rows(self) -> Vec<Row> {
        let mut rows = vec![self.row];
        for (variable, values) in self.each {
            let with = |row: &Row| -> Vec<Row> {
                let set = |value: &String| {
                    let mut row = row.clone();
                    row.substitute(&variable, value);
                    row
                };
                values.iter().map(set).collect()
            };
            rows = rows.iter().flat_map(with).collect();
        }
        rows
    }
}

/// Returns the position of the brace that closes the brace at the start of `tail`.
fn closing(tail: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in tail.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn braces(inside: &str, cas: &CasNumbers) -> Option<Vec<u8>> {
    if let Some(seconds) = inside.strip_prefix("now") {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
        let at = now.checked_add_signed(seconds.parse().ok()?)?;
        return Some(at.to_string().into_bytes());
    }
    let (name, argument) = inside.split_once(':').unwrap_or((inside, ""));
    Some(match name {
        "cas" => {
            let newest = cas.count().saturating_sub(1);
            let index = if argument.is_empty() { newest } else { argument.parse().ok()? };
            // A server that has shown no number gets a number that was never issued, so the row fails.
            cas.at(index).unwrap_or(u64::MAX).to_string().into_bytes()
        }
        "b64" => base64(argument.as_bytes()).into_bytes(),
        "p" => packet(argument, cas)?,
        "repeat" => {
            let (count, text) = argument.split_once(':')?;
            expand(text, cas).repeat(count.parse().ok()?)
        }
        "list" => {
            let (count, prefix) = argument.split_once(':')?;
            let count: usize = count.parse().ok()?;
            let words: Vec<String> = (0..count).map(|index| format!("{prefix}{index}")).collect();
            words.join(" ").into_bytes()
        }
        class => payload(class, argument.parse().ok()?)?,
    })
}

fn escape(tail: &str) -> Option<(u8, usize)> {
    Some(match tail.as_bytes().get(1)? {
        b'r' => (b'\r', 2),
        b'n' => (b'\n', 2),
        b't' => (b'\t', 2),
        b'0' => (0, 2),
        b'\\' => (b'\\', 2),
        b'x' => (u8::from_str_radix(tail.get(2..4)?, 16).ok()?, 4),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lines_multiply_a_row() {
        let rows = parse("== S\n= {a}{b}\neach a = 1 2\neach b = x y z\n> get {k}{a}{b}\n");
        let titles: Vec<&str> = rows.iter().map(|row| row.title.as_str()).collect();
        assert_eq!(titles, ["1x", "1y", "1z", "2x", "2y", "2z"]);
    }

    #[test]
    fn templates_become_bytes() {
        let cas = CasNumbers::default();
        assert_eq!(expand("a\\x00\\r\\n{same:3}{b64:foo}{list:2:p}", &cas), b"a\0\r\naaaZm9vp0 p1");
        assert_eq!(expand("{repeat:3:ab}", &cas), b"ababab");
    }
}
