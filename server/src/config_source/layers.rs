//! One function per source: each turns what it finds into settings of known keys, and says what it cannot use.

use std::io::Read;
use std::path::{Path, PathBuf};

use toml::Value;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Origin};
use super::keys::{KEYS, Key};
use super::{FILE_VARIABLE, Flag, Sources};

/// One key set by one source, of the right kind and in range.
pub(super) struct Setting {
    pub(super) key: &'static Key,
    pub(super) value: Value,
    pub(super) origin: Origin,
}

/// The configuration file to read, if any.
pub(super) fn file_path(sources: &Sources) -> Option<PathBuf> {
    let named = |(name, path): &(String, String)| {
        (name == FILE_VARIABLE && !path.is_empty()).then(|| PathBuf::from(path))
    };
    sources.file.clone().or_else(|| sources.environment.iter().find_map(named))
}

/// The settings of a TOML file.
pub(super) fn from_file(path: &Path, errors: &mut Vec<ConfigError>) -> Vec<Setting> {
    let place = |line| Origin::File { path: path.to_owned(), line };
    let text = match read_bounded(path) {
        Ok(text) => text,
        Err(problem) => {
            errors.push(ConfigError::new(None, place(None), &problem));
            return Vec::new();
        }
    };
    // Parsed twice: once for values, once for where they stand.
    let (values, spans) = match (text.parse::<toml::Table>(), DeTable::parse(&text)) {
        (Ok(values), Ok(spans)) => (values, spans.into_inner()),
        (Err(error), _) | (_, Err(error)) => {
            let line = error.span().map(|span| line_of(&text, span.start));
            errors.push(ConfigError::new(None, place(line), error.message()));
            return Vec::new();
        }
    };
    let mut settings = Vec::new();
    for (section, value) in values {
        let line = key_line(&text, &spans, &section);
        let Value::Table(fields) = value else {
            errors.push(unknown(&section, place(line)));
            continue;
        };
        if !KEYS.iter().any(|key| key.section() == section) && fields.is_empty() {
            errors.push(unknown(&section, place(line)));
        }
        let inner = spans.get(section.as_str()).and_then(|value| match value.get_ref() {
            DeValue::Table(inner) => Some(inner),
            _ => None,
        });
        for (field, value) in fields {
            let line = inner.and_then(|inner| key_line(&text, inner, &field)).or(line);
            let name = format!("{section}.{field}");
            let check = |key: &Key| key.check(&value).map(|()| value.clone());
            settings.extend(setting(&name, place(line), errors, check));
        }
    }
    settings
}

/// The settings of environment variables named `REBATE_SECTION__FIELD`.
pub(super) fn from_environment(
    environment: &[(String, String)],
    errors: &mut Vec<ConfigError>,
) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (variable, text) in environment {
        let Some(rest) = variable.strip_prefix("REBATE_") else { continue };
        let origin = Origin::Environment(variable.clone());
        let rest = rest.to_ascii_lowercase();
        match rest.split_once("__") {
            Some((section, field)) => {
                let name = format!("{section}.{field}");
                settings.extend(setting(&name, origin, errors, |key| key.read(text)));
            }
            // Other names are left alone: a cluster sets REBATE_PORT and the like for a service of our name.
            None => {
                let meant = KEYS.iter().find(|key| key.name.replace('.', "_") == rest);
                if let Some(key) = meant {
                    let hint = variable_of(key);
                    let problem = format!("sets nothing; did you mean {hint}?");
                    errors.push(ConfigError::new(None, origin, &problem));
                }
            }
        }
    }
    settings
}

/// The settings of flags.
pub(super) fn from_flags(flags: &[Flag], errors: &mut Vec<ConfigError>) -> Vec<Setting> {
    let read = |flag: &Flag| {
        let origin = Origin::Flag(flag.name.clone());
        setting(&flag.key, origin, errors, |key| key.read(&flag.value))
    };
    flags.iter().filter_map(read).collect()
}

fn setting(
    name: &str,
    origin: Origin,
    errors: &mut Vec<ConfigError>,
    value: impl FnOnce(&Key) -> Result<Value, String>,
) -> Option<Setting> {
    let Some(key) = Key::named(name) else {
        errors.push(unknown(name, origin));
        return None;
    };
    match value(key) {
        Ok(value) => Some(Setting { key, value, origin }),
        Err(problem) => {
            errors.push(ConfigError::new(Some(key.name), origin, &problem));
            None
        }
    }
}

fn unknown(name: &str, origin: Origin) -> ConfigError {
    let hint = match Key::nearest(name) {
        Some(key) => format!("did you mean {}?", key.name),
        None => "--print-config lists every key".to_owned(),
    };
    ConfigError::new(None, origin, &format!("unknown key {name:?}; {hint}"))
}

fn variable_of(key: &Key) -> String {
    format!("REBATE_{}", key.name.replace('.', "__").to_ascii_uppercase())
}

fn key_line(text: &str, table: &DeTable<'_>, name: &str) -> Option<usize> {
    let (key, _) = table.get_key_value(name)?;
    Some(line_of(text, key.span().start))
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    1 + memchr::memchr_iter(b'\n', before).count()
}

/// The file's text; a configuration beyond [`FILE_BYTES_MAX`] is some other file.
fn read_bounded(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| format!("cannot read it: {error}"))?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| format!("cannot read it: {error}"))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is larger than {FILE_BYTES_MAX} bytes: no configuration"));
    }
    Ok(text)
}

const FILE_BYTES_MAX: u64 = 1 << 20;
