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

/// A file in the folder for temporary files. It is removed with this.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(ending: &str) -> Self {
        Self(unused_path(ending))
    }

    fn write(&self, text: &str) -> io::Result<()> {
        fs::write(&self.0, text)
    }

    /// Leaves only a part of the text, as a copy that was interrupted does.
    fn write_half(&self, text: &str) -> io::Result<()> {
        fs::write(&self.0, &text[..text.len() / 2])
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // A file that stays in the folder for temporary files does no harm.
        let _ = fs::remove_file(&self.0);
    }
}

/// The file with the keys of sealed values.
pub(super) struct KeyFile {
    file: TemporaryFile,
    /// The keys have the ids from 1 to this.
    keys: u8,
    active: u8,
}

impl KeyFile {
    /// Makes a file with one key.
    pub(super) fn new() -> io::Result<Self> {
        let file = Self { file: TemporaryFile::new("toml"), keys: 1, active: 1 };
        file.write()?;
        Ok(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.file.0
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

    pub(super) fn damage(&self) -> io::Result<()> {
        self.file.write_half(&self.text())
    }

    fn write(&self) -> io::Result<()> {
        self.file.write(&self.text())
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

/// The file with the rules about clients (`server.access_file`).
pub(super) struct AccessFile(TemporaryFile);

impl AccessFile {
    pub(super) fn new() -> io::Result<Self> {
        let file = Self(TemporaryFile::new("access"));
        file.write()?;
        Ok(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0.0
    }

    /// Writes the rules: whoever logs in may do everything.
    pub(super) fn write(&self) -> io::Result<()> {
        self.0.write(&Self::text())
    }

    pub(super) fn damage(&self) -> io::Result<()> {
        self.0.write_half(&Self::text())
    }

    fn text() -> String {
        format!(
            "[roles.client]\ncommands = [\"all\"]\n\
             [[users]]\nrole = \"client\"\nname = \"{USER}\"\npassword = \"{PASSWORD}\"\n"
        )
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

/// A file with a configuration that has a mistake.
pub(super) struct ConfigFile(TemporaryFile);

impl ConfigFile {
    pub(super) fn new() -> Self {
        Self(TemporaryFile::new("config"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0.0
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
                let _ = fs::remove_file(self.path());
                return Ok(());
            }
        };
        self.0.write(&format!("[store]\ntimeout_ms = 1\n{wrong}"))
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
