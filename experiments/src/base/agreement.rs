//! Counts how well predictions agree with published numbers. A prediction is a row of kind `predicted` with a published
//! number. The counts are rows themselves, so that a document can cite them, and the first table of a report.

use std::collections::BTreeMap;

use report::{Column, Section, Table};

use super::rows::{Kind, Row, Spread};

/// The agreement of a group of predictions.
#[derive(Clone, Debug, Default, PartialEq)]
struct Agreement {
    /// The predicted number over the published one, for each prediction. It is none where this does not exist.
    ratios: Vec<Option<f64>>,
    /// The predictions that are equal to the published number or whose interval contains it.
    within_interval: usize,
    /// The predictions that have an interval.
    with_interval: usize,
}

impl Agreement {
    fn add(&mut self, row: &Row, published: f64, ours: f64) {
        let ratio = ours / published;
        self.ratios.push(match (published == ours, ratio.is_finite()) {
            (true, _) => Some(1.0),
            (false, true) => Some(ratio),
            (false, false) => None,
        });
        self.with_interval += usize::from(row.ci95.is_some());
        let contains = |[low, high]: [f64; 2]| (low..=high).contains(&published);
        self.within_interval += usize::from(row.ci95.is_some_and(contains) || ours == published);
    }

    /// Returns the number of predictions that deviate by at most this share of the published number.
    fn within(&self, share: f64) -> usize {
        let ratios = self.ratios.iter().flatten();
        ratios.filter(|ratio| (**ratio - 1.0).abs() <= share + 1e-9).count()
    }

    /// Returns the median factor between predicted and published numbers, whichever is greater. It is NaN if none of
    /// the ratios is positive.
    fn median_factor(&self) -> f64 {
        let factors = self.ratios.iter().flatten().filter(|ratio| **ratio > 0.0);
        let factors = factors.map(|ratio| ratio.max(1.0 / ratio));
        Spread::from_values(factors).map_or(f64::NAN, |spread| spread.median)
    }
}

/// Adds rows with the agreement of each group and of all predictions together, and returns the section that begins the
/// report. `group` returns the group of a row, such as its figure and scenario.
pub(crate) fn section(rows: &mut Vec<Row>, group: impl Fn(&Row) -> String) -> Section {
    let mut groups = BTreeMap::<String, Agreement>::new();
    let mut all = Agreement::default();
    for row in rows.iter().filter(|row| row.kind == Kind::Predicted) {
        let Some((published, ours)) = row.published.zip(row.ours) else { continue };
        all.add(row, published, ours);
        groups.entry(group(row)).or_default().add(row, published, ours);
    }
    let named: Vec<(String, Agreement)> =
        [("all".to_owned(), all)].into_iter().chain(groups).collect();
    let cells = named.iter().map(|(name, agreement)| cells(name, agreement)).collect();
    rows.extend(named.iter().flat_map(|(name, agreement)| as_rows(name, agreement)));
    Section {
        heading: "How many predictions agree".to_owned(),
        prose: vec![PROSE.to_owned()],
        tables: vec![Table {
            caption: "Predicted rows with a published number".to_owned(),
            header: vec![
                Column::text("figure and scenario"),
                Column::number("rows"),
                Column::number("within 10 %"),
                Column::number("within 50 %"),
                Column::number("in the interval"),
                Column::number("median factor"),
            ],
            rows: cells,
        }],
        ..Section::default()
    }
}

fn cells(name: &str, agreement: &Agreement) -> Vec<String> {
    let count = agreement.ratios.len();
    let share = |within: usize| format!("{within} ({:.0} %)", percent(within, count));
    vec![
        name.to_owned(),
        count.to_string(),
        share(agreement.within(0.1)),
        share(agreement.within(0.5)),
        share(agreement.within_interval),
        format!("{:.2}", agreement.median_factor()),
    ]
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn as_rows(name: &str, agreement: &Agreement) -> Vec<Row> {
    let id = name.to_lowercase().replace([' ', ',', '-'], "_").replace("__", "_");
    let count = agreement.ratios.len() as f64;
    let numbers = [
        ("rows", "predictions with a published number", "1", count),
        ("within_10", "of these within 10 % of it", "1", agreement.within(0.1) as f64),
        ("within_50", "of these within 50 % of it", "1", agreement.within(0.5) as f64),
        (
            "in_interval",
            "of these with it in their interval",
            "1",
            agreement.within_interval as f64,
        ),
        ("median_factor", "median factor between both numbers", "times", agreement.median_factor()),
    ];
    let row = |(what, text, unit, value): (&str, &str, &'static str, f64)| {
        let ours = value.is_finite().then_some(value);
        let row = Row::modelled(
            &format!("agreement.{what}.{id}"),
            &format!("{name}: {text}"),
            (None, ours),
            unit,
            Kind::Computed,
        );
        match ours {
            Some(_) => row,
            None => Row { kind: Kind::Unreachable, ..row.because("no positive ratio") },
        }
    };
    numbers.into_iter().map(row).collect()
}

/// Returns one line of text with the agreement of all predictions, from the rows that [`section`] added.
pub(crate) fn line(rows: &[Row]) -> String {
    let value = |what: &str| {
        let id = format!("agreement.{what}.all");
        rows.iter().find(|row| row.id == id).and_then(|row| row.ours).unwrap_or(0.0)
    };
    format!(
        "{} predictions stand beside a published number: {} within 10 %, {} within 50 %, {} with it in their interval",
        value("rows"),
        value("within_10"),
        value("within_50"),
        value("in_interval")
    )
}

const PROSE: &str = "A prediction was simulated, and nothing was tuned to its published number. The factor is \
     the greater of both numbers over the smaller one.";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, published: f64, ours: f64, ci95: Option<[f64; 2]>) -> Row {
        let row = Row::modelled(id, "", (Some(published), Some(ours)), "ms", Kind::Predicted);
        Row { ci95, ..row }
    }

    #[test]
    fn agreement_is_counted_per_group_and_in_all() {
        let mut rows = vec![
            row("a.1", 100.0, 110.0, Some([90.0, 130.0])),
            row("a.2", 100.0, 151.0, Some([140.0, 160.0])),
            row("a.3", 100.0, 25.0, None),
            row("b.1", 0.0, 0.0, None),
            row("b.2", 0.0, 1.0, None),
        ];
        rows.push(rows[0].clone().by(Kind::Calibrated));
        let group = |row: &Row| row.id.split('.').next().unwrap_or_default().to_owned();
        let section = section(&mut rows, group);
        let cells = &section.tables[0].rows;
        assert_eq!(cells[0][..5], ["all", "5", "2 (40 %)", "2 (40 %)", "2 (40 %)"]);
        assert_eq!(cells[1][..5], ["a", "3", "1 (33 %)", "1 (33 %)", "1 (33 %)"]);
        assert_eq!(cells[1][5], "1.51");
        assert_eq!(cells[2][..5], ["b", "2", "1 (50 %)", "1 (50 %)", "1 (50 %)"]);
        let value = |id: &str| rows.iter().find(|row| row.id == id).and_then(|row| row.ours);
        assert_eq!(value("agreement.within_10.all"), Some(2.0));
        assert_eq!(value("agreement.median_factor.a"), Some(1.51));
        assert!(line(&rows).starts_with("5 predictions stand beside a published number: 2 within"));
    }
}
