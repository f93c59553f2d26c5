//! A runtime in tokio with an executor of traces. Its peer encrypts and decrypts by itself and gives the answers that
//! the test sets.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use device::{Codec, Device, Dialect, Level, Pool};
use policy::Reason;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use runtime::trace::jobs::{Given, Made, Maker, given};
use runtime::trace::{
    Answer, Counted, Origin, PortError, SameCore, Session, Tcp, TraceConfig, TraceInput, Traces,
};
use runtime::{RuntimeConfig, TokioRuntime};
use tokio::task::LocalSet;
use trace::Catalog;
use units::{ByteCount, Nanos, Op, SystemClock};

use crate::common::{config, software};

pub(crate) struct Rig {
    pub(crate) runtime: TokioRuntime,
    pub(crate) traces: Traces,
    pub(crate) peer: Peer,
    session: Rc<Session>,
}

/// Runs the body with these traces, over software and optionally another device to which every job is offered.
pub(crate) fn with<T, F: Future<Output = T>>(
    catalog: Catalog,
    other: Option<Arc<dyn Device>>,
    change: impl FnOnce(&mut TraceConfig),
    body: impl FnOnce(Rig) -> F,
) -> T {
    let mut runtime = config(devices(other), Arc::new(SystemClock::new()));
    runtime.job_timeout = Nanos::secs(60);
    with_runtime(runtime, catalog, change, body)
}

pub(crate) fn devices(other: Option<Arc<dyn Device>>) -> Vec<Arc<dyn Device>> {
    [software()].into_iter().chain(other).collect()
}

/// Runs the body with these traces on the given runtime configuration, such as one with the test's clock.
pub(crate) fn with_runtime<T, F: Future<Output = T>>(
    runtime: RuntimeConfig,
    catalog: Catalog,
    change: impl FnOnce(&mut TraceConfig),
    body: impl FnOnce(Rig) -> F,
) -> T {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
    LocalSet::new().block_on(&executor.expect("tokio starts"), async {
        let runtime = TokioRuntime::start(runtime).expect("the devices open");
        let peer = Peer::default();
        let mut config = TraceConfig::new(catalog);
        config.tcp = Box::new(peer.clone());
        config.load_balance = Box::new(SameCore(3));
        change(&mut config);
        let traces = Traces::in_tokio(&runtime, config);
        let session = Session::new(&OURS, &THEIRS);
        body(Rig { runtime, traces, peer, session }).await
    })
}

impl Rig {
    pub(crate) fn input(&self, payload: impl Into<Bytes>) -> TraceInput {
        TraceInput::new(payload).session(&self.session)
    }

    /// Returns the result of the op's job for the payload, in software and without a trace.
    pub(crate) async fn by_job(&self, op: Op, payload: &[u8]) -> Bytes {
        let maker = Maker {
            dialect: Dialect::new(Codec::Deflate),
            level: Level::Fast,
            pool: Pool::heap(ByteCount(0)),
            payload_bytes_max: 1 << 20,
        };
        let payload = Bytes::copy_from_slice(payload);
        let (job, frame) = match maker.make(op, &payload, None).expect("it fits") {
            Some(Made::Job(job)) => (job, None),
            Some(Made::Stream(job, frame)) => (job, Some(frame)),
            Some(Made::Payload(payload)) => return payload,
            None => panic!("{op} is no job"),
        };
        let finished = self.runtime.run_in_software(job, Reason::Configured).await;
        match given(finished, frame).expect("software does it") {
            Given::Payload(payload) => payload,
            Given::Checksum(sum) => Bytes::copy_from_slice(&sum.to_le_bytes()),
        }
    }

    pub(crate) async fn compressed(&self, payload: &[u8]) -> Bytes {
        self.by_job(Op::Compress, payload).await
    }

    /// Turns until no trace is in flight.
    pub(crate) async fn settled(&self) {
        until("all traces end", || self.traces.live() == 0).await;
    }
}

/// Returns how often each of these events was counted.
pub(crate) fn counted<const N: usize>(traces: &Traces, each: [Counted; N]) -> [u64; N] {
    let metrics = traces.metrics();
    each.map(|what| metrics.read(what))
}

/// Returns the number of traces that failed.
pub(crate) fn failed(traces: &Traces) -> u64 {
    sum(traces, |what| matches!(what, Counted::Failed(_)))
}

/// Returns the number of jobs that went to software because a device failed, lost or kept them, or because no device
/// had space.
pub(crate) fn fallbacks(traces: &Traces) -> u64 {
    sum(traces, |what| matches!(what, Counted::Fallback(_)))
}

/// Returns the number of ops that ran.
pub(crate) fn steps(traces: &Traces) -> u64 {
    sum(traces, |what| matches!(what, Counted::Step(..)))
}

fn sum(traces: &Traces, of: fn(&Counted) -> bool) -> u64 {
    let metrics = traces.metrics();
    Counted::all().filter(of).map(|what| metrics.read(what)).sum()
}

/// Yields until the condition holds. Panics after a time that is long enough for a busy machine.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::task::yield_now().await;
    }
}

const WAIT_MAX: Duration = Duration::from_secs(60);

/// The tcp port and the peer behind it.
#[derive(Clone, Default)]
pub(crate) struct Peer(Rc<RefCell<PeerState>>);

#[derive(Default)]
struct PeerState {
    /// The messages that arrived, still encrypted, and the traces that sent them.
    sent: Vec<(String, Bytes)>,
    replies: VecDeque<Reply>,
    held: Vec<Answer>,
    sealed: u64,
}

pub(crate) enum Reply {
    /// The peer encrypts this payload and answers before the send returns, with these fields.
    Now(Bytes, Vec<(String, u32)>),
    /// The test answers later.
    Hold,
    Hang,
    Refuse,
}

impl Peer {
    pub(crate) fn will(&self, reply: Reply) {
        self.0.borrow_mut().replies.push_back(reply);
    }

    pub(crate) fn will_answer(&self, payload: impl Into<Bytes>) {
        self.will(Reply::Now(payload.into(), Vec::new()));
    }

    pub(crate) fn held(&self) -> Answer {
        self.0.borrow_mut().held.pop().expect("a send was held")
    }

    /// Encrypts the payload.
    pub(crate) fn seal(&self, payload: &[u8]) -> Bytes {
        let mut state = self.0.borrow_mut();
        state.sealed += 1;
        let mut nonce = [0xAA; 12];
        nonce[4..].copy_from_slice(&state.sealed.to_le_bytes());
        let mut sealed = payload.to_vec();
        let key = key(&THEIRS);
        let unique = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(unique, Aad::empty(), &mut sealed).expect("it fits");
        [&nonce[..], &sealed].concat().into()
    }

    /// Returns the messages that the peer received since the last call, decrypted.
    pub(crate) fn received(&self) -> Vec<(String, Bytes)> {
        let sent = std::mem::take(&mut self.0.borrow_mut().sent);
        sent.into_iter().map(|(trace, sealed)| (trace, open(&sealed))).collect()
    }
}

impl Tcp for Peer {
    fn send(
        &mut self,
        origin: &Origin<'_>,
        payload: Bytes,
        answer: Option<Answer>,
    ) -> Result<(), PortError> {
        let reply = match &answer {
            Some(_) => self.0.borrow_mut().replies.pop_front().unwrap_or(Reply::Hang),
            None => Reply::Hold,
        };
        match (reply, answer) {
            (Reply::Refuse, _) => return Err(PortError("the line is cut".to_owned())),
            (Reply::Now(payload, fields), Some(answer)) => answer.give(self.seal(&payload), fields),
            (Reply::Hang, answer) => drop(answer),
            (_, answer) => self.0.borrow_mut().held.extend(answer),
        }
        self.0.borrow_mut().sent.push((origin.trace.to_owned(), payload));
        Ok(())
    }
}

fn open(sealed: &[u8]) -> Bytes {
    let (nonce, text) = sealed.split_first_chunk().expect("a nonce comes first");
    let mut text = text.to_vec();
    let nonce = Nonce::assume_unique_for_key(*nonce);
    key(&OURS).open_in_place(nonce, Aad::empty(), &mut text).expect("encrypted by us");
    text.truncate(text.len() - AES_256_GCM.tag_len());
    text.into()
}

fn key(bytes: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).expect("the length is right"))
}

const OURS: [u8; 32] = [1; 32];
const THEIRS: [u8; 32] = [2; 32];
