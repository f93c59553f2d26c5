//! Tests both ends of a lane against a peer that breaks every rule. The input decides what the peer writes where and
//! when. The ends must not panic, lose a job, return a job twice, or use more memory than a lane has. Every buffer must
//! be returned.


#[path = "../../drivers/tests/lane/hostile.rs"]
mod hostile;

pub(super) fn fuzz(input: &[u8]) {
    let Some((side, rest)) = input.split_first() else { return };
    let mut words = rest.chunks(WORD_BYTES);
    // At the end of the input the peer continues with a pattern, so that every step has a number.
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
}

/// The number of input bytes per word. Wider words occur only in the pattern after the end of the input.
const WORD_BYTES: usize = 2;

const STEPS: usize = 120;
