//! Common parts of the experiments' figures. The module draws nothing itself.

use report::{Figure, Origin, Panel, Point, Series, Style};
use units::ByteCount;

use super::mode::Mode;
use crate::base::figures::point;

/// Returns a line of medians over runs, with their range.
pub(super) fn line(
    name: &str,
    index: usize,
    origin: Origin,
    points: impl IntoIterator<Item = (f64, Vec<f64>)>,
) -> Series {
    let points: Vec<Point> =
        points.into_iter().filter_map(|(x, values)| point(x, values)).collect();
    let style = Style::nth(index);
    Series { name: name.to_owned(), label: String::new(), origin, style, points }
}

/// Returns a figure of panels.
pub(super) fn figure(id: String, caption: impl Into<String>, panels: Vec<Panel>) -> Figure {
    Figure { id, caption: caption.into(), panels }
}

/// Returns the origin of the numbers of a path with these virtual devices.
pub(super) fn origin(virtuals: &[String]) -> Origin {
    if virtuals.is_empty() { Origin::Measured } else { Origin::Emulated }
}

/// Returns the colour of a mode, which is the same in every figure.
pub(super) fn colour(mode: Mode) -> usize {
    Mode::ALL.iter().position(|known| *known == mode).unwrap_or_default()
}

/// Returns a size for row ids.
pub(super) fn size_id(size: ByteCount) -> String {
    if size.0 < 1 << 10 { format!("{size}B") } else { size.to_string() }
}
