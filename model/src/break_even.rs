//! Computes whether one offload pays, and from which granularity on. It uses equations (2), (4) and (7) of
//! \[Accelerometer\] and their latency forms. An input of g bytes costs the kernel cycles in proportion to g^β.

use crate::design::{Design, Threading, Variant};
use crate::equations::Switches;
use crate::parameters::{BadParameter, Parameters, Symbol};
use crate::queueing::Queueing;

/// The quantity that an offload should improve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Objective {
    /// The number of host cycles, which determines the throughput. \[Accelerometer\] uses this objective.
    #[default]
    Speedup,
    /// The latency of a request.
    Latency,
}

/// The cost of a kernel on the host. An input of g bytes takes `C_b g^β` cycles. The factor C_b has the unit cycles per
/// byte to the power β. The exponent β is the complexity of the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kernel {
    cycles_per_byte: f64,
    beta: f64,
}

impl Kernel {
    /// Makes a kernel that takes `cycles_per_byte * g^beta` host cycles for g bytes. In \[Accelerometer\] the factor is
    /// C_b and the exponent β. If `beta` is 1, the cycles are proportional to the size.
    pub fn new(cycles_per_byte: f64, beta: f64) -> Result<Self, BadParameter> {
        Symbol::Cb.check(cycles_per_byte)?;
        check_beta(beta)?;
        Ok(Self { cycles_per_byte, beta })
    }

    /// Returns the factor C_b of the kernel's cost, which is `C_b g^β` host cycles for g bytes. Its unit is cycles per
    /// byte to the power β.
    pub fn cycles_per_byte(&self) -> f64 {
        self.cycles_per_byte
    }

    /// Returns the exponent β of the kernel's cost, which is proportional to g^β for g bytes.
    pub fn beta(&self) -> f64 {
        self.beta
    }

    /// Returns the host cycles of the kernel for an input of `bytes` bytes.
    pub fn cycles(&self, bytes: f64) -> f64 {
        self.cycles_per_byte * bytes.powf(self.beta)
    }

    /// Returns the size (bytes) at which the kernel takes `cycles`.
    pub fn bytes(&self, cycles: f64) -> f64 {
        (cycles / self.cycles_per_byte).powf(1.0 / self.beta)
    }
}

pub(crate) fn check_beta(beta: f64) -> Result<(), BadParameter> {
    let valid = (0.01..=10.0).contains(&beta);
    if valid { Ok(()) } else { Err(BadParameter::new("beta", beta, "a number from 0.01 to 10")) }
}

/// The sizes from which offloads pay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BreakEven {
    /// An offload pays for every size above this (bytes).
    Above(f64),
    /// An offload pays for no size.
    Never,
}

impl BreakEven {
    /// Returns the smallest whole size that pays (bytes), which is at least 1, or none if no size pays.
    pub fn smallest_bytes(&self) -> Option<u64> {
        match self {
            BreakEven::Above(bytes) if *bytes < u64::MAX as f64 => Some(bytes.floor() as u64 + 1),
            BreakEven::Above(_) | BreakEven::Never => None,
        }
    }

    /// Returns the break-even size (bytes), which is infinite if no size pays.
    pub fn bytes(&self) -> f64 {
        match self {
            BreakEven::Above(bytes) => *bytes,
            BreakEven::Never => f64::INFINITY,
        }
    }
}

/// Computes equation (2): the cycles that an offload of `kernel_cycles` saves under Sync. The result is
/// `C_b g - (C_b g / A + o0 + L + Q)`. Here `C_b g` is `kernel_cycles`, A is the peak speedup of the accelerator, and
/// o0, L and Q are the cycles of an offload's setup, transfer and queueing. The offload pays if the result is above 0.
/// The latency gain of most other designs is this result minus the cycles of their thread switches.
pub fn equation_2(parameters: &Parameters, kernel_cycles: f64) -> f64 {
    let on_accelerator = kernel_cycles / parameters.values().a;
    kernel_cycles - (on_accelerator + parameters.offload_cycles())
}

/// Computes equation (4): the cycles that an offload of `kernel_cycles` saves under Sync-OS. The result is
/// `C_b g - (o0 + L + Q + 2 o1)`. Here `C_b g` is `kernel_cycles`, o0, L and Q are the cycles of an offload's setup,
/// transfer and queueing, and o1 is the cycles of a thread switch. With one switch instead of two, the equation holds
/// for Async with a distinct response thread.
pub fn equation_4(parameters: &Parameters, kernel_cycles: f64, switches: Switches) -> f64 {
    let switching = switches.count() * parameters.values().o1;
    kernel_cycles - (parameters.offload_cycles() + switching)
}

/// Computes equation (7): the cycles that an offload of `kernel_cycles` saves under Async. The result is
/// `C_b g - (o0 + L + Q)`. Here `C_b g` is `kernel_cycles`, and o0, L and Q are the cycles of an offload's setup,
/// transfer and queueing.
pub fn equation_7(parameters: &Parameters, kernel_cycles: f64) -> f64 {
    kernel_cycles - parameters.offload_cycles()
}

/// Returns the cycles that one offload of `kernel_cycles` saves under a design. The offload pays if the result is above
/// 0.
pub fn offload_gain(
    parameters: &Parameters,
    design: &Design,
    objective: Objective,
    kernel_cycles: f64,
) -> f64 {
    let host = if design.awaits_transfer { *parameters } else { parameters.without_transfer() };
    let remote_response_unused = design.threading == Threading::AsyncNoResponse
        && design.strategy == crate::Strategy::Remote;
    let one_switch = Switches::One.count() * parameters.values().o1;
    match (objective, design.threading) {
        (_, Threading::Sync) => equation_2(parameters, kernel_cycles),
        (Objective::Speedup, Threading::SyncOs) => {
            equation_4(&host, kernel_cycles, sync_os_switches(design.variant))
        }
        (Objective::Speedup, Threading::AsyncDistinct) => {
            equation_4(&host, kernel_cycles, Switches::One)
        }
        (Objective::Speedup, Threading::Async | Threading::AsyncNoResponse) => {
            equation_7(&host, kernel_cycles)
        }
        (Objective::Latency, Threading::AsyncNoResponse) if remote_response_unused => {
            equation_7(&host, kernel_cycles)
        }
        (Objective::Latency, Threading::Async | Threading::AsyncNoResponse) => {
            equation_2(parameters, kernel_cycles)
        }
        (Objective::Latency, Threading::SyncOs) if design.variant == Variant::SectionFive => {
            equation_2(parameters, kernel_cycles) - 2.0 * one_switch
        }
        (Objective::Latency, Threading::SyncOs | Threading::AsyncDistinct) => {
            equation_2(parameters, kernel_cycles) - one_switch
        }
    }
}

const fn sync_os_switches(variant: Variant) -> Switches {
    match variant {
        Variant::Equations | Variant::SectionFive => Switches::Two,
        Variant::PublicProgram => Switches::One,
    }
}

/// Returns the sizes from which an offload pays under a design, by solving equation (2), (4) or (7) for the size. The
/// gain is linear in the kernel's cycles, so two points of the line determine where the gain crosses 0.
pub fn break_even(
    parameters: &Parameters,
    design: &Design,
    objective: Objective,
    kernel: &Kernel,
) -> BreakEven {
    let overhead = -offload_gain(parameters, design, objective, 0.0);
    let saved_per_cycle = saved_per_cycle(parameters, design, objective);
    if saved_per_cycle <= 0.0 {
        return BreakEven::Never;
    }
    BreakEven::Above(kernel.bytes(overhead / saved_per_cycle))
}

/// Returns the cycles that an offload saves per cycle of the kernel, without overheads. The result is 1 if the
/// accelerator's time does not count, otherwise 1 - 1/A, where A is the accelerator's peak speedup.
fn saved_per_cycle(parameters: &Parameters, design: &Design, objective: Objective) -> f64 {
    // Without overheads the gain is the slope times the cycles, so no digits cancel.
    let free = crate::Values { o0: 0.0, q: 0.0, l: 0.0, o1: 0.0, ..*parameters.values() };
    Parameters::new(free).map_or(0.0, |free| offload_gain(&free, design, objective, 1.0))
}

/// Returns the fraction of offloads of `bytes` that pay if each offload has its own queueing time instead of the mean.
pub fn paying_share(
    parameters: &Parameters,
    design: &Design,
    objective: Objective,
    kernel: &Kernel,
    queueing: &Queueing,
    bytes: f64,
) -> f64 {
    let idle = crate::Values { q: 0.0, ..*parameters.values() };
    let gain = Parameters::new(idle)
        .map_or(0.0, |idle| offload_gain(&idle, design, objective, kernel.cycles(bytes)));
    if design.awaits_transfer || design.threading == Threading::Sync {
        queueing.share_below(gain)
    } else {
        f64::from(u8::from(gain > 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::Strategy;
    use crate::parameters::Values;

    fn parameters(a: f64) -> Parameters {
        let (c, alpha, n) = (1e9, 0.1, 100.0);
        Parameters::new(Values { c, alpha, n, o0: 10.0, q: 20.0, l: 30.0, o1: 100.0, a })
            .expect("valid")
    }

    #[test]
    fn each_design_has_its_break_even() {
        let kernel = Kernel::new(2.0, 1.0).expect("valid");
        let expected = [
            (Threading::Sync, 60.0, 60.0),
            (Threading::SyncOs, 130.0, 160.0),
            (Threading::Async, 30.0, 60.0),
            (Threading::AsyncDistinct, 80.0, 160.0),
            (Threading::AsyncNoResponse, 30.0, 60.0),
        ];
        for (threading, host, request) in expected {
            let design = Design::new(threading, Strategy::OffChip);
            let at = |objective| break_even(&parameters(2.0), &design, objective, &kernel).bytes();
            assert!((at(Objective::Speedup) - host).abs() < 1e-9, "{threading}");
            assert!((at(Objective::Latency) - request).abs() < 1e-9, "{threading}");
        }
    }

    #[test]
    fn complexity_moves_the_break_even() {
        let design = Design::new(Threading::Async, Strategy::OffChip);
        for (beta, bytes) in [(0.5, 900.0), (1.0, 30.0), (2.0, 30.0f64.sqrt())] {
            let kernel = Kernel::new(2.0, beta).expect("valid");
            let found = break_even(&parameters(1.0), &design, Objective::Speedup, &kernel).bytes();
            assert!((found - bytes).abs() < 1e-9 * bytes, "{beta}: {found}");
        }
    }

    #[test]
    fn an_accelerator_as_slow_as_the_host_never_pays_synchronously() {
        let kernel = Kernel::new(2.0, 1.0).expect("valid");
        let design = Design::new(Threading::Sync, Strategy::OffChip);
        let never = break_even(&parameters(1.0), &design, Objective::Speedup, &kernel);
        assert_eq!(never, BreakEven::Never);
        assert_eq!(never.smallest_bytes(), None);
    }

    #[test]
    fn sizes_are_strictly_above_the_break_even() {
        assert_eq!(BreakEven::Above(0.0).smallest_bytes(), Some(1));
        assert_eq!(BreakEven::Above(424.99).smallest_bytes(), Some(425));
        assert_eq!(BreakEven::Above(425.0).smallest_bytes(), Some(426));
        assert_eq!(BreakEven::Above(1e30).smallest_bytes(), None);
    }

    #[test]
    fn each_offload_meets_its_own_queueing() {
        let kernel = Kernel::new(2.0, 1.0).expect("valid");
        let queueing = Queueing::from_offloads(vec![0.0, 10.0, 20.0, 50.0]).expect("valid");
        let design = Design::new(Threading::Async, Strategy::OffChip);
        let share = |bytes| {
            let objective = Objective::Speedup;
            paying_share(&parameters(2.0), &design, objective, &kernel, &queueing, bytes)
        };
        // An offload pays if 2 g is above 40 + Q.
        assert_eq!([20.0, 21.0, 28.0, 45.0, 46.0].map(share), [0.0, 0.25, 0.5, 0.75, 1.0]);
    }

    #[test]
    fn bad_kernels_are_refused() {
        assert!(Kernel::new(0.0, 1.0).is_err());
        assert!(Kernel::new(1.0, f64::NAN).is_err());
        assert!(Kernel::new(1.0, 0.0).is_err());
    }
}
