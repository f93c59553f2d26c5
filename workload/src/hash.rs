//! A keyed hash of small integers. The sizes, names and offsets of a key are computed from the hash instead
//! of being stored. The hash is not safe against an adversary who chooses the keys of a hash table.

/// Returns 64 well mixed bits of `id` under `seed`: two rounds of an odd-multiplier xor-shift finaliser.
pub(crate) fn mix(seed: u64, id: u64) -> u64 {
    finalise(finalise(seed ^ GOLDEN).wrapping_add(id.wrapping_mul(GOLDEN)))
}

/// Returns the hash as a number in `[0, 1)`.
pub(crate) fn unit(hash: u64) -> f64 {
    (hash >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Returns the hash reduced to `0..bound`. `bound` must not be zero.
pub(crate) fn below(hash: u64, bound: u64) -> u64 {
    ((u128::from(hash) * u128::from(bound)) >> 64) as u64
}

fn finalise(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// 2^64 divided by the golden ratio, which spreads consecutive ids far apart.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_ids_spread_evenly() {
        let mut counts = [0u32; 16];
        for id in 0..16_000 {
            counts[below(mix(1, id), 16) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
