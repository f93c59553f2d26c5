//! Tests the cache's calls: the values that they store, find and refuse, and the counters that they change.

use api::tonic::Code;
use api::v1::set_request::Mode;
use api::v1::set_response::Outcome;
use api::v1::{Codec, DeleteRequest, GetRequest, MultiGetRequest, SetRequest};
use rebate_tests::Server;
use rebate_tests::payload::{base64, random, text};

use super::{Grpc, get, set};

fn on_memcached() -> (Server, Grpc) {
    let store = Server::memcached(&[]);
    let grpc = Grpc::start(&["--role", "frontend", "--store", &store.as_store()]);
    (store, grpc)
}

#[test]
fn items_are_kept_and_found_in_the_embedded_store() {
    items_are_kept_and_found(&Grpc::all());
}

#[test]
fn items_are_kept_and_found_on_a_ring() {
    let (_store, grpc) = on_memcached();
    items_are_kept_and_found(&grpc);
}

/// Writes a file of keys and returns the argument that names it.
fn keys(folder: &std::path::Path) -> String {
    let path = folder.join("keys.toml");
    let secret = base64(&[5; 32]);
    let text = format!("active = 1\n[[key]]\nid = 1\nsecret = \"{secret}\"\n");
    std::fs::write(&path, text).expect("it is written");
    format!("values.keys={}", path.display())
}

const SEALED: [&str; 4] = ["--set", "values.path=compress,encrypt", "--foreign", "forbid"];

#[test]
fn sealed_items_are_kept_and_found() {
    let (store, folder) = (Server::memcached(&[]), tempfile::tempdir().expect("a folder"));
    let store_args = ["--role", "frontend", "--store", &store.as_store()];
    let keys = keys(folder.path());
    let args = [&store_args[..], &["--set", &keys], &SEALED].concat();
    items_are_kept_and_found(&Grpc::start(&args));
}

#[test]
fn a_client_that_reads_frames_gets_no_planted_frame() {
    let (store, folder) = (Server::memcached(&[]), tempfile::tempdir().expect("a folder"));
    let framing = Server::rebate_serve(&store.as_store(), "on", &[]);
    assert_eq!(framing.client().set("k", &text(5_000)).as_deref(), Ok("STORED"));
    let store_args = ["--role", "frontend", "--store", &store.as_store()];
    let keys = keys(folder.path());
    let grpc = Grpc::start(&[&store_args[..], &["--set", &keys], &SEALED].concat());
    let mut cache = grpc.cache();
    grpc.runtime.block_on(async {
        let codecs = vec![Codec::Deflate.into(), Codec::Zstd.into(), Codec::Stored.into()];
        let request = GetRequest { accepted_codecs: codecs, ..get(b"k") };
        assert!(!cache.get(request).await.expect("get").get_ref().found);
    });
}

fn items_are_kept_and_found(grpc: &Grpc) {
    let mut cache = grpc.cache();
    grpc.runtime.block_on(async {
        let keys: [&[u8]; 4] = [b"plain", b"two words", b"\0\r\n\xff", &[b'k'; 250]];
        for (index, key) in keys.iter().enumerate() {
            let value = text(1 + index * 30_000);
            let request = SetRequest { client_flags: 7, ..set(key, &value) };
            let outcome = cache.set(request).await.expect("set").into_inner().outcome();
            assert_eq!(outcome, Outcome::Stored, "{key:?}");
            let found = cache.get(get(key)).await.expect("get").into_inner();
            assert!(found.found && found.value == value && found.client_flags == 7, "{key:?}");
            assert!(found.cas != 0 && !found.is_frame);
        }
        let wanted = [keys[2], b"nowhere", keys[0], keys[2], b"no where", keys[1], keys[3]];
        let request = MultiGetRequest {
            keys: wanted.iter().map(|key| key.to_vec().into()).collect(),
            accepted_codecs: Vec::new(),
        };
        let found = cache.multi_get(request).await.expect("multi_get").into_inner().items;
        let lengths: Vec<_> =
            found.iter().map(|item| item.found.then_some(item.value.len())).collect();
        let wanted = [Some(60_001), None, Some(1), Some(60_001), None, Some(30_001), Some(90_001)];
        assert_eq!(lengths, wanted);
        for key in keys {
            for wanted in [true, false] {
                let request = DeleteRequest { key: key.to_vec().into() };
                assert_eq!(cache.delete(request).await.expect("delete").get_ref().found, wanted);
            }
            assert!(!cache.get(get(key)).await.expect("get").get_ref().found);
        }
    });
    assert_eq!(grpc.server.stat("cmd_get"), Some(15));
    assert_eq!(grpc.server.stat("get_hits"), Some(9));
    assert_eq!(grpc.server.stat("get_misses"), Some(6));
    assert_eq!(grpc.server.stat("cmd_set"), Some(4));
    assert_eq!(grpc.server.stat("delete_hits"), Some(4));
    assert_eq!(grpc.server.stat("delete_misses"), Some(4));
    assert_eq!(grpc.metric("rebate_grpc_calls_total{service=\"cache\"}"), 21);
    assert_eq!(grpc.metric("rebate_grpc_connections"), 1);
}

#[test]
fn what_is_set_here_is_what_memcached_clients_read() {
    let grpc = Grpc::all();
    let mut cache = grpc.cache();
    let value = text(50_000);
    grpc.runtime.block_on(async { cache.set(set(b"both", &value)).await.expect("set") });
    let mut client = grpc.server.client();
    assert_eq!(client.get("both"), Ok(Some(value)));
    assert_eq!(client.set("back", b"1").as_deref(), Ok("STORED"));
    let found = grpc.runtime.block_on(async { cache.get(get(b"back")).await.expect("get") });
    assert_eq!(&found.get_ref().value[..], b"1");
}

#[test]
fn a_get_leaves_the_right_to_refill_a_stale_item() {
    let (store, grpc) = on_memcached();
    let mut client = store.client();
    // Only keys that no text line can hold are read with a command that takes the right.
    assert_eq!(client.ask(b"ms YSBi 2 b\r\nhi").text(), "HD\r\n");
    assert_eq!(client.ask(b"md YSBi b I").text(), "HD\r\n");
    let mut cache = grpc.cache();
    let found = grpc.runtime.block_on(async { cache.get(get(b"a b")).await.expect("get") });
    assert_eq!(&found.get_ref().value[..], b"hi");
    let answer = client.ask(b"mg YSBi b v").text();
    assert!(answer.contains(" W"), "{answer}");
}

#[test]
fn conditions_hold_on_both_stores() {
    conditions_hold(&Grpc::all());
    let (_store, grpc) = on_memcached();
    conditions_hold(&grpc);
}

fn conditions_hold(grpc: &Grpc) {
    let mut cache = grpc.cache();
    grpc.runtime.block_on(async {
        let mut ask = async |mode: Mode, compare_cas| {
            let request = SetRequest { mode: mode.into(), compare_cas, ..set(b"a", b"1") };
            cache.set(request).await.expect("set").into_inner().outcome()
        };
        assert_eq!(ask(Mode::Replace, 0).await, Outcome::NotStored);
        assert_eq!(ask(Mode::Set, 99).await, Outcome::NotFound);
        assert_eq!(ask(Mode::Add, 0).await, Outcome::Stored);
        assert_eq!(ask(Mode::Add, 0).await, Outcome::NotStored);
        assert_eq!(ask(Mode::Replace, 0).await, Outcome::Stored);
        let cas = cache.get(get(b"a")).await.expect("get").get_ref().cas;
        let mut ask = async |compare_cas| {
            let request = SetRequest { compare_cas, ..set(b"a", b"2") };
            cache.set(request).await.expect("set").into_inner().outcome()
        };
        assert_eq!(ask(cas).await, Outcome::Stored);
        assert_eq!(ask(cas).await, Outcome::Exists);
        let request = SetRequest { exptime_s: -1, ..set(b"gone", b"1") };
        cache.set(request).await.expect("set");
        assert!(!cache.get(get(b"gone")).await.expect("get").get_ref().found);
    });
}

#[test]
fn requests_out_of_range_are_refused_with_the_range() {
    let grpc = Grpc::all();
    let mut cache = grpc.cache();
    grpc.runtime.block_on(async {
        for (request, words) in [
            (set(b"", b"1"), "0 bytes; keys have 1 to 250"),
            (set(&[b'k'; 251], b"1"), "251 bytes; keys have 1 to 250"),
            (set(&[b' '; 187], b"1"), "187 bytes; keys have 1 to 186"),
            (set(b"k", &random(1 << 20)), "at most 1048576"),
            (SetRequest { mode: 9, ..set(b"k", b"1") }, "valid are 0 to 2"),
            (SetRequest { mode: 1, compare_cas: 5, ..set(b"k", b"1") }, "only MODE_SET"),
        ] {
            let status = cache.set(request).await.expect_err(words);
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            assert!(status.message().contains(words), "{status}");
        }
        let keys = vec![b"k".to_vec().into(); 101];
        let request = MultiGetRequest { keys, accepted_codecs: Vec::new() };
        let status = cache.multi_get(request).await.expect_err("101 keys");
        assert_eq!(status.code(), Code::InvalidArgument);
    });
    assert_eq!(grpc.metric("rebate_grpc_errors_total{kind=\"invalid\"}"), 7);
}

#[test]
fn frames_go_to_those_who_read_them() {
    let grpc = Grpc::all();
    let mut cache = grpc.cache();
    let value = text(64 << 10);
    let codecs = |codecs: &[Codec]| codecs.iter().map(|codec| i32::from(*codec)).collect();
    grpc.runtime.block_on(async {
        cache.set(set(b"text", &value)).await.expect("set");
        let all = [Codec::Deflate, Codec::Zstd, Codec::Lz4];
        let request = GetRequest { accepted_codecs: codecs(&all), ..get(b"text") };
        let frame = cache.get(request).await.expect("get").into_inner();
        assert!(frame.found && frame.is_frame && frame.value.len() < value.len() / 2);
        for others in [codecs(&[Codec::Stored, Codec::SameFilled]), vec![0, -1, i32::MAX]] {
            let request = GetRequest { accepted_codecs: others, ..get(b"text") };
            let found = cache.get(request).await.expect("get").into_inner();
            assert!(!found.is_frame && found.value == value);
        }
        cache.set(set(b"same", &[7; 4096])).await.expect("set");
        let accepted_codecs = codecs(&[Codec::SameFilled]);
        let keys = [&b"same"[..], b"text"].map(|key| key.to_vec().into()).to_vec();
        let request = MultiGetRequest { keys, accepted_codecs };
        let found = cache.multi_get(request).await.expect("multi_get").into_inner().items;
        assert!(found[0].is_frame && found[0].value.len() < 64);
        assert!(!found[1].is_frame && found[1].value == value);
    });
    assert_eq!(grpc.metric("rebate_values_read_total{form=\"as_frame\"}"), 2);
}

#[test]
fn a_get_removes_a_damaged_item() {
    let (store, grpc) = on_memcached();
    let (mut cache, mut direct) = (grpc.cache(), store.client());
    assert_eq!(direct.set("k", b"\xfbRb\x01cut off").as_deref(), Ok("STORED"));
    grpc.runtime.block_on(async {
        let found = cache.get(get(b"k")).await.expect("get").into_inner();
        assert!(!found.found);
    });
    assert_eq!(direct.get("k"), Ok(None));
    assert_eq!(grpc.metric("rebate_unreadable_deleted_total"), 1);
}

#[test]
fn gone_and_full_stores_have_their_own_status() {
    let (mut store, grpc) = on_memcached();
    let mut cache = grpc.cache();
    grpc.runtime.block_on(async {
        cache.set(set(b"a", b"1")).await.expect("set");
        store.kill();
        for _ in 0..3 {
            let status = cache.get(get(b"a")).await.expect_err("no store");
            assert_eq!(status.code(), Code::Unavailable, "{status}");
            assert!(
                status.message().starts_with("the store "),
                "clients learn no address: {status}"
            );
        }
    });
    assert_eq!(grpc.metric("rebate_grpc_errors_total{kind=\"unavailable\"}"), 3);
    let full = Server::memcached(&["-M", "-m", "2"]);
    let grpc = Grpc::start(&["--role", "frontend", "--store", &full.as_store()]);
    let mut cache = grpc.cache();
    let value = random(200_000);
    grpc.runtime.block_on(async {
        let mut came = Ok(());
        for index in 0..1_000 {
            let key = format!("k{index}");
            came = cache.set(set(key.as_bytes(), &value)).await.map(drop);
            if came.is_err() {
                break;
            }
        }
        let status = came.expect_err("a store of 2 MiB");
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    });
}

#[test]
fn answers_beyond_the_limit_are_refused() {
    let mut grpc = Grpc::all();
    let mut cache = grpc.cache();
    let value = random(900_000);
    grpc.runtime.block_on(async {
        cache.set(set(b"big", &value)).await.expect("set");
        let keys = vec![b"big".to_vec().into(); 100];
        let request = MultiGetRequest { keys, accepted_codecs: Vec::new() };
        for _ in 0..20 {
            let status = cache.multi_get(request.clone()).await.expect_err("90 MB");
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        }
        // A request within the budget succeeds any number of times.
        for _ in 0..50 {
            let request = MultiGetRequest { keys: request.keys[..4].to_vec(), ..request.clone() };
            let found = cache.multi_get(request).await.expect("3.6 MB").into_inner();
            assert!(found.items.iter().all(|item| item.value == value));
        }
    });
    grpc.assert_healthy("answers beyond the budget");
    assert_eq!(grpc.metric("rebate_grpc_errors_total{kind=\"exhausted\"}"), 20);
}
