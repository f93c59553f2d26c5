//! Finds rows by their id, for the figures and the prose of the page.

use std::collections::BTreeMap;

use report::Point;

use crate::base::rows::Row;

/// Rows by id.
pub(super) struct RowIndex<'a>(BTreeMap<&'a str, &'a Row>);

impl<'a> RowIndex<'a> {
    pub(super) fn new(rows: &'a [Row]) -> Self {
        Self(rows.iter().map(|row| (row.id.as_str(), row)).collect())
    }

    pub(super) fn row(&self, id: &str) -> Option<&'a Row> {
        self.0.get(id).copied()
    }

    /// Returns the point at `x` of a figure for the number that Rebate obtained for the row `id`, with the interval of
    /// the number. Returns none if there is no such number.
    pub(super) fn our_point(&self, x: f64, id: &str) -> Option<Point> {
        let row = self.row(id)?;
        let [low, high] = ends(row)?;
        Some(Point::with_spread(x, row.ours?, low, high))
    }

    /// Returns the point at `x` of a figure for the published number of the row `id`. Returns none if there is no such
    /// number.
    pub(super) fn published_point(&self, x: f64, id: &str) -> Option<Point> {
        let y = self.row(id)?.published?;
        Some(Point { x, y, low: None, high: None })
    }

    /// Returns the number that Rebate obtained for the row `id`, or NaN if there is none. Bar charts draw NaN as a gap.
    pub(super) fn our_value(&self, id: &str) -> f64 {
        self.row(id).and_then(|row| row.ours).unwrap_or(f64::NAN)
    }

    /// Returns the published number of the row `id`, or NaN if there is none. Bar charts draw NaN as a gap.
    pub(super) fn published_value(&self, id: &str) -> f64 {
        self.row(id).and_then(|row| row.published).unwrap_or(f64::NAN)
    }

    /// Returns the number that Rebate obtained for the row `id`, as text for a sentence. The text contains the unit and
    /// the interval, or the reason why there is no number.
    pub(super) fn quote(&self, id: &str) -> String {
        let Some(row) = self.row(id) else { return "not run".to_owned() };
        let Some(ours) = row.ours else {
            return format!("no number ({})", row.reason.as_deref().unwrap_or("not found"));
        };
        let unit = if row.unit == "1" { String::new() } else { format!(" {}", row.unit) };
        let digits = |value: f64| match row.unit {
            // Counts have no decimals.
            "1" if value.fract() == 0.0 => format!("{value}"),
            _ => digits(value),
        };
        match row.ci95 {
            Some([low, high]) => {
                format!("{}{unit} ({} to {})", digits(ours), digits(low), digits(high))
            }
            None => format!("{}{unit}", digits(ours)),
        }
    }
}

/// Returns the ends of the interval of the number that Rebate obtained for a row. If this number cannot vary, both ends
/// are the number itself.
pub(super) fn ends(row: &Row) -> Option<[f64; 2]> {
    row.ci95.or_else(|| row.ours.map(|ours| [ours, ours]))
}

/// Formats a number with about three significant digits.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.1 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rows::Kind;

    #[test]
    fn a_number_is_quoted_with_its_interval_or_its_reason() {
        let row = |id: &str, ours, ci95| Row {
            ci95,
            ..Row::modelled(id, "", (Some(8.3), ours), "times", Kind::Predicted)
        };
        let rows = [
            row("a", Some(1.8), Some([1.7, 12.0])),
            row("b", Some(250.0), None),
            Row::unreachable("c", "", None, "1", "no inputs"),
        ];
        let rows = RowIndex::new(&rows);
        assert_eq!(rows.quote("a"), "1.80 times (1.70 to 12.0)");
        assert_eq!(rows.quote("b"), "250 times");
        assert_eq!(rows.quote("c"), "no number (no inputs)");
        assert_eq!(rows.quote("d"), "not run");
        assert_eq!(rows.our_point(2.0, "b"), Some(Point::with_spread(2.0, 250.0, 250.0, 250.0)));
        assert_eq!((rows.our_point(2.0, "c"), rows.published_value("a")), (None, 8.3));
        assert!(rows.our_value("c").is_nan());
    }
}
