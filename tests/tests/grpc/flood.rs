//! Tests clients that request more than any server can give: streams, resets, headers, and answers that they do not
//! read. The server may refuse them or end the connection. It must not grow, stop, or delay other clients.

use rebate_tests::payload::random;
use rebate_tests::{TIMEOUT, poll_for};

use super::wire::{self, Raw, frame};
use super::{Grpc, get, set};

const GET: &str = "/rebate.v1.Cache/Get";

/// Returns the stream ids of a client in batches.
fn batches(count: u32) -> impl Iterator<Item = Vec<u32>> {
    let ids: Vec<u32> = (0..count).map(|index| 2 * index + 1).collect();
    ids.chunks(500).map(<[u32]>::to_vec).collect::<Vec<_>>().into_iter()
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let mut grpc = Grpc::all();
    let headers = wire::call_headers(GET);
    let mut all = Vec::new();
    for _ in 0..4 {
        let mut raw = Raw::connect(grpc.addr);
        raw.send(wire::PREFACE);
        for ids in batches(20_000) {
            let opened = ids.iter().flat_map(|id| frame(wire::HEADERS, 4, *id, &headers));
            if !raw.send(&opened.collect::<Vec<_>>()) {
                break;
            }
        }
        all.push(raw);
        grpc.assert_healthy("20,000 streams without a message");
    }
    drop(all);
    assert!(grpc.rests());
}

#[test]
fn streams_that_are_opened_and_reset_at_once_are_survived() {
    let mut grpc = Grpc::all();
    let headers = wire::call_headers(GET);
    let body = wire::message(b"\x0a\x01a");
    for with_message in [false, true] {
        let mut raw = Raw::connect(grpc.addr);
        raw.send(wire::PREFACE);
        for ids in batches(100_000) {
            let mut bytes = Vec::new();
            for id in ids {
                bytes.extend(frame(wire::HEADERS, wire::END_HEADERS, id, &headers));
                if with_message {
                    bytes.extend(frame(wire::DATA, wire::END_STREAM, id, &body));
                }
                bytes.extend(frame(wire::RST_STREAM, 0, id, &8u32.to_be_bytes()));
            }
            if !raw.send(&bytes) {
                break;
            }
        }
        grpc.assert_healthy("100,000 streams reset");
    }
    assert!(grpc.rests());
}

#[test]
fn frames_without_end_and_without_sense_are_survived() {
    let mut grpc = Grpc::all();
    let ping = frame(wire::PING, 0, 0, &[7; 8]).repeat(1_000);
    let settings = frame(4, 0, 0, &[]).repeat(1_000);
    let empty = [
        frame(wire::HEADERS, wire::END_HEADERS, 1, &wire::call_headers(GET)),
        frame(wire::DATA, 0, 1, &[]).repeat(1_000),
    ]
    .concat();
    for (what, bytes) in [("pings", ping), ("settings", settings), ("empty data", empty)] {
        // If a client does not read, the answers to these frames accumulate.
        for mut raw in [Raw::connect(grpc.addr), Raw::connect_deaf(grpc.addr)] {
            raw.send(wire::PREFACE);
            for _ in 0..300 {
                if !raw.send(&bytes) {
                    break;
                }
            }
            grpc.assert_healthy(what);
        }
    }
    assert!(grpc.rests());
}

#[test]
fn headers_without_measure_are_refused() {
    let mut grpc = Grpc::all();
    let mut large = wire::call_headers(GET);
    wire::push_header(&mut large, b"x-large", &[b'a'; 15_000]);
    // The block defines one header of 4,000 bytes, which the table stores. It then refers to it by one byte as often as
    // a block can hold.
    let mut bomb = wire::call_headers(GET);
    bomb.push(0x40);
    wire::push_text(&mut bomb, b"x-bomb");
    wire::push_text(&mut bomb, &[b'a'; 4_000]);
    bomb.extend(std::iter::repeat_n(0x80 | 62, 10_000));
    for (what, block) in [("large headers", large), ("a bomb of headers", bomb)] {
        let mut raw = Raw::connect(grpc.addr);
        raw.send(wire::PREFACE);
        for ids in batches(4_000) {
            let opened = ids.iter().flat_map(|id| frame(wire::HEADERS, 4, *id, &block));
            if !raw.send(&opened.collect::<Vec<_>>()) {
                break;
            }
        }
        grpc.assert_healthy(what);
    }
    let mut raw = Raw::connect(grpc.addr);
    raw.send(wire::PREFACE);
    raw.send(&frame(wire::HEADERS, 0, 1, &wire::call_headers(GET)));
    let mut block = Vec::new();
    wire::push_header(&mut block, b"x-more", &[b'a'; 10_000]);
    let more = frame(wire::CONTINUATION, 0, 1, &block);
    for _ in 0..10_000 {
        if !raw.send(&more) {
            break;
        }
    }
    grpc.assert_healthy("headers without end");
    assert!(grpc.rests());
}

/// Stores a value that does not compress. Requests it on many streams of many connections with large windows, and never
/// reads an answer.
fn ask_and_never_read(grpc: &mut Grpc, value_bytes: usize, connections: u32) -> Vec<Raw> {
    let value = random(value_bytes);
    let mut cache = grpc.cache();
    grpc.runtime.block_on(async { cache.set(set(b"v", &value)).await.expect("set") });
    let headers = wire::call_headers(GET);
    let body = wire::message(b"\x0a\x01v");
    let mut wide = vec![0, 4];
    wide.extend(0x7fff_ffffu32.to_be_bytes());
    let window = 0x7fff_0000u32.to_be_bytes();
    let open = [wire::PREFACE, &frame(4, 0, 0, &wide), &frame(8, 0, 0, &window)].concat();
    let mut all = Vec::new();
    for _ in 0..connections {
        let mut raw = Raw::connect_deaf(grpc.addr);
        raw.send(&open);
        for ids in batches(1_000) {
            let mut bytes = Vec::new();
            for id in ids {
                bytes.extend(frame(wire::HEADERS, wire::END_HEADERS, id, &headers));
                bytes.extend(frame(wire::DATA, wire::END_STREAM, id, &body));
            }
            raw.send(&bytes);
        }
        all.push(raw);
    }
    all
}

#[test]
fn answers_that_nobody_reads_leave_room_for_others() {
    let mut grpc = Grpc::all();
    let deaf = ask_and_never_read(&mut grpc, 512 << 10, 16);
    // The server closes connections that hold resources needed by others. It serves other clients while the attackers
    // still try.
    let served = poll_for(TIMEOUT, || {
        let mut cache = grpc.cache();
        let found = grpc.runtime.block_on(async { cache.get(get(b"v")).await });
        found.ok().filter(|found| found.get_ref().value.len() == 512 << 10)
    });
    assert!(served.is_some(), "the others are not served");
    grpc.assert_healthy("8 GiB asked for");
    drop(deaf);
    assert!(grpc.rests());
}

#[test]
fn small_unread_answers_stay_within_the_budget() {
    let mut grpc = Grpc::all();
    let deaf = ask_and_never_read(&mut grpc, 3_000, 16);
    let served = poll_for(TIMEOUT, || {
        let mut cache = grpc.cache();
        grpc.runtime.block_on(async { cache.get(get(b"v")).await }).ok()
    });
    assert!(served.is_some(), "the others are not served");
    grpc.assert_healthy("small answers");
    drop(deaf);
}

#[test]
fn messages_that_never_end_leave_room_for_others() {
    let mut grpc = Grpc::all();
    let headers = wire::call_headers("/rebate.v1.Cache/Set");
    let prefix = [&[0][..], &1_000_000u32.to_be_bytes()].concat();
    let mut all = Vec::new();
    for _ in 0..16 {
        let mut raw = Raw::connect(grpc.addr);
        raw.send(wire::PREFACE);
        // The client sends as much as one connection may hold, with each stream inside its initial window. With more
        // streams it sends as much as the worker may hold.
        for ids in batches(140) {
            for id in ids {
                raw.send(&frame(wire::HEADERS, wire::END_HEADERS, id, &headers));
                raw.send(&frame(wire::DATA, 0, id, &prefix));
                for _ in 0..3 {
                    raw.send(&frame(wire::DATA, 0, id, &[0; 16_000]));
                }
            }
        }
        all.push(raw);
    }
    let served = poll_for(TIMEOUT, || {
        let mut cache = grpc.cache();
        grpc.runtime.block_on(async { cache.set(set(b"a", &[7; 100_000])).await }).ok()
    });
    assert!(served.is_some(), "the others are not served");
    grpc.assert_healthy("messages without end");
    // The server closes a client that holds resources needed by others. If the server refused streams of all clients,
    // HTTP/2 ends them earlier, because they continue to send on closed streams.
    let gone = || {
        let cut = grpc.metric("rebate_grpc_connections_stalled_total");
        (cut > 0 || grpc.metric("rebate_grpc_connections") < all.len() as u64 / 4).then_some(())
    };
    let left = || grpc.metric("rebate_grpc_connections");
    assert!(poll_for(TIMEOUT, gone).is_some(), "nobody was cut, {} are left", left());
    drop(all);
    assert!(grpc.rests());
}
