//! Reports in, queries answered, parameters out; what is kept and sent is the scheduler's.

use std::rc::Rc;

use api::v1::scheduler_server::Scheduler;
use api::v1::{
    ParametersRequest, PolicyParameters, QueryRequest, QueryResponse, ReportRequest, ReportResponse,
};
use send_wrapper::SendWrapper;
use tonic::{Request, Response, Status};

use crate::context::WorkerContext;

/// The service, on its worker's thread.
pub(super) struct SchedulerService(SendWrapper<Rc<WorkerContext>>);

impl SchedulerService {
    pub(super) fn new(context: SendWrapper<Rc<WorkerContext>>) -> Self {
        Self(context)
    }
}

#[tonic::async_trait]
impl Scheduler for SchedulerService {
    async fn report(&self, _: Request<ReportRequest>) -> Result<Response<ReportResponse>, Status> {
        Err(Status::unimplemented("report"))
    }

    type ParametersStream = tokio_stream::Pending<Result<PolicyParameters, Status>>;

    async fn parameters(
        &self,
        _: Request<ParametersRequest>,
    ) -> Result<Response<Self::ParametersStream>, Status> {
        Err(Status::unimplemented("parameters"))
    }

    async fn query(&self, _: Request<QueryRequest>) -> Result<Response<QueryResponse>, Status> {
        Err(Status::unimplemented("query"))
    }
}
