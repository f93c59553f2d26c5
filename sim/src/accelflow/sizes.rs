//! The payload sizes of an accelerator and their effect on its time. The sizes are in a table by probability, so a draw
//! is a table lookup.

use crate::Picos;

/// The distribution of the sizes of one accelerator's payloads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SizeShape {
    pub(super) min_bytes: f64,
    pub(super) median_bytes: f64,
    pub(super) max_bytes: f64,
    /// The share of payloads below the geometric mean of median and maximum.
    pub(super) upper_share: f64,
    /// The share of an op's time that grows with its bytes.
    pub(super) size_share: f64,
}

/// The sizes at [`POINTS`] equally likely points.
#[derive(Clone, Debug)]
pub(super) struct SizeTable(Box<[SizePoint; POINTS]>);

/// A size, and its op's time as a multiple of the mean op's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SizePoint {
    pub(super) bytes: u32,
    /// The factor, in units of 1 / [`ONE`].
    factor: u32,
}

impl SizeShape {
    /// Returns the size that a share `u` of payloads do not exceed, by linear interpolation between the four known
    /// points.
    fn at(&self, u: f64) -> f64 {
        let upper = (self.median_bytes * self.max_bytes).sqrt();
        let points = [(0.0, self.min_bytes), (0.5, self.median_bytes), (self.upper_share, upper)];
        let end = (1.0, self.max_bytes);
        let next = points.iter().copied().chain([end]).skip(1);
        let part = points.iter().copied().zip(next).find(|(_, to)| u <= to.0);
        let ((low, from), (high, to)) = part.unwrap_or((points[2], end));
        from + (to - from) * ((u - low) / (high - low))
    }

    /// Returns the table of sizes. The mean of its factors is one.
    pub(super) fn table(&self) -> SizeTable {
        let bytes: [f64; POINTS] =
            std::array::from_fn(|index| self.at((index as f64 + 0.5) / POINTS as f64));
        let mean = bytes.iter().sum::<f64>() / POINTS as f64;
        let factor = |bytes: f64| 1.0 - self.size_share + self.size_share * bytes / mean;
        let parts = |bytes: f64| (factor(bytes) * f64::from(ONE) + 0.5) as u32;
        let point = |bytes: f64| SizePoint { bytes: bytes as u32, factor: parts(bytes) };
        SizeTable(Box::new(bytes.map(point)))
    }
}

impl SizePoint {
    /// Returns the time of this point's op if the mean op takes `mean`.
    #[inline]
    pub(super) fn scale(self, mean: Picos) -> Picos {
        Picos(((u128::from(mean.0) * u128::from(self.factor)) >> ONE_LOG2) as u64)
    }

    /// Returns the time of this point's op as a multiple of the mean op's time.
    pub(super) fn factor(self) -> f64 {
        f64::from(self.factor) / f64::from(ONE)
    }
}

impl SizeTable {
    /// Returns the point that a hash selects.
    #[inline]
    pub(super) fn draw(&self, hash: u64) -> SizePoint {
        self.0[(hash >> (64 - POINTS_LOG2)) as usize]
    }

    /// Returns all points.
    pub(super) fn points(&self) -> &[SizePoint; POINTS] {
        &self.0
    }
}

/// The binary logarithm of [`ONE`]. Factors are integers, so times are integers too.
const ONE_LOG2: u32 = 20;
const ONE: u32 = 1 << ONE_LOG2;
const POINTS_LOG2: u32 = 8;
const POINTS: usize = 1 << POINTS_LOG2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_keeps_median_range_and_mean() {
        let shape = SizeShape {
            min_bytes: 1_000.0,
            median_bytes: 4_000.0,
            max_bytes: 64_000.0,
            upper_share: 0.95,
            size_share: 0.5,
        };
        let table = shape.table();
        let below = |bytes| table.points().iter().filter(|point| point.bytes <= bytes).count();
        assert_eq!(below(4_000), POINTS / 2);
        assert_eq!((below(999), below(64_000)), (0, POINTS));
        let mean = table.points().iter().map(|point| point.factor()).sum::<f64>() / POINTS as f64;
        assert!((mean - 1.0).abs() < 1e-6, "{mean}");
        let point = table.points()[POINTS - 1];
        let expected = 1e6 * point.factor();
        assert!((point.scale(Picos(1_000_000)).0 as f64 - expected).abs() <= 1.0);
        assert_eq!(table.draw(u64::MAX).bytes, table.points()[POINTS - 1].bytes);
    }
}
