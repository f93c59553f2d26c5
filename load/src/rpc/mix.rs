//! The workloads of \[Arcalis\] table V by their names: their calls, the shares of the calls, and the number of keys.
//! The paper does not state the sizes of three `memc_` workloads and of posts, or the Zipf exponent; these are fields
//! here.

use rpc::Functions;
use rpc::services::memcached::Memcached;
use rpc::services::post_storage::PostStorageService;
use rpc::services::unique_id::UniqueIdService;

/// The calls of a workload, and the keys that they use.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// The paper's name for the workload, or the name of the workload from which this one was derived.
    pub name: &'static str,
    /// The calls and their shares.
    pub calls: Calls,
    /// The number of keys or posts, at least one. The number and `first_key` add up to at most 2^32.
    pub keys: u64,
    /// The number of the first key.
    pub first_key: u64,
    /// The Zipf exponent of the keys' popularity. With 0 all keys are equally popular.
    pub zipf_alpha: f64,
}

/// The calls of a service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Calls {
    /// The calls `Set` and `Get`.
    Memcached {
        /// The share of sets, 0 to 1.
        set_ratio: f64,
        /// The length of each key, 8 to 250 (bytes).
        key_bytes: usize,
        /// The length of each value, up to 1 MB (bytes).
        value_bytes: usize,
    },
    /// The calls `StorePost`, `ReadPost`, and `ReadPosts` for the remaining share.
    PostStorage {
        /// The share of `StorePost`, 0 to 1.
        store_ratio: f64,
        /// The share of `ReadPost`. It and `store_ratio` add up to at most 1.
        read_ratio: f64,
    },
    /// The call `ComposeUniqueId`.
    UniqueId,
}

/// The names of the workloads, in the order of the table.
pub const MIXES: [&str; 9] = [
    "memc_low",
    "memc_mid",
    "memc_high",
    "memc_tiny",
    "memc_small",
    "post_low",
    "post_mid",
    "post_high",
    "unique_id",
];

impl Mix {
    /// Returns the workload with this name.
    pub fn named(name: &str) -> Option<Self> {
        let memcached = |set_ratio, key_bytes, value_bytes| Calls::Memcached {
            set_ratio,
            key_bytes,
            value_bytes,
        };
        let posts = |store_ratio, read_ratio| Calls::PostStorage { store_ratio, read_ratio };
        let name = *MIXES.iter().find(|known| **known == name)?;
        let calls = match name {
            "memc_low" => memcached(0.2, 16, 32),
            "memc_high" => memcached(0.8, 16, 32),
            "memc_tiny" => memcached(0.5, 8, 8),
            "post_low" => posts(0.1, 0.5),
            "post_mid" => posts(1.0 / 3.0, 1.0 / 3.0),
            "post_high" => posts(0.9, 0.05),
            "unique_id" => Calls::UniqueId,
            // The paper runs memc_tiny and memc_small with 50 % and with 5 % sets. Here they have 50 %, which makes
            // memc_small equal to memc_mid. The variant with 5 % needs a set ratio of 0.05.
            _ => memcached(0.5, 16, 32),
        };
        Some(Self { name, calls, keys: 10_000, first_key: 0, zipf_alpha: 0.99 })
    }

    /// Checks that every field is in its range.
    ///
    /// # Errors
    /// The text says which value is wrong and which values are valid.
    pub fn check(&self) -> Result<(), String> {
        let last = self.first_key.checked_add(self.keys);
        if self.keys == 0 || last.is_none_or(|last| last > KEYS_MAX) {
            return Err(format!("{} keys; give 1 to 2^32", self.keys));
        }
        if !(self.zipf_alpha.is_finite() && self.zipf_alpha >= 0.0) {
            return Err(format!("a Zipf exponent of {}; give 0 or more", self.zipf_alpha));
        }
        match self.calls {
            Calls::Memcached { set_ratio, key_bytes, value_bytes } => {
                if !(0.0..=1.0).contains(&set_ratio) {
                    return Err(format!("a set ratio of {set_ratio}; give 0 to 1"));
                }
                if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key_bytes) {
                    let range = format!("give {KEY_BYTES_MIN} to {KEY_BYTES_MAX}");
                    return Err(format!("keys of {key_bytes} bytes; {range}"));
                }
                if value_bytes > VALUE_BYTES_MAX {
                    let most = format!("{VALUE_BYTES_MAX} at most");
                    return Err(format!("values of {value_bytes} bytes; {most}"));
                }
            }
            Calls::PostStorage { store_ratio, read_ratio } => {
                let valid = 0.0..=1.0;
                let sum = store_ratio + read_ratio;
                if ![store_ratio, read_ratio, sum].iter().all(|share| valid.contains(share)) {
                    return Err(format!("shares of {store_ratio} and {read_ratio}; give 0 to 1"));
                }
            }
            Calls::UniqueId => {}
        }
        Ok(())
    }

    /// Returns the service's name in [`rpc::services::IDL`].
    pub const fn service(&self) -> &'static str {
        match self.calls {
            Calls::Memcached { .. } => "memcached",
            Calls::PostStorage { .. } => "post_storage",
            Calls::UniqueId => "unique_id",
        }
    }

    pub(super) const fn functions(&self) -> &'static dyn Functions {
        match self.calls {
            Calls::Memcached { .. } => &Memcached,
            Calls::PostStorage { .. } => &PostStorageService,
            Calls::UniqueId => &UniqueIdService,
        }
    }
}

/// The least length of a key, in bytes. Eight hexadecimal digits name 2^32 keys.
const KEY_BYTES_MIN: usize = 8;
const KEYS_MAX: u64 = 1 << 32;
const KEY_BYTES_MAX: usize = units::limits::KEY_BYTES_MAX;
const VALUE_BYTES_MAX: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_valid_mix() {
        for name in MIXES {
            let mix = Mix::named(name).expect("known");
            assert_eq!((mix.name, mix.check()), (name, Ok(())));
            assert!(rpc::services::IDL.iter().any(|(idl, _)| *idl == mix.service()));
        }
        assert_eq!(Mix::named("memc"), None);
        let mid = Mix::named("memc_mid").expect("known");
        for (mix, words) in [
            (Mix { keys: 0, ..mid.clone() }, "1 to 2^32"),
            (Mix { first_key: 1 << 32, ..mid.clone() }, "1 to 2^32"),
            (Mix { zipf_alpha: f64::NAN, ..mid.clone() }, "0 or more"),
            (
                Mix { calls: Calls::PostStorage { store_ratio: 0.9, read_ratio: 0.2 }, ..mid },
                "0 to 1",
            ),
        ] {
            assert!(mix.check().expect_err("refused").contains(words), "{mix:?}");
        }
    }
}
