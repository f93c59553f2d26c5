//! Stored values over gRPC: the same backend, without compression or decompression. The session decides what a command
//! means.

use std::rc::Rc;
use std::time::Duration;

use api::prost::Message;
use api::v1::store_server::Store;
use api::v1::{
    DeleteRequest, DeleteResponse, ExecuteRequest, ExecuteResponse, GetRequest, GetResponse,
    MultiGetRequest, MultiGetResponse, SetRequest, SetResponse, set_request, set_response,
};
use bytes::Bytes;
use protocol::command::Command;
use protocol::reply::MetaOutcome;
use protocol::{MetaKey, Parse, request};
use send_wrapper::SendWrapper;
use tonic::{Request, Response, Status};
use units::Nanos;
use units::limits::ITEM_OVERHEAD_BYTES;

use super::call::Call;
use super::charge::Charge;
use crate::backend::{Failure, Issue, MetaItem, Outcome, Written};
use crate::context::WorkerContext;
use crate::session::{self, NoAnswer};
use crate::upstream::Traffic;
use crate::values::Stored;

/// The store service, on its worker's thread.
pub(super) struct StoreService(SendWrapper<Rc<WorkerContext>>);

impl StoreService {
    /// Creates the service in the context that the worker made for it.
    pub(super) fn new(context: SendWrapper<Rc<WorkerContext>>) -> Self {
        let inner = context.of_store.as_ref().map(Rc::clone);
        Self(inner.map_or(context, SendWrapper::new))
    }
}

#[tonic::async_trait]
impl Store for StoreService {
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let context = Rc::clone(&self.0);
        SendWrapper::new(get(context, request)).await.map(Response::new)
    }

    async fn multi_get(
        &self,
        request: Request<MultiGetRequest>,
    ) -> Result<Response<MultiGetResponse>, Status> {
        let context = Rc::clone(&self.0);
        SendWrapper::new(multi_get(context, request)).await.map(Response::new)
    }

    async fn set(&self, request: Request<SetRequest>) -> Result<Response<SetResponse>, Status> {
        let context = Rc::clone(&self.0);
        SendWrapper::new(set(context, request.into_inner())).await.map(Response::new)
    }

    async fn delete(
        &self,
        request: Request<DeleteRequest>,
    ) -> Result<Response<DeleteResponse>, Status> {
        let context = Rc::clone(&self.0);
        SendWrapper::new(delete(context, request.into_inner())).await.map(Response::new)
    }

    async fn execute(
        &self,
        request: Request<ExecuteRequest>,
    ) -> Result<Response<ExecuteResponse>, Status> {
        let context = Rc::clone(&self.0);
        SendWrapper::new(execute(context, request)).await.map(Response::new)
    }
}

async fn execute(
    context: Rc<WorkerContext>,
    mut request: Request<ExecuteRequest>,
) -> Result<ExecuteResponse, Status> {
    let budget = CallBudget::from_request(&context, &mut request)?;
    let parts = request.into_inner().parts;
    if parts.len() > PARTS_MAX {
        let given = parts.len();
        return Err(Status::invalid_argument(format!("{given} parts; at most {PARTS_MAX}")));
    }
    let parts = match session::execute(&context, parts, budget.clone().for_session()).await {
        Ok(parts) => parts,
        Err(NoAnswer::NoRoom) => return Err(budget.exceeded()),
        Err(error) => return Err(Status::invalid_argument(error.to_string())),
    };
    let values_bytes = parts.iter().map(Bytes::len).sum::<usize>();
    let answer = ExecuteResponse { parts };
    let around_bytes = answer.encoded_len() - values_bytes;
    // RESOURCE_EXHAUSTED is for calls that did nothing, because clients send them again.
    budget.reserve(around_bytes).await.map_err(|_| budget.exceeded())?;
    Ok(answer)
}

async fn get(
    context: Rc<WorkerContext>,
    mut request: Request<GetRequest>,
) -> Result<GetResponse, Status> {
    let budget = CallBudget::from_request(&context, &mut request)?;
    let issued = issue_get(&context, &request.get_ref().key)?;
    let item = found(issued.meta_item().await)?;
    budget.reserve(item.value.len()).await?;
    Ok(item)
}

/// Gets several items. All keys are requested before the first answer is awaited.
async fn multi_get(
    context: Rc<WorkerContext>,
    mut request: Request<MultiGetRequest>,
) -> Result<MultiGetResponse, Status> {
    let budget = CallBudget::from_request(&context, &mut request)?;
    let keys = &request.get_ref().keys;
    if keys.len() > KEYS_MAX {
        let asked = keys.len();
        return Err(Status::invalid_argument(format!("{asked} keys; at most {KEYS_MAX}")));
    }
    let issued = keys.iter().map(|key| issue_get(&context, key));
    let issued: Vec<_> = issued.collect::<Result<_, _>>()?;
    let mut items = Vec::with_capacity(issued.len());
    for issue in issued {
        let item = found(issue.meta_item().await)?;
        budget.reserve(item.value.len()).await?;
        items.push(item);
    }
    Ok(MultiGetResponse { items })
}

async fn set(context: Rc<WorkerContext>, request: SetRequest) -> Result<SetResponse, Status> {
    let key = key(&request.key)?;
    let mode = match (request.mode(), request.compare_cas) {
        (set_request::Mode::Set, _) => b'S',
        (set_request::Mode::Add, 0) => b'E',
        (set_request::Mode::Replace, 0) => b'R',
        (mode, cas) => {
            let mode = mode.as_str_name();
            return Err(Status::invalid_argument(format!(
                "compare_cas is {cas} with {mode}; it goes with MODE_SET only"
            )));
        }
    };
    let (value_bytes, max) = (request.value.len(), context.limits.item_bytes_max.0);
    let item_bytes = ITEM_OVERHEAD_BYTES + request.key.len() + value_bytes;
    if item_bytes as u64 > max {
        return Err(Status::invalid_argument(format!(
            "an item of {item_bytes} bytes with key and overhead; at most {max}"
        )));
    }
    let mut text = Vec::new();
    let line = request::meta_set(&mut text, &key, value_bytes)
        .flag(b'c')
        .number(b'F', u64::from(request.client_flags))
        .time(b'T', request.exptime_s)
        .mode(mode);
    match request.compare_cas {
        0 => line.end(),
        cas => line.number(b'C', cas).end(),
    }
    let Parse::Command { command: Command::MetaSet(set), .. } =
        protocol::parse(&text, &context.limits)
    else {
        return Err(misread(&text));
    };
    let traffic = Traffic::of_request(request.value.len());
    let issue = context.backend.meta_set(&set, Stored::Shared(request.value), traffic);
    let outcome = match issue.written().await.map_err(failed)? {
        Written::Stored { .. } => set_response::Outcome::Stored,
        Written::NotStored => set_response::Outcome::NotStored,
        Written::Exists => set_response::Outcome::Exists,
        // memcached gives the same answer to a replace.
        Written::NotFound if request.compare_cas == 0 => set_response::Outcome::NotStored,
        Written::NotFound => set_response::Outcome::NotFound,
    };
    Ok(SetResponse { outcome: outcome.into() })
}

async fn delete(
    context: Rc<WorkerContext>,
    request: DeleteRequest,
) -> Result<DeleteResponse, Status> {
    let key = key(&request.key)?;
    let mut text = Vec::new();
    request::meta_delete(&mut text, &key).end();
    let Parse::Command { command: Command::MetaDelete(meta), .. } =
        protocol::parse(&text, &context.limits)
    else {
        return Err(misread(&text));
    };
    let outcome = context.backend.meta_delete(&meta).meta_outcome().await.map_err(failed)?;
    Ok(DeleteResponse { found: outcome != MetaOutcome::NotFound })
}

fn issue_get(context: &WorkerContext, bytes: &[u8]) -> Result<Issue<Option<MetaItem>>, Status> {
    let key = key(bytes)?;
    let mut text = Vec::new();
    request::meta_get(&mut text, &key).flag(b'f').flag(b'c').flag(b'v').end();
    match protocol::parse(&text, &context.limits) {
        Parse::Command { command: Command::MetaGet(meta), .. } => {
            Ok(context.backend.meta_get(&meta, true, Traffic::Bulk, None))
        }
        _ => Err(misread(&text)),
    }
}

fn found(item: Outcome<Option<MetaItem>>) -> Result<GetResponse, Status> {
    Ok(match item.map_err(failed)? {
        None => GetResponse::default(),
        Some(MetaItem { facts, value }) => GetResponse {
            found: true,
            value: value.unwrap_or_default(),
            is_frame: false,
            client_flags: facts.client_flags,
            cas: facts.cas,
        },
    })
}

fn key(bytes: &[u8]) -> Result<MetaKey<'_>, Status> {
    MetaKey::new(bytes).map_err(|error| Status::invalid_argument(error.to_string()))
}

fn failed(failure: Failure) -> Status {
    match failure {
        Failure::Link(_) => Status::unavailable(failure.to_string()),
        Failure::OutOfMemory | Failure::NoRoom(_) => {
            Status::resource_exhausted(failure.to_string())
        }
        Failure::Line(_) => Status::failed_precondition(failure.to_string()),
    }
}

fn misread(line: &[u8]) -> Status {
    Status::internal(format!("our own line is misread: {}", line.escape_ascii()))
}

/// The memory limit for an answer. The call waits for memory, because a refusal would not undo what the call did.
#[derive(Clone)]
struct CallBudget {
    context: Rc<WorkerContext>,
    charge: Charge,
    /// The time on the worker's clock until which the call may wait and still send its answer.
    until: Option<Nanos>,
}

impl CallBudget {
    fn from_request<T>(
        context: &Rc<WorkerContext>,
        request: &mut Request<T>,
    ) -> Result<Self, Status> {
        let Call { charge, deadline, .. } = Call::from_request(request)?;
        let now = context.clock.now().0;
        let until = deadline.map(|Nanos(deadline)| {
            Nanos(now + deadline.saturating_sub(now) / ANSWER_SHARE * (ANSWER_SHARE - 1))
        });
        Ok(Self { context: Rc::clone(context), charge, until })
    }

    /// Takes memory for the answer. Returns `OUT_OF_RANGE` at once for bytes that can never be held here, and
    /// `RESOURCE_EXHAUSTED` if no memory becomes free.
    async fn reserve(&self, bytes: usize) -> Result<(), Status> {
        let clock = &self.context.clock;
        let longest = clock.now().0.saturating_add(Nanos::from(ROOM_WAIT_MAX).0);
        let until = self.until.map_or(longest, |until| until.0.min(longest));
        loop {
            match self.charge.grow(bytes) {
                Ok(()) => return Ok(()),
                Err(_) if !self.charge.may_ever_grow(bytes) => return Err(self.exceeded()),
                Err(status) if clock.now().0 >= until => return Err(status),
                Err(_) => tokio::time::sleep(ROOM_PAUSE).await,
            }
        }
    }

    fn exceeded(&self) -> Status {
        let max = self.charge.bytes_max();
        Status::out_of_range(format!(
            "no room for the answer: a connection's calls hold {max} bytes"
        ))
    }

    fn for_session(self) -> session::ReplyBudget {
        Box::new(move |bytes| {
            let budget = self.clone();
            Box::pin(async move { budget.reserve(bytes).await.is_ok() })
        })
    }
}

/// The most keys of one call, as in cache.proto.
const KEYS_MAX: usize = 100;

/// The most parts of a command: a line, its value and CR LF, and one to spare. A part costs more memory than its bytes.
const PARTS_MAX: usize = 4;

/// The share of a call's time that is left for its answer: one part in this many.
const ANSWER_SHARE: u64 = 4;

/// The longest wait for memory. If others hold theirs for this long, they will not release it soon.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(1);
const ROOM_PAUSE: Duration = Duration::from_millis(2);
