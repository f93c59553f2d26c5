//! Tests one client that uses as much as it can, or disconnects suddenly, while others wait for answers. The
//! services must keep the rules of docs/operating/rpc.md about memory, fairness and connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use rebate_tests::{TIMEOUT, poll_for};
use rustix::process::Signal;

use super::{LAYOUTS, Service, ours};

fn connect(service: &Service) -> TcpStream {
    let stream = TcpStream::connect(service.address).expect("it listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream
}

/// Returns a frame that calls a function with a key and, if given, a value.
fn call(name: &[u8], key: &[u8], value: Option<&[u8]>) -> Vec<u8> {
    let text = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
    let mut message = [b"\x80\x01\0\x01", &text(name)[..], b"\0\0\0\x01"].concat();
    message.extend([b"\x0b\0\x01", &text(key)[..]].concat());
    if let Some(value) = value {
        message.extend([b"\x0b\0\x02", &text(value)[..]].concat());
    }
    message.push(0);
    text(&message)
}

fn get(key: &[u8]) -> Vec<u8> {
    call(b"Get", key, None)
}

/// Reads the next answer's message.
fn answer(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let mut message = vec![0; u32::from_be_bytes(head) as usize];
    stream.read_exact(&mut message)?;
    Ok(message)
}

#[test]
fn who_asks_without_end_starves_neither_others_nor_a_signal() {
    for layout in LAYOUTS {
        let mut service = ours("memcached", layout, &[]);
        let greedy: Vec<_> = (0..4).flat_map(|_| asks_without_end(connect(&service))).collect();
        for _ in 0..3 {
            let mut other = connect(&service);
            other.write_all(&get(b"k")).expect("it is sent");
            answer(&mut other).expect("an answer beside the greedy ones'");
        }
        service.process.signal(Signal::TERM);
        let status = service.process.wait_exit(TIMEOUT).expect("it ends");
        assert!(status.success(), "{}", service.process.output());
        greedy.into_iter().for_each(|thread| thread.join().expect("it ends with its connection"));
    }
}

/// Sends requests on one thread and reads the answers on another, until the connection is closed. Returns after the
/// first answer.
fn asks_without_end(mut stream: TcpStream) -> [thread::JoinHandle<()>; 2] {
    let mut taken = stream.try_clone().expect("another handle");
    let requests = get(b"k").repeat(20_000);
    let asks = thread::spawn(move || while stream.write_all(&requests).is_ok() {});
    answer(&mut taken).expect("an answer");
    let takes = thread::spawn(move || {
        let mut bytes = vec![0; 1 << 20];
        while taken.read(&mut bytes).is_ok_and(|count| count > 0) {}
    });
    [asks, takes]
}

#[test]
fn answers_that_nobody_takes_are_held_back_and_come_later() {
    let value = vec![b'v'; 500_000];
    for layout in LAYOUTS {
        let service = ours("memcached", layout, &[]);
        let mut greedy = connect(&service);
        greedy.write_all(&call(b"Set", b"k", Some(&value))).expect("it is sent");
        answer(&mut greedy).expect("it is stored");
        let count = (16 << 10) / get(b"k").len();
        greedy.write_all(&get(b"k").repeat(count)).expect("it is sent");
        // The service serves both connections in turn. So the greedy one was served as often as this one.
        let mut other = connect(&service);
        for _ in 0..2 * count {
            other.write_all(&get(b"none")).expect("it is sent");
            answer(&mut other).expect("an answer");
        }
        let held_bytes = service.process.rss_bytes().expect("it runs");
        assert!(held_bytes < 150 << 20, "{layout}: {held_bytes} B for answers of {count} requests");
        for at in 0..count {
            let got = answer(&mut greedy).unwrap_or_else(|error| panic!("{layout}: {at}: {error}"));
            assert!(got.len() > value.len(), "{layout}: {at}");
        }
    }
}

#[test]
fn who_leaves_within_a_frame_takes_no_place() {
    for layout in LAYOUTS {
        let service = ours("memcached", layout, &["--connections-max", "4"]);
        // The bytes and the end of the stream arrive while the service is stopped, so the service learns of both at
        // once.
        service.process.stop().expect("it stands still");
        for _ in 0..4 {
            connect(&service).write_all(b"\0\0").expect("it is sent");
        }
        service.process.go_on();
        let served = poll_for(TIMEOUT, || {
            let mut stream = connect(&service);
            stream.write_all(&get(b"k")).ok()?;
            answer(&mut stream).ok()
        });
        assert!(served.is_some(), "{layout}: four that are gone hold four places");
    }
}

#[test]
fn requests_are_answered_before_a_bad_frame_closes() {
    for layout in LAYOUTS {
        let service = ours("memcached", layout, &[]);
        for _ in 0..20 {
            let mut stream = connect(&service);
            let bytes = [&get(b"k")[..], b"\x7f\xff\xff\xff"].concat();
            stream.write_all(&bytes).expect("it is sent");
            answer(&mut stream).expect("an answer");
            assert_eq!(stream.read(&mut [0; 16]).expect("it is closed"), 0);
            let mut stream = connect(&service);
            stream.write_all(&get(b"k").repeat(3)).expect("it is sent");
            stream.shutdown(Shutdown::Write).expect("it is open");
            (0..3).for_each(|_| drop(answer(&mut stream).expect("an answer")));
            assert_eq!(stream.read(&mut [0; 16]).expect("it is closed"), 0);
        }
    }
}
