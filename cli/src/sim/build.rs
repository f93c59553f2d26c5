//! Which build of this program runs. Its version stays while its code changes, and with the code what the same seed
//! gives: whoever goes on with what another process made asks here whether that was the same program.

use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

use xxhash_rust::xxh3::Xxh3;

/// A hash of the program's own bytes.
///
/// # Errors
/// They cannot be read.
pub(super) fn own() -> Result<u64, String> {
    static OWN: OnceLock<Result<u64, String>> = OnceLock::new();
    let read = || hash(PROGRAM).map_err(|error| format!("{PROGRAM}: {error}"));
    OWN.get_or_init(read).clone()
}

fn hash(path: &str) -> std::io::Result<u64> {
    let mut file = File::open(path)?;
    let (mut hash, mut part) = (Xxh3::new(), vec![0; PART_BYTES]);
    loop {
        match file.read(&mut part)? {
            0 => return Ok(hash.digest()),
            count => hash.update(&part[..count]),
        }
    }
}

/// The program that runs, also after a new one has taken its name.
const PROGRAM: &str = "/proc/self/exe";
const PART_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_byte_is_another_build() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().to_str().expect("text");
        let of = |bytes: &[u8]| {
            std::fs::write(path, bytes).expect("written");
            hash(path).expect("readable")
        };
        let mut bytes = vec![7; PART_BYTES + 1];
        let first = of(&bytes);
        bytes[PART_BYTES] = 8;
        assert_ne!(of(&bytes), first);
        assert_eq!(own(), own());
        assert!(own().is_ok() && hash("/proc/self/none").is_err());
    }
}
