//! One question to the model as people ask it: what is known of each parameter and from where, and what was stated
//! about the design; what is missing becomes an assumption that is said, or a range. No files.

use std::collections::BTreeMap;

use model::{
    BadParameter, Case, Counted, Design, Objective, Provenance, Quantity, SizeHistogram, SizeRule,
    Strategy, Symbol, Threading,
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
    pub(crate) given: BTreeMap<Symbol, Given>,
    pub(crate) sizes: Option<SizeHistogram>,
    pub(crate) counted: Counted,
    pub(crate) objective: Objective,
    pub(crate) beta: Option<f64>,
    pub(crate) op: String,
    pub(crate) clock_ghz: Option<f64>,
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
            given: BTreeMap::new(),
            sizes: None,
            counted: Counted::default(),
            objective: Objective::default(),
            beta: None,
            op: "compress".to_owned(),
            clock_ghz: None,
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
        let counted = || self.sizes.as_ref().map(SizeHistogram::calls);
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
        }
        if let (false, Some(sizes)) = (self.given.contains_key(&Symbol::N), &self.sizes) {
            let calls = Quantity::exact(sizes.calls(), Provenance::Measured);
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
            case = case.with_sizes(SizeRule { sizes: sizes.clone(), counted, objective });
        }
        case.with_beta(self.beta.unwrap_or(1.0))
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

/// The design with another strategy; whether the transfer is awaited follows, unless it was stated.
pub(crate) fn at(design: Design, strategy: Strategy) -> Design {
    Design { variant: design.variant, ..Design::new(design.threading, strategy) }
}
