//! The jobs that wait in the runtime for a device. Tenants share a device fairly by the bytes that were
//! served, and within a tenant the earliest deadline is first. This module also counts the jobs that each
//! tenant has inside devices. It does not place jobs and does not read the clock.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use device::{Job, TenantId};

use crate::entry::Ticket;

/// The limits on each tenant's jobs and on waiting jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most jobs of one tenant inside devices, at least one. If the limit is too low, a single tenant
    /// cannot use a device fully. If it is too high, one tenant can occupy a whole device. Sync jobs count
    /// but are never delayed, because a thread has at most one sync job.
    pub tenant_jobs_max: usize,
    /// The most jobs that wait for a device, for all tenants together. With zero, a job for which a device has no space
    /// runs in software at once. A policy lets a job wait if it chooses a full device.
    pub waiting_max: usize,
}

impl Limits {
    /// The values that disable the limits: no job waits, and no tenant is limited.
    pub const NONE: Limits = Limits { tenant_jobs_max: usize::MAX, waiting_max: 0 };
}

/// The state of tenants and waiting jobs while limits are set.
pub(crate) struct AdmissionQueue {
    limits: Limits,
    /// The number of jobs in flight on devices, by tenant.
    in_flight: Vec<u32>,
    /// The waiting jobs, by device.
    queues: Vec<Queue>,
    waiting: usize,
    submitted: u64,
}

impl AdmissionQueue {
    pub(crate) fn new(limits: Limits, devices: usize) -> Self {
        let queues = (0..devices).map(|_| Queue::default()).collect();
        Self { limits, in_flight: Vec::new(), queues, waiting: 0, submitted: 0 }
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Counts a job of the tenant that enters a device.
    pub(crate) fn enter(&mut self, tenant: TenantId) {
        let index = usize::from(tenant.0);
        if self.in_flight.len() <= index {
            self.in_flight.resize(index + 1, 0);
        }
        self.in_flight[index] += 1;
    }

    /// Removes a job of the tenant from the count, because it left its device or timed out.
    pub(crate) fn leave(&mut self, tenant: TenantId) {
        // Jobs that were inside before the first limits were set are not counted.
        if let Some(in_flight) = self.in_flight.get_mut(usize::from(tenant.0)) {
            *in_flight = in_flight.saturating_sub(1);
        }
    }

    /// Returns whether the tenant has as many jobs in flight on devices as it may have.
    pub(crate) fn is_at_cap(&self, tenant: TenantId) -> bool {
        let in_flight = self.in_flight.get(usize::from(tenant.0)).copied().unwrap_or(0);
        in_flight as usize >= self.limits.tenant_jobs_max
    }

    /// Returns whether a new job for the device would overtake waiting jobs.
    pub(crate) fn has_waiting(&self, device: usize) -> bool {
        !self.queues[device].tenants.is_empty()
    }

    /// Returns the number of jobs that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Lets the job wait for the device. Returns the job if no more jobs may wait.
    pub(crate) fn push(&mut self, device: usize, job: Box<Job>) -> Result<(), Box<Job>> {
        if self.waiting >= self.limits.waiting_max {
            return Err(job);
        }
        self.waiting += 1;
        self.submitted += 1;
        self.queues[device].push(Waiter { order: self.submitted, job });
        Ok(())
    }

    /// Removes and returns the next job for the device. Skips tenants that have reached their limit.
    pub(crate) fn pop(&mut self, device: usize) -> Option<Box<Job>> {
        let mut queue = std::mem::take(&mut self.queues[device]);
        let job = queue.pop(|tenant| !self.is_at_cap(tenant));
        self.queues[device] = queue;
        self.waiting -= usize::from(job.is_some());
        job
    }

    /// Removes and returns the job with this ticket, regardless of its position in the queue.
    pub(crate) fn remove(&mut self, device: usize, ticket: Ticket) -> Option<Box<Job>> {
        let job = self.queues[device].remove(ticket.mark());
        self.waiting -= usize::from(job.is_some());
        job
    }
}

/// The jobs that wait for one device.
#[derive(Default)]
struct Queue {
    /// The tenants that have a waiting job. There are never more tenants here than waiting jobs.
    tenants: Vec<Tenant>,
    /// The `served_bytes` of the last served tenant, before that service. It was the least of the eligible
    /// tenants. A tenant that joins the queue starts with this value, and so gets no credit for its absence.
    served_bytes: u64,
}

struct Tenant {
    id: TenantId,
    /// The bytes of work served for the tenant, plus the start value that it got when it joined the queue.
    served_bytes: u64,
    jobs: BinaryHeap<Waiter>,
}

impl Queue {
    fn push(&mut self, waiter: Waiter) {
        let id = waiter.job.tenant;
        if let Some(tenant) = self.tenants.iter_mut().find(|tenant| tenant.id == id) {
            return tenant.jobs.push(waiter);
        }
        let served_bytes = self.served_bytes;
        self.tenants.push(Tenant { id, served_bytes, jobs: BinaryHeap::from([waiter]) });
    }

    fn pop(&mut self, may: impl Fn(TenantId) -> bool) -> Option<Box<Job>> {
        let tenants = self.tenants.iter().enumerate().filter(|(_, tenant)| may(tenant.id));
        let (index, _) = tenants.min_by_key(|(_, tenant)| tenant.served_bytes)?;
        let tenant = &mut self.tenants[index];
        let job = tenant.jobs.pop()?.job;
        self.served_bytes = tenant.served_bytes;
        tenant.served_bytes += job.work_bytes().max(1) as u64;
        if tenant.jobs.is_empty() {
            self.tenants.remove(index);
        }
        Some(job)
    }

    fn remove(&mut self, mark: u64) -> Option<Box<Job>> {
        for index in 0..self.tenants.len() {
            let jobs = &mut self.tenants[index].jobs;
            if !jobs.iter().any(|waiter| waiter.job.tag == mark) {
                continue;
            }
            let (mut found, rest): (Vec<_>, Vec<_>) =
                std::mem::take(jobs).into_iter().partition(|waiter| waiter.job.tag == mark);
            *jobs = rest.into();
            if jobs.is_empty() {
                self.tenants.remove(index);
            }
            return found.pop().map(|waiter| waiter.job);
        }
        None
    }
}

/// A waiting job. The greatest waiter is served next: the job with the earliest deadline, and among jobs with
/// equal deadlines the job that has waited longest.
struct Waiter {
    order: u64,
    job: Box<Job>,
}

impl Waiter {
    fn key(&self) -> (u64, u64) {
        (self.job.deadline.map_or(u64::MAX, |deadline| deadline.0), self.order)
    }
}

impl Ord for Waiter {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Waiter {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiter {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Waiter {}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use device::{Input, Pool, Task};
    use units::{ByteCount, Nanos};

    use super::*;

    fn job(tag: u64, tenant: u16, bytes: usize, deadline: Option<u64>) -> Box<Job> {
        let output = Pool::heap(ByteCount(0)).take(bytes);
        let mut job = Job::new(Task::Copy, Input::heap(Bytes::from(vec![0; bytes])), output);
        (job.tag, job.tenant, job.deadline) = (tag, TenantId(tenant), deadline.map(Nanos));
        Box::new(job)
    }

    fn admission(tenant_jobs_max: usize, waiting_max: usize) -> AdmissionQueue {
        AdmissionQueue::new(Limits { tenant_jobs_max, waiting_max }, 2)
    }

    fn tags(admission: &mut AdmissionQueue) -> Vec<u64> {
        std::iter::from_fn(|| admission.pop(1)).map(|job| job.tag).collect()
    }

    #[test]
    fn within_a_tenant_the_earliest_deadline_is_first() {
        let mut admission = admission(9, 9);
        for (tag, deadline) in [(1, None), (2, Some(50)), (3, Some(20)), (4, None), (5, Some(50))] {
            assert!(admission.push(1, job(tag, 0, 1, deadline)).is_ok());
        }
        assert_eq!(tags(&mut admission), [3, 2, 5, 1, 4]);
        assert_eq!(admission.waiting(), 0);
    }

    #[test]
    fn tenants_are_served_the_same_bytes() {
        let mut admission = admission(99, 99);
        for tag in 0..20 {
            assert!(admission.push(1, job(tag, 1, 400, None)).is_ok());
        }
        for tag in 100..140 {
            assert!(admission.push(1, job(tag, 2, 100, None)).is_ok());
        }
        let first: Vec<u64> = (0..25).filter_map(|_| admission.pop(1)).map(|job| job.tag).collect();
        assert_eq!(first.iter().filter(|tag| **tag < 100).count(), 5, "{first:?}");
    }

    #[test]
    fn absence_gives_a_tenant_no_credit() {
        let mut admission = admission(99, 99);
        for tag in 0..10 {
            assert!(admission.push(1, job(tag, 1, 100, None)).is_ok());
        }
        for _ in 0..6 {
            admission.pop(1);
        }
        for tag in 100..110 {
            assert!(admission.push(1, job(tag, 2, 100, None)).is_ok());
        }
        let first: Vec<u64> = (0..6).filter_map(|_| admission.pop(1)).map(|job| job.tag).collect();
        assert!(first.iter().filter(|tag| **tag >= 100).count() <= 4, "{first:?}");
    }

    #[test]
    fn a_tenant_at_its_cap_is_passed_by() {
        let mut admission = admission(1, 9);
        for (tag, tenant) in [(1, 1), (2, 1), (3, 2)] {
            assert!(admission.push(1, job(tag, tenant, 1, None)).is_ok());
        }
        admission.enter(TenantId(1));
        assert_eq!(tags(&mut admission), [3]);
        admission.leave(TenantId(1));
        assert_eq!(tags(&mut admission), [1, 2]);
    }

    #[test]
    fn no_more_jobs_wait_than_may() {
        let mut admission = admission(9, 2);
        let marks = [Ticket::new(1, 7), Ticket::new(2, 7)];
        for mark in marks {
            assert!(admission.push(1, job(mark.mark(), 0, 1, None)).is_ok());
        }
        assert_eq!(admission.push(1, job(3, 0, 1, None)).map_err(|job| job.tag), Err(3));
        assert_eq!(admission.remove(1, marks[0]).map(|job| job.tag), Some(marks[0].mark()));
        assert!(admission.remove(1, marks[0]).is_none());
        assert!(admission.push(1, job(3, 0, 1, None)).is_ok());
        assert!(!admission.has_waiting(0));
        assert!(admission.has_waiting(1));
    }
}
