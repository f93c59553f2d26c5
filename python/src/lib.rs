//! The extension module of the Python package `rebate`: the crates `trace`, `sim`, `model` and `planner` with Python's
//! types at the edge. It computes nothing itself. Frames, sweeps and clusters are implemented in Python
//! (`python/rebate`).

mod conditions;
mod projection;
mod simulation;
mod traces;

use pyo3::prelude::*;

/// The extension module.
#[pymodule]
mod _rebate {
    #[pymodule_export]
    use crate::conditions::{Condition, Field};
    #[pymodule_export]
    use crate::projection::{evaluate, project};
    #[pymodule_export]
    use crate::simulation::{architectures, files, recording, scenarios, simulate, sources};
    #[pymodule_export]
    use crate::traces::{Block, Catalog, Path, Trace, format_text};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// Converts a problem with the input into Python's `ValueError`.
fn value_error(problem: impl ToString) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(problem.to_string())
}
