//! Derives the cycles of setup (o0) and transfer (L) and the peak speedup (A) for the calls of a query from a device
//! profile. The sum of o0, L and the accelerator's time is the profile's mean latency over the sizes. The module
//! computes from published figures and never contacts the device.

use model::{Provenance, Quantity, SizeHistogram, Strategy, Symbol};
use workload::{Attachment, DeviceProfile, OpProfile, Variant};

use crate::query::{Parameter, Query};

/// Returns the query with its costs replaced by those of a device.
///
/// # Errors
/// The profile or the query lacks a value.
pub(crate) fn with_device(query: &Query, name: &str) -> Result<Query, String> {
    let profile = DeviceProfile::find(name).map_err(|error| error.to_string())?;
    let Some(accelerator) = &profile.accelerator else {
        return Err(format!("device {name} is software on a core: nothing is offloaded to it"));
    };
    let kernel =
        Kernel::from_query(query).map_err(|problem| format!("device {name}: {problem}"))?;
    let figures = [Variant::Stated, Variant::Low, Variant::High].map(|variant| {
        let profile = profile.clone().variant(variant);
        op(&profile, &query.op).map(|op| kernel.costs(&profile, op))
    });
    let [Some(stated), Some(low), Some(high)] = figures else {
        let (op, ops) = (&query.op, ops(&profile));
        return Err(format!("device {name} has no figures for {op:?}; its ops are {ops}"));
    };
    let strategy = match accelerator.attachment.value {
        Attachment::OnChip => Strategy::OnChip,
        Attachment::OffChip => Strategy::OffChip,
    };
    let mut offloaded = query.clone();
    offloaded.awaits_transfer = Some(query.awaits_transfer.unwrap_or(false));
    offloaded.put_at(strategy);
    offloaded.device = Some(profile.name.clone());
    let source = format!("specs/devices, {name}: {} over these sizes", query.op);
    for (symbol, quantity) in [
        (Symbol::O0, quantity(stated.o0, low.o0, high.o0)),
        (Symbol::L, quantity(stated.l, low.l, high.l)),
        (Symbol::A, quantity(stated.a, low.a, high.a)),
    ] {
        offloaded.parameters.insert(symbol, Parameter::new(quantity, source.clone()));
    }
    offloaded.notes.push(format!(
        "{name}: o0 is the mean submission, L what a job takes whatever its size beyond that, A \
         the host's time over the device's for the bytes; at {:.2} GHz ({})",
        kernel.ghz, kernel.clock_source
    ));
    let paid = match offloaded.design.awaits_transfer {
        true => "the host awaits the transfer, as stated",
        false => {
            "its jobs are polled for, so the host pays the submission and not the transfer, \
                  except in Sync"
        }
    };
    offloaded.notes.push(format!("{name}: {paid}; each is alone in the device (Q as stated)"));
    if stated.slower_per_byte {
        offloaded.notes.push(format!(
            "{name} takes longer per byte than the host: A is 1, and the rest of its time is in L"
        ));
    }
    Ok(offloaded)
}

/// Returns a value with an interval. The ends of the interval come from the ends of the profile's ranges.
fn quantity(value: f64, one: f64, other: f64) -> Quantity {
    let (low, high) = (one.min(other).min(value), one.max(other).max(value));
    if low.is_infinite() {
        return Quantity::exact(low, Provenance::Configured);
    }
    // An interval must be finite. Beyond this bound a faster accelerator makes no difference.
    let (value, high) = (value.min(FASTER_MAX), high.min(FASTER_MAX));
    match low == high {
        true => Quantity::exact(value, Provenance::Configured),
        false => Quantity::within(low, value, high, Provenance::Configured),
    }
}

/// Returns the profile's figures for an op.
fn op<'a>(profile: &'a DeviceProfile, name: &str) -> Option<&'a OpProfile> {
    let all = all(profile);
    all.into_iter().find(|(op_name, _)| *op_name == name).and_then(|(_, op)| op)
}

fn all(profile: &DeviceProfile) -> [(&'static str, Option<&OpProfile>); 7] {
    [
        ("compress", profile.compress()),
        ("decompress", profile.decompress.as_ref()),
        ("encrypt", profile.encrypt.as_ref()),
        ("decrypt", profile.decrypt.as_ref()),
        ("crc32c", profile.crc32c.as_ref()),
        ("crc64", profile.crc64.as_ref()),
        ("copy", profile.copy.as_ref()),
    ]
}

fn ops(profile: &DeviceProfile) -> String {
    let has = all(profile).into_iter().filter(|(_, op)| op.is_some());
    has.map(|(name, _)| name).collect::<Vec<_>>().join(", ")
}

/// The host's cost per call, and the sizes of the calls.
struct Kernel {
    cycles_per_call: f64,
    ghz: f64,
    clock_source: &'static str,
    /// Sizes (bytes) and the share of the calls that each of them represents.
    points: Vec<(u64, f64)>,
}

/// The mean costs over the calls (cycles).
struct Costs {
    o0: f64,
    l: f64,
    a: f64,
    slower_per_byte: bool,
}

impl Kernel {
    fn from_query(query: &Query) -> Result<Self, String> {
        let stated = |symbol| query.stated(symbol);
        let (Some(c), Some(alpha)) = (stated(Symbol::C), stated(Symbol::Alpha)) else {
            return Err("C and alpha must be known".to_owned());
        };
        let n = stated(Symbol::N).filter(|n| *n > 0.0);
        let n = n.ok_or("n must be known, and above 0: how many calls there are (--sizes)")?;
        let cycles_per_call = alpha * c / n;
        let points = match (&query.sizes, stated(Symbol::Cb)) {
            (Some(sizes), _) => points(&sizes.histogram),
            (None, Some(per_byte)) => {
                let beta = query.beta.unwrap_or(1.0);
                vec![((cycles_per_call / per_byte).powf(1.0 / beta).round() as u64, 1.0)]
            }
            (None, None) => {
                return Err("the sizes of the calls must be known: --sizes, or Cb".to_owned());
            }
        };
        let (ghz, clock_source) = match query.clock_ghz {
            Some(ghz) => (checked_ghz(ghz)?, query.clock_source),
            None if query.is_of_a_second && (0.5e9..=6e9).contains(&c) => {
                (c / 1e9, "C, as one core's cycles of one second")
            }
            None => {
                let why = "to turn its time into cycles (--clock-ghz), since C is no core's second";
                return Err(format!("clock_ghz must be known {why}"));
            }
        };
        Ok(Self { cycles_per_call, ghz, clock_source, points })
    }

    fn costs(&self, profile: &DeviceProfile, op: &OpProfile) -> Costs {
        let mean = |time_ns: &dyn Fn(u64) -> f64| {
            self.points.iter().map(|(bytes, share)| share * time_ns(*bytes)).sum::<f64>() * self.ghz
        };
        let o0 = mean(&|bytes| profile.submit(bytes).0 as f64);
        let latency = mean(&|bytes| op.latency(bytes).0 as f64);
        let fixed = op.latency.first().map_or(0.0, |point| point.ns.value as f64) * self.ghz;
        let fixed = fixed.max(o0).min(latency);
        let for_bytes = latency - fixed;
        let slower_per_byte = for_bytes > self.cycles_per_call;
        let on_device = for_bytes.min(self.cycles_per_call);
        let a = if on_device > 0.0 { self.cycles_per_call / on_device } else { f64::INFINITY };
        let l = (fixed - o0).max(0.0) + for_bytes - on_device;
        Costs { o0, l, a: a.max(1.0), slower_per_byte }
    }
}

/// Checks that the clock of a host is within its valid range.
///
/// # Errors
/// The clock is outside its valid range.
pub(crate) fn checked_ghz(ghz: f64) -> Result<f64, String> {
    let is_clock = (0.1..=10.0).contains(&ghz);
    if is_clock { Ok(ghz) } else { Err(format!("clock_ghz is {ghz}; it must be from 0.1 to 10")) }
}

/// Returns the names of the profiles in specs/devices that have an accelerator.
pub(crate) fn all_that_offload() -> Vec<String> {
    let offloads =
        |name: &&str| DeviceProfile::find(name).is_ok_and(|profile| profile.accelerator.is_some());
    DeviceProfile::names().filter(offloads).map(str::to_owned).collect()
}

/// Returns a few sizes of each bin, evenly spaced on a logarithmic axis, as the model spreads the calls of a bin.
fn points(sizes: &SizeHistogram) -> Vec<(u64, f64)> {
    let steps = if sizes.bins().len() > MANY_BINS { 1 } else { STEPS };
    let sizes_of_bin = |bin: &model::Bin| {
        let (low, ratio) = (bin.low_bytes, bin.high_bytes / bin.low_bytes);
        let share = bin.calls / sizes.calls() / steps as f64;
        let at = move |step: usize| {
            let bytes = low * ratio.powf((step as f64 + 0.5) / steps as f64);
            (bytes.round() as u64, share)
        };
        (0..steps).map(at).collect::<Vec<_>>()
    };
    sizes.bins().iter().flat_map(sizes_of_bin).collect()
}

/// The largest peak speedup (A) of an accelerator. A faster accelerator takes no time that matters.
const FASTER_MAX: f64 = 1e12;
const STEPS: usize = 16;
const MANY_BINS: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Sizes;
    use model::{Design, Threading};

    fn query() -> Query {
        let design = Design::new(Threading::Sync, Strategy::OffChip);
        let mut query = Query::new("one", "one", design);
        let exact = |value| Parameter {
            quantity: Quantity::exact(value, Provenance::Configured),
            source: None,
        };
        query.parameters.insert(Symbol::C, exact(2e9));
        query.parameters.insert(Symbol::Alpha, exact(0.3));
        query.parameters.insert(Symbol::N, exact(5_000.0));
        let histogram = SizeHistogram::from_sizes([(4_096, 1.0), (16_384, 1.0)]).expect("sizes");
        let (provenance, source) = (Provenance::Configured, None);
        query.sizes = Some(Sizes { histogram, provenance, source });
        query
    }

    #[test]
    fn the_costs_add_up_to_the_profiles_latency() {
        for name in DeviceProfile::names() {
            let profile = DeviceProfile::find(name).expect("compiled in");
            if profile.is_core() || profile.compress().is_none() {
                continue;
            }
            let offloaded = with_device(&query(), name).expect("it compresses");
            let stated = |symbol| offloaded.stated(symbol).expect("derived");
            let cycles =
                stated(Symbol::O0) + stated(Symbol::L) + 0.3 * 2e9 / 5_000.0 / stated(Symbol::A);
            let op = profile.compress().expect("it does");
            let latency_ns = [4_096, 16_384].map(|bytes| op.latency(bytes).0 as f64);
            let mean = 2.0 * (latency_ns[0] + latency_ns[1]) / 2.0;
            assert!((cycles / mean - 1.0).abs() < 1e-9, "{name}: {cycles} not {mean}");
            assert!(
                offloaded.clone().complete().and_then(|offloaded| offloaded.case()).is_ok(),
                "{name}"
            );
        }
    }

    #[test]
    fn what_is_lacking_is_named() {
        let refused = |query: &Query, name: &str| with_device(query, name).expect_err("refused");
        assert!(refused(&query(), "epyc7542-isal").contains("software"));
        let dsa = refused(&query(), "dsa");
        assert!(dsa.contains("its ops are crc32c"), "{dsa}");
        assert!(refused(&query(), "nothing").contains("known are"));
        let without_sizes = Query { sizes: None, ..query() };
        assert!(refused(&without_sizes, "iaa").contains("--sizes"));
        for ghz in [0.0, -1.0, f64::NAN] {
            let clock = Query { clock_ghz: Some(ghz), ..query() };
            assert!(refused(&clock, "iaa").contains("from 0.1 to 10"));
        }
        let of_some_while = Query { is_of_a_second: false, ..query() };
        assert!(refused(&of_some_while, "iaa").contains("--clock-ghz"));
        assert!(with_device(&Query { clock_ghz: Some(2.5), ..of_some_while }, "iaa").is_ok());
    }

    #[test]
    fn an_end_that_is_infinite_is_no_certainty() {
        let spread = |one, value, other| quantity(value, one, other).spread;
        let model::Spread::Interval { low, high } = spread(20.0, 30.0, f64::INFINITY) else {
            panic!("taken as exact");
        };
        assert!(low == 20.0 && high >= 1e9 && high.is_finite(), "{low} {high}");
        assert!(quantity(f64::INFINITY, 20.0, f64::INFINITY).check(Symbol::A).is_ok());
        assert_eq!(spread(5.0, 5.0, 5.0), model::Spread::Exact);
        let never_counts = quantity(f64::INFINITY, f64::INFINITY, f64::INFINITY);
        assert_eq!(never_counts, Quantity::exact(f64::INFINITY, Provenance::Configured));
    }

    #[test]
    fn what_was_stated_of_the_transfer_holds_on_a_device() {
        let awaits = |awaits_transfer| {
            let query = Query { awaits_transfer, ..query() };
            with_device(&query, "iaa").expect("it compresses").design.awaits_transfer
        };
        assert_eq!([None, Some(false), Some(true)].map(awaits), [false, false, true]);
    }
}
