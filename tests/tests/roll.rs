//! Tests a fleet that rolls forward and back. Servers with compression on, off and read-only share one memcached with
//! each other and with clients that bypass them. Everyone must read what everyone wrote.

use rebate_tests::payload::{FRAME_MAGIC, payload, text};
use rebate_tests::{Client, Server};

fn stored_length(direct: &mut Client, key: &str) -> usize {
    direct.get(key).expect("memcached answers").expect("the key is stored").len()
}

#[test]
fn only_on_compresses_and_every_mode_reads_every_form() {
    let store = Server::memcached(&[]);
    let modes = ["on", "off", "read-only"];
    let servers = modes.map(|mode| Server::rebate_serve(&store.as_store(), mode, &[]));
    let mut direct = store.client();
    for (mode, server) in modes.iter().zip(&servers) {
        for class in ["text", "random", "same", "magic", "magictext"] {
            let key = format!("{mode}_{class}");
            let value = payload(class, 20_000).expect("a known class");
            assert_eq!(server.client().set(&key, &value).as_deref(), Ok("STORED"));
            for reader in &servers {
                assert_eq!(reader.client().get(&key), Ok(Some(value.clone())), "{key}");
            }
        }
        let length = stored_length(&mut direct, &format!("{mode}_text"));
        let small = length < 10_000;
        assert_eq!(small, *mode == "on", "{mode} stores 20000 bytes of text as {length}");
    }
}

#[test]
fn values_written_past_us_are_served_as_they_are() {
    let store = Server::memcached(&[]);
    let mut direct = store.client();
    let values = [text(5_000), vec![0; 300], b"1".to_vec(), Vec::new(), vec![0x1f, 0x8b, 8, 0]];
    for mode in ["on", "off", "read-only"] {
        let mut ours = Server::rebate_serve(&store.as_store(), mode, &[]);
        for (index, value) in values.iter().enumerate() {
            let key = format!("{mode}_{index}");
            assert_eq!(direct.set(&key, value).as_deref(), Ok("STORED"));
            assert_eq!(ours.client().get(&key).as_ref(), Ok(&Some(value.clone())), "{key}");
        }
        ours.kill();
    }
}

#[test]
fn a_damaged_frame_is_a_miss_and_never_wrong_bytes() {
    let store = Server::memcached(&[]);
    let ours = Server::rebate_serve(&store.as_store(), "on", &[]);
    let (mut client, mut direct) = (ours.client(), store.client());
    let value = text(3_000);
    assert_eq!(client.set("whole", &value).as_deref(), Ok("STORED"));
    let frame = direct.get("whole").expect("memcached answers").expect("the key is stored");
    assert!(frame.starts_with(FRAME_MAGIC), "{:?} is no frame", &frame[..8]);
    for at in FRAME_MAGIC.len()..frame.len() {
        let mut damaged = frame.clone();
        damaged[at] ^= 1 << (at % 8);
        assert_eq!(direct.set("whole", &damaged).as_deref(), Ok("STORED"));
        match client.get("whole") {
            Ok(None) => {}
            found => assert_eq!(found, Ok(Some(value.clone())), "byte {at} of the frame"),
        }
    }
    for length in FRAME_MAGIC.len()..frame.len() {
        assert_eq!(direct.set("whole", &frame[..length]).as_deref(), Ok("STORED"));
        assert_eq!(client.get("whole"), Ok(None), "a frame cut to {length} bytes");
    }
}
