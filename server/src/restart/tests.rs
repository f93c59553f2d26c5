//! Tests which files are loaded, left alone, replaced and removed.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use store::embedded::{Fetch, Mode, NewItem};
use units::{ManualClock, SystemClock};

use super::*;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("items")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn config(path: &Path) -> Config {
    let mut config = Config::default();
    config.store.file = Some(path.to_owned());
    config
}

fn clock() -> CoarseClock {
    CoarseClock::start(Arc::new(SystemClock::new()))
}

/// Starts as a server does, up to its first client.
fn start(path: &Path) -> Opened {
    let opened = open(&config(path), &StoreUrl::Embedded, (1, None), &clock()).unwrap();
    if let Some(file) = &opened.file {
        file.take_over().unwrap();
    }
    opened
}

fn set(store: &Embedded, key: &str) {
    let item = NewItem { value: b"v", ..NewItem::default() };
    store.store(key.as_bytes(), item, Mode::Set, clock().now_s()).unwrap();
}

/// Ends as a server does.
fn end(opened: Opened, path: &Path, limit: Duration) {
    let file = opened.file.unwrap();
    let (store, dictionaries) = (opened.store.unwrap(), &opened.dictionaries);
    save(file, store, dictionaries, &config(path).store, &clock(), limit);
}

fn store(opened: &Opened) -> &Embedded {
    opened.store.as_ref().unwrap()
}

fn restart(opened: &Opened) -> &Restart {
    opened.restart.as_ref().unwrap()
}

/// Starts, stores one item and ends.
fn save_one(path: &Path) {
    let opened = start(path);
    set(store(&opened), "k");
    end(opened, path, LONG);
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_start_loads_what_the_last_end_saved() {
    let folder = Folder::new();
    let first = start(&folder.file());
    assert_eq!(restart(&first).outcome, Outcome::First);
    set(store(&first), "k");
    end(first, &folder.file(), LONG);
    assert_eq!(folder.names(), ["items", "items.lock"]);
    let second = start(&folder.file());
    assert_eq!((restart(&second).outcome, restart(&second).items.loaded), (Outcome::Loaded, 1));
    assert!(store(&second).fetch(b"k", &Fetch::PEEK, clock().now_s()).is_some());
    assert_eq!(folder.names(), ["items.lock"], "nobody loads it again");
}

#[test]
fn a_start_after_a_crash_is_empty_and_says_why() {
    let folder = Folder::new();
    save_one(&folder.file());
    drop(start(&folder.file()));
    let next = start(&folder.file());
    assert_eq!(restart(&next).outcome, Outcome::NotSaved);
    assert!(restart(&next).reason.contains("without saving"), "{}", restart(&next).reason);
    assert_eq!(store(&next).stats().curr_items, 0);
}

#[test]
fn a_copy_that_came_back_after_a_crash_is_not_loaded() {
    let folder = Folder::new();
    save_one(&folder.file());
    let copy = fs::read(folder.file()).unwrap();
    drop(start(&folder.file()));
    fs::write(folder.file(), copy).unwrap();
    assert_eq!(restart(&start(&folder.file())).outcome, Outcome::NotSaved);
}

#[test]
fn a_start_that_fails_before_it_serves_loses_nothing() {
    let folder = Folder::new();
    save_one(&folder.file());
    drop(open(&config(&folder.file()), &StoreUrl::Embedded, (1, None), &clock()).unwrap());
    assert_eq!(restart(&start(&folder.file())).outcome, Outcome::Loaded);
}

#[test]
fn a_snapshot_that_was_not_finished_is_removed() {
    let folder = Folder::new();
    save_one(&folder.file());
    let whole = fs::read(folder.file()).unwrap();
    drop(start(&folder.file()));
    // A process that is killed while it saves leaves this.
    fs::write(folder.0.path().join("items.tmp"), &whole[..whole.len() / 2]).unwrap();
    assert_eq!(restart(&start(&folder.file())).outcome, Outcome::NotSaved);
    assert_eq!(folder.names(), ["items.lock"]);
}

#[test]
fn a_pipe_does_not_block_the_start() {
    let folder = Folder::new();
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, folder.file(), rustix::fs::FileType::Fifo, mode, 0)
        .unwrap();
    assert_eq!(restart(&start(&folder.file())).outcome, Outcome::Unusable);
}

#[test]
fn a_second_process_is_refused() {
    let folder = Folder::new();
    let _first = start(&folder.file());
    let refusal = open(&config(&folder.file()), &StoreUrl::Embedded, (1, None), &clock())
        .err()
        .unwrap()
        .to_string();
    assert!(refusal.contains("is in use by another process"), "{refusal}");
}

#[test]
fn a_file_in_no_folder_is_refused() {
    let folder = Folder::new();
    for path in [folder.file().join("items"), "/nonexistent/items".into()] {
        save_one(&folder.file());
        let opened = open(&config(&path), &StoreUrl::Embedded, (1, None), &clock());
        let refusal = opened.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refusal.contains("in no folder that exists"), "{refusal}");
    }
}

#[test]
fn damage_gives_an_empty_start() {
    let folder = Folder::new();
    save_one(&folder.file());
    let mut bytes = fs::read(folder.file()).unwrap();
    bytes[60] ^= 1;
    fs::write(folder.file(), bytes).unwrap();
    let opened = start(&folder.file());
    assert_eq!(restart(&opened).outcome, Outcome::Refused);
    assert!(restart(&opened).reason.contains("damaged"), "{}", restart(&opened).reason);
    assert_eq!(folder.names(), ["items.lock"]);
}

#[test]
fn foreign_files_are_left_alone() {
    let folder = Folder::new();
    for _ in 0..2 {
        fs::write(folder.file(), "the accounts of the year\n").unwrap();
        let opened = start(&folder.file());
        assert_eq!(restart(&opened).outcome, Outcome::Unusable);
        end(opened, &folder.file(), LONG);
        let text = fs::read_to_string(folder.file()).unwrap();
        assert_eq!(text, "the accounts of the year\n");
    }
}

#[test]
fn what_is_no_file_is_left_alone() {
    let folder = Folder::new();
    fs::create_dir(folder.file()).unwrap();
    let opened = start(&folder.file());
    assert_eq!(restart(&opened).outcome, Outcome::Unusable);
    assert!(restart(&opened).reason.contains("not a regular file"), "{}", restart(&opened).reason);
    end(opened, &folder.file(), LONG);
    assert!(folder.file().is_dir());
}

#[test]
fn an_end_that_takes_too_long_saves_nothing() {
    let folder = Folder::new();
    let opened = start(&folder.file());
    set(store(&opened), "k");
    end(opened, &folder.file(), Duration::ZERO);
    assert_eq!(folder.names(), ["items.lock"]);
    let next = start(&folder.file());
    assert_eq!(restart(&next).outcome, Outcome::NotSaved);
    assert!(restart(&next).reason.contains("save_timeout_ms"), "{}", restart(&next).reason);
}

#[test]
fn a_full_disk_saves_nothing_and_is_named_at_the_start() {
    let folder = Folder::new();
    let opened = start(&folder.file());
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let file = opened.file.unwrap();
    let failed = file.replace(Instant::now() + LONG, |_| (&full).write_all(b"x"));
    give_up(&file, &failed.unwrap_err().to_string());
    drop(file);
    assert_eq!(folder.names(), ["items.lock"]);
    let next = start(&folder.file());
    assert!(restart(&next).reason.contains("No space left"), "{}", restart(&next).reason);
}

#[test]
fn versions_of_a_start_within_the_second_of_another_are_higher() {
    let folder = Folder::new();
    let version_at = |unix_ms| {
        let time = CoarseClock::start_at_ms(Arc::new(ManualClock::default()), unix_ms);
        let opened = open(&config(&folder.file()), &StoreUrl::Embedded, (1, None), &time).unwrap();
        set(store(&opened), "k");
        let found = store(&opened).fetch(b"k", &Fetch::PEEK, time.now_s()).unwrap();
        found.cas
    };
    let (first, second) = (version_at(1_800_000_000_100), version_at(1_800_000_000_101));
    assert!(second > first + 60, "{first} {second}");
}

#[test]
fn versions_of_an_empty_start_follow_the_date() {
    let folder = Folder::new();
    let opened = start(&folder.file());
    set(store(&opened), "k");
    let found = store(&opened).fetch(b"k", &Fetch::PEEK, clock().now_s()).unwrap();
    assert!(found.cas >> VERSIONS_PER_S_LOG2 >= units::unix_time().as_secs() - 60, "{}", found.cas);
}
