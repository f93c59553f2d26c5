//! The model's prediction for a workload that was measured in software: the factor by which an offload multiplies its
//! throughput, with and without waiting. The prediction uses the equations of \[Accelerometer\] for the core and the
//! profile's pace for the device. The module measures nothing.

use model::{BadParameter, Design, Parameters, Strategy, Threading, Values, speedup};
use workload::DeviceProfile;

use super::mode::Mode;
use super::sample::Sample;
use super::work::Work;

/// Returns the expected throughput divided by that of software, or None for a mode that the equations do not cover.
///
/// # Errors
/// A parameter is out of its range.
pub(super) fn ratio(
    mode: Mode,
    software: &Sample,
    work: &Work,
    profile: &DeviceProfile,
) -> Result<Option<f64>, BadParameter> {
    let threading = match mode {
        Mode::Sync => Threading::Sync,
        Mode::Async => Threading::Async,
        _ => return Ok(None),
    };
    if software.invalid.is_some() || software.count() == 0 {
        return Ok(None);
    }
    let Some(op) = profile.compress() else { return Ok(None) };
    let submit_ns = work.mean(|bytes| profile.submit(bytes).0 as f64);
    let latency_ns = work.mean(|bytes| op.latency(bytes).0 as f64);
    // A cycle is a nanosecond here. The device's own time is part of L instead of A: it may be longer than the time of
    // software, and the model rejects an A below 1.
    let c = software.elapsed.0 as f64;
    let parameters = Parameters::new(Values {
        c,
        alpha: (software.software.0 as f64 / c).min(1.0),
        n: software.count() as f64,
        o0: submit_ns,
        q: 0.0,
        l: latency_ns - submit_ns,
        o1: 0.0,
        a: f64::INFINITY,
    })?;
    let awaits_transfer = threading == Threading::Sync;
    let design = Design { awaits_transfer, ..Design::new(threading, Strategy::OffChip) };
    let of_core = speedup(&parameters, &design);
    let pace_ns = work.mean(|bytes| op.interval(bytes).0 as f64);
    let of_device = c / software.count() as f64 / pace_ns;
    Ok(Some(of_core.min(of_device)))
}

#[cfg(test)]
mod tests {
    use units::{ByteCount, Nanos};
    use workload::PayloadClass;

    use super::super::work::Stock;
    use super::*;

    #[test]
    fn the_ratio_follows_from_latency_submission_and_pace() {
        let profile = DeviceProfile::find("bluefield2").expect("compiled in");
        let stock = Stock::new().expect("a size");
        let work = Work::of_size(&stock, ByteCount::kib(8), PayloadClass::Repeat).expect("a size");
        // A request takes 20 us of compression and 10 us of other work.
        let elapsed = Nanos::micros(30 * 100);
        let software = Sample::new(vec![30_000; 100], elapsed);
        let software = Sample { software: Nanos::micros(20 * 100), ..software };
        let ratio = |mode| ratio(mode, &software, &work, &profile).expect("valid");
        // The device's latency is 9,948 ns, of which the submission takes 663 ns.
        let (sync, offloaded) = (ratio(Mode::Sync), ratio(Mode::Async));
        assert!(sync.is_some_and(|ratio| (ratio - 30.0 / 19.948).abs() < 0.01), "{sync:?}");
        assert!(
            offloaded.is_some_and(|ratio| (ratio - 30.0 / 10.663).abs() < 0.01),
            "{offloaded:?}"
        );
        assert_eq!(ratio(Mode::LeastLatency), None);
        // Without other work the device's pace of 6,478 ns is the bound.
        let bare = Sample::new(vec![20_000; 100], Nanos::micros(20 * 100));
        let bare = Sample { software: Nanos::micros(20 * 100), ..bare };
        let bound = super::ratio(Mode::Async, &bare, &work, &profile).expect("valid");
        assert!(bound.is_some_and(|ratio| (ratio - 20.0 / 6.478).abs() < 0.01), "{bound:?}");
    }
}
