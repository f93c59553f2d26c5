//! A TCP port for clients that speak memcached's text, whose commands go on as Thrift calls. So the rows of the command
//! table run over Thrift. A command that the IDL cannot express is answered with [`INEXPRESSIBLE`].
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use protocol::command::{Command, Get, Store, StoreVerb};
use protocol::counter::Direction;
use protocol::{Limits, Parse};
use rpc::Code;
use rpc::call::{self, Answer};
use rpc::flat::{Build, View};
use rpc::services::memcached::{
    AddArgs, AddResult, CacheError, CasArgs, DeleteResult, Found, GetAndTouchArgs, GetManyArgs,
    GetManyResult, GetResult, IncrementArgs, IncrementResult, Item, Memcached, Number, SetArgs,
    SetResult, Stored, TouchArgs, TouchResult,
};
use units::ByteCount;

/// The answer to a command that no call expresses.
pub(crate) const INEXPRESSIBLE: &[u8] = b"INEXPRESSIBLE\r\n";

/// Listens until the process ends. Each connection has a Thrift connection to `server`.
///
/// # Errors
/// The system has no port.
pub(crate) fn listen(server: SocketAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let addr = listener.local_addr()?;
    thread::spawn(move || {
        for text in listener.incoming().flatten() {
            // An error of one side ends the other, which is what the test then sees.
            thread::spawn(move || Bridge { text, calls: Calls::connect(server)? }.pass());
        }
    });
    Ok(addr)
}

struct Bridge {
    text: TcpStream,
    calls: Calls,
}

impl Bridge {
    /// Answers commands until one side ends.
    fn pass(mut self) -> io::Result<()> {
        self.text.set_nodelay(true)?;
        // The server is to refuse what is too long, not the bridge.
        let limits = Limits { item_bytes_max: ByteCount::mib(64) };
        let (mut input, mut space) = (Vec::new(), vec![0; SPACE_BYTES]);
        loop {
            let (mut begin, mut out) = (0, Vec::new());
            while let Some(bytes) = self.serve(&input[begin..], &limits, &mut out)? {
                begin += bytes;
            }
            input.drain(..begin);
            self.text.write_all(&out)?;
            match self.text.read(&mut space)? {
                0 => return Ok(()),
                bytes => input.extend_from_slice(&space[..bytes]),
            }
        }
    }

    /// Serves the command at the front of `input`. Returns its length, or none if it is incomplete.
    fn serve(
        &mut self,
        input: &[u8],
        limits: &Limits,
        out: &mut Vec<u8>,
    ) -> io::Result<Option<usize>> {
        match protocol::parse(input, limits) {
            Parse::Incomplete => Ok(None),
            Parse::Refused { refusal, consumed } => {
                // The tests' client ends each answer with this line.
                let is_mark = input.starts_with(b"get\r\n");
                out.extend_from_slice(if is_mark { refusal.reply } else { INEXPRESSIBLE });
                let skipped = usize::try_from(refusal.swallow_bytes).unwrap_or(usize::MAX);
                Ok(Some((consumed.saturating_add(skipped)).min(input.len())))
            }
            Parse::Command { command, consumed } => {
                let body_bytes = command.body_bytes().unwrap_or(0);
                let Some(body) = input[consumed..].get(..body_bytes) else { return Ok(None) };
                match self.answer(&command, body)? {
                    Some(answer) => out.extend_from_slice(&answer),
                    None => out.extend_from_slice(INEXPRESSIBLE),
                }
                Ok(Some(consumed + body_bytes))
            }
        }
    }

    /// Returns memcached's answer to a command. Returns none if no call expresses the command.
    fn answer(&mut self, command: &Command<'_>, body: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match command {
            Command::MetaNoop => Ok(Some(b"MN\r\n".to_vec())),
            Command::Get(get) => self.get(get).map(Some),
            Command::Store(store) if !store.noreply => {
                let Some(value) = body.strip_suffix(b"\r\n") else { return Ok(None) };
                self.store(store, value).map(Some)
            }
            Command::Delete { key, noreply: false } => {
                let answer = self.calls.call(Memcached::DELETE, |args| args.key(key))?;
                Ok(Some(found(&answer, |view| DeleteResult(view).success(), "DELETED")))
            }
            Command::Touch { key, exptime_s, noreply: false } => {
                let answer = self.calls.call(Memcached::TOUCH, |args| {
                    args.key(key)?;
                    args.number(TouchArgs::EXPIRY_S, i64::from(*exptime_s));
                    Ok(())
                })?;
                Ok(Some(found(&answer, |view| TouchResult(view).success(), "TOUCHED")))
            }
            Command::Arithmetic(arithmetic) if !arithmetic.noreply => {
                let Ok(delta) = i64::try_from(arithmetic.delta) else { return Ok(None) };
                let function = match arithmetic.direction {
                    Direction::Increment => Memcached::INCREMENT,
                    Direction::Decrement => Memcached::DECREMENT,
                };
                let answer = self.calls.call(function, |args| {
                    args.key(&arithmetic.key)?;
                    args.number(IncrementArgs::DELTA, delta);
                    Ok(())
                })?;
                Ok(Some(match answer.result(IncrementResult::ERROR) {
                    Err(line) => line,
                    Ok(result) => match IncrementResult(result).success().and_then(Number::value) {
                        Some(number) => format!("{}\r\n", number as u64).into_bytes(),
                        None => b"NOT_FOUND\r\n".to_vec(),
                    },
                }))
            }
            Command::FlushAll { delay_s, noreply: false } => {
                let delay_s = i64::from(*delay_s);
                let answer = self.calls.call(Memcached::FLUSH_ALL, |args| {
                    args.number(0, delay_s);
                    Ok(())
                })?;
                Ok(Some(answer.result(0).map_or_else(|line| line, |_| b"OK\r\n".to_vec())))
            }
            _ => Ok(None),
        }
    }

    fn get(&mut self, get: &Get<'_>) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        if get.touch_exptime_s.is_none() && !get.keys.is_one() {
            if let Err(line) = self.get_many(get, &mut out)? {
                return Ok(line);
            }
        } else {
            for key in get.keys {
                if let Err(line) = self.get_one(get, &key, &mut out)? {
                    return Ok(line);
                }
            }
        }
        out.extend_from_slice(b"END\r\n");
        Ok(out)
    }

    fn get_one(
        &mut self,
        get: &Get<'_>,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> io::Result<Result<(), Vec<u8>>> {
        let function = match (get.touch_exptime_s, get.with_cas) {
            (Some(_), _) => Memcached::GET_AND_TOUCH,
            (None, true) => Memcached::GETS,
            (None, false) => Memcached::GET,
        };
        let answer = self.calls.call(function, |args| {
            args.key(key)?;
            if let Some(exptime_s) = get.touch_exptime_s {
                args.number(GetAndTouchArgs::EXPIRY_S, i64::from(exptime_s));
            }
            Ok(())
        })?;
        let result = match answer.result(1) {
            Ok(result) => result,
            Err(line) => return Ok(Err(line)),
        };
        // The functions' results have the same slots, and so have `Found` and the beginning of `Item`.
        let Some(Found(item)) = GetResult(result).success() else { return Ok(Ok(())) };
        write_item(out, key, Item(item), get.with_cas);
        Ok(Ok(()))
    }

    fn get_many(&mut self, get: &Get<'_>, out: &mut Vec<u8>) -> io::Result<Result<(), Vec<u8>>> {
        let answer = self.calls.call(Memcached::GET_MANY, |args| {
            let list = args.build.block(get.keys.count())?;
            for (slot, key) in get.keys.enumerate() {
                args.build.put_bytes(list, slot, &key)?;
            }
            args.build.head(list, get.keys.count() as u64);
            args.build.set_block(args.block, GetManyArgs::KEYS, list);
            Ok(())
        })?;
        let result = match answer.result(GetManyResult::ERROR) {
            Ok(result) => result,
            Err(line) => return Ok(Err(line)),
        };
        let map = GetManyResult(result).success().expect("a result has a map or an error");
        let entries = (0..map.count() / 2).map(|entry| {
            let key = map.string(2 * entry).expect("a key");
            (key, Item(map.block(2 * entry + 1).expect("an item")))
        });
        let items: HashMap<&[u8], Item<'_>> = entries.collect();
        for key in get.keys {
            if let Some(item) = items.get(&*key) {
                write_item(out, &key, *item, get.with_cas);
            }
        }
        Ok(Ok(()))
    }

    fn store(&mut self, store: &Store<'_>, value: &[u8]) -> io::Result<Vec<u8>> {
        let function = match store.verb {
            StoreVerb::Set => Memcached::SET,
            StoreVerb::Add => Memcached::ADD,
            StoreVerb::Replace => Memcached::REPLACE,
            StoreVerb::Append => Memcached::APPEND,
            StoreVerb::Prepend => Memcached::PREPEND,
            StoreVerb::Cas => Memcached::CAS,
        };
        let extends = matches!(store.verb, StoreVerb::Append | StoreVerb::Prepend);
        let answer = self.calls.call(function, |args| {
            args.key(&store.key)?;
            args.build.set_bytes(args.block, SetArgs::VALUE, value)?;
            if !extends {
                args.number(AddArgs::FLAGS, i64::from(store.client_flags as i32));
                args.number(AddArgs::EXPIRY_S, i64::from(store.exptime_s));
            }
            if store.verb == StoreVerb::Cas {
                args.number(CasArgs::CAS, store.cas as i64);
            }
            Ok(())
        })?;
        if store.verb == StoreVerb::Set {
            let result = answer.result(SetResult::ERROR);
            return Ok(result.map_or_else(|line| line, |_| b"STORED\r\n".to_vec()));
        }
        Ok(match answer.result(AddResult::ERROR) {
            Err(line) => line,
            Ok(result) => match AddResult(result).success().and_then(Stored::outcome) {
                Some(0) => b"STORED\r\n".to_vec(),
                Some(1) => b"NOT_STORED\r\n".to_vec(),
                Some(2) => b"EXISTS\r\n".to_vec(),
                Some(3) => b"NOT_FOUND\r\n".to_vec(),
                other => format!("outcome {other:?}\r\n").into_bytes(),
            },
        })
    }
}

fn write_item(out: &mut Vec<u8>, key: &[u8], item: Item<'_>, with_cas: bool) {
    let (Some(true), Some(value)) = (item.hit(), item.value()) else { return };
    let flags = item.flags().unwrap_or(0) as u32;
    out.extend_from_slice(&[b"VALUE ", key].concat());
    out.extend_from_slice(format!(" {flags} {}", value.len()).as_bytes());
    if with_cas {
        let cas = item.cas().unwrap_or(0) as u64;
        out.extend_from_slice(format!(" {cas}").as_bytes());
    }
    out.extend_from_slice(&[b"\r\n", value, b"\r\n"].concat());
}

/// Returns the line for whether an item was there. The exceptions of these functions have slot 1.
fn found(
    answer: &CallAnswer,
    success: impl FnOnce(View<'_>) -> Option<bool>,
    word: &str,
) -> Vec<u8> {
    match answer.result(1).map(success) {
        Err(line) => line,
        Ok(Some(true)) => format!("{word}\r\n").into_bytes(),
        Ok(_) => b"NOT_FOUND\r\n".to_vec(),
    }
}

/// A connection of a Thrift client, with the code that is generated from the IDL.
pub(crate) struct Calls {
    stream: TcpStream,
    sequence: i32,
}

/// The arguments of a call while they are written.
pub(crate) struct Arguments<'b, 'a> {
    pub(crate) build: &'b mut Build<'a>,
    pub(crate) block: usize,
}

impl Arguments<'_, '_> {
    /// Sets the key, which has the same slot in all functions.
    pub(crate) fn key(&mut self, key: &[u8]) -> Result<(), Code> {
        self.build.set_bytes(self.block, SetArgs::KEY, key)
    }

    pub(crate) fn number(&mut self, slot: usize, number: i64) {
        self.build.set(self.block, slot, number as u64);
    }
}

/// The answer to a call.
pub(crate) struct CallAnswer(Result<Vec<u8>, String>);

impl CallAnswer {
    /// Returns the block of a result, or the line of text for the failure. `error` is the slot of the exception.
    pub(crate) fn result(&self, error: usize) -> Result<View<'_>, Vec<u8>> {
        let block = match &self.0 {
            Ok(block) => View::new(block),
            Err(text) => return Err(format!("SERVER_ERROR {text}\r\n").into_bytes()),
        };
        let Some(error) = block.get_block(error).map(CacheError) else { return Ok(block) };
        let line: &[u8] = match error.code() {
            Some(3) => b"SERVER_ERROR object too large for cache\r\n",
            Some(6) => b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            _ => &[b"SERVER_ERROR ", error.message().unwrap_or_default(), b"\r\n"].concat(),
        };
        Err(line.to_vec())
    }
}

impl Calls {
    /// Connects to a Thrift listener.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn connect(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(rebate_tests::TIMEOUT))?;
        Ok(Self { stream, sequence: 0 })
    }

    /// Calls a function with the arguments that `arguments` writes.
    ///
    /// # Errors
    /// The connection ended, or the answer is not one to this call.
    pub(crate) fn call(
        &mut self,
        function: u32,
        arguments: impl FnOnce(&mut Arguments<'_, '_>) -> Result<(), Code>,
    ) -> io::Result<CallAnswer> {
        self.sequence += 1;
        let mut frame = vec![0; FRAME_BYTES_MAX];
        let length = call::frame(&Memcached, function, self.sequence, &mut frame, |build| {
            let block = build.block(SLOTS_MAX)?;
            arguments(&mut Arguments { build, block })?;
            Ok(block)
        })
        .map_err(malformed)?;
        self.stream.write_all(&frame[..length])?;
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        let mut frame = head.to_vec();
        frame.resize(head.len() + u32::from_be_bytes(head) as usize, 0);
        self.stream.read_exact(&mut frame[head.len()..])?;
        let mut into = vec![0; 2 * frame.len() + (64 << 10)];
        let answer = call::answer(&Memcached, function, self.sequence, &frame, &mut into);
        Ok(CallAnswer(match answer.map_err(malformed)? {
            Answer::Result(block) => Ok(block.bytes().to_vec()),
            Answer::Exception(_, text) => Err(String::from_utf8_lossy(&text).into_owned()),
        }))
    }
}

fn malformed(code: Code) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, code)
}

const SPACE_BYTES: usize = 64 << 10;

/// The most slots that the arguments of a function have.
const SLOTS_MAX: usize = 5;

/// More than any call of the tests has (bytes).
const FRAME_BYTES_MAX: usize = 4 << 20;
