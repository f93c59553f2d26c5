//! The commands, and the choice of the connection on which they are sent.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use protocol::Key;
use protocol::binary::request::Store;
use protocol::binary::response::Response;
use protocol::binary::{Request, Status};
use protocol::command::StoreVerb;
use protocol::counter::Direction;
use units::limits::ITEM_BYTES_MAX_HIGHEST;

use crate::link::Link;
use crate::{Address, Error};

/// The limits of a client.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The time for connecting to one address.
    pub connect_timeout: Duration,
    /// The time for one call, without connecting. When it is over, the connection is closed, because its next answer
    /// would be late.
    pub timeout: Duration,
    /// The time after which a client that uses another address tries the preferred ones again.
    pub retry_after: Duration,
    /// The longest time for which a call looks for its answer in shared memory before it sleeps. It looks only while
    /// that pays, and never while the server last ran on the same core. Zero means that it always sleeps, which saves
    /// processor time and costs the time of a wake.
    pub poll_max: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            retry_after: Duration::from_secs(1),
            poll_max: Duration::from_micros(50),
        }
    }
}

/// An item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// The value.
    pub value: Vec<u8>,
    /// The number that the writer stored with the value.
    pub client_flags: u32,
    /// The version, for [`Client::cas`].
    pub cas: u64,
}

/// What is stored with a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// A number for the readers.
    pub client_flags: u32,
    /// The expiry: 0 for none, up to 30 days as seconds from now, above as seconds since 1970.
    pub exptime_s: u32,
}

/// The outcome of a storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The value is stored.
    Stored {
        /// Its version.
        cas: u64,
    },
    /// The condition of an add, replace, append or prepend is not met.
    NotStored,
    /// The item has another version.
    Exists,
    /// There is no item that could have the version.
    NotFound,
}

/// A client of one cache, see the [crate].
pub struct Client {
    addresses: Vec<Address>,
    options: Options,
    link: Option<Open>,
    /// The requests of the current call.
    out: Vec<u8>,
    opaque: u32,
}

/// The connection in use.
struct Open {
    link: Link,
    /// The index of its address.
    index: usize,
    /// The time of the next attempt to use a preferred address.
    retry_at: Instant,
}

/// Whether a request that a lost server may have executed may be sent again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// A second execution leaves the same item as the first.
    Harmless,
    Harmful,
}

impl Client {
    /// Makes a client of the cache that these addresses lead to, the preferred one first. It does not connect yet.
    ///
    /// # Errors
    /// One of them is no address, or there is none.
    pub fn new(addresses: &[impl AsRef<str>], options: Options) -> Result<Self, Error> {
        let addresses = addresses.iter().map(|address| address.as_ref().parse());
        let addresses: Vec<Address> = addresses.collect::<Result<_, _>>()?;
        if addresses.is_empty() {
            return Err(Error::NoAddress);
        }
        Ok(Self { addresses, options, link: None, out: Vec::new(), opaque: 0 })
    }

    /// Returns the address in use, or none before the first request and after a loss.
    pub fn address(&self) -> Option<&Address> {
        self.link.as_ref().map(|open| &self.addresses[open.index])
    }

    /// Returns an item, or none if there is none.
    ///
    /// # Errors
    /// [`Error`]
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Item>, Error> {
        let key = Key::new(key)?;
        self.item(&Request::Get { key, quiet: false }, Repeat::Harmless)
    }

    /// Returns an item and sets its expiry.
    ///
    /// # Errors
    /// [`Error`]
    pub fn get_and_touch(&mut self, key: &[u8], exptime_s: u32) -> Result<Option<Item>, Error> {
        let exptime_s = checked(exptime_s)?;
        let key = Key::new(key)?;
        // A second one sets the same expiry.
        self.item(&Request::GetAndTouch { key, exptime_s }, Repeat::Harmless)
    }

    /// Returns the items of several keys, in the order of the keys. It is one round trip per 64 keys.
    ///
    /// # Errors
    /// [`Error`]
    pub fn get_many<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> Result<Vec<Option<Item>>, Error> {
        let mut items = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_AT_ONCE) {
            self.get_batch(keys, &mut items)?;
        }
        Ok(items)
    }

    /// Stores a value. Returns its version.
    ///
    /// # Errors
    /// [`Error`]
    pub fn set(&mut self, key: &[u8], value: &[u8], write: Write) -> Result<u64, Error> {
        match self.store(StoreVerb::Set, key, value, write, 0)? {
            Stored::Stored { cas } => Ok(cas),
            other => Err(refused(Status::NotStored.code(), format!("{other:?}").as_bytes())),
        }
    }

    /// Stores a value if there is no item.
    ///
    /// # Errors
    /// [`Error`]
    pub fn add(&mut self, key: &[u8], value: &[u8], write: Write) -> Result<Stored, Error> {
        self.store(StoreVerb::Add, key, value, write, 0)
    }

    /// Stores a value if there is an item.
    ///
    /// # Errors
    /// [`Error`]
    pub fn replace(&mut self, key: &[u8], value: &[u8], write: Write) -> Result<Stored, Error> {
        self.store(StoreVerb::Replace, key, value, write, 0)
    }

    /// Appends to the value of an item.
    ///
    /// # Errors
    /// [`Error`]
    pub fn append(&mut self, key: &[u8], value: &[u8]) -> Result<Stored, Error> {
        self.store(StoreVerb::Append, key, value, Write::default(), 0)
    }

    /// Prepends to the value of an item.
    ///
    /// # Errors
    /// [`Error`]
    pub fn prepend(&mut self, key: &[u8], value: &[u8]) -> Result<Stored, Error> {
        self.store(StoreVerb::Prepend, key, value, Write::default(), 0)
    }

    /// Stores a value if the item has the version `cas`, which a get has returned.
    ///
    /// # Errors
    /// [`Error`]
    pub fn cas(
        &mut self,
        key: &[u8],
        value: &[u8],
        write: Write,
        cas: u64,
    ) -> Result<Stored, Error> {
        if cas == 0 {
            // A packet without a version would store the value in any case. No item has this version.
            checked(write.exptime_s)?;
            let item = self.get(key)?;
            return Ok(item.map_or(Stored::NotFound, |_| Stored::Exists));
        }
        self.store(StoreVerb::Cas, key, value, write, cas)
    }

    /// Deletes an item. Returns whether there was one.
    ///
    /// # Errors
    /// [`Error`]
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, Error> {
        let key = Key::new(key)?;
        self.ask(&Request::Delete { key, cas: 0 }, &[], Repeat::Harmful, found)?
    }

    /// Sets the expiry of an item. Returns whether there was one.
    ///
    /// # Errors
    /// [`Error`]
    pub fn touch(&mut self, key: &[u8], exptime_s: u32) -> Result<bool, Error> {
        let exptime_s = checked(exptime_s)?;
        let key = Key::new(key)?;
        // A second one sets the same expiry.
        self.ask(&Request::Touch { key, exptime_s }, &[], Repeat::Harmless, found)?
    }

    /// Adds to a number, which wraps at 2^64. Returns the sum, or none if there is no item.
    ///
    /// # Errors
    /// [`Error`]
    pub fn increment(&mut self, key: &[u8], delta: u64) -> Result<Option<u64>, Error> {
        self.count(Direction::Increment, key, delta)
    }

    /// Subtracts from a number, down to 0. Returns the difference, or none if there is no item.
    ///
    /// # Errors
    /// [`Error`]
    pub fn decrement(&mut self, key: &[u8], delta: u64) -> Result<Option<u64>, Error> {
        self.count(Direction::Decrement, key, delta)
    }

    /// Returns a page of statistics: names with values. The empty name is the main page.
    ///
    /// # Errors
    /// [`Error`]
    pub fn stats(&mut self, page: &str) -> Result<Vec<(String, String)>, Error> {
        let request = Request::Stat { page: page.as_bytes() };
        self.exchange(
            Repeat::Harmless,
            &[],
            |out, opaque| request.append_to(out, opaque),
            |answers| {
                let mut lines = Vec::new();
                loop {
                    let line = answers.next(|answer| {
                        expect(&answer, &[])?;
                        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                        Ok((!answer.key.is_empty()).then(|| (text(answer.key), text(answer.value))))
                    })?;
                    match line {
                        Ok(Some(line)) => lines.push(line),
                        Ok(None) => return Ok(Ok(lines)),
                        Err(error) => return Ok(Err(error)),
                    }
                }
            },
        )?
    }

    /// Returns the version of the server.
    ///
    /// # Errors
    /// [`Error`]
    pub fn version(&mut self) -> Result<String, Error> {
        self.ask(&Request::Version, &[], Repeat::Harmless, |answer| {
            expect(&answer, &[])?;
            Ok(String::from_utf8_lossy(answer.value).into_owned())
        })?
    }

    fn item(&mut self, request: &Request<'_>, repeat: Repeat) -> Result<Option<Item>, Error> {
        self.ask(request, &[], repeat, |answer| Ok(found(answer)?.then(|| item(&answer))))?
    }

    fn get_batch<K: AsRef<[u8]>>(
        &mut self,
        keys: &[K],
        items: &mut Vec<Option<Item>>,
    ) -> Result<(), Error> {
        let keys: Vec<Key<'_>> =
            keys.iter().map(|key| Key::new(key.as_ref())).collect::<Result<_, _>>()?;
        let compose = |out: &mut Vec<u8>, first: u32| {
            for (key, opaque) in keys.iter().zip(first..) {
                Request::Get { key: *key, quiet: true }.append_to(out, opaque);
            }
            Request::Noop.append_to(out, first + keys.len() as u32);
        };
        let got = self.exchange(Repeat::Harmless, &[], compose, |answers| {
            let mut batch = vec![None; keys.len()];
            let mut problem = None;
            loop {
                let (index, answer) = answers.next_of(keys.len() as u32, |index, answer| {
                    let answer = expect(&answer, &[]).map(|()| item(&answer));
                    (index as usize, answer)
                })?;
                match answer {
                    // The last answer says that there are no more.
                    _ if index == keys.len() => return Ok(problem.map_or(Ok(batch), Err)),
                    Err(error) => problem = problem.or(Some(error)),
                    Ok(item) => batch[index] = Some(item),
                }
            }
        });
        items.append(&mut got??);
        Ok(())
    }

    fn store(
        &mut self,
        verb: StoreVerb,
        key: &[u8],
        value: &[u8],
        write: Write,
        cas: u64,
    ) -> Result<Stored, Error> {
        let Write { client_flags, exptime_s } = write;
        let (key, exptime_s) = (Key::new(key)?, checked(exptime_s)?);
        let max = ITEM_BYTES_MAX_HIGHEST.as_usize();
        let too_long = || Error::Value { bytes: value.len(), max };
        let value_bytes =
            u32::try_from(value.len()).ok().filter(|_| value.len() <= max).ok_or_else(too_long)?;
        let request = Store { verb, key, client_flags, exptime_s, cas, value_bytes };
        self.ask(&Request::Store(request), value, Repeat::Harmful, |answer| {
            let not_stored = [Status::NotStored, Status::Exists, Status::NotFound];
            expect(&answer, &not_stored)?;
            let is = |status: Status| answer.status == status.code();
            Ok(match verb {
                _ if answer.status == 0 => Stored::Stored { cas: answer.cas },
                StoreVerb::Cas | StoreVerb::Set if is(Status::Exists) => Stored::Exists,
                StoreVerb::Cas | StoreVerb::Set if is(Status::NotFound) => Stored::NotFound,
                _ => Stored::NotStored,
            })
        })?
    }

    fn count(
        &mut self,
        direction: Direction,
        key: &[u8],
        delta: u64,
    ) -> Result<Option<u64>, Error> {
        let key = Key::new(key)?;
        let request = Request::Arithmetic { direction, key, delta };
        self.ask(&request, &[], Repeat::Harmful, |answer| {
            if answer.status == Status::NonNumeric.code() {
                return Err(Error::NotANumber);
            }
            let number = found(answer)?.then(|| answer.number());
            number.map(|number| number.ok_or_else(|| refused(0, b"no number"))).transpose()
        })?
    }

    /// Sends one request with its value and passes its answer to `take`.
    fn ask<T>(
        &mut self,
        request: &Request<'_>,
        value: &[u8],
        repeat: Repeat,
        take: impl Fn(Response<'_>) -> T,
    ) -> Result<T, Error> {
        let compose = |out: &mut Vec<u8>, opaque| request.append_to(out, opaque);
        self.exchange(repeat, value, compose, |answers| answers.next(&take))
    }

    /// Sends requests and receives their answers, on another connection if this one is lost before they were executed.
    fn exchange<T>(
        &mut self,
        repeat: Repeat,
        value: &[u8],
        compose: impl Fn(&mut Vec<u8>, u32),
        receive: impl Fn(&mut Answers<'_>) -> io::Result<T>,
    ) -> Result<T, Error> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            self.connect()?;
            let Some(open) = &mut self.link else { continue };
            self.out.clear();
            let first = self.opaque;
            compose(&mut self.out, first);
            self.opaque = first.wrapping_add(OPAQUES_PER_CALL) % OPAQUE_MAX;
            let deadline = Instant::now() + self.options.timeout;
            let sent = open.link.send(&self.out, value, deadline);
            let received =
                sent.and_then(|()| receive(&mut Answers { link: &mut open.link, first, deadline }));
            let error = match received {
                Ok(received) => return Ok(received),
                Err(error) => error,
            };
            let is_late =
                matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
            // A server that is only slow may read the request later.
            let is_safe = repeat == Repeat::Harmless || (!is_late && open.link.is_unread());
            let address = self.addresses[open.index].to_string();
            self.link = None;
            if !is_safe {
                return Err(Error::Unknown { address, error });
            }
            // The time of the call is over, or no connection stays.
            if is_late || attempts > self.addresses.len() {
                return Err(Error::Unreachable(format!("{address}: {error}")));
            }
        }
    }

    /// Connects to the first address that answers, unless a connection is open and no preferred address is due.
    fn connect(&mut self) -> Result<(), Error> {
        let known = match &self.link {
            None => self.addresses.len(),
            Some(open) if open.index == 0 => return Ok(()),
            Some(open) if Instant::now() < open.retry_at => return Ok(()),
            Some(open) => open.index,
        };
        let Options { connect_timeout, retry_after, poll_max, .. } = self.options;
        let mut problems = Vec::new();
        for (index, address) in self.addresses[..known].iter().enumerate() {
            match Link::connect(address, connect_timeout, BODY_BYTES_MAX) {
                Ok(mut link) => {
                    link.set_poll_max(poll_max);
                    let retry_at = Instant::now() + retry_after;
                    self.link = Some(Open { link, index, retry_at });
                    return Ok(());
                }
                Err(error) => problems.push(format!("{address}: {error}")),
            }
        }
        match &mut self.link {
            None => Err(Error::Unreachable(problems.join("; "))),
            Some(open) => {
                open.retry_at = Instant::now() + retry_after;
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address();
        f.debug_struct("Client")
            .field("addresses", &self.addresses)
            .field("in use", &address)
            .finish()
    }
}

/// The answers to the requests of a call.
struct Answers<'l> {
    link: &'l mut Link,
    /// The opaque of the first request.
    first: u32,
    deadline: Instant,
}

impl Answers<'_> {
    /// Passes the next answer to the first request to `take`.
    fn next<T>(&mut self, take: impl FnOnce(Response<'_>) -> T) -> io::Result<T> {
        self.next_of(0, |_, answer| take(answer))
    }

    /// Passes the next answer to `take`, with the index of its request, which is at most `last`.
    fn next_of<T>(
        &mut self,
        last: u32,
        take: impl FnOnce(u32, Response<'_>) -> T,
    ) -> io::Result<T> {
        let first = self.first;
        let taken = self.link.receive(self.deadline, |answer| {
            let index = answer.opaque.wrapping_sub(first);
            (index <= last).then(|| take(index, answer))
        })?;
        let wrong = "an answer to a request that was not sent";
        taken.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, wrong))
    }
}

/// Fails unless the answer is a success or has one of these statuses.
fn expect(answer: &Response<'_>, others: &[Status]) -> Result<(), Error> {
    let is_known = answer.status == 0 || others.iter().any(|other| other.code() == answer.status);
    if is_known { Ok(()) } else { Err(refused(answer.status, answer.value)) }
}

/// Returns whether there was an item.
fn found(answer: Response<'_>) -> Result<bool, Error> {
    expect(&answer, &[Status::NotFound])?;
    Ok(answer.status == 0)
}

fn item(answer: &Response<'_>) -> Item {
    Item { value: answer.value.to_vec(), client_flags: answer.client_flags(), cas: answer.cas }
}

fn refused(status: u16, text: &[u8]) -> Error {
    Error::Refused { status, text: String::from_utf8_lossy(text).into_owned() }
}

fn checked(exptime_s: u32) -> Result<u32, Error> {
    match i32::try_from(exptime_s) {
        Ok(_) => Ok(exptime_s),
        Err(_) => Err(Error::Expiry { exptime_s }),
    }
}

/// The most keys of one round trip. Their requests fit the memory between two sides, so that neither waits for the
/// other while both write.
const KEYS_AT_ONCE: usize = 64;

/// The numbers that one call uses for its requests.
const OPAQUES_PER_CALL: u32 = KEYS_AT_ONCE as u32 + 1;

/// The end of the numbers for requests. It is far enough from the largest number for one more call.
const OPAQUE_MAX: u32 = 1 << 31;

/// The longest body of an answer: the largest item with its key (bytes).
const BODY_BYTES_MAX: usize = ITEM_BYTES_MAX_HIGHEST.0 as usize + 1_024;
