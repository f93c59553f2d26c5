//! What the Python package `rebate` is made of: the crates `trace`, `sim`, `model` and `planner` as they are, with
//! Python's types at the edge. Nothing is computed here; frames, sweeps and clusters are Python's (`python/rebate`).

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

/// Bad input, as Python names it.
fn value_error(problem: impl ToString) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(problem.to_string())
}
