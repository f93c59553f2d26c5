//! Near clients: clients on this host whose requests come through shared memory. After the greeting, a near connection
//! is a stream of bytes like a socket's, and the same session serves it.

use std::future::poll_fn;
use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use device::near::{NearCounters, NearStream};

use crate::access::Origin;
use crate::context::WorkerContext;
use crate::session::{self, Open, Speaks};
use crate::stream::Stream;
use crate::worker::ListenerProtocol;

/// Serves one near connection to its end.
pub(crate) async fn serve(socket: UnixStream, context: Rc<WorkerContext>) {
    let _open = Open::count(&context, ListenerProtocol::Near);
    let near = &context.counters.near;
    let origin = Origin::from_unix(&socket);
    match greeted(socket, &context).await {
        Ok(stream) => {
            let held_bytes = stream.held_bytes();
            near.held_bytes.add(held_bytes);
            let _held = Held(&context, held_bytes);
            let stream = Stream::Near(stream);
            session::converse(stream, None, Rc::clone(&context), Speaks::Text).await;
        }
        Err(error) => {
            near.refused.up();
            context.audit_no_client(&origin, "near", &error);
        }
    }
}

async fn greeted(
    socket: UnixStream,
    context: &Rc<WorkerContext>,
) -> io::Result<Box<dyn NearStream>> {
    let watch = context.watch_near.ok_or(io::ErrorKind::Unsupported)?;
    let stream = watch(socket)?;
    let greeting = poll_fn(|task| stream.poll_greeting(task));
    match tokio::time::timeout(GREETING_MAX, greeting).await {
        Ok(greeted) => greeted.map(|()| stream),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "it did not greet in time")),
    }
}

/// Memory of a near connection, until this value is dropped.
struct Held<'c>(&'c WorkerContext, u64);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let held_bytes = &self.0.counters.near.held_bytes;
        held_bytes.set(held_bytes.read().saturating_sub(self.1));
    }
}

/// Adds what a near connection has counted to the worker's counters.
pub(crate) fn count(context: &WorkerContext, stream: &dyn NearStream) {
    let NearCounters { doorbells, sleeps, broken } = stream.take_counters();
    let near = &context.counters.near;
    near.doorbells.add(doorbells);
    near.sleeps.add(sleeps);
    near.broken.add(broken);
}

/// The timeout of the handshake.
const GREETING_MAX: Duration = Duration::from_secs(5);
