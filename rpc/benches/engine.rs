//! Measures the cost of a message without a network. It compares generated code with the
//! interpreter of the same schema, and times a request through the whole engine. The flags are
//! those of `harness::Bench`. For two cores use `rebate rpc replay`.
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use harness::Bench;
use rpc::flat::{Build, View};
use rpc::idl::{Interpreter, parse};
use rpc::services::memcached::{Found, GetResult, Memcached, SetArgs};
use rpc::services::post_storage::{Post, PostStorageService, StorePostArgs};
use rpc::wire::{Wire, Writer};
use rpc::{Code, DataPage, Engine, Functions, Interface, Limits, Record, Reply, api, call};

const BUFFER_BYTES: usize = 1 << 14;

fn main() {
    let mut bench = Bench::new("cargo bench -p rpc --bench engine", 7);
    let rounds = if bench.quick { 2_000 } else { 400_000 };
    let [cache, posts] = [0, 1].map(|at| parse(rpc::services::IDL[at].1).expect("valid"));
    let messages: [Message<'_>; 3] = [
        ("set_k16_v32", &Memcached, &Interpreter::new(cache.clone()), Memcached::SET, set(32)),
        ("set_k16_v1024", &Memcached, &Interpreter::new(cache), Memcached::SET, set(1024)),
        (
            "store_post",
            &PostStorageService,
            &Interpreter::new(posts),
            PostStorageService::STORE_POST,
            post(),
        ),
    ];
    for (name, generated, table, function, block) in &messages {
        let wire = written(*generated, *function, block);
        let both: [&dyn Functions; 2] = [*generated, *table];
        in_turn(&mut bench, "deserialize", name, both, |functions| {
            read(functions, *function, &wire, rounds)
        });
        in_turn(&mut bench, "serialize", name, both, |functions| {
            write(functions, *function, block, rounds)
        });
    }
    engine(rounds);
    bench.measure("engine.inline.get_k16_v32", "ns", None, || engine(rounds));
    bench.finish();
}

/// A name, the generated code and the interpreter of a service, the number of a function, and the
/// block of its arguments.
type Message<'a> = (&'a str, &'a dyn Functions, &'a Interpreter, u32, Vec<u8>);

/// Measures generated code and interpreter in turn, so that other work on the machine affects both.
fn in_turn(
    bench: &mut Bench,
    what: &str,
    name: &str,
    both: [&dyn Functions; 2],
    measure: impl Fn(&dyn Functions) -> f64,
) {
    let _warm_up = both.map(&measure);
    let (ours, theirs): (Vec<_>, Vec<_>) =
        bench.runs().map(|_| (measure(both[0]), measure(both[1]))).unzip();
    for (side, values) in [("generated", ours), ("table", theirs)] {
        bench.row(&format!("{what}.{side}.{name}"), "ns", None, values);
    }
}

fn set(value_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; BUFFER_BYTES];
    let mut build = Build::new(&mut bytes);
    let block = build.block(SetArgs::SLOTS).expect("room");
    build.set_bytes(block, SetArgs::KEY, &[b'k'; 16]).expect("room");
    build.set_bytes(block, SetArgs::VALUE, &vec![b'v'; value_bytes]).expect("room");
    let used = build.used();
    bytes.truncate(used);
    bytes
}

fn post() -> Vec<u8> {
    let mut bytes = vec![0; BUFFER_BYTES];
    let mut build = Build::new(&mut bytes);
    let args = build.block(StorePostArgs::SLOTS).expect("room");
    build.set(args, StorePostArgs::REQ_ID, 1);
    let post = build.block(Post::SLOTS).expect("room");
    build.set(post, Post::POST_ID, 7);
    build.set_bytes(post, Post::TEXT, &[b't'; 140]).expect("room");
    let urls = build.block(2).expect("room");
    for slot in 0..2 {
        let url = build.block(2).expect("room");
        build.set_bytes(url, 0, b"http://short/1234567").expect("room");
        build.set_bytes(url, 1, &[b'u'; 60]).expect("room");
        build.link(urls, slot, url);
    }
    build.head(urls, 2);
    build.set_block(post, Post::URLS, urls);
    build.set(post, Post::TIMESTAMP, 1 << 40);
    build.set_block(args, StorePostArgs::POST, post);
    let used = build.used();
    bytes.truncate(used);
    bytes
}

fn written(functions: &dyn Functions, function: u32, block: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; BUFFER_BYTES];
    let mut out = Writer::framed(&mut bytes).expect("room");
    functions.call(function, View::new(block), &mut out).expect("whole");
    let length = out.frame().expect("short");
    bytes[4..length].to_vec()
}

fn read(functions: &dyn Functions, function: u32, wire: &[u8], rounds: u32) -> f64 {
    let mut bytes = vec![0; BUFFER_BYTES];
    let begun = Instant::now();
    for _ in 0..rounds {
        let mut build = Build::new(&mut bytes);
        let mut wire = Wire::new(black_box(wire), BUFFER_BYTES);
        black_box(functions.recv(function, &mut wire, &mut build)).expect("whole");
    }
    per(begun, rounds)
}

fn write(functions: &dyn Functions, function: u32, block: &[u8], rounds: u32) -> f64 {
    let mut bytes = vec![0; BUFFER_BYTES];
    let begun = Instant::now();
    for _ in 0..rounds {
        let mut out = Writer::framed(&mut bytes).expect("room");
        functions.call(function, View::new(black_box(block)), &mut out).expect("whole");
        black_box(out.frame()).expect("short");
    }
    per(begun, rounds)
}

/// Times a get through both halves. The handler finds the same 32 bytes every time.
fn engine(rounds: u32) -> f64 {
    let mut page = DataPage::default();
    let [packet, recv, resp, frame] = [(); 4].map(|()| page.map(BUFFER_BYTES));
    let mut engine = Engine::new(Limits::default(), Arc::new(Memcached));
    let place = page.bytes_mut(packet).expect("mapped");
    let length = call::frame(&Memcached, Memcached::GET, 1, place, |args| {
        let block = args.block(1)?;
        args.set_bytes(block, 0, &[b'k'; 16])?;
        Ok(block)
    });
    let length = length.expect("room");
    let begun = Instant::now();
    for _ in 0..rounds {
        api::net_call_engine_write(&mut engine, packet, length).expect("taken");
        api::net_call_engine_read(&mut engine, frame).expect("taken");
        api::app_call_engine_read(&mut engine, recv).expect("taken");
        while engine.step_rx(&mut page).is_some() {}
        let done = engine.take(Interface::AppRecv).expect("a request");
        let mut response = page.lend(resp).expect("mapped");
        let bytes = &page.bytes(recv).expect("mapped")[..done.length];
        let length = found(&Record::read(bytes).expect("a record"), &mut response);
        page.put_back(resp, response);
        api::app_call_engine_write(&mut engine, resp, length.expect("room")).expect("taken");
        while engine.step_tx(&mut page).is_some() {}
        black_box(engine.take(Interface::NetResp)).expect("a frame");
    }
    per(begun, rounds)
}

fn found(record: &Record<'_>, response: &mut [u8]) -> Result<usize, Code> {
    let mut reply = Reply::to(record, response)?;
    let result = reply.body.block(GetResult::SLOTS)?;
    let found = reply.body.block(Found::SLOTS)?;
    reply.body.set(found, Found::HIT, 1);
    reply.body.set_bytes(found, Found::VALUE, &[b'v'; 32])?;
    reply.body.set_block(result, GetResult::SUCCESS, found);
    Ok(reply.seal(result))
}

fn per(begun: Instant, rounds: u32) -> f64 {
    begun.elapsed().as_secs_f64() * 1e9 / f64::from(rounds)
}
