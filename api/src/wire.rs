//! The set-up of a connection, which is the same at both ends. Large values must not wait for window updates or be cut
//! into many frames.

use std::time::Duration;

use hyper::client::conn::http2::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use tonic::transport::{Channel, Endpoint, Uri};

use crate::Address;

/// The bytes that one call may send before the peer consumes them. A value of the largest common size (1 MiB) is sent
/// at once.
pub const STREAM_WINDOW_BYTES: u32 = 2 << 20;

/// The bytes that all calls of a connection may send before the peer consumes them, which is some sixteen values of 1
/// MiB. It bounds the memory that a slow reader can pin.
pub const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// The most bytes of one HTTP/2 frame. A value of 128 KiB fits in one frame.
pub const FRAME_BYTES_MAX: u32 = 256 << 10;

/// The most calls of one connection at a time. A call that has just begun takes some 5 KiB before it is charged to a
/// budget. So a connection that looks idle can pin at most a little more than 1 MiB.
pub const CALLS_MAX: u32 = 256;

/// The bytes of one message beyond the largest value in it.
pub const MESSAGE_SLACK_BYTES: usize = 64 << 10;

/// The most jobs of a call with several jobs.
pub const JOBS_PER_CALL_MAX: usize = 64;

/// The most bytes of all inputs of a call with several jobs, and of all its results. The message of such a call has at
/// most this length plus the slack. If the parts of a message are very short, they take some thirty times as many bytes
/// in memory as on the wire.
pub const JOBS_BYTES_MAX: usize = 256 << 10;

/// Returns a channel that connects with its first call, and again after each loss of the connection. A call fails at
/// once while the service cannot be reached.
///
/// # Errors
/// Returns an error only for hosts that cannot be part of a URI. All other addresses that [`Address`] accepts are
/// valid.
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
        Address::Tls(address) => {
            let address = address.clone();
            endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
                let address = address.clone();
                async move {
                    let client = tls::outgoing()?;
                    client.connect(&address, tls::Application::Http2).await.map(TokioIo::new)
                }
            }))
        }
        Address::Unix(path) => {
            let path = path.clone();
            endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
                let path = path.clone();
                async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
            }))
        }
    })
}

/// Returns the set-up of one connection for a caller that sends calls without a channel. `executor` runs the
/// connection's tasks.
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

/// Returns the origin (scheme and authority) of calls to the service at `address`.
///
/// # Errors
/// Returns an error for a host that cannot be part of a URI.
pub fn origin(address: &Address) -> Result<Uri, tonic::Status> {
    let text = match address {
        // TLS is below HTTP here, so the scheme is the same.
        Address::Tcp(address) | Address::Tls(address) => format!("http://{address}"),
        Address::Unix(_) => "http://localhost".to_owned(),
    };
    let bad = |error| tonic::Status::invalid_argument(format!("{address}: {error}"));
    text.parse().map_err(bad)
}

/// The time between keep-alive messages, and the time to wait for the reply. A peer that vanished is noticed within the
/// sum of both.
pub(crate) const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(5);
pub(crate) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);
