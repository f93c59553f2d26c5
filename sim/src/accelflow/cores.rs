//! The cores. A free core takes interrupts and other visits first and application work second, each in order of
//! arrival. Work that has begun is not interrupted.

use std::collections::VecDeque;

use super::ids::TokenId;
use crate::Picos;

/// The work that a core does for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The application's own work.
    Segment,
    /// The core decides what follows an accelerator's op.
    Visit,
    /// An op that the accelerator refused because its queue was full.
    Fallback,
    /// A page fault. No token waits for this work.
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

    /// Returns whether a core begins the job now. Otherwise the job waits.
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

    /// Frees a core and returns the job that it begins next.
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
