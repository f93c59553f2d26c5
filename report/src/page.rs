//! The page around the figures: head, facts, sections, legends, tables, and each figure's numbers as a table for those
//! who cannot see it. It draws nothing itself.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::text::{aligned, escape, number, rich, slug};
use super::{Bars, Column, Figure, Lines, Origin, Panel, Plot, Report, Section, Table, Ticks};
use super::{bars, lines, svg};

const STYLE: &str = include_str!("style.css");
/// The content policy. Nothing may be loaded, whatever the page says.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The longest fact that has no line of its own.
const FACT_COLUMNS: usize = 28;

/// Returns the whole page.
pub(super) fn html(report: &Report) -> String {
    let mut page = Page::default();
    let mut body = String::new();
    let mut contents = String::new();
    for section in &report.sections {
        let id = page.anchor(&section.heading);
        let heading = rich(&section.heading);
        let _ = write!(contents, "<li><a href=\"#{id}\">{heading}</a></li>");
        let _ = writeln!(body, "<section aria-labelledby=\"{id}\"><h2 id=\"{id}\">{heading}</h2>");
        body += &page.section(section);
        body += "</section>\n";
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <title>{title}</title>\n<style>{STYLE}</style></head>\n<body>{patterns}\n\
         <header><h1>{heading}</h1><p class=\"subtitle\">{subtitle}</p>{facts}\
         <nav aria-label=\"Sections\"><ul>{contents}</ul></nav></header>\n<main>\n{body}</main></body></html>\n",
        title = escape(&report.title),
        patterns = patterns(),
        heading = rich(&report.title),
        subtitle = rich(&report.subtitle),
        facts = facts(&report.facts),
    )
}

/// The numbers and names that have been given so far.
#[derive(Default)]
struct Page {
    figures: usize,
    tables: usize,
    anchors: BTreeSet<String>,
}

impl Page {
    /// Returns an anchor that the page does not have yet.
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

    fn section(&mut self, section: &Section) -> String {
        let mut out = String::new();
        for paragraph in &section.prose {
            let _ = writeln!(out, "<p>{}</p>", rich(paragraph));
        }
        for figure in &section.figures {
            out += &self.figure(figure);
        }
        for listed in &section.tables {
            self.tables += 1;
            let caption = format!("<b>Table {}.</b> {}", self.tables, rich(&listed.caption));
            out += &table(&caption, &format!("Table {}", self.tables), listed);
        }
        if !section.notes.is_empty() {
            let notes = section.notes.iter().map(|note| format!("<li>{}</li>", rich(note)));
            let _ = writeln!(out, "<ul class=\"notes\">{}</ul>", notes.collect::<String>());
        }
        out
    }

    fn figure(&mut self, figure: &Figure) -> String {
        self.figures += 1;
        let id = self.anchor(&figure.id);
        let caption = format!("<b>Figure {}.</b> {}", self.figures, rich(&figure.caption));
        let mut panels = String::new();
        let mut numbers = String::new();
        let mut gaps = 0;
        for (index, panel) in figure.panels.iter().enumerate() {
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
            panels += &drawn;
            numbers += &table(&escape(&listed.caption), &listed.caption, &listed);
            gaps += lost;
        }
        format!(
            "<figure id=\"{id}\"><figcaption>{caption}</figcaption>{}<div class=\"panels\">{panels}</div>{}\
             <details><summary>The numbers of figure {}</summary>{numbers}</details></figure>\n",
            legend(&figure.panels),
            gap_note(gaps),
            self.figures
        )
    }
}

fn gap_note(gaps: usize) -> String {
    let what = match gaps {
        0 => return String::new(),
        1 => String::from("1 value is missing or cannot be drawn; it is"),
        _ => format!("{gaps} values are missing or cannot be drawn; they are"),
    };
    format!("<p class=\"gaps\">{what} left out of the picture.</p>")
}

/// Returns the fills of emulated bars, one per colour, for every figure of the page.
fn patterns() -> String {
    let mut out = String::from("<svg class=\"defs\" aria-hidden=\"true\"><defs>");
    for colour in 0..svg::COLOURS {
        let _ = write!(
            out,
            "<pattern id=\"hatch_{colour}\" class=\"c{colour}\" width=\"7\" height=\"7\" \
             patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
             <path class=\"hatching\" d=\"M0 0V7\"/></pattern>"
        );
    }
    out + "</defs></svg>"
}

fn facts(facts: &[(String, String)]) -> String {
    let mut out = String::new();
    for (name, value) in facts {
        let class = if value.chars().count() > FACT_COLUMNS { " class=\"wide\"" } else { "" };
        let (name, value) = (escape(name), rich(value));
        let _ = write!(out, "<div{class}><dt>{name}</dt><dd>{value}</dd></div>");
    }
    if out.is_empty() { out } else { format!("<dl class=\"facts\">{out}</dl>") }
}

/// Returns the legend with one entry per name, over all panels.
fn legend(panels: &[Panel]) -> String {
    let mut entries: Vec<(String, String)> = Vec::new();
    let mut add = |name: String, sample: String| {
        if !entries.iter().any(|(known, _)| *known == name) {
            entries.push((name, sample));
        }
    };
    for panel in panels {
        match &panel.plot {
            Plot::Lines(plot) => {
                for series in &plot.series {
                    let marker = lines::marker(series.style.marker, 19.0, 8.0, "");
                    let sample = format!("{}{marker}", svg::line("line", 0.0, 8.0, 38.0, 8.0));
                    let class = svg::class(series.style.colour, series.origin);
                    add(svg::full_name(&series.name, series.origin), key(&class, &sample));
                }
            }
            Plot::Bars(plot) => bar_entries(plot, &mut add),
        }
    }
    let items = entries.iter().map(|(name, key)| format!("<li>{key}{}</li>", escape(name)));
    format!("<ul class=\"legend\">{}</ul>", items.collect::<String>())
}

fn bar_entries(plot: &Bars, add: &mut impl FnMut(String, String)) {
    let shape = "x=\"8\" y=\"1\" width=\"22\" height=\"14\"";
    for series in &plot.series {
        let sample = bars::fill(shape, series.colour, series.origin);
        let class = svg::class(series.colour, series.origin);
        add(svg::full_name(&series.name, series.origin), key(&class, &sample));
    }
    for origin in [Origin::Emulated, Origin::Computed, Origin::Published] {
        let grey = svg::COLOURS - 1;
        if plot.categories.iter().any(|category| category.origin == origin) {
            let class = svg::class(grey, origin);
            let word = svg::origin_word(origin).unwrap_or_default();
            add(format!("any colour: {word}"), key(&class, &bars::fill(shape, grey, origin)));
        }
    }
    if bars::has_sums(plot) {
        add(String::from("sum"), key("", &svg::line("sum", 6.0, 8.0, 32.0, 8.0)));
    }
    if let Some(mark) = &plot.mark {
        let sample = lines::marker(super::Marker::Diamond, 19.0, 8.0, "");
        add(mark.name.clone(), key("mark", &sample));
    }
}

fn key(class: &str, sample: &str) -> String {
    let sample = sample.replace("<title></title>", "");
    format!(
        "<svg viewBox=\"0 0 38 16\" aria-hidden=\"true\"><g class=\"{class}\">{sample}</g></svg>"
    )
}

/// Returns the numbers of a panel of lines, one row per value of x.
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

/// Returns the numbers of a panel of bars, one row per category.
fn bars_table(title: &str, plot: &Bars) -> Table {
    let names = plot.series.iter().map(|series| svg::full_name(&series.name, series.origin));
    let mut header = vec![Column::text("category")];
    header.extend(names.chain(plot.mark.iter().map(|m| m.name.clone())).map(Column::number));
    let lists: Vec<&Vec<f64>> =
        plot.series.iter().map(|s| &s.values).chain(plot.mark.iter().map(|m| &m.values)).collect();
    let smallest = smallest(lists.iter().flat_map(|values| values.iter().copied()));
    let mut rows = Vec::new();
    for (index, category) in plot.categories.iter().enumerate() {
        let mut row = vec![svg::full_name(&category.name, category.origin)];
        for values in &lists {
            let value = values.get(index).filter(|value| value.is_finite());
            let text = value.map(|value| aligned(*value, smallest, Ticks::Plain));
            row.push(text.unwrap_or_default());
        }
        rows.push(row);
    }
    Table { caption: format!("{title}: {}", plot.y_label), header, rows }
}

/// Returns the smallest size that is not zero, or zero if there is none.
fn smallest(values: impl Iterator<Item = f64>) -> f64 {
    let sizes = values.map(f64::abs).filter(|size| size.is_finite() && *size > 0.0);
    sizes.reduce(f64::min).unwrap_or(0.0)
}

/// Returns a table in a box that scrolls sideways on a narrow screen. `caption` is HTML, and `name` is text.
fn table(caption: &str, name: &str, table: &Table) -> String {
    let class = |numeric: bool| if numeric { " class=\"n\"" } else { "" };
    let mut head = String::new();
    for column in &table.header {
        let _ =
            write!(head, "<th scope=\"col\"{}>{}</th>", class(column.numeric), rich(&column.name));
    }
    let mut body = String::new();
    for row in &table.rows {
        body += "<tr>";
        for index in 0..row.len().max(table.header.len()) {
            let cell = row.get(index).map_or("", String::as_str);
            let class = class(table.header.get(index).is_some_and(|column| column.numeric));
            let text = if cell.is_empty() { String::from("\u{2013}") } else { rich(cell) };
            body += &match index {
                0 => format!("<th scope=\"row\"{class}>{text}</th>"),
                _ => format!("<td{class}>{text}</td>"),
            };
        }
        body += "</tr>\n";
    }
    format!(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\"><table><caption>{caption}</caption>\
         <thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n",
        escape(name)
    )
}
