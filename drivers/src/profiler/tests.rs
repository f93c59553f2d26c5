//! Profiles this process while a thread of it works.

use std::hint::black_box;
use std::io::Cursor;
use std::sync::Arc;

use super::*;

/// Works until it is told to stop. It is not inlined, because profiles look for its name.
#[inline(never)]
fn work_for_the_profile(stop: &AtomicBool) -> u64 {
    let mut sum = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        sum = (0..1_000).fold(sum, |sum, number| black_box(sum.wrapping_mul(31) ^ number));
    }
    sum
}

#[inline(never)]
fn copy_for_the_profile(stop: &AtomicBool) {
    let (from, mut to) = (vec![1_u8; 64 << 10], vec![0_u8; 64 << 10]);
    while !stop.load(Ordering::Relaxed) {
        black_box(&mut to).copy_from_slice(black_box(&from));
    }
}

#[inline(never)]
fn call_the_kernel_for_the_profile(stop: &AtomicBool) {
    let null = std::fs::File::open("/dev/zero").unwrap();
    let mut bytes = vec![0_u8; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        io::Read::read(&mut &null, black_box(&mut bytes)).unwrap();
    }
}

/// Profiles while a thread runs `work`, and returns what rules find in the profile.
fn profiled(work: impl FnOnce(&AtomicBool) + Send + 'static) -> Vec<u8> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let thread = std::thread::spawn(move || work(&seen));
    // Tests run side by side, and profiles do not.
    let profile = loop {
        match profile(Duration::from_millis(600), &AtomicBool::new(false)) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(20));
            }
            profile => break profile.unwrap(),
        }
    };
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    profile
}

/// Returns the share of the time in stacks that have a function whose name contains `symbol`.
fn share(profile: &[u8], table: &str, symbol: &str) -> f64 {
    let frames = if table == "leaf" { "leaf" } else { "inclusive" };
    let rule = format!(
        "[[{table}]]\ncategory = \"searched\"\nframes = \"{frames}\"\nsymbols = ['{symbol}']\n"
    );
    let rules = workload::cpu::Rules::new(&[("test", &rule)]).unwrap();
    let read = workload::cpu::read(Cursor::new(profile), &rules).unwrap();
    let found = if table == "leaf" { &read.leaf } else { &read.functionality };
    let found = found.categories.iter().find(|category| category.name == "searched");
    found.map_or(0.0, |found| found.sums.weight as f64 / read.total.weight as f64)
}

#[test]
fn a_function_and_its_callers_are_named() {
    let profile = profiled(|stop| {
        black_box(work_for_the_profile(stop));
    });
    let share = share(&profile, "functionality", "work_for_the_profile");
    assert!(share > 0.2, "{share}");
}

#[test]
fn the_library_s_copies_are_named() {
    let profile = profiled(copy_for_the_profile);
    let share = share(&profile, "leaf", "^mem(cpy|move)$|^__mem(cpy|move)");
    assert!(share > 0.2, "{share}");
}

#[test]
fn time_in_the_kernel_is_the_kernel_s() {
    let profile = profiled(call_the_kernel_for_the_profile);
    assert!(share(&profile, "leaf", "^.kernel.$") > 0.2);
    assert!(share(&profile, "functionality", "call_the_kernel_for_the_profile") > 0.2);
}

#[test]
fn a_second_profile_at_the_same_time_is_refused() {
    let begun = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&begun);
    let first = std::thread::spawn(move || {
        let never = AtomicBool::new(false);
        while profile(Duration::from_secs(2), &never).is_err() {}
        seen.store(true, Ordering::Relaxed);
    });
    let mut refused = false;
    while !refused && !begun.load(Ordering::Relaxed) {
        let attempt = profile(Duration::from_millis(1), &AtomicBool::new(false));
        refused = attempt.is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy);
    }
    assert!(refused);
    first.join().unwrap();
}

#[test]
fn a_cancelled_profile_ends_soon() {
    let begin = Instant::now();
    while let Err(error) = profile(Duration::from_secs(60), &AtomicBool::new(true)) {
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    }
    assert!(begin.elapsed() < Duration::from_secs(30));
}
