//! Service `Memcached`, generated from rpc/idl/memcached.thrift by
//! `cargo run -p rpc --example generate`. Change the IDL, not this file.

use crate::command::Code;
use crate::flat::{Build, View};
use crate::functions::{Function, Functions};
use crate::wire::{Wire, Writer, kind};

/// The functions of `Memcached`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memcached;

impl Memcached {
    /// `Set`.
    pub const SET: u32 = 0;
    /// `Get`.
    pub const GET: u32 = 1;
}

impl Functions for Memcached {
    fn service(&self) -> &str {
        "Memcached"
    }

    fn find(&self, name: &[u8]) -> Option<u32> {
        match name {
            b"Set" => Some(0),
            b"Get" => Some(1),
            _ => None,
        }
    }

    fn function(&self, function: u32) -> Option<Function<'_>> {
        match function {
            0 => Some(Function { name: "Set", oneway: false }),
            1 => Some(Function { name: "Get", oneway: false }),
            _ => None,
        }
    }

    fn recv(&self, number: u32, wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
        match number {
            0 => recv_set(wire, to),
            1 => recv_get(wire, to),
            _ => Err(Code::UnknownFunction),
        }
    }

    fn resp(&self, number: u32, from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
        match number {
            0 => resp_set(from, out),
            1 => resp_get(from, out),
            _ => Err(Code::UnknownFunction),
        }
    }

    fn call(&self, number: u32, from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
        match number {
            0 => call_set(from, out),
            1 => call_get(from, out),
            _ => Err(Code::UnknownFunction),
        }
    }

    fn answer(&self, number: u32, wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
        match number {
            0 => answer_set(wire, to),
            1 => answer_get(wire, to),
            _ => Err(Code::UnknownFunction),
        }
    }
}

/// A block of `CacheError`.
#[derive(Clone, Copy, Debug)]
pub struct CacheError<'a>(pub View<'a>);

impl<'a> CacheError<'a> {
    /// The number of slots in a block of `CacheError`.
    pub const SLOTS: usize = 1;
    /// The number of the slot of field `message`.
    pub const MESSAGE: usize = 0;
    /// Returns field 1, or None if it is absent.
    pub fn message(self) -> Option<&'a [u8]> { self.0.get_string(0) }
}

fn read_cache_error(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(1)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRING, 1) => { to.put_bytes(block, 0, wire.string()?)?; head |= 0x1; }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn write_cache_error(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.has(0) { out.field(kind::STRING, 1)?; out.string(from.string(0)?)?; }
    out.stop()
}

/// A block of `Found`.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a>(pub View<'a>);

impl<'a> Found<'a> {
    /// The number of slots in a block of `Found`.
    pub const SLOTS: usize = 3;
    /// The number of the slot of field `hit`.
    pub const HIT: usize = 0;
    /// The number of the slot of field `value`.
    pub const VALUE: usize = 1;
    /// The number of the slot of field `flags`.
    pub const FLAGS: usize = 2;
    /// Returns the required field 1, or None if it is absent.
    pub fn hit(self) -> Option<bool> { self.0.get(0).map(|word| word != 0) }
    /// Returns field 2, or None if it is absent.
    pub fn value(self) -> Option<&'a [u8]> { self.0.get_string(1) }
    /// Returns field 3, or None if it is absent.
    pub fn flags(self) -> Option<i32> { self.0.get(2).map(|word| word as i32) }
}

fn read_found(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(3)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::BOOL, 1) => { to.put(block, 0, wire.bool()?); head |= 0x1; }
            (kind::STRING, 2) => { to.put_bytes(block, 1, wire.string()?)?; head |= 0x2; }
            (kind::I32, 3) => { to.put(block, 2, i64::from(wire.i32()?) as u64); head |= 0x4; }
            (other, _) => wire.skip(other)?,
        }
    }
    if head & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    to.head(block, head);
    Ok(block)
}

fn write_found(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::BOOL, 1)?; out.byte(u8::from(from.word(0)? != 0))?; }
    if from.has(1) { out.field(kind::STRING, 2)?; out.string(from.string(1)?)?; }
    if from.has(2) { out.field(kind::I32, 3)?; out.i32(from.word(2)? as i32)?; }
    out.stop()
}

/// A block of `SetArgs`.
#[derive(Clone, Copy, Debug)]
pub struct SetArgs<'a>(pub View<'a>);

impl<'a> SetArgs<'a> {
    /// The number of slots in a block of `SetArgs`.
    pub const SLOTS: usize = 4;
    /// The number of the slot of field `key`.
    pub const KEY: usize = 0;
    /// The number of the slot of field `value`.
    pub const VALUE: usize = 1;
    /// The number of the slot of field `flags`.
    pub const FLAGS: usize = 2;
    /// The number of the slot of field `expiry_s`.
    pub const EXPIRY_S: usize = 3;
    /// Returns the required field 1, or None if it is absent.
    pub fn key(self) -> Option<&'a [u8]> { self.0.get_string(0) }
    /// Returns the required field 2, or None if it is absent.
    pub fn value(self) -> Option<&'a [u8]> { self.0.get_string(1) }
    /// Returns field 3, or None if it is absent.
    pub fn flags(self) -> Option<i32> { self.0.get(2).map(|word| word as i32) }
    /// Returns field 4, or None if it is absent.
    pub fn expiry_s(self) -> Option<i32> { self.0.get(3).map(|word| word as i32) }
}

fn recv_set(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(4)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRING, 1) => { to.put_bytes(block, 0, wire.string()?)?; head |= 0x1; }
            (kind::STRING, 2) => { to.put_bytes(block, 1, wire.string()?)?; head |= 0x2; }
            (kind::I32, 3) => { to.put(block, 2, i64::from(wire.i32()?) as u64); head |= 0x4; }
            (kind::I32, 4) => { to.put(block, 3, i64::from(wire.i32()?) as u64); head |= 0x8; }
            (other, _) => wire.skip(other)?,
        }
    }
    if head & 0x3 != 0x3 {
        return Err(Code::Malformed);
    }
    to.head(block, head);
    Ok(block)
}

fn call_set(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x3 != 0x3 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::STRING, 1)?; out.string(from.string(0)?)?; }
    if from.has(1) { out.field(kind::STRING, 2)?; out.string(from.string(1)?)?; }
    if from.has(2) { out.field(kind::I32, 3)?; out.i32(from.word(2)? as i32)?; }
    if from.has(3) { out.field(kind::I32, 4)?; out.i32(from.word(3)? as i32)?; }
    out.stop()
}

/// A block of `SetResult`.
#[derive(Clone, Copy, Debug)]
pub struct SetResult<'a>(pub View<'a>);

impl<'a> SetResult<'a> {
    /// The number of slots in a block of `SetResult`.
    pub const SLOTS: usize = 1;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 0;
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<CacheError<'a>> { self.0.get_block(0).map(CacheError) }
}

fn answer_set(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(1)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRUCT, 1) => {
                let child = read_cache_error(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_set(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(false)?;
    if from.has(0) { out.field(kind::STRUCT, 1)?; write_cache_error(from.block(0)?, out)?; }
    out.stop()
}

/// A block of `GetArgs`.
#[derive(Clone, Copy, Debug)]
pub struct GetArgs<'a>(pub View<'a>);

impl<'a> GetArgs<'a> {
    /// The number of slots in a block of `GetArgs`.
    pub const SLOTS: usize = 1;
    /// The number of the slot of field `key`.
    pub const KEY: usize = 0;
    /// Returns the required field 1, or None if it is absent.
    pub fn key(self) -> Option<&'a [u8]> { self.0.get_string(0) }
}

fn recv_get(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(1)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRING, 1) => { to.put_bytes(block, 0, wire.string()?)?; head |= 0x1; }
            (other, _) => wire.skip(other)?,
        }
    }
    if head & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    to.head(block, head);
    Ok(block)
}

fn call_get(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::STRING, 1)?; out.string(from.string(0)?)?; }
    out.stop()
}

/// A block of `GetResult`.
#[derive(Clone, Copy, Debug)]
pub struct GetResult<'a>(pub View<'a>);

impl<'a> GetResult<'a> {
    /// The number of slots in a block of `GetResult`.
    pub const SLOTS: usize = 1;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<Found<'a>> { self.0.get_block(0).map(Found) }
}

fn answer_get(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(1)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRUCT, 0) => {
                let child = read_found(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_get(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::STRUCT, 0)?; write_found(from.block(0)?, out)?; }
    out.stop()
}
