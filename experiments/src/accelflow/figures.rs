//! The figures of the page, drawn from the rows. They show our numbers with 95 % intervals and the published numbers.
//! Each architecture has the same colour in every figure. Nothing is computed here.

use report::{
    Axis, BarSeries, Category, Figure, Origin, Panel, Point, Scale, Series, Style, Ticks,
};
use sim::accelflow::{Architecture, SCENARIOS};

use super::row_index::RowIndex;

/// A service and its time on a core (ms).
pub(super) type Service = (String, f64);

/// Draws figure 11 in both scenarios, and figure 13.
pub(super) fn latency(rows: &RowIndex<'_>, services: &[Service]) -> Vec<Figure> {
    let mut figures: Vec<Figure> =
        SCENARIOS.iter().rev().map(|scenario| p99(rows, scenario, services)).collect();
    figures.push(ablation(rows));
    figures
}

/// Draws every service's P99 against its time on a core.
fn p99(rows: &RowIndex<'_>, scenario: &str, services: &[Service]) -> Figure {
    let mut sorted: Vec<&Service> = services.iter().collect();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let series = |origin: Origin| {
        let line = |(index, architecture): (usize, Architecture)| {
            let name = architecture.name();
            let point = |(service, time): &&Service| {
                let id = format!("p99.{scenario}.{}.{}", id(name), service.to_lowercase());
                at(rows, origin, *time, &id)
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

/// Draws figure 13.
fn ablation(rows: &RowIndex<'_>) -> Figure {
    let steps = ["relief", "per_type_queues", "direct", "control_flow", "accelflow"];
    let line = |name: &str, scenario: &str, index: usize, origin: Origin| {
        let points = steps
            .iter()
            .enumerate()
            .map(|(x, step)| at(rows, origin, x as f64, &format!("p99.{scenario}.{step}")));
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

/// Draws figures 12, 3 and 14, and the utilisations.
pub(super) fn load(rows: &RowIndex<'_>) -> Vec<Figure> {
    let loads = [5_000, 10_000, 15_000];
    let p99 = by_load(rows, "mean P99 of the services (ms)", Scale::Log10, &|architecture| {
        let name = id(architecture.name());
        loads.map(|per_s| (per_s, format!("p99.steady.{name}.load_{per_s}"))).to_vec()
    });
    let shares = by_load(rows, "share of the time (%)", Scale::Linear, &|architecture| {
        let name = match architecture {
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
        throughput(rows),
        Figure {
            id: "orchestration".to_owned(),
            caption: "What deciding and moving take of the time, by load, beside figure 3; its HW-Manager is RELIEF, \
                      its Direct AccelFlow. The interrupt's cost was worked out from CPU-Centric at 1 K."
                .to_owned(),
            panels: shares,
        },
        utilisation(rows),
    ]
}

/// Returns two panels: one with the numbers that Rebate obtained, and one with the published numbers. `ids` returns
/// each load of an architecture with the id of its row.
fn by_load(
    rows: &RowIndex<'_>,
    label: &str,
    scale: Scale,
    ids: &dyn Fn(Architecture) -> Vec<(u32, String)>,
) -> Vec<Panel> {
    let series = |origin: Origin| -> Vec<Series> {
        let all = Architecture::COMPARED.into_iter().enumerate();
        let line = |(index, architecture): (usize, Architecture)| {
            let points = ids(architecture);
            let points =
                points.iter().map(|(per_s, id)| at(rows, origin, f64::from(*per_s) * 1e-3, id));
            line(architecture.name(), index, origin, points)
        };
        all.map(line).filter(|series| !series.points.is_empty()).collect()
    };
    let panel = |title: &str, origin| {
        let y = Axis { label: label.to_owned(), scale, ticks: Ticks::Plain };
        Panel::lines(title, Axis::linear("load (thousand requests/s)"), y, series(origin))
    };
    vec![panel("simulated", Origin::Computed), panel("published", Origin::Published)]
}

/// Draws figure 14.
fn throughput(rows: &RowIndex<'_>) -> Figure {
    let names = ["non-acc", "cpu-centric", "relief", "cohort", "accelflow", "ideal"];
    let id = |name: &&str| format!("mean_throughput.steady.{}", id(name));
    let series = published_and_ours(rows, "figure 14", names.iter().map(id));
    Figure {
        id: "throughput".to_owned(),
        caption: "Highest load that keeps a service's P99 within 5 times figure 1's time, mean of the services. \
                  Intervals are in the rows."
            .to_owned(),
        panels: vec![bars("throughput", "thousand requests/s", &names, series)],
    }
}

fn utilisation(rows: &RowIndex<'_>) -> Figure {
    let names = ["tcp", "encryption", "rpc", "serialization", "compression", "load_balance"];
    let id = |name: &&str| format!("utilisation.{name}");
    let series = published_and_ours(rows, "section VII-B4", names.iter().map(id));
    let shown = ["TCP", "(De)Encr", "RPC", "(De)Ser", "(De)Cmp", "LdB"];
    Figure {
        id: "utilisation".to_owned(),
        caption: "Busy PEs of AccelFlow at 51.6 K requests/s.".to_owned(),
        panels: vec![bars("utilisation", "busy (%)", &shown, series)],
    }
}

/// Draws figures 18 and 19, and the numbers on links and speeds from the paper's text.
pub(super) fn sweeps(rows: &RowIndex<'_>) -> Vec<Figure> {
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
            Panel::lines(title, x, y, by_scenario(rows, values, id))
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
                Panel::lines("highest load", percent(), Axis::linear("times"), speeds(rows)),
            ],
        ),
    ]
}

/// Returns AccelFlow's throughput divided by RELIEF's for each speed of the PEs: the published ratio and the ratio that
/// Rebate obtained.
fn speeds(rows: &RowIndex<'_>) -> Vec<Series> {
    let id = |percent: u32| match percent {
        100 => "max_throughput_ratio.steady.relief".to_owned(),
        _ => format!("max_throughput_ratio.steady.relief.speed_{percent}"),
    };
    let points = |origin: Origin| -> Vec<Option<Point>> {
        let percents = [25, 100, 400].iter();
        percents.map(|percent| at(rows, origin, f64::from(*percent), &id(*percent))).collect()
    };
    vec![
        line("paper", 6, Origin::Published, points(Origin::Published)),
        line("steady", 1, Origin::Computed, points(Origin::Computed)),
    ]
}

/// Returns the published line, if there is one, and one line for each scenario.
fn by_scenario(
    rows: &RowIndex<'_>,
    values: &[u32],
    id: &dyn Fn(&str, u32) -> String,
) -> Vec<Series> {
    let by_value = |name: &str, scenario: &str, index: usize, origin: Origin| {
        let points = values.iter().map(|x| at(rows, origin, f64::from(*x), &id(scenario, *x)));
        line(name, index, origin, points)
    };
    let all = [
        by_value("paper", "window", 6, Origin::Published),
        by_value("window", "window", 0, Origin::Computed),
        by_value("steady", "steady", 1, Origin::Computed),
    ];
    all.into_iter().filter(|series| !series.points.is_empty()).collect()
}

/// Draws figure 15.
pub(super) fn relief(rows: &RowIndex<'_>) -> Vec<Figure> {
    let names = ["canny", "deblur", "harris", "gru", "lstm"];
    let id = |name: &str, hold: &str| format!("throughput_ratio.relief_apps.{name}{hold}");
    let ratios = |hold: &'static str| names.map(|name| rows.our_value(&id(name, hold)));
    let objective =
        names.map(|name| rows.our_value(&format!("throughput_ratio.relief_apps_objective.{name}")));
    let series = vec![
        BarSeries::new(
            "figure 15",
            Origin::Published,
            6,
            names.map(|name| rows.published_value(&id(name, ""))),
        ),
        BarSeries::new("entries hold pointers", Origin::Computed, 0, ratios("")),
        BarSeries::new("payloads", Origin::Computed, 1, ratios(".entries_hold_payload")),
        BarSeries::new("arguments", Origin::Computed, 2, ratios(".entries_hold_arguments")),
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

/// Returns an architecture's name in the form that row ids contain.
fn id(name: &str) -> String {
    name.replace('-', "_")
}

/// Returns the point at `x` for a row's published number, or for the number that Rebate obtained, according to
/// `origin`.
fn at(rows: &RowIndex<'_>, origin: Origin, x: f64, id: &str) -> Option<Point> {
    match origin {
        Origin::Published => rows.published_point(x, id),
        Origin::Measured | Origin::Emulated | Origin::Computed => rows.our_point(x, id),
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

/// Returns the series of the published numbers of these rows, from the named place in the paper, and the series of our
/// numbers in scenario `steady`.
fn published_and_ours(
    rows: &RowIndex<'_>,
    place: &str,
    ids: impl Iterator<Item = String> + Clone,
) -> Vec<BarSeries> {
    let published = ids.clone().map(|id| rows.published_value(&id));
    let ours = ids.map(|id| rows.our_value(&id));
    vec![
        BarSeries::new(place, Origin::Published, 6, published),
        BarSeries::new("steady", Origin::Computed, 0, ours),
    ]
}

fn bars(title: &str, label: &str, names: &[&str], series: Vec<BarSeries>) -> Panel {
    Panel::groups(title, label, names.iter().map(|name| Category::new(*name)), series)
}
