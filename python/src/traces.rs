//! The builder of traces, and catalogs with their queries. As in the Rust crate `trace`, a block is open at
//! its end, a path has an end, and a trace needs a path. Every call returns a new value.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use trace::{Base, BranchArm, Draft, Fault, Format, Head, Owner, TextError};
use units::{Nanos, Op};

use crate::conditions::Asked;
use crate::value_error;

/// Adds this file's types and functions to the extension module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Block>()?;
    module.add_class::<Catalog>()?;
    module.add_class::<Path>()?;
    module.add_class::<Trace>()?;
    module.add_function(wrap_pyfunction!(format_text, module)?)
}

/// A part of a trace after which more must follow.
#[pyclass(frozen, module = "rebate.traces")]
pub(crate) struct Block(trace::Block);

/// A part of a trace that ends with a notification or with another trace.
#[pyclass(frozen, module = "rebate.traces")]
pub(crate) struct Path(trace::Path);

/// An arm of a branch.
#[derive(FromPyObject)]
enum Side<'py> {
    #[pyo3(transparent)]
    Block(PyRef<'py, Block>),
    #[pyo3(transparent)]
    Path(PyRef<'py, Path>),
}

impl Side<'_> {
    fn arm(&self) -> BranchArm {
        match self {
            Side::Block(block) => block.0.clone().into(),
            Side::Path(path) => path.0.clone().into(),
        }
    }
}

#[pymethods]
impl Block {
    /// Creates an empty block. As an arm of a branch it does nothing.
    #[new]
    fn new() -> Self {
        Self(trace::Block::empty())
    }

    /// Adds ops, one after the other.
    #[pyo3(signature = (*ops))]
    fn seq(&self, ops: Vec<String>) -> PyResult<Self> {
        let ops = ops.iter().map(|name| op(name)).collect::<PyResult<Vec<Op>>>()?;
        Ok(Self(self.0.clone().seq(ops)))
    }

    /// Adds one op with its soft deadline (ns from the start of the trace, or of the first trace if traces continue
    /// each other).
    fn due(&self, name: &str, due_ns: u64) -> PyResult<Self> {
        Ok(Self(self.0.clone().due(op(name)?, Nanos(due_ns))))
    }

    /// Adds a change of the payload's base format.
    fn trans(&self, src: &str, dst: &str) -> PyResult<Self> {
        Ok(Self(self.0.clone().trans(base(src)?, base(dst)?)))
    }

    /// Adds a choice between two arms. The next parts continue each open arm. Without `on_false` the second arm does
    /// nothing.
    #[pyo3(signature = (condition, on_true, on_false = None))]
    fn branch(&self, condition: Asked<'_>, on_true: Side<'_>, on_false: Option<Side<'_>>) -> Self {
        let other = on_false.map_or_else(|| trace::Block::empty().into(), |side| side.arm());
        Self(self.0.clone().branch(condition.condition(), on_true.arm(), other))
    }

    /// Ends the path with a choice between two arms that have an end.
    fn either(&self, condition: Asked<'_>, on_true: &Path, on_false: &Path) -> Path {
        let (on_true, on_false) = (on_true.0.clone(), on_false.0.clone());
        Path(self.0.clone().either(condition.condition(), on_true, on_false))
    }

    /// Ends the path with several arms that run at the same time. Each arm has its own end.
    #[pyo3(signature = (*arms))]
    fn fork(&self, arms: Vec<PyRef<'_, Path>>) -> Path {
        Path(self.0.clone().fork(arms.iter().map(|path| path.0.clone())))
    }

    /// Adds several arms that run at the same time. The next parts wait for all arms.
    #[pyo3(signature = (*arms))]
    fn join(&self, arms: Vec<PyRef<'_, Block>>) -> Self {
        Self(self.0.clone().join(arms.iter().map(|block| block.0.clone())))
    }

    /// Ends the path by notifying the core that started the trace.
    fn notify(&self) -> Path {
        Path(self.0.clone().notify())
    }

    /// Ends the path by continuing with the named trace at once.
    fn tail(&self, trace: String) -> Path {
        Path(self.0.clone().tail(trace))
    }

    /// Ends the path. The named trace continues when the reply to the sent message arrives.
    #[pyo3(signature = (trace, within_ns = None))]
    fn wait(&self, trace: String, within_ns: Option<u64>) -> Path {
        Path(self.0.clone().wait(trace, within_ns.map(Nanos)))
    }
}

/// A named program of ops.
#[pyclass(frozen, module = "rebate.traces")]
pub(crate) struct Trace(trace::Trace);

#[pymethods]
impl Trace {
    /// Creates a trace for payloads of a format such as `encrypted(message(protobuf))`.
    #[new]
    fn new(name: String, takes: &str, path: &Path) -> PyResult<Self> {
        let takes: Format = takes.parse().map_err(value_error)?;
        Ok(Self(trace::Trace::new(name, takes, path.0.clone())))
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn takes(&self) -> String {
        self.0.takes.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Trace({:?}, takes={})", self.0.name, self.0.takes)
    }
}

/// A set of fields, traces and services that has passed all checks.
#[pyclass(frozen, module = "rebate.traces")]
pub(crate) struct Catalog(trace::Catalog);

#[pymethods]
impl Catalog {
    /// Checks traces together with the fields that they read. `ValueError` names every fault.
    #[new]
    #[pyo3(signature = (traces, *, flags = Vec::new(), numbers = Vec::new(), base = None))]
    fn new(
        traces: Vec<PyRef<'_, Trace>>,
        flags: Vec<String>,
        numbers: Vec<String>,
        base: Option<&Self>,
    ) -> PyResult<Self> {
        let mut draft = base.map_or_else(Draft::default, |base| base.0.clone().into_draft());
        draft = flags.into_iter().fold(draft, Draft::flag);
        draft = numbers.into_iter().fold(draft, Draft::number);
        draft = traces.into_iter().fold(draft, |draft, trace| draft.trace(trace.0.clone()));
        draft.clone().check().map(Self).map_err(|faults| {
            let lines = faults.iter().map(|fault| line(&draft, fault));
            value_error(lines.collect::<Vec<_>>().join("\n"))
        })
    }

    /// Reads a catalog from its text. `ValueError` names the line, the column and what was expected.
    #[staticmethod]
    #[pyo3(signature = (text, name = "text"))]
    fn read(text: &str, name: &str) -> PyResult<Self> {
        trace::read(&[(name, text)]).map(Self).map_err(|errors| {
            let lines = errors.iter().map(TextError::to_string);
            value_error(lines.collect::<Vec<_>>().join("\n"))
        })
    }

    /// Returns the twelve templates and eight services of the AccelFlow paper.
    #[staticmethod]
    fn accelflow() -> Self {
        Self(trace::accelflow())
    }

    /// Returns the names of the traces, in the order of their addresses.
    #[getter]
    fn traces(&self) -> Vec<&str> {
        self.0.traces().iter().map(|trace| trace.name.as_str()).collect()
    }

    /// Returns the names of the services.
    #[getter]
    fn services(&self) -> Vec<&str> {
        self.0.services().iter().map(|service| service.name.as_str()).collect()
    }

    /// Returns the number of ops that one request of a service invokes.
    fn invocations(&self, service: &str) -> PyResult<u64> {
        let found = self.0.service(service).ok_or_else(|| {
            let names = self.services().join(", ");
            value_error(format!("no service is called {service:?}; there are: {names}"))
        })?;
        Ok(self.0.invocations(found))
    }

    /// Returns the canonical text of the catalog.
    fn text(&self) -> String {
        trace::print(&self.0.clone().into_draft())
    }

    /// Describes what a trace does, step by step.
    fn explain(&self, trace: &str) -> PyResult<String> {
        Ok(trace::explain(&self.0, self.found(trace)?))
    }

    /// Returns the bytes of a trace (docs/format.md).
    #[pyo3(signature = (trace, *, tenant = 0, mark = 0))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        trace: &str,
        tenant: u16,
        mark: u8,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.0.encode(trace, Head { tenant, mark }).map_err(value_error)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Decodes a trace from its bytes.
    fn decode(&self, name: &str, bytes: &[u8]) -> PyResult<Trace> {
        self.0.decode(name, bytes).map(|(trace, _)| Trace(trace)).map_err(value_error)
    }

    /// Draws traces as one SVG document.
    #[pyo3(signature = (*traces))]
    fn svg(&self, traces: Vec<String>) -> PyResult<String> {
        Ok(trace::draw::svg(&self.chosen(&traces)?))
    }

    /// Draws traces for Graphviz.
    #[pyo3(signature = (*traces))]
    fn dot(&self, traces: Vec<String>) -> PyResult<String> {
        Ok(trace::draw::dot(&self.chosen(&traces)?))
    }

    fn __repr__(&self) -> String {
        let (traces, services) = (self.0.traces().len(), self.0.services().len());
        format!("Catalog({traces} traces, {services} services)")
    }
}

impl Catalog {
    fn found(&self, trace: &str) -> PyResult<&trace::Trace> {
        self.0.trace(trace).ok_or_else(|| {
            let names = self.traces().join(", ");
            value_error(format!("no trace is called {trace:?}; there are: {names}"))
        })
    }

    /// Returns the traces with these names, or all traces if there are no names.
    fn chosen(&self, names: &[String]) -> PyResult<Vec<&trace::Trace>> {
        if names.is_empty() {
            return Ok(self.0.traces().iter().collect());
        }
        names.iter().map(|name| self.found(name)).collect()
    }
}

/// Formats a text in its canonical layout and keeps the comments.
#[pyfunction]
pub(crate) fn format_text(text: &str) -> PyResult<String> {
    trace::format("text", text).map_err(value_error)
}

/// Formats a fault with the name of its part. A draft has no text, so the message has no line number.
fn line(draft: &Draft, fault: &Fault) -> String {
    let owner = match fault.owner {
        Owner::Field(index) => format!("field {}", draft.fields[index].name),
        Owner::Trace(index) => format!("trace {}", draft.traces[index].name),
        Owner::Service(index) => format!("service {}", draft.services[index].name),
    };
    let node = fault.node.map_or(String::new(), |node| format!(", node {}", node + 1));
    format!("{owner}{node}: {}", fault.what)
}

fn op(name: &str) -> PyResult<Op> {
    Op::ALL.into_iter().find(|op| op.name() == name).ok_or_else(|| {
        let names = Op::ALL.map(Op::name).join(", ");
        value_error(format!("no op is called {name:?}; there are: {names}"))
    })
}

fn base(name: &str) -> PyResult<Base> {
    Base::ALL.into_iter().find(|base| base.name() == name).ok_or_else(|| {
        let names = Base::ALL.map(Base::name).join(", ");
        value_error(format!("no format is called {name:?}; there are: {names}"))
    })
}
