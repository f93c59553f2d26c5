//! One call: the request, the answer, and the outcome that the answer means.

use std::error::Error;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use api::tonic::body::Body;
use api::tonic::codegen::{BoxFuture, Service, http};
use api::tonic::{Code, Request as Call, Status};
use api::v1::cache_client::CacheClient;
use api::v1::{GetRequest, GetResponse, SetRequest, SetResponse, set_response};
use api::wire::MESSAGE_SLACK_BYTES;
use hyper::body::Incoming;
use hyper::client::conn::http2;

use crate::address::{Address, Endpoint};
use crate::answer::{Content, Failure, Outcome};
use crate::source::{Op, Request};

/// The generated client over one connection.
pub(super) type Client = CacheClient<Sender>;

/// The connection in the form that the client library needs.
#[derive(Clone)]
pub(super) struct Sender(http2::SendRequest<Body>);

/// The request of a call.
pub(super) enum Ask {
    Get(GetRequest),
    Set(SetRequest),
}

/// The answer to a call.
pub(super) enum Given {
    Get(GetResponse),
    Set(SetResponse),
}

/// The reason why there is no answer.
pub(super) enum Failed {
    /// The server refused the request.
    ByServer(Failure),
    /// No answer arrived.
    InTransit(Failure),
}

impl Service<http::Request<Body>> for Sender {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// Creates a client on a connection. The client refuses a value that is longer than any written value, before
/// it allocates memory for the value.
pub(super) fn client(
    address: &Address,
    sender: http2::SendRequest<Body>,
    value_bytes_max: usize,
) -> Client {
    let authority = match &address.endpoint {
        Endpoint::Tcp(place) | Endpoint::Tls { place, .. } => place.to_string(),
        Endpoint::Unix(_) | Endpoint::Near(_) => "localhost".to_owned(),
    };
    let origin = http::Uri::try_from(format!("http://{authority}"));
    let origin = origin.expect("a socket's address is an authority");
    CacheClient::with_origin(Sender(sender), origin)
        .max_decoding_message_size(value_bytes_max + MESSAGE_SLACK_BYTES)
}

/// Makes the call and waits at most `timeout`. The call's metadata tells the server the timeout.
pub(super) async fn call(mut client: Client, ask: Ask, timeout: Duration) -> Result<Given, Failed> {
    let start = Instant::now();
    let answer = async {
        Ok(match ask {
            Ask::Get(get) => Given::Get(client.get(within(get, timeout)).await?.into_inner()),
            Ask::Set(set) => Given::Set(client.set(within(set, timeout)).await?.into_inner()),
        })
    };
    match tokio::time::timeout(timeout, answer).await {
        Ok(Ok(given)) => Ok(given),
        // The server's deadline may pass slightly before this process's timer, so a cancelled call at the timeout
        // counts as a timeout.
        Ok(Err(status)) if !(is_cancelled(&status) && start.elapsed() >= timeout) => {
            Err(read_status(&status))
        }
        Ok(Err(_)) | Err(_) => {
            let why = no_answer(Code::DeadlineExceeded, "the request timeout has passed");
            Err(Failed::InTransit(why))
        }
    }
}

fn is_cancelled(status: &Status) -> bool {
    status.code() == Code::Cancelled
}

/// Returns the failure of a call that could not be made.
pub(super) fn unsent() -> Failure {
    no_answer(Code::Unavailable, "the connection is down")
}

fn within<T>(message: T, timeout: Duration) -> Call<T> {
    let mut call = Call::new(message);
    call.set_timeout(timeout);
    call
}

/// Decides whether a status comes from the server, or from the library because a stream or connection broke.
fn read_status(status: &Status) -> Failed {
    let Some(source) = status.source() else {
        let word = word(status.code());
        let message = format!("{word}: {}", status.message());
        return Failed::ByServer(Failure { status: Some(word), message });
    };
    let code = match status.code() {
        // The library uses these codes if the connection has ended.
        Code::Unknown | Code::Cancelled => Code::Unavailable,
        code => code,
    };
    Failed::InTransit(no_answer(code, &root(source)))
}

fn no_answer(code: Code, reason: &str) -> Failure {
    Failure { status: Some(word(code)), message: format!("no answer: {reason}") }
}

/// Returns the innermost cause of an error.
fn root(mut error: &(dyn Error + 'static)) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

impl Ask {
    pub(super) fn new(request: &Request, version: u32, content: &Content<'_>) -> Self {
        let mut key = Vec::new();
        content.keys.append_to(request.id, &mut key);
        match request.op {
            Op::Get => Self::Get(GetRequest { key: key.into(), ..GetRequest::default() }),
            Op::Set | Op::Fill => {
                let mut value = Vec::with_capacity(content.values.length(request.id));
                content.values.append_to(request.id, version, &mut value);
                let exptime_s = content.exptime_s;
                let (key, value) = (key.into(), value.into());
                Self::Set(SetRequest { key, value, exptime_s, ..SetRequest::default() })
            }
        }
    }

    /// Returns the length of the value that the request writes.
    pub(super) fn value_bytes(&self) -> usize {
        match self {
            Self::Get(_) => 0,
            Self::Set(set) => set.value.len(),
        }
    }
}

impl Given {
    pub(super) fn outcome(self, request: &Request, content: &Content<'_>) -> Outcome {
        match self {
            Self::Get(got) if !got.found => Outcome::Miss,
            Self::Get(got) if got.is_frame => {
                Outcome::Wrong("a frame that was not asked for".to_owned())
            }
            Self::Get(got) => {
                let checked = content.verify.then(|| content.values.check(request.id, &got.value));
                match checked {
                    Some(Err(mismatch)) => Outcome::Wrong(mismatch.to_string()),
                    Some(Ok(_)) | None => Outcome::Hit { value_bytes: got.value.len() },
                }
            }
            Self::Set(set) if set.outcome() == set_response::Outcome::Stored => Outcome::Stored,
            Self::Set(set) => Outcome::Error(Failure {
                status: None,
                message: set.outcome().as_str_name().to_owned(),
            }),
        }
    }
}

fn word(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
