//! A catalog: fields, traces and services that belong together and have passed all checks. The
//! index of a trace is its address, and the index of a field is its slot.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::{self, Formats, Scope};
use crate::decode::{self, DecodeError, Symbols};
use crate::encode::{self, EncodeError, Head, Names};
use crate::fault::{Fault, Owner, What, hint};
use crate::limits::{FIELDS_MAX, NAME_BYTES_MAX, SERVICES_MAX, TRACES_MAX};
use crate::service::{self, Service, Stage};
use crate::text::is_reserved;
use crate::tree::{End, Field, FieldKind, Node, Trace};
use crate::walk::walk;

/// Fields, traces and services that are not checked yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// The fields that branches may read. A field's slot is its index.
    pub fields: Vec<Field>,
    /// The traces. A trace's address is its index.
    pub traces: Vec<Trace>,
    /// The services.
    pub services: Vec<Service>,
}

/// Fields, traces and services without faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    draft: Draft,
    addresses: BTreeMap<String, u16>,
    slots: BTreeMap<String, u8>,
}

impl Draft {
    /// Declares a flag.
    #[must_use]
    pub fn flag(self, name: impl Into<String>) -> Draft {
        self.field(name, FieldKind::Flag)
    }

    /// Declares a number.
    #[must_use]
    pub fn number(self, name: impl Into<String>) -> Draft {
        self.field(name, FieldKind::Number)
    }

    fn field(mut self, name: impl Into<String>, kind: FieldKind) -> Draft {
        self.fields.push(Field { name: name.into(), kind });
        self
    }

    /// Adds a trace.
    #[must_use]
    pub fn trace(mut self, trace: Trace) -> Draft {
        self.traces.push(trace);
        self
    }

    /// Adds a service.
    #[must_use]
    pub fn service(mut self, service: Service) -> Draft {
        self.services.push(service);
        self
    }

    /// Checks the whole draft.
    ///
    /// # Errors
    /// Returns all faults, ordered by fields, traces and services.
    pub fn check(self) -> Result<Catalog, Vec<Fault>> {
        let mut faults = self.names();
        let scope = Scope { fields: &self.fields, traces: &self.traces };
        for (index, trace) in self.traces.iter().enumerate() {
            faults.extend(check::check(trace, index, scope).0);
        }
        faults.extend(cycles(&self.traces));
        if faults.is_empty() {
            for (index, service) in self.services.iter().enumerate() {
                faults.extend(service::check(service, index, scope));
            }
        }
        if !faults.is_empty() {
            scope.add_hints(&mut faults);
            return Err(faults);
        }
        let addresses = self.traces.iter().zip(0..).map(|(trace, at)| (trace.name.clone(), at));
        let slots = self.fields.iter().zip(0..=u8::MAX).map(|(field, at)| (field.name.clone(), at));
        let (addresses, slots) = (addresses.collect(), slots.collect());
        Ok(Catalog { draft: self, addresses, slots })
    }

    fn names(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let fields = self.fields.iter().map(|field| &field.name);
        let traces = self.traces.iter().map(|trace| &trace.name);
        let services = self.services.iter().map(|service| &service.name);
        faults.extend(unique(fields, "fields", FIELDS_MAX, Owner::Field));
        faults.extend(unique(traces, "traces", TRACES_MAX, Owner::Trace));
        faults.extend(unique(services, "services", SERVICES_MAX, Owner::Service));
        faults
    }
}

fn unique<'a>(
    names: impl ExactSizeIterator<Item = &'a String>,
    what: &'static str,
    max: usize,
    owner: impl Fn(usize) -> Owner,
) -> Vec<Fault> {
    let count = names.len();
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, name) in names.enumerate() {
        let fault = |what| Fault { owner: owner(index), node: None, what };
        if !is_name(name) {
            faults.push(fault(What::BadName(name.clone())));
        } else if !seen.insert(name) {
            faults.push(fault(What::Twice(name.clone())));
        }
        if index == max {
            faults.push(fault(What::TooMany { what, count, max }));
            break;
        }
    }
    faults
}

/// Returns whether `name` can be a name in the text form.
fn is_name(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let goes_on = name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    starts && goes_on && name.len() <= NAME_BYTES_MAX && !is_reserved(name)
}

/// Returns a fault for every cycle of traces that continue with each other at once (`tail`). Each
/// cycle is reported once, at the tail that closes it.
fn cycles(traces: &[Trace]) -> Vec<Fault> {
    let index: BTreeMap<&str, usize> =
        traces.iter().enumerate().map(|(at, trace)| (trace.name.as_str(), at)).collect();
    // The traces with which each trace continues at once, each with the index of the node that
    // names it.
    let edges: Vec<Vec<(usize, usize)>> = traces
        .iter()
        .map(|trace| {
            let (mut edges, mut node) = (Vec::new(), 0);
            trace.visit(&mut |found, _| {
                if let Node::End(End::Tail(target)) = found {
                    edges.extend(index.get(target.as_str()).map(|target| (*target, node)));
                }
                node += 1;
            });
            edges
        })
        .collect();
    let mut faults = Vec::new();
    let mut done = vec![false; traces.len()];
    for start in 0..traces.len() {
        // The path from `start`, each trace with the edge to follow next. A loop is used instead of
        // recursion, because chains may be long.
        let mut path: Vec<(usize, usize)> = if done[start] { Vec::new() } else { vec![(start, 0)] };
        while let Some((at, edge)) = path.last_mut() {
            let Some((target, node)) = edges[*at].get(*edge).copied() else {
                done[*at] = true;
                path.pop();
                continue;
            };
            *edge += 1;
            let from = *at;
            if let Some(first) = path.iter().position(|(on_path, _)| *on_path == target) {
                let ring = path[first..].iter().map(|(at, _)| traces[*at].name.as_str());
                let ring: Vec<&str> = ring.chain([traces[target].name.as_str()]).collect();
                let what = What::Cycle(ring.join(" -> "));
                faults.push(Fault { owner: Owner::Trace(from), node: Some(node), what });
            } else if !done[target] {
                path.push((target, 0));
            }
        }
    }
    faults
}

impl Catalog {
    /// Returns the fields that branches may read.
    pub fn fields(&self) -> &[Field] {
        &self.draft.fields
    }

    /// Returns the traces, each at its address.
    pub fn traces(&self) -> &[Trace] {
        &self.draft.traces
    }

    /// Returns the services.
    pub fn services(&self) -> &[Service] {
        &self.draft.services
    }

    /// Returns the trace with this name.
    pub fn trace(&self, name: &str) -> Option<&Trace> {
        self.draft.traces.get(usize::from(self.address(name)?))
    }

    /// Returns the address of the trace with this name.
    pub fn address(&self, name: &str) -> Option<u16> {
        self.addresses.get(name).copied()
    }

    /// Returns the service with this name.
    pub fn service(&self, name: &str) -> Option<&Service> {
        self.draft.services.iter().find(|service| service.name == name)
    }

    /// Returns the draft, so that more can be added to it.
    pub fn into_draft(self) -> Draft {
        self.draft
    }

    /// Returns the encoding of a trace, in the format of docs/format.md.
    ///
    /// # Errors
    /// Fails if no trace has this name, or if the trace has no step at the position mark of `head`.
    pub fn encode(&self, name: &str, head: Head) -> Result<Vec<u8>, EncodeError> {
        let trace = self.trace(name).ok_or_else(|| {
            let names = self.addresses.keys().map(String::as_str);
            EncodeError::UnknownTrace { name: name.to_owned(), hint: hint(name, names) }
        })?;
        let steps = trace.invocations();
        if usize::from(head.mark) >= steps {
            let (mark, name) = (head.mark, name.to_owned());
            return Err(EncodeError::Mark { mark, name, last: steps - 1 });
        }
        Ok(encode::encode(trace, head, self))
    }

    /// Returns the trace that these bytes encode, and its head. The trace is checked against the
    /// fields and traces of this catalog, except for cycles of tails. They are found when the
    /// trace is added to a catalog.
    ///
    /// # Errors
    /// Returns the reason why the bytes are not a valid trace.
    pub fn decode(&self, name: &str, bytes: &[u8]) -> Result<(Trace, Head), DecodeError> {
        let (trace, head) = decode::decode(name, bytes, self)?;
        let (faults, _) = check::check(&trace, 0, self.scope());
        match faults.into_iter().next() {
            Some(fault) => Err(DecodeError::Unsound(fault.what)),
            None => Ok((trace, head)),
        }
    }

    /// Returns the number of ops that a request of the service invokes.
    pub fn invocations(&self, service: &Service) -> u64 {
        self.stages(&service.path)
    }

    fn stages(&self, path: &[Stage]) -> u64 {
        let count = |stage: &Stage| match stage {
            Stage::Cpu => 0,
            Stage::Parallel { times, path } => u64::from(*times) * self.stages(path),
            Stage::Run { trace, with } => self.trace(trace).map_or(0, |trace| {
                let mut read = |field: &str| u32::from(with.iter().any(|flag| flag == field));
                walk(trace, &mut read).ops.len() as u64
            }),
        };
        path.iter().map(count).sum()
    }

    pub(crate) fn formats(&self, trace: &Trace) -> Vec<Formats> {
        check::check(trace, 0, self.scope()).1
    }

    fn scope(&self) -> Scope<'_> {
        Scope { fields: &self.draft.fields, traces: &self.draft.traces }
    }
}

impl Names for Catalog {
    fn slot(&self, field: &str) -> u8 {
        self.slots.get(field).copied().expect("checked: every field is declared")
    }

    fn address(&self, trace: &str) -> u16 {
        self.addresses.get(trace).copied().expect("checked: every trace is there")
    }
}

impl Symbols for Catalog {
    fn field(&self, slot: u8) -> Option<&str> {
        self.draft.fields.get(usize::from(slot)).map(|field| field.name.as_str())
    }

    fn trace(&self, address: u16) -> Option<&str> {
        self.draft.traces.get(usize::from(address)).map(|trace| trace.name.as_str())
    }
}
