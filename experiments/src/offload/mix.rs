//! Experiment 5: latency-critical and batch requests in one application, which the runtime of \[OffloadSched\] does not
//! allow. Cache-1 is an open loop. At the same time, Feed-1 makes requests as fast as it can.

use report::Section;
use workload::PayloadClass;

use super::closed::warm;
use super::mode::Mode;
use super::modes::CACHE1;
use super::open::Open;
use super::sample::{Sample, behind, invalid};
use super::setup::Setup;
use super::work::Work;
use crate::base::figures::table;
use crate::base::rows::Rows;

/// Measures, adds the rows, and returns the section of the page with their table.
///
/// # Errors
/// A job failed, or the run has to stop.
pub(super) fn run(setup: &Setup, rows: &mut Rows) -> Result<Section, String> {
    let first = rows.rows.len();
    let work = Work::of_preset(&setup.stock, CACHE1, PayloadClass::Html)?;
    let batch = Work::of_preset(&setup.stock, "accelerometer-feed1", PayloadClass::Html)?.batch();
    let platforms = setup.platforms();
    setup.session.begin("mix", setup.plan.runs * platforms.len() * Mode::ALL.len());
    for platform in platforms {
        warm(platform, &work)?;
        warm(platform, &batch)?;
        let mut samples = vec![Vec::new(); Mode::ALL.len()];
        for run in 0..setup.plan.runs {
            for (mode, samples) in Mode::ALL.into_iter().zip(&mut samples) {
                let open = Open {
                    rate_per_s: RATE_PER_S,
                    window: setup.plan.window,
                    batch: Some(&batch),
                    seed: run as u64,
                };
                let what = format!("{} of a mix, {}", mode.id(), platform.id);
                samples.push(setup.session.take(&what, || open.run(platform, mode, &work))?);
            }
        }
        for (mode, samples) in Mode::ALL.into_iter().zip(&samples) {
            let name = format!("mix, {}, {}", mode.name(), platform.name);
            let mut add = |metric: &str, what: &str, unit, value: &dyn Fn(&Sample) -> f64| {
                let id = format!("{metric}.{}.mix.{}", mode.id(), platform.id);
                let values = samples.iter().map(value).collect::<Vec<_>>();
                let devices = platform.virtuals(mode);
                let reason = invalid(samples).or_else(|| behind(samples));
                rows.add(id, format!("{name}: {what}"), unit, values, devices, reason);
            };
            let latency = |share: f64| move |sample: &Sample| sample.quantile_kept_up_us(share);
            add("p50", "median latency of who is waited for", "us", &latency(0.5));
            add("p99", "99th percentile of them", "us", &latency(0.99));
            add("achieved", "answered in the window over offered", "ratio", &|sample| {
                sample.achieved
            });
            add("batch_throughput", "batch requests done", "1/s", &Sample::batch_per_s);
        }
    }
    Ok(Section {
        heading: "Latency-critical and batch requests in one application".into(),
        prose: vec![format!(
            "Cache-1 at {RATE_PER_S} requests a second, latency-critical, and four tasks that make \
             Feed-1's requests one after the other as batch work, on one core. The static modes \
             treat both alike; LeastLatency and LeastHostCycles see the class of each request."
        )],
        tables: vec![table("Both classes", rows.rows[first..].iter())],
        ..Section::default()
    })
}

/// The offered load of Cache-1 (1/s): a third of the requests that one core answers in software.
const RATE_PER_S: f64 = 50e3;
