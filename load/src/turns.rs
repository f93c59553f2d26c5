//! Selects connections in turn and skips those without capacity. The module does not depend on the kind of
//! the connections.

/// The turns of a thread's connections.
pub(crate) struct Turns {
    next: usize,
    /// False if no connection has capacity. Then no connection needs to be checked.
    has_capacity: bool,
}

impl Turns {
    /// Creates turns that begin with the first connection, which may have capacity.
    pub(crate) fn new() -> Self {
        Self { next: 0, has_capacity: true }
    }

    /// Returns the index of the next of `count` connections that has capacity.
    pub(crate) fn take(
        &mut self,
        count: usize,
        has_capacity: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        if !self.has_capacity {
            return None;
        }
        let found =
            (0..count).map(|step| (self.next + step) % count).find(|&index| has_capacity(index));
        match found {
            Some(index) => self.next = (index + 1) % count,
            None => self.has_capacity = false,
        }
        found
    }

    /// Records that a connection may have capacity again.
    pub(crate) fn open(&mut self) {
        self.has_capacity = true;
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    #[test]
    fn turns_go_round_past_those_without_room() {
        let mut turns = Turns::new();
        let taken: Vec<_> = (0..4).map(|_| turns.take(3, |index| index != 1)).collect();
        assert_eq!(taken, [Some(0), Some(2), Some(0), Some(2)]);
    }

    #[test]
    fn nobody_is_looked_at_until_one_has_room_again() {
        let mut turns = Turns::new();
        assert_eq!(turns.take(2, |_| false), None);
        assert_eq!(turns.take(2, |_| unreachable!("looked at")), None);
        turns.open();
        assert_eq!(turns.take(2, |_| true), Some(0));
        assert_eq!(turns.take(0, |_| true), None);
    }
}
