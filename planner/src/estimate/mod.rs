//! Estimates what Rebate would save on the data of a cache that runs now, or of a folder of values, with nothing
//! deployed. A server is listed, a sample of its values is read at a bounded rate, and its requests are watched.
//! Nothing is written to it. The values are compressed here with Rebate's own codecs.
//!
//! `reading` says what is read in which order, over `link`, `probe`, `watch` and `corpus`. `codecs` measures the
//! stored forms and `requests` the time of requests, `memory` is the arithmetic of items, `curve` that of hits, over a
//! `log` of requests and the `sizes` of their items. `eviction` runs the log on Rebate's store, `hits` joins these, and
//! `answer` puts all together. The caller opens connections, runs a server to time requests, and prints.

mod answer;
mod classes;
mod codecs;
mod corpus;
mod curve;
mod eviction;
mod facts;
mod hits;
mod interval;
mod link;
mod listing;
mod log;
mod memory;
mod pace;
mod probe;
mod reading;
mod requests;
mod sizes;
mod watch;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::EngineFactory;
use policy::FormPolicy;
use units::ByteCount;

pub use answer::{CodecRatio, Estimate, Figures, Savings};
pub use curve::{Curve, CurveOrigin, CurvePoint, PlacedCurve};
pub use interval::Interval;
pub use link::{Connect, Connection};
pub use reading::SourceFacts;
pub use requests::{AddedTime, RequestTimer, Requests};

use codecs::{Codecs, Forms, Watcher};
use reading::Reading;
use requests::{ClassForms, correct};

/// What is read, and how it is compressed.
#[derive(Clone, Debug)]
pub struct Options {
    /// How Rebate would choose the stored form of a value.
    pub form: FormPolicy,
    /// The engines that compress, the most preferred writer first.
    pub engines: Vec<EngineFactory>,
    /// The number of values to read.
    pub values: usize,
    /// The most requests for values per second.
    pub requests_per_s: f64,
    /// The most bytes per second, of lists and of values.
    pub bytes_per_s: f64,
    /// The time for which requests are watched.
    pub watch: Duration,
    /// Seeds the choice of the sample and of the intervals.
    pub seed: u64,
    /// What Rebate's memory holds beside items.
    pub beside: BesideItems,
    /// The price of a GB of memory per month.
    pub price_gb_month: Option<f64>,
    /// The prefixes of keys that are classes of their own.
    pub prefixes: Vec<String>,
}

/// What the memory of Rebate's embedded store holds beside items.
#[derive(Clone, Copy, Debug)]
pub struct BesideItems {
    /// The largest share of the memory that keeps values decompressed that are read often.
    pub hot_share: f64,
    /// The shortest of these values (bytes).
    pub hot_bytes_min: usize,
    /// What the trainer needs of this memory once there is a dictionary.
    pub trainer_bytes: fn(ByteCount) -> ByteCount,
}

/// What is estimated.
pub enum Source<'a> {
    /// A server, by the address that the user gave and a way to connect to it.
    Server(&'a str, &'a Connect<'a>),
    /// A folder whose files are values.
    Corpus(&'a Path),
}

/// How far the work is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The part that runs: `list`, `read`, `watch` or `measure`.
    pub part: &'static str,
    /// The share of the part that is done.
    pub fraction: f64,
    /// What was done so far.
    pub message: String,
}

/// The caller's side of a run.
pub struct Run<'a> {
    /// Set if the user wants no more to be read. What was read is still evaluated.
    pub stop: &'a AtomicBool,
    /// Called often with the progress.
    pub progress: &'a mut dyn FnMut(Progress),
    /// Times requests on a server. Without it, only the codecs are timed.
    pub timer: Option<&'a mut dyn RequestTimer>,
}

impl Run<'_> {
    fn report(&mut self, progress: Progress) {
        (self.progress)(progress);
    }
}

/// The reason why there is no estimate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An input is not valid.
    #[error("{0}")]
    Input(String),
    /// The server could not be read.
    #[error("{0}")]
    Failed(String),
    /// The user stopped the work before a value was read.
    #[error("stopped before a value was read, so nothing is known yet")]
    Stopped,
}

/// Reads the source, measures the values and computes the estimate.
///
/// # Errors
/// The source cannot be read, or the user stopped the work too early.
pub fn estimate(
    source: &Source<'_>,
    options: &Options,
    run: &mut Run<'_>,
) -> Result<Estimate, Error> {
    let mut reading = match source {
        Source::Server(name, connect) => reading::read_server(name, *connect, options, run)?,
        Source::Corpus(folder) => corpus::read_corpus(folder, options, run)?,
    };
    let forms = measure(&mut reading, options, run)?;
    Ok(answer::estimate(reading, &forms, options.price_gb_month, options.seed))
}

/// Measures the values class by class, because each class has its dictionary. Returns the forms in the order of the
/// values. If the user stops in the meantime, values that were not measured yet are left out.
fn measure(
    reading: &mut Reading,
    options: &Options,
    run: &mut Run<'_>,
) -> Result<Vec<Forms>, Error> {
    let mut codecs = Codecs::new(&options.engines, options.form)?;
    let mut all: Vec<Option<Forms>> = vec![None; reading.values.len()];
    let was_stopped = run.stop.load(Ordering::Relaxed);
    let mut timer = run.timer.take();
    let mut measuring = Measuring { run, was_stopped, done: 0, count: reading.values.len().max(1) };
    for class in 0..reading.classes.len() {
        let numbered = reading.values.iter().enumerate();
        let of_class = numbered.filter(|(_, value)| value.class == class);
        let places: Vec<usize> = of_class.clone().map(|(place, _)| place).collect();
        let keys: Vec<&[u8]> = of_class.clone().map(|(_, value)| value.key.as_slice()).collect();
        let values: Vec<&[u8]> = of_class.map(|(_, value)| value.bytes.as_slice()).collect();
        let (mut forms, dictionary) = codecs.measure(&values, &mut measuring);
        if let Some(server) = timer.as_mut().filter(|_| !measuring.hurries()) {
            let (keys, values) = (&keys, &values);
            let mut class = ClassForms { keys, values, forms: &mut forms, dictionary };
            if let Err(problem) = correct(*server, &mut class) {
                reading.notes.push(format!(
                    "Requests could not be timed: {problem}. Times of the classes that are left are those of the \
                     codecs alone."
                ));
                timer = None;
            }
        }
        places.into_iter().zip(forms).for_each(|(place, forms)| all[place] = Some(forms));
    }
    let (read, measured) = (all.len(), all.iter().flatten().count());
    if measured < read {
        let text = format!("Stopped while values were compressed: {measured} of {read} count.");
        reading.notes.push(text);
        let mut is_measured = all.iter().map(Option::is_some);
        reading.values.retain(|_| is_measured.next().unwrap_or(false));
    }
    Ok(all.into_iter().flatten().collect())
}

/// Reports the progress of the measurement. It hurries if the user stops after it has begun: what was read before a
/// stop is measured as usual.
struct Measuring<'a, 'b> {
    run: &'a mut Run<'b>,
    was_stopped: bool,
    done: usize,
    count: usize,
}

impl Watcher for Measuring<'_, '_> {
    fn advance(&mut self) {
        self.done += 1;
        // A value is measured without a dictionary and often with one.
        let fraction = (self.done as f64 / (2 * self.count) as f64).min(1.0);
        self.run.report(Progress { part: "measure", fraction, message: String::new() });
    }

    fn hurries(&self) -> bool {
        !self.was_stopped && self.run.stop.load(Ordering::Relaxed)
    }
}
