//! The memory limits of gRPC calls, per worker and per connection. A call's charge grows before memory is
//! used, and shrinks when that memory is freed: when the response was sent or the call was dropped.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use send_wrapper::SendWrapper;
use tokio::sync::Notify;
use tonic::Status;

use super::caller::Caller;
use crate::budget::Permit;
use crate::context::WorkerContext;

/// The bytes that all calls of a connection hold. They also count towards the worker's limit.
pub(super) struct Meter {
    context: Rc<WorkerContext>,
    held: Cell<u64>,
    max: u64,
    /// The number of times that bytes were taken or released, which shows whether there is progress.
    moves: Cell<u64>,
    holds: Notify,
}

/// The bytes that one call holds. Clones share the same count.
#[derive(Clone)]
pub(super) struct Charge(SendWrapper<Rc<RefCell<Share>>>);

/// A part of the bytes that a connection holds. Dropping the part releases its bytes.
struct Share {
    meter: Rc<Meter>,
    permit: Permit,
}

impl Meter {
    pub(super) fn of_connection(context: &Rc<WorkerContext>) -> Rc<Self> {
        let max = context.inflight_bytes_max.0 / CONNECTION_SHARE;
        let largest = context.limits.item_bytes_max.0 + api::wire::MESSAGE_SLACK_BYTES as u64;
        let max = max.max(ITEMS_HELD_MIN * largest);
        let context = Rc::clone(context);
        let (held, moves) = (Cell::new(0), Cell::new(0));
        Rc::new(Self { context, held, max, moves, holds: Notify::new() })
    }

    /// Creates the charge of a call. It begins with the memory of the call itself and its headers.
    ///
    /// # Errors
    /// Fails like [`Charge::grow`].
    pub(super) fn charge(self: &Rc<Self>, headers: &HeaderMap) -> Result<Charge, Status> {
        let line = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
        let lines: usize = headers.iter().map(|header| line(header) + HEADER_BYTES).sum();
        let share = self.take((CALL_BYTES + lines) as u64)?;
        Ok(Charge(SendWrapper::new(Rc::new(RefCell::new(share)))))
    }

    /// Completes when the connection has made no progress for [`STALL_MAX`] and holds memory that other
    /// connections of the worker need.
    pub(super) async fn stalled(&self) {
        loop {
            if self.held.get() == 0 {
                self.holds.notified().await;
            }
            let moves = self.moves.get();
            tokio::time::sleep(STALL_MAX).await;
            if self.moves.get() == moves && self.blocks_others() {
                self.context.counters.grpc.stalled.up();
                return;
            }
        }
    }

    /// Returns whether memory is short and this connection holds at least the average of the worker's
    /// connections. Memory is short if gRPC calls hold more than half of the worker's budget, or if others
    /// wait for it. At least one connection always holds the average.
    fn blocks_others(&self) -> bool {
        let held = self.context.grpc_held_bytes.get();
        let connections = self.context.counters.grpc.connections.read().max(1);
        let budget = &self.context.budget;
        let is_short = held > budget.max() / 2 || budget.is_wanted();
        is_short && self.held.get() >= held / connections
    }

    fn take(self: &Rc<Self>, bytes: u64) -> Result<Share, Status> {
        let (worker, worker_max) = (&self.context.grpc_held_bytes, self.context.inflight_bytes_max);
        let none = |whose, held, max| {
            Status::resource_exhausted(format!(
                "the calls of this {whose} hold {held} bytes and may hold {max}: no room for \
                 {bytes} more"
            ))
        };
        // gRPC calls get half of the budget, to leave the rest to clients of memcached's protocol.
        let worker_max = (worker_max.0 / 2).max(self.max.min(worker_max.0));
        for (held, max, whose) in
            [(&self.held, self.max, "connection"), (worker, worker_max, "worker")]
        {
            let held = held.get();
            if held.saturating_add(bytes) > max {
                return Err(none(whose, held, max));
            }
        }
        // Other users of the worker share the same budget.
        let budget = &self.context.budget;
        let permit = budget.try_grow(bytes);
        let permit = permit.ok_or_else(|| none("worker", budget.held(), budget.max()))?;
        if self.held.get() == 0 {
            self.holds.notify_one();
        }
        self.held.set(self.held.get() + bytes);
        worker.set(worker.get() + bytes);
        self.moves.set(self.moves.get().wrapping_add(1));
        Ok(Share { meter: Rc::clone(self), permit })
    }
}

impl Share {
    /// Splits off up to `bytes` of the held bytes.
    fn split(&mut self, bytes: u64) -> Self {
        Self { meter: Rc::clone(&self.meter), permit: self.permit.split(bytes) }
    }

    fn merge(&mut self, mut other: Self) {
        let bytes = other.permit.bytes();
        self.permit.merge(other.permit.split(bytes));
    }

    fn bytes(&self) -> u64 {
        self.permit.bytes()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Meter { held, context, moves, .. } = &*self.meter;
        held.set(held.get() - self.permit.bytes());
        context.grpc_held_bytes.set(context.grpc_held_bytes.get() - self.permit.bytes());
        moves.set(moves.get().wrapping_add(1));
    }
}

impl Charge {
    /// Charges `bytes` more bytes to the call.
    ///
    /// # Errors
    /// Returns `RESOURCE_EXHAUSTED` with the held bytes and the limit.
    pub(super) fn grow(&self, bytes: usize) -> Result<(), Status> {
        let mut share = self.0.borrow_mut();
        let more = share.meter.take(bytes as u64)?;
        share.merge(more);
        Ok(())
    }

    /// Returns whether `bytes` more bytes would fit if no other call held any.
    pub(super) fn may_ever_grow(&self, bytes: usize) -> bool {
        self.0.borrow().bytes().saturating_add(bytes as u64) <= self.bytes_max()
    }

    /// Returns the bytes that all calls of the connection may hold.
    pub(super) fn bytes_max(&self) -> u64 {
        let meter = &self.0.borrow().meter;
        meter.max.min(meter.context.inflight_bytes_max.0)
    }

    /// Wraps a part of the response, so that its memory stays charged until the part is sent. Charges more
    /// bytes if the call holds too few for the part.
    fn attach(&self, data: Bytes) -> Result<Bytes, Status> {
        let bytes = (data.len() + PART_BYTES) as u64;
        let mut share = self.0.borrow_mut();
        let mut part = share.split(bytes);
        let more = share.meter.take(bytes - part.bytes())?;
        part.merge(more);
        Ok(Bytes::from_owner(Sending { data, _share: SendWrapper::new(part) }))
    }

    fn context(&self) -> Rc<WorkerContext> {
        Rc::clone(&self.0.borrow().meter.context)
    }
}

/// A part of a response that is being sent.
struct Sending {
    data: Bytes,
    _share: SendWrapper<Share>,
}

impl AsRef<[u8]> for Sending {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// The body of a request, which is charged as it arrives.
pub(super) struct Arriving {
    pub(super) body: Incoming,
    pub(super) charge: Charge,
    pub(super) caller: Caller,
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
                self.caller.spend_bytes(data.len());
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

/// The body of a response, which is charged until it is sent. When the server drains, a stream without data
/// to send is ended, so that the client calls another server.
pub(super) struct Leaving {
    body: tonic::body::Body,
    charge: Charge,
    caller: Caller,
    context: SendWrapper<Rc<WorkerContext>>,
    place: Option<usize>,
    ended: bool,
}

impl Leaving {
    pub(super) fn new(body: tonic::body::Body, charge: Charge, caller: Caller) -> Self {
        let context = SendWrapper::new(charge.context());
        Self { body, charge, caller, context, place: None, ended: false }
    }

    fn end(&mut self, status: Status) -> Frame<Bytes> {
        self.ended = true;
        let mut headers = status.into_http::<()>().into_parts().0.headers;
        headers.remove(CONTENT_TYPE);
        self.context.counters.grpc.ended(&headers);
        Frame::trailers(headers)
    }
}

impl Body for Leaving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        let frame = match Pin::new(&mut this.body).poll_frame(task) {
            Poll::Ready(frame) => frame,
            Poll::Pending if this.context.is_draining() => {
                let end = this.end(Status::unavailable("the server drains"));
                return Poll::Ready(Some(Ok(end)));
            }
            Poll::Pending => {
                this.context.shutdown.watch(&mut this.place, task.waker());
                return Poll::Pending;
            }
        };
        let Some(frame) = frame.transpose()? else { return Poll::Ready(None) };
        if let Some(trailers) = frame.trailers_ref() {
            this.context.counters.grpc.ended(trailers);
        }
        let frame = match frame.into_data() {
            Err(trailers) => trailers,
            Ok(data) => {
                this.caller.spend_bytes(data.len());
                match this.charge.attach(data) {
                    Ok(data) => Frame::data(data),
                    Err(status) => this.end(status),
                }
            }
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.context.shutdown.leave(self.place);
    }
}

/// The denominator of the largest share of the worker's budget for one connection (1 in 4). A client that
/// does not read can therefore not block the others.
const CONNECTION_SHARE: u64 = 4;

/// The minimum limit of a connection, as a number of items of the largest size, inputs and outputs together.
const ITEMS_HELD_MIN: u64 = 4;

/// The memory of a call without its messages (bytes): its stream, its task and its future.
const CALL_BYTES: usize = 8 << 10;

/// The overhead of a header in addition to its name and value (bytes), as HTTP/2 counts it.
const HEADER_BYTES: usize = 32;

/// The overhead of sending a part of a response in addition to its data (bytes).
const PART_BYTES: usize = 4 << 10;

/// The time without progress after which a connection that holds needed memory is closed, as in sessions.
const STALL_MAX: Duration = Duration::from_secs(2);
