//! Turns results into one self-contained HTML page with tables, and with figures as inline SVG. The page has no
//! scripts, no fonts and no network access. The crate measures nothing, computes no statistics, and reads no clock and
//! no file. It escapes all text, and never draws a value that is not a number.

mod axis;
mod bars;
mod lines;
mod page;
mod svg;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod text;

/// A page. Texts are plain. Text between a pair of backticks is shown as code.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The title of the page, which the browser's tab also shows.
    pub title: String,
    /// One sentence on what the page shows.
    pub subtitle: String,
    /// The facts under which the results hold, as (name, value): machine, class, version, date, command.
    pub facts: Vec<(String, String)>,
    /// The sections of the body.
    pub sections: Vec<Section>,
}

impl Report {
    /// Returns the whole page. Values that cannot be drawn are gaps, and each figure states their number.
    pub fn html(&self) -> String {
        page::html(self, None, &[])
    }

    /// Returns a page with links to other pages. The browser reloads it every `refresh_s` seconds, if given.
    pub fn served(&self, refresh_s: Option<u32>, links: &[Link<'_>]) -> String {
        page::html(self, refresh_s, links)
    }
}

/// A link to another page of the same server.
#[derive(Debug, Clone, Copy)]
pub struct Link<'a> {
    /// The address, from the server's root.
    pub href: &'a str,
    /// The text.
    pub text: &'a str,
    /// True if the link leads to the page that contains it.
    pub is_here: bool,
}

/// A part of the page. It shows prose, figures, tables and notes in this order.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// The heading. The top of the page links to it.
    pub heading: String,
    /// The paragraphs of text.
    pub prose: Vec<String>,
    /// The figures, which are numbered through the page.
    pub figures: Vec<Figure>,
    /// The tables, which are numbered through the page.
    pub tables: Vec<Table>,
    /// The small print: method, limits, and omissions.
    pub notes: Vec<String>,
}

/// One figure with panels side by side. All panels share one legend, so a colour should mean the same in each.
#[derive(Debug, Clone)]
pub struct Figure {
    /// The anchor, `#id`. Characters that an anchor cannot have become hyphens, and a repeated anchor gets a number.
    pub id: String,
    /// The caption.
    pub caption: String,
    /// The panels, usually two: median and p90.
    pub panels: Vec<Panel>,
}

/// One plot with its own axes.
#[derive(Debug, Clone)]
pub struct Panel {
    /// The title, such as "median".
    pub title: String,
    /// The plot.
    pub plot: Plot,
}

impl Panel {
    /// Makes a panel of lines.
    pub fn lines(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Panel {
        let lines = Lines { x, y, series, thresholds: Vec::new() };
        Panel { title: title.into(), plot: Plot::Lines(lines) }
    }

    /// Makes a panel of bars below each other, without marks.
    pub fn groups(
        title: impl Into<String>,
        label: impl Into<String>,
        categories: impl IntoIterator<Item = Category>,
        series: impl IntoIterator<Item = BarSeries>,
    ) -> Panel {
        let bars = Bars {
            label: label.into(),
            layout: Layout::Grouped,
            categories: categories.into_iter().collect(),
            series: series.into_iter().collect(),
            mark: None,
        };
        Panel { title: title.into(), plot: Plot::Bars(bars) }
    }
}

/// The content of a panel.
#[derive(Debug, Clone)]
pub enum Plot {
    /// Lines of points.
    Lines(Lines),
    /// Bars by category.
    Bars(Bars),
}

/// Lines over two axes.
#[derive(Debug, Clone)]
pub struct Lines {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines. A name that occurs in several panels has one entry in the legend.
    pub series: Vec<Series>,
    /// The vertical dotted lines, at values of x where something changes.
    pub thresholds: Vec<Threshold>,
}

/// A dotted line across a panel of lines. Its name shows when the pointer is on it.
#[derive(Debug, Clone)]
pub struct Threshold {
    /// The name of the range that begins at this position.
    pub name: String,
    /// The position along the horizontal axis.
    pub x: f64,
    /// An index into the seven colours. Larger numbers wrap around.
    pub colour: usize,
}

/// One axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// The quantity with its unit, such as "latency (us)".
    pub label: String,
    /// The scale. A linear axis always includes zero.
    pub scale: Scale,
    /// The format of the tick labels.
    pub ticks: Ticks,
}

impl Axis {
    /// Makes a linear axis from zero.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Linear, ticks: Ticks::Plain }
    }

    /// Makes a logarithmic axis in decades. It can show only positive values.
    pub fn log10(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Log10, ticks: Ticks::Plain }
    }

    /// Makes a logarithmic axis for sizes in bytes, in doublings. Sizes are written like 4 KiB.
    pub fn bytes(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Log2, ticks: Ticks::Bytes }
    }
}

/// The mapping from values to positions along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// The axis is linear.
    Linear,
    /// The axis is logarithmic, in doublings.
    Log2,
    /// The axis is logarithmic, in decades.
    Log10,
}

/// The format of the numbers along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticks {
    /// Plain numbers such as 20, 5,000 and 1.5M.
    Plain,
    /// Sizes such as 512 B, 4 KiB and 1 MiB.
    Bytes,
}

/// One line.
#[derive(Debug, Clone)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// A label of a few letters at the end of the line. An empty label is not shown.
    pub label: String,
    /// The origin of the numbers.
    pub origin: Origin,
    /// The colour and the marker.
    pub style: Style,
    /// The points in the order in which they are joined.
    pub points: Vec<Point>,
}

/// The origin of numbers. It determines how numbers are drawn, so that emulated numbers cannot be mistaken
/// for measurements of hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The numbers were measured without virtual devices. They have solid lines, full markers and full bars.
    Measured,
    /// The numbers were measured with a virtual device. They have dashed lines, hollow markers and hatched bars, and
    /// the legend says "emulated".
    Emulated,
    /// The numbers were computed by equations or a simulator. They have long dashes, hollow markers and half-pale bars,
    /// and the legend says "computed".
    Computed,
    /// The numbers were published by someone else. They have dotted lines, hollow markers and pale bars, and the legend
    /// says "published".
    Published,
}

/// The part of a line's look that does not depend on its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// An index into the seven colours, which colour-blind readers can tell apart. Larger numbers wrap around.
    pub colour: usize,
    /// The shape at each point.
    pub marker: Marker,
}

impl Style {
    /// Makes a style of the `n`th colour and the `n`th marker.
    pub fn nth(n: usize) -> Style {
        let markers = [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond];
        Style { colour: n, marker: markers[n % markers.len()] }
    }
}

/// The shape at each point of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// A disc.
    Circle,
    /// A square.
    Square,
    /// A triangle, point up.
    Triangle,
    /// A square that stands on a corner.
    Diamond,
}

/// One point of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The position along the horizontal axis.
    pub x: f64,
    /// The position along the vertical axis.
    pub y: f64,
    /// The lower end of the spread. A whisker shows the spread if both ends are known.
    pub low: Option<f64>,
    /// The upper end of the spread.
    pub high: Option<f64>,
}

impl Point {
    #[cfg(test)]
    /// Makes a point without a spread.
    pub fn new(x: f64, y: f64) -> Point {
        Point { x, y, low: None, high: None }
    }

    /// Makes a point with a spread.
    pub fn with_spread(x: f64, y: f64, low: f64, high: f64) -> Point {
        Point { x, y, low: Some(low), high: Some(high) }
    }
}

/// Horizontal bars by category, which start at zero on a linear axis. A name of any length fits beside its bars.
#[derive(Debug, Clone)]
pub struct Bars {
    /// The quantity with its unit.
    pub label: String,
    /// The layout of a category's bars.
    pub layout: Layout,
    /// The categories from top to bottom.
    pub categories: Vec<Category>,
    /// The series, each with its colour. They are the stages of a stack or the members of a group.
    pub series: Vec<BarSeries>,
    /// A mark in each category for comparison with the bars, such as the measured difference.
    pub mark: Option<Mark>,
}

/// The layout of the bars of a category.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// The bars follow each other. Negative values go to the left of zero, and then a line shows the sum.
    Stacked,
    /// The bars are below each other, and each has its number.
    Grouped,
}

/// One group of bars.
#[derive(Debug, Clone)]
pub struct Category {
    /// The name of the category.
    pub name: String,
    /// The origin of the category's bars, except in series whose own origin is not `Measured`.
    pub origin: Origin,
}

impl Category {
    /// Makes a category whose bars all have the origin of their series.
    pub fn new(name: impl Into<String>) -> Category {
        Category { name: name.into(), origin: Origin::Measured }
    }
}

/// The bars of one colour.
#[derive(Debug, Clone)]
pub struct BarSeries {
    /// The name in the legend.
    pub name: String,
    /// The origin of the numbers.
    pub origin: Origin,
    /// An index into the seven colours. Larger numbers wrap around.
    pub colour: usize,
    /// One value per category, in the order of the categories. A missing value is a gap.
    pub values: Vec<f64>,
    /// The ends of each value's interval, drawn as a whisker. Empty if no value has an interval.
    pub spreads: Vec<Option<[f64; 2]>>,
}

impl BarSeries {
    /// Makes bars of the colour with index `colour`.
    pub fn new(
        name: impl Into<String>,
        origin: Origin,
        colour: usize,
        values: impl IntoIterator<Item = f64>,
    ) -> BarSeries {
        let (name, values) = (name.into(), values.into_iter().collect());
        BarSeries { name, origin, colour, values, spreads: Vec::new() }
    }

    /// Adds the ends of each value's interval. An interval without a value is also drawn.
    #[must_use]
    pub fn with_spreads(self, spreads: impl IntoIterator<Item = Option<[f64; 2]>>) -> BarSeries {
        BarSeries { spreads: spreads.into_iter().collect(), ..self }
    }
}

/// A mark in each category.
#[derive(Debug, Clone)]
pub struct Mark {
    /// The name in the legend.
    pub name: String,
    /// One value per category, in the order of the categories.
    pub values: Vec<f64>,
}

/// A table. The first cell of a row names the row.
#[derive(Debug, Clone)]
pub struct Table {
    /// The caption.
    pub caption: String,
    /// The columns.
    pub header: Vec<Column>,
    /// The cells as text. A row with too few cells gets empty ones.
    pub rows: Vec<Vec<String>>,
}

/// One column of a table.
#[derive(Debug, Clone)]
pub struct Column {
    /// The name of the column, with the unit.
    pub name: String,
    /// True if the column is right-aligned, in digits of equal width.
    pub numeric: bool,
}

impl Column {
    /// Makes a column of words.
    pub fn text(name: impl Into<String>) -> Column {
        Column { name: name.into(), numeric: false }
    }

    /// Makes a column of numbers.
    pub fn number(name: impl Into<String>) -> Column {
        Column { name: name.into(), numeric: true }
    }
}
