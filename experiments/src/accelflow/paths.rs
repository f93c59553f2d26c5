//! Counts two things in the committed paths of the services: the dispatcher's work after each op, and the
//! sequences between two visits to a core that depend on a condition. The module walks the traces and
//! measures no times.

use trace::{Behind, Catalog, Stage};

/// The number of conditions that dispatchers decide in each sequence of accelerators. A sequence is what table IV
/// prints between two visits to a core. Parallel sequences count once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sequences {
    pub(super) conditions: Vec<u32>,
}

impl Sequences {
    /// Returns the share of the sequences that have a condition (%).
    pub(super) fn conditional_percent(&self) -> f64 {
        let some = self.conditions.iter().filter(|count| **count > 0).count();
        100.0 * some as f64 / self.conditions.len() as f64
    }

    fn add(&mut self, sequence: &mut Vec<Behind>) {
        if !sequence.is_empty() {
            self.conditions.push(sequence.iter().map(|op| op.branches).sum());
            sequence.clear();
        }
    }

    fn stages(&mut self, catalog: &Catalog, path: &[Stage]) {
        let mut sequence = Vec::new();
        for stage in path {
            match stage {
                Stage::Cpu => self.add(&mut sequence),
                Stage::Run { .. } => walk(catalog, stage, 1, &mut sequence),
                Stage::Parallel { path, .. } => {
                    self.add(&mut sequence);
                    self.stages(catalog, path);
                }
            }
        }
        self.add(&mut sequence);
    }
}

/// Returns the sequences of all services.
pub(super) fn sequences(catalog: &Catalog) -> Sequences {
    let mut sequences = Sequences::default();
    catalog.services().iter().for_each(|service| sequences.stages(catalog, &service.path));
    sequences
}

/// Returns the dispatcher's work after each op, for one request of each service.
pub(super) fn ops(catalog: &Catalog) -> Vec<Behind> {
    let mut ops = Vec::new();
    for service in catalog.services() {
        service.path.iter().for_each(|stage| walk(catalog, stage, 1, &mut ops));
    }
    ops
}

/// Adds the ops of a stage that runs `times` times.
fn walk(catalog: &Catalog, stage: &Stage, times: u32, ops: &mut Vec<Behind>) {
    match stage {
        Stage::Cpu => {}
        Stage::Parallel { times: more, path } => {
            path.iter().for_each(|stage| walk(catalog, stage, times * more, ops));
        }
        Stage::Run { trace: name, with } => {
            let Some(found) = catalog.trace(name) else { return };
            let mut read = |field: &str| u32::from(with.iter().any(|flag| flag == field));
            let behind = trace::walk(found, &mut read).behind;
            (0..times).for_each(|_| ops.extend(&behind));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_are_counted_as_by_hand() {
        let catalog = trace::accelflow();
        let ops = ops(&catalog);
        let sum = |count: fn(&Behind) -> u32| ops.iter().map(count).sum::<u32>();
        let services = catalog.services().iter();
        let all: u64 = services.map(|service| catalog.invocations(service)).sum();
        assert_eq!((ops.len(), all), (245, 245));
        let behind = (sum(|op| op.ends), sum(|op| op.branches), sum(|op| op.transforms));
        assert_eq!(behind, (53, 39, 11));
    }

    #[test]
    fn sequences_end_at_visits_to_a_core() {
        let sequences = sequences(&trace::accelflow());
        // CPost runs T1, four parallel pairs of T9 and T10, three more parallel pairs, and T2. Parallel sequences count
        // once.
        assert_eq!(sequences.conditions.len(), 26);
        assert_eq!(sequences.conditions[..4], [1, 2, 2, 0], "CPost");
        assert!((sequences.conditional_percent() - 69.23).abs() < 0.01);
        // In the longest sequence of Login the cache misses, the database finds the value, and the cache is written.
        assert_eq!(sequences.conditions.iter().max(), Some(&5));
    }
}
