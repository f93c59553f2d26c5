//! Reads certificates and keys in PEM, and notices that files have changed. Files are bounded, so that a wrong path
//! cannot fill the memory.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::CredentialError;

/// Returns every certificate of the file, in its order.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
    let bytes = read(path)?;
    let all = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| content(path, &format!("no certificates in PEM: {error}")))?;
    if all.is_empty() { Err(content(path, "there is no certificate in PEM")) } else { Ok(all) }
}

/// Returns the first private key of the file.
pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, CredentialError> {
    let key = PrivateKeyDer::from_pem_slice(&read(path)?);
    key.map_err(|error| content(path, &format!("no private key in PEM: {error}")))
}

/// Returns the certificates of the file as authorities.
pub(crate) fn roots(
    certificates: &[CertificateDer<'static>],
    path: &Path,
) -> Result<RootCertStore, CredentialError> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates.iter().cloned());
    if added == 0 {
        return Err(content(path, "none of its certificates can be an authority"));
    }
    Ok(roots)
}

fn read(path: &Path) -> Result<Vec<u8>, CredentialError> {
    let fail = |error| CredentialError::Read { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(fail)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(content(path, &format!("longer than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

pub(crate) fn content(path: &Path, problem: &str) -> CredentialError {
    CredentialError::Content { path: path.to_owned(), problem: problem.to_owned() }
}

/// What the file system says about a set of files. It differs after any of them was written or replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps(Vec<Option<Stamp>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_ns: (i64, i64),
    changed_ns: (i64, i64),
}

impl Stamps {
    /// Returns the state of these files now.
    pub fn of<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> Self {
        let stamp = |path: &PathBuf| -> io::Result<Stamp> {
            let there = path.metadata()?;
            Ok(Stamp {
                device: there.dev(),
                inode: there.ino(),
                bytes: there.len(),
                modified_ns: (there.mtime(), there.mtime_nsec()),
                changed_ns: (there.ctime(), there.ctime_nsec()),
            })
        };
        Self(paths.into_iter().map(|path| stamp(path).ok()).collect())
    }
}

/// The longest file (bytes). A bundle of every public authority has a quarter of it.
const FILE_BYTES_MAX: u64 = 1 << 20;
