//! Saves the items when the process ends, within a stated time. A disk that hangs does not keep the process.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use store::Embedded;
use store::embedded::CoarseClock;
use store::embedded::snapshot::{About, Moment, Section};

use super::{DICTIONARIES, StoreFile, about, moment};
use crate::config::StoreConfig;
use crate::dictionaries::Dictionaries;

/// Saves the items of a store that nobody changes any more. Returns after `limit` and a moment, whatever the
/// disk does.
pub(crate) fn save(
    file: StoreFile,
    store: Arc<Embedded>,
    dictionaries: &Dictionaries,
    config: &StoreConfig,
    time: &CoarseClock,
    limit: Duration,
) {
    let (about, now, deadline) = (about(config), moment(time), Instant::now() + limit);
    let bytes = dictionaries.to_bytes();
    let is_required = !bytes.is_empty();
    let sections = [Section { kind: DICTIONARIES, is_required, bytes }];
    let path = file.path().display().to_string();
    let (done, is_done) = mpsc::channel();
    let saving = thread::Builder::new().name("rebate-save".to_owned()).spawn(move || {
        // The files are unlocked before the caller learns that they are.
        save_until(file, &store, &sections, &about, now, deadline);
        let _ = done.send(());
    });
    // If the thread hangs in the system, it ends with the process, and the snapshot is not used.
    let is_over = saving.is_ok() && is_done.recv_timeout(limit + CLEAN_UP_LIMIT).is_ok();
    if !is_over {
        let limit_ms = limit.as_millis();
        tracing::error!("the items were not saved to {path} within {limit_ms} ms");
    }
}

/// Records that the items are not saved, for this reason.
pub(crate) fn give_up(file: &StoreFile, reason: &str) {
    tracing::error!("the items were not saved to {}: {reason}", file.path().display());
    if let Err(error) = file.note(&format!("the process before did not save its items: {reason}")) {
        tracing::warn!("store.file {}: cannot record this: {error}", file.path().display());
    }
}

fn save_until(
    file: StoreFile,
    store: &Embedded,
    sections: &[Section],
    about: &About,
    now: Moment,
    deadline: Instant,
) {
    let begun = Instant::now();
    match file.replace(deadline, |out| store.save(out, sections, about, now)) {
        Ok(saved) => tracing::info!(
            "saved {} items of {} bytes to {} in {:.1} s",
            saved.items,
            saved.bytes,
            file.path().display(),
            begun.elapsed().as_secs_f64()
        ),
        Err(error) => give_up(&file, &error.to_string()),
    }
}

/// The time after the limit for removing an unfinished file.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(1);
