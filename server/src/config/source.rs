//! Reads a configuration from its sources. A later source overrides an earlier one. One function per source turns its
//! content into settings of known keys, and reports errors.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::error::{ConfigError, Origin};
use super::keys::{Key, Kind, keys, restart};
use super::schema::Config;
use super::{to_table, validate};

/// The environment variable that names a configuration file. A `--config` flag overrides it.
pub const FILE_VARIABLE: &str = "REBATE_CONFIG";

/// The sources of values. Later fields override earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The values of keys that no other source sets.
    pub defaults: Config,
    /// The file of `--config`. If it is `None`, the file that [`FILE_VARIABLE`] names is read.
    pub file: Option<PathBuf>,
    /// The environment variables of the process. Only names that start with `REBATE_` are read.
    pub environment: Vec<(String, String)>,
    /// The flags in the order given. The last flag for a key wins.
    pub flags: Vec<Flag>,
}

/// A command-line flag that sets a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The name of the flag in messages, such as `--listen`.
    pub name: String,
    /// The key that the flag sets, such as `server.listen`.
    pub key: String,
    /// The value as text; lists are separated by commas.
    pub value: String,
}

/// A configuration with the origin of every key.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The effective values, which are validated.
    pub config: Config,
    /// Warnings about values that the next version will refuse, each with the source of the value.
    pub warnings: Vec<String>,
    origins: BTreeMap<&'static str, Origin>,
}

impl Loaded {
    /// Returns the source of the value of `key`.
    pub fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }
}

/// Reads and combines all sources. Returns all errors at once.
pub fn load(sources: &Sources) -> Result<Loaded, Vec<ConfigError>> {
    let mut errors = Vec::new();
    let mut settings = Vec::new();
    let mut warnings = Vec::new();
    if let Some(path) = file_path(sources) {
        settings.extend(from_file(&path, &mut errors));
    }
    settings.extend(from_environment(&sources.environment, &mut errors));
    settings.extend(from_flags(&sources.flags, &mut errors));

    let mut table = to_table(&sources.defaults).map_err(|error| vec![error])?;
    let mut origins = BTreeMap::new();
    for setting in settings {
        warnings.extend(setting.warning);
        let advice = setting.key.advice(&setting.value);
        warnings.extend(
            advice.map(|advice| format!("{}: {}: {advice}", setting.origin, setting.key.name)),
        );
        origins.insert(setting.key.name, setting.origin);
        insert(&mut table, setting.key, setting.value);
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    if origins.contains_key("server.unix_socket") && !origins.contains_key("server.listen") {
        turn_tcp_off(&mut table);
    }
    let config = Config::deserialize(Value::Table(table))
        .map_err(|error| vec![ConfigError::new(None, Origin::Default, error.message())])?;
    let loaded = Loaded { config, warnings, origins };
    let errors: Vec<_> = validate(&loaded.config)
        .into_iter()
        .map(|error| error.placed(|key| loaded.origin(key).clone()))
        .collect();
    if errors.is_empty() { Ok(loaded) } else { Err(errors) }
}

/// Clears `server.listen`. As in memcached, TCP is off if only a Unix socket is configured.
fn turn_tcp_off(table: &mut Table) {
    if let Some(key) = Key::named("server.listen") {
        insert(table, key, Value::Array(Vec::new()));
    }
}

fn insert(table: &mut Table, key: &Key, value: Value) {
    let section = table.entry(key.section()).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(section) = section {
        section.insert(key.field().to_owned(), value);
    }
}

/// A valid value of a key from one source.
struct Setting {
    key: &'static Key,
    value: Value,
    origin: Origin,
    /// The warning about the old name, if the source uses it.
    warning: Option<String>,
}

/// Returns the configuration file to read, if any.
fn file_path(sources: &Sources) -> Option<PathBuf> {
    let named = |(name, path): &(String, String)| {
        (name == FILE_VARIABLE && !path.is_empty()).then(|| PathBuf::from(path))
    };
    sources.file.clone().or_else(|| sources.environment.iter().find_map(named))
}

/// Returns the settings of a TOML file.
fn from_file(path: &Path, errors: &mut Vec<ConfigError>) -> Vec<Setting> {
    let place = |line| Origin::File { path: path.to_owned(), line };
    let text = match read_bounded(path) {
        Ok(text) => text,
        Err(problem) => {
            errors.push(ConfigError::new(None, place(None), &problem));
            return Vec::new();
        }
    };
    // The text is parsed twice: once for the values, and once for their lines.
    let (values, spans) = match (text.parse::<Table>(), DeTable::parse(&text)) {
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
        let is_known = section == OLD_SECTION || keys().any(|key| key.section() == section);
        if !is_known && fields.is_empty() {
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
    prefer_new_names(&mut settings);
    settings
}

/// Returns the settings of environment variables named `REBATE_SECTION__FIELD`.
fn from_environment(
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
            // Other names are ignored: Kubernetes sets REBATE_PORT and others for a service named rebate.
            None => {
                let meant = keys().find(|key| key.name.replace('.', "_") == rest);
                if let Some(key) = meant {
                    let hint = variable_of(key);
                    let problem = format!("sets nothing; did you mean {hint}?");
                    errors.push(ConfigError::new(None, origin, &problem));
                }
            }
        }
    }
    prefer_new_names(&mut settings);
    settings
}

/// Returns the settings of flags.
fn from_flags(flags: &[Flag], errors: &mut Vec<ConfigError>) -> Vec<Setting> {
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
    if name == KETAMA_WEIGHTED.name {
        return from_ketama_weighted(origin, errors, value);
    }
    if let Some(instead) = removed(name) {
        let problem = format!("{name} is no longer a key: {instead}");
        errors.push(ConfigError::new(None, origin, &problem));
        return None;
    }
    let old_key = name.strip_prefix(OLD_SECTION).filter(|rest| rest.starts_with('.'));
    let new_name = old_key.map(|rest| format!("{NEW_SECTION}{rest}"));
    let Some(key) = Key::named(new_name.as_deref().unwrap_or(name)) else {
        errors.push(unknown(name, origin));
        return None;
    };
    match value(key) {
        Ok(mut value) => {
            let old_key = old_key.map(|_| match &origin {
                Origin::Flag(flag) if flag != "--set" => flag.replacen("--trace", "--program", 1),
                Origin::Environment(_) => variable_of(key),
                _ => key.name.to_owned(),
            });
            let new_name = old_key.or_else(|| rename_role(key, &mut value));
            let warning =
                new_name.map(|name| format!("{origin}: {name} is the new name; the old one goes"));
            Some(Setting { key, value, origin, warning })
        }
        Err(problem) => {
            errors.push(ConfigError::new(Some(key.name), origin, &problem));
            None
        }
    }
}

/// Returns the setting of `store.distribution` that stands for the switch `store.ketama_weighted`.
fn from_ketama_weighted(
    origin: Origin,
    errors: &mut Vec<ConfigError>,
    value: impl FnOnce(&Key) -> Result<Value, String>,
) -> Option<Setting> {
    let is_weighted = match value(&KETAMA_WEIGHTED) {
        Ok(value) => value.as_bool() == Some(true),
        Err(problem) => {
            errors.push(ConfigError::new(Some(KETAMA_WEIGHTED.name), origin, &problem));
            return None;
        }
    };
    let key = Key::named("store.distribution")?;
    let word = if is_weighted { "ketama-weighted" } else { "ketama" };
    let new_name = match &origin {
        Origin::Environment(_) => variable_of(key),
        _ => key.name.to_owned(),
    };
    let warning = format!("{origin}: {new_name} = {word:?} is the new name; the old one goes");
    Some(Setting { key, value: Value::from(word), origin, warning: Some(warning) })
}

/// Sorts settings so that, within a source, a new name overrides the old name.
fn prefer_new_names(settings: &mut [Setting]) {
    settings.sort_by_key(|setting| setting.warning.is_none());
}

/// Replaces the old name of a role in `server.roles`. Returns the new name if the value had the old one.
fn rename_role(key: &Key, value: &mut Value) -> Option<String> {
    let roles = value.as_array_mut().filter(|_| key.name == "server.roles")?;
    let old = roles.iter_mut().find(|role| role.as_str() == Some(OLD_SECTION))?;
    *old = Value::String(NEW_SECTION.to_owned());
    Some(NEW_SECTION.to_owned())
}

/// Returns what to do instead of setting a key that earlier versions had.
fn removed(name: &str) -> Option<&'static str> {
    REMOVED.iter().find(|(old, _)| *old == name).map(|(_, instead)| *instead)
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

/// Returns the text of the file. Fails if the file is longer than [`FILE_BYTES_MAX`].
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

/// The old name of the section and role `programs`. It is still accepted in this version, with a warning.
pub(super) const OLD_SECTION: &str = "traces";
pub(super) const NEW_SECTION: &str = "programs";

/// A switch that `store.distribution` has replaced. It is still accepted in this version, with a warning.
const KETAMA_WEIGHTED: Key = restart("store.ketama_weighted", Kind::Switch);

/// The keys that are gone, and what to write instead.
const REMOVED: [(&str, &str); 2] =
    [("programs.secrets_file", SECRETS_INSTEAD), ("traces.secrets_file", SECRETS_INSTEAD)];

const SECRETS_INSTEAD: &str = "callers of programs are known by their certificates; begin \
    programs.listen with tls://, set tls.cert_file, tls.ca_file and tls.client_auth, and name the \
    callers in server.access_file, whose roles have tenants";

const FILE_BYTES_MAX: u64 = 1 << 20;
