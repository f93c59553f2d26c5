//! The results as a page: the two figures of \[CacheTax\] for each route to the store, their explanation by
//! stages, the CPU time that the accelerator saves, and the loads at which latency rises sharply.

use report::{
    Axis, BarSeries, Bars, Category, Column, Figure, Layout, Mark, Origin, Panel, Plot, Point,
    Report, Section, Series, Style, Table,
};
use units::{ByteCount, Op};

use super::results::{LOAD_BYTES, LOAD_GETS, Point as At, Quantile, Results, ops, verb};
use super::{Part, criteria_page};
use crate::base::figures::{all_rows, facts, point, table};
use crate::base::rows::{Rows, Spread};
use crate::testbed::{Compressor, Configuration, StoreRoute, Topology};

/// Returns the page.
pub(super) fn report(results: &Results, rows: &Rows) -> Report {
    let plan = &results.plan;
    let more = [
        ("offered load of the size sweep", format!("{}/s (the paper: 4000/s)", plan.rate_per_s)),
        ("runs of each point", format!("{}, {} s each", plan.runs, plan.duration.0 as f64 / 1e9)),
        ("clients", "16 connections, evenly spaced requests, every value verified".to_owned()),
    ];
    Report {
        title: "The compressed cache: monolith or microservices, software or accelerator".into(),
        subtitle: "Each point is the median over runs on this machine; whiskers span the runs."
            .into(),
        facts: facts(rows, more),
        sections: sections(results, rows),
    }
}

/// Returns the sections that have content.
fn sections(results: &Results, rows: &Rows) -> Vec<Section> {
    let plan = &results.plan;
    let mut sections = Vec::new();
    sections.extend(criteria_page::section(results, rows));
    if plan.has(Part::Sizes) {
        sections.push(sizes(results));
    }
    if plan.has(Part::Loads) {
        sections.push(loads(results));
    }
    if plan.has(Part::Sizes) {
        sections.extend([attribution(results), freed(rows), explosion(results, rows)]);
    }
    sections.extend(left_out(results));
    sections.push(all_rows(rows));
    sections
}

/// Returns the section of the configurations that this machine cannot run.
fn left_out(results: &Results) -> Option<Section> {
    let note =
        |(configuration, why): &(Configuration, String)| format!("{}: {why}", configuration.id());
    let notes: Vec<String> = results.left_out.iter().map(note).collect();
    let section = || Section {
        heading: "Not measured here".into(),
        prose: vec!["These configurations need what this machine has not got.".into()],
        notes: notes.clone(),
        ..Section::default()
    };
    (!notes.is_empty()).then(section)
}

const QUANTILES: [Quantile; 2] = [Quantile::P50, Quantile::P90];

fn sizes(results: &Results) -> Section {
    let mut figures = Vec::new();
    for route in routes(results) {
        for &gets in &results.plan.gets {
            for op in ops(gets) {
                figures.push(size_figure(results, route, gets, op));
            }
        }
    }
    Section {
        heading: "Latency against value size (the paper's figure 1)".into(),
        prose: vec![
            "The paper gives no operation mix: each mix has its own figure, gets and sets apart, \
             first with memcached behind the gRPC store service in every configuration, as in the \
             paper, then reached directly."
                .into(),
            "Everything with the virtual IAA is emulated: its timing is a published profile \
             (specs/devices/iaa.toml), its results are a software codec's, remembered. The \
             decompression curve beyond 4 KiB is assumed; the file has its range."
                .into(),
        ],
        figures,
        ..Section::default()
    }
}

fn size_figure(results: &Results, route: StoreRoute, gets: u32, op: Op) -> Figure {
    let panel = |quantile: Quantile| {
        let line = |configuration: Configuration| {
            let points = results.plan.sizes.iter().filter_map(|&size| {
                let times =
                    results.latency_us(&At::at_size(configuration, size, gets), op, quantile);
                point(size.0 as f64, times)
            });
            series(configuration, points.collect())
        };
        let lines = results.plan.by_route(route).map(line).collect();
        let (x, y) = (Axis::bytes("value size"), Axis::log10("latency (us)"));
        Panel::lines(quantile.name(), x, y, lines)
    };
    Figure {
        id: format!("size-{}-get{gets}-{}", route_id(route), verb(op)),
        caption: format!("{}s, {gets} % gets, {}.", capital(verb(op)), route_name(route)),
        panels: QUANTILES.map(panel).into(),
    }
}

fn loads(results: &Results) -> Section {
    let figure = |route: StoreRoute| {
        let panel = |quantile: Quantile| {
            let line = |configuration: Configuration| {
                let points = results.plan.loads_per_s.iter().filter_map(|&per_s| {
                    let at = At::at_load(configuration, per_s);
                    point(per_s, results.latency_us(&at, Op::Decompress, quantile))
                });
                series(configuration, points.collect())
            };
            let lines = results.plan.by_route(route).map(line).collect();
            let (x, y) = (Axis::linear("offered load (requests/s)"), Axis::log10("latency (us)"));
            Panel::lines(quantile.name(), x, y, lines)
        };
        Figure {
            id: format!("load-{}", route_id(route)),
            caption: format!("Gets of {LOAD_BYTES}, {LOAD_GETS} % gets, {}.", route_name(route)),
            panels: QUANTILES.map(panel).into(),
        }
    };
    let row = |configuration: Configuration| {
        let knees = results.knees.get(&configuration.id()).map(Vec::as_slice).unwrap_or_default();
        let spread = Spread::from_values(knees.iter().map(|knee| knee.per_s));
        let knee = spread.map_or("-".into(), |spread| format!("{:.0}", spread.median));
        let range =
            spread.map_or("-".into(), |spread| format!("{:.0} to {:.0}", spread.low, spread.high));
        vec![configuration.name(), route_name(configuration.route).to_owned(), knee, range]
    };
    let all = results.plan.configurations.iter().copied();
    Section {
        heading: "Latency against offered load (the paper's figure 2)".into(),
        prose: vec![
            "A line ends where its configuration no longer answers 98 % of what is offered within \
             the window: beyond that latency is the length of the queue, and grows with the length \
             of the run."
                .into(),
        ],
        figures: routes(results).map(figure).collect(),
        tables: vec![Table {
            caption: "The knee: the highest load kept up with".into(),
            header: vec![
                Column::text("configuration"),
                Column::text("store"),
                Column::number("requests/s"),
                Column::number("runs"),
            ],
            rows: all.map(row).collect(),
        }],
        ..Section::default()
    }
}

fn attribution(results: &Results) -> Section {
    let mut figures = Vec::new();
    for topology in [Topology::Microservice, Topology::Lane] {
        let both =
            routes(results).map(|route| Configuration::new(topology, Compressor::Iaa, route));
        let mut both = both.filter(|configuration| results.plan.measures(*configuration));
        let Some(configuration) = both.next() else { continue };
        for &gets in &results.plan.gets {
            for op in ops(gets) {
                figures.push(stage_figure(results, configuration, gets, op));
            }
        }
    }
    Section {
        heading: "Where the difference comes from".into(),
        prose: vec![
            "Microservice with the accelerator, over gRPC and over a lane, less monolith in \
             software, as measured (mark), against hop + device - software codec, each measured \
             alone (bars). Where the sum is \
             below zero the paper's ordering holds here; where it is above, the hop costs more than \
             the accelerator saves."
                .into(),
        ],
        figures,
        ..Section::default()
    }
}

fn stage_figure(results: &Results, configuration: Configuration, gets: u32, op: Op) -> Figure {
    let sizes: Vec<ByteCount> = results.plan.sizes.clone();
    type Stage<'a> = &'a dyn Fn(&super::results::Stages) -> f64;
    let bars = |name: &str, origin, colour, stage: Stage<'_>| {
        let median = |size: &ByteCount| {
            let runs = results.stages.get(&(*size, op.name())).map(Vec::as_slice);
            let spread = Spread::from_values(runs.unwrap_or_default().iter().map(stage));
            spread.map_or(f64::NAN, |spread| spread.median)
        };
        BarSeries::new(name, origin, colour, sizes.iter().map(median))
    };
    let difference = |size: &ByteCount| {
        let found = results.attribution(configuration, *size, gets, op).unwrap_or_default();
        Spread::from_values(found.iter().map(|run| run.difference_us))
            .map_or(f64::NAN, |spread| spread.median)
    };
    let category = |size: &ByteCount| Category { name: size.to_string(), origin: Origin::Emulated };
    let way = if configuration.topology == Topology::Lane { "stages-lane" } else { "stages" };
    Figure {
        id: format!("{way}-get{gets}-{}", verb(op)),
        caption: format!(
            "{}: {}s, {gets} % gets, {}.",
            capital(&configuration.name()),
            verb(op),
            route_name(configuration.route)
        ),
        panels: vec![Panel {
            title: "stages and measured difference".into(),
            plot: Plot::Bars(Bars {
                label: "latency (us)".into(),
                layout: Layout::Stacked,
                categories: sizes.iter().map(category).collect(),
                series: vec![
                    bars("hop", Origin::Measured, 0, &|stages| {
                        stages.way_us(configuration.topology)
                    }),
                    bars("device", Origin::Emulated, 1, &|stages| stages.device.p50_us),
                    bars("software codec, saved", Origin::Measured, 2, &|stages| {
                        -stages.software.p50_us
                    }),
                ],
                mark: Some(Mark {
                    name: "measured difference".into(),
                    values: sizes.iter().map(difference).collect(),
                }),
            }),
        }],
    }
}

fn freed(rows: &Rows) -> Section {
    let found = rows.rows.iter().filter(|row| row.id.starts_with("codec_cpu_freed."));
    Section {
        heading: "What the accelerator frees".into(),
        prose: vec![
            "The frontend's CPU time per request in software less that with the virtual \
             accelerator, over the codec's own, from 4 KiB on, memcached reached directly and the \
             frontend kept busy: a busy core polls beside its other work. At low load the same core \
             waits by polling, and frees nothing."
                .into(),
        ],
        tables: vec![table("Freed, as a share of the codec's own CPU time", found)],
        ..Section::default()
    }
}

fn explosion(results: &Results, rows: &Rows) -> Section {
    let gets = results.plan.gets.iter().copied().min_by_key(|gets| gets.abs_diff(LOAD_GETS));
    let gets = gets.unwrap_or(LOAD_GETS);
    let ending = format!(".get{gets}");
    let found = rows.rows.iter().filter(|row| {
        let wanted = ["utilisation.", "achieved."].iter().any(|name| row.id.starts_with(name));
        wanted && row.id.ends_with(&ending) && !row.id.contains("_direct")
    });
    Section {
        heading: "Where latency explodes, and why".into(),
        prose: vec![
            "At a fixed rate the bytes per second grow with the size. Latency leaves the curve of \
             its stages when the busiest process comes near a whole core (or all together near the \
             machine's cores): from there on requests wait for each other. The table has, for each \
             size, the share of a core that each process took and the share of requests that were \
             answered in time."
                .into(),
        ],
        tables: vec![table("Shares of a core by process", found)],
        ..Section::default()
    }
}

fn series(configuration: Configuration, points: Vec<Point>) -> Series {
    let style = Style::nth(configuration.index());
    Series {
        name: configuration.name(),
        label: configuration.label(),
        origin: origin(configuration),
        style,
        points,
    }
}

/// Returns the origin of a configuration's numbers.
pub(super) const fn origin(configuration: Configuration) -> Origin {
    if configuration.is_emulated() { Origin::Emulated } else { Origin::Measured }
}

/// Returns the routes to the store that are measured.
pub(super) fn routes(results: &Results) -> impl Iterator<Item = StoreRoute> + '_ {
    StoreRoute::ALL.into_iter().filter(|route| results.plan.by_route(*route).next().is_some())
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map_or(String::new(), |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

pub(super) const fn route_id(route: StoreRoute) -> &'static str {
    match route {
        StoreRoute::Grpc => "grpc",
        StoreRoute::Direct => "direct",
    }
}

pub(super) const fn route_name(route: StoreRoute) -> &'static str {
    match route {
        StoreRoute::Grpc => "store over gRPC",
        StoreRoute::Direct => "memcached directly",
    }
}
