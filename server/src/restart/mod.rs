//! Keeps the items of an embedded store over a restart (`store.file`). The last process saved them when it
//! ended properly; this one loads them before it serves, or starts empty and says why. Loading and saving are
//! all that happens here: `store::embedded::snapshot` defines the bytes, and `file` keeps old items from
//! being loaded after a crash.

mod file;
mod save;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use store::embedded::snapshot::{
    About, Moment, Restored, RestoredItems, SectionKind, SnapshotError,
};
use store::embedded::{CoarseClock, Embedded, Options};
use store::frame::SealedHeader;
use units::limits::FRAME_HEADER_BYTES_MAX;

use crate::StartError;
use crate::config::{Config, StoreConfig, StoreUrl};
use crate::dictionaries::Dictionaries;
use crate::memory;
use crate::simulated::Disk;
pub(crate) use file::StoreFile;
use file::{Content, LockError};
pub(crate) use save::{give_up, save};

/// A store that is ready to serve, or none.
pub(crate) struct Opened {
    pub(crate) store: Option<Arc<Embedded>>,
    /// The dictionaries, with those that the items need.
    pub(crate) dictionaries: Arc<Dictionaries>,
    /// The file to which the store will be saved, if there is one.
    pub(crate) file: Option<StoreFile>,
    /// The result of loading, if `store.file` is set.
    pub(crate) restart: Option<Arc<Restart>>,
}

/// The result of loading the items of the last process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Restart {
    pub(crate) outcome: Outcome,
    /// The reason why the store started empty; empty if it did not.
    pub(crate) reason: String,
    pub(crate) items: RestoredItems,
    pub(crate) took: Duration,
}

impl Restart {
    /// Returns the facts with their names in `stats rebate`.
    pub(crate) fn named(&self) -> [(String, String); 7] {
        let RestoredItems { loaded, expired, evicted, skipped } = self.items;
        [
            ("restart:outcome", self.outcome.name().to_owned()),
            ("restart:reason", self.reason.clone()),
            ("restart:loaded_items", loaded.to_string()),
            ("restart:expired_items", expired.to_string()),
            ("restart:evicted_items", evicted.to_string()),
            ("restart:skipped_items", skipped.to_string()),
            ("restart:duration_ms", self.took.as_millis().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }
}

/// The kinds of starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The items were loaded.
    Loaded,
    /// There was nothing to load.
    #[default]
    First,
    /// The last process did not save its items.
    NotSaved,
    /// The file is damaged, or this version cannot read it.
    Refused,
    /// The file cannot be used, so nothing will be saved to it either.
    Unusable,
}

impl Outcome {
    pub(crate) const ALL: [Self; 5] =
        [Self::Loaded, Self::First, Self::NotSaved, Self::Refused, Self::Unusable];

    /// Returns the word for this outcome in statistics and metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::First => "first",
            Self::NotSaved => "not_saved",
            Self::Refused => "refused",
            Self::Unusable => "unusable",
        }
    }
}

/// Opens the store that `config` describes, with the items of the last process if there are any. Opens
/// nothing if the store is not embedded.
///
/// # Errors
/// Another process uses the file.
pub(crate) fn open(
    config: &Config,
    url: &StoreUrl,
    (seed, disk): (u64, Option<Arc<dyn Disk>>),
    time: &CoarseClock,
) -> Result<Opened, StartError> {
    let dictionary_memory = memory::dictionary_memory(config);
    let dictionaries = Dictionaries::new(config.values.classes.clone(), dictionary_memory);
    let dictionaries = Arc::new(dictionaries);
    let config = &config.store;
    if *url != StoreUrl::Embedded {
        return Ok(Opened { store: None, dictionaries, file: None, restart: None });
    }
    let options = Options { limit: config.memory, evict: config.evict, seed };
    let Some(path) = &config.file else {
        let store = Some(Arc::new(empty_store(options, time)));
        return Ok(Opened { store, dictionaries, file: None, restart: None });
    };
    let begun = Instant::now();
    let (file, loaded) = match StoreFile::lock(path, disk) {
        Err(LockError::InUse) => {
            let text = format!("store.file: {} is in use by another process", path.display());
            return Err(StartError::Config(text));
        }
        Err(LockError::NoFolder) => {
            let text = format!("store.file: {} is in no folder that exists", path.display());
            return Err(StartError::Config(text));
        }
        Err(LockError::Unusable(reason)) => (None, Err((Outcome::Unusable, reason))),
        Ok(mut file) => {
            let loaded = load(&mut file, config, options, moment(time));
            (Some(file), loaded)
        }
    };
    let took = begun.elapsed();
    let (store, restart) = match loaded {
        Ok(restored) => {
            let items = restored.items;
            for section in restored.sections.iter().filter(|section| section.kind == DICTIONARIES) {
                dictionaries.restore(&section.bytes);
            }
            report_loaded(config, &restored, took);
            let restart = Restart { outcome: Outcome::Loaded, items, took, ..Restart::default() };
            (restored.store, restart)
        }
        Err((outcome, reason)) => {
            report_empty(config, outcome, &reason);
            (empty_store(options, time), Restart { outcome, reason, took, ..Restart::default() })
        }
    };
    store.reserve(dictionaries.reserved_bytes());
    let (store, restart) = (Some(Arc::new(store)), Some(Arc::new(restart)));
    Ok(Opened { store, dictionaries, file, restart })
}

/// Opens a store without items. A version that a client got from the process before is that of no item.
fn empty_store(options: Options, time: &CoarseClock) -> Embedded {
    let store = Embedded::new(options);
    // In milliseconds, because the process before may have begun within the same second.
    store.begin_versions_after((time.system_unix_ms() << VERSIONS_PER_S_LOG2) / 1_000);
    store
}

/// Loads the items of the last process. An error says why there are none.
fn load(
    file: &mut StoreFile,
    config: &StoreConfig,
    options: Options,
    now: Moment,
) -> Result<Restored, (Outcome, String)> {
    let content = file.content();
    let snapshot = match content {
        Content::Missing => return Err((Outcome::First, String::new())),
        Content::NotSaved(reason) => return Err((Outcome::NotSaved, reason)),
        Content::Empty => return Err((Outcome::Refused, "it is empty".to_owned())),
        Content::Foreign(reason) => {
            file.leave_alone(reason.clone());
            return Err((Outcome::Unusable, reason));
        }
        Content::Snapshot(snapshot) => snapshot,
    };
    tracing::info!("loading the items of the last process from {}", file.path().display());
    let wrapping_bytes = FRAME_HEADER_BYTES_MAX + SealedHeader::OVERHEAD_BYTES;
    let value_bytes_max = config.item_bytes_max.as_usize() + wrapping_bytes;
    Embedded::restore(options, &[DICTIONARIES], snapshot, value_bytes_max, now).map_err(|error| {
        let reason = error.to_string();
        match error {
            SnapshotError::Foreign | SnapshotError::Read(_) => {
                file.leave_alone(reason.clone());
                (Outcome::Unusable, reason)
            }
            _ => (Outcome::Refused, reason),
        }
    })
}

fn report_loaded(config: &StoreConfig, restored: &Restored, took: Duration) {
    let RestoredItems { loaded, expired, evicted, skipped } = restored.items;
    let path = config.file.as_deref().unwrap_or("".as_ref()).display();
    let age_s = units::unix_time().as_secs().saturating_sub(restored.created_unix_s);
    let software = restored.about.software.escape_default();
    tracing::info!(
        "loaded {loaded} items from {path} in {:.1} s, saved {age_s} s ago by {software}; {expired} had expired, \
         {evicted} were evicted, {skipped} were too long",
        took.as_secs_f64()
    );
    if restored.about.item_bytes_max > config.item_bytes_max.0 {
        tracing::warn!(
            "store.item_bytes_max is {} and was {}: values of the last process above it are misses",
            config.item_bytes_max,
            units::ByteCount(restored.about.item_bytes_max)
        );
    }
}

fn report_empty(config: &StoreConfig, outcome: Outcome, reason: &str) {
    let path = config.file.as_deref().unwrap_or("".as_ref()).display();
    match outcome {
        Outcome::Loaded | Outcome::First => tracing::info!("{path}: there are no items to load"),
        Outcome::NotSaved | Outcome::Refused => {
            tracing::warn!("the store starts empty: store.file {path}: {reason}");
        }
        Outcome::Unusable => tracing::error!(
            "the store starts empty, and its items will not be saved: store.file {path}: {reason}"
        ),
    }
}

/// Returns what a snapshot says about this process.
fn about(config: &StoreConfig) -> About {
    About {
        software: concat!("rebate ", env!("CARGO_PKG_VERSION")).to_owned(),
        item_bytes_max: config.item_bytes_max.0,
    }
}

fn moment(time: &CoarseClock) -> Moment {
    Moment { now_s: time.now_s(), unix_s: time.system_unix_s() }
}

/// The section with the dictionaries that the items need.
const DICTIONARIES: SectionKind = SectionKind(*b"dict");

/// The versions of a store that starts empty begin at the date in seconds, with milliseconds, times 65,536. So the
/// versions of a process that was killed match no item, unless it changed more items a second than that on average.
const VERSIONS_PER_S_LOG2: u32 = 16;
