//! Tests what a device has to do to qualify, and which problem is reported for a device that does not.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use device::engines::BUILT_IN;
use device::{Capabilities, Device, FaultPlan, Loss, RefusedReason, Worker};
use runtime::qualification::{Problem, qualify, qualify_fallback, withdrawn};

/// A time that is much longer than any job here takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT_SHORT: Duration = Duration::from_millis(5);

fn problem(plan: FaultPlan, timeout: Duration) -> Problem {
    qualify(&faulty(plan), &software(), timeout).expect_err("it has faults")
}

#[test]
fn honest_devices_qualify_however_their_completions_arrive() {
    let count = |count| NonZeroUsize::new(count).expect("not zero");
    let signalled = Worker::start(count(1), count(4), &BUILT_IN).expect("a thread starts");
    let polled = faulty(FaultPlan { delay_polls: 3, ..FaultPlan::default() });
    let now_and_then = faulty(FaultPlan { refuse_every: 2, ..FaultPlan::default() });
    let devices: [Arc<dyn Device>; 4] = [software(), Arc::new(signalled), polled, now_and_then];
    for device in devices {
        let qualified = qualify(&device, &software(), TIMEOUT);
        assert_eq!(qualified, Ok(()), "{}", device.name());
    }
}

#[test]
fn wrong_bytes_disqualify() {
    for plan in [
        FaultPlan { corrupt_every: 1, ..FaultPlan::default() },
        FaultPlan { shorten_every: 1, ..FaultPlan::default() },
        // This device is right at first.
        FaultPlan { corrupt_every: 5, seed: 3, ..FaultPlan::default() },
    ] {
        let case = format!("{plan:?}");
        let problem = problem(plan, TIMEOUT);
        assert!(matches!(problem, Problem::Wrong { .. }), "{case}: {problem}");
        assert!(problem.disqualifies());
    }
}

#[test]
fn failures_losses_and_hangs_do_not_disqualify() {
    let sound = FaultPlan::default;
    let failed = problem(FaultPlan { fail_every: 1, ..sound() }, TIMEOUT);
    assert!(matches!(failed, Problem::Failed { .. }), "{failed}");
    let lost = problem(FaultPlan { lose_every: 1, ..sound() }, TIMEOUT);
    assert!(matches!(lost, Problem::Failed { .. }), "{lost}");
    let gone = problem(FaultPlan { lose_after: Some(0), ..sound() }, TIMEOUT);
    assert!(matches!(gone, Problem::Open(_)), "{gone}");
    let hung = FaultPlan { lose_after: Some(0), loss: Loss::Hang, ..sound() };
    let hung = problem(hung, TIMEOUT_SHORT);
    assert!(matches!(hung, Problem::Late { timeout: TIMEOUT_SHORT, .. }), "{hung}");
    let full = problem(FaultPlan { refuse_every: 1, ..sound() }, TIMEOUT_SHORT);
    let reason = RefusedReason::Full;
    assert!(
        matches!(&full, Problem::Refused { reason: refused, .. } if *refused == reason),
        "{full}"
    );
    for problem in [failed, lost, gone, hung, full] {
        assert!(!problem.disqualifies(), "{problem}");
    }
}

/// `qualify_fallback` tests only the fallback, so no device needs to support the jobs.
#[test]
fn software_stands_in_for_every_named_job_kind() {
    let all = software().capabilities().clone();
    assert_eq!(qualify_fallback(&all, &software(), TIMEOUT), Ok(()));
    let iaa = Capabilities { writes: vec![device::Dialect::IAA], ..all.clone() };
    assert_eq!(qualify_fallback(&iaa, &software(), TIMEOUT), Ok(()));
    let wrong = faulty(FaultPlan { corrupt_every: 1, ..FaultPlan::default() });
    assert!(qualify_fallback(&all, &wrong, TIMEOUT).is_err(), "software that errs is no home");
}

#[test]
fn a_withdrawn_device_takes_no_job_and_says_so() {
    let inner = software();
    let device = withdrawn(&inner);
    assert_eq!(device.name(), inner.name());
    assert_eq!(device.counters(), [("withdrawn", 1)]);
    let mut rig = Rig::new(device);
    assert_eq!(rig.path(1), in_software(policy::Reason::Ineligible));
    assert!(rig.core.metrics().fallbacks().is_empty());
}
