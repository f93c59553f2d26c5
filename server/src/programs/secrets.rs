//! The tenants of the service of programs and their shared secrets. The secrets are read once, from a file of lines
//! `TENANT SECRET`, and never shown.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use device::TenantId;

/// The secrets by tenant.
#[derive(Default)]
pub struct Secrets(HashMap<u16, String>);

impl Secrets {
    /// Reads the file. Skips empty lines and lines that begin with #.
    ///
    /// # Errors
    /// Describes the error in the file, with its line.
    pub fn read(path: &Path) -> Result<Self, String> {
        let wrong = |why: &dyn fmt::Display| format!("{}: {why}", path.display());
        let mut text = String::new();
        let file = File::open(path).map_err(|error| wrong(&error))?;
        let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        read.map_err(|error| wrong(&error))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(wrong(&format_args!("longer than {FILE_BYTES_MAX} bytes")));
        }
        Self::parse(&text)
            .map_err(|(line, why)| format!("{}:{line}: {why}", path.display()))
            .and_then(|secrets| match secrets.0.is_empty() {
                true => Err(wrong(&"no tenant is in it; give lines TENANT SECRET")),
                false => Ok(secrets),
            })
    }

    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut secrets = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let refuse = |why: String| Err((index + 1, why));
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (tenant, secret) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let secret = secret.trim_start();
            let Ok(tenant) = tenant.parse::<u16>() else {
                return refuse("a line is TENANT SECRET, the tenant from 0 to 65535".to_owned());
            };
            // The text of a secret must not appear in logs.
            if secret.len() < SECRET_BYTES_MIN {
                let bytes = secret.len();
                let least = SECRET_BYTES_MIN;
                return refuse(format!("a secret of {bytes} bytes; give {least} and more"));
            }
            if secrets.insert(tenant, secret.to_owned()).is_some() {
                return refuse(format!("tenant {tenant} has a secret already"));
            }
        }
        Ok(Self(secrets))
    }

    /// Returns the tenant's secret.
    pub fn get(&self, tenant: TenantId) -> Option<&[u8]> {
        self.0.get(&tenant.0).map(String::as_bytes)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets of {} tenants", self.0.len())
    }
}

/// The shortest secret (bytes). Shorter secrets could be guessed.
const SECRET_BYTES_MIN: usize = 16;

/// The longest file (bytes), which is enough for a line for every tenant.
const FILE_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    #[test]
    fn every_tenant_has_a_line() {
        let text = format!("# ours\n\n 7  {SECRET} with blanks \r\n65535\t{SECRET}");
        let secrets = Secrets::parse(&text).expect("two tenants");
        assert_eq!(secrets.get(TenantId(7)), Some(&b"0123456789abcdef with blanks"[..]));
        assert_eq!(secrets.get(TenantId(65_535)), Some(SECRET.as_bytes()));
        assert_eq!(secrets.get(TenantId(0)), None);
        assert_eq!(format!("{secrets:?}"), "Secrets of 2 tenants");
    }

    #[test]
    fn a_bad_line_is_refused_by_its_number() {
        for (text, line, said) in [
            ("7", 1, "a secret of 0 bytes; give 16 and more"),
            ("# a\n7 0123456789abcde", 2, "a secret of 15 bytes"),
            ("65536 0123456789abcdef", 1, "the tenant from 0 to 65535"),
            ("0123456789abcdef", 1, "a line is TENANT SECRET"),
            ("1 0123456789abcdef\n1 0123456789abcdef", 2, "tenant 1 has a secret already"),
        ] {
            let (at, why) = Secrets::parse(text).expect_err(text);
            assert!(at == line && why.contains(said), "{text}: {at}: {why}");
            assert!(!why.contains("abcde"), "{why}");
        }
    }

    #[test]
    fn a_missing_or_empty_file_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secrets");
        assert!(Secrets::read(&path).expect_err("missing").contains("secrets: No such file"));
        std::fs::write(&path, "# nobody\n").expect("it is written");
        assert!(Secrets::read(&path).expect_err("empty").contains("no tenant is in it"));
        std::fs::write(&path, [0xFF, 0xFE]).expect("it is written");
        assert!(Secrets::read(&path).expect_err("bytes").contains("UTF-8"));
    }
}
