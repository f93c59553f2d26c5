//! Tests that the model gives the numbers that [Accelerometer] prints, to every printed digit. The paper cuts digits
//! off instead of rounding (15.7756 % is printed as 15.7 %, 12.79 % as 12.7 %), so these tests do too. The inputs are
//! the values of tables 6 and 7. Only C_b is tuned, because the paper does not print it (see `break_even_of_425`).

use model::equations::{Switches, equation_1, equation_3, equation_6};
use model::{
    BreakEven, Counted, Design, Kernel, Objective, Parameters, Selection, SizeHistogram, Strategy,
    Threading, Values, Variant, break_even, latency_reduction, select, speedup,
};

/// Returns the gain (%) with `digits` digits after the point. Further digits are cut off, as in the paper.
fn printed(ratio: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    ((ratio - 1.0) * 100.0 * scale).trunc() / scale
}

/// Makes parameters from C, α, n, o0, Q, L, o1, A as in tables 6 and 7. The tables' NA is 0, or 1 for A.
fn parameters([c, alpha, n, o0, q, l, o1, a]: [f64; 8]) -> Parameters {
    Parameters::new(Values { c, alpha, n, o0, q, l, o1, a }).expect("the paper's are valid")
}

/// Makes the parameters of Feed1's compressions in table 7, with n and α of all compressions (n of the first row).
fn compression(l: f64, o1: f64, a: f64) -> Parameters {
    parameters([2.3e9, 0.15, 15_008.0, 0.0, 0.0, l, o1, a])
}

fn off_chip(threading: Threading) -> Design {
    Design::new(threading, Strategy::OffChip).with_variant(Variant::SectionFive)
}

#[test]
fn case_study_1_aes_ni() {
    // Table 6, "AES-NI"; section 4: "Table 6's parameters in eqn. (1) to estimate a speedup of 15.7%".
    let p = parameters([2.0e9, 0.165844, 298_951.0, 10.0, 0.0, 3.0, 0.0, 6.0]);
    assert_eq!(printed(equation_1(&p), 1), 15.7);
    let design = Design::new(Threading::Sync, Strategy::OnChip);
    assert_eq!(speedup(&p, &design), equation_1(&p));
}

#[test]
fn case_study_2_encryption() {
    // Table 6, "Encryption"; section 4: "parameters defined in Table 6 in equation (6)"; no response is needed.
    let p = parameters([2.3e9, 0.19154, 101_863.0, 0.0, 0.0, 2_530.0, 0.0, 1.0]);
    assert_eq!(printed(equation_6(&p), 1), 8.6);
    let design = Design::new(Threading::AsyncNoResponse, Strategy::OffChip);
    assert_eq!(speedup(&p, &design), equation_6(&p));
}

#[test]
fn case_study_3_inference() {
    // Table 6, "Inference"; section 4: "in equation (3) (with a single o1)", "We assume L + Q = 0".
    let p = parameters([2.5e9, 0.52, 10.0, 25e6, 0.0, 0.0, 12_500.0, 1.0]);
    assert_eq!(printed(equation_3(&p, Switches::One), 2), 72.39);
    let design = Design::new(Threading::AsyncDistinct, Strategy::Remote);
    assert_eq!(speedup(&p, &design), equation_3(&p, Switches::One));
}

#[test]
fn figure_20_on_chip() {
    // Table 7, the three on-chip rows; section 5: 13.6 %, 12.7 % and 1.86 %, speedup and latency reduction alike.
    let rows = [
        ([2.3e9, 0.15, 15_008.0, 0.0, 0.0, 0.0, 0.0, 5.0], 1, 13.6),
        ([2.3e9, 0.1512, 1_473_681.0, 0.0, 0.0, 0.0, 0.0, 4.0], 1, 12.7),
        ([2.0e9, 0.055, 51_695.0, 0.0, 0.0, 0.0, 0.0, 1.5], 2, 1.86),
    ];
    let design = Design::new(Threading::Sync, Strategy::OnChip).with_variant(Variant::SectionFive);
    for (row, digits, percent) in rows {
        let p = parameters(row);
        assert_eq!(printed(speedup(&p, &design), digits), percent);
        let latency = latency_reduction(&p, &design).expect("has one");
        assert_eq!(printed(latency, digits), percent);
    }
    // Section 5: "an ideal speedup of 17.6%".
    let ideal = parameters([2.3e9, 0.15, 15_008.0, 0.0, 0.0, 0.0, 0.0, f64::INFINITY]);
    assert_eq!(printed(equation_1(&ideal), 1), 17.6);
}

/// Makes the sizes of Feed1's 15,008 compressions in four bins. The calls of at least 409, 425 and 2455 bytes
/// are then the n of table 7: 9,769 (65.1 %), 9,629 (64.2 %, as in section 5) and 3,986 (26.6 %).
fn feed1() -> SizeHistogram {
    let calls = [(100, 15_008 - 9_769), (410, 9_769 - 9_629), (425, 9_629 - 3_986), (2_456, 3_986)];
    let exact = calls.map(|(bytes, calls)| (bytes, f64::from(calls)));
    SizeHistogram::from_sizes(exact).expect("valid")
}

/// C_b of the compressions (cycles per byte), which the paper does not print. With this value the mean compression has
/// α C / n_all / C_b = 4,090 B, which fits figure 19, and the break-even size is section 5's 425 B.
const CYCLES_PER_BYTE: f64 = 5.62;

fn selected(threading: Threading, o1: f64) -> Selection {
    let p = compression(2_300.0, o1, 27.0);
    let rule = (1.0, Counted::ByCalls);
    let (design, objective) = (off_chip(threading), Objective::Speedup);
    select(&p, &design, objective, &feed1(), rule, Some(CYCLES_PER_BYTE)).expect("selects")
}

#[test]
fn figure_20_off_chip_with_the_offloads_that_pay() {
    // Table 7, the three off-chip rows; section 5: speedups of 9 %, 1.6 % and 9.6 %, latency reductions of 9 %,
    // 1.4 % and 9.2 %.
    let rows = [
        (Threading::Sync, 0.0, 9_629.0, (0, 9.0), (0, 9.0)),
        (Threading::SyncOs, 5_750.0, 3_986.0, (1, 1.6), (1, 1.4)),
        (Threading::Async, 0.0, 9_769.0, (1, 9.6), (1, 9.2)),
    ];
    for (threading, o1, n, (digits, percent), (latency_digits, latency_percent)) in rows {
        let selection = selected(threading, o1);
        let p = selection.parameters;
        assert!((p.values().n - n).abs() < 1e-6, "{threading}: {}", p.values().n);
        // Only the offloads that pay count, so α shrinks with n. Table 7 has the same α of 0.15 in all rows instead.
        assert!((p.values().alpha - 0.15 * n / 15_008.0).abs() < 1e-12, "{threading}");
        let design = off_chip(threading);
        assert_eq!(printed(speedup(&p, &design), digits), percent, "{threading}");
        let latency = latency_reduction(&p, &design).expect("has one");
        assert_eq!(printed(latency, latency_digits), latency_percent, "{threading}");
    }
}

#[test]
fn one_thread_switch_gives_another_sync_os_latency() {
    let p = selected(Threading::SyncOs, 5_750.0).parameters;
    let design = off_chip(Threading::SyncOs).with_variant(Variant::Equations);
    let latency = latency_reduction(&p, &design).expect("has one");
    assert_eq!(printed(latency, 1), 2.5);
}

#[test]
fn break_even_of_425() {
    // Section 5: "From Table 7 and eqn. (2), we find that a Sync offload improves speedup when g >= 425 B".
    let smallest = |threading, o1, cycles_per_byte| {
        let kernel = Kernel::new(cycles_per_byte, 1.0).expect("valid");
        let p = compression(2_300.0, o1, 27.0);
        break_even(&p, &off_chip(threading), Objective::Speedup, &kernel)
    };
    let sync = |cycles_per_byte| smallest(Threading::Sync, 0.0, cycles_per_byte).smallest_bytes();
    assert_eq!(sync(CYCLES_PER_BYTE), Some(425));
    // Equation (2) gives 425 B for every C_b from 2300 * 27/26 / 425 to 2300 * 27/26 / 424.
    assert_eq!([5.6198, 5.6200, 5.6331, 5.6332].map(sync), [426, 425, 425, 424].map(Some));
    // The same C_b also gives the other two thresholds of table 7's n: 409 bytes by (7) and 2455 bytes by (4).
    let threshold = |threading, o1| match smallest(threading, o1, CYCLES_PER_BYTE) {
        BreakEven::Above(bytes) => bytes.floor(),
        BreakEven::Never => f64::INFINITY,
    };
    assert_eq!(threshold(Threading::Async, 0.0), 409.0);
    assert_eq!(threshold(Threading::SyncOs, 5_750.0), 2_455.0);
}

#[test]
fn on_chip_pays_from_one_byte() {
    // Section 5: with L = 0 "an offload improves speedup when g >= 1 B"; section 4 says the same of AES-NI.
    let design = Design::new(Threading::Sync, Strategy::OnChip);
    let kernel = Kernel::new(CYCLES_PER_BYTE, 1.0).expect("valid");
    let p = compression(0.0, 0.0, 5.0);
    let from = break_even(&p, &design, Objective::Speedup, &kernel);
    assert_eq!(from.smallest_bytes(), Some(1));
}
