//! Rotation of keys while clients read and write.

use rebate_tests::load::check;
use rebate_tests::{Load, Server, TIMEOUT, poll_for};

use rustix::process::Signal;

use crate::{CLOSED, Frontend, Keys};

/// Waits until every frontend has read this version of the keys.
fn await_reloads(frontends: &[Frontend], count: u64) {
    for frontend in frontends {
        let name = "rebate_value_key_reloads_total{result=\"success\"}";
        let is_so = poll_for(TIMEOUT, || (frontend.metric(name) >= count as f64).then_some(()));
        let log = std::fs::read_to_string(&frontend.log).unwrap_or_default();
        assert!(is_so.is_some(), "{count} reloads: {}\n{log}", frontend.metric(name));
    }
}

#[test]
fn keys_rotate_under_load_without_an_error() {
    let (store, keys) = (Server::memcached(&["-m", "256"]), Keys::new(1, &[1]));
    let frontends = ["a", "b"].map(|name| {
        let class = format!("values.classes={name}");
        let args = [&CLOSED[..], &["--set", &class]].concat();
        Frontend::sealing(&store, &keys, &args)
    });
    let load = Load::start(frontends[0].server.addr());
    let mut reader = frontends[1].server.client();
    let mut reloads = 0;
    for id in 1..=3 {
        // Everybody gets the new key before anybody seals with it, and loses the old one after it is no longer needed.
        for active in [id, id + 1] {
            keys.write(active, &[id, id + 1]);
            reloads += 1;
            await_reloads(&frontends, reloads);
            for index in 0..200 {
                let key = format!("load_{}_{}", index % 4, index / 4);
                let found = reader.get(&key).expect("no error");
                assert_eq!(check(&key, found.as_deref()), Ok(()));
            }
        }
        // Each of the 200 values is written again by then, except with a probability of 10^-9.
        load.await_good(16_000);
    }
    keys.write(4, &[4]);
    await_reloads(&frontends, reloads + 1);
    load.await_good(1_000);
    assert_eq!(load.missed(), (0, 0), "errors and lost values");
    let wrong = load.stop();
    assert!(wrong.is_empty(), "{wrong:?}");
    for frontend in &frontends {
        for kind in ["seal_wrong", "seal_invalid", "seal_key_unknown", "unsealed_refused"] {
            assert_eq!(frontend.misses(kind), 0.0, "{kind}");
        }
    }
    let sealed = "rebate_value_key_sealed_total{key=\"4\"}";
    assert!(frontends[0].metric(sealed) > 1_000.0, "{}", frontends[0].metric(sealed));
}

#[test]
fn a_signal_reloads_keys_and_a_wrong_file_changes_nothing() {
    let (store, keys) = (Server::memcached(&[]), Keys::new(1, &[1]));
    let ours = Frontend::sealing(&store, &keys, &CLOSED);
    let mut client = ours.server.client();
    assert_eq!(client.set("old", b"value of key 1").as_deref(), Ok("STORED"));
    keys.write(2, &[1, 2]);
    ours.server.signal(Signal::HUP);
    await_reloads(std::slice::from_ref(&ours), 1);
    assert_eq!(client.set("new", b"value of key 2").as_deref(), Ok("STORED"));
    keys.write_text("active = 3\n");
    let failed = "rebate_value_key_reloads_total{result=\"failure\"}";
    poll_for(TIMEOUT, || (ours.metric(failed) >= 1.0).then_some(())).expect("it is counted");
    for (key, value) in [("old", &b"value of key 1"[..]), ("new", b"value of key 2")] {
        assert_eq!(client.get(key), Ok(Some(value.to_vec())), "{key}");
    }
    let mut direct = store.client();
    let stored = direct.get("new").expect("an answer").expect("it is there");
    assert_eq!(stored[..4], [0xFE, 1, 2, 0]);
    // Without its key a value is a miss, and nobody removes it.
    keys.write(2, &[2]);
    poll_for(TIMEOUT, || client.get("old").is_ok_and(|found| found.is_none()).then_some(()))
        .expect("the key is retired");
    assert!(ours.misses("seal_key_unknown") >= 1.0);
    assert!(direct.get("old").expect("an answer").is_some());
    keys.write(2, &[1, 2]);
    poll_for(TIMEOUT, || client.get("old").is_ok_and(|found| found.is_some()).then_some(()))
        .expect("the key is back");
}
