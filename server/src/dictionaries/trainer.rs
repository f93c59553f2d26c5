//! The trainer: takes a class's samples once there are enough of them, measures, and changes the class's choice if a
//! new dictionary is better by a margin. It runs on a thread of the lowest priority and spends a bounded share of a
//! core. Time is an argument of its turns, so that tests do not wait.

use std::collections::HashMap;
use std::sync::Arc;

use device::{Dictionary, Level, Train};
use policy::FormPolicy;
use policy::dictionary::{Trial, Verdict, has_drifted};
use policy::trials::{SAMPLES_MIN, Trials};
use units::Nanos;

use super::samples::SampleMemory;
use super::{CLASSES_MAX, Choice, Class, Dictionaries};
use crate::counters::Counter;

/// Trains dictionaries, one class per turn.
pub(crate) struct Trainer {
    dictionaries: Arc<Dictionaries>,
    options: TrainerOptions,
    histories: HashMap<u64, History>,
    turned_at: Nanos,
}

/// What the trainer works with.
pub(crate) struct TrainerOptions {
    /// The form of values without a dictionary, with which dictionaries are compared.
    pub(crate) form: FormPolicy,
    /// The store of dictionaries.
    pub(crate) publisher: Box<dyn Publisher>,
    pub(crate) counters: Arc<TrainerCounters>,
    pub(crate) train: Train,
}

/// Where dictionaries are kept for all who read values with them.
pub(crate) trait Publisher: Send {
    /// Stores a dictionary as the one that the class uses. Returns whether its readers will find it. No value is
    /// written with it before.
    fn publish(&mut self, class: &Arc<Class>, dictionary: &Arc<Dictionary>) -> bool;

    /// Returns the dictionary that another process published last for the class.
    fn published(&mut self, class: &Arc<Class>) -> Option<Arc<Dictionary>>;
}

/// What the trainer counts.
#[derive(Debug, Default)]
pub(crate) struct TrainerCounters {
    /// Trials on samples.
    pub(crate) trials: Counter,
    /// Dictionaries that were trained, used or not.
    pub(crate) trained: Counter,
    /// Dictionaries that a class uses or used.
    pub(crate) adopted: Counter,
    /// Dictionaries that were better and could not be used: no memory for them, or not published.
    pub(crate) refused: Counter,
}

/// What the trainer remembers of a class.
#[derive(Debug)]
struct History {
    /// The time at which the class was first seen.
    since: Nanos,
    /// The class's writes at the last turn, and the time of the last turn at which there were new ones.
    writes: u64,
    written_at: Nanos,
    /// The time since which the class is sampled.
    sampled_since: Nanos,
    /// The time at which it is sampled again.
    sampled_from: Nanos,
    /// The pause between two trials.
    pause: Nanos,
    /// The share of the samples' bytes that was stored when the dictionary was adopted.
    share_adopted: f64,
    /// The trials with the dictionary in use.
    trials: u32,
}

impl Trainer {
    pub(crate) fn new(dictionaries: Arc<Dictionaries>, options: TrainerOptions) -> Self {
        Self { dictionaries, options, histories: HashMap::new(), turned_at: Nanos(0) }
    }

    /// Stores values in this form from now on. Every class is tried again, because another form may be better now.
    pub(crate) fn set_form(&mut self, form: FormPolicy) {
        if self.options.form == form {
            return;
        }
        self.options.form = form;
        for history in self.histories.values_mut() {
            (history.sampled_from, history.pause, history.trials) = (Nanos(0), PAUSE_MIN, 0);
        }
        if form.level == Level::Fast {
            self.save_effort();
        }
    }

    /// Lets no class write with more effort than usual.
    fn save_effort(&self) {
        for (_, class) in self.dictionaries.classes() {
            let Some(dictionary) = class.dictionary().filter(|one| one.has_effort()) else {
                continue;
            };
            let usual = Arc::new(dictionary.without_effort());
            if self.dictionaries.add(&usual) {
                class.choose(Choice::Dictionary(usual));
            }
        }
    }

    /// Looks at every class, and tries new forms for at most one of them. Returns whether it did, which takes some
    /// milliseconds, or some ten if it trained dictionaries.
    pub(crate) fn turn(&mut self, now: Nanos) -> bool {
        let elapsed = now.since(self.turned_at);
        self.turned_at = now;
        let classes = self.dictionaries.classes();
        for (hash, class) in &classes {
            let history = self.histories.entry(*hash).or_insert_with(|| History::new(now));
            history.pace(class, now, elapsed);
        }
        self.give_up_without_memory(&classes, now);
        if self.dictionaries.samples.is_tight() {
            self.make_way_for_one(&classes, now);
        }
        if classes.len() >= CLASSES_MAX {
            self.remove_idle_classes(&classes, now);
        }
        let memory = &self.dictionaries.samples;
        let is_ready = |entry: &&(u64, Arc<Class>)| {
            let history = self.histories.get(&entry.0);
            history.is_some_and(|history| history.is_ready(&entry.1, memory, now))
        };
        // Classes without a choice come first, then those with the most writes.
        let order = |entry: &&(u64, Arc<Class>)| {
            (matches!(entry.1.choice(), Choice::Undecided), entry.1.counts().writes)
        };
        let ready = classes.iter().filter(is_ready).max_by_key(order);
        let has_tried = ready.is_some();
        if let Some((hash, class)) = ready
            && let Some(mut history) = self.histories.remove(hash)
        {
            self.try_forms(class, &mut history, now);
            self.histories.insert(*hash, history);
        }
        self.dictionaries.tidy();
        has_tried
    }

    /// Lets classes be stored without a dictionary whose values are so large that there is no memory for enough
    /// samples. They are sampled again later, because their values may have become smaller then.
    fn give_up_without_memory(&mut self, classes: &[(u64, Arc<Class>)], now: Nanos) {
        let memory = &self.dictionaries.samples;
        for (hash, class) in classes {
            let mut samples = class.samples().lock();
            if !samples.cannot_suffice(memory) {
                continue;
            }
            drop(samples.take(memory));
            class.want_samples(0);
            if matches!(class.choice(), Choice::Undecided) {
                class.choose(Choice::Plain);
            }
            if let Some(history) = self.histories.get_mut(hash) {
                history.rest(now);
            }
        }
    }

    /// Drops the samples of all classes that do not have enough, except of the one with the most, so that this one gets
    /// the memory for the rest of its samples. The others are sampled again later.
    fn make_way_for_one(&mut self, classes: &[(u64, Arc<Class>)], now: Nanos) {
        let memory = &self.dictionaries.samples;
        let lacking = |class: &Arc<Class>| {
            let samples = class.samples().lock();
            Some(samples.len()).filter(|count| *count > 0 && !samples.is_enough(memory))
        };
        let counted =
            classes.iter().filter_map(|(hash, class)| Some((lacking(class)?, *hash, class)));
        let mut counted: Vec<_> = counted.collect();
        counted.sort_by_key(|(count, _, _)| *count);
        counted.pop();
        for (_, hash, class) in counted {
            drop(class.samples().lock().take(memory));
            class.want_samples(0);
            if let Some(history) = self.histories.get_mut(&hash) {
                history.sampled_from = now + PAUSE_MIN;
            }
        }
    }

    /// Removes classes that turned out to be few keys, or keys that nobody writes any more, so that there is room for
    /// others.
    fn remove_idle_classes(&mut self, classes: &[(u64, Arc<Class>)], now: Nanos) {
        for (hash, class) in classes {
            let Some(history) = self.histories.get(hash) else { continue };
            let is_idle = now.since(history.written_at) >= CLASS_IDLE_MAX;
            let is_old = now.since(history.since) >= CLASS_IDLE_MAX;
            let is_small = class.counts().writes < SAMPLES_MIN as u64;
            if class.dictionary().is_none() && (is_idle || is_old && is_small) {
                self.dictionaries.remove_class(*hash);
                self.histories.remove(hash);
            }
        }
    }

    /// Takes the class's samples, and changes its choice if they show that another form is better.
    fn try_forms(&mut self, class: &Arc<Class>, history: &mut History, now: Nanos) {
        class.want_samples(0);
        let samples = class.samples().lock().take(&self.dictionaries.samples);
        let trials = Trials::new(self.options.form, samples.iter().map(|sample| &**sample));
        self.options.counters.trials.up();
        history.trials += 1;
        let current = class.dictionary();
        let mut trial = Trial {
            plain_bytes: trials.plain_bytes(),
            current_bytes: current.as_ref().map(|current| trials.bytes_with(current)),
            candidate_bytes: None,
        };
        let candidate = self.candidate(class, history, &trials, &mut trial);
        let logical_bytes = trials.logical_bytes().max(1) as f64;
        match (trial.verdict(), candidate) {
            (Verdict::Adopt, Some((candidate, bytes))) if self.adopt(class, &candidate) => {
                let share = bytes as f64 / logical_bytes;
                tracing::info!(
                    class = class.name(),
                    id = %candidate.id(),
                    "new dictionary: values take {:.0} % of their size instead of {:.0} %",
                    100.0 * share,
                    100.0 * trial.current_bytes.unwrap_or(trial.plain_bytes) as f64 / logical_bytes,
                );
                (history.share_adopted, history.trials) = (share, 0);
                history.pause = PAUSE_MIN;
            }
            (Verdict::Plain, _) => class.choose(Choice::Plain),
            (Verdict::Keep | Verdict::Adopt, _) if current.is_none() => {
                class.choose(Choice::Plain);
            }
            (Verdict::Keep | Verdict::Adopt, _) => {}
        }
        history.rest(now);
    }

    /// Adds a new dictionary to the trial, if it may need one, and returns it with its bytes of the samples: the one
    /// that another process published, or else the best of newly trained ones.
    fn candidate(
        &mut self,
        class: &Arc<Class>,
        history: &History,
        trials: &Trials<'_>,
        trial: &mut Trial,
    ) -> Option<(Arc<Dictionary>, u64)> {
        let share = |bytes: u64| bytes as f64 / trials.logical_bytes().max(1) as f64;
        let has_drifted =
            trial.current_bytes.is_none_or(|b| has_drifted(history.share_adopted, share(b)));
        if has_drifted && let Some(published) = self.options.publisher.published(class) {
            let bytes = trials.bytes_with(&published);
            trial.candidate_bytes = Some(bytes);
            if trial.verdict() == Verdict::Adopt {
                return Some((published, bytes));
            }
            trial.candidate_bytes = None;
        }
        if !has_drifted && history.trials > EARLY_TRIALS {
            return None;
        }
        let TrainerOptions { train, counters, .. } = &self.options;
        let (candidate, bytes) = trials.train(|samples, bytes_max| {
            train(samples, bytes_max).inspect(|_| counters.trained.up())
        })?;
        trial.candidate_bytes = Some(bytes);
        Some((candidate, bytes))
    }

    fn adopt(&mut self, class: &Arc<Class>, dictionary: &Arc<Dictionary>) -> bool {
        let is_readable =
            self.dictionaries.add(dictionary) && self.options.publisher.publish(class, dictionary);
        if is_readable {
            class.choose(Choice::Dictionary(Arc::clone(dictionary)));
            self.options.counters.adopted.up();
        } else {
            self.options.counters.refused.up();
        }
        is_readable
    }
}

impl History {
    fn new(now: Nanos) -> Self {
        Self {
            since: now,
            writes: 0,
            written_at: now,
            sampled_since: now,
            sampled_from: now,
            pause: PAUSE_MIN,
            share_adopted: 1.0,
            trials: 0,
        }
    }

    /// Lets the class rest after a trial, longer each time.
    fn rest(&mut self, now: Nanos) {
        self.sampled_from = now + self.pause;
        self.pause = Nanos((self.pause.0 * 2).min(PAUSE_MAX.0));
    }

    /// Sets which share of the class's writes is sampled, so that samples come from some seconds and not from one
    /// moment.
    fn pace(&mut self, class: &Class, now: Nanos, elapsed: Nanos) {
        let writes = class.counts().writes;
        let writes_per_s = (writes - self.writes) as f64 / (elapsed.0 as f64 / 1e9).max(0.001);
        if writes > self.writes {
            (self.writes, self.written_at) = (writes, now);
        }
        let is_first = matches!(class.choice(), Choice::Undecided);
        let stride = if is_first { 1 } else { (writes_per_s / SAMPLES_PER_S) as u32 + 1 };
        if class.wants_samples() {
            class.want_samples(stride);
        } else if now >= self.sampled_from && class.samples().lock().len() == 0 {
            self.sampled_since = now;
            class.want_samples(stride);
        }
    }

    fn is_ready(&self, class: &Class, memory: &SampleMemory, now: Nanos) -> bool {
        let samples = class.samples().lock();
        let has_waited = now.since(self.sampled_since) >= SAMPLING_MAX;
        samples.is_full() || (samples.is_enough(memory) && (has_waited || memory.is_tight()))
    }
}

/// The number of trials in which new dictionaries are trained although the data did not drift: the first samples may
/// come from few of the application's tasks.
const EARLY_TRIALS: u32 = 2;

/// The samples that a class gives per second after its first dictionary.
const SAMPLES_PER_S: f64 = 200.0;

/// The longest time for which a class is sampled, if it has enough samples then.
const SAMPLING_MAX: Nanos = Nanos::secs(10);

/// The time after which a class without a dictionary that is not written, or hardly, makes room for others.
const CLASS_IDLE_MAX: Nanos = Nanos::secs(60);

/// The pauses between two trials of a class. They double from the first to the second.
const PAUSE_MIN: Nanos = Nanos::secs(10);
const PAUSE_MAX: Nanos = Nanos::secs(60);
