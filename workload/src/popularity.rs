//! Draws the key of a request as its rank by popularity. Time and memory are constant for every number of keys.

use units::Prng;

/// A distribution of popularity over the ranks `0..count`. Rank 0 is the most popular.
#[derive(Clone, Debug)]
pub struct Popularity {
    count: u64,
    law: Law,
}

#[derive(Clone, Debug)]
enum Law {
    Uniform,
    Zipf(Zipf),
}

/// The constants of the rejection-inversion method (Hoermann and Derflinger, 1996). It inverts the integral of the
/// continuous hat `x^-alpha`, rounds to the nearest rank, and rejects the draw where the hat lies above the histogram.
#[derive(Clone, Debug)]
struct Zipf {
    alpha: f64,
    integral_low: f64,
    integral_high: f64,
    accept_within: f64,
}

impl Popularity {
    /// Makes a Zipf law in which rank `k` (from 0) is drawn in proportion to `(k + 1)^-alpha`. An `alpha` of 0 is
    /// uniform.
    ///
    /// # Panics
    /// Panics if `count` is zero, or if `alpha` is negative or not a number.
    pub fn zipf(count: u64, alpha: f64) -> Self {
        assert!(count > 0, "no keys to draw from");
        assert!(alpha.is_finite() && alpha >= 0.0, "Zipf alpha {alpha}");
        let law = if alpha == 0.0 { Law::Uniform } else { Law::Zipf(Zipf::new(count, alpha)) };
        Self { count, law }
    }

    /// Draws a rank in `0..count`.
    pub fn draw(&self, prng: &mut Prng) -> u64 {
        match &self.law {
            Law::Uniform => prng.below(self.count),
            Law::Zipf(zipf) => zipf.draw(self.count, prng),
        }
    }
}

impl Zipf {
    fn new(count: u64, alpha: f64) -> Self {
        Self {
            alpha,
            integral_low: integral(alpha, 1.5) - 1.0,
            integral_high: integral(alpha, count as f64 + 0.5),
            accept_within: 2.0 - inverse(alpha, integral(alpha, 2.5) - 2f64.powf(-alpha)),
        }
    }

    fn draw(&self, count: u64, prng: &mut Prng) -> u64 {
        loop {
            let area = self.integral_high + prng.unit() * (self.integral_low - self.integral_high);
            let x = inverse(self.alpha, area);
            let rank = x.round().clamp(1.0, count as f64);
            let inside = rank - x <= self.accept_within
                || area >= integral(self.alpha, rank + 0.5) - rank.powf(-self.alpha);
            if inside {
                return (rank as u64).min(count) - 1;
            }
        }
    }
}

/// Returns the integral of `t^-alpha` from 1 to `x`, without loss of digits near `alpha` = 1.
fn integral(alpha: f64, x: f64) -> f64 {
    let log = x.ln();
    let power = (1.0 - alpha) * log;
    if power.abs() < 1e-8 { log * (1.0 + power / 2.0) } else { log * power.exp_m1() / power }
}

/// Returns the `x` at which [`integral`] has the value `area`.
fn inverse(alpha: f64, area: f64) -> f64 {
    // Rounding can push the argument just below -1 at the far end of the range.
    let power = (area * (1.0 - alpha)).max(-1.0);
    let log =
        if power.abs() < 1e-8 { area * (1.0 - power / 2.0) } else { area * power.ln_1p() / power };
    log.exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_draws_match_the_theoretical_head_and_tail() {
        let count = 10_000;
        for alpha in [0.3, 0.8, 1.0, 1.2, 2.5] {
            let popularity = Popularity::zipf(count, alpha);
            let total: f64 = (1..=count).map(|rank| (rank as f64).powf(-alpha)).sum();
            let (draws, mut prng) = (300_000, Prng::new(11));
            let mut seen = vec![0u32; count as usize];
            (0..draws).for_each(|_| seen[popularity.draw(&mut prng) as usize] += 1);
            for ranks in [0..1, 1..2, 2..4, 4..100, 100..10_000usize] {
                let expected: f64 =
                    ranks.clone().map(|rank| (rank as f64 + 1.0).powf(-alpha)).sum::<f64>() / total;
                let expected = expected * f64::from(draws);
                let got = f64::from(seen[ranks.clone()].iter().sum::<u32>());
                let tolerance = 5.0 * expected.sqrt() + 1.0;
                assert!((got - expected).abs() < tolerance, "{alpha} {ranks:?} {got} {expected}");
            }
        }
    }

    #[test]
    fn draws_stay_in_range_for_one_key_and_for_billions() {
        let mut prng = Prng::new(5);
        for count in [1, 2, 3, u64::from(u32::MAX), 1 << 53] {
            for alpha in [0.0, 0.01, 0.99, 1.0, 1.01, 6.0] {
                let popularity = Popularity::zipf(count, alpha);
                assert!((0..1_000).all(|_| popularity.draw(&mut prng) < count), "{count} {alpha}");
            }
        }
    }
}
