//! The peers that the functions of the example service ask: the cache of this process, a database, another service
//! and a web server. Elsewhere they would be other machines. Here they answer on the service's worker, with a runtime
//! of their own that has only software, so that they have no part in the counts of the service's programs and
//! devices.
//!
//! Only the cache keeps anything. The others make their answers from what they are asked.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use device::{Dialect, Level, Pool, Software};
use policy::{AlwaysSoftware, Reason};
use ring::rand::{SecureRandom, SystemRandom};
use runtime::trace::jobs::Maker;
use runtime::trace::kernels::{self, Documents};
use runtime::trace::value::{Kind, Value};
use runtime::trace::{Answer, Cause, Malformed, Session, TraceInput, TraceLimits, in_software};
use runtime::{Finished, RuntimeConfig, StartError, TokioRuntime};
use trace::Base;
use units::{Clock, Op};

use super::{COMPRESS_FROM_BYTES, POOL_RETAINED_MAX};
use crate::access::{Admission, Client, Rights};
use crate::budget::Permit;
use crate::context::WorkerContext;
use crate::session;

/// The peer that a message is for, which follows from the program that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    CacheRead,
    CacheWrite,
    /// The cache is to keep what the database has answered, unless it has another value by now.
    CacheFill,
    Database,
    Service,
    Web,
}

/// The caller for whom the service asks: what it may do in the cache, and the worker of its connection.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) client: Option<Rc<Client>>,
    pub(super) context: Rc<WorkerContext>,
}

/// The peers of one worker.
pub(super) struct Peers {
    /// The keys of the service's side, for the programs that ask peers.
    session: Rc<Session>,
    /// What the peers encrypt and decrypt with.
    theirs: TraceInput,
    runtime: TokioRuntime,
    maker: Maker,
    /// The time after which no program waits for an answer.
    answer_within: Duration,
}

/// Why a peer does not answer.
#[derive(Debug, thiserror::Error)]
enum NoGiven {
    #[error(transparent)]
    Cause(#[from] Cause),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the cache refuses, or cannot do it now")]
    Refused,
}

/// An answer: its payload, and the fields that come with it.
type Given = (Bytes, Vec<(String, u32)>);

impl Asked {
    /// Returns the peer of the messages that a program sends, or none if it asks nobody.
    pub(super) fn by(program: &str) -> Option<Self> {
        Some(match program {
            "T4" => Self::CacheRead,
            "T5" => Self::Database,
            "T6" => Self::CacheFill,
            "T8" => Self::CacheWrite,
            "T9" => Self::Service,
            "T11" => Self::Web,
            _ => return None,
        })
    }
}

impl Peers {
    /// # Errors
    /// Software cannot be opened.
    pub(super) fn new(
        dialect: Dialect,
        limits: &TraceLimits,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        let [seals, opens] = [(); 2].map(|()| {
            let mut key = [0; device::cipher::KEY_BYTES];
            SystemRandom::new().fill(&mut key).expect("the system has random numbers");
            key
        });
        let runtime = TokioRuntime::start(RuntimeConfig::new(
            vec![Arc::new(Software::default())],
            Arc::new(AlwaysSoftware),
            Arc::clone(clock),
        ))?;
        let pool = Pool::heap(POOL_RETAINED_MAX);
        Ok(Self {
            session: Session::new(&seals, &opens),
            theirs: TraceInput::new(Bytes::new()).session(&Session::new(&opens, &seals)),
            runtime,
            maker: Maker {
                dialect,
                level: Level::Fast,
                pool,
                payload_bytes_max: limits.payload_bytes_max,
            },
            answer_within: Duration::from_nanos(limits.answer_within.0),
        })
    }

    pub(super) fn session(&self) -> &Rc<Session> {
        &self.session
    }

    /// Answers a message. If it cannot be read, or the answer is too long or too late, the program learns that the
    /// peer is gone.
    pub(super) async fn answer(
        self: Rc<Self>,
        asked: Asked,
        message: Bytes,
        answer: Answer,
        caller: Caller,
    ) {
        // The port may not do more than send. The rest has turns of its own.
        tokio::task::yield_now().await;
        let given = async {
            match asked {
                Asked::Service => self.echoed(message).await,
                Asked::Web => self.page(message).await,
                Asked::CacheRead => self.read(message, &caller).await,
                Asked::CacheWrite => self.write(message, &caller, "set").await,
                Asked::CacheFill => self.fill(message, &caller).await,
                Asked::Database => self.row(message).await,
            }
        };
        match tokio::time::timeout(self.answer_within, given).await {
            Ok(Ok((payload, fields))) => answer.give(payload, fields),
            Ok(Err(error)) => tracing::debug!(%error, "a peer of programs does not answer"),
            Err(_) => tracing::debug!("a peer of programs takes too long"),
        }
    }

    /// Another service: it answers with the arguments.
    async fn echoed(&self, message: Bytes) -> Result<Given, NoGiven> {
        let run = |job| self.run(job);
        let mut input = TraceInput { payload: message, ..self.theirs.clone() };
        let (function, arguments) = in_software::receive(run, &self.maker, &input).await?;
        let compresses = arguments.len() >= COMPRESS_FROM_BYTES;
        (input.function, input.payload) = (function, arguments);
        let answer = in_software::respond(run, &self.maker, &input, compresses).await?;
        Ok((answer, Vec::new()))
    }

    /// A web server: it has a page for every request.
    async fn page(&self, message: Bytes) -> Result<Given, NoGiven> {
        let mut request = self.step(Op::Decrypt, message).await?;
        let bytes_max = self.maker.payload_bytes_max;
        if matches!(store::inspect(&request, bytes_max), store::Inspected::Frame { .. }) {
            request = self.step(Op::Decompress, request).await?;
        }
        let asked = String::from_utf8_lossy(&request);
        let path = asked.split_whitespace().nth(1).unwrap_or("/");
        let line = format!("<li>This page is at {path}, and was made for this request.</li>\n");
        let page = format!("<html><ul>\n{}</ul></html>\n", line.repeat(PAGE_LINES));
        let page = self.step(Op::Compress, page.into()).await?;
        Ok((self.step(Op::Encrypt, page).await?, vec![("compressed".to_owned(), 1)]))
    }

    /// The cache's answer to a read.
    async fn read(&self, message: Bytes, caller: &Caller) -> Result<Given, NoGiven> {
        let request = self.document(message).await?;
        let key = text_of(&request, "key").ok_or(NoGiven::Refused)?;
        let got = execute(caller, vec![format!("get {key}\r\n").into()]).await;
        let got = got.ok_or(NoGiven::Refused)?;
        let answer = if got == MISS {
            // What the database is asked is this answer, so it has the key.
            with(request, &[("hit", false)]).to_protobuf().into()
        } else {
            let value = value_of(&got).ok_or(NoGiven::Refused)?;
            self.packed(item(&key, value), &[("hit", true)]).await?
        };
        self.sealed(answer).await
    }

    /// The cache's answer to what is to fill it. Who may only read fills nothing.
    async fn fill(&self, message: Bytes, caller: &Caller) -> Result<Given, NoGiven> {
        let may_write = caller.client.as_ref().is_none_or(|client| client.may(Rights::WRITE));
        if may_write {
            return self.write(message, caller, "add").await;
        }
        self.acknowledged(true).await
    }

    /// The cache's answer to a write.
    async fn write(
        &self,
        message: Bytes,
        caller: &Caller,
        command: &str,
    ) -> Result<Given, NoGiven> {
        let item = self.document(message).await?;
        let parts = text_of(&item, "key").zip(item.get("value")).map(|(key, value)| {
            let value = bytes_of(value);
            let head = format!("{command} {key} 0 0 {}\r\n", value.len()).into();
            vec![head, value, Bytes::from_static(b"\r\n")]
        });
        drop(item);
        let reply = match parts {
            Some(parts) => execute(caller, parts).await,
            None => None,
        };
        // What has come first stays in the cache.
        let is_stored =
            reply.is_some_and(|reply| reply == "STORED\r\n" || reply == "NOT_STORED\r\n");
        self.acknowledged(is_stored).await
    }

    /// The answer to a write: an exception, unless all is well.
    async fn acknowledged(&self, is_well: bool) -> Result<Given, NoGiven> {
        let answer = with(Value::map([]), &[("exception", !is_well)]);
        self.sealed(answer.to_protobuf().into()).await
    }

    /// The database: it has a row for every key, except for those that begin with [`NO_ROW`].
    async fn row(&self, message: Bytes) -> Result<Given, NoGiven> {
        let request = self.document(message).await?;
        let key = text_of(&request, "key").filter(|key| !key.starts_with(NO_ROW));
        let Some(key) = key else {
            let answer = with(Value::map([]), &[("found", false)]);
            return self.sealed(answer.to_protobuf().into()).await;
        };
        // Rows have different lengths, so that some of them are compressed.
        let sentences = 1 + key.bytes().map(usize::from).sum::<usize>() % ROW_SENTENCES_MAX;
        let row = format!("This row of {key} is from the database. ").repeat(sentences);
        let compresses = row.len() >= COMPRESS_FROM_BYTES;
        let item = item(&key, row.into());
        let flags = [("found", true), ("cache-compressed", compresses)];
        let answer = self.packed(item, &flags).await?;
        self.sealed(answer).await
    }

    /// Returns a message of the document with these flags. A long document is compressed.
    async fn packed(&self, document: Value, flags: &[(&str, bool)]) -> Result<Bytes, NoGiven> {
        let json = Bytes::from(document.to_json()?);
        if json.len() < COMPRESS_FROM_BYTES {
            return Ok(with(document, flags).to_protobuf().into());
        }
        let frame = self.step(Op::Compress, json).await?;
        let packed = with(Value::map([(kernels::DATA, Kind::Data(frame))]), flags);
        Ok(with(packed, &[(kernels::COMPRESSED, true)]).to_protobuf().into())
    }

    async fn sealed(&self, message: Bytes) -> Result<Given, NoGiven> {
        Ok((self.step(Op::Encrypt, message).await?, Vec::new()))
    }

    /// Returns the document of a message, decompressed if it is compressed.
    async fn document(&self, message: Bytes) -> Result<Value, NoGiven> {
        let message = self.step(Op::Decrypt, message).await?;
        let json = kernels::deserialize(&Documents, &message)?;
        let document = Value::from_json(&json)?;
        if document.get(kernels::COMPRESSED) != Some(&Value::new(Kind::Flag(true))) {
            return Ok(document);
        }
        let frame = kernels::transform(&Documents, &json, Base::Json, Base::String)?;
        let json = self.step(Op::Decompress, frame).await?;
        Ok(Value::from_json(&json)?)
    }

    async fn step(&self, op: Op, payload: Bytes) -> Result<Bytes, Cause> {
        in_software::step(&|job| self.run(job), &self.maker, op, &payload, &self.theirs).await
    }

    async fn run(&self, job: Box<device::Job>) -> Finished {
        self.runtime.run_in_software(job, Reason::Configured).await
    }
}

/// Executes a command of the text protocol on the cache of this process, with the caller's rights and quotas. Returns
/// the reply, or none if there is no memory for it or the caller may not.
async fn execute(caller: &Caller, parts: Vec<Bytes>) -> Option<Bytes> {
    let context = &caller.context;
    if let Some(client) = &caller.client {
        match client.admit() {
            Admission::Now => {}
            Admission::After(wait) => tokio::time::sleep(wait).await,
            Admission::OverQuota => return None,
        }
    }
    let permits = Rc::<RefCell<Vec<Permit>>>::default();
    let reserve = {
        let (context, permits) = (Rc::clone(context), Rc::clone(&permits));
        move |bytes| {
            let (context, permits) = (Rc::clone(&context), Rc::clone(&permits));
            let reserved = async move {
                // The caller's connection holds its request already. The peer's time limits the wait.
                let permit = context.budget.grow(bytes as u64).await;
                permits.borrow_mut().push(permit);
                true
            };
            Box::pin(reserved) as std::pin::Pin<Box<dyn Future<Output = bool>>>
        }
    };
    let asked_bytes: usize = parts.iter().map(Bytes::len).sum();
    let client = caller.client.clone();
    let reply = session::execute(context, client, parts, Box::new(reserve)).await;
    match reply {
        Ok(parts) => {
            let reply = Bytes::from(parts.concat());
            caller.client.iter().for_each(|client| client.spend_bytes(asked_bytes + reply.len()));
            Some(reply)
        }
        Err(error) => {
            tracing::debug!(%error, "the cache does not answer a program");
            None
        }
    }
}

/// Returns the value of a reply to a get of one key, or none for a miss.
fn value_of(reply: &[u8]) -> Option<Bytes> {
    let end = reply.windows(2).position(|two| two == b"\r\n")?;
    let head = str::from_utf8(&reply[..end]).ok()?;
    let mut words = head.strip_prefix("VALUE ")?.split(' ');
    let bytes: usize = words.nth(2)?.parse().ok()?;
    Some(Bytes::copy_from_slice(reply.get(end + 2..end + 2 + bytes)?))
}

/// Returns the document of an item.
fn item(key: &str, value: Bytes) -> Value {
    let value = match str::from_utf8(&value) {
        Ok(text) => Kind::Text(text.to_owned()),
        Err(_) => Kind::Data(value),
    };
    Value::map([("key", Kind::Text(key.to_owned())), ("value", value)])
}

/// Returns the bytes that the cache keeps of a value: a text as it is, and the JSON of anything else.
fn bytes_of(value: &Value) -> Bytes {
    match &value.kind {
        Some(Kind::Text(text)) => text.clone().into(),
        Some(Kind::Data(data)) => data.clone(),
        _ => value.to_json().unwrap_or_default().into(),
    }
}

fn text_of(document: &Value, name: &str) -> Option<String> {
    match &document.get(name)?.kind {
        Some(Kind::Text(text)) => Some(text.clone()),
        _ => None,
    }
}

/// Adds flags to a map.
fn with(mut document: Value, flags: &[(&str, bool)]) -> Value {
    if let Some(Kind::Map(map)) = &mut document.kind {
        for (name, flag) in flags {
            let flag = Value::map([(name, Kind::Flag(*flag))]).kind;
            let Some(Kind::Map(one)) = flag else { continue };
            map.members.extend(one.members);
        }
    }
    document
}

/// The reply to a get of a key that the cache does not have.
const MISS: &str = "END\r\n";
/// The beginning of keys that the database does not have.
const NO_ROW: &str = "none:";
/// The most sentences of a row. A sentence has at least 37 bytes.
const ROW_SENTENCES_MAX: usize = 64;
/// The lines of a page.
const PAGE_LINES: usize = 32;
