//! Experiment 4, sections 4.3 and 4.4: Cache-1, offloaded without waiting. One sweep varies the polling interval. The
//! other one varies the number of completions that one poll takes.

use report::{Axis, Figure, Origin, Panel, Section};
use units::Nanos;
use workload::PayloadClass;

use super::closed::{Closed, warm};
use super::mode::Mode;
use super::modes::{CACHE1, FEW};
use super::page::{figure, line};
use super::plan::TASKS;
use super::sample::{Sample, invalid};
use super::setup::Setup;
use super::work::Work;
use crate::base::rows::Rows;

/// Measures, adds the rows, and returns the section of the page with the figures.
///
/// # Errors
/// A job failed, or the run has to stop.
pub(super) fn run(setup: &Setup, rows: &mut Rows) -> Result<Section, String> {
    let work = Work::of_preset(&setup.stock, CACHE1, PayloadClass::Html)?;
    warm(&setup.published, &work)?;
    let plan = &setup.plan;
    let intervals = plan.intervals.iter().map(|setting| Point::Interval(*setting)).collect();
    let batches = plan.batches.iter().map(|setting| Point::Batch(*setting)).collect();
    let sweeps = [Sweep::measure(setup, &work, intervals)?, Sweep::measure(setup, &work, batches)?];
    sweeps.iter().for_each(|sweep| sweep.write(setup, rows));
    let axis = |label: &str| Axis::log10(label);
    Ok(Section {
        heading: "Polling (the paper's sections 4.3 and 4.4)".into(),
        prose: vec![
            "Cache-1, Async, with all 100 tasks in flight and with two. The interval holds while \
             tasks are ready: with none ready our loop polls without pause, since it has nothing \
             better to do, so that a long interval costs less latency than in the paper, and a \
             short one less throughput. The paper has no numbers, only curves: latency rises and \
             throughput too with the interval; from 2 on the batch changes nothing."
                .into(),
        ],
        figures: vec![
            sweeps[0].figure("polling-interval", axis("polling interval (us)")),
            sweeps[1].figure("dequeue-batch", axis("dequeue batch (jobs)")),
        ],
        ..Section::default()
    })
}

/// One setting of the core loop: a polling interval or a dequeue batch.
#[derive(Clone, Copy)]
enum Point {
    Interval(Nanos),
    Batch(usize),
}

/// The samples of each point, for each number of tasks in flight.
struct Sweep {
    points: Vec<(Point, [Vec<Sample>; 2])>,
}

const IN_FLIGHT: [usize; 2] = [TASKS, FEW];

impl Sweep {
    fn measure(setup: &Setup, work: &Work, points: Vec<Point>) -> Result<Self, String> {
        setup.session.begin("polling", setup.plan.runs * points.len() * IN_FLIGHT.len());
        let mut points: Vec<_> =
            points.into_iter().map(|point| (point, Default::default())).collect();
        for _ in 0..setup.plan.runs {
            for (point, samples) in &mut points {
                let samples: &mut [Vec<Sample>; 2] = samples;
                for (in_flight, samples) in IN_FLIGHT.into_iter().zip(samples) {
                    let closed = point.closed(setup.closed(in_flight));
                    let sample = || closed.run(&setup.published, Mode::Async, work);
                    samples.push(setup.session.take(&point.id(), sample)?);
                }
            }
        }
        Ok(Self { points })
    }

    fn write(&self, setup: &Setup, rows: &mut Rows) {
        for (point, samples) in &self.points {
            for (in_flight, samples) in IN_FLIGHT.into_iter().zip(samples) {
                let at = format!("async.cache1.{}.in_flight_{in_flight}", point.id());
                let mut add = |metric: &str, unit, value: &dyn Fn(&Sample) -> f64| {
                    let what = format!("Cache-1, Async, {in_flight} in flight: {}", point.name());
                    let (id, values) = (format!("{metric}.{at}"), samples.iter().map(value));
                    let devices = setup.published.virtuals(Mode::Async);
                    rows.add(id, what, unit, values.collect::<Vec<_>>(), devices, invalid(samples));
                };
                add("throughput", "1/s", &Sample::per_s);
                add("p50", "us", &|sample| sample.quantile_us(0.5));
                add("p90", "us", &|sample| sample.quantile_us(0.9));
                add("p99", "us", &|sample| sample.quantile_us(0.99));
            }
        }
    }

    fn figure(&self, id: &str, x: Axis) -> Figure {
        let lines = |in_flight: usize, name: &str, colour, value: &dyn Fn(&Sample) -> f64| {
            let at = |(point, samples): &(Point, [Vec<Sample>; 2])| {
                (point.x(), samples[in_flight].iter().map(value).collect())
            };
            let name = format!("{name}{} in flight", IN_FLIGHT[in_flight]);
            line(&name, colour, Origin::Emulated, self.points.iter().map(at))
        };
        let latency = |in_flight, colour| {
            let p50 = lines(in_flight, "median, ", colour, &|sample| sample.quantile_us(0.5));
            let p90 = lines(in_flight, "90th percentile, ", colour + 1, &|sample| {
                sample.quantile_us(0.9)
            });
            [p50, p90]
        };
        let per_s =
            |in_flight, colour| lines(in_flight, "", colour, &|sample| sample.per_s() / 1e3);
        let latencies = [latency(0, 0), latency(1, 2)].concat();
        let panels = vec![
            Panel::lines("latency", x.clone(), Axis::log10("latency (us)"), latencies),
            Panel::lines(
                "throughput",
                x,
                Axis::linear("throughput (1000 requests/s)"),
                vec![per_s(0, 0), per_s(1, 2)],
            ),
        ];
        figure(id.to_owned(), "Cache-1, html, offloaded without waiting.", panels)
    }
}

impl Point {
    fn closed(self, closed: Closed) -> Closed {
        match self {
            // The setting that is not varied is that of [OffloadSched]: 16 completions for the intervals, 1 us for the
            // batches.
            Point::Interval(interval) => {
                Closed { poll_interval: Some(interval), dequeue_batch: Some(16), ..closed }
            }
            Point::Batch(batch) => Closed {
                poll_interval: Some(Nanos::micros(1)),
                dequeue_batch: Some(batch),
                ..closed
            },
        }
    }

    fn id(self) -> String {
        match self {
            Point::Interval(interval) => format!("poll_{}ns", interval.0),
            Point::Batch(batch) => format!("dequeue_{batch}"),
        }
    }

    fn name(self) -> String {
        match self {
            Point::Interval(interval) => format!("polled every {} ns", interval.0),
            Point::Batch(batch) => format!("up to {batch} completions a poll"),
        }
    }

    fn x(self) -> f64 {
        match self {
            Point::Interval(interval) => interval.0 as f64 / 1e3,
            Point::Batch(batch) => batch as f64,
        }
    }
}
