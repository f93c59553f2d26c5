//! The client of caches, for `rebate.client`: keys and values of Python, and errors with pymemcache's names.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use pyo3::create_exception;
use pyo3::exceptions::{PyConnectionError, PyException, PyTimeoutError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use rebate_client::{Client, Cluster, Distribution, EXPIRED, Entry, Error, Item, Options};
use rebate_client::{Stored, Write};

use crate::value_error;

create_exception!(rebate.client, MemcacheError, PyException, "An error of a cache or of its use.");
create_exception!(rebate.client, MemcacheClientError, MemcacheError, "The request is wrong.");
create_exception!(
    rebate.client,
    MemcacheUnknownCommandError,
    MemcacheClientError,
    "The cache does not know the command."
);
create_exception!(
    rebate.client,
    MemcacheIllegalInputError,
    MemcacheClientError,
    "A key or a value is not legal."
);
create_exception!(rebate.client, MemcacheServerError, MemcacheError, "The cache failed.");
create_exception!(
    rebate.client,
    MemcacheUnexpectedCloseError,
    MemcacheServerError,
    "The connection was lost, and whether the cache executed the request is unknown."
);

/// Adds this file's types to the extension module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<Connection>()?;
    module.add("MemcacheError", py.get_type::<MemcacheError>())?;
    module.add("MemcacheClientError", py.get_type::<MemcacheClientError>())?;
    module.add("MemcacheUnknownCommandError", py.get_type::<MemcacheUnknownCommandError>())?;
    module.add("MemcacheIllegalInputError", py.get_type::<MemcacheIllegalInputError>())?;
    module.add("MemcacheServerError", py.get_type::<MemcacheServerError>())?;
    module.add("MemcacheUnexpectedCloseError", py.get_type::<MemcacheUnexpectedCloseError>())
}

/// A client of caches. Threads that share it take turns.
#[pyclass(frozen, module = "rebate.client")]
struct Connection {
    cluster: Mutex<Cluster>,
    prefix: Vec<u8>,
    /// Whether keys may have other characters than those of ASCII.
    allows_unicode: bool,
}

/// A value, its client flags, and its version.
type Found<'py> = (Bound<'py, PyBytes>, u32, u64);

#[pymethods]
impl Connection {
    #[new]
    #[pyo3(signature = (servers, *, distribution, connect_timeout, timeout, retry_after, prefix, allows_unicode))]
    fn new(
        servers: Vec<String>,
        distribution: &str,
        connect_timeout: Option<f64>,
        timeout: Option<f64>,
        retry_after: f64,
        prefix: Vec<u8>,
        allows_unicode: bool,
    ) -> PyResult<Self> {
        let distribution = match distribution {
            "ketama" => Distribution::Ketama,
            "ketama-weighted" => Distribution::KetamaWeighted,
            "modula" => Distribution::Modula,
            other => {
                let known = "give ketama, ketama-weighted or modula";
                return Err(value_error(format!("distribution is {other:?}; {known}")));
            }
        };
        let options = Options {
            connect_timeout: duration("connect_timeout", connect_timeout)?,
            timeout: duration("timeout", timeout)?,
            retry_after: duration("retry_after", Some(retry_after))?,
            long_wait: Some(without_interpreter),
            ..Options::default()
        };
        let cluster = Cluster::new(&servers, distribution, options).map_err(value_error)?;
        Ok(Self { cluster: Mutex::new(cluster), prefix, allows_unicode })
    }

    /// Returns the value of a key.
    fn get<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let py = key.py();
        let take = |value: &[u8], _, _| PyBytes::new(py, value);
        self.with_key(key, |client, key| client.get_with(key, take))
    }

    /// Returns the value of a key with its flags and its version.
    fn get_item<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Found<'py>>> {
        let py = key.py();
        let take = |value: &[u8], flags, cas| (PyBytes::new(py, value), flags, cas);
        self.with_key(key, |client, key| client.get_with(key, take))
    }

    /// Returns the same and sets the expiry.
    fn get_and_touch<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        expire: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Found<'py>>> {
        let (py, exptime_s) = (key.py(), exptime(expire)?);
        let item = self.with_key(key, |client, key| client.get_and_touch(key, exptime_s))?;
        Ok(item.map(|item| found(py, &item)))
    }

    /// Returns the same for several keys, in their order.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Option<Found<'py>>>> {
        let mut space = [0; KEY_BYTES_MAX];
        let keys = keys.iter().map(|key| Ok(self.key(key, &mut space)?.to_vec()));
        let keys: Vec<Vec<u8>> = keys.collect::<PyResult<_>>()?;
        let items = self.lock(py).get_many(&keys).map_err(raised)?;
        Ok(items.iter().map(|item| item.as_ref().map(|item| found(py, item))).collect())
    }

    /// Stores a value. Returns whether it was stored, or none if a cas found no item.
    fn store(
        &self,
        verb: &str,
        key: &Bound<'_, PyAny>,
        value: &[u8],
        expire: &Bound<'_, PyAny>,
        flags: &Bound<'_, PyAny>,
        cas: u64,
    ) -> PyResult<Option<bool>> {
        let exptime_s = exptime(expire)?;
        let client_flags = flags.extract().map_err(|_| {
            MemcacheClientError::new_err(format!("flags are {flags}; give 0 to {}", u32::MAX))
        })?;
        let with = Write { client_flags, exptime_s };
        let stored = self.with_key(key, |client, key| match verb {
            "set" => client.set(key, value, with).map(|cas| Stored::Stored { cas }),
            "add" => client.add(key, value, with),
            "replace" => client.replace(key, value, with),
            "append" => client.append(key, value),
            "prepend" => client.prepend(key, value),
            _ => client.cas(key, value, with, cas),
        })?;
        Ok(match stored {
            Stored::Stored { .. } => Some(true),
            Stored::NotStored | Stored::Exists => Some(false),
            Stored::NotFound => None,
        })
    }

    /// Stores several values with one expiry. Returns for each whether it was stored, and raises the first refusal.
    fn set_many(
        &self,
        py: Python<'_>,
        entries: Vec<(Bound<'_, PyAny>, Bound<'_, PyBytes>, u32)>,
        expire: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let exptime_s = exptime(expire)?;
        let mut space = [0; KEY_BYTES_MAX];
        let keys = entries.iter().map(|(key, ..)| Ok(self.key(key, &mut space)?.to_vec()));
        let keys: Vec<Vec<u8>> = keys.collect::<PyResult<_>>()?;
        let mut stores = Vec::with_capacity(entries.len());
        for (key, (_, value, client_flags)) in keys.iter().zip(&entries) {
            let write = Write { client_flags: *client_flags, exptime_s };
            stores.push(Entry { key, value: value.as_bytes(), write });
        }
        let stored = self.lock(py).set_many(&stores).map_err(raised)?;
        stored.into_iter().try_for_each(|stored| stored.map(|_| ()).map_err(raised))
    }

    /// Deletes several keys.
    fn delete_many(&self, py: Python<'_>, keys: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let mut space = [0; KEY_BYTES_MAX];
        let keys = keys.iter().map(|key| Ok(self.key(key, &mut space)?.to_vec()));
        let keys: Vec<Vec<u8>> = keys.collect::<PyResult<_>>()?;
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        self.lock(py).delete_many(&keys).map(|_| ()).map_err(raised)
    }

    /// Deletes a key. Returns whether it was there.
    fn delete(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.with_key(key, Client::delete)
    }

    /// Sets the expiry of a key. Returns whether it was there.
    fn touch(&self, key: &Bound<'_, PyAny>, expire: &Bound<'_, PyAny>) -> PyResult<bool> {
        let exptime_s = exptime(expire)?;
        self.with_key(key, |client, key| client.touch(key, exptime_s))
    }

    /// Adds to a number. Returns the sum, or none if the key is not there.
    fn increment(&self, key: &Bound<'_, PyAny>, delta: u64) -> PyResult<Option<u64>> {
        self.with_key(key, |client, key| client.increment(key, delta))
    }

    /// Subtracts from a number, down to 0. Returns the difference, or none if the key is not there.
    fn decrement(&self, key: &Bound<'_, PyAny>, delta: u64) -> PyResult<Option<u64>> {
        self.with_key(key, |client, key| client.decrement(key, delta))
    }

    /// Removes all items of all servers.
    fn flush(&self, py: Python<'_>, delay: &Bound<'_, PyAny>) -> PyResult<()> {
        let delay_s = exptime(delay)?;
        self.lock(py).flush(delay_s).map_err(raised)
    }

    /// Returns a page of statistics of each server.
    fn stats(&self, py: Python<'_>, page: &str) -> PyResult<Vec<Vec<(String, String)>>> {
        self.lock(py).stats(page).map_err(raised)
    }

    /// Returns the version of each server.
    fn versions(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.lock(py).versions().map_err(raised)
    }

    /// Returns the texts of the servers.
    #[getter]
    fn servers(&self, py: Python<'_>) -> Vec<String> {
        self.lock(py).servers().iter().map(ToString::to_string).collect()
    }

    /// Returns the address in use of each server, or none if there is no connection.
    #[getter]
    fn addresses(&self, py: Python<'_>) -> Vec<Option<String>> {
        let mut cluster = self.lock(py);
        let clients = cluster.clients().iter();
        clients.map(|client| client.address().map(ToString::to_string)).collect()
    }

    /// Closes the connections.
    fn close(&self, py: Python<'_>) {
        self.lock(py).close();
    }
}

impl Connection {
    /// Waits for its turn. The thread that has it may need the interpreter to go on.
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Cluster> {
        loop {
            match self.cluster.try_lock() {
                Ok(cluster) => return cluster,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => py.detach(|| drop(self.cluster.lock())),
            }
        }
    }

    fn with_key<T>(
        &self,
        key: &Bound<'_, PyAny>,
        call: impl FnOnce(&mut Client, &[u8]) -> Result<T, Error>,
    ) -> PyResult<T> {
        let mut space = [0; KEY_BYTES_MAX];
        let bytes = self.key(key, &mut space)?;
        call(self.lock(key.py()).client(bytes), bytes).map_err(raised)
    }

    /// Checks a key as pymemcache does, and writes it with the prefix to `space`.
    fn key<'s>(
        &self,
        key: &Bound<'_, PyAny>,
        space: &'s mut [u8; KEY_BYTES_MAX],
    ) -> PyResult<&'s [u8]> {
        let illegal = |why: &str| MemcacheIllegalInputError::new_err(format!("{why}: {key:?}"));
        let bytes = if let Ok(text) = key.cast::<PyString>() {
            let text = text.to_str()?;
            if !self.allows_unicode && !text.is_ascii() {
                return Err(illegal("Non-ASCII key"));
            }
            text.as_bytes()
        } else if let Ok(bytes) = key.cast::<PyBytes>() {
            bytes.as_bytes()
        } else {
            return Err(PyTypeError::new_err(format!("a key is str or bytes, not {key:?}")));
        };
        let total = self.prefix.len() + bytes.len();
        let Some(whole) = space.get_mut(..total) else { return Err(illegal("Key is too long")) };
        let (front, back) = whole.split_at_mut(self.prefix.len());
        front.copy_from_slice(&self.prefix);
        back.copy_from_slice(bytes);
        if whole.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0x0b) {
            return Err(illegal("Key contains whitespace"));
        }
        if whole.contains(&0) {
            return Err(illegal("Key contains null"));
        }
        Ok(whole)
    }
}

/// Lets other threads of the interpreter run while this one waits.
fn without_interpreter(wait: &mut (dyn FnMut() + Send)) {
    Python::attach(|py| py.detach(wait));
}

fn found<'py>(py: Python<'py>, item: &Item) -> Found<'py> {
    (PyBytes::new(py, &item.value), item.client_flags, item.cas)
}

/// Returns a time of memcached. What is negative is over.
fn exptime(seconds: &Bound<'_, PyAny>) -> PyResult<u32> {
    match seconds.extract::<i64>() {
        Ok(..0) => Ok(EXPIRED),
        Ok(seconds @ 0..=EXPTIME_MAX) => Ok(seconds as u32),
        _ => {
            let why = format!("a time is {seconds}; give whole seconds up to {EXPTIME_MAX}");
            Err(MemcacheIllegalInputError::new_err(why))
        }
    }
}

fn duration(name: &str, seconds: Option<f64>) -> PyResult<Duration> {
    let seconds = seconds.unwrap_or(FOREVER_S);
    if (0.0..=FOREVER_S).contains(&seconds) && seconds > 0.0 {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(value_error(format!("{name} is {seconds} s; give more than 0 and at most {FOREVER_S}")))
}

/// Converts an error into the one that pymemcache raises then.
fn raised(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        error if error.is_timeout() => PyTimeoutError::new_err(text),
        Error::Unreachable(_) => PyConnectionError::new_err(text),
        Error::Unknown { .. } => MemcacheUnexpectedCloseError::new_err(text),
        Error::Key(_) | Error::Expiry { .. } => MemcacheIllegalInputError::new_err(text),
        Error::NotANumber => MemcacheClientError::new_err(text),
        Error::Refused { status: UNKNOWN_COMMAND, .. } => {
            MemcacheUnknownCommandError::new_err(text)
        }
        Error::Refused { status: INVALID_ARGUMENTS | AUTH_FAILURE | DENIED, .. } => {
            MemcacheClientError::new_err(text)
        }
        _ => MemcacheServerError::new_err(text),
    }
}

const KEY_BYTES_MAX: usize = 250;

/// The largest time that a request can have (s).
const EXPTIME_MAX: i64 = i32::MAX as i64;

/// What no timeout means: some 30 years (s).
const FOREVER_S: f64 = 1e9;

/// Statuses of the binary protocol.
const INVALID_ARGUMENTS: u16 = 0x04;
const AUTH_FAILURE: u16 = 0x20;
const DENIED: u16 = 0x24;
const UNKNOWN_COMMAND: u16 = 0x81;
