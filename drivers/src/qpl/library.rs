//! Finds and opens `libqpl.so` at run time, loads its functions, and checks its version. QPL is not needed to build
//! or to start the program. Without the library, a QPL device is misconfigured, and the error says how to fix it.

use std::error::Error;
use std::ffi::{CStr, OsString, c_char};
use std::mem;
use std::path::{Path, PathBuf};

use device::DeviceError;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::abi::RawJob;

/// The environment variable with the library's file. It is used when [`super::QplOptions`] names no library.
pub const LIBRARY_VARIABLE: &str = "REBATE_QPL_LIBRARY";

/// The names that the loader searches for when no library is named: the name in a developer's package, and the name
/// in a package without headers.
const LIBRARIES_DEFAULT: [&str; 2] = ["libqpl.so", "libqpl.so.1"];

/// The major version of the headers that [`super::abi`] follows. QPL keeps its ABI within a major version (its
/// `SONAME`).
const VERSION_PREFIX: &str = "1.";

/// A QPL function whose only argument is a job.
type OfJob = unsafe extern "C" fn(*mut RawJob) -> u32;

/// The functions of qpl/c_api/job.h that the driver calls. `qpl_status` and `qpl_path_t` are 32-bit enumerations.
pub(super) struct Api {
    pub(super) job_size: unsafe extern "C" fn(u32, *mut u32) -> u32,
    pub(super) init: unsafe extern "C" fn(u32, *mut RawJob) -> u32,
    pub(super) submit: OfJob,
    pub(super) check: OfJob,
    pub(super) finish: OfJob,
    pub(super) version: String,
}

impl Api {
    /// Opens the library that `named` or the environment names, or that the loader finds.
    ///
    /// # Errors
    /// [`DeviceError::Misconfigured`]: there is no such library, or it is not QPL 1.x.
    pub(super) fn open(named: Option<&Path>) -> Result<Self, DeviceError> {
        let files = files(named, std::env::var_os(LIBRARY_VARIABLE));
        let misconfigured = |what: String| DeviceError::Misconfigured(what);
        let mut missing = Vec::new();
        let found = files.iter().find_map(|file| match load(file) {
            Ok(library) => Some((file, library)),
            Err(reason) => {
                missing.push(format!("{}: {reason}", file.display()));
                None
            }
        });
        let (file, library) = found.ok_or_else(|| {
            misconfigured(format!(
                "Intel QPL is not at {}; {INSTALL_HINT}",
                missing.join("; nor at ")
            ))
        })?;
        let api = Self::from_library(&library).map_err(|what| {
            misconfigured(format!(
                "{} is not Intel QPL 1.x: {what}; {INSTALL_HINT}",
                file.display()
            ))
        })?;
        // The library is never closed. Its functions and its data in this process stay valid for the whole life of
        // the process, whichever job or thread is the last to use them.
        mem::forget(library);
        Ok(api)
    }

    fn from_library(library: &Library) -> Result<Self, String> {
        // SAFETY: the types are those of the declarations in qpl/c_api/version.h and job.h (QPL 1.6.0). A library
        // that has functions with QPL's prefix is QPL.
        unsafe {
            let version: unsafe extern "C" fn() -> *const c_char =
                symbol(library, "qpl_get_library_version")?;
            Ok(Self {
                job_size: symbol(library, "qpl_get_job_size")?,
                init: symbol(library, "qpl_init_job")?,
                submit: symbol(library, "qpl_submit_job")?,
                check: symbol(library, "qpl_check_job")?,
                finish: symbol(library, "qpl_fini_job")?,
                version: known(version())?,
            })
        }
    }
}

fn load(file: &Path) -> Result<Library, String> {
    // SAFETY: opening a library runs its initialisers. The operator chooses the library, as with LD_LIBRARY_PATH.
    // QPL's initialisers (1.6.0, sources/) only fill dispatch tables.
    let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL) };
    // The loader's own message becomes the source of the error.
    library.map_err(|error| {
        error.source().map_or_else(|| error.to_string(), |source| source.to_string())
    })
}

/// Returns the function of this name.
///
/// # Safety
/// `F` is the type of the function.
unsafe fn symbol<F: Copy>(library: &Library, name: &str) -> Result<F, String> {
    // SAFETY: the caller promises that `F` is the function's type.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|symbol| *symbol).map_err(|_| format!("it has no function {name}"))
}

/// Returns the library's version, or an error if this driver does not know its structures.
///
/// # Safety
/// `text` is null or a string that ends with a zero byte.
unsafe fn known(text: *const c_char) -> Result<String, String> {
    if text.is_null() {
        return Err("it does not say its version".to_owned());
    }
    // SAFETY: the caller promises a terminated string. `qpl_get_library_version` returns a literal (version.h).
    let version = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    if version.starts_with(VERSION_PREFIX) { Ok(version) } else { Err(format!("it is {version}")) }
}

/// Returns the library's file, or the names that the loader searches for. An empty environment variable counts as
/// unset.
fn files(named: Option<&Path>, variable: Option<OsString>) -> Vec<PathBuf> {
    let variable = variable.filter(|value| !value.is_empty());
    match named.map(Path::to_owned).or(variable.map(PathBuf::from)) {
        Some(file) => vec![file],
        None => LIBRARIES_DEFAULT.map(PathBuf::from).to_vec(),
    }
}

const INSTALL_HINT: &str = "build Intel QPL 1.x with scripts/qpl.sh and set REBATE_QPL_LIBRARY to its \
                    libqpl.so (docs/operating/iaa.md)";

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(file: &str) -> String {
        Api::open(Some(Path::new(file))).err().expect("is not QPL").to_string()
    }

    #[test]
    fn a_missing_library_says_how_to_get_one() {
        let problem = problem("/nowhere/libqpl.so");
        assert!(problem.contains("/nowhere/libqpl.so") && problem.contains("scripts/qpl.sh"));
        assert!(problem.contains("No such file"), "{problem}");
        assert!(problem.starts_with("misconfigured: Intel QPL is not at"), "{problem}");
    }

    #[test]
    fn another_library_is_told_from_qpl() {
        let problem = problem("libc.so.6");
        assert!(problem.contains("libc.so.6 is not Intel QPL 1.x"), "{problem}");
        assert!(problem.contains("no function qpl_get_library_version"), "{problem}");
    }

    #[test]
    fn only_versions_whose_structures_are_known_are_taken() {
        let version = |text: Option<&CStr>| {
            // SAFETY: the pointer is null or points to a literal.
            unsafe { known(text.map_or(std::ptr::null(), CStr::as_ptr)) }
        };
        assert_eq!(version(Some(c"1.6.0")), Ok("1.6.0".to_owned()));
        assert_eq!(version(Some(c"2.0.0")), Err("it is 2.0.0".to_owned()));
        assert!(version(None).is_err() && version(Some(c"")).is_err());
    }

    #[test]
    fn an_option_wins_over_the_variable() {
        let variable = |value: &str| Some(OsString::from(value));
        assert_eq!(files(Some(Path::new("/a")), variable("/b")), [Path::new("/a")]);
        assert_eq!(files(None, variable("/b")), [Path::new("/b")]);
        for unset in [variable(""), None] {
            assert_eq!(files(None, unset), LIBRARIES_DEFAULT.map(PathBuf::from));
        }
    }
}
