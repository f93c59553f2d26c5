//! The page: the figures, the order of the architectures, the discrepancies, and all rows. Everything on the page comes
//! from the rows, and nothing is simulated here.

use report::{Column, Report, Section, Table};
use sim::accelflow::SCENARIOS;

use super::causes::CAUSE;
use super::discrepancies;
use super::figures::{self, Service};
use super::groups;
use super::orders::{BESIDE, SORTED};
use super::row_index::{RowIndex, ends};
use crate::base::agreement;
use crate::base::figures::facts;
use crate::base::rows::{Kind, Row, Rows};

/// Adds the rows that count how many predictions agree, and returns the page.
pub(super) fn report(rows: &mut Rows, services: &[Service]) -> Report {
    let agreement = agreement::section(&mut rows.rows, groups::groups, groups::number);
    let rows = &*rows;
    let more = [
        ("measured", "nothing: simulated, the same on any machine".to_owned()),
        ("rows", counts_by_kind(&rows.rows)),
    ];
    let by_id = RowIndex::new(&rows.rows);
    let section = |heading: &str, prose: &[&str], figures| Section {
        heading: heading.to_owned(),
        prose: prose.iter().map(|paragraph| (*paragraph).to_owned()).collect(),
        figures,
        ..Section::default()
    };
    let all = Table {
        caption: "Published and ours, with 95 % intervals".to_owned(),
        header: Row::columns(),
        rows: rows.rows.iter().map(|row| row.cells().to_vec()).collect(),
    };
    Report {
        title: "AccelFlow, simulated".to_owned(),
        subtitle: "The paper's results beside a model of its server.".to_owned(),
        facts: facts(rows, more),
        sections: vec![
            agreement,
            section("Latency", &SCENARIO_PROSE, figures::latency(&by_id, services)),
            order(&by_id, services),
            section("Load", &LOAD_PROSE, figures::load(&by_id)),
            section("What is varied", &[], figures::sweeps(&by_id)),
            section("RELIEF's applications", &[], figures::relief(&by_id)),
            Section {
                heading: "What does not follow from the published inputs".to_owned(),
                prose: discrepancies::paragraphs(&by_id),
                ..Section::default()
            },
            Section {
                heading: "All rows".to_owned(),
                prose: vec![ROWS_PROSE.to_owned()],
                tables: vec![all],
                ..Section::default()
            },
        ],
    }
}

/// Returns the number of rows of each kind, as text.
fn counts_by_kind(rows: &[Row]) -> String {
    let kinds = [Kind::Predicted, Kind::Computed, Kind::Calibrated, Kind::Unreachable];
    let count = |kind: Kind| {
        let of_kind = rows.iter().filter(|row| row.kind == kind);
        let beside = of_kind.clone().filter(|row| row.published.is_some()).count();
        format!("{} {} ({beside} beside a published number)", of_kind.count(), kind.name())
    };
    kinds.map(count).join(", ")
}

/// Returns the section on the order of the architectures, in the results that Rebate obtained and in the paper's.
fn order(rows: &RowIndex<'_>, services: &[Service]) -> Section {
    let prose = SCENARIOS.iter().rev().flat_map(|scenario| verdict(rows, scenario));
    Section {
        heading: "The order of the architectures".to_owned(),
        prose: prose.collect(),
        tables: vec![by_service(rows, services), margins(rows, services), by_pair(rows)],
        notes: vec![
            "a < b: the paired difference of the two P99s is beyond its 95 % interval; a = b: it is not.".to_owned(),
        ],
        ..Section::default()
    }
}

/// Returns sentences that compare a scenario's results with the published order.
fn verdict(rows: &RowIndex<'_>, scenario: &str) -> Vec<String> {
    let quote = |what: &str| rows.quote(&format!("{what}.{scenario}"));
    let counts = format!(
        "`{scenario}`: services of eight in which AccelFlow's P99 is the lowest beyond its interval: {}. In which \
         the whole order of five is the published one: {}.",
        quote("accelflow_best"),
        quote("order_as_published"),
    );
    let (mut holds, mut turned, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for (lower, higher) in pairs() {
        let Some(row) = rows.row(&pair_id(scenario, lower, higher)) else { continue };
        let Some([sure, most]) = ends(row) else { continue };
        let name = format!("{lower} and {higher}");
        if sure >= SERVICES {
            holds.push(name);
        } else if most < SERVICES {
            turned.push(format!("{name} (in {} of eight the other way)", SERVICES - most));
        } else {
            open.push(name);
        }
    }
    let list = |what: &str, names: &[String]| match names {
        [] => format!("{what}: none."),
        _ => format!("{what}: {}.", names.join("; ")),
    };
    let pairs = [
        list(
            "Pairs that are ordered as in figure 11, beyond the interval, in all services",
            &holds,
        ),
        list("Pairs that are the other way round, beyond the interval, in some", &turned),
        list("The others, not decided in some", &open),
    ];
    let conclusion = match (holds.is_empty() && open.is_empty(), turned.is_empty()) {
        (true, true) => "So nothing can be said of the published order here.",
        (_, true) => "So nothing here contradicts the published order.",
        (_, false) => {
            "So the published order, as a whole, does not come out here: see those the other way round."
        }
    };
    vec![counts, format!("{} {conclusion}", pairs.join(" "))]
}

/// Returns every pair of architectures. The first of each pair has the lower published mean.
fn pairs() -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = SORTED.iter().enumerate();
    all.flat_map(|(index, lower)| SORTED[index + 1..].iter().map(move |higher| (*lower, *higher)))
}

fn pair_id(scenario: &str, lower: &str, higher: &str) -> String {
    format!("pair.{scenario}.{lower}.{higher}").replace('-', "_")
}

/// Returns the table of the orders by service.
fn by_service(rows: &RowIndex<'_>, services: &[Service]) -> Table {
    let row = |(service, _): &Service| {
        let reasons = SCENARIOS.map(|scenario| {
            let row = rows.row(&format!("order.{scenario}.{}", service.to_lowercase()));
            row.and_then(|row| row.reason.clone()).unwrap_or_default()
        });
        let parts = reasons.each_ref().map(|reason| {
            let (order, _) = reason.split_once(CAUSE).unwrap_or((reason, ""));
            order.split_once(BESIDE)
        });
        let published = parts.iter().flatten().next().map_or("", |(_, published)| *published);
        let ours = |index: usize| match parts[index] {
            Some((ours, _)) => ours.to_owned(),
            None => reasons[index].clone(),
        };
        vec![service.clone(), ours(1), ours(0), ours(2), published.to_owned()]
    };
    Table {
        caption: "P99s, lowest first".to_owned(),
        header: ["service", SCENARIOS[1], SCENARIOS[0], SCENARIOS[2], "figure 11"]
            .map(Column::text)
            .to_vec(),
        rows: services.iter().map(row).collect(),
    }
}

/// Returns the table of the margins by which AccelFlow's P99 is below the lowest of the others.
fn margins(rows: &RowIndex<'_>, services: &[Service]) -> Table {
    let row = |(service, _): &Service| {
        let id = |scenario: &str| format!("p99_margin.{scenario}.{}", service.to_lowercase());
        let published = rows.row(&id(SCENARIOS[1])).and_then(|row| row.published);
        let bar = published.map_or(String::new(), |bar| format!("{bar:.3}"));
        let ours = [1, 0, 2].map(|index: usize| rows.quote(&id(SCENARIOS[index])));
        [vec![service.clone()], ours.to_vec(), vec![bar]].concat()
    };
    Table {
        caption: "By how much AccelFlow's P99 is below the lowest of the other four".to_owned(),
        header: vec![
            Column::text("service"),
            Column::number(SCENARIOS[1]),
            Column::number(SCENARIOS[0]),
            Column::number(SCENARIOS[2]),
            Column::number("figure 11 (ms)"),
        ],
        rows: services.iter().map(row).collect(),
    }
}

/// Returns the table that gives for each pair of architectures the number of services with the published order.
fn by_pair(rows: &RowIndex<'_>) -> Table {
    let row = |(lower, higher): (&'static str, &'static str)| {
        let quote = |scenario: &str| rows.quote(&pair_id(scenario, lower, higher));
        let ours = [1, 0, 2].map(|index: usize| quote(SCENARIOS[index]));
        [vec![format!("{lower} and {higher}")], ours.to_vec()].concat()
    };
    Table {
        caption: "Services of eight in which two architectures are ordered as in figure 11: by the estimates, and \
                  from those in which they surely are to those in which they may be"
            .to_owned(),
        header: vec![
            Column::text("pair"),
            Column::number(SCENARIOS[1]),
            Column::number(SCENARIOS[0]),
            Column::number(SCENARIOS[2]),
        ],
        rows: pairs().map(row).collect(),
    }
}

const SERVICES: f64 = 8.0;

const SCENARIO_PROSE: [&str; 2] = [
    "Three scenarios: `steady` takes published inputs wherever there are any; `window` is an overloaded server for \
     30.2 ms from empty, with inputs that a search (bench/fit_window.py) chose against thirteen published \
     means. Rows of those means are calibrated in it; all others are predicted. `production` is `steady` with \
     gaps between requests as a public analysis of production traffic has them, and with each request on one core; \
     both were chosen before its first run. What was fitted to what: \
     docs/decisions/0018-accelflow-scenarios.md.",
    "Services are SocialNetwork's; no service means the mean of all eight.",
];

const LOAD_PROSE: [&str; 1] = [
    "The highest load is found by halving. Its interval goes from the highest load at which every P99's whole \
     interval keeps the objective to the lowest at which one's whole interval does not, and holds the bracket that \
     halving leaves.",
];

const ROWS_PROSE: &str = "A row `contradiction.` has a printed number as published, and as ours what other printed \
     numbers make of it.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rows::Kind;

    #[test]
    fn the_verdict_names_a_pair_that_is_surely_reversed() {
        let all = pairs().enumerate().map(|(index, (lower, higher))| {
            let id = pair_id("steady", lower, higher);
            let ends = if index == 0 { [1.0, 5.0] } else { [8.0, 8.0] };
            let row = Row::modelled(&id, "", (Some(8.0), Some(ends[0])), "1", Kind::Predicted);
            Row { ci95: Some(ends).filter(|[low, high]| low < high), ..row }
        });
        let rows: Vec<Row> = all.collect();
        assert_eq!(rows.len(), 10);
        let text = verdict(&RowIndex::new(&rows), "steady").join(" ");
        assert!(text.contains("accelflow and relief (in 3 of eight the other way)"), "{text}");
        assert!(text.contains("does not come out here"), "{text}");
        let text = verdict(&RowIndex::new(&rows[1..]), "steady").join(" ");
        assert!(text.contains("none. The others, not decided in some: none."), "{text}");
        assert!(text.contains("nothing here contradicts"), "{text}");
        let text = verdict(&RowIndex::new(&[]), "steady").join(" ");
        assert!(text.contains("nothing can be said"), "{text}");
    }
}
