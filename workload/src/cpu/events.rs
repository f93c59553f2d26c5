//! Determines from the name of a `perf` event what it counts: cycles, time, instructions or something else.
//! Of each kind only the first event in a profile is used, because a second event would count the same work
//! again. The event may have a different name on each kind of core.

/// The unit that samples count. An earlier variant is preferred for computing shares of cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Cycles of the core.
    Cycles,
    /// Nanoseconds on a core.
    Clock,
    /// Samples, page faults and everything else.
    Other,
    Instructions,
}

impl Kind {
    pub(super) const ALL: [Kind; KINDS] =
        [Kind::Cycles, Kind::Clock, Kind::Other, Kind::Instructions];

    /// Returns the kind of the event with this name, which has no PMU and no modifiers. The whole name must
    /// match, so `branch-instructions` does not count as instructions.
    fn from_event(event: &[u8]) -> Self {
        match event {
            b"cycles" | b"cpu-cycles" | b"cpu_cycles" => Kind::Cycles,
            b"cpu-clock" | b"task-clock" => Kind::Clock,
            b"instructions" | b"inst_retired" | b"inst_retired.any" => Kind::Instructions,
            _ => Kind::Other,
        }
    }
}

pub(super) const KINDS: usize = 4;

/// The events of a profile that are used, one per kind.
#[derive(Debug, Default)]
pub(super) struct Events([Option<Known>; KINDS]);

#[derive(Debug)]
struct Known {
    event: Vec<u8>,
    modifiers: Vec<u8>,
    /// The names of the event, in the order of their first samples. There is one name, or one per kind of core.
    names: Vec<String>,
}

impl Events {
    /// Returns what the samples of an event count. Returns none if another event of the same kind is already used.
    pub(super) fn kind(&mut self, name: &[u8]) -> Option<Kind> {
        let (event, modifiers) = parts(name);
        let kind = Kind::from_event(event);
        let known = self.0[kind as usize].get_or_insert_with(|| Known {
            event: event.to_vec(),
            modifiers: modifiers.to_vec(),
            names: Vec::new(),
        });
        if known.event != event || known.modifiers != modifiers {
            return None;
        }
        let is_new = !known.names.iter().any(|known_name| known_name.as_bytes() == name);
        if is_new && known.names.len() < NAMES_MAX {
            known.names.push(String::from_utf8_lossy(name).into_owned());
        }
        Some(kind)
    }

    /// Returns the names of the event that is used for a kind, joined by commas.
    pub(super) fn names(&self, kind: Kind) -> Option<String> {
        self.0[kind as usize].as_ref().map(|known| known.names.join(", "))
    }
}

/// Splits the name of an event into event and modifiers. The result is `cycles` and `ppp` for `cycles:ppp`,
/// `cpu_core/cycles/ppp` and `cpu/cycles,period=9/ppp`.
fn parts(name: &[u8]) -> (&[u8], &[u8]) {
    let mut halves = name.splitn(3, |byte| *byte == b'/');
    let first = halves.next().unwrap_or_default();
    if let Some(terms) = halves.next() {
        let event = terms.split(|byte| *byte == b',').next().unwrap_or_default();
        return (event, halves.next().unwrap_or_default());
    }
    let colon = first.iter().position(|byte| *byte == b':').unwrap_or(first.len());
    (&first[..colon], first.get(colon + 1..).unwrap_or_default())
}

/// The most names that are stored for an event. No machine has this many kinds of cores.
const NAMES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_known_by_all_of_its_name() {
        let kind = |name: &str| Events::default().kind(name.as_bytes()).expect("the first");
        for name in ["cycles", "cycles:ppp", "cpu_atom/cycles/", "cpu/cycles,period=9/u"] {
            assert_eq!(kind(name), Kind::Cycles, "{name}");
        }
        for name in ["branch-instructions", "stalled-cycles-backend", "page-faults", "samples"] {
            assert_eq!(kind(name), Kind::Other, "{name}");
        }
        assert_eq!(kind("instructions:u"), Kind::Instructions);
        assert_eq!(kind("task-clock"), Kind::Clock);
    }

    #[test]
    fn a_second_event_of_a_kind_is_not_added() {
        let mut events = Events::default();
        let kind_of = |events: &mut Events, name: &str| events.kind(name.as_bytes());
        assert_eq!(kind_of(&mut events, "cpu_core/cycles/u"), Some(Kind::Cycles));
        assert_eq!(kind_of(&mut events, "cpu_atom/cycles/u"), Some(Kind::Cycles));
        assert_eq!(kind_of(&mut events, "cycles:k"), None);
        assert_eq!(kind_of(&mut events, "cpu-cycles:u"), None);
        let names = events.names(Kind::Cycles);
        assert_eq!(names.as_deref(), Some("cpu_core/cycles/u, cpu_atom/cycles/u"));
        assert_eq!(events.names(Kind::Clock), None);
    }
}
