//! The faults of traces, with messages that say what to change. A fault names a node by its number.
//! The module `text` finds the node's line.

use thiserror::Error;
use units::Op;

/// A fault in a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The part of the catalog that has the fault.
    pub owner: Owner,
    /// The number of the node in its trace, or of the stage in its service, in the order of the
    /// text from 0. It is none if the fault concerns the whole part.
    pub node: Option<usize>,
    /// The kind of the fault.
    pub what: What,
}

/// A part of a catalog, as an index among the parts of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Owner {
    Field(usize),
    Trace(usize),
    Service(usize),
}

/// The kind of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum What {
    #[error(
        "{0:?} is not a name: a letter or _, then letters, digits, _, . and -, 64 bytes at most, \
         and none of the language's own words"
    )]
    BadName(String),
    #[error("{0} is there already")]
    Twice(String),
    #[error("{count} {what}; a catalog holds {max}")]
    TooMany { what: &'static str, count: usize, max: usize },
    #[error("no op runs: a trace invokes at least one")]
    NoStep,
    #[error(
        "{count} invocations; an encoded trace holds {max}, and this is number {next}: split the \
         trace before it (trace::split does)",
        next = max + 1
    )]
    TooLong { count: usize, max: usize },
    #[error("its branches, transforms and ends take {count} units of the encoding; {max} fit")]
    TooMuchControl { count: usize, max: usize },
    #[error("nested {depth} deep; at most {max}")]
    TooDeep { depth: usize, max: usize },
    #[error("the path ends here without notify, tail or await: nobody would learn of its result")]
    MissingNotify,
    #[error("never reached: every path before it has ended")]
    Unreachable,
    #[error("the condition {condition} {always} here: the {arm} arm is never taken")]
    UnreachableArm { condition: String, always: &'static str, arm: &'static str },
    #[error("both arms are empty: the branch does nothing")]
    EmptyBranch,
    #[error("a fork has at least two arms, not {0}")]
    TooFewArms(usize),
    #[error("arm {0} of the fork is empty")]
    EmptyArm(usize),
    #[error(
        "arm {0} of the fork goes on, but nothing joins it: end it with notify, tail or await, or \
         write join behind the last arm"
    )]
    ArmGoesOn(usize),
    #[error("a path of arm {0} may end, and the join would wait for it forever")]
    ArmEnds(usize),
    #[error("{op} takes {takes}; the payload is {payload} here")]
    Mismatch { op: Op, takes: &'static str, payload: String },
    #[error("the payload is {payload} here, not {from}")]
    TransformMismatch { from: String, payload: String },
    #[error("{0} to {0} transforms nothing")]
    EmptyTransform(&'static str),
    #[error("a branch cannot read the fields of a payload that is {payload}")]
    Unreadable { payload: String },
    #[error("{trace} takes {takes}; the payload is {payload} here")]
    TailMismatch { trace: String, takes: String, payload: String },
    #[error("notify ends a path and is no invocation within one")]
    NotifyWithin,
    #[error("no field is called {name}{hint}")]
    UnknownField { name: String, hint: String },
    #[error("{name} is a {kind}: {rule}")]
    WrongKind { name: String, kind: &'static str, rule: &'static str },
    #[error("the condition takes {count} units of the encoding; {max} fit")]
    LongCondition { count: usize, max: usize },
    #[error("no trace is called {name}{hint}")]
    UnknownTrace { name: String, hint: String },
    #[error("await stands behind a tcp that has sent something; here the last op is {0}")]
    AwaitWithoutSend(String),
    #[error("{0} cannot be awaited: it does not begin with tcp, so no answer would start it")]
    AwaitsNoAnswer(String),
    #[error(
        "the traces go round without waiting: {0}; an await or a notify has to break the circle"
    )]
    Cycle(String),
    #[error("due {due}, before a step that comes earlier: that one is due {earlier}")]
    DueBefore { due: String, earlier: String },
    #[error("{time} does not fit: {valid}")]
    BadTime { time: String, valid: &'static str },
    #[error("{0} does not read the flag {1}")]
    NotRead(String, String),
    #[error("{0} goes on with {1}, so that is what runs next")]
    NotFollowed(String, String),
    #[error("nothing goes on with {0} here: a core has to start it, so cpu comes before it")]
    NotStarted(String),
    #[error("parallel takes 1 to {max} copies, not {count}")]
    BadCount { count: u32, max: u32 },
    #[error("nothing in it: a service runs at least one trace")]
    EmptyPath,
}

/// Returns `; did you mean X?` if one of `names` is similar to `name`. Otherwise returns an empty
/// text.
pub(crate) fn hint<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let near = names
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .filter(|(distance, known)| *distance <= 1 + known.len() / 4)
        .min_by_key(|(distance, _)| *distance);
    near.map_or_else(String::new, |(_, known)| format!("; did you mean {known}?"))
}
