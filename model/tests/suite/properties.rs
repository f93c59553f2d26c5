//! Tests properties that hold for all parameters: bounds, orders between designs, and that a selection contains the
//! offloads that pay.

use model::cost::{CostCurve, CostFit, Observation};
use model::logca::{Latency, LogCa};
use model::program::PublicProgram;
use model::{
    BreakEven, Case, Counted, Design, Kernel, Objective, Parameters, Provenance, Quantity,
    SizeHistogram, Strategy, Symbol, Threading, Values, Variant, break_even, latency_reduction,
    offload_gain, select, speedup,
};
use proptest::prelude::*;
use proptest::strategy::Strategy as Strategy_;
use units::Nanos;

fn parameters() -> impl Strategy_<Value = Parameters> {
    let counts = (1e6..1e10, 0.0..=1.0, 0.0..1e6);
    let cycles = (0.0..1e5, 0.0..1e5, 0.0..1e5, 0.0..1e5, 1.0..100.0);
    (counts, cycles).prop_map(|((c, alpha, n), (o0, q, l, o1, a))| {
        Parameters::new(Values { c, alpha, n, o0, q, l, o1, a }).expect("within the ranges")
    })
}

fn designs() -> impl Strategy_<Value = Design> {
    let threading = prop::sample::select(Threading::ALL.to_vec());
    let strategy = prop::sample::select(Strategy::ALL.to_vec());
    (threading, strategy).prop_map(|(threading, strategy)| Design::new(threading, strategy))
}

proptest! {
    #[test]
    fn no_design_beats_amdahl_without_the_kernel(p in parameters(), design in designs()) {
        let bound = 1.0 / (1.0 - p.values().alpha);
        prop_assert!(speedup(&p, &design) <= bound * (1.0 + 1e-12));
        let latency = latency_reduction(&p, &design).expect("has one");
        prop_assert!(latency <= speedup(&p, &design) * (1.0 + 1e-12)
            || design.threading == Threading::SyncOs);
    }

    #[test]
    fn the_less_the_host_waits_the_faster(p in parameters()) {
        let speedup_of = |threading| speedup(&p, &Design::new(threading, Strategy::OffChip));
        prop_assert!(speedup_of(Threading::Async) >= speedup_of(Threading::Sync));
        prop_assert!(speedup_of(Threading::Async) >= speedup_of(Threading::AsyncDistinct));
        prop_assert!(speedup_of(Threading::AsyncDistinct) >= speedup_of(Threading::SyncOs));
    }

    /// n offloads of equal size gain n times as much as one offload.
    #[test]
    fn one_offload_and_all_of_them_agree(p in parameters(), design in designs()) {
        let v = p.values();
        prop_assume!(v.n > 0.0);
        let kernel_cycles = v.alpha * v.c / v.n;
        let saved = 1.0 - 1.0 / speedup(&p, &design);
        let one = offload_gain(&p, &design, Objective::Speedup, kernel_cycles) * v.n / v.c;
        prop_assert!((saved - one).abs() < 1e-9 * (1.0 + one.abs()), "{saved} {one}");
        let saved = 1.0 - 1.0 / latency_reduction(&p, &design).expect("has one");
        let one = offload_gain(&p, &design, Objective::Latency, kernel_cycles) * v.n / v.c;
        prop_assert!((saved - one).abs() < 1e-9 * (1.0 + one.abs()), "{saved} {one}");
    }

    #[test]
    fn an_offload_pays_just_above_its_break_even(
        p in parameters(), design in designs(), cb in 0.01..100.0, beta in 0.5..2.0,
    ) {
        let kernel = Kernel::new(cb, beta).expect("valid");
        let gain = |bytes| offload_gain(&p, &design, Objective::Speedup, kernel.cycles(bytes));
        match break_even(&p, &design, Objective::Speedup, &kernel) {
            BreakEven::Above(bytes) => {
                prop_assert!(gain(bytes * 1.001 + 1e-6) > 0.0);
                prop_assert!(bytes == 0.0 || gain(bytes * 0.999) < 0.0);
            }
            BreakEven::Never => prop_assert!(gain(1e12) <= 0.0),
        }
    }

    /// Offloading exactly the calls that pay is at least as good as offloading all calls or none.
    #[test]
    fn selection_never_loses(
        p in parameters(), design in designs(),
        sizes in prop::collection::vec((1u64..1_000_000, 1.0..100.0), 1..20),
    ) {
        let sizes = SizeHistogram::from_sizes(sizes).expect("valid");
        prop_assume!(p.values().n > 0.0 && p.values().alpha > 1e-6);
        let rule = (1.0, Counted::ByWork);
        let chosen = select(&p, &design, Objective::Speedup, &sizes, rule, None).expect("selects");
        let with = speedup(&chosen.parameters, &design);
        prop_assert!(with >= 1.0 - 1e-9, "{with}");
        prop_assert!(with >= speedup(&p, &design) * (1.0 - 1e-9));
    }

    #[test]
    fn sizes_split_without_loss(
        sizes in prop::collection::vec((1u64..1_000_000, 0.0..100.0), 1..20), at in 1.0..2e6,
    ) {
        prop_assume!(sizes.iter().any(|(_, calls)| *calls > 0.0));
        let sizes = SizeHistogram::from_sizes(sizes).expect("valid");
        let (calls, work) = (sizes.share_at_least(at), sizes.work_share_at_least(at, 1.0));
        prop_assert!((0.0..=1.0 + 1e-12).contains(&calls));
        // The share of the bytes in large calls is at least their share of the calls.
        prop_assert!(work >= calls - 1e-9);
    }

    /// Single precision agrees with double precision to a relative error of 1e-4, except where digits cancel.
    #[test]
    fn the_public_programs_reading_is_the_equations(p in parameters()) {
        let v = p.values();
        let whole = Values {
            c: v.c.trunc(), n: v.n.trunc(), o0: v.o0.trunc(), q: v.q.trunc(), l: v.l.trunc(),
            o1: v.o1.trunc(), ..*v
        };
        let p = Parameters::new(whole).expect("valid");
        for threading in [Threading::Sync, Threading::Async] {
            let design = Design::new(threading, Strategy::OffChip);
            let ours = speedup(&p, &design);
            prop_assume!(1.0 / ours > 1e-2);
            let theirs = speedup(&p, &design.with_variant(Variant::PublicProgram));
            prop_assert!((theirs / ours - 1.0).abs() < 1e-4, "{theirs} {ours}");
            prop_assert!(PublicProgram::from(&p).percent(threading).is_finite());
        }
    }

    #[test]
    fn logca_rises_with_granularity_below_its_peak(
        latency in 0.0..1e4, overhead in 1.0..1e4, c in 0.1..100.0, a in 1.5..64.0, beta in 1.0..2.0,
    ) {
        let kernel = Kernel::new(c, beta).expect("valid");
        let model = LogCa::new(Latency::PerOffload(latency), overhead, kernel, a).expect("valid");
        let speedups: Vec<f64> = (0..30).map(|step| model.speedup(2f64.powi(step))).collect();
        prop_assert!(speedups.windows(2).all(|pair| pair[0] <= pair[1]));
        prop_assert!(speedups.iter().all(|speedup| *speedup <= a));
    }

    /// For every input there is no panic, and every interval contains its value.
    #[test]
    fn any_numbers_are_answered_or_refused(
        alpha in prop_oneof![Just(0.0), Just(1.0), Just(f64::NAN), 0.0..1.0, 0.0..1.0],
        counts in prop::array::uniform2(prop_oneof![Just(0.0), Just(1e300), 1.0..1e10, 1.0..1e10]),
        cycles in prop::array::uniform4(prop_oneof![Just(0.0), Just(1e300), 0.0..1e6, 0.0..1e6]),
        a in prop_oneof![Just(1.0), Just(f64::INFINITY), Just(0.5), 1.0..100.0, 1.0..100.0],
        reach in prop::sample::select(vec![0.0, 0.1, 1.0, 2.0]), design in designs(),
    ) {
        let ([c, n], [o0, q, l, o1]) = (counts, cycles);
        let stated = [c, alpha, n, o0, q, l, o1, a];
        let quantity = |value: f64| {
            let (low, high) = (value * (1.0 - reach), value * (1.0 + reach));
            Quantity::within(low, value, high, Provenance::Assumed)
        };
        let exact = |value: f64| Quantity::exact(value, Provenance::Assumed);
        let either = |value: f64| if value < 10.0 { exact(value) } else { quantity(value) };
        let quantities = stated.map(either);
        let Ok(case) = Case::new(quantities, design) else { return Ok(()) };
        let Ok(answer) = case.project(1) else { return Ok(()) };
        let speedup = answer.speedup;
        prop_assert!(speedup.ci95.0 <= speedup.value && speedup.value <= speedup.ci95.1);
        prop_assert!(answer.sensitivity.iter().all(|one| one.variance_share.is_finite()));
        prop_assert!(case.quantity(Symbol::C).is_some());
    }

    /// For all observations, a larger job or a deeper queue never costs less.
    #[test]
    fn cost_rises_with_size_and_depth(
        seen in prop::collection::vec(
            (0u64..1 << 40, 0usize..1 << 24, 0u64..1 << 40, 0usize..200, 0usize..1 << 30), 1..200,
        ),
        lanes in 1.0..100.0,
    ) {
        let prior = CostCurve::prior((1_000.0, 0.5), (100.0, 0.0), lanes).expect("valid");
        let mut fit = CostFit::new(prior);
        for (at, bytes, latency, depth_jobs, backlog_bytes) in seen {
            let (at, latency, host) = (Nanos(at), Nanos(latency), Nanos(latency / 7));
            fit.observe(&Observation { at, bytes, latency, depth_jobs, backlog_bytes, host });
        }
        let curve = fit.curve();
        let sizes: Vec<usize> = (0..25).map(|power| (1 << power) + power).collect();
        for pair in sizes.windows(2) {
            let at = |bytes| curve.estimate(bytes, 3, 9_000);
            let (small, large) = (at(pair[0]), at(pair[1]));
            prop_assert!(small.is_finite() && small > 0.0 && small <= large, "{curve:?}");
            prop_assert!(curve.host.at(pair[0]) <= curve.host.at(pair[1]));
        }
        for depth in 1..200 {
            let (before, after) = (curve.wait_ns(depth, 90_000), curve.wait_ns(depth + 1, 90_000));
            prop_assert!(before <= after * (1.0 + 1e-12), "{depth}: {before} {after}");
            prop_assert!(curve.wait_ns(depth, 90_000) <= curve.wait_ns(depth, 180_000));
        }
    }
}
