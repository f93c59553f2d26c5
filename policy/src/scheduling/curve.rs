//! What one op costs on one device, by all who report it: the last that each reporter said of each size, and of these
//! the middle one, given to the curves as so many jobs spread over the time it was counted in. Memory is bounded: of
//! many reporters, those who spoke last count.

use model::cost::{CostCurve, CostFit, Observation};
use units::Nanos;

use super::{Evidence, SizeSums};

/// The curves and what they are made from.
#[derive(Debug)]
pub(super) struct Curve {
    fits: Fits,
    reporters: Vec<Reporter>,
    /// When each class was last given to the curves.
    fed: [Nanos; CLASSES],
    last: Nanos,
    pub(super) jobs: u64,
    pub(super) refused_jobs: u64,
    pub(super) doubted: u64,
}

/// Of the device's own time, and from submission to completion.
#[derive(Debug)]
struct Fits {
    service: Follow,
    latency: Follow,
}

/// A fit that is begun anew when what it is told is far off twice in a row: a line follows, but what single sizes
/// deviate from it would carry traces of the time between for long.
#[derive(Debug)]
struct Follow {
    fit: CostFit,
    strange: u32,
}

#[derive(Debug)]
struct Reporter {
    name: Box<str>,
    at: Nanos,
    classes: [Cell; CLASSES],
}

/// What a reporter last said of a class.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// It holds until then.
    until: Nanos,
    jobs_per_s: f32,
    bytes: f32,
    service_ns: f32,
    latency_ns: f32,
}

impl Curve {
    pub(super) fn new() -> Self {
        let nothing = Cell { bytes: 1.0, service_ns: 1.0, latency_ns: 1.0, ..Cell::default() };
        Self {
            fits: Fits::starting_from(&nothing),
            reporters: Vec::new(),
            fed: [Nanos(0); CLASSES],
            last: Nanos(0),
            jobs: 0,
            refused_jobs: 0,
            doubted: 0,
        }
    }

    /// When it was last reported.
    pub(super) fn last(&self) -> Nanos {
        self.last
    }

    pub(super) fn service(&self) -> &CostCurve {
        self.fits.service.fit.curve()
    }

    pub(super) fn latency(&self) -> &CostCurve {
        self.fits.latency.fit.curve()
    }

    /// Of those who spoke last.
    pub(super) fn jobs_per_s(&self, now: Nanos) -> f64 {
        let cells = self.reporters.iter().flat_map(|reporter| &reporter.classes);
        cells.filter(|cell| cell.until > now).map(|cell| f64::from(cell.jobs_per_s)).sum()
    }

    /// Learns; returns the classes that occurred. What was counted in less than `tick` is taken to be all of one: a
    /// reporter that says it took no time is neither heard more often nor of more jobs per second.
    pub(super) fn observe(
        &mut self,
        evidence: &Evidence<'_>,
        tick: Nanos,
        now: Nanos,
    ) -> Vec<usize> {
        let mut occurred = Vec::new();
        let slot = self.reporter(evidence.reporter, now);
        for sums in evidence.sizes.iter().filter(|sums| sums.jobs > 0) {
            match Cell::of(sums, evidence.covered.max(tick), now) {
                None => self.refused_jobs = self.refused_jobs.saturating_add(sums.jobs),
                Some((class, cell)) => {
                    if self.jobs == 0 {
                        self.fits = Fits::starting_from(&cell);
                    }
                    self.reporters[slot].classes[class] = cell;
                    self.jobs = self.jobs.saturating_add(sums.jobs);
                    self.last = now;
                    occurred.push((class, sums.jobs));
                }
            }
        }
        self.feed(&occurred, slot, evidence.covered.max(tick), now);
        occurred.into_iter().map(|(class, _)| class).collect()
    }

    /// The place of a reporter; the one that was silent for longest makes room.
    fn reporter(&mut self, name: &str, now: Nanos) -> usize {
        let known = self.reporters.iter().position(|reporter| *reporter.name == *name);
        let slot = known.unwrap_or_else(|| {
            let new = Reporter { name: name.into(), at: now, classes: [Cell::default(); CLASSES] };
            if self.reporters.len() < REPORTERS_MAX {
                self.reporters.push(new);
                return self.reporters.len() - 1;
            }
            let oldest = self.reporters.iter().enumerate().min_by_key(|(_, reporter)| reporter.at);
            let slot = oldest.map_or(0, |(slot, _)| slot);
            self.reporters[slot] = new;
            slot
        });
        self.reporters[slot].at = now;
        slot
    }

    /// Gives the curves what reporters agree on, as if the jobs had come evenly over the time that they were counted
    /// in.
    fn feed(&mut self, occurred: &[(usize, u64)], slot: usize, covered: Nanos, now: Nanos) {
        let mut agreed = Vec::new();
        for (class, jobs) in occurred {
            let own = self.reporters[slot].classes[*class];
            let agreed_on = agreed_on(&self.reporters, *class, &self.fits, now);
            let Some(cell) = agreed_on else { continue };
            let apart = (own.latency_ns / own.bytes) / (cell.latency_ns / cell.bytes);
            if !(1.0 / DOUBT..DOUBT).contains(&apart) {
                self.doubted += 1;
            }
            // Many reporters say the same: what they agree on is heard only as often as it is new.
            let due = self.fed[*class].0 == 0
                || now.since(self.fed[*class]).0 >= covered.0 / FEEDS_PER_REPORT;
            if due {
                self.fed[*class] = now;
                agreed.push((cell, (*jobs).min(REPEATS)));
            }
        }
        let overall = |fit: &Follow, time_ns| overall(&self.reporters, fit, time_ns, now);
        let service = overall(&self.fits.service, |cell| cell.service_ns);
        let latency = overall(&self.fits.latency, |cell| cell.latency_ns);
        self.fits.service.follow(&agreed, |cell| cell.service_ns, service, (covered, now));
        self.fits.latency.follow(&agreed, |cell| cell.latency_ns, latency, (covered, now));
    }
}

impl Cell {
    /// The means of a class; nothing if no honest process can have counted it.
    fn of(sums: &SizeSums, covered: Nanos, now: Nanos) -> Option<(usize, Self)> {
        let class = usize::try_from(sums.log2).ok().filter(|class| *class < CLASSES)?;
        let mean = |sum: u64| sum as f64 / sums.jobs as f64;
        let (bytes, service_ns) = (mean(sums.work_bytes), mean(sums.service_ns));
        let latency_ns = service_ns + mean(sums.queueing_ns);
        let low = (1_u64 << class) as f64;
        // The smallest class has empty jobs too.
        let in_class = bytes < 2.0 * low && (bytes >= low || class == 0);
        let in_time = (1.0..=LATENCY_NS_MAX).contains(&latency_ns);
        let span_ns = covered.0.max(1) as f64;
        let holds_ns = covered.0.saturating_mul(3).clamp(HOLDS_MIN.0, HOLDS_MAX.0);
        let cell = Self {
            until: Nanos(now.0.saturating_add(holds_ns)),
            jobs_per_s: (sums.jobs as f64 * 1e9 / span_ns) as f32,
            bytes: bytes.max(1.0) as f32,
            service_ns: service_ns.max(1.0) as f32,
            latency_ns: latency_ns as f32,
        };
        (in_class && in_time).then_some((class, cell))
    }
}

impl Fits {
    fn starting_from(cell: &Cell) -> Self {
        let follow =
            |time_ns: f32| Follow::starting_from(f64::from(time_ns), f64::from(cell.bytes));
        Self { service: follow(cell.service_ns), latency: follow(cell.latency_ns) }
    }

    /// How many times longer than now expected a cell says that a job takes.
    fn times_expected(&self, cell: &Cell) -> f64 {
        self.latency.times_expected(cell, cell.latency_ns)
    }
}

impl Follow {
    /// Half of the time fixed and half by the byte: one size says nothing of others, and so the ratio of two devices is
    /// taken to be the same there.
    fn starting_from(time_ns: f64, bytes: f64) -> Self {
        Self::of_line(time_ns / 2.0, time_ns / 2.0 / bytes)
    }

    fn of_line(fixed_ns: f64, ns_per_byte: f64) -> Self {
        let prior = CostCurve::prior((fixed_ns, ns_per_byte), (0.0, 0.0), 1.0);
        Self { fit: CostFit::new(prior.expect("a cell's times and sizes are bounded")), strange: 0 }
    }

    fn times_expected(&self, cell: &Cell, time_ns: f32) -> f64 {
        f64::from(time_ns) / self.fit.curve().service.at(cell.bytes as usize).max(1.0)
    }

    /// Learns; begins anew where reporters are `overall` so many times off as well. One that alone reports some sizes
    /// is heard of those, and the line follows.
    fn follow(
        &mut self,
        agreed: &[(Cell, u64)],
        time_ns: fn(&Cell) -> f32,
        overall: f64,
        (covered, now): (Nanos, Nanos),
    ) {
        if agreed.is_empty() {
            return;
        }
        let times = |(cell, jobs): &(Cell, u64)| (self.times_expected(cell, time_ns(cell)), *jobs);
        let times = median(agreed.iter().map(times).collect());
        let is_strange = |times: f64| !(1.0 / STRANGE..STRANGE).contains(&times);
        if is_strange(times) {
            self.strange = self.strange.saturating_add(1);
            if self.strange < STRANGE_FEEDS {
                return;
            }
            if is_strange(overall) {
                let (fixed_ns, ns_per_byte) = self.fit.curve().ahead();
                let bounded = |value: f64| (value * overall).clamp(0.0, LATENCY_NS_MAX);
                *self = Self::of_line(bounded(fixed_ns), bounded(ns_per_byte));
            }
        } else {
            self.strange = 0;
        }
        for turn in 0..REPEATS {
            let at = Nanos(now.0.saturating_sub(covered.0 / REPEATS * (REPEATS - 1 - turn)));
            for (cell, _) in agreed.iter().filter(|(_, jobs)| turn + jobs >= REPEATS) {
                self.fit.observe(&Observation {
                    at,
                    bytes: cell.bytes as usize,
                    latency: Nanos(time_ns(cell) as u64),
                    depth_jobs: 0,
                    backlog_bytes: 0,
                    host: Nanos(0),
                });
            }
        }
    }
}

/// By weight; 1 of nothing.
fn median(mut values: Vec<(f64, u64)>) -> f64 {
    values.sort_by(|one, other| one.0.total_cmp(&other.0));
    let total: u128 = values.iter().map(|(_, weight)| u128::from(*weight)).sum();
    let mut reached = 0;
    for (value, weight) in values {
        reached += u128::from(weight);
        if 2 * reached >= total {
            return value;
        }
    }
    1.0
}

/// What the one in the middle of the reporters says of a class.
fn agreed_on(reporters: &[Reporter], class: usize, fits: &Fits, now: Nanos) -> Option<Cell> {
    let cells = reporters.iter().map(|reporter| reporter.classes[class]);
    let live = cells.filter(|cell| cell.until > now);
    middle(live.map(|cell| (fits.times_expected(&cell), cell)).collect()).map(|(_, cell)| cell)
}

/// How many times off the one in the middle of the reporters is, over all of its sizes: each has one voice, however
/// many sizes or jobs it reports. 1 of nobody.
fn overall(reporters: &[Reporter], fit: &Follow, time_ns: fn(&Cell) -> f32, now: Nanos) -> f64 {
    let of = |reporter: &Reporter| {
        let live = reporter.classes.iter().filter(|cell| cell.until > now);
        let times = |cell: &Cell| {
            (fit.times_expected(cell, time_ns(cell)), cell.jobs_per_s.ceil().max(1.0) as u64)
        };
        let times: Vec<_> = live.map(times).collect();
        (!times.is_empty()).then(|| (median(times), ()))
    };
    middle(reporters.iter().filter_map(of).collect()).map_or(1.0, |(times, ())| times)
}

/// By how many times off they are; of two in the middle, the one nearer to what is known.
fn middle<T>(mut all: Vec<(f64, T)>) -> Option<(f64, T)> {
    let off = |times: f64| times.max(f64::MIN_POSITIVE).ln();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (low, high) = (all.len().checked_sub(1)? / 2, all.len() / 2);
    let nearer = if off(all[low].0).abs() <= off(all[high].0).abs() { low } else { high };
    Some(all.swap_remove(nearer))
}

/// Sizes up to 2 GiB, beyond the largest item.
pub(super) const CLASSES: usize = 31;

/// Of more, those who spoke last are a sample.
const REPORTERS_MAX: usize = 16;

/// A cell counts as so many observations at most: enough for the curves to follow within a few reports.
const REPEATS: u64 = 8;

const FEEDS_PER_REPORT: u64 = 4;

/// What a reporter said holds for three of its reports, within these bounds: the first may cover hours.
const HOLDS_MIN: Nanos = Nanos::secs(1);
const HOLDS_MAX: Nanos = Nanos::secs(30);

/// A reporter is doubted where it is so many times off what the others agree on.
const DOUBT: f32 = 4.0;

/// An hour: no job is waited for so long.
const LATENCY_NS_MAX: f64 = 3.6e12;

/// What is so many times off, so often in a row, is another device than it was.
const STRANGE: f64 = 2.0;
const STRANGE_FEEDS: u32 = 2;
