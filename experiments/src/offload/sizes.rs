//! Experiment 1, chapter 2: latency against size, split into setup, device and completion, compared with
//! software, for four classes of data. It finds the size from which on a device is faster, the effect of the
//! class of data, and the difference between on-chip and off-chip. The rows also have the codecs of other
//! projects on the calling core, if they are installed.

use std::collections::BTreeMap;
use std::time::Instant;

use device::{Outcome, Pool};
use report::{Axis, BarSeries, Bars, Category, Figure, Layout, Origin, Panel, Plot, Section};
use runtime::{CoreConfig, CoreLoop};
use units::ByteCount;
use workload::PayloadClass;

use super::closed::warm;
use super::mode::Mode;
use super::page::{figure, line, origin, size_id};
use super::platform::Platform;
use super::published;
use super::setup::Setup;
use super::work::{CLASSES, Work};
use crate::base::Spread;
use crate::base::rows::{Kind, Row, Rows};

/// Measures, adds the rows, and returns the section of the page with the figures.
///
/// # Errors
/// A job failed, or the run has to stop.
pub(super) fn run(setup: &Setup, rows: &mut Rows) -> Result<Section, String> {
    let found = Measurements::measure(setup)?;
    found.write(rows);
    Ok(found.section())
}

/// A software codec or a device that runs the jobs.
struct Variant<'a> {
    id: &'static str,
    name: &'static str,
    platform: &'a Platform,
    mode: Mode,
}

/// The medians of a job's parts over the jobs of one run (us).
#[derive(Clone, Copy, Debug)]
struct Split {
    setup_us: f64,
    device_us: f64,
    completion_us: f64,
    total_us: f64,
}

/// The id of the variant, the class of data and the size.
type Key = (&'static str, &'static str, ByteCount);

struct Measurements<'a> {
    variants: Vec<Variant<'a>>,
    sizes: Vec<ByteCount>,
    splits: BTreeMap<Key, Vec<Split>>,
}

const EPYC: &str = "epyc7542";
const OWN_CODEC: &str = "own_codec";
const BLUEFIELD: &str = "bluefield2";
const ON_CHIP: &str = "bluefield2_arm";
const WORKER: &str = "worker";

impl<'a> Measurements<'a> {
    fn measure(setup: &'a Setup) -> Result<Self, String> {
        let variant = |id, name, platform, mode| Variant { id, name, platform, mode };
        let mut variants = vec![
            variant(EPYC, "software, EPYC 7542", &setup.published, Mode::Software),
            variant(OWN_CODEC, "software, own codec", &setup.own_codec, Mode::Software),
            variant(BLUEFIELD, "BlueField-2, off-chip", &setup.published, Mode::Async),
            variant(ON_CHIP, "BlueField-2, on-chip", &setup.on_chip, Mode::Async),
            variant(WORKER, "worker thread", &setup.worker, Mode::Async),
        ];
        let libraries = setup.libraries.iter();
        variants.extend(
            libraries.map(|platform| variant(platform.id, platform.name, platform, Mode::Async)),
        );
        let plan = &setup.plan;
        let mut sizes = plan.sizes.clone();
        sizes.sort();
        sizes.dedup();
        let mut splits = BTreeMap::<Key, Vec<Split>>::new();
        setup.session.begin("chapter 2", plan.runs * variants.len() * sizes.len() * CLASSES.len());
        for &size in &sizes {
            for class in CLASSES {
                let work = Work::of_size(&setup.stock, size, class)?;
                let platforms = [&setup.published, &setup.own_codec, &setup.on_chip, &setup.worker];
                let mut platforms = platforms.into_iter().chain(&setup.libraries);
                platforms.try_for_each(|platform| warm(platform, &work))?;
                for _ in 0..plan.runs {
                    for variant in &variants {
                        let what = format!("{}, {class}, {size}", variant.id);
                        let split =
                            setup.session.take(&what, || variant.measure(&work, plan.size_jobs))?;
                        splits.entry((variant.id, class.name(), size)).or_default().push(split);
                    }
                }
            }
        }
        Ok(Self { variants, sizes, splits })
    }

    fn write(&self, rows: &mut Rows) {
        for variant in &self.variants {
            let devices = || variant.virtuals();
            for &size in &self.sizes {
                for class in CLASSES {
                    let id = format!("latency.{}.{class}.{}", variant.id, size_id(size));
                    let what =
                        format!("{}: median latency of one job, {class}, {size}", variant.name);
                    rows.add(
                        id,
                        what,
                        "us",
                        self.values(variant, class, size, total),
                        devices(),
                        None,
                    );
                }
                if variant.mode != Mode::Software {
                    for (part, time) in PARTS {
                        let id = format!("{part}.{}.html.{}", variant.id, size_id(size));
                        let what = format!("{}: {part} of one job, html, {size}", variant.name);
                        let values = self.values(variant, PayloadClass::Html, size, time);
                        rows.add(id, what, "us", values, devices(), None);
                    }
                }
            }
            let id = format!("class_spread.{}", variant.id);
            let what = format!("{}: slowest over quickest class, the widest size", variant.name);
            rows.add(id, what, "ratio", self.class_spread(variant), devices(), None);
        }
        self.write_crossings(rows);
        self.write_setups(rows);
    }

    /// Adds the ends of the setup times that chapter 2 states, and what it says of the ARM cores' software.
    fn write_setups(&self, rows: &mut Rows) {
        for (id, ends) in [(BLUEFIELD, [0.36, 2.8]), (ON_CHIP, [1.0, 11.0])] {
            let variant = self.variant(id);
            let setup: Part = |split| split.setup_us;
            let sizes = self.sizes.iter();
            let all: Vec<Vec<f64>> =
                sizes.map(|size| self.values(variant, PayloadClass::Html, *size, setup)).collect();
            let runs = all.iter().map(Vec::len).min().unwrap_or(0);
            let of_run = |run: usize| Spread::from_values(all.iter().map(|times| times[run]));
            let spreads: Vec<Spread> = (0..runs).filter_map(of_run).collect();
            for (end, published) in ["least", "most"].into_iter().zip(ends) {
                let is_least = end == "least";
                let values =
                    spreads.iter().map(|spread| if is_least { spread.low } else { spread.high });
                let id = format!("setup_{end}.{id}");
                let what = format!("{}: setup, html, the {end} of all sizes", variant.name);
                let input = Some("an input of the profile".to_owned());
                let row = Row::from_values(id, what, "us", values, variant.virtuals(), input);
                let row = published::beside(row.by(Kind::Calibrated), published, HASHES);
                rows.rows.push(row);
            }
        }
        rows.rows.push(Row::unreachable(
            "order.on_chip.arm_software",
            "chapter 2: on-chip offload is quicker than software on the ARM cores, for all data and sizes",
            Some(1.0),
            "1",
            "missing: ISA-L's times on the ARM cores; figure 2.2 shows them and the text has no number",
        ));
    }

    fn write_crossings(&self, rows: &mut Rows) {
        let pairs = [(BLUEFIELD, EPYC), (BLUEFIELD, OWN_CODEC), (WORKER, OWN_CODEC)];
        let libraries = self.libraries().map(|variant| (variant.id, OWN_CODEC));
        for (device, software) in pairs.into_iter().chain(libraries) {
            let (device, software) = (self.variant(device), self.variant(software));
            let id = format!("break_even.{}.{}", device.id, software.id);
            let (name, other) = (device.name, software.name);
            let what = format!("{name} quicker than {other} from this size on, median of classes");
            let found = self.break_even(device, software);
            let devices = virtuals([device, software]);
            let values = found.iter().copied().map(Crossing::bytes);
            let row = Row::from_values(id, what, "B", values, devices, self.open_end(&found));
            rows.rows.push(match software.id {
                EPYC => {
                    let input = Some("an input of both profiles".to_owned());
                    let row = published::with(row.by(Kind::Calibrated), input);
                    let cause = self.gap(device, software, CALIBRATED);
                    published::beside(row, CALIBRATED.0 as f64, &cause)
                }
                _ => row,
            });
        }
        let id = "off_chip_over_on_chip.from_8KiB".to_owned();
        let what = "latency off-chip over on-chip, setups aside, the highest from 8 KiB on";
        let devices = virtuals([BLUEFIELD, ON_CHIP].map(|id| self.variant(id)));
        let row = Row::from_values(id, what.to_owned(), "ratio", self.off_chip(), devices, None);
        let reason = Some("published: at most; an input of both profiles at 8 KiB".to_owned());
        rows.rows.push(Row { reason, ..row.beside(1.25).by(Kind::Calibrated) });
    }

    fn variant(&self, id: &str) -> &Variant<'a> {
        self.variants.iter().find(|variant| variant.id == id).unwrap_or(&self.variants[0])
    }

    fn libraries(&self) -> impl Iterator<Item = &Variant<'a>> {
        let known = [EPYC, OWN_CODEC, BLUEFIELD, ON_CHIP, WORKER];
        self.variants.iter().filter(move |variant| !known.contains(&variant.id))
    }

    /// Returns a part of the latency of each run (us).
    fn values(
        &self,
        variant: &Variant<'_>,
        class: PayloadClass,
        size: ByteCount,
        part: Part,
    ) -> Vec<f64> {
        let splits = self.splits.get(&(variant.id, class.name(), size));
        splits.into_iter().flatten().map(part).collect()
    }

    /// Returns a part of the latency of each run, as the median over the classes of data (us).
    fn middle(&self, variant: &Variant<'_>, size: ByteCount, part: Part) -> Vec<f64> {
        let classes = CLASSES.map(|class| self.values(variant, class, size, part));
        let runs = classes.iter().map(Vec::len).min().unwrap_or(0);
        let median = |run: usize| {
            let spread = Spread::from_values(classes.iter().map(|values| values[run]));
            spread.map_or(f64::NAN, |spread| spread.median)
        };
        (0..runs).map(median).collect()
    }

    fn class_spread(&self, variant: &Variant<'_>) -> Vec<f64> {
        let runs = self.splits.values().map(Vec::len).min().unwrap_or(0);
        let widest = |run: usize| {
            let at = |size: &ByteCount| {
                let values = CLASSES.map(|class| self.values(variant, class, *size, total)[run]);
                let spread = Spread::from_values(values);
                spread.map_or(f64::NAN, |spread| spread.high / spread.low)
            };
            self.sizes.iter().map(at).fold(f64::NAN, f64::max)
        };
        (0..runs).map(widest).collect()
    }

    /// Returns the break-even size of each run.
    fn break_even(&self, device: &Variant<'_>, software: &Variant<'_>) -> Vec<Crossing> {
        let at =
            |variant| self.sizes.iter().map(|size| self.middle(variant, *size, total)).collect();
        let (device, software): (Vec<Vec<f64>>, Vec<Vec<f64>>) = (at(device), at(software));
        let runs = device.iter().chain(&software).map(Vec::len).min().unwrap_or(0);
        let sizes: Vec<f64> = self.sizes.iter().map(|size| size.0 as f64).collect();
        let crossing = |run: usize| {
            let saved =
                device.iter().zip(&software).map(|(device, other)| other[run] - device[run]);
            Crossing::find(&sizes, &saved.collect::<Vec<_>>())
        };
        (0..runs).map(crossing).collect()
    }

    /// Returns a remark if the break-even size is outside the measured sizes.
    fn open_end(&self, found: &[Crossing]) -> Option<String> {
        let (first, last) = (self.sizes.first()?, self.sizes.last()?);
        let ends = [
            (
                found.iter().filter(|crossing| matches!(crossing, Crossing::Before(_))).count(),
                format!("at most: quicker at {} already, the smallest measured", size_id(*first)),
            ),
            (
                found.iter().filter(|crossing| matches!(crossing, Crossing::Never)).count(),
                format!("never quicker up to {}, the greatest size measured", size_id(*last)),
            ),
        ];
        let said = ends.into_iter().filter(|(count, _)| *count > 0).map(|(count, said)| {
            if count == found.len() {
                return said;
            }
            format!("in {count} of {} runs {said}", found.len())
        });
        let said: Vec<String> = said.collect();
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// Returns the reason why two variants differ at the size at which they were calibrated to be equal.
    fn gap(&self, device: &Variant<'_>, software: &Variant<'_>, size: ByteCount) -> String {
        let [device, software] =
            [device, software].map(|variant| self.middle(variant, size, total));
        let gaps = software.iter().zip(device).map(|(software, device)| software - device);
        let gap = Spread::from_values(gaps).map_or(String::new(), |gap| {
            format!(": there software's time less the device's is {:+.2} us", gap.median)
        });
        format!(
            "the profiles meet at {}; what is measured has the runtime's and the emulation's own \
             part of a job in it, which is not the same for both{gap}",
            size_id(size)
        )
    }

    /// Returns, for each run, the highest ratio of latency off-chip to latency on-chip from 8 KiB on. The latencies
    /// exclude the setup.
    fn off_chip(&self) -> Vec<f64> {
        let rest: Part = |split| split.device_us + split.completion_us;
        let large = self.sizes.iter().filter(|size| **size >= ByteCount::kib(8));
        let ratios = large.map(|size| {
            let [off, on] =
                [BLUEFIELD, ON_CHIP].map(|id| self.middle(self.variant(id), *size, rest));
            off.iter().zip(on).map(|(off, on)| off / on).collect::<Vec<_>>()
        });
        let highest = |one: Vec<f64>, other: Vec<f64>| {
            one.iter().zip(other).map(|(one, other)| one.max(other)).collect()
        };
        ratios.reduce(highest).unwrap_or_default()
    }

    fn section(&self) -> Section {
        Section {
            heading: "Latency against size (the paper's chapter 2)".into(),
            prose: vec![
                "One job at a time. Software by class of data; devices as the median of the \
                 classes: they hardly tell them apart. The profiles of BlueField-2 and of the \
                 paper's software are calibrated to the paper's text and table 4.2, so that their \
                 curves and their break-even are inputs; our codec and the worker thread are \
                 measured."
                    .into(),
            ],
            figures: vec![self.curves(), self.split()],
            ..Section::default()
        }
    }

    fn curves(&self) -> Figure {
        let by_class = |id: &str| {
            let variant = self.variant(id);
            let origin = origin(&variant.virtuals());
            let lines = CLASSES.iter().enumerate().map(move |(index, class)| {
                let at =
                    |size: &ByteCount| (size.0 as f64, self.values(variant, *class, *size, total));
                line(&format!("software, {class}"), index, origin, self.sizes.iter().map(at))
            });
            lines.collect::<Vec<_>>()
        };
        let device = |id: &str, index: usize| {
            let variant = self.variant(id);
            let at = |size: &ByteCount| (size.0 as f64, self.middle(variant, *size, total));
            let origin = origin(&variant.virtuals());
            line(variant.name, index, origin, self.sizes.iter().map(at))
        };
        let panel = |title: &str, software: &str, devices: &[(&str, usize)]| {
            let mut series = by_class(software);
            series.extend(devices.iter().map(|(id, index)| device(id, *index)));
            Panel::lines(title, Axis::bytes("size"), Axis::log10("latency (us)"), series)
        };
        let published = panel("the paper's machine", EPYC, &[(BLUEFIELD, 4), (ON_CHIP, 6)]);
        let own_panel = panel("our own codec", OWN_CODEC, &[(BLUEFIELD, 4), (WORKER, 5)]);
        figure("sizes".into(), "Median latency of one job.", vec![published, own_panel])
    }

    fn split(&self) -> Figure {
        let variant = self.variant(BLUEFIELD);
        let bars = |(colour, (part, time)): (usize, &(&str, Part))| {
            let median = |size: &ByteCount| {
                let spread =
                    Spread::from_values(self.values(variant, PayloadClass::Html, *size, *time));
                spread.map_or(f64::NAN, |spread| spread.median)
            };
            BarSeries::new(*part, Origin::Emulated, colour, self.sizes.iter().map(median))
        };
        let shown =
            |size: &ByteCount| Category { name: size.to_string(), origin: Origin::Emulated };
        let plot = Bars {
            label: "latency (us)".into(),
            layout: Layout::Stacked,
            categories: self.sizes.iter().map(shown).collect(),
            series: PARTS.iter().enumerate().map(bars).collect(),
            mark: None,
        };
        let panel = Panel { title: "html".into(), plot: Plot::Bars(plot) };
        figure("split".into(), "BlueField-2 off-chip: where the time of one job goes.", vec![panel])
    }
}

/// Returns the virtual devices of both variants without duplicates.
fn virtuals(variants: [&Variant<'_>; 2]) -> Vec<String> {
    let mut all = variants.map(Variant::virtuals).concat();
    all.sort_unstable();
    all.dedup();
    all
}

impl Variant<'_> {
    /// Returns the virtual device in the path of the jobs. It is only one device, because `measure` fails if software
    /// runs a job in the device's place.
    fn virtuals(&self) -> Vec<String> {
        match self.mode {
            Mode::Software => self.platform.virtuals(self.mode),
            _ => self.platform.virtual_device(),
        }
    }

    fn measure(&self, work: &Work, jobs: usize) -> Result<Split, String> {
        let config = CoreConfig::new(self.platform.runtime(self.mode));
        let core_loop = CoreLoop::new(config).map_err(|error| error.to_string())?;
        let (core, work) = (core_loop.core().clone(), work.clone());
        let includes_setup = self.platform.profile().is_some();
        let on_device = self.mode != Mode::Software;
        let splits = core_loop.block_on(async move {
            let pool = Pool::heap(ByteCount::mib(4));
            let mut splits = Vec::with_capacity(jobs);
            // The first pass through the inputs warms caches and pools.
            for turn in 0..work.count() + jobs {
                let job = work.job(turn % work.count(), &pool);
                let start = Instant::now();
                let running = core.run(job);
                let submitted = start.elapsed();
                let done = running.await;
                let total = start.elapsed();
                if !matches!(done.outcome, Outcome::Done { .. }) {
                    return Err(format!("a job ended with {:?}", done.outcome));
                }
                if on_device && done.path.device == 0 {
                    let why = done.path.reason.name();
                    return Err(format!("software did a job in the device's place: {why}"));
                }
                if turn >= work.count() {
                    let service_us = done.service.0 as f64 / 1e3;
                    let [setup, total] = [submitted, total].map(|time| time.as_secs_f64() * 1e6);
                    splits.push(Split::new(setup, service_us, total, includes_setup));
                }
            }
            Ok(splits)
        })?;
        let median = |part: fn(&Split) -> f64| {
            Spread::from_values(splits.iter().map(part)).map_or(f64::NAN, |spread| spread.median)
        };
        Ok(Split {
            setup_us: median(|split| split.setup_us),
            device_us: median(|split| split.device_us),
            completion_us: median(|split| split.completion_us),
            total_us: median(total),
        })
    }
}

impl Split {
    /// Splits a job's time. The service time includes the submission if `includes_setup` is set, as for a
    /// published profile. For a worker, it begins when the worker takes the job.
    fn new(setup_us: f64, service_us: f64, total_us: f64, includes_setup: bool) -> Self {
        let inside = if includes_setup { service_us - setup_us } else { service_us };
        let device_us = inside.clamp(0.0, (total_us - setup_us).max(0.0));
        let completion_us = (total_us - setup_us - device_us).max(0.0);
        Self { setup_us, device_us, completion_us, total_us }
    }
}

fn total(split: &Split) -> f64 {
    split.total_us
}

type Part = fn(&Split) -> f64;

const PARTS: [(&str, Part); 3] = [
    ("setup", |split| split.setup_us),
    ("device", |split| split.device_us),
    ("completion", |split| split.completion_us),
];

/// The break-even size of a device. It is faster than software at every measured size from there on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Crossing {
    /// The break-even size, interpolated between two measured sizes on a logarithmic axis (bytes).
    At(f64),
    /// The break-even size is at most the smallest measured size, which is the value (bytes).
    Before(f64),
    /// There is no break-even up to the largest measured size.
    Never,
    /// The break-even is unknown, because the latency of some size is missing.
    Unknown,
}

impl Crossing {
    fn find(sizes: &[f64], saved: &[f64]) -> Self {
        if saved.iter().any(|saved| saved.is_nan()) {
            return Self::Unknown;
        }
        let Some(last) = saved.iter().rposition(|saved| *saved <= 0.0) else {
            return sizes.first().map_or(Self::Unknown, |first| Self::Before(*first));
        };
        let Some(next) = sizes.get(last + 1) else { return Self::Never };
        let along = -saved[last] / (saved[last + 1] - saved[last]);
        Self::At(sizes[last] * (next / sizes[last]).powf(along))
    }

    fn bytes(self) -> f64 {
        match self {
            Self::At(bytes) | Self::Before(bytes) => bytes,
            Self::Never | Self::Unknown => f64::NAN,
        }
    }
}

/// The reason why an emulated setup takes longer than the profile's.
const HASHES: &str = "cause, by design: the emulation hashes the whole value while it submits, to find its result, and \
     reads the clock";
/// The size at which the published profiles have the same latency, as the median over the classes of data.
const CALIBRATED: ByteCount = ByteCount(256);

#[cfg(test)]
mod tests {
    use super::*;
    use harness::Machine;

    #[test]
    fn the_break_even_is_where_savings_begin_for_good() {
        let sizes = [64.0, 256.0, 1_024.0];
        let crossing = |saved: [f64; 3]| Crossing::find(&sizes, &saved);
        assert_eq!(crossing([-1.0, 0.0, 1.0]), Crossing::At(256.0));
        assert!((crossing([-1.0, 1.0, 2.0]).bytes() - 128.0).abs() < 1e-9);
        assert_eq!(crossing([1.0, -1.0, 1.0]), Crossing::At(512.0));
        assert_eq!(crossing([1.0, 1.0, 1.0]), Crossing::Before(64.0));
        assert_eq!(crossing([1.0, 1.0, -1.0]), Crossing::Never);
        assert_eq!(crossing([1.0, f64::NAN, 1.0]), Crossing::Unknown);
        assert!(Crossing::Never.bytes().is_nan());
    }

    /// Returns measurements with these latencies of one job (us), at 64 B, 256 B and 1 KiB. All classes have the same
    /// latencies, and there are two runs.
    fn found<'a>(
        setup: &'a [Platform; 2],
        latencies_us: &[(&'static str, [f64; 3])],
    ) -> Measurements<'a> {
        let [published, own_codec] = setup;
        let variant = |id: &'static str| match id {
            EPYC => Variant { id, name: id, platform: published, mode: Mode::Software },
            OWN_CODEC => Variant { id, name: id, platform: own_codec, mode: Mode::Software },
            // Both platforms have the same device.
            _ => Variant { id, name: id, platform: published, mode: Mode::Async },
        };
        let variants = [EPYC, OWN_CODEC, BLUEFIELD, ON_CHIP, WORKER].map(variant).into();
        let sizes = [64, 256, 1 << 10].map(ByteCount).to_vec();
        let mut splits = BTreeMap::<Key, Vec<Split>>::new();
        for (id, all_us) in latencies_us {
            for (size, us) in sizes.iter().zip(all_us) {
                for class in CLASSES {
                    let split = Split::new(0.0, *us, *us, true);
                    splits.insert((*id, class.name(), *size), vec![split; 2]);
                }
            }
        }
        Measurements { variants, sizes, splits }
    }

    #[test]
    fn a_break_even_says_what_the_sizes_leave_open() {
        let setup = [Platform::published(), Platform::own_codec()];
        let setup = setup.map(|platform| platform.expect("its profiles ship"));
        let found = found(
            &setup,
            &[
                (EPYC, [2.0, 3.3, 9.0]),
                (OWN_CODEC, [3.5, 4.0, 9.0]),
                (BLUEFIELD, [3.0, 3.1, 4.0]),
                (ON_CHIP, [3.0, 3.1, 4.0]),
                (WORKER, [14.0, 15.0, 20.0]),
            ],
        );
        let mut rows = Rows::new("runtime", &Machine::here(), "idle");
        found.write_crossings(&mut rows);
        let row = |id: &str| rows.rows.iter().find(|row| row.id == id).expect(id);
        let said = |id: &str| row(id).reason.as_deref().expect("a reason");
        let never = said("break_even.worker.own_codec");
        assert_eq!(never, "never quicker up to 1KiB, the greatest size measured");
        assert_eq!(row("break_even.worker.own_codec").kind, Kind::Unreachable);
        let own_codec = row("break_even.bluefield2.own_codec");
        assert_eq!(
            (own_codec.ours, own_codec.devices.concat().as_str()),
            (Some(64.0), "virtual-bluefield2")
        );
        let before = said("break_even.bluefield2.own_codec");
        assert_eq!(before, "at most: quicker at 64B already, the smallest measured");
        let calibrated = row("break_even.bluefield2.epyc7542");
        assert_eq!(calibrated.devices, ["virtual-bluefield2", "virtual-epyc7542-isal"]);
        let off = said("break_even.bluefield2.epyc7542");
        assert!(off.contains("meet at 256B") && off.contains("is +0.20 us"), "{off}");
        let both = row("off_chip_over_on_chip.from_8KiB");
        assert_eq!(both.devices, ["virtual-bluefield2"], "the stand-in has the same device");
    }

    #[test]
    fn stated_setups_are_inputs_and_software_of_arm_cores_is_out_of_reach() {
        let setup = [Platform::published(), Platform::own_codec()];
        let setup = setup.map(|platform| platform.expect("its profiles ship"));
        let found = found(&setup, &[(BLUEFIELD, [3.0, 3.1, 4.0]), (ON_CHIP, [3.0, 3.1, 4.0])]);
        let mut rows = Rows::new("runtime", &Machine::here(), "idle");
        found.write_setups(&mut rows);
        let [setups @ .., arm] = rows.rows.as_slice() else { panic!("no rows") };
        let published: Vec<f64> = setups.iter().filter_map(|row| row.published).collect();
        assert_eq!(published, [0.36, 2.8, 1.0, 11.0]);
        assert!(setups.iter().all(|row| row.kind == Kind::Calibrated && row.reason.is_some()));
        assert_eq!(arm.kind, Kind::Unreachable);
    }

    #[test]
    fn the_parts_of_a_job_come_to_the_whole() {
        let virtual_job = Split::new(1.0, 5.0, 6.0, true);
        assert_eq!((virtual_job.device_us, virtual_job.completion_us), (4.0, 1.0));
        let worker_job = Split::new(1.0, 5.0, 9.0, false);
        assert_eq!((worker_job.device_us, worker_job.completion_us), (5.0, 3.0));
    }
}
