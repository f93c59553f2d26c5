//! Calls the model and the planner. A number is given as a stated value, or as (low, stated, high) with a 95 %
//! interval. A request to the planner uses the words of `rebate model`, and its outcome is the same JSON.

use std::path::PathBuf;
use std::time::Duration;

use model::{
    Case, Design, Estimate, Projection, Provenance, Quantity, SizeHistogram, SizeRule, Strategy,
    Threading, Variant,
};
use planner::profile::ProfileInput;
use planner::{Changes, Error, Request, Source};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::value_error;

/// Adds this file's types and functions to the extension module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(evaluate, module)?)?;
    module.add_function(wrap_pyfunction!(project, module)?)
}

/// A parameter as the caller states it: an exact value, or (low, stated, high).
#[derive(FromPyObject)]
pub(crate) enum Stated {
    #[pyo3(transparent)]
    Exact(f64),
    #[pyo3(transparent)]
    Within((f64, f64, f64)),
}

impl Stated {
    fn quantity(&self) -> Quantity {
        match *self {
            Stated::Exact(value) => Quantity::exact(value, Provenance::Configured),
            Stated::Within((low, stated, high)) => {
                Quantity::within(low, stated, high, Provenance::Configured)
            }
        }
    }
}

/// Returns the projection of one case. `parameters` are C, alpha, n, o0, Q, L, o1 and A, in that order.
#[pyfunction]
#[pyo3(signature = (
    parameters, *, threading, strategy, variant, awaits_transfer, cycles_per_byte, beta, sizes,
    counted, objective, seed
))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn project<'py>(
    py: Python<'py>,
    parameters: [Stated; 8],
    threading: &str,
    strategy: &str,
    variant: &str,
    awaits_transfer: Option<bool>,
    cycles_per_byte: Option<Stated>,
    beta: f64,
    sizes: Option<Vec<(u64, f64)>>,
    counted: &str,
    objective: &str,
    seed: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let threading: Threading = threading.parse().map_err(value_error)?;
    let strategy: Strategy = strategy.parse().map_err(value_error)?;
    let variant: Variant = variant.parse().map_err(value_error)?;
    let mut design = Design::new(threading, strategy).with_variant(variant);
    design.awaits_transfer = awaits_transfer.unwrap_or(design.awaits_transfer);
    let quantities = parameters.map(|stated| stated.quantity());
    let mut case = Case::new(quantities, design).map_err(value_error)?;
    case = case.with_beta(beta).map_err(value_error)?;
    if let Some(stated) = cycles_per_byte {
        case = case.with_cycles_per_byte(stated.quantity()).map_err(value_error)?;
    }
    let counted = planner::counted(counted).map_err(value_error)?;
    let objective = planner::objective(objective).map_err(value_error)?;
    if let Some(sizes) = sizes {
        let sizes = SizeHistogram::from_sizes(sizes).map_err(value_error)?;
        case = case.with_sizes(SizeRule { sizes, counted, objective });
    }
    let projection = py.detach(|| case.project(seed)).map_err(value_error)?;
    answer(py, &projection)
}

/// Returns the outcome of a request to the planner, as JSON. `source` is `file`, `profile` or `scheduler`, and `place`
/// is a path, a name or an address.
#[pyfunction]
#[pyo3(signature = (
    source, place, *, rules, kernel, cycles, calls, last_s, threading, strategy, variant, sizes, op,
    clock_ghz, devices, seed
))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn evaluate(
    py: Python<'_>,
    source: &str,
    place: String,
    rules: Option<PathBuf>,
    kernel: Option<String>,
    cycles: Option<f64>,
    calls: Option<f64>,
    last_s: f64,
    threading: Option<String>,
    strategy: Option<String>,
    variant: Option<String>,
    sizes: Option<PathBuf>,
    op: Option<String>,
    clock_ghz: Option<f64>,
    devices: Vec<String>,
    seed: u64,
) -> PyResult<String> {
    let source = match source {
        "profile" => {
            let input = ProfileInput::Path(place.into());
            Source::Profile { input, rules, kernel, cycles, calls }
        }
        "scheduler" => Source::Scheduler {
            address: place.parse().map_err(value_error)?,
            last: Duration::try_from_secs_f64(last_s).map_err(value_error)?,
            login: None,
        },
        _ => Source::Parameters(place.into()),
    };
    let changes = Changes { threading, strategy, variant, sizes, op, clock_ghz, devices };
    let request = Request { source, changes, seed };
    let raised = |error: Error| match error {
        Error::Input(problem) => value_error(problem),
        Error::Scheduler(problem) => PyRuntimeError::new_err(problem),
    };
    let outcome = py.detach(|| request.evaluate()).map_err(raised)?;
    if let Some(error) = outcome.unanswered {
        return Err(raised(error));
    }
    serde_json::to_string(&outcome).map_err(value_error)
}

fn answer<'py>(py: Python<'py>, projection: &Projection) -> PyResult<Bound<'py, PyDict>> {
    let flat = |estimate: Estimate| (estimate.value, estimate.ci95.0, estimate.ci95.1);
    let dict = PyDict::new(py);
    dict.set_item("speedup", flat(projection.speedup))?;
    dict.set_item("latency_reduction", projection.latency_reduction.map(flat))?;
    dict.set_item("offloads", flat(projection.offloads))?;
    dict.set_item("alpha", flat(projection.alpha))?;
    dict.set_item("break_even_bytes", projection.break_even_bytes.map(flat))?;
    let sensitivity = projection.sensitivity.iter();
    let row = |one: &model::Sensitivity| (one.symbol.name(), one.variance_share, one.elasticity);
    dict.set_item("sensitivity", sensitivity.map(row).collect::<Vec<_>>())?;
    let limits = projection.limits.iter().map(|limit| limit.text());
    dict.set_item("limits", limits.collect::<Vec<_>>())?;
    Ok(dict)
}
