//! A panel of lines. Points have markers and whiskers for their spread, and each line has a label at its end. A point
//! that the axes cannot show is a gap in its line.

use std::fmt::Write;

use maud::{Markup, html};

use super::axis::{Span, drawable};
use super::svg::{self, Area, CHAR_WIDTH};
use super::text::number;
use super::{Axis, Lines, Marker, Point, Series, Threshold};

/// The lower edge of the data area, measured from the top of the picture.
const BOTTOM: f64 = 284.0;

/// Returns the number of values that cannot be drawn.
pub(super) fn gaps(lines: &Lines) -> usize {
    let lost = |value: f64, axis: &Axis| usize::from(drawable(value, axis.scale).is_none());
    let points = lines.series.iter().flat_map(|series| &series.points);
    points
        .map(|point| {
            let ends = [Some(point.y), point.low, point.high];
            let y: usize = ends.into_iter().flatten().map(|value| lost(value, &lines.y)).sum();
            y + lost(point.x, &lines.x)
        })
        .sum()
}

/// Returns the panel as SVG.
pub(super) fn svg(id: &str, title: &str, lines: &Lines) -> Markup {
    let points = || lines.series.iter().flat_map(|series| &series.points);
    let thresholds = lines.thresholds.iter().map(|threshold| threshold.x);
    let xs = points().map(|point| point.x).chain(thresholds);
    let xs: Vec<f64> = xs.filter_map(|x| drawable(x, lines.x.scale)).collect();
    let ys: Vec<f64> = points()
        .flat_map(|point| [Some(point.y), point.low, point.high])
        .filter_map(|value| drawable(value?, lines.y.scale))
        .collect();
    let plot = Drawing::new(lines, &xs, &ys);
    let middle = (plot.area.left + plot.area.right) / 2.0;
    let body = html! {
        (svg::vertical(&plot.area, &plot.y, lines.y.ticks, &lines.y.label))
        (svg::horizontal(&plot.area, &plot.x, lines.x.ticks, &lines.x.label, false))
        @if xs.is_empty() || ys.is_empty() {
            (svg::words("middle", middle, plot.area.y(0.5), "no data"))
        }
        @for threshold in &lines.thresholds { (plot.threshold(threshold)) }
        @for series in &lines.series { (plot.series(series)) }
        (plot.labels())
    };
    let names: Vec<String> =
        lines.series.iter().map(|series| svg::full_name(&series.name, series.origin)).collect();
    let name = format!("{} against {}", lines.y.label, lines.x.label);
    let about = format!("Lines: {}.", names.join("; "));
    svg::element(id, title, [&name, &about], BOTTOM, &body)
}

struct Drawing<'a> {
    lines: &'a Lines,
    area: Area,
    x: Span,
    y: Span,
}

impl<'a> Drawing<'a> {
    fn new(lines: &'a Lines, xs: &[f64], ys: &[f64]) -> Drawing<'a> {
        let y = Span::holding(lines.y.scale, ys);
        let longest = lines.series.iter().map(label_columns).max().unwrap_or(0);
        let label_width = if longest == 0 { 0.0 } else { longest as f64 * CHAR_WIDTH + 14.0 };
        let ticks = y.ticks.iter().map(|tick| number(*tick, lines.y.ticks).chars().count()).max();
        let area = Area {
            left: 34.0 + ticks.unwrap_or(0) as f64 * CHAR_WIDTH,
            // A long label may extend beyond the picture, because labels get at most a third of the width.
            right: svg::WIDTH - label_width.clamp(14.0, svg::WIDTH / 3.0),
            top: svg::TOP,
            bottom: BOTTOM,
        };
        Drawing { lines, area, x: Span::holding(lines.x.scale, xs), y }
    }

    /// Returns the position of a point, if it can be drawn.
    fn at(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let x = drawable(x, self.lines.x.scale)?;
        let y = drawable(y, self.lines.y.scale)?;
        Some((self.area.x(self.x.place(x)), self.area.y(self.y.place(y))))
    }

    fn series(&self, series: &Series) -> Markup {
        let mut path = String::new();
        let mut whiskers = String::new();
        let mut markers = Vec::new();
        let mut pen = 'M';
        for point in &series.points {
            let Some((x, y)) = self.at(point.x, point.y) else {
                pen = 'M';
                continue;
            };
            let _ = write!(path, "{pen}{x:.1} {y:.1}");
            pen = 'L';
            whiskers += &self.whisker(point);
            markers.push(marker(series.style.marker, x, y, &self.hint(series, point)));
        }
        html! {
            g class=(svg::class(series.style.colour, series.origin)) data-series=(series.name) {
                path class="line" d=(path) {}
                path class="whisker" d=(whiskers) {}
                @for marker in markers { (marker) }
            }
        }
    }

    fn threshold(&self, threshold: &Threshold) -> Markup {
        let Some(x) = drawable(threshold.x, self.lines.x.scale) else { return Markup::default() };
        let (at, area) = (self.area.x(self.x.place(x)), &self.area);
        html! {
            g class={ "c" (threshold.colour % svg::COLOURS) } {
                path class="threshold" d=(format!("M{at:.1} {:.1}V{:.1}", area.top, area.bottom)) {
                    title { (threshold.name) ": " (number(x, self.lines.x.ticks)) }
                }
            }
        }
    }

    fn whisker(&self, point: &Point) -> String {
        let end = |y: Option<f64>| self.at(point.x, y?);
        let Some(((x, low), (_, high))) = end(point.low).zip(end(point.high)) else {
            return String::new();
        };
        let (left, right) = (x - 4.0, x + 4.0);
        format!(
            "M{left:.1} {low:.1}H{right:.1}M{x:.1} {low:.1}V{high:.1}M{left:.1} {high:.1}H{right:.1}"
        )
    }

    /// Returns the text that is shown when the pointer is on the marker.
    fn hint(&self, series: &Series, point: &Point) -> String {
        let y = |value| number(value, self.lines.y.ticks);
        let name = svg::full_name(&series.name, series.origin);
        let mut hint = format!("{name}: {} at {}", y(point.y), number(point.x, self.lines.x.ticks));
        let ends = point.low.zip(point.high);
        if let Some((low, high)) = ends.filter(|(l, h)| l.is_finite() && h.is_finite()) {
            let _ = write!(hint, ", {} to {}", y(low), y(high));
        }
        hint
    }

    /// Draws a label at the end of each line that has one. Labels are moved so that they do not overlap.
    fn labels(&self) -> Markup {
        let mut labels: Vec<(f64, &Series)> = Vec::new();
        for series in self.lines.series.iter().filter(|series| !series.label.is_empty()) {
            let ends = series.points.iter().rev();
            if let Some((_, y)) = ends.filter_map(|point| self.at(point.x, point.y)).next() {
                labels.push((y, series));
            }
        }
        labels.sort_by(|a, b| a.0.total_cmp(&b.0));
        let heights: Vec<f64> = labels.iter().map(|(_, series)| label_height(series)).collect();
        let wanted: Vec<f64> = labels.iter().map(|(y, _)| *y).collect();
        let placed = apart(&wanted, &heights, self.area.bottom);
        let x = self.area.right + 10.0;
        html! {
            @for ((_, series), y) in labels.iter().zip(placed) {
                g class={ "ends " (svg::class(series.style.colour, series.origin)) } {
                    (svg::words("start", x, y + 4.5, &series.label))
                    @if let Some(word) = svg::origin_word(series.origin) {
                        (svg::small_words("start", x, y + 17.5, word))
                    }
                }
            }
        }
    }
}

fn label_columns(series: &Series) -> usize {
    let origin = svg::origin_word(series.origin).map_or(0, str::len);
    match series.label.chars().count() {
        0 => 0,
        columns => columns.max(origin),
    }
}

fn label_height(series: &Series) -> f64 {
    if svg::origin_word(series.origin).is_some() { 30.0 } else { 17.0 }
}

/// Returns positions from top to bottom that are close to the wanted ones. The distance between two positions is at
/// least the height of the upper label.
fn apart(wanted: &[f64], heights: &[f64], bottom: f64) -> Vec<f64> {
    let mut down = wanted.to_vec();
    for n in 1..down.len() {
        down[n] = down[n].max(down[n - 1] + heights[n - 1]);
    }
    let mut up = wanted.to_vec();
    for n in (1..up.len()).rev() {
        up[n - 1] = up[n - 1].min(up[n] - heights[n - 1]);
    }
    // Both lists keep the distances, so their mean does too. All positions move up if the lowest label would end below
    // `bottom`.
    let middle: Vec<f64> = down.iter().zip(&up).map(|(a, b)| (a + b) / 2.0).collect();
    let lowest = middle.last().zip(heights.last()).map_or(0.0, |(at, height)| at + height - 12.0);
    let over = (lowest - bottom).max(0.0);
    middle.iter().map(|at| at - over).collect()
}

/// Draws a marker. Its text is shown when the pointer is on it.
pub(super) fn marker(marker: Marker, x: f64, y: f64, hint: &str) -> Markup {
    let shape = match marker {
        Marker::Circle => {
            format!("M{:.1} {y:.1}a4.2 4.2 0 1 0 8.4 0a4.2 4.2 0 1 0 -8.4 0z", x - 4.2)
        }
        Marker::Square => format!("M{:.1} {:.1}h7.6v7.6h-7.6z", x - 3.8, y - 3.8),
        Marker::Triangle => format!("M{x:.1} {:.1}l4.8 8.4h-9.6z", y - 5.4),
        Marker::Diamond => format!("M{x:.1} {:.1}l5.2 5.2l-5.2 5.2l-5.2 -5.2z", y - 5.2),
    };
    html! { path class="dot" d=(shape) { @if !hint.is_empty() { title { (hint) } } } }
}
