//! The commands, and the choice of the connection on which they are sent.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use protocol::Key;
use protocol::binary::request::Store;
use protocol::binary::{Request, Status};
use protocol::command::StoreVerb;
use protocol::counter::Direction;
use units::limits::ITEM_BYTES_MAX_HIGHEST;

use crate::answer::Answer;
use crate::error::is_late;
use crate::link::{Link, Requests};
use crate::{Address, Error, LongWait};

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
    /// Runs waits that may be longer than some 50 us, for a program whose other threads must be able to run meanwhile.
    pub long_wait: Option<LongWait>,
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
            long_wait: None,
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

/// A value of [`Client::set_many`].
#[derive(Clone, Copy, Debug)]
pub struct Entry<'e> {
    /// The key.
    pub key: &'e [u8],
    /// The value.
    pub value: &'e [u8],
    /// What is stored with it.
    pub write: Write,
}

/// An expiry that has passed: a time in 1970. It means what a negative expiry means in text.
pub const EXPIRED: u32 = 60 * 60 * 24 * 30 + 1;

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
    /// The times until which addresses that did not answer in time are not tried.
    silent_until: Vec<Option<Instant>>,
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
    /// It is one request, which the lost server has executed only if it has read all of it.
    Harmful,
    /// These are several requests. The lost server may have executed the first without having read the last.
    HarmfulInPart,
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
        Ok(Self::with_addresses(addresses, options))
    }

    pub(crate) fn with_addresses(addresses: Vec<Address>, options: Options) -> Self {
        let silent_until = vec![None; addresses.len()];
        let bounded = |time: Duration| time.min(LONGEST);
        let options = Options {
            connect_timeout: bounded(options.connect_timeout),
            timeout: bounded(options.timeout),
            retry_after: bounded(options.retry_after),
            ..options
        };
        Self { addresses, options, link: None, silent_until, out: Vec::new(), opaque: 0 }
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

    /// Passes an item's value, client flags and version to `take` without copying the value. Returns none if there is
    /// no item.
    ///
    /// # Errors
    /// [`Error`]
    pub fn get_with<T>(
        &mut self,
        key: &[u8],
        take: impl Fn(&[u8], u32, u64) -> T,
    ) -> Result<Option<T>, Error> {
        let key = Key::new(key)?;
        self.ask(&Request::Get { key, quiet: false }, None, Repeat::Harmless, |answer| {
            Ok(found(answer)?.then(|| take(answer.value, answer.client_flags, answer.cas)))
        })?
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

    /// Returns the items of several keys, in the order of the keys. It is one round trip per 128 keys.
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

    /// Stores several values. Returns the outcome of each, in their order. Short values share round trips.
    ///
    /// # Errors
    /// [`Error`], if a connection fails: some values may be stored. What the server refuses is an outcome.
    pub fn set_many(&mut self, entries: &[Entry<'_>]) -> Result<Vec<Result<u64, Error>>, Error> {
        let mut outcomes = Vec::with_capacity(entries.len());
        while let Some(first) = entries.get(outcomes.len()) {
            let rest = &entries[outcomes.len()..];
            let mut bytes = 0;
            let fits = |entry: &&Entry<'_>| {
                bytes += entry.value.len();
                bytes <= BATCH_BYTES_MAX
            };
            let count = rest.iter().take(KEYS_AT_ONCE).take_while(fits).count();
            if count < 2 {
                outcomes.push(match self.set(first.key, first.value, first.write) {
                    Err(error @ Error::Refused { .. }) => Err(error),
                    stored => Ok(stored?),
                });
            } else {
                outcomes.append(&mut self.set_batch(&rest[..count])?);
            }
        }
        Ok(outcomes)
    }

    fn set_batch(&mut self, entries: &[Entry<'_>]) -> Result<Vec<Result<u64, Error>>, Error> {
        let mut stores = Vec::with_capacity(entries.len());
        for Entry { key, value, write } in entries {
            let (key, exptime_s) = (Key::new(key)?, checked(write.exptime_s)?);
            let (verb, client_flags, cas) = (StoreVerb::Set, write.client_flags, 0);
            let value_bytes = value.len() as u32;
            stores.push(Store { verb, key, client_flags, exptime_s, cas, value_bytes });
        }
        let compose = |requests: &mut Requests<'_>, first: u32| {
            for ((store, entry), opaque) in stores.iter().zip(entries).zip(first..) {
                requests.push(&Request::Store(*store), opaque);
                requests.push_value(entry.value);
            }
        };
        self.exchange(Repeat::HarmfulInPart, None, compose, |answers| {
            let take = |answer: Answer<'_>| expect(&answer, &[]).map(|()| answer.cas);
            (0..entries.len()).map(|_| answers.next_in_order(take)).collect()
        })
    }

    /// Deletes several items. Returns for each whether there was one. It is one round trip per 128 keys.
    ///
    /// # Errors
    /// [`Error`]
    pub fn delete_many<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> Result<Vec<bool>, Error> {
        let mut outcomes = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_AT_ONCE) {
            let keys = checked_keys(keys)?;
            let compose = |requests: &mut Requests<'_>, first: u32| {
                for (key, opaque) in keys.iter().zip(first..) {
                    requests.push(&Request::Delete { key: *key, cas: 0 }, opaque);
                }
            };
            let deleted: Vec<_> =
                self.exchange(Repeat::HarmfulInPart, None, compose, |answers| {
                    (0..keys.len()).map(|_| answers.next_in_order(found)).collect()
                })?;
            for deleted in deleted {
                outcomes.push(deleted?);
            }
        }
        Ok(outcomes)
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
        self.ask(&Request::Delete { key, cas: 0 }, None, Repeat::Harmful, found)?
    }

    /// Sets the expiry of an item. Returns whether there was one.
    ///
    /// # Errors
    /// [`Error`]
    pub fn touch(&mut self, key: &[u8], exptime_s: u32) -> Result<bool, Error> {
        let exptime_s = checked(exptime_s)?;
        let key = Key::new(key)?;
        // A second one sets the same expiry.
        self.ask(&Request::Touch { key, exptime_s }, None, Repeat::Harmless, found)?
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
            None,
            |requests, opaque| requests.push(&request, opaque),
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

    /// Removes all items, at once or after a delay.
    ///
    /// # Errors
    /// [`Error`]
    pub fn flush(&mut self, delay_s: u32) -> Result<(), Error> {
        let request = Request::Flush { delay_s: checked(delay_s)? };
        self.ask(&request, None, Repeat::Harmful, |answer| expect(&answer, &[]))?
    }

    /// Closes the connection. The next call opens one.
    pub fn close(&mut self) {
        self.link = None;
    }

    /// Returns the version of the server.
    ///
    /// # Errors
    /// [`Error`]
    pub fn version(&mut self) -> Result<String, Error> {
        self.ask(&Request::Version, None, Repeat::Harmless, |answer| {
            expect(&answer, &[])?;
            Ok(String::from_utf8_lossy(answer.value).into_owned())
        })?
    }

    fn item(&mut self, request: &Request<'_>, repeat: Repeat) -> Result<Option<Item>, Error> {
        self.ask(request, None, repeat, |answer| Ok(found(answer)?.then(|| item(&answer))))?
    }

    fn get_batch<K: AsRef<[u8]>>(
        &mut self,
        keys: &[K],
        items: &mut Vec<Option<Item>>,
    ) -> Result<(), Error> {
        let keys = checked_keys(keys)?;
        let compose = |requests: &mut Requests<'_>, first: u32| push_gets(requests, &keys, first);
        let got =
            self.exchange(Repeat::Harmless, None, compose, |answers| answers.items(keys.len()));
        items.append(&mut got??);
        Ok(())
    }

    /// Sends a get of at most [`KEYS_AT_ONCE`] keys, whose answers [`Client::finish_get`] takes. Returns none if the
    /// connection was lost.
    ///
    /// # Errors
    /// A key is none, or no address answers.
    pub(crate) fn begin_get<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> Result<Option<Begun>, Error> {
        let keys = checked_keys(keys)?;
        self.connect()?;
        let Some(open) = &mut self.link else { return Ok(None) };
        let first = self.opaque;
        push_gets(&mut open.link.requests(&mut self.out, self.options.timeout), &keys, first);
        self.opaque = next_opaque(first);
        let deadline = Instant::now() + self.options.timeout;
        if open.link.send(&self.out, None, deadline).is_err() {
            self.link = None;
            return Ok(None);
        }
        Ok(Some(Begun { first, deadline, keys: keys.len() }))
    }

    /// Receives the items of a get. Returns none if the connection was lost or the time is over.
    ///
    /// # Errors
    /// The server refused a key.
    pub(crate) fn finish_get(&mut self, begun: &Begun) -> Result<Option<Vec<Option<Item>>>, Error> {
        let Some(open) = &mut self.link else { return Ok(None) };
        let Begun { first, deadline, keys } = *begun;
        match (Answers { link: &mut open.link, first, deadline }).items(keys) {
            Ok(items) => items.map(Some),
            Err(_) => {
                self.link = None;
                Ok(None)
            }
        }
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
        self.ask(&Request::Store(request), Some(value), Repeat::Harmful, |answer| {
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
        self.ask(&request, None, Repeat::Harmful, |answer| {
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
        value: Option<&[u8]>,
        repeat: Repeat,
        take: impl Fn(Answer<'_>) -> T,
    ) -> Result<T, Error> {
        let compose = |requests: &mut Requests<'_>, opaque| requests.push(request, opaque);
        self.exchange(repeat, value, compose, |answers| answers.next(&take))
    }

    /// Sends requests and receives their answers, on another connection if this one is lost before they were executed.
    fn exchange<T>(
        &mut self,
        repeat: Repeat,
        value: Option<&[u8]>,
        compose: impl Fn(&mut Requests<'_>, u32),
        receive: impl Fn(&mut Answers<'_>) -> io::Result<T>,
    ) -> Result<T, Error> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            self.connect()?;
            let Some(open) = &mut self.link else { continue };
            let first = self.opaque;
            compose(&mut open.link.requests(&mut self.out, self.options.timeout), first);
            self.opaque = next_opaque(first);
            let deadline = Instant::now() + self.options.timeout;
            let sent = open.link.send(&self.out, value, deadline);
            let received =
                sent.and_then(|()| receive(&mut Answers { link: &mut open.link, first, deadline }));
            let error = match received {
                Ok(received) => return Ok(received),
                Err(error) => error,
            };
            let is_late = is_late(&error);
            // A server that is only slow may read the request later.
            let is_safe = match repeat {
                Repeat::Harmless => true,
                Repeat::Harmful => !is_late && open.link.is_unread(),
                Repeat::HarmfulInPart => false,
            };
            let address = self.addresses[open.index].to_string();
            self.link = None;
            if !is_safe {
                return Err(Error::Unknown { address, error });
            }
            if is_late {
                return Err(Error::TimedOut { address, timeout: self.options.timeout });
            }
            // No connection stays.
            if attempts > self.addresses.len() {
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
        let Options { connect_timeout, retry_after, long_wait, poll_max, .. } = self.options;
        let mut problems = Vec::new();
        for (index, address) in self.addresses[..known].iter().enumerate() {
            if self.silent_until[index].is_some_and(|until| Instant::now() < until) {
                problems.push(format!("{address}: it did not answer a moment ago"));
                continue;
            }
            match Link::connect(address, connect_timeout, BODY_BYTES_MAX, long_wait) {
                Ok(mut link) => {
                    link.set_poll_max(poll_max);
                    let retry_at = Instant::now() + retry_after;
                    self.link = Some(Open { link, index, retry_at });
                    self.silent_until[index] = None;
                    return Ok(());
                }
                Err(error) => {
                    let is_silent = error.kind() == io::ErrorKind::TimedOut;
                    // While another address serves, calls spend little of their time on this one.
                    let share = if self.link.is_some() { SILENT_SHARE } else { 0 };
                    let pause = retry_after.max(connect_timeout * share);
                    self.silent_until[index] = is_silent.then(|| Instant::now() + pause);
                    problems.push(format!("{address}: {error}"));
                }
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

/// A get whose answers are to be received.
pub(crate) struct Begun {
    first: u32,
    deadline: Instant,
    keys: usize,
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
    fn next<T>(&mut self, take: impl FnOnce(Answer<'_>) -> T) -> io::Result<T> {
        self.next_of(0, |_, answer| take(answer))
    }

    /// Passes the answer to the next of several requests, all of which are answered, to `take`.
    fn next_in_order<T>(&mut self, take: impl FnOnce(Answer<'_>) -> T) -> io::Result<T> {
        let taken = self.next(take)?;
        self.first += 1;
        Ok(taken)
    }

    /// Passes the next answer to `take`, with the index of its request, which is at most `last`.
    fn next_of<T>(&mut self, last: u32, take: impl FnOnce(u32, Answer<'_>) -> T) -> io::Result<T> {
        let first = self.first;
        let opaques = first..=first + last;
        let taken = self.link.receive(self.deadline, opaques, |answer| {
            let index = answer.opaque.wrapping_sub(first);
            (index <= last).then(|| take(index, answer))
        })?;
        let wrong = "an answer to a request that was not sent";
        taken.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, wrong))
    }
}

impl Answers<'_> {
    /// Receives the items of so many keys, and the answer that says that there are no more.
    fn items(&mut self, keys: usize) -> io::Result<Result<Vec<Option<Item>>, Error>> {
        let mut items = vec![None; keys];
        let mut problem = None;
        loop {
            let (index, answer) = self.next_of(keys as u32, |index, answer| {
                let answer = expect(&answer, &[]).map(|()| item(&answer));
                (index as usize, answer)
            })?;
            match answer {
                _ if index == keys => return Ok(problem.map_or(Ok(items), Err)),
                Err(error) => problem = problem.or(Some(error)),
                Ok(item) => items[index] = Some(item),
            }
        }
    }
}

fn checked_keys<K: AsRef<[u8]>>(keys: &[K]) -> Result<Vec<Key<'_>>, Error> {
    keys.iter().map(|key| Ok(Key::new(key.as_ref())?)).collect()
}

/// Appends a get that has answers for the keys with items only, and a request whose answer is the last.
fn push_gets(requests: &mut Requests<'_>, keys: &[Key<'_>], first: u32) {
    for (key, opaque) in keys.iter().zip(first..) {
        requests.push(&Request::Get { key: *key, quiet: true }, opaque);
    }
    requests.push(&Request::Noop, first + keys.len() as u32);
}

fn next_opaque(first: u32) -> u32 {
    first.wrapping_add(OPAQUES_PER_CALL) % OPAQUE_MAX
}

/// Fails unless the answer is a success or has one of these statuses.
fn expect(answer: &Answer<'_>, others: &[Status]) -> Result<(), Error> {
    let is_known = answer.status == 0 || others.iter().any(|other| other.code() == answer.status);
    if is_known { Ok(()) } else { Err(refused(answer.status, answer.value)) }
}

/// Returns whether there was an item.
fn found(answer: Answer<'_>) -> Result<bool, Error> {
    expect(&answer, &[Status::NotFound])?;
    Ok(answer.status == 0)
}

fn item(answer: &Answer<'_>) -> Item {
    Item { value: answer.value.to_vec(), client_flags: answer.client_flags, cas: answer.cas }
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
pub(crate) const KEYS_AT_ONCE: usize = 128;

/// The longest time of an option: some 30 years, with which clocks can compute.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

/// The most bytes of values that share a round trip. Their answers are short, so that the server never waits for room.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// The pause after an attempt to return to an address that did not answer, in lengths of the attempt.
const SILENT_SHARE: u32 = 10;

/// The numbers that one call uses for its requests.
const OPAQUES_PER_CALL: u32 = KEYS_AT_ONCE as u32 + 1;

/// The end of the numbers for requests. It is far enough from the largest number for one more call.
const OPAQUE_MAX: u32 = 1 << 31;

/// The longest body of an answer: the largest item with its key (bytes).
const BODY_BYTES_MAX: usize = ITEM_BYTES_MAX_HIGHEST.0 as usize + 1_024;
