//! Tests stores behind a service: a frontend that reaches memcached through `rebate serve --role store`. The tests
//! cover the order on one key, large values, a service or memcached that is killed, stopped and restarted, and a
//! service with wrong answers. Clients must never get wrong bytes, errors must be clear, and the frontend must recover
//! without a restart.

mod services;

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use api::prost::Message;
use api::tonic::Code;
use api::v1::store_client::StoreClient;
use api::v1::{
    DeleteRequest, ExecuteRequest, ExecuteResponse, GetRequest, MultiGetRequest, SetRequest,
    set_request, set_response,
};
use rebate_tests::payload::random;
use rebate_tests::{Client, Load, Port, Server, TIMEOUT, poll_for};
use rustix::process::Signal;
use services::Service;

/// Flags that allow items of 4 MiB. The default limit of 1 MiB includes the key and the header.
const LARGE_ITEMS: [&str; 2] = ["--item-bytes-max", "4MiB"];

fn service_for(memcached: &Server) -> Service {
    Service::start("store", 0, &["--store", &memcached.as_store()])
}

fn frontend(service: SocketAddr, args: &[&str]) -> Server {
    let role = ["--role", "frontend"];
    Server::rebate_serve(&format!("grpc://{service}"), "on", &[&role, args].concat())
}

#[test]
fn a_pipeline_on_one_key_sees_its_own_writes() {
    let memcached = Server::memcached(&["-m", "256"]);
    let service = service_for(&memcached);
    let ours = frontend(service.grpc, &[]);
    let mut client = ours.client();
    for round in 0..60 {
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        for step in 0..30 {
            let length = [10, 4_000, 10, 10, 200_000, 10][step % 6];
            let value = random(length + round % 7);
            let value: Vec<u8> = value.iter().map(|byte| b'a' + byte % 26).collect();
            let head = format!("set k 0 0 {}\r\n", value.len());
            sent.extend([head.as_bytes(), &value, b"\r\nget k\r\n"].concat());
            let head = format!("STORED\r\nVALUE k 0 {}\r\n", value.len());
            expected.extend([head.as_bytes(), &value, b"\r\nEND\r\n"].concat());
            let count = round * 30 + step;
            if count == 0 {
                sent.extend(b"set n 0 0 1\r\n0\r\n");
                expected.extend(b"STORED\r\n");
            }
            sent.extend(b"incr n 1\r\nget n\r\n");
            let (count, digits) = (count + 1, (count + 1).to_string().len());
            expected.extend(format!("{count}\r\nVALUE n 0 {digits}\r\n{count}\r\nEND\r\n").bytes());
            sent.extend(b"set k 0 0 1 noreply\r\nx\r\nmg k v\r\ndelete k\r\nget k\r\n");
            expected.extend(b"VA 1\r\nx\r\nDELETED\r\nEND\r\n");
        }
        assert_eq!(talk(&mut client, sent, expected.len()), expected, "round {round}");
    }
}

/// Sends bytes and reads the answer at the same time. A server whose answers are not read would stop reading.
fn talk(client: &mut Client, sent: Vec<u8>, answer_bytes: usize) -> Vec<u8> {
    let mut writer = client.split().expect("a second handle");
    let writing = thread::spawn(move || writer.send(&sent));
    let answer = client.read_exact(answer_bytes);
    writing.join().expect("the writer").expect("the server reads");
    answer.expect("as many bytes as expected")
}

#[test]
fn calls_of_one_session_never_meet_in_a_key() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let (sender, receiver) = std::sync::mpsc::channel();
    let _last_first = thread::spawn(move || on_this_thread(last_first(listener, sender)));
    let ours = frontend(address, &["--threads", "1"]);
    let mut client = ours.client();
    let (mut sent, mut expected) = (String::new(), String::new());
    for round in 0..10 {
        for key in ["a", "b", "c"] {
            sent += &format!("set {key} 0 0 1\r\n{round}\r\n");
            expected += "STORED\r\n";
        }
        for key in ["a", "b", "c", "a"] {
            sent += &format!("get {key}\r\n");
            expected += &format!("VALUE {key} 0 1\r\n{round}\r\nEND\r\n");
        }
        sent += "set a 0 0 1 noreply\r\nx\r\nget b a\r\ndelete a\r\nget a\r\n";
        expected += &format!("VALUE b 0 1\r\n{round}\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
        expected += "DELETED\r\nEND\r\n";
    }
    let answer = talk(&mut client, sent.into_bytes(), expected.len());
    assert_eq!(String::from_utf8_lossy(&answer), expected);
    let most = receiver.try_iter().max();
    assert!(most >= Some(3), "calls without a common key go out together, not {most:?}");
}

/// Runs a store service for sets, gets and deletes. It collects calls until no more arrive, answers the newest first,
/// and sends the number of collected calls to `sender`.
async fn last_first(listener: TcpListener, sender: std::sync::mpsc::Sender<usize>) {
    listener.set_nonblocking(true).expect("the listener can be taken over");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
    let (stream, _) = listener.accept().await.expect("a connection");
    let mut connection = h2::server::handshake(stream).await.expect("a handshake");
    let (calls_sender, mut calls) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok((request, respond))) = connection.accept().await {
            let calls_sender = calls_sender.clone();
            tokio::spawn(async move {
                let mut body = request.into_body();
                let mut bytes = Vec::new();
                while let Some(Ok(data)) = body.data().await {
                    bytes.extend(data);
                }
                let message = ExecuteRequest::decode(&bytes[5..]).expect("a message");
                let _ended = calls_sender.send((message.parts.concat(), respond));
            });
        }
    });
    let mut items = HashMap::new();
    while let Some(first) = calls.recv().await {
        let mut taken = vec![first];
        while let Ok(Some(next)) = tokio::time::timeout(QUIET, calls.recv()).await {
            taken.push(next);
        }
        let _ended = sender.send(taken.len());
        for (command, mut respond) in taken.into_iter().rev() {
            let answer = serve(&mut items, &String::from_utf8(command).expect("text"));
            let response = ExecuteResponse { parts: vec![answer.into_bytes().into()] };
            let message = response.encode_to_vec();
            let length = u32::try_from(message.len()).expect("short").to_be_bytes();
            let mut send = respond.send_response(h2_response(200), false).expect("a stream");
            send.send_data([&[0][..], &length, &message].concat().into(), false).expect("a stream");
            let mut trailers = api::tonic::codegen::http::HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().expect("a header"));
            send.send_trailers(trailers).expect("a stream");
        }
    }
}

fn serve(items: &mut HashMap<String, String>, command: &str) -> String {
    let (line, rest) = command.split_once("\r\n").expect("a line");
    let mut words = line.split(' ');
    match words.next().expect("a name") {
        "set" => {
            items.insert(words.next().expect("a key").to_owned(), rest.trim_end().to_owned());
            "STORED\r\n".to_owned()
        }
        "delete" => match items.remove(words.next().expect("a key")) {
            Some(_) => "DELETED\r\n".to_owned(),
            None => "NOT_FOUND\r\n".to_owned(),
        },
        _ => {
            let found = words.filter_map(|key| Some((key, items.get(key)?)));
            let value = |(key, value): (&str, &String)| {
                format!("VALUE {key} 0 {}\r\n{value}\r\n", value.len())
            };
            found.map(value).collect::<String>() + "END\r\n"
        }
    }
}

/// If no call arrives for this time, the frontend is assumed to wait for answers.
const QUIET: Duration = Duration::from_millis(30);

#[test]
fn many_large_values_come_back_as_they_were() {
    let memcached = Server::memcached(&["-m", "512", "-I", "4m"]);
    let store = ["--store", &memcached.as_store()];
    let service = Service::start("store", 0, &[&store[..], &LARGE_ITEMS].concat());
    let ours = frontend(service.grpc, &LARGE_ITEMS);
    let mut client = ours.client();
    for length in [512 << 10, 1 << 20, 3 << 20] {
        for value in [random(length), vec![b'z'; length]] {
            assert_eq!(client.set("large", &value).as_deref(), Ok("STORED"), "{length}");
            assert_eq!(client.get("large"), Ok(Some(value)), "{length}");
        }
    }
    let keys: Vec<String> = (0..100).map(|index| format!("key_{index}")).collect();
    let value = |index: usize| random((64 << 10) + index);
    let mut expected = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let value = value(index);
        assert_eq!(client.set(key, &value).as_deref(), Ok("STORED"));
        let head = format!("VALUE {key} 0 {}\r\n", value.len());
        expected.extend([head.as_bytes(), &value, b"\r\n"].concat());
    }
    expected.extend(b"END\r\n");
    let line = format!("get {}\r\n", keys.join(" ")).into_bytes();
    assert!(talk(&mut client, line, expected.len()) == expected, "100 values of 64 KiB");
}

#[test]
fn many_large_values_at_once_are_all_served() {
    let memcached = Server::memcached(&["-m", "512", "-I", "4m"]);
    // This budget covers half of the bytes that the clients request, including answers on their way out.
    let little = ["--set", "runtime.inflight_bytes_max=16MiB"];
    let store = ["--store", &memcached.as_store()];
    let service = Service::start("store", 0, &[&store[..], &LARGE_ITEMS, &little].concat());
    let ours = frontend(service.grpc, &LARGE_ITEMS);
    let clients: Vec<_> = (0..24)
        .map(|index| {
            let mut client = ours.client();
            thread::spawn(move || {
                let key = format!("large_{index}");
                let value = random((1 << 20) + index);
                for _ in 0..3 {
                    assert_eq!(client.set(&key, &value).as_deref(), Ok("STORED"));
                    assert_eq!(client.get(&key), Ok(Some(value.clone())));
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("every request is served");
    }
}

#[test]
fn a_killed_service_gives_clear_errors_and_recovers() {
    let memcached = Server::memcached(&[]);
    let port = Port::free().expect("a free port");
    let store = ["--store", &memcached.as_store()];
    let mut service = Service::start("store", port.number(), &store);
    let ours = frontend(service.grpc, &[]);
    let load = Load::start(ours.addr());
    load.await_good(300);
    for _ in 0..3 {
        service.kill();
        load.await_errors(20);
        let error = ours.client().get("a").expect_err("nobody can answer");
        assert!(error.starts_with("SERVER_ERROR the store "), "{error}");
        service = Service::start("store", port.number(), &store);
        load.await_good(300);
    }
    let wrong = load.stop();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_stopped_service_gives_errors_in_time_and_recovers() {
    let memcached = Server::memcached(&[]);
    let service = service_for(&memcached);
    let ours = frontend(service.grpc, &["--set", "store.timeout_ms=300"]);
    let load = Load::start(ours.addr());
    for _ in 0..2 {
        load.await_good(200);
        service.stop().expect("it stands still");
        load.await_errors(20);
        let error = ours.client().get("a").expect_err("a stopped service cannot answer");
        assert!(error.starts_with("SERVER_ERROR the store "), "{error}");
        service.go_on();
    }
    load.await_good(200);
    let wrong = load.stop();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_killed_memcached_behind_the_service_gives_clear_errors() {
    let port = Port::free().expect("a free port");
    let mut memcached = Server::memcached_at(port.number(), &[]);
    let soon = ["--set", "store.timeout_ms=1000"];
    let store = ["--store", &memcached.as_store()];
    let service = Service::start("store", 0, &[&store[..], &soon].concat());
    let ours = frontend(service.grpc, &soon);
    let load = Load::start(ours.addr());
    load.await_good(300);
    memcached.kill();
    load.await_errors(20);
    let error = ours.client().get("a").expect_err("memcached is gone");
    assert!(error.starts_with("SERVER_ERROR the store "), "{error}");
    let memcached = Server::memcached_at(port.number(), &[]);
    load.await_good(300);
    memcached.stop().expect("it stands still");
    load.await_errors(20);
    memcached.go_on();
    load.await_good(300);
    let wrong = load.stop();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_hanging_store_does_not_stop_the_others() {
    let stores = [Server::memcached(&[]), Server::memcached(&[])];
    let both = format!("{},{}", stores[0].as_store(), stores[1].addr());
    // The frontend and the service have the same timeout. The frontend leaves an eighth of it for the service's error.
    // The server stays in the ring, so that each request waits for it.
    let limit = ["--set", "store.timeout_ms=16000", "--set", "store.eject_share_max=0"];
    let service = Service::start("store", 0, &[&["--store", &both][..], &limit].concat());
    let ours = frontend(service.grpc, &[&["--threads", "1"][..], &limit].concat());
    let mut client = ours.client();
    let mut keys = [Vec::new(), Vec::new()];
    for index in 0..40 {
        let key = format!("k{index}");
        assert_eq!(client.set(&key, b"x").as_deref(), Ok("STORED"));
        let at = stores.iter().position(|store| store.client().get(&key) == Ok(Some(vec![b'x'])));
        keys[at.expect("it is at one of them")].push(key);
    }
    let [served, lost] = keys;
    stores[1].stop().expect("it stands still");
    for quiet in [true, false] {
        let mut other = ours.client();
        let key = lost[0].clone();
        // Repeats until the error is the timeout. Other errors say that the store is down or has disconnected.
        let asking = thread::spawn(move || {
            let late = "SERVER_ERROR the store gave no answer within 16000 ms";
            while other.get(&key).expect_err("its store hangs") != late {}
        });
        while !asking.is_finished() {
            if quiet {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
            assert_eq!(client.get(&served[0]), Ok(Some(b"x".to_vec())));
        }
        asking.join().expect("an error");
        for key in &served {
            assert_eq!(client.get(key), Ok(Some(b"x".to_vec())), "afterwards");
        }
    }
    stores[1].go_on();
    let back = poll_for(TIMEOUT, || client.get(&lost[0]).ok());
    assert_eq!(back, Some(Some(b"x".to_vec())));
}

#[test]
fn an_answer_beyond_the_limit_is_an_error_at_once() {
    let service = Service::start("store", 0, &["--store", "embedded"]);
    let ours = frontend(service.grpc, &["--threads", "1"]);
    let mut client = ours.client();
    let value = random(1_000_000);
    assert_eq!(client.set("k", &value).as_deref(), Ok("STORED"));
    let many = format!("get{}\r\n", " k".repeat(120_000));
    calls(service.grpc, async |mut store| {
        let error = execute(&mut store, many.as_bytes()).await.expect_err("120 GB");
        assert_eq!(error.code(), Code::OutOfRange, "{error}");
        assert!(error.message().contains("no room for the answer"), "{error}");
    });
    let held = service.rss_bytes().expect("it runs");
    assert!(held < 512 << 20, "the service holds {held} bytes");
    // A frontend requests only as much at a time as a session may have in flight.
    let first = client.line(many.trim_ascii_end().as_bytes()).expect("an answer");
    assert_eq!(first, "VALUE k 0 1000000");
    let mut client = ours.client();
    assert!(client.get("k") == Ok(Some(value)), "the service is as before");
}

#[test]
fn a_service_that_drains_is_followed_by_the_next_one() {
    let memcached = Server::memcached(&[]);
    let port = Port::free().expect("a free port");
    let store = ["--store", &memcached.as_store()];
    let mut service = Service::start("store", port.number(), &store);
    let ours = frontend(service.grpc, &[]);
    let load = Load::start(ours.addr());
    load.await_good(100);
    service.signal(Signal::TERM);
    assert!(service.wait_exit(TIMEOUT).is_some_and(|status| status.success()));
    let _next = Service::start("store", port.number(), &store);
    load.await_good(300);
    let wrong = load.stop();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns wrong answers to a get that a service may send. Each has a description, the HTTP status, the bytes of the
/// body, and the gRPC status.
fn nonsense() -> Vec<(&'static str, u16, Vec<u8>, &'static str)> {
    let message = |answer: &[u8]| {
        let mut message = vec![0x0a, u8::try_from(answer.len()).expect("short")];
        message.extend(answer);
        let length = u32::try_from(message.len()).expect("short").to_be_bytes();
        [&[0][..], &length, &message].concat()
    };
    vec![
        ("no protobuf", 200, b"\0\0\0\0\x05\xff\xff\xff\xff\xff".to_vec(), "0"),
        ("a string that claims too much", 200, b"\0\0\0\0\x03\x0a\x7fx".to_vec(), "0"),
        ("a message that ends early", 200, b"\0\0\0\0\x09\x0a".to_vec(), "0"),
        ("a message of 1 GiB", 200, b"\0\x40\0\0\0\x0a".to_vec(), "0"),
        ("a compressed message", 200, b"\x01\0\0\0\x01x".to_vec(), "0"),
        ("no message", 200, Vec::new(), "0"),
        ("an empty answer", 200, message(b""), "0"),
        ("no memcached answer", 200, message(b"hello\r\n"), "0"),
        ("an answer to something else", 200, message(b"STORED\r\n"), "0"),
        ("half an answer", 200, message(b"VALUE k 0 10\r\nabc"), "0"),
        ("a value too long", 200, message(b"VALUE k 0 2\r\nabcd\r\nEND\r\n"), "0"),
        ("two answers", 200, message(b"END\r\nEND\r\n"), "0"),
        ("a status of its own", 200, Vec::new(), "7"),
        ("no status at all", 200, message(b"END\r\n"), ""),
        ("a web page", 404, b"<html>not here</html>".to_vec(), ""),
    ]
}

#[test]
fn nonsense_from_a_service_is_only_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let (sender, receiver) = std::sync::mpsc::channel::<Told>();
    let _impostor = thread::spawn(move || impostor(listener, receiver));
    // The service stays in the ring, so that it gets every request.
    let ours = frontend(address, &["--set", "store.eject_share_max=0"]);
    let mut client = ours.client();
    for (what, status, body, grpc_status) in nonsense() {
        sender.send((status, body, grpc_status)).expect("the impostor lives");
        let error = client.get("k").expect_err(what);
        assert!(error.starts_with("SERVER_ERROR the store "), "{what}: {error}");
    }
    let right = b"\0\0\0\0\x07\x0a\x05END\r\n".to_vec();
    sender.send((200, right, "0")).expect("the impostor lives");
    assert_eq!(client.get("k"), Ok(None));
}

/// An answer of the impostor: the HTTP status, the body, and the status of gRPC.
type Told = (u16, Vec<u8>, &'static str);

/// Answers each call with the next answer from `receiver`, and probes with the right answer.
fn impostor(listener: TcpListener, receiver: std::sync::mpsc::Receiver<Told>) {
    let receiver = Arc::new(Mutex::new(receiver));
    for stream in listener.incoming() {
        let (stream, receiver) = (stream.expect("a connection"), Arc::clone(&receiver));
        thread::spawn(move || on_this_thread(pose(stream, &receiver)));
    }
}

async fn pose(stream: std::net::TcpStream, receiver: &Mutex<std::sync::mpsc::Receiver<Told>>) {
    stream.set_nonblocking(true).expect("the stream can be taken over");
    let stream = tokio::net::TcpStream::from_std(stream).expect("a stream");
    let mut connection = h2::server::handshake(stream).await.expect("a handshake");
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let mut asked = request.into_body();
        // The connection must be driven while the request is read.
        let asked = std::future::poll_fn(|task| {
            let read = asked.poll_data(task);
            if read.is_pending() {
                let _open = connection.poll_closed(task);
            }
            read
        });
        let asked = asked.await.and_then(Result::ok).unwrap_or_default();
        let (status, body, grpc_status) = match asked.ends_with(b"mn\r\n") {
            true => (200, b"\0\0\0\0\x06\x0a\x04MN\r\n".to_vec(), "0"),
            false => receiver.lock().expect("no panic").recv().expect("the test tells"),
        };
        let mut send = respond.send_response(h2_response(status), false).expect("an open stream");
        let ends = grpc_status.is_empty();
        send.send_data(body.into(), ends).expect("an open stream");
        if !ends {
            let mut trailers = api::tonic::codegen::http::HeaderMap::new();
            trailers.insert("grpc-status", grpc_status.parse().expect("a header"));
            send.send_trailers(trailers).expect("an open stream");
        }
    }
}

fn h2_response(status: u16) -> api::tonic::codegen::http::Response<()> {
    let kind = if status == 200 { "application/grpc" } else { "text/html" };
    let response = api::tonic::codegen::http::Response::builder().status(status);
    response.header("content-type", kind).body(()).expect("a response")
}

#[test]
fn a_server_without_http2_is_an_error_in_time() {
    let memcached = Server::memcached(&[]);
    let ours = frontend(memcached.addr(), &["--set", "store.timeout_ms=500"]);
    let mut client = ours.client();
    for _ in 0..3 {
        let error = client.get("k").expect_err("memcached speaks no gRPC");
        assert!(error.starts_with("SERVER_ERROR the store "), "{error}");
    }
}

#[test]
fn readiness_follows_the_service() {
    let memcached = Server::memcached(&[]);
    let mut service = service_for(&memcached);
    let ours = frontend(service.grpc, &["--admin-listen", "127.0.0.1:0"]);
    let admin = ours.admin().expect("an admin address");
    // Each check waits half a second for the service.
    let await_page = |wanted| {
        poll_for(TIMEOUT, || {
            let (status, _, body) = services::page(admin, "/readyz");
            (status == wanted).then_some(body)
        })
    };
    assert!(await_page(200).is_some(), "it is ready");
    service.kill();
    let said = await_page(503).expect("it is not ready");
    assert!(said.contains(&service.grpc.to_string()), "{said}");
}

#[test]
fn typed_calls_are_about_stored_bytes() {
    let memcached = Server::memcached(&[]);
    let service = service_for(&memcached);
    let ours = frontend(service.grpc, &[]);
    let text = rebate_tests::payload::text(20_000);
    assert_eq!(ours.client().set("framed", &text).as_deref(), Ok("STORED"));
    let mut direct = memcached.client();
    let stored = direct.get("framed").expect("an answer").expect("an item");
    assert!(stored.len() < text.len());
    calls(service.grpc, async |mut store| {
        let get = |key: &'static [u8]| GetRequest { key: key.into(), ..Default::default() };
        let framed = store.get(get(b"framed")).await.expect("an answer").into_inner();
        assert!(framed.found && !framed.is_frame && framed.value == stored, "the frame as it is");
        let binary = b"a key\r\n\0of any bytes";
        assert!(!store.get(get(binary)).await.expect("an answer").into_inner().found);
        let mode = set_request::Mode::Add.into();
        let value = framed.value.clone();
        let add = SetRequest {
            key: binary[..].into(),
            value,
            client_flags: 7,
            mode,
            ..Default::default()
        };
        for expected in [set_response::Outcome::Stored, set_response::Outcome::NotStored] {
            let outcome = store.set(add.clone()).await.expect("an answer").into_inner().outcome();
            assert_eq!(outcome, expected);
        }
        let found = store.get(get(binary)).await.expect("an answer").into_inner();
        assert_eq!((found.client_flags, found.value == stored), (7, true));
        let compare = |key: &'static [u8], compare_cas| SetRequest {
            key: key.into(),
            compare_cas,
            ..Default::default()
        };
        for (set, expected) in [
            (compare(binary, found.cas + 1), set_response::Outcome::Exists),
            (compare(binary, found.cas), set_response::Outcome::Stored),
            (compare(b"nothing", 1), set_response::Outcome::NotFound),
        ] {
            let outcome = store.set(set).await.expect("an answer").into_inner().outcome();
            assert_eq!(outcome, expected);
        }
        let keys = [&b"framed"[..], b"nothing", binary].map(<[u8]>::to_vec).map(Into::into);
        let many = MultiGetRequest { keys: keys.to_vec(), ..Default::default() };
        let items = store.multi_get(many).await.expect("an answer").into_inner().items;
        assert_eq!(items.iter().map(|item| item.found).collect::<Vec<_>>(), [true, false, true]);
        for expected in [true, false] {
            let delete = DeleteRequest { key: binary[..].into() };
            let found = store.delete(delete).await.expect("an answer").into_inner().found;
            assert_eq!(found, expected);
        }
    });
}

#[test]
fn unservable_calls_say_what_is_wrong() {
    let service = Service::start("store", 0, &["--store", "embedded"]);
    calls(service.grpc, async |mut store| {
        for (command, said) in [
            (&b""[..], "no whole command"),
            (b"get k", "no whole command"),
            (b"set k 0 0 5\r\nabc", "no whole command"),
            (b"get k\r\nget k\r\n", "7 bytes and 7 more"),
            (b"set k 0 0 1\r\nx\r\nget k\r\n", "7 more"),
            (b"quit\r\n", "quit"),
            (b"shutdown\r\n", "shutdown"),
            (b"watch\r\n", "watch"),
        ] {
            let error = execute(&mut store, command).await.expect_err(said);
            assert_eq!(error.code(), Code::InvalidArgument, "{}", command.escape_ascii());
            assert!(error.message().contains(said), "{}: {error}", command.escape_ascii());
        }
        for (command, expected) in [
            (&b"set k 0 0 1\r\nx\r\n"[..], "STORED\r\n"),
            (b"set k 0 0 1 noreply\r\ny\r\n", ""),
            (b"append k 0 0 1\r\nz\r\n", "STORED\r\n"),
            (b"get k\r\n", "VALUE k 0 2\r\nyz\r\nEND\r\n"),
            (b"mg nothing v q\r\n", ""),
            (b"set k 0 0 1\r\nxyz", "CLIENT_ERROR bad data chunk\r\n"),
            (b"nonsense\r\n", "ERROR\r\n"),
        ] {
            let answer = execute(&mut store, command).await.expect("memcached's answer");
            assert_eq!(String::from_utf8_lossy(&answer), expected, "{}", command.escape_ascii());
        }
        let parts = [&b"get"[..], b" ", b"k", b"\r", b"\n"].map(Into::into).to_vec();
        let error = store.execute(ExecuteRequest { parts }).await.expect_err("too many parts");
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains("5 parts; at most 4"), "{error}");
        let many = MultiGetRequest { keys: vec![b"k"[..].into(); 101], ..Default::default() };
        let long = GetRequest { key: vec![b'k'; 251].into(), ..Default::default() };
        for error in [
            store.multi_get(many).await.expect_err("too many keys"),
            store.get(long).await.expect_err("too long a key"),
            store.get(GetRequest::default()).await.expect_err("no key"),
        ] {
            assert_eq!(error.code(), Code::InvalidArgument);
            let message = error.message();
            assert!(message.contains("100") || message.contains("1 to 250"), "{message}");
        }
        let large = SetRequest {
            key: b"k"[..].into(),
            value: vec![0; (1 << 20) + 100].into(),
            ..Default::default()
        };
        let error = store.set(large).await.expect_err("too large");
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    });
}

#[test]
fn calls_leave_the_right_to_refill_a_stale_item() {
    let memcached = Server::memcached(&[]);
    let service = service_for(&memcached);
    calls(service.grpc, async |mut store| {
        let mut client = memcached.client();
        for is_multi in [false, true] {
            assert_eq!(client.ask(b"ms a 2\r\nhi").text(), "HD\r\n");
            assert_eq!(client.ask(b"md a I").text(), "HD\r\n");
            let key = b"a"[..].into();
            let found = if is_multi {
                let many = MultiGetRequest { keys: vec![key], ..Default::default() };
                store.multi_get(many).await.expect("an answer").into_inner().items.remove(0)
            } else {
                let one = GetRequest { key, ..Default::default() };
                store.get(one).await.expect("an answer").into_inner()
            };
            assert_eq!(&found.value[..], b"hi");
            // The answer comes after the right was given back.
            assert_eq!(client.ask(b"mg a v").text(), "VA 2 X W\r\nhi\r\n", "{is_multi}");
        }
    });
}

type Store = StoreClient<api::tonic::transport::Channel>;

async fn execute(store: &mut Store, command: &[u8]) -> Result<Vec<u8>, api::tonic::Status> {
    let parts = command
        .chunks(command.len().div_ceil(4).max(1))
        .map(<[u8]>::to_vec)
        .map(Into::into)
        .collect();
    let answer = store.execute(ExecuteRequest { parts }).await?;
    Ok(answer.into_inner().parts.concat())
}

fn calls(service: SocketAddr, test: impl AsyncFnOnce(Store)) {
    on_this_thread(async {
        let address = api::Address::Tcp(service.to_string());
        let channel = api::wire::channel(&address, TIMEOUT).expect("an address");
        test(StoreClient::new(channel)).await;
    });
}

fn on_this_thread(work: impl Future<Output = ()>) {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
    executor.expect("an event loop").block_on(work);
}
