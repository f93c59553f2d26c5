//! What the calls of a worker and of each connection may hold in memory. A call's charge grows before bytes are held for
//! it and ends with the last of them, when its answer has gone out or it is dropped.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use send_wrapper::SendWrapper;
use tonic::Status;

use crate::context::WorkerContext;

/// Bytes held by all calls of a connection, within those of its worker.
pub(super) struct Meter {
    context: Rc<WorkerContext>,
    held: Cell<u64>,
    max: u64,
}

/// What one call holds. Clones share it.
#[derive(Clone)]
pub(super) struct Charge(SendWrapper<Rc<Held>>);

struct Held {
    meter: Rc<Meter>,
    bytes: Cell<u64>,
}

impl Meter {
    pub(super) fn of_connection(context: &Rc<WorkerContext>) -> Rc<Self> {
        let max = context.inflight_bytes_max.0 / CONNECTION_SHARE;
        let largest = context.limits.item_bytes_max.0 + api::wire::MESSAGE_SLACK_BYTES as u64;
        let max = max.max(ITEMS_HELD_MIN * largest);
        Rc::new(Self { context: Rc::clone(context), held: Cell::new(0), max })
    }

    pub(super) fn charge(self: &Rc<Self>) -> Charge {
        let held = Held { meter: Rc::clone(self), bytes: Cell::new(0) };
        Charge(SendWrapper::new(Rc::new(held)))
    }
}

impl Charge {
    /// Whether the call may hold this much more.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`, with what is held and what may be.
    pub(super) fn grow(&self, bytes: usize) -> Result<(), Status> {
        let meter = &self.0.meter;
        let more = bytes as u64;
        let (worker, worker_max) =
            (&meter.context.grpc_held_bytes, meter.context.inflight_bytes_max.0);
        for (held, max, whose) in
            [(&meter.held, meter.max, "connection"), (worker, worker_max, "worker")]
        {
            if held.get() + more > max {
                let held = held.get();
                return Err(Status::resource_exhausted(format!(
                    "this {whose} holds {held} bytes and may hold {max}: no room for {more} more"
                )));
            }
        }
        self.hold(more);
        Ok(())
    }

    /// Bytes of an answer that exists already, counted until they are sent.
    fn attach(&self, data: Bytes) -> Bytes {
        if data.len() < ATTACH_BYTES_MIN {
            return data;
        }
        self.hold(data.len() as u64);
        let bytes = data.len() as u64;
        Bytes::from_owner(Sending { data, bytes, charge: self.clone() })
    }

    fn hold(&self, more: u64) {
        let meter = &self.0.meter;
        self.0.bytes.set(self.0.bytes.get() + more);
        meter.held.set(meter.held.get() + more);
        let worker = &meter.context.grpc_held_bytes;
        worker.set(worker.get() + more);
    }

    fn release(&self, less: u64) {
        self.0.bytes.set(self.0.bytes.get() - less);
        self.0.meter.release(less);
    }
}

impl Meter {
    fn release(&self, less: u64) {
        self.held.set(self.held.get() - less);
        let worker = &self.context.grpc_held_bytes;
        worker.set(worker.get() - less);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.meter.release(self.bytes.get());
    }
}

/// A part of an answer on its way to the socket.
struct Sending {
    data: Bytes,
    bytes: u64,
    charge: Charge,
}

impl AsRef<[u8]> for Sending {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.charge.release(self.bytes);
    }
}

/// A request's body, charged as it arrives.
pub(super) struct Arriving {
    pub(super) body: Incoming,
    pub(super) charge: Charge,
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(task));
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|error| Status::from_error(error.into()))?;
            if let Some(data) = frame.data_ref() {
                self.charge.grow(data.len())?;
            }
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer's body, charged until it is sent.
pub(super) struct Leaving {
    pub(super) body: tonic::body::Body,
    pub(super) charge: Charge,
}

impl Body for Leaving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(task));
        Poll::Ready(frame.map(|frame| Ok(frame?.map_data(|data| self.charge.attach(data)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// One connection may have this part of its worker's budget, so that one client that does not read leaves the others
/// theirs.
const CONNECTION_SHARE: u64 = 4;

/// And never less than a few of the largest items, in and out.
const ITEMS_HELD_MIN: u64 = 4;

/// Smaller answers are not worth the bookkeeping: all calls of a connection together hold 4 MiB of them at most.
const ATTACH_BYTES_MIN: usize = 4 << 10;
