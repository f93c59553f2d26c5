//! A gRPC cache under test: a map behind `rebate.v1.Cache` that misbehaves on purpose.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use api::prost::bytes::Bytes;
use api::v1::cache_server::{Cache, CacheServer};
use api::v1::{
    DeleteRequest, DeleteResponse, GetRequest, GetResponse, MultiGetRequest, MultiGetResponse,
    SetRequest, SetResponse, set_response,
};
use api::wire;
use load::Address;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::oneshot;
use tonic::codegen::tokio_stream::Stream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// The server's reaction to a call.
pub(crate) enum Act {
    Serve,
    Fail(Status),
    /// The server never answers.
    Hang,
    /// The whole server stops for this long, and then serves the call.
    Stall(Duration),
    /// The server answers a get with a value that this function has changed.
    Spoil(fn(&mut Vec<u8>)),
    /// The server answers a get with bytes that it marks as a frame.
    Frame,
}

/// A server on a thread. Its connections end when it is dropped.
pub(crate) struct CacheOnGrpc {
    pub(crate) address: Address,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Map<A> {
    items: Mutex<HashMap<Bytes, Bytes>>,
    calls: AtomicU64,
    act: A,
}

enum Listener {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

struct Accepted(UnixListener);

impl Stream for Accepted {
    type Item = io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(cx).map_ok(|(stream, _)| stream).map(Some)
    }
}

impl CacheOnGrpc {
    /// Starts the server on a free port. `act` receives the number of the call, counted from 1.
    pub(crate) fn start(act: impl Fn(u64) -> Act + Send + Sync + 'static) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a mode");
        let place = listener.local_addr().expect("an address");
        Self::serve(&format!("grpc://{place}"), Listener::Tcp(listener), act)
    }

    /// Starts the server on a unix socket at `path`.
    pub(crate) fn start_unix(
        path: &std::path::Path,
        act: impl Fn(u64) -> Act + Send + Sync + 'static,
    ) -> Self {
        let listener = std::os::unix::net::UnixListener::bind(path).expect("a socket");
        listener.set_nonblocking(true).expect("a mode");
        Self::serve(&format!("grpc://{}", path.display()), Listener::Unix(listener), act)
    }

    fn serve(
        address: &str,
        listener: Listener,
        act: impl Fn(u64) -> Act + Send + Sync + 'static,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let map = Map { items: Mutex::default(), calls: AtomicU64::new(0), act };
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let server = Server::builder()
                    .initial_stream_window_size(wire::STREAM_WINDOW_BYTES)
                    .initial_connection_window_size(wire::CONNECTION_WINDOW_BYTES)
                    .max_frame_size(wire::FRAME_BYTES_MAX)
                    .add_service(CacheServer::new(map));
                let serving = async {
                    match listener {
                        Listener::Tcp(listener) => {
                            let listener = TcpListener::from_std(listener).expect("a listener");
                            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                            server.serve_with_incoming(incoming).await
                        }
                        Listener::Unix(listener) => {
                            let listener = UnixListener::from_std(listener).expect("a listener");
                            server.serve_with_incoming(Accepted(listener)).await
                        }
                    }
                };
                tokio::select! {
                    _ = serving => {}
                    _ = stopped => {}
                }
            });
        });
        let address = address.parse().expect("an address");
        Self { address, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for CacheOnGrpc {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

impl<A: Fn(u64) -> Act> Map<A> {
    async fn act(&self) -> Result<Act, Status> {
        match (self.act)(self.calls.fetch_add(1, Ordering::Relaxed) + 1) {
            Act::Fail(status) => Err(status),
            Act::Hang => std::future::pending().await,
            Act::Stall(time) => {
                thread::sleep(time);
                Ok(Act::Serve)
            }
            act => Ok(act),
        }
    }
}

#[tonic::async_trait]
impl<A: Fn(u64) -> Act + Send + Sync + 'static> Cache for Map<A> {
    async fn get(&self, call: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        assert!(call.metadata().contains_key("grpc-timeout"), "calls carry their deadline");
        let act = self.act().await?;
        let found = self.items.lock().expect("a map").get(&call.get_ref().key[..]).cloned();
        let Some(mut value) = found else { return Ok(Response::new(GetResponse::default())) };
        if let Act::Spoil(spoil) = act {
            let mut spoiled = value.to_vec();
            spoil(&mut spoiled);
            value = spoiled.into();
        }
        let is_frame = matches!(act, Act::Frame);
        Ok(Response::new(GetResponse { found: true, value, is_frame, ..GetResponse::default() }))
    }

    async fn set(&self, call: Request<SetRequest>) -> Result<Response<SetResponse>, Status> {
        self.act().await?;
        let set = call.into_inner();
        self.items.lock().expect("a map").insert(set.key, set.value);
        let outcome = set_response::Outcome::Stored.into();
        Ok(Response::new(SetResponse { outcome }))
    }

    async fn multi_get(
        &self,
        _: Request<MultiGetRequest>,
    ) -> Result<Response<MultiGetResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn delete(&self, _: Request<DeleteRequest>) -> Result<Response<DeleteResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }
}
