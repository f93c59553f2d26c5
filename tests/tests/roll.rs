//! Tests a fleet that rolls forward and back. Servers with compression on, off and read-only share one memcached with
//! each other and with clients that bypass them. Everyone must read what everyone wrote.

use rebate_tests::payload::{FRAME_MAGIC, FRAME_MAGIC_2, payload, text};
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
fn servers_of_each_frame_version_read_each_other() {
    let store = Server::memcached(&[]);
    let servers = ["1", "2"]
        .map(|number| Server::rebate_serve(&store.as_store(), "on", &["--frame-version", number]));
    let mut direct = store.client();
    for (server, magic) in servers.iter().zip([FRAME_MAGIC, FRAME_MAGIC_2]) {
        let mut writer = server.client();
        for class in [
            "text",
            "random",
            "same",
            "magic",
            "magic2",
            "magic2text",
            "magicdictionary",
            "magicsealed",
        ] {
            for length in [100, 5_000, 70_000] {
                let value = payload(class, length).expect("a known class");
                assert_eq!(writer.set("k", &value).as_deref(), Ok("STORED"));
                let stored =
                    direct.get("k").expect("memcached answers").expect("the key is stored");
                assert!(class == "random" || stored.starts_with(magic), "{class} {length}");
                for reader in &servers {
                    assert_eq!(reader.client().get("k"), Ok(Some(value.clone())), "{class}");
                }
            }
        }
        let value = text(3_000);
        assert_eq!(writer.set("k", &value).as_deref(), Ok("STORED"));
        for editor in &servers {
            assert_eq!(editor.client().ask(b"append k 0 0 1\r\n!").text(), "STORED\r\n");
        }
        assert_eq!(writer.get("k"), Ok(Some([&value[..], b"!!"].concat())));
    }
}

#[test]
fn values_written_past_us_are_served_as_they_are() {
    let store = Server::memcached(&[]);
    let mut direct = store.client();
    // The last two begin with the magic of frames but are none: a foreign header, and that of an xz file.
    let values = [
        text(5_000),
        vec![0; 300],
        b"1".to_vec(),
        Vec::new(),
        vec![0x1f, 0x8b, 8, 0],
        b"\xFC\xFF\xFE foreign header".to_vec(),
        b"\xFD7zXZ\0\0\x04\xE6\xD6\xB4\x46\x02\0\x21\x01\x16".to_vec(),
    ];
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
    for (number, magic) in [("1", FRAME_MAGIC), ("2", FRAME_MAGIC_2)] {
        for codec in ["deflate", "zstd", "lz4"] {
            let arguments = ["--frame-version", number, "--codec", codec];
            let ours = Server::rebate_serve(&store.as_store(), "on", &arguments);
            let (mut client, mut direct) = (ours.client(), store.client());
            let value = text(1_000);
            assert_eq!(client.set("whole", &value).as_deref(), Ok("STORED"));
            let frame = direct.get("whole").expect("memcached answers").expect("it is stored");
            assert!(frame.starts_with(magic), "{:?} is no frame", &frame[..8]);
            for bit in 8 * magic.len()..8 * frame.len() {
                let mut damaged = frame.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(direct.set("whole", &damaged).as_deref(), Ok("STORED"));
                match client.get("whole") {
                    Ok(None) => {}
                    found => {
                        assert_eq!(found, Ok(Some(value.clone())), "{number} {codec}, bit {bit}");
                    }
                }
            }
            for length in magic.len()..frame.len() {
                assert_eq!(direct.set("whole", &frame[..length]).as_deref(), Ok("STORED"));
                assert_eq!(client.get("whole"), Ok(None), "{number} {codec}, {length} bytes");
            }
        }
    }
}
