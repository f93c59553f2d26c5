//! (De)compression for other processes: a call is a job of this worker's runtime. Which device runs it is the runtime's.

use std::rc::Rc;

use api::v1::compression_server::Compression;
use api::v1::{
    self, DescribeRequest, DescribeResponse, EchoRequest, EchoResponse, RunRequest, RunResponse,
    run_response,
};
use bytes::Bytes;
use send_wrapper::SendWrapper;
use tonic::{Request, Response, Status};

use super::call::Call;
use crate::context::WorkerContext;

/// The service, on its worker's thread.
pub(super) struct CompressionService(SendWrapper<Rc<WorkerContext>>);

impl CompressionService {
    pub(super) fn new(context: SendWrapper<Rc<WorkerContext>>) -> Self {
        Self(context)
    }
}

#[tonic::async_trait]
impl Compression for CompressionService {
    async fn run(&self, request: Request<RunRequest>) -> Result<Response<RunResponse>, Status> {
        let context = Rc::clone(&self.0);
        SendWrapper::new(run(context, request)).await.map(Response::new)
    }

    async fn describe(
        &self,
        _: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        Err(Status::unimplemented("Describe"))
    }

    async fn echo(
        &self,
        mut request: Request<EchoRequest>,
    ) -> Result<Response<EchoResponse>, Status> {
        let call = Call::of(&mut request)?;
        let response_bytes = request.get_ref().response_bytes as usize;
        call.charge.grow(response_bytes)?;
        Ok(Response::new(EchoResponse { payload: Bytes::from(vec![0; response_bytes]) }))
    }
}

async fn run(
    context: Rc<WorkerContext>,
    mut request: Request<RunRequest>,
) -> Result<RunResponse, Status> {
    let _call = Call::of(&mut request)?;
    let _ = (context, v1::Op::Compress, run_response::Outcome::Done);
    Err(Status::unimplemented("Run"))
}
