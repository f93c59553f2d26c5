//! The conditions of branches: logic on flags and comparisons of numbers, without arithmetic and
//! loops. The module also decides whether several conditions can hold together.

use std::collections::BTreeSet;
use std::fmt;

use crate::encode::condition_units;
use crate::limits::CONDITION_UNITS_MAX;

/// A condition on the payload's fields, which a branch tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The flag is set.
    Flag(String),
    /// The comparison of the number with the literal holds.
    Number(String, Comparison, u32),
    /// The inner condition does not hold.
    Not(Box<Condition>),
    /// Both conditions hold.
    And(Box<Condition>, Box<Condition>),
    /// At least one of the conditions holds.
    Or(Box<Condition>, Box<Condition>),
}

/// A comparison of a number with a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Comparison {
    Equal = 2,
    NotEqual = 3,
    Below = 4,
    AtMost = 5,
    Above = 6,
    AtLeast = 7,
}

impl Comparison {
    /// All comparisons, in the order of their codes.
    pub const ALL: [Comparison; 6] = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Below,
        Comparison::AtMost,
        Comparison::Above,
        Comparison::AtLeast,
    ];

    /// Returns the symbol in the text form.
    pub const fn symbol(self) -> &'static str {
        match self {
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
            Comparison::Below => "<",
            Comparison::AtMost => "<=",
            Comparison::Above => ">",
            Comparison::AtLeast => ">=",
        }
    }

    /// Returns whether the comparison of `value` with `literal` holds.
    pub const fn holds(self, value: u32, literal: u32) -> bool {
        match self {
            Comparison::Equal => value == literal,
            Comparison::NotEqual => value != literal,
            Comparison::Below => value < literal,
            Comparison::AtMost => value <= literal,
            Comparison::Above => value > literal,
            Comparison::AtLeast => value >= literal,
        }
    }
}

impl Condition {
    /// Returns the condition that the flag `field` is set.
    pub fn flag(field: impl Into<String>) -> Condition {
        Condition::Flag(field.into())
    }

    /// Returns the condition that `comparison` of the number `field` with `literal` holds.
    pub fn number(field: impl Into<String>, comparison: Comparison, literal: u32) -> Condition {
        Condition::Number(field.into(), comparison, literal)
    }

    /// Returns the condition that both conditions hold.
    ///
    /// A condition stops growing when it has far more units or levels than a catalog accepts, so
    /// building it can neither fill the memory nor overflow a stack. The result is then the larger
    /// of the two conditions, which the catalog refuses.
    #[must_use]
    pub fn and(self, other: Condition) -> Condition {
        match self.too_large(&other) {
            Some(larger) => larger,
            None => Condition::And(Box::new(self), Box::new(other)),
        }
    }

    /// Returns the condition that at least one of the two conditions holds. Its size is bounded as
    /// in [`Condition::and`].
    #[must_use]
    pub fn or(self, other: Condition) -> Condition {
        match self.too_large(&other) {
            Some(larger) => larger,
            None => Condition::Or(Box::new(self), Box::new(other)),
        }
    }

    /// Returns the negation of this condition. Its size is bounded as in [`Condition::and`].
    #[must_use]
    #[allow(clippy::should_implement_trait)]
    pub fn not(self) -> Condition {
        if self.depth() >= DEPTH_KEPT { self } else { Condition::Not(Box::new(self)) }
    }

    /// Returns the deeper condition if one is too deep to be joined, or the longer condition if
    /// both together are too long. Returns none if they can be joined.
    fn too_large(&self, other: &Condition) -> Option<Condition> {
        let larger =
            |size: usize, other_size: usize| if size >= other_size { self } else { other }.clone();
        let depths = (self.depth(), other.depth());
        if depths.0.max(depths.1) >= DEPTH_KEPT {
            return Some(larger(depths.0, depths.1));
        }
        let units = (condition_units(self), condition_units(other));
        (units.0 + units.1 >= UNITS_KEPT).then(|| larger(units.0, units.1))
    }

    /// Returns whether the condition holds if each field has the value that `read` returns. A flag
    /// is set if its value is not zero.
    pub fn holds(&self, read: &mut dyn FnMut(&str) -> u32) -> bool {
        match self {
            Condition::Flag(field) => read(field) != 0,
            Condition::Number(field, comparison, literal) => {
                comparison.holds(read(field), *literal)
            }
            Condition::Not(inner) => !inner.holds(read),
            Condition::And(left, right) => left.holds(read) && right.holds(read),
            Condition::Or(left, right) => left.holds(read) || right.holds(read),
        }
    }

    /// Calls `visit` for every test of a field, with the field's name and the literal with which it
    /// is compared. The literal is none for a flag.
    pub fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a str, Option<u32>)) {
        match self {
            Condition::Flag(field) => visit(field, None),
            Condition::Number(field, _, literal) => visit(field, Some(*literal)),
            Condition::Not(inner) => inner.visit(visit),
            Condition::And(left, right) | Condition::Or(left, right) => {
                left.visit(visit);
                right.visit(visit);
            }
        }
    }

    /// Returns the number of levels of logic. A single test has one level.
    pub fn depth(&self) -> usize {
        match self {
            Condition::Flag(_) | Condition::Number(..) => 1,
            Condition::Not(inner) => 1 + inner.depth(),
            Condition::And(left, right) | Condition::Or(left, right) => {
                1 + left.depth().max(right.depth())
            }
        }
    }
}

/// Returns the precedence of the outermost operator: 0 for `or`, 1 for `and`, 2 for `not`, and 3
/// for a test. A higher precedence binds tighter.
const fn rank(condition: &Condition) -> u8 {
    match condition {
        Condition::Or(..) => 0,
        Condition::And(..) => 1,
        Condition::Not(_) => 2,
        Condition::Flag(_) | Condition::Number(..) => 3,
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let within = |f: &mut fmt::Formatter<'_>, inner: &Condition, lowest: u8| {
            if rank(inner) < lowest { write!(f, "({inner})") } else { write!(f, "{inner}") }
        };
        match self {
            Condition::Flag(field) => f.write_str(field),
            Condition::Number(field, comparison, literal) => {
                write!(f, "{field} {} {literal}", comparison.symbol())
            }
            Condition::Not(inner) => {
                f.write_str("not ")?;
                within(f, inner, 2)
            }
            // A chain is nested on the left. A chain on the right side keeps its brackets.
            Condition::And(left, right) => {
                within(f, left, 1)?;
                f.write_str(" and ")?;
                within(f, right, 2)
            }
            Condition::Or(left, right) => {
                within(f, left, 0)?;
                f.write_str(" or ")?;
                within(f, right, 1)
            }
        }
    }
}

/// Returns whether all of these conditions can have the given truth values at once. The result of a
/// comparison changes only at its literal, so it is enough to try the values around every literal.
/// Above [`TRIALS_MAX`] combinations the function returns true, so that no trace is refused without
/// proof.
pub(crate) fn satisfiable(conditions: &[(&Condition, bool)]) -> bool {
    let mut fields: Vec<(&str, BTreeSet<u32>)> = Vec::new();
    for (condition, _) in conditions {
        condition.visit(&mut |field, literal| {
            let values = match fields.iter_mut().find(|(name, _)| *name == field) {
                Some((_, values)) => values,
                None => {
                    fields.push((field, BTreeSet::from([0, 1])));
                    &mut fields.last_mut().expect("just pushed").1
                }
            };
            let around = literal.map(|at| [at, at.saturating_sub(1), at.saturating_add(1)]);
            values.extend(around.into_iter().flatten());
        });
    }
    let fields: Vec<(&str, Vec<u32>)> =
        fields.into_iter().map(|(name, values)| (name, values.into_iter().collect())).collect();
    let trials = fields.iter().try_fold(1_usize, |product, (_, values)| {
        product.checked_mul(values.len()).filter(|product| *product <= TRIALS_MAX)
    });
    let Some(trials) = trials else { return true };
    (0..trials).any(|trial| {
        let mut read = |field: &str| {
            let mut rest = trial;
            for (name, values) in &fields {
                if *name == field {
                    return values[rest % values.len()];
                }
                rest /= values.len();
            }
            0
        };
        conditions.iter().all(|(condition, truth)| condition.holds(&mut read) == *truth)
    })
}

/// The maximum number of levels of logic in a condition. Each level takes a unit of the encoding,
/// so a catalog refuses a condition this deep. A condition in the text form stays below this limit,
/// because it nests at most 31 deep and has at most 31 tests.
const DEPTH_KEPT: usize = 64;
/// The limit of units in a condition. If two conditions together reach it, the larger one alone is
/// too long for a catalog. A condition in the text form stays below this limit.
const UNITS_KEPT: usize = 64 * CONDITION_UNITS_MAX;
const _: () = assert!(DEPTH_KEPT > 2 * CONDITION_UNITS_MAX);

/// The maximum number of combinations of field values that are tried. With this limit, checking a
/// trace of the largest size takes less than a second.
const TRIALS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_too_large_grows_no_further() {
        let flag = || Condition::flag("a");
        let chain = |step: fn(Condition) -> Condition| (0..1_000).fold(flag(), |all, _| step(all));
        let grown = [
            chain(Condition::not),
            chain(|all| all.and(Condition::flag("b"))),
            chain(|all| Condition::flag("b").or(all)),
            chain(|all| all.clone().and(all)),
        ];
        for one in grown {
            assert!(one.depth() <= DEPTH_KEPT && condition_units(&one) <= UNITS_KEPT);
            assert!(condition_units(&one) > CONDITION_UNITS_MAX);
        }
        // The condition is as deep and as long as the text form can express: 31 times `not` stand
        // in front of each test.
        let test = || (0..CONDITION_UNITS_MAX).fold(flag(), |all, _| all.not());
        let long = (1..CONDITION_UNITS_MAX).fold(test(), |all, _| all.and(test()));
        assert_eq!(condition_units(&long), 31 * 32 + 30, "nothing of it is lost");
    }

    #[test]
    fn contradictions_are_found() {
        let a = Condition::flag("a");
        let server = Condition::number("status", Comparison::AtLeast, 500);
        let client = Condition::number("status", Comparison::Below, 400);
        assert!(satisfiable(&[(&a, true), (&server, true)]));
        assert!(!satisfiable(&[(&a, true), (&a, false)]));
        assert!(!satisfiable(&[(&server, true), (&client, true)]));
        assert!(satisfiable(&[(&server, false), (&client, false)]));
        assert!(!satisfiable(&[(&a.clone().and(a.clone().not()), true)]));
        assert!(!satisfiable(&[(&a.clone().or(a.not()), false)]));
        let never = Condition::number("status", Comparison::Above, u32::MAX);
        assert!(!satisfiable(&[(&never, true)]));
    }

    #[test]
    fn brackets_are_printed_where_they_matter() {
        let [a, b, c] = ["a", "b", "c"].map(Condition::flag);
        let text = |condition: Condition| condition.to_string();
        assert_eq!(text(a.clone().or(b.clone()).and(c.clone())), "(a or b) and c");
        assert_eq!(text(a.clone().or(b.clone().and(c.clone()))), "a or b and c");
        assert_eq!(text(a.clone().and(b.clone().and(c.clone()))), "a and (b and c)");
        assert_eq!(text(a.clone().and(b.clone()).and(c.clone())), "a and b and c");
        assert_eq!(text(a.and(b).not().not().or(c)), "not not (a and b) or c");
    }
}
