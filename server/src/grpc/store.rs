//! Stored values over gRPC: the same backend, nothing compressed or decompressed.

use std::rc::Rc;

use api::v1::store_server::Store;
use api::v1::{
    DeleteRequest, DeleteResponse, ExecuteRequest, ExecuteResponse, GetRequest, GetResponse,
    MultiGetRequest, MultiGetResponse, SetRequest, SetResponse,
};
use send_wrapper::SendWrapper;
use tonic::{Request, Response, Status};

use crate::context::WorkerContext;

/// The service, on its worker's thread.
pub(super) struct StoreService(SendWrapper<Rc<WorkerContext>>);

impl StoreService {
    pub(super) fn new(context: SendWrapper<Rc<WorkerContext>>) -> Self {
        Self(context)
    }
}

#[tonic::async_trait]
impl Store for StoreService {
    async fn get(&self, _: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        Err(Status::unimplemented("get"))
    }

    async fn multi_get(
        &self,
        _: Request<MultiGetRequest>,
    ) -> Result<Response<MultiGetResponse>, Status> {
        Err(Status::unimplemented("multi_get"))
    }

    async fn set(&self, _: Request<SetRequest>) -> Result<Response<SetResponse>, Status> {
        Err(Status::unimplemented("set"))
    }

    async fn delete(&self, _: Request<DeleteRequest>) -> Result<Response<DeleteResponse>, Status> {
        Err(Status::unimplemented("delete"))
    }

    async fn execute(
        &self,
        _: Request<ExecuteRequest>,
    ) -> Result<Response<ExecuteResponse>, Status> {
        Err(Status::unimplemented("execute"))
    }
}
