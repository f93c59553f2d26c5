//! A connection to a server with memcached's text commands, for the few keys that `rebate dict` reads and writes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

use load::{Address, Protocol};
use planner::estimate::Connection;
use serde::Serialize;

use crate::connect::Connector;
use crate::terminal::CliError;

/// An open connection.
pub(super) struct Client {
    address: String,
    reader: BufReader<Box<dyn Connection>>,
}

/// The page `stats dictionaries` of a server.
#[derive(Debug, Default, Serialize)]
pub(super) struct Page {
    pub(super) classes: Vec<Class>,
    pub(super) dictionaries: Vec<Entry>,
}

/// A class of keys.
#[derive(Debug, Default, Serialize)]
pub(super) struct Class {
    pub(super) name: String,
    pub(super) tenant: u16,
    pub(super) form: String,
    pub(super) values_written: u64,
    pub(super) logical_bytes: u64,
    pub(super) stored_bytes: u64,
}

/// A dictionary.
#[derive(Debug, Default, Serialize)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) bytes: u64,
    pub(super) memory_bytes: u64,
}

impl Client {
    pub(super) fn open(address: &Address, connector: &Connector) -> Result<Self, CliError> {
        if address.protocol == Protocol::Grpc {
            return Err(CliError::Usage(format!(
                "{address}: dictionaries are read with memcached's protocol"
            )));
        }
        let named = |error: io::Error| CliError::Failed(format!("{address}: {error}"));
        let stream = connector.connect(address, TIMEOUT).map_err(named)?;
        Ok(Self { address: address.to_string(), reader: BufReader::new(stream) })
    }

    /// Returns the value of a key.
    pub(super) fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, CliError> {
        let head = self.ask(format!("get {key}\r\n").as_bytes())?;
        if head == "END" {
            return Ok(None);
        }
        let bytes = head.rsplit(' ').next().and_then(|bytes| bytes.parse::<usize>().ok());
        let Some(bytes) =
            bytes.filter(|bytes| head.starts_with("VALUE ") && *bytes <= VALUE_BYTES_MAX)
        else {
            return Err(self.failed(&head));
        };
        let mut value = vec![0; bytes + 2];
        self.reader.read_exact(&mut value).map_err(|error| self.failed(&error.to_string()))?;
        value.truncate(bytes);
        match self.line()?.as_str() {
            "END" => Ok(Some(value)),
            other => Err(self.failed(other)),
        }
    }

    pub(super) fn set(&mut self, key: &str, value: &[u8]) -> Result<(), CliError> {
        let head = format!("set {key} 0 0 {}\r\n", value.len());
        match self.ask(&[head.as_bytes(), value, b"\r\n"].concat())?.as_str() {
            "STORED" => Ok(()),
            other => Err(self.failed(other)),
        }
    }

    /// Returns the classes and the dictionaries of a server of Rebate.
    pub(super) fn dictionaries(&mut self) -> Result<Page, CliError> {
        let mut page = Page::default();
        let mut line = self.ask(b"stats dictionaries\r\n")?;
        while line != "END" {
            let stat = line.strip_prefix("STAT ").and_then(|stat| stat.split_once(' '));
            let Some((name, value)) = stat else {
                let text = format!("{line}: this is no server of Rebate, or an older one");
                return Err(self.failed(&text));
            };
            page.add(name, value);
            line = self.line()?;
        }
        Ok(page)
    }

    fn ask(&mut self, request: &[u8]) -> Result<String, CliError> {
        let sent = self.reader.get_mut().write_all(request);
        sent.map_err(|error| self.failed(&error.to_string()))?;
        self.line()
    }

    fn line(&mut self) -> Result<String, CliError> {
        let mut line = Vec::new();
        let read = (&mut self.reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| self.failed(&error.to_string()))?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None => Err(self.failed("the server closed the connection or sent no line")),
        }
    }

    fn failed(&self, why: &str) -> CliError {
        CliError::Failed(format!("{}: {why}", self.address))
    }
}

impl Page {
    /// Adds a line of the page. Its name is `class:TENANT:NAME:WHAT` or `dictionary:ID:WHAT`. A class's name may
    /// contain colons. The first line of a class or a dictionary is that of its form or of its bytes.
    fn add(&mut self, name: &str, value: &str) {
        let number = || value.parse().unwrap_or(0);
        let Some((head, what)) = name.rsplit_once(':') else { return };
        if let Some((tenant, name)) =
            head.strip_prefix("class:").and_then(|rest| rest.split_once(':'))
        {
            if what == "form" {
                let (name, form) = (name.to_owned(), value.to_owned());
                let tenant = tenant.parse().unwrap_or(0);
                self.classes.push(Class { name, tenant, form, ..Class::default() });
            }
            match (self.classes.last_mut(), what) {
                (Some(class), "values_written") => class.values_written = number(),
                (Some(class), "logical_bytes") => class.logical_bytes = number(),
                (Some(class), "stored_bytes") => class.stored_bytes = number(),
                _ => {}
            }
        } else if let Some(id) = head.strip_prefix("dictionary:") {
            if what == "bytes" {
                let id = id.to_owned();
                self.dictionaries.push(Entry { id, bytes: number(), memory_bytes: 0 });
            } else if let (Some(entry), "memory_bytes") = (self.dictionaries.last_mut(), what) {
                entry.memory_bytes = number();
            }
        }
    }
}

/// The longest wait for a server.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest line of an answer (bytes).
const LINE_BYTES_MAX: u64 = 4 << 10;

/// The longest value that may be a dictionary (bytes).
const VALUE_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_classes_with_colons_in_their_names() {
        let mut page = Page::default();
        for (name, value) in [
            ("class:3:user:*:profile:form", "a1b2c3"),
            ("class:3:user:*:profile:values_written", "7"),
            ("class:3:user:*:profile:logical_bytes", "700"),
            ("class:3:user:*:profile:stored_bytes", "300"),
            ("dictionary:a1b2c3:bytes", "1024"),
            ("dictionary:a1b2c3:memory_bytes", "70000"),
            ("garbage", "1"),
            ("class:", ""),
        ] {
            page.add(name, value);
        }
        let [class] = &page.classes[..] else { panic!("{page:?}") };
        let counts = (class.values_written, class.logical_bytes, class.stored_bytes);
        assert_eq!(
            (class.name.as_str(), class.tenant, counts),
            ("user:*:profile", 3, (7, 700, 300))
        );
        assert_eq!(page.dictionaries[0].memory_bytes, 70_000);
    }
}
