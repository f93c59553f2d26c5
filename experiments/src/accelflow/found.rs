//! The rows by their identity, for who draws or says them.

use std::collections::BTreeMap;

use report::Point;

use crate::base::rows::Row;

/// Rows by identity.
pub(super) struct Found<'a>(BTreeMap<&'a str, &'a Row>);

impl<'a> Found<'a> {
    pub(super) fn of(rows: &'a [Row]) -> Self {
        Self(rows.iter().map(|row| (row.id.as_str(), row)).collect())
    }

    pub(super) fn row(&self, id: &str) -> Option<&'a Row> {
        self.0.get(id).copied()
    }

    /// Our number with its interval, at a place.
    pub(super) fn ours(&self, x: f64, id: &str) -> Option<Point> {
        let row = self.row(id)?;
        let [low, high] = ends(row)?;
        Some(Point::with_spread(x, row.ours?, low, high))
    }

    /// The published number, at a place.
    pub(super) fn published(&self, x: f64, id: &str) -> Option<Point> {
        let y = self.row(id)?.published?;
        Some(Point { x, y, low: None, high: None })
    }

    /// Our number, or that there is none; as bars have it.
    pub(super) fn value(&self, id: &str) -> f64 {
        self.row(id).and_then(|row| row.ours).unwrap_or(f64::NAN)
    }

    /// The published number, as bars have it.
    pub(super) fn bar(&self, id: &str) -> f64 {
        self.row(id).and_then(|row| row.published).unwrap_or(f64::NAN)
    }

    /// Our number as a sentence has it.
    pub(super) fn said(&self, id: &str) -> String {
        let Some(row) = self.row(id) else { return "not run".to_owned() };
        let Some(ours) = row.ours else {
            return format!("no number ({})", row.reason.as_deref().unwrap_or("not found"));
        };
        let unit = if row.unit == "1" { String::new() } else { format!(" {}", row.unit) };
        let digits = |value: f64| match row.unit {
            // What is counted.
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

/// The ends of a row's interval; the number itself where it cannot vary.
pub(super) fn ends(row: &Row) -> Option<[f64; 2]> {
    row.ci95.or_else(|| row.ours.map(|ours| [ours, ours]))
}

/// Three digits or so.
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
    fn a_number_is_said_with_its_interval_and_none_with_its_reason() {
        let row = |id: &str, ours, ci95| Row {
            ci95,
            ..Row::modelled(id, "", (Some(8.3), ours), "times", Kind::Predicted)
        };
        let rows = [
            row("a", Some(1.8), Some([1.7, 12.0])),
            row("b", Some(250.0), None),
            Row::unreachable("c", "", None, "1", "no inputs"),
        ];
        let found = Found::of(&rows);
        assert_eq!(found.said("a"), "1.80 times (1.70 to 12.0)");
        assert_eq!(found.said("b"), "250 times");
        assert_eq!(found.said("c"), "no number (no inputs)");
        assert_eq!(found.said("d"), "not run");
        assert_eq!(found.ours(2.0, "b"), Some(Point::with_spread(2.0, 250.0, 250.0, 250.0)));
        assert_eq!((found.ours(2.0, "c"), found.bar("a")), (None, 8.3));
        assert!(found.value("c").is_nan());
    }
}
