//! Selects the offloads that pay, which determine the number of offloads (n) and the fraction of cycles in the kernel
//! (α). \[Accelerometer\] offloads only granularities that improve speedup (section 4). Its section 5 lets α shrink
//! with n without saying so.

use crate::break_even::{BreakEven, Kernel, Objective, break_even, check_beta};
use crate::design::Design;
use crate::parameters::{BadParameter, Parameters, Symbol};
use crate::sizes::SizeHistogram;

/// The rule by which the fraction of cycles in the kernel (α) shrinks when only some calls are offloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Counted {
    /// The fraction of cycles in the kernel (α) shrinks with the work of the offloaded calls. The work of a call of g
    /// bytes is g^β, where β is the kernel's complexity, so large calls take more of the host cycles.
    #[default]
    ByWork,
    /// The fraction of cycles in the kernel (α) shrinks with the number of offloaded calls: it is α n / n_all, where n
    /// of n_all calls are offloaded, as \[Accelerometer\] section 5 computes.
    ByCalls,
}

/// The offloads that pay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Selection {
    /// The cost of the kernel that the selection used.
    pub kernel: Kernel,
    /// The size from which offloads pay.
    pub break_even: BreakEven,
    /// The parameters. The number of offloads (n) and the fraction of cycles in the kernel (α) count only the offloads
    /// that pay.
    pub parameters: Parameters,
    /// The offloads that pay as a fraction of all calls.
    pub calls_share: f64,
    /// The fraction of the kernel's cycles in the offloads that pay. It does not depend on `Counted`.
    pub work_share: f64,
}

/// Selects the sizes that pay. In `parameters`, the number of offloads (n) and the fraction of cycles in the kernel (α)
/// are those of all calls. The kernel's cycles per byte (C_b) are `cycles_per_byte`. If that is none, they are α C / (n
/// mean), where C is the host cycles and the mean is that of `size^beta` over all calls.
pub fn select(
    parameters: &Parameters,
    design: &Design,
    objective: Objective,
    sizes: &SizeHistogram,
    (beta, counted): (f64, Counted),
    cycles_per_byte: Option<f64>,
) -> Result<Selection, BadParameter> {
    check_beta(beta)?;
    let all = parameters.values();
    let derived = || all.alpha * all.c / (all.n * sizes.mean_work(beta));
    let cycles_per_byte = cycles_per_byte.unwrap_or_else(derived);
    // With an α or n of 0 there is nothing to offload and C_b is undefined.
    let nothing = all.alpha == 0.0 || all.n == 0.0;
    let usable = if nothing { Symbol::Cb.range().0 } else { cycles_per_byte };
    let kernel = Kernel::new(usable, beta)?;
    let from =
        if nothing { BreakEven::Never } else { break_even(parameters, design, objective, &kernel) };
    // Sizes are whole bytes. As in [Accelerometer], they count from the smallest one that pays.
    let smallest = from.smallest_bytes().map_or(f64::INFINITY, |bytes| bytes as f64);
    let calls_share = sizes.share_at_least(smallest);
    let work_share = sizes.work_share_at_least(smallest, beta);
    let kept = match counted {
        Counted::ByWork => work_share,
        Counted::ByCalls => calls_share,
    };
    let parameters = parameters.with_selected(all.n * calls_share, all.alpha * kept);
    Ok(Selection { kernel, break_even: from, parameters, calls_share, work_share })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::{Strategy, Threading};
    use crate::parameters::Values;

    fn parameters(l: f64) -> Parameters {
        let (c, alpha, n) = (1e6, 0.22, 40.0);
        Parameters::new(Values { c, alpha, n, o0: 0.0, q: 0.0, l, o1: 0.0, a: 10.0 })
            .expect("valid")
    }

    fn selected(l: f64, counted: Counted) -> Selection {
        // 20 calls of 100 B and 20 of 1000 B take 220,000 cycles for 22,000 B, which is 10 cycles per byte.
        let sizes = SizeHistogram::from_sizes([(100, 1.0), (1_000, 1.0)]).expect("valid");
        let design = Design::new(Threading::Async, Strategy::OffChip);
        let objective = Objective::Speedup;
        select(&parameters(l), &design, objective, &sizes, (1.0, counted), None).expect("selects")
    }

    #[test]
    fn alpha_shrinks_by_work_or_by_calls() {
        let by_work = selected(2_000.0, Counted::ByWork);
        assert!((by_work.kernel.cycles_per_byte() - 10.0).abs() < 1e-9);
        assert_eq!(by_work.parameters.values().n, 20.0);
        assert!((by_work.parameters.values().alpha - 0.2).abs() < 1e-12);
        let by_calls = selected(2_000.0, Counted::ByCalls);
        assert!((by_calls.parameters.values().alpha - 0.11).abs() < 1e-12);
        assert_eq!(by_calls.work_share, by_work.work_share);
    }

    #[test]
    fn cheap_offloads_take_all_and_dear_ones_none() {
        let all = selected(0.0, Counted::ByWork);
        assert_eq!((all.calls_share, all.parameters), (1.0, parameters(0.0)));
        let none = selected(1e5, Counted::ByWork);
        assert_eq!((none.parameters.values().n, none.parameters.values().alpha), (0.0, 0.0));
    }

    #[test]
    fn no_kernel_leaves_nothing_to_select() {
        let sizes = SizeHistogram::from_sizes([(100, 1.0)]).expect("valid");
        let values = Values { alpha: 0.0, ..*parameters(1.0).values() };
        let parameters = Parameters::new(values).expect("valid");
        let design = Design::new(Threading::Sync, Strategy::OffChip);
        let rule = (1.0, Counted::ByWork);
        let none = select(&parameters, &design, Objective::Speedup, &sizes, rule, None);
        assert_eq!(none.expect("selects").parameters.values().n, 0.0);
    }
}
