//! Tests properties of every page: it shows every series and axis, escapes the caller's texts, loads nothing,
//! and shows no value that is not a number. `REBATE_REPORT_EXAMPLE=FILE` writes the example page to a file.

use super::*;

/// Returns a report with invented numbers that resemble real ones.
fn example() -> Report {
    let mut report = Report {
        title: String::from("A compressed cache on this machine"),
        subtitle: String::from("Made-up numbers, to look at the page."),
        ..Report::default()
    };
    for (name, value) in [
        ("machine", "Xeon, 2 cores, 8 GiB"),
        ("class", "2c"),
        ("version", "0.1.0"),
        ("date", "2026-01-31"),
        ("command", "`rebate reproduce cache --out results`"),
    ] {
        report.facts.push((String::from(name), String::from(value)));
    }
    report.sections.push(latency_section());
    report.sections.push(breakdown_section());
    report
}

const CONFIGURATIONS: [(&str, &str, Origin, f64); 4] = [
    ("monolith, software", "mono sw", Origin::Measured, 1.0),
    ("microservice, software", "micro sw", Origin::Measured, 1.35),
    ("monolith, IAA", "mono IAA", Origin::Emulated, 0.62),
    ("microservice, IAA", "micro IAA", Origin::Emulated, 0.8),
];

fn latency_panel(title: &str, x: Axis, y: Axis, xs: &[f64], at: impl Fn(f64) -> f64) -> Panel {
    let series = CONFIGURATIONS.iter().enumerate().map(|(n, (name, label, origin, factor))| {
        let point = |x: &f64| {
            let y = at(*x) * factor;
            Point::with_spread(*x, y, y * 0.93, y * 1.1)
        };
        Series {
            name: String::from(*name),
            label: String::from(*label),
            origin: *origin,
            style: Style::nth(n),
            points: xs.iter().map(point).collect(),
        }
    });
    Panel::lines(title, x, y, series.collect())
}

fn latency_section() -> Section {
    let sizes: Vec<f64> = (10..=20).map(|power| 2_f64.powi(power)).collect();
    let loads: Vec<f64> = (1..=8).map(|n| f64::from(n) * 10_000.0).collect();
    let by_size = |title: &str, tail: f64| {
        let x = Axis::bytes("value size");
        latency_panel(title, x, Axis::log10("latency (us)"), &sizes, |x| tail * (80.0 + x / 400.0))
    };
    let by_load = |title: &str, tail: f64| {
        let (x, y) = (Axis::linear("offered load (requests/s)"), Axis::linear("latency (us)"));
        latency_panel(title, x, y, &loads, |x| tail * 90.0 / (1.0 - x / 95_000.0))
    };
    Section {
        heading: String::from("Latency"),
        prose: vec![String::from(
            "Four configurations, each with `90 % gets`, in the same memory.",
        )],
        figures: vec![
            Figure {
                id: String::from("figure-size"),
                caption: String::from("Latency against value size at 10,000 requests/s."),
                panels: vec![by_size("median", 1.0), by_size("p90", 1.7)],
            },
            Figure {
                id: String::from("figure-load"),
                caption: String::from("Latency against offered load, 4 KiB values."),
                panels: vec![by_load("median", 1.0), by_load("p90", 2.1)],
            },
        ],
        tables: Vec::new(),
        notes: vec![String::from("Whiskers: lowest and highest of five runs.")],
    }
}

fn category(name: &str, origin: Origin) -> Category {
    Category { name: String::from(name), origin }
}

fn stages() -> Bars {
    Bars {
        label: String::from("difference in median (us)"),
        layout: Layout::Stacked,
        categories: vec![
            category("microservice software", Origin::Measured),
            category("monolith IAA", Origin::Emulated),
            category("microservice IAA", Origin::Emulated),
        ],
        series: vec![
            BarSeries::new("hop", Origin::Measured, 0, [28.0, 0.0, 27.0]),
            BarSeries::new("device", Origin::Measured, 1, [0.0, 14.0, 15.0]),
            BarSeries::new("software codec", Origin::Measured, 2, [-3.0, -52.0, -52.0]),
        ],
        mark: Some(Mark { name: String::from("measured"), values: vec![26.5, -36.0, -11.0] }),
    }
}

fn groups() -> Bars {
    let [a, b, c, d] = CONFIGURATIONS;
    let values = [[118.0, 640.0], [161.0, 705.0], [74.0, 210.0], [97.0, 251.0]];
    let series = [a, b, c, d].into_iter().zip(values).enumerate();
    Bars {
        label: String::from("median latency (us)"),
        layout: Layout::Grouped,
        categories: vec![category("4 KiB", Origin::Measured), category("64 KiB", Origin::Measured)],
        series: series
            .map(|(n, (of, values))| {
                let spreads = values.map(|value| Some([value * 0.93, value * 1.1]));
                BarSeries::new(of.0, of.2, n, values).with_spreads(spreads)
            })
            .collect(),
        mark: None,
    }
}

fn breakdown_section() -> Section {
    let figure = |id: &str, caption: &str, title: &str, bars: Bars| Figure {
        id: String::from(id),
        caption: String::from(caption),
        panels: vec![Panel { title: String::from(title), plot: Plot::Bars(bars) }],
    };
    let row = |cells: [&str; 5]| cells.map(String::from).to_vec();
    let table = Table {
        caption: String::from("Against the monolith in software."),
        header: vec![
            Column::text("row"),
            Column::text("what"),
            Column::number("published"),
            Column::number("ours"),
            Column::text("kind"),
        ],
        rows: vec![
            row(["ratio.p50.4KiB", "median latency", "1.90", "1.84", "emulated"]),
            row(["ratio.p90.64KiB", "90th percentile", "", "12.60", "emulated"]),
            row(["hits", "hit ratio", "", "0.97", "measured"]),
        ],
    };
    Section {
        heading: String::from("Where the time goes"),
        figures: vec![
            figure("figure-stages", "What the difference is made of.", "4 KiB values", stages()),
            figure("figure-groups", "The four configurations.", "90 % gets", groups()),
        ],
        tables: vec![table],
        ..Section::default()
    }
}

/// Returns the SVG drawings of the page, without the style sheet and the content security policy.
fn drawings(html: &str) -> Vec<&str> {
    html.split("<svg").skip(1).filter_map(|rest| rest.split("</svg>").next()).collect()
}

/// Returns a page with one figure of one panel.
fn page_of(plot: Plot) -> String {
    let panel = Panel { title: String::from("median"), plot };
    let figure = Figure { id: String::from("f"), caption: String::new(), panels: vec![panel] };
    let section = Section { figures: vec![figure], ..Section::default() };
    Report { sections: vec![section], ..Report::default() }.html()
}

fn lines_of(x: Axis, y: Axis, points: Vec<Point>) -> Plot {
    let series = Series {
        name: String::from("only"),
        label: String::new(),
        origin: Origin::Measured,
        style: Style::nth(0),
        points,
    };
    Panel::lines("", x, y, vec![series]).plot
}

fn assert_only_numbers(html: &str) {
    for drawing in drawings(html) {
        for word in ["NaN", "inf", "e308"] {
            assert!(!drawing.contains(word), "{word} in {drawing}");
        }
    }
}

#[test]
fn the_example_has_every_series_axis_and_fact() {
    let html = example().html();
    if let Some(path) = std::env::var_os("REBATE_REPORT_EXAMPLE") {
        std::fs::write(path, &html).unwrap();
    }
    for (name, ..) in CONFIGURATIONS {
        let drawn = html.matches(&format!("data-series=\"{name}\"")).count();
        assert_eq!(drawn, 4 + 2, "{name}: four panels of lines, two bars");
    }
    for label in ["value size", "latency (us)", "offered load (requests/s)"] {
        assert!(html.contains(&format!(">{label}</text>")), "{label}");
    }
    for text in ["4 KiB", "1 MiB", "2026-01-31", "Figure 4.", "Table 1.", "<code>90 % gets</code>"]
    {
        assert!(html.contains(text), "{text}");
    }
    assert_eq!(html.matches("role=\"img\"").count(), 6);
    assert_eq!(html.matches("<desc").count(), 6);
    assert_only_numbers(&html);
}

#[test]
fn emulated_numbers_say_so_in_line_legend_and_label() {
    let html = example().html();
    let legend = html.split("class=\"legend\"").nth(1).unwrap().split("</ul>").next().unwrap();
    assert!(legend.contains("monolith, IAA (emulated)"));
    assert!(legend.contains("monolith, software</li>"));
    assert!(html.contains("class=\"c2 emulated\" data-series=\"monolith, IAA\""));
    assert!(html.contains(">emulated</text>"), "beside the label at the line's end");
    assert!(html.contains(">(emulated)</text>"), "beside an emulated category");
    assert!(html.contains("<li>") && html.contains("any colour: emulated"));
    assert!(html.contains("url(#hatch_2)"));
}

#[test]
fn computed_bars_say_so_beside_emulated_ones() {
    let series = [("measured", Origin::Measured), ("estimated", Origin::Computed)];
    let series = series.map(|(name, origin)| BarSeries::new(name, origin, 1, [1.0]));
    let panel = Panel::groups("", "gain (%)", [category("case", Origin::Emulated)], series);
    let Plot::Bars(bars) = &panel.plot else { unreachable!("groups") };
    let drawn = bars::svg("gains", "", bars).into_string();
    assert!(drawn.contains("class=\"c1 emulated\" data-series=\"measured\""), "{drawn}");
    assert!(drawn.contains("class=\"c1 computed\" data-series=\"estimated\""), "{drawn}");
}

#[test]
fn nothing_is_loaded_from_elsewhere() {
    let html = example().html();
    for word in ["http://", "https://", "src=", "<script", "<link", "<img", "@import", "<iframe"] {
        assert!(!html.contains(word), "{word}");
    }
    let ids: Vec<&str> =
        html.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let unique: std::collections::BTreeSet<&&str> = ids.iter().collect();
    assert_eq!(ids.len(), unique.len(), "an id is used twice: {ids:?}");
    for target in html.split("href=\"").skip(1) {
        let target = target.split('"').next().unwrap();
        assert!(ids.contains(&target.trim_start_matches('#')), "{target}");
    }
    for target in html.split("url(").skip(1) {
        let target = target.split(')').next().unwrap();
        assert!(ids.contains(&target.trim_start_matches('#')), "{target}");
    }
}

const EVIL: &str = "</title></text></svg><script>x</script>\" onload='y' \u{0}\u{202e}`<b>`&";

fn evil() -> String {
    String::from(EVIL)
}

#[test]
fn no_text_can_become_markup() {
    let mut report = example();
    report.title = evil();
    report.subtitle = evil();
    report.facts = vec![(evil(), evil())];
    for section in &mut report.sections {
        section.heading = evil();
        section.prose = vec![evil()];
        section.notes = vec![evil()];
        for figure in &mut section.figures {
            (figure.id, figure.caption) = (evil(), evil());
            figure.panels.iter_mut().for_each(poison);
        }
        for table in &mut section.tables {
            table.caption = evil();
            table.header = vec![Column::text(EVIL), Column::number(EVIL)];
            table.rows = vec![vec![evil(); 3]];
        }
    }
    let html = report.html();
    assert!(html.matches("&lt;script&gt;x").count() > 20, "all of it is there as text");
    for mark in ["<script", "\" onload", "<b>`", "\u{0}", "\u{202e}"] {
        assert!(!html.contains(mark), "{mark:?}");
    }
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    assert_eq!(html.matches("<title").count(), html.matches("</title>").count());
}

fn poison(panel: &mut Panel) {
    panel.title = evil();
    match &mut panel.plot {
        Plot::Lines(plot) => {
            (plot.x.label, plot.y.label) = (evil(), evil());
            for series in &mut plot.series {
                (series.name, series.label) = (evil(), evil());
            }
        }
        Plot::Bars(plot) => {
            plot.label = evil();
            plot.categories.iter_mut().for_each(|category| category.name = evil());
            plot.series.iter_mut().for_each(|series| series.name = evil());
            plot.mark.iter_mut().for_each(|mark| mark.name = evil());
        }
    }
}

#[test]
fn a_point_that_cannot_be_drawn_is_a_counted_gap() {
    let bad = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -1.0, 0.0];
    for y in bad {
        let points = vec![
            Point::new(1.0, 10.0),
            Point::new(2.0, y),
            Point::with_spread(3.0, 30.0, f64::NAN, 31.0),
        ];
        let html = page_of(lines_of(Axis::linear("x"), Axis::log10("y"), points));
        assert!(html.contains("2 values are missing or cannot be drawn"), "{y}: {html}");
        assert_only_numbers(&html);
        let line = html.split("class=\"line\" d=\"").nth(2).unwrap().split('"').next().unwrap();
        assert_eq!((line.matches('M').count(), line.matches('L').count()), (2, 0), "{line}");
    }
}

#[test]
fn missing_bars_are_counted_gaps_too() {
    let mut bars = groups();
    (bars.series[0].values, bars.series[0].spreads) = (vec![f64::NAN], Vec::new());
    let html = page_of(Plot::Bars(bars));
    assert!(html.contains("2 values are missing or cannot be drawn"));
    assert_eq!(html.matches("data-series=\"monolith, software\"").count(), 0);
    assert_eq!(html.matches("data-series=\"monolith, IAA\"").count(), 2);
    assert_only_numbers(&html);
}

#[test]
fn intervals_are_whiskers_on_their_bars() {
    let html = page_of(Plot::Bars(groups()));
    assert_eq!(html.matches("class=\"error\"").count(), 8);
    assert!(html.contains("118.0 (109.7 to 129.8)"), "{html}");
    let range = BarSeries::new("range", Origin::Computed, 0, [f64::NAN, 3.0, f64::NAN]);
    let range = range.with_spreads([Some([1.0, 2.0]), Some([f64::NAN, 4.0]), None]);
    let categories = ["only its ends", "only its value", "neither"].map(Category::new);
    let html = page_of(Panel::groups("", "", categories, [range]).plot);
    assert_eq!(html.matches("class=\"error\"").count(), 1);
    assert_eq!(html.matches("data-series=\"range\"").count(), 2);
    assert!(html.contains("1 value is missing"), "{html}");
}

#[test]
fn names_of_any_length_stay_beside_their_bars() {
    let unbroken = "unbroken".repeat(9);
    let names = ["a name of so many words that it takes several lines", &unbroken];
    let plot = Panel::groups("", "", names.map(Category::new), []).plot;
    let html = page_of(plot);
    for text in html.split("<text text-anchor=\"end\"").skip(1) {
        let name = text.split(['>', '<']).nth(1).unwrap();
        assert!(name.chars().count() <= 20, "{name}");
    }
}

#[test]
fn a_served_page_has_links_and_is_reloaded() {
    let here = Link { href: "/scheduler?window_s=10", text: "last <10 s>", is_here: true };
    let html = example().served(Some(5), &[here, Link { is_here: false, ..here }]);
    assert!(html.contains("http-equiv=\"refresh\" content=\"5\""), "{html}");
    let link = "<a href=\"/scheduler?window_s=10\" aria-current=\"page\">last &lt;10 s&gt;</a>";
    assert!(html.contains(link), "{html}");
    assert_eq!(html.matches("aria-current").count(), 1 + 1, "and the style sheet");
}

#[test]
fn no_data_and_extreme_data_still_make_a_picture() {
    let axes = [Axis::linear("a"), Axis::log10("a"), Axis::bytes("a")];
    let values: [&[f64]; 6] = [&[], &[0.0], &[5.0], &[1e-12, 1e15], &[-1e15, 1e15], &[3.0, 3.1]];
    for x in &axes {
        for y in &axes {
            for values in values {
                let points = values.iter().map(|value| Point::new(*value, *value)).collect();
                let html = page_of(lines_of(x.clone(), y.clone(), points));
                assert_only_numbers(&html);
                assert!(html.contains("</svg>"));
            }
        }
    }
    let nothing = Bars { categories: Vec::new(), series: Vec::new(), mark: None, ..stages() };
    assert_only_numbers(&page_of(Plot::Bars(nothing)));
    assert!(Report::default().html().ends_with("</html>\n"));
}

#[test]
fn points_stand_where_their_axes_say() {
    let span = axis::Span::holding(Scale::Linear, &[20.0, 90.0]);
    assert_eq!(span.ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
    assert_eq!((span.place(0.0), span.place(50.0), span.place(100.0)), (0.0, 0.5, 1.0));
    let span = axis::Span::holding(Scale::Log10, &[3.0, 150.0]);
    assert_eq!(span.ticks, [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]);
    let span = axis::Span::holding(Scale::Log10, &[1.0, 100_000.0]);
    assert_eq!(span.ticks, [1.0, 10.0, 100.0, 1e3, 1e4, 1e5]);
    let span = axis::Span::holding(Scale::Log2, &[1024.0, 1_048_576.0]);
    assert_eq!(span.ticks, [10, 12, 14, 16, 18, 20].map(|power| 2_f64.powi(power)));
    assert!((span.place(32_768.0) - 0.5).abs() < 1e-9);
}

#[test]
fn numbers_are_written_for_people() {
    let plain = |value| text::number(value, Ticks::Plain);
    let written = [0.0, 0.05, 0.30000000000000004, 12.5, 999.96, 5_000.0, 123_456.7, 1.5e6, -36.0];
    let expected = ["0", "0.05", "0.3", "12.5", "1,000", "5,000", "123,457", "1.5M", "\u{2212}36"];
    assert_eq!(written.map(plain), expected);
    let bytes = |value| text::number(value, Ticks::Bytes);
    let written = [512.0, 1024.0, 1536.0, 65_536.0, 1_048_576.0].map(bytes);
    assert_eq!(written, ["512 B", "1 KiB", "1.5 KiB", "64 KiB", "1 MiB"]);
    let column = [51.19, 0.0, -1675.0].map(|value| text::aligned(value, 51.19, Ticks::Plain));
    assert_eq!(column, ["51.2", "0.0", "\u{2212}1,675.0"]);
    assert_eq!(text::wrap("microservice with IAA", 12), ["microservice", "with IAA"]);
    assert_eq!(text::wrap("a composition of", 8), ["a", "composit", "ion of"]);
}

#[test]
fn a_table_names_its_rows_and_columns() {
    let table = Table {
        caption: String::from("c"),
        header: vec![Column::text("name"), Column::number("value (us)")],
        rows: vec![vec![String::from("a"), String::from("1.5")], vec![String::from("b")]],
    };
    let section = Section { tables: vec![table], ..Section::default() };
    let html = Report { sections: vec![section], ..Report::default() }.html();
    assert!(html.contains("<th scope=\"col\" class=\"n\">value (us)</th>"));
    assert!(html.contains("<th scope=\"row\">a</th><td class=\"n\">1.5</td>"));
    assert!(html.contains("<th scope=\"row\">b</th><td class=\"n\">\u{2013}</td>"));
}

#[test]
fn only_long_texts_ask_for_width() {
    let text = "decompress 13.5 us (software, software, policy, waiting 1.1 us); write 16.1 us";
    let row = ["a", "short", text].map(String::from).to_vec();
    let header = ["request", "key", "stages"].map(Column::text).into();
    let table = Table { caption: String::from("c"), header, rows: vec![row] };
    let section = Section { tables: vec![table], ..Section::default() };
    let html = Report { sections: vec![section], ..Report::default() }.html();
    assert!(html.contains("<td>short</td><td class=\"long\">decompress"), "{html}");
}
