//! The history of clients against real processes, each of which is killed and stopped in turn. `scripts/history` runs
//! more of it.

use rebate_tests::rebate_binary;
use simulation::processes::{Options, run};

fn options() -> Options {
    Options {
        binary: rebate_binary(),
        operations: 2_000,
        seed: 22,
        clients: 4,
        is_embedded: false,
        has_two_stores: false,
        keep_going: false,
    }
}

#[test]
fn a_ring_of_real_processes_keeps_one_order_per_key() {
    let Some(()) = harness::needs_memcached("") else { return };
    let summary = run(&options(), |_| ()).expect("the processes start");
    assert!(summary.problems.is_empty(), "{}", summary.problems.join("\n"));
    assert!(summary.kills + summary.stops > 0, "{summary:?}");
}

#[test]
fn an_embedded_store_keeps_one_order_per_key() {
    let options = Options { is_embedded: true, seed: 23, ..options() };
    let summary = run(&options, |_| ()).expect("the processes start");
    assert!(summary.problems.is_empty(), "{}", summary.problems.join("\n"));
    assert!(summary.kills + summary.stops > 0, "{summary:?}");
}

#[test]
fn two_servers_at_one_address_are_found() {
    let Some(()) = harness::needs_memcached("") else { return };
    let options = Options { has_two_stores: true, operations: 50_000, ..options() };
    let summary = run(&options, |_| ()).expect("the processes start");
    let is_order = |problem: &String| problem.contains("fit no order");
    assert!(summary.problems.iter().any(is_order), "{}", summary.problems.join("\n"));
}
