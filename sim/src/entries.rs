//! A specification as a flat list of keys. Each key has its value, its line and its source. A file may name another
//! file as its `base` and then contains only what differs. The caller reads files. The `spec` of the model defines what
//! a key means.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::{Table, Value};

use crate::recording::{RECORDING_BYTES_MAX, Recording, Recordings};

/// A function that returns the text of a file. It returns an error if the file cannot be read or has more
/// than this many bytes. [`file_text`] is such a function.
pub type ReadText<'a> = &'a dyn Fn(&Path, usize) -> Result<String, String>;

/// The keys of a specification.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    map: BTreeMap<String, Entry>,
    /// The name of the specification.
    pub name: String,
    /// One sentence about the specification.
    pub about: String,
    /// The name of the specification's model. It is `accelflow` if the specification does not name one.
    pub model: String,
    /// The file that was opened. Errors name it if they belong to no line.
    file: String,
    /// The folder of the file.
    folder: PathBuf,
    recording: Option<Recording>,
}

/// The value of one key.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    kind: String,
    source: String,
    text: Arc<Text>,
}

/// A text that contains keys, with its file. Errors name the file and the line.
#[derive(Debug)]
struct Text {
    file: String,
    text: String,
}

/// An error in a specification, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct SpecError {
    /// The place of the error: `file:line`, a file, or the command line.
    pub place: String,
    /// The key, its value and the valid values.
    pub problem: String,
}

/// The kinds of sources that a number in a specification can have.
pub const KINDS: [&str; 5] = ["published", "derived", "measured", "calibrated", "assumed"];

impl SpecError {
    pub(crate) fn at(file: &str, line: usize, problem: impl Into<String>) -> Self {
        let place = if line > 0 { format!("{file}:{line}") } else { file.to_owned() };
        Self { place, problem: problem.into() }
    }
}

impl Entries {
    /// Reads the `text` of `file`. `open` returns the text of a base by its name, or an error.
    ///
    /// # Errors
    /// Returns the first error, with file, line and key.
    pub fn read(
        file: &str,
        text: &str,
        open: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, SpecError> {
        Self::read_within(file, text, open, BASES_MAX)
    }

    /// Opens the compiled-in scenario `spec`, or the file at that path. `read` returns the text of the file and of its
    /// bases. A base in the file's folder takes precedence over a compiled-in base.
    ///
    /// # Errors
    /// Returns the first error, with file, line and key.
    pub fn open(
        spec: &str,
        scenarios: &[&str],
        builtin: &dyn Fn(&str) -> Option<&'static str>,
        read: ReadText<'_>,
    ) -> Result<Self, SpecError> {
        let compiled_in = builtin(spec).filter(|_| scenarios.contains(&spec));
        let text = match compiled_in {
            Some(text) => text.to_owned(),
            None => read(Path::new(spec), SPEC_BYTES_MAX).map_err(|problem| {
                let known = scenarios.join(", ");
                SpecError::at(spec, 0, format!("{problem}; compiled in are {known}"))
            })?,
        };
        let folder = Path::new(spec).parent().filter(|_| compiled_in.is_none());
        let folder = folder.unwrap_or(Path::new(""));
        let open = |base: &str| match (read(&folder.join(base), SPEC_BYTES_MAX), builtin(base)) {
            (Ok(text), _) if compiled_in.is_none() => Ok(text),
            (_, Some(text)) => Ok(text.to_owned()),
            (result, None) => result.map_err(|problem| format!("{base}: {problem}")),
        };
        Ok(Self { folder: folder.to_owned(), ..Self::read(spec, &text, &open)? })
    }

    /// Returns the path of the recording that `load.recording` names, if arrivals are recorded. A path from a file is
    /// relative to the specification's folder. A path from the command line is used unchanged.
    pub fn recording_path(&self) -> Option<PathBuf> {
        let word = |key: &str| self.map.get(key).map(|entry| (entry, entry.value.as_str()));
        let (_, process) = word(PROCESS)?;
        let (entry, Some(name)) = word(RECORDING)? else { return None };
        let folder = if entry.text.file == COMMAND_LINE { Path::new("") } else { &self.folder };
        (process == Some(RECORDED) && !name.is_empty()).then(|| folder.join(name))
    }

    /// Loads the recording at [`Entries::recording_path`], if there is one. The recording is taken from
    /// `known`, or its text is read with `read`.
    ///
    /// # Errors
    /// Returns the problem of the recording, with its file and line.
    pub fn record(&mut self, known: &mut Recordings, read: ReadText<'_>) -> Result<(), SpecError> {
        let text = |path: &Path| {
            read(path, RECORDING_BYTES_MAX).map_err(|problem| {
                self.refuse(RECORDING, &format!("{RECORDING} {}: {problem}", path.display()))
            })
        };
        let path = self.recording_path();
        self.recording = path.map(|path| known.get_or_read(path, text)).transpose()?;
        Ok(())
    }

    /// Returns a hash of the loaded recording. The keys and this hash determine all arrivals.
    pub fn recording_hash(&self) -> Option<u64> {
        self.recording.as_ref().map(Recording::hash)
    }

    /// Returns the gaps of the loaded recording (ns), or an error if no recording is loaded.
    pub(crate) fn recorded(&self) -> Result<Arc<[f64]>, SpecError> {
        let found = self.recording.as_ref().map(Recording::gaps_ns);
        found.ok_or_else(|| {
            let (now, valid) =
                (self.map.get(RECORDING).map(|entry| entry.value.to_string()), TIMES);
            let now = now.unwrap_or_else(|| "missing".to_owned());
            self.refuse(RECORDING, &format!("{RECORDING} is {now}; it must be {valid}"))
        })
    }

    /// Takes the key of the recording's path, without reading the recording. [`Entries::record`] reads it.
    pub(crate) fn recording_key(&mut self) -> Result<(), SpecError> {
        let entry = self.take(RECORDING, &|| TIMES.to_owned())?;
        match entry.value {
            Value::String(_) => Ok(()),
            _ => Err(entry.refused(RECORDING, TIMES)),
        }
    }

    fn read_within(
        file: &str,
        text: &str,
        open: &dyn Fn(&str) -> Result<String, String>,
        bases: usize,
    ) -> Result<Self, SpecError> {
        if text.len() > SPEC_BYTES_MAX {
            let problem =
                format!("{} bytes; a specification has at most {SPEC_BYTES_MAX}", text.len());
            return Err(SpecError::at(file, 0, problem));
        }
        let table: Table = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(0, |span| 1 + text[..span.start].matches('\n').count());
            SpecError::at(file, line, error.message())
        })?;
        let text = Arc::new(Text { file: file.to_owned(), text: text.to_owned() });
        let word = |key: &str| match table.get(key) {
            None => Ok(None),
            Some(Value::String(word)) => Ok(Some(word.clone())),
            Some(other) => Err(text.wrong(key, format!("{key} is {other}; it must be a text"))),
        };
        let mut entries = match word("base")? {
            None => Self { model: MODELS[0].to_owned(), ..Self::default() },
            Some(_) if bases == 0 => {
                let problem = format!("base: more than {BASES_MAX} files build on each other");
                return Err(text.wrong("base", problem));
            }
            Some(base) => {
                let bad = |error| text.wrong("base", error);
                Self::read_within(&base, &open(&base).map_err(bad)?, open, bases - 1)?
            }
        };
        file.clone_into(&mut entries.file);
        entries.name = word("name")?.unwrap_or(entries.name);
        entries.about = word("about")?.unwrap_or(entries.about);
        entries.model = word("model")?.unwrap_or(entries.model);
        if !MODELS.contains(&entries.model.as_str()) {
            let problem =
                format!("model is {:?}; it must be {}", entries.model, MODELS.join(" or "));
            return Err(text.wrong("model", problem));
        }
        for (key, value) in &table {
            if !["base", "name", "about", "model"].contains(&key.as_str()) {
                entries.add(key, value, &text)?;
            }
        }
        Ok(entries)
    }

    fn add(&mut self, key: &str, value: &Value, text: &Arc<Text>) -> Result<(), SpecError> {
        let bad = |problem: String| Err(text.wrong(key, problem));
        let Value::Table(table) = value else {
            return bad(format!("{key} is {value}; write {{ value = {value}, kind, source }}"));
        };
        let Some(value) = table.get("value") else {
            for (inner, value) in table {
                self.add(&format!("{key}.{inner}"), value, text)?;
            }
            return Ok(());
        };
        if let Some(other) = table.keys().find(|one| !LEAF.contains(&one.as_str())) {
            return bad(format!(
                "{key} has an unknown key {other:?}; there are {}",
                LEAF.join(", ")
            ));
        }
        let word = |what: &str| table.get(what).and_then(Value::as_str).unwrap_or_default();
        let (kind, source) = (word("kind"), word("source"));
        if !KINDS.contains(&kind) {
            return bad(format!("{key}.kind is {kind:?}; it must be {}", KINDS.join(", ")));
        }
        if source.trim().is_empty() {
            return bad(format!("{key}.source is missing; say where the value comes from"));
        }
        let entry = Entry {
            value: value.clone(),
            kind: kind.to_owned(),
            source: source.to_owned(),
            text: Arc::clone(text),
        };
        self.map.insert(key.to_owned(), entry);
        Ok(())
    }

    /// Gives a key another value, as from a command line.
    ///
    /// # Errors
    /// Fails if there is no such key.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        let parsed = toml::from_str::<Table>(&format!("v = {value}"));
        let parsed = parsed.ok().and_then(|mut table| table.remove("v"));
        let value = parsed.unwrap_or_else(|| Value::String(value.to_owned()));
        let Some(entry) = self.map.get_mut(key) else {
            return Err(SpecError::at(COMMAND_LINE, 0, self.unknown(key)));
        };
        *entry = Entry {
            value,
            kind: "assumed".to_owned(),
            source: COMMAND_LINE.to_owned(),
            text: Arc::new(Text { file: COMMAND_LINE.to_owned(), text: String::new() }),
        };
        Ok(())
    }

    /// Returns every key with its value, kind and source, in order.
    pub fn sources(&self) -> impl Iterator<Item = (&str, String, &str, &str)> {
        self.map.iter().map(|(key, entry)| {
            (key.as_str(), entry.value.to_string(), entry.kind.as_str(), entry.source.as_str())
        })
    }

    pub(crate) fn number(&mut self, key: &str, low: f64, high: f64) -> Result<f64, SpecError> {
        let valid = || format!("a number from {low} to {high}");
        let entry = self.take(key, &valid)?;
        let whole = entry.value.as_integer().map(|whole| whole as f64);
        let number = entry.value.as_float().or(whole);
        match number.filter(|number| *number >= low && *number <= high) {
            Some(number) => Ok(number),
            None => Err(entry.refused(key, &valid())),
        }
    }

    pub(crate) fn whole(&mut self, key: &str, low: u32, high: u32) -> Result<u32, SpecError> {
        let valid = || format!("a whole number from {low} to {high}");
        let entry = self.take(key, &valid)?;
        let number = entry.value.as_integer().and_then(|number| u32::try_from(number).ok());
        match number.filter(|number| (low..=high).contains(number)) {
            Some(number) => Ok(number),
            None => Err(entry.refused(key, &valid())),
        }
    }

    /// Takes a key whose value is one of `words` and returns the index of that word.
    pub(crate) fn word(&mut self, key: &str, words: &[&str]) -> Result<usize, SpecError> {
        let entry = self.take(key, &|| words.join(", "))?;
        let found = entry.value.as_str().and_then(|text| words.iter().position(|one| *one == text));
        found.ok_or_else(|| entry.refused(key, &words.join(", ")))
    }

    /// Takes a key whose value is a list, and makes each item with `item`.
    pub(crate) fn list<T>(
        &mut self,
        key: &str,
        valid: &str,
        item: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, SpecError> {
        let entry = self.take(key, &|| valid.to_owned())?;
        let items = entry.value.as_array().filter(|items| items.len() <= LIST_MAX);
        let items = items.and_then(|items| {
            items.iter().map(|one| one.as_str().and_then(&item)).collect::<Option<Vec<T>>>()
        });
        items.ok_or_else(|| entry.refused(key, valid))
    }

    /// Returns the second word of every key under `section`, without duplicates. Dots separate words.
    pub(crate) fn names(&self, section: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for key in self.map.keys() {
            let mut parts = key.splitn(3, '.');
            if parts.next() == Some(section) {
                names.extend(parts.next().map(str::to_owned));
            }
        }
        names.dedup();
        names
    }

    /// Returns the last word of every key directly under `section`. Dots separate words.
    pub(crate) fn below(&self, section: &str) -> Vec<String> {
        let inner = |key: &String| {
            let rest = key.strip_prefix(section)?.strip_prefix('.')?;
            (!rest.contains('.')).then(|| rest.to_owned())
        };
        self.map.keys().filter_map(inner).collect()
    }

    /// Returns an error about a key's value, with its place.
    pub(crate) fn refuse(&self, key: &str, problem: &str) -> SpecError {
        match self.map.get(key) {
            Some(entry) => entry.text.wrong(key, problem),
            None => SpecError::at(&self.file, 0, problem),
        }
    }

    /// Refuses keys that were not taken.
    pub(crate) fn finish(self, known: &Entries) -> Result<(), SpecError> {
        match self.map.first_key_value() {
            None => Ok(()),
            Some((key, entry)) => {
                let problem = format!("unknown key {key}; {}", known.hint(key));
                Err(entry.text.wrong(key, problem))
            }
        }
    }

    fn take(&mut self, key: &str, valid: &dyn Fn() -> String) -> Result<Entry, SpecError> {
        let missing = || format!("{key} is missing; it must be {}", valid());
        self.map.remove(key).ok_or_else(|| SpecError::at(&self.file, 0, missing()))
    }

    fn unknown(&self, key: &str) -> String {
        format!("unknown key {key}; {}", self.hint(key))
    }

    /// Returns a hint for an unknown key: the most similar key, all keys of its section, and the sections.
    fn hint(&self, key: &str) -> String {
        let others = self.map.keys().map(String::as_str).filter(|other| *other != key);
        let distance = |other: &&str| match split(other).1 == split(key).1 {
            true => 1,
            false => strsim::damerau_levenshtein(other, key),
        };
        let Some(nearest) = others.clone().min_by_key(distance) else {
            return "there are no keys".to_owned();
        };
        let is_near = distance(&nearest) <= TYPOS_MAX;
        let meant = if is_near { format!("did you mean {nearest}? ") } else { String::new() };
        let has_section = others.clone().any(|other| split(other).0 == split(key).0);
        let section = split(if has_section { key } else { nearest }).0;
        let keys: Vec<&str> = others
            .clone()
            .map(split)
            .filter(|(other, _)| *other == section)
            .map(|(_, last)| last)
            .collect();
        let sections: BTreeSet<&str> = others.map(|other| split(other).0).collect();
        let sections = Vec::from_iter(sections).join(", ");
        format!("{meant}{section} has {}; there are the sections {sections}", keys.join(", "))
    }
}

/// Returns a key's section and its last word.
fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('.').unwrap_or(("", key))
}

impl Entry {
    pub(crate) fn refused(&self, key: &str, valid: &str) -> SpecError {
        self.text.wrong(key, format!("{key} is {}; it must be {valid}", self.value))
    }
}

impl Text {
    /// Returns an error about a key, with the key's line. The line is searched only here, because most keys
    /// of a text are valid.
    fn wrong(&self, key: &str, problem: impl Into<String>) -> SpecError {
        SpecError::at(&self.file, line_of(&self.text, key), problem)
    }
}

/// Returns the text of a file.
///
/// # Errors
/// Fails if the file cannot be read or has more than `bytes_max` bytes.
pub fn file_text(path: &Path, bytes_max: usize) -> Result<String, String> {
    text_within(File::open(path).map_err(|error| error.to_string())?, bytes_max)
}

/// Returns the text of `from`. If there are more than `bytes_max` bytes, it refuses the text and does not read the
/// rest.
fn text_within(from: impl Read, bytes_max: usize) -> Result<String, String> {
    let mut text = String::new();
    let read = from.take(bytes_max as u64 + 1).read_to_string(&mut text);
    match read.map_err(|error| error.to_string())? {
        read if read > bytes_max => Err(format!("more than {bytes_max} bytes, which is the most")),
        _ => Ok(text),
    }
}

/// Returns the number of the line that gives `key` a value (`key = value`), or of the line with which the section `key`
/// begins (`[key]`). Returns 0 if there is no such line, for example because the value is in an inline table.
fn line_of(text: &str, key: &str) -> usize {
    let mut section = String::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            section = format!("{}.", name.trim());
            if name.trim() == key {
                return index + 1;
            }
        } else if let Some((name, _)) = line.split_once('=')
            && format!("{section}{}", name.trim()) == key
        {
            return index + 1;
        }
    }
    0
}

/// The names of the models. A specification that names no model is for the first one.
const MODELS: [&str; 3] = ["accelflow", "arcalis", "relief"];
const LEAF: [&str; 3] = ["value", "kind", "source"];
const COMMAND_LINE: &str = "command line";
/// The largest size of a specification and of each of its bases, in bytes.
const SPEC_BYTES_MAX: usize = 1 << 20;
const PROCESS: &str = "load.process";
const RECORDED: &str = "recorded";
const RECORDING: &str = "load.recording";
const TIMES: &str = "the path of a text of ascending times (us), one a line";
const BASES_MAX: usize = 4;
const LIST_MAX: usize = 64;
/// The greatest edit distance at which a known key is suggested for an unknown one.
const TYPOS_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str =
        "name = \"one\"\n[a]\nx = { value = 3, kind = \"assumed\", source = \"s\" }\n";

    fn read(text: &str) -> Result<Entries, SpecError> {
        Entries::read("own.toml", text, &|name| match name {
            "base.toml" => Ok(BASE.to_owned()),
            "ring.toml" => Ok("base = \"ring.toml\"".to_owned()),
            _ => Err(format!("{name}: there is no such file")),
        })
    }

    #[test]
    fn a_file_says_what_differs_from_its_base() {
        let text =
            "base = \"base.toml\"\n\n[a]\nx = { value = 9, kind = \"derived\", source = \"t\" }";
        let mut entries = read(text).expect("valid");
        assert_eq!(entries.name, "one");
        let error = entries.clone().number("a.x", 0.0, 5.0).expect_err("too large");
        assert_eq!(error.to_string(), "own.toml:4: a.x is 9; it must be a number from 0 to 5");
        entries.set("a.x", "4").expect("it is there");
        assert_eq!(entries.number("a.x", 0.0, 5.0), Ok(4.0));
    }

    #[test]
    fn what_is_missing_is_said_with_its_file_and_range() {
        let mut entries = read("base = \"base.toml\"").expect("valid");
        let error = entries.number("a.y", 0.0, 5.0).expect_err("it is in no file").to_string();
        assert_eq!(error, "own.toml: a.y is missing; it must be a number from 0 to 5");
        let error = entries.word("a.w", &["one", "two"]).expect_err("nor is this").to_string();
        assert_eq!(error, "own.toml: a.w is missing; it must be one, two");
    }

    #[test]
    fn texts_without_end_are_read_up_to_a_bound() {
        let error = text_within(std::io::repeat(b'a'), 1_000).expect_err("endless");
        assert_eq!(error, "more than 1000 bytes, which is the most");
        assert_eq!(text_within(&b"abc"[..], 3), Ok("abc".to_owned()));
        assert!(text_within(&[0xff][..], 3).is_err(), "no text");
    }

    #[test]
    fn a_recording_is_found_beside_the_file_that_names_it() {
        let text = "[load]\n\
                   process = { value = \"recorded\", kind = \"assumed\", source = \"s\" }\n\
                   recording = { value = \"a.txt\", kind = \"assumed\", source = \"s\" }";
        let files = |path: &Path, _: usize| match path.to_str() {
            Some("in/own.toml") => Ok(text.to_owned()),
            Some("in/a.txt") => Ok("0\n1\n3\n".to_owned()),
            Some("b.txt") => Ok("0\n1\n1x\n".to_owned()),
            _ => Err("there is no such file".to_owned()),
        };
        let mut entries = Entries::open("in/own.toml", &[], &|_| None, &files).expect("valid");
        assert!(entries.recorded().is_err(), "nobody has read it");
        let mut known = Recordings::default();
        entries.record(&mut known, &files).expect("two gaps");
        assert_eq!(*entries.recorded().expect("they are here"), [1_000.0, 2_000.0]);
        let first = entries.recording_hash();
        let mut fault = |name: &str| {
            entries.set(RECORDING, name).expect("a key");
            entries.record(&mut Recordings::default(), &files).expect_err(name).to_string()
        };
        assert!(fault("b.txt").starts_with("b.txt:3: \"1x\" is no time"), "{}", fault("b.txt"));
        let error = fault("c.txt");
        assert_eq!(error, "command line: load.recording c.txt: there is no such file");
        entries.set(PROCESS, "poisson").expect("a key");
        assert_eq!(entries.record(&mut known, &files), Ok(()), "nobody wants it");
        assert!(first.is_some() && entries.recording_hash().is_none());
    }

    #[test]
    fn an_unknown_key_is_answered_with_the_nearest_one() {
        let leaf = "{ value = 1, kind = \"assumed\", source = \"s\" }";
        let keys = ["hardware.pes", "hardware.cores", "costs.manager_ns", "run.requests"];
        let text: String = keys.iter().map(|key| format!("{key} = {leaf}\n")).collect();
        let unknown =
            |key: &str| read(&text).expect("valid").set(key, "3").expect_err(key).to_string();
        let sections = "there are the sections costs, hardware, run";
        for (key, hint) in [
            ("hardware.pess", "did you mean hardware.pes? hardware has cores, pes"),
            ("hardwar.pse", "did you mean hardware.pes? hardware has cores, pes"),
            ("costs.pes", "did you mean hardware.pes? costs has manager_ns"),
            ("run.something", "run has requests"),
        ] {
            assert_eq!(
                unknown(key),
                format!("command line: unknown key {key}; {hint}; {sections}")
            );
        }
    }

    #[test]
    fn faults_say_where_they_are() {
        let bad = [
            ("[a\n", "own.toml:1: "),
            ("[a]\nx = 3", "own.toml:2: a.x is 3; write { value = 3, kind, source }"),
            (
                "[a]\nx = { value = 1, kind = \"guess\" }",
                "own.toml:2: a.x.kind is \"guess\"; it must",
            ),
            ("[a]\nx = { value = 1, kind = \"assumed\" }", "own.toml:2: a.x.source is missing"),
            ("[a]\nx = { value = 1, knd = 2 }", "own.toml:2: a.x has an unknown key \"knd\""),
            ("base = \"none.toml\"", "own.toml:1: none.toml: there is no such file"),
            ("base = 3", "own.toml:1: base is 3; it must be a text"),
            ("name = \"x\"\nmodel = \"y\"", "own.toml:2: model is \"y\"; it must be accelflow or"),
            ("base = \"ring.toml\"", "ring.toml:1: base: more than 4 files"),
        ];
        for (text, expected) in bad {
            let error = read(text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let error = read(BASE).expect("valid").set("a.y", "1").expect_err("unknown").to_string();
        assert_eq!(
            error,
            "command line: unknown key a.y; did you mean a.x? a has x; there are the sections a"
        );
    }
}
