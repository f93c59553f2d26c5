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
    /// `Gets`.
    pub const GETS: u32 = 2;
    /// `GetMany`.
    pub const GET_MANY: u32 = 3;
    /// `GetAndTouch`.
    pub const GET_AND_TOUCH: u32 = 4;
    /// `Add`.
    pub const ADD: u32 = 5;
    /// `Replace`.
    pub const REPLACE: u32 = 6;
    /// `Append`.
    pub const APPEND: u32 = 7;
    /// `Prepend`.
    pub const PREPEND: u32 = 8;
    /// `Cas`.
    pub const CAS: u32 = 9;
    /// `Delete`.
    pub const DELETE: u32 = 10;
    /// `Touch`.
    pub const TOUCH: u32 = 11;
    /// `Increment`.
    pub const INCREMENT: u32 = 12;
    /// `Decrement`.
    pub const DECREMENT: u32 = 13;
    /// `FlushAll`.
    pub const FLUSH_ALL: u32 = 14;
    /// `Version`.
    pub const VERSION: u32 = 15;
    /// `Stats`.
    pub const STATS: u32 = 16;
}

impl Functions for Memcached {
    fn service(&self) -> &str {
        "Memcached"
    }

    fn find(&self, name: &[u8]) -> Option<u32> {
        match name {
            b"Set" => Some(0),
            b"Get" => Some(1),
            b"Gets" => Some(2),
            b"GetMany" => Some(3),
            b"GetAndTouch" => Some(4),
            b"Add" => Some(5),
            b"Replace" => Some(6),
            b"Append" => Some(7),
            b"Prepend" => Some(8),
            b"Cas" => Some(9),
            b"Delete" => Some(10),
            b"Touch" => Some(11),
            b"Increment" => Some(12),
            b"Decrement" => Some(13),
            b"FlushAll" => Some(14),
            b"Version" => Some(15),
            b"Stats" => Some(16),
            _ => None,
        }
    }

    fn function(&self, function: u32) -> Option<Function<'_>> {
        match function {
            0 => Some(Function { name: "Set", oneway: false }),
            1 => Some(Function { name: "Get", oneway: false }),
            2 => Some(Function { name: "Gets", oneway: false }),
            3 => Some(Function { name: "GetMany", oneway: false }),
            4 => Some(Function { name: "GetAndTouch", oneway: false }),
            5 => Some(Function { name: "Add", oneway: false }),
            6 => Some(Function { name: "Replace", oneway: false }),
            7 => Some(Function { name: "Append", oneway: false }),
            8 => Some(Function { name: "Prepend", oneway: false }),
            9 => Some(Function { name: "Cas", oneway: false }),
            10 => Some(Function { name: "Delete", oneway: false }),
            11 => Some(Function { name: "Touch", oneway: false }),
            12 => Some(Function { name: "Increment", oneway: false }),
            13 => Some(Function { name: "Decrement", oneway: false }),
            14 => Some(Function { name: "FlushAll", oneway: false }),
            15 => Some(Function { name: "Version", oneway: false }),
            16 => Some(Function { name: "Stats", oneway: false }),
            _ => None,
        }
    }

    fn recv(&self, number: u32, wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
        match number {
            0 => recv_set(wire, to),
            1 => recv_get(wire, to),
            2 => recv_gets(wire, to),
            3 => recv_get_many(wire, to),
            4 => recv_get_and_touch(wire, to),
            5 => recv_add(wire, to),
            6 => recv_replace(wire, to),
            7 => recv_append(wire, to),
            8 => recv_prepend(wire, to),
            9 => recv_cas(wire, to),
            10 => recv_delete(wire, to),
            11 => recv_touch(wire, to),
            12 => recv_increment(wire, to),
            13 => recv_decrement(wire, to),
            14 => recv_flush_all(wire, to),
            15 => recv_version(wire, to),
            16 => recv_stats(wire, to),
            _ => Err(Code::UnknownFunction),
        }
    }

    fn resp(&self, number: u32, from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
        match number {
            0 => resp_set(from, out),
            1 => resp_get(from, out),
            2 => resp_gets(from, out),
            3 => resp_get_many(from, out),
            4 => resp_get_and_touch(from, out),
            5 => resp_add(from, out),
            6 => resp_replace(from, out),
            7 => resp_append(from, out),
            8 => resp_prepend(from, out),
            9 => resp_cas(from, out),
            10 => resp_delete(from, out),
            11 => resp_touch(from, out),
            12 => resp_increment(from, out),
            13 => resp_decrement(from, out),
            14 => resp_flush_all(from, out),
            15 => resp_version(from, out),
            16 => resp_stats(from, out),
            _ => Err(Code::UnknownFunction),
        }
    }

    fn call(&self, number: u32, from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
        match number {
            0 => call_set(from, out),
            1 => call_get(from, out),
            2 => call_gets(from, out),
            3 => call_get_many(from, out),
            4 => call_get_and_touch(from, out),
            5 => call_add(from, out),
            6 => call_replace(from, out),
            7 => call_append(from, out),
            8 => call_prepend(from, out),
            9 => call_cas(from, out),
            10 => call_delete(from, out),
            11 => call_touch(from, out),
            12 => call_increment(from, out),
            13 => call_decrement(from, out),
            14 => call_flush_all(from, out),
            15 => call_version(from, out),
            16 => call_stats(from, out),
            _ => Err(Code::UnknownFunction),
        }
    }

    fn answer(&self, number: u32, wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
        match number {
            0 => answer_set(wire, to),
            1 => answer_get(wire, to),
            2 => answer_gets(wire, to),
            3 => answer_get_many(wire, to),
            4 => answer_get_and_touch(wire, to),
            5 => answer_add(wire, to),
            6 => answer_replace(wire, to),
            7 => answer_append(wire, to),
            8 => answer_prepend(wire, to),
            9 => answer_cas(wire, to),
            10 => answer_delete(wire, to),
            11 => answer_touch(wire, to),
            12 => answer_increment(wire, to),
            13 => answer_decrement(wire, to),
            14 => answer_flush_all(wire, to),
            15 => answer_version(wire, to),
            16 => answer_stats(wire, to),
            _ => Err(Code::UnknownFunction),
        }
    }
}

/// A block of `CacheError`.
#[derive(Clone, Copy, Debug)]
pub struct CacheError<'a>(pub View<'a>);

impl<'a> CacheError<'a> {
    /// The number of slots in a block of `CacheError`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `message`.
    pub const MESSAGE: usize = 0;
    /// The number of the slot of field `code`.
    pub const CODE: usize = 1;
    /// Returns field 1, or None if it is absent.
    pub fn message(self) -> Option<&'a [u8]> { self.0.get_string(0) }
    /// Returns field 2, or None if it is absent.
    pub fn code(self) -> Option<i32> { self.0.get(1).map(|word| word as i32) }
}

fn read_cache_error(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRING, 1) => { to.put_bytes(block, 0, wire.string()?)?; head |= 0x1; }
            (kind::I32, 2) => { to.put(block, 1, i64::from(wire.i32()?) as u64); head |= 0x2; }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn write_cache_error(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.has(0) { out.field(kind::STRING, 1)?; out.string(from.string(0)?)?; }
    if from.has(1) { out.field(kind::I32, 2)?; out.i32(from.word(1)? as i32)?; }
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

/// A block of `Item`.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a>(pub View<'a>);

impl<'a> Item<'a> {
    /// The number of slots in a block of `Item`.
    pub const SLOTS: usize = 4;
    /// The number of the slot of field `hit`.
    pub const HIT: usize = 0;
    /// The number of the slot of field `value`.
    pub const VALUE: usize = 1;
    /// The number of the slot of field `flags`.
    pub const FLAGS: usize = 2;
    /// The number of the slot of field `cas`.
    pub const CAS: usize = 3;
    /// Returns the required field 1, or None if it is absent.
    pub fn hit(self) -> Option<bool> { self.0.get(0).map(|word| word != 0) }
    /// Returns field 2, or None if it is absent.
    pub fn value(self) -> Option<&'a [u8]> { self.0.get_string(1) }
    /// Returns field 3, or None if it is absent.
    pub fn flags(self) -> Option<i32> { self.0.get(2).map(|word| word as i32) }
    /// Returns field 4, or None if it is absent.
    pub fn cas(self) -> Option<i64> { self.0.get(3).map(|word| word as i64) }
}

fn read_item(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(4)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::BOOL, 1) => { to.put(block, 0, wire.bool()?); head |= 0x1; }
            (kind::STRING, 2) => { to.put_bytes(block, 1, wire.string()?)?; head |= 0x2; }
            (kind::I32, 3) => { to.put(block, 2, i64::from(wire.i32()?) as u64); head |= 0x4; }
            (kind::I64, 4) => { to.put(block, 3, wire.i64()? as u64); head |= 0x8; }
            (other, _) => wire.skip(other)?,
        }
    }
    if head & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    to.head(block, head);
    Ok(block)
}

fn write_item(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::BOOL, 1)?; out.byte(u8::from(from.word(0)? != 0))?; }
    if from.has(1) { out.field(kind::STRING, 2)?; out.string(from.string(1)?)?; }
    if from.has(2) { out.field(kind::I32, 3)?; out.i32(from.word(2)? as i32)?; }
    if from.has(3) { out.field(kind::I64, 4)?; out.i64(from.word(3)? as i64)?; }
    out.stop()
}

/// A block of `Stored`.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a>(pub View<'a>);

impl<'a> Stored<'a> {
    /// The number of slots in a block of `Stored`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `outcome`.
    pub const OUTCOME: usize = 0;
    /// The number of the slot of field `cas`.
    pub const CAS: usize = 1;
    /// Returns the required field 1, or None if it is absent.
    pub fn outcome(self) -> Option<i32> { self.0.get(0).map(|word| word as i32) }
    /// Returns field 2, or None if it is absent.
    pub fn cas(self) -> Option<i64> { self.0.get(1).map(|word| word as i64) }
}

fn read_stored(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::I32, 1) => { to.put(block, 0, i64::from(wire.i32()?) as u64); head |= 0x1; }
            (kind::I64, 2) => { to.put(block, 1, wire.i64()? as u64); head |= 0x2; }
            (other, _) => wire.skip(other)?,
        }
    }
    if head & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    to.head(block, head);
    Ok(block)
}

fn write_stored(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::I32, 1)?; out.i32(from.word(0)? as i32)?; }
    if from.has(1) { out.field(kind::I64, 2)?; out.i64(from.word(1)? as i64)?; }
    out.stop()
}

/// A block of `Number`.
#[derive(Clone, Copy, Debug)]
pub struct Number<'a>(pub View<'a>);

impl<'a> Number<'a> {
    /// The number of slots in a block of `Number`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `hit`.
    pub const HIT: usize = 0;
    /// The number of the slot of field `value`.
    pub const VALUE: usize = 1;
    /// Returns the required field 1, or None if it is absent.
    pub fn hit(self) -> Option<bool> { self.0.get(0).map(|word| word != 0) }
    /// Returns field 2, or None if it is absent.
    pub fn value(self) -> Option<i64> { self.0.get(1).map(|word| word as i64) }
}

fn read_number(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::BOOL, 1) => { to.put(block, 0, wire.bool()?); head |= 0x1; }
            (kind::I64, 2) => { to.put(block, 1, wire.i64()? as u64); head |= 0x2; }
            (other, _) => wire.skip(other)?,
        }
    }
    if head & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    to.head(block, head);
    Ok(block)
}

fn write_number(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::BOOL, 1)?; out.byte(u8::from(from.word(0)? != 0))?; }
    if from.has(1) { out.field(kind::I64, 2)?; out.i64(from.word(1)? as i64)?; }
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

/// A block of `GetsArgs`.
#[derive(Clone, Copy, Debug)]
pub struct GetsArgs<'a>(pub View<'a>);

impl<'a> GetsArgs<'a> {
    /// The number of slots in a block of `GetsArgs`.
    pub const SLOTS: usize = 1;
    /// The number of the slot of field `key`.
    pub const KEY: usize = 0;
    /// Returns the required field 1, or None if it is absent.
    pub fn key(self) -> Option<&'a [u8]> { self.0.get_string(0) }
}

fn recv_gets(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
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

fn call_gets(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::STRING, 1)?; out.string(from.string(0)?)?; }
    out.stop()
}

/// A block of `GetsResult`.
#[derive(Clone, Copy, Debug)]
pub struct GetsResult<'a>(pub View<'a>);

impl<'a> GetsResult<'a> {
    /// The number of slots in a block of `GetsResult`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 1;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<Item<'a>> { self.0.get_block(0).map(Item) }
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<CacheError<'a>> { self.0.get_block(1).map(CacheError) }
}

fn answer_gets(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRUCT, 0) => {
                let child = read_item(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (kind::STRUCT, 1) => {
                let child = read_cache_error(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_gets(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::STRUCT, 0)?; write_item(from.block(0)?, out)?; }
    if from.has(1) { out.field(kind::STRUCT, 1)?; write_cache_error(from.block(1)?, out)?; }
    out.stop()
}

/// A block of `GetManyArgs`.
#[derive(Clone, Copy, Debug)]
pub struct GetManyArgs<'a>(pub View<'a>);

impl<'a> GetManyArgs<'a> {
    /// The number of slots in a block of `GetManyArgs`.
    pub const SLOTS: usize = 1;
    /// The number of the slot of field `keys`.
    pub const KEYS: usize = 0;
    /// Returns the required field 9, or None if it is absent.
    pub fn keys(self) -> Option<View<'a>> { self.0.get_block(0) }
}

fn recv_get_many(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(1)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::LIST, 9) => {
                let child = read_list_string(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    if head & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    to.head(block, head);
    Ok(block)
}

fn call_get_many(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::LIST, 9)?; write_list_string(from.block(0)?, out)?; }
    out.stop()
}

/// A block of `GetManyResult`.
#[derive(Clone, Copy, Debug)]
pub struct GetManyResult<'a>(pub View<'a>);

impl<'a> GetManyResult<'a> {
    /// The number of slots in a block of `GetManyResult`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 1;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<View<'a>> { self.0.get_block(0) }
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<CacheError<'a>> { self.0.get_block(1).map(CacheError) }
}

fn answer_get_many(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::MAP, 0) => {
                let child = read_map_string_item(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (kind::STRUCT, 1) => {
                let child = read_cache_error(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_get_many(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::MAP, 0)?; write_map_string_item(from.block(0)?, out)?; }
    if from.has(1) { out.field(kind::STRUCT, 1)?; write_cache_error(from.block(1)?, out)?; }
    out.stop()
}

/// A block of `GetAndTouchArgs`.
#[derive(Clone, Copy, Debug)]
pub struct GetAndTouchArgs<'a>(pub View<'a>);

impl<'a> GetAndTouchArgs<'a> {
    /// The number of slots in a block of `GetAndTouchArgs`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `key`.
    pub const KEY: usize = 0;
    /// The number of the slot of field `expiry_s`.
    pub const EXPIRY_S: usize = 1;
    /// Returns the required field 1, or None if it is absent.
    pub fn key(self) -> Option<&'a [u8]> { self.0.get_string(0) }
    /// Returns field 4, or None if it is absent.
    pub fn expiry_s(self) -> Option<i32> { self.0.get(1).map(|word| word as i32) }
}

fn recv_get_and_touch(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRING, 1) => { to.put_bytes(block, 0, wire.string()?)?; head |= 0x1; }
            (kind::I32, 4) => { to.put(block, 1, i64::from(wire.i32()?) as u64); head |= 0x2; }
            (other, _) => wire.skip(other)?,
        }
    }
    if head & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    to.head(block, head);
    Ok(block)
}

fn call_get_and_touch(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::STRING, 1)?; out.string(from.string(0)?)?; }
    if from.has(1) { out.field(kind::I32, 4)?; out.i32(from.word(1)? as i32)?; }
    out.stop()
}

/// A block of `GetAndTouchResult`.
#[derive(Clone, Copy, Debug)]
pub struct GetAndTouchResult<'a>(pub View<'a>);

impl<'a> GetAndTouchResult<'a> {
    /// The number of slots in a block of `GetAndTouchResult`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 1;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<Item<'a>> { self.0.get_block(0).map(Item) }
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<CacheError<'a>> { self.0.get_block(1).map(CacheError) }
}

fn answer_get_and_touch(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRUCT, 0) => {
                let child = read_item(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (kind::STRUCT, 1) => {
                let child = read_cache_error(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_get_and_touch(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::STRUCT, 0)?; write_item(from.block(0)?, out)?; }
    if from.has(1) { out.field(kind::STRUCT, 1)?; write_cache_error(from.block(1)?, out)?; }
    out.stop()
}

/// A block of `AddArgs`.
#[derive(Clone, Copy, Debug)]
pub struct AddArgs<'a>(pub View<'a>);

impl<'a> AddArgs<'a> {
    /// The number of slots in a block of `AddArgs`.
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

fn recv_add(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
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

fn call_add(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x3 != 0x3 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::STRING, 1)?; out.string(from.string(0)?)?; }
    if from.has(1) { out.field(kind::STRING, 2)?; out.string(from.string(1)?)?; }
    if from.has(2) { out.field(kind::I32, 3)?; out.i32(from.word(2)? as i32)?; }
    if from.has(3) { out.field(kind::I32, 4)?; out.i32(from.word(3)? as i32)?; }
    out.stop()
}

/// A block of `AddResult`.
#[derive(Clone, Copy, Debug)]
pub struct AddResult<'a>(pub View<'a>);

impl<'a> AddResult<'a> {
    /// The number of slots in a block of `AddResult`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 1;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<Stored<'a>> { self.0.get_block(0).map(Stored) }
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<CacheError<'a>> { self.0.get_block(1).map(CacheError) }
}

fn answer_add(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRUCT, 0) => {
                let child = read_stored(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (kind::STRUCT, 1) => {
                let child = read_cache_error(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_add(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::STRUCT, 0)?; write_stored(from.block(0)?, out)?; }
    if from.has(1) { out.field(kind::STRUCT, 1)?; write_cache_error(from.block(1)?, out)?; }
    out.stop()
}

/// A block of `ReplaceArgs`.
#[derive(Clone, Copy, Debug)]
pub struct ReplaceArgs<'a>(pub View<'a>);

impl<'a> ReplaceArgs<'a> {
    /// The number of slots in a block of `ReplaceArgs`.
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

fn recv_replace(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
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

fn call_replace(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x3 != 0x3 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::STRING, 1)?; out.string(from.string(0)?)?; }
    if from.has(1) { out.field(kind::STRING, 2)?; out.string(from.string(1)?)?; }
    if from.has(2) { out.field(kind::I32, 3)?; out.i32(from.word(2)? as i32)?; }
    if from.has(3) { out.field(kind::I32, 4)?; out.i32(from.word(3)? as i32)?; }
    out.stop()
}

/// A block of `ReplaceResult`.
#[derive(Clone, Copy, Debug)]
pub struct ReplaceResult<'a>(pub View<'a>);

impl<'a> ReplaceResult<'a> {
    /// The number of slots in a block of `ReplaceResult`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 1;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<Stored<'a>> { self.0.get_block(0).map(Stored) }
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<CacheError<'a>> { self.0.get_block(1).map(CacheError) }
}

fn answer_replace(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRUCT, 0) => {
                let child = read_stored(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (kind::STRUCT, 1) => {
                let child = read_cache_error(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_replace(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::STRUCT, 0)?; write_stored(from.block(0)?, out)?; }
    if from.has(1) { out.field(kind::STRUCT, 1)?; write_cache_error(from.block(1)?, out)?; }
    out.stop()
}

/// A block of `AppendArgs`.
#[derive(Clone, Copy, Debug)]
pub struct AppendArgs<'a>(pub View<'a>);

impl<'a> AppendArgs<'a> {
    /// The number of slots in a block of `AppendArgs`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `key`.
    pub const KEY: usize = 0;
    /// The number of the slot of field `value`.
    pub const VALUE: usize = 1;
    /// Returns the required field 1, or None if it is absent.
    pub fn key(self) -> Option<&'a [u8]> { self.0.get_string(0) }
    /// Returns the required field 2, or None if it is absent.
    pub fn value(self) -> Option<&'a [u8]> { self.0.get_string(1) }
}

fn recv_append(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRING, 1) => { to.put_bytes(block, 0, wire.string()?)?; head |= 0x1; }
            (kind::STRING, 2) => { to.put_bytes(block, 1, wire.string()?)?; head |= 0x2; }
            (other, _) => wire.skip(other)?,
        }
    }
    if head & 0x3 != 0x3 {
        return Err(Code::Malformed);
    }
    to.head(block, head);
    Ok(block)
}

fn call_append(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x3 != 0x3 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::STRING, 1)?; out.string(from.string(0)?)?; }
    if from.has(1) { out.field(kind::STRING, 2)?; out.string(from.string(1)?)?; }
    out.stop()
}

/// A block of `AppendResult`.
#[derive(Clone, Copy, Debug)]
pub struct AppendResult<'a>(pub View<'a>);

impl<'a> AppendResult<'a> {
    /// The number of slots in a block of `AppendResult`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 1;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<Stored<'a>> { self.0.get_block(0).map(Stored) }
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<CacheError<'a>> { self.0.get_block(1).map(CacheError) }
}

fn answer_append(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRUCT, 0) => {
                let child = read_stored(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (kind::STRUCT, 1) => {
                let child = read_cache_error(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_append(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::STRUCT, 0)?; write_stored(from.block(0)?, out)?; }
    if from.has(1) { out.field(kind::STRUCT, 1)?; write_cache_error(from.block(1)?, out)?; }
    out.stop()
}

/// A block of `PrependArgs`.
#[derive(Clone, Copy, Debug)]
pub struct PrependArgs<'a>(pub View<'a>);

impl<'a> PrependArgs<'a> {
    /// The number of slots in a block of `PrependArgs`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `key`.
    pub const KEY: usize = 0;
    /// The number of the slot of field `value`.
    pub const VALUE: usize = 1;
    /// Returns the required field 1, or None if it is absent.
    pub fn key(self) -> Option<&'a [u8]> { self.0.get_string(0) }
    /// Returns the required field 2, or None if it is absent.
    pub fn value(self) -> Option<&'a [u8]> { self.0.get_string(1) }
}

fn recv_prepend(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRING, 1) => { to.put_bytes(block, 0, wire.string()?)?; head |= 0x1; }
            (kind::STRING, 2) => { to.put_bytes(block, 1, wire.string()?)?; head |= 0x2; }
            (other, _) => wire.skip(other)?,
        }
    }
    if head & 0x3 != 0x3 {
        return Err(Code::Malformed);
    }
    to.head(block, head);
    Ok(block)
}

fn call_prepend(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x3 != 0x3 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::STRING, 1)?; out.string(from.string(0)?)?; }
    if from.has(1) { out.field(kind::STRING, 2)?; out.string(from.string(1)?)?; }
    out.stop()
}

/// A block of `PrependResult`.
#[derive(Clone, Copy, Debug)]
pub struct PrependResult<'a>(pub View<'a>);

impl<'a> PrependResult<'a> {
    /// The number of slots in a block of `PrependResult`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 1;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<Stored<'a>> { self.0.get_block(0).map(Stored) }
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<CacheError<'a>> { self.0.get_block(1).map(CacheError) }
}

fn answer_prepend(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRUCT, 0) => {
                let child = read_stored(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (kind::STRUCT, 1) => {
                let child = read_cache_error(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_prepend(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::STRUCT, 0)?; write_stored(from.block(0)?, out)?; }
    if from.has(1) { out.field(kind::STRUCT, 1)?; write_cache_error(from.block(1)?, out)?; }
    out.stop()
}

/// A block of `CasArgs`.
#[derive(Clone, Copy, Debug)]
pub struct CasArgs<'a>(pub View<'a>);

impl<'a> CasArgs<'a> {
    /// The number of slots in a block of `CasArgs`.
    pub const SLOTS: usize = 5;
    /// The number of the slot of field `key`.
    pub const KEY: usize = 0;
    /// The number of the slot of field `value`.
    pub const VALUE: usize = 1;
    /// The number of the slot of field `flags`.
    pub const FLAGS: usize = 2;
    /// The number of the slot of field `expiry_s`.
    pub const EXPIRY_S: usize = 3;
    /// The number of the slot of field `cas`.
    pub const CAS: usize = 4;
    /// Returns the required field 1, or None if it is absent.
    pub fn key(self) -> Option<&'a [u8]> { self.0.get_string(0) }
    /// Returns the required field 2, or None if it is absent.
    pub fn value(self) -> Option<&'a [u8]> { self.0.get_string(1) }
    /// Returns field 3, or None if it is absent.
    pub fn flags(self) -> Option<i32> { self.0.get(2).map(|word| word as i32) }
    /// Returns field 4, or None if it is absent.
    pub fn expiry_s(self) -> Option<i32> { self.0.get(3).map(|word| word as i32) }
    /// Returns the required field 5, or None if it is absent.
    pub fn cas(self) -> Option<i64> { self.0.get(4).map(|word| word as i64) }
}

fn recv_cas(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(5)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRING, 1) => { to.put_bytes(block, 0, wire.string()?)?; head |= 0x1; }
            (kind::STRING, 2) => { to.put_bytes(block, 1, wire.string()?)?; head |= 0x2; }
            (kind::I32, 3) => { to.put(block, 2, i64::from(wire.i32()?) as u64); head |= 0x4; }
            (kind::I32, 4) => { to.put(block, 3, i64::from(wire.i32()?) as u64); head |= 0x8; }
            (kind::I64, 5) => { to.put(block, 4, wire.i64()? as u64); head |= 0x10; }
            (other, _) => wire.skip(other)?,
        }
    }
    if head & 0x13 != 0x13 {
        return Err(Code::Malformed);
    }
    to.head(block, head);
    Ok(block)
}

fn call_cas(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x13 != 0x13 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::STRING, 1)?; out.string(from.string(0)?)?; }
    if from.has(1) { out.field(kind::STRING, 2)?; out.string(from.string(1)?)?; }
    if from.has(2) { out.field(kind::I32, 3)?; out.i32(from.word(2)? as i32)?; }
    if from.has(3) { out.field(kind::I32, 4)?; out.i32(from.word(3)? as i32)?; }
    if from.has(4) { out.field(kind::I64, 5)?; out.i64(from.word(4)? as i64)?; }
    out.stop()
}

/// A block of `CasResult`.
#[derive(Clone, Copy, Debug)]
pub struct CasResult<'a>(pub View<'a>);

impl<'a> CasResult<'a> {
    /// The number of slots in a block of `CasResult`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 1;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<Stored<'a>> { self.0.get_block(0).map(Stored) }
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<CacheError<'a>> { self.0.get_block(1).map(CacheError) }
}

fn answer_cas(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRUCT, 0) => {
                let child = read_stored(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (kind::STRUCT, 1) => {
                let child = read_cache_error(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_cas(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::STRUCT, 0)?; write_stored(from.block(0)?, out)?; }
    if from.has(1) { out.field(kind::STRUCT, 1)?; write_cache_error(from.block(1)?, out)?; }
    out.stop()
}

/// A block of `DeleteArgs`.
#[derive(Clone, Copy, Debug)]
pub struct DeleteArgs<'a>(pub View<'a>);

impl<'a> DeleteArgs<'a> {
    /// The number of slots in a block of `DeleteArgs`.
    pub const SLOTS: usize = 1;
    /// The number of the slot of field `key`.
    pub const KEY: usize = 0;
    /// Returns the required field 1, or None if it is absent.
    pub fn key(self) -> Option<&'a [u8]> { self.0.get_string(0) }
}

fn recv_delete(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
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

fn call_delete(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::STRING, 1)?; out.string(from.string(0)?)?; }
    out.stop()
}

/// A block of `DeleteResult`.
#[derive(Clone, Copy, Debug)]
pub struct DeleteResult<'a>(pub View<'a>);

impl<'a> DeleteResult<'a> {
    /// The number of slots in a block of `DeleteResult`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 1;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<bool> { self.0.get(0).map(|word| word != 0) }
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<CacheError<'a>> { self.0.get_block(1).map(CacheError) }
}

fn answer_delete(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::BOOL, 0) => { to.put(block, 0, wire.bool()?); head |= 0x1; }
            (kind::STRUCT, 1) => {
                let child = read_cache_error(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_delete(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::BOOL, 0)?; out.byte(u8::from(from.word(0)? != 0))?; }
    if from.has(1) { out.field(kind::STRUCT, 1)?; write_cache_error(from.block(1)?, out)?; }
    out.stop()
}

/// A block of `TouchArgs`.
#[derive(Clone, Copy, Debug)]
pub struct TouchArgs<'a>(pub View<'a>);

impl<'a> TouchArgs<'a> {
    /// The number of slots in a block of `TouchArgs`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `key`.
    pub const KEY: usize = 0;
    /// The number of the slot of field `expiry_s`.
    pub const EXPIRY_S: usize = 1;
    /// Returns the required field 1, or None if it is absent.
    pub fn key(self) -> Option<&'a [u8]> { self.0.get_string(0) }
    /// Returns field 4, or None if it is absent.
    pub fn expiry_s(self) -> Option<i32> { self.0.get(1).map(|word| word as i32) }
}

fn recv_touch(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRING, 1) => { to.put_bytes(block, 0, wire.string()?)?; head |= 0x1; }
            (kind::I32, 4) => { to.put(block, 1, i64::from(wire.i32()?) as u64); head |= 0x2; }
            (other, _) => wire.skip(other)?,
        }
    }
    if head & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    to.head(block, head);
    Ok(block)
}

fn call_touch(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x1 != 0x1 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::STRING, 1)?; out.string(from.string(0)?)?; }
    if from.has(1) { out.field(kind::I32, 4)?; out.i32(from.word(1)? as i32)?; }
    out.stop()
}

/// A block of `TouchResult`.
#[derive(Clone, Copy, Debug)]
pub struct TouchResult<'a>(pub View<'a>);

impl<'a> TouchResult<'a> {
    /// The number of slots in a block of `TouchResult`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 1;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<bool> { self.0.get(0).map(|word| word != 0) }
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<CacheError<'a>> { self.0.get_block(1).map(CacheError) }
}

fn answer_touch(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::BOOL, 0) => { to.put(block, 0, wire.bool()?); head |= 0x1; }
            (kind::STRUCT, 1) => {
                let child = read_cache_error(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_touch(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::BOOL, 0)?; out.byte(u8::from(from.word(0)? != 0))?; }
    if from.has(1) { out.field(kind::STRUCT, 1)?; write_cache_error(from.block(1)?, out)?; }
    out.stop()
}

/// A block of `IncrementArgs`.
#[derive(Clone, Copy, Debug)]
pub struct IncrementArgs<'a>(pub View<'a>);

impl<'a> IncrementArgs<'a> {
    /// The number of slots in a block of `IncrementArgs`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `key`.
    pub const KEY: usize = 0;
    /// The number of the slot of field `delta`.
    pub const DELTA: usize = 1;
    /// Returns the required field 1, or None if it is absent.
    pub fn key(self) -> Option<&'a [u8]> { self.0.get_string(0) }
    /// Returns the required field 6, or None if it is absent.
    pub fn delta(self) -> Option<i64> { self.0.get(1).map(|word| word as i64) }
}

fn recv_increment(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRING, 1) => { to.put_bytes(block, 0, wire.string()?)?; head |= 0x1; }
            (kind::I64, 6) => { to.put(block, 1, wire.i64()? as u64); head |= 0x2; }
            (other, _) => wire.skip(other)?,
        }
    }
    if head & 0x3 != 0x3 {
        return Err(Code::Malformed);
    }
    to.head(block, head);
    Ok(block)
}

fn call_increment(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x3 != 0x3 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::STRING, 1)?; out.string(from.string(0)?)?; }
    if from.has(1) { out.field(kind::I64, 6)?; out.i64(from.word(1)? as i64)?; }
    out.stop()
}

/// A block of `IncrementResult`.
#[derive(Clone, Copy, Debug)]
pub struct IncrementResult<'a>(pub View<'a>);

impl<'a> IncrementResult<'a> {
    /// The number of slots in a block of `IncrementResult`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 1;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<Number<'a>> { self.0.get_block(0).map(Number) }
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<CacheError<'a>> { self.0.get_block(1).map(CacheError) }
}

fn answer_increment(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRUCT, 0) => {
                let child = read_number(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (kind::STRUCT, 1) => {
                let child = read_cache_error(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_increment(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::STRUCT, 0)?; write_number(from.block(0)?, out)?; }
    if from.has(1) { out.field(kind::STRUCT, 1)?; write_cache_error(from.block(1)?, out)?; }
    out.stop()
}

/// A block of `DecrementArgs`.
#[derive(Clone, Copy, Debug)]
pub struct DecrementArgs<'a>(pub View<'a>);

impl<'a> DecrementArgs<'a> {
    /// The number of slots in a block of `DecrementArgs`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `key`.
    pub const KEY: usize = 0;
    /// The number of the slot of field `delta`.
    pub const DELTA: usize = 1;
    /// Returns the required field 1, or None if it is absent.
    pub fn key(self) -> Option<&'a [u8]> { self.0.get_string(0) }
    /// Returns the required field 6, or None if it is absent.
    pub fn delta(self) -> Option<i64> { self.0.get(1).map(|word| word as i64) }
}

fn recv_decrement(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRING, 1) => { to.put_bytes(block, 0, wire.string()?)?; head |= 0x1; }
            (kind::I64, 6) => { to.put(block, 1, wire.i64()? as u64); head |= 0x2; }
            (other, _) => wire.skip(other)?,
        }
    }
    if head & 0x3 != 0x3 {
        return Err(Code::Malformed);
    }
    to.head(block, head);
    Ok(block)
}

fn call_decrement(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x3 != 0x3 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::STRING, 1)?; out.string(from.string(0)?)?; }
    if from.has(1) { out.field(kind::I64, 6)?; out.i64(from.word(1)? as i64)?; }
    out.stop()
}

/// A block of `DecrementResult`.
#[derive(Clone, Copy, Debug)]
pub struct DecrementResult<'a>(pub View<'a>);

impl<'a> DecrementResult<'a> {
    /// The number of slots in a block of `DecrementResult`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 1;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<Number<'a>> { self.0.get_block(0).map(Number) }
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<CacheError<'a>> { self.0.get_block(1).map(CacheError) }
}

fn answer_decrement(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRUCT, 0) => {
                let child = read_number(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (kind::STRUCT, 1) => {
                let child = read_cache_error(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_decrement(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::STRUCT, 0)?; write_number(from.block(0)?, out)?; }
    if from.has(1) { out.field(kind::STRUCT, 1)?; write_cache_error(from.block(1)?, out)?; }
    out.stop()
}

/// A block of `FlushAllArgs`.
#[derive(Clone, Copy, Debug)]
pub struct FlushAllArgs<'a>(pub View<'a>);

impl<'a> FlushAllArgs<'a> {
    /// The number of slots in a block of `FlushAllArgs`.
    pub const SLOTS: usize = 1;
    /// The number of the slot of field `delay_s`.
    pub const DELAY_S: usize = 0;
    /// Returns field 7, or None if it is absent.
    pub fn delay_s(self) -> Option<i32> { self.0.get(0).map(|word| word as i32) }
}

fn recv_flush_all(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(1)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::I32, 7) => { to.put(block, 0, i64::from(wire.i32()?) as u64); head |= 0x1; }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn call_flush_all(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.has(0) { out.field(kind::I32, 7)?; out.i32(from.word(0)? as i32)?; }
    out.stop()
}

/// A block of `FlushAllResult`.
#[derive(Clone, Copy, Debug)]
pub struct FlushAllResult<'a>(pub View<'a>);

impl<'a> FlushAllResult<'a> {
    /// The number of slots in a block of `FlushAllResult`.
    pub const SLOTS: usize = 1;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 0;
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<CacheError<'a>> { self.0.get_block(0).map(CacheError) }
}

fn answer_flush_all(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
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

fn resp_flush_all(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(false)?;
    if from.has(0) { out.field(kind::STRUCT, 1)?; write_cache_error(from.block(0)?, out)?; }
    out.stop()
}

/// A block of `VersionArgs`.
#[derive(Clone, Copy, Debug)]
pub struct VersionArgs<'a>(pub View<'a>);

impl<'a> VersionArgs<'a> {
    /// The number of slots in a block of `VersionArgs`.
    pub const SLOTS: usize = 0;
}

fn recv_version(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(0)?;
    let head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn call_version(_: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    out.stop()
}

/// A block of `VersionResult`.
#[derive(Clone, Copy, Debug)]
pub struct VersionResult<'a>(pub View<'a>);

impl<'a> VersionResult<'a> {
    /// The number of slots in a block of `VersionResult`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 1;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<&'a [u8]> { self.0.get_string(0) }
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<CacheError<'a>> { self.0.get_block(1).map(CacheError) }
}

fn answer_version(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRING, 0) => { to.put_bytes(block, 0, wire.string()?)?; head |= 0x1; }
            (kind::STRUCT, 1) => {
                let child = read_cache_error(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_version(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::STRING, 0)?; out.string(from.string(0)?)?; }
    if from.has(1) { out.field(kind::STRUCT, 1)?; write_cache_error(from.block(1)?, out)?; }
    out.stop()
}

/// A block of `StatsArgs`.
#[derive(Clone, Copy, Debug)]
pub struct StatsArgs<'a>(pub View<'a>);

impl<'a> StatsArgs<'a> {
    /// The number of slots in a block of `StatsArgs`.
    pub const SLOTS: usize = 1;
    /// The number of the slot of field `page`.
    pub const PAGE: usize = 0;
    /// Returns field 8, or None if it is absent.
    pub fn page(self) -> Option<&'a [u8]> { self.0.get_string(0) }
}

fn recv_stats(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(1)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRING, 8) => { to.put_bytes(block, 0, wire.string()?)?; head |= 0x1; }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn call_stats(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.has(0) { out.field(kind::STRING, 8)?; out.string(from.string(0)?)?; }
    out.stop()
}

/// A block of `StatsResult`.
#[derive(Clone, Copy, Debug)]
pub struct StatsResult<'a>(pub View<'a>);

impl<'a> StatsResult<'a> {
    /// The number of slots in a block of `StatsResult`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 1;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<View<'a>> { self.0.get_block(0) }
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<CacheError<'a>> { self.0.get_block(1).map(CacheError) }
}

fn answer_stats(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::MAP, 0) => {
                let child = read_map_string_string(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (kind::STRUCT, 1) => {
                let child = read_cache_error(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_stats(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::MAP, 0)?; write_map_string_string(from.block(0)?, out)?; }
    if from.has(1) { out.field(kind::STRUCT, 1)?; write_cache_error(from.block(1)?, out)?; }
    out.stop()
}

fn read_list_string(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let count = wire.list(kind::STRING)?;
    let block = to.block(count)?;
    for slot in 0..count {
        to.put_bytes(block, slot, wire.string()?)?;
    }
    to.head(block, (count) as u64);
    Ok(block)
}

fn write_list_string(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    let count = from.count();
    out.list(kind::STRING, count)?;
    for slot in 0..count {
        out.string(from.string(slot)?)?;
    }
    Ok(())
}

fn read_map_string_item(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let count = wire.map(kind::STRING, kind::STRUCT)?;
    let block = to.block(2 * count)?;
    for entry in 0..count {
        to.put_bytes(block, 2 * entry, wire.string()?)?;
        let child = read_item(wire, to)?;
        to.link(block, 2 * entry + 1, child);
    }
    to.head(block, (2 * count) as u64);
    Ok(block)
}

fn write_map_string_item(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    let count = from.count() / 2;
    out.map(kind::STRING, kind::STRUCT, count)?;
    for entry in 0..count {
        out.string(from.string(2 * entry)?)?;
        write_item(from.block(2 * entry + 1)?, out)?;
    }
    Ok(())
}

fn read_map_string_string(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let count = wire.map(kind::STRING, kind::STRING)?;
    let block = to.block(2 * count)?;
    for entry in 0..count {
        to.put_bytes(block, 2 * entry, wire.string()?)?;
        to.put_bytes(block, 2 * entry + 1, wire.string()?)?;
    }
    to.head(block, (2 * count) as u64);
    Ok(block)
}

fn write_map_string_string(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    let count = from.count() / 2;
    out.map(kind::STRING, kind::STRING, count)?;
    for entry in 0..count {
        out.string(from.string(2 * entry)?)?;
        out.string(from.string(2 * entry + 1)?)?;
    }
    Ok(())
}
