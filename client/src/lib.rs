//! A client of the cache. On the cache's host it exchanges requests through shared memory, without the kernel; from
//! elsewhere, or while there is no near socket, it uses TCP or a Unix socket.
//!
//! ```no_run
//! use rebate_client::{Client, Options};
//!
//! let addresses = ["near:/run/rebate/near", "127.0.0.1:11211"];
//! let mut cache = Client::new(&addresses, Options::default())?;
//! cache.set(b"greeting", b"hello", Default::default())?;
//! let value = cache.get(b"greeting")?.map(|item| item.value);
//! assert_eq!(value.as_deref(), Some(&b"hello"[..]));
//! # Ok::<(), rebate_client::Error>(())
//! ```
//!
//! The addresses are different ways to the same cache, the preferred one first. A client connects when it is first
//! used, goes to the next address if one does not answer, and returns to a preferred one after
//! [`Options::retry_after`]. A client belongs to one thread at a time; another thread needs a client of its own.
//!
//! # Several caches
//! A [`Cluster`] is a client of several caches, each of which has addresses. It assigns keys to caches as libmemcached
//! does, so that it finds what other clients of the same caches store.
//!
//! # Requests that meet a lost connection
//! A request that only reads is sent again to the next address. So is one that changes something, if it is certain
//! that the lost server did not execute it: near connections tell whether the server has read the whole request.
//! Otherwise the call returns [`Error::Unknown`], because sending an increment twice would count twice.

mod address;
mod answer;
mod client;
mod cluster;
mod error;
mod link;
mod meta;
mod server;

pub use address::Address;
pub use client::{Client, EXPIRED, Entry, Item, Options, Stored, Write};
pub use cluster::Cluster;
pub use error::Error;
pub use server::Server;
pub use store::Distribution;

/// Runs a wait that may be long, on the calling thread, see [`Options::long_wait`].
pub type LongWait = fn(&mut (dyn FnMut() + Send));
