//! What the committed paths of the services have in them: what stands behind their ops for a dispatcher to do, and
//! which sequences between two visits to a core depend on a condition. Counted by walking the traces; nothing is timed.

use trace::{Catalog, Instruction, Stage, compile};

/// What stands behind one op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Behind {
    pub(super) branches: u32,
    pub(super) transforms: u32,
    /// Its trace ends: a core is told, or another trace is loaded.
    pub(super) ends: u32,
}

/// Conditions that dispatchers decide in each sequence of accelerators. A sequence is what table IV prints between two
/// visits to a core; of parallel ones, one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sequences {
    pub(super) conditions: Vec<u32>,
}

impl Sequences {
    /// The share that has any (%).
    pub(super) fn conditional_percent(&self) -> f64 {
        let some = self.conditions.iter().filter(|own| **own > 0).count();
        100.0 * some as f64 / self.conditions.len() as f64
    }

    fn add(&mut self, sequence: &mut Vec<Behind>) {
        if !sequence.is_empty() {
            self.conditions.push(sequence.iter().map(|own| own.branches).sum());
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

/// Of all services.
pub(super) fn sequences(catalog: &Catalog) -> Sequences {
    let mut sequences = Sequences::default();
    catalog.services().iter().for_each(|service| sequences.stages(catalog, &service.path));
    sequences
}

/// What stands behind every op of one request of each service.
pub(super) fn ops(catalog: &Catalog) -> Vec<Behind> {
    let mut ops = Vec::new();
    for service in catalog.services() {
        service.path.iter().for_each(|stage| walk(catalog, stage, 1, &mut ops));
    }
    ops
}

/// Adds the ops of a stage that is run so many times.
fn walk(catalog: &Catalog, stage: &Stage, times: u32, ops: &mut Vec<Behind>) {
    match stage {
        Stage::Cpu => {}
        Stage::Parallel { times: more, path } => {
            path.iter().for_each(|stage| walk(catalog, stage, times * more, ops));
        }
        Stage::Run { trace, with } => {
            let Some(found) = catalog.trace(trace) else { return };
            let mut walk = Walk { code: &compile(found), with, ops: Vec::new() };
            walk.from(0, None);
            (0..times).for_each(|_| ops.extend(&walk.ops));
        }
    }
}

struct Walk<'a> {
    code: &'a [Instruction],
    with: &'a [String],
    ops: Vec<Behind>,
}

impl Walk<'_> {
    /// To an end; `last` is the op before. What stands before the first op is a core's.
    fn from(&mut self, mut at: usize, mut last: Option<usize>) {
        let (code, with) = (self.code, self.with);
        while let Some(instruction) = code.get(at) {
            at += 1;
            match instruction {
                Instruction::Run { .. } => {
                    last = Some(self.ops.len());
                    self.ops.push(Behind::default());
                }
                Instruction::Trans(..) => self.behind(last, |own| own.transforms += 1),
                Instruction::Branch { condition, on_false } => {
                    self.behind(last, |own| own.branches += 1);
                    let mut read = |field: &str| u32::from(with.iter().any(|own| own == field));
                    if !condition.holds(&mut read) {
                        at = usize::from(*on_false);
                    }
                }
                Instruction::Jump(to) => at = usize::from(*to),
                Instruction::Fork { arms, join } => {
                    arms.iter().for_each(|arm| self.from(usize::from(*arm), last));
                    let Some(join) = join else { return };
                    (at, last) = (usize::from(*join), None);
                }
                Instruction::Arrive { .. } => return,
                Instruction::End(_) => return self.behind(last, |own| own.ends += 1),
            }
        }
    }

    fn behind(&mut self, last: Option<usize>, change: impl FnOnce(&mut Behind)) {
        if let Some(own) = last.and_then(|last| self.ops.get_mut(last)) {
            change(own);
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
        let sum = |of: fn(&Behind) -> u32| ops.iter().map(of).sum::<u32>();
        let all: u64 = catalog.services().iter().map(|own| catalog.invocations(own)).sum();
        assert_eq!((ops.len(), all), (245, 245));
        let behind = (sum(|own| own.ends), sum(|own| own.branches), sum(|own| own.transforms));
        assert_eq!(behind, (53, 39, 11));
    }

    #[test]
    fn sequences_are_those_between_visits_to_a_core() {
        let sequences = sequences(&trace::accelflow());
        // CPost: T1, four times T9 and T10, three times, T2.
        assert_eq!(sequences.conditions.len(), 26);
        assert_eq!(sequences.conditions[..4], [1, 2, 2, 0], "CPost");
        assert!((sequences.conditional_percent() - 69.23).abs() < 0.01);
        // Login: the cache misses, the database finds, and the cache is written.
        assert_eq!(sequences.conditions.iter().max(), Some(&5));
    }
}
