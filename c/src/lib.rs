//! The C library: the functions of `include/rebate.h` over the crate `rebate-client`. The header says what a caller has
//! to keep to, and the unsafe blocks rest on it: pointers are null or valid for the call, and a client comes from
//! [`rebate_client_open`] and is used by one thread at a time.

mod pointers;

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::time::Duration;

use rebate_client::{Cluster, Distribution, EXPIRED, Error, Item, Options, Stored, Write};

use pointers::{bytes, elements, give, reference, text};

/// A client, as C sees it.
pub struct Client {
    cluster: Cluster,
    /// What the last call has returned, with a NUL behind it.
    result: Vec<u8>,
}

/// The outcome of a call; `rebate_status` in C, where the values have names.
pub type Status = u32;

const OK: Status = 0;
const NOT_FOUND: Status = 1;
const NOT_STORED: Status = 2;
const EXISTS: Status = 3;
const INVALID: Status = 5;
const BUG: Status = 10;

/// `rebate_options`
#[repr(C)]
pub struct COptions {
    connect_timeout_ms: u32,
    timeout_ms: u32,
    retry_after_ms: u32,
    distribution: u32,
}

/// `rebate_found`
pub type Found = extern "C" fn(*mut c_void, usize, *const c_char, usize, u32, u64);
/// `rebate_stat`
pub type Stat = extern "C" fn(*mut c_void, *const c_char, *const c_char, *const c_char);

/// A failed call: its status and its text.
struct Failure(Status, String);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            error if error.is_timeout() => 7,
            Error::NotANumber => 4,
            Error::Unreachable(_) => 6,
            Error::Unknown { .. } => 8,
            Error::Refused { .. } => 9,
            _ => INVALID,
        };
        Self(status, error.to_string())
    }
}

fn invalid(why: &str) -> Failure {
    Failure(INVALID, why.to_owned())
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Runs a call. No panic reaches C.
fn run(call: impl FnOnce() -> Result<Status, Failure>) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    let Failure(status, why) = match outcome {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => failure,
        Err(_) => Failure(BUG, "the library panicked".to_owned()),
    };
    let why = CString::new(why.replace('\0', "\\0")).unwrap_or_default();
    LAST_ERROR.with(|last| last.replace(why));
    status
}

/// Runs a call with a client and a key.
fn with_key(
    client: *mut Client,
    key: *const c_char,
    key_length: usize,
    call: impl FnOnce(&mut Client, &[u8]) -> Result<Status, Failure>,
) -> Status {
    run(|| {
        let client = reference(client).ok_or_else(|| invalid("the client is NULL"))?;
        let key = bytes(key, key_length).ok_or_else(|| invalid("the key is NULL"))?;
        call(client, key)
    })
}

/// Changes a number, and gives what it is then.
fn count(
    client: *mut Client,
    key: *const c_char,
    key_length: usize,
    value: *mut u64,
    call: impl FnOnce(&mut Cluster, &[u8]) -> Result<Option<u64>, Error>,
) -> Status {
    with_key(client, key, key_length, |client, key| {
        let number = call(&mut client.cluster, key)?;
        number.into_iter().for_each(|number| give(value, number));
        Ok(found(number.is_some()))
    })
}

/// Returns a time of the protocol.
fn time(seconds: i64) -> Result<u32, Failure> {
    let max = i64::from(i32::MAX);
    match seconds {
        ..0 => Ok(EXPIRED),
        seconds if seconds <= max => Ok(seconds as u32),
        _ => Err(invalid(&format!("an expiry of {seconds} s; the largest is {max}"))),
    }
}

fn stored(stored: Stored) -> Status {
    match stored {
        Stored::Stored { .. } => OK,
        Stored::NotStored => NOT_STORED,
        Stored::Exists => EXISTS,
        Stored::NotFound => NOT_FOUND,
    }
}

const fn found(found: bool) -> Status {
    if found { OK } else { NOT_FOUND }
}

/// Makes a client, see the header.
#[unsafe(no_mangle)]
pub extern "C" fn rebate_client_open(
    servers: *const c_char,
    options: *const COptions,
) -> *mut Client {
    let mut opened = ptr::null_mut();
    run(|| {
        let servers = text(servers).ok_or_else(|| invalid("the servers are NULL or not UTF-8"))?;
        let given = elements(options, 1).and_then(<[COptions]>::first);
        let time = |ms: Option<u32>| match ms {
            None | Some(0) => Duration::from_secs(1),
            Some(ms) => Duration::from_millis(ms.into()),
        };
        let distribution = match given.map_or(0, |given| given.distribution) {
            0 => Distribution::Ketama,
            1 => Distribution::KetamaWeighted,
            2 => Distribution::Modula,
            other => return Err(invalid(&format!("a distribution of {other}; give 0 to 2"))),
        };
        let options = Options {
            connect_timeout: time(given.map(|given| given.connect_timeout_ms)),
            timeout: time(given.map(|given| given.timeout_ms)),
            retry_after: time(given.map(|given| given.retry_after_ms)),
            ..Options::default()
        };
        let servers: Vec<&str> = servers.split(',').collect();
        let cluster = Cluster::new(&servers, distribution, options)?;
        opened = Box::into_raw(Box::new(Client { cluster, result: Vec::new() }));
        Ok(OK)
    });
    opened
}

/// Closes a client, see the header.
#[unsafe(no_mangle)]
pub extern "C" fn rebate_client_close(client: *mut Client) {
    run(|| {
        drop(pointers::taken(client));
        Ok(OK)
    });
}

/// Keeps an item for the caller and returns its value.
fn give_item(
    client: &mut Client,
    item: Option<Item>,
    length: *mut usize,
    flags: *mut u32,
    cas: *mut u64,
) -> (*const c_char, Status) {
    let Some(item) = item else { return (ptr::null(), NOT_FOUND) };
    give(length, item.value.len());
    give(flags, item.client_flags);
    give(cas, item.cas);
    client.result = item.value;
    client.result.push(0);
    (client.result.as_ptr().cast(), OK)
}

/// Gets an item, see the header.
#[unsafe(no_mangle)]
pub extern "C" fn rebate_get(
    client: *mut Client,
    key: *const c_char,
    key_length: usize,
    length: *mut usize,
    flags: *mut u32,
    cas: *mut u64,
    status: *mut Status,
) -> *const c_char {
    let mut value = ptr::null();
    let outcome = with_key(client, key, key_length, |client, key| {
        let item = client.cluster.get(key)?;
        let given = give_item(client, item, length, flags, cas);
        value = given.0;
        Ok(given.1)
    });
    give(status, outcome);
    value
}

/// Gets an item and sets its expiry, see the header.
#[unsafe(no_mangle)]
pub extern "C" fn rebate_gat(
    client: *mut Client,
    key: *const c_char,
    key_length: usize,
    expiry_s: i64,
    length: *mut usize,
    flags: *mut u32,
    cas: *mut u64,
    status: *mut Status,
) -> *const c_char {
    let mut value = ptr::null();
    let outcome = with_key(client, key, key_length, |client, key| {
        let item = client.cluster.get_and_touch(key, time(expiry_s)?)?;
        let given = give_item(client, item, length, flags, cas);
        value = given.0;
        Ok(given.1)
    });
    give(status, outcome);
    value
}

/// Gets several items, see the header.
#[unsafe(no_mangle)]
pub extern "C" fn rebate_mget(
    client: *mut Client,
    keys: *const *const c_char,
    key_lengths: *const usize,
    count: usize,
    found: Option<Found>,
    context: *mut c_void,
) -> Status {
    run(|| {
        let client = reference(client).ok_or_else(|| invalid("the client is NULL"))?;
        let missing = || invalid("the keys, their lengths or the function are NULL");
        let (keys, lengths) = (elements(keys, count), elements(key_lengths, count));
        let (keys, lengths) = keys.zip(lengths).ok_or_else(missing)?;
        let (keys, found) = (keys.iter().zip(lengths), found.ok_or_else(missing)?);
        let keys = keys.map(|(key, length)| bytes(*key, *length).ok_or_else(missing));
        let keys: Vec<&[u8]> = keys.collect::<Result<_, _>>()?;
        for (index, item) in client.cluster.get_many(&keys)?.into_iter().enumerate() {
            let Some(Item { mut value, client_flags, cas }) = item else { continue };
            let length = value.len();
            value.push(0);
            found(context, index, value.as_ptr().cast(), length, client_flags, cas);
        }
        Ok(OK)
    })
}

/// Defines the functions that store a value.
macro_rules! stores {
    ($($name:ident($($more:ident: $type:ty),*) = $call:expr;)*) => {$(
        /// Stores a value, see the header.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            client: *mut Client,
            key: *const c_char,
            key_length: usize,
            value: *const c_char,
            value_length: usize,
            $($more: $type),*
        ) -> Status {
            with_key(client, key, key_length, |client, key| {
                let value = bytes(value, value_length).ok_or_else(|| invalid("the value is NULL"))?;
                let call: fn(&mut Cluster, &[u8], &[u8], $($type),*) -> _ = $call;
                call(&mut client.cluster, key, value, $($more),*)
            })
        }
    )*};
}

stores! {
    rebate_set(expiry_s: i64, client_flags: u32) = |cluster, key, value, expiry_s, client_flags| {
        cluster.set(key, value, Write { client_flags, exptime_s: time(expiry_s)? })?;
        Ok(OK)
    };
    rebate_add(expiry_s: i64, client_flags: u32) = |cluster, key, value, expiry_s, client_flags| {
        Ok(stored(cluster.add(key, value, Write { client_flags, exptime_s: time(expiry_s)? })?))
    };
    rebate_replace(expiry_s: i64, client_flags: u32) =
        |cluster, key, value, expiry_s, client_flags| {
            let with = Write { client_flags, exptime_s: time(expiry_s)? };
            Ok(stored(cluster.replace(key, value, with)?))
        };
    rebate_append() = |cluster, key, value| Ok(stored(cluster.append(key, value)?));
    rebate_prepend() = |cluster, key, value| Ok(stored(cluster.prepend(key, value)?));
    rebate_cas(expiry_s: i64, client_flags: u32, cas: u64) =
        |cluster, key, value, expiry_s, client_flags, cas| {
            let with = Write { client_flags, exptime_s: time(expiry_s)? };
            Ok(stored(cluster.cas(key, value, with, cas)?))
        };
}

/// Deletes an item, see the header.
#[unsafe(no_mangle)]
pub extern "C" fn rebate_delete(
    client: *mut Client,
    key: *const c_char,
    key_length: usize,
) -> Status {
    with_key(client, key, key_length, |client, key| Ok(found(client.cluster.delete(key)?)))
}

/// Sets the expiry of an item, see the header.
#[unsafe(no_mangle)]
pub extern "C" fn rebate_touch(
    client: *mut Client,
    key: *const c_char,
    key_length: usize,
    expiry_s: i64,
) -> Status {
    with_key(client, key, key_length, |client, key| {
        Ok(found(client.cluster.touch(key, time(expiry_s)?)?))
    })
}

/// Adds to a number, see the header.
#[unsafe(no_mangle)]
pub extern "C" fn rebate_increment(
    client: *mut Client,
    key: *const c_char,
    key_length: usize,
    delta: u64,
    value: *mut u64,
) -> Status {
    count(client, key, key_length, value, |cluster, key| cluster.increment(key, delta))
}

/// Subtracts from a number, see the header.
#[unsafe(no_mangle)]
pub extern "C" fn rebate_decrement(
    client: *mut Client,
    key: *const c_char,
    key_length: usize,
    delta: u64,
    value: *mut u64,
) -> Status {
    count(client, key, key_length, value, |cluster, key| cluster.decrement(key, delta))
}

/// Removes all items, see the header.
#[unsafe(no_mangle)]
pub extern "C" fn rebate_flush(client: *mut Client, delay_s: u32) -> Status {
    run(|| {
        let client = reference(client).ok_or_else(|| invalid("the client is NULL"))?;
        client.cluster.flush(delay_s)?;
        Ok(OK)
    })
}

/// Reads statistics, see the header.
#[unsafe(no_mangle)]
pub extern "C" fn rebate_stats(
    client: *mut Client,
    page: *const c_char,
    found: Option<Stat>,
    context: *mut c_void,
) -> Status {
    run(|| {
        let client = reference(client).ok_or_else(|| invalid("the client is NULL"))?;
        let found = found.ok_or_else(|| invalid("the function is NULL"))?;
        let page = if page.is_null() { "" } else { text(page).unwrap_or_default() };
        let stats = client.cluster.stats(page)?;
        let c = |text: &str| CString::new(text).unwrap_or_default();
        for (server, stats) in client.cluster.servers().iter().zip(&stats) {
            let server = c(&server.to_string());
            for (name, value) in stats {
                found(context, server.as_ptr(), c(name).as_ptr(), c(value).as_ptr());
            }
        }
        Ok(OK)
    })
}

/// Keeps a text for the caller.
fn give_text(client: &mut Client, text: String) -> *const c_char {
    client.result = text.into_bytes();
    client.result.push(0);
    client.result.as_ptr().cast()
}

/// Returns the version of the first cache, see the header.
#[unsafe(no_mangle)]
pub extern "C" fn rebate_version(client: *mut Client, status: *mut Status) -> *const c_char {
    let mut version = ptr::null();
    let outcome = run(|| {
        let client = reference(client).ok_or_else(|| invalid("the client is NULL"))?;
        let [first, ..] = client.cluster.clients() else { return Ok(NOT_FOUND) };
        let found = first.version()?;
        version = give_text(client, found);
        Ok(OK)
    });
    give(status, outcome);
    version
}

/// Returns the address in use, see the header.
#[unsafe(no_mangle)]
pub extern "C" fn rebate_address(
    client: *mut Client,
    key: *const c_char,
    key_length: usize,
) -> *const c_char {
    let mut address = ptr::null();
    with_key(client, key, key_length, |client, key| {
        let found = client.cluster.client(key).address().map(ToString::to_string);
        address = found.map_or(ptr::null(), |found| give_text(client, found));
        Ok(OK)
    });
    address
}

/// Returns what a status means, see the header.
#[unsafe(no_mangle)]
pub extern "C" fn rebate_strerror(status: Status) -> *const c_char {
    MEANINGS.get(status as usize).unwrap_or(&c"no status of this library").as_ptr()
}

/// Returns the text of the last failure, see the header.
#[unsafe(no_mangle)]
pub extern "C" fn rebate_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

/// The texts of the statuses.
const MEANINGS: [&CStr; 11] = [
    c"success",
    c"there is no item",
    c"the condition of the request is not met",
    c"the item has another version",
    c"the value is not a number of at most 64 bits",
    c"an argument is wrong",
    c"no address of the cache answers",
    c"the cache did not answer in time",
    c"the connection was lost, and whether the request was executed is unknown",
    c"the cache refused the request",
    c"an error of this library",
];
