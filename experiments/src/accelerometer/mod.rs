//! The experiments of \[Accelerometer\]. `published` computes the numbers that the paper prints from the paper's
//! inputs. `ab` makes A/B runs on this machine: the same model makes an estimate, which is then compared with the
//! measurement.

mod ab;
mod published;
mod service;

use harness::Machine;
use report::Report;

use crate::base::rows::{Criterion, Rows};
use crate::base::{Measurement, Problem, Session, figures};

/// The options of the experiment: what is measured, and how long.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(mut_arg("runs", |arg| arg.help("Number of rounds of slices in each A/B case")))]
#[command(mut_arg("duration", |arg| arg.help("Duration of a slice")))]
pub struct Options {
    /// The flags that every measurement has.
    #[command(flatten)]
    pub measurement: Measurement,
    /// Ids of the A/B cases to run, such as aes_ni.pages. The default is all.
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    pub configurations: Vec<String>,
}

/// Computes and measures everything, and writes `accelerometer.json` and `accelerometer.html`. An interrupted run
/// writes the computed numbers and the finished cases.
///
/// # Errors
/// The error says why there are no results, or why results are missing.
pub fn run(options: &Options, session: &Session) -> Result<(), Problem> {
    ab::check(options)?;
    session.make_folder()?;
    let machine = Machine::here();
    let mut rows = Rows::new("accelerometer", &machine, &conditions(&machine));
    published::add(&mut rows)?;
    session.say(published::summary(&rows));
    let mut sections = vec![published::section(&rows)];
    let found = ab::measure(options, session, &machine)?;
    found.write(&mut rows);
    session.say(rows.criteria.iter().map(Criterion::line));
    sections.extend(found.sections());
    let report = Report {
        title: "What acceleration gives: Accelerometer's numbers, and A/B runs here".to_owned(),
        subtitle: "The paper's estimates from the paper's inputs, and ours held against \
                   measurements on this machine."
            .to_owned(),
        facts: figures::facts(&rows, []),
        sections,
    };
    session.write(&rows, "accelerometer.html", &report)?;
    match found.stopped_at {
        Some(id) => {
            Err(Problem::Failed(format!("interrupted: the A/B cases from {id} on are missing")))
        }
        None => Ok(()),
    }
}

fn conditions(machine: &Machine) -> String {
    match machine.core(1, 2) {
        Some(_) => "the service on one core, what accelerates it on another",
        None => "the service and what accelerates it share the core",
    }
    .to_owned()
}
