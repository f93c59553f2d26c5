//! A panel of bars: stacked stages or groups. Bars always start at zero. They are horizontal with their names on the
//! left, so that any number of bars and names of any length fit. A value that cannot be drawn is a gap.

use std::fmt::Write;

use maud::{Markup, html};

use super::axis::{Span, drawable};
use super::svg::{self, Area, CHAR_WIDTH, Length};
use super::text::{number, wrap};
use super::{BarSeries, Bars, Category, Layout, Marker, Origin, Scale, Ticks, lines};

/// The most characters in a line of a category's name.
const NAME_COLUMNS: usize = 20;
const NAME_LINE: f64 = 15.0;
/// The height that the bars of a panel share, in SVG units. A bar is `THICK[0]` to `THICK[1]` thick.
const ROOM: f64 = 210.0;
const THICK: [f64; 2] = [16.0, 30.0];
/// The vertical space between two categories, in SVG units.
const GAP: f64 = 10.0;

/// Returns the number of values that are missing or cannot be drawn.
pub(super) fn gaps(bars: &Bars) -> usize {
    let all = 0..bars.categories.len();
    let missing = |series: &BarSeries| {
        let is_gap =
            |n: &usize| value(&series.values, *n).is_none() && spread(series, *n).is_none();
        all.clone().filter(is_gap).count()
    };
    let mark = bars.mark.iter().flat_map(|mark| all.clone().map(|n| value(&mark.values, n)));
    bars.series.iter().map(missing).sum::<usize>() + mark.filter(Option::is_none).count()
}

/// Returns whether a stack has negative values, so that its sum must be shown.
pub(super) fn has_sums(bars: &Bars) -> bool {
    let negative = |series: &BarSeries| series.values.iter().any(|value| *value < 0.0);
    bars.layout == Layout::Stacked && bars.series.iter().any(negative)
}

/// Returns the origin of a bar's number. A measured number has the origin of its category, for example an
/// emulated device. A computed or published number has the origin of its series.
pub(super) fn origin(category: &Category, series: &BarSeries) -> Origin {
    if series.origin == Origin::Measured { category.origin } else { series.origin }
}

fn value(values: &[f64], index: usize) -> Option<f64> {
    values.get(index).and_then(|value| drawable(*value, Scale::Linear))
}

/// Returns the ends of a value's interval, if both can be drawn. An exact value has no interval.
pub(super) fn spread(series: &BarSeries, index: usize) -> Option<[f64; 2]> {
    let [low, high] = series.spreads.get(index)?.filter(|[low, high]| low < high)?;
    Some([drawable(low, Scale::Linear)?, drawable(high, Scale::Linear)?])
}

/// Returns the panel as SVG.
pub(super) fn svg(id: &str, title: &str, bars: &Bars) -> Markup {
    let drawing = Drawing::new(bars);
    let body = html! {
        (svg::horizontal(&drawing.area, &drawing.x, Ticks::Plain, &bars.label, true))
        @for (index, block) in drawing.blocks.iter().enumerate() {
            (drawing.names(block))
            @match bars.layout {
                Layout::Stacked => (drawing.stack(index, block)),
                Layout::Grouped => (drawing.group(index, block)),
            }
            (drawing.mark(index, block))
        }
    };
    let series = bars.series.iter().map(|series| svg::full_name(&series.name, series.origin));
    let categories = bars.categories.iter().map(|c| svg::full_name(&c.name, c.origin));
    let [series, categories] = [series.collect::<Vec<_>>(), categories.collect()];
    let about = format!("Bars: {}. For: {}.", series.join("; "), categories.join("; "));
    svg::element(id, title, [&bars.label, &about], drawing.area.bottom, &body)
}

/// Returns all values that the axis must include.
fn extents(bars: &Bars) -> Vec<f64> {
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
        all.extend(bars.series.iter().filter_map(|series| spread(series, index)).flatten());
        all.extend(bars.mark.iter().filter_map(|mark| value(&mark.values, index)));
    }
    all
}

/// The vertical space that a category occupies.
struct Block {
    top: f64,
    height: f64,
    /// The lines of the category's name.
    names: Vec<String>,
}

struct Drawing<'a> {
    bars: &'a Bars,
    area: Area,
    x: Span,
    thick: f64,
    blocks: Vec<Block>,
}

impl<'a> Drawing<'a> {
    fn new(bars: &'a Bars) -> Drawing<'a> {
        let x = Span::holding(Scale::Linear, &extents(bars));
        let rows = if bars.layout == Layout::Grouped { bars.series.len().max(1) } else { 1 };
        let thick = (ROOM / (rows * bars.categories.len()).max(1) as f64).clamp(THICK[0], THICK[1]);
        let mut top = svg::TOP;
        let mut blocks = Vec::new();
        for category in &bars.categories {
            let mut names = wrap(&category.name, NAME_COLUMNS);
            names.extend(svg::origin_word(category.origin).map(|word| format!("({word})")));
            let height = (rows as f64 * thick).max(names.len() as f64 * NAME_LINE) + GAP;
            blocks.push(Block { top, height, names });
            top += height;
        }
        let lines = blocks.iter().flat_map(|block| &block.names);
        let columns = lines.map(|line| line.chars().count()).max().unwrap_or(0);
        let is_numbered = bars.layout == Layout::Grouped;
        let values = bars.series.iter().flat_map(|series| &series.values);
        let numbers = values.filter(|value| is_numbered && value.is_finite());
        let digits = numbers.map(|value| number(*value, Ticks::Plain).chars().count()).max();
        let area = Area {
            left: 14.0 + columns as f64 * CHAR_WIDTH * 0.9,
            right: svg::WIDTH - digits.map_or(20.0, |digits| 12.0 + digits as f64 * CHAR_WIDTH),
            top: svg::TOP,
            bottom: top,
        };
        Drawing { bars, area, x, thick, blocks }
    }

    /// Returns the horizontal position of a value.
    fn at(&self, value: f64) -> f64 {
        self.area.x(self.x.place(value))
    }

    fn names(&self, block: &Block) -> Markup {
        let first = block.top + (block.height - block.names.len() as f64 * NAME_LINE) / 2.0 + 12.0;
        html! {
            @for (line, name) in block.names.iter().enumerate() {
                (svg::words("end", self.area.left - 8.0, first + line as f64 * NAME_LINE, name))
            }
        }
    }

    fn stack(&self, index: usize, block: &Block) -> Markup {
        let y = block.top + (block.height - self.thick) / 2.0;
        let (mut up, mut down) = (0.0, 0.0);
        html! {
            @for series in &self.bars.series {
                @if let Some(value) = value(&series.values, index) {
                    @let base = if value >= 0.0 { &mut up } else { &mut down };
                    @let from = std::mem::replace(base, *base + value);
                    (self.bar(index, series, y, Some([from, from + value])))
                }
            }
            @if has_sums(self.bars) {
                @let at = self.at(up + down);
                (svg::line("sum", at, y - 4.0, at, y + self.thick + 4.0))
            }
        }
    }

    fn group(&self, index: usize, block: &Block) -> Markup {
        let rows = self.bars.series.len() as f64;
        let first = block.top + (block.height - rows * self.thick) / 2.0;
        html! {
            @for (place, series) in self.bars.series.iter().enumerate() {
                @let y = first + place as f64 * self.thick;
                @let found = value(&series.values, index);
                (self.bar(index, series, y, found.map(|value| [0.0, value])))
                @let ends = spread(series, index).into_iter().flatten().chain(found);
                @let beside = self.at(ends.fold(0.0, f64::max)) + 6.0;
                @let text = found.map_or("\u{2013}".to_owned(), |value| number(value, Ticks::Plain));
                (svg::small_words("start", beside, y + self.thick / 2.0 + 4.5, &text))
            }
        }
    }

    /// Draws the bar between two values, with the whisker of its interval.
    fn bar(&self, index: usize, series: &BarSeries, y: f64, ends: Option<[f64; 2]>) -> Markup {
        let category = &self.bars.categories[index];
        let origin = origin(category, series);
        let number = |value| number(value, Ticks::Plain);
        let mut hint = format!("{}, {}:", category.name, svg::full_name(&series.name, origin));
        if let Some([from, to]) = ends {
            let _ = write!(hint, " {}", number(to - from));
        }
        let spread = spread(series, index);
        if let Some([low, high]) = spread {
            let _ = write!(hint, " ({} to {})", number(low), number(high));
        }
        if ends.is_none() && spread.is_none() {
            return Markup::default();
        }
        html! {
            g class=(svg::class(series.colour, origin)) data-series=(series.name) {
                @if let Some(ends) = ends {
                    @let [from, to] = ends.map(|end| self.at(end));
                    @let (left, wide) = (from.min(to), (from - to).abs());
                    (fill([left, y + 1.0, wide, self.thick - 2.0], series.colour, origin))
                }
                @if let Some(ends) = spread {
                    @let [low, high] = ends.map(|end| self.at(end));
                    @let (top, bottom) = (y + self.thick * 0.28, y + self.thick * 0.72);
                    path class="error" d=(format!(
                        "M{low:.1} {top:.1}V{bottom:.1}M{low:.1} {0:.1}H{high:.1}\
                         M{high:.1} {top:.1}V{bottom:.1}",
                        (top + bottom) / 2.0
                    )) {}
                }
                title { (hint) }
            }
        }
    }

    fn mark(&self, index: usize, block: &Block) -> Markup {
        let found = self.bars.mark.as_ref();
        let found = found.and_then(|mark| Some((mark, value(&mark.values, index)?)));
        let Some((mark, value)) = found else { return Markup::default() };
        let text = number(value, Ticks::Plain);
        let hint = format!("{}, {}: {text}", self.bars.categories[index].name, mark.name);
        let y = block.top + block.height / 2.0;
        html! { g class="mark" { (lines::marker(Marker::Diamond, self.at(value), y, &hint)) } }
    }
}

/// Returns a rectangle (x, y, width, height) whose fill shows the origin of its number. Emulated numbers use
/// a pattern that the page defines once.
pub(super) fn fill([x, y, width, height]: [f64; 4], colour: usize, origin: Origin) -> Markup {
    let hatch = format!("url(#hatch_{})", colour % svg::COLOURS);
    let rect = |class: &str, fill: Option<&str>| {
        html! {
            rect class=(class) x=(Length(x)) y=(Length(y)) width=(Length(width))
                height=(Length(height)) fill=[fill] {}
        }
    };
    html! { (rect("bar", None)) @if origin == Origin::Emulated { (rect("hatch", Some(&hatch))) } }
}
