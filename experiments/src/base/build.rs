//! Which build of this program runs. Its version stays while its code changes, and with the code what the same seed
//! gives: whoever goes on with what another process made asks here whether that was the same program.

use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

use sim::Entries;
use xxhash_rust::xxh3::Xxh3;

/// A hash of the program's own bytes.
///
/// # Errors
/// They cannot be read.
fn own() -> Result<u64, String> {
    static OWN: OnceLock<Result<u64, String>> = OnceLock::new();
    let read = || hash(PROGRAM).map_err(|error| format!("{PROGRAM}: {error}"));
    OWN.get_or_init(read).clone()
}

/// Names everything that numbers follow from beside the seed and the runs: every key's value, precision, this build.
/// FNV-1a, so that it is the same on every machine.
///
/// # Errors
/// Which build it is cannot be told.
pub fn inputs(entries: &Entries, precision: Option<f64>) -> Result<u64, String> {
    let mut text = format!("{:016x} {precision:?}", own()?);
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
