//! The cost curves of one op on one device. Reporters are processes that report the times of their jobs. For each size
//! class, the agreed value is the median over the last report of each reporter. The curves go through the medians of
//! the last few agreed values. Memory is bounded: only the reporters that reported last are kept.

use model::cost::{CostCurve, Mean};
use units::Nanos;

use super::{JobReport, SizeSums};

/// The cost curves of one op on one device, and the reports from which they are computed.
#[derive(Debug)]
pub(super) struct Curve {
    fits: Fits,
    reporters: Vec<Reporter>,
    recent: [RecentValues; CLASSES],
    /// The number of reports in a row after which the agreed values differed from the curves by the factor
    /// [`OUTLIER_RATIO`] or more. `outliers_since` is the time of the first of these reports.
    outliers: u32,
    outliers_since: Nanos,
    last: Nanos,
    pub(super) jobs: u64,
    pub(super) refused_jobs: u64,
    pub(super) doubted: u64,
}

/// The curves of the device's service time, of the time from submission to completion, and of the time on the
/// calling core. The last curve exists only if its time was measured.
#[derive(Debug)]
struct Fits {
    service: CostCurve,
    latency: CostCurve,
    host: Option<CostCurve>,
}

/// The last few values of one size class. Each is the median over the processes that report jobs.
#[derive(Clone, Copy, Debug, Default)]
struct RecentValues {
    last: [Option<Agreed>; RECENT_MAX],
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

/// Selects one of a cell's times (ns).
type TimeOf = fn(&Cell) -> f32;

/// The last report of one process on its jobs of one size class.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// The time until which the report is valid.
    until: Nanos,
    jobs_per_s: f32,
    bytes: f32,
    service_ns: f32,
    latency_ns: f32,
    /// The time on the calling core (ns). It is NaN if the time is not known.
    host_ns: f32,
}

impl Curve {
    pub(super) fn new() -> Self {
        let nothing = Cell { bytes: 1.0, service_ns: 1.0, latency_ns: 1.0, ..Cell::default() };
        Self {
            fits: Fits::starting_from(&nothing),
            reporters: Vec::new(),
            recent: [RecentValues::default(); CLASSES],
            outliers: 0,
            outliers_since: Nanos(0),
            last: Nanos(0),
            jobs: 0,
            refused_jobs: 0,
            doubted: 0,
        }
    }

    /// Returns the time of the last report.
    pub(super) fn last(&self) -> Nanos {
        self.last
    }

    pub(super) fn service(&self) -> &CostCurve {
        &self.fits.service
    }

    pub(super) fn latency(&self) -> &CostCurve {
        &self.fits.latency
    }

    /// Returns the curve of a job's time on the calling core, if it was measured.
    pub(super) fn host(&self) -> Option<&CostCurve> {
        self.fits.host.as_ref()
    }

    /// Returns the jobs per second by size class, over the reports that are still valid.
    pub(super) fn jobs_per_s(&self, now: Nanos) -> [f64; CLASSES] {
        let rate = |class: usize| {
            let cells = self.reporters.iter().map(|reporter| &reporter.classes[class]);
            cells.filter(|cell| cell.until > now).map(|cell| f64::from(cell.jobs_per_s)).sum()
        };
        std::array::from_fn(rate)
    }

    /// Updates the curves with a report, and returns the classes that occurred. A report over less than
    /// `tick` counts as a report over a whole tick, so that a reporter gains no weight by claiming a shorter
    /// time.
    pub(super) fn observe(
        &mut self,
        report: &JobReport<'_>,
        tick: Nanos,
        now: Nanos,
    ) -> Vec<usize> {
        let mut occurred = Vec::new();
        let slot = self.reporter(report.reporter, now);
        for sums in report.sizes.iter().filter(|sums| sums.jobs > 0) {
            match Cell::from_sums(sums, report.covered.max(tick), now) {
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
        self.feed(&occurred, slot, report.covered.max(tick), now);
        occurred.into_iter().map(|(class, _)| class).collect()
    }

    /// Returns the index of the reporting process `name` in `reporters`. If there is no space, a new process replaces
    /// the one that was silent for longest.
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

    /// Adds the agreed values of the size classes in `occurred` after the process at index `slot` has reported, and
    /// computes the curves again. An agreed value is the median over all reporting processes. Agreed values that differ
    /// from the curves by the factor [`OUTLIER_RATIO`] or more are outliers. They leave the curves the same until
    /// [`OUTLIERS_TO_CHANGE`] reports in a row had outliers. Then, if the processes' values are outliers over all sizes
    /// too, the device has changed, and all values from before these reports are forgotten.
    fn feed(&mut self, occurred: &[(usize, u64)], slot: usize, covered: Nanos, now: Nanos) {
        let mut agreed = Vec::new();
        for (class, jobs) in occurred {
            let reported = self.reporters[slot].classes[*class];
            let Some(cell) = agreed_on(&self.reporters, *class, &self.fits, now) else { continue };
            let apart = (reported.latency_ns / reported.bytes) / (cell.latency_ns / cell.bytes);
            if !(1.0 / DOUBT_RATIO..DOUBT_RATIO).contains(&apart) {
                self.doubted += 1;
            }
            // Many reporters report the same, so an agreed value is added only as often as it is new.
            let recent = &mut self.recent[*class];
            if recent.at.0 == 0 || now.since(recent.at).0 >= covered.0 - covered.0 / 4 {
                recent.push(Agreed { at: now, jobs: *jobs as f64, cell });
                agreed.push((self.fits.times_expected(&cell), *jobs));
            }
        }
        if agreed.is_empty() {
            return;
        }
        if !is_outlier(median(agreed)) {
            self.outliers = 0;
            return self.draw(covered, now);
        }
        if self.outliers == 0 {
            self.outliers_since = now;
        }
        self.outliers = self.outliers.saturating_add(1);
        if self.outliers < OUTLIERS_TO_CHANGE {
            return;
        }
        // A reporter that alone reports some sizes is heard for those sizes, and the curve follows.
        if is_outlier(overall(&self.reporters, &self.fits, now)) {
            let since = self.outliers_since;
            self.recent.iter_mut().for_each(|recent| recent.forget_before(since));
            self.outliers = 0;
        }
        self.draw(covered, now);
    }

    /// Computes the curves through the recent values.
    fn draw(&mut self, covered: Nanos, now: Nanos) {
        let age_max = Nanos(covered.0.saturating_mul(AGE_REPORTS).max(AGE_MIN.0));
        let means = |curve: &CostCurve, time_ns: TimeOf| -> Vec<Mean> {
            self.recent
                .iter()
                .filter_map(|recent| recent.middle(curve, time_ns, age_max, now))
                .collect()
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

impl RecentValues {
    fn push(&mut self, agreed: Agreed) {
        self.at = agreed.at;
        self.last[self.next % RECENT_MAX] = Some(agreed);
        self.next = (self.next + 1) % RECENT_MAX;
    }

    fn forget_before(&mut self, since: Nanos) {
        let is_old = |agreed: &Agreed| agreed.at < since;
        self.last
            .iter_mut()
            .filter(|agreed| agreed.as_ref().is_some_and(is_old))
            .for_each(|agreed| *agreed = None);
    }

    /// Returns the median ratio of the recent values to the curve, as a time at the size of the last of these values.
    /// Values older than `age_max` and values without this time are ignored. Returns none if no value is left.
    fn middle(
        &self,
        curve: &CostCurve,
        time_ns: TimeOf,
        age_max: Nanos,
        now: Nanos,
    ) -> Option<Mean> {
        let is_live =
            |agreed: &&Agreed| now.since(agreed.at) <= age_max && time_ns(&agreed.cell).is_finite();
        let live: Vec<&Agreed> = self.last.iter().flatten().filter(is_live).collect();
        let times =
            |agreed: &&Agreed| (times_expected(curve, &agreed.cell, time_ns), agreed.jobs as u64);
        let bytes = f64::from(live.last()?.cell.bytes);
        let off = median(live.iter().map(times).collect());
        let ns = off * curve.service.at(bytes as usize).max(1.0);
        Some(Mean { bytes, ns, jobs: live.iter().map(|agreed| agreed.jobs).sum() })
    }
}

impl Cell {
    /// Returns the class and the mean values of these sums. Returns none if the sums are impossible.
    fn from_sums(sums: &SizeSums, covered: Nanos, now: Nanos) -> Option<(usize, Self)> {
        let class = usize::try_from(sums.log2).ok().filter(|class| *class < CLASSES)?;
        let mean = |sum: u64| sum as f64 / sums.jobs as f64;
        let (bytes, service_ns) = (mean(sums.work_bytes), mean(sums.service_ns));
        let host_ns = (sums.host_ns as f64 / sums.host_jobs as f64).clamp(1.0, LATENCY_NS_MAX);
        let latency_ns = service_ns + mean(sums.queueing_ns);
        let low = (1_u64 << class) as f64;
        // The smallest class also contains empty jobs.
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
    /// Creates curves from one cell: half of its time is fixed and half is proportional to the size. One size
    /// says nothing about other sizes, so the ratio of two devices is assumed to be the same for all sizes.
    fn starting_from(cell: &Cell) -> Self {
        let curve = |time_ns: f32| {
            let (half, bytes) = (f64::from(time_ns) / 2.0, f64::from(cell.bytes));
            let prior = CostCurve::prior((half, half / bytes), (0.0, 0.0), 1.0);
            prior.expect("a cell's times and sizes are bounded")
        };
        Self { service: curve(cell.service_ns), latency: curve(cell.latency_ns), host: None }
    }

    /// Returns the latency of a cell divided by the latency that the curve gives.
    fn times_expected(&self, cell: &Cell) -> f64 {
        times_expected(&self.latency, cell, |cell| cell.latency_ns)
    }
}

fn times_expected(curve: &CostCurve, cell: &Cell, time_ns: TimeOf) -> f64 {
    f64::from(time_ns(cell)) / curve.service.at(cell.bytes as usize).max(1.0)
}

fn is_outlier(times: f64) -> bool {
    !(1.0 / OUTLIER_RATIO..OUTLIER_RATIO).contains(&times)
}

/// Returns the median of values with weights. It is 1 if there are no values.
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

/// Returns the values of the median process for a size class. Processes are ordered by their latency relative to the
/// latency that the curve gives. Returns none if no report on the class is valid.
fn agreed_on(reporters: &[Reporter], class: usize, fits: &Fits, now: Nanos) -> Option<Cell> {
    let cells = reporters.iter().map(|reporter| reporter.classes[class]);
    let live = cells.filter(|cell| cell.until > now);
    middle(live.map(|cell| (fits.times_expected(&cell), cell)).collect()).map(|(_, cell)| cell)
}

/// Returns the median over the reporting processes of their latency, over all of their sizes, divided by the latency
/// that the curve gives. Each process has one vote, however many sizes or jobs it reports. Returns 1 if there is no
/// process.
fn overall(reporters: &[Reporter], fits: &Fits, now: Nanos) -> f64 {
    let times_off = |reporter: &Reporter| {
        let live = reporter.classes.iter().filter(|cell| cell.until > now);
        let times =
            |cell: &Cell| (fits.times_expected(cell), cell.jobs_per_s.ceil().max(1.0) as u64);
        let times: Vec<_> = live.map(times).collect();
        (!times.is_empty()).then(|| (median(times), ()))
    };
    middle(reporters.iter().filter_map(times_off).collect()).map_or(1.0, |(times, ())| times)
}

/// Returns the value with the median factor. Of two values in the middle, it returns the value whose factor
/// is nearer to 1.
fn middle<T>(mut all: Vec<(f64, T)>) -> Option<(f64, T)> {
    let off = |times: f64| times.max(f64::MIN_POSITIVE).ln();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (low, high) = (all.len().checked_sub(1)? / 2, all.len() / 2);
    let nearer = if off(all[low].0).abs() <= off(all[high].0).abs() { low } else { high };
    Some(all.swap_remove(nearer))
}

/// The number of size classes. They cover sizes up to 2 GiB, which is beyond the largest item.
pub(super) const CLASSES: usize = 31;

/// The maximum number of reporting processes. If there are more, those that reported last are kept.
const REPORTERS_MAX: usize = 16;

/// The number of values that are stored per class. The median of seven values tolerates three outliers.
const RECENT_MAX: usize = 7;

/// The number of report intervals after which a value is forgotten, but not before [`AGE_MIN`]. Values are
/// kept for so long because sizes that are only probed are rare.
const AGE_REPORTS: u64 = 10;
const AGE_MIN: Nanos = Nanos::secs(10);

/// The bounds on the time for which a report is valid. This time is three times the interval that the report
/// covers, but a first report may cover hours.
const HOLDS_MIN: Nanos = Nanos::secs(1);
const HOLDS_MAX: Nanos = Nanos::secs(30);

/// A report counts as doubted if its latency per byte differs by this factor from the value on which the reporting
/// processes agree.
const DOUBT_RATIO: f32 = 4.0;

/// The maximum plausible latency (ns): an hour.
const LATENCY_NS_MAX: f64 = 3.6e12;

/// A device counts as changed if its reported latencies differ from the curve by this factor in [`OUTLIERS_TO_CHANGE`]
/// reports in a row.
const OUTLIER_RATIO: f64 = 2.0;
const OUTLIERS_TO_CHANGE: u32 = 2;
