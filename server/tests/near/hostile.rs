//! Near clients that lie, rewrite what they have sent, flood, die or stop. The others get correct answers, and the
//! server gets its memory back.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use drivers::near::NearClient;
use rebate_client::{Client, Write as With};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::{Service, TIMEOUT};

/// The offsets of the words and the sizes in the layout that `drivers::near` describes.
const TAIL: u64 = 0;
const HEAD: u64 = 64;
const HALF_BYTES: u64 = 20_480;
const RING_BYTES: u64 = 16_384;

/// A client that writes its memory as it likes.
struct Raw {
    socket: UnixStream,
    half: File,
    ring: File,
}

impl Raw {
    fn connect(service: &Service) -> Self {
        let [half, ring] = [HALF_BYTES, RING_BYTES].map(|bytes| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = memfd_create("hostile", flags).expect("a memfd");
            ftruncate(&file, bytes).expect("room");
            fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
            File::from(file)
        });
        let socket = UnixStream::connect(service.path()).expect("accepts");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [half.as_fd(), ring.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let (greeting, bytes) = (b"REBANEAR\x01\0\0\0\0\0\0\0", RING_BYTES.to_ne_bytes());
        let parts = [IoSlice::new(greeting), IoSlice::new(&bytes)];
        sendmsg(&socket, &parts, &mut control, SendFlags::empty()).expect("sent");
        // A socket that is full of doorbells must not stop this client.
        socket.set_nonblocking(true).expect("can be set");
        Self { socket, half, ring }
    }

    fn set(&self, at: u64, word: u64) {
        self.half.write_all_at(&word.to_ne_bytes(), at).expect("within the half");
    }

    fn ring(&self) {
        use std::io::Write;
        let _ = (&self.socket).write_all(b"!");
    }
}

/// Lets a client use the server until `stop`. Every value must be what it wrote. Returns the number of its requests.
fn use_well(mut client: Client, stop: &AtomicBool) -> u64 {
    let mut requests = 0;
    while !stop.load(Ordering::Relaxed) {
        let value = format!("value {requests}").repeat(1 + requests as usize % 300);
        client.set(b"good", value.as_bytes(), With::default()).expect("stored");
        let item = client.get(b"good").expect("an answer").expect("an item");
        assert!(item.value == value.as_bytes(), "wrong bytes in round {requests}");
        requests += 1;
    }
    requests
}

/// Attacks a server while a good near client and a good text client use it.
fn attack(service: &Service, attack: impl FnOnce()) {
    let stop = Arc::new(AtomicBool::new(false));
    let (near, stopping) = (service.client(), Arc::clone(&stop));
    let good = thread::spawn(move || use_well(near, &stopping));
    attack();
    assert_eq!(service.text().ask("set t 0 0 2\r\nok\r\nget t").lines().count(), 4);
    stop.store(true, Ordering::Relaxed);
    assert!(good.join().expect("no wrong bytes") > 0, "it was served");
}

#[test]
fn a_client_that_lies_is_cut_and_counted() {
    let service = Service::start();
    attack(&service, || {
        let lies = [(TAIL, RING_BYTES + 1), (TAIL, u64::MAX), (HEAD, 1 << 40), (HEAD, 1 << 63)];
        for (number, (word, value)) in lies.into_iter().enumerate() {
            let client = Raw::connect(&service);
            client.ring.write_all_at(b"version\r\n", 0).expect("within the ring");
            // A claim about what was read is noticed when the server answers.
            client.set(word, value);
            if word == HEAD {
                client.set(TAIL, 9);
            }
            client.ring();
            service.wait_for("rebate_near_broken_total ", number as u64 + 1);
        }
    });
}

#[test]
fn a_client_that_rewrites_what_it_sends_harms_only_itself() {
    let service = Service::start();
    let until = Instant::now() + Duration::from_secs(2);
    attack(&service, || {
        while Instant::now() < until {
            let client = Raw::connect(&service);
            let set = b"set mine 0 0 1000\r\n";
            client.ring.write_all_at(set, 0).expect("within the ring");
            for round in 0..400_u64 {
                // The words advance by what may be whole commands, and the bytes change all the time.
                client.set(TAIL, (round + 1) * 1_021);
                client.set(HEAD, 0);
                let at = (round * 4_099) % (RING_BYTES - 64);
                let text =
                    if round % 3 == 0 { &b"get good\r\nset mine 0 0 "[..] } else { &[0x80; 24] };
                client.ring.write_all_at(text, at).expect("within the ring");
                client.ring();
            }
        }
    });
}

#[test]
fn a_client_that_floods_or_says_nothing_holds_up_no_other() {
    let service = Service::start();
    let silent: Vec<UnixStream> =
        (0..20).map(|_| UnixStream::connect(service.path()).expect("accepts")).collect();
    attack(&service, || {
        let client = Raw::connect(&service);
        for _ in 0..20_000 {
            client.ring();
        }
        // It asks for more than its ring holds and never reads.
        let mut greedy =
            NearClient::connect(&service.path(), Instant::now() + TIMEOUT).expect("connects");
        let get =
            b"get good good good good good good good good good good good good\r\n".repeat(200);
        let soon = Instant::now() + Duration::from_millis(500);
        while greedy.write(&[IoSlice::new(&get)], soon).is_ok() {}
    });
    drop(silent);
}

#[test]
fn clients_that_die_in_the_middle_of_a_request_leave_nothing() {
    let service = Service::start();
    attack(&service, || {
        for round in 0..50 {
            let deadline = Instant::now() + TIMEOUT;
            let mut dying = NearClient::connect(&service.path(), deadline).expect("connects");
            let half_a_request = match round % 3 {
                0 => &b"set half 0 0 100000\r\nnot all of it"[..],
                1 => &b"get go"[..],
                _ => &[0x80, 1, 0, 1][..],
            };
            dying.write(&[IoSlice::new(half_a_request)], deadline).expect("room");
        }
    });
    service.wait_for("rebate_near_held_bytes ", 0);
    assert_eq!(service.text().ask("get half"), "END\r\n");
}

#[test]
fn a_stopped_client_is_served_when_it_goes_on() {
    let service = Service::start();
    let value = vec![b'v'; 700_000];
    service.client().set(b"long", &value, With::default()).expect("stored");
    attack(&service, || {
        let deadline = Instant::now() + TIMEOUT;
        let mut slow = NearClient::connect(&service.path(), deadline).expect("connects");
        slow.write(&[IoSlice::new(b"get long\r\n")], deadline).expect("room");
        // The server has filled its ring and waits for room, without holding up others.
        thread::sleep(Duration::from_millis(500));
        let (mut answer, mut space) = (Vec::new(), vec![0; 8_192]);
        while !answer.ends_with(b"END\r\n") {
            let bytes = slow.read(&mut space, deadline).expect("an answer");
            assert!(bytes > 0, "the end after {} bytes", answer.len());
            answer.extend_from_slice(&space[..bytes]);
        }
        let header = b"VALUE long 0 700000\r\n";
        assert!(answer.starts_with(header) && answer[header.len()..].starts_with(&value));
    });
}

#[test]
fn a_wrong_greeting_is_counted() {
    use std::io::{Read, Write};
    let service = Service::start();
    let mut stranger = UnixStream::connect(service.path()).expect("accepts");
    stranger.write_all(b"get a\r\n").expect("reads");
    assert_eq!(stranger.read(&mut [0; 64]).unwrap_or(0), 0, "it is closed");
    service.wait_for("rebate_near_refused_total ", 1);
}
