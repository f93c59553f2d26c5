//! The extension module of the Python package `rebate`. It converts between Python's types and those of the crates
//! `trace`, `sim`, `model`, `planner` and `rebate-client`, and computes nothing itself. Frames, sweeps and clusters are
//! implemented in Python (`python/rebate`).

mod client;
mod conditions;
mod projection;
mod simulation;
mod traces;

use pyo3::prelude::*;

/// Fills the extension module.
#[pymodule]
fn _rebate(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    client::add(module)?;
    conditions::add(module)?;
    projection::add(module)?;
    simulation::add(module)?;
    traces::add(module)
}

/// Converts a problem with the input into Python's `ValueError`.
fn value_error(problem: impl ToString) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(problem.to_string())
}
