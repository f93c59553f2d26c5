//! What clients asked for and what they were answered, and whether that fits one order of all requests.

mod checker;
mod state;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

pub use checker::{Rules, Violation, check};

/// The bytes of a value, with a digest, so that states with long values are compared quickly.
#[derive(Clone)]
pub struct Bytes {
    bytes: Arc<[u8]>,
    digest: u64,
}

impl<T: Into<Arc<[u8]>>> From<T> for Bytes {
    fn from(bytes: T) -> Self {
        let bytes = bytes.into();
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Self { bytes, digest: hasher.finish() }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest && self.bytes.len() == other.bytes.len()
    }
}

impl Eq for Bytes {}

impl Hash for Bytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = String::from_utf8_lossy(&self.bytes[..self.bytes.len().min(60)]);
        write!(f, "{head:?}")?;
        if self.bytes.len() > 60 {
            write!(f, " ({} bytes)", self.bytes.len())?;
        }
        Ok(())
    }
}

/// What a client asked for, about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Returns the item, with its CAS number where the answer has one.
    Get,
    /// Stores a value, whatever is there.
    Set(Bytes),
    /// Stores a value if there is none.
    Add(Bytes),
    /// Stores a value if there is one.
    Replace(Bytes),
    /// Stores a value if the CAS number is still this one.
    Cas(Bytes, u64),
    /// Appends to the value.
    Append(Bytes),
    /// Deletes the item.
    Delete,
    /// Adds to the number.
    Count(u64),
    /// Sets the expiry time.
    Touch,
    /// Deletes all items.
    Flush,
    /// Returns the item with its marks, and tells one client to write it anew.
    Fetch {
        /// An item that is missing is made, with an empty value.
        vivifies: bool,
        /// An item with a limited life is to be written anew.
        recaches: bool,
    },
    /// Marks the item as stale.
    Invalidate,
}

/// What a fetch tells of an item apart from its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// This client should write the item anew (`W`).
    pub is_won: bool,
    /// The item is stale (`X`).
    pub is_stale: bool,
    /// Another client was told to write the item anew (`Z`).
    pub was_won: bool,
}

/// What a client was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing, or an error. The request may have been done, or may still be.
    Unknown,
    /// The item, with its CAS number if it was asked for.
    Hit(Bytes, Option<u64>),
    /// There is no item.
    Miss,
    /// The request was done.
    Done,
    /// The condition of an add, a replace or an append did not hold.
    NotStored,
    /// The CAS number is another one.
    Exists,
    /// The number after the count.
    Number(u64),
    /// The value is no number.
    NotNumber,
    /// The item with its CAS number and its marks.
    Fetched(Bytes, u64, Marks),
}

/// One request of a client about one key.
#[derive(Clone, Debug)]
pub struct Record {
    /// The client, for messages.
    pub client: usize,
    /// The key, or `None` for a request about all keys.
    pub key: Option<String>,
    /// What was asked.
    pub ask: Ask,
    /// The life of the item that the request sets, or 0 (s).
    pub exptime_s: u32,
    /// What was answered.
    pub answer: Answer,
    /// The place of the request among all events of the run, and its time (ms).
    pub invoked: Moment,
    /// The place and the time of the answer, if there was one.
    pub returned: Option<Moment>,
    /// The connection and the place on it, by which requests about one key take effect.
    pub pipeline: (u64, u64),
}

/// A place in the order of all events, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// The number of events before.
    pub order: u64,
    /// The simulated time (ms).
    pub at_ms: u64,
}

/// Items were lost, because a server ended.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// When they were lost.
    pub at: Moment,
    /// True if all items were lost; false if it depends on the key.
    pub is_certain: bool,
}

/// The history of a run.
#[derive(Debug, Default)]
pub struct History {
    /// The requests, in the order of their beginnings.
    pub records: Vec<Record>,
    /// The losses of items.
    pub losses: Vec<Loss>,
    events: u64,
}

impl History {
    /// Returns the next place in the order of events.
    pub fn moment(&mut self, at_ms: u64) -> Moment {
        self.events += 1;
        Moment { order: self.events, at_ms }
    }

    /// Adds a request and returns its index.
    pub fn begin(&mut self, record: Record) -> usize {
        self.records.push(record);
        self.records.len() - 1
    }

    /// Records the answer of a request.
    pub fn end(&mut self, index: usize, answer: Answer, at_ms: u64) {
        let at = self.moment(at_ms);
        let record = &mut self.records[index];
        record.answer = answer;
        record.returned = Some(at);
    }
}

impl Record {
    /// Returns the time (ms) at which the request had taken effect at the latest. A failed one may do so at any time.
    fn settled_ms(&self) -> Option<u64> {
        self.returned.filter(|_| self.answer != Answer::Unknown).map(|at| at.at_ms)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from_ms, to) = (self.invoked.at_ms, self.returned.map(|at| at.at_ms));
        let to = to.map_or("...".to_owned(), |at_ms| at_ms.to_string());
        write!(f, "{from_ms:>8} - {to:>8} ms  client {}: ", self.client)?;
        write!(f, "{:?} -> {:?}", self.ask, self.answer)?;
        if self.exptime_s > 0 {
            write!(f, " (for {} s)", self.exptime_s)?;
        }
        Ok(())
    }
}
