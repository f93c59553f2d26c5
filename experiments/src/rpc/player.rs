//! Sends recorded packets into a loopback and reads the answers. It counts the answers, measures the time of some, and
//! compares all of them with the model if requested.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use load::rpc::{Expected, Oracle, Recording, Verdict, is_exception};
use rpc_server::LoopbackClient;
use serde::Serialize;

/// Counts of the answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// The requests that were answered. If answers are compared, these answers were right.
    pub right: u64,
    /// The refusals of requests that had to be refused. They are also counted in `right`.
    pub refused_rightly: u64,
    /// The reads that found nothing although a value was stored.
    pub misses: u64,
    /// The refusals of requests that should have been accepted.
    pub refused: u64,
    /// The answers whose bytes differ from the model's.
    pub wrong: u64,
}

impl Tally {
    /// Adds the counts of another tally.
    pub fn add(&mut self, other: &Self) {
        self.right += other.right;
        self.refused_rightly += other.refused_rightly;
        self.misses += other.misses;
        self.refused += other.refused;
        self.wrong += other.wrong;
    }

    /// Returns the number of answers that are wrong if the store is large enough: misses, refusals and wrong bytes.
    pub fn bad(&self) -> u64 {
        self.misses + self.refused + self.wrong
    }
}

pub(super) struct Player {
    recording: Arc<Recording>,
    oracle: Option<Oracle>,
    /// The index of the next frame to send. `left` is the number of frames still to be sent, and `number` is the number
    /// of the next request.
    cursor: usize,
    left: u64,
    number: u64,
    /// The requests in flight: the number, the time of sending if it is measured, and the expected answer if it is
    /// compared.
    in_flight: VecDeque<(u64, Option<Instant>, Option<Expected>)>,
    pub(super) tally: Tally,
    /// The times from sending to answer (ns), of some requests.
    pub(super) took_ns: Vec<u32>,
}

impl Player {
    /// Creates a player of a recording. If `check` is set, it compares answers with the model of the service.
    pub(super) fn new(recording: Arc<Recording>, check: bool) -> Self {
        let oracle = check.then(|| Oracle::new(recording.service()));
        Self {
            oracle: oracle.map(|oracle| oracle.expect("recordings are of services that are there")),
            recording,
            cursor: 0,
            left: 0,
            number: 0,
            in_flight: VecDeque::new(),
            tally: Tally::default(),
            took_ns: Vec::new(),
        }
    }

    /// Continues with another recording of the same service. The model keeps the stored values.
    pub(super) fn change(&mut self, recording: Arc<Recording>) {
        debug_assert_eq!(recording.service(), self.recording.service());
        self.recording = recording;
        self.cursor = 0;
    }

    /// Makes the next replay send this many frames, from the current frame on. After the last frame, the
    /// replay continues with the first frame after those that fill the store.
    pub(super) fn send(&mut self, frames: u64) {
        (self.left, self.number) = (frames, 0);
        self.in_flight.clear();
    }

    fn judge(&mut self, expected: Option<&Expected>, answer: &[u8]) {
        let tally = &mut self.tally;
        let Some((oracle, expected)) = self.oracle.as_mut().zip(expected) else {
            let is_reply = !answer.is_empty() && !is_exception(answer);
            let count = if is_reply { &mut tally.right } else { &mut tally.refused };
            *count += 1;
            return;
        };
        match oracle.judge(expected, answer) {
            Verdict::Right => {
                tally.right += 1;
                tally.refused_rightly += u64::from(*expected == Expected::Refusal);
            }
            Verdict::Miss => tally.misses += 1,
            Verdict::Refused => tally.refused += 1,
            Verdict::Wrong => tally.wrong += 1,
        }
    }
}

impl LoopbackClient for Player {
    fn next(&mut self) -> Option<&[u8]> {
        self.left = self.left.checked_sub(1)?;
        if self.cursor == self.recording.frames() {
            self.cursor = self.recording.warm();
        }
        let frame = self.recording.frame(self.cursor);
        self.cursor += 1;
        let expected = self.oracle.as_mut().map(|oracle| oracle.expect(frame));
        let is_timed = self.number.is_multiple_of(TIMED_EVERY) && self.took_ns.len() < TIMED_MAX;
        if is_timed || expected.is_some() {
            self.in_flight.push_back((self.number, is_timed.then(Instant::now), expected));
        }
        self.number += 1;
        Some(frame)
    }

    fn answered(&mut self, number: u64, answer: &[u8]) {
        let place = self.in_flight.iter().position(|(sent, ..)| *sent == number);
        let Some((_, begun, expected)) = place.and_then(|place| self.in_flight.remove(place))
        else {
            // If answers are compared, every request is listed, so this answer belongs to no request.
            return match self.oracle {
                Some(_) => self.tally.wrong += 1,
                None => self.judge(None, answer),
            };
        };
        if let Some(begun) = begun {
            self.took_ns.push(u32::try_from(begun.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
        self.judge(expected.as_ref(), answer);
    }
}

/// One in this many requests is timed. Reading the clock for each request would take a large part of the request's
/// time.
const TIMED_EVERY: u64 = 8;
const TIMED_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use load::rpc::Mix;

    use super::*;

    #[test]
    fn a_second_or_unrequested_answer_is_wrong() {
        let mix = Mix { keys: 1, ..Mix::named("memc_tiny").expect("known") };
        let recording = Arc::new(Recording::from_mix(&mix, 1, 1).expect("small"));
        let stored = Oracle::new("memcached").expect("known").expect(recording.frame(0));
        let Expected::Frame(answer) = stored else { panic!("{stored:?}") };
        let mut player = Player::new(recording, true);
        player.send(1);
        assert!(player.next().is_some() && player.next().is_none());
        [0, 0, 7].iter().for_each(|number| player.answered(*number, &answer));
        assert_eq!((player.tally.right, player.tally.wrong), (1, 2));
    }
}
