//! A panel of bars: stacked stages or groups side by side, always from zero. A value that cannot be drawn is a gap.

use std::fmt::Write;

use super::axis::{Span, drawable};
use super::svg::{self, Area, CHAR_WIDTH};
use super::text::{escape, number, wrap};
use super::{BarSeries, Bars, Category, Layout, Marker, Origin, Scale, Ticks, lines};

/// The most bars with numbers. Above this the numbers over each would overlap.
const NUMBERED_BARS_MAX: usize = 12;
const CATEGORY_LINES_MAX: usize = 3;

/// Returns how many numbers cannot be drawn or are missing.
pub(super) fn gaps(bars: &Bars) -> usize {
    let series = bars.series.iter().map(|series| &series.values);
    let all = series.chain(bars.mark.iter().map(|mark| &mark.values));
    let present = |values: &Vec<f64>| {
        (0..bars.categories.len()).filter(|n| value(values, *n).is_none()).count()
    };
    all.map(present).sum()
}

/// Returns whether a stack hangs below zero somewhere, so that its sum has to be shown.
pub(super) fn has_sums(bars: &Bars) -> bool {
    let negative = |series: &BarSeries| series.values.iter().any(|value| *value < 0.0);
    bars.layout == Layout::Stacked && bars.series.iter().any(negative)
}

/// Returns the origin of a bar's number. A computed or published number keeps its origin beside emulated bars too.
pub(super) fn origin(category: &Category, series: &BarSeries) -> Origin {
    if series.origin == Origin::Measured { category.origin } else { series.origin }
}

fn value(values: &[f64], index: usize) -> Option<f64> {
    values.get(index).and_then(|value| drawable(*value, Scale::Linear))
}

/// Returns the panel as SVG.
pub(super) fn svg(id: &str, title: &str, bars: &Bars) -> String {
    let y = Span::holding(Scale::Linear, &heights(bars));
    let area = Area::new(&y, Ticks::Plain, 0.0);
    let drawing = Drawing { bars, area, y };
    let mut body = svg::vertical(&area, &drawing.y, Ticks::Plain, &bars.y_label, title);
    for index in 0..bars.categories.len() {
        body += &match bars.layout {
            Layout::Stacked => drawing.stack(index),
            Layout::Grouped => drawing.group(index),
        };
        body += &drawing.mark(index);
        body += &drawing.category(index);
    }
    let list = |names: Vec<String>| names.join("; ");
    let series = bars.series.iter().map(|series| svg::full_name(&series.name, series.origin));
    let categories = bars.categories.iter().map(|c| svg::full_name(&c.name, c.origin));
    let about = format!("Bars: {}. For: {}.", list(series.collect()), list(categories.collect()));
    svg::element(id, &format!("{title}: {}", bars.y_label), &about, &body)
}

/// Returns every height that the axis has to hold.
fn heights(bars: &Bars) -> Vec<f64> {
    let mut all: Vec<f64> = Vec::new();
    for index in 0..bars.categories.len() {
        let values = bars.series.iter().filter_map(|series| value(&series.values, index));
        match bars.layout {
            Layout::Grouped => all.extend(values),
            Layout::Stacked => {
                let (up, down): (Vec<f64>, Vec<f64>) = values.partition(|value| *value >= 0.0);
                all.extend([up.iter().sum::<f64>(), down.iter().sum::<f64>()]);
            }
        }
        all.extend(bars.mark.iter().filter_map(|mark| value(&mark.values, index)));
    }
    all
}

struct Drawing<'a> {
    bars: &'a Bars,
    area: Area,
    y: Span,
}

impl Drawing<'_> {
    /// Returns the left end and width of a category's room.
    fn slot(&self, index: usize) -> (f64, f64) {
        let width = (self.area.right - self.area.left) / self.bars.categories.len() as f64;
        (self.area.left + index as f64 * width, width)
    }

    fn height(&self, value: f64) -> f64 {
        self.area.y(self.y.place(value))
    }

    fn stack(&self, index: usize) -> String {
        let (left, width) = self.slot(index);
        let (x, wide) = (left + width * 0.22, width * 0.56);
        let (mut up, mut down) = (0.0, 0.0);
        let mut out = String::new();
        for series in &self.bars.series {
            let Some(value) = value(&series.values, index) else { continue };
            let base = if value >= 0.0 { &mut up } else { &mut down };
            out += &self.bar(index, series, x, wide, (*base, *base + value));
            *base += value;
        }
        if has_sums(self.bars) {
            let at = self.height(up + down);
            out += &svg::line("sum", x - 5.0, at, x + wide + 5.0, at);
        }
        out
    }

    fn group(&self, index: usize) -> String {
        let (left, width) = self.slot(index);
        let wide = width * 0.8 / self.bars.series.len().max(1) as f64;
        let numbered = self.bars.series.len() * self.bars.categories.len() <= NUMBERED_BARS_MAX;
        let mut out = String::new();
        for (place, series) in self.bars.series.iter().enumerate() {
            let x = left + width * 0.1 + place as f64 * wide;
            let Some(value) = value(&series.values, index) else {
                out += &svg::words("middle", x + wide / 2.0, self.height(0.0) - 4.0, "\u{2013}");
                continue;
            };
            out += &self.bar(index, series, x + wide * 0.04, wide * 0.92, (0.0, value));
            let text = number(value, Ticks::Plain);
            if numbered && text.chars().count() as f64 * CHAR_WIDTH * 0.9 <= wide + 4.0 {
                let gap = if value >= 0.0 { -5.0 } else { 13.0 };
                let at = self.height(value) + gap;
                out += &svg::words("middle", x + wide / 2.0, at, &text).replacen(
                    "<text",
                    "<text class=\"small\"",
                    1,
                );
            }
        }
        out
    }

    fn bar(&self, index: usize, series: &BarSeries, x: f64, wide: f64, ends: (f64, f64)) -> String {
        let category = &self.bars.categories[index];
        let origin = origin(category, series);
        let (from, to) = (self.height(ends.0), self.height(ends.1));
        let shape = format!(
            "x=\"{x:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{:.1}\"",
            from.min(to),
            (from - to).abs()
        );
        let hint = format!(
            "{}, {}: {}",
            category.name,
            svg::full_name(&series.name, origin),
            number(ends.1 - ends.0, Ticks::Plain)
        );
        format!(
            "<g class=\"{}\" data-series=\"{}\">{}<title>{}</title></g>",
            svg::class(series.colour, origin),
            escape(&series.name),
            fill(&shape, series.colour, origin),
            escape(&hint)
        )
    }

    fn mark(&self, index: usize) -> String {
        let Some(mark) = &self.bars.mark else { return String::new() };
        let Some(value) = value(&mark.values, index) else { return String::new() };
        let (left, width) = self.slot(index);
        let hint = format!(
            "{}, {}: {}",
            self.bars.categories[index].name,
            mark.name,
            number(value, Ticks::Plain)
        );
        let shape = lines::marker(Marker::Diamond, left + width / 2.0, self.height(value), &hint);
        format!("<g class=\"mark\">{shape}</g>")
    }

    fn category(&self, index: usize) -> String {
        let (left, width) = self.slot(index);
        let category = &self.bars.categories[index];
        let mut names = wrap(&category.name, (width / CHAR_WIDTH) as usize);
        names.truncate(CATEGORY_LINES_MAX);
        names.extend(svg::origin_word(category.origin).map(|word| format!("({word})")));
        let mut out = String::new();
        for (line, name) in names.iter().enumerate() {
            let y = self.area.bottom + 18.0 + line as f64 * 15.0;
            let _ = write!(out, "{}", svg::words("middle", left + width / 2.0, y, name));
        }
        out
    }
}

/// Returns a rectangle filled as its origin demands. The pattern of an emulated one is in the page's own definitions.
pub(super) fn fill(shape: &str, colour: usize, origin: Origin) -> String {
    let body = format!("<rect class=\"bar\" {shape}/>");
    match origin {
        Origin::Emulated => {
            let pattern = colour % svg::COLOURS;
            format!("{body}<rect class=\"hatch\" {shape} fill=\"url(#hatch_{pattern})\"/>")
        }
        Origin::Measured | Origin::Computed | Origin::Published => body,
    }
}
