//! Computes LogCA (Altaf and Wood, ISCA 2017), which \[Accelerometer\] extends. It models one synchronous offload of g
//! bytes for which the host waits. Its letters are L for latency, o for overhead, g for granularity, C for
//! computational index, and A for peak acceleration.

use crate::break_even::{BreakEven, Kernel};
use crate::parameters::{BadParameter, Symbol};

/// How the latency of the interface grows with the granularity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Latency {
    /// The latency (L) is this many cycles per offload of any size, because the data is pipelined or is not moved.
    PerOffload(f64),
    /// The latency (L) is this many cycles per byte.
    PerByte(f64),
}

/// A host, an accelerator and the interface between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogCa {
    latency: Latency,
    overhead_cycles: f64,
    kernel: Kernel,
    acceleration: f64,
}

impl LogCa {
    /// Makes a model after checking its numbers. The latency (L) and the overhead (o) are at least 0 (cycles), and the
    /// peak acceleration (A) is at least 1. `kernel` has the computational index (C) and the exponent of the size (β).
    pub fn new(
        latency: Latency,
        overhead_cycles: f64,
        kernel: Kernel,
        acceleration: f64,
    ) -> Result<Self, BadParameter> {
        let (Latency::PerOffload(cycles) | Latency::PerByte(cycles)) = latency;
        Symbol::L.check(cycles)?;
        let overhead = Symbol::O0.check(overhead_cycles);
        overhead.map_err(|error| BadParameter { field: "o", ..error })?;
        Symbol::A.check(acceleration)?;
        Ok(Self { latency, overhead_cycles, kernel, acceleration })
    }

    /// Returns the cycles on the host alone: `T0 = C g^β`. Here g is `bytes`, and C and β are the factor and the
    /// exponent of the kernel's cost.
    pub fn host_cycles(&self, bytes: f64) -> f64 {
        self.kernel.cycles(bytes)
    }

    /// Returns the cycles with the accelerator: `T1 = o + L(g) + C g^β / A`. Here g is `bytes`, o is the overhead, L(g)
    /// is the latency, `C g^β` is the cycles on the host alone, and A is the peak acceleration.
    pub fn accelerated_cycles(&self, bytes: f64) -> f64 {
        let latency = match self.latency {
            Latency::PerOffload(cycles) => cycles,
            Latency::PerByte(cycles) => cycles * bytes,
        };
        self.overhead_cycles + latency + self.host_cycles(bytes) / self.acceleration
    }

    /// Returns the speedup at `bytes`: the cycles on the host alone divided by the cycles with the accelerator
    /// (`T0 / T1`).
    pub fn speedup(&self, bytes: f64) -> f64 {
        self.host_cycles(bytes) / self.accelerated_cycles(bytes)
    }

    /// Returns g_1: the smallest granularity (bytes) above which the speedup exceeds 1.
    pub fn break_even(&self) -> BreakEven {
        self.granularity_of(1.0)
    }

    /// Returns g_(A/2): the granularity (bytes) above which the speedup exceeds half of the peak acceleration A. If A
    /// is infinite, no granularity does.
    pub fn half_acceleration(&self) -> BreakEven {
        self.granularity_of(self.acceleration / 2.0)
    }

    /// Returns the smallest granularity g (bytes) above which the speedup exceeds `target`. At this granularity,
    /// `C g^β (1/target - 1/A) = o + L(g)`. Here `C g^β` is the cycles on the host alone, A is the peak acceleration, o
    /// is the overhead, and L(g) is the latency.
    pub fn granularity_of(&self, target: f64) -> BreakEven {
        let share = 1.0 / target - 1.0 / self.acceleration;
        // A parameter is not a number, the target is not below A, or the target is not above 0.
        if target.is_nan() || share.is_nan() || share <= 0.0 || target <= 0.0 {
            return BreakEven::Never;
        }
        match self.latency {
            Latency::PerOffload(cycles) => {
                BreakEven::Above(self.kernel.bytes((self.overhead_cycles + cycles) / share))
            }
            Latency::PerByte(cycles) => self.crossing(share, cycles),
        }
    }

    /// Returns the granularity g (bytes) from which `C share g^β` exceeds `o + L g`. Here `C g^β` is the cycles on the
    /// host alone, o is the overhead, and L is `latency_cycles` per byte. With β below 1 there may be none, or the gain
    /// may end again at a larger granularity.
    fn crossing(&self, share: f64, latency_cycles: f64) -> BreakEven {
        let gain = |bytes: f64| {
            share * self.kernel.cycles(bytes) - self.overhead_cycles - latency_cycles * bytes
        };
        let beta = self.kernel.beta();
        let factor = share * self.kernel.cycles_per_byte();
        if latency_cycles == 0.0 || beta == 1.0 {
            let slope = factor - latency_cycles * f64::from(u8::from(beta == 1.0));
            let bytes = (self.overhead_cycles / slope).powf(1.0 / beta);
            return if slope > 0.0 { BreakEven::Above(bytes) } else { BreakEven::Never };
        }
        // The derivative is 0 here, where the gain is highest for β < 1 and lowest for β > 1.
        let turn = (latency_cycles / (factor * beta)).powf(1.0 / (beta - 1.0));
        let (mut low, mut high) = if beta < 1.0 { (0.0, turn) } else { (turn, turn.max(1.0)) };
        while gain(high) <= 0.0 {
            if beta < 1.0 || high > 1e300 {
                return BreakEven::Never;
            }
            high *= 2.0;
        }
        // After 200 halvings the bounds are neighbouring numbers, because 2^-200 of any range is negligible.
        for _ in 0..200 {
            let middle = 0.5 * (low + high);
            if gain(middle) > 0.0 { high = middle } else { low = middle }
        }
        BreakEven::Above(high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logca(latency: Latency, beta: f64) -> LogCa {
        let kernel = Kernel::new(10.0, beta).expect("valid");
        LogCa::new(latency, 900.0, kernel, 10.0).expect("valid")
    }

    #[test]
    fn fixed_latency_has_closed_forms() {
        let linear = logca(Latency::PerOffload(100.0), 1.0);
        // 10 g (1 - 1/10) = 1000, and g_(A/2) = A (o + L) / C.
        assert!((linear.break_even().bytes() - 1_000.0 / 9.0).abs() < 1e-9);
        assert!((linear.half_acceleration().bytes() - 1_000.0).abs() < 1e-9);
        assert!((linear.speedup(1_000.0) - 5.0).abs() < 1e-12);
        assert!(linear.speedup(1e12) < 10.0);
    }

    #[test]
    fn at_the_granularity_the_speedup_is_met() {
        for beta in [0.7, 1.0, 1.5] {
            for latency in [Latency::PerOffload(50.0), Latency::PerByte(0.001)] {
                let model = logca(latency, beta);
                for target in [1.0, 2.0, 5.0] {
                    let BreakEven::Above(bytes) = model.granularity_of(target) else {
                        panic!("{beta} {latency:?} {target}");
                    };
                    let reached = model.speedup(bytes);
                    assert!((reached - target).abs() < 1e-6, "{beta} {latency:?}: {reached}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_reached_never_is() {
        assert_eq!(logca(Latency::PerByte(9.1), 1.0).break_even(), BreakEven::Never);
        assert_eq!(logca(Latency::PerByte(5.0), 0.5).break_even(), BreakEven::Never);
        assert_eq!(logca(Latency::PerOffload(1.0), 1.0).granularity_of(10.0), BreakEven::Never);
        assert_eq!(logca(Latency::PerOffload(1.0), 1.0).granularity_of(f64::NAN), BreakEven::Never);
    }

    #[test]
    fn it_is_accelerometers_equation_2_for_one_offload() {
        let kernel = Kernel::new(5.62, 1.0).expect("valid");
        let model = LogCa::new(Latency::PerOffload(2_300.0), 0.0, kernel, 27.0).expect("valid");
        assert_eq!(model.break_even().smallest_bytes(), Some(425));
    }

    #[test]
    fn bad_parameters_are_refused() {
        let kernel = Kernel::new(1.0, 1.0).expect("valid");
        let refused = |latency, overhead, acceleration| {
            LogCa::new(latency, overhead, kernel, acceleration).expect_err("refused").field
        };
        assert_eq!(refused(Latency::PerByte(-1.0), 0.0, 2.0), "L");
        assert_eq!(refused(Latency::PerByte(1.0), f64::NAN, 2.0), "o");
        assert_eq!(refused(Latency::PerByte(1.0), 0.0, 0.5), "A");
    }
}
