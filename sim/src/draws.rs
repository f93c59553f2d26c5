//! One stream of random numbers, uniform and exponential. Logarithms are computed in plain arithmetic,
//! because those of platforms differ in the last bit and would give other bytes for the same seed. (The
//! distributions of sizes in `workload` use the platform's logarithm, but round the sizes to bytes.)

use units::Prng;

/// A stream of random numbers. Exponential draws are computed in batches. A single draw would delay its event by a
/// division and a polynomial, but the computations of a batch overlap.
#[derive(Clone, Debug)]
pub struct Draws {
    prng: Prng,
    ahead: [f64; AHEAD],
    next: usize,
}

impl Draws {
    /// Makes the stream of `prng`.
    pub fn new(prng: Prng) -> Self {
        Self { prng, ahead: [0.0; AHEAD], next: AHEAD }
    }

    /// Returns a uniform draw in `[0, 1)`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        self.prng.unit()
    }

    /// Returns a uniform draw in `0..bound`.
    ///
    /// # Panics
    /// Panics if `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.prng.below(bound)
    }

    /// Returns an exponential draw of mean one.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        let Some(draw) = self.ahead.get(self.next) else { return self.refill() };
        self.next += 1;
        *draw
    }

    /// Computes the next batch and returns its first draw.
    #[cold]
    #[inline(never)]
    fn refill(&mut self) -> f64 {
        self.ahead.fill_with(|| 1.0 - self.prng.unit());
        self.ahead.iter_mut().for_each(|draw| *draw = -ln(*draw));
        self.next = 1;
        self.ahead[0]
    }
}

/// Returns the natural logarithm of a positive, normal `x`, accurate to one or two units in the last place.
///
/// The function splits `x = 2^exponent mantissa`, with the mantissa within a factor of root two of one. It computes
/// `ln mantissa = 2 artanh s` by its series, with `s = (mantissa - 1) / (mantissa + 1)`. With `s` below 0.172 the first
/// omitted term is below 1e-17.
#[inline]
pub(crate) fn ln(x: f64) -> f64 {
    let exponent = (x.to_bits().wrapping_sub(ROOT_HALF_BITS) as i64) >> 52;
    let mantissa = f64::from_bits(x.to_bits().wrapping_sub((exponent << 52) as u64));
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let (z, z2) = (s * s, (s * s) * (s * s));
    let z4 = z2 * z2;
    let low = (1.0 + z / 3.0) + z2 * (1.0 / 5.0 + z * (1.0 / 7.0));
    let middle = (1.0 / 9.0 + z * (1.0 / 11.0)) + z2 * (1.0 / 13.0 + z * (1.0 / 15.0));
    let high = 1.0 / 17.0 + z * (1.0 / 19.0);
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * s * (low + z4 * (middle + z4 * high))
}

const ROOT_HALF_BITS: u64 = std::f64::consts::FRAC_1_SQRT_2.to_bits();

/// The number of draws in a batch, which takes 512 bytes per stream. A larger batch is not faster.
const AHEAD: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_agrees_with_the_platforms() {
        let mut prng = Prng::new(9);
        for power in -1_000..=1_000 {
            let x = (1.0 + prng.unit()) * 2f64.powi(power);
            assert!((ln(x) - x.ln()).abs() <= 5e-16 * x.ln().abs(), "ln {x:e}: {:e}", ln(x));
        }
        assert_eq!(ln(1.0), 0.0);
        let near = 1.0 - 2f64.powi(-50);
        assert!((ln(near) / near.ln() - 1.0).abs() < 4e-16);
    }

    #[test]
    fn exponentials_have_mean_and_variance_one() {
        let mut draws = Draws::new(Prng::new(1));
        let all: Vec<f64> = (0..400_000).map(|_| draws.exponential()).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let variance = all.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / all.len() as f64;
        assert!((mean - 1.0).abs() < 0.005 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
        assert!(all.iter().all(|draw| draw.is_finite() && *draw >= 0.0));
    }
}
