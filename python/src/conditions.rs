//! The conditions of a branch on a payload, with Python's operators: `field("tries") < 3`, `a & b`, `a | b`, `~a`. A
//! new catalog checks that the fields exist.

use pyo3::basic::CompareOp;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::value_error;

/// Adds this file's types and functions to the extension module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Condition>()?;
    module.add_class::<Field>()
}

/// A field of a payload that branches may read. Alone it is a flag, and in a comparison it is a number.
#[pyclass(frozen, module = "rebate.traces")]
pub(crate) struct Field {
    name: String,
}

#[pymethods]
impl Field {
    #[new]
    fn new(name: String) -> Self {
        Self { name }
    }

    fn __richcmp__(&self, literal: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Condition> {
        let literal: u32 = literal.extract().map_err(|_| {
            value_error(format!("{literal:?} is no whole number from 0 to {}", u32::MAX))
        })?;
        let comparison = match op {
            CompareOp::Eq => trace::Comparison::Equal,
            CompareOp::Ne => trace::Comparison::NotEqual,
            CompareOp::Lt => trace::Comparison::Below,
            CompareOp::Le => trace::Comparison::AtMost,
            CompareOp::Gt => trace::Comparison::Above,
            CompareOp::Ge => trace::Comparison::AtLeast,
        };
        Ok(Condition(trace::Condition::number(&self.name, comparison, literal)))
    }

    fn __and__(&self, other: Asked<'_>) -> Condition {
        Condition(self.flag().and(other.condition()))
    }

    fn __or__(&self, other: Asked<'_>) -> Condition {
        Condition(self.flag().or(other.condition()))
    }

    fn __invert__(&self) -> Condition {
        Condition(self.flag().not())
    }

    fn __bool__(&self) -> PyResult<bool> {
        Err(no_truth())
    }

    fn __repr__(&self) -> String {
        format!("field({:?})", self.name)
    }
}

impl Field {
    fn flag(&self) -> trace::Condition {
        trace::Condition::flag(&self.name)
    }
}

/// A logical expression of flags and comparisons of numbers.
#[pyclass(frozen, module = "rebate.traces")]
pub(crate) struct Condition(trace::Condition);

#[pymethods]
impl Condition {
    fn __and__(&self, other: Asked<'_>) -> Condition {
        Condition(self.0.clone().and(other.condition()))
    }

    fn __or__(&self, other: Asked<'_>) -> Condition {
        Condition(self.0.clone().or(other.condition()))
    }

    fn __invert__(&self) -> Condition {
        Condition(self.0.clone().not())
    }

    fn __bool__(&self) -> PyResult<bool> {
        Err(no_truth())
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}

/// Returns the error for `and`, `or` and `not`. They need a truth value, which a condition has only for a payload.
fn no_truth() -> PyErr {
    PyTypeError::new_err("a condition is true or false of a payload only; use &, | and ~")
}

/// A value that can be used as a condition: a condition, a flag, or the name of a flag.
#[derive(FromPyObject)]
pub(crate) enum Asked<'py> {
    #[pyo3(transparent)]
    Condition(PyRef<'py, Condition>),
    #[pyo3(transparent)]
    Field(PyRef<'py, Field>),
    #[pyo3(transparent)]
    Flag(String),
}

impl Asked<'_> {
    pub(crate) fn condition(&self) -> trace::Condition {
        match self {
            Asked::Condition(condition) => condition.0.clone(),
            Asked::Field(field) => field.flag(),
            Asked::Flag(name) => trace::Condition::flag(name),
        }
    }
}
