//! Shares dictionaries with other processes, and with this process after a restart, through the store: under reserved
//! keys that follow from the dictionary's content. A dictionary is stored before the first value that needs it, and is
//! stored again whenever the store has lost it. Nothing that is read is trusted: it must be a dictionary with the id
//! that was asked for. This module does not decide which dictionary a class uses.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use device::{Dictionary, TenantId, dictionary};
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};
use protocol::command::{Store, StoreVerb};
use protocol::{Key, MetaKey};
use store::{dictionary_keys, frame};
use tokio::sync::oneshot;
use units::{Clock, DictionaryId, Nanos};

use super::{Class, Dictionaries};
use crate::backend::{Backend, Written};
use crate::sealing::Sealer;
use crate::upstream::Traffic;
use crate::values::Stored;

/// One worker's access to the dictionaries in the store.
#[derive(Clone)]
pub(crate) struct Exchange(Rc<Parts>);

struct Parts {
    backend: Backend,
    sealer: Sealer,
    dictionaries: Arc<Dictionaries>,
    clock: Arc<dyn Clock>,
    fetches: RefCell<HashMap<DictionaryId, Fetch>>,
    /// Whether a check of the store is in progress.
    keeping: Cell<bool>,
}

/// The result of a search.
type Found = Result<Arc<Dictionary>, Missing>;

type Search = Shared<LocalBoxFuture<'static, Found>>;

/// The reason why there is no dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The store answered that it does not have it.
    Absent,
    /// The store did not answer, or was not asked because of too many searches.
    Unknown,
}

/// A search for a dictionary, which everyone who needs the dictionary shares.
struct Fetch {
    found: Search,
    /// Until this time no other search for the same dictionary begins.
    until: Nanos,
}

/// A request of the trainer to a worker, which can reach the store.
pub(crate) enum ExchangeRequest {
    /// Stores a dictionary as the one that a class uses. The answer is whether it is stored.
    Publish(Arc<Class>, Arc<Dictionary>, oneshot::Sender<bool>),
    /// Asks for the dictionary that another process published for a class.
    Published(Arc<Class>, oneshot::Sender<Option<Arc<Dictionary>>>),
}

impl Exchange {
    pub(crate) fn new(
        backend: Backend,
        sealer: Sealer,
        dictionaries: Arc<Dictionaries>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (fetches, keeping) = (RefCell::default(), Cell::new(false));
        Self(Rc::new(Parts { backend, sealer, dictionaries, clock, fetches, keeping }))
    }

    /// Removes a dictionary that made a wrong value, see [`Dictionaries::distrust`].
    pub(crate) fn distrust(&self, id: DictionaryId) {
        self.0.dictionaries.distrust(id);
    }

    /// Returns whether a class of this process uses the dictionary.
    pub(crate) fn is_current(&self, id: DictionaryId) -> bool {
        self.0.dictionaries.is_current(id)
    }

    /// Returns the class of a value that is about to be written, see [`Dictionaries::class`].
    pub(crate) fn class(&self, key: &[u8], value: &[u8]) -> Option<Arc<Class>> {
        self.0.dictionaries.class(TenantId::default(), key, value)
    }

    /// Returns whether the store has memory that it does not need now.
    pub(crate) fn has_spare_memory(&self) -> bool {
        self.0.backend.has_spare_memory()
    }

    /// Returns the dictionary with this id, from this process or from the store. A search that found nothing is not
    /// repeated for a while, and there are not more than [`FETCHES_MAX`] searches in that time.
    pub(crate) async fn find(&self, id: DictionaryId) -> Found {
        if let Some(known) = self.0.dictionaries.get(id) {
            return Ok(known);
        }
        let found = self.search(id).ok_or(Missing::Unknown)?.await;
        if found.is_ok() {
            self.0.fetches.borrow_mut().remove(&id);
        }
        found
    }

    fn search(&self, id: DictionaryId) -> Option<Search> {
        let now = self.0.clock.now();
        let mut fetches = self.0.fetches.borrow_mut();
        if fetches.len() >= FETCHES_MAX {
            fetches.retain(|_, fetch| fetch.until > now);
        }
        if let Some(fetch) = fetches.get(&id).filter(|fetch| fetch.until > now) {
            return Some(fetch.found.clone());
        }
        if fetches.len() >= FETCHES_MAX {
            return None;
        }
        let parts = Rc::clone(&self.0);
        let found = async move { parts.fetch(id).await }.boxed_local().shared();
        fetches.insert(id, Fetch { found: found.clone(), until: now + FETCH_AGAIN_AFTER });
        Some(found)
    }

    /// Does what the trainer asks for.
    pub(crate) async fn serve(&self, request: ExchangeRequest) {
        match request {
            ExchangeRequest::Publish(class, dictionary, answer) => {
                let is_stored = self.publish(&class, &dictionary).await;
                let _ = answer.send(is_stored);
            }
            ExchangeRequest::Published(class, answer) => {
                let _ = answer.send(self.published(&class).await);
            }
        }
    }

    async fn publish(&self, class: &Class, dictionary: &Arc<Dictionary>) -> bool {
        if !self.0.store_copies(dictionary).await {
            return false;
        }
        let id = dictionary.id().to_string();
        // Without the pointer other processes train a dictionary of their own, which costs time and no value.
        self.0.set(&class_key(class), id.as_bytes()).await;
        true
    }

    async fn published(&self, class: &Class) -> Option<Arc<Dictionary>> {
        let id = self.0.read(&class_key(class)).await.ok()??;
        let id = DictionaryId::from_hex(std::str::from_utf8(&id.content).ok()?)?;
        self.find(id).await.ok()
    }

    /// Stores the copies of each dictionary of this process that the store has lost, and forgets the dictionaries that
    /// an operator dropped. Reading a copy keeps memcached from evicting it.
    async fn keep(&self) {
        for dictionary in self.0.dictionaries.all() {
            let id = dictionary.id();
            for copy in 0..self.0.copies() {
                let key = dictionary_keys::copy(id, copy);
                match self.0.read(&key).await {
                    // A server that does not answer has lost nothing.
                    Err(Unreachable) => {}
                    Ok(Some(found)) if found.content == dictionary_keys::DROPPED => {
                        tracing::info!(%id, "dictionary dropped");
                        self.0.dictionaries.forget(id);
                        break;
                    }
                    // Values that are sealed have dictionaries that are sealed.
                    Ok(Some(found))
                        if found.content == dictionary.content()
                            && found.is_sealed >= self.0.sealer.seals() => {}
                    Ok(_) => {
                        self.0.set(&key, dictionary.content()).await;
                    }
                }
            }
        }
    }

    /// Starts [`Exchange::keep`] in a task, unless one is in progress. A server that does not answer then delays
    /// nobody.
    pub(crate) fn keep_soon(&self) {
        if let Some(keeping) = Keeping::begin(&self.0) {
            let exchange = self.clone();
            tokio::task::spawn_local(async move {
                let _keeping = keeping;
                exchange.keep().await;
            });
        }
    }

    /// Calls [`Exchange::keep`] for ever.
    pub(crate) async fn keep_always(&self) {
        let mut tick = tokio::time::interval(KEEP_EVERY);
        loop {
            tick.tick().await;
            self.keep().await;
        }
    }
}

/// Marks that a check of the store is in progress, until it is dropped. A check that ends because of a defect therefore
/// holds up no later one.
struct Keeping(Rc<Parts>);

impl Keeping {
    /// Returns none if a check is in progress.
    fn begin(parts: &Rc<Parts>) -> Option<Self> {
        (!parts.keeping.replace(true)).then(|| Self(Rc::clone(parts)))
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.0.keeping.set(false);
    }
}

impl Parts {
    async fn fetch(&self, id: DictionaryId) -> Found {
        let mut missing = Missing::Absent;
        for copy in 0..self.copies() {
            let content = match self.read(&dictionary_keys::copy(id, copy)).await {
                Err(Unreachable) => {
                    missing = Missing::Unknown;
                    continue;
                }
                Ok(None) => continue,
                Ok(Some(found)) => found.content,
            };
            if content == dictionary_keys::DROPPED {
                return Err(Missing::Absent);
            }
            if content.len() <= dictionary::BYTES_MAX
                && let Ok(dictionary) = Dictionary::from_content(content.to_vec())
                && dictionary.id() == id
            {
                let dictionary = Arc::new(dictionary);
                // Without memory to remember it, the dictionary serves those who wait for it now.
                self.dictionaries.add(&dictionary);
                return Ok(dictionary);
            }
        }
        Err(missing)
    }

    /// Returns whether at least one copy is stored.
    async fn store_copies(&self, dictionary: &Dictionary) -> bool {
        let mut is_stored = false;
        for copy in 0..self.copies() {
            is_stored |=
                self.set(&dictionary_keys::copy(dictionary.id(), copy), dictionary.content()).await;
        }
        is_stored
    }

    /// Returns the number of copies of each dictionary. They are on different servers of a ring, mostly.
    fn copies(&self) -> usize {
        match &self.backend {
            Backend::Local(_) => 1,
            Backend::Cluster(cluster) => {
                cluster.view().links().count().clamp(1, dictionary_keys::COPIES_MAX)
            }
        }
    }

    /// Returns the value of a reserved key. A sealed one that cannot be opened is none.
    async fn read(&self, key: &str) -> Result<Option<Reserved>, Unreachable> {
        let key = MetaKey::new(key.as_bytes()).map_err(|_| Unreachable)?;
        let seen = self.backend.read_stored(&key).await.map_err(|_| Unreachable)?;
        let Some(seen) = seen else { return Ok(None) };
        self.backend.release_win(&key, seen.cas, seen.won).await;
        let is_sealed = frame::looks_sealed(&seen.value);
        let content = self.sealer.open_form(key.bytes(), seen.value).await;
        Ok(content.map(|content| Reserved { content, is_sealed }))
    }

    async fn set(&self, key: &str, value: &[u8]) -> bool {
        let Ok(key) = Key::new(key.as_bytes()) else { return false };
        let stored = match self.sealer.seals() {
            true => Stored::Shared(self.sealer.seal(&key, Stored::Slice(value), value.len()).await),
            false => Stored::Slice(value),
        };
        let store = Store {
            verb: StoreVerb::Set,
            key,
            client_flags: 0,
            exptime_s: 0,
            value_bytes: stored.as_slice().len(),
            cas: 0,
            noreply: false,
        };
        let issued = self.backend.store(&store, stored, Traffic::Bulk);
        matches!(issued.written().await, Ok(Written::Stored { .. }))
    }
}

/// The value of a reserved key.
struct Reserved {
    content: Bytes,
    /// Whether it was sealed.
    is_sealed: bool,
}

/// The store did not answer.
struct Unreachable;

/// Returns the key of the id of the dictionary that a class uses.
fn class_key(class: &Class) -> String {
    dictionary_keys::of_class(class.tenant().0, class.name())
}

/// The number of searches within [`FETCH_AGAIN_AFTER`] in one worker. It bounds what made-up ids cost.
const FETCHES_MAX: usize = 128;

/// The time for which a dictionary that was not found is not searched again.
const FETCH_AGAIN_AFTER: Nanos = Nanos::secs(5);

/// The interval at which the store is checked for the dictionaries of this process.
const KEEP_EVERY: Duration = Duration::from_secs(2);
