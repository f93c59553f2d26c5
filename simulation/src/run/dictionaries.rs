//! Dictionaries as a trainer makes them. They are trained once, because a training takes longer than a run.

use std::sync::{Arc, LazyLock};

use device::Dictionary;
use units::Prng;

use crate::scenario::DICTIONARIES;

/// Returns one of the dictionaries. Its training is the same each time.
pub(super) fn trained(index: usize) -> Arc<Dictionary> {
    static TRAINED: LazyLock<Vec<Arc<Dictionary>>> =
        LazyLock::new(|| (0..DICTIONARIES as u64).map(train).collect());
    Arc::clone(&TRAINED[index])
}

fn train(seed: u64) -> Arc<Dictionary> {
    let random = &mut Prng::new(seed);
    let sample = |number: u64| {
        let words = "a cache that compresses its values ".repeat(1 + random.below(9) as usize);
        format!("value {number} of client {} {words}{}", random.below(5), random.below(1_000))
    };
    let samples: Vec<String> = (0..SAMPLES).map(sample).collect();
    let samples: Vec<&[u8]> = samples.iter().map(|sample| sample.as_bytes()).collect();
    let dictionary = Dictionary::train(&samples, BYTES_MAX);
    Arc::new(dictionary.expect("the samples have much in common"))
}

const SAMPLES: u64 = 400;
const BYTES_MAX: usize = 1_024;
