//! Repeats the arithmetic of the public Accelerometer program: whole cycles, single precision, one thread
//! switch in Sync-OS, and no latency. The results have the same digits as those of the program. The module
//! does not read the program's input file.

use crate::design::Threading;
use crate::parameters::Parameters;

/// The numbers of the public program. The cycles and the number of offloads (n) are whole numbers. The fraction of
/// cycles in the kernel (α) and the peak speedup (A) have single precision.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct PublicProgram {
    pub c: i64,
    pub alpha: f32,
    pub n: i64,
    pub o0: i64,
    pub q: i64,
    pub l: i64,
    pub o1: i64,
    pub a: f32,
}

impl From<&Parameters> for PublicProgram {
    /// Converts the parameters. Fractions of cycles are cut off, as in the program.
    fn from(parameters: &Parameters) -> Self {
        let p = parameters.values();
        Self {
            c: p.c as i64,
            alpha: p.alpha as f32,
            n: p.n as i64,
            o0: p.o0 as i64,
            q: p.q as i64,
            l: p.l as i64,
            o1: p.o1 as i64,
            a: p.a as f32,
        }
    }
}

impl PublicProgram {
    /// Returns the speedup that the program computes. Designs that the program does not know get the result of Async,
    /// which equals (6). Call [`crate::Design::check`] first.
    pub fn speedup(&self, threading: Threading) -> f32 {
        let rest = 1.0 - self.alpha;
        let rate = self.n as f32 / self.c as f32;
        let cycles = self.o0 as f32 + self.l as f32 + self.q as f32;
        let left = match threading {
            Threading::Sync => rest + self.alpha / self.a + rate * cycles,
            Threading::SyncOs => rest + rate * (cycles + self.o1 as f32),
            Threading::Async | Threading::AsyncDistinct | Threading::AsyncNoResponse => {
                rest + rate * cycles
            }
        };
        (1.0 / f64::from(left)) as f32
    }

    /// Returns the number that the program prints, which is the estimated speedup (%).
    pub fn percent(&self, threading: Threading) -> f64 {
        (f64::from(self.speedup(threading)) - 1.0) * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_computes_what_the_program_prints() {
        let base = PublicProgram {
            c: 2_000_000_000,
            alpha: 0.165844,
            n: 298_951,
            o0: 10,
            q: 0,
            l: 3,
            o1: 0,
            a: 6.0,
        };
        assert_eq!(format!("{:.4}", base.percent(Threading::Sync)), "15.7756");
    }
}
