//! Tests health, reflection, deadlines, and the end of the server.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use api::tonic::Code;
use api::tonic::codegen::tokio_stream;
use api::v1::GetRequest;
use rebate_tests::{TIMEOUT, rebate_binary};
use rustix::process::Signal;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::{Grpc, get, wire};

const SERVICES: [&str; 4] =
    ["rebate.v1.Cache", "rebate.v1.Compression", "rebate.v1.Scheduler", "rebate.v1.Store"];

fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

#[test]
fn each_service_says_that_it_serves_and_no_other_does() {
    let grpc = Grpc::all();
    let mut health = HealthClient::new(grpc.channel());
    grpc.runtime.block_on(async {
        for service in SERVICES.into_iter().chain([""]) {
            let status = health.check(about(service)).await.expect(service).into_inner().status();
            assert_eq!(status, ServingStatus::Serving, "{service}");
        }
        let status = health.check(about("rebate.v1.Nothing")).await.expect_err("no service");
        assert_eq!(status.code(), Code::NotFound);
    });
    let frontend = Grpc::start(&["--role", "frontend", "--store", "embedded"]);
    let mut health = HealthClient::new(frontend.channel());
    let addr = frontend.addr;
    frontend.runtime.block_on(async {
        let served = health.check(about("rebate.v1.Cache")).await.expect("the cache");
        assert_eq!(served.into_inner().status(), ServingStatus::Serving);
        assert!(health.check(about("rebate.v1.Store")).await.is_err());
        let body = wire::message(b"");
        let ended = wire::call(addr, "/rebate.v1.Store/Get", &[], &body).await.expect("an answer");
        assert_eq!(ended.code, Some(Code::Unimplemented as i32));
        assert!(ended.words.contains("rebate.v1.Store"), "{ended:?}");
    });
}

#[test]
fn reflection_lists_the_services_and_describes_them() {
    let grpc = Grpc::all();
    let mut reflection = ServerReflectionClient::new(grpc.channel());
    let mut ask = |request: MessageRequest| {
        let request =
            ServerReflectionRequest { host: String::new(), message_request: Some(request) };
        let answered = grpc.runtime.block_on(async {
            let asked = tokio_stream::iter([request]);
            let mut answers = reflection.server_reflection_info(asked).await?.into_inner();
            answers.message().await
        });
        answered.expect("reflection").and_then(|answer| answer.message_response)
    };
    let Some(MessageResponse::ListServicesResponse(list)) =
        ask(MessageRequest::ListServices(String::new()))
    else {
        panic!("no list");
    };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    for service in SERVICES.into_iter().chain(["grpc.health.v1.Health"]) {
        assert!(names.iter().any(|name| name == service), "{service} is not in {names:?}");
        let symbol = MessageRequest::FileContainingSymbol(service.to_owned());
        assert!(matches!(ask(symbol), Some(MessageResponse::FileDescriptorResponse(_))));
    }
}

#[test]
fn a_deadline_that_has_passed_is_said_to_have() {
    let mut grpc = Grpc::all();
    let addr = grpc.addr;
    for timeout in ["1n", "0n", "0H"] {
        let headers = [("grpc-timeout", timeout)];
        let body = wire::message(b"\x0a\x01a");
        let call = wire::call(addr, "/rebate.v1.Cache/Get", &headers, &body);
        let ended = grpc.runtime.block_on(call).expect("an answer");
        assert_eq!(ended.code, Some(Code::DeadlineExceeded as i32), "{timeout}: {ended:?}");
    }
    let mut cache = grpc.cache();
    grpc.runtime.block_on(async {
        let mut request = api::tonic::Request::new(get(b"a"));
        request.set_timeout(Duration::from_secs(3_600));
        cache.get(request).await.expect("an hour");
    });
    assert_eq!(grpc.metric("rebate_grpc_errors_total{kind=\"deadline\"}"), 3);
    grpc.assert_healthy("deadlines");
}

/// A memcached server that accepts requests and answers a miss only when the test tells it to.
struct Reluctant {
    url: String,
    asked: mpsc::Receiver<()>,
    answer: mpsc::Sender<()>,
}

impl Reluctant {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("memcached://{}", listener.local_addr().expect("an address"));
        let (asked_sender, asked) = mpsc::channel();
        let (answer, answer_receiver) = mpsc::channel();
        let answer_receiver = Arc::new(Mutex::new(answer_receiver));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (asked_sender, answer_receiver) =
                    (asked_sender.clone(), Arc::clone(&answer_receiver));
                std::thread::spawn(move || Self::serve(stream, &asked_sender, &answer_receiver));
            }
        });
        Self { url, asked, answer }
    }

    fn serve(
        mut stream: TcpStream,
        asked_sender: &mpsc::Sender<()>,
        answer_receiver: &Mutex<mpsc::Receiver<()>>,
    ) {
        let requests = BufReader::new(stream.try_clone().expect("a second handle"));
        for line in requests.lines().map_while(Result::ok) {
            let answer: &[u8] = if line == "mn" {
                b"MN\r\n"
            } else {
                let _gone = asked_sender.send(());
                if answer_receiver.lock().expect("no panic").recv().is_err() {
                    return;
                }
                b"END\r\n"
            };
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    }
}

#[test]
fn the_end_lets_calls_finish_and_tells_those_who_watch() {
    let store = Reluctant::start();
    let mut grpc = Grpc::start(&["--role", "frontend", "--store", &store.url]);
    let (mut cache, mut health) = (grpc.cache(), HealthClient::new(grpc.channel()));
    let addr = grpc.addr;
    let Grpc { server, runtime, .. } = &mut grpc;
    runtime.block_on(async {
        let in_flight = tokio::spawn(async move {
            cache.get(GetRequest { key: b"a".to_vec().into(), ..GetRequest::default() }).await
        });
        let mut watch = health.watch(about("rebate.v1.Cache")).await.expect("watch").into_inner();
        // A ring counts as serving after its first answer.
        let serving = async {
            while watch.message().await.expect("a word").expect("a word").status()
                != ServingStatus::Serving
            {}
        };
        tokio::time::timeout(TIMEOUT, serving).await.expect("it serves in time");
        let asked = store.asked;
        let asked = tokio::task::spawn_blocking(move || asked.recv_timeout(TIMEOUT).is_ok());
        assert!(asked.await.expect("a wait"), "the call is under way");
        server.signal(Signal::TERM);
        let next = tokio::time::timeout(TIMEOUT, watch.message()).await.expect("a word in time");
        assert_eq!(next.expect("a word").expect("a word").status(), ServingStatus::NotServing);
        let last = tokio::time::timeout(TIMEOUT, watch.message()).await.expect("an end in time");
        assert_eq!(last.expect_err("the end of the watch").code(), Code::Unavailable);
        assert!(!in_flight.is_finished(), "nothing has answered it");
        assert!(tokio::net::TcpStream::connect(addr).await.is_err(), "still accepts");
        store.answer.send(()).expect("the store waits");
        let found = in_flight.await.expect("the call's task").expect("a call that is finished");
        assert!(!found.into_inner().found);
    });
    let status = server.wait_exit(TIMEOUT).expect("the end");
    assert!(status.success(), "{status}: {}", server.output());
}

#[test]
fn the_end_does_not_wait_for_calls_that_never_finish() {
    let store = Reluctant::start();
    let limit = ["--set", "server.drain_timeout_ms=500"];
    let ours = ["--role", "frontend", "--store", &store.url];
    let mut grpc = Grpc::start(&[&ours[..], &limit].concat());
    let mut cache = grpc.cache();
    let Grpc { server, runtime, .. } = &mut grpc;
    runtime.block_on(async {
        let in_flight = tokio::spawn(async move { cache.get(get(b"a")).await });
        let asked = store.asked;
        let asked = tokio::task::spawn_blocking(move || asked.recv_timeout(TIMEOUT).is_ok());
        assert!(asked.await.expect("a wait"), "the call is under way");
        server.signal(Signal::TERM);
        let ended = tokio::time::timeout(TIMEOUT, in_flight).await.expect("an end in time");
        assert!(ended.expect("the call's task").is_err());
    });
    assert!(server.wait_exit(TIMEOUT).is_some());
}

#[test]
fn the_health_command_says_what_the_process_says() {
    let mut grpc = Grpc::start(&["--role", "frontend", "--store", "embedded"]);
    let addr = grpc.addr.to_string();
    let ask = |args: &[&str]| {
        let health = ["health", "--timeout", "30s"];
        let command = Command::new(rebate_binary()).args(health).args(args).output();
        let output = command.expect("the command runs");
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        (output.status.code().expect("an exit code"), text)
    };
    let serving = (0, "serving".to_owned());
    assert_eq!(ask(&[&addr]), serving);
    assert_eq!(ask(&[&addr, "--service", "rebate.v1.Cache"]), serving);
    let (code, text) = ask(&[&addr, "--service", "rebate.v1.Store"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("rebate.v1.Store"), "{text}");
    grpc.server.kill();
    assert_eq!(ask(&[&addr]).0, 1);
    assert_eq!(ask(&["nonsense"]).0, 2);
}
