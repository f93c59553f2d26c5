//! Turns results into one self-contained HTML page: tables, and figures as inline SVG. No scripts, no fonts, no
//! network. It draws what it is given: it measures nothing, computes no statistics, reads no clock and no file, and
//! never passes text through unescaped or draws a value that is not a number.

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
    /// One sentence: what the page shows.
    pub subtitle: String,
    /// What the results hold for, as (name, value): machine, class, version, date, command.
    pub facts: Vec<(String, String)>,
    /// The body.
    pub sections: Vec<Section>,
}

impl Report {
    /// The whole page. Values that cannot be drawn are gaps, and the figure says how many there are.
    pub fn html(&self) -> String {
        page::html(self)
    }
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
    /// Small print: method, limits, what was left out.
    pub notes: Vec<String>,
}

/// One figure: panels side by side, under one legend, so a colour should mean the same in all of them.
#[derive(Debug, Clone)]
pub struct Figure {
    /// The anchor, `#id`; what an anchor cannot hold becomes a hyphen, and a repeated one gets a number.
    pub id: String,
    /// What to see.
    pub caption: String,
    /// Usually two: median and p90.
    pub panels: Vec<Panel>,
}

/// One plot with its own axes.
#[derive(Debug, Clone)]
pub struct Panel {
    /// Such as "median".
    pub title: String,
    /// What is drawn.
    pub plot: Plot,
}

impl Panel {
    /// Lines.
    pub fn lines(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Panel {
        Panel { title: title.into(), plot: Plot::Lines(Lines { x, y, series }) }
    }

    /// Bars beside each other, without a mark.
    pub fn groups(
        title: impl Into<String>,
        y_label: impl Into<String>,
        categories: impl IntoIterator<Item = Category>,
        series: impl IntoIterator<Item = BarSeries>,
    ) -> Panel {
        let bars = Bars {
            y_label: y_label.into(),
            layout: Layout::Grouped,
            categories: categories.into_iter().collect(),
            series: series.into_iter().collect(),
            mark: None,
        };
        Panel { title: title.into(), plot: Plot::Bars(bars) }
    }
}

/// What a panel draws.
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
}

/// One axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// The quantity with its unit: "latency (us)".
    pub label: String,
    /// How values are spread; a linear axis always includes zero.
    pub scale: Scale,
    /// How ticks are written.
    pub ticks: Ticks,
}

impl Axis {
    /// From zero, in equal steps.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Linear, ticks: Ticks::Plain }
    }

    /// In decades; only positive values have a place.
    pub fn log10(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Log10, ticks: Ticks::Plain }
    }

    /// Sizes in bytes, in doublings, written as 4 KiB.
    pub fn bytes(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Log2, ticks: Ticks::Bytes }
    }
}

/// How values are spread along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// In equal steps.
    Linear,
    /// In doublings.
    Log2,
    /// In decades.
    Log10,
}

/// How the numbers along an axis are written.
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
    /// Where the numbers come from.
    pub origin: Origin,
    /// Colour and marker.
    pub style: Style,
    /// In the order in which they are joined.
    pub points: Vec<Point>,
}

/// Where numbers come from; it decides how they are drawn, so that nothing emulated can pass for hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// On this machine, nothing virtual in the path: solid lines, full markers, full bars.
    Measured,
    /// With a virtual device in the path: dashed lines, hollow markers, hatched bars, and the legend says "emulated".
    Emulated,
    /// By equations or a simulator: long dashes, hollow markers, half-pale bars, and the legend says "computed".
    Computed,
    /// Someone else's numbers: dotted lines, hollow markers, pale bars, and the legend says "published".
    Published,
}

/// How a line looks, apart from what its origin decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// An index into seven colours that colour-blind readers can tell apart; it wraps around.
    pub colour: usize,
    /// The shape at each point.
    pub marker: Marker,
}

impl Style {
    /// The `n`th colour with the `n`th marker.
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
    /// Along the horizontal axis.
    pub x: f64,
    /// Along the vertical axis.
    pub y: f64,
    /// The lower end of the spread, drawn with `high` as a whisker.
    pub low: Option<f64>,
    /// The upper end of the spread.
    pub high: Option<f64>,
}

impl Point {
    #[cfg(test)]
    /// A point without a spread.
    pub fn new(x: f64, y: f64) -> Point {
        Point { x, y, low: None, high: None }
    }

    /// A point with a spread.
    pub fn with_spread(x: f64, y: f64, low: f64, high: f64) -> Point {
        Point { x, y, low: Some(low), high: Some(high) }
    }
}

/// Bars by category, from zero on a linear axis.
#[derive(Debug, Clone)]
pub struct Bars {
    /// The vertical axis' quantity with its unit.
    pub y_label: String,
    /// Beside each other or on top of each other.
    pub layout: Layout,
    /// Along the horizontal axis.
    pub categories: Vec<Category>,
    /// One colour each: the stages of a stack, or the members of a group.
    pub series: Vec<BarSeries>,
    /// A mark over each category to hold the bars against, such as the measured difference.
    pub mark: Option<Mark>,
}

/// How the bars of a category stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// On top of each other; negative values hang below zero, and a line then shows the sum.
    Stacked,
    /// Beside each other, each with its number.
    Grouped,
}

/// One place along the horizontal axis of bars.
#[derive(Debug, Clone)]
pub struct Category {
    /// Its name.
    pub name: String,
    /// Where the numbers of its bars come from whose series is `Measured`; the others' is the series' own.
    pub origin: Origin,
}

impl Category {
    /// One whose series say where their numbers come from.
    pub fn new(name: impl Into<String>) -> Category {
        Category { name: name.into(), origin: Origin::Measured }
    }
}

/// The bars of one colour.
#[derive(Debug, Clone)]
pub struct BarSeries {
    /// The name in the legend.
    pub name: String,
    /// Where the numbers come from.
    pub origin: Origin,
    /// An index into the seven colours; it wraps around.
    pub colour: usize,
    /// One a category, in their order; one that is missing is a gap.
    pub values: Vec<f64>,
}

impl BarSeries {
    /// In the `colour`th colour.
    pub fn new(
        name: impl Into<String>,
        origin: Origin,
        colour: usize,
        values: impl IntoIterator<Item = f64>,
    ) -> BarSeries {
        BarSeries { name: name.into(), origin, colour, values: values.into_iter().collect() }
    }
}

/// A mark over each category.
#[derive(Debug, Clone)]
pub struct Mark {
    /// The name in the legend.
    pub name: String,
    /// One a category, in their order.
    pub values: Vec<f64>,
}

/// A table; the first cell of a row names the row.
#[derive(Debug, Clone)]
pub struct Table {
    /// What it lists.
    pub caption: String,
    /// One a column.
    pub header: Vec<Column>,
    /// Cells as they are to be read. A short row is filled up.
    pub rows: Vec<Vec<String>>,
}

/// One column of a table.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its name, with the unit.
    pub name: String,
    /// Aligned at the right, in digits of equal width.
    pub numeric: bool,
}

impl Column {
    /// A column of words.
    pub fn text(name: impl Into<String>) -> Column {
        Column { name: name.into(), numeric: false }
    }

    /// A column of numbers.
    pub fn number(name: impl Into<String>) -> Column {
        Column { name: name.into(), numeric: true }
    }
}
