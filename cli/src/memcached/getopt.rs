//! Parses options as GNU `getopt_long` does, because memcached's callers use its forms: clusters (`-vvp11211`), glued
//! and separate values, `--long=value`, unambiguous abbreviations, and `--`. This module does not know the meaning of
//! options.

use std::iter::Peekable;
use std::vec::IntoIter;

/// The rule whether an option takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    None,
    Required,
    /// The value is optional and can be given only as `--long=value`.
    Optional,
}

/// An option. The long name is optional.
pub(super) struct Spec {
    pub(super) short: char,
    pub(super) long: &'static str,
    pub(super) value: Value,
}

/// Iterates over the options of a command line in order, so that the first wrong option decides the result.
pub(super) struct Options<'s> {
    specs: &'s [Spec],
    args: Peekable<IntoIter<String>>,
    /// The unread letters of a cluster of short options.
    cluster: String,
}

impl<'s> Options<'s> {
    pub(super) fn new(specs: &'s [Spec], args: Vec<String>) -> Self {
        Self { specs, args: args.into_iter().peekable(), cluster: String::new() }
    }

    fn short(&mut self) -> Result<(char, Option<String>), String> {
        let letter = self.cluster.remove(0);
        let spec = self.specs.iter().find(|spec| spec.short == letter);
        let spec = spec.ok_or_else(|| format!("invalid option -- '{letter}'"))?;
        if spec.value != Value::Required {
            return Ok((letter, None));
        }
        let glued = std::mem::take(&mut self.cluster);
        let value = if glued.is_empty() { self.args.next() } else { Some(glued) };
        let missing = || format!("option requires an argument -- '{letter}'");
        Ok((letter, Some(value.ok_or_else(missing)?)))
    }

    fn long(&mut self, text: &str) -> Result<(char, Option<String>), String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let spec = self.named(name)?;
        let value = match (spec.value, value) {
            (Value::None, Some(_)) => {
                return Err(format!("option '--{}' doesn't allow an argument", spec.long));
            }
            (Value::Required, None) => {
                let missing = || format!("option '--{}' requires an argument", spec.long);
                Some(self.args.next().ok_or_else(missing)?)
            }
            (_, value) => value,
        };
        Ok((spec.short, value))
    }

    fn named(&self, name: &str) -> Result<&'s Spec, String> {
        let abbreviated = |spec: &&Spec| !spec.long.is_empty() && spec.long.starts_with(name);
        let found: Vec<&Spec> = self.specs.iter().filter(abbreviated).collect();
        match found.as_slice() {
            [] => Err(format!("unrecognized option '--{name}'")),
            [one] => Ok(one),
            several => several.iter().find(|spec| spec.long == name).copied().ok_or_else(|| {
                let names: Vec<_> = several.iter().map(|spec| format!("--{}", spec.long)).collect();
                format!("option '--{name}' is ambiguous; it could be {}", names.join(", "))
            }),
        }
    }
}

impl Iterator for Options<'_> {
    /// The short name and the value, or a description of the problem.
    type Item = Result<(char, Option<String>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if !self.cluster.is_empty() {
                return Some(self.short());
            }
            let arg = self.args.next()?;
            if arg == "--" {
                return None;
            }
            if let Some(name) = arg.strip_prefix("--") {
                return Some(self.long(name));
            }
            // Words that are not options are skipped, as in memcached.
            if let Some(letters) = arg.strip_prefix('-') {
                letters.clone_into(&mut self.cluster);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: &[Spec] = &[
        Spec { short: 'p', long: "port", value: Value::Required },
        Spec { short: 'v', long: "verbose", value: Value::Optional },
        Spec { short: 'M', long: "disable-evictions", value: Value::None },
        Spec { short: 'C', long: "disable-cas", value: Value::None },
        Spec { short: 'D', long: "", value: Value::Required },
    ];

    fn read(line: &str) -> Vec<Result<(char, Option<String>), String>> {
        Options::new(SPECS, line.split(' ').map(str::to_owned).collect()).collect()
    }

    #[test]
    fn every_form_of_an_option_reads_the_same() {
        for line in ["-p 1", "-p1", "--port 1", "--port=1", "--po=1", "word -p 1 word -- -M"] {
            assert_eq!(read(line), [Ok(('p', Some("1".into())))], "{line}");
        }
        let cluster = [Ok(('v', None)), Ok(('M', None)), Ok(('p', Some("-1".into())))];
        assert_eq!(read("-vMp-1"), cluster);
        assert_eq!(read("-vMp -1"), cluster);
        assert_eq!(read("--verbose=2"), [Ok(('v', Some("2".into())))]);
    }

    #[test]
    fn what_is_no_option_is_named() {
        for (line, problem) in [
            ("-Q", "invalid option -- 'Q'"),
            ("-p", "option requires an argument -- 'p'"),
            ("--port", "option '--port' requires an argument"),
            ("--nonesuch", "unrecognized option '--nonesuch'"),
            ("--disable-cas=1", "option '--disable-cas' doesn't allow an argument"),
            (
                "--disable",
                "option '--disable' is ambiguous; it could be --disable-evictions, --disable-cas",
            ),
        ] {
            assert_eq!(read(line), [Err(problem.to_owned())], "{line}");
        }
    }
}
