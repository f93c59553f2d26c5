//! Tests both ends of a near connection against a peer that breaks every rule, from its greeting on. The input decides
//! what the peer sends and writes where and when. The ends must accept right greetings only, must not panic or wait for
//! ever, and must report only errors that end the connection.

#[path = "../../drivers/tests/near/attack.rs"]
mod attack;

use tokio::runtime::{Builder, Runtime};

thread_local! {
    /// A server registers its sockets with a runtime. Nothing runs on it.
    static RUNTIME: Runtime =
        Builder::new_current_thread().enable_io().build().expect("a runtime");
}

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
    RUNTIME.with(|runtime| {
        let _entered = runtime.enter();
        if side.is_multiple_of(2) {
            attack::attack_new_server(&mut draw, STEPS);
        } else {
            attack::attack_new_client(&mut draw, STEPS);
        }
    });
}

/// The number of input bytes per word. Wider words occur only in the pattern after the end of the input.
const WORD_BYTES: usize = 2;

const STEPS: usize = 120;
