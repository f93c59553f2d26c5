//! Formats the results of a replay, for people and for programs: one row for each layout and one for each hop between
//! cores.

use std::fmt::{self, Display, Formatter};

use rpc_server::RpcLayout;
use serde::Serialize;

use super::player::Tally;
use super::replay::{Plan, Run};

/// The results of a replay, with its settings.
#[derive(Clone, Debug, Serialize)]
pub struct Replayed {
    service: &'static str,
    window: usize,
    /// The number of requests per run and copy.
    requests: u64,
    runs: usize,
    /// Whether every answer was compared with the model.
    checked: bool,
    layouts: Vec<LayoutRow>,
    hops: Vec<HopRow>,
}

/// The median of several runs, with the smallest and the greatest value.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Median {
    pub(super) median: f64,
    pub(super) spread: [f64; 2],
}

/// The results of a layout. All layouts have the same number of cores.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LayoutRow {
    id: String,
    #[serde(skip)]
    pub(super) layout: RpcLayout,
    /// The number of copies that run at the same time.
    pub(super) copies: usize,
    /// The number of threads of all copies. If they are pinned, each has a core.
    pub(super) threads: usize,
    #[serde(skip)]
    pinned: bool,
    /// The rate of all copies together (1/s).
    pub(super) requests_per_second: Median,
    /// The rate per thread (1/s).
    pub(super) requests_per_second_per_core: f64,
    /// The time per request of one copy (ns).
    pub(super) ns_per_request: Median,
    /// The median time from a packet's submission to its answer (ns), over every eighth request.
    pub(super) p50_ns: Median,
    pub(super) p99_ns: Median,
    pub(super) answers: Tally,
    /// The rate, the time per request, and the quantiles 0.5 and 0.99 of each run.
    #[serde(skip)]
    runs: [Vec<f64>; 4],
}

/// A quantity of the runs of a layout, as an index of its runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Quantity {
    /// The rate of all copies together (1/s).
    Rate = 0,
    /// The median time of a request (ns).
    P50 = 2,
}

/// The results of a round trip between two cores.
#[derive(Clone, Debug, Serialize)]
pub(super) struct HopRow {
    id: &'static str,
    cores: [usize; 2],
    /// The time of the round trip (ns).
    ns: Median,
    #[serde(skip)]
    runs: Vec<f64>,
}

impl Median {
    fn new(values: &mut [f64]) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let [Some(least), Some(most)] = [values.first(), values.last()] else {
            return Self::default();
        };
        Self { median: values[values.len() / 2], spread: [*least, *most] }
    }
}

impl LayoutRow {
    /// Creates a row for as many copies as fill this number of threads.
    pub(super) fn new(layout: RpcLayout, threads: usize, pinned: bool, runs: usize) -> Self {
        let threads_each = layout.threads().len();
        let copies = threads / threads_each;
        Self {
            id: format!("replay.{}", layout.name()),
            layout,
            copies,
            threads: copies * threads_each,
            pinned,
            requests_per_second: Median::default(),
            requests_per_second_per_core: 0.0,
            ns_per_request: Median::default(),
            p50_ns: Median::default(),
            p99_ns: Median::default(),
            answers: Tally::default(),
            runs: [(); 4].map(|()| Vec::with_capacity(runs)),
        }
    }

    pub(super) fn add(&mut self, run: &Run) {
        let mut took_ns = run.took_ns.clone();
        took_ns.sort_unstable();
        let quantile = |share: f64| {
            let place = (share * took_ns.len() as f64) as usize;
            f64::from(took_ns.get(place).or(took_ns.last()).copied().unwrap_or(0))
        };
        let values = [run.requests_per_second, run.ns_per_request, quantile(0.5), quantile(0.99)];
        self.runs.iter_mut().zip(values).for_each(|(runs, value)| runs.push(value));
        self.answers.add(&run.tally);
    }

    pub(super) fn sort(&mut self) {
        let [rate, each, p50, p99] = self.runs.each_mut().map(|runs| Median::new(runs));
        self.requests_per_second_per_core = rate.median / self.threads.max(1) as f64;
        (self.requests_per_second, self.ns_per_request) = (rate, each);
        (self.p50_ns, self.p99_ns) = (p50, p99);
    }
}

impl HopRow {
    pub(super) fn floor(cores: [usize; 2]) -> Self {
        Self { id: "floor.cache_line_round_trip", cores, ns: Median::default(), runs: Vec::new() }
    }

    pub(super) fn mailbox(cores: [usize; 2]) -> Self {
        Self { id: "mailbox.round_trip", ..Self::floor(cores) }
    }

    pub(super) fn add(&mut self, ns: f64) {
        self.runs.push(ns);
    }

    pub(super) fn sorted(mut self) -> Self {
        self.ns = Median::new(&mut self.runs);
        self
    }
}

impl Replayed {
    pub(super) fn new(plan: &Plan, layouts: Vec<LayoutRow>, hops: Vec<HopRow>) -> Self {
        Self {
            service: plan.recording.service(),
            window: plan.window,
            requests: plan.requests,
            runs: plan.runs,
            checked: plan.check,
            layouts,
            hops,
        }
    }

    /// Returns a quantity in each run of a layout, smallest first.
    pub(crate) fn runs(&self, layout: RpcLayout, quantity: Quantity) -> &[f64] {
        let row = self.layouts.iter().find(|row| row.layout == layout);
        row.map_or(&[], |row| &row.runs[quantity as usize])
    }

    /// Returns the sum of the answers over all layouts.
    pub fn answers(&self) -> Tally {
        let mut sum = Tally::default();
        self.layouts.iter().for_each(|row| sum.add(&row.answers));
        sum
    }
}

impl Display for Replayed {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let how = if self.checked { "every answer compared" } else { "answers counted" };
        writeln!(
            out,
            "{}: {} runs of {} requests for each copy, {} under way, {how}",
            self.service, self.runs, self.requests, self.window
        )?;
        for row in &self.layouts {
            let place = if row.pinned { "core" } else { "thread" };
            writeln!(
                out,
                "{:12} x{} on {} {place}s: {:.0} requests/s [{:.0}, {:.0}], {:.0} a {place}; \
                 {:.0} ns each, p50 {:.0} ns, p99 {:.0} ns",
                row.layout.name(),
                row.copies,
                row.threads,
                row.requests_per_second.median,
                row.requests_per_second.spread[0],
                row.requests_per_second.spread[1],
                row.requests_per_second_per_core,
                row.ns_per_request.median,
                row.p50_ns.median,
                row.p99_ns.median,
            )?;
        }
        for row in &self.hops {
            let [least, most] = row.ns.spread;
            let (here, there) = (row.cores[0], row.cores[1]);
            let ns = row.ns.median;
            let id = row.id;
            writeln!(out, "{id}: {ns:.1} ns [{least:.1}, {most:.1}], cores {here} and {there}")?;
        }
        let answers = self.answers();
        write!(
            out,
            "{} right, {} misses, {} refused, {} wrong",
            answers.right, answers.misses, answers.refused, answers.wrong
        )
    }
}
