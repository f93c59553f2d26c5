//! The store service over gRPC. It reads and writes stored values without compression or decompression. A
//! session executes the commands.

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
use super::caller::{Caller, denied};
use super::charge::Charge;
use crate::access::Rights;
use crate::backend::{Failure, MetaItem, PlainGet, Written};
use crate::context::WorkerContext;
use crate::session::{self, NoAnswer};
use crate::upstream::Traffic;
use crate::values::Stored;

/// The store service of one worker thread.
pub(super) struct StoreService(SendWrapper<Rc<WorkerContext>>);

impl StoreService {
    /// Creates the service with the context that the worker made for it.
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
        SendWrapper::new(set(context, request)).await.map(Response::new)
    }

    async fn delete(
        &self,
        request: Request<DeleteRequest>,
    ) -> Result<Response<DeleteResponse>, Status> {
        let context = Rc::clone(&self.0);
        SendWrapper::new(delete(context, request)).await.map(Response::new)
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
    let (budget, caller) = CallBudget::from_request(&context, &mut request)?;
    let parts = request.into_inner().parts;
    if parts.len() > PARTS_MAX {
        let given = parts.len();
        return Err(Status::invalid_argument(format!("{given} parts; at most {PARTS_MAX}")));
    }
    let parts = match session::execute(
        &context,
        caller.client(),
        parts,
        budget.clone().for_session(),
    )
    .await
    {
        Ok(parts) => parts,
        Err(NoAnswer::OverBudget) => return Err(budget.exceeded()),
        Err(NoAnswer::Denied(denial)) => return Err(denied(denial)),
        Err(error) => return Err(Status::invalid_argument(error.to_string())),
    };
    let values_bytes = parts.iter().map(Bytes::len).sum::<usize>();
    let answer = ExecuteResponse { parts };
    let around_bytes = answer.encoded_len() - values_bytes;
    // Clients retry after RESOURCE_EXHAUSTED, so it is returned only for calls without effect.
    budget.reserve(around_bytes).await.map_err(|_| budget.exceeded())?;
    Ok(answer)
}

async fn get(
    context: Rc<WorkerContext>,
    mut request: Request<GetRequest>,
) -> Result<GetResponse, Status> {
    let (budget, caller) = CallBudget::from_request(&context, &mut request)?;
    caller.check("Store/Get", Rights::READ, [&request.get_ref().key[..]])?;
    let key = key(&request.get_ref().key)?;
    let issued = issue_get(&context, &key)?;
    let item = found(issued).await?;
    budget.reserve(item.value.len()).await?;
    Ok(item)
}

/// Gets several items. All keys are requested before the first answer is awaited.
async fn multi_get(
    context: Rc<WorkerContext>,
    mut request: Request<MultiGetRequest>,
) -> Result<MultiGetResponse, Status> {
    let (budget, caller) = CallBudget::from_request(&context, &mut request)?;
    let keys = &request.get_ref().keys;
    if keys.len() > KEYS_MAX {
        let asked = keys.len();
        return Err(Status::invalid_argument(format!("{asked} keys; at most {KEYS_MAX}")));
    }
    caller.check("Store/MultiGet", Rights::READ, keys.iter().map(|key| &key[..]))?;
    let keys: Vec<MetaKey<'_>> = keys.iter().map(|bytes| key(bytes)).collect::<Result<_, _>>()?;
    let issued = keys.iter().map(|key| issue_get(&context, key));
    let issued: Vec<_> = issued.collect::<Result<_, _>>()?;
    let mut items = Vec::with_capacity(issued.len());
    for read in issued {
        let item = found(read).await?;
        budget.reserve(item.value.len()).await?;
        items.push(item);
    }
    Ok(MultiGetResponse { items })
}

async fn set(
    context: Rc<WorkerContext>,
    mut request: Request<SetRequest>,
) -> Result<SetResponse, Status> {
    let Call { caller, .. } = Call::from_request(&mut request)?;
    let request = request.into_inner();
    caller.check("Store/Set", Rights::WRITE, [&request.key[..]])?;
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
        // memcached answers a replace in the same way.
        Written::NotFound if request.compare_cas == 0 => set_response::Outcome::NotStored,
        Written::NotFound => set_response::Outcome::NotFound,
    };
    Ok(SetResponse { outcome: outcome.into() })
}

async fn delete(
    context: Rc<WorkerContext>,
    mut request: Request<DeleteRequest>,
) -> Result<DeleteResponse, Status> {
    let Call { caller, .. } = Call::from_request(&mut request)?;
    let request = request.into_inner();
    caller.check("Store/Delete", Rights::DELETE, [&request.key[..]])?;
    let key = key(&request.key)?;
    let mut text = Vec::new();
    request::meta_delete(&mut text, &key).end();
    let Parse::Command { command: Command::MetaDelete(meta), .. } =
        protocol::parse(&text, &context.limits)
    else {
        return Err(misread(&text));
    };
    let outcome = context
        .backend
        .meta_delete(&meta, Traffic::Interactive)
        .meta_outcome()
        .await
        .map_err(failed)?;
    Ok(DeleteResponse { found: outcome != MetaOutcome::NotFound })
}

fn issue_get(context: &WorkerContext, key: &MetaKey<'_>) -> Result<PlainGet, Status> {
    let mut text = Vec::new();
    request::meta_get(&mut text, key).flag(b'f').flag(b'c').flag(b'v').end();
    match protocol::parse(&text, &context.limits) {
        Parse::Command { command: Command::MetaGet(meta), .. } => {
            Ok(context.backend.plain_meta_get(&meta, true, Traffic::Bulk, None))
        }
        _ => Err(misread(&text)),
    }
}

/// Returns the answer for an item.
async fn found(read: PlainGet) -> Result<GetResponse, Status> {
    let Some(MetaItem { facts, value, .. }) = read.item().await.map_err(failed)? else {
        return Ok(GetResponse::default());
    };
    Ok(GetResponse {
        found: true,
        value: value.unwrap_or_default(),
        is_frame: false,
        client_flags: facts.client_flags,
        cas: facts.cas,
    })
}

fn key(bytes: &[u8]) -> Result<MetaKey<'_>, Status> {
    MetaKey::new(bytes).map_err(|error| Status::invalid_argument(error.to_string()))
}

fn failed(failure: Failure) -> Status {
    match failure {
        Failure::Link(_) => Status::unavailable(failure.to_string()),
        Failure::OutOfMemory | Failure::OverBudget(_) => {
            Status::resource_exhausted(failure.to_string())
        }
        Failure::Line(_) => Status::failed_precondition(failure.to_string()),
    }
}

fn misread(line: &[u8]) -> Status {
    Status::internal(format!("our own line is misread: {}", line.escape_ascii()))
}

/// The memory budget for a response. A call waits for memory, because a refusal would not undo the call.
#[derive(Clone)]
struct CallBudget {
    context: Rc<WorkerContext>,
    charge: Charge,
    /// The latest time to which the call may wait and still answer by its deadline, on the worker's clock.
    until: Option<Nanos>,
}

impl CallBudget {
    fn from_request<T>(
        context: &Rc<WorkerContext>,
        request: &mut Request<T>,
    ) -> Result<(Self, Caller), Status> {
        let Call { charge, deadline, caller, .. } = Call::from_request(request)?;
        let now = context.clock.now().0;
        let until = deadline.map(|Nanos(deadline)| {
            Nanos(now + deadline.saturating_sub(now) / ANSWER_SHARE * (ANSWER_SHARE - 1))
        });
        Ok((Self { context: Rc::clone(context), charge, until }, caller))
    }

    /// Takes memory for the response. Returns `OUT_OF_RANGE` at once if the connection's limit is too low for
    /// `bytes`, or `RESOURCE_EXHAUSTED` if no memory becomes free in time.
    async fn reserve(&self, bytes: usize) -> Result<(), Status> {
        let clock = &self.context.clock;
        let longest = clock.now().0.saturating_add(Nanos::from(BUDGET_WAIT_MAX).0);
        let until = self.until.map_or(longest, |until| until.0.min(longest));
        loop {
            match self.charge.grow(bytes) {
                Ok(()) => return Ok(()),
                Err(_) if !self.charge.may_ever_grow(bytes) => return Err(self.exceeded()),
                Err(status) if clock.now().0 >= until => return Err(status),
                Err(_) => tokio::time::sleep(BUDGET_RETRY_AFTER).await,
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

/// The maximum number of keys in one call, as in cache.proto.
const KEYS_MAX: usize = 100;

/// The maximum number of parts of a command, which bounds their overhead: line, value, CR LF, plus one.
const PARTS_MAX: usize = 4;

/// The denominator of the share of a call's time that is reserved for sending the response: 1 in 4.
const ANSWER_SHARE: u64 = 4;

/// The longest wait for memory.
const BUDGET_WAIT_MAX: Duration = Duration::from_secs(1);
const BUDGET_RETRY_AFTER: Duration = Duration::from_millis(2);
