//! The branches of traces. A request takes each branch by itself: its payload's field has the value of the service's
//! most common path with a stated probability, and the other value otherwise. The compiler turns a chain of traces into
//! one way for each combination of outcomes, and a request draws its way where the chain begins. The effect is the same
//! as if each dispatcher drew, because a branch only changes what follows it.

use super::program::Step;

/// The fields that branches read, as traces name them.
pub(super) const FIELDS: [&str; 6] =
    ["to-compress", "compressed", "hit", "found", "cache-compressed", "exception"];

/// For each of the [`FIELDS`], the probability that it has the value of the most common path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Branches(pub(super) [f64; FIELDS.len()]);

impl Branches {
    /// Returns the probability that a field has the value of the most common path. Other fields always have it.
    pub(super) fn common(&self, field: &str) -> f64 {
        let at = FIELDS.iter().position(|known| *known == field);
        at.map_or(1.0, |at| self.0[at])
    }
}

/// The outcomes of the branches on one way through a chain of traces.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcomes {
    /// For each field that was read and may vary, whether it has the value of the most common path.
    common: Vec<bool>,
    read: usize,
    probability: f64,
}

impl Outcomes {
    /// Returns the outcomes of the most common way.
    pub(super) fn common() -> Self {
        Self { common: Vec::new(), read: 0, probability: 1.0 }
    }

    /// Returns whether the next field has the value of the most common path, which it has with this probability.
    pub(super) fn next(&mut self, probability: f64) -> bool {
        if probability >= 1.0 || probability <= 0.0 {
            return probability >= 1.0;
        }
        if self.read == self.common.len() {
            self.common.push(true);
        }
        let is_common = self.common[self.read];
        self.read += 1;
        self.probability *= if is_common { probability } else { 1.0 - probability };
        is_common
    }

    /// Returns the probability of the outcomes so far.
    pub(super) fn probability(&self) -> f64 {
        self.probability
    }

    /// Returns whether a field may have more than one value on this way.
    pub(super) fn vary(&self) -> bool {
        !self.common.is_empty()
    }

    /// Returns whether a field that was read has another value than on the most common path.
    pub(super) fn leave_the_common_path(&self) -> bool {
        self.common[..self.read].contains(&false)
    }

    /// Returns the outcomes of the way after this one, or none after the last.
    pub(super) fn following(mut self) -> Option<Self> {
        while !self.common.pop()? {}
        self.common.push(false);
        Some(Self { common: self.common, read: 0, probability: 1.0 })
    }
}

/// One way through a chain of traces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Way {
    /// A request takes the first way whose limit is above its hash.
    pub(super) limit: u64,
    pub(super) start: u16,
}

/// Returns the ways, each with its probability and the index of its first step, as shares of all hashes.
pub(super) fn ways(all: &[(f64, u16)]) -> Vec<Way> {
    let mut below = 0.0;
    let mut ways: Vec<Way> = all
        .iter()
        .map(|(probability, start)| {
            below += probability;
            Way { limit: (below * HASHES) as u64, start: *start }
        })
        .collect();
    // Rounding must not leave a hash without a way.
    if let Some(last) = ways.last_mut() {
        last.limit = u64::MAX;
    }
    ways
}

/// Returns the first step of the way that a token with this key takes at step `at`.
pub(super) fn chosen(ways: &[Way], key: u64, at: u16) -> u16 {
    let hash = crate::streams::mix(crate::streams::mix(key ^ BRANCHES) ^ u64::from(at));
    let way = ways.iter().find(|way| hash < way.limit).or(ways.last());
    way.expect("a choice has ways").start
}

/// The time that passes along the steps of a program. Ways exclude each other, so the time behind a choice is the mean
/// of the ways that lead there.
#[derive(Debug, Default)]
pub(super) struct Passed {
    pub(super) ps: f64,
    choice: Option<Choice>,
}

#[derive(Debug)]
struct Choice {
    starts: Vec<u16>,
    join: u16,
    before_ps: f64,
    /// The sum of the ways' weights, and that of their times by weight.
    sums: [f64; 2],
}

impl Passed {
    /// Follows the step at `index`, which is executed `weight` times.
    pub(super) fn reach(&mut self, index: usize, step: &Step, weight: f64) {
        if let Some(choice) = &mut self.choice {
            if usize::from(choice.join) == index {
                let [weights, times_ps] = choice.sums;
                self.ps = if weights > 0.0 { times_ps / weights } else { choice.before_ps };
                self.choice = None;
            } else if choice.starts.iter().any(|start| usize::from(*start) == index) {
                self.ps = choice.before_ps;
            }
        }
        match (step, &mut self.choice) {
            (Step::Choose { ways, join }, _) => {
                let starts = ways.iter().map(|way| way.start).collect();
                let choice = Choice { starts, join: *join, before_ps: self.ps, sums: [0.0; 2] };
                self.choice = Some(choice);
            }
            (Step::Jump(to), Some(choice)) if *to == choice.join => {
                choice.sums[0] += weight;
                choice.sums[1] += weight * self.ps;
            }
            _ => {}
        }
    }

    /// Adds the time of a step.
    pub(super) fn add(&mut self, ps: f64) {
        self.ps += ps;
    }
}

/// The number of hashes.
const HASHES: f64 = 18_446_744_073_709_551_616.0;
/// Separates the draws of ways from those of sizes.
const BRANCHES: u64 = 0x2545_f491_4f6c_dd1d;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all outcomes of reading fields with these probabilities, each with its probability.
    fn all(probabilities: &[f64]) -> Vec<(Vec<bool>, f64)> {
        let (mut found, mut next) = (Vec::new(), Some(Outcomes::common()));
        while let Some(mut outcomes) = next {
            let read = probabilities.iter().map(|one| outcomes.next(*one)).collect();
            found.push((read, outcomes.probability()));
            next = outcomes.following();
        }
        found
    }

    #[test]
    fn every_combination_of_outcomes_comes_once() {
        let found = all(&[0.75, 1.0, 0.5]);
        let expected = [
            (vec![true, true, true], 0.375),
            (vec![true, true, false], 0.375),
            (vec![false, true, true], 0.125),
            (vec![false, true, false], 0.125),
        ];
        assert_eq!(found, expected);
        assert_eq!(all(&[1.0, 0.0]), [(vec![true, false], 1.0)]);
    }

    #[test]
    fn tokens_take_ways_as_often_as_stated() {
        let ways = ways(&[(0.7, 10), (0.2, 20), (0.1, 30)]);
        let count = |start| {
            let took = (0..100_000u64).filter(|key| chosen(&ways, key * 977, 3) == start);
            took.count() as f64 / 1e5
        };
        for (start, share) in [(10, 0.7), (20, 0.2), (30, 0.1)] {
            assert!((count(start) - share).abs() < 0.005, "{start}: {}", count(start));
        }
    }
}
