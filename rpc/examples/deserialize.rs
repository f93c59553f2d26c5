//! Reads recorded Thrift messages and reports the time for it. This is Rebate's side of
//! `bench/rpc_deserialize.py`. It makes no messages and compares nothing.
//!
//! Usage: deserialize FOLDER. Each file in FOLDER is a message without its frame, named
//! SERVICE.FUNCTION.KIND.WHAT. Each line on standard input is `VARIANT FILE ROUNDS`, where the
//! variant is `generated` or `table`. The answer is the time in nanoseconds per message. With 0
//! rounds the answer is the message written again, in hexadecimal.

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Instant;

use rpc::flat::{Build, View};
use rpc::idl::{Interpreter, parse};
use rpc::services::memcached::Memcached;
use rpc::services::post_storage::PostStorageService;
use rpc::services::unique_id::UniqueIdService;
use rpc::wire::{FRAME_HEAD_BYTES, Message, MessageKind, Wire, Writer};
use rpc::{Code, Functions};

/// The number of copies of a message that are read back to back, as on a busy connection. The other
/// programs of the comparison use the same number.
const COPIES: usize = 32;
const RECORD_BYTES: usize = 1 << 16;

type Problem = Box<dyn Error>;

fn main() -> Result<(), Problem> {
    let folder = std::env::args().nth(1).ok_or("usage: deserialize FOLDER")?;
    let functions = all_functions()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [variant, file, rounds] = words[..] else {
            return Err(format!("{line:?} is not VARIANT FILE ROUNDS").into());
        };
        let service = file.split('.').next().unwrap_or_default();
        let functions = functions.get(&(service, variant));
        let functions = functions.ok_or_else(|| format!("no {variant} functions of {service}"))?;
        let message = std::fs::read(Path::new(&folder).join(file))?;
        let answer = match rounds.parse()? {
            0 => written_again(&**functions, &message)?,
            rounds => time_ns(&**functions, &message, rounds)?.to_string(),
        };
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// The functions by service and variant.
type AllFunctions = BTreeMap<(&'static str, &'static str), Box<dyn Functions>>;

fn all_functions() -> Result<AllFunctions, Problem> {
    let generated: [Box<dyn Functions>; 3] =
        [Box::new(Memcached), Box::new(PostStorageService), Box::new(UniqueIdService)];
    let mut all = BTreeMap::new();
    for ((service, idl), functions) in rpc::services::IDL.into_iter().zip(generated) {
        all.insert((service, "generated"), functions);
        let table: Box<dyn Functions> = Box::new(Interpreter::new(parse(idl)?));
        all.insert((service, "table"), table);
    }
    Ok(all)
}

fn time_ns(functions: &dyn Functions, message: &[u8], rounds: u32) -> Result<f64, Code> {
    let stream = message.repeat(COPIES);
    let mut bytes = vec![0; RECORD_BYTES];
    let begun = Instant::now();
    for _ in 0..rounds {
        for message in black_box(&stream).chunks_exact(message.len()) {
            let mut to = Build::new(&mut bytes);
            black_box(read(functions, message, &mut to)?);
        }
    }
    Ok(begun.elapsed().as_secs_f64() * 1e9 / (f64::from(rounds) * COPIES as f64))
}

/// Reads a message as an engine does: header, function, fields.
fn read<'a>(
    functions: &dyn Functions,
    message: &'a [u8],
    to: &mut Build<'_>,
) -> Result<(Message<'a>, u32, usize), Code> {
    let mut wire = Wire::new(message, message.len());
    let head = wire.message()?;
    let function = functions.find(head.name).ok_or(Code::UnknownFunction)?;
    let block = match head.kind {
        MessageKind::Call => functions.recv(function, &mut wire, to)?,
        MessageKind::Reply => functions.answer(function, &mut wire, to)?,
        MessageKind::Exception | MessageKind::Oneway => return Err(Code::Malformed),
    };
    wire.end()?;
    Ok((head, function, block))
}

fn written_again(functions: &dyn Functions, message: &[u8]) -> Result<String, Code> {
    let mut bytes = vec![0; RECORD_BYTES];
    let mut build = Build::new(&mut bytes);
    let (head, function, block) = read(functions, message, &mut build)?;
    let used = build.used();
    let record = View::new(&bytes[block..used]);
    let mut frame = vec![0; RECORD_BYTES];
    let mut out = Writer::framed(&mut frame)?;
    out.message(&head)?;
    match head.kind {
        MessageKind::Call => functions.call(function, record, &mut out)?,
        _ => functions.resp(function, record, &mut out)?,
    }
    let length = out.frame()?;
    Ok(frame[FRAME_HEAD_BYTES..length].iter().map(|byte| format!("{byte:02x}")).collect())
}
