//! A station with several servers and one queue. The station decides which jobs wait and which job is next. The caller
//! draws service times and schedules completions. Service is never interrupted.

use std::collections::VecDeque;

use crate::{FourAry, Picos};

/// A station whose servers take jobs of type `J` from one queue.
#[derive(Clone, Debug)]
pub struct Servers<J> {
    servers: u32,
    busy: u32,
    waiting: Waiting<J>,
    waiting_max: usize,
    counts: ServersCounts,
}

/// The result of offering a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// A server takes the job now. The caller schedules its completion.
    Started,
    /// The job waits. [`Servers::release`] returns it when its turn comes.
    Waiting,
    /// The job is refused because all servers are busy and the queue is full.
    Refused,
}

/// The counts of a station since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServersCounts {
    /// The number of jobs that arrived.
    pub offered: u64,
    /// The number of jobs that had to wait, including those that still wait.
    pub waited: u64,
    /// The number of jobs that were refused.
    pub refused: u64,
    /// The service time of all jobs that have begun, up to their ends (ps).
    pub service_ps: u128,
    /// The waiting time of the jobs whose service has begun (ps).
    pub wait_ps: u128,
}

#[derive(Clone, Debug)]
enum Waiting<J> {
    InOrder(VecDeque<Queued<J>>),
    /// The jobs by rank and then by arrival. The number is the sequence number of the next job.
    Ranked(FourAry<Queued<J>>, u64),
}

#[derive(Clone, Copy, Debug)]
struct Queued<J> {
    job: J,
    service: Picos,
    since: Picos,
}

impl<J: Copy> Servers<J> {
    /// Makes a station that serves in order of arrival and lets `waiting_max` jobs wait.
    pub fn in_order(servers: u32, waiting_max: usize) -> Self {
        Self::new(servers, waiting_max, Waiting::InOrder(VecDeque::new()))
    }

    /// Makes a station that serves the smallest rank first. A rank is a priority class or a deadline.
    pub fn ranked(servers: u32, waiting_max: usize) -> Self {
        Self::new(servers, waiting_max, Waiting::Ranked(FourAry::with_capacity(0), 0))
    }

    fn new(servers: u32, waiting_max: usize, waiting: Waiting<J>) -> Self {
        Self { servers, busy: 0, waiting, waiting_max, counts: ServersCounts::default() }
    }

    /// Offers a job with its service time at `now`. Only ranked stations use `rank`.
    #[inline]
    pub fn offer(&mut self, now: Picos, job: J, service: Picos, rank: u64) -> Offer {
        self.counts.offered += 1;
        if self.busy < self.servers {
            self.busy += 1;
            self.counts.service_ps += u128::from(service.0);
            return Offer::Started;
        }
        if self.waiting() >= self.waiting_max {
            self.counts.refused += 1;
            return Offer::Refused;
        }
        self.counts.waited += 1;
        let queued = Queued { job, service, since: now };
        match &mut self.waiting {
            Waiting::InOrder(queue) => queue.push_back(queued),
            Waiting::Ranked(queue, sequence) => {
                queue.push(u128::from(rank) << 64 | u128::from(*sequence), queued);
                *sequence += 1;
            }
        }
        Offer::Waiting
    }

    /// Completes a job at `now`. Returns the job that the server takes next, with its service time.
    #[inline]
    pub fn release(&mut self, now: Picos) -> Option<(J, Picos)> {
        debug_assert!(self.busy > 0, "a job ends that never began");
        let next = match &mut self.waiting {
            Waiting::InOrder(queue) => queue.pop_front(),
            Waiting::Ranked(queue, _) => queue.pop().map(|(_, queued)| queued),
        };
        let Some(Queued { job, service, since }) = next else {
            self.busy -= 1;
            return None;
        };
        self.counts.service_ps += u128::from(service.0);
        self.counts.wait_ps += u128::from(now.since(since).0);
        Some((job, service))
    }

    /// Returns the number of waiting jobs.
    pub fn waiting(&self) -> usize {
        match &self.waiting {
            Waiting::InOrder(queue) => queue.len(),
            Waiting::Ranked(queue, _) => queue.len(),
        }
    }

    /// Returns the number of busy servers.
    pub fn busy(&self) -> u32 {
        self.busy
    }

    /// Returns the station's counts.
    pub fn counts(&self) -> ServersCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: Picos = Picos(10);

    fn order(mut station: Servers<char>, jobs: &[(char, u64)]) -> String {
        assert_eq!(station.offer(Picos(0), '0', SERVICE, 0), Offer::Started);
        for (job, rank) in jobs {
            assert_eq!(station.offer(Picos(1), *job, SERVICE, *rank), Offer::Waiting);
        }
        std::iter::from_fn(|| station.release(Picos(10)).map(|next| next.0)).collect()
    }

    #[test]
    fn order_follows_arrival_or_rank_then_arrival() {
        let jobs = [('a', 3), ('b', 1), ('c', 1), ('d', 0)];
        assert_eq!(order(Servers::in_order(1, 9), &jobs), "abcd");
        assert_eq!(order(Servers::ranked(1, 9), &jobs), "dbca");
    }

    #[test]
    fn a_full_station_refuses_and_counts() {
        let mut station = Servers::in_order(2, 1);
        let offers = [0, 1, 2, 3].map(|job| station.offer(Picos(0), job, SERVICE, 0));
        assert_eq!(offers, [Offer::Started, Offer::Started, Offer::Waiting, Offer::Refused]);
        assert_eq!(station.release(Picos(7)), Some((2, SERVICE)));
        assert_eq!((station.release(Picos(10)), station.release(Picos(17))), (None, None));
        let counts = station.counts();
        assert_eq!((counts.offered, counts.waited, counts.refused), (4, 1, 1));
        assert_eq!((counts.service_ps, counts.wait_ps, station.busy()), (30, 7, 0));
    }
}
