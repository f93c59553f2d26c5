//! Results as rows, which have the same form in every experiment. A row has the published number, the number that
//! Rebate obtained, and the origin of the latter.

use report::Column;
use serde::{Serialize, Serializer};

use harness::{CoreTime, Machine};
pub(crate) use harness::{Limit, Spread};

/// The results of one experiment.
#[derive(Debug, Serialize)]
pub(crate) struct Rows {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) machine: String,
    pub(crate) machine_class: String,
    pub(crate) command: String,
    /// The times of the cores when the run began, or None if nothing is timed. The JSON has the steal time
    /// since then instead, as a share of the cores' time.
    #[serde(
        rename = "stolen",
        serialize_with = "stolen_since",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) begun: Option<CoreTime>,
    /// The point at which the run was interrupted, or None if it finished. The rows are those that were done by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unfinished: Option<String>,
    pub(crate) rows: Vec<Row>,
    /// The criteria that some of the rows have to meet.
    #[serde(rename = "bars", skip_serializing_if = "Vec::is_empty")]
    pub(crate) criteria: Vec<Criterion>,
}

fn stolen_since<S: Serializer>(begun: &Option<CoreTime>, to: S) -> Result<S::Ok, S::Error> {
    begun.map(|begun| (begun.stolen_since() * 1e4).round() / 1e4).serialize(to)
}

/// A criterion: a limit for the number of a row, and whether the number keeps to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Criterion {
    /// The id of the row.
    pub(crate) id: String,
    pub(crate) limit: String,
    /// The median over runs.
    pub(crate) ours: Option<f64>,
    /// The lowest and the highest number of the runs.
    pub(crate) spread: Option<[f64; 2]>,
    /// The number of runs with a value and the number of planned runs, or None if the row is not made from runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) runs: Option<[usize; 2]>,
    /// True if the number keeps to the limit, or None if that is not known. The median decides if more than
    /// half of the runs have a number. For `over_scheduler.*`, the value is false if any run is beyond the
    /// limit, and otherwise None if any run has no number.
    #[serde(rename = "met")]
    pub(crate) passed: Option<bool>,
}

impl Criterion {
    /// Returns the criterion as one line of text.
    pub(crate) fn line(&self) -> String {
        let [id, ours, spread, limit, verdict] = self.cells();
        format!("{id:<72} {ours:>8} {spread:>26} {limit:>8} {verdict}")
    }

    /// Returns the cells of a table: the id, the median, the range with the number of runs behind it, the limit and the
    /// verdict.
    pub(crate) fn cells(&self) -> [String; 5] {
        let ours = self.ours.map_or("-".to_owned(), |ours| format!("{ours:.2}"));
        let spread = self.spread.map(|[low, high]| format!("{low:.2} to {high:.2}"));
        let runs = self.runs.map(|[valid, planned]| format!("{valid} of {planned}"));
        let spread: Vec<String> = spread.into_iter().chain(runs).collect();
        let verdict = match self.passed {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not known",
        };
        [self.id.clone(), ours, spread.join(", "), self.limit.clone(), verdict.to_owned()]
    }
}

/// One number of the results.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// The metric and the configuration, followed by the size, load or mix.
    pub(crate) id: String,
    pub(crate) what: String,
    /// The published number, or None if the source states none.
    pub(crate) published: Option<f64>,
    /// The number that Rebate obtained: the median over runs, or None if there is no number.
    pub(crate) ours: Option<f64>,
    pub(crate) unit: &'static str,
    /// The lowest and the highest of at least five runs. An interval of this kind from five runs contains the median in
    /// 94 % of all cases, and from six runs in 97 %.
    pub(crate) ci95: Option<[f64; 2]>,
    pub(crate) kind: Kind,
    /// The virtual devices in the path.
    pub(crate) devices: Vec<String>,
    /// The reason why there is no number, or why it has to be read with care.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

impl Kind {
    /// Returns the kind's name in rows.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Measured => "measured",
            Kind::Emulated => "emulated",
            Kind::Computed => "computed",
            Kind::Predicted => "predicted",
            Kind::Calibrated => "calibrated",
            Kind::Unreachable => "unreachable",
        }
    }
}

/// The origin of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// The number was measured on this machine, with no virtual device in the path.
    Measured,
    /// The number was measured with a virtual device in the path.
    Emulated,
    /// The number comes from equations and arithmetic on inputs.
    Computed,
    /// The number was simulated, and nothing was tuned to the published number.
    Predicted,
    /// The number is an input, or it was tuned to the published number.
    Calibrated,
    /// The number cannot be obtained here.
    Unreachable,
}

impl Row {
    /// Returns the row of values over runs. If no value is finite, the row says that there is no number.
    pub(crate) fn from_values(
        id: String,
        what: String,
        unit: &'static str,
        values: impl IntoIterator<Item = f64>,
        devices: Vec<String>,
        reason: Option<String>,
    ) -> Self {
        let spread = Spread::from_values(values);
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

    /// Returns the row of a number from a model or arithmetic, next to the published number if there is one.
    pub(crate) fn modelled(
        id: &str,
        what: &str,
        (published, ours): (Option<f64>, Option<f64>),
        unit: &'static str,
        kind: Kind,
    ) -> Self {
        let (id, what) = (id.to_owned(), what.to_owned());
        Self {
            id,
            what,
            published,
            ours,
            unit,
            ci95: None,
            kind,
            devices: Vec::new(),
            reason: None,
        }
    }

    /// Returns the row of a published number that cannot be obtained here, with the reason.
    pub(crate) fn unreachable(
        id: &str,
        what: &str,
        published: Option<f64>,
        unit: &'static str,
        reason: &str,
    ) -> Self {
        Self::modelled(id, what, (published, None), unit, Kind::Unreachable).because(reason)
    }

    /// Adds the reason why the row has to be read with care.
    pub(crate) fn because(self, reason: &str) -> Self {
        Self { reason: Some(reason.to_owned()), ..self }
    }

    /// Returns the header of a table of [`Row::cells`].
    pub(crate) fn columns() -> Vec<Column> {
        vec![
            Column::text("row"),
            Column::number("published"),
            Column::number("ours"),
            Column::text("unit"),
            Column::text("kind"),
        ]
    }

    /// Returns the cells of a table: the id, the published number, the number that Rebate obtained, the unit, and the
    /// kind with its reason.
    pub(crate) fn cells(&self) -> [String; 5] {
        let ours = match (self.ours, self.ci95) {
            (Some(ours), Some([low, high])) => format!("{ours:.3} ±{:.3}", (high - low) / 2.0),
            (Some(ours), None) => format!("{ours:.3}"),
            (None, _) => "-".to_owned(),
        };
        let published = self.published.map_or("-".to_owned(), |value| {
            // The number is rounded before it is printed, because a quotient of printed numbers has more digits.
            format!("{}", (value * 1e3).round() / 1e3)
        });
        let reason = self.reason.as_deref().unwrap_or_default();
        let kind =
            format!("{}{}{reason}", self.kind.name(), if reason.is_empty() { "" } else { ": " });
        [self.id.clone(), published, ours, self.unit.to_owned(), kind]
    }

    /// Returns the row as one line of text.
    pub(crate) fn line(&self) -> String {
        let [id, published, ours, unit, kind] = self.cells();
        format!("{id:<48} {published:>9} {ours:>22} {unit:<6} {kind}")
    }

    /// Adds the published number to the row.
    pub(crate) fn beside(self, published: f64) -> Self {
        Self { published: Some(published), ..self }
    }

    /// Replaces the kind if the row has a number.
    pub(crate) fn by(self, kind: Kind) -> Self {
        let kind = if self.ours.is_some() { kind } else { self.kind };
        Self { kind, ..self }
    }
}

/// The runs of a criterion: the spread of the runs with a number, and the number of planned runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Runs {
    spread: Option<Spread>,
    planned: usize,
}

impl Runs {
    /// Makes the runs from the finite values.
    pub(crate) fn new(values: impl IntoIterator<Item = f64>, planned: usize) -> Self {
        Self { spread: Spread::from_values(values), planned }
    }

    fn valid(self) -> usize {
        self.spread.map_or(0, |spread| spread.count)
    }

    /// Returns whether more than half of the runs have a number. Fewer runs may not be representative.
    fn is_enough(self) -> bool {
        2 * self.valid() > self.planned
    }

    /// Returns the reason why the median of the runs must be read with care, if there is one.
    fn reason(self, limit: Limit) -> Option<String> {
        let spread = self.spread?;
        if !self.is_enough() {
            let (valid, planned) = (self.valid(), self.planned);
            return Some(format!("only {valid} of {planned} runs have a number: not judged"));
        }
        let apart = limit.holds(spread.low) != limit.holds(spread.high);
        apart.then(|| "the runs lie on both sides of the bar".to_owned())
    }
}

impl Rows {
    /// Returns results without rows.
    pub(crate) fn new(name: &'static str, machine: &Machine, conditions: &str) -> Self {
        Self {
            name,
            version: env!("CARGO_PKG_VERSION"),
            machine: format!("{}; {conditions}", machine.description),
            machine_class: machine.class.clone(),
            command: command(),
            begun: Some(machine.begun),
            unfinished: None,
            rows: Vec::new(),
            criteria: Vec::new(),
        }
    }

    /// Adds the row of values over runs. If no value is finite, the row says that there is no number.
    pub(crate) fn add(
        &mut self,
        id: String,
        what: String,
        unit: &'static str,
        values: impl IntoIterator<Item = f64>,
        devices: Vec<String>,
        reason: Option<String>,
    ) {
        self.rows.push(Row::from_values(id, what, unit, values, devices, reason));
    }

    /// Adds a row that must keep to a limit. `runs` are the runs from which the row was computed, if there
    /// are any. The verdict is known only if more than half of the runs have a number.
    pub(crate) fn judge(&mut self, row: Row, runs: Option<Runs>, limit: Limit) {
        let ours = row.ours.filter(|_| runs.is_none_or(Runs::is_enough));
        self.set(row, runs, limit, ours.map(|ours| limit.holds(ours)));
    }

    /// Adds a row with the caller's verdict, for rows whose verdict does not follow from the median. `passed` is None
    /// if the verdict is not known.
    pub(crate) fn set(&mut self, row: Row, runs: Option<Runs>, limit: Limit, passed: Option<bool>) {
        self.criteria.push(Criterion {
            id: row.id.clone(),
            limit: limit.to_string(),
            ours: row.ours,
            spread: runs.and_then(|runs| runs.spread).map(|spread| [spread.low, spread.high]),
            runs: runs.map(|runs| [runs.valid(), runs.planned]),
            passed,
        });
        let reason = row.reason.clone().or_else(|| runs?.reason(limit));
        self.rows.push(Row { reason, ..row });
    }
}

/// The least number of runs for an interval. An interval of fewer runs says too little.
const INTERVAL_RUNS_MIN: usize = 5;

/// Returns the command line of this process, with the program's name instead of its path.
pub fn command() -> String {
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
    fn the_median_decides_a_criterion() {
        let mut rows = Rows::new("cache", &Machine::here(), "idle");
        let mut judge = |values: [f64; 3], limit| {
            let row = Row::from_values("a".into(), "b".into(), "ratio", values, Vec::new(), None);
            rows.judge(row, Some(Runs::new(values, values.len())), limit);
        };
        judge([0.7, 0.74, 0.8], Limit::AtMost(0.75));
        judge([0.7, 0.74, 0.75], Limit::AtLeast(0.76));
        judge([f64::NAN; 3], Limit::Below(1.0));
        judge([0.7, f64::NAN, f64::INFINITY], Limit::Below(1.0));
        judge([0.7, 0.7, f64::NAN], Limit::Below(1.0));
        let passed: Vec<_> = rows.criteria.iter().map(|criterion| criterion.passed).collect();
        assert_eq!(passed, [Some(true), Some(false), None, None, Some(true)]);
        let said: Vec<_> = rows.rows.iter().map(|row| row.reason.is_some()).collect();
        assert_eq!(said, [true, false, true, true, false]);
        let runs: Vec<_> = rows.criteria.iter().filter_map(|criterion| criterion.runs).collect();
        assert_eq!(runs, [[3, 3], [3, 3], [0, 3], [1, 3], [2, 3]]);
        assert!(rows.criteria[3].line().contains("1 of 3"));
        assert_eq!(rows.criteria[0].spread, Some([0.7, 0.8]));
        assert_eq!(rows.criteria[0].limit, "<= 0.75");
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
