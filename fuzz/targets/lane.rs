//! Both ends of a lane against a peer that keeps to no rule: the input decides what the peer writes where and when. No
//! panic, no job lost or returned twice, no more memory than a lane has, and every buffer comes home.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../drivers/tests/lane/hostile.rs"]
mod hostile;

fuzz_target!(|input: &[u8]| {
    let Some((side, rest)) = input.split_first() else { return };
    let mut words = rest.chunks(WORD_BYTES);
    // When the input ends the peer goes on in a pattern, so that every step has a number.
    let mut last = 0_u64;
    let mut draw = || {
        last = match words.next() {
            Some(word) => word.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
            None => last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1),
        };
        last
    };
    if side.is_multiple_of(2) {
        hostile::attack_service(&mut draw, STEPS);
    } else {
        let path = std::env::temp_dir().join(format!("fuzz-lane-{}", std::process::id()));
        hostile::attack_client(&path, &mut draw, STEPS);
    }
});

/// Small numbers decide most; a whole word now and then is drawn from the pattern.
const WORD_BYTES: usize = 2;

const STEPS: usize = 120;
