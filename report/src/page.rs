//! The page around the figures: head, facts, sections, legends and tables. It also shows the numbers of each figure as
//! a table, for readers who cannot see the figure. It draws nothing itself.

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::text::{aligned, clean, number, rich, slug};
use super::{
    Bars, Column, Figure, Lines, Link, Origin, Panel, Plot, Report, Section, Table, Ticks,
};
use super::{bars, lines, svg};

/// The length from which a cell keeps a readable width beside words that cannot be broken (bytes).
const LONG: usize = 60;

const STYLE: &str = include_str!("style.css");
/// The content security policy. It forbids the page to load anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The length of the longest fact that shares its line with other facts, in characters.
const FACT_COLUMNS: usize = 28;

/// Returns the whole page.
pub(super) fn html(report: &Report, refresh_s: Option<u32>, links: &[Link<'_>]) -> String {
    let mut page = Page::default();
    let sections = report.sections.iter().map(|section| {
        let id = page.anchor(&section.heading);
        (id, rich(&section.heading), page.section(section))
    });
    let sections: Vec<(String, Markup, Markup)> = sections.collect();
    let html = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                @if let Some(refresh_s) = refresh_s { meta http-equiv="refresh" content=(refresh_s); }
                title { (report.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (patterns())
                header {
                    h1 { (rich(&report.title)) }
                    p class="subtitle" { (rich(&report.subtitle)) }
                    @if !links.is_empty() {
                        nav class="links" aria-label="Pages" {
                            ul { @for link in links { li {
                                a href=(link.href) aria-current=[link.is_here.then_some("page")] {
                                    (link.text)
                                }
                            } } }
                        }
                    }
                    (facts(&report.facts))
                    nav aria-label="Sections" {
                        ul { @for (id, heading, _) in &sections {
                            li { a href={ "#" (id) } { (heading) } }
                        } }
                    }
                }
                main {
                    @for (id, heading, body) in &sections {
                        section aria-labelledby=(id) { h2 id=(id) { (heading) } (body) }
                    }
                }
            }
        }
    };
    clean(html.into_string() + "\n")
}

/// The numbers and anchors that the page has used so far.
#[derive(Default)]
struct Page {
    figures: usize,
    tables: usize,
    anchors: BTreeSet<String>,
}

impl Page {
    /// Returns an anchor that the page has not used yet.
    fn anchor(&mut self, text: &str) -> String {
        let slug = slug(text);
        let mut anchor = slug.clone();
        let mut copy = 1;
        while !self.anchors.insert(anchor.clone()) {
            copy += 1;
            anchor = format!("{slug}-{copy}");
        }
        anchor
    }

    fn section(&mut self, section: &Section) -> Markup {
        html! {
            @for paragraph in &section.prose { p { (rich(paragraph)) } }
            @for figure in &section.figures { (self.figure(figure)) }
            @for listed in &section.tables {
                @let name = self.table_name();
                (table(&html! { b { (name) "." } " " (rich(&listed.caption)) }, &name, listed))
            }
            @if !section.notes.is_empty() {
                ul class="notes" { @for note in &section.notes { li { (rich(note)) } } }
            }
        }
    }

    fn table_name(&mut self) -> String {
        self.tables += 1;
        format!("Table {}", self.tables)
    }

    fn figure(&mut self, figure: &Figure) -> Markup {
        self.figures += 1;
        let id = self.anchor(&figure.id);
        let mut numbers = Vec::new();
        let mut gaps = 0;
        let panels = figure.panels.iter().enumerate().map(|(index, panel)| {
            let panel_id = format!("{id}_panel_{}", index + 1);
            let (drawn, listed, lost) = match &panel.plot {
                Plot::Lines(plot) => (
                    lines::svg(&panel_id, &panel.title, plot),
                    points_table(&panel.title, plot),
                    lines::gaps(plot),
                ),
                Plot::Bars(plot) => (
                    bars::svg(&panel_id, &panel.title, plot),
                    bars_table(&panel.title, plot),
                    bars::gaps(plot),
                ),
            };
            numbers.push(table(&html! { (listed.caption) }, &listed.caption, &listed));
            gaps += lost;
            drawn
        });
        let panels: Vec<Markup> = panels.collect();
        html! {
            figure id=(id) {
                figcaption { b { "Figure " (self.figures) "." } " " (rich(&figure.caption)) }
                ul class="legend" {
                    @for (name, key) in legend(&figure.panels) { li { (key) (name) } }
                }
                div class="panels" { @for panel in &panels { (panel) } }
                @if gaps > 0 {
                    p class="gaps" {
                        @if gaps == 1 { "1 value is missing or cannot be drawn; it is" }
                        @else { (gaps) " values are missing or cannot be drawn; they are" }
                        " left out of the picture."
                    }
                }
                details {
                    summary { "The numbers of figure " (self.figures) }
                    @for table in &numbers { (table) }
                }
            }
        }
    }
}

/// Returns the patterns for emulated bars, one per colour, which all figures of the page use.
fn patterns() -> Markup {
    html! {
        svg class="defs" aria-hidden="true" {
            defs {
                @for colour in 0..svg::COLOURS {
                    pattern id={ "hatch_" (colour) } class={ "c" (colour) } width="7" height="7"
                        patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                        path class="hatching" d="M0 0V7" {}
                    }
                }
            }
        }
    }
}

fn facts(facts: &[(String, String)]) -> Markup {
    let is_wide = |value: &str| value.chars().count() > FACT_COLUMNS;
    html! {
        @if !facts.is_empty() {
            dl class="facts" {
                @for (name, value) in facts {
                    div class=[is_wide(value).then_some("wide")] {
                        dt { (name) }
                        dd { (rich(value)) }
                    }
                }
            }
        }
    }
}

/// Returns the legend of all panels, with one entry per name.
fn legend(panels: &[Panel]) -> Vec<(String, Markup)> {
    let mut entries: Vec<(String, Markup)> = Vec::new();
    let mut add = |name: String, sample: Markup| {
        if !entries.iter().any(|(known, _)| *known == name) {
            entries.push((name, sample));
        }
    };
    for panel in panels {
        match &panel.plot {
            Plot::Lines(plot) => {
                for series in &plot.series {
                    let marker = lines::marker(series.style.marker, 19.0, 8.0, "");
                    let sample = html! { (svg::line("line", 0.0, 8.0, 38.0, 8.0)) (marker) };
                    let class = svg::class(series.style.colour, series.origin);
                    add(svg::full_name(&series.name, series.origin), key(&class, &sample));
                }
            }
            Plot::Bars(plot) => bar_entries(plot, &mut add),
        }
    }
    entries
}

fn bar_entries(plot: &Bars, add: &mut impl FnMut(String, Markup)) {
    let fill = |colour, origin| bars::fill([8.0, 1.0, 22.0, 14.0], colour, origin);
    for series in &plot.series {
        let class = svg::class(series.colour, series.origin);
        let sample = fill(series.colour, series.origin);
        add(svg::full_name(&series.name, series.origin), key(&class, &sample));
    }
    for origin in [Origin::Emulated, Origin::Computed, Origin::Published] {
        let grey = svg::COLOURS - 1;
        if plot.categories.iter().any(|category| category.origin == origin) {
            let word = svg::origin_word(origin).unwrap_or_default();
            let sample = fill(grey, origin);
            add(format!("any colour: {word}"), key(&svg::class(grey, origin), &sample));
        }
    }
    if bars::has_sums(plot) {
        add(String::from("sum"), key("", &svg::line("sum", 19.0, 1.0, 19.0, 15.0)));
    }
    if let Some(mark) = &plot.mark {
        let sample = lines::marker(super::Marker::Diamond, 19.0, 8.0, "");
        add(mark.name.clone(), key("mark", &sample));
    }
}

fn key(class: &str, sample: &Markup) -> Markup {
    html! { svg viewBox="0 0 38 16" aria-hidden="true" { g class=(class) { (sample) } } }
}

/// Returns the numbers of a panel of lines as a table, one row per value of x.
fn points_table(title: &str, plot: &Lines) -> Table {
    let mut xs: Vec<f64> = plot.series.iter().flat_map(|s| &s.points).map(|p| p.x).collect();
    xs.retain(|x| x.is_finite());
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let smallest = smallest(plot.series.iter().flat_map(|s| &s.points).map(|p| p.y));
    let mut header = vec![Column::number(&plot.x.label)];
    header.extend(plot.series.iter().map(|s| Column::number(svg::full_name(&s.name, s.origin))));
    let mut rows = Vec::new();
    for x in xs {
        let mut row = vec![number(x, plot.x.ticks)];
        for series in &plot.series {
            let ys = series.points.iter().filter(|point| point.x == x && point.y.is_finite());
            let texts: Vec<String> =
                ys.map(|point| aligned(point.y, smallest, plot.y.ticks)).collect();
            row.push(texts.join(", "));
        }
        rows.push(row);
    }
    Table { caption: format!("{title}: {}", plot.y.label), header, rows }
}

/// Returns the numbers of a panel of bars as a table, one row per category.
fn bars_table(title: &str, plot: &Bars) -> Table {
    let names = plot.series.iter().map(|series| svg::full_name(&series.name, series.origin));
    let mut header = vec![Column::text("category")];
    header.extend(names.chain(plot.mark.iter().map(|m| m.name.clone())).map(Column::number));
    let lists = plot.series.iter().map(|series| (&series.values, Some(series)));
    let lists: Vec<_> = lists.chain(plot.mark.iter().map(|mark| (&mark.values, None))).collect();
    let smallest = smallest(lists.iter().flat_map(|(values, _)| values.iter().copied()));
    let aligned = |value| aligned(value, smallest, Ticks::Plain);
    let mut rows = Vec::new();
    for (index, category) in plot.categories.iter().enumerate() {
        let mut row = vec![svg::full_name(&category.name, category.origin)];
        for (values, series) in &lists {
            let value = values.get(index).filter(|value| value.is_finite());
            let ends = series.and_then(|series| bars::spread(series, index));
            let ends = ends.map(|[low, high]| format!("({} to {})", aligned(low), aligned(high)));
            let parts = value.map(|value| aligned(*value)).into_iter().chain(ends);
            row.push(parts.collect::<Vec<_>>().join(" "));
        }
        rows.push(row);
    }
    Table { caption: format!("{title}: {}", plot.label), header, rows }
}

/// Returns the smallest absolute value above zero, or zero if there is none.
fn smallest(values: impl Iterator<Item = f64>) -> f64 {
    let sizes = values.map(f64::abs).filter(|size| size.is_finite() && *size > 0.0);
    sizes.reduce(f64::min).unwrap_or(0.0)
}

/// Returns a table in a box that scrolls sideways on a narrow screen.
fn table(caption: &Markup, name: &str, table: &Table) -> Markup {
    let class =
        |index: usize| table.header.get(index).is_some_and(|column| column.numeric).then_some("n");
    html! {
        div class="scroll" role="region" tabindex="0" aria-label=(name) {
            table {
                caption { (caption) }
                thead { tr {
                    @for (index, column) in table.header.iter().enumerate() {
                        th scope="col" class=[class(index)] { (rich(&column.name)) }
                    }
                } }
                tbody { @for row in &table.rows { tr {
                    @for index in 0..row.len().max(table.header.len()) {
                        @let cell = row.get(index).filter(|cell| !cell.is_empty());
                        @let text = rich(cell.map_or("\u{2013}", String::as_str));
                        @if index == 0 { th scope="row" class=[class(index)] { (text) } }
                        @else {
                            @let is_long = cell.is_some_and(|cell| cell.len() > LONG);
                            td class=[class(index).or(is_long.then_some("long"))] { (text) }
                        }
                    }
                } } }
            }
        }
    }
}
