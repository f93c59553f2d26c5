//! Routes each call by its path to a service, and enforces the call's deadline. It does not decode messages.

use std::convert::Infallible;
use std::future::Future;
use std::rc::Rc;
use std::time::Instant;

use api::v1::cache_server::CacheServer;
use api::v1::compression_server::CompressionServer;
use api::v1::scheduler_server::SchedulerServer;
use api::v1::store_server::StoreServer;
use device::TenantId;
use hyper::body::Incoming;
use hyper::{HeaderMap, Request, Response};
use send_wrapper::SendWrapper;
use telemetry::Started;
use telemetry::timeline::{self, Timeline};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::{Code, Status};
use tower_service::Service;
use units::{Nanos, TraceContext};

use super::cache::CacheService;
use super::call::{self, Call};
use super::caller::{Caller, Callers};
use super::charge::{Arriving, Leaving, Meter};
use super::compression::CompressionService;
use super::scheduler::SchedulerService;
use super::store::StoreService;
use crate::access::Rights;
use crate::context::{Peer, WorkerContext};
use crate::counters::Grpc;
use crate::scheduler::REPORT_BYTES_MAX;

/// The services of one connection.
pub(super) struct Router {
    context: Rc<WorkerContext>,
    meter: Rc<Meter>,
    peer: Peer,
    callers: Callers,
    cache: Option<CacheServer<CacheService>>,
    compression: Option<CompressionServer<CompressionService>>,
    /// The compression service for calls with several jobs, with a lower limit on the message size.
    many: Option<CompressionServer<CompressionService>>,
    store: Option<StoreServer<StoreService>>,
    scheduler: Option<SchedulerServer<SchedulerService>>,
    /// The routes of health and reflection.
    others: Routes,
}

impl Router {
    pub(super) fn new(context: &Rc<WorkerContext>, meter: Rc<Meter>, callers: Callers) -> Self {
        let offered = context.services;
        let message_bytes_max =
            context.limits.item_bytes_max.as_usize() + api::wire::MESSAGE_SLACK_BYTES;
        let shared = || SendWrapper::new(Rc::clone(context));
        let cache = offered.frontend.then(|| {
            CacheServer::new(CacheService::new(shared()))
                .max_decoding_message_size(message_bytes_max)
        });
        let compression = |message_bytes_max| {
            offered.compression.then(|| {
                CompressionServer::new(CompressionService::new(shared()))
                    .max_decoding_message_size(message_bytes_max)
            })
        };
        let many = compression(api::wire::JOBS_BYTES_MAX + api::wire::MESSAGE_SLACK_BYTES);
        let compression = compression(message_bytes_max);
        let store = offered.store.then(|| {
            StoreServer::new(StoreService::new(shared()))
                .max_decoding_message_size(message_bytes_max)
        });
        let scheduler = offered.scheduler.then(|| {
            SchedulerServer::new(SchedulerService::new(shared()))
                .max_decoding_message_size(REPORT_BYTES_MAX)
        });
        let (peer, others) = (Peer::enter(context), context.grpc_others.clone());
        let context = Rc::clone(context);
        Self { context, meter, peer, callers, cache, compression, many, store, scheduler, others }
    }

    /// Answers one call. Errors become responses with an error status.
    pub(super) async fn answer(
        self: Rc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        let answered = self.answer_in_time(request).await;
        let response = answered.unwrap_or_else(|status| status.into_http());
        self.context.counters.grpc.ended(response.headers());
        Ok(response)
    }

    async fn answer_in_time(&self, request: Request<Incoming>) -> Result<Response<Body>, Status> {
        let limit = call::timeout(request.headers())?;
        let charge = self.meter.charge(request.headers())?;
        let clock = &self.context.clock;
        let deadline = limit.map(|limit| Nanos(clock.now().0.saturating_add(Nanos::from(limit).0)));
        let caller = self.callers.caller(request.headers()).await?;
        let (mut parts, body) = request.into_parts();
        let of_role = caller.client().and_then(|client| client.tenant()).map(TenantId);
        let tenant = of_role.unwrap_or_else(|| self.peer.tenant());
        let call = Call { charge: charge.clone(), deadline, tenant, caller: caller.clone() };
        parts.extensions.insert(call);
        let body = Arriving { body, charge: charge.clone(), caller: caller.clone() };
        let answer = self.dispatch(&caller, Request::from_parts(parts, body));
        let response = match limit {
            None => answer.await?,
            Some(limit) => {
                let late = || {
                    let limit_us = limit.as_nanos() as f64 / 1e3;
                    Status::deadline_exceeded(format!("no answer within {limit_us} us"))
                };
                let response = tokio::time::timeout(limit, answer).await.map_err(|_| late())??;
                // The timer is coarse, so the clock is checked as well.
                if deadline.is_some_and(|deadline| clock.now() > deadline) {
                    return Err(late());
                }
                response
            }
        };
        Ok(response.map(|body| Body::new(Leaving::new(body, charge, caller))))
    }

    /// Returns the timeline of a call whose time is recorded.
    fn recorded(&self, request: &Request<Arriving>) -> Option<Box<Timeline>> {
        let path = request.uri().path();
        let (_, command) = RECORDED.into_iter().find(|(recorded, _)| *recorded == path)?;
        let caller = request.headers().get(TraceContext::HEADER);
        let caller = caller.and_then(|text| text.to_str().ok()?.parse().ok());
        let started = Started { at: Instant::now(), command, key: &[] };
        self.context.recorder.begin_call(&started, caller)
    }

    async fn dispatch(
        &self,
        caller: &Caller,
        request: Request<Arriving>,
    ) -> Result<Response<Body>, Status> {
        let path = request.uri().path();
        let service = path.strip_prefix('/').and_then(|path| path.split('/').next());
        // Health and reflection are open to everybody.
        if let Some(needed) = service.and_then(rights_of) {
            self.callers.admit(caller, path, needed).await?;
        }
        match self.recorded(&request) {
            None => self.call(request).await,
            // A call that is too late or that nobody waits for any more is recorded too.
            Some(timeline) => {
                let end = |timeline: Box<Timeline>| {
                    let client = || self.callers.origin().to_string();
                    self.context.recorder.end(*timeline, Instant::now(), client);
                };
                timeline::recording(timeline, self.call(request), end).await
            }
        }
    }

    async fn call(&self, request: Request<Arriving>) -> Result<Response<Body>, Status> {
        let path = request.uri().path();
        let service = path.strip_prefix('/').and_then(|path| path.split('/').next());
        let counters = &self.context.counters.grpc;
        match service {
            Some(CacheServer::<CacheService>::NAME) => {
                counters.calls_cache.up();
                call_of(self.cache.as_ref(), request).await
            }
            Some(CompressionServer::<CompressionService>::NAME) => {
                counters.calls_compression.up();
                let many = path.ends_with("/RunMany");
                let server = if many { &self.many } else { &self.compression };
                call_of(server.as_ref(), request).await
            }
            Some(StoreServer::<StoreService>::NAME) => {
                counters.calls_store.up();
                call_of(self.store.as_ref(), request).await
            }
            Some(SchedulerServer::<SchedulerService>::NAME) => {
                counters.calls_scheduler.up();
                call_of(self.scheduler.as_ref(), request).await
            }
            _ => {
                counters.calls_other.up();
                answered(self.others.clone().call(request)).await
            }
        }
    }
}

/// The paths of calls whose time may be recorded, and their names. Jobs of the compression service are recorded one by
/// one, because those of one call may belong to different requests.
const RECORDED: [(&str, &str); 9] = [
    ("/rebate.v1.Cache/Get", "Cache/Get"),
    ("/rebate.v1.Cache/MultiGet", "Cache/MultiGet"),
    ("/rebate.v1.Cache/Set", "Cache/Set"),
    ("/rebate.v1.Cache/Delete", "Cache/Delete"),
    ("/rebate.v1.Store/Get", "Store/Get"),
    ("/rebate.v1.Store/MultiGet", "Store/MultiGet"),
    ("/rebate.v1.Store/Set", "Store/Set"),
    ("/rebate.v1.Store/Delete", "Store/Delete"),
    ("/rebate.v1.Store/Execute", "Store/Execute"),
];

/// Returns the rights that calls of a service need in addition to those of what they do. Returns none for services that
/// are open to everybody.
fn rights_of(service: &str) -> Option<Rights> {
    match service {
        CacheServer::<CacheService>::NAME => Some(Rights::NONE),
        CompressionServer::<CompressionService>::NAME => Some(Rights::COMPRESSION_SERVICE),
        StoreServer::<StoreService>::NAME => Some(Rights::STORE_SERVICE),
        SchedulerServer::<SchedulerService>::NAME => Some(Rights::SCHEDULER_SERVICE),
        _ => None,
    }
}

/// Calls a service. Returns `UNIMPLEMENTED` if this process does not have it.
async fn call_of<S>(
    service: Option<&S>,
    request: Request<Arriving>,
) -> Result<Response<Body>, Status>
where
    S: Clone + NamedService,
    S: Service<Request<Arriving>, Response = Response<Body>, Error = Infallible>,
{
    let absent = || {
        let name = S::NAME;
        Status::unimplemented(format!("this process does not have the service {name}"))
    };
    let mut service = service.ok_or_else(absent)?.clone();
    answered(service.call(request)).await
}

impl Grpc {
    /// Counts the outcome of a call, if `headers` contain its status.
    pub(super) fn ended(&self, headers: &HeaderMap) {
        let Some(code) = headers.get(Status::GRPC_STATUS) else { return };
        match Code::from_bytes(code.as_bytes()) {
            Code::Ok => {}
            Code::ResourceExhausted => self.errors_exhausted.up(),
            Code::DeadlineExceeded => self.errors_deadline.up(),
            Code::Unavailable => self.errors_unavailable.up(),
            Code::InvalidArgument
            | Code::OutOfRange
            | Code::FailedPrecondition
            | Code::Unimplemented => self.errors_invalid.up(),
            _ => self.errors_other.up(),
        }
    }
}

async fn answered(
    answer: impl Future<Output = Result<Response<Body>, Infallible>>,
) -> Result<Response<Body>, Status> {
    match answer.await {
        Ok(response) => Ok(response),
        Err(never) => match never {},
    }
}
