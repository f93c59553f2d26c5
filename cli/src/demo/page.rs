//! Shows the demo's results as a page.

use report::{
    BarSeries, Bars, Category, Column, Figure, Layout, Mark, Origin, Panel, Plot, Report, Section,
    Table,
};

use experiments::compression::Comparison;
use experiments::testbed::{Compressor, Topology};

use experiments::records::{Cached, RecordComparison, RecordKind};

use super::services::{ServicePoint, Services};

/// Builds the page.
pub(super) fn report(
    records: Option<&RecordComparison>,
    comparisons: &[Comparison],
    services: Option<&Services>,
) -> Report {
    let mut sections: Vec<Section> = records.into_iter().map(small_values).collect();
    sections.extend(comparisons.iter().map(memory));
    sections.extend(services.map(configurations));
    Report {
        title: "Rebate on this machine".into(),
        subtitle: "A compressed cache that any memcached client can use: what it saves here, what \
                   it costs, and what an accelerator would change."
            .into(),
        facts: experiments::page_facts(),
        sections,
    }
}

fn small_values(records: &RecordComparison) -> Section {
    let panel = |title: &str, unit: &str, value: fn(&Cached) -> f64| {
        let kinds = records.kinds.iter();
        let theirs = kinds.clone().filter_map(|kind| kind.memcached.as_ref().map(value));
        let ours = kinds.clone().map(|kind| value(&kind.rebate));
        let series = [
            BarSeries::new("memcached", Origin::Measured, 1, theirs.collect::<Vec<_>>()),
            BarSeries::new("rebate memcached", Origin::Measured, 0, ours.collect::<Vec<_>>()),
        ];
        let has_both = records.kinds.iter().all(|kind| kind.memcached.is_some());
        let series = series.into_iter().skip(usize::from(!has_both));
        let name = |kind: &RecordKind| format!("{}, {:.0} B", kind.class, kind.record_bytes);
        Panel::groups(title, unit, kinds.map(name).map(Category::new), series)
    };
    Section {
        heading: format!("Rebate and memcached in {}: small values", records.memory),
        prose: vec![
            "Each record is set once. Gets follow Zipf's law, and a miss is set. Both caches have \
             one thread and get the same requests."
                .into(),
        ],
        figures: vec![Figure {
            id: "records".into(),
            caption: "Items held, hit ratio and CPU time of the server per get.".into(),
            panels: vec![
                panel("items held", "items", |cached| cached.items),
                panel("hit ratio", "hits over gets", |cached| cached.hit_ratio),
                panel("CPU per get", "us", |cached| cached.cpu_us),
            ],
        }],
        ..Section::default()
    }
}

fn memory(comparison: &Comparison) -> Section {
    let pairs = comparison.pairs();
    let panel = |(title, unit, values): &(&str, &str, [f64; 2])| {
        let series = BarSeries::new(comparison.preset(), Origin::Measured, 0, *values);
        let categories = ["compression off", "compression on"].map(Category::new);
        Panel::groups(*title, *unit, categories, [series])
    };
    Section {
        heading: format!("Compression off and on in the same memory: {}", comparison.preset()),
        prose: vec![comparison.sentence()],
        figures: vec![Figure {
            id: format!("memory-{}", comparison.preset()),
            caption: comparison.caption(),
            panels: pairs.iter().map(panel).collect(),
        }],
        ..Section::default()
    }
}

fn configurations(services: &Services) -> Section {
    let mut sizes: Vec<_> = services.points.iter().map(|point| point.value_bytes).collect();
    sizes.dedup();
    let panel = |title: &str, value: fn(&ServicePoint) -> f64| {
        let first = sizes.first().copied();
        let names = services.points.iter().filter(|point| Some(point.value_bytes) == first);
        let category = |point: &ServicePoint| Category {
            name: point.configuration.label(),
            origin: if point.emulated { Origin::Emulated } else { Origin::Measured },
        };
        let series = sizes.iter().enumerate().map(|(colour, size)| {
            let values =
                services.points.iter().filter(|point| point.value_bytes == *size).map(value);
            BarSeries::new(format!("{size} values"), Origin::Measured, colour, values)
        });
        Panel::groups(title, "us", names.map(category), series)
    };
    Section {
        heading: "Monolith or microservices, software or accelerator".into(),
        prose: vec![
            format!(
                "Every service is a process of its own, {} behind the store service, {:.0} \
                 requests/s, {:.0} % gets. `rebate reproduce cache` is the long form.",
                services.store,
                services.offered_per_s,
                services.get_share * 100.0
            ),
            "The IAA is virtual: emulated from published figures, not hardware. While it waits for \
             it at this low load the core polls, so CPU per request shows the waiting too."
                .into(),
        ],
        figures: vec![
            Figure {
                id: "configurations".into(),
                caption: "Latency of gets, and CPU time of all processes per request.".into(),
                panels: vec![
                    panel("get median", |point| point.p50_us),
                    panel("get 90th percentile", |point| point.p90_us),
                    panel("CPU per request", |point| point.core_us),
                ],
            },
            stages(services),
        ],
        tables: vec![numbers(services)],
        ..Section::default()
    }
}

fn stages(services: &Services) -> Figure {
    let bars = |name: &str, origin, colour, stage: fn(&super::services::StagePoint) -> f64| {
        BarSeries::new(name, origin, colour, services.stages.iter().map(stage))
    };
    let category = |stage: &super::services::StagePoint| Category {
        name: format!("{} values", stage.value_bytes),
        origin: Origin::Emulated,
    };
    let p50 = |size, topology, compressor| {
        let found = services.points.iter().find(|point| {
            let configuration = point.configuration;
            point.value_bytes == size
                && (configuration.topology, configuration.compressor) == (topology, compressor)
        });
        found.map_or(f64::NAN, |point| point.p50_us)
    };
    let difference = |stage: &super::services::StagePoint| {
        p50(stage.value_bytes, Topology::Microservice, Compressor::Iaa)
            - p50(stage.value_bytes, Topology::Monolith, Compressor::Software)
    };
    Figure {
        id: "stages".into(),
        caption:
            "Microservice with the accelerator, over gRPC, less monolith in software: measured, \
                  and as the sum of stages measured alone."
                .into(),
        panels: vec![Panel {
            title: "where the difference comes from".into(),
            plot: Plot::Bars(Bars {
                label: "us".into(),
                layout: Layout::Stacked,
                categories: services.stages.iter().map(category).collect(),
                series: vec![
                    bars("hop", Origin::Measured, 0, |stage| stage.hop_us),
                    bars("device", Origin::Emulated, 1, |stage| stage.device_us),
                    bars("software codec, saved", Origin::Measured, 2, |stage| -stage.software_us),
                ],
                mark: Some(Mark {
                    name: "measured difference".into(),
                    values: services.stages.iter().map(difference).collect(),
                }),
            }),
        }],
    }
}

fn numbers(services: &Services) -> Table {
    let row = |point: &ServicePoint| {
        let mut row = vec![point.configuration.name(), point.value_bytes.to_string()];
        let numbers = [point.p50_us, point.p90_us, point.core_us, point.frontend_core_us];
        row.extend(numbers.map(|number| format!("{number:.1}")));
        row.push(point.invalid.clone().unwrap_or_default());
        row
    };
    Table {
        caption: "The configurations".into(),
        header: vec![
            Column::text("configuration"),
            Column::number("values"),
            Column::number("get p50 (us)"),
            Column::number("get p90 (us)"),
            Column::number("CPU per request (us)"),
            Column::number("of the frontend (us)"),
            Column::text("remark"),
        ],
        rows: services.points.iter().map(row).collect(),
    }
}
