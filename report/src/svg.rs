//! The parts that all panels share: the frame with grid, ticks and labels, and the SVG element around it. The module
//! draws no data.

use maud::{Markup, Render, html};

use super::axis::Span;
use super::text::number;
use super::{Origin, Ticks};

pub(super) const COLOURS: usize = 7;
/// The width of a panel in SVG units, which the browser scales to the page.
pub(super) const WIDTH: f64 = 480.0;
/// The heights in SVG units of the title above the data (`TOP`) and of ticks and label below it (`FOOT`).
pub(super) const TOP: f64 = 34.0;
pub(super) const FOOT: f64 = 56.0;
/// The approximate width of a character in the widest font of the style sheet.
pub(super) const CHAR_WIDTH: f64 = 8.4;

/// A length in the units of a panel.
pub(super) struct Length(pub(super) f64);

impl Render for Length {
    fn render_to(&self, buffer: &mut String) {
        buffer.push_str(&format!("{:.1}", self.0));
    }
}

/// The rectangle in which data is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Area {
    pub(super) fn x(&self, place: f64) -> f64 {
        self.left + place * (self.right - self.left)
    }

    pub(super) fn y(&self, place: f64) -> f64 {
        self.bottom - place * (self.bottom - self.top)
    }
}

/// Draws the grid, ticks and label of the vertical axis.
pub(super) fn vertical(area: &Area, y: &Span, ticks: Ticks, label: &str) -> Markup {
    let middle = (area.top + area.bottom) / 2.0;
    html! {
        @for tick in &y.ticks {
            @let at = area.y(y.place(*tick));
            (line(if *tick == 0.0 { "axis" } else { "grid" }, area.left, at, area.right, at))
            (words("end", area.left - 8.0, at + 4.5, &number(*tick, ticks)))
        }
        text class="label" text-anchor="middle"
            transform={ "translate(16 " (Length(middle)) ") rotate(-90)" } { (label) }
    }
}

/// Draws the ticks and label of the horizontal axis. If `grid` is true, it also draws lines up through the data.
pub(super) fn horizontal(area: &Area, x: &Span, ticks: Ticks, label: &str, grid: bool) -> Markup {
    let texts: Vec<String> = x.ticks.iter().map(|tick| number(*tick, ticks)).collect();
    let stride = stride(area, x, &texts);
    html! {
        (line("axis", area.left, area.bottom, area.right, area.bottom))
        @for (index, (tick, text)) in x.ticks.iter().zip(&texts).enumerate() {
            @let at = area.x(x.place(*tick));
            @if grid {
                (line(if *tick == 0.0 { "axis" } else { "grid" }, at, area.top, at, area.bottom))
            }
            (line("axis", at, area.bottom, at, area.bottom + 5.0))
            @if index.is_multiple_of(stride) { (words("middle", at, area.bottom + 20.0, text)) }
        }
        text class="label" text-anchor="middle" x=(Length((area.left + area.right) / 2.0))
            y=(Length(area.bottom + FOOT - 12.0)) { (label) }
    }
}

/// Returns the number of ticks per label at which the labels fit side by side without overlap.
fn stride(area: &Area, x: &Span, texts: &[String]) -> usize {
    let longest = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
    let label_width = longest as f64 * CHAR_WIDTH * 0.9 + 3.0;
    let ends = x.ticks.first().zip(x.ticks.last());
    let width = ends.map_or(0.0, |(a, b)| area.x(x.place(*b)) - area.x(x.place(*a)));
    let apart = width / texts.len().saturating_sub(1).max(1) as f64;
    if apart > 0.0 { (label_width / apart).ceil() as usize } else { 1 }
}

/// Returns the SVG element of a panel whose data ends at `bottom`. `name` and `about` are for screen readers.
pub(super) fn element(
    id: &str,
    title: &str,
    [name, about]: [&str; 2],
    bottom: f64,
    body: &Markup,
) -> Markup {
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (Length(bottom + FOOT)) } role="img"
            aria-labelledby={ (id) "_t " (id) "_d" } {
            title id={ (id) "_t" } { (title) ": " (name) }
            desc id={ (id) "_d" } { (about) }
            text class="panel" x="4" y="18" { (title) }
            (body)
        }
    }
}

pub(super) fn line(class: &str, x1: f64, y1: f64, x2: f64, y2: f64) -> Markup {
    html! { path class=(class) d=(format!("M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}")) {} }
}

pub(super) fn words(anchor: &str, x: f64, y: f64, text: &str) -> Markup {
    html! { text text-anchor=(anchor) x=(Length(x)) y=(Length(y)) { (text) } }
}

pub(super) fn small_words(anchor: &str, x: f64, y: f64, text: &str) -> Markup {
    html! { text class="small" text-anchor=(anchor) x=(Length(x)) y=(Length(y)) { (text) } }
}

/// Returns the CSS classes for a colour and an origin. Measured numbers need only the class of the colour.
pub(super) fn class(colour: usize, origin: Origin) -> String {
    match origin_word(origin) {
        Some(word) => format!("c{} {word}", colour % COLOURS),
        None => format!("c{}", colour % COLOURS),
    }
}

/// Returns the word that marks numbers that were not measured here.
pub(super) fn origin_word(origin: Origin) -> Option<&'static str> {
    match origin {
        Origin::Measured => None,
        Origin::Emulated => Some("emulated"),
        Origin::Computed => Some("computed"),
        Origin::Published => Some("published"),
    }
}

/// Returns the name with its origin, as in the legend.
pub(super) fn full_name(name: &str, origin: Origin) -> String {
    match origin_word(origin) {
        Some(word) => format!("{name} ({word})"),
        None => String::from(name),
    }
}
