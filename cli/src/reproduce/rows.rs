//! Results as rows, the same for every experiment: what was published beside what was found here, and how it was found.

use std::path::Path;

use serde::Serialize;

use crate::experiment::Machine;

/// All rows of one experiment.
#[derive(Debug, Serialize)]
pub(crate) struct Rows {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) machine: String,
    pub(crate) machine_class: String,
    pub(crate) command: String,
    pub(crate) rows: Vec<Row>,
}

/// One number.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Metric, configuration, then size, load or mix.
    pub(crate) id: String,
    pub(crate) what: String,
    /// None where the source gives no number.
    pub(crate) published: Option<f64>,
    /// The median over runs; none where it could not be found.
    pub(crate) ours: Option<f64>,
    pub(crate) unit: &'static str,
    /// Lowest and highest of the runs, from five on: of intervals so made of five, 94 % hold the median; of six, 97 %.
    pub(crate) ci95: Option<[f64; 2]>,
    pub(crate) kind: Kind,
    /// Virtual devices in the path.
    pub(crate) devices: Vec<String>,
    /// Why there is no number, or why it is to be read with care.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// How a number was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// On this machine, nothing virtual.
    Measured,
    /// Measured with a virtual device in the path.
    Emulated,
    /// Equations and arithmetic on inputs.
    Computed,
    /// Simulated, nothing tuned to the published number.
    Predicted,
    /// An input, or tuned to the published number.
    Calibrated,
    /// Not to be had here.
    Unreachable,
}

impl Row {
    /// What was found over runs, or that nothing was.
    pub(crate) fn of(
        id: String,
        what: String,
        unit: &'static str,
        values: impl IntoIterator<Item = f64>,
        devices: Vec<String>,
        reason: Option<String>,
    ) -> Self {
        let spread = Spread::of(values);
        let kind = match (&spread, devices.is_empty()) {
            (None, _) => Kind::Unreachable,
            (Some(_), true) => Kind::Measured,
            (Some(_), false) => Kind::Emulated,
        };
        let enough = spread.filter(|spread| spread.count >= INTERVAL_RUNS_MIN);
        let nothing = || spread.is_none().then(|| "no valid run".to_owned());
        Self {
            id,
            what,
            published: None,
            ours: spread.map(|spread| spread.median),
            unit,
            ci95: enough.map(|spread| [spread.low, spread.high]),
            kind,
            devices,
            reason: reason.or_else(nothing),
        }
    }

    /// With the number of the source.
    pub(crate) fn beside(self, published: f64) -> Self {
        Self { published: Some(published), ..self }
    }

    /// Found in another way than by measuring, where it was found at all.
    pub(crate) fn by(self, kind: Kind) -> Self {
        let kind = if self.ours.is_some() { kind } else { self.kind };
        Self { kind, ..self }
    }
}

/// A median and the range over runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) count: usize,
}

impl Spread {
    /// Of the finite values; none without one.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let (a, b) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: f64::midpoint(a, b), low, high, count: values.len() })
    }
}

impl Rows {
    /// No rows yet.
    pub(crate) fn new(name: &'static str, machine: &Machine, conditions: &str) -> Self {
        Self {
            name,
            version: env!("CARGO_PKG_VERSION"),
            machine: format!("{}; {conditions}", machine.description),
            machine_class: machine.class.clone(),
            command: command(),
            rows: Vec::new(),
        }
    }

    /// Adds what was found over runs, or that nothing was.
    pub(crate) fn add(
        &mut self,
        id: String,
        what: String,
        unit: &'static str,
        values: impl IntoIterator<Item = f64>,
        devices: Vec<String>,
        reason: Option<String>,
    ) {
        self.rows.push(Row::of(id, what, unit, values, devices, reason));
    }

    /// Writes `DIR/NAME.json`.
    ///
    /// # Errors
    /// What the system says, with the path.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), String> {
        let path = folder.join(format!("{}.json", self.name));
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        std::fs::write(&path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// Fewer runs make no interval worth the name.
const INTERVAL_RUNS_MIN: usize = 5;

/// This process's command line, the program by its name.
pub(crate) fn command() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut() {
        *program = "rebate".to_owned();
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_finite_values_and_none_without() {
        let spread = Spread::of([3.0, f64::NAN, 1.0, 2.0, f64::INFINITY]).expect("three values");
        assert_eq!(spread, Spread { median: 2.0, low: 1.0, high: 3.0, count: 3 });
        assert_eq!(Spread::of([1.0, 2.0]).map(|spread| spread.median), Some(1.5));
        assert_eq!(Spread::of([f64::NAN]), None);
    }

    #[test]
    fn a_row_without_a_number_says_why() {
        let mut rows = Rows::new("cache", &Machine::here(), "idle");
        rows.add("a".into(), "b".into(), "us", [], Vec::new(), None);
        rows.add("a".into(), "b".into(), "us", [1.0], vec!["virtual-iaa".into()], None);
        assert_eq!(rows.rows[0].kind, Kind::Unreachable);
        assert!(rows.rows[0].reason.is_some());
        assert_eq!(rows.rows[1].kind, Kind::Emulated);
    }
}
