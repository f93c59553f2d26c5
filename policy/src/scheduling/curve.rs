//! What one op costs on one device, by all who report it: the last that each reporter said of each size, of these the
//! middle one, and of what that was over the last reports the middle one again; the curves go through those. Memory is
//! bounded: of many reporters, those who spoke last count.

use model::cost::{CostCurve, Mean};
use units::Nanos;

use super::{Evidence, SizeSums};

/// The curves and what they are made from.
#[derive(Debug)]
pub(super) struct Curve {
    fits: Fits,
    reporters: Vec<Reporter>,
    told: [Told; CLASSES],
    /// How often in a row what was told was far off, and since when.
    strange: u32,
    strange_since: Nanos,
    last: Nanos,
    pub(super) jobs: u64,
    pub(super) refused_jobs: u64,
    pub(super) doubted: u64,
}

/// Of the device's own time, from submission to completion, and of that of the calling core; of the last where it is
/// looked at.
#[derive(Debug)]
struct Fits {
    service: CostCurve,
    latency: CostCurve,
    host: Option<CostCurve>,
}

/// What reporters agreed on of one class, the last few times.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    last: [Option<Agreed>; TOLD_MAX],
    next: usize,
    at: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Agreed {
    at: Nanos,
    jobs: f64,
    cell: Cell,
}

#[derive(Debug)]
struct Reporter {
    name: Box<str>,
    at: Nanos,
    classes: [Cell; CLASSES],
}

/// One of a cell's times (ns).
type TimeOf = fn(&Cell) -> f32;

/// What a reporter last said of a class.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// It holds until then.
    until: Nanos,
    jobs_per_s: f32,
    bytes: f32,
    service_ns: f32,
    latency_ns: f32,
    /// Not known: not a number.
    host_ns: f32,
}

impl Curve {
    pub(super) fn new() -> Self {
        let nothing = Cell { bytes: 1.0, service_ns: 1.0, latency_ns: 1.0, ..Cell::default() };
        Self {
            fits: Fits::starting_from(&nothing),
            reporters: Vec::new(),
            told: [Told::default(); CLASSES],
            strange: 0,
            strange_since: Nanos(0),
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
        &self.fits.service
    }

    pub(super) fn latency(&self) -> &CostCurve {
        &self.fits.latency
    }

    /// What a job takes of the calling core, where that was looked at.
    pub(super) fn host(&self) -> Option<&CostCurve> {
        self.fits.host.as_ref()
    }

    /// Of those who spoke last, by class of size.
    pub(super) fn jobs_per_s(&self, now: Nanos) -> [f64; CLASSES] {
        let of = |class: usize| {
            let cells = self.reporters.iter().map(|reporter| &reporter.classes[class]);
            cells.filter(|cell| cell.until > now).map(|cell| f64::from(cell.jobs_per_s)).sum()
        };
        std::array::from_fn(of)
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

    /// Takes in what reporters agree on, and draws the curves anew; twice in a row far off, all that was before is
    /// forgotten.
    fn feed(&mut self, occurred: &[(usize, u64)], slot: usize, covered: Nanos, now: Nanos) {
        let mut agreed = Vec::new();
        for (class, jobs) in occurred {
            let own = self.reporters[slot].classes[*class];
            let Some(cell) = agreed_on(&self.reporters, *class, &self.fits, now) else { continue };
            let apart = (own.latency_ns / own.bytes) / (cell.latency_ns / cell.bytes);
            if !(1.0 / DOUBT..DOUBT).contains(&apart) {
                self.doubted += 1;
            }
            // Many reporters say the same: what they agree on is heard only as often as it is new.
            let told = &mut self.told[*class];
            if told.at.0 == 0 || now.since(told.at).0 >= covered.0 - covered.0 / 4 {
                told.hear(Agreed { at: now, jobs: *jobs as f64, cell });
                agreed.push((self.fits.times_expected(&cell), *jobs));
            }
        }
        if agreed.is_empty() {
            return;
        }
        if !is_strange(median(agreed)) {
            self.strange = 0;
            return self.draw(covered, now);
        }
        if self.strange == 0 {
            self.strange_since = now;
        }
        self.strange = self.strange.saturating_add(1);
        if self.strange < STRANGE_FEEDS {
            return;
        }
        // One that alone reports some sizes is heard of those, and the line follows.
        if is_strange(overall(&self.reporters, &self.fits, now)) {
            let since = self.strange_since;
            self.told.iter_mut().for_each(|told| told.forget_before(since));
            self.strange = 0;
        }
        self.draw(covered, now);
    }

    /// The curves through what was told of late.
    fn draw(&mut self, covered: Nanos, now: Nanos) {
        let age_max = Nanos(covered.0.saturating_mul(AGE_REPORTS).max(AGE_MIN.0));
        let means = |curve: &CostCurve, time_ns: TimeOf| -> Vec<Mean> {
            self.told.iter().filter_map(|told| told.middle(curve, time_ns, age_max, now)).collect()
        };
        let through = |curve: &CostCurve, time_ns: TimeOf| {
            CostCurve::through_means(&means(curve, time_ns), curve.ahead())
        };
        let Fits { service, latency, host } = &self.fits;
        let shape = host.as_ref().unwrap_or(service);
        self.fits = Fits {
            service: through(service, |cell| cell.service_ns).unwrap_or(*service),
            latency: through(latency, |cell| cell.latency_ns).unwrap_or(*latency),
            host: through(shape, |cell| cell.host_ns).or(*host),
        };
    }
}

impl Told {
    fn hear(&mut self, agreed: Agreed) {
        self.at = agreed.at;
        self.last[self.next % TOLD_MAX] = Some(agreed);
        self.next = (self.next + 1) % TOLD_MAX;
    }

    fn forget_before(&mut self, since: Nanos) {
        let is_old = |own: &Agreed| own.at < since;
        self.last
            .iter_mut()
            .filter(|own| own.as_ref().is_some_and(is_old))
            .for_each(|own| *own = None);
    }

    /// The one in the middle by how far it is off the curve, for as many jobs as there were in all.
    fn middle(
        &self,
        curve: &CostCurve,
        time_ns: TimeOf,
        age_max: Nanos,
        now: Nanos,
    ) -> Option<Mean> {
        let is_live =
            |own: &&Agreed| now.since(own.at) <= age_max && time_ns(&own.cell).is_finite();
        let live: Vec<&Agreed> = self.last.iter().flatten().filter(is_live).collect();
        let times = |own: &&Agreed| (times_expected(curve, &own.cell, time_ns), own.jobs as u64);
        let bytes = f64::from(live.last()?.cell.bytes);
        let off = median(live.iter().map(times).collect());
        let ns = off * curve.service.at(bytes as usize).max(1.0);
        Some(Mean { bytes, ns, jobs: live.iter().map(|own| own.jobs).sum() })
    }
}

impl Cell {
    /// The means of a class; nothing if no honest process can have counted it.
    fn of(sums: &SizeSums, covered: Nanos, now: Nanos) -> Option<(usize, Self)> {
        let class = usize::try_from(sums.log2).ok().filter(|class| *class < CLASSES)?;
        let mean = |sum: u64| sum as f64 / sums.jobs as f64;
        let (bytes, service_ns) = (mean(sums.work_bytes), mean(sums.service_ns));
        let host_ns = (sums.host_ns as f64 / sums.host_jobs as f64).clamp(1.0, LATENCY_NS_MAX);
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
            host_ns: host_ns as f32,
        };
        (in_class && in_time).then_some((class, cell))
    }
}

impl Fits {
    /// Half of the time fixed and half by the byte: one size says nothing of others, and so the ratio of two devices is
    /// taken to be the same there.
    fn starting_from(cell: &Cell) -> Self {
        let curve = |time_ns: f32| {
            let (half, bytes) = (f64::from(time_ns) / 2.0, f64::from(cell.bytes));
            let prior = CostCurve::prior((half, half / bytes), (0.0, 0.0), 1.0);
            prior.expect("a cell's times and sizes are bounded")
        };
        Self { service: curve(cell.service_ns), latency: curve(cell.latency_ns), host: None }
    }

    /// How many times longer than now expected a cell says that a job takes.
    fn times_expected(&self, cell: &Cell) -> f64 {
        times_expected(&self.latency, cell, |cell| cell.latency_ns)
    }
}

fn times_expected(curve: &CostCurve, cell: &Cell, time_ns: TimeOf) -> f64 {
    f64::from(time_ns(cell)) / curve.service.at(cell.bytes as usize).max(1.0)
}

fn is_strange(times: f64) -> bool {
    !(1.0 / STRANGE..STRANGE).contains(&times)
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
fn overall(reporters: &[Reporter], fits: &Fits, now: Nanos) -> f64 {
    let of = |reporter: &Reporter| {
        let live = reporter.classes.iter().filter(|cell| cell.until > now);
        let times =
            |cell: &Cell| (fits.times_expected(cell), cell.jobs_per_s.ceil().max(1.0) as u64);
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

/// The last times that a class was told of: of seven, three may be far off.
const TOLD_MAX: usize = 7;

/// What was told is forgotten after so many reports, and not before so long: sizes that are only probed are rare.
const AGE_REPORTS: u64 = 10;
const AGE_MIN: Nanos = Nanos::secs(10);

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
