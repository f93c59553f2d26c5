//! Turns lines into text with indentation, blank lines and the comments of the source. A comment
//! keeps its position: in front of the same line, or at the end of the same line.

use super::lexer::Comment;
use super::parser::{Item, Parsed, SourceLine};
use super::print::{self, Line};

/// Returns the text of these lines, for a draft that was not read from a text.
pub(crate) fn plain(lines: &[Line]) -> String {
    let mut page = Page::default();
    for line in lines {
        page.line(line, false);
    }
    page.out
}

/// Returns the text of a parsed source in the canonical layout.
pub(crate) fn with_comments(parsed: &Parsed) -> String {
    let lines = lines_in_order(parsed);
    debug_assert_eq!(lines.len(), parsed.lines.len(), "one line for each that was read");
    let mut page = Page::default();
    let mut comments = parsed.comments.iter().peekable();
    for (line, source) in lines.iter().zip(&parsed.lines) {
        while let Some(comment) = comments.next_if(|comment| comment.place < source.from) {
            // A comment in front of a closing brace belongs to the block that the brace closes.
            let indent = line.indent + usize::from(line.text.starts_with('}'));
            page.comment(comment, indent, line.text.starts_with('}'));
        }
        page.source_line(line, source);
    }
    for comment in comments {
        page.comment(comment, 0, false);
    }
    page.out
}

fn lines_in_order(parsed: &Parsed) -> Vec<Line> {
    let draft = &parsed.draft;
    let (mut fields, mut traces) = (draft.fields.iter(), draft.traces.iter());
    let mut services = draft.services.iter();
    let mut lines = Vec::with_capacity(parsed.lines.len());
    for item in &parsed.order {
        match item {
            Item::Field => fields.next().into_iter().for_each(|one| print::field(one, &mut lines)),
            Item::Trace => traces.next().into_iter().for_each(|one| print::trace(one, &mut lines)),
            Item::Service => {
                services.next().into_iter().for_each(|one| print::service(one, &mut lines));
            }
        }
    }
    lines
}

/// The last element that was written.
#[derive(Default, PartialEq, Eq)]
enum Last {
    #[default]
    Nothing,
    Comment,
    Field,
    /// A line that opens a block.
    Opening,
    /// The brace that closes a trace or service.
    Closing,
    Other,
}

#[derive(Default)]
struct Page {
    out: String,
    last: Last,
    /// The source line at which the last element ended.
    end_line: usize,
    /// Whether the last element is a line of code that has no comment behind it yet.
    takes_comment: bool,
}

impl Page {
    fn source_line(&mut self, line: &Line, source: &SourceLine) {
        self.line(line, source.from.line > self.end_line + 1);
        self.end_line = self.end_line.max(source.end_line);
        self.takes_comment = true;
    }

    fn line(&mut self, line: &Line, blank_before: bool) {
        let is_field = line.text.starts_with("field ");
        let closes = line.text.starts_with('}');
        let parts = line.indent == 0
            && !closes
            && match self.last {
                Last::Closing => true,
                Last::Field => !is_field,
                _ => false,
            };
        self.put(line.indent, &line.text, parts || (blank_before && !closes));
        self.last = match line.text.as_str() {
            text if text.ends_with('{') => Last::Opening,
            _ if is_field && line.indent == 0 => Last::Field,
            "}" if line.indent == 0 => Last::Closing,
            _ => Last::Other,
        };
    }

    fn comment(&mut self, comment: &Comment, indent: usize, before_closing: bool) {
        if !comment.alone && self.takes_comment {
            self.out.pop();
            self.out.push_str("  ");
            self.out.push_str(&comment.text);
            self.out.push('\n');
        } else {
            let blank = comment.place.line > self.end_line + 1 || self.last == Last::Closing;
            // Blank lines at the end of a block are removed. Blank lines between comments stay.
            let blank = blank && !(before_closing && self.last == Last::Opening);
            self.put(indent, &comment.text, blank);
            self.last = Last::Comment;
        }
        self.takes_comment = false;
        self.end_line = self.end_line.max(comment.place.line);
    }

    fn put(&mut self, indent: usize, text: &str, blank: bool) {
        if blank && !matches!(self.last, Last::Nothing | Last::Opening) {
            self.out.push('\n');
        }
        self.out.push_str(&"    ".repeat(indent));
        self.out.push_str(text);
        self.out.push('\n');
    }
}
