//! A/B runs on this machine: the example service runs with and without acceleration, and the model estimates the gain
//! from the run without acceleration and a microbenchmark. Each file has one part: the cases, the two sides, the
//! rounds, the estimate, the interval, the rows and the page.

mod cases;
mod estimate;
mod interval;
mod measure;
mod page;
mod plan;
mod results;
mod sides;

use report::Section;

use super::Options;
use crate::base::rows::Rows;
use crate::base::{Problem, Session};
use harness::Machine;
use measure::{Bench, Measurements, SLICES};
use plan::Plan;
use sides::Sides;

/// The measurements of every case.
pub(super) struct Cases {
    found: Vec<Measurements>,
    /// The case that was being measured when the run had to stop.
    pub(super) stopped_at: Option<&'static str>,
}

impl Cases {
    /// Adds the rows of every case, and the totals.
    pub(super) fn write(&self, rows: &mut Rows) {
        results::write(rows, &self.found);
    }

    /// Returns the page's sections.
    pub(super) fn sections(&self) -> Vec<Section> {
        page::sections(&self.found)
    }
}

/// Measures every requested case. A case that fails has no numbers and does not affect the other cases. An
/// interrupted run keeps the finished cases.
///
/// # Errors
/// An option is out of range.
pub(super) fn measure(
    options: &Options,
    session: &Session,
    machine: &Machine,
) -> Result<Cases, Problem> {
    let plan = Plan::new(options)?;
    let (cases, asked) = (every(), asked(options)?);
    session.progress.restart((asked.len() * plan.rounds * SLICES) as u64);
    let (mut found, mut stopped_at) = (Vec::new(), None);
    for case in &cases {
        let measured = match stopped_at {
            _ if !asked.contains(&case.id) => Err("not asked for".to_owned()),
            None => measure_case(case, plan, machine, session),
            Some(_) => Err("the run was stopped before it".to_owned()),
        };
        if measured.is_err() && session.is_stopped() {
            stopped_at = stopped_at.or(Some(case.id));
        }
        found.push(measured.unwrap_or_else(|why| Measurements::nothing(case, why)));
    }
    session.progress.end();
    Ok(Cases { found, stopped_at })
}

fn measure_case(
    case: &cases::Case,
    plan: Plan,
    machine: &Machine,
    session: &Session,
) -> Result<Measurements, String> {
    session.progress.set_part(case.id);
    let mut tick = || {
        session.progress.advance(1);
        session.check()
    };
    let sides = Sides::start(case, machine)?;
    Bench::new(case, sides, plan).run(plan.rounds, &mut tick)
}

/// Returns all cases, with the held-out cases at the end.
fn every() -> Vec<cases::Case> {
    [cases::all(), cases::held_out()].concat()
}

/// Returns the ids of the cases to measure.
fn asked(options: &Options) -> Result<Vec<&'static str>, Problem> {
    let known: Vec<&str> = every().iter().map(|case| case.id).collect();
    let is_known = |id: &&String| known.contains(&id.as_str());
    if let Some(id) = options.configurations.iter().find(|id| !is_known(id)) {
        let valid = known.join(", ");
        return Err(Problem::Usage(format!("--configurations is {id}; valid are {valid}")));
    }
    let is_asked = |id: &&str| options.configurations.iter().any(|known| known == id);
    let all = options.configurations.is_empty();
    Ok(known.into_iter().filter(|id| all || is_asked(id)).collect())
}

/// Checks that the options are valid for A/B runs.
///
/// # Errors
/// An option is unknown or out of range; the text names it.
pub(super) fn check(options: &Options) -> Result<(), Problem> {
    Plan::new(options)?;
    asked(options).map(drop)
}
