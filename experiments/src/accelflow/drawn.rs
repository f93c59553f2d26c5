//! The figures, drawn from the rows: ours with 95 % intervals beside the published ones, an architecture in one colour
//! throughout. Nothing is computed here.

use report::{
    Axis, BarSeries, Category, Figure, Origin, Panel, Point, Scale, Series, Style, Ticks,
};
use sim::accelflow::{Architecture, SCENARIOS};

use super::found::Found;

/// A service and its time on a core (ms).
pub(super) type Service = (String, f64);

/// Figure 11 in both scenarios, and figure 13.
pub(super) fn latency(found: &Found<'_>, services: &[Service]) -> Vec<Figure> {
    let mut figures: Vec<Figure> =
        SCENARIOS.iter().rev().map(|scenario| p99(found, scenario, services)).collect();
    figures.push(ablation(found));
    figures
}

/// Every service's P99 over its time on a core.
fn p99(found: &Found<'_>, scenario: &str, services: &[Service]) -> Figure {
    let mut sorted: Vec<&Service> = services.iter().collect();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let series = |origin: Origin| {
        let line = |(index, own): (usize, Architecture)| {
            let name = own.name();
            let point = |(service, time): &&Service| {
                let id = format!("p99.{scenario}.{}.{}", id(name), service.to_lowercase());
                at(found, origin, *time, &id)
            };
            line(name, index, origin, sorted.iter().map(point))
        };
        Architecture::COMPARED.into_iter().enumerate().map(line).collect()
    };
    let panel = |title: &str, origin| {
        let x = Axis::log10("the service's time on a core, figure 1 (ms)");
        Panel::lines(title, x, Axis::log10("P99 (ms)"), series(origin))
    };
    let names: Vec<&str> = sorted.iter().map(|(name, _)| name.as_str()).collect();
    let caption = format!(
        "P99 of each service, `{scenario}`, with 95 % intervals, beside figure 11. From left to right: {}.",
        names.join(", ")
    );
    let panels = vec![panel("simulated", Origin::Computed), panel("figure 11", Origin::Published)];
    Figure { id: format!("p99-{scenario}"), caption, panels }
}

/// Figure 13.
fn ablation(found: &Found<'_>) -> Figure {
    let steps = ["relief", "per_type_queues", "direct", "control_flow", "accelflow"];
    let line = |name: &str, scenario: &str, index: usize, origin: Origin| {
        let points = steps
            .iter()
            .enumerate()
            .map(|(step, own)| at(found, origin, step as f64, &format!("p99.{scenario}.{own}")));
        line(name, index, origin, points)
    };
    let series = vec![
        line("figure 13", "window", 6, Origin::Published),
        line("window", "window", 0, Origin::Computed),
        line("steady", "steady", 1, Origin::Computed),
    ];
    let y = Axis::log10("mean P99 of the services (ms)");
    Figure {
        id: "ablation".to_owned(),
        caption: "One technique after the other: 0 RELIEF, 1 a queue for each accelerator, 2 direct hand-over, 3 \
                  branches in the dispatchers, 4 AccelFlow. In `window` these means are calibrated."
            .to_owned(),
        panels: vec![Panel::lines("ablation", Axis::linear("techniques added"), y, series)],
    }
}

/// Figures 12, 3, 14 and the utilisations.
pub(super) fn load(found: &Found<'_>) -> Vec<Figure> {
    let loads = [5_000, 10_000, 15_000];
    let p99 = by_load(found, "mean P99 of the services (ms)", Scale::Log10, &|own| {
        let name = id(own.name());
        loads.map(|per_s| (per_s, format!("p99.steady.{name}.load_{per_s}"))).to_vec()
    });
    let shares = by_load(found, "share of the time (%)", Scale::Linear, &|own| {
        let name = match own {
            Architecture::CpuCentric => "cpu_centric",
            Architecture::Relief => "hw_manager",
            Architecture::AccelFlow => "direct",
            _ => return Vec::new(),
        };
        let loads = [1_000, 10_000, 15_000, 20_000];
        loads.map(|per_s| (per_s, format!("overhead.{name}.load_{per_s}"))).to_vec()
    });
    vec![
        Figure {
            id: "loads".to_owned(),
            caption: "P99 by load, `steady`, beside figure 12's SocialNetwork.".to_owned(),
            panels: p99,
        },
        throughput(found),
        Figure {
            id: "orchestration".to_owned(),
            caption: "What deciding and moving take of the time, by load, beside figure 3; its HW-Manager is RELIEF, \
                      its Direct AccelFlow. The interrupt's cost was worked out from CPU-Centric at 1 K."
                .to_owned(),
            panels: shares,
        },
        utilisation(found),
    ]
}

/// A panel of ours and one of the published numbers; `ids` has an architecture's loads and rows.
fn by_load(
    found: &Found<'_>,
    label: &str,
    scale: Scale,
    ids: &dyn Fn(Architecture) -> Vec<(u32, String)>,
) -> Vec<Panel> {
    let series = |origin: Origin| -> Vec<Series> {
        let all = Architecture::COMPARED.into_iter().enumerate();
        let line = |(index, own): (usize, Architecture)| {
            let points = ids(own);
            let points =
                points.iter().map(|(per_s, id)| at(found, origin, f64::from(*per_s) * 1e-3, id));
            line(own.name(), index, origin, points)
        };
        all.map(line).filter(|series| !series.points.is_empty()).collect()
    };
    let panel = |title: &str, origin| {
        let y = Axis { label: label.to_owned(), scale, ticks: Ticks::Plain };
        Panel::lines(title, Axis::linear("load (thousand requests/s)"), y, series(origin))
    };
    vec![panel("simulated", Origin::Computed), panel("published", Origin::Published)]
}

/// Figure 14.
fn throughput(found: &Found<'_>) -> Figure {
    let names = ["non-acc", "cpu-centric", "relief", "cohort", "accelflow", "ideal"];
    let id = |name: &&str| format!("max_throughput.steady.{}", id(name));
    let series = vec![
        BarSeries::new(
            "figure 14",
            Origin::Published,
            6,
            names.iter().map(|own| found.bar(&id(own))),
        ),
        BarSeries::new(
            "steady",
            Origin::Computed,
            0,
            names.iter().map(|own| found.value(&id(own))),
        ),
    ];
    Figure {
        id: "throughput".to_owned(),
        caption: "Highest load that keeps every P99 within 5 times figure 1's time. Intervals are in the rows."
            .to_owned(),
        panels: vec![bars("throughput", "thousand requests/s", &names, series)],
    }
}

fn utilisation(found: &Found<'_>) -> Figure {
    let names = ["tcp", "encryption", "rpc", "serialization", "compression", "load_balance"];
    let id = |name: &&str| format!("utilisation.{name}");
    let series = vec![
        BarSeries::new(
            "section VII-B4",
            Origin::Published,
            6,
            names.iter().map(|own| found.bar(&id(own))),
        ),
        BarSeries::new(
            "steady",
            Origin::Computed,
            0,
            names.iter().map(|own| found.value(&id(own))),
        ),
    ];
    let shown = ["TCP", "(De)Encr", "RPC", "(De)Ser", "(De)Cmp", "LdB"];
    Figure {
        id: "utilisation".to_owned(),
        caption: "Busy PEs of AccelFlow at 51.6 K requests/s.".to_owned(),
        panels: vec![bars("utilisation", "busy (%)", &shown, series)],
    }
}

/// Figures 18 and 19, and what the text says of links and speeds.
pub(super) fn sweeps(found: &Found<'_>) -> Vec<Figure> {
    let chiplets =
        |scenario: &str, count: u32| format!("p99.{scenario}.accelflow.chiplets_{count}");
    let cycles = |scenario: &str, cycles: u32| match cycles {
        60 => chiplets(scenario, 6),
        _ => format!("p99.{scenario}.accelflow.chiplets_6.cycles_{cycles}"),
    };
    let pes = |scenario: &str, count: u32| format!("p99.{scenario}.accelflow.pes_{count}");
    let missed = |scenario: &str, count: u32| format!("deadline_misses.{scenario}.pes_{count}");
    let speed =
        |scenario: &str, percent: u32| format!("p99_ratio.{scenario}.relief.speed_{percent}");
    let ms = || Axis::log10("mean P99 of the services (ms)");
    let log2 =
        |label: &str| Axis { label: label.to_owned(), scale: Scale::Log2, ticks: Ticks::Plain };
    let figure = |id: &str, caption: &str, panels| Figure {
        id: id.to_owned(),
        caption: caption.to_owned(),
        panels,
    };
    let panel =
        |title: &str, x: Axis, y: Axis, values: &[u32], id: &dyn Fn(&str, u32) -> String| {
            Panel::lines(title, x, y, by_scenario(found, values, id))
        };
    let percent = || log2("speed of the PEs (% of the published)");
    vec![
        figure(
            "chiplets",
            "AccelFlow by chiplets, beside figure 18; and with six of them, by the cycles between two.",
            vec![
                panel("chiplets", Axis::linear("chiplets"), ms(), &[1, 2, 3, 4, 6], &chiplets),
                panel(
                    "six chiplets",
                    Axis::linear("cycles"),
                    ms(),
                    &[20, 40, 60, 80, 100],
                    &cycles,
                ),
            ],
        ),
        figure(
            "pes",
            "AccelFlow by PEs of each accelerator, beside figure 19; and requests beyond 5 times their time.",
            vec![
                panel("PEs", log2("PEs"), ms(), &[2, 4, 8, 16, 36], &pes),
                panel("missed", log2("PEs"), Axis::linear("missed (%)"), &[2, 4, 8], &missed),
            ],
        ),
        figure(
            "speeds",
            "RELIEF's P99 over AccelFlow's, and AccelFlow's highest load over RELIEF's, by the speed of the PEs.",
            vec![
                panel("P99", percent(), Axis::linear("times"), &[25, 50, 100, 200, 400], &speed),
                Panel::lines("highest load", percent(), Axis::linear("times"), speeds(found)),
            ],
        ),
    ]
}

/// AccelFlow's throughput over RELIEF's, ours and the published.
fn speeds(found: &Found<'_>) -> Vec<Series> {
    let id = |percent: u32| match percent {
        100 => "max_throughput_ratio.steady.relief".to_owned(),
        _ => format!("max_throughput_ratio.steady.relief.speed_{percent}"),
    };
    let points = |origin: Origin| -> Vec<Option<Point>> {
        let percents = [25, 100, 400].iter();
        percents.map(|own| at(found, origin, f64::from(*own), &id(*own))).collect()
    };
    vec![
        line("document", 6, Origin::Published, points(Origin::Published)),
        line("steady", 1, Origin::Computed, points(Origin::Computed)),
    ]
}

/// The published line, where there is one, and both scenarios'.
fn by_scenario(found: &Found<'_>, values: &[u32], id: &dyn Fn(&str, u32) -> String) -> Vec<Series> {
    let of = |name: &str, scenario: &str, index: usize, origin: Origin| {
        let points =
            values.iter().map(|own| at(found, origin, f64::from(*own), &id(scenario, *own)));
        line(name, index, origin, points)
    };
    let all = [
        of("document", "window", 6, Origin::Published),
        of("window", "window", 0, Origin::Computed),
        of("steady", "steady", 1, Origin::Computed),
    ];
    all.into_iter().filter(|series| !series.points.is_empty()).collect()
}

/// Figure 15.
pub(super) fn relief(found: &Found<'_>) -> Vec<Figure> {
    let names = ["canny", "deblur", "harris", "gru", "lstm"];
    let id = |name: &str, hold: &str| format!("throughput_ratio.relief_apps.{name}{hold}");
    let of = |hold: &'static str| names.map(|own| found.value(&id(own, hold)));
    let objective =
        names.map(|own| found.value(&format!("throughput_ratio.relief_apps_objective.{own}")));
    let series = vec![
        BarSeries::new("figure 15", Origin::Published, 6, names.map(|own| found.bar(&id(own, "")))),
        BarSeries::new("entries hold pointers", Origin::Computed, 0, of("")),
        BarSeries::new("payloads", Origin::Computed, 1, of(".entries_hold_payload")),
        BarSeries::new("arguments", Origin::Computed, 2, of(".entries_hold_arguments")),
        BarSeries::new("within the objective", Origin::Computed, 3, objective),
    ];
    vec![Figure {
        id: "relief-apps".to_owned(),
        caption: "RELIEF's applications: AccelFlow's throughput over RELIEF's when work always waits, by what an entry \
                  of its queues holds; and the highest loads within figure 14's objective."
            .to_owned(),
        panels: vec![bars("figure 15", "times", &names, series)],
    }]
}

/// An architecture's name as rows have it.
fn id(name: &str) -> String {
    name.replace('-', "_")
}

/// A row's number of this origin.
fn at(found: &Found<'_>, origin: Origin, x: f64, id: &str) -> Option<Point> {
    match origin {
        Origin::Published => found.published(x, id),
        Origin::Measured | Origin::Emulated | Origin::Computed => found.ours(x, id),
    }
}

fn line(
    name: &str,
    index: usize,
    origin: Origin,
    points: impl IntoIterator<Item = Option<Point>>,
) -> Series {
    let points = points.into_iter().flatten().collect();
    let (name, label) = (name.to_owned(), String::new());
    Series { name, label, origin, style: Style::nth(index), points }
}

fn bars(title: &str, y_label: &str, names: &[&str], series: Vec<BarSeries>) -> Panel {
    Panel::groups(title, y_label, names.iter().map(|name| Category::new(*name)), series)
}
