//! Tests of classes, memory and the trainer's decisions, in virtual time.

use std::sync::atomic::{AtomicBool, Ordering};

use device::{Dictionary, Level};
use policy::FormPolicy;
use units::{Nanos, Prng};

use super::*;

const TENANT: TenantId = TenantId(0);

fn record(draws: &mut Prng, shape: &str) -> Vec<u8> {
    let (id, plan) = (draws.below(1_000_000), ["free", "team", "pro"][draws.below(3) as usize]);
    let record = match shape {
        "json" => {
            format!(r#"{{"id":{id},"type":"order","user":{{"plan":"{plan}","active":true}}}}"#)
        }
        "php" => {
            format!(r#"user_id|i:{id};locale|s:5:"en_US";cart|a:1:{{s:4:"plan";s:4:"{plan}";}}"#)
        }
        _ => format!("{:032x}{:032x}", draws.bits(), draws.bits()),
    };
    if shape != "random" {
        return record.into_bytes();
    }
    let mut bytes = vec![0; 100];
    draws.fill(&mut bytes);
    bytes
}

/// A store of dictionaries that takes all of them or none.
struct Shelf {
    accepts: bool,
    published: Option<Arc<Dictionary>>,
}

impl Publisher for Shelf {
    fn publish(&mut self, _: &Arc<Class>, _: &Arc<Dictionary>) -> bool {
        self.accepts
    }

    fn published(&mut self, _: &Arc<Class>) -> Option<Arc<Dictionary>> {
        self.published.clone()
    }
}

fn trainer(dictionaries: &Arc<Dictionaries>, publish: bool) -> (Trainer, Arc<TrainerCounters>) {
    trainer_with(dictionaries, Shelf { accepts: publish, published: None })
}

fn trainer_with(dictionaries: &Arc<Dictionaries>, shelf: Shelf) -> (Trainer, Arc<TrainerCounters>) {
    let counters = Arc::<TrainerCounters>::default();
    let form = FormPolicy::default();
    let options = TrainerOptions {
        form,
        publisher: Box::new(shelf),
        counters: Arc::clone(&counters),
        train: Dictionary::train,
    };
    (Trainer::new(Arc::clone(dictionaries), options), counters)
}

fn dictionaries(memory_max: u64) -> Arc<Dictionaries> {
    Arc::new(Dictionaries::new(Vec::new(), ByteCount(memory_max)))
}

/// Writes values of one class and lets the trainer take turns, one per second of virtual time.
struct Writer {
    dictionaries: Arc<Dictionaries>,
    trainer: Trainer,
    draws: Prng,
    now: Nanos,
    keys: u64,
}

impl Writer {
    fn new(dictionaries: &Arc<Dictionaries>) -> Self {
        let trainer = trainer(dictionaries, true).0;
        let dictionaries = Arc::clone(dictionaries);
        Self { dictionaries, trainer, draws: Prng::new(1), now: Nanos::secs(1), keys: 0 }
    }

    /// Writes for this many seconds and returns the class.
    fn write(&mut self, prefix: &str, shape: &str, seconds: u64) -> Arc<Class> {
        for _ in 0..seconds {
            for _ in 0..1_000 {
                let value = record(&mut self.draws, shape);
                self.dictionaries.class(
                    TENANT,
                    format!("{prefix}:{}", self.keys).as_bytes(),
                    &value,
                );
                self.keys += 1;
            }
            self.now += Nanos::secs(1);
            self.trainer.turn(self.now);
        }
        self.dictionaries.class(TENANT, format!("{prefix}:1").as_bytes(), b"").expect("a class")
    }
}

#[test]
fn records_get_a_dictionary_within_a_second() {
    let dictionaries = dictionaries(4 << 20);
    let class = Writer::new(&dictionaries).write("user", "json", 1);
    assert_eq!(class.name(), "user:*");
    let dictionary = class.dictionary().expect("records have much in common");
    assert!(Arc::ptr_eq(&dictionary, &dictionaries.get(dictionary.id()).expect("it is known")));
}

#[test]
fn values_too_large_for_the_memory_of_samples_are_stored_plain() {
    // A quarter of this is for samples: eleven of these values.
    let dictionaries = dictionaries(64 << 10);
    let mut trainer = trainer(&dictionaries, true).0;
    let write = |key: u64| {
        dictionaries
            .class(TENANT, format!("page:{key}").as_bytes(), &[b'x'; 1_400])
            .expect("a class")
    };
    for key in 0..8 {
        write(key);
    }
    trainer.turn(Nanos::secs(1));
    assert!(matches!(write(8).choice(), Choice::Plain));
    assert_eq!(dictionaries.samples.used_bytes(), 0, "the memory is free for other classes");
}

#[test]
fn random_values_get_no_dictionary() {
    let dictionaries = dictionaries(4 << 20);
    let class = Writer::new(&dictionaries).write("blob", "random", 30);
    assert!(matches!(class.choice(), Choice::Plain));
    assert!(dictionaries.all().is_empty());
}

#[test]
fn a_new_form_reaches_the_trainer() {
    let dictionaries = dictionaries(4 << 20);
    let mut writer = Writer::new(&dictionaries);
    let off = FormPolicy { compress: false, ..FormPolicy::default() };
    writer.trainer.set_form(off);
    let class = writer.write("user", "json", 30);
    assert!(matches!(class.choice(), Choice::Plain), "uncompressed values need no dictionary");
    writer.trainer.set_form(FormPolicy::default());
    assert!(writer.write("user", "json", 15).dictionary().is_some());
}

#[test]
fn a_fast_level_saves_effort() {
    let dictionaries = dictionaries(4 << 20);
    let mut writer = Writer::new(&dictionaries);
    let class = writer.write("user", "json", 1);
    let costly = Arc::new(class.dictionary().expect("a dictionary").with_effort());
    assert!(dictionaries.add(&costly));
    class.choose(Choice::Dictionary(costly));
    writer.trainer.set_form(FormPolicy { level: Level::Fast, ..FormPolicy::default() });
    assert!(class.dictionary().is_some_and(|dictionary| !dictionary.has_effort()));
}

#[test]
fn a_dictionary_that_a_codec_still_holds_is_charged() {
    let dictionaries = dictionaries(4 << 20);
    let mut writer = Writer::new(&dictionaries);
    let held = writer.write("user", "json", 1).dictionary().expect("a dictionary");
    let charged = dictionaries.memory_bytes();
    dictionaries.forget(held.id());
    dictionaries.tidy();
    assert_eq!(dictionaries.memory_bytes(), charged);
    drop(held);
    dictionaries.tidy();
    assert!(dictionaries.memory_bytes() < charged);
}

#[test]
fn a_drift_of_the_data_gets_a_new_dictionary() {
    let dictionaries = dictionaries(4 << 20);
    let mut writer = Writer::new(&dictionaries);
    let before = writer.write("user", "json", 60).dictionary().expect("a dictionary");
    let after = writer.write("user", "php", 90).dictionary().expect("a dictionary");
    assert_ne!(before.id(), after.id());
    assert!(dictionaries.get(before.id()).is_some_and(|old| !old.has_writer()));
    let steady = writer.write("user", "php", 200).dictionary().expect("a dictionary");
    assert_eq!(after.id(), steady.id());
}

#[test]
fn few_values_get_no_dictionary_before_there_are_enough() {
    let dictionaries = dictionaries(4 << 20);
    let (mut trainer, counters) = trainer(&dictionaries, true);
    let mut draws = Prng::new(2);
    let mut second = |values: u64, now: u64| {
        for key in 0..values {
            let value = record(&mut draws, "json");
            dictionaries.class(TENANT, format!("user:{key}{now}").as_bytes(), &value);
        }
        trainer.turn(Nanos::secs(now))
    };
    assert!(!second(150, 1) && !second(150, 5));
    assert!(second(0, 12));
    assert_eq!((counters.trials.read(), counters.adopted.read()), (1, 1));
}

#[test]
fn a_dictionary_that_is_not_published_is_not_used() {
    let dictionaries = dictionaries(4 << 20);
    let (mut trainer, counters) = trainer(&dictionaries, false);
    let mut draws = Prng::new(3);
    let class = (0..2_000).map(|key| {
        let value = record(&mut draws, "json");
        dictionaries.class(TENANT, format!("user:{key}").as_bytes(), &value).expect("a class")
    });
    let class = class.last().expect("there are keys");
    assert!(trainer.turn(Nanos::secs(1)));
    assert!(class.dictionary().is_none());
    assert_eq!(counters.refused.read(), 1);
}

#[test]
fn samples_of_tenants_are_not_mixed() {
    let dictionaries = dictionaries(4 << 20);
    let class = |tenant, key: &str| dictionaries.class(TenantId(tenant), key.as_bytes(), b"v");
    let (one, two) = (class(1, "user:1"), class(2, "user:1"));
    assert!(!Arc::ptr_eq(&one.expect("a class"), &two.expect("a class")));
    for name in 0..1_000 {
        // Names of letters only, so that each is a class.
        let name: String = format!("{name}").bytes().map(|digit| char::from(digit + 64)).collect();
        class(1, &format!("{name}:1"));
        class(2, &format!("{name}:1"));
    }
    let (one, two) = (class(1, "zz:1").expect("a class"), class(2, "zz:1").expect("a class"));
    assert_eq!((one.name(), two.name()), (REST_NAME, REST_NAME));
    assert!(!Arc::ptr_eq(&one, &two));
    assert!(dictionaries.classes().len() <= CLASSES_AND_RESTS_MAX);
}

#[test]
fn memory_is_bounded_and_old_dictionaries_go_first() {
    let memory_max = 2 << 20;
    let dictionaries = dictionaries(memory_max);
    let mut writer = Writer::new(&dictionaries);
    let mut oldest = None;
    for round in 0..40 {
        let shape = if round % 2 == 0 { "json" } else { "php" };
        let class = writer.write(&"x".repeat(round + 1), shape, 1);
        oldest = oldest.or_else(|| class.dictionary());
        assert!(dictionaries.memory_bytes() <= memory_max, "round {round}");
    }
    // Its class still uses it.
    assert!(dictionaries.get(oldest.expect("the first class has one").id()).is_some());
}

#[test]
fn workers_and_the_trainer_share_classes() {
    let dictionaries = dictionaries(4 << 20);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (dictionaries, done) = (&dictionaries, &done);
            scope.spawn(move || {
                let mut draws = Prng::new(thread);
                for key in 0.. {
                    let value = record(&mut draws, "json");
                    let name = format!("user:{thread}{key}");
                    let class = dictionaries.class(TENANT, name.as_bytes(), &value);
                    if let Some(dictionary) = class.and_then(|class| class.dictionary()) {
                        assert!(dictionaries.get(dictionary.id()).is_some());
                    }
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let (mut trainer, counters) = trainer(&dictionaries, true);
        for turn in 1.. {
            trainer.turn(Nanos::secs(turn));
            if counters.adopted.read() > 0 {
                break;
            }
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_dictionary_of_another_process_is_used_if_it_is_good() {
    let theirs = dictionaries(4 << 20);
    let published = Writer::new(&theirs).write("user", "json", 1).dictionary();
    let ours = dictionaries(4 << 20);
    let (mut trainer, counters) =
        trainer_with(&ours, Shelf { accepts: true, published: published.clone() });
    let mut draws = Prng::new(5);
    let mut fill = |prefix: &str, shape: &str| {
        let class = (0..2_000).map(|key| {
            let value = record(&mut draws, shape);
            ours.class(TENANT, format!("{prefix}:{key}").as_bytes(), &value).expect("a class")
        });
        class.last().expect("there are keys")
    };
    let (user, session) = (fill("user", "json"), fill("session", "php"));
    trainer.turn(Nanos::secs(1));
    trainer.turn(Nanos::secs(2));
    let id = |dictionary: Option<Arc<Dictionary>>| dictionary.expect("a dictionary").id();
    assert_eq!(id(user.dictionary()), id(published.clone()));
    assert_ne!(id(session.dictionary()), id(published));
    assert!(counters.trained.read() > 0);
}

#[test]
fn a_dropped_dictionary_is_no_longer_used() {
    let dictionaries = dictionaries(4 << 20);
    let class = Writer::new(&dictionaries).write("user", "json", 1);
    let id = class.dictionary().expect("a dictionary").id();
    dictionaries.forget(id);
    assert!(class.dictionary().is_none() && dictionaries.get(id).is_none());
}

#[test]
fn dictionaries_are_restored_from_their_bytes() {
    let dictionaries = dictionaries(4 << 20);
    let mut writer = Writer::new(&dictionaries);
    let one = writer.write("user", "json", 1).dictionary().expect("a dictionary");
    let two = writer.write("session", "php", 1).dictionary().expect("a dictionary");
    let bytes = dictionaries.to_bytes();
    let restored = Dictionaries::new(Vec::new(), ByteCount(4 << 20));
    restored.restore(&bytes);
    assert!(restored.get(one.id()).is_some() && restored.get(two.id()).is_some());
    for end in 0..bytes.len() {
        let damaged = Dictionaries::new(Vec::new(), ByteCount(4 << 20));
        damaged.restore(&bytes[..end]);
        assert!(damaged.all().len() < 2, "{end}");
    }
}

#[test]
fn classes_that_share_little_memory_are_trained_in_turn() {
    // A sixteenth of 4 MiB, as in a small store: samples of one class at a time fit.
    let dictionaries = dictionaries(256 << 10);
    let mut trainer = trainer(&dictionaries, true).0;
    let mut draws = Prng::new(9);
    let mut now = Nanos::secs(1);
    let mut is_done = false;
    for second in 0..600 {
        for key in 0..100 {
            for class in ["a", "b", "c", "d", "e"] {
                let value = [record(&mut draws, "json"), record(&mut draws, "php")].concat();
                let name = format!("{class}:{second}{key}");
                dictionaries.class(TENANT, name.as_bytes(), &value);
            }
        }
        now += Nanos::secs(1);
        trainer.turn(now);
        is_done = dictionaries
            .classes()
            .iter()
            .all(|(_, class)| !matches!(class.choice(), Choice::Undecided));
        if is_done {
            break;
        }
    }
    assert!(is_done, "{:?}", dictionaries.classes());
}

#[test]
fn classes_of_single_keys_make_room_for_others() {
    let dictionaries = dictionaries(4 << 20);
    let mut trainer = trainer(&dictionaries, true).0;
    for name in 0..CLASSES_MAX {
        // Names of letters only, so that each is a class.
        let name: String = format!("{name}").bytes().map(|digit| char::from(digit + 64)).collect();
        dictionaries.class(TENANT, name.as_bytes(), b"value");
    }
    let name =
        |key: &[u8]| dictionaries.class(TENANT, key, b"value").expect("a class").name().to_owned();
    assert_eq!(name(b"user:1"), REST_NAME);
    for second in [1, 61, 62] {
        trainer.turn(Nanos::secs(second));
    }
    assert_eq!(name(b"user:1"), "user:*");
}

#[test]
fn only_a_dictionary_in_use_is_trusted() {
    let dictionaries = dictionaries(4 << 20);
    let mut writer = Writer::new(&dictionaries);
    let used = writer.write("user", "json", 1).dictionary().expect("a dictionary");
    let other = Writer::new(&self::dictionaries(4 << 20)).write("user", "php", 1);
    let other = other.dictionary().expect("a dictionary");
    assert!(dictionaries.add(&other));
    dictionaries.distrust(other.id());
    dictionaries.distrust(used.id());
    assert!(dictionaries.get(other.id()).is_none() && dictionaries.get(used.id()).is_some());
}
