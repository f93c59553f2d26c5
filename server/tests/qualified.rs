//! Tests which devices are used after qualification. No server is started.

use std::sync::Arc;
use std::time::Duration;

use device::{Device, FaultPlan, Faulty, Software};
use server::Devices;

fn software() -> Arc<dyn Device> {
    Arc::new(Software::default())
}

fn faulty(plan: FaultPlan) -> Arc<dyn Device> {
    Arc::new(Faulty::new(software(), plan))
}

fn over(device: &Arc<dyn Device>) -> Devices {
    Devices { all: vec![software(), Arc::clone(device)], accelerators: 1 }
}

fn is_withdrawn(devices: &Devices) -> bool {
    let counted = devices.all[1].counters().contains(&("withdrawn", 1));
    assert_eq!(counted, devices.all[1].capabilities().writes.is_empty(), "all of it or nothing");
    counted
}

#[test]
fn only_a_device_that_gives_wrong_bytes_is_not_used() {
    let plans = [
        (FaultPlan::default(), false),
        (FaultPlan { corrupt_every: 1, ..FaultPlan::default() }, true),
        (FaultPlan { shorten_every: 1, ..FaultPlan::default() }, true),
        (FaultPlan { fail_every: 1, ..FaultPlan::default() }, false),
        (FaultPlan { lose_every: 1, ..FaultPlan::default() }, false),
    ];
    for (plan, expected) in plans {
        let case = format!("{plan:?}");
        let device = faulty(plan);
        let devices = over(&device).qualified_within(0, TIMEOUT);
        assert_eq!(is_withdrawn(&devices), expected, "{case}");
        assert_eq!(devices.all[1].name(), device.name(), "it keeps its place");
        assert_eq!(devices.accelerators, 1);
    }
}

#[test]
fn a_silent_device_delays_the_start_little() {
    let device = faulty(FaultPlan { hang_every: 1, ..FaultPlan::default() });
    assert!(!is_withdrawn(&over(&device).qualified(0)));
    // The device got only one job that hangs, and not one for each kind of job.
    assert!(device.counters().contains(&("hung", 1)), "{:?}", device.counters());
}

/// A device that answers long after the start is used like any other.
#[test]
fn a_slow_device_is_used_while_it_is_being_qualified() {
    let device = faulty(FaultPlan { delay_polls: 50, ..FaultPlan::default() });
    let devices = over(&device).qualified_within(0, Duration::ZERO);
    assert!(!is_withdrawn(&devices));
    let device = faulty(FaultPlan { delay_polls: 50, ..FaultPlan::default() });
    let software = software();
    let verdict = runtime::qualification::qualify(&device, &software, Duration::from_secs(30));
    assert_eq!(verdict, Ok(()));
}

/// The process of a service may be replaced while this one runs. The runtime detects that a service is wrong, and that
/// it is right again.
#[test]
fn a_wrong_service_is_found_and_stays_in_the_list() {
    let device = faulty(FaultPlan { corrupt_every: 1, ..FaultPlan::default() });
    assert!(!is_withdrawn(&over(&device).qualified_within(1, TIMEOUT)));
    assert!(device.counters().contains(&("corrupted", 1)), "{:?}", device.counters());
}

/// The time after which a test that hangs fails.
const TIMEOUT: Duration = Duration::from_secs(60);
