//! The user and the password that this process shows to servers and services. They are in a file, which is read again
//! when it changes, and are never part of an address, a log line or an error.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parking_lot::{Mutex, RwLock};
use tls::Stamps;
use tonic::metadata::{Ascii, MetadataValue};

/// A user and a password.
pub struct Login {
    user: String,
    password: String,
    authorization: MetadataValue<Ascii>,
    /// The number of times that the file was read before.
    version: u64,
}

/// The reason why a file has no user and password.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct LoginError {
    path: PathBuf,
    problem: String,
}

impl Login {
    fn parse(text: &str, version: u64) -> Result<Self, String> {
        let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let form = || "give one line USER:PASSWORD".to_owned();
        let (Some(line), None) = (lines.next(), lines.next()) else { return Err(form()) };
        let (user, password) = line.split_once(':').ok_or_else(form)?;
        // memcached's text protocol separates user and password by a blank, and SASL PLAIN by a zero byte.
        let is_plain = |byte: u8| (0x21..=0x7e).contains(&byte);
        if user.is_empty() || !user.bytes().all(is_plain) {
            return Err("a user has printable ASCII without blanks and colons".to_owned());
        }
        if password.is_empty() || !password.bytes().all(is_plain) {
            return Err("a password has printable ASCII without blanks".to_owned());
        }
        if line.len() > LINE_BYTES_MAX {
            let bytes = line.len();
            return Err(format!("a line of {bytes} bytes; at most {LINE_BYTES_MAX} are sent"));
        }
        let header = format!("Basic {}", BASE64_STANDARD.encode(line));
        let mut authorization: MetadataValue<Ascii> =
            header.parse().map_err(|_| "it fits into no header".to_owned())?;
        authorization.set_sensitive(true);
        let (user, password) = (user.to_owned(), password.to_owned());
        Ok(Self { user, password, authorization, version })
    }

    /// Returns the user, who may be in logs and errors.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the password, which may not.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// Returns a number that differs after the file was read again.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Adds the login to a call.
    pub fn authorize<T>(&self, request: &mut tonic::Request<T>) {
        request.metadata_mut().insert("authorization", self.authorization.clone());
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the login of {:?}", self.user)
    }
}

/// A file with a login, in the version that was last read.
#[derive(Debug)]
pub struct LoginFile {
    path: PathBuf,
    current: RwLock<Arc<Login>>,
    /// The state of the file at the last attempt to read it.
    tried: Mutex<Stamps>,
}

/// The files that are open. A file that several users name is open once.
static OPEN: Mutex<Vec<Weak<LoginFile>>> = Mutex::new(Vec::new());

impl LoginFile {
    /// Reads the file.
    ///
    /// # Errors
    /// Says what is wrong with the file, without its text.
    pub fn open(path: &Path) -> Result<Arc<Self>, LoginError> {
        let mut open = OPEN.lock();
        open.retain(|file| file.strong_count() > 0);
        let known = open.iter().filter_map(Weak::upgrade).find(|file| file.path == path);
        if let Some(file) = known {
            return Ok(file);
        }
        let tried = Mutex::new(stamps(path));
        let current = RwLock::new(Arc::new(read(path, 0)?));
        let file = Arc::new(Self { path: path.to_owned(), current, tried });
        open.push(Arc::downgrade(&file));
        Ok(file)
    }

    /// Returns every file that is open.
    pub fn all() -> Vec<Arc<Self>> {
        OPEN.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the login, for the next connection or call.
    pub fn current(&self) -> Arc<Login> {
        Arc::clone(&self.current.read())
    }

    /// Reads the file again.
    ///
    /// # Errors
    /// Says what is wrong with the file. The login in use stays.
    pub fn reload(&self) -> Result<(), LoginError> {
        let mut tried = self.tried.lock();
        *tried = stamps(&self.path);
        let next = read(&self.path, self.current().version + 1)?;
        *self.current.write() = Arc::new(next);
        Ok(())
    }

    /// Returns whether the file has changed since the last attempt to read it.
    pub fn has_changed(&self) -> bool {
        stamps(&self.path) != *self.tried.lock()
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn stamps(path: &Path) -> Stamps {
    Stamps::of([&path.to_owned()])
}

fn read(path: &Path, version: u64) -> Result<Login, LoginError> {
    let wrong = |problem: String| LoginError { path: path.to_owned(), problem };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| {
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
        match text.len() as u64 > FILE_BYTES_MAX {
            true => Err(io::Error::other(format!("longer than {FILE_BYTES_MAX} bytes"))),
            false => Ok(()),
        }
    });
    read.map_err(|error| wrong(error.to_string()))?;
    Login::parse(&text, version).map_err(wrong)
}

/// The longest file (bytes).
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The longest `USER:PASSWORD` (bytes). memcached 1.6.18 reads no longer line of its file of passwords.
const LINE_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_user_and_the_password() {
        let login = Login::parse("# ours\n\nfrontend:se:cret\n", 3).expect("a login");
        assert_eq!((login.user(), login.password()), ("frontend", "se:cret"));
        assert_eq!(format!("{login:?}"), "the login of \"frontend\"");
        let mut request = tonic::Request::new(());
        login.authorize(&mut request);
        let header = request.metadata().get("authorization").expect("a header");
        assert_eq!(header, "Basic ZnJvbnRlbmQ6c2U6Y3JldA==");
        assert!(!format!("{request:?}").contains("ZnJvbnRlbmQ"), "{request:?}");
    }

    #[test]
    fn other_files_are_refused_without_their_text() {
        let long = format!("user:{}", "x".repeat(LINE_BYTES_MAX));
        for text in [
            "",
            "user",
            ":secret",
            "user:",
            "us er:secret",
            "user:se cret",
            "a:secret\nb:secret",
            &long,
        ] {
            let problem = Login::parse(text, 0).expect_err(text);
            assert!(!problem.contains("secret") && !problem.contains("xxx"), "{problem}");
        }
    }

    #[test]
    fn a_file_is_read_again_and_a_wrong_one_changes_nothing() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let write = |text: &str| std::fs::write(file.path(), text).expect("it is written");
        write("user:old");
        let login = LoginFile::open(file.path()).expect("a login");
        assert!(Arc::ptr_eq(&login, &LoginFile::open(file.path()).expect("the same")));
        assert!(!login.has_changed());
        write("user:newer");
        assert!(login.has_changed());
        login.reload().expect("a login");
        assert_eq!((login.current().password(), login.current().version()), ("newer", 1));
        write("nothing");
        let problem = login.reload().expect_err("no login").to_string();
        assert!(problem.ends_with("give one line USER:PASSWORD"), "{problem}");
        assert_eq!(login.current().password(), "newer");
        assert!(!login.has_changed(), "the wrong file is not read over and over");
    }
}
