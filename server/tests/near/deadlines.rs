//! Packets with deadlines: one that the server comes to too late is answered and has no effect.

use std::io::{IoSlice, Read, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use drivers::near::NearClient;
use protocol::Key;
use protocol::binary::request::Store;
use protocol::binary::{Deadline, Request, Status, response};
use protocol::command::StoreVerb;
use units::host_ms;

use super::{Service, TIMEOUT};

const VALUE: &[u8] = b"value";

fn key() -> Key<'static> {
    Key::new(b"k").expect("a key")
}

fn set() -> Request<'static> {
    let (client_flags, exptime_s, cas) = (0, 0, 0);
    let value_bytes = VALUE.len() as u32;
    let verb = StoreVerb::Set;
    Request::Store(Store { verb, key: key(), client_flags, exptime_s, cas, value_bytes })
}

/// A deadline that was over a second ago.
fn over() -> Deadline {
    Deadline::after(host_ms() - 1_000, Duration::ZERO)
}

/// A deadline that is over in a minute.
fn ahead() -> Deadline {
    Deadline::after(host_ms(), TIMEOUT)
}

fn packet(request: &Request<'_>, deadline: Deadline, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    request.append_to(&mut out, 0, deadline);
    out.extend_from_slice(value);
    out
}

/// Returns the status of the next answer, which is taken from `input`.
fn status(input: &mut Vec<u8>, mut read: impl FnMut(&mut Vec<u8>)) -> u16 {
    loop {
        match response::parse(input, 1 << 20) {
            response::Parse::Response { response, consumed } => {
                let status = response.status;
                input.drain(..consumed);
                return status;
            }
            response::Parse::Incomplete { .. } => read(input),
            response::Parse::Malformed(why) => panic!("{why}"),
        }
    }
}

/// A near client that sends packets as they are.
struct Packets(NearClient, Vec<u8>);

impl Packets {
    fn connect(service: &Service) -> Self {
        let end = Instant::now() + TIMEOUT;
        let client = NearClient::connect(&service.path(), end).expect("accepts");
        assert!(client.shares_clock(), "both are one process");
        Self(client, Vec::new())
    }

    fn send(&mut self, bytes: &[u8]) {
        let end = Instant::now() + TIMEOUT;
        let sent = self.0.write(&[IoSlice::new(bytes)], end).expect("room");
        assert_eq!(sent, bytes.len());
    }

    fn status(&mut self) -> u16 {
        let Self(client, input) = self;
        status(input, |input| {
            let mut space = [0; 4_096];
            let read = client.read(&mut space, Instant::now() + TIMEOUT).expect("answers");
            assert!(read > 0, "the server has hung up");
            input.extend_from_slice(&space[..read]);
        })
    }

    fn ask(&mut self, request: &Request<'_>, deadline: Deadline, value: &[u8]) -> u16 {
        self.send(&packet(request, deadline, value));
        self.status()
    }
}

#[test]
fn what_comes_after_its_deadline_has_no_effect() {
    let service = Service::start();
    let mut client = Packets::connect(&service);
    let (late, missing) = (Status::Late.code(), Status::NotFound.code());
    let get = Request::Get { key: key(), quiet: false };
    assert_eq!(client.ask(&set(), over(), VALUE), late);
    assert_eq!(client.ask(&get, ahead(), b""), missing, "nothing was stored");
    assert_eq!(client.ask(&set(), ahead(), VALUE), 0);
    assert_eq!(client.ask(&get, over(), b""), late);
    assert_eq!(client.ask(&Request::Get { key: key(), quiet: true }, over(), b""), late);
    assert_eq!(client.ask(&Request::Delete { key: key(), cas: 0 }, over(), b""), late);
    assert_eq!(client.ask(&Request::Flush { delay_s: 0 }, over(), b""), late);
    assert_eq!(client.ask(&get, Deadline::default(), b""), 0, "the item is still there");
    service.wait_for("rebate_near_late_total ", 5);
}

#[test]
fn a_value_that_comes_after_the_deadline_is_not_stored() {
    let service = Service::start();
    let mut client = Packets::connect(&service);
    let deadline = Deadline::after(host_ms(), Duration::from_millis(50));
    let whole = packet(&set(), deadline, VALUE);
    let (head, value) = whole.split_at(whole.len() - VALUE.len());
    client.send(head);
    while !deadline.is_over(host_ms()) {
        std::thread::sleep(Duration::from_millis(10));
    }
    client.send(value);
    assert_eq!(client.status(), Status::Late.code());
    let get = Request::Get { key: key(), quiet: false };
    assert_eq!(client.ask(&get, ahead(), b""), Status::NotFound.code());
}

#[test]
fn sockets_have_no_deadlines() {
    let service = Service::start();
    let mut stream = TcpStream::connect(service.tcp_address()).expect("accepts");
    stream.set_read_timeout(Some(TIMEOUT)).expect("can be set");
    // Some clients of other servers have the number of a bucket there.
    stream.write_all(&packet(&set(), over(), VALUE)).expect("reads");
    let answer = status(&mut Vec::new(), |input| {
        let mut space = [0; 4_096];
        let read = stream.read(&mut space).expect("answers");
        assert!(read > 0, "the server has hung up");
        input.extend_from_slice(&space[..read]);
    });
    assert_eq!(answer, 0);
}
