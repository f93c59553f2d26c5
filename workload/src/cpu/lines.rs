//! Splits a stream into lines with one buffer of fixed size, without a copy of any line. The module knows no format.

use std::io::{self, ErrorKind, Read};

use memchr::memchr;

/// Reads lines that have at most as many bytes as the buffer. Longer lines are skipped and counted.
pub(super) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// True in the middle of a line that is too long.
    skipping: bool,
    number: u64,
    too_long: u64,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(input: R, line_bytes_max: usize) -> Self {
        let buffer = vec![0; line_bytes_max.max(1)];
        Self { input, buffer, start: 0, end: 0, skipping: false, number: 0, too_long: 0 }
    }

    /// Returns the next line without its line end.
    pub(super) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let Some((start, end)) = self.next_range()? else { return Ok(None) };
        let line = &self.buffer[start..end];
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// Returns the number of the line that was read last. The first line is 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn too_long(&self) -> u64 {
        self.too_long
    }

    fn next_range(&mut self) -> io::Result<Option<(usize, usize)>> {
        loop {
            if let Some(at) = memchr(b'\n', &self.buffer[self.start..self.end]) {
                let range = (self.start, self.start + at);
                self.start += at + 1;
                if self.finish_line() {
                    return Ok(Some(range));
                }
                continue;
            }
            if self.skipping || (self.start == 0 && self.end == self.buffer.len()) {
                self.skipping = true;
                (self.start, self.end) = (0, 0);
            }
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let read = match self.input.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read?,
            };
            self.end += read;
            if read == 0 {
                let range = (self.start, self.end);
                self.start = self.end;
                let ended = range.0 == range.1 && !self.skipping;
                return Ok((!ended && self.finish_line()).then_some(range));
            }
        }
    }

    /// Counts the line that ended. Returns false if it was too long.
    fn finish_line(&mut self) -> bool {
        self.number += 1;
        let whole = !std::mem::take(&mut self.skipping);
        self.too_long += u64::from(!whole);
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that gives a few bytes at a time.
    struct Dripping<'a>(&'a [u8], usize);

    impl Read for Dripping<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(buffer.len()).min(self.0.len());
            let (now, later) = self.0.split_at(count);
            buffer[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    fn lines(text: &str, step: usize) -> (Vec<String>, u64, u64) {
        let mut lines = Lines::new(Dripping(text.as_bytes(), step), 8);
        let mut found = Vec::new();
        while let Some(line) = lines.next().expect("memory does not fail") {
            found.push(String::from_utf8_lossy(line).into_owned());
        }
        (found, lines.number(), lines.too_long())
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        for step in 1..20 {
            let (found, number, too_long) = lines("one\r\n\ntwo longer than it may be\nend", step);
            assert_eq!(found, ["one", "", "end"], "{step}");
            assert_eq!((number, too_long), (4, 1), "{step}");
        }
        assert_eq!(lines("", 1), (Vec::new(), 0, 0));
        assert_eq!(lines("never ending", 5), (Vec::new(), 1, 1));
    }
}
