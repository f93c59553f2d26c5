//! Gives each connection its turn, one after the other, and skips those without capacity. The module does not know what
//! a connection is or what a connection gets.

/// The turns of a thread's connections.
pub(crate) struct Turns {
    next: usize,
    /// False if no connection has capacity. Then no connection needs to be checked.
    room: bool,
}

impl Turns {
    /// Begins with the first connection, which may have capacity.
    pub(crate) fn new() -> Self {
        Self { next: 0, room: true }
    }

    /// Returns the index of the next of `count` connections that has capacity.
    pub(crate) fn take(&mut self, count: usize, has_room: impl Fn(usize) -> bool) -> Option<usize> {
        if !self.room {
            return None;
        }
        let found =
            (0..count).map(|step| (self.next + step) % count).find(|&index| has_room(index));
        match found {
            Some(index) => self.next = (index + 1) % count,
            None => self.room = false,
        }
        found
    }

    /// Records that a connection may have capacity again.
    pub(crate) fn open(&mut self) {
        self.room = true;
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
