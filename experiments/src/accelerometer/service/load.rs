//! The load, which is made before the measurement. For each key there is a get and a set, in the bytes that a socket
//! would deliver. Between two requests the load only draws the next one.

use bytes::Bytes;
use units::Prng;
use workload::{BadSizes, PayloadClass, SizeDist, Sizes, Values, Weighting};

use crate::accelerometer::service::request::{COMPRESSED, ENCRYPTED, Request};

/// The requests of a load.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    /// The number of keys. All keys are requested equally often.
    pub(crate) keys: usize,
    /// The sizes of values.
    pub(crate) sizes: SizeDist,
    /// The kind of data of the values.
    pub(crate) payload: PayloadClass,
    /// The fraction of gets. The other requests are sets.
    pub(crate) gets: f64,
    /// The fraction of keys whose values are compressed.
    pub(crate) compressed: f64,
    /// The fraction of keys whose values are encrypted.
    pub(crate) encrypted: f64,
}

/// Every request that can be drawn.
pub(crate) struct Load {
    items: Vec<Item>,
    gets: f64,
}

/// One key's requests.
struct Item {
    get: Request,
    set: Request,
}

impl Load {
    /// Makes a load. The same mix gives the same load.
    ///
    /// # Errors
    /// The sizes cannot be drawn.
    pub(crate) fn new(mix: &Mix) -> Result<Self, BadSizes> {
        let sizes = Sizes::new(&mix.sizes, Weighting::Calls)?;
        let length_max = mix.sizes.max_bytes() as usize;
        let values = Values::synthetic(mix.payload, sizes, length_max, SEED);
        // Two irrational steps spread the shares evenly and independently of each other.
        let share = |index: usize, step: f64| (index as f64 * step).fract();
        let item = |index: usize| {
            let compressed = u32::from(share(index, GOLDEN) < mix.compressed) * COMPRESSED;
            let encrypted = u32::from(share(index, SILVER) < mix.encrypted) * ENCRYPTED;
            Item::new(index, compressed | encrypted, &values)
        };
        Ok(Self { items: (0..mix.keys).map(item).collect(), gets: mix.gets })
    }

    /// Draws a request.
    pub(crate) fn draw(&self, random: &mut Prng) -> &Request {
        let item = &self.items[random.below(self.items.len() as u64) as usize];
        if random.unit() < self.gets { &item.get } else { &item.set }
    }

    /// Returns all requests that can be drawn, each at its index.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.items.iter().flat_map(|item| [&item.get, &item.set])
    }

    /// Returns one set for each key.
    pub(crate) fn sets(&self) -> impl Iterator<Item = &Request> {
        self.items.iter().map(|item| &item.set)
    }
}

impl Item {
    fn new(index: usize, flags: u32, values: &Values) -> Self {
        let key = format!("service:item:{index:08}");
        let mut set = Vec::new();
        let length = values.length(index as u64);
        set.extend_from_slice(format!("set {key} {flags} 0 {length}\r\n").as_bytes());
        let start = set.len();
        values.append_to(index as u64, 1, &mut set);
        let end = set.len();
        set.extend_from_slice(b"\r\n");
        let set = Bytes::from(set);
        let value = set.slice(start..end);
        let get = Bytes::from(format!("get {key}\r\n"));
        let key = get.slice(4..4 + key.len());
        let request = |bytes, is_get| Request {
            bytes,
            key: key.clone(),
            value: value.clone(),
            flags,
            is_get,
            index: 2 * index + usize::from(!is_get),
        };
        Self { get: request(get.clone(), true), set: request(set, false) }
    }
}

const SEED: u64 = 11;
const GOLDEN: f64 = 0.618_033_988_75;
const SILVER: f64 = 0.414_213_562_37;
