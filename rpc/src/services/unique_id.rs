//! Service `UniqueIdService`, generated from rpc/idl/unique_id.thrift by
//! `cargo run -p rpc --example generate`. Change the IDL, not this file.

use crate::command::Code;
use crate::flat::{Build, View};
use crate::functions::{Function, Functions};
use crate::wire::{Wire, Writer, kind};

/// The functions of `UniqueIdService`.
#[derive(Clone, Copy, Debug, Default)]
pub struct UniqueIdService;

impl UniqueIdService {
    /// `ComposeUniqueId`.
    pub const COMPOSE_UNIQUE_ID: u32 = 0;
}

impl Functions for UniqueIdService {
    fn service(&self) -> &str {
        "UniqueIdService"
    }

    fn find(&self, name: &[u8]) -> Option<u32> {
        match name {
            b"ComposeUniqueId" => Some(0),
            _ => None,
        }
    }

    fn function(&self, function: u32) -> Option<Function<'_>> {
        match function {
            0 => Some(Function { name: "ComposeUniqueId", oneway: false }),
            _ => None,
        }
    }

    fn recv(&self, number: u32, wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
        match number {
            0 => recv_compose_unique_id(wire, to),
            _ => Err(Code::UnknownFunction),
        }
    }

    fn resp(&self, number: u32, from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
        match number {
            0 => resp_compose_unique_id(from, out),
            _ => Err(Code::UnknownFunction),
        }
    }

    fn call(&self, number: u32, from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
        match number {
            0 => call_compose_unique_id(from, out),
            _ => Err(Code::UnknownFunction),
        }
    }

    fn answer(&self, number: u32, wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
        match number {
            0 => answer_compose_unique_id(wire, to),
            _ => Err(Code::UnknownFunction),
        }
    }
}

/// A block of `ComposeUniqueIdArgs`.
#[derive(Clone, Copy, Debug)]
pub struct ComposeUniqueIdArgs<'a>(pub View<'a>);

impl<'a> ComposeUniqueIdArgs<'a> {
    /// The number of slots in a block of `ComposeUniqueIdArgs`.
    pub const SLOTS: usize = 3;
    /// The number of the slot of field `req_id`.
    pub const REQ_ID: usize = 0;
    /// The number of the slot of field `post_type`.
    pub const POST_TYPE: usize = 1;
    /// The number of the slot of field `carrier`.
    pub const CARRIER: usize = 2;
    /// Returns field 1, or None if it is absent.
    pub fn req_id(self) -> Option<i64> { self.0.get(0).map(|word| word as i64) }
    /// Returns field 2, or None if it is absent.
    pub fn post_type(self) -> Option<i32> { self.0.get(1).map(|word| word as i32) }
    /// Returns field 3, or None if it is absent.
    pub fn carrier(self) -> Option<View<'a>> { self.0.get_block(2) }
}

fn recv_compose_unique_id(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(3)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::I64, 1) => { to.put(block, 0, wire.i64()? as u64); head |= 0x1; }
            (kind::I32, 2) => { to.put(block, 1, i64::from(wire.i32()?) as u64); head |= 0x2; }
            (kind::MAP, 3) => {
                let child = read_map_string_string(wire, to)?;
                to.link(block, 2, child);
                head |= 0x4;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn call_compose_unique_id(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.has(0) { out.field(kind::I64, 1)?; out.i64(from.word(0)? as i64)?; }
    if from.has(1) { out.field(kind::I32, 2)?; out.i32(from.word(1)? as i32)?; }
    if from.has(2) { out.field(kind::MAP, 3)?; write_map_string_string(from.block(2)?, out)?; }
    out.stop()
}

/// A block of `ComposeUniqueIdResult`.
#[derive(Clone, Copy, Debug)]
pub struct ComposeUniqueIdResult<'a>(pub View<'a>);

impl<'a> ComposeUniqueIdResult<'a> {
    /// The number of slots in a block of `ComposeUniqueIdResult`.
    pub const SLOTS: usize = 1;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<i64> { self.0.get(0).map(|word| word as i64) }
}

fn answer_compose_unique_id(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(1)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::I64, 0) => { to.put(block, 0, wire.i64()? as u64); head |= 0x1; }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_compose_unique_id(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::I64, 0)?; out.i64(from.word(0)? as i64)?; }
    out.stop()
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
