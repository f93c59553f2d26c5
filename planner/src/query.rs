//! A query to the model: the known parameters with their sources, and the stated design. A missing parameter becomes a
//! reported assumption or a range. The module reads no file.

use std::collections::BTreeMap;

use model::logca::{Latency, LogCa};
use model::{
    BadParameter, Case, Counted, Design, Kernel, Objective, Provenance, Quantity, SizeHistogram,
    SizeRule, Strategy, Symbol, Threading,
};
use serde::Serialize;

/// A parameter of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The value with its uncertainty.
    pub quantity: Quantity,
    /// The source of the value.
    pub source: Option<String>,
}

impl Parameter {
    /// Returns a parameter with a source.
    pub fn new(quantity: Quantity, source: impl Into<String>) -> Self {
        Self { quantity, source: Some(source.into()) }
    }
}

/// The number of calls by size, with its source.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// The calls by size.
    pub histogram: SizeHistogram,
    /// The provenance of the sizes: measured, configured or assumed.
    pub provenance: Provenance,
    /// The source of the sizes.
    pub source: Option<String>,
}

/// Results that others computed or measured for the same query.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Published {
    /// The gain in throughput.
    pub speedup_percent: Option<f64>,
    /// The gain in latency.
    pub latency_reduction_percent: Option<f64>,
    /// The gain in throughput if every call were accelerated at no cost.
    pub ideal_speedup_percent: Option<f64>,
    /// The gain in throughput that an A/B test measured.
    pub measured_speedup_percent: Option<f64>,
    /// The difference between the estimated and the measured gain in throughput, as printed (points).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_points: Option<f64>,
    /// The share of the host's cycles that the acceleration freed, as observed (%).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freed_percent: Option<f64>,
    /// The number of calls for which an offload pays.
    pub offloads: Option<f64>,
    /// The smallest size for which an offload pays.
    pub break_even_bytes: Option<f64>,
    /// True if a parameter was chosen so that the result matches `break_even_bytes`.
    pub break_even_calibrated: bool,
    /// The place where the numbers are printed.
    pub source: Option<String>,
}

/// A query to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The id of the query, which is unique in its file.
    pub id: String,
    /// The name of the query, for people.
    pub name: String,
    /// The threading design, the strategy and the variant of the equations.
    pub design: Design,
    /// True if the host waits until an offload has arrived, or `None` if this follows from the strategy.
    pub awaits_transfer: Option<bool>,
    /// The known parameters.
    pub parameters: BTreeMap<Symbol, Parameter>,
    /// The number of calls by size, or `None` if it is unknown.
    pub sizes: Option<Sizes>,
    /// The rule by which alpha shrinks for the calls that do not pay.
    pub counted: Counted,
    /// The quantity to improve.
    pub objective: Objective,
    /// The exponent with which the kernel's cost grows with its bytes. `None` means 1.
    pub beta: Option<f64>,
    /// The op whose costs are read from a device profile.
    pub op: String,
    /// The clock of the host (GHz), or `None` if it is unknown.
    pub clock_ghz: Option<f64>,
    /// The source of the clock.
    pub clock_source: &'static str,
    /// True if C counts the cycles of one second, so that it gives the clock of one core.
    pub is_of_a_second: bool,
    /// The device profiles for which the model is evaluated as well.
    pub devices: Vec<String>,
    /// The device profile whose costs are in `parameters`.
    pub device: Option<String>,
    /// Results that others computed or measured for the same query.
    pub published: Option<Published>,
    /// Notes on how the given values were used.
    pub notes: Vec<String>,
    /// True if the query was read from the public program's nine-line form.
    pub of_program: bool,
}

impl Query {
    /// Returns a query without known parameters.
    pub fn new(id: impl Into<String>, name: impl Into<String>, design: Design) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            design,
            awaits_transfer: None,
            parameters: BTreeMap::new(),
            sizes: None,
            counted: Counted::default(),
            objective: Objective::default(),
            beta: None,
            op: "compress".to_owned(),
            clock_ghz: None,
            clock_source: "as stated",
            is_of_a_second: true,
            devices: Vec::new(),
            device: None,
            published: None,
            notes: Vec::new(),
            of_program: false,
        }
    }

    /// Returns the stated value of a symbol. If the number of offloads (n) is not stated, it returns the number of
    /// calls that the sizes count.
    pub fn stated(&self, symbol: Symbol) -> Option<f64> {
        let given = self.parameters.get(&symbol).map(|given| given.quantity.stated);
        let counted = || self.sizes.as_ref().map(|sizes| sizes.histogram.calls());
        if symbol == Symbol::N { given.or_else(counted) } else { given }
    }

    /// Returns whether only the share of cycles is known, and neither the number of calls nor their sizes.
    pub fn is_share_alone(&self) -> bool {
        self.stated(Symbol::N).is_none()
    }

    /// Fills in the missing parameters and names the source of each.
    ///
    /// # Errors
    /// A parameter without a default is missing.
    pub fn complete(mut self) -> Result<Self, BadParameter> {
        if self.is_share_alone() {
            self.as_share_alone();
        } else if self.stated(Symbol::N) == Some(0.0) && self.stated(Symbol::Alpha) > Some(0.0) {
            let valid = "above 0 where alpha is: calls take it; without n, alpha alone is asked of";
            return Err(BadParameter { field: "n", value: "0".to_owned(), valid });
        }
        if let (false, Some(sizes)) = (self.parameters.contains_key(&Symbol::N), &self.sizes) {
            let calls = Quantity::exact(sizes.histogram.calls(), sizes.provenance);
            self.parameters
                .insert(Symbol::N, Parameter::new(calls, "the calls that the sizes count"));
        }
        for symbol in [Symbol::O0, Symbol::Q, Symbol::O1] {
            let used = symbol != Symbol::O1 || switches(self.design.threading);
            let provenance = if used { Provenance::Assumed } else { Provenance::Configured };
            let source = if used { "not stated: none" } else { "this design switches no thread" };
            let none = Parameter::new(Quantity::exact(0.0, provenance), source);
            self.parameters.entry(symbol).or_insert(none);
        }
        let required = Symbol::ALL.into_iter().filter(|symbol| *symbol != Symbol::Cb);
        for symbol in required {
            if !self.parameters.contains_key(&symbol) {
                let value = "missing".to_owned();
                return Err(BadParameter { field: symbol.name(), value, valid: symbol.valid() });
            }
        }
        Ok(self)
    }

    /// Assumes that every call is accelerated and costs only the accelerator's time. This gives the upper end of the
    /// range.
    fn as_share_alone(&mut self) {
        let exact = |value| Quantity::exact(value, Provenance::Assumed);
        let source = "a share alone: no call costs anything to offload";
        for (symbol, value) in
            [(Symbol::N, 0.0), (Symbol::O0, 0.0), (Symbol::Q, 0.0), (Symbol::L, 0.0)]
        {
            self.parameters.insert(symbol, Parameter::new(exact(value), source));
        }
        self.parameters.insert(Symbol::O1, Parameter::new(exact(0.0), source));
        let cycles = Parameter::new(exact(1.0), "a share alone: the unit");
        self.parameters.entry(Symbol::C).or_insert(cycles);
        let unbounded = Parameter::new(exact(f64::INFINITY), "not stated: no bound");
        self.parameters.entry(Symbol::A).or_insert(unbounded);
    }

    /// Returns the model's case for a completed query.
    ///
    /// # Errors
    /// A parameter is outside its range.
    pub fn case(&self) -> Result<Case, BadParameter> {
        let quantity = |symbol: Symbol| {
            let given: Option<&Parameter> = self.parameters.get(&symbol);
            given.map_or(Quantity::exact(f64::NAN, Provenance::Assumed), |parameter| {
                parameter.quantity.clone()
            })
        };
        use Symbol::{A, Alpha, C, L, N, O0, O1, Q};
        let mut case = Case::new([C, Alpha, N, O0, Q, L, O1, A].map(quantity), self.design)?;
        if let Some(given) = self.parameters.get(&Symbol::Cb) {
            case = case.with_cycles_per_byte(given.quantity.clone())?;
        }
        if let Some(sizes) = &self.sizes {
            let (counted, objective) = (self.counted, self.objective);
            let sizes = sizes.histogram.clone();
            case = case.with_sizes(SizeRule { sizes, counted, objective });
        }
        case.with_objective(self.objective).with_beta(self.beta.unwrap_or(1.0))
    }
}

impl Query {
    /// Changes the place of the accelerator. If it was not stated whether the host awaits the transfer, this follows
    /// from the strategy.
    pub fn put_at(&mut self, strategy: Strategy) {
        let design =
            Design { variant: self.design.variant, ..Design::new(self.design.threading, strategy) };
        let awaits_transfer = self.awaits_transfer.unwrap_or(design.awaits_transfer);
        self.design = Design { awaits_transfer, ..design };
    }

    /// Returns LogCA's model of one offload, or `None` if the kernel's cycles per byte are unknown.
    pub fn logca(&self) -> Option<LogCa> {
        let stated = |symbol| self.stated(symbol);
        let beta = self.beta.unwrap_or(1.0);
        let derived = || {
            let (alpha, c, n) = (stated(Symbol::Alpha)?, stated(Symbol::C)?, stated(Symbol::N)?);
            let sizes = self.sizes.as_ref()?;
            Some(alpha * c / (n * sizes.histogram.mean_work(beta)))
        };
        let kernel = Kernel::new(stated(Symbol::Cb).or_else(derived)?, beta).ok()?;
        let latency = Latency::PerOffload(stated(Symbol::L)?);
        LogCa::new(latency, stated(Symbol::O0)?, kernel, stated(Symbol::A)?).ok()
    }
}

/// Returns whether o1, the cost of a thread switch, is in the design's equations.
fn switches(threading: Threading) -> bool {
    matches!(threading, Threading::SyncOs | Threading::AsyncDistinct)
}

/// Parses the name of the rule by which alpha shrinks.
///
/// # Errors
/// The name is unknown; the error lists the known names.
pub fn counted(word: &str) -> Result<Counted, BadParameter> {
    match word {
        "by-work" => Ok(Counted::ByWork),
        "by-calls" => Ok(Counted::ByCalls),
        _ => Err(unknown("counted", word, "by-work or by-calls")),
    }
}

/// Parses the name of the quantity to improve.
///
/// # Errors
/// The name is unknown; the error lists the known names.
pub fn objective(word: &str) -> Result<Objective, BadParameter> {
    match word {
        "speedup" => Ok(Objective::Speedup),
        "latency" => Ok(Objective::Latency),
        _ => Err(unknown("objective", word, "speedup or latency")),
    }
}

fn unknown(field: &'static str, word: &str, valid: &'static str) -> BadParameter {
    BadParameter { field, value: format!("{word:?}"), valid }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query() -> Query {
        let mut query = Query::new("one", "one", Design::new(Threading::Async, Strategy::OffChip));
        for (symbol, value) in
            [(Symbol::C, 2e9), (Symbol::Alpha, 0.15), (Symbol::L, 0.0), (Symbol::A, 27.0)]
        {
            let quantity = Quantity::exact(value, Provenance::Configured);
            query.parameters.insert(symbol, Parameter { quantity, source: None });
        }
        query
    }

    #[test]
    fn awaiting_the_transfer_follows_the_strategy_unless_stated() {
        let awaits = |stated, strategy| {
            let mut query = Query { awaits_transfer: stated, ..query() };
            query.put_at(strategy);
            query.design.awaits_transfer
        };
        assert!(awaits(None, Strategy::OnChip) && !awaits(None, Strategy::Remote));
        assert!(!awaits(Some(false), Strategy::OnChip) && awaits(Some(true), Strategy::Remote));
    }

    #[test]
    fn cycles_that_no_call_takes_are_refused() {
        let with_n = |n, alpha| {
            let mut query = query();
            for (symbol, value) in [(Symbol::N, n), (Symbol::Alpha, alpha)] {
                let quantity = Quantity::exact(value, Provenance::Configured);
                query.parameters.insert(symbol, Parameter { quantity, source: None });
            }
            query.complete()
        };
        assert_eq!(with_n(0.0, 0.15).expect_err("refused").field, "n");
        assert!(with_n(0.0, 0.0).is_ok() && with_n(1.0, 0.15).is_ok());
        assert!(query().complete().is_ok(), "a share alone");
    }

    #[test]
    fn calls_are_as_sure_as_the_sizes_that_count_them() {
        let histogram = SizeHistogram::from_sizes([(100, 3.0)]).expect("sizes");
        for provenance in [Provenance::Measured, Provenance::Configured, Provenance::Assumed] {
            let sizes = Sizes { histogram: histogram.clone(), provenance, source: None };
            let completed = Query { sizes: Some(sizes), ..query() }.complete().expect("complete");
            assert_eq!(completed.parameters[&Symbol::N].quantity, Quantity::exact(3.0, provenance));
        }
    }

    #[test]
    fn logca_is_of_one_offload_and_needs_the_kernels_cost() {
        assert!(query().logca().is_none());
        let mut known = query();
        for (symbol, value) in
            [(Symbol::Cb, 4.0), (Symbol::L, 2_000.0), (Symbol::O0, 300.0), (Symbol::A, 20.0)]
        {
            let quantity = Quantity::exact(value, Provenance::Configured);
            known.parameters.insert(symbol, Parameter { quantity, source: None });
        }
        let logca = known.logca().expect("Cb is known");
        // The break-even follows from 4 g (1 - 1/20) = 2,300, and the half acceleration from 4 g (1/10 - 1/20) = 2,300.
        assert_eq!(logca.break_even().smallest_bytes(), Some(606));
        assert!((logca.half_acceleration().bytes() - 11_500.0).abs() < 1e-6);
    }
}
