//! The scheduler service over gRPC. It receives reports, answers queries and sends parameters.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use api::prost::Message;
use api::v1::scheduler_server;
use api::v1::{
    ParametersRequest, PolicyParameters, QueryRequest, QueryResponse, ReportRequest, ReportResponse,
};
use send_wrapper::SendWrapper;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use super::call::Call;
use crate::context::WorkerContext;
use crate::scheduler::{Refusal, Scheduler, Watcher};

/// The scheduler service of one worker thread.
pub(super) struct SchedulerService(SendWrapper<Rc<WorkerContext>>);

impl SchedulerService {
    pub(super) fn new(context: SendWrapper<Rc<WorkerContext>>) -> Self {
        Self(context)
    }

    fn scheduler(&self) -> Result<&Arc<Scheduler>, Status> {
        let absent = || Status::unimplemented("this process has no scheduler");
        self.0.scheduler.as_ref().ok_or_else(absent)
    }
}

#[tonic::async_trait]
impl scheduler_server::Scheduler for SchedulerService {
    async fn report(
        &self,
        request: Request<ReportRequest>,
    ) -> Result<Response<ReportResponse>, Status> {
        let kept = self.scheduler()?.report(request.get_ref(), self.0.clock.now());
        kept.map(Response::new).map_err(status)
    }

    type ParametersStream = SendWrapper<Following>;

    async fn parameters(
        &self,
        _: Request<ParametersRequest>,
    ) -> Result<Response<Self::ParametersStream>, Status> {
        let watcher = self.scheduler()?.watch().map_err(status)?;
        let following = Following {
            changes: WatchStream::new(watcher.changes.clone()),
            _watcher: watcher,
            context: Rc::clone(&self.0),
            place: None,
        };
        Ok(Response::new(SendWrapper::new(following)))
    }

    async fn query(
        &self,
        mut request: Request<QueryRequest>,
    ) -> Result<Response<QueryResponse>, Status> {
        let call = Call::from_request(&mut request)?;
        let response = self.scheduler()?.query(request.into_inner(), self.0.clock.now());
        call.charge.grow(response.encoded_len())?;
        Ok(Response::new(response))
    }
}

/// A stream of the current parameters and every later change, until the server drains.
pub(super) struct Following {
    changes: WatchStream<PolicyParameters>,
    _watcher: Watcher,
    context: Rc<WorkerContext>,
    place: Option<usize>,
}

impl Stream for Following {
    type Item = Result<PolicyParameters, Status>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.context.is_draining() {
            return Poll::Ready(None);
        }
        this.context.shutdown.watch(&mut this.place, task.waker());
        Pin::new(&mut this.changes).poll_next(task).map(|next| next.map(Ok))
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.context.shutdown.leave(self.place);
    }
}

fn status(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Invalid(why) => Status::invalid_argument(why),
        Refusal::Back(why) => Status::failed_precondition(why),
        Refusal::Exhausted(why) => Status::resource_exhausted(why),
    }
}
