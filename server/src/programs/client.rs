//! A client of the service. It runs the traces T9 for requests and T10 for answers, in software. Answers
//! arrive in the order of requests, so each belongs to the oldest pending request.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use device::Software;
use policy::AlwaysSoftware;
use runtime::trace::{
    Answer, Origin, PortError, Session, Tcp, TraceConfig, TraceError, TraceInput, Traces,
};
use runtime::{RuntimeConfig, TokioRuntime};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use units::{Nanos, SystemClock};

use super::wire;

/// A connection to the service. It must be used within a `LocalSet`.
pub struct ProgramClient {
    traces: Traces,
    session: Rc<Session>,
    _tasks: JoinSet<()>,
}

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The request could not be composed or sent, or was not answered. The error contains the whole input.
    #[error(transparent)]
    Trace(#[from] Box<TraceError>),
    /// The service reports that the function failed.
    #[error("the service answered with an exception")]
    Exception,
}

impl ProgramClient {
    /// Connects to the service at `address`, which is HOST:PORT, with these credentials. Each call then waits for its
    /// answer for at most `answer_within`.
    ///
    /// # Errors
    /// Returns the system's error, or that of TLS. The service closes the connection if it does not know the caller.
    pub async fn connect(
        address: &str,
        credentials: &tls::Client,
        answer_within: Nanos,
    ) -> io::Result<Self> {
        let stream = credentials.connect(address, tls::Application::Plain).await?;
        let session = wire::caller_session(&stream)?;
        let (incoming, outgoing) = tokio::io::split(stream);
        let (out, queue) = mpsc::channel(OUT_MAX);
        let line = Line { out, answers: Rc::new(RefCell::new(Some(VecDeque::new()))) };
        let runtime = TokioRuntime::start(RuntimeConfig::new(
            vec![Arc::new(Software::default())],
            Arc::new(AlwaysSoftware),
            Arc::new(SystemClock::new()),
        ));
        let mut config = TraceConfig::new(trace::accelflow());
        config.limits.answer_within = answer_within;
        config.tcp = Box::new(line.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn_local(listen(incoming, config.limits.payload_bytes_max, line));
        tasks.spawn_local(write(outgoing, queue));
        let traces = Traces::in_tokio(&runtime.map_err(io::Error::other)?, config);
        Ok(Self { traces, session, _tasks: tasks })
    }

    /// Calls `function` with `arguments` in JSON. If `compress` is set, the request is compressed.
    ///
    /// # Errors
    /// Returns a [`CallError`].
    pub async fn call(
        &self,
        function: &str,
        arguments: impl Into<Bytes>,
        compress: bool,
    ) -> Result<Bytes, CallError> {
        let input = TraceInput::new(arguments)
            .function(function)
            .session(&self.session)
            .field("to-compress", u32::from(compress));
        let ended = self.traces.run_trace("T9", input).await?;
        // If the function failed, T10 ends with an exception message.
        ended.format.bare().map(|_| ended.payload).ok_or(CallError::Exception)
    }
}

/// The TCP port of the client's traces.
#[derive(Clone)]
struct Line {
    out: mpsc::Sender<Bytes>,
    /// The calls that wait for answers, in order. An entry is `None` if its caller no longer waits. The queue
    /// is `None` after the client was closed.
    answers: Rc<RefCell<Option<VecDeque<Option<Answer>>>>>,
}

impl Tcp for Line {
    fn send(
        &mut self,
        _: &Origin<'_>,
        payload: Bytes,
        answer: Option<Answer>,
    ) -> Result<(), PortError> {
        let refused = |why: &str| PortError(why.to_owned());
        let mut answers = self.answers.borrow_mut();
        let answers = answers.as_mut().ok_or_else(|| refused("the connection is closed"))?;
        if answers.len() >= ANSWERS_MAX {
            return Err(refused("the service does not answer"));
        }
        self.out.try_send(payload).map_err(|error| PortError(error.to_string()))?;
        answers.push_back(answer);
        Ok(())
    }
}

async fn listen(mut incoming: ReadHalf<tls::Stream>, bytes_max: usize, line: Line) {
    while let Ok(bytes) = wire::read_length(&mut incoming, bytes_max).await
        && let Ok(message) = wire::read_message(&mut incoming, bytes).await
    {
        let next = line.answers.borrow_mut().as_mut().and_then(VecDeque::pop_front);
        match next {
            Some(Some(answer)) => answer.give(message, Vec::new()),
            Some(None) => {}
            // The answer belongs to no call.
            None => break,
        }
    }
    // Waiting callers are notified that the connection has ended.
    let gone = line.answers.borrow_mut().take();
    drop(gone);
}

async fn write(mut outgoing: WriteHalf<tls::Stream>, mut queue: mpsc::Receiver<Bytes>) {
    while let Some(payload) = queue.recv().await {
        if wire::write_message(&mut outgoing, payload).await.is_err() {
            // The reader will find that the connection has ended.
            return;
        }
    }
}

/// The maximum number of requests that wait to be written. Beyond it, traces fail.
const OUT_MAX: usize = 64;

/// The maximum number of unanswered requests, including those whose callers no longer wait.
const ANSWERS_MAX: usize = 1_024;
