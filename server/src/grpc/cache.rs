//! The cache service over gRPC. It returns logical values, or frames to clients that can read them. It stores
//! and counts like sessions of memcached's protocol. A miss is a normal response; a store that does not
//! answer is an error status.

use std::rc::Rc;
use std::time::Instant;

use api::v1::cache_server::Cache;
use api::v1::set_request::Mode;
use api::v1::set_response::Outcome as Came;
use api::v1::{
    Codec, DeleteRequest, DeleteResponse, GetRequest, GetResponse, MultiGetRequest,
    MultiGetResponse, SetRequest, SetResponse,
};
use bytes::Bytes;
use protocol::command::{Command, MetaSet, StoreVerb};
use protocol::meta::{Meta, MetaFlags};
use protocol::reply::MetaOutcome;
use protocol::{MetaKey, Parse, request};
use send_wrapper::SendWrapper;
use smallvec::SmallVec;
use store::frame::Encoding;
use telemetry::timeline;
use tonic::{Request, Response, Status};
use units::limits::ITEM_OVERHEAD_BYTES;

use super::call::Call;
use crate::access::Rights;
use crate::backend::{
    Backend, Failure, GetIssue, Item, Items, MetaItem, Outcome, PlainGet, Written,
};
use crate::context::WorkerContext;
use crate::counters::{CommandKind, Commands};
use crate::errors::{self, FailedCommand};
use crate::upstream::{LinkFault, Traffic};
use crate::values::{Body, Logical, Reading};

/// The cache service of one worker thread.
pub(super) struct CacheService(SendWrapper<Rc<WorkerContext>>);

impl CacheService {
    pub(super) fn new(context: SendWrapper<Rc<WorkerContext>>) -> Self {
        Self(context)
    }
}

#[tonic::async_trait]
impl Cache for CacheService {
    async fn get(&self, mut request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let call = Call::from_request(&mut request)?;
        let GetRequest { key, accepted_codecs } = request.into_inner();
        call.caller.check("Cache/Get", Rights::READ, [&key[..]])?;
        let answer = async move {
            let reader = Reader { context: &self.0, call: &call, codecs: accepted_codecs };
            let mut found = reader.read(&[key]).await?;
            Ok(Response::new(found.pop().unwrap_or_default()))
        };
        SendWrapper::new(answer).await
    }

    async fn multi_get(
        &self,
        mut request: Request<MultiGetRequest>,
    ) -> Result<Response<MultiGetResponse>, Status> {
        let call = Call::from_request(&mut request)?;
        let MultiGetRequest { keys, accepted_codecs } = request.into_inner();
        if keys.len() > KEYS_MAX {
            let count = keys.len();
            return Err(Status::invalid_argument(format!("{count} keys; at most {KEYS_MAX}")));
        }
        call.caller.check("Cache/MultiGet", Rights::READ, keys.iter().map(|key| &key[..]))?;
        let answer = async move {
            let reader = Reader { context: &self.0, call: &call, codecs: accepted_codecs };
            let mut items = Vec::with_capacity(keys.len());
            for some in keys.chunks(KEYS_AT_ONCE) {
                items.extend(reader.read(some).await?);
            }
            Ok(Response::new(MultiGetResponse { items }))
        };
        SendWrapper::new(answer).await
    }

    async fn set(&self, mut request: Request<SetRequest>) -> Result<Response<SetResponse>, Status> {
        let call = Call::from_request(&mut request)?;
        let request = request.into_inner();
        call.caller.check("Cache/Set", Rights::WRITE, [&request.key[..]])?;
        SendWrapper::new(async move { set(&self.0, &call, request).await }).await
    }

    async fn delete(
        &self,
        mut request: Request<DeleteRequest>,
    ) -> Result<Response<DeleteResponse>, Status> {
        let call = Call::from_request(&mut request)?;
        let request = request.into_inner();
        call.caller.check("Cache/Delete", Rights::DELETE, [&request.key[..]])?;
        SendWrapper::new(async move { delete(&self.0, &request.key).await }).await
    }
}

/// Looks up keys for one call.
struct Reader<'a> {
    context: &'a WorkerContext,
    call: &'a Call,
    /// The numbers of the codecs that the client can decode. Unknown numbers are ignored.
    codecs: Vec<i32>,
}

impl Reader<'_> {
    async fn read(&self, keys: &[Bytes]) -> Result<Vec<GetResponse>, Status> {
        let since = Instant::now();
        timeline::set_key(|| keys.first().map_or(&[][..], |key| &key[..]));
        let keys: Vec<MetaKey<'_>> =
            keys.iter().map(|bytes| key(bytes)).collect::<Result<_, _>>()?;
        let refused = |failure| refused(self.context, FailedCommand::Get, &failure);
        let items = self.find(&keys).await.map_err(refused)?;
        let mut answers = Vec::with_capacity(items.len());
        for (key, item) in keys.iter().zip(items) {
            let answer = match item {
                Some(item) => self.answer(key, item).await?,
                None => None,
            };
            count_get(&self.context.counters.commands, answer.is_some());
            answers.push(answer.unwrap_or_default());
        }
        record(self.context, CommandKind::Get, since);
        Ok(answers)
    }

    /// Returns the items in the order of `keys`. Keys that are valid in a text line share one get; each other
    /// key needs an mg. All requests are sent before the first answer is awaited.
    async fn find(&self, keys: &[MetaKey<'_>]) -> Outcome<Items> {
        // A client that reads frames gets them as they are stored.
        let backend = match self.codecs.is_empty() {
            true => self.context.backend.clone(),
            false => self.context.backend.as_stored(),
        };
        let mut line = Vec::new();
        let plain = keys.iter().filter(|key| !key.is_binary());
        let plain = plain.filter_map(|key| protocol::Key::new(key.bytes()).ok());
        request::get(&mut line, plain, true);
        let get = match protocol::parse(&line, &self.context.limits) {
            Parse::Command { command: Command::Get(get), .. } => {
                Some((get, backend.get(&get, Traffic::Bulk, SmallVec::new())))
            }
            _ => None,
        };
        let binary = keys.iter().filter(|key| key.is_binary());
        let asked: SmallVec<[PlainGet; 1]> =
            binary.map(|key| self.ask_by_meta(&backend, key)).collect();
        let mut plain = match get {
            None => Items::new(),
            Some((get, GetIssue::Local(local))) => {
                get.keys.map(|key| local.get(&get, &key)).collect()
            }
            Some((get, GetIssue::Sent(sent))) => sent.items(&get).await?.all()?,
        }
        .into_iter();
        let mut asked = asked.into_iter();
        let mut items = Items::with_capacity(keys.len());
        for key in keys {
            let by_meta = if key.is_binary() { asked.next() } else { None };
            items.push(match by_meta {
                Some(read) => read.item().await?.map(of_meta),
                None => plain.next().flatten(),
            });
        }
        Ok(items)
    }

    fn ask_by_meta(&self, backend: &Backend, key: &MetaKey<'_>) -> PlainGet {
        let mut line = Vec::new();
        request::meta_get(&mut line, key).flag(b'v').flag(b'f').flag(b'c').end();
        match protocol::parse(&line, &self.context.limits) {
            Parse::Command { command: Command::MetaGet(meta), .. } => {
                backend.plain_meta_get(&meta, true, Traffic::Bulk, None)
            }
            _ => unreachable!("a line that was composed here"),
        }
    }

    /// Returns the response for an item, or `None` if its value is unreadable. The memory of the response
    /// (not of the stored form) is charged before the value is decompressed.
    async fn answer(&self, key: &MetaKey<'_>, item: Item) -> Result<Option<GetResponse>, Status> {
        let Item { value: stored, hot, client_flags, cas, version } = item;
        let values = &self.context.values;
        let answer =
            |value, is_frame| Some(GetResponse { found: true, value, is_frame, client_flags, cas });
        if !self.codecs.is_empty() && values.may_pass(&stored, |encoding| self.accepts(encoding)) {
            self.call.charge.grow(stored.len())?;
            return Ok(answer(stored, true));
        }
        let hot_bytes = hot.as_ref().map(|hot| hot.logical.len());
        let logical_bytes = hot_bytes.or_else(|| values.logical_bytes(&stored));
        self.call.charge.grow(logical_bytes.unwrap_or(0))?;
        let deadline = self.call.deadline;
        let reading = Reading { deadline, ..Reading::with_version(key.bytes(), version) };
        Ok(match values.read(reading, stored, hot).await {
            Logical::Value(value) => answer(value, false),
            Logical::Unreadable => None,
            Logical::Damaged => {
                self.context.remove_damaged(key).await;
                None
            }
        })
    }

    fn accepts(&self, encoding: Encoding) -> bool {
        let number = match encoding {
            Encoding::Stored => Codec::Stored.into(),
            Encoding::SameFilled => Codec::SameFilled.into(),
            Encoding::Compressed(codec) => codec.grpc_number(),
        };
        self.codecs.contains(&number)
    }
}

async fn set(
    context: &WorkerContext,
    call: &Call,
    request: SetRequest,
) -> Result<Response<SetResponse>, Status> {
    let since = Instant::now();
    timeline::set_key(|| &request.key);
    let verb = verb(&request)?;
    let key = key(&request.key)?;
    let value_bytes = request.value.len();
    let item_bytes = (ITEM_OVERHEAD_BYTES + request.key.len() + value_bytes) as u64;
    let item_bytes_max = context.limits.item_bytes_max.0;
    if item_bytes > item_bytes_max {
        context.counters.commands.store_too_large.up();
        return Err(Status::invalid_argument(format!(
            "the item has {item_bytes} bytes, of which {value_bytes} are its value; at most \
             {item_bytes_max} (store.item_bytes_max)"
        )));
    }
    // The message is already charged. The value's stored form is held in addition.
    call.charge.grow(value_bytes)?;
    context.counters.commands.cmd_set.up();
    let mut flags = MetaFlags::default();
    flags.client_flags = request.client_flags;
    flags.exptime_s = (request.exptime_s != 0).then_some(request.exptime_s);
    flags.compare = (verb == StoreVerb::Cas).then_some(request.compare_cas);
    flags.mode = match verb {
        StoreVerb::Add => Some(b'E'),
        StoreVerb::Replace => Some(b'R'),
        _ => None,
    };
    let stored = context.values.pack(key.bytes(), Body::Shared(request.value), call.deadline).await;
    let set = MetaSet { meta: Meta { key, flags }, verb, value_bytes };
    let traffic = Traffic::of_request(stored.as_slice().len());
    let written = context.backend.meta_set(&set, stored, traffic).written().await;
    if let (Ok(Written::NotStored), StoreVerb::Add) = (&written, verb) {
        context.examine_after_add(&set.meta.key).await;
    }
    if verb == StoreVerb::Cas {
        count_cas(&context.counters.commands, &written);
    }
    record(context, CommandKind::Set, since);
    let refused = |failure| refused(context, FailedCommand::Set, &failure);
    let outcome = match written.map_err(refused)? {
        Written::Stored { .. } => Came::Stored,
        Written::NotStored => Came::NotStored,
        Written::Exists => Came::Exists,
        Written::NotFound => Came::NotFound,
    };
    Ok(Response::new(SetResponse { outcome: outcome.into() }))
}

async fn delete(context: &WorkerContext, bytes: &[u8]) -> Result<Response<DeleteResponse>, Status> {
    let since = Instant::now();
    timeline::set_key(|| bytes);
    let meta = Meta { key: key(bytes)?, flags: MetaFlags::default() };
    let deleted = context.backend.meta_delete(&meta, Traffic::Interactive).meta_outcome().await;
    let refused = |failure| refused(context, FailedCommand::Delete, &failure);
    let outcome = deleted.map_err(refused)?;
    let found = outcome != MetaOutcome::NotFound;
    let commands = &context.counters.commands;
    if found {
        commands.delete_hits.up()
    } else {
        commands.delete_misses.up()
    }
    record(context, CommandKind::Other, since);
    Ok(Response::new(DeleteResponse { found }))
}

fn verb(request: &SetRequest) -> Result<StoreVerb, Status> {
    let bad = |what| Err(Status::invalid_argument(what));
    match (Mode::try_from(request.mode), request.compare_cas) {
        (Ok(Mode::Set), 0) => Ok(StoreVerb::Set),
        (Ok(Mode::Set), _) => Ok(StoreVerb::Cas),
        (Ok(Mode::Add), 0) => Ok(StoreVerb::Add),
        (Ok(Mode::Replace), 0) => Ok(StoreVerb::Replace),
        (Ok(_), cas) => bad(format!("compare_cas is {cas}; only MODE_SET takes one")),
        (Err(_), _) => bad(format!("mode is {}; valid are 0 to 2", request.mode)),
    }
}

fn key(bytes: &[u8]) -> Result<MetaKey<'_>, Status> {
    MetaKey::new(bytes).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Converts a failure of the store to a status.
pub(super) fn refused(
    context: &WorkerContext,
    command: FailedCommand,
    failure: &Failure,
) -> Status {
    let commands = &context.counters.commands;
    errors::count(&context.counters.errors, command, failure);
    match failure {
        Failure::OutOfMemory => {
            commands.store_no_memory.up();
            Status::resource_exhausted("the store has no memory for the item")
        }
        Failure::OverBudget(_) => {
            commands.store_no_memory.up();
            Status::resource_exhausted("no memory for the answer")
        }
        // The link has already counted this failure.
        Failure::Link(error) => match error.fault {
            LinkFault::TimedOut(_) => Status::deadline_exceeded(error.to_string()),
            _ => Status::unavailable(error.to_string()),
        },
        Failure::Line(line) => {
            commands.upstream_errors.up();
            let line = &line.text;
            let words = String::from_utf8_lossy(line).trim_end().to_owned();
            if line.starts_with(b"SERVER_ERROR out of memory") {
                Status::resource_exhausted(words)
            } else if line.starts_with(b"SERVER_ERROR object too large")
                || line.starts_with(b"CLIENT_ERROR")
            {
                Status::invalid_argument(words)
            } else {
                Status::unavailable(words)
            }
        }
    }
}

fn of_meta(item: MetaItem) -> Item {
    let MetaItem { facts, value, hot, version } = item;
    let value = value.unwrap_or_default();
    Item { value, hot, client_flags: facts.client_flags, cas: facts.cas, version }
}

fn count_get(commands: &Commands, found: bool) {
    commands.cmd_get.up();
    if found { commands.get_hits.up() } else { commands.get_misses.up() }
}

fn count_cas(commands: &Commands, written: &Outcome<Written>) {
    match written {
        Ok(Written::Stored { .. }) => commands.cas_hits.up(),
        Ok(Written::Exists) => commands.cas_badval.up(),
        Ok(Written::NotFound) => commands.cas_misses.up(),
        _ => {}
    }
}

fn record(context: &WorkerContext, kind: CommandKind, since: Instant) {
    context.counters.durations[kind as usize].record(since.elapsed().into());
}

/// The maximum number of keys in one call.
const KEYS_MAX: usize = 100;

/// The number of keys that are requested at once, which bounds the items held in memory.
const KEYS_AT_ONCE: usize = 16;
