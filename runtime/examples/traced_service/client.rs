//! A caller of the service: requests go out through T9, answers come in through T10.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use runtime::trace::{Ended, Session, TraceError, TraceInput, Traces};
use tokio::net::{TcpStream, ToSocketAddrs};

use crate::wire::{Side, Wire};

/// A connection to the service.
pub(crate) struct Client {
    traces: Traces,
    connection: u64,
    session: Rc<Session>,
}

impl Client {
    /// Connects. `wire` is the tcp port of `traces`.
    pub(crate) async fn connect(
        traces: &Traces,
        wire: &Wire,
        address: impl ToSocketAddrs,
        secret: &[u8],
    ) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        let mut connection = wire.open(stream, Side::Client, secret).await?;
        let (number, session) = (connection.number, Rc::clone(&connection.session));
        let wire = wire.clone();
        tokio::task::spawn_local(async move {
            while let Ok(Some(message)) = connection.receive().await {
                wire.answer(number, message);
            }
        });
        Ok(Self { traces: traces.clone(), connection: number, session })
    }

    /// Calls the function with these arguments in JSON, compressed on the way if it says so; the answer as its trace
    /// ended.
    pub(crate) async fn call(
        &self,
        function: &str,
        arguments: impl Into<Bytes>,
        compress: bool,
    ) -> Result<Ended, Box<TraceError>> {
        let mut input = TraceInput::new(arguments)
            .function(function)
            .session(&self.session)
            .field("to-compress", u32::from(compress));
        input.connection = self.connection;
        self.traces.run_trace("T9", input).await
    }
}
