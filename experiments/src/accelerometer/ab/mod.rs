//! A/B runs on this machine: the example service with and without acceleration, and what the model says from the run
//! without it and a microbenchmark. Each file has one part: the cases, the two sides, the rounds, the estimate, the
//! interval, the rows and the page.

mod cases;
mod estimate;
mod interval;
mod measure;
mod page;
mod plan;
mod results;
mod sides;

use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressBar;
use report::Section;

use super::Options;
use crate::base::rows::Rows;
use crate::base::{Problem, Session};
use harness::Machine;
use measure::{Bench, Found, SLICES};
use plan::Plan;
use sides::Sides;

/// What was found of every case.
pub(super) struct Cases {
    found: Vec<Found>,
    /// The case that was under way when the run was to stop.
    pub(super) stopped_at: Option<&'static str>,
}

impl Cases {
    /// Adds the rows, and what all of them come to.
    pub(super) fn write(&self, rows: &mut Rows) {
        results::write(rows, &self.found);
    }

    /// The page's part.
    pub(super) fn sections(&self) -> Vec<Section> {
        page::sections(&self.found)
    }
}

/// Measures every case. One that does not start or fails has no numbers, and the others have theirs; so have those
/// that were done when the run is to stop.
///
/// # Errors
/// An option out of range.
pub(super) fn measure(
    options: &Options,
    session: &Session,
    machine: &Machine,
) -> Result<Cases, Problem> {
    let plan = Plan::new(options)?;
    let stop = &session.stop;
    let bar = crate::base::progress_bar();
    let (cases, asked) = (every(), asked(options)?);
    bar.set_length((asked.len() * plan.rounds * SLICES) as u64);
    let (mut found, mut stopped_at) = (Vec::new(), None);
    for case in &cases {
        let own = match stopped_at {
            _ if !asked.contains(&case.id) => Err("not asked for".to_owned()),
            None => one(case, plan, machine, (&bar, stop)),
            Some(_) => Err("the run was stopped before it".to_owned()),
        };
        if own.is_err() && stop.load(Ordering::Relaxed) {
            stopped_at = stopped_at.or(Some(case.id));
        }
        found.push(own.unwrap_or_else(|why| Found::nothing(case, why)));
    }
    bar.finish_and_clear();
    Ok(Cases { found, stopped_at })
}

fn one(
    case: &cases::Case,
    plan: Plan,
    machine: &Machine,
    (bar, stop): (&ProgressBar, &AtomicBool),
) -> Result<Found, String> {
    bar.set_prefix(case.id);
    let mut tick = || {
        bar.inc(1);
        if stop.load(Ordering::Relaxed) { Err("stopped".to_owned()) } else { Ok(()) }
    };
    let sides = Sides::start(case, machine)?;
    Bench::new(case, sides, plan).run(plan.rounds, &mut tick)
}

/// All cases, those held out last.
fn every() -> Vec<cases::Case> {
    [cases::all(), cases::held_out()].concat()
}

/// The ids of the cases to measure.
fn asked(options: &Options) -> Result<Vec<&'static str>, Problem> {
    let known: Vec<&str> = every().iter().map(|case| case.id).collect();
    let is_known = |id: &&String| known.contains(&id.as_str());
    if let Some(id) = options.configurations.iter().find(|id| !is_known(id)) {
        let valid = known.join(", ");
        return Err(Problem::Usage(format!("--configurations is {id}; valid are {valid}")));
    }
    let is_asked = |id: &&str| options.configurations.iter().any(|own| own == id);
    let all = options.configurations.is_empty();
    Ok(known.into_iter().filter(|id| all || is_asked(id)).collect())
}

/// Whether the options are those of A/B runs.
///
/// # Errors
/// The option that is not, or is out of range.
pub(super) fn check(options: &Options) -> Result<(), Problem> {
    Plan::new(options)?;
    asked(options).map(drop)
}
