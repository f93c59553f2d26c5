//! Equations (1), (3), (5), (6) and (8) of \[Accelerometer\] section 3, one function each, and the choice of the
//! equation for a design. Equations (2), (4) and (7) tell when one offload pays. They are in the module `break_even`.
//!
//! Each result is a ratio: C divided by the remaining cycles (C_S for speedup, C_L for latency reduction). It is above
//! 1 if acceleration helps, and infinite if no cycles remain.

pub use crate::break_even::{equation_2, equation_4, equation_7};
use crate::design::{Design, Strategy, Threading, Variant};
use crate::parameters::Parameters;
use crate::program::PublicProgram;

/// The number of thread switches that an offload costs, each of o1 cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switches {
    /// A separate thread receives the response.
    One,
    /// The core switches away from the waiting thread and back to it.
    Two,
}

impl Switches {
    pub(crate) const fn count(self) -> f64 {
        match self {
            Switches::One => 1.0,
            Switches::Two => 2.0,
        }
    }
}

/// Computes equation (1), the speedup and latency reduction of Sync: `1 / ((1-α) + α/A + (n/C)(o0 + L + Q))`.
/// [`Symbol`](crate::Symbol) describes the symbols.
pub fn equation_1(parameters: &Parameters) -> f64 {
    let p = parameters.values();
    1.0 / ((1.0 - p.alpha) + p.alpha / p.a + p.n / p.c * parameters.offload_cycles())
}

/// Computes equation (3), the speedup of Sync-OS: `1 / ((1-α) + (n/C)(o0 + L + Q + 2 o1))`. [`Symbol`](crate::Symbol)
/// describes the symbols. With one switch instead of two, it is the speedup of Async with a distinct response thread.
pub fn equation_3(parameters: &Parameters, switches: Switches) -> f64 {
    let p = parameters.values();
    let offload_cycles = parameters.offload_cycles() + switches.count() * p.o1;
    1.0 / ((1.0 - p.alpha) + p.n / p.c * offload_cycles)
}

/// Computes equation (5), the latency reduction of Sync-OS and of Async with a distinct response thread:
/// `1 / ((1-α) + α/A + (n/C)(o0 + L + Q + o1))`. [`Symbol`](crate::Symbol) describes the symbols. \[Accelerometer\]
/// section 5 uses two switches here.
pub fn equation_5(parameters: &Parameters, switches: Switches) -> f64 {
    let p = parameters.values();
    let offload_cycles = parameters.offload_cycles() + switches.count() * p.o1;
    1.0 / ((1.0 - p.alpha) + p.alpha / p.a + p.n / p.c * offload_cycles)
}

/// Computes equation (6), the speedup of Async with and without a response: `1 / ((1-α) + (n/C)(o0 + L + Q))`.
/// [`Symbol`](crate::Symbol) describes the symbols. The result is also the latency reduction if the response of a
/// remote accelerator is not awaited.
pub fn equation_6(parameters: &Parameters) -> f64 {
    let p = parameters.values();
    1.0 / ((1.0 - p.alpha) + p.n / p.c * parameters.offload_cycles())
}

/// Computes equation (8), the latency reduction of Async: `1 / ((1-α) + α/A + (n/C)(o0 + L + Q))`.
/// [`Symbol`](crate::Symbol) describes the symbols.
pub fn equation_8(parameters: &Parameters) -> f64 {
    equation_1(parameters)
}

/// Returns the factor by which the throughput of the host rises. It is C / C_S: the host cycles divided by the host
/// cycles that remain with acceleration.
pub fn speedup(parameters: &Parameters, design: &Design) -> f64 {
    if design.variant == Variant::PublicProgram {
        return f64::from(PublicProgram::from(parameters).speedup(design.threading));
    }
    let host = host_parameters(parameters, design);
    match design.threading {
        Threading::Sync => equation_1(parameters),
        Threading::SyncOs => equation_3(&host, Switches::Two),
        Threading::AsyncDistinct => equation_3(&host, Switches::One),
        Threading::Async | Threading::AsyncNoResponse => equation_6(&host),
    }
}

/// Returns the factor by which the latency of a request falls. It is C / C_L: the host cycles divided by the cycles of
/// latency that remain with acceleration. Below 1 the latency rises. Returns none for [`Variant::PublicProgram`], which
/// has no such formula.
pub fn latency_reduction(parameters: &Parameters, design: &Design) -> Option<f64> {
    let switches = match design.variant {
        Variant::Equations => Switches::One,
        Variant::SectionFive => Switches::Two,
        Variant::PublicProgram => return None,
    };
    Some(match (design.threading, design.strategy) {
        (Threading::Sync, _) => equation_1(parameters),
        (Threading::SyncOs, _) => equation_5(parameters, switches),
        (Threading::AsyncDistinct, _) => equation_5(parameters, Switches::One),
        (Threading::AsyncNoResponse, Strategy::Remote) => {
            equation_6(&host_parameters(parameters, design))
        }
        (Threading::Async | Threading::AsyncNoResponse, _) => equation_8(parameters),
    })
}

/// Returns the parameters for the host's equations. The cycles of transfer and queueing (L + Q) are 0 unless the host
/// awaits the transfer.
fn host_parameters(parameters: &Parameters, design: &Design) -> Parameters {
    if design.awaits_transfer { *parameters } else { parameters.without_transfer() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::Values;

    /// Returns parameters for which every term of the equations is a round fraction of the host cycles (C).
    fn parameters() -> Parameters {
        let values =
            Values { c: 1_000.0, alpha: 0.4, n: 2.0, o0: 10.0, q: 5.0, l: 20.0, o1: 25.0, a: 4.0 };
        Parameters::new(values).expect("valid")
    }

    fn left(ratio: f64) -> f64 {
        (1_000.0 / ratio).round()
    }

    #[test]
    fn each_equation_leaves_the_cycles_it_should() {
        let p = parameters();
        assert_eq!(left(equation_1(&p)), 600.0 + 100.0 + 70.0);
        assert_eq!(left(equation_3(&p, Switches::Two)), 600.0 + 70.0 + 100.0);
        assert_eq!(left(equation_3(&p, Switches::One)), 600.0 + 70.0 + 50.0);
        assert_eq!(left(equation_5(&p, Switches::One)), 600.0 + 100.0 + 70.0 + 50.0);
        assert_eq!(left(equation_6(&p)), 600.0 + 70.0);
        assert_eq!(left(equation_8(&p)), 600.0 + 100.0 + 70.0);
    }

    #[test]
    fn each_design_has_its_equations() {
        let p = parameters();
        // The host cycles left (off-chip, remote), then the request cycles left (off-chip, remote).
        let expected = [
            (Threading::Sync, [770.0, 770.0], [770.0, 770.0]),
            (Threading::SyncOs, [770.0, 720.0], [820.0, 820.0]),
            (Threading::Async, [670.0, 620.0], [770.0, 770.0]),
            (Threading::AsyncDistinct, [720.0, 670.0], [820.0, 820.0]),
            (Threading::AsyncNoResponse, [670.0, 620.0], [770.0, 620.0]),
        ];
        for (threading, host, request) in expected {
            for (index, strategy) in [Strategy::OffChip, Strategy::Remote].into_iter().enumerate() {
                let design = Design::new(threading, strategy);
                assert_eq!(left(speedup(&p, &design)), host[index], "{design:?}");
                let latency = latency_reduction(&p, &design).expect("has one");
                assert_eq!(left(latency), request[index], "{design:?}");
            }
        }
    }

    #[test]
    fn the_readings_differ_in_sync_os_alone() {
        let p = parameters();
        let printed = Design::new(Threading::SyncOs, Strategy::OffChip);
        let applied = printed.with_variant(Variant::SectionFive);
        let program = printed.with_variant(Variant::PublicProgram);
        assert_eq!(latency_reduction(&p, &applied).map(left), Some(870.0));
        assert_eq!(left(speedup(&p, &applied)), 770.0);
        assert_eq!(left(speedup(&p, &program)), 720.0);
        assert_eq!(latency_reduction(&p, &program), None);
    }
}
