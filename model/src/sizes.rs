//! The sizes with which a kernel is called, and the number of calls of each size (\[Accelerometer\] figures 15, 19, 21
//! and 22). The sizes come from the bins of a histogram, from exact sizes or from the quantiles of a distribution.

use crate::parameters::BadParameter;

const BINS_MAX: usize = 1 << 16;
/// The largest size (bytes). It is far above every real call and far below the size at which its power `size^beta`
/// overflows.
const BYTES_MAX: f64 = (1u64 << 40) as f64;

/// The calls of `low_bytes` to `high_bytes`, spread evenly over the logarithm of the size. If the bounds are equal, all
/// calls have this size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// The lower bound (bytes).
    pub low_bytes: f64,
    /// The upper bound (bytes).
    pub high_bytes: f64,
    /// The number of calls. Only the proportions matter.
    pub calls: f64,
}

impl Bin {
    /// Returns the number of calls of at least `bytes` in this bin.
    fn calls_at_least(&self, bytes: f64) -> f64 {
        self.calls * self.share_at_least(bytes)
    }

    fn share_at_least(&self, bytes: f64) -> f64 {
        if bytes <= self.low_bytes {
            1.0
        } else if bytes > self.high_bytes || self.low_bytes == self.high_bytes {
            0.0
        } else {
            (self.high_bytes / bytes).ln() / (self.high_bytes / self.low_bytes).ln()
        }
    }

    /// Returns the sum of `size^beta` over the calls of at least `bytes` in this bin, where `size` is the size of a
    /// call (bytes).
    fn work_at_least(&self, bytes: f64, beta: f64) -> f64 {
        let low = bytes.clamp(self.low_bytes, self.high_bytes);
        let spread = (self.high_bytes / low).ln();
        let mean = if spread < 1e-9 {
            low.powf(beta)
        } else {
            (self.high_bytes.powf(beta) - low.powf(beta)) / (beta * spread)
        };
        self.calls_at_least(bytes) * mean
    }
}

/// A size distribution, as bins in ascending order that do not overlap.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeHistogram {
    bins: Vec<Bin>,
    calls: f64,
}

impl SizeHistogram {
    /// Checks and sorts the bins. Sizes of 0 bytes count as 1.
    pub fn new(mut bins: Vec<Bin>) -> Result<Self, BadParameter> {
        if bins.len() > BINS_MAX {
            let valid = "at most 65536 bins";
            return Err(BadParameter::new("sizes", format!("{} bins", bins.len()), valid));
        }
        for bin in &mut bins {
            check(bin)?;
            bin.low_bytes = bin.low_bytes.max(1.0);
            bin.high_bytes = bin.high_bytes.max(1.0);
        }
        bins.retain(|bin| bin.calls > 0.0);
        bins.sort_by(|one, other| one.low_bytes.total_cmp(&other.low_bytes));
        if let Some(pair) = bins.windows(2).find(|pair| pair[0].high_bytes > pair[1].low_bytes) {
            let text =
                format!("a bin up to {} and one from {}", pair[0].high_bytes, pair[1].low_bytes);
            return Err(BadParameter::new("sizes", text, "of bins that do not overlap"));
        }
        let calls = bins.iter().map(|bin| bin.calls).sum();
        if !(calls > 0.0 && calls < f64::INFINITY) {
            let valid = "of at least one call, and of a finite number of them";
            return Err(BadParameter::new("sizes", format!("of {calls} calls"), valid));
        }
        Ok(Self { bins, calls })
    }

    /// Makes a histogram from exact sizes and the number of calls of each.
    pub fn from_sizes(sizes: impl IntoIterator<Item = (u64, f64)>) -> Result<Self, BadParameter> {
        let exact =
            |(bytes, calls)| Bin { low_bytes: bytes as f64, high_bytes: bytes as f64, calls };
        Self::new(sizes.into_iter().map(exact).collect())
    }

    /// Makes a histogram from the quantile function of a distribution (bytes at a fraction of the calls), which is
    /// evaluated at `steps` points. The function has the shape of `workload::Sizes::at`.
    pub fn from_quantiles(
        steps: usize,
        bytes_at: impl Fn(f64) -> f64,
    ) -> Result<Self, BadParameter> {
        let steps = steps.clamp(1, BINS_MAX);
        let point = |step: usize| bytes_at((step as f64 + 0.5) / steps as f64);
        let bin = |bytes: f64| Bin { low_bytes: bytes, high_bytes: bytes, calls: 1.0 };
        Self::new((0..steps).map(|step| bin(point(step))).collect())
    }

    /// Returns the bins in ascending order.
    pub fn bins(&self) -> &[Bin] {
        &self.bins
    }

    /// Returns the number of all calls.
    pub fn calls(&self) -> f64 {
        self.calls
    }

    /// Returns the fraction of the calls that have at least `bytes`.
    pub fn share_at_least(&self, bytes: f64) -> f64 {
        self.bins.iter().map(|bin| bin.calls_at_least(bytes)).sum::<f64>() / self.calls
    }

    /// Returns the fraction of the kernel's work that is in calls of at least `bytes`. The work of a call is
    /// `size^beta`, where `size` is its size (bytes).
    pub fn work_share_at_least(&self, bytes: f64, beta: f64) -> f64 {
        let work = |bytes| self.bins.iter().map(|bin| bin.work_at_least(bytes, beta)).sum::<f64>();
        work(bytes) / work(0.0)
    }

    /// Returns the mean of `size^beta` over all calls, where `size` is the size of a call (bytes). If `beta` is 1, this
    /// is the mean size.
    pub fn mean_work(&self, beta: f64) -> f64 {
        self.bins.iter().map(|bin| bin.work_at_least(0.0, beta)).sum::<f64>() / self.calls
    }
}

fn check(bin: &Bin) -> Result<(), BadParameter> {
    let ordered =
        bin.low_bytes >= 0.0 && bin.low_bytes <= bin.high_bytes && bin.high_bytes <= BYTES_MAX;
    if !ordered {
        let text = format!("{} to {} bytes", bin.low_bytes, bin.high_bytes);
        return Err(BadParameter::new("sizes", text, "of bins within 0 to 2^40 bytes, low first"));
    }
    let counted = bin.calls >= 0.0 && bin.calls.is_finite();
    let refuse = || {
        BadParameter::new("sizes", format!("{} calls", bin.calls), "of bins of at least 0 calls")
    };
    if counted { Ok(()) } else { Err(refuse()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_sizes_count_from_their_own_size_on() {
        let sizes =
            SizeHistogram::from_sizes([(10, 1.0), (100, 2.0), (1_000, 1.0)]).expect("valid");
        assert_eq!(
            [10.0, 10.5, 100.0, 1_000.0, 1_000.5].map(|at| sizes.share_at_least(at)),
            [1.0, 0.75, 0.75, 0.25, 0.0]
        );
        assert_eq!(sizes.mean_work(1.0), 302.5);
        assert!((sizes.work_share_at_least(11.0, 1.0) - 1_200.0 / 1_210.0).abs() < 1e-12);
    }

    #[test]
    fn a_bin_spreads_over_the_logarithm() {
        let bin = Bin { low_bytes: 256.0, high_bytes: 1_024.0, calls: 8.0 };
        let sizes = SizeHistogram::new(vec![bin]).expect("valid");
        assert!((sizes.share_at_least(512.0) - 0.5).abs() < 1e-12);
        assert!((sizes.mean_work(1.0) - 768.0 / 4f64.ln()).abs() < 1e-9);
        // Of the 768 bytes' worth of work, 512 lie above a size of 512 bytes.
        assert!((sizes.work_share_at_least(512.0, 1.0) - 512.0 / 768.0).abs() < 1e-9);
    }

    #[test]
    fn a_workloads_distribution_becomes_one() {
        let dist = workload::SizeDist::LogNormal {
            mean_bytes: 4_096.0,
            sigma: 1.0,
            min_bytes: 1,
            max_bytes: 1 << 30,
        };
        let sizes = workload::Sizes::new(&dist, workload::Weighting::Calls).expect("valid");
        let histogram =
            SizeHistogram::from_quantiles(4_096, |u| sizes.at(u) as f64).expect("valid");
        let mean = histogram.mean_work(1.0);
        assert!((mean / 4_096.0 - 1.0).abs() < 0.01, "{mean}");
        let median = (4_096f64.ln() - 0.5).exp();
        assert!((histogram.share_at_least(median) - 0.5).abs() < 0.001);
    }

    #[test]
    fn bad_histograms_are_refused() {
        let bin = |low_bytes, high_bytes, calls| Bin { low_bytes, high_bytes, calls };
        let bad = [
            vec![],
            vec![bin(1.0, 2.0, 0.0)],
            vec![bin(1.0, 2.0, -1.0)],
            vec![bin(1.0, 2.0, f64::NAN)],
            vec![bin(2.0, 1.0, 1.0)],
            vec![bin(f64::NAN, 1.0, 1.0)],
            vec![bin(1.0, 8.0, 1.0), bin(4.0, 16.0, 1.0)],
            vec![bin(1.0, 1e300, 1.0)],
        ];
        for bins in bad {
            let error = SizeHistogram::new(bins.clone()).expect_err("refused");
            assert_eq!(error.field, "sizes", "{bins:?}");
        }
    }
}
