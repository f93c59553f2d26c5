//! A connection to a server with memcached's text commands, for the few requests of `rebate dict` and `rebate top`: it
//! reads pages of statistics, and reads and writes single keys.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

use load::{Address, Dictionaries, Protocol};
use planner::estimate::Connection;

use crate::connect::Connector;
use crate::terminal::CliError;

/// An open connection.
pub(crate) struct Client {
    address: String,
    reader: BufReader<Box<dyn Connection>>,
}

impl Client {
    pub(crate) fn open(address: &Address, connector: &Connector) -> Result<Self, CliError> {
        if address.protocol == Protocol::Grpc {
            return Err(CliError::Usage(format!(
                "{address}: this command speaks memcached's protocol only"
            )));
        }
        let named = |error: io::Error| CliError::Failed(format!("{address}: {error}"));
        let stream = connector.connect(address, TIMEOUT).map_err(named)?;
        Ok(Self { address: address.to_string(), reader: BufReader::new(stream) })
    }

    /// Returns the value of a key.
    pub(crate) fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, CliError> {
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

    pub(crate) fn set(&mut self, key: &str, value: &[u8]) -> Result<(), CliError> {
        let head = format!("set {key} 0 0 {}\r\n", value.len());
        match self.ask(&[head.as_bytes(), value, b"\r\n"].concat())?.as_str() {
            "STORED" => Ok(()),
            other => Err(self.failed(other)),
        }
    }

    /// Returns the classes and the dictionaries of a server of Rebate.
    pub(crate) fn dictionaries(&mut self) -> Result<Dictionaries, CliError> {
        let lines = self.stats("dictionaries")?;
        let lines =
            lines.ok_or_else(|| self.failed("this is no server of Rebate, or an older one"))?;
        let mut page = Dictionaries::default();
        lines.iter().for_each(|(name, value)| page.add(name, value));
        Ok(page)
    }

    /// Returns the names and values of a page of statistics, or none if the server does not know the page.
    pub(crate) fn stats(&mut self, page: &str) -> Result<Option<Vec<(String, String)>>, CliError> {
        let request =
            if page.is_empty() { "stats\r\n".into() } else { format!("stats {page}\r\n") };
        let mut line = self.ask(request.as_bytes())?;
        if line == "ERROR" {
            return Ok(None);
        }
        let mut lines = Vec::new();
        while line != "END" {
            let stat = line.strip_prefix("STAT ").and_then(|stat| stat.split_once(' '));
            let Some((name, value)) = stat else { return Err(self.failed(&line)) };
            lines.push((name.to_owned(), value.to_owned()));
            line = self.line()?;
        }
        Ok(Some(lines))
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

/// The longest wait for a server.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest line of an answer (bytes).
const LINE_BYTES_MAX: u64 = 4 << 10;

/// The longest value that may be a dictionary (bytes).
const VALUE_BYTES_MAX: usize = 1 << 20;
