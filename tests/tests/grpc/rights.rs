//! Tests that calls which end early keep no right to refill a stale item. A store that answers as the test says stands
//! in for memcached.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use api::tonic::Code;
use api::v1::MultiGetRequest;
use rebate_tests::{TIMEOUT, poll_for};

use super::Grpc;

/// A store whose item `a b` cannot be read, and whose item `c d` is stale: reading it takes the right to refill it.
struct Store {
    addr: SocketAddr,
    /// The lines of all requests but probes.
    asked: Receiver<String>,
    /// Answers to gets wait until this is true.
    may_answer: Arc<AtomicBool>,
}

impl Store {
    fn start(may_answer: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("a bound socket");
        let may_answer = Arc::new(AtomicBool::new(may_answer));
        let (tell, asked) = channel();
        let gate = Arc::clone(&may_answer);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (tell, gate) = (tell.clone(), Arc::clone(&gate));
                thread::spawn(move || serve(client, &tell, &gate));
            }
        });
        Self { addr, asked, may_answer }
    }

    fn frontend(&self) -> Grpc {
        let store = format!("memcached://{}", self.addr);
        // Answers that the test holds back are not late.
        let timeout = format!("store.timeout_ms={}", TIMEOUT.as_millis());
        Grpc::start(&["--role", "frontend", "--store", &store, "--set", &timeout])
    }

    /// Returns the next request.
    fn next(&self) -> String {
        self.asked.recv_timeout(TIMEOUT).expect("a request of the frontend")
    }
}

fn serve(client: TcpStream, tell: &Sender<String>, may_answer: &AtomicBool) {
    let Ok(mut to_client) = client.try_clone() else { return };
    for line in BufReader::new(client).lines().map_while(Result::ok) {
        if line != "mn" {
            let _ = tell.send(line.clone());
        }
        let answer = match line.split(' ').next() {
            Some("mn") => "MN\r\n",
            Some("md") => "HD\r\n",
            Some("mg") => {
                while !may_answer.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(5));
                }
                match line.contains("YSBi") {
                    true => "SERVER_ERROR it is lost\r\n",
                    false => "VA 2 f0 c7 X W\r\nhi\r\n",
                }
            }
            _ => "ERROR\r\n",
        };
        if to_client.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn both() -> MultiGetRequest {
    let keys = [&b"a b"[..], b"c d"].map(Into::into).to_vec();
    MultiGetRequest { keys, ..MultiGetRequest::default() }
}

/// The line that marks the version that was read as stale again.
const GIVEN_BACK: &str = "md YyBk b C7 I";

#[test]
fn a_call_that_fails_midway_gives_back_its_rights() {
    let store = Store::start(true);
    let grpc = store.frontend();
    let mut cache = grpc.cache();
    let refused = grpc.runtime.block_on(async { cache.multi_get(both()).await });
    assert_eq!(refused.expect_err("one item is lost").code(), Code::Unavailable);
    let asked = [store.next(), store.next(), store.next()];
    assert!(asked[0].starts_with("mg YSBi") && asked[1].starts_with("mg YyBk"), "{asked:?}");
    assert_eq!(asked[2], GIVEN_BACK);
}

#[test]
fn a_call_that_is_cancelled_gives_back_its_rights() {
    let store = Store::start(false);
    let grpc = store.frontend();
    let mut cache = grpc.cache();
    grpc.runtime.block_on(async {
        let call = cache.multi_get(both());
        let is_asked = async {
            while store.asked.try_recv().is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            answer = call => panic!("the store has not answered, but the call did: {answer:?}"),
            () = is_asked => {}
        }
    });
    // The call is dropped here. Without its connection the frontend has ended it, too.
    let Grpc { runtime, .. } = &grpc;
    runtime.block_on(async { drop(cache) });
    let is_gone = || {
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(5)).await });
        (grpc.metric("rebate_grpc_connections") == 0).then_some(())
    };
    poll_for(TIMEOUT, is_gone).expect("the connection ends");
    store.may_answer.store(true, Ordering::SeqCst);
    let given_back = (0..2).map(|_| store.next()).find(|line| line == GIVEN_BACK);
    assert_eq!(given_back.as_deref(), Some(GIVEN_BACK));
}
