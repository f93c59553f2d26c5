//! Groups the items of a listing by the class of their key, and draws the keys whose values are read. Memory is
//! bounded: there are at most [`CLASSES_MAX`] classes, and each keeps a bounded random sample of its keys. It reads no
//! values.

use std::collections::HashMap;

use policy::KeyClasses;
use policy::key_class::{NAME_BYTES_MAX, printable};
use units::Prng;

use super::listing::Listed;

/// The classes of a listing.
#[derive(Debug)]
pub(super) struct Classes {
    rule: KeyClasses,
    by_name: HashMap<Vec<u8>, usize>,
    list: Vec<Class>,
    drawn_max: usize,
    random: Prng,
}

/// The items of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Class {
    pub(super) name: String,
    /// The number of listed items.
    pub(super) items: u64,
    /// The sum of the items' sizes (bytes).
    pub(super) item_bytes: u64,
    /// The sum of the memory that the items take in memcached (bytes).
    pub(super) memcached_bytes: f64,
    /// A uniform random sample of the items.
    pub(super) drawn: Vec<Listed>,
}

impl Classes {
    /// Makes an empty table. Each class keeps at most `drawn_max` items.
    pub(super) fn new(prefixes: &[String], drawn_max: usize, seed: u64) -> Self {
        Self {
            rule: KeyClasses::new(prefixes.to_vec()),
            by_name: HashMap::new(),
            list: Vec::new(),
            drawn_max,
            random: Prng::new(seed),
        }
    }

    /// Adds an item that takes `memcached_bytes` of memory. Returns the position of its class in the list.
    pub(super) fn add(&mut self, listed: Listed, memcached_bytes: f64) -> usize {
        let at = self.index_or_insert(&listed.key);
        let class = &mut self.list[at];
        class.items += 1;
        class.item_bytes = class.item_bytes.saturating_add(listed.item_bytes);
        class.memcached_bytes += memcached_bytes;
        if class.drawn.len() < self.drawn_max {
            class.drawn.push(listed);
            return at;
        }
        let place = self.random.below(class.items) as usize;
        if let Some(slot) = class.drawn.get_mut(place) {
            *slot = listed;
        }
        at
    }

    /// Returns the position of a key's class in the list.
    pub(super) fn index(&self, key: &[u8]) -> Option<usize> {
        let mut name = [0; NAME_BYTES_MAX];
        let name = self.rule.name(key, &mut name);
        self.by_name.get(name).or_else(|| self.by_name.get(OTHER)).copied()
    }

    /// Returns the number of listed items.
    pub(super) fn items(&self) -> u64 {
        self.list.iter().map(|class| class.items).sum()
    }

    /// Puts the sample of each class in random order.
    pub(super) fn shuffle(&mut self) {
        for class in &mut self.list {
            shuffle(&mut class.drawn, &mut self.random);
        }
    }

    /// Returns the classes in the order of their index.
    pub(super) fn list(&self) -> &[Class] {
        &self.list
    }

    /// Returns the classes in the order of their index.
    pub(super) fn into_list(self) -> Vec<Class> {
        self.list
    }

    fn index_or_insert(&mut self, key: &[u8]) -> usize {
        let mut name = [0; NAME_BYTES_MAX];
        let mut name = self.rule.name(key, &mut name);
        if let Some(at) = self.by_name.get(name) {
            return *at;
        }
        if self.list.len() >= CLASSES_MAX {
            name = OTHER;
        }
        let at = *self.by_name.entry(name.to_vec()).or_insert(self.list.len());
        if at == self.list.len() {
            self.list.push(Class { name: printable(name), ..Class::default() });
        }
        at
    }
}

/// Returns the items whose values are read, with their classes, in an order in which any first part has the same share
/// of each class. Together they have at most `bytes_max`, so longer ones are never read.
pub(super) fn plan(classes: &[Class], total: usize, bytes_max: u64) -> Vec<(usize, Listed)> {
    let counts = allocation(classes, total);
    let mut order: Vec<(f64, usize, usize)> = Vec::new();
    for (class, count) in counts.iter().enumerate() {
        order.extend((0..*count).map(|at| (at as f64 / *count as f64, class, at)));
    }
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut bytes = 0_u64;
    let items = order.into_iter().map(|(_, class, at)| (class, classes[class].drawn[at].clone()));
    items
        .filter(|(_, listed)| listed.item_bytes <= bytes_max)
        .take_while(|(_, listed)| {
            bytes = bytes.saturating_add(listed.item_bytes);
            bytes <= bytes_max
        })
        .collect()
}

/// Returns how many values of each class are read: half of `total` by the share of items and half by the share of
/// bytes, so that a class with few large values is not missed.
fn allocation(classes: &[Class], total: usize) -> Vec<usize> {
    let items: u64 = classes.iter().map(|class| class.items).sum();
    let bytes = classes.iter().map(|class| class.item_bytes).fold(0, u64::saturating_add);
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let count = |class: &Class| {
        let share = f64::midpoint(share(class.items, items), share(class.item_bytes, bytes));
        let wanted = (share * total as f64).ceil() as usize;
        wanted.max(VALUES_PER_CLASS_MIN).min(class.drawn.len())
    };
    classes.iter().map(count).collect()
}

fn shuffle<T>(list: &mut [T], random: &mut Prng) {
    for at in (1..list.len()).rev() {
        list.swap(at, random.below(at as u64 + 1) as usize);
    }
}

/// The most classes. Items of further classes are in one class, which is called `(other)`.
const CLASSES_MAX: usize = 64;

/// The name of the class of all items that belong to no other class.
const OTHER: &[u8] = b"(other)";

/// The number of values that are read of a small class, if it has so many.
const VALUES_PER_CLASS_MIN: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(key: &str) -> Listed {
        let key = key.as_bytes().to_vec();
        Listed { key, expires: false, accessed_s: None, item_bytes: 100 }
    }

    fn filled(keys: impl Iterator<Item = String>, drawn_max: usize) -> Classes {
        let mut classes = Classes::new(&["user:".to_owned(), "user:x".to_owned()], drawn_max, 1);
        keys.for_each(|key| {
            classes.add(listed(&key), 120.0);
        });
        classes
    }

    #[test]
    fn named_prefixes_win_over_shapes() {
        let keys = ["user:1", "user:abc", "user:x1", "page:1", "page:2"];
        let classes = filled(keys.iter().map(ToString::to_string), 10);
        assert_eq!(classes.index(b"page:77"), Some(2));
        assert_eq!(classes.index(b"nothing"), None);
        let list = classes.into_list();
        let names: Vec<(&str, u64)> = list.iter().map(|c| (c.name.as_str(), c.items)).collect();
        assert_eq!(names, [("user:", 2), ("user:x", 1), ("page:*", 2)]);
        assert_eq!((list[2].item_bytes, list[2].memcached_bytes), (200, 240.0));
    }

    #[test]
    fn the_number_of_classes_is_bounded() {
        let letters =
            |n: u8| format!("{}{}:1", char::from(b'a' + n / 26), char::from(b'a' + n % 26));
        let list = filled((0..200).map(letters), 3).into_list();
        assert_eq!(list.len(), CLASSES_MAX + 1);
        assert_eq!(
            list.last().map(|class| (class.name.as_str(), class.items)),
            Some(("(other)", 136))
        );
    }

    #[test]
    fn the_sample_of_a_class_is_uniform() {
        let list = filled((0..10_000).map(|n| format!("k:{n}")), 1_000).into_list();
        assert_eq!(list[0].drawn.len(), 1_000);
        let late =
            list[0].drawn.iter().filter(|listed| listed.key.len() == 6 && listed.key[2] >= b'5');
        // Half of the keys are in the second half. The standard deviation is 15.
        assert!((425..575).contains(&late.count()));
    }

    #[test]
    fn a_plan_mixes_classes_and_keeps_to_its_bytes() {
        let keys = (0..100).map(|n| format!("{}:{n}", if n % 2 == 0 { "a" } else { "b" }));
        let list = filled(keys, 100).into_list();
        let all = plan(&list, 100, u64::MAX);
        assert_eq!(all.len(), 100);
        assert_eq!(all[..10].iter().filter(|(class, _)| *class == 0).count(), 5);
        assert_eq!(plan(&list, 100, 1_000).len(), 10);
    }

    #[test]
    fn an_item_beyond_all_bytes_does_not_end_a_plan() {
        let long = Listed { item_bytes: 2_000, ..listed("a:1") };
        let drawn = vec![long, listed("a:2"), listed("a:3")];
        let class = Class { items: 3, item_bytes: 2_200, drawn, ..Class::default() };
        assert_eq!(plan(&[class], 3, 1_000).len(), 2);
    }

    #[test]
    fn large_values_get_their_share_of_the_sample() {
        let class = |items, item_bytes| Class {
            items,
            item_bytes,
            drawn: vec![listed("k"); 1_000],
            ..Class::default()
        };
        let counts = allocation(&[class(9_900, 990_000), class(100, 99_010_000)], 1_000);
        assert_eq!(counts, [500, 501]);
        assert_eq!(allocation(&[class(1, 100), class(1_000_000, 100_000_000)], 10), [30, 30]);
    }
}
