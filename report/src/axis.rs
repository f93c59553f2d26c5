//! One axis: the values that it can show, its two ends, and its ticks. The module does not know pixels.

use super::Scale;

/// The largest magnitude that is drawn. A larger value cannot be a real result and counts as missing. The
/// limit also keeps the arithmetic of this module finite.
const MAGNITUDE_MAX: f64 = 1e15;
/// The smallest value above zero that is drawn.
const MAGNITUDE_MIN: f64 = 1e-12;
const TICKS_MAX: usize = 7;
/// The most ticks of a logarithmic axis with ticks at 1, 2 and 5 times the powers of ten. An axis with a
/// wider range has ticks only at powers of ten.
const ROUND_TICKS_MAX: usize = 10;

/// Returns the value if the scale can show it.
pub(super) fn drawable(value: f64, scale: Scale) -> Option<f64> {
    let positive = value >= MAGNITUDE_MIN;
    let fits = value.is_finite() && value.abs() <= MAGNITUDE_MAX;
    match scale {
        _ if !fits => None,
        Scale::Linear if value.abs() < MAGNITUDE_MIN => Some(0.0),
        Scale::Linear => Some(value),
        Scale::Log2 | Scale::Log10 => positive.then_some(value),
    }
}

/// The two ends of an axis, on its scale, and its ticks.
#[derive(Debug)]
pub(super) struct Span {
    scale: Scale,
    low: f64,
    high: f64,
    /// The values of the ticks.
    pub(super) ticks: Vec<f64>,
}

impl Span {
    /// Makes a span that contains all `values`. The scale must be able to show them.
    pub(super) fn holding(scale: Scale, values: &[f64]) -> Span {
        let low = values.iter().copied().reduce(f64::min);
        let high = values.iter().copied().reduce(f64::max);
        match (scale, low.zip(high)) {
            (Scale::Linear, ends) => linear(ends.unwrap_or((0.0, 1.0))),
            (Scale::Log2, ends) => log2(ends.unwrap_or((1.0, 2.0))),
            (Scale::Log10, ends) => log10(ends.unwrap_or((1.0, 10.0))),
        }
    }

    /// Returns the position of a value that can be drawn: 0 at the low end, 1 at the high end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let spread = match self.scale {
            Scale::Linear => value,
            Scale::Log2 => value.log2(),
            Scale::Log10 => value.log10(),
        };
        (spread - self.low) / (self.high - self.low)
    }
}

fn linear((low, high): (f64, f64)) -> Span {
    let (low, high) = (low.min(0.0), high.max(0.0));
    let high = if low == high { 1.0 } else { high };
    let step = round_step((high - low) / 5.0);
    let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
    let ticks = (first..=last).map(|n| n as f64 * step).collect();
    Span { scale: Scale::Linear, low: first as f64 * step, high: last as f64 * step, ticks }
}

/// Returns the smallest number of the form 1, 2 or 5 times a power of ten that is not below `step`.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let fits = [1.0, 2.0, 5.0].into_iter().find(|m| m * power >= step * 0.999);
    fits.unwrap_or(10.0) * power
}

fn log2((low, high): (f64, f64)) -> Span {
    let (mut low, mut high) = (low.log2(), high.log2());
    if high - low < 1.0 {
        (low, high) = (low.floor(), high.ceil());
        high = if low == high { high + 1.0 } else { high };
    }
    let margin = (high - low) * 0.04;
    let (first, last) = (low.ceil() as i32, high.floor() as i32);
    let step = (last - first + 1).unsigned_abs().div_ceil(TICKS_MAX as u32).max(1);
    let ticks = (first..=last).step_by(step as usize).map(|power| 2_f64.powi(power)).collect();
    Span { scale: Scale::Log2, low: low - margin, high: high + margin, ticks }
}

fn log10((low, high): (f64, f64)) -> Span {
    let round: Vec<f64> =
        (-13..=16).flat_map(|power| [1.0, 2.0, 5.0].map(|m| m * 10_f64.powi(power))).collect();
    let first = round.iter().rposition(|tick| *tick <= low).unwrap_or(0);
    let last = round.iter().position(|tick| *tick >= high).unwrap_or(round.len() - 1);
    let last = if first == last { first + 1 } else { last };
    let ends = (round[first], round[last]);
    let mut ticks = round[first..=last].to_vec();
    if ticks.len() > ROUND_TICKS_MAX {
        // Every third entry is a power of ten.
        let decades: Vec<f64> = (first..=last).filter(|n| n % 3 == 0).map(|n| round[n]).collect();
        ticks = decades.iter().copied().step_by(decades.len().div_ceil(TICKS_MAX)).collect();
    }
    Span { scale: Scale::Log10, low: ends.0.log10(), high: ends.1.log10(), ticks }
}
