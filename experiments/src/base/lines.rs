//! The JSON format of an experiment's results. Each field that all rows share is one line, and each row is
//! one line, so that a changed number is a changed line. The module does not depend on the type of a row: it
//! breaks no lines inside the third level of lists and objects.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// Returns the value as JSON text that ends with a newline.
///
/// # Errors
/// The errors of `serde_json`: a map has keys that are not strings, or the value's own serialization fails.
pub(super) fn text(value: &impl Serialize) -> serde_json::Result<String> {
    let mut text = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut text, Lines::default()))?;
    text.push(b'\n');
    Ok(String::from_utf8(text).expect("JSON is text"))
}

/// The depth down to which lists and objects have one line per value.
const BROKEN: usize = 2;

#[derive(Default)]
struct Lines {
    within: usize,
    has_values: bool,
}

impl Lines {
    fn begin(&mut self, to: &mut (impl Write + ?Sized), sign: &[u8]) -> io::Result<()> {
        self.within += 1;
        self.has_values = false;
        to.write_all(sign)
    }

    fn next(&mut self, to: &mut (impl Write + ?Sized), is_first: bool) -> io::Result<()> {
        if !is_first {
            to.write_all(b",")?;
        }
        self.has_values = true;
        match (self.within <= BROKEN, is_first) {
            (true, _) => self.line(to),
            (false, true) => Ok(()),
            (false, false) => to.write_all(b" "),
        }
    }

    fn end(&mut self, to: &mut (impl Write + ?Sized), sign: &[u8]) -> io::Result<()> {
        self.within -= 1;
        if self.has_values && self.within < BROKEN {
            self.line(to)?;
        }
        self.has_values = true;
        to.write_all(sign)
    }

    fn line(&self, to: &mut (impl Write + ?Sized)) -> io::Result<()> {
        write!(to, "\n{:1$}", "", 2 * self.within)
    }
}

impl Formatter for Lines {
    fn begin_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"[")
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.next(to, first)
    }

    fn end_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"]")
    }

    fn begin_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"{")
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.next(to, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_row_is_one_line() {
        let value = json!({
            "a": "of all",
            "none": [],
            "rows": [{ "ci95": [1.5, 2], "id": "x", "of": {} }, { "ci95": null, "id": "y" }],
        });
        let text = text(&value).expect("it is JSON");
        let lines = [
            "{",
            "  \"a\": \"of all\",",
            "  \"none\": [],",
            "  \"rows\": [",
            "    {\"ci95\": [1.5, 2], \"id\": \"x\", \"of\": {}},",
            "    {\"ci95\": null, \"id\": \"y\"}",
            "  ]",
            "}",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
        assert!(text.ends_with("}\n"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).expect("parses"), value);
    }
}
