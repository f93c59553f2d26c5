//! The inputs of the model by origin, and what the model says with our own measured handlers and software in the
//! place of the fitted ones (`specs/sim/arcalis-measured.toml`), right or wrong.

use std::collections::BTreeMap;

use report::{Column, Table};

use super::runner::{Case, Runner, WORKLOADS};
use super::speed::SPEEDUPS;
use crate::base::rows::{Kind, Row};
use crate::base::{Problem, entries};

/// The scenarios, each with what its inputs are for.
const SCENARIOS: [&str; 2] = ["arcalis", "arcalis-measured"];

/// The origins of an input, as specifications name them, with the name in the list.
const ORIGINS: [(&str, &str); 5] = [
    ("published", "printed"),
    ("derived", "derived from printed or counted numbers"),
    ("measured", "measured on our machine"),
    ("assumed", "assumed"),
    ("calibrated", "fitted"),
];

/// Adds the rows that the model gives with measured inputs.
pub(super) fn measured(runner: &Runner, rows: &mut Vec<Row>) -> Result<(), Problem> {
    let throughputs = [Some(248.0), Some(202.0), Some(258.0), Some(128.0), None, Some(74.0), None];
    let all = WORKLOADS.into_iter().zip(SPEEDUPS).zip(throughputs);
    for ((workload, speedup), throughput) in all {
        let case = Case::measured(workload);
        let mut add = |id: &str, what: &str, unit, published: Option<f64>, ours: f64| {
            let id = format!("measured_inputs.{id}.{workload}");
            let row = Row::modelled(&id, what, (published, Some(ours)), unit, Kind::Predicted);
            rows.push(row.because(CAUSE));
        };
        let what = "figure 11a with our handlers and software: over one core";
        add("speedup", what, "times", Some(speedup), runner.speedup(&case)?);
        let what = "figure 11b with our handlers and software: Arcalis";
        add("throughput", what, "k/s", throughput, runner.per_s(&case)? * 1e-3);
        let near = case.clone().with(super::sensitivity::NEAR, 400);
        let what = "figure 15a with our handlers: 400 ns against 5 ns";
        add("slowdown_400ns", what, "%", slowdown_400ns(workload), runner.slowdown(&near, &case)?);
    }
    Ok(())
}

/// Returns the published slowdown at 400 ns, which is printed for two of memcached's mixes without their names and as a
/// bound for the others.
fn slowdown_400ns(workload: &str) -> Option<f64> {
    (!workload.starts_with("memc")).then_some(7.0)
}

/// Adds the number of inputs of each origin.
///
/// # Errors
/// A specification cannot be read.
pub(super) fn counts(_: &Runner, rows: &mut Vec<Row>) -> Result<(), Problem> {
    for scenario in SCENARIOS {
        let count = by_origin(scenario)?;
        for (kind, name) in ORIGINS {
            let ours = Some(count.get(kind).map_or(0, Vec::len) as f64);
            let id = format!("inputs.{kind}.{}", scenario.replace('-', "_"));
            let what = format!("inputs of `{scenario}` that are {name}");
            rows.push(Row::modelled(&id, &what, (None, ours), "1", Kind::Computed));
        }
    }
    Ok(())
}

/// Returns the inputs of a scenario by origin: each with its key, value and source.
fn by_origin(scenario: &str) -> Result<BTreeMap<String, Vec<[String; 3]>>, Problem> {
    let entries = entries(scenario, &[])?;
    let mut all = BTreeMap::<String, Vec<[String; 3]>>::new();
    for (key, value, kind, source) in entries.sources() {
        let input = [key.to_owned(), value, source.to_owned()];
        all.entry(kind.to_owned()).or_default().push(input);
    }
    Ok(all)
}

/// Returns the table of all inputs by origin.
///
/// # Errors
/// A specification cannot be read.
pub(super) fn table(scenario: &str) -> Result<Table, Problem> {
    let all = by_origin(scenario)?;
    let rows = ORIGINS.iter().flat_map(|(kind, name)| {
        let inputs = all.get(*kind).into_iter().flatten();
        inputs.map(move |[key, value, source]| {
            vec![(*name).to_owned(), key.clone(), value.clone(), source.clone()]
        })
    });
    Ok(Table {
        caption: format!("Inputs of `{scenario}` by origin"),
        header: ["origin", "input", "value", "source"].map(Column::text).to_vec(),
        rows: rows.collect(),
    })
}

const CAUSE: &str = "cause, calculated: our handlers take 1/10 to 1/147 of the fitted ones, so requests are shorter \
     and the engine's access weighs more; the speedup is also higher because our network is the kernel's, 90 % of the \
     CPU's request";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_has_one_of_the_origins() {
        for scenario in SCENARIOS {
            let all = by_origin(scenario).unwrap_or_else(|_| panic!("compiled in"));
            let known = |kind: &String| ORIGINS.iter().any(|(name, _)| name == kind);
            assert!(all.keys().all(known), "{:?}", all.keys());
            let rows = table(scenario).unwrap_or_else(|_| panic!("compiled in")).rows.len();
            assert_eq!(rows, all.values().map(Vec::len).sum::<usize>());
        }
    }

    #[test]
    fn measured_inputs_replace_ten_fitted_ones() {
        let fitted = |scenario: &str| {
            let all = by_origin(scenario).unwrap_or_else(|_| panic!("compiled in"));
            all.get("calibrated").map_or(0, Vec::len)
        };
        // read_post and read_posts are fitted as one, and so are in_ns_per_byte and out_ns_per_byte.
        assert_eq!(fitted("arcalis"), 19);
        assert_eq!(fitted("arcalis-measured"), 7);
    }
}
