//! Decides which servers of the ring are out: those that fail, those that are silent, and those that are far
//! slower than the others. The decisions are a function of what the workers found in one round, so this module
//! has no clock, no thread and no connection.
//!
//! At most a share of the servers is out at once. A server that fails beyond that share stays in, and its keys
//! fail as they do without this module.

use std::sync::Arc;
use std::time::SystemTime;

use units::Nanos;

/// The reason why a server is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It cannot be reached, or it fails requests.
    Failures,
    /// It accepts requests and answers nothing.
    Silence,
    /// Its answers take far longer than those of the others.
    Latency,
}

impl Reason {
    /// Every reason, in the order of its index.
    pub(crate) const ALL: [Reason; 3] = [Reason::Failures, Reason::Silence, Reason::Latency];

    /// Returns the name that metrics use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Reason::Failures => "failures",
            Reason::Silence => "silence",
            Reason::Latency => "latency",
        }
    }
}

/// What is known of one server from all rounds.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    /// The reason why the server is out, with details; `None` if it is in the ring.
    pub(crate) out: Option<(Reason, Arc<str>)>,
    /// What makes the server slow, if it is.
    pub(crate) slow: Option<Arc<str>>,
    /// The time of the last change.
    pub(crate) since: SystemTime,
    /// The average time of an answer in the last round with answers.
    pub(crate) latency: Option<Nanos>,
    /// The rounds in a row in which the server could not be reached, was slow, was not slow, and was good enough to
    /// come back.
    away_rounds: u32,
    slow_rounds: u32,
    fast_rounds: u32,
    good_rounds: u32,
    /// The number of good rounds after which the server comes back.
    good_rounds_needed: u32,
    /// The rounds since the server came back, or many if it was never out.
    rounds_in: u32,
}

impl Standing {
    /// Returns the standing of a new server, which is in.
    pub(crate) fn new(now: SystemTime) -> Self {
        Self {
            out: None,
            slow: None,
            since: now,
            latency: None,
            away_rounds: 0,
            slow_rounds: 0,
            fast_rounds: 0,
            good_rounds: 0,
            good_rounds_needed: GOOD_ROUNDS_MIN,
            rounds_in: STABLE_ROUNDS,
        }
    }
}

/// What one round has found about a server, over all workers that asked it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observation {
    /// The number of workers that asked the server. With 0 nothing is known.
    pub(crate) workers: usize,
    /// The number of workers that could not reach it, with the reason of one of them.
    pub(crate) away: usize,
    pub(crate) why: Option<String>,
    /// The number of workers to which it has not answered anything in time.
    pub(crate) silent: usize,
    /// The requests failed since the last request that was answered, over all workers.
    pub(crate) failures_in_row: u64,
    /// The workers whose last request failed, and those with answers in this round and no failure after them.
    pub(crate) failing: usize,
    pub(crate) fine: usize,
    /// The sum of the times of answers in this round, and their number.
    pub(crate) latency_sum: Nanos,
    pub(crate) answers: u64,
}

impl Observation {
    fn latency(&self) -> Option<Nanos> {
        self.latency_sum.0.checked_div(self.answers).map(Nanos)
    }

    fn is_away(&self) -> bool {
        self.away * 2 > self.workers
    }
}

/// The configured limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) share_max: f64,
    pub(crate) failures: u64,
    /// The multiple of the others' latency from which a server is slow; 0 for never.
    pub(crate) slower: u64,
    /// Whether slow servers leave. Otherwise they are only reported.
    pub(crate) ejects_slow: bool,
    pub(crate) latency_min: Nanos,
}

/// Judges all servers of the ring after a round. Updates their standings and returns the indexes of those that
/// have changed, each once.
pub(crate) fn judge(
    standings: &mut [Standing],
    found: &[Observation],
    limits: &Limits,
    now: SystemTime,
) -> Vec<usize> {
    let out_max = (standings.len() as f64 * limits.share_max).floor() as usize;
    let mut out = standings.iter().filter(|standing| standing.out.is_some()).count();
    let latencies: Vec<Option<Nanos>> = found.iter().map(Observation::latency).collect();
    let mut changed = Vec::new();
    // The list or the limit may have become smaller. These servers do not leave again below: as many are out as may be,
    // and those still out come later in the list.
    for (index, standing) in standings.iter_mut().enumerate() {
        if out > out_max && standing.out.is_some() {
            standing.come_back(now);
            out -= 1;
            changed.push(index);
        }
    }
    for (index, observation) in found.iter().enumerate() {
        if observation.workers == 0 {
            continue;
        }
        let others = others_latency(index, &latencies, standings);
        let slow = slow(latencies[index], others, limits);
        let standing = &mut standings[index];
        standing.latency = latencies[index].or(standing.latency);
        standing.count_round(observation, slow.as_deref(), limits);
        if standing.out.is_some() {
            if standing.good_rounds >= standing.good_rounds_needed {
                standing.come_back(now);
                out -= 1;
                changed.push(index);
            }
        } else if let Some((reason, why)) = standing.reason_to_leave(observation, slow, limits)
            && out < out_max
        {
            standing.leave(reason, why, now);
            out += 1;
            changed.push(index);
        }
    }
    changed
}

impl Standing {
    fn count_round(&mut self, found: &Observation, slow: Option<&str>, limits: &Limits) {
        let next = |rounds: u32, goes_on: bool| if goes_on { rounds.saturating_add(1) } else { 0 };
        let is_bad = found.is_away() || limits.ejects_slow && slow.is_some();
        self.away_rounds = next(self.away_rounds, found.is_away());
        self.slow_rounds = next(self.slow_rounds, slow.is_some());
        self.fast_rounds = next(self.fast_rounds, slow.is_none());
        self.good_rounds = next(self.good_rounds, !is_bad);
        self.rounds_in = next(self.rounds_in, self.out.is_none());
        if self.slow_rounds >= SLOW_ROUNDS {
            self.slow = slow.map(Arc::from);
        } else if self.fast_rounds >= GOOD_ROUNDS_MIN {
            self.slow = None;
        }
    }

    fn reason_to_leave(
        &self,
        found: &Observation,
        slow: Option<String>,
        limits: &Limits,
    ) -> Option<(Reason, String)> {
        let why = || found.why.clone().unwrap_or_default();
        if found.silent * 2 > found.workers {
            return Some((Reason::Silence, why()));
        }
        if self.away_rounds >= AWAY_ROUNDS {
            return Some((Reason::Failures, why()));
        }
        if found.failures_in_row >= limits.failures && found.failing > found.fine {
            let failed = format!("it failed {} requests in a row", found.failures_in_row);
            return Some((Reason::Failures, found.why.clone().unwrap_or(failed)));
        }
        let leaves = limits.ejects_slow && self.slow_rounds >= SLOW_ROUNDS;
        slow.filter(|_| leaves).map(|why| (Reason::Latency, why))
    }

    fn leave(&mut self, reason: Reason, why: String, now: SystemTime) {
        // A server that leaves again soon has to prove itself for longer.
        self.good_rounds_needed = match self.rounds_in < STABLE_ROUNDS {
            true => (self.good_rounds_needed * 2).min(GOOD_ROUNDS_MAX),
            false => GOOD_ROUNDS_MIN,
        };
        self.out = Some((reason, why.into()));
        self.good_rounds = 0;
        self.since = now;
    }

    fn come_back(&mut self, now: SystemTime) {
        self.out = None;
        self.rounds_in = 1;
        self.since = now;
        (self.away_rounds, self.slow_rounds) = (0, 0);
    }
}

/// Returns the median latency of the servers that are in the ring, without the one at `index`.
fn others_latency(
    index: usize,
    latencies: &[Option<Nanos>],
    standings: &[Standing],
) -> Option<Nanos> {
    let others = latencies.iter().zip(standings).enumerate();
    let others = others.filter(|(other, (_, standing))| *other != index && standing.out.is_none());
    let mut others: Vec<Nanos> = others.filter_map(|(_, (latency, _))| *latency).collect();
    others.sort_unstable();
    others.get(others.len() / 2).copied()
}

/// Returns what makes the server slow, if it is.
fn slow(latency: Option<Nanos>, others: Option<Nanos>, limits: &Limits) -> Option<String> {
    let (latency, others) = (latency?, others?);
    let limit = Nanos(others.0.saturating_mul(limits.slower)).max(limits.latency_min);
    let ms = |time: Nanos| time.0 as f64 / 1e6;
    (limits.slower > 0 && latency > limit).then(|| {
        format!("its answers take {:.1} ms, those of the others {:.1} ms", ms(latency), ms(others))
    })
}

/// The rounds in a row without a connection after which a server is out. Rounds begin twice a second.
const AWAY_ROUNDS: u32 = 2;
/// The slow rounds in a row after which a server is slow, and out if slow servers leave.
const SLOW_ROUNDS: u32 = 2;
/// The good rounds in a row after which a server comes back.
const GOOD_ROUNDS_MIN: u32 = 3;
/// The same for a server that has left again and again. A round takes less than 0.9 s, so it comes back within 5 s.
const GOOD_ROUNDS_MAX: u32 = 5;
/// The rounds after a return for which leaving again makes the next return later: about 30 s.
const STABLE_ROUNDS: u32 = 60;

#[cfg(test)]
mod tests {
    use units::Prng;

    use super::*;

    const LIMITS: Limits = Limits {
        share_max: 0.5,
        failures: 5,
        slower: 10,
        ejects_slow: true,
        latency_min: Nanos::millis(100),
    };

    struct Ring(Vec<Standing>, Limits);

    impl Ring {
        fn new(servers: usize) -> Self {
            Self(vec![Standing::new(SystemTime::UNIX_EPOCH); servers], LIMITS)
        }

        fn round(&mut self, found: &[Observation]) -> Vec<usize> {
            judge(&mut self.0, found, &self.1, SystemTime::UNIX_EPOCH)
        }

        fn rounds_until_change(&mut self, found: &[Observation]) -> usize {
            (1..100).find(|_| !self.round(found).is_empty()).expect("a change")
        }

        fn reason(&self, server: usize) -> Option<Reason> {
            self.0[server].out.as_ref().map(|(reason, _)| *reason)
        }
    }

    fn good() -> Observation {
        answering(Nanos::millis(1))
    }

    fn answering(latency: Nanos) -> Observation {
        Observation {
            workers: 2,
            fine: 2,
            latency_sum: latency,
            answers: 1,
            ..Observation::default()
        }
    }

    fn away() -> Observation {
        let why = Some("down: refused".to_owned());
        Observation { workers: 2, away: 2, why, failing: 2, ..Observation::default() }
    }

    #[test]
    fn a_server_that_is_away_leaves_in_the_second_round() {
        let mut ring = Ring::new(3);
        let found = [good(), away(), good()];
        assert_eq!(ring.rounds_until_change(&found), 2);
        assert_eq!(ring.reason(1), Some(Reason::Failures));
    }

    #[test]
    fn a_silent_server_leaves_at_once() {
        let mut ring = Ring::new(2);
        assert_eq!(ring.round(&[Observation { silent: 2, ..away() }, good()]), [0]);
        assert_eq!(ring.reason(0), Some(Reason::Silence));
    }

    #[test]
    fn a_server_that_fails_every_request_leaves_at_once() {
        let mut ring = Ring::new(3);
        let failing = Observation { failures_in_row: 5, failing: 2, fine: 0, ..good() };
        assert_eq!(ring.round(&[failing, good(), good()]), [0]);
    }

    #[test]
    fn failures_of_one_worker_of_three_move_nobody() {
        let mut ring = Ring::new(3);
        let failing =
            Observation { workers: 3, away: 1, failures_in_row: 50, failing: 1, ..good() };
        for _ in 0..10 {
            assert!(ring.round(&[failing.clone(), good(), good()]).is_empty());
        }
    }

    #[test]
    fn a_server_far_slower_than_the_others_leaves() {
        let mut ring = Ring::new(3);
        let found = [good(), good(), answering(Nanos::millis(500))];
        assert_eq!(ring.rounds_until_change(&found), 2);
        assert_eq!(ring.reason(2), Some(Reason::Latency));
    }

    #[test]
    fn a_slow_server_is_only_named_where_it_may_not_leave() {
        let mut ring = Ring::new(3);
        ring.1.ejects_slow = false;
        let found = [good(), good(), answering(Nanos::millis(500))];
        for _ in 0..10 {
            assert!(ring.round(&found).is_empty());
        }
        let why = ring.0[2].slow.as_deref().expect("it is slow");
        assert_eq!(why, "its answers take 500.0 ms, those of the others 1.0 ms");
        for _ in 0..GOOD_ROUNDS_MIN {
            ring.round(&[good(), good(), good()]);
        }
        assert_eq!(ring.0[2].slow, None);
    }

    #[test]
    fn a_server_out_for_latency_returns_where_it_may_not_leave() {
        let mut ring = Ring::new(3);
        let found = [good(), good(), answering(Nanos::millis(500))];
        ring.rounds_until_change(&found);
        ring.1.ejects_slow = false;
        assert!(ring.rounds_until_change(&found) <= GOOD_ROUNDS_MIN as usize);
        assert_eq!(ring.reason(2), None);
    }

    #[test]
    fn servers_that_are_all_slow_stay() {
        let mut ring = Ring::new(3);
        let found = vec![answering(Nanos::millis(500)); 3];
        assert!((0..10).all(|_| ring.round(&found).is_empty()));
    }

    #[test]
    fn no_more_than_the_share_is_out() {
        let mut ring = Ring::new(4);
        for _ in 0..10 {
            ring.round(&vec![away(); 4]);
        }
        assert_eq!(ring.0.iter().filter(|standing| standing.out.is_some()).count(), 2);
        let mut alone = Ring::new(1);
        assert!((0..10).all(|_| alone.round(&[away()]).is_empty()));
    }

    #[test]
    fn a_good_server_returns_and_a_flapping_one_later() {
        let mut ring = Ring::new(3);
        let (bad, all_good) = ([away(), good(), good()], [good(), good(), good()]);
        ring.rounds_until_change(&bad);
        assert_eq!(ring.rounds_until_change(&all_good), GOOD_ROUNDS_MIN as usize);
        for _ in 0..3 {
            ring.rounds_until_change(&bad);
            assert_eq!(ring.rounds_until_change(&all_good), GOOD_ROUNDS_MAX as usize);
        }
        for _ in 0..STABLE_ROUNDS {
            ring.round(&all_good);
        }
        ring.rounds_until_change(&bad);
        assert_eq!(ring.rounds_until_change(&all_good), GOOD_ROUNDS_MIN as usize);
    }

    #[test]
    fn each_round_names_exactly_the_servers_that_changed() {
        let (mut ring, mut draws) = (Ring::new(7), Prng::new(1));
        let mut changes = 0;
        for round in 0..20_000 {
            if round % 5 == 0 {
                ring.1.share_max = draws.below(101) as f64 / 100.0;
            }
            let observations: Vec<Observation> = (0..7)
                .map(|_| match draws.below(6) {
                    0 => away(),
                    1 => Observation { silent: 2, ..away() },
                    2 => answering(Nanos::millis(500)),
                    3 => Observation::default(),
                    _ => good(),
                })
                .collect();
            let are_out = |ring: &Ring| -> Vec<bool> {
                ring.0.iter().map(|standing| standing.out.is_some()).collect()
            };
            let before = are_out(&ring);
            let mut named = ring.round(&observations);
            named.sort_unstable();
            let after = are_out(&ring);
            let changed: Vec<usize> = (0..7).filter(|at| before[*at] != after[*at]).collect();
            assert_eq!(named, changed, "round {round}");
            let out = after.iter().filter(|is_out| **is_out).count();
            assert!(out as f64 <= 7.0 * ring.1.share_max, "round {round}: {out} are out");
            changes += named.len();
        }
        assert!(changes > 1_000, "only {changes} changes");
    }

    #[test]
    fn nothing_changes_without_an_answer_of_a_worker() {
        let mut ring = Ring::new(2);
        let unknown = vec![Observation::default(); 2];
        assert!((0..10).all(|_| ring.round(&unknown).is_empty()));
    }
}
