//! Turns results into one self-contained HTML page: tables, and figures as inline SVG. There are no scripts, fonts or
//! network. It draws what it is given: it measures nothing, computes no statistics, and reads no clock and no file. It
//! never passes text through unescaped, and never draws a value that is not a number.

mod axis;
mod bars;
mod lines;
mod page;
mod svg;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod text;

/// A page. Texts are plain; between a pair of backticks they are set as code.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The page's name, also in the browser's tab.
    pub title: String,
    /// One sentence on what the page shows.
    pub subtitle: String,
    /// The facts that the results hold for, as (name, value): machine, class, version, date, command.
    pub facts: Vec<(String, String)>,
    /// The body.
    pub sections: Vec<Section>,
}

impl Report {
    /// Returns the whole page. Values that cannot be drawn are gaps, and the figure says how many there are.
    pub fn html(&self) -> String {
        page::html(self, None, &[])
    }

    /// Returns a page of a server: with links to other pages, and reloaded by the browser every `refresh_s` if given.
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
    /// True if it leads to the page that it is on.
    pub is_here: bool,
}

/// A part of the page, in this order: prose, figures, tables, notes.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// The heading; a link to the section stands at the top of the page.
    pub heading: String,
    /// Paragraphs.
    pub prose: Vec<String>,
    /// Figures, numbered through the page.
    pub figures: Vec<Figure>,
    /// Tables, numbered through the page.
    pub tables: Vec<Table>,
    /// The small print: method, limits, and omissions.
    pub notes: Vec<String>,
}

/// One figure: panels side by side, under one legend, so a colour should mean the same in all of them.
#[derive(Debug, Clone)]
pub struct Figure {
    /// The anchor, `#id`. A character that an anchor cannot hold becomes a hyphen, and a repeated anchor gets a number.
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

    /// Makes a panel of bars below each other, without a mark.
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
    /// The lines. A name used in several panels is one entry of the legend.
    pub series: Vec<Series>,
    /// Values of x from which something changes.
    pub thresholds: Vec<Threshold>,
}

/// A dotted line across a panel of lines, named when it is pointed at.
#[derive(Debug, Clone)]
pub struct Threshold {
    /// Says what begins here.
    pub name: String,
    /// The position along the horizontal axis.
    pub x: f64,
    /// An index into the seven colours; it wraps around.
    pub colour: usize,
}

/// One axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// The quantity with its unit: "latency (us)".
    pub label: String,
    /// The scale. A linear axis always includes zero.
    pub scale: Scale,
    /// The way in which ticks are written.
    pub ticks: Ticks,
}

impl Axis {
    /// Makes an axis from zero, in equal steps.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Linear, ticks: Ticks::Plain }
    }

    /// Makes an axis in decades. Only positive values have a place.
    pub fn log10(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Log10, ticks: Ticks::Plain }
    }

    /// Makes an axis for sizes in bytes, in doublings, written as 4 KiB.
    pub fn bytes(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Log2, ticks: Ticks::Bytes }
    }
}

/// The way in which values are spread along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Values are spread in equal steps.
    Linear,
    /// Values are spread in doublings.
    Log2,
    /// Values are spread in decades.
    Log10,
}

/// The way in which the numbers along an axis are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticks {
    /// 20, 5,000, 1.5M.
    Plain,
    /// 512 B, 4 KiB, 1 MiB.
    Bytes,
}

/// One line.
#[derive(Debug, Clone)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// A few letters at the end of the line; empty for none.
    pub label: String,
    /// The origin of the numbers.
    pub origin: Origin,
    /// Colour and marker.
    pub style: Style,
    /// The points in the order in which they are joined.
    pub points: Vec<Point>,
}

/// The origin of numbers. It decides how they are drawn, so that nothing emulated can pass for hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Measured on this machine, with nothing virtual in the path: solid lines, full markers, full bars.
    Measured,
    /// Measured with a virtual device in the path: dashed lines, hollow markers, hatched bars, and the legend says
    /// "emulated".
    Emulated,
    /// Computed by equations or a simulator: long dashes, hollow markers, half-pale bars, and the legend says
    /// "computed".
    Computed,
    /// Someone else's numbers: dotted lines, hollow markers, pale bars, and the legend says "published".
    Published,
}

/// The look of a line, apart from what its origin decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// An index into seven colours that colour-blind readers can tell apart; it wraps around.
    pub colour: usize,
    /// The shape at each point.
    pub marker: Marker,
}

impl Style {
    /// Returns the `n`th colour with the `n`th marker.
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
    /// A square on its corner.
    Diamond,
}

/// One measured point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The position along the horizontal axis.
    pub x: f64,
    /// The position along the vertical axis.
    pub y: f64,
    /// The lower end of the spread, drawn with `high` as a whisker.
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

/// Bars by category, from zero to the right on a linear axis. They lie, so that any name has room beside its bars.
#[derive(Debug, Clone)]
pub struct Bars {
    /// The quantity with its unit.
    pub label: String,
    /// The layout of a category's bars.
    pub layout: Layout,
    /// The categories from top to bottom.
    pub categories: Vec<Category>,
    /// The series, with one colour each: the stages of a stack, or the members of a group.
    pub series: Vec<BarSeries>,
    /// A mark in each category to compare the bars with, such as the measured difference.
    pub mark: Option<Mark>,
}

/// The layout of the bars of a category.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// The bars follow each other. Negative values go to the left of zero, and a line then shows the sum.
    Stacked,
    /// The bars are below each other, each with its number.
    Grouped,
}

/// One group of bars.
#[derive(Debug, Clone)]
pub struct Category {
    /// Its name.
    pub name: String,
    /// The origin of the numbers of those bars whose series is `Measured`. The other bars have their series' own.
    pub origin: Origin,
}

impl Category {
    /// Makes a category whose series say where their numbers come from.
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
    /// An index into the seven colours; it wraps around.
    pub colour: usize,
    /// One value per category, in their order. One that is missing is a gap.
    pub values: Vec<f64>,
    /// The ends of each value's interval, drawn as a whisker on its bar; empty if there are none.
    pub spreads: Vec<Option<[f64; 2]>>,
}

impl BarSeries {
    /// Makes bars in the `colour`th colour.
    pub fn new(
        name: impl Into<String>,
        origin: Origin,
        colour: usize,
        values: impl IntoIterator<Item = f64>,
    ) -> BarSeries {
        let (name, values) = (name.into(), values.into_iter().collect());
        BarSeries { name, origin, colour, values, spreads: Vec::new() }
    }

    /// Adds the ends of each value's interval. A value may be missing where only its ends are known.
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
    /// One value per category, in their order.
    pub values: Vec<f64>,
}

/// A table; the first cell of a row names the row.
#[derive(Debug, Clone)]
pub struct Table {
    /// The caption.
    pub caption: String,
    /// The columns.
    pub header: Vec<Column>,
    /// The cells as they are to be read. A short row is filled up.
    pub rows: Vec<Vec<String>>,
}

/// One column of a table.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its name, with the unit.
    pub name: String,
    /// True if the column is aligned at the right, in digits of equal width.
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
