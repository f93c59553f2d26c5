//! The parameters of \[Accelerometer\] table 5: symbols, plain values and checked values. The equations accept only
//! checked values.

use std::fmt;

/// The error for a parameter outside its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} is {value}; it must be {valid}")]
pub struct BadParameter {
    /// The field: a symbol of the model, or the name of its spread or distribution.
    pub field: &'static str,
    /// The wrong value as text.
    pub value: String,
    /// The values that are valid.
    pub valid: &'static str,
}

impl BadParameter {
    pub(crate) fn new(field: &'static str, value: impl fmt::Display, valid: &'static str) -> Self {
        Self { field, value: value.to_string(), valid }
    }
}

/// A parameter of the model, named by the paper's letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Symbol {
    /// The host cycles of all logic in the time unit.
    C,
    /// The fraction of the host cycles (C) that the kernel takes.
    Alpha,
    /// The number of offloads in the time unit.
    N,
    /// The cycles to set up one offload.
    O0,
    /// The mean cycles that an offload queues.
    Q,
    /// The mean cycles to move one offload across the interface.
    L,
    /// The cycles of one thread switch.
    O1,
    /// The peak speedup of the accelerator.
    A,
    /// The factor C_b of the kernel's host cycles, which are `C_b g^β` for g bytes. The exponent β is the complexity of
    /// the kernel.
    Cb,
}

impl Symbol {
    /// Every symbol, in the order of its index.
    pub const ALL: [Symbol; 9] = [
        Symbol::C,
        Symbol::Alpha,
        Symbol::N,
        Symbol::O0,
        Symbol::Q,
        Symbol::L,
        Symbol::O1,
        Symbol::A,
        Symbol::Cb,
    ];

    /// Returns the position in [`Symbol::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the name that files, reports and errors use.
    pub const fn name(self) -> &'static str {
        match self {
            Symbol::C => "C",
            Symbol::Alpha => "alpha",
            Symbol::N => "n",
            Symbol::O0 => "o0",
            Symbol::Q => "Q",
            Symbol::L => "L",
            Symbol::O1 => "o1",
            Symbol::A => "A",
            Symbol::Cb => "Cb",
        }
    }

    /// Returns the unit as text for a person.
    pub const fn unit(self) -> &'static str {
        match self {
            Symbol::C | Symbol::O0 | Symbol::Q | Symbol::L | Symbol::O1 => "cycles",
            Symbol::Alpha => "of C",
            Symbol::N => "offloads",
            Symbol::A => "times",
            Symbol::Cb => "cycles per byte",
        }
    }

    /// Returns the valid range as text for a person.
    pub const fn valid(self) -> &'static str {
        match self {
            Symbol::C => "a number above 0 (cycles)",
            Symbol::Alpha => "a number from 0 to 1",
            Symbol::N => "a number of at least 0",
            Symbol::O0 | Symbol::Q | Symbol::L | Symbol::O1 => "a number of at least 0 (cycles)",
            Symbol::A => "a number of at least 1, or inf",
            Symbol::Cb => "a number above 0 (cycles per byte)",
        }
    }

    /// Returns the lowest and the highest valid value. A lowest value of `MIN_POSITIVE` means "above 0".
    pub(crate) const fn range(self) -> (f64, f64) {
        match self {
            Symbol::C | Symbol::Cb => (f64::MIN_POSITIVE, f64::MAX),
            Symbol::Alpha => (0.0, 1.0),
            Symbol::N | Symbol::O0 | Symbol::Q | Symbol::L | Symbol::O1 => (0.0, f64::MAX),
            Symbol::A => (1.0, f64::INFINITY),
        }
    }

    /// Refuses a value outside the symbol's range, and a value that is not a number.
    pub fn check(self, value: f64) -> Result<(), BadParameter> {
        let (low, high) = self.range();
        let valid = value >= low && value <= high;
        if valid { Ok(()) } else { Err(BadParameter::new(self.name(), value, self.valid())) }
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The unchecked values of one case. The fields are the symbols of \[Accelerometer\] table 5.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Values {
    /// C: the host cycles of all logic in the time unit.
    pub c: f64,
    /// α: the fraction of the host cycles (C) that the kernel takes.
    pub alpha: f64,
    /// n: the number of offloads in the time unit.
    pub n: f64,
    /// o0: the host cycles to set up one offload.
    pub o0: f64,
    /// Q: the mean cycles that an offload queues between host and accelerator.
    pub q: f64,
    /// L: the mean cycles to move one offload across the interface.
    pub l: f64,
    /// o1: the cycles of one thread switch, with the cost of cache pollution.
    pub o1: f64,
    /// A: the peak speedup of the accelerator. It is infinite if the accelerator's time does not count.
    pub a: f64,
}

impl Values {
    /// Returns the value of a symbol. Returns none for the kernel's cycles per byte (C_b), which are not a field.
    pub fn get(&self, symbol: Symbol) -> Option<f64> {
        match symbol {
            Symbol::C => Some(self.c),
            Symbol::Alpha => Some(self.alpha),
            Symbol::N => Some(self.n),
            Symbol::O0 => Some(self.o0),
            Symbol::Q => Some(self.q),
            Symbol::L => Some(self.l),
            Symbol::O1 => Some(self.o1),
            Symbol::A => Some(self.a),
            Symbol::Cb => None,
        }
    }
}

/// Checked values, as the equations need them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters(Values);

impl Parameters {
    /// Checks every field.
    pub fn new(values: Values) -> Result<Self, BadParameter> {
        for symbol in Symbol::ALL {
            values.get(symbol).map_or(Ok(()), |value| symbol.check(value))?;
        }
        Ok(Self(values))
    }

    /// Returns the values.
    pub const fn values(&self) -> &Values {
        &self.0
    }

    /// Returns the overhead of one offload without thread switches (cycles). It is o0 + L + Q: setup, transfer and
    /// queueing.
    pub(crate) fn offload_cycles(&self) -> f64 {
        self.0.o0 + self.0.l + self.0.q
    }

    /// Returns the parameters without the cycles of transfer and queueing (L + Q = 0), for a host that does not wait
    /// for the transfer.
    pub(crate) fn without_transfer(&self) -> Self {
        Self(Values { l: 0.0, q: 0.0, ..self.0 })
    }

    /// Returns the parameters for only `n` of the offloads, which take the fraction `alpha` of the host cycles. Neither
    /// number is checked, because they are at most the checked ones.
    pub(crate) fn with_selected(&self, n: f64, alpha: f64) -> Self {
        Self(Values { n, alpha, ..self.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Values = Values {
        c: 2e9,
        alpha: 0.15,
        n: 15_008.0,
        o0: 0.0,
        q: 0.0,
        l: 2_300.0,
        o1: 5_750.0,
        a: 27.0,
    };

    #[test]
    fn errors_name_field_value_and_range() {
        let bad = [
            (Values { c: 0.0, ..GOOD }, "C is 0; it must be a number above 0 (cycles)"),
            (Values { c: f64::INFINITY, ..GOOD }, "C is inf; "),
            (Values { alpha: 1.1, ..GOOD }, "alpha is 1.1; it must be a number from 0 to 1"),
            (Values { alpha: -0.1, ..GOOD }, "alpha is -0.1; "),
            (Values { alpha: f64::NAN, ..GOOD }, "alpha is NaN; it must be a number from 0 to 1"),
            (Values { n: -1.0, ..GOOD }, "n is -1; it must be a number of at least 0"),
            (Values { o0: f64::NAN, ..GOOD }, "o0 is NaN; "),
            (Values { q: -2.0, ..GOOD }, "Q is -2; it must be a number of at least 0 (cycles)"),
            (Values { l: f64::INFINITY, ..GOOD }, "L is inf; "),
            (Values { o1: -0.5, ..GOOD }, "o1 is -0.5; "),
            (Values { a: 0.9, ..GOOD }, "A is 0.9; it must be a number of at least 1, or inf"),
        ];
        for (values, text) in bad {
            let error = Parameters::new(values).expect_err(text).to_string();
            assert!(error.starts_with(text), "{error:?}");
        }
        assert!(Parameters::new(GOOD).is_ok());
        assert!(Parameters::new(Values { a: f64::INFINITY, alpha: 1.0, ..GOOD }).is_ok());
    }

    #[test]
    fn index_is_the_position_in_all() {
        for (index, symbol) in Symbol::ALL.into_iter().enumerate() {
            assert_eq!(symbol.index(), index);
        }
    }
}
