//! Miss-ratio curves of a cache that evicts the least recently used item: from a stream of requests by SHARDS
//! (Waldspurger et al., FAST 2015), which follows the keys below a hash threshold, or from the ages of the items that a
//! cache holds. The functions are pure: they know no clock and no server.

use std::collections::HashMap;

use serde::Serialize;

use super::interval::Interval;

/// The miss ratio as a function of the memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// The points in ascending order of the memory. The first is (0, 1).
    pub points: Vec<CurvePoint>,
    /// How the curve was found.
    pub origin: CurveOrigin,
    /// The share of gets that the server answered with nothing. It differs from the curve at the memory of the server's
    /// items if the server does not evict the least recently used item.
    pub server_miss_ratio: f64,
    /// The misses of Rebate's store over those of the server if the server's items just fit into it.
    pub rebate_over_server: f64,
    /// The number of gets that found nothing although their key had been in the cache during the stream. The points
    /// beyond the memory of the items that the cache holds rest on these.
    pub reuses_beyond: usize,
}

/// A miss-ratio curve, and where on it the caches are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacedCurve {
    /// The curve.
    #[serde(flatten)]
    pub curve: Curve,
    /// The memory that the server's items take in Rebate (bytes).
    pub held_bytes: f64,
    /// The memory that Rebate has for items where the server has its own (bytes).
    pub rebate_bytes: f64,
}

/// One point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// The memory of a cache, as its items count in Rebate (bytes).
    pub bytes: f64,
    /// The share of gets that find nothing.
    pub miss_ratio: f64,
}

/// How a curve was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CurveOrigin {
    /// From the reuse distances in a stream of requests.
    Requests,
    /// From the time since the last access of the items held.
    Ages,
}

impl Curve {
    /// Returns the miss ratio of a cache of `bytes`, between the nearest points.
    pub fn miss_ratio(&self, bytes: f64) -> f64 {
        let after = self.points.partition_point(|point| point.bytes < bytes);
        let Some(right) = self.points.get(after) else {
            return self.points.last().map_or(1.0, |point| point.miss_ratio);
        };
        let Some(left) = after.checked_sub(1).map(|before| self.points[before]) else {
            return right.miss_ratio;
        };
        let share = (bytes - left.bytes) / (right.bytes - left.bytes);
        left.miss_ratio + share * (right.miss_ratio - left.miss_ratio)
    }

    /// Returns the rise of the hit ratio if the cache has `ratio` times the memory that its items take in Rebate, which
    /// is `held_bytes`. Beyond the largest size that the requests tell of, the curve is continued: the value lets the
    /// hit ratio grow with the power of the size with which it grew from half that size on. The low end says that no
    /// item that was evicted earlier is requested again. The high end continues the last slope, which a convex curve
    /// cannot exceed. The server's misses are in proportion to those that it has at its size, and Rebate's to what its
    /// store had on the same requests.
    pub fn gain(&self, held_bytes: f64, ratio: Interval) -> Interval {
        let here = self.miss_ratio(held_bytes);
        let of_server = if here > 0.0 { self.server_miss_ratio / here } else { 1.0 };
        // Where no request was seen that came back from beyond a small size, the slope is that up to there: a flat
        // curve from there on would say that more memory gives nothing, and nobody has seen that.
        let seen_to = self.points.last().map_or(held_bytes, |point| point.bytes);
        let known_to = seen_to.max(held_bytes);
        let there = self.miss_ratio(known_to);
        let half = self.miss_ratio(seen_to / 2.0).max(there);
        let slope = (half - there) / (seen_to / 2.0);
        let exponent = if half < 1.0 { ((1.0 - there) / (1.0 - half)).log2() } else { 0.0 };
        let straight = |bytes: f64| (slope * (bytes - known_to)).min(there);
        let power = |bytes: f64| {
            let gain = (1.0 - there) * ((bytes / known_to).powf(exponent) - 1.0);
            gain.min(straight(bytes))
        };
        let slack = if self.origin == CurveOrigin::Ages { SLACK_OF_AGES } else { 1.0 };
        // Of a count, the standard deviation is its root.
        let error = SIGMAS / (self.reuses_beyond.max(1) as f64).sqrt();
        let rise = |ratio: f64, share: f64, beyond: &dyn Fn(f64) -> f64| {
            let wanted = ratio * held_bytes;
            if wanted < held_bytes {
                return here - self.miss_ratio(wanted);
            }
            let known = share * (here - self.miss_ratio(wanted.min(known_to)));
            let more = if wanted > known_to { beyond(wanted) } else { 0.0 };
            (known + more).min(here)
        };
        let gain = |ratio: f64, share: f64, beyond: &dyn Fn(f64) -> f64| {
            of_server * (here - self.rebate_over_server * (here - rise(ratio, share, beyond)))
        };
        Interval {
            value: gain(ratio.value, 1.0, &power),
            low: gain(ratio.low, (1.0 - error).max(0.0), &|_| 0.0),
            high: gain(ratio.high, 1.0 + error, &|bytes| slack * straight(bytes)),
        }
    }

    /// Computes the curve from the time since the last access of a random sample of the `items` held, which take
    /// `held_bytes` in Rebate. In a steady state, each request makes one item young, so the number of items per second
    /// of age, over the rate of requests, is the share of requests that come later than this age. `miss_ratio` is the
    /// ratio that the server measured. Returns none if the ages are too few or all equal.
    pub(super) fn from_ages(
        mut ages_s: Vec<f64>,
        items: f64,
        held_bytes: f64,
        requests_per_s: f64,
        miss_ratio: f64,
    ) -> Option<Self> {
        if ages_s.len() < AGES_MIN || requests_per_s <= 0.0 {
            return None;
        }
        ages_s.sort_by(f64::total_cmp);
        let quantile = |step: usize| ages_s[(step * (ages_s.len() - 1)) / AGE_STEPS];
        let mut later = vec![1.0];
        for step in 1..=AGE_STEPS {
            let seconds = quantile(step) - quantile(step - 1);
            let density = items / AGE_STEPS as f64 / seconds;
            let least = later[step - 1];
            later.push((density / requests_per_s).min(least));
        }
        let last = later[AGE_STEPS];
        if last >= 1.0 {
            return None;
        }
        let fitted = |share: f64| miss_ratio + (share - last) * (1.0 - miss_ratio) / (1.0 - last);
        let point = |(step, share): (usize, f64)| CurvePoint {
            bytes: held_bytes * step as f64 / AGE_STEPS as f64,
            miss_ratio: fitted(share),
        };
        let points = later.into_iter().enumerate().map(point).collect();
        let origin = CurveOrigin::Ages;
        Some(Self {
            points,
            origin,
            server_miss_ratio: miss_ratio,
            rebate_over_server: 1.0,
            reuses_beyond: 0,
        })
    }
}

/// The reuse distances of a stream of requests, over the keys whose hash is below a threshold.
#[derive(Debug)]
pub(super) struct Shards {
    rate: f64,
    /// The last access of each key.
    last: HashMap<u64, Access>,
    slots: Fenwick,
    next: usize,
    /// Whether the stream has begun, after the cache was filled.
    is_watching: bool,
    /// The memory of the keys in the stack (bytes).
    bytes: u64,
    /// The part of it that was accessed in the stream.
    watched: u64,
    reuses: Vec<Reuse>,
    misses: Vec<Miss>,
}

/// The last access of a key.
#[derive(Clone, Copy, Debug)]
struct Access {
    /// Later accesses have higher slots.
    slot: usize,
    /// The memory of the item.
    bytes: u32,
    /// Whether it was in the stream.
    is_watched: bool,
}

/// A get that found its key. Distances are bytes of followed keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reuse {
    class: usize,
    /// The distance to the key's last access. If that was before the stream, it follows from the order in which the
    /// cache was filled, and may be too long: a server does not renew an item's time at each access.
    distance: u64,
    /// The bytes that were accessed before in the stream, if this is the first access of its key there. The distance is
    /// longer than that.
    longer_than: Option<u64>,
}

impl Reuse {
    /// Returns the distance up to which the reuse is known.
    fn known_to(&self) -> u64 {
        self.longer_than.unwrap_or(self.distance)
    }
}

/// A get that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Miss {
    class: usize,
    /// The distance to the key's last access, or the least that it can have.
    distance: u64,
    /// Whether the key was accessed since the cache was filled, or then.
    is_reuse: bool,
}

impl Shards {
    /// Makes an empty cache that follows this share of the keys.
    pub(super) fn new(rate: f64) -> Self {
        Self {
            rate: rate.clamp(0.0, 1.0),
            last: HashMap::new(),
            slots: Fenwick::new(SLOTS_MIN),
            next: 0,
            is_watching: false,
            bytes: 0,
            watched: 0,
            reuses: vec![],
            misses: vec![],
        }
    }

    /// Ends the filling of the cache. The stream of requests follows.
    pub(super) fn begin(&mut self) {
        self.is_watching = true;
    }

    /// Puts a key into the cache, or counts a set, and makes the key the most recently used one. Its item takes
    /// `bytes`.
    pub(super) fn touch(&mut self, hash: u64, bytes: u32) {
        if self.next == self.slots.len() {
            self.compact();
        }
        let access = Access { slot: self.next, bytes, is_watched: self.is_watching };
        let before = self.last.insert(hash, access);
        if let Some(before) = before {
            self.slots.add(before.slot, -i64::from(before.bytes));
            self.bytes -= u64::from(before.bytes);
        }
        self.slots.add(self.next, i64::from(bytes));
        self.bytes += u64::from(bytes);
        self.next += 1;
        if self.is_watching && before.is_none_or(|before| !before.is_watched) {
            self.watched += u64::from(bytes);
        }
    }

    /// Counts a get that found its key, and makes it the most recently used one.
    pub(super) fn hit(&mut self, hash: u64, class: usize, bytes: u32) {
        if let Some(before) = self.last.get(&hash) {
            let distance = self.bytes - self.slots.sum_to(before.slot) + u64::from(before.bytes);
            let longer_than = (!before.is_watched).then_some(self.watched);
            self.reuses.push(Reuse { class, distance, longer_than });
        }
        self.touch(hash, bytes);
    }

    /// Counts a get that found nothing. If the key was never seen, its last access was before that of every key that
    /// was, because the cache held those longer.
    pub(super) fn miss(&mut self, hash: u64, class: usize) {
        let before = self.last.get(&hash);
        let distance = match before {
            Some(before) => self.bytes - self.slots.sum_to(before.slot) + u64::from(before.bytes),
            None => self.bytes + 1,
        };
        self.misses.push(Miss { class, distance, is_reuse: before.is_some() });
    }

    /// Returns the curve of all classes, or of one. `hits` and `hit_ratio` are those of the whole stream, which are
    /// known better than those of the followed keys. If fewer or more hits were followed than expected, a few keys
    /// that are requested very often were missed or followed by chance, so the difference is at the shortest
    /// distances. `coverage` is the share of the items that the cache was filled with at the start.
    pub(super) fn curve(
        &self,
        class: Option<usize>,
        hits: u64,
        hit_ratio: f64,
        coverage: f64,
    ) -> Option<Curve> {
        let is_chosen = |reuse: &&Reuse| class.is_none_or(|class| class == reuse.class);
        let reuses: Vec<Reuse> = self.reuses.iter().filter(is_chosen).copied().collect();
        if reuses.len() < DISTANCES_MIN {
            return None;
        }
        let followed = self.rate * coverage;
        let expected = hits as f64 * followed;
        let count = reuses.len() as f64;
        let missing = expected - count;
        let misses: Vec<Miss> = self
            .misses
            .iter()
            .filter(|miss| class.is_none_or(|class| class == miss.class))
            .copied()
            .collect();
        let (beyond, known_to) = weighted_misses(misses);
        let reuses_beyond = beyond.len();
        let share_of_hits = |weight: f64| hit_ratio * weight * count / expected;
        let of_hits = weighted(reuses, self.watched / 2).into_iter();
        let mut weights: Vec<(u64, f64)> = of_hits
            .map(|(distance, weight)| (distance, share_of_hits(weight)))
            .chain(beyond.into_iter().map(|(at, weight)| (at, (1.0 - hit_ratio) * weight)))
            .collect();
        weights.sort_unstable_by_key(|(distance, _)| *distance);
        let mut points = vec![CurvePoint { bytes: 0.0, miss_ratio: 1.0 }];
        let (mut sum, mut step) = (0.0, 1);
        let all: f64 = weights.iter().map(|(_, weight)| weight).sum();
        for (distance, weight) in weights {
            // Without reuses of evicted keys, nothing is known but the hits.
            if reuses_beyond > 0 && distance > known_to {
                break;
            }
            sum += weight;
            if sum < all * step as f64 / CURVE_STEPS as f64 - 1e-9 {
                continue;
            }
            step = (sum / all * CURVE_STEPS as f64 + 1e-9) as usize + 1;
            let bytes = distance as f64 / followed;
            let miss_ratio = (1.0 - sum - hit_ratio * missing / expected).clamp(0.0, 1.0);
            match points.last_mut().filter(|point| point.bytes >= bytes) {
                Some(point) => point.miss_ratio = miss_ratio,
                None => points.push(CurvePoint { bytes, miss_ratio }),
            }
        }
        Some(Curve {
            points,
            origin: CurveOrigin::Requests,
            server_miss_ratio: 1.0 - hit_ratio,
            rebate_over_server: 1.0,
            reuses_beyond,
        })
    }

    /// Numbers the slots anew without the gaps that older accesses left.
    fn compact(&mut self) {
        let mut accesses: Vec<&mut Access> = self.last.values_mut().collect();
        accesses.sort_unstable_by_key(|access| access.slot);
        self.slots = Fenwick::new((2 * accesses.len()).max(SLOTS_MIN));
        self.next = accesses.len();
        for (slot, access) in accesses.into_iter().enumerate() {
            access.slot = slot;
            self.slots.add(slot, i64::from(access.bytes));
        }
    }
}

/// Returns the distances in ascending order with their weights, whose sum is 1. A reuse whose key was accessed before
/// the stream only says that its distance is longer than the stream so far. It counts for those that are known further
/// (Kaplan and Meier, 1958), up to `known`. Beyond, the order in which the cache was filled decides.
fn weighted(mut reuses: Vec<Reuse>, known: u64) -> Vec<(u64, f64)> {
    reuses.sort_unstable_by_key(|reuse| (reuse.known_to(), reuse.longer_than.is_some()));
    let end = reuses.partition_point(|reuse| reuse.known_to() <= known);
    let (short, long) = reuses.split_at(end);
    let mut weights = Vec::with_capacity(reuses.len());
    let mut rest = 1.0;
    for (before, reuse) in short.iter().enumerate() {
        if reuse.longer_than.is_none() {
            let weight = rest / (reuses.len() - before) as f64;
            weights.push((reuse.distance, weight));
            rest -= weight;
        }
    }
    if long.is_empty() {
        // Nothing is known of the longest ones but the order of filling.
        let each = 1.0 / reuses.len() as f64;
        weights = reuses.iter().map(|reuse| (reuse.distance, each)).collect();
    } else {
        let each = rest / long.len() as f64;
        weights.extend(long.iter().map(|reuse| (reuse.distance, each)));
    }
    weights.sort_unstable_by_key(|(distance, _)| *distance);
    weights
}

/// Returns the distances of the misses whose key was seen before with their weights, in ascending order, and the
/// distance up to which enough is known. A miss whose key was never seen only says that its distance is longer than
/// what was seen until then (Kaplan and Meier, 1958).
fn weighted_misses(mut misses: Vec<Miss>) -> (Vec<(u64, f64)>, u64) {
    misses.sort_unstable_by_key(|miss| (miss.distance, !miss.is_reuse));
    let mut rest = 1.0;
    let mut weights = Vec::new();
    let enough = misses.len().saturating_sub(MISSES_MIN);
    let known_to = misses.get(enough).map_or(0, |miss| miss.distance);
    for (before, miss) in misses.iter().enumerate().take(enough) {
        if miss.is_reuse {
            let weight = rest / (misses.len() - before) as f64;
            weights.push((miss.distance, weight));
            rest -= weight;
        }
    }
    (weights, known_to)
}

/// Counters by position whose sums over a prefix take logarithmic time (Fenwick, 1994).
#[derive(Debug)]
struct Fenwick(Vec<i64>);

impl Fenwick {
    fn new(len: usize) -> Self {
        Self(vec![0; len + 1])
    }

    fn len(&self) -> usize {
        self.0.len() - 1
    }

    fn add(&mut self, at: usize, by: i64) {
        let mut node = at + 1;
        while node < self.0.len() {
            self.0[node] += by;
            node += node & node.wrapping_neg();
        }
    }

    /// Returns the sum of the counters up to and including `at`.
    fn sum_to(&self, at: usize) -> u64 {
        let (mut node, mut sum) = (at + 1, 0);
        while node > 0 {
            sum += self.0[node];
            node &= node - 1;
        }
        u64::try_from(sum).unwrap_or(0)
    }
}

/// The number of points of a curve from requests.
const CURVE_STEPS: usize = 64;

/// The fewest reuses from which a curve is drawn.
const DISTANCES_MIN: usize = 100;

/// The fewest misses of longer distances up to which a curve is continued.
const MISSES_MIN: usize = 100;

/// The standard deviations on each side of a 95 % interval.
const SIGMAS: f64 = 1.96;

/// The number of points of a curve from ages.
const AGE_STEPS: usize = 20;

/// The fewest ages from which a curve is drawn.
const AGES_MIN: usize = 200;

/// The factor by which the upper end of a gain is raised if the curve comes from ages. memcached does not renew an
/// item's time at each access, so its ages are known less well than distances.
const SLACK_OF_AGES: f64 = 2.0;

const SLOTS_MIN: usize = 1_024;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::hash::{DefaultHasher, Hash, Hasher};

    use units::Prng;

    use super::super::log::RequestLog;
    use super::*;

    fn hash(key: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        hasher.finish()
    }

    /// Draws keys whose popularity falls with their number, as 1 / number.
    fn requests(count: usize, keys: u64, seed: u64) -> Vec<u64> {
        let mut random = Prng::new(seed);
        (0..count).map(|_| (keys as f64).powf(random.unit()) as u64).collect()
    }

    /// Returns the exact distance of each reuse by searching a list of the keys in the order of their last access.
    fn exact_distances(requests: &[u64]) -> Vec<Option<usize>> {
        let mut stack: Vec<u64> = Vec::new();
        let mut distances = Vec::new();
        for key in requests {
            let place = stack.iter().rev().position(|held| held == key);
            if let Some(place) = place {
                stack.remove(stack.len() - 1 - place);
            }
            stack.push(*key);
            distances.push(place.map(|place| place + 1));
        }
        distances
    }

    fn shards(requests: &[u64], rate: f64) -> Shards {
        let mut shards = Shards::new(rate);
        shards.begin();
        for key in requests {
            if RequestLog::new(rate).follows(hash(*key)) {
                shards.hit(hash(*key), 0, 1);
            }
        }
        shards
    }

    #[test]
    fn every_distance_is_that_of_an_exact_list() {
        let requests = requests(20_000, 3_000, 1);
        let expected: Vec<u64> = exact_distances(&requests)
            .into_iter()
            .flatten()
            .map(|distance| distance as u64)
            .collect();
        let found: Vec<u64> =
            shards(&requests, 1.0).reuses.iter().map(|reuse| reuse.distance).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_tenth_of_the_keys_gives_the_same_curve() {
        let requests = requests(60_000, 5_000, 2);
        let exact = exact_distances(&requests);
        let hits = exact.iter().flatten().count();
        let hit_ratio = hits as f64 / requests.len() as f64;
        let curve = shards(&requests, 0.1).curve(None, hits as u64, hit_ratio, 1.0).unwrap();
        for items in [500, 1_000, 2_000, 4_000] {
            let found = exact.iter().flatten().filter(|distance| **distance <= items).count();
            let expected = 1.0 - found as f64 / requests.len() as f64;
            let error = curve.miss_ratio(items as f64) - expected;
            assert!(error.abs() < 0.03, "{items} items: {error}");
        }
    }

    #[test]
    fn a_filled_cache_gives_distances_at_once() {
        let mut shards = Shards::new(1.0);
        (0..10).for_each(|key| shards.touch(key, 1));
        shards.begin();
        shards.hit(9, 0, 1);
        shards.hit(0, 0, 1);
        shards.hit(77, 0, 1);
        shards.hit(0, 0, 1);
        let reuse = |distance, longer_than| Reuse { class: 0, distance, longer_than };
        assert_eq!(shards.reuses, [reuse(1, Some(0)), reuse(10, Some(1)), reuse(2, None)]);
    }

    #[test]
    fn a_wrong_order_at_the_start_hardly_matters() {
        // An LRU cache for 2,000 items, whose list does not tell the order of their use.
        let (requests, items) = (requests(60_000, 8_000, 5), 2_000);
        let exact = exact_distances(&requests);
        let (before, stream) = requests.split_at(40_000);
        let mut held = Vec::new();
        for key in before.iter().rev() {
            if held.len() < items && !held.contains(key) {
                held.push(*key);
            }
        }
        held.sort_unstable_by_key(|key| hash(*key));
        let mut shards = Shards::new(1.0);
        held.iter().for_each(|key| shards.touch(hash(*key), 1));
        shards.begin();
        let mut hits = 0;
        for (key, distance) in stream.iter().zip(&exact[40_000..]) {
            if distance.is_some_and(|distance| distance <= items) {
                hits += 1;
                shards.hit(hash(*key), 0, 1);
            } else {
                shards.touch(hash(*key), 1);
            }
        }
        let hit_ratio = f64::from(hits) / stream.len() as f64;
        let curve = shards.curve(None, hits as u64, hit_ratio, 1.0).unwrap();
        for held in [250, 500, 1_000, 1_500] {
            let is_hit = |distance: &&usize| **distance <= held;
            let found = exact[40_000..].iter().flatten().filter(is_hit).count();
            let expected = 1.0 - found as f64 / stream.len() as f64;
            let error = curve.miss_ratio(held as f64) - expected;
            assert!(error.abs() < 0.01, "{held} items: {error}");
        }
    }

    #[test]
    fn reuses_that_are_only_longer_count_for_the_longer_ones() {
        let reuse = |distance, longer_than| Reuse { class: 0, distance, longer_than };
        let reuses = vec![reuse(1, None), reuse(9, Some(2)), reuse(3, None), reuse(7, Some(6))];
        // The second one is longer than 2, and so one of the last two, as far as is known.
        assert_eq!(weighted(reuses.clone(), 4), [(1, 0.25), (3, 0.375), (7, 0.375)]);
        let each = 0.25;
        let alone = [(1, each), (3, each), (7, each), (9, each)];
        assert_eq!(weighted(reuses, 10), alone);
    }

    #[test]
    fn evicted_keys_that_are_requested_again_tell_of_a_larger_cache() {
        let (requests, items) = (requests(100_000, 5_000, 7), 500);
        let exact = exact_distances(&requests);
        let is_hit = |distance: &Option<usize>| distance.is_some_and(|distance| distance <= items);
        let mut shards = Shards::new(1.0);
        let (before, stream) = requests.split_at(50_000);
        let mut held: Vec<u64> = Vec::new();
        for key in before.iter().rev() {
            if held.len() < items && !held.contains(key) {
                held.push(*key);
            }
        }
        held.iter().rev().for_each(|key| shards.touch(hash(*key), 1));
        shards.begin();
        let mut hits = 0;
        for (key, distance) in stream.iter().zip(&exact[50_000..]) {
            if is_hit(distance) {
                hits += 1;
                shards.hit(hash(*key), 0, 1);
            } else {
                shards.miss(hash(*key), 0);
                shards.touch(hash(*key), 1);
            }
        }
        let hit_ratio = f64::from(hits) / stream.len() as f64;
        let curve = shards.curve(None, hits as u64, hit_ratio, 1.0).unwrap();
        let found = |items: usize| {
            let longer = exact[50_000..].iter().flatten().filter(|held| **held <= items).count();
            longer as f64 / stream.len() as f64
        };
        for ratio in [1.5, 2.0, 3.0, 5.0] {
            let gain = curve.gain(items as f64, Interval::exact(ratio));
            let expected = found((ratio * items as f64) as usize) - found(items);
            assert!((gain.value - expected).abs() < 0.005, "{ratio}: {gain:?} {expected}");
            assert!(gain.low <= expected && expected <= gain.high, "{ratio}: {gain:?} {expected}");
            assert!(gain.high - gain.low < 0.05, "{ratio}: {gain:?}");
        }
    }

    fn curve(items: f64, miss: impl Fn(f64) -> f64) -> Curve {
        let point = |step: i32| {
            let held = items * f64::from(step) / 64.0;
            CurvePoint { bytes: held, miss_ratio: miss(held) }
        };
        let points = (0..=64).map(point).collect();
        let (origin, server_miss_ratio) = (CurveOrigin::Requests, miss(items));
        Curve { points, origin, server_miss_ratio, rebate_over_server: 1.0, reuses_beyond: 0 }
    }

    /// Compares the gain of three times 10,000 items with that of the curve.
    fn assert_gain(miss: impl Fn(f64) -> f64) {
        let gain = curve(1e4, &miss).gain(1e4, Interval::exact(3.0));
        let expected = miss(1e4) - miss(3e4);
        assert!((gain.value - expected).abs() < 0.01, "{gain:?} {expected}");
        assert!(gain.low <= expected && expected <= gain.high, "{gain:?} {expected}");
    }

    #[test]
    fn a_power_law_of_hits_is_continued() {
        for exponent in [0.1, 0.2, 0.4] {
            assert_gain(|held| 1.0 - (held / 2e5).powf(exponent));
        }
    }

    #[test]
    fn a_power_law_of_misses_is_met_closely() {
        for exponent in [0.1, 0.3, 0.7] {
            assert_gain(|held| (1.0 + held).powf(-exponent));
        }
    }

    #[test]
    fn what_nobody_has_seen_may_still_give_hits() {
        let gain = curve(1e3, |held| 1.0 - (held / 2e5).powf(0.2)).gain(1e4, Interval::exact(3.0));
        assert!(gain.low == 0.0 && gain.high > 0.05, "{gain:?}");
    }

    #[test]
    fn less_room_costs_hits() {
        let gain = curve(1e4, |held| (1.0 + held).powf(-0.3)).gain(1e4, Interval::exact(0.5));
        assert!(gain.value < 0.0 && gain.high < 0.0, "{gain:?}");
    }

    #[test]
    fn ages_give_the_curve_of_their_requests() {
        // An LRU cache for 2,000 items under requests at 1,000 a second.
        let requests = requests(60_000, 20_000, 3);
        let exact = exact_distances(&requests);
        let items = 2_000;
        let mut last = HashMap::new();
        requests.iter().enumerate().for_each(|(at, key)| {
            last.insert(*key, at);
        });
        let age = |at: &usize| (requests.len() - at) as f64 / 1_000.0;
        let mut ages: Vec<f64> = last.values().map(age).collect();
        ages.sort_by(f64::total_cmp);
        ages.truncate(items);
        let miss = |items: usize| {
            let hits = exact.iter().flatten().filter(|distance| **distance <= items).count();
            1.0 - hits as f64 / requests.len() as f64
        };
        let curve =
            Curve::from_ages(ages, items as f64, items as f64, 1_000.0, miss(items)).unwrap();
        for share in [500, 1_000, 1_500] {
            let error = curve.miss_ratio(share as f64) - miss(share);
            assert!(error.abs() < 0.1, "{share} items: {error}");
        }
    }

    #[test]
    fn too_few_reuses_give_no_curve() {
        assert_eq!(shards(&[1, 2, 1], 1.0).curve(None, 1, 0.5, 1.0), None);
        assert_eq!(Curve::from_ages(vec![1.0; 10], 10.0, 10.0, 1.0, 0.5), None);
        assert_eq!(Curve::from_ages(vec![1.0; 1_000], 1e6, 1e6, 1.0, 0.5), None);
    }
}
