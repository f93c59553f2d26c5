//! Describes a service by its path: the traces that most of its requests run, in order, and the
//! places where a core works in between. A path contains no times.

use crate::check::Scope;
use crate::fault::{Fault, Owner, What};
use crate::limits::{DEPTH_MAX, PARALLEL_MAX};
use crate::tree::{End, FieldKind, Node};
use crate::walk::walk;

/// A service and the path that most of its requests take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The name of the service.
    pub name: String,
    /// The stages that a request runs, in order.
    pub path: Vec<Stage>,
}

/// A part of a service's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A trace runs. The named flags are set in its payload, and all other fields are zero.
    Run {
        /// The trace.
        trace: String,
        /// The flags that are set.
        with: Vec<String>,
    },
    /// A core works.
    Cpu,
    /// Several copies of a path run at the same time.
    Parallel {
        /// The number of copies.
        times: u32,
        /// The path of each copy.
        path: Vec<Stage>,
    },
}

impl Service {
    /// Calls `visit` with every stage and its depth, in the order of the text.
    pub fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Stage, usize)) {
        visit_stages(&self.path, 0, visit);
    }
}

fn visit_stages<'a>(stages: &'a [Stage], depth: usize, visit: &mut dyn FnMut(&'a Stage, usize)) {
    for stage in stages {
        visit(stage, depth);
        if let Stage::Parallel { path, .. } = stage {
            visit_stages(path, depth + 1, visit);
        }
    }
}

/// Returns the faults of a service. The catalog's traces must be without faults.
pub(crate) fn check(service: &Service, index: usize, scope: Scope<'_>) -> Vec<Fault> {
    let mut check = Check { scope, owner: Owner::Service(index), next: 0, faults: Vec::new() };
    let mut deepest = 0;
    service.visit(&mut |_, depth| deepest = deepest.max(depth));
    if deepest > DEPTH_MAX {
        let what = What::TooDeep { depth: deepest, max: DEPTH_MAX };
        return vec![Fault { owner: check.owner, node: None, what }];
    }
    check.path(&service.path);
    check.faults
}

struct Check<'a> {
    scope: Scope<'a>,
    owner: Owner,
    next: usize,
    faults: Vec<Fault>,
}

impl Check<'_> {
    fn fault(&mut self, node: usize, what: What) {
        self.faults.push(Fault { owner: self.owner, node: Some(node), what });
    }

    fn path(&mut self, path: &[Stage]) {
        if path.is_empty() {
            let node = self.next.checked_sub(1);
            self.faults.push(Fault { owner: self.owner, node, what: What::EmptyPath });
        }
        // The traces that must come next because an earlier trace continues with them, each with
        // this earlier trace.
        let mut awaited: Vec<(String, String)> = Vec::new();
        let mut core = true;
        for stage in path {
            let at = self.next;
            self.next += 1;
            if let Stage::Run { trace, with } = stage {
                let followed = awaited.iter().position(|(target, _)| target == trace);
                match followed {
                    Some(found) => drop(awaited.remove(found)),
                    None if !core && awaited.is_empty() => {
                        self.fault(at, What::NotStarted(trace.clone()));
                    }
                    None => self.not_followed(at, &awaited),
                }
                core = false;
                let targets = self.run(at, trace, with);
                awaited.extend(targets.into_iter().map(|target| (target, trace.clone())));
                continue;
            }
            self.not_followed(at, &awaited);
            awaited.clear();
            core = matches!(stage, Stage::Cpu);
            if let Stage::Parallel { times, path } = stage {
                if !(1..=PARALLEL_MAX).contains(times) {
                    self.fault(at, What::BadCount { count: *times, max: PARALLEL_MAX });
                }
                self.path(path);
            }
        }
        self.not_followed(self.next.saturating_sub(1), &awaited);
    }

    fn not_followed(&mut self, at: usize, awaited: &[(String, String)]) {
        if let Some((target, by)) = awaited.first() {
            self.fault(at, What::NotFollowed(by.clone(), target.clone()));
        }
    }

    /// Checks a trace that the service runs, and returns the names of the traces that must run
    /// next.
    fn run(&mut self, at: usize, name: &str, with: &[String]) -> Vec<String> {
        let Some(trace) = self.scope.trace(name) else {
            self.fault(at, self.scope.unknown_trace(name));
            return Vec::new();
        };
        let mut read = Vec::new();
        trace.visit(&mut |node, _| {
            if let Node::Branch(branch) = node {
                branch.condition.visit(&mut |field, _| read.push(field));
            }
        });
        for flag in with {
            match self.scope.field(flag) {
                Err(what) => self.fault(at, what),
                Ok(field) if field.kind == FieldKind::Number => {
                    let rule = "a path sets flags only";
                    let what =
                        What::WrongKind { name: flag.clone(), kind: field.kind.name(), rule };
                    self.fault(at, what);
                }
                Ok(_) if !read.contains(&flag.as_str()) => {
                    self.fault(at, What::NotRead(name.to_owned(), flag.clone()));
                }
                Ok(_) => {}
            }
        }
        let walked = walk(trace, &mut |field| u32::from(with.iter().any(|flag| flag == field)));
        let targets = walked.ends.into_iter().filter_map(End::target);
        targets.map(str::to_owned).collect()
    }
}
