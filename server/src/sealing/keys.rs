//! The file with the keys of sealed values (`values.keys`). It is read again when it changes, and a file with any
//! mistake changes nothing. Its text is wiped after it was read, and no error shows any of it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ::tls::Stamps;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use device::cipher::{KEY_BYTES, KEY_CHECK_BYTES};
use device::{Key, KeyName};
use parking_lot::{Mutex, RwLock};
use ring::digest::{self, SHA256, digest};
use serde::Deserialize;
use serde::de::{Error, Visitor};
use store::frame::KeyId;
use zeroize::{Zeroize, Zeroizing};

use crate::access::{problem_without_text, warn_if_readable};
use crate::config::Config;
use crate::counters::{Control, Counter};

/// Expands a key, into memory that core dumps leave out if the platform can do this.
pub(crate) type GuardKey = fn(&[u8; KEY_BYTES]) -> io::Result<Key>;

/// Checks the file of keys that the configuration names.
///
/// # Errors
/// Describes what is wrong, with the key and the path.
pub fn check(config: &Config) -> Result<(), String> {
    // A check needs no key, and leaves none in memory.
    ValueKeys::open(config, |_| Ok(Key::new(&[0; KEY_BYTES]))).map(drop)
}

/// The keys of a process, in the version that was read last.
pub(crate) struct ValueKeys {
    path: PathBuf,
    guard: GuardKey,
    current: RwLock<Arc<KeyRing>>,
    /// The number of times that the keys were replaced. Workers look at it before they use their copy.
    version: AtomicU64,
    /// The state of the file at the last attempt to read it.
    tried: Mutex<Stamps>,
}

/// The keys with which values are opened, and the one with which they are sealed.
pub(crate) struct KeyRing {
    active: usize,
    keys: Vec<SealKey>,
}

/// A key with its id.
pub(crate) struct SealKey {
    pub(crate) id: KeyId,
    pub(crate) key: Key,
    /// Tells whether the file has another secret under the same id. It does not tell the secret.
    fingerprint: [u8; 32],
    pub(crate) usage: Arc<KeyUsage>,
}

/// What this process has sealed with a key.
#[derive(Default)]
pub(crate) struct KeyUsage {
    pub(crate) values: Counter,
    pub(crate) bytes: Counter,
    warned: AtomicBool,
}

impl KeyUsage {
    /// Counts a value. Logs once when this process alone has used up a good part of what one key may seal.
    pub(crate) fn count(&self, id: KeyId, bytes: usize) {
        self.values.up();
        self.bytes.add(bytes as u64);
        if self.bytes.read() >= ROTATE_AFTER_BYTES && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "values.keys: this process has sealed 1 PiB with key {id}: make a new key and \
                 rotate to it"
            );
        }
    }
}

impl KeyRing {
    pub(crate) fn active(&self) -> &SealKey {
        &self.keys[self.active]
    }

    pub(crate) fn find(&self, id: KeyId) -> Option<&SealKey> {
        self.keys.iter().find(|key| key.id == id)
    }

    pub(crate) fn all(&self) -> &[SealKey] {
        &self.keys
    }
}

impl ValueKeys {
    /// Reads the file that the configuration names, if it names one.
    ///
    /// # Errors
    /// Describes what is wrong, with the key and the path.
    pub(crate) fn open(config: &Config, guard: GuardKey) -> Result<Option<Self>, String> {
        let Some(path) = &config.values.keys else { return Ok(None) };
        let tried = Mutex::new(Stamps::of([path]));
        let ring = read(path, guard, None).map_err(|problem| format!("values.keys: {problem}"))?;
        let (current, version) = (RwLock::new(Arc::new(ring)), AtomicU64::new(0));
        Ok(Some(Self { path: path.clone(), guard, current, version, tried }))
    }

    pub(crate) fn current(&self) -> Arc<KeyRing> {
        Arc::clone(&self.current.read())
    }

    /// Returns a number that differs after the keys were replaced.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Reads the file again. Counts and logs the result.
    pub(crate) fn reload(&self, control: &Control) {
        let mut tried = self.tried.lock();
        *tried = Stamps::of([&self.path]);
        match read(&self.path, self.guard, Some(&self.current())) {
            Ok(ring) => {
                let ids: Vec<_> = ring.all().iter().map(|key| key.id.to_string()).collect();
                let active = ring.active().id;
                tracing::info!(%active, keys = ids.join(","), "values.keys were read again");
                *self.current.write() = Arc::new(ring);
                self.version.fetch_add(1, Ordering::Release);
                control.value_key_reloads.up();
            }
            Err(problem) => {
                control.value_key_reloads_failed.up();
                tracing::error!("values.keys were not read again, the old ones stay: {problem}");
            }
        }
    }

    /// Reads the file again whenever it has changed, for as long as the future is polled.
    pub(crate) async fn watch(self: &Arc<Self>, control: &Arc<Control>) {
        loop {
            tokio::time::sleep(WATCH_EVERY).await;
            let (keys, control) = (Arc::clone(self), Arc::clone(control));
            // A disk that hangs must not keep the thread from its other tasks.
            let looked = tokio::task::spawn_blocking(move || {
                let has_changed = Stamps::of([&keys.path]) != *keys.tried.lock();
                if has_changed {
                    keys.reload(&control);
                }
            });
            let _ = looked.await;
        }
    }
}

/// The file, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    active: u16,
    key: Vec<WrittenKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKey {
    id: u16,
    secret: Secret,
}

/// A secret, which is wiped when it is dropped. It is in a box, so that no copies stay behind when it is moved.
struct Secret(Box<Zeroizing<[u8; KEY_BYTES]>>);

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Base64;
        impl Visitor<'_> for Base64 {
            type Value = Secret;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text of 32 bytes in base64, such as `openssl rand -base64 32` makes")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Secret, E> {
                let mut decoded = Zeroizing::new([0; DECODED_BYTES_MAX]);
                let bytes = BASE64_STANDARD.decode_slice(text, &mut decoded[..]).map_err(|_| {
                    E::custom("a secret is not base64; give 32 bytes in base64, 44 characters")
                })?;
                if bytes != KEY_BYTES {
                    return Err(E::custom(format!(
                        "a secret has {bytes} bytes; give {KEY_BYTES} in base64, 44 characters"
                    )));
                }
                let mut secret = Secret(Box::new(Zeroizing::new([0; KEY_BYTES])));
                secret.0.copy_from_slice(&decoded[..KEY_BYTES]);
                Ok(secret)
            }

            fn visit_string<E: Error>(self, mut text: String) -> Result<Secret, E> {
                let secret = self.visit_str(&text);
                text.zeroize();
                secret
            }
        }
        from.deserialize_str(Base64)
    }
}

/// Reads the keys, and overwrites the part of the stack on which this has left copies of secrets.
fn read(path: &Path, guard: GuardKey, old: Option<&KeyRing>) -> Result<KeyRing, String> {
    let ring = read_and_parse(path, guard, old);
    overwrite_stack();
    ring
}

#[inline(never)]
fn overwrite_stack() {
    let mut used = [0xA5_u8; STACK_BYTES];
    used.zeroize();
    std::hint::black_box(&used);
}

/// Reads the keys. A key that `old` has too keeps its counts.
#[inline(never)]
fn read_and_parse(path: &Path, guard: GuardKey, old: Option<&KeyRing>) -> Result<KeyRing, String> {
    let named = |problem: String| format!("{}: {problem}", path.display());
    let text = read_text(path).map_err(|error| named(error.to_string()))?;
    let ring = parse(&text, guard, old).map_err(named)?;
    warn_if_readable(path);
    Ok(ring)
}

/// Returns the text of the file in memory that is wiped and never moved.
fn read_text(path: &Path) -> io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::with_capacity(FILE_BYTES_MAX as usize + 64));
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(io::Error::other(format!("longer than {FILE_BYTES_MAX} bytes"))),
        false => Ok(text),
    }
}

fn parse(text: &str, guard: GuardKey, old: Option<&KeyRing>) -> Result<KeyRing, String> {
    let Written { active, key } = toml::from_str(text).map_err(|error| {
        let problem = problem_without_text(text, &error);
        // The name of an unknown key may be a secret at the wrong place.
        match problem.split_once(": unknown field") {
            Some((line, _)) => format!("{line}: a name that is not known; {FORM}"),
            None => problem,
        }
    })?;
    if key.len() > KEYS_MAX {
        return Err(format!("has {} keys; give 1 to {KEYS_MAX}", key.len()));
    }
    let mut keys: Vec<SealKey> = Vec::with_capacity(key.len());
    for WrittenKey { id, secret } in key {
        let id = KeyId::new(id).ok_or("id = 0 is not valid; give a number from 1 to 65535")?;
        let Secret(secret) = secret;
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest(&SHA256, &secret[..]).as_ref());
        if keys.iter().any(|key| key.id == id) {
            return Err(format!("key {id} is there twice"));
        }
        if keys.iter().any(|key| key.fingerprint == fingerprint) {
            return Err(format!("key {id} has the same secret as another key"));
        }
        let before = old.and_then(|old| old.find(id));
        if before.is_some_and(|before| before.fingerprint != fingerprint) {
            return Err(format!(
                "key {id} has another secret than before: give a new secret a new id"
            ));
        }
        let key = match before {
            Some(before) => before.key.clone(),
            None => expanded(&secret, id, guard).with_name(key_name(id, &secret)),
        };
        let usage = before.map(|before| Arc::clone(&before.usage)).unwrap_or_default();
        keys.push(SealKey { id, key, fingerprint, usage });
    }
    let active = keys
        .iter()
        .position(|key| key.id.get() == active)
        .ok_or_else(|| format!("active = {active}, and there is no key with this id; {FORM}"))?;
    Ok(KeyRing { active, keys })
}

/// Returns the name of a key towards services that may have the same one. docs/operating/sealed.md has what it tells.
fn key_name(id: KeyId, secret: &[u8; KEY_BYTES]) -> KeyName {
    let mut digest = digest::Context::new(&SHA256);
    digest.update(KEY_CHECK_LABEL);
    digest.update(secret);
    let mut check = [0; KEY_CHECK_BYTES];
    check.copy_from_slice(&digest.finish().as_ref()[..KEY_CHECK_BYTES]);
    KeyName { id: id.get(), check }
}

/// What is hashed in front of a secret for its check, so that it is no other hash of the secret.
const KEY_CHECK_LABEL: &[u8] = b"rebate key check";

fn expanded(secret: &[u8; KEY_BYTES], id: KeyId, guard: GuardKey) -> Key {
    guard(secret).unwrap_or_else(|error| {
        tracing::warn!("values.keys: a core dump would contain key {id}: {error}");
        Key::new(secret)
    })
}

/// The form of the file, for errors.
const FORM: &str = "give `active = ID` and for each key a table `[[key]]` with `id` and `secret`";

/// The longest file (bytes), and the largest number of keys in it.
const FILE_BYTES_MAX: u64 = 64 << 10;
const KEYS_MAX: usize = 64;

/// The stack that reading a file uses at most, with a margin (bytes). Threads have at least 2 MiB.
const STACK_BYTES: usize = 128 << 10;

/// The space for a decoded secret, of which a right one needs less (bytes).
const DECODED_BYTES_MAX: usize = 48;

/// The bytes that one process seals with a key until it asks for a new one: a quarter of 2^48 blocks, after which an
/// attacker who sees all of them could tell them from random bytes with a probability of 2^-32.
const ROTATE_AFTER_BYTES: u64 = 1 << 50;

/// The interval at which the file is looked at.
const WATCH_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const TWO: &str = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

    fn plain(bytes: &[u8; KEY_BYTES]) -> io::Result<Key> {
        Ok(Key::new(bytes))
    }

    fn file(active: u16, keys: &[(u16, &str)]) -> String {
        let table =
            |(id, secret): &(u16, &str)| format!("[[key]]\nid = {id}\nsecret = \"{secret}\"\n");
        format!("active = {active}\n{}", keys.iter().map(table).collect::<String>())
    }

    #[test]
    fn a_file_has_keys_and_names_the_active_one() {
        let ring = parse(&file(2, &[(1, ONE), (2, TWO)]), plain, None).expect("keys");
        assert_eq!(ring.active().id.get(), 2);
        let ids: Vec<_> = ring.all().iter().map(|key| key.id.get()).collect();
        assert_eq!(ids, [1, 2]);
    }

    #[test]
    fn wrong_files_are_refused_without_their_secrets() {
        let short = &ONE[..40];
        let wrong = [
            (String::new(), "missing field"),
            (file(3, &[(1, ONE), (2, TWO)]), "no key with this id"),
            (file(1, &[]), "missing field"),
            (file(0, &[(0, ONE)]), "from 1 to 65535"),
            (file(1, &[(1, ONE), (1, TWO)]), "key 1 is there twice"),
            (file(1, &[(1, ONE), (2, ONE)]), "the same secret"),
            (file(1, &[(1, short)]), "a secret has 30 bytes; give 32"),
            (file(1, &[(1, &ONE.replace('=', "*"))]), "not base64"),
            (file(1, &[(1, &ONE.repeat(3))]), "not base64"),
            (format!("active = \"{ONE}\"\n[[key]]\nid = 1"), "line 1: a value is not u16"),
            (format!("active = 1\n[[key]]\nid = 1\n{short} = 3"), "line 4: a name"),
            (format!("active = 1\n[[key]]\nid = 1\nsecret = {ONE}"), "line 4"),
            (format!("active = 1\n[[key]]\nid = 1\nsecret = [\"{ONE}\"]"), "line 4"),
            (format!("active = 1\n{ONE}"), "line 2"),
            (file(1, &[(1, ONE)]).replace("id = 1", "id = 70000"), "line 3"),
        ];
        for (text, expected) in wrong {
            let problem = parse(&text, plain, None).err().unwrap_or_else(|| panic!("{text}"));
            assert!(problem.contains(expected), "{problem} for {text}");
            assert!(!problem.contains(&ONE[..6]) && !problem.contains(&TWO[..6]), "{problem}");
        }
    }

    #[test]
    fn a_key_keeps_its_counts_and_may_not_change_its_secret() {
        let old = parse(&file(1, &[(1, ONE)]), plain, None).expect("keys");
        old.active().usage.count(old.active().id, 100);
        let new = parse(&file(2, &[(1, ONE), (2, TWO)]), plain, Some(&old)).expect("keys");
        assert_eq!(new.find(old.active().id).map(|key| key.usage.bytes.read()), Some(100));
        assert_eq!(new.active().usage.bytes.read(), 0);
        let problem = parse(&file(1, &[(1, TWO)]), plain, Some(&old)).err().expect("refused");
        assert!(problem.contains("give a new secret a new id"), "{problem}");
    }

    #[test]
    fn a_file_is_read_again_and_a_wrong_one_changes_nothing() {
        let place = tempfile::NamedTempFile::new().expect("a file");
        let write = |text: &str| std::fs::write(place.path(), text).expect("it is written");
        write(&file(1, &[(1, ONE)]));
        let mut config = Config::default();
        config.values.keys = Some(place.path().to_owned());
        let keys = ValueKeys::open(&config, plain).expect("keys").expect("a file is named");
        let control = Control::default();
        write(&file(2, &[(1, ONE), (2, TWO)]));
        keys.reload(&control);
        assert_eq!((keys.current().active().id.get(), keys.version()), (2, 1));
        write("active = 2");
        keys.reload(&control);
        assert_eq!((keys.current().active().id.get(), keys.version()), (2, 1));
        let counts = (control.value_key_reloads.read(), control.value_key_reloads_failed.read());
        assert_eq!(counts, (1, 1));
    }
}
