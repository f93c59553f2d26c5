//! The calls of one connection. They are polled where the queue is polled; the jobs never leave the queue, so that a
//! call can be dropped at any time and its job is at hand.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use api::v1::RunResponse;
use api::v1::compression_client::CompressionClient;
use device::{Capabilities, Completion, DeviceError, Job, Outcome, Queue, Refused, RefusedReason};
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;
use slab::Slab;
use tonic::Status;
use units::Nanos;

use super::link::{Link, OwnThread};
use super::message::{self, Format};

/// One thread's way to the service.
pub(super) struct RemoteQueue {
    capabilities: Arc<Capabilities>,
    format: Format,
    calls: FuturesUnordered<Abortable<Call>>,
    jobs: Slab<Inside>,
    finished: Vec<Completion>,
    waker: Waker,
    link: Link,
    _thread: Option<OwnThread>,
}

/// A call and the key of its job.
type Call = Pin<Box<dyn Future<Output = (usize, Answer)>>>;
type Answer = Result<RunResponse, Status>;

struct Inside {
    job: Box<Job>,
    call: AbortHandle,
}

impl RemoteQueue {
    pub(super) fn new(
        capabilities: Arc<Capabilities>,
        format: Format,
        link: Link,
        thread: Option<OwnThread>,
        waker: Waker,
    ) -> Self {
        let calls = FuturesUnordered::new();
        let (jobs, finished) = (Slab::new(), Vec::new());
        Self { capabilities, format, calls, jobs, finished, waker, link, _thread: thread }
    }

    fn call(&self, key: usize, job: &Job) -> Call {
        let request = self.format.request(job);
        let answer_bytes_max = self.format.answer_bytes_max(job);
        let origin = self.format.origin().clone();
        let wire = self.link.wire();
        Box::pin(async move {
            let wire = match wire.await {
                Ok(wire) => wire,
                Err(status) => return (key, Err(status)),
            };
            let mut client = CompressionClient::with_origin(wire, origin)
                .max_decoding_message_size(answer_bytes_max);
            (key, client.run(request).await.map(tonic::Response::into_inner))
        })
    }

    /// Moves calls that have ended to `finished`.
    fn advance(&mut self) {
        let mut task = Context::from_waker(&self.waker);
        while let Poll::Ready(Some(ended)) = self.calls.poll_next_unpin(&mut task) {
            // A call that was dropped has no answer, and its job is gone already.
            let Ok((key, answer)) = ended else { continue };
            let inside = self.jobs.remove(key);
            self.finished.push(message::completion(inside.job, answer));
        }
    }

    /// As `advance`, for callers other than `poll`.
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
        if let Some(error) = message::misfit(&job) {
            let outcome = Outcome::Failed(error);
            self.finished.push(Completion { job, outcome, service: Nanos(0) });
        } else {
            let key = self.jobs.vacant_key();
            let (handle, registration) = AbortHandle::new_pair();
            self.calls.push(Abortable::new(self.call(key, &job), registration));
            self.jobs.insert(Inside { job, call: handle });
        }
        self.advance_and_signal();
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
        let found = self.jobs.iter().find(|(_, inside)| inside.job.tag == tag);
        let Some(key) = found.map(|(key, _)| key) else { return };
        let Inside { job, call } = self.jobs.remove(key);
        call.abort();
        let outcome = Outcome::Failed(DeviceError::Cancelled);
        self.finished.push(Completion { job, outcome, service: Nanos(0) });
        // Also drops the call, which resets its stream.
        self.advance_and_signal();
    }
}
