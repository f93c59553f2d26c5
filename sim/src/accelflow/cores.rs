//! The cores. A free core takes interrupts and other visits first and application work second, each in order of
//! arrival. Work that has begun is not interrupted. Either any core takes the work of any request, or each request
//! belongs to one core, which does all of the request's work and takes its interrupts.

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

/// A job that waits, with the time since which it waits.
type Held = (CoreJob, Picos);

/// The cores that share their lists of waiting jobs.
#[derive(Clone, Debug)]
struct Group {
    idle: u32,
    urgent: VecDeque<Held>,
    waiting: VecDeque<Held>,
}

#[derive(Clone, Debug)]
pub(super) struct Cores {
    groups: Vec<Group>,
}

impl Cores {
    /// Makes idle cores. They share their work, or each of them has its own requests.
    pub(super) fn new(cores: u32, are_shared: bool) -> Self {
        let (groups, idle) = if are_shared { (1, cores) } else { (cores, 1) };
        let group = Group { idle, urgent: VecDeque::new(), waiting: VecDeque::new() };
        Self { groups: vec![group; groups as usize] }
    }

    /// Returns the core to which a request with this key belongs, as a network card spreads connections by a hash.
    pub(super) fn of_key(&self, key: u64) -> u16 {
        // Tenants are chosen by the lower bits.
        ((key >> 32) % self.groups.len() as u64) as u16
    }

    /// Returns whether the core begins the job now. Otherwise the job waits.
    #[inline]
    pub(super) fn offer(&mut self, core: u16, job: CoreJob, now: Picos) -> bool {
        let group = &mut self.groups[usize::from(core)];
        if group.idle > 0 {
            group.idle -= 1;
            return true;
        }
        match job.what {
            What::Visit | What::System => group.urgent.push_back((job, now)),
            What::Segment | What::Fallback => group.waiting.push_back((job, now)),
        }
        false
    }

    /// Frees the core and returns the job that it begins next, with the time for which the job has waited.
    #[inline]
    pub(super) fn release(&mut self, core: u16, now: Picos) -> Option<(CoreJob, Picos)> {
        let group = &mut self.groups[usize::from(core)];
        let next = group.urgent.pop_front().or_else(|| group.waiting.pop_front());
        group.idle += u32::from(next.is_none());
        next.map(|(job, since)| (job, now.since(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(token: u32, what: What) -> CoreJob {
        CoreJob { token: TokenId(token), what, time: Picos(1) }
    }

    #[test]
    fn visits_go_before_application_work() {
        let mut cores = Cores::new(1, true);
        assert!(cores.offer(0, job(0, What::Segment), Picos(0)));
        for (token, what) in
            [(1, What::Segment), (2, What::Visit), (3, What::Fallback), (4, What::System)]
        {
            assert!(!cores.offer(0, job(token, what), Picos(u64::from(token))));
        }
        let released = std::iter::from_fn(|| cores.release(0, Picos(10)));
        let order: Vec<(u32, Picos)> =
            released.map(|(next, waited)| (next.token.0, waited)).collect();
        assert_eq!(order, [(2, Picos(8)), (4, Picos(6)), (1, Picos(9)), (3, Picos(7))]);
        assert!(cores.offer(0, job(5, What::Segment), Picos(10)), "the core is idle again");
    }

    #[test]
    fn a_request_waits_for_its_own_core_only() {
        let mut cores = Cores::new(2, false);
        assert!(cores.offer(0, job(0, What::Segment), Picos(0)));
        assert!(!cores.offer(0, job(1, What::Segment), Picos(0)), "the other core is idle");
        assert!(cores.offer(1, job(2, What::Segment), Picos(0)));
        assert_eq!(cores.release(1, Picos(5)).map(|(next, _)| next.token.0), None);
        assert_eq!(cores.release(0, Picos(5)).map(|(next, _)| next.token.0), Some(1));
        let keys = (0..1_000_u64).map(crate::streams::mix);
        let on_first = keys.filter(|key| cores.of_key(*key) == 0).count();
        assert!((450..550).contains(&on_first), "{on_first}");
        assert_eq!(Cores::new(36, true).of_key(u64::MAX), 0, "shared cores are one group");
    }
}
