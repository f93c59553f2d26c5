//! The published numbers by row, in a list that is part of the program (`published.tsv`). A run compares its rows with
//! the list, so that no published number can depend on what was measured: it follows from the id of its row alone.

use std::collections::BTreeMap;

use super::rows::Rows;

/// Compares the published numbers of the rows with the list.
///
/// # Errors
/// The text names the first row whose published number is not that of the list.
pub(super) fn check(rows: &Rows) -> Result<(), String> {
    let list = list(rows.name)?;
    for row in &rows.rows {
        let Some(published) = row.published else { continue };
        let id = &row.id;
        match list.get(id.as_str()) {
            Some(listed) if is_same(*listed, published) => {}
            Some(listed) => {
                return Err(format!("{id} has {published} as published; {FILE} has {listed}"));
            }
            None => {
                return Err(format!("{id} has {published} as published; {FILE} has no such row"));
            }
        }
    }
    Ok(())
}

/// Returns the published numbers of an experiment by row id.
fn list(experiment: &str) -> Result<BTreeMap<&'static str, f64>, String> {
    let mut found = BTreeMap::new();
    for (index, line) in LIST.lines().enumerate() {
        let bad =
            || format!("{FILE}:{}: an experiment, an id and a number are expected", index + 1);
        let mut parts = line.split('\t');
        let (Some(name), Some(id), Some(number), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(bad());
        };
        if name == experiment {
            found.insert(id, number.parse().map_err(|_| bad())?);
        }
    }
    Ok(found)
}

/// Returns whether two published numbers are the same. Quotients of printed numbers may differ in their last digits.
fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
}

const FILE: &str = "experiments/src/base/published.tsv";
const LIST: &str = include_str!("published.tsv");

#[cfg(test)]
mod tests {
    use std::path::Path;

    use harness::Machine;
    use serde_json::Value;

    use super::*;
    use crate::base::rows::{Kind, Row};

    fn rows(id: &str, published: f64) -> Rows {
        let mut rows = Rows::new("runtime", &Machine::here(), "idle");
        let pair = (Some(published), Some(1.0));
        rows.rows.push(Row::modelled(id, "", pair, "ratio", Kind::Predicted));
        rows
    }

    #[test]
    fn a_published_number_that_is_not_listed_is_refused() {
        assert_eq!(check(&rows("throughput_ratio.async.cache1", 3.4)), Ok(()));
        let other = check(&rows("throughput_ratio.async.cache1", 3.8)).expect_err("another number");
        assert!(other.contains("has 3.8 as published") && other.contains("has 3.4"), "{other}");
        let new = check(&rows("throughput_ratio.async.cache9", 3.8)).expect_err("no such row");
        assert!(new.ends_with("has no such row"), "{new}");
    }

    /// Records of runs on several machines have other numbers of ours and the same published ones.
    #[test]
    fn recorded_runs_have_the_listed_published_numbers() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/results");
        let mut compared = 0;
        for class in ["2c", "2c-epyc", "2c-icelake"] {
            for name in ["accelflow", "arcalis", "accelerometer", "runtime", "cache", "scheduler"] {
                let path = folder.join(class).join(format!("{name}.json"));
                let Ok(text) = std::fs::read_to_string(&path) else { continue };
                let record: Value = serde_json::from_str(&text).expect("JSON");
                let list = list(name).expect("a list");
                for row in record["rows"].as_array().expect("rows") {
                    let Some(published) = row["published"].as_f64() else { continue };
                    let id = row["id"].as_str().expect("an id");
                    let listed = list.get(id).copied().unwrap_or(f64::NAN);
                    assert!(is_same(listed, published), "{}: {id}: {listed}", path.display());
                    compared += 1;
                }
            }
        }
        assert!(compared > 500, "{compared}");
    }

    /// The records of today's kinds of rows; others are older.
    #[test]
    fn recorded_predictions_that_are_off_have_a_cause() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/results");
        let mut off = 0;
        for name in ["2c/accelflow", "2c-epyc/arcalis", "2c/runtime_paper"] {
            let path = folder.join(format!("{name}.json"));
            let text = std::fs::read_to_string(&path).expect("recorded");
            let record: Value = serde_json::from_str(&text).expect("JSON");
            for row in record["rows"].as_array().expect("rows") {
                let numbers = row["published"].as_f64().zip(row["ours"].as_f64());
                let Some((published, ours)) = numbers.filter(|_| row["kind"] == "predicted") else {
                    continue;
                };
                if published != ours && (ours / published - 1.0).abs() > 0.1 {
                    off += 1;
                    let reason = row["reason"].as_str().unwrap_or_default();
                    assert!(reason.contains("cause, "), "{name}: {}: {reason}", row["id"]);
                }
            }
        }
        assert!(off > 500, "{off}");
    }
}
