//! The calls of one connection. They advance when the queue is polled. A job stays in the queue while its call runs,
//! so that a call can be dropped at any time without losing the job. Short jobs that are submitted between two polls
//! share a call. A single short job is sent at the next poll and does not wait for others.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use api::v1::compression_client::CompressionClient;
use api::v1::{RunManyResponse, RunResponse};
use api::wire::JOBS_BYTES_MAX;
use device::{Capabilities, Completion, DeviceError, Job, Outcome, Queue, Refused, RefusedReason};
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;
use slab::Slab;
use tonic::{Code, Status};
use units::Nanos;

use super::link::{ConnectionThread, Link};
use super::message::{self, Format};
use crate::asked;

/// One thread's queue of the service.
pub(super) struct RemoteQueue {
    capabilities: Arc<Capabilities>,
    format: Format,
    calls: FuturesUnordered<Abortable<Call>>,
    jobs: Slab<InFlight>,
    /// The short jobs for the next shared call.
    gathered: Vec<Place>,
    /// The most jobs in a shared call. It is one for a service that does not know shared calls.
    jobs_per_call: usize,
    /// The number of jobs submitted so far.
    submitted: u64,
    finished: Vec<Completion>,
    /// True if it was logged that the service refuses the login.
    has_logged_refusal: bool,
    waker: Waker,
    link: Link,
    _thread: Option<ConnectionThread>,
}

/// The key of a job in `jobs`, and its number. The number is needed because another job may use the same key later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    key: usize,
    number: u64,
}

type Call = Pin<Box<dyn Future<Output = Ended>>>;

/// The result of a call.
enum Ended {
    One(Place, Result<RunResponse, Status>),
    Many(Vec<Place>, Result<RunManyResponse, Status>),
}

struct InFlight {
    job: Box<Job>,
    number: u64,
    /// None while the job has no call of its own.
    call: Option<AbortHandle>,
}

impl RemoteQueue {
    pub(super) fn new(
        capabilities: Arc<Capabilities>,
        (format, jobs_per_call): (Format, usize),
        link: Link,
        thread: Option<ConnectionThread>,
        waker: Waker,
    ) -> Self {
        Self {
            capabilities,
            format,
            calls: FuturesUnordered::new(),
            jobs: Slab::new(),
            gathered: Vec::new(),
            jobs_per_call,
            submitted: 0,
            finished: Vec::new(),
            has_logged_refusal: false,
            waker,
            link,
            _thread: thread,
        }
    }

    /// Starts the call of one job.
    fn call(&mut self, place: Place) {
        let Some(in_flight) = self.jobs.get_mut(place.key) else { return };
        let request = self.format.request(&in_flight.job);
        let answer_bytes_max = self.format.answer_bytes_max(&in_flight.job);
        let origin = self.format.origin().clone();
        let wire = self.link.wire();
        let call: Call = Box::pin(async move {
            let wire = match wire.await {
                Ok(wire) => wire,
                Err(status) => return Ended::One(place, Err(status)),
            };
            let mut client = CompressionClient::with_origin(wire, origin)
                .max_decoding_message_size(answer_bytes_max);
            Ended::One(place, client.run(request).await.map(tonic::Response::into_inner))
        });
        let (handle, registration) = AbortHandle::new_pair();
        in_flight.call = Some(handle);
        self.calls.push(Abortable::new(call, registration));
    }

    /// Starts one call for several jobs in flight.
    fn call_for_many(&mut self, places: Vec<Place>) {
        let jobs = || places.iter().map(|place| &*self.jobs[place.key].job);
        let request = self.format.many(jobs());
        let answer_bytes_max = jobs().map(|job| self.format.answer_bytes_max(job)).sum();
        let origin = self.format.origin().clone();
        let wire = self.link.wire();
        let call: Call = Box::pin(async move {
            let wire = match wire.await {
                Ok(wire) => wire,
                Err(status) => return Ended::Many(places, Err(status)),
            };
            let mut client = CompressionClient::with_origin(wire, origin)
                .max_decoding_message_size(answer_bytes_max);
            Ended::Many(places, client.run_many(request).await.map(tonic::Response::into_inner))
        });
        let (_, registration) = AbortHandle::new_pair();
        self.calls.push(Abortable::new(call, registration));
    }

    /// Starts as few calls as possible for the gathered jobs.
    fn send_gathered(&mut self) {
        let mut places = std::mem::take(&mut self.gathered);
        // Some jobs may have been cancelled in the meantime.
        places.retain(|place| self.is_in_flight(*place));
        let mut batch: Vec<Place> = Vec::new();
        let (mut bytes, mut results) = (0, 0);
        for place in places.drain(..) {
            let job = &self.jobs[place.key].job;
            let (work_bytes, result) = (job.work_bytes(), self.format.results_bytes(job));
            // A short job may have much space for its result, and the service reserves all of it.
            let is_full = batch.len() >= self.jobs_per_call
                || bytes + work_bytes > CALL_WORK_BYTES_MAX
                || results + result > JOBS_BYTES_MAX;
            if is_full {
                self.send(std::mem::take(&mut batch));
                (bytes, results) = (0, 0);
            }
            bytes += work_bytes;
            results += result;
            batch.push(place);
        }
        self.send(batch);
        // The list is stored to reuse its capacity.
        self.gathered = places;
    }

    fn send(&mut self, batch: Vec<Place>) {
        match batch[..] {
            [] => {}
            [place] => self.call(place),
            _ => self.call_for_many(batch),
        }
    }

    fn is_in_flight(&self, place: Place) -> bool {
        self.jobs.get(place.key).is_some_and(|in_flight| in_flight.number == place.number)
    }

    /// Moves the jobs of completed calls to `finished`.
    fn advance(&mut self) {
        self.send_gathered();
        let waker = self.waker.clone();
        let mut task = Context::from_waker(&waker);
        while let Poll::Ready(Some(ended)) = self.calls.poll_next_unpin(&mut task) {
            match ended {
                // A dropped call has no answer, and its job has already left the queue.
                Err(_) => {}
                Ok(Ended::One(place, answer)) => self.finish(place, answer),
                Ok(Ended::Many(places, answers)) => self.finish_many(places, answers),
            }
        }
    }

    fn finish(&mut self, place: Place, answer: Result<RunResponse, Status>) {
        if self.is_in_flight(place) {
            if let Some(why) = answer.as_ref().err().and_then(|s| self.format.login_refused(s))
                && !std::mem::replace(&mut self.has_logged_refusal, true)
            {
                tracing::warn!("compression service {}: {why}", self.format.origin());
            }
            let in_flight = self.jobs.remove(place.key);
            if message::lacks_key(&in_flight.job, &answer) {
                self.format.unknown_keys.record(self.format.now());
            }
            self.finished.push(message::completion(in_flight.job, answer));
        }
    }

    fn finish_many(&mut self, places: Vec<Place>, answers: Result<RunManyResponse, Status>) {
        match answers {
            Ok(answers) => {
                let missing = || Status::internal("fewer answers than jobs");
                let mut answers = answers.answers.into_iter();
                for place in places {
                    self.finish(place, answers.next().ok_or_else(missing));
                }
            }
            // The service is older and does not know shared calls, so its jobs are sent one by one.
            Err(status) if status.code() == Code::Unimplemented => {
                self.jobs_per_call = 1;
                for place in
                    places.into_iter().filter(|place| self.is_in_flight(*place)).collect::<Vec<_>>()
                {
                    self.call(place);
                }
            }
            Err(status) => {
                for place in places {
                    self.finish(place, Err(status.clone()));
                }
            }
        }
    }

    /// Advances like `advance` and calls the waker if jobs have finished. It is for callers other than `poll`.
    fn advance_and_signal(&mut self) {
        self.advance();
        if !self.finished.is_empty() {
            self.waker.wake_by_ref();
        }
    }
}

impl Queue for RemoteQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        if !self.capabilities.accepts(&job.task, job.work_bytes()) {
            return Err(Refused { job, reason: RefusedReason::Unsupported });
        }
        if self.pending() >= self.capabilities.queue_depth {
            return Err(Refused { job, reason: RefusedReason::Full });
        }
        if self.link.is_gone() {
            return Err(Refused { job, reason: RefusedReason::Lost });
        }
        if !self.format.unknown_keys.allow(&job.task, || self.format.now()) {
            return Err(Refused { job, reason: RefusedReason::Unsupported });
        }
        if let Some(error) = asked::misfit(&job) {
            let outcome = Outcome::Failed(error);
            self.finished.push(Completion { job, outcome, service: Nanos(0) });
            self.waker.wake_by_ref();
            return Ok(());
        }
        let shares = self.jobs_per_call > 1 && self.format.may_share(&job);
        self.submitted += 1;
        let number = self.submitted;
        let key = self.jobs.insert(InFlight { job, number, call: None });
        let place = Place { key, number };
        if shares {
            // The job is sent when the caller has no more jobs to submit, which is at the poll that this wake-up
            // causes.
            self.gathered.push(place);
            self.waker.wake_by_ref();
        } else {
            self.call(place);
            self.advance_and_signal();
        }
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        self.advance();
        let count = self.finished.len();
        done.append(&mut self.finished);
        count
    }

    fn pending(&self) -> usize {
        self.jobs.len() + self.finished.len()
    }

    fn cancel(&mut self, tag: u64) {
        let found = self.jobs.iter().find(|(_, in_flight)| in_flight.job.tag == tag);
        let Some(key) = found.map(|(key, _)| key) else { return };
        let InFlight { job, call, .. } = self.jobs.remove(key);
        if let Some(call) = call {
            call.abort();
        }
        let outcome = Outcome::Failed(DeviceError::Cancelled);
        self.finished.push(Completion { job, outcome, service: Nanos(0) });
        // This also drops the call, which resets its stream.
        self.advance_and_signal();
    }
}

/// The largest total work of the jobs of one shared call (bytes). It is limited because the first job of a call waits
/// for the last.
const CALL_WORK_BYTES_MAX: usize = 64 << 10;
