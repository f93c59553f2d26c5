//! Computes the model's answer for one case. The input is quantities, a design and optionally sizes. The
//! output is estimates with intervals, the sensitivity to each parameter and the limits of the answer.
//!
//! Uncertainty is propagated by Monte Carlo with a stated seed. There are 4,096 draws. The values of each parameter are
//! drawn from equal slices of its spread in a random order (Latin hypercube), so that intervals are stable to a
//! fraction of a percent of their width. Interval arithmetic would be exact for bounds but pessimistic for 95 %
//! intervals. Parameters are drawn independently of each other.

use units::Prng;

use crate::break_even::{BreakEven, Kernel, Objective, break_even};
use crate::design::{Design, Strategy, Threading};
use crate::equations::{latency_reduction, speedup};
use crate::parameters::{BadParameter, Parameters, Symbol, Values};
use crate::quantity::{Provenance, Quantity, Spread};
use crate::selection::{Counted, select};
use crate::sizes::SizeHistogram;

const DRAWS: usize = 4_096;
const SLICES: usize = 129;
const SYMBOLS: usize = Symbol::ALL.len();

/// An estimate and the interval that holds it in 95 % of the draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate if every parameter has its stated value.
    pub value: f64,
    /// The lower and the upper end of the interval. Both equal the value if no parameter is uncertain.
    pub ci95: (f64, f64),
}

/// The sizes of the calls, and the rule that chooses which calls are offloaded. With such a rule, a case's number of
/// offloads (n) and its fraction of cycles in the kernel (α) describe all calls, including those that are not
/// offloaded.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeRule {
    /// The sizes of the calls, and how many calls have each.
    pub sizes: SizeHistogram,
    /// The rule by which the fraction of cycles in the kernel (α) shrinks if only some calls are offloaded.
    pub counted: Counted,
    /// The quantity that the choice improves.
    pub objective: Objective,
}

/// One question to the model, with all its inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    quantities: [Quantity; SYMBOLS - 1],
    cycles_per_byte: Option<Quantity>,
    design: Design,
    sizes: Option<SizeRule>,
    objective: Objective,
    beta: f64,
}

/// How an answer depends on one parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sensitivity {
    /// The parameter.
    pub symbol: Symbol,
    /// The share of the variance of the speedup that this parameter's uncertainty causes. All shares sum to
    /// 1, or are 0 if no parameter is uncertain. A better measurement helps most for the largest share.
    pub variance_share: f64,
    /// The change of the speedup (%) if the parameter grows by 1 %.
    pub elasticity: f64,
    /// The origin of the parameter.
    pub provenance: Provenance,
}

/// A fact that the answer ignores or assumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// The sizes are unknown. The answer assumes that the number of offloads (n) and the fraction of cycles in the
    /// kernel (α) are those of offloads that pay.
    SizesUnknown,
    /// The kernel's complexity was not stated. The answer assumes that it is linear.
    LinearKernel,
    /// The accelerator would be busy for 100 % of the time or more. The service needs several accelerators, or the
    /// queueing time (Q) grows without bound.
    AcceleratorSaturated,
    /// The throughput rises, but single requests take longer.
    LatencyLost,
    /// Acceleration makes the service slower.
    SpeedupLost,
    /// The interval contains 1, so it is uncertain whether acceleration helps.
    GainUncertain,
    /// The queueing time (Q) was stated as 0 although other users may keep the accelerator busy.
    QueueingIgnored,
    /// At least one parameter is assumed.
    Assumptions,
}

impl Limit {
    /// Returns the limit as text for a person.
    pub const fn text(self) -> &'static str {
        match self {
            Limit::SizesUnknown => "sizes are unknown: every offload is taken to pay",
            Limit::LinearKernel => "the kernel is taken to be linear in its bytes",
            Limit::AcceleratorSaturated => {
                "one accelerator would be busy all of the time: queueing has no bound"
            }
            Limit::LatencyLost => "throughput rises while single requests take longer",
            Limit::SpeedupLost => "acceleration costs more than it saves",
            Limit::GainUncertain => "the interval holds no change",
            Limit::QueueingIgnored => "queueing is taken to be none",
            Limit::Assumptions => "some parameters are assumed",
        }
    }
}

/// The model's answer for one [`Case`].
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    /// The speedup, C / C_S: the host cycles divided by the host cycles that remain with acceleration.
    pub speedup: Estimate,
    /// The latency reduction, C / C_L: the host cycles divided by the cycles of latency that remain with acceleration.
    /// None for the public program's variant, which has no formula for it.
    pub latency_reduction: Option<Estimate>,
    /// The number of offloads in the time unit, n. Calls of sizes that do not pay are not counted.
    pub offloads: Estimate,
    /// The fraction of all host cycles (C) that is in the offloaded calls, α. Calls of sizes that do not pay are not
    /// counted.
    pub alpha: Estimate,
    /// The size from which an offload pays (bytes). It is infinite if no size pays. It is none if the kernel's cycles
    /// per byte (C_b) are unknown.
    pub break_even_bytes: Option<Estimate>,
    /// One entry per parameter. The first entry is the parameter whose better measurement helps most.
    pub sensitivity: Vec<Sensitivity>,
    /// The facts that the answer ignores or assumes.
    pub limits: Vec<Limit>,
}

/// The answer for one draw of every parameter.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    speedup: f64,
    latency_reduction: Option<f64>,
    offloads: f64,
    alpha: f64,
    break_even_bytes: Option<f64>,
}

type Drawn = [f64; SYMBOLS];

impl Case {
    /// Makes a case of the quantities C, α, n, o0, Q, L, o1 and A, in that order. [`Symbol`] describes each of them.
    /// Every value is checked.
    pub fn new(quantities: [Quantity; 8], design: Design) -> Result<Self, BadParameter> {
        design.check()?;
        for (quantity, symbol) in quantities.iter().zip(Symbol::ALL) {
            quantity.check(symbol)?;
        }
        let objective = Objective::Speedup;
        Ok(Self { quantities, cycles_per_byte: None, design, sizes: None, objective, beta: 1.0 })
    }

    /// Makes a case whose parameters are all exact.
    pub fn exact(
        parameters: &Parameters,
        design: Design,
        provenance: Provenance,
    ) -> Result<Self, BadParameter> {
        let values = parameters.values();
        let value = |index: usize| values.get(Symbol::ALL[index]).unwrap_or(f64::NAN);
        let quantity = |index| Quantity::exact(value(index), provenance);
        Self::new(std::array::from_fn(quantity), design)
    }

    /// Returns the case with sizes. Only calls of sizes that pay are offloaded. The break-even size is computed for the
    /// objective in `sizes`.
    pub fn with_sizes(self, sizes: SizeRule) -> Self {
        Self { objective: sizes.objective, sizes: Some(sizes), ..self }
    }

    /// Returns the case with a break-even size for this objective. If the case has sizes, the objective of the sizes is
    /// used instead.
    pub fn with_objective(self, objective: Objective) -> Self {
        let objective = self.sizes.as_ref().map_or(objective, |sizes| sizes.objective);
        Self { objective, ..self }
    }

    /// Returns the case with stated cycles of the kernel per byte (C_b). Otherwise they are derived from the fraction
    /// of cycles in the kernel (α), the host cycles (C), the number of offloads (n) and the sizes.
    pub fn with_cycles_per_byte(self, quantity: Quantity) -> Result<Self, BadParameter> {
        quantity.check(Symbol::Cb)?;
        Ok(Self { cycles_per_byte: Some(quantity), ..self })
    }

    /// Returns the case with a kernel of complexity `beta`.
    pub fn with_beta(self, beta: f64) -> Result<Self, BadParameter> {
        Kernel::new(1.0, beta)?;
        Ok(Self { beta, ..self })
    }

    /// Returns how the service offloads.
    pub fn design(&self) -> Design {
        self.design
    }

    /// Returns the quantity of a symbol. Returns none for the kernel's cycles per byte (C_b) if they were not stated.
    pub fn quantity(&self, symbol: Symbol) -> Option<&Quantity> {
        self.quantities.get(symbol.index()).or(self.cycles_per_byte.as_ref())
    }

    /// Returns the answer, with draws from `seed`. Returns an error if no host cycles are left, because the
    /// speedup then has no bound.
    pub fn project(&self, seed: u64) -> Result<Projection, BadParameter> {
        let stated = self.stated();
        let outcome = self.outcome(&stated)?;
        if !(outcome.speedup > 0.0 && outcome.speedup < f64::INFINITY) {
            let valid = "such that host cycles are left, or the speedup has no bound";
            return Err(BadParameter::new("alpha", stated[Symbol::Alpha.index()], valid));
        }
        let drawn = self.drawn(seed)?;
        let estimate = |value, field: &dyn Fn(&Outcome) -> f64| Estimate {
            value,
            ci95: interval(drawn.iter().map(field).collect(), value),
        };
        let optional = |field: fn(&Outcome) -> Option<f64>| {
            field(&outcome).map(|value| estimate(value, &|one| field(one).unwrap_or(value)))
        };
        let mut projection = Projection {
            speedup: estimate(outcome.speedup, &|one| one.speedup),
            latency_reduction: optional(|one| one.latency_reduction),
            offloads: estimate(outcome.offloads, &|one| one.offloads),
            alpha: estimate(outcome.alpha, &|one| one.alpha),
            break_even_bytes: optional(|one| one.break_even_bytes),
            sensitivity: self.sensitivity(&stated)?,
            limits: Vec::new(),
        };
        projection.limits = self.limits(&projection);
        Ok(projection)
    }

    fn stated(&self) -> Drawn {
        let stated = |symbol| self.quantity(symbol).map_or(f64::NAN, |quantity| quantity.stated);
        Symbol::ALL.map(stated)
    }

    /// Returns one outcome per draw, or only the outcome of the stated values if no parameter is uncertain.
    fn drawn(&self, seed: u64) -> Result<Vec<Outcome>, BadParameter> {
        let mut draws = vec![self.stated(); DRAWS];
        let mut prng = Prng::new(seed);
        let mut uncertain = false;
        for symbol in Symbol::ALL {
            let Some(quantity) = self.quantity(symbol) else { continue };
            if quantity.spread == Spread::Exact {
                continue;
            }
            uncertain = true;
            let mut slices: Vec<usize> = (0..DRAWS).collect();
            shuffle(&mut slices, &mut prng);
            for (draw, slice) in draws.iter_mut().zip(slices) {
                let u = (slice as f64 + 0.5) / DRAWS as f64;
                draw[symbol.index()] = quantity.quantile(symbol, u);
            }
        }
        draws.truncate(if uncertain { DRAWS } else { 1 });
        draws.iter().map(|draw| self.outcome(draw)).collect()
    }

    fn outcome(&self, drawn: &Drawn) -> Result<Outcome, BadParameter> {
        let [c, alpha, n, o0, q, l, o1, a, cycles_per_byte] = *drawn;
        let mut parameters = Parameters::new(Values { c, alpha, n, o0, q, l, o1, a })?;
        let stated = self.cycles_per_byte.as_ref().map(|_| cycles_per_byte);
        let mut from: Option<BreakEven> = None;
        if let Some(SizeRule { sizes, counted, objective }) = &self.sizes {
            let rule = (self.beta, *counted);
            let selection = select(&parameters, &self.design, *objective, sizes, rule, stated)?;
            (parameters, from) = (selection.parameters, Some(selection.break_even));
        } else if let Some(cycles_per_byte) = stated {
            let kernel = Kernel::new(cycles_per_byte, self.beta)?;
            from = Some(break_even(&parameters, &self.design, self.objective, &kernel));
        }
        Ok(Outcome {
            speedup: speedup(&parameters, &self.design),
            latency_reduction: latency_reduction(&parameters, &self.design),
            offloads: parameters.values().n,
            alpha: parameters.values().alpha,
            break_even_bytes: from.map(|from| from.bytes()),
        })
    }

    fn sensitivity(&self, stated: &Drawn) -> Result<Vec<Sensitivity>, BadParameter> {
        let mut found = Vec::new();
        let mut deviations = Vec::new();
        for symbol in Symbol::ALL {
            let Some(quantity) = self.quantity(symbol) else { continue };
            deviations.push(self.deviation_by(symbol, quantity, stated)?);
            found.push(Sensitivity {
                symbol,
                variance_share: 0.0,
                elasticity: self.elasticity(symbol, stated)?,
                provenance: quantity.provenance,
            });
        }
        // The square of a deviation may exceed every number, so each is first divided by the largest.
        let largest = deviations.iter().copied().fold(0.0, f64::max);
        let squares: Vec<f64> = deviations.iter().map(|one| (one / largest).powi(2)).collect();
        let total: f64 = squares.iter().sum();
        for (one, square) in found.iter_mut().zip(squares) {
            one.variance_share = if largest > 0.0 { square / total } else { 0.0 };
        }
        found.sort_by(|one, other| {
            let by_share = other.variance_share.total_cmp(&one.variance_share);
            by_share.then(other.elasticity.abs().total_cmp(&one.elasticity.abs()))
        });
        Ok(found)
    }

    /// Returns the standard deviation of 1/speedup over the spread of one parameter, while the others have their stated
    /// values. Unlike the speedup, 1/speedup is finite everywhere.
    fn deviation_by(
        &self,
        symbol: Symbol,
        quantity: &Quantity,
        stated: &Drawn,
    ) -> Result<f64, BadParameter> {
        if quantity.spread == Spread::Exact {
            return Ok(0.0);
        }
        let mut changes = [0.0; SLICES];
        let base = 1.0 / self.outcome(stated)?.speedup;
        for (slice, change) in changes.iter_mut().enumerate() {
            let mut drawn = *stated;
            let u = (slice as f64 + 0.5) / SLICES as f64;
            drawn[symbol.index()] = quantity.quantile(symbol, u);
            *change = 1.0 / self.outcome(&drawn)?.speedup - base;
        }
        let largest = changes.iter().map(|change| change.abs()).fold(0.0, f64::max);
        if largest == 0.0 {
            return Ok(0.0);
        }
        let scaled = changes.map(|change| change / largest);
        let mean = scaled.iter().sum::<f64>() / SLICES as f64;
        let variance = scaled.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / SLICES as f64;
        Ok(variance.sqrt() * largest)
    }

    /// Computes the elasticity from a step of 0.1 % in each direction, within the range of the parameter.
    fn elasticity(&self, symbol: Symbol, stated: &Drawn) -> Result<f64, BadParameter> {
        let (lowest, highest) = symbol.range();
        let value = stated[symbol.index()];
        let at = |factor: f64| {
            let mut drawn = *stated;
            drawn[symbol.index()] = (value * factor).clamp(lowest, highest);
            Ok((drawn[symbol.index()], self.outcome(&drawn)?.speedup))
        };
        let ((low, slow), (high, fast)) = (at(0.999)?, at(1.001)?);
        let moved = high / low;
        let moves = low > 0.0 && moved.is_finite() && moved > 1.0 && fast.is_finite();
        Ok(if moves { (fast / slow).ln() / moved.ln() } else { 0.0 })
    }

    fn limits(&self, answer: &Projection) -> Vec<Limit> {
        let value = |symbol| self.quantity(symbol).map_or(0.0, |quantity| quantity.stated);
        let busy = answer.alpha.value / value(Symbol::A) * answer.speedup.value;
        let shared = self.design.strategy != Strategy::OnChip;
        let latency = answer.latency_reduction.map_or(1.0, |estimate| estimate.value);
        let (low, high) = answer.speedup.ci95;
        let assumed = |symbol: &Symbol| {
            let quantity = self.quantity(*symbol);
            quantity.is_some_and(|quantity| quantity.provenance == Provenance::Assumed)
        };
        let concurrent = self.design.threading != Threading::Sync;
        let found = [
            (Limit::SizesUnknown, self.sizes.is_none()),
            (Limit::LinearKernel, self.beta == 1.0),
            (Limit::AcceleratorSaturated, shared && concurrent && busy >= 1.0),
            (Limit::LatencyLost, answer.speedup.value > 1.0 && latency < 1.0),
            (Limit::SpeedupLost, answer.speedup.value < 1.0),
            (Limit::GainUncertain, low <= 1.0 && high >= 1.0 && low < high),
            (Limit::QueueingIgnored, shared && value(Symbol::Q) == 0.0),
            (Limit::Assumptions, Symbol::ALL.iter().any(assumed)),
        ];
        found.into_iter().filter(|(_, holds)| *holds).map(|(limit, _)| limit).collect()
    }
}

/// Returns the interval that contains the middle 95 % of the draws. It is widened if it does not contain the value.
fn interval(mut draws: Vec<f64>, value: f64) -> (f64, f64) {
    draws.sort_unstable_by(f64::total_cmp);
    let last = draws.len().saturating_sub(1) as f64;
    let at = |share: f64| draws.get((share * last).round() as usize).copied().unwrap_or(value);
    (at(0.025).min(value), at(0.975).max(value))
}

fn shuffle(slices: &mut [usize], prng: &mut Prng) {
    for index in (1..slices.len()).rev() {
        slices.swap(index, prng.below(index as u64 + 1) as usize);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    fn quantities() -> [Quantity; 8] {
        // [Accelerometer] table 7, off-chip Sync-OS, with n and alpha of all compressions.
        let values = [2.3e9, 0.15, 15_008.0, 0.0, 0.0, 2_300.0, 5_750.0, 27.0];
        values.map(|value| Quantity::exact(value, Provenance::Configured))
    }

    fn with(symbol: Symbol, quantity: Quantity) -> [Quantity; 8] {
        let mut all = quantities();
        all[symbol.index()] = quantity;
        all
    }

    fn off_chip(threading: Threading) -> Design {
        Design::new(threading, Strategy::OffChip)
    }

    fn project(quantities: [Quantity; 8], threading: Threading) -> Projection {
        Case::new(quantities, off_chip(threading)).expect("valid").project(7).expect("projects")
    }

    #[test]
    fn exact_parameters_give_a_point() {
        let answer = project(quantities(), Threading::Async);
        assert_eq!(answer.speedup.ci95, (answer.speedup.value, answer.speedup.value));
        assert!(answer.sensitivity.iter().all(|one| one.variance_share == 0.0));
        assert!(answer.limits.contains(&Limit::SizesUnknown));
        assert!(answer.limits.contains(&Limit::QueueingIgnored));
    }

    #[test]
    fn an_interval_goes_through_the_equation() {
        let l = Quantity::within(1_300.0, 2_300.0, 3_300.0, Provenance::Measured);
        let answer = project(with(Symbol::L, l), Threading::Async);
        let at = |l: f64| 1.0 / (0.85 + 15_008.0 / 2.3e9 * l);
        let (low, high) = answer.speedup.ci95;
        assert!((low - at(3_300.0)).abs() < 2e-4, "{low} {}", at(3_300.0));
        assert!((high - at(1_300.0)).abs() < 2e-4, "{high} {}", at(1_300.0));
    }

    #[test]
    fn a_spread_whose_square_is_no_number_still_has_its_share() {
        let mut all =
            with(Symbol::N, Quantity::within(0.9e300, 1e300, 1.1e300, Provenance::Assumed));
        all[Symbol::Q.index()] = Quantity::within(5e5, 6e5, 7e5, Provenance::Assumed);
        let answer = project(all, Threading::SyncOs);
        let sum: f64 = answer.sensitivity.iter().map(|one| one.variance_share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn the_parameter_to_measure_better_comes_first() {
        let mut all =
            with(Symbol::L, Quantity::within(2_290.0, 2_300.0, 2_310.0, Provenance::Measured));
        all[Symbol::Alpha.index()] = Quantity::within(0.1, 0.15, 0.2, Provenance::Assumed);
        let answer = project(all, Threading::Async);
        let first = answer.sensitivity[0];
        assert_eq!(first.symbol, Symbol::Alpha);
        assert!(first.variance_share > 0.99);
        let sum: f64 = answer.sensitivity.iter().map(|one| one.variance_share).sum();
        assert!((sum - 1.0).abs() < 1e-9);
        // d ln S / d ln alpha = alpha S for Async.
        assert!((first.elasticity - 0.15 * answer.speedup.value).abs() < 1e-3);
        assert!(answer.limits.contains(&Limit::Assumptions));
    }

    #[test]
    fn the_seed_decides_the_draws_and_hardly_the_answer() {
        let alpha = Quantity::within(0.1, 0.15, 0.2, Provenance::Measured);
        let mut all = with(Symbol::Alpha, alpha);
        all[Symbol::L.index()] = Quantity::range(1_000.0, 3_600.0, Provenance::Assumed);
        let case = Case::new(all, off_chip(Threading::SyncOs)).expect("valid");
        let [first, again, other] = [1, 1, 2].map(|seed| case.project(seed).expect("projects"));
        assert_eq!(first, again);
        let width = first.speedup.ci95.1 - first.speedup.ci95.0;
        assert!(width > 0.05);
        assert!((first.speedup.ci95.0 - other.speedup.ci95.0).abs() < 0.02 * width);
    }

    #[test]
    fn sizes_decide_n_alpha_and_break_even() {
        let bins = [(100, 5_379.0), (425, 5_643.0), (3_000, 3_986.0)];
        let sizes = SizeHistogram::from_sizes(bins).expect("valid");
        let rule = SizeRule { sizes, counted: Counted::ByCalls, objective: Objective::Speedup };
        let cycles = Quantity::within(5.0, 5.62, 6.0, Provenance::Measured);
        let case = Case::new(quantities(), off_chip(Threading::SyncOs)).expect("valid");
        let case = case.with_sizes(rule).with_cycles_per_byte(cycles).expect("valid");
        let answer = case.project(3).expect("projects");
        assert!((answer.offloads.value - 3_986.0).abs() < 1e-6);
        assert!((answer.alpha.value - 0.15 * 3_986.0 / 15_008.0).abs() < 1e-12);
        let bytes = answer.break_even_bytes.expect("C_b is known");
        assert!((bytes.value - 13_800.0 / 5.62).abs() < 1e-9);
        assert!(bytes.ci95.0 < 2_320.0 && bytes.ci95.1 > 2_700.0, "{bytes:?}");
        assert!(!answer.limits.contains(&Limit::SizesUnknown));
    }

    #[test]
    fn the_break_even_size_follows_the_objective() {
        let bytes = |objective| {
            let case = Case::new(quantities(), off_chip(Threading::SyncOs)).expect("valid");
            let cycles = Quantity::exact(5.62, Provenance::Configured);
            let case = case.with_cycles_per_byte(cycles).expect("valid").with_objective(objective);
            case.project(1).expect("projects").break_even_bytes.expect("C_b is known").value
        };
        // The speedup counts two switches and no time of the accelerator. The latency counts one switch and the
        // accelerator's time.
        assert!((bytes(Objective::Speedup) - 13_800.0 / 5.62).abs() < 1e-9);
        let latency = 8_050.0 / 5.62 / (1.0 - 1.0 / 27.0);
        assert!(
            (bytes(Objective::Latency) - latency).abs() < 1e-6,
            "{}",
            bytes(Objective::Latency)
        );
    }

    #[test]
    fn limits_say_what_is_lost() {
        let costly = with(Symbol::O1, Quantity::exact(57_500.0, Provenance::Configured));
        let lost = project(costly, Threading::SyncOs);
        assert!(lost.limits.contains(&Limit::SpeedupLost), "{:?}", lost.limits);
        let mut slow = with(Symbol::A, Quantity::exact(1.0, Provenance::Configured));
        slow[Symbol::L.index()].stated = 100.0;
        let slower = project(slow.clone(), Threading::Async);
        assert!(slower.limits.contains(&Limit::LatencyLost), "{:?}", slower.limits);
        slow[Symbol::Alpha.index()].stated = 0.6;
        let saturated = project(slow, Threading::Async);
        assert!(saturated.limits.contains(&Limit::AcceleratorSaturated), "{:?}", saturated.limits);
    }

    #[test]
    fn a_speedup_without_bound_is_refused() {
        let mut all = with(Symbol::Alpha, Quantity::exact(1.0, Provenance::Configured));
        all[Symbol::L.index()].stated = 0.0;
        let case = Case::new(all, off_chip(Threading::Async)).expect("valid");
        assert_eq!(case.project(1).expect_err("refused").field, "alpha");
    }

    #[test]
    fn bad_cases_are_refused() {
        let bad = with(Symbol::C, Quantity::exact(0.0, Provenance::Configured));
        assert_eq!(Case::new(bad, off_chip(Threading::Sync)).expect_err("refused").field, "C");
        let program =
            off_chip(Threading::AsyncDistinct).with_variant(crate::design::Variant::PublicProgram);
        assert!(Case::new(quantities(), program).is_err());
        let case = Case::new(quantities(), off_chip(Threading::Sync)).expect("valid");
        assert_eq!(case.with_beta(-1.0).expect_err("refused").field, "beta");
    }
}
