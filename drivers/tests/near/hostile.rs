//! Peers that break every rule. They may write any word of their half and any byte of their ring at any time. The
//! attacked end must not panic, must not wait for ever, and must report only errors that end the connection.

use std::io::{self, IoSlice};
use std::os::unix::net::UnixStream;

use device::near::NearStream;
use drivers::near::{NearClient, RING_BYTES};
use rustix::fs::SealFlags;
use units::Prng;

use super::attack::{
    GREETING, HALF_BYTES, HEAD, Memory, RING, TAIL, attack_new_client, attack_new_server,
    attack_server, greeting,
};
use super::{Listener, deadline, serve_stream};

/// Returns the error with which a server refuses a greeting.
fn refusal(greet: impl FnOnce(&UnixStream)) -> String {
    let (client, server) = UnixStream::pair().expect("two sockets");
    greet(&client);
    let refused = serve_stream(server, async |_: &dyn NearStream| Ok(()));
    refused.expect_err("no client").to_string()
}

#[test]
fn a_wrong_greeting_is_refused() {
    let sealed = SealFlags::SHRINK;
    for (half, ring, says, seals, why) in [
        (HALF_BYTES, 3 * RING, 3 * RING, sealed, "a power of two from 4096"),
        (HALF_BYTES, RING / 2, RING / 2, sealed, "a power of two from 4096"),
        (HALF_BYTES, RING, 2 << 20, sealed, "to 1048576"),
        (HALF_BYTES, RING, 0, sealed, "a power of two"),
        (HALF_BYTES, RING, 2 * RING, sealed, "its ring has 4096 bytes, and it said 8192"),
        (HALF_BYTES / 2, RING, RING, sealed, "not 20480"),
        (HALF_BYTES, RING, RING, SealFlags::GROW, "not sealed"),
    ] {
        let memory = Memory::new(half, ring, seals);
        let refused = refusal(|socket| memory.send(socket, &greeting(GREETING, says), 2));
        assert!(refused.contains(why), "{refused}");
    }
    let memory = Memory::new(HALF_BYTES, RING, sealed);
    let other = b"REBALANE\x01\0\0\0\0\0\0\0";
    assert!(
        refusal(|socket| memory.send(socket, &greeting(other, RING), 2)).contains("does not speak")
    );
    let later = b"REBANEAR\x02\0\0\0\0\0\0\0";
    assert!(
        refusal(|socket| memory.send(socket, &greeting(later, RING), 2))
            .contains("speaks version 2")
    );
    assert!(refusal(|socket| drop(socket.shutdown(std::net::Shutdown::Both))).contains("hung up"));
}

#[test]
fn a_client_that_writes_any_word_ends_only_its_connection() {
    let mut ended = 0;
    for seed in 0..60 {
        let (client, server) = UnixStream::pair().expect("two sockets");
        let memory = Memory::new(HALF_BYTES, RING, SealFlags::SHRINK);
        memory.send(&client, &greeting(GREETING, RING), 2);
        let served = serve_stream(server, async |near: &dyn NearStream| {
            let mut draws = Prng::new(seed);
            let attacked = attack_server(near, &memory, &mut || draws.bits(), 2_000);
            let broken = near.take_counters().broken;
            assert_eq!(broken, u64::from(attacked.is_err()), "seed {seed}");
            attacked
        });
        if let Err(error) = served {
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "seed {seed}: {error}");
            ended += 1;
        }
    }
    assert!(ended > 30, "most of these clients are noticed, and {ended} were");
}

#[test]
fn any_greeting_and_any_words_harm_only_the_connection() {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let executor = executor.expect("a runtime");
    let _entered = executor.enter();
    for seed in 0..300 {
        let mut draws = Prng::new(seed);
        attack_new_server(&mut || draws.bits(), 100);
        attack_new_client(&mut || draws.bits(), 100);
    }
}

#[test]
fn a_server_that_lies_ends_the_client_s_connection() {
    for (word, value) in [(TAIL, RING + 1), (TAIL, u64::MAX), (HEAD, 1), (HEAD, 1 << 63)] {
        let listener = Listener::new();
        let socket = listener.socket.try_clone().expect("a descriptor");
        let lying = std::thread::spawn(move || {
            let (stream, _) = socket.accept().expect("a client");
            let memory = Memory::new(HALF_BYTES, RING, SealFlags::SHRINK);
            memory.set(word, value);
            memory.send(&stream, &greeting(GREETING, RING), 2);
            stream
        });
        let mut client = NearClient::connect(&listener.path(), deadline()).expect("connects");
        let error = match word {
            TAIL => client.read(&mut [0; 8], deadline()).map(drop),
            _ => client.write(&[IoSlice::new(b"x")], deadline()).map(drop),
        };
        let error = error.expect_err("it lies");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{word} {value}: {error}");
        const { assert!(RING < RING_BYTES, "the ring of the client has room for the claim") };
        drop(lying.join());
    }
}
