//! The experiment of \[AccelFlow\] compares the paper's results with the simulator's, in two named scenarios
//! (docs/decisions/0018-accelflow-scenarios.md). Each row is computed, predicted, calibrated or unreachable. Nothing is
//! fitted here.

mod arithmetic;
mod causes;
mod contradictions;
mod discrepancies;
mod figures;
mod groups;
mod orchestration;
mod orders;
mod page;
mod paths;
mod published;
mod relief;
mod row_index;
mod runner;
mod scenario;
mod search;
mod sweeps;
mod throughput;
mod unreachable;

use harness::Machine;
use sim::Entries;

use crate::base::agreement;
use crate::base::rows::{Row, Rows};
use crate::base::{Problem, Session, Simulation};
use figures::Service;
use runner::{Runner, base, number};

/// Simulates everything and writes `accelflow.json` and `accelflow.html`. If the run is interrupted, it prints which
/// studies are saved, and the next run continues from them.
///
/// # Errors
/// The problem says why there are no results.
pub fn run(options: &Simulation, session: &Session) -> Result<(), Problem> {
    session.make_folder()?;
    let mut rows = Rows::new("accelflow", &Machine::here(), "simulated: any machine gives this");
    rows.begun = None;
    let (steady, published) = (base("steady")?, published::published());
    rows.rows.extend(arithmetic::rows());
    rows.rows.extend(contradictions::rows(&steady, &published));
    let runner = Runner::new(options.quick, options.runs, session)?;
    let (simulated, checkpoint) = runner.rows()?;
    rows.rows.extend(simulated);
    rows.rows.extend(unreachable::rows(&published));
    causes::explain(&mut rows.rows);
    let report = page::report(&mut rows, &services(&steady));
    session.say(rows.rows.iter().map(Row::line));
    session.say([agreement::line(&rows.rows)]);
    session.write(&rows, "accelflow.html", &report)?;
    checkpoint.finish().map_err(Problem::Failed)
}

/// Returns the services in the published order, each with its time on a core (ms).
fn services(base: &Entries) -> Vec<Service> {
    let time = |name: &str| number(base, &format!("services.{name}.time_us"));
    let catalog = trace::accelflow();
    let names = catalog.services().iter().map(|service| service.name.clone());
    names.filter_map(|name| time(&name).map(|time_us| (name, time_us / 1e3))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn every_row_has_a_unique_id_and_a_number_or_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let session = Session::new(folder.path(), Arc::default(), |_| ());
        let runner = Runner::new(true, Some(5), &session);
        let runner = runner.unwrap_or_else(|_| panic!("a folder"));
        let (mut all, published) = (arithmetic::rows(), published::published());
        let steady = base("steady").unwrap_or_else(|_| panic!("compiled in"));
        all.extend(contradictions::rows(&steady, &published));
        all.extend(runner.short_rows().unwrap_or_else(|_| panic!("the committed scenarios run")));
        all.extend(unreachable::rows(&published));
        causes::explain(&mut all);
        let off = all.iter().filter(|row| causes::is_off(row));
        for row in off {
            let reason = row.reason.as_deref().unwrap_or_default();
            assert!(reason.contains("cause, ") && !reason.contains("not known"), "{}", row.id);
        }
        let ids: BTreeSet<&str> = all.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids.len(), all.len(), "every row has a unique id");
        for row in &all {
            assert!(row.ours.is_some() || row.reason.is_some(), "{}", row.id);
            assert!(row.ours.is_none_or(f64::is_finite), "{}", row.id);
        }
        let mut rows = Rows::new("accelflow", &Machine::here(), "");
        rows.rows = all;
        let services = services(&steady);
        assert_eq!(services.len(), 8);
        assert_eq!(services[0], ("CPost".to_owned(), 3.3));
        let html = page::report(&mut rows, &services).html();
        assert_eq!(html.matches("<figure ").count(), 12, "with gaps, but all are drawn");
    }
}
