//! Counts how well predictions agree with published numbers. A prediction is a row of kind `predicted` with a published
//! number, and each published number counts once. The counts are rows themselves, so that a document can cite them, and
//! the first table of a report.

use std::collections::BTreeMap;

use report::{Column, Section, Table};

use super::rows::{Kind, Row, Spread};

/// The predictions of a group, by the published number that they predict.
#[derive(Clone, Debug, Default, PartialEq)]
struct Agreement {
    rows: usize,
    numbers: BTreeMap<String, Prediction>,
}

/// A predicted number and how it agrees with the published one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Prediction {
    /// The predicted number over the published one. It is none where this does not exist.
    ratio: Option<f64>,
    /// Whether both numbers are equal, or the interval of the prediction contains the published number.
    is_within_interval: bool,
}

impl Prediction {
    fn new(row: &Row, published: f64, ours: f64) -> Self {
        let ratio = ours / published;
        let contains = |[low, high]: [f64; 2]| (low..=high).contains(&published);
        Self {
            ratio: match (published == ours, ratio.is_finite()) {
                (true, _) => Some(1.0),
                (false, true) => Some(ratio),
                (false, false) => None,
            },
            is_within_interval: row.ci95.is_some_and(contains) || ours == published,
        }
    }

    /// Returns the greater of both numbers over the smaller one. It is none if there is no positive ratio.
    fn factor(self) -> Option<f64> {
        let ratio = self.ratio.filter(|ratio| *ratio > 0.0)?;
        Some(ratio.max(1.0 / ratio))
    }
}

impl Agreement {
    /// Adds a row's prediction. Of several predictions of one published number the farthest off is kept.
    fn add(&mut self, number: String, prediction: Prediction) {
        let off = |prediction: &Prediction| prediction.factor().unwrap_or(f64::INFINITY);
        self.rows += 1;
        let kept = self.numbers.entry(number).or_insert(prediction);
        if off(&prediction) > off(kept) {
            *kept = prediction;
        }
    }

    /// Returns the number of predictions that deviate by at most this share of the published number.
    fn within(&self, share: f64) -> usize {
        let ratios = self.numbers.values().filter_map(|prediction| prediction.ratio);
        ratios.filter(|ratio| (ratio - 1.0).abs() <= share + 1e-9).count()
    }

    fn within_interval(&self) -> usize {
        self.numbers.values().filter(|prediction| prediction.is_within_interval).count()
    }

    /// Returns the median factor between predicted and published numbers. It is NaN if no ratio is positive.
    fn median_factor(&self) -> f64 {
        let factors = self.numbers.values().filter_map(|prediction| prediction.factor());
        Spread::from_values(factors).map_or(f64::NAN, |spread| spread.median)
    }
}

/// Adds rows with the agreement of each group, and returns the section that begins the report. `groups` returns the
/// groups of a row, such as its figure, beside `all`. `number` returns the name of the published number that a row
/// predicts. It is none for a row that only restates numbers of other rows, which then does not count.
pub(crate) fn section(
    rows: &mut Vec<Row>,
    groups: impl Fn(&Row) -> Vec<String>,
    number: impl Fn(&Row) -> Option<String>,
) -> Section {
    let mut named = BTreeMap::<String, Agreement>::new();
    let mut all = Agreement::default();
    for row in rows.iter().filter(|row| row.kind == Kind::Predicted) {
        let Some((published, ours)) = row.published.zip(row.ours) else { continue };
        let Some(number) = number(row) else { continue };
        let prediction = Prediction::new(row, published, ours);
        for group in groups(row) {
            named.entry(group).or_default().add(number.clone(), prediction);
        }
        all.add(number, prediction);
    }
    let named: Vec<(String, Agreement)> =
        [("all".to_owned(), all)].into_iter().chain(named).collect();
    let cells = named.iter().map(|(name, agreement)| cells(name, agreement)).collect();
    rows.extend(named.iter().flat_map(|(name, agreement)| as_rows(name, agreement)));
    Section {
        heading: "How many predictions agree".to_owned(),
        prose: vec![PROSE.to_owned()],
        tables: vec![Table {
            caption: "Published numbers that are predicted".to_owned(),
            header: vec![
                Column::text("group"),
                Column::number("published numbers"),
                Column::number("within 10 %"),
                Column::number("within 50 %"),
                Column::number("in the interval"),
                Column::number("median factor"),
                Column::number("rows with them"),
            ],
            rows: cells,
        }],
        ..Section::default()
    }
}

fn cells(name: &str, agreement: &Agreement) -> Vec<String> {
    let count = agreement.numbers.len();
    let share = |within: usize| format!("{within} ({:.0} %)", percent(within, count));
    vec![
        name.to_owned(),
        count.to_string(),
        share(agreement.within(0.1)),
        share(agreement.within(0.5)),
        share(agreement.within_interval()),
        format!("{:.2}", agreement.median_factor()),
        agreement.rows.to_string(),
    ]
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn as_rows(name: &str, agreement: &Agreement) -> Vec<Row> {
    let id = name.to_lowercase().replace([' ', ',', '-'], "_").replace("__", "_");
    let numbers = [
        ("numbers", "published numbers that are predicted", "1", agreement.numbers.len() as f64),
        ("within_10", "of these predicted to 10 %", "1", agreement.within(0.1) as f64),
        ("within_50", "of these predicted to 50 %", "1", agreement.within(0.5) as f64),
        (
            "in_interval",
            "of these in the interval of the prediction",
            "1",
            agreement.within_interval() as f64,
        ),
        ("median_factor", "median factor between both numbers", "times", agreement.median_factor()),
        ("rows", "rows with a prediction of one of them", "1", agreement.rows as f64),
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
        "{} published numbers are predicted ({} rows): {} within 10 %, {} within 50 %, {} in the interval",
        value("numbers"),
        value("rows"),
        value("within_10"),
        value("within_50"),
        value("in_interval")
    )
}

const PROSE: &str = "A prediction was simulated, and nothing was tuned to its published number. In each line a \
     published number counts once, however many rows repeat it: the row that is farthest off counts. Rows that only \
     restate numbers of other rows do not count. The factor is the greater of both numbers over the smaller one.";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, published: f64, ours: f64, ci95: Option<[f64; 2]>) -> Row {
        let row = Row::modelled(id, "", (Some(published), Some(ours)), "ms", Kind::Predicted);
        Row { ci95, ..row }
    }

    /// Returns the first and the second part of an id, which are a row's group and its published number here.
    fn part(row: &Row, index: usize) -> String {
        row.id.split('.').nth(index).unwrap_or_default().to_owned()
    }

    #[test]
    fn agreement_is_counted_per_group_and_in_all() {
        let mut rows = vec![
            row("a.1", 100.0, 110.0, Some([90.0, 130.0])),
            row("a.2", 100.0, 151.0, Some([140.0, 160.0])),
            row("a.3", 100.0, 25.0, None),
            row("b.4", 0.0, 0.0, None),
            row("b.5", 0.0, 1.0, None),
        ];
        rows.push(rows[0].clone().by(Kind::Calibrated));
        let section = section(&mut rows, |row| vec![part(row, 0)], |row| Some(part(row, 1)));
        let cells = &section.tables[0].rows;
        assert_eq!(cells[0][..5], ["all", "5", "2 (40 %)", "2 (40 %)", "2 (40 %)"]);
        assert_eq!(cells[1][..5], ["a", "3", "1 (33 %)", "1 (33 %)", "1 (33 %)"]);
        assert_eq!(cells[1][5], "1.51");
        assert_eq!(cells[2][..5], ["b", "2", "1 (50 %)", "1 (50 %)", "1 (50 %)"]);
        let value = |id: &str| rows.iter().find(|row| row.id == id).and_then(|row| row.ours);
        assert_eq!(value("agreement.within_10.all"), Some(2.0));
        assert_eq!(value("agreement.median_factor.a"), Some(1.51));
        assert!(line(&rows).starts_with("5 published numbers are predicted (5 rows): 2 within"));
    }

    #[test]
    fn a_number_that_several_rows_repeat_counts_once() {
        let mut rows = vec![
            row("a.1.near", 100.0, 105.0, Some([90.0, 130.0])),
            row("a.1.far", 100.0, 20.0, None),
            row("b.1.nearer", 100.0, 101.0, Some([99.0, 103.0])),
            row("b.restated", 3.0, 1.0, None),
        ];
        let number = |row: &Row| Some(part(row, 1)).filter(|number| number != "restated");
        let section = section(&mut rows, |row| vec![part(row, 0)], number);
        let cells = &section.tables[0].rows;
        assert_eq!(cells[0], ["all", "1", "0 (0 %)", "0 (0 %)", "0 (0 %)", "5.00", "3"]);
        assert_eq!(cells[1], ["a", "1", "0 (0 %)", "0 (0 %)", "0 (0 %)", "5.00", "2"]);
        assert_eq!(cells[2], ["b", "1", "1 (100 %)", "1 (100 %)", "1 (100 %)", "1.01", "1"]);
    }
}
