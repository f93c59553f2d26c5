//! A service whose requests and answers go through traces: real AES-256-GCM, protobuf and deflate, on whatever devices
//! the runtime has; here software and a pool of two workers.
//!
//! `cargo run --release -p runtime --example traced_service` starts it on a free port, calls it a thousand times over
//! a socket, and prints which path every op took. With an address it serves there until it is stopped. The shared
//! secret is in this file: it is an example.

mod by_hand;
mod client;
mod server;
mod wire;

use std::error::Error;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use client::Client;
use device::engines::BUILT_IN;
use device::{Codec, Dialect, Level, Pool, Software, Worker};
use policy::BoundedInline;
use runtime::trace::jobs::Maker;
use runtime::trace::{TraceConfig, Traces};
use runtime::{Fallback, RuntimeConfig, TokioRuntime};
use server::Service;
use tokio::net::TcpListener;
use tokio::task::LocalSet;
use units::{ByteCount, Nanos, SystemClock};
use wire::{MESSAGE_BYTES_MAX, Wire};

fn main() -> Result<(), Box<dyn Error>> {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&executor, run(std::env::args().nth(1)))
}

async fn run(address: Option<String>) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
    let bound = listener.local_addr()?;
    println!("listening on {bound}");
    let service = service()?;
    let server = service.clone().serve(listener);
    if address.is_some() {
        return Ok(server.await?);
    }
    tokio::task::spawn_local(server);
    let client = Client::connect(&service.traces, &service.wire, bound, &service.secret).await?;
    for count in 0..CALLS {
        let text = "words that repeat ".repeat(count % 300);
        let json = format!("{{\"count\":{count},\"text\":\"{text}\"}}");
        let ended = client.call("example.echo", json.clone(), count % 2 == 0).await?;
        assert_eq!(ended.payload, json, "an echo is what was said");
    }
    println!("{CALLS} calls, all answered");
    for path in service.runtime.metrics().paths() {
        let why = path.reason.name();
        println!(
            "{:>10} on {:<8} {:>5} jobs, because: {why}",
            path.op.name(),
            path.device,
            path.jobs
        );
    }
    println!("{:?}", service.traces.counts());
    Ok(())
}

fn service() -> Result<Service, Box<dyn Error>> {
    let two = NonZeroUsize::new(2).ok_or("two is not zero")?;
    let depth = NonZeroUsize::new(64).ok_or("64 is not zero")?;
    let config = RuntimeConfig {
        devices: vec![
            Arc::new(Software::default()),
            Arc::new(Worker::start(two, depth, &BUILT_IN)?),
        ],
        policy: Arc::new(BoundedInline { inline_bytes_max: 2_048 }),
        compress: Fallback::Prefer,
        decompress: Fallback::Prefer,
        job_timeout: Nanos::millis(100),
        reprobe_after: Nanos::secs(1),
        clock: Arc::new(SystemClock::new()),
        seed: 1,
    };
    let runtime = TokioRuntime::start(config)?;
    let wire = Wire::default();
    let mut traces = TraceConfig::new(trace::accelflow());
    traces.tcp = Box::new(wire.clone());
    traces.limits.payload_bytes_max = MESSAGE_BYTES_MAX;
    let maker = Rc::new(Maker {
        dialect: Dialect::of(Codec::Deflate),
        level: Level::Fast,
        pool: Pool::heap(ByteCount::mib(4)),
        payload_bytes_max: MESSAGE_BYTES_MAX,
    });
    let traces = Traces::in_tokio(&runtime, traces);
    let secret = Rc::from(*b"a secret of this example, no other");
    Ok(Service { runtime, traces, wire, maker, secret, function: echo })
}

fn echo(_: &str, request: Bytes) -> Bytes {
    request
}

const CALLS: usize = 1_000;
