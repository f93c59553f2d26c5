//! The part that all panels share: the frame with grid, ticks and labels, and the SVG element around it. It draws no
//! data.

use std::fmt::Write;

use super::axis::Span;
use super::text::{escape, number};
use super::{Origin, Ticks};

pub(super) const COLOURS: usize = 7;
/// The size of a panel in its own units; it is scaled to the page.
pub(super) const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 340.0;
/// The width of a character in the widest of the style sheet's fonts, about.
pub(super) const CHAR_WIDTH: f64 = 8.4;

/// The rectangle in which data is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Area {
    /// Makes an area with room for the ticks of `y` on the left and for `right` units of labels.
    pub(super) fn new(y: &Span, ticks: Ticks, right: f64) -> Area {
        let longest = y.ticks.iter().map(|tick| number(*tick, ticks).chars().count()).max();
        let left = 34.0 + longest.unwrap_or(0) as f64 * CHAR_WIDTH;
        Area { left, right: WIDTH - right.max(14.0), top: 34.0, bottom: HEIGHT - 56.0 }
    }

    pub(super) fn x(&self, place: f64) -> f64 {
        self.left + place * (self.right - self.left)
    }

    pub(super) fn y(&self, place: f64) -> f64 {
        self.bottom - place * (self.bottom - self.top)
    }
}

/// Draws the grid, ticks and label of the vertical axis, and the panel's title.
pub(super) fn vertical(area: &Area, y: &Span, ticks: Ticks, label: &str, title: &str) -> String {
    let mut out = String::new();
    for tick in &y.ticks {
        let at = area.y(y.place(*tick));
        let class = if *tick == 0.0 { "axis" } else { "grid" };
        out += &line(class, area.left, at, area.right, at);
        out += &words("end", area.left - 8.0, at + 4.5, &number(*tick, ticks));
    }
    let middle = (area.top + area.bottom) / 2.0;
    let _ = write!(
        out,
        "<text class=\"label\" text-anchor=\"middle\" transform=\"translate(16 {middle:.1}) rotate(-90)\">{}</text>\
         <text class=\"panel\" x=\"{:.1}\" y=\"18\">{}</text>",
        escape(label),
        area.left,
        escape(title)
    );
    out
}

/// Draws the ticks and label of a horizontal axis with numbers.
pub(super) fn horizontal(area: &Area, x: &Span, ticks: Ticks, label: &str) -> String {
    let mut out = line("axis", area.left, area.bottom, area.right, area.bottom);
    let texts: Vec<String> = x.ticks.iter().map(|tick| number(*tick, ticks)).collect();
    let stride = stride(area, x, &texts);
    for (index, (tick, text)) in x.ticks.iter().zip(&texts).enumerate() {
        let at = area.x(x.place(*tick));
        out += &line("axis", at, area.bottom, at, area.bottom + 5.0);
        if index.is_multiple_of(stride) {
            out += &words("middle", at, area.bottom + 20.0, text);
        }
    }
    let middle = (area.left + area.right) / 2.0;
    let _ = write!(
        out,
        "<text class=\"label\" text-anchor=\"middle\" x=\"{middle:.1}\" y=\"{:.1}\">{}</text>",
        HEIGHT - 12.0,
        escape(label)
    );
    out
}

/// Returns the number of ticks per label that there is room for.
fn stride(area: &Area, x: &Span, texts: &[String]) -> usize {
    let longest = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
    let room = longest as f64 * CHAR_WIDTH * 0.9 + 3.0;
    let ends = x.ticks.first().zip(x.ticks.last());
    let width = ends.map_or(0.0, |(a, b)| area.x(x.place(*b)) - area.x(x.place(*a)));
    let apart = width / texts.len().saturating_sub(1).max(1) as f64;
    if apart > 0.0 { (room / apart).ceil() as usize } else { 1 }
}

/// Returns the element around a panel. A reader who cannot see it hears `name` and `about`.
pub(super) fn element(id: &str, name: &str, about: &str, body: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"{id}_t {id}_d\">\
         <title id=\"{id}_t\">{}</title><desc id=\"{id}_d\">{}</desc>{body}</svg>",
        escape(name),
        escape(about)
    )
}

pub(super) fn line(class: &str, x1: f64, y1: f64, x2: f64, y2: f64) -> String {
    format!("<path class=\"{class}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>")
}

pub(super) fn words(anchor: &str, x: f64, y: f64, text: &str) -> String {
    format!("<text text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text))
}

/// Returns the class that sets the colour and, unless the numbers are measured, the look of their origin.
pub(super) fn class(colour: usize, origin: Origin) -> String {
    match origin_word(origin) {
        Some(word) => format!("c{} {word}", colour % COLOURS),
        None => format!("c{}", colour % COLOURS),
    }
}

/// Returns the word that must stand with numbers that were not measured here.
pub(super) fn origin_word(origin: Origin) -> Option<&'static str> {
    match origin {
        Origin::Measured => None,
        Origin::Emulated => Some("emulated"),
        Origin::Computed => Some("computed"),
        Origin::Published => Some("published"),
    }
}

/// Returns the name with its origin, as the legend has it.
pub(super) fn full_name(name: &str, origin: Origin) -> String {
    match origin_word(origin) {
        Some(word) => format!("{name} ({word})"),
        None => String::from(name),
    }
}
