//! Conditions of branches: logic on flags and comparisons of numbers, without arithmetic and loops. The module also
//! tells whether one can hold if others are known to hold.

use std::collections::BTreeSet;
use std::fmt;

use crate::encode::condition_units;
use crate::limits::CONDITION_UNITS_MAX;

/// The question of a branch to the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The flag is set.
    Flag(String),
    /// The number compares so with the literal.
    Number(String, Comparison, u32),
    /// The other does not hold.
    Not(Box<Condition>),
    /// Both hold.
    And(Box<Condition>, Box<Condition>),
    /// One holds or both.
    Or(Box<Condition>, Box<Condition>),
}

/// The way in which a number is compared with a literal.
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
    /// Every comparison, in the order of its code.
    pub const ALL: [Comparison; 6] = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Below,
        Comparison::AtMost,
        Comparison::Above,
        Comparison::AtLeast,
    ];

    /// Returns the symbol of the text form.
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

    /// Returns whether `value` compares so with `literal`.
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

    /// Returns the condition that the number `field` compares so with `literal`.
    pub fn number(field: impl Into<String>, comparison: Comparison, literal: u32) -> Condition {
        Condition::Number(field.into(), comparison, literal)
    }

    /// Returns the condition that both hold.
    ///
    /// A condition that has far more units or levels than a catalog takes grows no further: the larger part stands for
    /// the whole, which is refused all the same. So building can neither fill the memory nor go deeper than a stack.
    #[must_use]
    pub fn and(self, other: Condition) -> Condition {
        match self.too_large(&other) {
            Some(larger) => larger,
            None => Condition::And(Box::new(self), Box::new(other)),
        }
    }

    /// Returns the condition that one holds or both. It is bounded as [`Condition::and`] is.
    #[must_use]
    pub fn or(self, other: Condition) -> Condition {
        match self.too_large(&other) {
            Some(larger) => larger,
            None => Condition::Or(Box::new(self), Box::new(other)),
        }
    }

    /// Returns the condition that this does not hold. It is bounded as [`Condition::and`] is.
    #[must_use]
    #[allow(clippy::should_implement_trait)]
    pub fn not(self) -> Condition {
        if self.depth() >= DEPTH_KEPT { self } else { Condition::Not(Box::new(self)) }
    }

    /// Returns the deeper of two that are too deep together, or the longer of two that are too long.
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

    /// Returns whether it holds if a field has the value that `read` gives. A flag is set when that is not zero.
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

    /// Calls `visit` for every test of a field: its name, and the literal if it is compared.
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

    /// Returns the levels of logic. A test alone has one.
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

/// Returns the rank: the higher, the tighter it binds, from `or`, `and`, `not` to a test.
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
            // A chain leans to the left; the right side keeps its brackets.
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

/// Returns whether all of these can hold at once. A comparison changes only at its literal, so trying the values around
/// every literal decides it. Above [`TRIALS_MAX`] combinations the answer is yes, which refuses nothing.
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

/// The levels of logic that are built. Each takes a unit, so a condition this deep is too long. The text form nests 31
/// deep and has 31 tests, and stays below.
const DEPTH_KEPT: usize = 64;
/// The units that are built. The larger half of this number is too long. The text form stays below.
const UNITS_KEPT: usize = 64 * CONDITION_UNITS_MAX;
const _: () = assert!(DEPTH_KEPT > 2 * CONDITION_UNITS_MAX);

/// The most combinations that are tried: a check of a trace of the largest size stays under a second.
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
        // The condition is as deep and as long as the text form can be: each test stands behind 31 times `not`.
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
