//! The example service, end to end over a socket: its own client, and one that speaks the protocol by hand.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use device::engines::BUILT_IN;
use device::{Codec, Dialect, Level, Pool, Worker};
use runtime::TokioRuntime;
use runtime::trace::jobs::Maker;
use runtime::trace::{Cause, TraceConfig, Traces};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;
use units::{ByteCount, SystemClock};

use crate::client::Client;
use crate::common::config;
use crate::rig::devices;
use crate::server::Service;
use crate::wire::{MESSAGE_BYTES_MAX, Wire};

const SECRET: &[u8] = b"a secret of this test";

/// Runs the body against a service on a free port whose executor takes so many traces of one tenant.
fn served<F: Future<Output = ()>>(
    tenant_live_max: usize,
    body: impl FnOnce(Service, std::net::SocketAddr) -> F,
) {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
    LocalSet::new().block_on(&executor.expect("tokio starts"), async {
        let two = std::num::NonZeroUsize::new(2).expect("not zero");
        let workers = Worker::start(two, two, &BUILT_IN).expect("threads start");
        let config = config(devices(Some(Arc::new(workers))), Arc::new(SystemClock::new()));
        let runtime = TokioRuntime::start(config).expect("the devices open");
        let wire = Wire::default();
        let mut traces = TraceConfig::new(trace::accelflow());
        traces.tcp = Box::new(wire.clone());
        traces.limits.tenant_live_max = tenant_live_max;
        let maker = Rc::new(Maker {
            dialect: Dialect::of(Codec::Deflate),
            level: Level::Fast,
            pool: Pool::heap(ByteCount(0)),
            payload_bytes_max: MESSAGE_BYTES_MAX,
        });
        let traces = Traces::in_tokio(&runtime, traces);
        let service =
            Service { runtime, traces, wire, maker, secret: SECRET.into(), function: reply };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        tokio::task::spawn_local(service.clone().serve(listener));
        body(service, address).await;
    });
}

fn reply(function: &str, request: Bytes) -> Bytes {
    match function {
        "echo" => request,
        _ => Bytes::from_static(br#"{"exception":false,"error":"no such function"}"#),
    }
}

fn request(length: usize) -> String {
    format!("{{\"text\":\"{}\"}}", "words that repeat ".repeat(length))
}

#[test]
fn requests_and_answers_of_every_kind_come_through() {
    served(1_000, |service, address| async move {
        let Service { traces, wire, .. } = &service;
        let client = Client::connect(traces, wire, address, SECRET).await.expect("it listens");
        // Short and long answers (T2, T3), plain and compressed requests.
        for length in [0, 1, 100, 1_000] {
            for compress in [false, true] {
                let json = request(length);
                let ended = client.call("echo", json.clone(), compress).await;
                assert_eq!(ended.expect("it is answered").payload, json);
            }
        }
        let ended = client.call("nothing", "{}", false).await.expect("it is answered");
        assert_eq!(ended.payload, &br#"{"exception":false,"error":"no such function"}"#[..]);
        let counts = traces.counts();
        assert_eq!((counts.failed, counts.refused, counts.told), (0, 0, 27));
        let ran = |op| service.runtime.metrics().paths().iter().any(|path| path.op == op);
        assert!(
            [units::Op::Compress, units::Op::Decompress, units::Op::Decrypt].map(ran) == [true; 3]
        );
    });
}

#[test]
fn clients_side_by_side_get_their_own_answers() {
    served(1_000, |service, address| async move {
        let mut calls = Vec::new();
        for number in 0..20 {
            let service = service.clone();
            calls.push(tokio::task::spawn_local(async move {
                let Service { traces, wire, .. } = &service;
                let client = Client::connect(traces, wire, address, SECRET).await;
                let json = format!("{{\"number\":{number}}}");
                let ended = client.expect("it listens").call("echo", json.clone(), false).await;
                assert_eq!(ended.expect("it is answered").payload, json);
            }));
        }
        for call in calls {
            call.await.expect("no call panics");
        }
    });
}

#[test]
fn what_the_executor_has_no_room_for_is_done_by_hand() {
    // The client's own trace is the only one: T1 is refused, and the answer's T2 as well.
    served(1, |service, address| async move {
        let Service { traces, wire, .. } = &service;
        let client = Client::connect(traces, wire, address, SECRET).await.expect("it listens");
        let error = client.call("echo", "{}", true).await.expect_err("the answer has no room");
        assert!(matches!(error.cause, Cause::PeerGone), "{error}");
        assert_eq!(error.input.payload, "{}");
        assert_eq!(traces.counts().refused, 2, "T1 was done by hand, and T2 refused");
    });
}

#[test]
fn whoever_does_not_know_the_secret_or_lies_about_a_length_is_cut_off() {
    served(1_000, |service, address| async move {
        let Service { traces, wire, .. } = &service;
        let stranger = Client::connect(traces, wire, address, b"another").await;
        let error = stranger.expect("it listens").call("echo", "{}", false).await;
        assert!(matches!(error.expect_err("no answer").cause, Cause::PeerGone));

        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(&[0; 32]).await.expect("a salt");
        stream.read_exact(&mut [0; 32]).await.expect("the other's salt");
        stream.write_u32(u32::MAX).await.expect("a length");
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0, "the connection ends");
        assert!(traces.counts().failed >= 1, "what was decrypted was nothing");
    });
}
