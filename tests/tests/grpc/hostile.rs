//! Tests that the server survives bytes that are not gRPC, calls whose bytes are not a message, and messages without
//! meaning.

use api::tonic::Code;
use rebate_tests::payload::random;

use super::Grpc;
use super::wire::{self, Raw, frame};

const GET: &str = "/rebate.v1.Cache/Get";

#[test]
fn bytes_that_are_not_http2_end_the_connection() {
    let mut grpc = Grpc::all();
    let mut bad_settings = wire::PREFACE.to_vec();
    bad_settings.extend(frame(4, 0, 0, &[0; 5]));
    let cases: [(&str, Vec<u8>); 9] = [
        ("nothing", Vec::new()),
        ("random bytes", random(100_000)),
        ("zeros", vec![0; 100_000]),
        ("HTTP/1.1", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        ("memcached", b"get a\r\nset a 0 0 1\r\n1\r\n".to_vec()),
        ("TLS", [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &random(400)].concat()),
        ("half a preface", wire::PREFACE[..11].to_vec()),
        ("random frames", [wire::PREFACE, &random(100_000)].concat()),
        ("settings of 5 bytes", bad_settings),
    ];
    for (what, bytes) in cases {
        let mut raw = Raw::connect_deaf(grpc.addr);
        raw.send(&bytes);
        assert!(raw.ends(), "{what}: the connection stays");
        grpc.assert_healthy(what);
    }
}

#[test]
fn a_half_closed_client_still_gets_its_answer() {
    let mut grpc = Grpc::all();
    let mut raw = Raw::connect_deaf(grpc.addr);
    let body = wire::message(b"\x0a\x01a");
    let headers = frame(wire::HEADERS, wire::END_HEADERS, 1, &wire::call_headers(GET));
    let data = frame(wire::DATA, wire::END_STREAM, 1, &body);
    raw.send(&[wire::PREFACE, &headers, &data].concat());
    assert!(raw.ends());
    // This client stops sending within its message.
    let mut raw = Raw::connect_deaf(grpc.addr);
    let half = frame(wire::DATA, 0, 1, &body[..6]);
    raw.send(&[wire::PREFACE, &headers, &half].concat());
    assert!(raw.ends());
    grpc.assert_healthy("half-closed connections");
}

#[test]
fn bodies_that_are_no_messages_are_refused() {
    let mut grpc = Grpc::all();
    let refused = [Code::Internal, Code::InvalidArgument, Code::OutOfRange, Code::Unknown];
    let exhausted = [Code::OutOfRange, Code::ResourceExhausted, Code::InvalidArgument];
    let cases: [(&str, Vec<u8>, &[Code]); 9] = [
        ("no message", Vec::new(), &[Code::Internal, Code::InvalidArgument]),
        ("half a prefix", vec![0, 0, 0], &refused),
        ("a prefix without its message", vec![0, 0, 0, 0, 9], &refused),
        ("half a message", wire::message(&[b'a'; 100])[..50].to_vec(), &refused),
        ("a field longer than its message", wire::message(b"\x0a\x7fa"), &refused),
        ("no protobuf", wire::message(&[0xff; 64]), &refused),
        ("a prefix of 4 GiB", vec![0, 0xff, 0xff, 0xff, 0xff, 1], &exhausted),
        ("more than the limit", wire::message(&vec![0x0a; (1 << 20) + (128 << 10)]), &exhausted),
        ("compressed without a word of it", [&[1], &wire::message(b"")[1..]].concat(), &refused),
    ];
    for (what, body, codes) in cases {
        let ended = grpc.runtime.block_on(wire::call(grpc.addr, GET, &[], &body));
        let ended = ended.unwrap_or_else(|| panic!("{what}: not answered"));
        let code = Code::from_i32(ended.code.unwrap_or(0));
        assert!(codes.contains(&code), "{what}: {ended:?}");
        grpc.assert_healthy(what);
    }
    let gzip = [("grpc-encoding", "gzip")];
    let body = [&[1], &wire::message(b"\x1f\x8b")[1..]].concat();
    let ended = grpc.runtime.block_on(wire::call(grpc.addr, GET, &gzip, &body));
    assert_eq!(ended.expect("an answer").code, Some(Code::Unimplemented as i32));
}

#[test]
fn methods_and_timeouts_that_there_are_not_are_refused() {
    let grpc = Grpc::all();
    let call = |path, headers: &[_]| {
        let body = wire::message(b"");
        let call = wire::call(grpc.addr, path, headers, &body);
        grpc.runtime.block_on(call).unwrap_or_else(|| panic!("{path}: not answered"))
    };
    for path in ["/", "/a", "/rebate.v1.Cache", "/rebate.v1.Cache/Nothing", "/rebate.v1.No/Get"] {
        assert_eq!(call(path, &[]).code, Some(Code::Unimplemented as i32), "{path}");
    }
    for timeout in ["", "soon", "1", "1s", "-1S", "123456789S", "1 S", "\u{9}"] {
        let ended = call(GET, &[("grpc-timeout", timeout)]);
        assert_eq!(ended.code, Some(Code::InvalidArgument as i32), "{timeout:?}: {ended:?}");
    }
}

const METHODS: [&str; 18] = [
    "/rebate.v1.Cache/Get",
    "/rebate.v1.Cache/MultiGet",
    "/rebate.v1.Cache/Set",
    "/rebate.v1.Cache/Delete",
    "/rebate.v1.Store/Get",
    "/rebate.v1.Store/MultiGet",
    "/rebate.v1.Store/Set",
    "/rebate.v1.Store/Delete",
    "/rebate.v1.Store/Execute",
    "/rebate.v1.Compression/Run",
    "/rebate.v1.Compression/Describe",
    "/rebate.v1.Compression/Echo",
    "/rebate.v1.Scheduler/Report",
    "/rebate.v1.Scheduler/Query",
    "/rebate.v1.Scheduler/Parameters",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
];

/// Returns a random message whose fields have plausible numbers. Most decode, and few make sense.
fn any_message(prng: &mut units::Prng, depth: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..prng.below(6) {
        let field = (1 + prng.below(15)) as u8;
        let extremes = [0, 1, 127, 1 << 20, u64::from(u32::MAX), i64::MAX as u64, u64::MAX];
        match prng.below(4) {
            0 => {
                bytes.push(field << 3);
                let number = extremes[prng.below(extremes.len() as u64) as usize];
                varint(&mut bytes, number);
            }
            1 if depth > 0 => {
                let inner = any_message(prng, depth - 1);
                bytes.push(field << 3 | 2);
                varint(&mut bytes, inner.len() as u64);
                bytes.extend(inner);
            }
            2 => {
                bytes.push(field << 3 | 2);
                let length = prng.below(300);
                varint(&mut bytes, length);
                bytes.extend((0..length).map(|_| prng.below(256) as u8));
            }
            _ => bytes.push(prng.below(256) as u8),
        }
    }
    bytes
}

fn varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
}

#[test]
fn any_message_to_any_method_is_answered() {
    let mut grpc = Grpc::all();
    let mut prng = units::Prng::new(20);
    let addr = grpc.addr;
    for method in METHODS {
        let bodies: Vec<_> = (0..60).map(|_| wire::message(&any_message(&mut prng, 3))).collect();
        let codes = grpc.runtime.block_on(async {
            let mut codes = Vec::new();
            for body in &bodies {
                let ended = wire::call(addr, method, &[], body).await;
                let ended = ended.unwrap_or_else(|| panic!("{method} to {body:?}: not answered"));
                codes.push(ended.code);
            }
            codes
        });
        assert!(codes.iter().all(Option::is_some), "{method}: {codes:?}");
    }
    grpc.assert_healthy("any messages");
    let output = grpc.server.output();
    assert!(!output.contains("panicked"), "{output}");
}
