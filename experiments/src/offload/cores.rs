//! Experiment 5: the web server on one core and on two. Each core has its own queues into the same devices.

use std::num::NonZeroUsize;

use report::Section;

use super::closed::warm;
use super::mode::Mode;
use super::modes::FEW;
use super::platform::Platform;
use super::sample::{Sample, invalid};
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
    let work = Work::web_server(&setup.stock)?;
    let platforms = [&setup.published, &setup.own_codec];
    platforms.into_iter().try_for_each(|platform| warm(platform, &work))?;
    setup.session.begin("cores", setup.plan.runs * platforms.len() * MODES.len() * CORES.len());
    for platform in platforms {
        let mut samples = vec![[Vec::new(), Vec::new()]; MODES.len()];
        for _ in 0..setup.plan.runs {
            for (mode, samples) in MODES.into_iter().zip(&mut samples) {
                for (cores, samples) in CORES.into_iter().zip(samples) {
                    let closed = setup.closed(FEW);
                    let what = format!("{} on {cores}, {}", mode.id(), platform.id);
                    let sample = || closed.run_on(cores, platform, mode, &work);
                    samples.push(setup.session.take(&what, sample)?);
                }
            }
        }
        for (mode, samples) in MODES.into_iter().zip(&samples) {
            write(rows, platform, mode, samples);
        }
    }
    Ok(Section {
        heading: "Two cores".into(),
        prose: vec![
            "The web server, 100 tasks for each core, two of them in flight on each. The core does \
             most of a request, and two cores ask for less than the device's pace. They need two \
             cores to themselves: where there are no more, whatever else runs is in the ratio."
                .into(),
        ],
        tables: vec![table("Throughput by cores", rows.rows[first..].iter())],
        ..Section::default()
    })
}

fn write(rows: &mut Rows, platform: &Platform, mode: Mode, samples: &[Vec<Sample>; 2]) {
    let suffix = if platform.id == "bluefield2" { "" } else { platform.id };
    let at = |cores: NonZeroUsize| {
        let cores = format!("{cores}_cores");
        [mode.id(), "web8KiB", &cores, suffix].join(".").trim_end_matches('.').to_owned()
    };
    let name = format!("web server, {}, {}", mode.name(), platform.name);
    let devices = || platform.virtuals(mode);
    for (cores, samples) in CORES.into_iter().zip(samples) {
        let (id, what) = (format!("throughput.{}", at(cores)), format!("{name}: {cores} cores"));
        rows.add(id, what, "1/s", samples.iter().map(Sample::per_s), devices(), invalid(samples));
    }
    let [one, two] = samples;
    let ratios = two.iter().zip(one).map(|(two, one)| two.per_s() / one.per_s());
    let (id, what) = (format!("scaling.{}", at(CORES[1])), format!("{name}: two cores over one"));
    let reason = invalid(one).or_else(|| invalid(two));
    rows.add(id, what, "ratio", ratios, devices(), reason);
}

const CORES: [NonZeroUsize; 2] =
    [NonZeroUsize::new(1).expect("not zero"), NonZeroUsize::new(2).expect("not zero")];

const MODES: [Mode; 3] = [Mode::Software, Mode::Sync, Mode::Async];
