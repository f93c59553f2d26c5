//! Finds the miss-ratio curves of a cache from the requests that were watched, or from the ages of its items. A curve
//! runs over the memory that the items take in Rebate, so it depends on the stored form.

use super::curve::{Curve, Shards};
use super::eviction;
use super::listing::RequestKind;
use super::log::RequestLog;
use super::sizes::Sizes;
use super::watch::{Requests, Watched};

/// What was seen of a server's requests and items.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) log: RequestLog,
    /// The requests by class, if the server allowed to watch them.
    pub(super) watched: Option<Watched>,
    /// The time since the last access of a random sample of the items.
    pub(super) ages_s: Vec<f64>,
    pub(super) requests_per_s: f64,
    /// The share of gets that found something.
    pub(super) hit_ratio: f64,
    /// The number of items that the server holds.
    pub(super) items: f64,
    /// The share of them that was listed.
    pub(super) coverage: f64,
}

/// The curve of all requests, and those of the classes.
#[derive(Clone, Debug, Default)]
pub(super) struct Curves {
    pub(super) total: Option<Curve>,
    pub(super) classes: Vec<Option<Curve>>,
}

impl Observed {
    /// Computes the curves of a cache whose items take `held_bytes` in Rebate.
    pub(super) fn curves(&self, classes: usize, sizes: &Sizes, held_bytes: f64) -> Curves {
        let Some(watched) = &self.watched else {
            return Curves { total: self.curve_of_ages(held_bytes), classes: vec![None; classes] };
        };
        let shards = self.shards(sizes);
        let curve = |class: Option<usize>, counts: Requests| {
            let hit_ratio = counts.hits as f64 / counts.gets.max(1) as f64;
            shards.curve(class, counts.hits, hit_ratio, self.coverage)
        };
        let Some(total) = curve(None, watched.total()) else {
            return Curves { total: self.curve_of_ages(held_bytes), classes: vec![None; classes] };
        };
        let rebate_over_server = self.rebate_over_server(&total, sizes, held_bytes);
        let class_curve = |at: usize| {
            let found = curve(Some(at), *watched.classes.get(at)?);
            found.map(|curve| Curve { rebate_over_server, ..curve })
        };
        Curves {
            classes: (0..classes).map(class_curve).collect(),
            total: Some(Curve { rebate_over_server, ..total }),
        }
    }

    /// Puts the items into a stack in the order of their last access, and the requests after them.
    fn shards(&self, sizes: &Sizes) -> Shards {
        let mut shards = Shards::new(self.log.share());
        let bytes = |class: u16, item_bytes| {
            (sizes.rebate_bytes(class.into(), item_bytes).round() as u32).max(1)
        };
        for item in &self.log.filled {
            shards.touch(item.hash, bytes(item.class, item.item_bytes));
        }
        shards.begin();
        for request in &self.log.requests {
            let (hash, class) = (request.hash, request.class.into());
            let bytes = bytes(request.class, request.item_bytes);
            match request.kind {
                RequestKind::Hit => shards.hit(hash, class, bytes),
                RequestKind::Miss => shards.miss(hash, class),
                RequestKind::Set => shards.touch(hash, bytes),
            }
        }
        shards
    }

    /// Returns the misses of Rebate's store over those of the server, on the same requests and with as much memory as
    /// the server's items take in Rebate, or 1 if too few requests were seen. The curve tells what the bytes count that
    /// the store held more or less than that.
    fn rebate_over_server(&self, curve: &Curve, sizes: &Sizes, held_bytes: f64) -> f64 {
        let Some(misses) = eviction::misses(&self.log, sizes) else { return 1.0 };
        let here = curve.miss_ratio(held_bytes);
        let there = curve.miss_ratio(held_bytes * misses.bytes_ratio);
        let by_bytes = if here > 0.0 && there > 0.0 { here / there } else { 1.0 };
        misses.of_rebate as f64 / misses.of_server as f64 * by_bytes
    }

    fn curve_of_ages(&self, held_bytes: f64) -> Option<Curve> {
        let ages_s = self.ages_s.clone();
        Curve::from_ages(ages_s, self.items, held_bytes, self.requests_per_s, 1.0 - self.hit_ratio)
    }
}
