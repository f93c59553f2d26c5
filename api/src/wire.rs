//! The set-up of a connection, the same at both ends. Large values are to cross without waiting for window updates and
//! without being cut into many frames.

use std::time::Duration;

use hyper::client::conn::http2::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use tonic::transport::{Channel, Endpoint, Uri};

use crate::Address;

/// The bytes that one call may have on the way before the other side takes them: a value of the largest common size (1
/// MiB) crosses at once.
pub const STREAM_WINDOW_BYTES: u32 = 2 << 20;

/// The bytes that all calls of a connection may have on the way: some sixteen values of 1 MiB. It bounds the memory
/// that a slow reader can pin.
pub const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// The bytes of one HTTP/2 frame: a 128 KiB value crosses in one.
pub const FRAME_BYTES_MAX: u32 = 256 << 10;

/// The most calls of one connection at a time. A call that just begins takes some 5 KiB before anyone can charge it, so
/// this bounds the memory that an idle-looking connection can pin: a MiB and a bit.
pub const CALLS_MAX: u32 = 256;

/// The bytes of one message beyond the largest value in it.
pub const MESSAGE_SLACK_BYTES: usize = 64 << 10;

/// The most jobs of one call that has several.
pub const JOBS_PER_CALL_MAX: usize = 64;

/// The most bytes of their inputs together, and of their results. Such a call's message may be that long plus the
/// slack. Once read, its parts take some thirty times what the shortest of them take on the way.
pub const JOBS_BYTES_MAX: usize = 256 << 10;

/// Returns a channel that connects with its first call and again whenever the connection was lost. A call fails at once
/// while the service cannot be reached.
///
/// # Errors
/// None for addresses that [`Address`] accepts, except for hosts that cannot stand in a URI.
pub fn channel(address: &Address, connect_timeout: Duration) -> Result<Channel, tonic::Status> {
    let endpoint = Endpoint::from(origin(address)?)
        .tcp_nodelay(true)
        .connect_timeout(connect_timeout)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keep_alive_interval(KEEP_ALIVE_EVERY)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    Ok(match address {
        Address::Tcp(_) => endpoint.connect_lazy(),
        Address::Unix(path) => {
            let path = path.clone();
            endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
                let path = path.clone();
                async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
            }))
        }
    })
}

/// Returns the set-up of one connection whose calls the caller sends itself. `executor` runs the connection's own
/// tasks.
pub fn client<E: Clone>(executor: E) -> Builder<E> {
    let mut builder = Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .initial_max_send_streams(CALLS_MAX as usize)
        .keep_alive_interval(KEEP_ALIVE_EVERY)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    builder
}

/// Returns the name that calls to the service at `address` use for it.
///
/// # Errors
/// A host that cannot stand in a URI.
pub fn origin(address: &Address) -> Result<Uri, tonic::Status> {
    let text = match address {
        Address::Tcp(address) => format!("http://{address}"),
        Address::Unix(_) => "http://localhost".to_owned(),
    };
    let bad = |error| tonic::Status::invalid_argument(format!("{address}: {error}"));
    text.parse().map_err(bad)
}

/// The time between keep-alive messages. A peer that vanished without a word is found out within these two times.
pub(crate) const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(5);
pub(crate) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);
