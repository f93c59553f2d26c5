//! Identifies the running build of this program. A program that continues the work of an earlier process uses it to
//! check that both have the same code. The version number is not enough for that, because it stays the same while the
//! code changes.

use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

use sim::Entries;
use xxhash_rust::xxh3::Xxh3;

/// Returns a hash of the program's own bytes.
///
/// # Errors
/// The program's file cannot be read.
fn program_hash() -> Result<u64, String> {
    static HASH: OnceLock<Result<u64, String>> = OnceLock::new();
    let read = || hash(PROGRAM).map_err(|error| format!("{PROGRAM}: {error}"));
    HASH.get_or_init(read).clone()
}

/// Hashes everything that determines the numbers of a simulation besides the seed and the number of runs: the value of
/// every key, the precision, and this build. It uses FNV-1a, so that the hash is the same on every machine.
///
/// # Errors
/// The build cannot be identified.
pub fn inputs(entries: &Entries, precision: Option<f64>) -> Result<u64, String> {
    let mut text = format!("{:016x} {precision:?}", program_hash()?);
    text.extend(entries.sources().map(|(key, value, ..)| format!("\n{key}={value}")));
    text.extend(entries.recording_hash().map(|hash| format!("\n{hash:016x}")));
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    Ok(text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
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

/// The path of the running program. It stays valid even after a new file has replaced the program's file.
const PROGRAM: &str = "/proc/self/exe";
const PART_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_byte_is_another_build() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().to_str().expect("text");
        let hash_of = |bytes: &[u8]| {
            std::fs::write(path, bytes).expect("written");
            hash(path).expect("readable")
        };
        let mut bytes = vec![7; PART_BYTES + 1];
        let first = hash_of(&bytes);
        bytes[PART_BYTES] = 8;
        assert_ne!(hash_of(&bytes), first);
        assert_eq!(program_hash(), program_hash());
        assert!(program_hash().is_ok() && hash("/proc/self/none").is_err());
    }
}
