//! Turns what was read and measured into the estimate: sizes, memory, cores, hits and money, each with its interval.
//! Sums over a class are ratio estimates: the list gives the memory of all items, and the sample gives what Rebate
//! takes for each byte of it. Intervals come from drawing the sample again (bootstrap). The functions are pure.

use device::Codec;
use serde::Serialize;
use units::{ByteCount, Prng};

use super::BesideItems;
use super::classes::Class;
use super::codecs::{Forms, Measured};
use super::curve::PlacedCurve;
use super::hits::{Curves, Observed};
use super::interval::Interval;
use super::memory::{self, Slabs, Stored};
use super::probe::Value;
use super::reading::{Rates, Reading, SourceFacts};
use super::sizes::{SampledItem, Sizes};

/// What Rebate would save.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// What was read.
    pub source: SourceFacts,
    /// The figures of all values.
    pub total: Figures,
    /// The figures of each class of keys, the class with the most memory first.
    pub classes: Vec<Figures>,
    /// The miss-ratio curve of the best stored form, if one could be found.
    pub curve: Option<PlacedCurve>,
    /// What could not be read, and what was done instead.
    pub notes: Vec<String>,
    /// What the figures assume.
    pub assumptions: Vec<String>,
}

/// The figures of one class, or of all values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// The name of the class.
    pub name: String,
    /// The number of values.
    pub values: Interval,
    /// The bytes of the values, as clients set them.
    pub bytes: Interval,
    /// The number of values that were read.
    pub values_read: usize,
    /// The savings of the best stored form: with dictionaries where they save more.
    #[serde(flatten)]
    pub savings: Savings,
    /// The savings without dictionaries.
    pub without_dictionary: Savings,
    /// Whether dictionaries save more.
    pub uses_dictionary: bool,
    /// The stored bytes over the bytes of the values, by codec. `dictionary` is zstd with a trained dictionary.
    pub codecs: Vec<CodecRatio>,
    /// The memory of an item in memcached (bytes).
    pub memcached_item_bytes: Interval,
    /// The gets per second that find a value, if a server was read.
    pub hits_per_s: Option<f64>,
    /// The sets per second, if a server was read.
    pub sets_per_s: Option<f64>,
}

/// What one stored form saves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Savings {
    /// The stored bytes over the bytes of the values.
    pub stored_ratio: Interval,
    /// The items that Rebate holds where memcached holds one in the same memory.
    pub items_held_ratio: Interval,
    /// The memory that the items take less in Rebate (GB of 10^9 bytes).
    pub gb_saved: Interval,
    /// The cores that compression and decompression need at the server's rates.
    pub cores: Option<Interval>,
    /// The rise of the hit ratio in the same memory.
    pub hit_ratio_gain: Option<Interval>,
    /// The price of the memory saved, per month.
    pub price_saved_month: Option<Interval>,
    /// The memory of an item in Rebate (bytes).
    pub rebate_item_bytes: Interval,
    /// The time to compress a value on this machine (us).
    pub compress_us: Interval,
    /// The time to decompress a value on this machine (us).
    pub decompress_us: Interval,
}

/// The stored size with one codec.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CodecRatio {
    /// The name of the codec.
    pub codec: &'static str,
    /// The stored bytes over the bytes of the values.
    pub stored_ratio: Interval,
}

/// Sums over one value, over a sample, over a class, or over all classes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    items: f64,
    /// The size that memcached counts for the items.
    item_bytes: f64,
    value_bytes: f64,
    /// The memory of the items in memcached.
    memcached_bytes: f64,
    codec_bytes: [f64; CODEC_NAMES.len()],
    /// The sums without dictionaries, and those of the best form.
    forms: [FormSums; 2],
}

/// Sums of one stored form.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct FormSums {
    stored_bytes: f64,
    /// The memory of the items in Rebate.
    rebate_bytes: f64,
    compress_ns: f64,
    decompress_ns: f64,
    cores: f64,
}

const PLAIN: usize = 0;
const BEST: usize = 1;

/// The codecs that are compared: those without a dictionary, and last the one with a dictionary.
const CODEC_NAMES: [&str; Codec::ALL.len() + 1] = with_last(&Codec::NAMES, "dictionary");

/// Returns the `N - 1` elements of `all`, followed by `last`.
const fn with_last<T: Copy, const N: usize>(all: &[T], last: T) -> [T; N] {
    let mut joined = [last; N];
    joined.split_at_mut(N - 1).0.copy_from_slice(all);
    joined
}

impl Sums {
    /// Combines each number with the same number of `other`.
    fn zip(self, other: Self, with: impl Fn(f64, f64) -> f64 + Copy) -> Self {
        let mut codec_bytes = self.codec_bytes;
        let pairs = codec_bytes.iter_mut().zip(other.codec_bytes);
        pairs.for_each(|(bytes, other)| *bytes = with(*bytes, other));
        let forms = [PLAIN, BEST].map(|form| self.forms[form].zip(other.forms[form], with));
        Self {
            items: with(self.items, other.items),
            item_bytes: with(self.item_bytes, other.item_bytes),
            value_bytes: with(self.value_bytes, other.value_bytes),
            memcached_bytes: with(self.memcached_bytes, other.memcached_bytes),
            codec_bytes,
            forms,
        }
    }

    fn plus(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
}

impl FormSums {
    fn zip(self, other: Self, with: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            stored_bytes: with(self.stored_bytes, other.stored_bytes),
            rebate_bytes: with(self.rebate_bytes, other.rebate_bytes),
            compress_ns: with(self.compress_ns, other.compress_ns),
            decompress_ns: with(self.decompress_ns, other.decompress_ns),
            cores: with(self.cores, other.cores),
        }
    }
}

/// One class with its sample.
struct Stratum<'a> {
    class: &'a Class,
    /// The index of the class.
    at: usize,
    /// The rates of the class, if a server was read.
    rates: Option<Rates>,
    /// Whether the list gave the size of each item in memcached.
    has_sizes: bool,
    rows: Vec<Sums>,
    uses_dictionary: bool,
}

impl Stratum<'_> {
    /// Extends the sums of a sample to the whole class, which has `scale` times its listed items.
    fn extended(&self, sample: Sums, scale: f64) -> Sums {
        let class = self.class;
        let items = class.items as f64 * scale;
        let rates = self.rates.unwrap_or_default();
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let (item_bytes, memcached_bytes) = if self.has_sizes {
            (class.item_bytes as f64 * scale, class.memcached_bytes * scale)
        } else {
            let mean = |sum: f64| share(sum, sample.items) * items;
            (mean(sample.item_bytes), mean(sample.memcached_bytes))
        };
        let value_bytes = item_bytes * share(sample.value_bytes, sample.item_bytes);
        let stored = |bytes: f64| value_bytes * share(bytes, sample.value_bytes);
        let forms = sample.forms.map(|form| {
            let compress_ns = share(form.compress_ns, sample.items);
            let decompress_ns = share(form.decompress_ns, sample.items);
            FormSums {
                stored_bytes: stored(form.stored_bytes),
                rebate_bytes: memcached_bytes * share(form.rebate_bytes, sample.memcached_bytes),
                compress_ns: compress_ns * items,
                decompress_ns: decompress_ns * items,
                cores: (rates.hits_per_s * decompress_ns + rates.sets_per_s * compress_ns) / 1e9,
            }
        });
        let codec_bytes = sample.codec_bytes.map(stored);
        Sums { items, item_bytes, value_bytes, memcached_bytes, codec_bytes, forms }
    }

    fn estimate(&self, scale: f64) -> Sums {
        self.extended(self.rows.iter().copied().fold(Sums::default(), Sums::plus), scale)
    }

    /// Draws the sample again, with replacement. The part of the class that was read cannot vary, and the size of a
    /// class is uncertain as far as its items were not listed.
    fn draw(&self, estimate: Sums, scale: f64, random: &mut Prng) -> Sums {
        let rows = self.rows.len() as u64;
        let drawn = (0..rows).map(|_| self.rows[random.below(rows) as usize]);
        let sample = drawn.fold(Sums::default(), Sums::plus);
        let listed = self.class.items as f64;
        let size = 1.0 + normal(random) * ((1.0 - 1.0 / scale) / listed).sqrt();
        let unread = (1.0 - rows as f64 / (listed * scale)).max(0.0).sqrt();
        let shrunk = |drawn: f64, estimate: f64| (estimate + (drawn - estimate) * unread) * size;
        self.extended(sample, scale).zip(estimate, shrunk)
    }

    fn drawn(&self, scale: f64, random: &mut Prng) -> Drawn {
        let estimate = self.estimate(scale);
        let draws = (0..DRAWS).map(|_| self.draw(estimate, scale, random)).collect();
        Drawn { estimate, draws }
    }
}

/// The sums of one class or of all, with those of each draw.
struct Drawn {
    estimate: Sums,
    draws: Vec<Sums>,
}

impl Drawn {
    fn interval(&self, number: impl Fn(&Sums) -> f64) -> Interval {
        Interval::from_draws(number(&self.estimate), self.draws.iter().map(&number))
    }

    fn plus(mut self, other: &Self) -> Self {
        self.estimate = self.estimate.plus(other.estimate);
        self.draws.iter_mut().zip(&other.draws).for_each(|(sum, draw)| *sum = sum.plus(*draw));
        self
    }
}

/// Computes the estimate. `forms` are the measured forms of the reading's values, in the same order.
pub(super) fn estimate(
    reading: Reading,
    forms: &[Forms],
    price_gb_month: Option<f64>,
    seed: u64,
) -> Estimate {
    let source = reading.source.clone();
    let scale = source.items as f64 / source.items_listed.max(1) as f64;
    let strata = strata(&reading, forms);
    let mut random = Prng::new(seed);
    let drawn: Vec<Drawn> =
        strata.iter().map(|stratum| stratum.drawn(scale, &mut random)).collect();
    let zero = Drawn { estimate: Sums::default(), draws: vec![Sums::default(); DRAWS] };
    let all = drawn.iter().fold(zero, Drawn::plus);
    let has_rates = reading.rates.is_some();
    let compared = Compared { reading: &reading, strata: &strata, all: &all, scale };
    let for_items = compared.share_for_items();
    let gains = [PLAIN, BEST].map(|form| compared.gain(form, for_items[form]));
    let figures = |drawn: &Drawn, stratum: Option<&Stratum<'_>>| {
        let rates: Vec<Rates> = match stratum {
            Some(stratum) => stratum.rates.into_iter().collect(),
            None => reading.rates.iter().flatten().copied().collect(),
        };
        let savings = |form: usize| {
            let gain = gains[form].gain(stratum.map(|stratum| stratum.at));
            savings(drawn, form, for_items[form], has_rates, price_gb_month, gain)
        };
        let codec = |(at, codec): (usize, &&'static str)| CodecRatio {
            codec,
            stored_ratio: drawn.interval(|sums| ratio(sums.codec_bytes[at], sums.value_bytes)),
        };
        let name = stratum.map_or("total", |stratum| &stratum.class.name).to_owned();
        let rate = |field: fn(&Rates) -> f64| has_rates.then(|| rates.iter().map(field).sum());
        Figures {
            name,
            values: drawn.interval(|sums| sums.items),
            bytes: drawn.interval(|sums| sums.value_bytes),
            values_read: stratum.map_or(forms.len(), |stratum| stratum.rows.len()),
            savings: savings(BEST),
            without_dictionary: savings(PLAIN),
            uses_dictionary: strata.iter().any(|one| {
                one.uses_dictionary
                    && stratum.is_none_or(|stratum| stratum.class.name == one.class.name)
            }),
            codecs: CODEC_NAMES.iter().enumerate().map(codec).collect(),
            memcached_item_bytes: drawn.interval(|sums| sums.memcached_bytes / sums.items),
            hits_per_s: rate(|rates| rates.hits_per_s),
            sets_per_s: rate(|rates| rates.sets_per_s),
        }
    };
    let mut classes: Vec<(f64, Figures)> = strata
        .iter()
        .zip(&drawn)
        .map(|(stratum, drawn)| (drawn.estimate.memcached_bytes, figures(drawn, Some(stratum))))
        .collect();
    classes.sort_by(|a, b| b.0.total_cmp(&a.0));
    let total = figures(&all, None);
    let mut assumptions = assumptions(&reading, gains[BEST].curves.total.is_some());
    assumptions.extend(time_to_fill(&reading, &total));
    let mut notes = reading.notes;
    notes.extend(left_out(&reading.classes, &classes));
    let [_, best] = gains;
    Estimate {
        total,
        classes: classes.into_iter().map(|(_, figures)| figures).collect(),
        assumptions,
        curve: best.placed(),
        notes,
        source,
    }
}

/// Puts the values of each class together. A class of which no value could be read is left out.
fn strata<'a>(reading: &'a Reading, forms: &[Forms]) -> Vec<Stratum<'a>> {
    let stratum = |(at, class): (usize, &'a Class)| {
        let of_class = reading.values.iter().zip(forms).filter(|(value, _)| value.class == at);
        let pairs: Vec<(&Value, &Forms)> = of_class.collect();
        let rebate = |value: &Value, measured: &Measured| stored(value, measured).rebate_bytes();
        let plain: f64 = pairs.iter().map(|(value, forms)| rebate(value, &forms.plain)).sum();
        let with: Option<f64> = pairs
            .iter()
            .map(|(value, forms)| Some(rebate(value, forms.dictionary.as_ref()?)))
            .sum();
        let uses_dictionary = with.is_some_and(|with| with < plain);
        let row = |(value, forms): (&Value, &Forms)| {
            row(value, forms, &reading.slabs, reading.has_cas, uses_dictionary)
        };
        Stratum {
            class,
            at,
            rates: reading.rates.as_ref().and_then(|rates| rates.get(at).copied()),
            has_sizes: reading.has_sizes,
            rows: pairs.into_iter().map(row).collect(),
            uses_dictionary,
        }
    };
    let strata = reading.classes.iter().enumerate().map(stratum);
    strata.filter(|stratum| !stratum.rows.is_empty()).collect()
}

fn stored(value: &Value, measured: &Measured) -> Stored {
    Stored {
        key_bytes: value.key.len(),
        stored_bytes: measured.stored_bytes,
        omitted_bytes: measured.omitted_bytes,
        expires: value.expires,
        has_flags: value.has_flags,
    }
}

/// Returns the sums over one value.
fn row(value: &Value, forms: &Forms, slabs: &Slabs, has_cas: bool, uses_dictionary: bool) -> Sums {
    let counted = memory::item_bytes(value.key.len(), value.bytes.len(), value.has_flags);
    let item_bytes = if has_cas { counted } else { counted - 8 };
    let form = |measured: &Measured| FormSums {
        stored_bytes: measured.stored_bytes as f64,
        rebate_bytes: stored(value, measured).rebate_bytes(),
        compress_ns: measured.compress_ns,
        decompress_ns: measured.decompress_ns,
        cores: 0.0,
    };
    let with_dictionary = forms.dictionary.as_ref().unwrap_or(&forms.plain);
    let best = if uses_dictionary { with_dictionary } else { &forms.plain };
    let codec_bytes: [usize; CODEC_NAMES.len()] =
        with_last(&forms.codec_bytes, with_dictionary.stored_bytes);
    Sums {
        items: 1.0,
        item_bytes: item_bytes as f64,
        value_bytes: value.bytes.len() as f64,
        memcached_bytes: slabs.item_bytes(item_bytes),
        codec_bytes: codec_bytes.map(|bytes| bytes as f64),
        forms: [form(&forms.plain), form(best)],
    }
}

/// The items that Rebate holds where memcached holds one in the same memory.
fn items_held_ratio(drawn: &Drawn, form: usize, for_items: f64) -> Interval {
    let held = |sums: &Sums| sums.memcached_bytes / sums.forms[form].rebate_bytes;
    let ratio = drawn.interval(held).times(for_items);
    ratio.widened(MEMORY_ERROR * ratio.value.abs())
}

/// The server's items beside what Rebate would make of them.
struct Compared<'a> {
    reading: &'a Reading,
    strata: &'a [Stratum<'a>],
    all: &'a Drawn,
    /// The items over those that were listed.
    scale: f64,
}

impl Compared<'_> {
    /// Returns the share of the memory that the trainer leaves to items, by the stored form.
    fn share_for_items(&self) -> [f64; 2] {
        let memory_bytes = self.all.estimate.memcached_bytes;
        let trainer = (self.reading.beside.trainer_bytes)(ByteCount(memory_bytes as u64));
        let uses_dictionary = self.strata.iter().any(|stratum| stratum.uses_dictionary);
        [1.0, if uses_dictionary { 1.0 - trainer.0 as f64 / memory_bytes.max(1.0) } else { 1.0 }]
    }

    /// Returns the share of the memory that hot values can take.
    fn hot_share(&self, memory_bytes: f64) -> f64 {
        let BesideItems { hot_share, hot_bytes_min, .. } = self.reading.beside;
        let long_bytes = |stratum: &Stratum<'_>| {
            let sum = |least: f64| -> f64 {
                let bytes = stratum.rows.iter().map(|sums| sums.value_bytes);
                bytes.filter(|bytes| *bytes >= least).sum()
            };
            let all_bytes = stratum.estimate(self.scale).value_bytes;
            let long = sum(hot_bytes_min as f64);
            if long > 0.0 { all_bytes * long / sum(0.0) } else { 0.0 }
        };
        hot_share.min(self.strata.iter().map(long_bytes).sum::<f64>() / memory_bytes)
    }

    /// The memory of Rebate's items over what the items of the server would take of it. memcached takes up to a page
    /// for each slab class beyond its limit, which Rebate keeps to.
    fn memory_ratio(&self, items_held_ratio: Interval) -> Interval {
        let limit_bytes = self.reading.source.limit_bytes.filter(|bytes| *bytes > 0);
        let memory_bytes = self.all.estimate.memcached_bytes;
        let within =
            limit_bytes.map_or(1.0, |limit_bytes| (limit_bytes as f64 / memory_bytes).min(1.0));
        let ratio = items_held_ratio.times(within);
        let beside_hot = 1.0 - self.hot_share(memory_bytes * within);
        Interval { value: ratio.value * beside_hot, low: ratio.low * beside_hot, high: ratio.high }
    }

    fn gain(&self, form: usize, for_items: f64) -> Gain {
        let sample: Vec<SampledItem> = self
            .strata
            .iter()
            .flat_map(|stratum| stratum.rows.iter().map(|sums| (stratum.at, sums)))
            .map(|(class, sums)| SampledItem {
                class,
                item_bytes: sums.item_bytes,
                rebate_bytes: sums.forms[form].rebate_bytes,
            })
            .collect();
        let held_bytes = self.all.estimate.forms[form].rebate_bytes;
        let ratio = self.memory_ratio(items_held_ratio(self.all, form, for_items));
        let sizes = Sizes::new(&sample);
        let curves =
            |observed: &Observed| observed.curves(self.reading.classes.len(), &sizes, held_bytes);
        Gain {
            evicts: self.reading.evicts,
            curves: self.reading.observed.as_ref().map(curves).unwrap_or_default(),
            held_bytes,
            ratio,
        }
    }
}

/// What the gain in hits follows from, for one stored form.
struct Gain {
    evicts: Option<bool>,
    curves: Curves,
    /// The memory that the server's items take in Rebate (bytes).
    held_bytes: f64,
    /// The memory that Rebate's items get, over that.
    ratio: Interval,
}

impl Gain {
    /// Returns the gain of all requests, or of those of a class, if the whole cache gets more memory. A cache that
    /// evicts nothing gains nothing.
    fn gain(&self, class: Option<usize>) -> Option<Interval> {
        if !self.evicts? {
            return Some(Interval::exact(0.0));
        }
        let curve = match class {
            Some(at) => self.curves.classes.get(at)?.as_ref(),
            None => self.curves.total.as_ref(),
        };
        curve.map(|curve| curve.gain(self.held_bytes, self.ratio))
    }

    fn placed(self) -> Option<PlacedCurve> {
        let Self { curves, held_bytes, ratio, .. } = self;
        let rebate_bytes = held_bytes * ratio.value;
        curves.total.map(|curve| PlacedCurve { curve, held_bytes, rebate_bytes })
    }
}

fn savings(
    drawn: &Drawn,
    form: usize,
    for_items: f64,
    has_rates: bool,
    price_gb_month: Option<f64>,
    hit_ratio_gain: Option<Interval>,
) -> Savings {
    let of_form = |sums: &Sums| sums.forms[form];
    let interval = |error: f64, number: &dyn Fn(&Sums) -> f64| {
        let found = drawn.interval(number);
        found.widened(error * found.value.abs())
    };
    let memory_gb = |sums: &Sums| of_form(sums).rebate_bytes / for_items / BYTES_PER_GB;
    let gb_saved = drawn
        .interval(|sums| sums.memcached_bytes / BYTES_PER_GB - memory_gb(sums))
        .widened(MEMORY_ERROR * memory_gb(&drawn.estimate));
    let per_item_us = |ns: &dyn Fn(FormSums) -> f64| {
        interval(TIME_ERROR, &|sums| ns(of_form(sums)) / sums.items / 1e3)
    };
    Savings {
        stored_ratio: interval(0.0, &|sums| ratio(of_form(sums).stored_bytes, sums.value_bytes)),
        items_held_ratio: items_held_ratio(drawn, form, for_items),
        gb_saved,
        cores: has_rates.then(|| interval(TIME_ERROR, &|sums| of_form(sums).cores)),
        hit_ratio_gain,
        price_saved_month: price_gb_month.map(|price| gb_saved.times(price)),
        rebate_item_bytes: interval(MEMORY_ERROR, &|sums| of_form(sums).rebate_bytes / sums.items),
        compress_us: per_item_us(&|form| form.compress_ns),
        decompress_us: per_item_us(&|form| form.decompress_ns),
    }
}

/// Says how many items are in no figure.
fn left_out(classes: &[Class], answered: &[(f64, Figures)]) -> Option<String> {
    let is_left_out =
        |class: &&Class| !answered.iter().any(|(_, figures)| figures.name == class.name);
    let items: u64 = classes.iter().filter(is_left_out).map(|class| class.items).sum();
    (items > 0).then(|| {
        format!("{items} items are left out, because no value of their classes could be read.")
    })
}

fn assumptions(reading: &Reading, has_curve: bool) -> Vec<String> {
    let mut all = vec![
        "Memory is that of items: memcached's slab chunks, and Rebate's records with their index. memcached's hash \
         table, connections and buffers come on top of it.",
        "Cores are the CPU time that compression adds to the requests of a Rebate on this machine. Their interval \
         has a fifth for other loads. Without compression, a request costs about the same in both servers.",
        "A dictionary is trained for each class of keys on half of the sample and measured on the other half.",
    ];
    if reading.rates.is_some() {
        all.push("Requests stay as they were while the server was watched.");
    }
    if reading.evicts == Some(false) {
        all.push("The server has evicted nothing, so more room gives no more hits.");
    } else if has_curve {
        all.push(
            "What Rebate's store evicts comes from a replay of the watched requests in a small store of its kind. \
             Beyond the memory of the server, the curve is continued: as a power law of hits for the value, flat for \
             the low end, and straight for the high end.",
        );
    }
    all.into_iter().map(str::to_owned).collect()
}

/// Says when the gain in hits is reached, if there is one.
fn time_to_fill(reading: &Reading, total: &Figures) -> Option<String> {
    total.savings.hit_ratio_gain.filter(|gain| gain.value > 0.0)?;
    let sets_per_s = total.sets_per_s.filter(|rate| *rate > 0.0)?;
    let more_items = (total.savings.items_held_ratio.value - 1.0) * reading.source.items as f64;
    let seconds = more_items / sets_per_s;
    let time = match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        ..7_200.0 => format!("{:.0} minutes", seconds / 60.0),
        ..172_800.0 => format!("{:.0} hours", seconds / 3_600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    };
    Some(format!(
        "The gain in hits is that of a full cache with trained dictionaries. Training takes seconds to minutes, and at \
         this rate of sets the cache is full after {time} or more."
    ))
}

/// Returns the ratio of two sizes. Where there are no bytes, nothing is saved.
fn ratio(stored_bytes: f64, value_bytes: f64) -> f64 {
    if value_bytes > 0.0 { stored_bytes / value_bytes } else { 1.0 }
}

/// Draws from the normal distribution, closely enough for an interval: a sum of twelve uniform draws.
fn normal(random: &mut Prng) -> f64 {
    (0..12).map(|_| random.unit()).sum::<f64>() - 6.0
}

/// The number of times that the sample is drawn again.
const DRAWS: usize = 200;

const BYTES_PER_GB: f64 = 1e9;

/// The error of Rebate's memory beside that of the sample: records do not fill their segments to the end.
/// bench/estimate.py measures it.
const MEMORY_ERROR: f64 = 0.02;

/// The error of times beside that of the sample: the machine does other things, and other requests come in between.
/// bench/estimate.py measures it.
const TIME_ERROR: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::super::log::RequestLog;
    use super::super::memory::SlabSettings;
    use super::*;

    fn value(class: usize, bytes: usize) -> Value {
        let (key, bytes) = (b"user:12345".to_vec(), vec![0; bytes]);
        Value { class, key, expires: false, has_flags: false, bytes }
    }

    fn measured(stored_bytes: usize) -> Measured {
        let (compress_ns, decompress_ns) = (4_000.0, 1_000.0);
        Measured { stored_bytes, omitted_bytes: 0, compress_ns, decompress_ns }
    }

    fn forms(plain: usize, dictionary: Option<usize>) -> Forms {
        let dictionary = dictionary.map(measured);
        Forms { plain: measured(plain), dictionary, codec_bytes: [plain; Codec::ALL.len()] }
    }

    /// Makes a reading of two classes with 1,000 items each. Values have 100 and 1,000 bytes, give or take a tenth.
    fn reading(evicts: bool) -> (Reading, Vec<Forms>) {
        let slabs = Slabs::new(SlabSettings::default(), &[]);
        let sizes = |at: usize| [100, 1_000][at];
        let size = |at: usize, n: usize| sizes(at) + sizes(at) / 10 * (n % 3) - sizes(at) / 10;
        let class = |at: usize| {
            let all = (0..999).map(|n| memory::item_bytes(10, size(at, n), false));
            Class {
                name: format!("class{at}"),
                items: 999,
                item_bytes: all.clone().sum(),
                memcached_bytes: all.map(|bytes| slabs.item_bytes(bytes)).sum(),
                drawn: Vec::new(),
            }
        };
        let values: Vec<Value> =
            (0..2).flat_map(|at| (0..150).map(move |n| value(at, size(at, n)))).collect();
        let halved = |value: &Value| {
            let bytes = value.bytes.len();
            forms(bytes / 2, (value.class == 0).then_some(bytes / 4))
        };
        let forms = values.iter().map(halved).collect();
        let rates = Rates { hits_per_s: 10_000.0, sets_per_s: 1_000.0 };
        let observed = Observed {
            log: RequestLog::new(1.0),
            watched: None,
            // Few items are requested often.
            ages_s: (0..400).map(|n| (f64::from(n) / 200.0).powi(2)).collect(),
            requests_per_s: 2_000.0,
            hit_ratio: 0.7,
            items: 1_998.0,
            coverage: 1.0,
        };
        let source = SourceFacts { items: 1_998, items_listed: 1_998, ..SourceFacts::default() };
        let reading = Reading {
            source,
            classes: vec![class(0), class(1)],
            values,
            slabs,
            has_cas: true,
            has_sizes: true,
            rates: Some(vec![rates, rates]),
            observed: Some(observed),
            beside: BesideItems {
                hot_share: 0.05,
                hot_bytes_min: 800,
                trainer_bytes: |_| ByteCount(0),
            },
            evicts: Some(evicts),
            notes: Vec::new(),
        };
        (reading, forms)
    }

    fn answered(evicts: bool) -> Estimate {
        let (reading, forms) = reading(evicts);
        estimate(reading, &forms, Some(2.0), 1)
    }

    #[test]
    fn ratios_are_those_of_the_bytes() {
        let estimate = answered(true);
        let total = &estimate.total;
        assert_eq!(total.values, Interval::exact(1_998.0));
        assert!((total.bytes.value - 1_998.0 * 550.0).abs() < 2_000.0, "{:?}", total.bytes);
        let plain = &total.without_dictionary;
        assert!((plain.stored_ratio.value - 0.5).abs() < 0.01, "{:?}", plain.stored_ratio);
        let expected = (100.0 * 0.25 + 1_000.0 * 0.5) / 1_100.0;
        assert!((total.savings.stored_ratio.value - expected).abs() < 0.01);
        assert!(total.uses_dictionary);
    }

    #[test]
    fn classes_are_ordered_by_their_memory() {
        let estimate = answered(true);
        let names: Vec<&str> = estimate.classes.iter().map(|class| class.name.as_str()).collect();
        assert_eq!(names, ["class1", "class0"]);
        assert!(!estimate.classes[0].uses_dictionary && estimate.classes[1].uses_dictionary);
        assert_eq!(estimate.classes[1].values_read, 150);
    }

    #[test]
    fn memory_is_compared_item_by_item() {
        let estimate = answered(true);
        let small = &estimate.classes[1];
        let rebate = small.savings.rebate_item_bytes.value;
        assert!((rebate - (10.0 + 25.0 + 22.0)).abs() < 1.0, "{rebate}");
        let held = small.memcached_item_bytes.value / rebate;
        assert!((small.savings.items_held_ratio.value - held).abs() < 1e-9);
        let saved = (small.memcached_item_bytes.value - rebate) * 999.0 / 1e9;
        assert!((small.savings.gb_saved.value - saved).abs() < 1e-12);
        let price = small.savings.price_saved_month.map(|price| price.value);
        assert_eq!(price, Some(small.savings.gb_saved.value * 2.0));
    }

    #[test]
    fn cores_are_rates_times_costs() {
        // 20,000 hits of 1 us and 2,000 sets of 4 us in each second.
        let cores = answered(true).total.savings.cores.map_or(0.0, |cores| cores.value);
        assert!((cores - 0.028).abs() < 1e-9, "{cores}");
    }

    #[test]
    fn intervals_contain_their_values() {
        let total = answered(true).total;
        for found in [total.savings.stored_ratio, total.savings.gb_saved, total.bytes] {
            assert!(found.low <= found.value && found.value <= found.high, "{found:?}");
            assert!(found.low < found.high, "{found:?}");
        }
    }

    #[test]
    fn no_evictions_give_no_gain() {
        let gain = |evicts| answered(evicts).total.savings.hit_ratio_gain;
        assert_eq!(gain(false), Some(Interval::exact(0.0)));
        assert!(gain(true).is_some_and(|gain| gain.value > 0.0 && gain.low == 0.0));
    }

    #[test]
    fn a_gain_says_when_it_is_reached() {
        let is_said = |evicts| {
            let assumptions = answered(evicts).assumptions;
            assumptions.iter().any(|text| text.contains("the cache is full after 1 s or more"))
        };
        // 2,000 sets per second fill the room for some 2,700 more items.
        assert!(is_said(true) && !is_said(false));
    }

    #[test]
    fn sizes_that_were_not_listed_come_from_the_sample() {
        let (mut reading, forms) = reading(true);
        for class in &mut reading.classes {
            (class.item_bytes, class.memcached_bytes) = (1, 1.0);
        }
        reading.has_sizes = false;
        let bytes = estimate(reading, &forms, None, 1).total.bytes;
        assert!((bytes.value - 1_998.0 * 550.0).abs() < 1.0, "{bytes:?}");
        assert!(bytes.low < bytes.value && bytes.value < bytes.high, "{bytes:?}");
    }

    #[test]
    fn a_class_without_values_is_noted() {
        let (mut reading, mut forms) = reading(true);
        reading.values.truncate(150);
        forms.truncate(150);
        let estimate = estimate(reading, &forms, None, 1);
        assert_eq!(estimate.classes.len(), 1);
        assert!(estimate.notes[0].starts_with("999 items are left out"), "{:?}", estimate.notes);
    }

    #[test]
    fn empty_values_save_nothing() {
        let (mut reading, mut forms) = reading(true);
        reading.values.iter_mut().for_each(|value| value.bytes.clear());
        forms.iter_mut().for_each(|one| *one = self::forms(0, None));
        let total = estimate(reading, &forms, None, 1).total;
        assert_eq!(total.savings.stored_ratio, Interval::exact(1.0));
    }

    #[test]
    fn a_partial_list_widens_the_intervals() {
        let (mut reading, forms) = reading(true);
        reading.source.items = 19_980;
        let estimate = estimate(reading, &forms, None, 1);
        let values = estimate.total.values;
        assert_eq!(values.value, 19_980.0);
        assert!(values.low < 19_900.0 && values.high > 20_050.0, "{values:?}");
    }
}
