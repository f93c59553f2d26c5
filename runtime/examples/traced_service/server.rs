//! The service: a request comes in encrypted, serialized and perhaps compressed, goes through T1, is answered by a
//! function, and the answer goes out through T2, or through T3 where it is long enough to be worth compressing. What
//! T1 does not do is done by hand, in software.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use runtime::TokioRuntime;
use runtime::trace::jobs::Maker;
use runtime::trace::{Cause, Session, TraceInput, Traces};
use tokio::net::TcpListener;

use crate::by_hand;
use crate::wire::{Connection, Side, Wire};

/// What connections share.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) runtime: TokioRuntime,
    pub(crate) traces: Traces,
    pub(crate) wire: Wire,
    pub(crate) maker: Rc<Maker>,
    pub(crate) secret: Rc<[u8]>,
    /// The answer to a call of the named function.
    pub(crate) function: fn(&str, Bytes) -> Bytes,
}

impl Service {
    /// Serves connections until the listener fails.
    pub(crate) async fn serve(self, listener: TcpListener) -> io::Result<()> {
        loop {
            let (stream, _) = listener.accept().await?;
            let service = self.clone();
            tokio::task::spawn_local(async move {
                let secret = Rc::clone(&service.secret);
                if let Ok(connection) = service.wire.open(stream, Side::Server, &secret).await {
                    service.converse(connection).await;
                }
            });
        }
    }

    /// One request after the other, so that answers are in order.
    async fn converse(&self, mut connection: Connection) {
        while let Ok(Some(message)) = connection.receive().await {
            let (number, session) = (connection.number, Rc::clone(&connection.session));
            let Some((function, request)) = self.receive(message, number, &session).await else {
                // Whoever sends what cannot be read gets no answer, only the end.
                return;
            };
            let answer = (self.function)(&function, request);
            let trace = if answer.len() < COMPRESS_FROM_BYTES { "T2" } else { "T3" };
            let mut input = TraceInput::new(answer).function(function).session(&session);
            input.connection = number;
            if self.traces.run_trace(trace, input).await.is_err() {
                return;
            }
        }
    }

    async fn receive(
        &self,
        message: Bytes,
        connection: u64,
        session: &Rc<Session>,
    ) -> Option<(String, Bytes)> {
        let mut input = TraceInput::new(message).session(session);
        input.connection = connection;
        match self.traces.run_trace("T1", input).await {
            Ok(ended) => Some((ended.function, ended.payload)),
            Err(error) if matches!(error.cause, Cause::Malformed(_) | Cause::TooLarge { .. }) => {
                None
            }
            // The executor has no room, or a step failed: nothing of the request is lost.
            Err(error) => {
                let run = |job| self.runtime.run_in_software(job);
                by_hand::receive(run, &self.maker, &error.input).await.ok()
            }
        }
    }
}

/// Shorter answers do not shrink by what compressing them costs.
const COMPRESS_FROM_BYTES: usize = 1_024;
