//! Experiment 1, chapter 2: latency against size, split into setup, device and completion, beside software, for four
//! classes of data; from which size on a device is quicker; how little it cares about the data; on-chip and off-chip.
//! Others' codecs on the calling core, where they are here, in the same rows.

use std::collections::BTreeMap;
use std::time::Instant;

use device::{Outcome, Pool};
use report::{Axis, BarSeries, Bars, Category, Figure, Layout, Origin, Panel, Plot, Section};
use runtime::{CoreConfig, CoreLoop};
use units::ByteCount;
use workload::PayloadClass;

use super::closed::warm;
use super::lab::Lab;
use super::mode::Mode;
use super::page::{figure, line, origin, size_id};
use super::platform::Platform;
use super::published;
use super::work::{CLASSES, Work};
use crate::base::Spread;
use crate::base::rows::{Kind, Row, Rows};

/// Measures, adds the rows and draws.
///
/// # Errors
/// That a job failed or the run is to stop.
pub(super) fn run(lab: &Lab, rows: &mut Rows) -> Result<Section, String> {
    let found = Found::measure(lab)?;
    found.write(rows);
    Ok(found.section())
}

/// One way to have it done.
struct Arm<'a> {
    id: &'static str,
    name: &'static str,
    platform: &'a Platform,
    mode: Mode,
}

/// Medians over the jobs of one run (us).
#[derive(Clone, Copy, Debug)]
struct Split {
    setup_us: f64,
    device_us: f64,
    completion_us: f64,
    total_us: f64,
}

/// By arm, class of data and size.
type Key = (&'static str, &'static str, ByteCount);

struct Found<'a> {
    arms: Vec<Arm<'a>>,
    sizes: Vec<ByteCount>,
    splits: BTreeMap<Key, Vec<Split>>,
}

const EPYC: &str = "epyc7542";
const OWN: &str = "own_codec";
const BLUEFIELD: &str = "bluefield2";
const ON_CHIP: &str = "bluefield2_arm";
const WORKER: &str = "worker";

impl<'a> Found<'a> {
    fn measure(lab: &'a Lab) -> Result<Self, String> {
        let arm = |id, name, platform, mode| Arm { id, name, platform, mode };
        let mut arms = vec![
            arm(EPYC, "software, EPYC 7542", &lab.published, Mode::Software),
            arm(OWN, "software, own codec", &lab.own_codec, Mode::Software),
            arm(BLUEFIELD, "BlueField-2, off-chip", &lab.published, Mode::Async),
            arm(ON_CHIP, "BlueField-2, on-chip", &lab.on_chip, Mode::Async),
            arm(WORKER, "worker thread", &lab.worker, Mode::Async),
        ];
        let libraries = lab.libraries.iter();
        arms.extend(libraries.map(|own| arm(own.id, own.name, own, Mode::Async)));
        let plan = &lab.plan;
        let mut sizes = plan.sizes.clone();
        sizes.sort();
        sizes.dedup();
        let mut splits = BTreeMap::<Key, Vec<Split>>::new();
        lab.begin("chapter 2", plan.runs * arms.len() * sizes.len() * CLASSES.len());
        for &size in &sizes {
            for class in CLASSES {
                let work = Work::of_size(&lab.stock, size, class)?;
                let platforms = [&lab.published, &lab.own_codec, &lab.on_chip, &lab.worker];
                let mut platforms = platforms.into_iter().chain(&lab.libraries);
                platforms.try_for_each(|own| warm(own, &work))?;
                for _ in 0..plan.runs {
                    for arm in &arms {
                        let what = format!("{}, {class}, {size}", arm.id);
                        let split = lab.take(&what, || arm.measure(&work, plan.size_jobs))?;
                        splits.entry((arm.id, class.name(), size)).or_default().push(split);
                    }
                }
            }
        }
        Ok(Self { arms, sizes, splits })
    }

    fn write(&self, rows: &mut Rows) {
        for arm in &self.arms {
            let devices = || arm.virtuals();
            for &size in &self.sizes {
                for class in CLASSES {
                    let id = format!("latency.{}.{class}.{}", arm.id, size_id(size));
                    let what = format!("{}: median latency of one job, {class}, {size}", arm.name);
                    rows.add(id, what, "us", self.of(arm, class, size, total), devices(), None);
                }
                if arm.mode != Mode::Software {
                    for (part, of) in PARTS {
                        let id = format!("{part}.{}.html.{}", arm.id, size_id(size));
                        let what = format!("{}: {part} of one job, html, {size}", arm.name);
                        let values = self.of(arm, PayloadClass::Html, size, of);
                        rows.add(id, what, "us", values, devices(), None);
                    }
                }
            }
            let id = format!("class_spread.{}", arm.id);
            let what = format!("{}: slowest over quickest class, the widest size", arm.name);
            rows.add(id, what, "ratio", self.class_spread(arm), devices(), None);
        }
        self.write_crossings(rows);
    }

    fn write_crossings(&self, rows: &mut Rows) {
        let own = [(BLUEFIELD, EPYC), (BLUEFIELD, OWN), (WORKER, OWN)];
        let libraries = self.libraries().map(|arm| (arm.id, OWN));
        for (device, software) in own.into_iter().chain(libraries) {
            let (device, software) = (self.arm(device), self.arm(software));
            let id = format!("break_even.{}.{}", device.id, software.id);
            let (own, other) = (device.name, software.name);
            let what = format!("{own} quicker than {other} from this size on, median of classes");
            let found = self.break_even(device, software);
            let devices = virtuals([device, software]);
            let values = found.iter().copied().map(Crossing::bytes);
            let row = Row::of(id, what, "B", values, devices, self.open_end(&found));
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
        let devices = virtuals([BLUEFIELD, ON_CHIP].map(|id| self.arm(id)));
        let row = Row::of(id, what.to_owned(), "ratio", self.off_chip(), devices, None);
        let reason = Some("published: at most; an input of both profiles at 8 KiB".to_owned());
        rows.rows.push(Row { reason, ..row.beside(1.25).by(Kind::Calibrated) });
    }

    fn arm(&self, id: &str) -> &Arm<'a> {
        self.arms.iter().find(|arm| arm.id == id).unwrap_or(&self.arms[0])
    }

    fn libraries(&self) -> impl Iterator<Item = &Arm<'a>> {
        let known = [EPYC, OWN, BLUEFIELD, ON_CHIP, WORKER];
        self.arms.iter().filter(move |arm| !known.contains(&arm.id))
    }

    /// Of each run.
    fn of(&self, arm: &Arm<'_>, class: PayloadClass, size: ByteCount, part: Part) -> Vec<f64> {
        let splits = self.splits.get(&(arm.id, class.name(), size));
        splits.into_iter().flatten().map(part).collect()
    }

    /// The median over classes, of each run (us).
    fn middle(&self, arm: &Arm<'_>, size: ByteCount, part: Part) -> Vec<f64> {
        let classes = CLASSES.map(|class| self.of(arm, class, size, part));
        let runs = classes.iter().map(Vec::len).min().unwrap_or(0);
        let median = |run: usize| {
            let spread = Spread::of(classes.iter().map(|values| values[run]));
            spread.map_or(f64::NAN, |spread| spread.median)
        };
        (0..runs).map(median).collect()
    }

    fn class_spread(&self, arm: &Arm<'_>) -> Vec<f64> {
        let runs = self.splits.values().map(Vec::len).min().unwrap_or(0);
        let widest = |run: usize| {
            let at = |size: &ByteCount| {
                let values = CLASSES.map(|class| self.of(arm, class, *size, total)[run]);
                let spread = Spread::of(values);
                spread.map_or(f64::NAN, |spread| spread.high / spread.low)
            };
            self.sizes.iter().map(at).fold(f64::NAN, f64::max)
        };
        (0..runs).map(widest).collect()
    }

    /// Of each run.
    fn break_even(&self, device: &Arm<'_>, software: &Arm<'_>) -> Vec<Crossing> {
        let at = |arm| self.sizes.iter().map(|size| self.middle(arm, *size, total)).collect();
        let (device, software): (Vec<Vec<f64>>, Vec<Vec<f64>>) = (at(device), at(software));
        let runs = device.iter().chain(&software).map(Vec::len).min().unwrap_or(0);
        let sizes: Vec<f64> = self.sizes.iter().map(|size| size.0 as f64).collect();
        let of = |run: usize| {
            let saved =
                device.iter().zip(&software).map(|(device, other)| other[run] - device[run]);
            Crossing::of(&sizes, &saved.collect::<Vec<_>>())
        };
        (0..runs).map(of).collect()
    }

    /// What the sizes that were measured leave open of a break-even.
    fn open_end(&self, found: &[Crossing]) -> Option<String> {
        let (first, last) = (self.sizes.first()?, self.sizes.last()?);
        let ends = [
            (
                found.iter().filter(|own| matches!(own, Crossing::Before(_))).count(),
                format!("at most: quicker at {} already, the smallest measured", size_id(*first)),
            ),
            (
                found.iter().filter(|own| matches!(own, Crossing::Never)).count(),
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

    /// Why two that were made to meet at a size do not meet there.
    fn gap(&self, device: &Arm<'_>, software: &Arm<'_>, size: ByteCount) -> String {
        let [device, software] = [device, software].map(|arm| self.middle(arm, size, total));
        let gaps = software.iter().zip(device).map(|(software, device)| software - device);
        let gap = Spread::of(gaps).map_or(String::new(), |gap| {
            format!(": there software's time less the device's is {:+.2} us", gap.median)
        });
        format!(
            "the profiles meet at {}; what is measured has the runtime's and the emulation's own \
             part of a job in it, which is not the same for both{gap}",
            size_id(size)
        )
    }

    /// Off-chip over on-chip, setups aside: the highest from 8 KiB on, of each run.
    fn off_chip(&self) -> Vec<f64> {
        let rest: Part = |own| own.device_us + own.completion_us;
        let large = self.sizes.iter().filter(|size| **size >= ByteCount::kib(8));
        let ratios = large.map(|size| {
            let [off, on] = [BLUEFIELD, ON_CHIP].map(|id| self.middle(self.arm(id), *size, rest));
            off.iter().zip(on).map(|(off, on)| off / on).collect::<Vec<_>>()
        });
        let highest = |one: Vec<f64>, other: Vec<f64>| {
            one.iter().zip(other).map(|(one, other)| one.max(other)).collect()
        };
        ratios.reduce(highest).unwrap_or_default()
    }

    fn section(&self) -> Section {
        Section {
            heading: "Latency against size (the seed's chapter 2)".into(),
            prose: vec![
                "One job at a time. Software by class of data; devices as the median of the \
                 classes: they hardly tell them apart. The profiles of BlueField-2 and of the \
                 seed's software are calibrated to the seed's text and table 4.2, so that their \
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
            let arm = self.arm(id);
            let origin = origin(&arm.virtuals());
            let lines = CLASSES.iter().enumerate().map(move |(index, class)| {
                let at = |size: &ByteCount| (size.0 as f64, self.of(arm, *class, *size, total));
                line(&format!("software, {class}"), index, origin, self.sizes.iter().map(at))
            });
            lines.collect::<Vec<_>>()
        };
        let device = |id: &str, index: usize| {
            let arm = self.arm(id);
            let at = |size: &ByteCount| (size.0 as f64, self.middle(arm, *size, total));
            let origin = origin(&arm.virtuals());
            line(arm.name, index, origin, self.sizes.iter().map(at))
        };
        let panel = |title: &str, software: &str, devices: &[(&str, usize)]| {
            let mut series = by_class(software);
            series.extend(devices.iter().map(|(id, index)| device(id, *index)));
            Panel::lines(title, Axis::bytes("size"), Axis::log10("latency (us)"), series)
        };
        let published = panel("the seed's machine", EPYC, &[(BLUEFIELD, 4), (ON_CHIP, 6)]);
        let own = panel("our own codec", OWN, &[(BLUEFIELD, 4), (WORKER, 5)]);
        figure("sizes".into(), "Median latency of one job.", vec![published, own])
    }

    fn split(&self) -> Figure {
        let arm = self.arm(BLUEFIELD);
        let bars = |(colour, (part, of)): (usize, &(&str, Part))| {
            let median = |size: &ByteCount| {
                let spread = Spread::of(self.of(arm, PayloadClass::Html, *size, *of));
                spread.map_or(f64::NAN, |spread| spread.median)
            };
            BarSeries::new(*part, Origin::Emulated, colour, self.sizes.iter().map(median))
        };
        let shown =
            |size: &ByteCount| Category { name: size.to_string(), origin: Origin::Emulated };
        let plot = Bars {
            y_label: "latency (us)".into(),
            layout: Layout::Stacked,
            categories: self.sizes.iter().map(shown).collect(),
            series: PARTS.iter().enumerate().map(bars).collect(),
            mark: None,
        };
        let panel = Panel { title: "html".into(), plot: Plot::Bars(plot) };
        figure("split".into(), "BlueField-2 off-chip: where the time of one job goes.", vec![panel])
    }
}

/// Of both, each once.
fn virtuals(arms: [&Arm<'_>; 2]) -> Vec<String> {
    let mut all = arms.map(Arm::virtuals).concat();
    all.sort_unstable();
    all.dedup();
    all
}

impl Arm<'_> {
    /// The virtual device in the path of its jobs: all of them ran where they were to run.
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
            // The first jobs warm caches and pools.
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
                    splits.push(Split::of(setup, service_us, total, includes_setup));
                }
            }
            Ok(splits)
        })?;
        let median = |part: fn(&Split) -> f64| {
            Spread::of(splits.iter().map(part)).map_or(f64::NAN, |spread| spread.median)
        };
        Ok(Split {
            setup_us: median(|own| own.setup_us),
            device_us: median(|own| own.device_us),
            completion_us: median(|own| own.completion_us),
            total_us: median(total),
        })
    }
}

impl Split {
    /// A published latency begins with the submission; a worker's service when it takes the job.
    fn of(setup_us: f64, service_us: f64, total_us: f64, includes_setup: bool) -> Self {
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
    ("setup", |own| own.setup_us),
    ("device", |own| own.device_us),
    ("completion", |own| own.completion_us),
];

/// The size from which on all savings are above zero.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Crossing {
    /// This one, between two sizes on a line over the logarithm (bytes).
    At(f64),
    /// The smallest (bytes), or any below it.
    Before(f64),
    /// None up to the largest.
    Never,
    /// A size without a number.
    Unknown,
}

impl Crossing {
    fn of(sizes: &[f64], saved: &[f64]) -> Self {
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

/// Where the published profiles meet, at the median of the classes of data.
const CALIBRATED: ByteCount = ByteCount(256);

#[cfg(test)]
mod tests {
    use super::*;
    use harness::Machine;

    #[test]
    fn the_break_even_is_where_savings_begin_for_good() {
        let sizes = [64.0, 256.0, 1_024.0];
        let crossing = |saved: [f64; 3]| Crossing::of(&sizes, &saved);
        assert_eq!(crossing([-1.0, 0.0, 1.0]), Crossing::At(256.0));
        assert!((crossing([-1.0, 1.0, 2.0]).bytes() - 128.0).abs() < 1e-9);
        assert_eq!(crossing([1.0, -1.0, 1.0]), Crossing::At(512.0));
        assert_eq!(crossing([1.0, 1.0, 1.0]), Crossing::Before(64.0));
        assert_eq!(crossing([1.0, 1.0, -1.0]), Crossing::Never);
        assert_eq!(crossing([1.0, f64::NAN, 1.0]), Crossing::Unknown);
        assert!(Crossing::Never.bytes().is_nan());
    }

    /// Latencies of one job (us) of all classes alike, at 64 B, 256 B and 1 KiB, two runs of each.
    fn found<'a>(lab: &'a [Platform; 2], latencies_us: &[(&'static str, [f64; 3])]) -> Found<'a> {
        let [published, own] = lab;
        let arm = |id: &'static str| match id {
            EPYC => Arm { id, name: id, platform: published, mode: Mode::Software },
            OWN => Arm { id, name: id, platform: own, mode: Mode::Software },
            // The platforms' device is the same.
            _ => Arm { id, name: id, platform: published, mode: Mode::Async },
        };
        let arms = [EPYC, OWN, BLUEFIELD, ON_CHIP, WORKER].map(arm).into();
        let sizes = [64, 256, 1 << 10].map(ByteCount).to_vec();
        let mut splits = BTreeMap::<Key, Vec<Split>>::new();
        for (id, all_us) in latencies_us {
            for (size, us) in sizes.iter().zip(all_us) {
                for class in CLASSES {
                    let split = Split::of(0.0, *us, *us, true);
                    splits.insert((*id, class.name(), *size), vec![split; 2]);
                }
            }
        }
        Found { arms, sizes, splits }
    }

    #[test]
    fn a_break_even_says_what_the_sizes_leave_open_and_names_what_is_compared() {
        let lab = [Platform::published(), Platform::own_codec()];
        let lab = lab.map(|platform| platform.expect("its profiles ship"));
        let found = found(
            &lab,
            &[
                (EPYC, [2.0, 3.3, 9.0]),
                (OWN, [3.5, 4.0, 9.0]),
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
        let own = row("break_even.bluefield2.own_codec");
        assert_eq!((own.ours, own.devices.concat().as_str()), (Some(64.0), "virtual-bluefield2"));
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
    fn the_parts_of_a_job_come_to_the_whole() {
        let virtual_job = Split::of(1.0, 5.0, 6.0, true);
        assert_eq!((virtual_job.device_us, virtual_job.completion_us), (4.0, 1.0));
        let worker_job = Split::of(1.0, 5.0, 9.0, false);
        assert_eq!((worker_job.device_us, worker_job.completion_us), (5.0, 3.0));
    }
}
