//! Draws the gaps between the arrivals of requests. The simulator schedules the arrivals, and this module
//! does not know the time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::durations::{BadValue, DurationSpec, Durations, NS_MAX, nearest};
use crate::{Draws, Picos, Streams};

/// The arrival process of requests, as in a specification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[allow(missing_docs)]
pub enum ArrivalSpec {
    /// The requests of many independent clients.
    Poisson { per_s: f64 },
    /// Arrivals with equal gaps.
    Uniform { per_s: f64 },
    /// Arrivals with independent gaps of any distribution.
    Gaps { gap: DurationSpec },
    /// Poisson arrivals that alternate between two rates, each for an exponential time (a Markov-modulated Poisson
    /// process). With `off_per_s = 0` it is an on-off source.
    Bursty { on_per_s: f64, off_per_s: f64, on_mean_ns: f64, off_mean_ns: f64 },
    /// Recorded gaps in order, which repeat from the start. With `random_start` each replication begins at a random
    /// point of the record. Without it all replications see the same arrivals.
    Recorded { gaps_ns: Vec<f64>, random_start: bool },
}

/// A checked process of arrivals.
#[derive(Clone, Debug)]
pub struct Arrivals {
    kind: Kind,
    mean_gap_ns: f64,
}

#[derive(Clone, Debug)]
enum Kind {
    Gaps(Durations),
    Bursty { gap_ps: [f64; 2], hold_ps: [f64; 2] },
    Recorded { gaps_ns: Arc<[f64]>, ps_per_ns: f64, random_start: bool },
}

/// The arrivals of one source in one replication.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    draws: Draws,
    /// The state of a bursty source (0 is on, 1 is off), or the index in a record of gaps.
    at: usize,
    left_ps: f64,
}

impl Arrivals {
    /// Checks `spec` and makes arrivals from it.
    pub fn new(spec: &ArrivalSpec) -> Result<Self, BadValue> {
        let gaps = |gap: DurationSpec| -> Result<Self, BadValue> {
            let gap = Durations::new(&gap)?;
            let mean_gap_ns = gap.mean_ns();
            Ok(Self { kind: Kind::Gaps(gap), mean_gap_ns })
        };
        match spec {
            ArrivalSpec::Poisson { per_s } => {
                BadValue::check("poisson.per_s", *per_s, RATE_MIN, RATE_MAX)?;
                gaps(DurationSpec::Exponential { mean_ns: 1e9 / per_s })
            }
            ArrivalSpec::Uniform { per_s } => {
                BadValue::check("uniform.per_s", *per_s, RATE_MIN, RATE_MAX)?;
                gaps(DurationSpec::Fixed { ns: 1e9 / per_s })
            }
            ArrivalSpec::Gaps { gap } => {
                let arrivals = gaps(gap.clone()).map_err(|bad| bad.under("gaps.gap"))?;
                BadValue::check("gaps.gap (mean, ns)", arrivals.mean_gap_ns, GAP_NS_MIN, NS_MAX)?;
                Ok(arrivals)
            }
            ArrivalSpec::Bursty { on_per_s, off_per_s, on_mean_ns, off_mean_ns } => {
                bursty([*on_per_s, *off_per_s], [*on_mean_ns, *off_mean_ns])
            }
            ArrivalSpec::Recorded { gaps_ns, random_start } => {
                let (mean_gap_ns, random_start) = (mean_gap(gaps_ns)?, *random_start);
                let gaps_ns = gaps_ns.as_slice().into();
                let kind = Kind::Recorded { gaps_ns, ps_per_ns: 1e3, random_start };
                Ok(Self { kind, mean_gap_ns })
            }
        }
    }

    /// Makes arrivals from recorded gaps. One factor scales all gaps so that `per_s` requests arrive per second. Each
    /// source begins at a random point of the record.
    pub(crate) fn recorded(gaps_ns: &Arc<[f64]>, per_s: f64) -> Result<Self, BadValue> {
        BadValue::check("recorded.per_s", per_s, RATE_MIN, RATE_MAX)?;
        let mean_gap_ns = 1e9 / per_s;
        let ps_per_ns = 1e3 * mean_gap_ns / mean_gap(gaps_ns)?;
        let gaps_ns = Arc::clone(gaps_ns);
        Ok(Self { kind: Kind::Recorded { gaps_ns, ps_per_ns, random_start: true }, mean_gap_ns })
    }

    /// Returns the mean gap (ns).
    pub fn mean_gap_ns(&self) -> f64 {
        self.mean_gap_ns
    }

    pub(crate) fn start(&self, streams: &Streams, source: &str) -> Source {
        let mut draws = streams.named(&format!("arrivals.{source}"));
        let (at, left_ps) = match &self.kind {
            Kind::Gaps(_) => (0, 0.0),
            Kind::Bursty { hold_ps, .. } => {
                let off = draws.unit() * (hold_ps[0] + hold_ps[1]) >= hold_ps[0];
                (usize::from(off), hold_ps[usize::from(off)] * draws.exponential())
            }
            Kind::Recorded { gaps_ns, random_start, .. } => {
                (if *random_start { draws.below(gaps_ns.len() as u64) as usize } else { 0 }, 0.0)
            }
        };
        Source { draws, at, left_ps }
    }

    /// Returns the time to the next arrival of `source`.
    #[inline]
    pub(crate) fn gap(&self, source: &mut Source) -> Picos {
        match &self.kind {
            Kind::Gaps(gap) => gap.draw(&mut source.draws),
            Kind::Bursty { gap_ps, hold_ps } => nearest(source.bursty_gap(gap_ps, hold_ps)),
            Kind::Recorded { gaps_ns, ps_per_ns, .. } => {
                let gap = nearest(gaps_ns[source.at] * ps_per_ns);
                source.at = (source.at + 1) % gaps_ns.len();
                gap
            }
        }
    }
}

impl Source {
    fn bursty_gap(&mut self, gap_ps: &[f64; 2], hold_ps: &[f64; 2]) -> f64 {
        let mut passed_ps = 0.0;
        loop {
            // The gap has no memory, so the rest of it may be drawn again when the rate changes.
            let gap = gap_ps[self.at] * self.draws.exponential();
            if gap <= self.left_ps {
                self.left_ps -= gap;
                return passed_ps + gap;
            }
            passed_ps += self.left_ps;
            self.at = 1 - self.at;
            self.left_ps = hold_ps[self.at] * self.draws.exponential();
        }
    }
}

fn bursty(per_s: [f64; 2], hold_ns: [f64; 2]) -> Result<Arrivals, BadValue> {
    BadValue::check("bursty.on_per_s", per_s[0], RATE_MIN, RATE_MAX)?;
    BadValue::check("bursty.off_per_s", per_s[1], 0.0, RATE_MAX)?;
    BadValue::check("bursty.on_mean_ns", hold_ns[0], GAP_NS_MIN, NS_MAX)?;
    BadValue::check("bursty.off_mean_ns", hold_ns[1], GAP_NS_MIN, NS_MAX)?;
    let arrivals_a_turn = (per_s[0] * hold_ns[0] + per_s[1] * hold_ns[1]) * 1e-9;
    if arrivals_a_turn < ARRIVALS_A_TURN_MIN {
        let valid = format!("at least {ARRIVALS_A_TURN_MIN} arrivals are due each time on and off");
        return Err(BadValue::new("bursty", arrivals_a_turn, valid));
    }
    let mean_gap_ns = (hold_ns[0] + hold_ns[1]) / arrivals_a_turn;
    // A rate of zero has an infinite gap, which is never the shorter time.
    let gap_ps = per_s.map(|rate| if rate > 0.0 { 1e12 / rate } else { f64::INFINITY });
    Ok(Arrivals { kind: Kind::Bursty { gap_ps, hold_ps: hold_ns.map(|ns| ns * 1e3) }, mean_gap_ns })
}

/// Returns the mean of recorded gaps (ns).
fn mean_gap(gaps_ns: &[f64]) -> Result<f64, BadValue> {
    if gaps_ns.is_empty() || gaps_ns.len() > GAPS_MAX {
        let valid = format!("it must hold 1 to {GAPS_MAX} gaps");
        return Err(BadValue::new("recorded.gaps_ns", format!("{} gaps", gaps_ns.len()), valid));
    }
    for gap in gaps_ns {
        BadValue::check("recorded.gaps_ns", *gap, 0.0, NS_MAX)?;
    }
    let mean_gap_ns = gaps_ns.iter().sum::<f64>() / gaps_ns.len() as f64;
    BadValue::check("recorded.gaps_ns (mean)", mean_gap_ns, GAP_NS_MIN, NS_MAX)?;
    Ok(mean_gap_ns)
}

/// The smallest rate (arrivals per second). It is one arrival in eleven days.
const RATE_MIN: f64 = 1e-6;
/// The largest mean rate (arrivals per second). It is one arrival per picosecond.
const RATE_MAX: f64 = 1e12;
/// The mean gap at [`RATE_MAX`] (ns).
const GAP_NS_MIN: f64 = 1e-3;
/// The smallest mean number of arrivals per cycle of on and off. At this limit each arrival costs a thousand
/// draws, because it takes a thousand cycles.
const ARRIVALS_A_TURN_MIN: f64 = 1e-3;
const GAPS_MAX: usize = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(spec: &ArrivalSpec, replication: u32, count: usize) -> Vec<f64> {
        let arrivals = Arrivals::new(spec).expect("valid");
        let mut source = arrivals.start(&Streams::new(3, replication), "web");
        (0..count).map(|_| arrivals.gap(&mut source).as_ns()).collect()
    }

    #[test]
    fn every_process_keeps_its_rate() {
        let on_off = ArrivalSpec::Bursty {
            on_per_s: 9e6,
            off_per_s: 0.0,
            on_mean_ns: 4e3,
            off_mean_ns: 8e3,
        };
        let gap = DurationSpec::Erlang { mean_ns: 250.0, stages: 3 };
        for spec in [
            ArrivalSpec::Poisson { per_s: 4e6 },
            ArrivalSpec::Uniform { per_s: 3e6 },
            ArrivalSpec::Gaps { gap },
            on_off.clone(),
        ] {
            let expected = Arrivals::new(&spec).expect("valid").mean_gap_ns();
            let drawn = gaps(&spec, 0, 400_000);
            let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
            assert!((mean / expected - 1.0).abs() < 0.02, "{spec:?}: {mean} for {expected} ns");
        }
        let drawn = gaps(&on_off, 0, 400_000);
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance =
            drawn.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
        assert!(variance / mean / mean > 5.0, "bursts spread the gaps");
    }

    #[test]
    fn records_wrap_around_and_start_where_asked() {
        let gaps_ns = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let fixed = ArrivalSpec::Recorded { gaps_ns: gaps_ns.clone(), random_start: false };
        assert_eq!(gaps(&fixed, 0, 9)[7..], [8.0, 1.0]);
        let random = ArrivalSpec::Recorded { gaps_ns, random_start: true };
        let starts: Vec<f64> =
            (0..20).map(|replication| gaps(&random, replication, 1)[0]).collect();
        assert!(starts.iter().any(|start| *start != starts[0]), "{starts:?}");
    }

    #[test]
    fn a_recording_is_scaled_to_the_load() {
        let gaps_ns: Arc<[f64]> = [1.0, 0.0, 5.0].into();
        let arrivals = Arrivals::recorded(&gaps_ns, 1e6).expect("valid");
        assert_eq!(arrivals.mean_gap_ns(), 1_000.0);
        let mut source = arrivals.start(&Streams::new(3, 0), "web");
        let mut drawn: Vec<f64> = (0..6).map(|_| arrivals.gap(&mut source).as_ns()).collect();
        assert_eq!(drawn[..3], drawn[3..], "from the start again");
        drawn.sort_by(f64::total_cmp);
        assert_eq!(drawn, [0.0, 0.0, 500.0, 500.0, 2_500.0, 2_500.0]);
        assert!(Arrivals::recorded(&gaps_ns, 0.0).is_err());
    }

    #[test]
    fn impossible_processes_are_refused() {
        let fault = |spec| Arrivals::new(&spec).expect_err("invalid").to_string();
        assert!(fault(ArrivalSpec::Poisson { per_s: 0.0 }).starts_with("poisson.per_s is 0;"));
        assert!(fault(ArrivalSpec::Uniform { per_s: f64::INFINITY }).contains("inf"));
        let gap = DurationSpec::Fixed { ns: 0.0 };
        assert!(fault(ArrivalSpec::Gaps { gap }).contains("gaps.gap"));
        let gaps_ns = vec![0.0; 4];
        assert!(fault(ArrivalSpec::Recorded { gaps_ns, random_start: false }).contains("mean"));
        let rare = ArrivalSpec::Bursty {
            on_per_s: 1.0,
            off_per_s: 0.0,
            on_mean_ns: 1.0,
            off_mean_ns: 1.0,
        };
        assert!(fault(rare).starts_with("bursty is 0.000000001;"));
    }
}
