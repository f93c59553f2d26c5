//! The counts of a process as sparse vectors of monotonic counters: differences, sums, and conversion from
//! and to the messages of the API. Reports with invalid names or lengths are refused here.

use std::collections::BTreeMap;

use api::v1::{DeviceCounts, PathCounts, ReportRequest, SizeCounts};

use super::Refusal;

/// The key of counts within an instance: a path (op, device, placement and reason of jobs), a device, a
/// fallback, or the process itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Path { op: String, device: String, placement: String, reason: String },
    Device { device: String },
    Fallback { device: String, reason: String },
    Process,
}

impl Key {
    pub(crate) fn device(&self) -> &str {
        match self {
            Key::Path { device, .. } | Key::Device { device } | Key::Fallback { device, .. } => {
                device
            }
            Key::Process => "",
        }
    }

    /// Returns the memory of the key.
    pub(super) fn bytes(&self) -> u64 {
        let text = match self {
            Key::Path { op, device, placement, reason } => {
                op.len() + device.len() + placement.len() + reason.len()
            }
            Key::Device { device } => device.len(),
            Key::Fallback { device, reason } => device.len() + reason.len(),
            Key::Process => 0,
        };
        (size_of::<Key>() + text) as u64
    }
}

/// Counts by slot, sorted by slot and without zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts(Vec<(u16, u64)>);

/// The counts of one or several processes, by key.
pub(crate) type Counted = BTreeMap<Key, Counts>;

impl Counts {
    pub(crate) fn get(&self, slot: u16) -> u64 {
        self.0.binary_search_by_key(&slot, |(slot, _)| *slot).map_or(0, |at| self.0[at].1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the difference from `earlier`. The error is a slot that decreased.
    pub(super) fn since(&self, earlier: &Counts) -> Result<Counts, u16> {
        let gone = |(slot, _): &&(u16, u64)| self.get(*slot) == 0;
        if let Some((slot, _)) = earlier.0.iter().find(gone) {
            return Err(*slot);
        }
        let mut more = Vec::new();
        for (slot, now) in &self.0 {
            match now.checked_sub(earlier.get(*slot)) {
                None => return Err(*slot),
                Some(0) => {}
                Some(difference) => more.push((*slot, difference)),
            }
        }
        Ok(Counts(more))
    }

    pub(crate) fn add(&mut self, other: &Counts) {
        for (slot, count) in &other.0 {
            match self.0.binary_search_by_key(slot, |(slot, _)| *slot) {
                Ok(at) => self.0[at].1 = self.0[at].1.saturating_add(*count),
                Err(at) => self.0.insert(at, (*slot, *count)),
            }
        }
    }

    /// Returns the memory of these counts.
    pub(super) fn bytes(&self) -> u64 {
        (size_of::<Self>() + self.0.len() * size_of::<(u16, u64)>()) as u64
    }

    fn from_slots(slots: impl Iterator<Item = (u16, u64)>) -> Self {
        let mut slots: Vec<_> = slots.filter(|(_, count)| *count > 0).collect();
        slots.sort_unstable_by_key(|(slot, _)| *slot);
        slots.shrink_to_fit();
        Counts(slots)
    }

    /// Converts the counts of a path. Its classes must be in range.
    pub(super) fn of_path(path: &PathCounts) -> Self {
        let scalars = [
            (JOBS, path.jobs),
            (FAILED, path.failed),
            (DID_NOT_FIT, path.did_not_fit),
            (INPUT_BYTES, path.input_bytes),
            (OUTPUT_BYTES, path.output_bytes),
            (SERVICE_NS, path.service_ns),
            (QUEUEING_NS, path.queueing_ns),
        ];
        let sizes = path.sizes.iter().flat_map(|size| {
            let times = [size.service_ns, size.queueing_ns, size.host_jobs, size.host_ns];
            let fields = [size.jobs, size.work_bytes].into_iter().chain(times);
            (size_slot(size.log2)..).zip(fields)
        });
        let service = (SERVICE_CLASSES..).zip(path.service_log2_ns.iter().copied());
        let queueing = (QUEUEING_CLASSES..).zip(path.queueing_log2_ns.iter().copied());
        Self::from_slots(scalars.into_iter().chain(sizes).chain(service).chain(queueing))
    }

    pub(super) fn of_device(device: &DeviceCounts) -> Self {
        let slots = [
            (LOST, device.lost),
            (TIMEOUTS, device.timeouts),
            (PROBES, device.probes),
            (RESTORED, device.restored),
        ];
        Self::from_slots(slots.into_iter())
    }

    pub(super) fn of_process(cpu_ns: u64) -> Self {
        Self::from_slots([(CPU_NS, cpu_ns)].into_iter())
    }

    pub(super) fn of_jobs(jobs: u64) -> Self {
        Self::from_slots([(JOBS, jobs)].into_iter())
    }

    /// Returns the size classes that have jobs.
    pub(crate) fn sizes(&self) -> Vec<SizeCounts> {
        let size = |log2| {
            let slot = size_slot(log2);
            SizeCounts {
                log2,
                jobs: self.get(slot),
                work_bytes: self.get(slot + 1),
                service_ns: self.get(slot + 2),
                queueing_ns: self.get(slot + 3),
                host_jobs: self.get(slot + 4),
                host_ns: self.get(slot + 5),
            }
        };
        (0..CLASSES as u32).map(size).filter(|size| size.jobs > 0).collect()
    }

    /// Returns the numbers of jobs by class of service time, see [`PathCounts::service_log2_ns`].
    pub(crate) fn service_classes(&self) -> Vec<u64> {
        self.classes(SERVICE_CLASSES)
    }

    /// Returns the numbers of jobs by class of queueing time, in the same classes as service times.
    pub(crate) fn queueing_classes(&self) -> Vec<u64> {
        self.classes(QUEUEING_CLASSES)
    }

    fn classes(&self, first: u16) -> Vec<u64> {
        let mut counts: Vec<u64> = (first..first + CLASSES).map(|slot| self.get(slot)).collect();
        counts.truncate(counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1));
        counts
    }
}

/// Converts a report to counts.
///
/// # Errors
/// Returns [`Refusal::Invalid`] for invalid names or classes and for too many entries.
pub(super) fn read(report: &ReportRequest) -> Result<Counted, Refusal> {
    at_most("paths", report.paths.len(), PATHS_MAX)?;
    at_most("devices", report.devices.len(), DEVICES_MAX)?;
    let mut counted = Counted::new();
    for path in &report.paths {
        check_path(path)?;
        let key = Key::Path {
            op: path.op.clone(),
            device: path.device.clone(),
            placement: path.placement.clone(),
            reason: path.reason.clone(),
        };
        insert(&mut counted, key, Counts::of_path(path))?;
    }
    for counts in &report.devices {
        let device = &counts.device;
        name("devices.device", device, DEVICE_BYTES_MAX)?;
        at_most("devices.fallbacks", counts.fallbacks.len(), FALLBACKS_MAX)?;
        insert(&mut counted, Key::Device { device: device.clone() }, Counts::of_device(counts))?;
        for (reason, jobs) in &counts.fallbacks {
            name("devices.fallbacks", reason, WORD_BYTES_MAX)?;
            let key = Key::Fallback { device: device.clone(), reason: reason.clone() };
            insert(&mut counted, key, Counts::of_jobs(*jobs))?;
        }
    }
    insert(&mut counted, Key::Process, Counts::of_process(report.cpu_ns))?;
    // Keys without counts are not stored.
    counted.retain(|_, counts| !counts.is_empty());
    Ok(counted)
}

/// Returns the CPU time among the counts (ns).
pub(super) fn cpu_ns(counted: &Counted) -> u64 {
    counted.get(&Key::Process).map_or(0, |counts| counts.get(CPU_NS))
}

/// Converts the counts of paths and devices to messages.
pub(crate) fn write(counted: &Counted) -> (Vec<PathCounts>, Vec<DeviceCounts>) {
    let mut paths = Vec::new();
    let mut devices: BTreeMap<&str, DeviceCounts> = BTreeMap::new();
    for (key, counts) in counted {
        if *key == Key::Process {
            continue;
        }
        let Key::Path { op, device, placement, reason } = key else {
            let device = devices.entry(key.device()).or_default();
            match key {
                Key::Fallback { reason, .. } => {
                    device.fallbacks.insert(reason.clone(), counts.get(JOBS));
                }
                _ => {
                    device.lost = counts.get(LOST);
                    device.timeouts = counts.get(TIMEOUTS);
                    device.probes = counts.get(PROBES);
                    device.restored = counts.get(RESTORED);
                }
            }
            continue;
        };
        paths.push(PathCounts {
            op: op.clone(),
            device: device.clone(),
            placement: placement.clone(),
            reason: reason.clone(),
            jobs: counts.get(JOBS),
            failed: counts.get(FAILED),
            did_not_fit: counts.get(DID_NOT_FIT),
            input_bytes: counts.get(INPUT_BYTES),
            output_bytes: counts.get(OUTPUT_BYTES),
            service_ns: counts.get(SERVICE_NS),
            queueing_ns: counts.get(QUEUEING_NS),
            sizes: counts.sizes(),
            service_log2_ns: counts.service_classes(),
            queueing_log2_ns: counts.queueing_classes(),
        });
    }
    let named =
        |(name, counts): (&str, DeviceCounts)| DeviceCounts { device: name.to_owned(), ..counts };
    (paths, devices.into_iter().map(named).collect())
}

/// Returns the name of a slot, for messages.
pub(super) fn slot_name(key: &Key, slot: u16) -> String {
    let names: &[&str] = match key {
        Key::Path { .. } => &PATH_SLOTS,
        Key::Device { .. } => &DEVICE_SLOTS,
        Key::Fallback { .. } => &PATH_SLOTS[..1],
        Key::Process => &["cpu_ns"],
    };
    match slot {
        slot if usize::from(slot) < names.len() => names[usize::from(slot)].to_owned(),
        slot if slot >= QUEUEING_CLASSES => {
            format!("queueing_log2_ns[{}]", slot - QUEUEING_CLASSES)
        }
        slot if slot >= SERVICE_CLASSES => format!("service_log2_ns[{}]", slot - SERVICE_CLASSES),
        slot => format!("sizes of log2 {}", slot.saturating_sub(SIZES) / SIZE_FIELDS),
    }
}

/// Checks the length of a name and that it has no control characters.
pub(super) fn name(field: &str, text: &str, bytes_max: usize) -> Result<(), Refusal> {
    let count = text.len();
    if !(1..=bytes_max).contains(&count) {
        let problem = format!("{field} has {count} bytes; valid is 1 to {bytes_max}");
        return Err(Refusal::Invalid(problem));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(bad) => Err(Refusal::Invalid(format!("{field} has the control character {bad:?}"))),
        None => Ok(()),
    }
}

fn check_path(path: &PathCounts) -> Result<(), Refusal> {
    name("paths.op", &path.op, WORD_BYTES_MAX)?;
    name("paths.device", &path.device, DEVICE_BYTES_MAX)?;
    name("paths.placement", &path.placement, WORD_BYTES_MAX)?;
    name("paths.reason", &path.reason, WORD_BYTES_MAX)?;
    let classes = usize::from(CLASSES);
    at_most("paths.sizes", path.sizes.len(), classes)?;
    at_most("paths.service_log2_ns", path.service_log2_ns.len(), classes)?;
    at_most("paths.queueing_log2_ns", path.queueing_log2_ns.len(), classes)?;
    let mut seen = 0_u64;
    for size in &path.sizes {
        let bit = 1_u64.checked_shl(size.log2).filter(|bit| seen & bit == 0);
        let bad = || {
            let problem = format!("paths.sizes.log2 is {}; valid is 0 to 63, each once", size.log2);
            Refusal::Invalid(problem)
        };
        seen |= bit.ok_or_else(bad)?;
    }
    Ok(())
}

fn at_most(field: &str, count: usize, max: usize) -> Result<(), Refusal> {
    let problem = || Refusal::Invalid(format!("{field} has {count} entries; valid is 0 to {max}"));
    if count <= max { Ok(()) } else { Err(problem()) }
}

fn insert(counted: &mut Counted, key: Key, counts: Counts) -> Result<(), Refusal> {
    match counted.contains_key(&key) {
        true => Err(Refusal::Invalid(format!("{key:?} is there twice"))),
        false => {
            counted.insert(key, counts);
            Ok(())
        }
    }
}

fn size_slot(log2: u32) -> u16 {
    SIZES + log2 as u16 * SIZE_FIELDS
}

pub(crate) const JOBS: u16 = 0;
pub(crate) const FAILED: u16 = 1;
pub(crate) const DID_NOT_FIT: u16 = 2;
pub(crate) const INPUT_BYTES: u16 = 3;
pub(crate) const OUTPUT_BYTES: u16 = 4;
pub(crate) const SERVICE_NS: u16 = 5;
pub(crate) const QUEUEING_NS: u16 = 6;
const PATH_SLOTS: [&str; 7] =
    ["jobs", "failed", "did_not_fit", "input_bytes", "output_bytes", "service_ns", "queueing_ns"];

pub(crate) const LOST: u16 = 0;
pub(crate) const TIMEOUTS: u16 = 1;
pub(crate) const PROBES: u16 = 2;
pub(crate) const RESTORED: u16 = 3;
const DEVICE_SLOTS: [&str; 4] = ["lost", "timeouts", "probes", "restored"];

pub(crate) const CPU_NS: u16 = 0;

/// The number of classes: one for each power of two of a 64-bit number.
const CLASSES: u16 = 64;
const SIZES: u16 = PATH_SLOTS.len() as u16;
const SIZE_FIELDS: u16 = 6;
const SERVICE_CLASSES: u16 = SIZES + CLASSES * SIZE_FIELDS;
const QUEUEING_CLASSES: u16 = SERVICE_CLASSES + CLASSES;

/// The maximum number of paths in a report, which are combinations of op, device, placement and reason. Two
/// ops on four devices have about fifty.
const PATHS_MAX: usize = 256;
const DEVICES_MAX: usize = 64;
const FALLBACKS_MAX: usize = 32;
/// The longest name of a device (bytes), which is also the limit of the configuration key.
const DEVICE_BYTES_MAX: usize = 128;
/// The longest name of an op, a placement or a reason (bytes).
const WORD_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(slots: &[(u16, u64)]) -> Counts {
        Counts::from_slots(slots.iter().copied())
    }

    #[test]
    fn differences_and_sums_undo_each_other() {
        let (early, late) = (counts(&[(1, 5), (9, 1)]), counts(&[(0, 2), (1, 5), (9, 4)]));
        let more = late.since(&early).expect("nothing went back");
        assert_eq!(more, counts(&[(0, 2), (9, 3)]));
        let mut sum = early.clone();
        sum.add(&more);
        assert_eq!(sum, late);
        assert_eq!(early.since(&late), Err(0));
        assert_eq!(counts(&[(1, 4), (9, 4)]).since(&early), Err(1));
    }

    #[test]
    fn messages_come_back_as_they_were() {
        let path = PathCounts {
            op: "compress".into(),
            device: "software".into(),
            placement: "software".into(),
            reason: "policy".into(),
            jobs: 3,
            failed: 1,
            did_not_fit: 1,
            input_bytes: 10,
            output_bytes: 5,
            service_ns: 7,
            queueing_ns: 2,
            sizes: vec![
                SizeCounts { jobs: 1, work_bytes: 1, service_ns: 1, ..SizeCounts::default() },
                SizeCounts {
                    log2: 63,
                    jobs: 2,
                    work_bytes: 9,
                    service_ns: 6,
                    queueing_ns: 2,
                    host_jobs: 1,
                    host_ns: 3,
                },
            ],
            service_log2_ns: vec![0, 0, 3],
            queueing_log2_ns: [vec![0; 63], vec![3]].concat(),
        };
        let fallbacks = [("timeout".to_owned(), 4)].into();
        let device = DeviceCounts { device: "worker".into(), lost: 1, fallbacks, ..<_>::default() };
        let report = ReportRequest {
            paths: vec![path.clone()],
            devices: vec![device.clone()],
            ..ReportRequest::default()
        };
        let counted = read(&report).expect("a valid report");
        assert_eq!(write(&counted), (vec![path], vec![device]));
    }

    #[test]
    fn slots_are_told_by_name() {
        let device = || "d".to_owned();
        let path =
            Key::Path { op: device(), device: device(), placement: device(), reason: device() };
        for (slot, wanted) in [
            (JOBS, "jobs"),
            (QUEUEING_NS, "queueing_ns"),
            (size_slot(12) + 1, "sizes of log2 12"),
            (SERVICE_CLASSES + 3, "service_log2_ns[3]"),
            (QUEUEING_CLASSES, "queueing_log2_ns[0]"),
        ] {
            assert_eq!(slot_name(&path, slot), wanted);
        }
        assert_eq!(slot_name(&Key::Device { device: device() }, RESTORED), "restored");
    }
}
