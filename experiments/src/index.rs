//! The index page of all reproductions: for each paper its claims, the published numbers and ours, their kind, and a
//! verdict. It is made from the results that the experiments wrote, and it runs nothing.

mod claims;

use std::collections::BTreeMap;
use std::path::Path;

use report::{Column, Report, Section, Table};
use serde_json::Value;

use crate::base::page_facts;
use claims::{Claim, PAPERS, Paper};

/// The name of the page in the folder of the results.
const PAGE: &str = "index.html";

/// What a result says about a row.
#[derive(Clone, Debug, Default, PartialEq)]
struct Found {
    published: Option<f64>,
    ours: Option<f64>,
    interval: Option<[f64; 2]>,
    kind: String,
    unit: String,
    reason: String,
    /// The verdict of the row's criterion, if it has one.
    passed: Option<bool>,
}

/// Writes `index.html` into the folder of the results. A paper whose results are missing is listed without numbers.
/// Returns the path of the page.
///
/// # Errors
/// A result cannot be read, or the page cannot be written. The text names the file.
pub fn write(folder: &Path) -> Result<String, String> {
    let mut sections = Vec::new();
    for paper in &PAPERS {
        let rows = rows(&folder.join(format!("{}.json", paper.experiment)))?;
        sections.push(section(paper, rows.as_ref()));
    }
    let report = Report {
        title: "All papers: their claims and our numbers".to_owned(),
        subtitle: "Every number comes from the results in this folder.".to_owned(),
        facts: page_facts(),
        sections,
    };
    let path = folder.join(PAGE);
    std::fs::write(&path, report.html()).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path.display().to_string())
}

/// Returns the rows of a result by id, or none if there is no such file.
fn rows(path: &Path) -> Result<Option<BTreeMap<String, Found>>, String> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let bad = |problem: &str| format!("{}: {problem}", path.display());
    let record: Value = serde_json::from_str(&text).map_err(|error| bad(&error.to_string()))?;
    let list = |key: &str| record[key].as_array().map(Vec::as_slice).unwrap_or_default();
    if list("rows").is_empty() {
        return Err(bad("it has no rows"));
    }
    let text_of = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let mut found = BTreeMap::new();
    for row in list("rows") {
        let ends = row["ci95"].as_array();
        let interval =
            ends.and_then(|ends| Some([ends.first()?.as_f64()?, ends.get(1)?.as_f64()?]));
        let entry = Found {
            published: row["published"].as_f64(),
            ours: row["ours"].as_f64(),
            interval,
            kind: text_of(row, "kind"),
            unit: text_of(row, "unit"),
            reason: text_of(row, "reason"),
            passed: None,
        };
        found.insert(text_of(row, "id"), entry);
    }
    for criterion in list("bars") {
        if let Some(entry) = found.get_mut(&text_of(criterion, "id")) {
            entry.passed = criterion["met"].as_bool();
        }
    }
    Ok(Some(found))
}

fn section(paper: &Paper, rows: Option<&BTreeMap<String, Found>>) -> Section {
    let cells = paper.claims.iter().map(|claim| cells(claim, rows)).collect();
    let mut prose = vec![format!(
        "{} Results: `{}.json`. Verdicts: `agrees` is within 10 % of the published number or contains it in its \
         interval, `near` within 50 %; `input` is fitted or an input, so that it proves nothing.",
        paper.about, paper.experiment
    )];
    if rows.is_none() {
        prose.push("Not run: there are no results in this folder.".to_owned());
    }
    Section {
        heading: paper.key.to_owned(),
        prose,
        tables: vec![Table {
            caption: "Claims".to_owned(),
            header: vec![
                Column::text("claim"),
                Column::number("published"),
                Column::number("ours"),
                Column::text("unit"),
                Column::text("kind"),
                Column::text("verdict"),
                Column::text("remark"),
            ],
            rows: cells,
        }],
        ..Section::default()
    }
}

fn cells(claim: &Claim, rows: Option<&BTreeMap<String, Found>>) -> Vec<String> {
    let found = rows.and_then(|rows| rows.get(claim.row)).cloned().unwrap_or_default();
    let number = |value: Option<f64>| value.map_or("-".to_owned(), digits);
    vec![
        claim.text.to_owned(),
        number(found.published),
        number(found.ours),
        found.unit.clone(),
        found.kind.clone(),
        verdict(&found).to_owned(),
        found.reason,
    ]
}

/// Returns the verdict on a row.
fn verdict(found: &Found) -> &'static str {
    let Some(ours) = found.ours else { return "no number" };
    if found.kind == "calibrated" {
        return "input";
    }
    match (found.passed, found.published) {
        (Some(true), _) => "holds",
        (Some(false), _) => "does not hold",
        (None, None) => "not judged",
        (None, Some(published)) => {
            let off = (ours / published - 1.0).abs();
            let contains = |[low, high]: [f64; 2]| (low..=high).contains(&published);
            if ours == published || off <= 0.1 || found.interval.is_some_and(contains) {
                "agrees"
            } else if off <= 0.5 {
                "near"
            } else {
                "does not agree"
            }
        }
    }
}

/// Formats a number with about four significant digits.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 1_000.0 || size == 0.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_from_kind_criterion_and_distance() {
        let found = |kind: &str, published, ours, passed| Found {
            kind: kind.to_owned(),
            published,
            ours,
            passed,
            ..Found::default()
        };
        for (row, expected) in [
            (found("predicted", Some(2.0), Some(2.1), None), "agrees"),
            (found("predicted", Some(2.0), Some(1.2), None), "near"),
            (found("predicted", Some(2.0), Some(4.0), None), "does not agree"),
            (found("calibrated", Some(2.0), Some(2.0), None), "input"),
            (found("emulated", None, Some(0.8), Some(true)), "holds"),
            (found("emulated", Some(3.4), Some(3.4), Some(false)), "does not hold"),
            (found("unreachable", Some(3.4), None, None), "no number"),
            (found("measured", None, Some(1.0), None), "not judged"),
        ] {
            assert_eq!(verdict(&row), expected, "{row:?}");
        }
        let wide =
            Found { interval: Some([1.0, 5.0]), ..found("predicted", Some(2.0), Some(4.0), None) };
        assert_eq!(verdict(&wide), "agrees");
    }

    #[test]
    fn the_page_has_every_paper_with_and_without_results() {
        let folder = tempfile::tempdir().expect("a folder");
        let row = r#"{"id": "p99_reduction.production.relief", "published": 68.8, "ours": 60.0,
            "unit": "%", "ci95": [55, 65], "kind": "predicted"}"#;
        let text = format!("{{\"name\": \"accelflow\", \"rows\": [{row}]}}");
        std::fs::write(folder.path().join("accelflow.json"), text).expect("written");
        let path = write(folder.path()).expect("a page");
        let html = std::fs::read_to_string(path).expect("a page");
        assert!(PAPERS.iter().all(|paper| html.contains(paper.key)));
        assert!(html.contains("68.80") && html.contains("near") && html.contains("Not run"));
        std::fs::write(folder.path().join("cache.json"), "{").expect("written");
        let error = write(folder.path()).expect_err("it is cut off");
        assert!(error.contains("cache.json"), "{error}");
    }

    #[test]
    fn every_claim_names_a_recorded_or_listed_row() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/results");
        let listed = include_str!("base/published.tsv");
        for paper in &PAPERS {
            let name = format!("{}.json", paper.experiment);
            let recorded = ["2c", "2c-epyc"].map(|class| {
                rows(&results.join(class).join(&name)).expect("recorded").unwrap_or_default()
            });
            for claim in paper.claims {
                let line = format!("{}\t{}\t", paper.experiment, claim.row);
                let known = recorded.iter().any(|rows| rows.contains_key(claim.row))
                    || listed.lines().any(|known| known.starts_with(&line))
                    || claim.row.starts_with("claim.")
                    || claim.row.starts_with("agreement.");
                assert!(known, "{}: {}", paper.key, claim.row);
            }
        }
    }
}
