//! The model's answer to one query, in a form that can be serialized.

use model::program::PublicProgram;
use model::{
    Case, Estimate, Parameters, Projection, Provenance, Quantity, Spread, Symbol, Values, Variant,
};
use serde::Serialize;

use crate::query::{Published, Query, Sizes};

/// The answer to one query. Infinite numbers are null in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The id of the query, which is unique in its file.
    pub id: String,
    /// The name of the query, for people.
    pub name: String,
    /// The threading design.
    pub threading: &'static str,
    /// The place of the accelerator: on the chip, off the chip or remote.
    pub strategy: &'static str,
    /// The variant of the equations.
    pub variant: &'static str,
    /// The device profile whose costs were used.
    pub device: Option<String>,
    /// C / C_S: the throughput with the accelerator divided by the throughput without it.
    pub speedup: Ratio,
    /// C / C_L, the factor by which the latency falls. It is `None` with the variant of the public program.
    pub latency_reduction: Option<Ratio>,
    /// The smallest whole size for which an offload pays (bytes), or `None` if neither the kernel's cycles per byte
    /// (C_b) nor sizes are known.
    pub break_even_bytes: Option<Number>,
    /// The number of calls for which an offload pays, or `None` if the number of calls is unknown.
    pub offloads: Option<Number>,
    /// The number of all calls.
    pub calls: Option<f64>,
    /// The share of the cycles that belongs to calls for which an offload pays.
    pub alpha: Number,
    /// The sizes that decide which calls are offloaded, or `None` if every call counts as one that pays.
    pub sizes: Option<SizesUsed>,
    /// LogCA's answer for a single offload, or `None` if neither the kernel's cycles per byte (C_b) nor sizes are
    /// known. LogCA is an older model.
    pub logca: Option<LogCaSizes>,
    /// The parameter that causes most of the answer's uncertainty; `None` if every parameter is exact.
    pub measure_better: Option<&'static str>,
    /// The parameters. The first is the parameter whose better measurement would help most.
    pub parameters: Vec<ParameterUsed>,
    /// Effects that the answer ignores, and assumptions that it makes.
    pub limits: Vec<String>,
    /// Notes on how the given values were used.
    pub notes: Vec<String>,
    /// Results that others computed or measured for the same query.
    pub published: Option<Published>,
    /// The result that the public program prints (%), for queries in that program's form.
    pub public_program_percent: Option<f64>,
}

/// A gain: the host cycles (C) divided by the cycles that remain with the accelerator. Above 1, the accelerator helps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The estimate; `None` if only a range is known.
    pub value: Option<f64>,
    /// The 95 % interval of the estimate.
    pub ci95: Option<[f64; 2]>,
    /// The range if n and the sizes are unknown. It goes from no offloaded call to all calls offloaded at no cost.
    pub range: Option<[f64; 2]>,
}

/// A number with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Number {
    /// The estimate.
    pub value: f64,
    /// The 95 % interval of the estimate.
    pub ci95: [f64; 2],
}

impl From<Estimate> for Number {
    fn from(estimate: Estimate) -> Self {
        Self { value: estimate.value, ci95: [estimate.ci95.0, estimate.ci95.1] }
    }
}

/// The sizes of calls on which an answer is based.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizesUsed {
    /// The number of calls.
    pub calls: f64,
    /// The number of size classes.
    pub bins: usize,
    /// The provenance of the sizes: measured, configured or assumed.
    pub provenance: &'static str,
    /// The source of the sizes.
    pub source: Option<String>,
}

/// LogCA's result for one synchronous offload without queueing (bytes). A size is infinite if no size qualifies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LogCaSizes {
    /// The smallest whole size for which an offload pays.
    pub break_even_bytes: f64,
    /// The size above which the speedup of the offload exceeds half of the accelerator's peak speedup (A), or `None` if
    /// A is at most 2.
    pub half_acceleration_bytes: Option<f64>,
}

/// A parameter on which an answer is based.
#[derive(Clone, Debug, Serialize)]
pub struct ParameterUsed {
    /// The symbol of the parameter (\[Accelerometer\], table 5).
    pub symbol: &'static str,
    /// The value as stated.
    pub value: f64,
    /// The 95 % interval or the range of the value, or `None` if the value counts as exact.
    pub interval: Option<[f64; 2]>,
    /// The unit of the value.
    pub unit: &'static str,
    /// The provenance of the value: measured, configured or assumed.
    pub provenance: &'static str,
    /// The source of the value.
    pub source: Option<String>,
    /// The parameter's share of the variance of the speedup.
    pub variance_share: f64,
    /// The change of the speedup in percent for a change of the parameter by one percent.
    pub elasticity: f64,
}

/// Evaluates the model for one query. The same seed gives the same digits.
///
/// # Errors
/// A parameter is outside its valid range.
pub fn evaluate(query: Query, seed: u64) -> Result<Answer, String> {
    let share_alone = query.is_share_alone();
    let id = query.id.clone();
    let named = |error: model::BadParameter| format!("case {id}: {error}");
    let query = query.complete().map_err(named)?;
    let case = query.case().map_err(named)?;
    let projection = case.project(seed).map_err(named)?;
    let ratio = |estimate: Estimate| ratio(estimate, share_alone);
    let mut limits: Vec<String> =
        projection.limits.iter().map(|limit| limit.text().to_owned()).collect();
    if share_alone {
        limits = vec![
            "only a share of the cycles is known: n and the sizes decide where in the range the \
             answer lies (--sizes)"
                .to_owned(),
        ];
    }
    limits.extend(sizes_limits(query.sizes.as_ref()).map(str::to_owned));
    let first = projection.sensitivity.first().filter(|first| first.variance_share > 0.0);
    Ok(Answer {
        threading: query.design.threading.name(),
        strategy: query.design.strategy.name(),
        variant: query.design.variant.name(),
        speedup: ratio(projection.speedup),
        latency_reduction: projection.latency_reduction.map(ratio),
        break_even_bytes: projection.break_even_bytes.map(smallest),
        offloads: (!share_alone).then(|| projection.offloads.into()),
        calls: (!share_alone).then(|| query.stated(Symbol::N)).flatten(),
        alpha: projection.alpha.into(),
        sizes: query.sizes.as_ref().map(sizes_used),
        logca: if share_alone { None } else { logca(&query) },
        measure_better: first.map(|first| first.symbol.name()),
        parameters: parameters(&query, &case, &projection, share_alone),
        limits,
        public_program_percent: public_program(&query),
        id: query.id,
        name: query.name,
        device: query.device,
        notes: query.notes,
        published: query.published,
    })
}

/// Returns the limits that sizes add to an answer: its intervals do not cover errors of the sizes.
fn sizes_limits(sizes: Option<&Sizes>) -> impl Iterator<Item = &'static str> {
    let is_assumed = sizes.is_some_and(|sizes| sizes.provenance == Provenance::Assumed);
    let exact =
        sizes.map(|_| "the sizes are taken as exact: the interval says nothing of their errors");
    exact.into_iter().chain(is_assumed.then_some("the sizes are assumed"))
}

fn sizes_used(sizes: &Sizes) -> SizesUsed {
    SizesUsed {
        calls: sizes.histogram.calls(),
        bins: sizes.histogram.bins().len(),
        provenance: sizes.provenance.name(),
        source: sizes.source.clone(),
    }
}

fn logca(query: &Query) -> Option<LogCaSizes> {
    let logca = query.logca()?;
    let whole =
        |from: model::BreakEven| from.smallest_bytes().map_or(f64::INFINITY, |bytes| bytes as f64);
    let has_half = query.stated(Symbol::A).is_some_and(|a| a > 2.0);
    Some(LogCaSizes {
        break_even_bytes: whole(logca.break_even()),
        half_acceleration_bytes: has_half.then(|| whole(logca.half_acceleration())),
    })
}

fn ratio(estimate: Estimate, share_alone: bool) -> Ratio {
    let (low, high) = estimate.ci95;
    if share_alone {
        return Ratio { value: None, ci95: None, range: Some([1.0, high]) };
    }
    Ratio { value: Some(estimate.value), ci95: Some([low, high]), range: None }
}

/// Returns the next whole number of bytes above the bound, because an offload of exactly the bound does not pay.
fn smallest(estimate: Estimate) -> Number {
    let above = |bytes: f64| bytes.floor() + 1.0;
    let (low, high) = estimate.ci95;
    Number { value: above(estimate.value), ci95: [above(low), above(high)] }
}

fn parameters(
    query: &Query,
    case: &Case,
    projection: &Projection,
    share_alone: bool,
) -> Vec<ParameterUsed> {
    let shown = projection
        .sensitivity
        .iter()
        .filter(|one| !share_alone || matches!(one.symbol, Symbol::Alpha | Symbol::A));
    let used = |one: &model::Sensitivity| {
        let quantity = case.quantity(one.symbol)?;
        Some(ParameterUsed {
            symbol: one.symbol.name(),
            value: quantity.stated,
            interval: interval(quantity),
            unit: one.symbol.unit(),
            provenance: one.provenance.name(),
            source: query.parameters.get(&one.symbol).and_then(|given| given.source.clone()),
            variance_share: one.variance_share,
            elasticity: one.elasticity,
        })
    };
    shown.filter_map(used).collect()
}

fn interval(quantity: &Quantity) -> Option<[f64; 2]> {
    match &quantity.spread {
        Spread::Exact => None,
        Spread::Interval { low, high } | Spread::Range { low, high } => Some([*low, *high]),
        Spread::Draws(draws) => Some([*draws.first()?, *draws.last()?]),
    }
}

/// Returns the number that the public program would print, or `None` if that program does not know the design.
fn public_program(query: &Query) -> Option<f64> {
    if !query.of_program {
        return None;
    }
    let design = query.design.with_variant(Variant::PublicProgram);
    design.check().ok()?;
    let stated = |symbol| query.stated(symbol).unwrap_or(f64::NAN);
    let values = Values {
        c: stated(Symbol::C),
        alpha: stated(Symbol::Alpha),
        n: stated(Symbol::N),
        o0: stated(Symbol::O0),
        q: stated(Symbol::Q),
        l: stated(Symbol::L),
        o1: stated(Symbol::O1),
        a: stated(Symbol::A),
    };
    let parameters = Parameters::new(values).ok()?;
    Some(PublicProgram::from(&parameters).percent(query.design.threading))
}

/// Returns an alpha that was measured by sampling: the share, with Wilson's 95 % interval for that number of binomial
/// samples.
pub(crate) fn sampled_share(share: f64, samples: f64) -> Quantity {
    let n = samples.max(1.0);
    let z2 = Z * Z;
    let centre = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let reach = Z / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    let (low, high) = ((centre - reach).clamp(0.0, share), (centre + reach).clamp(share, 1.0));
    Quantity::within(low, share, high, Provenance::Measured)
}

const Z: f64 = 1.959_964;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sampled_share_is_as_sure_as_its_samples() {
        let wilson = sampled_share(0.1, 100.0);
        let Spread::Interval { low, high } = wilson.spread else { panic!("{wilson:?}") };
        // This is the textbook interval for 10 of 100.
        assert!((low - 0.0552).abs() < 1e-4 && (high - 0.1744).abs() < 1e-4, "{low} {high}");
        assert!(sampled_share(0.0, 10.0).check(Symbol::Alpha).is_ok());
        assert!(sampled_share(1.0, 10.0).check(Symbol::Alpha).is_ok());
    }
}
