//! Describes a load as plain data, which is checked before anything starts.

use std::path::PathBuf;

use serde::Serialize;
use units::{ByteCount, Nanos};
use workload::{ArrivalKind, PayloadClass, Preset, SizeDist, Weighting};

use crate::Address;

/// One run of the load generator.
#[derive(Clone, Debug, Serialize)]
pub struct LoadSpec {
    /// The servers, which must be equivalent. Connections are distributed among them in turn.
    pub targets: Vec<Address>,
    /// The number of all connections.
    pub connections: usize,
    /// The number of generator threads. Each has its share of connections and rate.
    pub threads: usize,
    /// The rule for when a request is sent.
    pub pace: Pace,
    /// The length of the measurement, after the warm-up (ns).
    pub duration: Nanos,
    /// The length of the load before the measurement (ns).
    pub warmup: Nanos,
    /// The fraction of requests that are gets; the others are sets.
    pub get_share: f64,
    /// The number of keys.
    pub keys: u64,
    /// The sizes of key names.
    pub key_bytes: SizeDist,
    /// The Zipf exponent of the keys' popularity. With 0 all keys are equally popular.
    pub zipf_alpha: f64,
    /// The sizes of values. Each key keeps its size.
    pub value_bytes: SizeDist,
    /// The weight of `value_bytes`: calls or bytes.
    pub weighting: Weighting,
    /// The greatest size of a value. Larger values are cut to this size, so that they fit the server's item limit.
    pub value_bytes_max: ByteCount,
    /// The content of the values.
    pub payload: Payload,
    /// The name of the preset from which the fields above come, for the report.
    pub preset: Option<String>,
    /// The most requests in flight on one connection of an open loop.
    pub pipeline_max: usize,
    /// The most requests of an open loop that wait for a connection with capacity. Further requests are dropped and
    /// counted.
    pub backlog_max: usize,
    /// True if every get that misses is followed by a set of the key, as a read-through client does.
    pub set_on_miss: bool,
    /// True if every key is set once before the load.
    pub prepopulate: bool,
    /// The number of different values that are written to a key in turn. With 1 every set writes the same bytes.
    pub versions: u32,
    /// True if every value that is read is compared with the written value.
    pub verify: bool,
    /// The expiry that is sent with sets (s). With 0 items never expire.
    pub exptime_s: i32,
    /// The longest time of a request (ns). On memcached, a connection is closed and opened again if its oldest request
    /// waits longer. On gRPC, the call is cancelled. At the end of a run the generator waits this long for answers.
    pub request_timeout: Nanos,
    /// The seed of keys, values and draws. The same seed gives the same keys and bytes.
    pub seed: u64,
}

/// The rule for when a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// Requests are due at this rate, even if the server is slow. Latency counts from the due time.
    Open {
        /// The offered requests per second.
        rate_per_s: f64,
        /// The distribution of the gaps between requests.
        arrivals: ArrivalKind,
    },
    /// Requests are sent as fast as answers come. Use it to measure throughput. The measured latency does not
    /// apply to an open loop.
    Closed {
        /// The number of requests in flight on each connection.
        depth: usize,
    },
}

/// The source of the bytes of values.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Payload {
    /// Synthetic bytes of a class.
    Class(PayloadClass),
    /// Slices of the files in a directory.
    Corpus(PathBuf),
}

/// An error for a field of a [`LoadSpec`] with an invalid value. The caller must fix the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; valid is {valid}")]
pub struct BadSpec {
    /// The field's name.
    pub field: &'static str,
    /// The invalid value.
    pub value: String,
    /// The valid values.
    pub valid: &'static str,
}

impl LoadSpec {
    /// Describes a modest load on `targets`: 1,000 requests per second for 10 s, with nine gets for each set and values
    /// of 4 KiB of HTML.
    pub fn new(targets: Vec<Address>) -> Self {
        Self {
            targets,
            connections: 16,
            threads: 1,
            pace: Pace::Open { rate_per_s: 1_000.0, arrivals: ArrivalKind::Poisson },
            duration: Nanos::secs(10),
            warmup: Nanos::secs(1),
            get_share: 0.9,
            keys: 10_000,
            key_bytes: SizeDist::Fixed { bytes: 32 },
            zipf_alpha: 0.99,
            value_bytes: SizeDist::Fixed { bytes: 4_096 },
            weighting: Weighting::Calls,
            value_bytes_max: VALUE_BYTES_MAX_DEFAULT,
            payload: Payload::Class(PayloadClass::Html),
            preset: None,
            pipeline_max: 32,
            backlog_max: 100_000,
            set_on_miss: false,
            prepopulate: true,
            versions: u32::MAX,
            verify: true,
            exptime_s: 0,
            request_timeout: Nanos::secs(5),
            seed: 1,
        }
    }

    /// Sets sizes, popularity, mix and payload to those of `preset`.
    pub fn apply(&mut self, preset: &Preset) {
        self.value_bytes = preset.value_bytes.value.clone();
        self.key_bytes = preset.key_bytes.value.clone();
        self.zipf_alpha = preset.zipf_alpha.value;
        self.get_share = preset.get_share.value;
        self.payload = Payload::Class(preset.payload.value);
        self.preset = Some(preset.name.clone());
    }

    /// Checks every number against its range. Size distributions are checked where they are prepared.
    pub fn check(&self) -> Result<(), BadSpec> {
        let whole = |field, value: u64, low, high, valid| {
            in_range(field, value as f64, low as f64, high as f64, valid)
        };
        whole("targets", self.targets.len() as u64, 1, 1_000, "1 to 1000 addresses")?;
        let protocols = self.targets.iter().map(|target| target.protocol);
        if !protocols.clone().all(|protocol| Some(protocol) == protocols.clone().next()) {
            let value = "of both protocols".to_owned();
            return Err(BadSpec { field: "targets", value, valid: "all grpc:// or none" });
        }
        whole("connections", self.connections as u64, 1, 60_000, "1 to 60000")?;
        whole("threads", self.threads as u64, 1, 256, "1 to 256")?;
        in_range("get_share", self.get_share, 0.0, 1.0, "0 to 1")?;
        whole("keys", self.keys, 1, 1 << 40, "1 to 2^40")?;
        in_range("zipf_alpha", self.zipf_alpha, 0.0, 10.0, "0 to 10")?;
        whole("versions", u64::from(self.versions), 1, u64::from(u32::MAX), "1 to 4294967295")?;
        whole("pipeline_max", self.pipeline_max as u64, 1, 10_000, "1 to 10000")?;
        whole("backlog_max", self.backlog_max as u64, 1, 10_000_000, "1 to 10000000")?;
        let (hour, day) = (Nanos::secs(3_600).0, Nanos::secs(86_400).0);
        whole("duration", self.duration.0, 1_000_000, day, "1 ms to 24 h, in ns")?;
        whole("warmup", self.warmup.0, 0, hour, "0 to 1 h, in ns")?;
        whole("request_timeout", self.request_timeout.0, 1_000_000, hour, "1 ms to 1 h, in ns")?;
        let highest = units::limits::ITEM_BYTES_MAX_HIGHEST.0;
        whole("value_bytes_max", self.value_bytes_max.0, 0, highest, "0 to 1 GiB")?;
        match self.pace {
            Pace::Open { rate_per_s, .. } => {
                in_range("rate_per_s", rate_per_s, 1e-3, 1e8, "0.001 to 100000000")
            }
            Pace::Closed { depth } => whole("depth", depth as u64, 1, 10_000, "1 to 10000"),
        }
    }

    /// Returns the offered rate of an open loop (1/s).
    pub fn rate_per_s(&self) -> Option<f64> {
        match self.pace {
            Pace::Open { rate_per_s, .. } => Some(rate_per_s),
            Pace::Closed { .. } => None,
        }
    }
}

fn in_range(
    field: &'static str,
    value: f64,
    low: f64,
    high: f64,
    valid: &'static str,
) -> Result<(), BadSpec> {
    // A NaN is outside every range, so it is refused.
    let fits = (low..=high).contains(&value);
    if fits { Ok(()) } else { Err(BadSpec { field, value: value.to_string(), valid }) }
}

/// The default of `value_bytes_max`. A value of this size fits into memcached's default item limit with any key, the
/// item header and the frame.
const VALUE_BYTES_MAX_DEFAULT: ByteCount = ByteCount(1_000_000);

const _: () = assert!(
    VALUE_BYTES_MAX_DEFAULT.0
        + (units::limits::KEY_BYTES_MAX
            + units::limits::ITEM_OVERHEAD_BYTES
            + units::limits::FRAME_HEADER_BYTES_MAX) as u64
        <= units::limits::ITEM_BYTES_MAX_DEFAULT.0
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused_by_name() {
        let spec = LoadSpec::new(vec!["127.0.0.1:1".parse().expect("an address")]);
        assert_eq!(spec.check(), Ok(()));
        let open = |rate_per_s| Pace::Open { rate_per_s, arrivals: ArrivalKind::Poisson };
        let mixed = ["127.0.0.1:1", "grpc://127.0.0.1:1"];
        let mixed = mixed.map(|text| text.parse().expect("an address")).to_vec();
        let bad = [
            (LoadSpec { connections: 0, ..spec.clone() }, "connections is 0"),
            (LoadSpec { targets: vec![], ..spec.clone() }, "targets is 0"),
            (LoadSpec { targets: mixed, ..spec.clone() }, "targets is of both protocols"),
            (LoadSpec { get_share: f64::NAN, ..spec.clone() }, "get_share is NaN"),
            (LoadSpec { pace: open(-3.0), ..spec.clone() }, "rate_per_s is -3"),
            (LoadSpec { pace: Pace::Closed { depth: 0 }, ..spec.clone() }, "depth is 0"),
            (LoadSpec { keys: 0, ..spec }, "keys is 0"),
        ];
        for (spec, expected) in bad {
            let error = spec.check().expect_err(expected).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_preset_sets_what_it_publishes() {
        let mut spec = LoadSpec::new(vec!["127.0.0.1:1".parse().expect("an address")]);
        spec.apply(&Preset::find("twitter-c12").expect("compiled in"));
        assert_eq!((spec.get_share, spec.zipf_alpha), (0.2, 0.3048));
        assert_eq!(spec.preset.as_deref(), Some("twitter-c12"));
    }
}
