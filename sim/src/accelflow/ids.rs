//! The numbers with which the model identifies accelerators, PEs, places in the machine and tokens.

use std::ops::{Index, IndexMut};

use units::Op;

/// The ops that have an accelerator, in the order of the accelerators' numbers.
pub(super) const KINDS: [Op; 9] = [
    Op::Tcp,
    Op::Encrypt,
    Op::Decrypt,
    Op::Rpc,
    Op::Serialize,
    Op::Deserialize,
    Op::Compress,
    Op::Decompress,
    Op::LoadBalance,
];

/// The number of an accelerator among [`KINDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind(u8);

/// A value for each accelerator.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ByKind<T>([T; KINDS.len()]);

/// A place where payloads can be: an accelerator, or the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site(u8);

/// The number of a PE among the PEs of its accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeId(pub(super) u8);

/// A PE of an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) kind: Kind,
    pub(super) pe: PeId,
}

/// The number of a request or of a part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenId(pub(super) u32);

impl Kind {
    /// The accelerator at which requests arrive.
    pub(super) const TCP: Self = Self(0);

    /// Returns the accelerator of an op, or none if the op has no accelerator.
    pub(super) fn from_op(op: Op) -> Option<Self> {
        Self::all().find(|kind| kind.op() == op)
    }

    pub(super) fn op(self) -> Op {
        KINDS[self.index()]
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..KINDS.len() as u8).map(Self)
    }

    #[inline(always)]
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl<T> ByKind<T> {
    pub(super) fn from_fn(value: impl Fn(Kind) -> T) -> Self {
        Self(std::array::from_fn(|index| value(Kind(index as u8))))
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.0.iter_mut()
    }
}

impl<T> Index<Kind> for ByKind<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, kind: Kind) -> &T {
        &self.0[kind.index()]
    }
}

impl<T> IndexMut<Kind> for ByKind<T> {
    #[inline(always)]
    fn index_mut(&mut self, kind: Kind) -> &mut T {
        &mut self.0[kind.index()]
    }
}

impl Site {
    /// The cores, whose number comes after those of the accelerators.
    pub(super) const CORES: Self = Self(KINDS.len() as u8);
    /// The number of places.
    pub(super) const COUNT: usize = KINDS.len() + 1;

    /// Returns the accelerator at this place, or none for the cores.
    #[inline(always)]
    pub(super) fn accelerator(self) -> Option<Kind> {
        (self != Self::CORES).then_some(Kind(self.0))
    }

    #[inline(always)]
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl From<Kind> for Site {
    #[inline(always)]
    fn from(kind: Kind) -> Self {
        Self(kind.0)
    }
}

impl PeId {
    #[inline(always)]
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl TokenId {
    /// No token. It marks an idle PE, work that no token waits for, and the parent of a whole request.
    pub(super) const NONE: Self = Self(u32::MAX);

    #[inline(always)]
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}
