//! Tests generated code against its generator, and against the interpreter of the same schema. Both
//! get random messages, intact and damaged, and must produce the same records, bytes and codes.

use std::fs;
use std::path::Path;

use rpc::flat::Build;
use rpc::idl::{Interpreter, Schema, emit, parse};
use rpc::services::memcached::Memcached;
use rpc::services::post_storage::PostStorageService;
use rpc::services::unique_id::UniqueIdService;
use rpc::{Functions, call};
use units::Prng;

use crate::common::both::{Both, MESSAGE_BYTES, Which};
use crate::common::random;

#[test]
fn the_committed_code_is_what_the_generator_makes() {
    for (name, text) in rpc::services::IDL {
        let schema = parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let made = emit(&schema, &format!("rpc/idl/{name}.thrift"));
        let file = format!("src/services/{name}.rs");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let committed = fs::read_to_string(path).expect("it is committed");
        assert!(made == committed, "{name}.rs is old: cargo run -p rpc --example generate");
    }
}

fn services() -> [(Schema, Box<dyn Functions>); 3] {
    let [cache, posts, ids] = rpc::services::IDL.map(|(_, text)| parse(text).expect("valid"));
    [
        (cache, Box::new(Memcached)),
        (posts, Box::new(PostStorageService)),
        (ids, Box::new(UniqueIdService)),
    ]
}

#[test]
fn generated_and_interpreted_agree_on_messages_whole_and_damaged() {
    let mut prng = Prng::new(5);
    let (mut whole, mut damaged) = (0, 0);
    for (schema, generated) in services() {
        let interpreter = Interpreter::new(schema.clone());
        assert_eq!(generated.service(), interpreter.service());
        let both = Both { generated: &*generated, interpreter: &interpreter };
        for round in 0..1_500 {
            let function = prng.below(schema.functions.len() as u64) as u32;
            let signature = &schema.functions[function as usize];
            assert_eq!(generated.function(function), interpreter.function(function));
            assert_eq!(generated.find(signature.name.as_bytes()), Some(function));
            let which = Which { function, answer: round % 2 == 0 };
            let place = if which.answer { signature.result } else { signature.args };
            let mut bytes = vec![0; MESSAGE_BYTES];
            let mut build = Build::new(&mut bytes);
            let block = random(&schema, place, &mut prng, &mut build);
            let used = build.used();
            let block = &bytes[block..used];

            let Ok(mut wire) = both.write(which, block) else { continue };
            let back = both.read(which, &wire, FIELD_BYTES_MAX);
            let back = back.expect("what was written can be read");
            assert_eq!(both.write(which, &back).as_ref(), Ok(&wire));
            whole += 1;

            damage(&mut wire, &mut prng);
            damaged += u32::from(both.read(which, &wire, FIELD_BYTES_MAX).is_err());

            let mut wild = block.to_vec();
            damage(&mut wild, &mut prng);
            let _ = both.write(which, &wild);
        }
    }
    assert!(whole > 2_000 && damaged > 500, "{whole} whole, {damaged} refused");
}

/// The maximum length of a string (bytes). It is small, so that damaged lengths exceed it.
const FIELD_BYTES_MAX: usize = 64;

fn damage(bytes: &mut Vec<u8>, prng: &mut Prng) {
    for _ in 0..=prng.below(3) {
        match (prng.below(3), bytes.len() as u64) {
            (_, 0) => bytes.push(prng.bits() as u8),
            (0, length) => bytes.truncate(prng.below(length) as usize),
            (_, length) => bytes[prng.below(length) as usize] = prng.bits() as u8,
        }
    }
}

/// Compares an encoded call with bytes that were written by hand from Thrift's documentation of the protocol.
#[test]
fn a_call_is_byte_for_byte_thrifts() {
    let mut frame = [0; 256];
    let length = call::frame(&Memcached, Memcached::SET, 9, &mut frame, |args| {
        let block = args.block(4)?;
        args.set_bytes(block, 0, b"key")?;
        args.set_bytes(block, 1, b"value")?;
        args.set(block, 2, -2i64 as u64);
        Ok(block)
    });
    let expected: &[u8] = b"\0\0\0\x2d\x80\x01\0\x01\0\0\0\x03Set\0\0\0\x09\
        \x0b\0\x01\0\0\0\x03key\x0b\0\x02\0\0\0\x05value\x08\0\x03\xff\xff\xff\xfe\0";
    assert_eq!(&frame[..length.expect("room")], expected);
}
