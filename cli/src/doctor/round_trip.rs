//! Makes a round trip of every kind of job that a device does, for a report. A server makes the same round trip when it
//! starts (`runtime::qualification`). This one has a longer time limit and uses a value like those in a cache.

use std::time::Duration;

use bytes::Bytes;
use device::{Device, Software};
use runtime::qualification::{self, CodecTrip, Problem};
use serde::Serialize;
use units::ByteCount;

use super::finding::{Finding, Severity};
use super::mending::mend;
use crate::devices::sample;

/// The results of a device's round trip.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RoundTrip {
    pub(super) device: String,
    /// The size of the input (bytes).
    pub(super) bytes: usize,
    pub(super) codecs: Vec<CodecTrip>,
    /// The kernels whose results were right.
    pub(super) kernels: Vec<&'static str>,
    /// The device's counters that rose during the round trip. They show which path ran inside the device.
    pub(super) counted: Vec<(&'static str, u64)>,
}

/// Makes the round trip and returns the finding, with the trip if it succeeded. `severity` is the severity of a
/// failure.
///
/// # Errors
/// The value for the test cannot be generated.
pub(super) fn finding(
    device: &dyn Device,
    severity: Severity,
) -> Result<(Finding, Option<RoundTrip>), String> {
    let (name, sample) = (device.name(), Bytes::from(sample(SAMPLE_BYTES)?));
    Ok(match round_trip(device, &sample) {
        Ok(trip) => (Finding::new(Severity::Ok, name, trip.summary()), Some(trip)),
        Err(problem) => {
            let finding = Finding::new(severity, name, problem.to_string());
            (finding.mend(mend(name, &problem)), None)
        }
    })
}

impl RoundTrip {
    fn summary(&self) -> String {
        let us = |time: Option<u64>| time.map_or("software".to_owned(), |us| format!("{us} us"));
        let codec = |trip: &CodecTrip| {
            let (there, back) = (us(trip.compress_us), us(trip.decompress_us));
            format!("{} to {} B ({there}, back {back})", trip.codec, trip.compressed_bytes)
        };
        let mut parts: Vec<String> = self.codecs.iter().map(codec).collect();
        parts.extend((!self.kernels.is_empty()).then(|| self.kernels.join(", ")));
        let counted = self.counted.iter().map(|(name, count)| format!("{name} {count}"));
        parts.extend(counted);
        format!("{} of HTML: {}", ByteCount(self.bytes as u64), parts.join("; "))
    }
}

fn round_trip(device: &dyn Device, sample: &Bytes) -> Result<RoundTrip, Problem> {
    let before = device.counters();
    let software = Software::new(drivers::ENGINES);
    let trip = qualification::round_trip(device, &software, sample, TIMEOUT)?;
    let after = device.counters().into_iter().map(|(name, count)| {
        let earlier =
            before.iter().find(|counter| counter.0 == name).map_or(0, |counter| counter.1);
        (name, count.saturating_sub(earlier))
    });
    Ok(RoundTrip {
        device: device.name().to_owned(),
        bytes: trip.bytes,
        codecs: trip.codecs,
        kernels: trip.kernels,
        counted: after.filter(|counter| counter.1 > 0).collect(),
    })
}

const SAMPLE_BYTES: usize = 64 << 10;

/// The time limit of a job. A device that consists of threads may wait for a core for seconds.
const TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use device::{FaultPlan, Faulty};

    use super::*;

    fn found(plan: FaultPlan) -> Finding {
        let device = Faulty::new(Arc::new(Software::new(drivers::ENGINES)), plan);
        finding(&device, Severity::Problem).expect("a sample").0
    }

    #[test]
    fn a_damaged_stream_is_a_wrong_result_readable_or_not() {
        let verdict =
            |seed| found(FaultPlan { seed, corrupt_every: 1, ..FaultPlan::default() }).what;
        let problems: Vec<_> = (0..20).map(verdict).collect();
        let wrong = |problem: &String| problem.contains("WRONG RESULT");
        assert!(problems.iter().all(wrong), "{problems:#?}");
        let read = problems.iter().filter(|problem| problem.contains("something else comes out"));
        assert!(read.count() < problems.len(), "some are no streams at all");
    }

    #[test]
    fn a_queue_that_is_briefly_full_is_waited_for() {
        let finding = found(FaultPlan { refuse_every: 2, ..FaultPlan::default() });
        assert_eq!((finding.severity, finding.mend), (Severity::Ok, None));
    }

    #[test]
    fn a_failed_round_trip_says_who_can_fix_it() {
        for (plan, what) in [
            (FaultPlan { fail_every: 1, ..FaultPlan::default() }, "device fault: injected"),
            (FaultPlan { lose_every: 1, ..FaultPlan::default() }, "device lost"),
            (FaultPlan { lose_after: Some(1), ..FaultPlan::default() }, "refused (Lost)"),
            (FaultPlan { corrupt_every: 1, ..FaultPlan::default() }, "WRONG RESULT"),
        ] {
            let finding = found(plan);
            assert_eq!(finding.severity, Severity::Problem);
            assert!(finding.what.contains(what), "{finding:?}");
            assert!(finding.mend.is_some(), "{finding:?}");
        }
    }
}
