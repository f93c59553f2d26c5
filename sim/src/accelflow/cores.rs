//! The cores: interrupts and other visits first, then application work, each in order of arrival; nothing that runs is
//! interrupted.

use std::collections::VecDeque;

use super::ids::TokenId;
use crate::Picos;

/// The work that a core does for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The application's own work.
    Segment,
    /// It decides what follows an accelerator.
    Visit,
    /// An op that found no place at its accelerator.
    Fallback,
    /// A page fault. No token waits for the core here.
    System,
}

/// Work for a core.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreJob {
    pub(super) token: TokenId,
    pub(super) what: What,
    pub(super) time: Picos,
}

#[derive(Clone, Debug)]
pub(super) struct Cores {
    idle: u32,
    urgent: VecDeque<CoreJob>,
    waiting: VecDeque<CoreJob>,
}

impl Cores {
    pub(super) fn new(cores: u32) -> Self {
        Self { idle: cores, urgent: VecDeque::new(), waiting: VecDeque::new() }
    }

    /// Returns whether a core begins with it now.
    #[inline]
    pub(super) fn offer(&mut self, job: CoreJob) -> bool {
        if self.idle > 0 {
            self.idle -= 1;
            return true;
        }
        match job.what {
            What::Visit | What::System => self.urgent.push_back(job),
            What::Segment | What::Fallback => self.waiting.push_back(job),
        }
        false
    }

    /// A core is done: what it begins next.
    #[inline]
    pub(super) fn release(&mut self) -> Option<CoreJob> {
        let next = self.urgent.pop_front().or_else(|| self.waiting.pop_front());
        self.idle += u32::from(next.is_none());
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_go_before_application_work() {
        let mut cores = Cores::new(1);
        let job = |token, what| CoreJob { token: TokenId(token), what, time: Picos(1) };
        assert!(cores.offer(job(0, What::Segment)));
        for (token, what) in
            [(1, What::Segment), (2, What::Visit), (3, What::Fallback), (4, What::System)]
        {
            assert!(!cores.offer(job(token, what)));
        }
        let order: Vec<u32> =
            std::iter::from_fn(|| cores.release().map(|next| next.token.0)).collect();
        assert_eq!(order, [2, 4, 1, 3]);
        assert!(cores.offer(job(5, What::Segment)), "the core is idle again");
    }
}
