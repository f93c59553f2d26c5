//! The files of a run: the keys of sealed values and the rules about clients, which all frontends read, and the items
//! of an embedded store. They are real files in the folder for temporary files.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io, process};

use server::config::Flag;
use units::Prng;

use crate::client::{PASSWORD, USER};
use crate::scenario::{FileDamage, Mistake};
use crate::trace::FILE_PREFIX;

/// Returns a path that nothing else uses.
fn unused_path(ending: &str) -> PathBuf {
    static FILES: AtomicU64 = AtomicU64::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    env::temp_dir().join(format!("{FILE_PREFIX}{}-{number}.{ending}", process::id()))
}

/// The file with the keys of sealed values. It is removed with this.
pub(super) struct KeyFile {
    path: PathBuf,
    /// The keys have the ids from 1 to this.
    keys: u8,
    active: u8,
}

impl KeyFile {
    /// Makes a file with one key.
    pub(super) fn new() -> io::Result<Self> {
        let file = Self { path: unused_path("toml"), keys: 1, active: 1 };
        file.write()?;
        Ok(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a key, which is not used for new values yet.
    pub(super) fn add(&mut self) -> io::Result<()> {
        self.keys += 1;
        self.write()
    }

    /// Uses the newest key for new values.
    pub(super) fn activate_newest(&mut self) -> io::Result<()> {
        self.active = self.keys;
        self.write()
    }

    /// Leaves only a part of the file, as a copy that was interrupted does.
    pub(super) fn damage(&self) -> io::Result<()> {
        let text = self.text();
        fs::write(&self.path, &text[..text.len() / 2])
    }

    fn write(&self) -> io::Result<()> {
        fs::write(&self.path, self.text())
    }

    fn text(&self) -> String {
        let mut text = format!("active = {}\n", self.active);
        for id in 1..=self.keys {
            // Any text of this form is 32 bytes in base64.
            let letter = char::from(b'A' + id);
            let secret = letter.to_string().repeat(42) + "A=";
            let _ = write!(text, "[[key]]\nid = {id}\nsecret = \"{secret}\"\n");
        }
        text
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        // A file that stays in the folder for temporary files does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

/// The file with the rules about clients (`server.access_file`). It is removed with this.
pub(super) struct AccessFile(PathBuf);

impl AccessFile {
    pub(super) fn new() -> io::Result<Self> {
        let file = Self(unused_path("access"));
        file.write()?;
        Ok(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes the rules: whoever logs in may do everything.
    pub(super) fn write(&self) -> io::Result<()> {
        fs::write(&self.0, Self::text())
    }

    /// Leaves only a part of the file, as a copy that was interrupted does.
    pub(super) fn damage(&self) -> io::Result<()> {
        fs::write(&self.0, &Self::text()[..DAMAGED_BYTES])
    }

    fn text() -> String {
        format!(
            "[roles.client]\ncommands = [\"all\"]\n\
             [[users]]\nrole = \"client\"\nname = \"{USER}\"\npassword = \"{PASSWORD}\"\n"
        )
    }
}

/// The bytes of the rules that a copy has left: they end within the name of a class of commands.
const DAMAGED_BYTES: usize = 29;

impl Drop for AccessFile {
    fn drop(&mut self) {
        // A file that stays in the folder for temporary files does no harm.
        let _ = fs::remove_file(&self.0);
    }
}

/// The file with the items of an embedded store (`store.file`). It is removed with this.
pub(super) struct ItemFile(PathBuf);

impl ItemFile {
    pub(super) fn new() -> Self {
        Self(unused_path("items"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Damages the file, if it is there.
    pub(super) fn damage(&self, damage: FileDamage, seed: u64) -> io::Result<()> {
        let random = &mut Prng::new(seed);
        match damage {
            FileDamage::None | FileDamage::Disk(_) => Ok(()),
            FileDamage::Removed => fs::remove_file(&self.0),
            FileDamage::CutOff => {
                let file = fs::File::options().write(true).open(&self.0)?;
                file.set_len(random.below(file.metadata()?.len()))
            }
            FileDamage::FlippedBit => {
                let mut bytes = fs::read(&self.0)?;
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
                fs::write(&self.0, bytes)
            }
        }
    }
}

/// A file with a configuration that has a mistake. It is removed with this.
pub(super) struct ConfigFile(PathBuf);

impl ConfigFile {
    pub(super) fn new() -> Self {
        Self(unused_path("config"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a configuration with one mistake. Its other values are valid.
    pub(super) fn write(&self, mistake: Mistake) -> io::Result<()> {
        let wrong = match mistake {
            Mistake::CutOff => "connect_timeout",
            Mistake::UnknownKey => "no_such_key = 1\n",
            Mistake::OutOfRange => "connect_timeout_ms = 0\n",
            Mistake::WrongType => "connect_timeout_ms = \"soon\"\n",
            Mistake::NeedsRestart => "[server]\nthreads = 7\n",
            Mistake::OtherStore => "",
            Mistake::NoFile => {
                // The file may be missing already.
                let _ = fs::remove_file(&self.0);
                return Ok(());
            }
        };
        fs::write(&self.0, format!("[store]\ntimeout_ms = 1\n{wrong}"))
    }

    /// Returns the flags that are used with the file.
    pub(super) fn flags(&self, mistake: Mistake, is_ring: bool) -> Vec<Flag> {
        let flag = |value: &str| Flag {
            name: "--store".to_owned(),
            key: "store.url".to_owned(),
            value: value.to_owned(),
        };
        match mistake {
            Mistake::OtherStore if is_ring => vec![flag("embedded")],
            Mistake::OtherStore => vec![flag("memcached://10.0.0.11:11211")],
            _ => Vec::new(),
        }
    }
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        // A file that stays in the folder for temporary files does no harm.
        let _ = fs::remove_file(&self.0);
    }
}

impl Drop for ItemFile {
    fn drop(&mut self) {
        // The server puts these beside the file.
        for ending in ["", ".lock", ".tmp"] {
            let mut path = self.0.clone().into_os_string();
            path.push(ending);
            let _ = fs::remove_file(path);
        }
    }
}
