//! One question to the model as people ask it: what is known of each parameter and from where, and what was stated
//! about the design; what is missing becomes an assumption that is said, or a range. No files.

use std::collections::BTreeMap;

use model::logca::{Latency, LogCa};
use model::{
    BadParameter, Case, Counted, Design, Kernel, Objective, Provenance, Quantity, SizeHistogram,
    SizeRule, Strategy, Symbol, Threading,
};
use serde::Serialize;

/// A parameter as it was given.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Given {
    pub(crate) quantity: Quantity,
    pub(crate) source: Option<String>,
}

impl Given {
    pub(crate) fn new(quantity: Quantity, source: impl Into<String>) -> Self {
        Self { quantity, source: Some(source.into()) }
    }
}

/// How many calls of which size, and from where that is known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sizes {
    pub(crate) histogram: SizeHistogram,
    pub(crate) provenance: Provenance,
    pub(crate) source: Option<String>,
}

/// What someone else's answer was.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Published {
    pub(crate) speedup_percent: Option<f64>,
    pub(crate) latency_reduction_percent: Option<f64>,
    /// With every call accelerated at no cost.
    pub(crate) ideal_speedup_percent: Option<f64>,
    /// By an A/B test.
    pub(crate) measured_speedup_percent: Option<f64>,
    pub(crate) offloads: Option<f64>,
    pub(crate) break_even_bytes: Option<f64>,
    /// A parameter was chosen to meet it.
    pub(crate) break_even_calibrated: bool,
    pub(crate) source: Option<String>,
}

/// One question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) design: Design,
    /// Whether the host waits until an offload arrived, where that was stated; else it follows from the strategy.
    pub(crate) awaits_transfer: Option<bool>,
    pub(crate) given: BTreeMap<Symbol, Given>,
    pub(crate) sizes: Option<Sizes>,
    pub(crate) counted: Counted,
    pub(crate) objective: Objective,
    pub(crate) beta: Option<f64>,
    pub(crate) op: String,
    pub(crate) clock_ghz: Option<f64>,
    /// Where that is from.
    pub(crate) clock_source: &'static str,
    /// C is of one second, so that it tells the clock of one core.
    pub(crate) is_of_a_second: bool,
    /// Device profiles to ask the same of.
    pub(crate) devices: Vec<String>,
    /// The one whose costs are in `given`.
    pub(crate) device: Option<String>,
    pub(crate) published: Option<Published>,
    /// What was done with what was given.
    pub(crate) notes: Vec<String>,
    /// Came in the public program's form.
    pub(crate) of_program: bool,
}

impl Question {
    /// Nothing known yet.
    pub(crate) fn new(id: impl Into<String>, name: impl Into<String>, design: Design) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            design,
            awaits_transfer: None,
            given: BTreeMap::new(),
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

    /// The value of a symbol as stated; n is the number of sizes where it is not.
    pub(crate) fn stated(&self, symbol: Symbol) -> Option<f64> {
        let given = self.given.get(&symbol).map(|given| given.quantity.stated);
        let counted = || self.sizes.as_ref().map(|sizes| sizes.histogram.calls());
        if symbol == Symbol::N { given.or_else(counted) } else { given }
    }

    /// Only a share is known: neither how many calls there are nor how large they are.
    pub(crate) fn is_share_alone(&self) -> bool {
        self.stated(Symbol::N).is_none()
    }

    /// Fills in what is left open, saying so.
    ///
    /// # Errors
    /// The parameter that has no default.
    pub(crate) fn complete(mut self) -> Result<Self, BadParameter> {
        if self.is_share_alone() {
            self.as_share_alone();
        } else if self.stated(Symbol::N) == Some(0.0) && self.stated(Symbol::Alpha) > Some(0.0) {
            let valid = "above 0 where alpha is: calls take it; without n, alpha alone is asked of";
            return Err(BadParameter { field: "n", value: "0".to_owned(), valid });
        }
        if let (false, Some(sizes)) = (self.given.contains_key(&Symbol::N), &self.sizes) {
            let calls = Quantity::exact(sizes.histogram.calls(), sizes.provenance);
            self.given.insert(Symbol::N, Given::new(calls, "the calls that the sizes count"));
        }
        for symbol in [Symbol::O0, Symbol::Q, Symbol::O1] {
            let used = symbol != Symbol::O1 || switches(self.design.threading);
            let provenance = if used { Provenance::Assumed } else { Provenance::Configured };
            let source = if used { "not stated: none" } else { "this design switches no thread" };
            let none = Given::new(Quantity::exact(0.0, provenance), source);
            self.given.entry(symbol).or_insert(none);
        }
        let required = Symbol::ALL.into_iter().filter(|symbol| *symbol != Symbol::Cb);
        for symbol in required {
            if !self.given.contains_key(&symbol) {
                let value = "missing".to_owned();
                return Err(BadParameter { field: symbol.name(), value, valid: symbol.valid() });
            }
        }
        Ok(self)
    }

    /// Every call accelerated, at no cost but the accelerator's time: the end of the range.
    fn as_share_alone(&mut self) {
        let exact = |value| Quantity::exact(value, Provenance::Assumed);
        let source = "a share alone: no call costs anything to offload";
        for (symbol, value) in
            [(Symbol::N, 0.0), (Symbol::O0, 0.0), (Symbol::Q, 0.0), (Symbol::L, 0.0)]
        {
            self.given.insert(symbol, Given::new(exact(value), source));
        }
        self.given.insert(Symbol::O1, Given::new(exact(0.0), source));
        let cycles = Given::new(exact(1.0), "a share alone: the unit");
        self.given.entry(Symbol::C).or_insert(cycles);
        let unbounded = Given::new(exact(f64::INFINITY), "not stated: no bound");
        self.given.entry(Symbol::A).or_insert(unbounded);
    }

    /// The case that the library answers; of a completed question.
    ///
    /// # Errors
    /// The parameter outside its range.
    pub(crate) fn case(&self) -> Result<Case, BadParameter> {
        let of = |symbol: Symbol| {
            let given: Option<&Given> = self.given.get(&symbol);
            given.map_or(Quantity::exact(f64::NAN, Provenance::Assumed), |own| own.quantity.clone())
        };
        use Symbol::{A, Alpha, C, L, N, O0, O1, Q};
        let mut case = Case::new([C, Alpha, N, O0, Q, L, O1, A].map(of), self.design)?;
        if let Some(given) = self.given.get(&Symbol::Cb) {
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

impl Question {
    /// Another strategy; whether the transfer is awaited follows, unless it was stated.
    pub(crate) fn put_at(&mut self, strategy: Strategy) {
        let own =
            Design { variant: self.design.variant, ..Design::new(self.design.threading, strategy) };
        let awaits_transfer = self.awaits_transfer.unwrap_or(own.awaits_transfer);
        self.design = Design { awaits_transfer, ..own };
    }

    /// LogCA of one offload; nothing where the kernel's cycles per byte are unknown.
    pub(crate) fn logca(&self) -> Option<LogCa> {
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

/// Whether o1 is in the design's equations.
pub(crate) fn switches(threading: Threading) -> bool {
    matches!(threading, Threading::SyncOs | Threading::AsyncDistinct)
}

/// The word for how alpha shrinks.
///
/// # Errors
/// The words there are.
pub(crate) fn counted(word: &str) -> Result<Counted, BadParameter> {
    match word {
        "by-work" => Ok(Counted::ByWork),
        "by-calls" => Ok(Counted::ByCalls),
        _ => Err(unknown("counted", word, "by-work or by-calls")),
    }
}

/// The word for what is to improve.
///
/// # Errors
/// The words there are.
pub(crate) fn objective(word: &str) -> Result<Objective, BadParameter> {
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

    fn question() -> Question {
        let mut question =
            Question::new("one", "one", Design::new(Threading::Async, Strategy::OffChip));
        for (symbol, value) in
            [(Symbol::C, 2e9), (Symbol::Alpha, 0.15), (Symbol::L, 0.0), (Symbol::A, 27.0)]
        {
            let quantity = Quantity::exact(value, Provenance::Configured);
            question.given.insert(symbol, Given { quantity, source: None });
        }
        question
    }

    #[test]
    fn whether_the_transfer_is_awaited_follows_the_strategy_unless_it_was_stated() {
        let awaits = |stated, strategy| {
            let mut question = Question { awaits_transfer: stated, ..question() };
            question.put_at(strategy);
            question.design.awaits_transfer
        };
        assert!(awaits(None, Strategy::OnChip) && !awaits(None, Strategy::Remote));
        assert!(!awaits(Some(false), Strategy::OnChip) && awaits(Some(true), Strategy::Remote));
    }

    #[test]
    fn cycles_that_no_call_takes_are_refused() {
        let with_n = |n, alpha| {
            let mut question = question();
            for (symbol, value) in [(Symbol::N, n), (Symbol::Alpha, alpha)] {
                let quantity = Quantity::exact(value, Provenance::Configured);
                question.given.insert(symbol, Given { quantity, source: None });
            }
            question.complete()
        };
        assert_eq!(with_n(0.0, 0.15).expect_err("refused").field, "n");
        assert!(with_n(0.0, 0.0).is_ok() && with_n(1.0, 0.15).is_ok());
        assert!(question().complete().is_ok(), "a share alone");
    }

    #[test]
    fn calls_are_as_sure_as_the_sizes_that_count_them() {
        let histogram = SizeHistogram::of_sizes([(100, 3.0)]).expect("sizes");
        for provenance in [Provenance::Measured, Provenance::Configured, Provenance::Assumed] {
            let sizes = Sizes { histogram: histogram.clone(), provenance, source: None };
            let own = Question { sizes: Some(sizes), ..question() }.complete().expect("complete");
            assert_eq!(own.given[&Symbol::N].quantity, Quantity::exact(3.0, provenance));
        }
    }

    #[test]
    fn logca_is_of_one_offload_and_needs_the_kernels_cost() {
        assert!(question().logca().is_none());
        let mut known = question();
        for (symbol, value) in
            [(Symbol::Cb, 4.0), (Symbol::L, 2_000.0), (Symbol::O0, 300.0), (Symbol::A, 20.0)]
        {
            let quantity = Quantity::exact(value, Provenance::Configured);
            known.given.insert(symbol, Given { quantity, source: None });
        }
        let logca = known.logca().expect("Cb is known");
        // 4 g (1 - 1/20) = 2,300, and 4 g (1/10 - 1/20) = 2,300.
        assert_eq!(logca.break_even().smallest_bytes(), Some(606));
        assert!((logca.half_acceleration().bytes() - 11_500.0).abs() < 1e-6);
    }
}
