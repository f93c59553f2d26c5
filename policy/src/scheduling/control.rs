//! The control of the offload size: it follows a proposed size without oscillating. The proposal is made
//! under the load that the current size causes, so less offloading makes offloading look better. The current
//! size moves only for a significant and lasting difference, by a bounded step. A step in the opposite
//! direction is smaller than the previous step and comes after a longer pause. Steps grow again only if they
//! continue in one direction. A change that does not depend on the decision resets step and pause.

use model::cost::CostCurve;

use super::REFERENCE_BYTES;

/// The quantities that do not depend on the decision, as logarithms to base 2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Levels([f64; 3]);

impl Levels {
    /// Creates the levels from the service times of a device and of software, and from the jobs per second.
    pub(super) fn new(device: &CostCurve, software: &CostCurve, jobs_per_s: f64) -> Self {
        let service = |curve: &CostCurve| curve.service.at(REFERENCE_BYTES).max(1.0);
        Self([service(device), service(software), jobs_per_s.max(1.0)].map(f64::log2))
    }

    fn differ(&self, other: &Levels) -> bool {
        self.0.iter().zip(other.0).any(|(level, other)| (level - other).abs() > REGIME_LOG2)
    }
}

/// Controls the smallest size that is offloaded.
#[derive(Clone, Debug)]
pub(super) struct Control {
    /// The current size (log2 of bytes).
    log2: f64,
    /// The size of the last step, as a logarithm to base 2.
    step: f64,
    /// The direction of the last step, or 0 before the first step. `run` is the number of steps in a row in this
    /// direction.
    went: i8,
    run: u32,
    /// The direction from the current size to the proposals, unchanged for `ticks_in_direction` ticks.
    direction: i8,
    ticks_in_direction: u32,
    /// The ticks to wait before a step in the opposite direction. `waited` counts ticks since the last step.
    pause: u32,
    waited: u32,
    levels: Option<Levels>,
}

impl Control {
    pub(super) fn new() -> Self {
        Self {
            log2: START_LOG2,
            step: STEP_MAX_LOG2,
            went: 0,
            run: 0,
            direction: 0,
            ticks_in_direction: 0,
            pause: 1,
            waited: 0,
            levels: None,
        }
    }

    /// Returns the current size (log2 of bytes).
    pub(super) fn log2(&self) -> f64 {
        self.log2
    }

    /// Returns the current size (bytes).
    pub(super) fn bytes_min(&self) -> u64 {
        self.log2.exp2().round() as u64
    }

    /// Advances by one tick. Returns whether the current size moved.
    pub(super) fn follow(&mut self, proposed_log2: f64, levels: Levels) -> bool {
        if self.levels.is_none_or(|known| known.differ(&levels)) {
            self.levels = Some(levels);
            (self.step, self.went, self.run, self.pause) = (STEP_MAX_LOG2, 0, 0, 1);
        }
        self.waited = self.waited.saturating_add(1);
        let off = proposed_log2 - self.log2;
        let way = match off {
            off if off > BAND_LOG2 => 1,
            off if off < -BAND_LOG2 => -1,
            _ => 0,
        };
        self.ticks_in_direction =
            if way == self.direction { self.ticks_in_direction.saturating_add(1) } else { 1 };
        self.direction = way;
        let is_back = self.went == -way;
        if way == 0
            || self.ticks_in_direction < CONFIRM_TICKS
            || (is_back && self.waited < self.pause)
        {
            return false;
        }
        self.run = if is_back { 1 } else { self.run.saturating_add(1) };
        if is_back {
            self.step = (self.step / 2.0).max(STEP_MIN_LOG2);
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        } else if self.run > RUN_BEFORE_GROWTH {
            (self.step, self.pause) = ((self.step * 2.0).min(STEP_MAX_LOG2), 1);
        }
        (self.went, self.waited) = (way, 0);
        self.log2 += f64::from(way) * self.step.min(off.abs());
        true
    }
}

/// Controls the largest size of jobs for which the calling thread waits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    /// The current size (bytes). It is 0 if the thread waits for no job.
    bytes_max: u64,
    /// The number of ticks in a row for which another size was wanted.
    ticks_wanted: u32,
}

impl Waits {
    /// Returns the current size (bytes).
    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Advances by one tick. Returns whether the current size changed. A size within a factor of about two
    /// counts as the same.
    pub(super) fn follow(&mut self, wanted: u64) -> bool {
        let log2 = |bytes: u64| bytes.checked_ilog2().map_or(-1, |log2| log2 as i32);
        let is_near = (log2(wanted) - log2(self.bytes_max)).abs() <= 1;
        let is_other = if wanted == 0 { self.bytes_max != 0 } else { !is_near };
        self.ticks_wanted = if is_other { self.ticks_wanted.saturating_add(1) } else { 0 };
        if self.ticks_wanted < CONFIRM_TICKS {
            return false;
        }
        (self.bytes_max, self.ticks_wanted) = (wanted, 0);
        true
    }
}

/// The size at the start: the shipped `runtime.offload_bytes_min`, 1 KiB.
const START_LOG2: f64 = 10.0;

/// The minimum difference for which the size moves (log2): a factor of 1.4, about the error of a curve.
const BAND_LOG2: f64 = 0.5;

/// The number of ticks in a row for which a proposal must lie in one direction, because one report may cover an odd
/// second.
const CONFIRM_TICKS: u32 = 2;

/// The maximum step (log2): a factor of eight. The size can reach every value within seconds.
const STEP_MAX_LOG2: f64 = 3.0;

/// The minimum step (log2). Smaller steps are within the error of the curves.
const STEP_MIN_LOG2: f64 = 0.25;

/// The number of steps in one direction after which steps grow. If a step passes the right size, two smaller
/// steps find it again. A third step in one direction therefore means that the right size has changed.
const RUN_BEFORE_GROWTH: u32 = 2;

/// The maximum pause (ticks), which follows steps back and forth. A change that shows only under load is
/// found within this time.
const PAUSE_MAX: u32 = 16;

/// The change of a level that counts as another situation (log2): a factor of two.
const REGIME_LOG2: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn steady() -> Levels {
        Levels([10.0; 3])
    }

    #[test]
    fn only_a_lasting_proposal_is_followed() {
        let mut control = Control::new();
        assert!(!control.follow(10.4, steady()) && !control.follow(20.0, steady()));
        assert!(!control.follow(10.0, steady()), "one odd tick");
        let moves: Vec<bool> = (0..6).map(|_| control.follow(16.0, steady())).collect();
        assert_eq!(moves, [false, true, true, false, false, false]);
        assert_eq!(control.bytes_min(), 1 << 16);
    }

    #[test]
    fn what_swings_with_its_own_effect_comes_to_rest() {
        // Above 14 the device looks good at every size. Below 14 it looks good at none.
        let mut control = Control::new();
        let ticks: Vec<(bool, f64)> = (0..200)
            .map(|_| {
                let proposed = if control.log2 > 14.0 { 6.0 } else { 21.0 };
                (control.follow(proposed, steady()), control.log2)
            })
            .collect();
        let late = &ticks[50..];
        assert!(late.iter().all(|(_, log2)| (log2 - 14.0).abs() < 0.6), "{late:?}");
        let moves = late.iter().filter(|(moved, _)| *moved).count();
        assert!(moves <= 2 * (150 / PAUSE_MAX as usize + 1), "{moves}");
    }

    #[test]
    fn what_is_waited_for_changes_when_it_is_said_twice() {
        let mut waits = Waits::default();
        let changes = [4_096, 0, 4_096, 4_096, 8_192, 2_048, 0, 4_096, 0, 0].map(|wanted| {
            let changed = waits.follow(wanted);
            (changed, waits.bytes_max())
        });
        let at = |index: usize| changes[index];
        assert_eq!((at(0), at(1), at(3)), ((false, 0), (false, 0), (true, 4_096)));
        assert_eq!((at(5), at(7), at(9)), ((false, 4_096), (false, 4_096), (true, 0)));
    }

    #[test]
    fn another_situation_ends_the_pause() {
        let mut control = Control::new();
        (0..100).for_each(|_| {
            let proposed = if control.log2 > 14.0 { 6.0 } else { 21.0 };
            control.follow(proposed, steady());
        });
        let slower = Levels([13.3, 10.0, 10.0]);
        let ticks = (0..20).position(|_| {
            control.follow(21.0, slower);
            control.log2 > 20.4
        });
        assert!(ticks.is_some_and(|ticks| ticks <= 5), "{ticks:?}");
    }
}
