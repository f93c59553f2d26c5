//! Generated code against its generator, and against the interpreter of the same schema on random messages, whole and
//! damaged: the same records, the same bytes, the same codes.

mod common;

use std::fs;
use std::path::Path;

use rpc::flat::{Build, View};
use rpc::idl::{Interpreter, Schema, emit, parse};
use rpc::services::memcached::Memcached;
use rpc::services::post_storage::PostStorageService;
use rpc::services::unique_id::UniqueIdService;
use rpc::wire::{Out, Wire};
use rpc::{Code, Functions, call};
use units::Prng;

use common::{BUFFER_BYTES, random};

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

type Read = Result<Vec<u8>, Code>;

/// What `recv` or `answer` makes of a message's struct.
fn read(functions: &dyn Functions, function: u32, answer: bool, wire: &[u8]) -> Read {
    let mut bytes = vec![0xEE; BUFFER_BYTES];
    let (mut wire, mut build) = (Wire::new(wire, 64), Build::new(&mut bytes));
    let block = if answer {
        functions.answer(function, &mut wire, &mut build)?
    } else {
        functions.recv(function, &mut wire, &mut build)?
    };
    wire.end()?;
    let used = build.used();
    Ok(bytes[block..used].to_vec())
}

/// What `call` or `resp` makes of a block.
fn write(functions: &dyn Functions, function: u32, answer: bool, block: &[u8]) -> Read {
    let mut bytes = vec![0; BUFFER_BYTES];
    let mut out = Out::framed(&mut bytes)?;
    if answer {
        functions.resp(function, View::new(block), &mut out)?;
    } else {
        functions.call(function, View::new(block), &mut out)?;
    }
    let length = out.frame()?;
    Ok(bytes[4..length].to_vec())
}

#[test]
fn generated_and_interpreted_agree_on_messages_whole_and_damaged() {
    let mut prng = Prng::new(5);
    let (mut whole, mut damaged) = (0, 0);
    for (schema, generated) in services() {
        let interpreter = Interpreter::new(schema.clone());
        assert_eq!(generated.service(), interpreter.service());
        for round in 0..1_500 {
            let function = prng.below(schema.functions.len() as u64) as u32;
            let signature = &schema.functions[function as usize];
            assert_eq!(generated.function(function), interpreter.function(function));
            assert_eq!(generated.find(signature.name.as_bytes()), Some(function));
            let answer = round % 2 == 0;
            let place = if answer { signature.result } else { signature.args };
            let mut bytes = vec![0; BUFFER_BYTES];
            let mut build = Build::new(&mut bytes);
            let block = random(&schema, place, &mut prng, &mut build);
            let used = build.used();
            let block = &bytes[block..used];

            let wire = write(&*generated, function, answer, block);
            assert_eq!(wire, write(&interpreter, function, answer, block));
            let Ok(mut wire) = wire else { continue };
            let back = read(&*generated, function, answer, &wire);
            assert_eq!(back, read(&interpreter, function, answer, &wire));
            let back = back.expect("what was written can be read");
            assert_eq!(write(&*generated, function, answer, &back).as_ref(), Ok(&wire));
            whole += 1;

            damage(&mut wire, &mut prng);
            let result = read(&*generated, function, answer, &wire);
            assert_eq!(result, read(&interpreter, function, answer, &wire), "{wire:02x?}");
            damaged += u32::from(result.is_err());

            let mut wild = block.to_vec();
            damage(&mut wild, &mut prng);
            let result = write(&*generated, function, answer, &wild);
            assert_eq!(result, write(&interpreter, function, answer, &wild));
        }
    }
    assert!(whole > 2_000 && damaged > 500, "{whole} whole, {damaged} refused");
}

fn damage(bytes: &mut Vec<u8>, prng: &mut Prng) {
    for _ in 0..=prng.below(3) {
        match (prng.below(3), bytes.len() as u64) {
            (_, 0) => bytes.push(prng.bits() as u8),
            (0, length) => bytes.truncate(prng.below(length) as usize),
            (_, length) => bytes[prng.below(length) as usize] = prng.bits() as u8,
        }
    }
}

/// The bytes that Thrift's own documentation of the protocol gives for such a call, written by hand.
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
