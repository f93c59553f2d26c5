//! Service `PostStorageService`, generated from rpc/idl/post_storage.thrift by
//! `cargo run -p rpc --example generate`. Change the IDL, not this file.

use crate::command::Code;
use crate::flat::{Build, View};
use crate::functions::{Function, Functions};
use crate::wire::{Wire, Writer, kind};

/// The functions of `PostStorageService`.
#[derive(Clone, Copy, Debug, Default)]
pub struct PostStorageService;

impl PostStorageService {
    /// `StorePost`.
    pub const STORE_POST: u32 = 0;
    /// `ReadPost`.
    pub const READ_POST: u32 = 1;
    /// `ReadPosts`.
    pub const READ_POSTS: u32 = 2;
}

impl Functions for PostStorageService {
    fn service(&self) -> &str {
        "PostStorageService"
    }

    fn find(&self, name: &[u8]) -> Option<u32> {
        match name {
            b"StorePost" => Some(0),
            b"ReadPost" => Some(1),
            b"ReadPosts" => Some(2),
            _ => None,
        }
    }

    fn function(&self, function: u32) -> Option<Function<'_>> {
        match function {
            0 => Some(Function { name: "StorePost", oneway: false }),
            1 => Some(Function { name: "ReadPost", oneway: false }),
            2 => Some(Function { name: "ReadPosts", oneway: false }),
            _ => None,
        }
    }

    fn recv(&self, number: u32, wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
        match number {
            0 => recv_store_post(wire, to),
            1 => recv_read_post(wire, to),
            2 => recv_read_posts(wire, to),
            _ => Err(Code::UnknownFunction),
        }
    }

    fn resp(&self, number: u32, from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
        match number {
            0 => resp_store_post(from, out),
            1 => resp_read_post(from, out),
            2 => resp_read_posts(from, out),
            _ => Err(Code::UnknownFunction),
        }
    }

    fn call(&self, number: u32, from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
        match number {
            0 => call_store_post(from, out),
            1 => call_read_post(from, out),
            2 => call_read_posts(from, out),
            _ => Err(Code::UnknownFunction),
        }
    }

    fn answer(&self, number: u32, wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
        match number {
            0 => answer_store_post(wire, to),
            1 => answer_read_post(wire, to),
            2 => answer_read_posts(wire, to),
            _ => Err(Code::UnknownFunction),
        }
    }
}

/// A block of `ServiceException`.
#[derive(Clone, Copy, Debug)]
pub struct ServiceException<'a>(pub View<'a>);

impl<'a> ServiceException<'a> {
    /// The number of slots in a block of `ServiceException`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `code`.
    pub const CODE: usize = 0;
    /// The number of the slot of field `message`.
    pub const MESSAGE: usize = 1;
    /// Returns field 1, or None if it is absent.
    pub fn code(self) -> Option<i32> { self.0.get(0).map(|word| word as i32) }
    /// Returns field 2, or None if it is absent.
    pub fn message(self) -> Option<&'a [u8]> { self.0.get_string(1) }
}

fn read_service_exception(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::I32, 1) => { to.put(block, 0, i64::from(wire.i32()?) as u64); head |= 0x1; }
            (kind::STRING, 2) => { to.put_bytes(block, 1, wire.string()?)?; head |= 0x2; }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn write_service_exception(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.has(0) { out.field(kind::I32, 1)?; out.i32(from.word(0)? as i32)?; }
    if from.has(1) { out.field(kind::STRING, 2)?; out.string(from.string(1)?)?; }
    out.stop()
}

/// A block of `Creator`.
#[derive(Clone, Copy, Debug)]
pub struct Creator<'a>(pub View<'a>);

impl<'a> Creator<'a> {
    /// The number of slots in a block of `Creator`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `user_id`.
    pub const USER_ID: usize = 0;
    /// The number of the slot of field `username`.
    pub const USERNAME: usize = 1;
    /// Returns field 1, or None if it is absent.
    pub fn user_id(self) -> Option<i64> { self.0.get(0).map(|word| word as i64) }
    /// Returns field 2, or None if it is absent.
    pub fn username(self) -> Option<&'a [u8]> { self.0.get_string(1) }
}

fn read_creator(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::I64, 1) => { to.put(block, 0, wire.i64()? as u64); head |= 0x1; }
            (kind::STRING, 2) => { to.put_bytes(block, 1, wire.string()?)?; head |= 0x2; }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn write_creator(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.has(0) { out.field(kind::I64, 1)?; out.i64(from.word(0)? as i64)?; }
    if from.has(1) { out.field(kind::STRING, 2)?; out.string(from.string(1)?)?; }
    out.stop()
}

/// A block of `Media`.
#[derive(Clone, Copy, Debug)]
pub struct Media<'a>(pub View<'a>);

impl<'a> Media<'a> {
    /// The number of slots in a block of `Media`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `media_id`.
    pub const MEDIA_ID: usize = 0;
    /// The number of the slot of field `kind`.
    pub const KIND: usize = 1;
    /// Returns field 1, or None if it is absent.
    pub fn media_id(self) -> Option<i64> { self.0.get(0).map(|word| word as i64) }
    /// Returns field 2, or None if it is absent.
    pub fn kind(self) -> Option<i32> { self.0.get(1).map(|word| word as i32) }
}

fn read_media(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::I64, 1) => { to.put(block, 0, wire.i64()? as u64); head |= 0x1; }
            (kind::I32, 2) => { to.put(block, 1, i64::from(wire.i32()?) as u64); head |= 0x2; }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn write_media(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.has(0) { out.field(kind::I64, 1)?; out.i64(from.word(0)? as i64)?; }
    if from.has(1) { out.field(kind::I32, 2)?; out.i32(from.word(1)? as i32)?; }
    out.stop()
}

/// A block of `Url`.
#[derive(Clone, Copy, Debug)]
pub struct Url<'a>(pub View<'a>);

impl<'a> Url<'a> {
    /// The number of slots in a block of `Url`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `shortened`.
    pub const SHORTENED: usize = 0;
    /// The number of the slot of field `expanded`.
    pub const EXPANDED: usize = 1;
    /// Returns field 1, or None if it is absent.
    pub fn shortened(self) -> Option<&'a [u8]> { self.0.get_string(0) }
    /// Returns field 2, or None if it is absent.
    pub fn expanded(self) -> Option<&'a [u8]> { self.0.get_string(1) }
}

fn read_url(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
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
    to.head(block, head);
    Ok(block)
}

fn write_url(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.has(0) { out.field(kind::STRING, 1)?; out.string(from.string(0)?)?; }
    if from.has(1) { out.field(kind::STRING, 2)?; out.string(from.string(1)?)?; }
    out.stop()
}

/// A block of `UserMention`.
#[derive(Clone, Copy, Debug)]
pub struct UserMention<'a>(pub View<'a>);

impl<'a> UserMention<'a> {
    /// The number of slots in a block of `UserMention`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `user_id`.
    pub const USER_ID: usize = 0;
    /// The number of the slot of field `username`.
    pub const USERNAME: usize = 1;
    /// Returns field 1, or None if it is absent.
    pub fn user_id(self) -> Option<i64> { self.0.get(0).map(|word| word as i64) }
    /// Returns field 2, or None if it is absent.
    pub fn username(self) -> Option<&'a [u8]> { self.0.get_string(1) }
}

fn read_user_mention(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::I64, 1) => { to.put(block, 0, wire.i64()? as u64); head |= 0x1; }
            (kind::STRING, 2) => { to.put_bytes(block, 1, wire.string()?)?; head |= 0x2; }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn write_user_mention(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.has(0) { out.field(kind::I64, 1)?; out.i64(from.word(0)? as i64)?; }
    if from.has(1) { out.field(kind::STRING, 2)?; out.string(from.string(1)?)?; }
    out.stop()
}

/// A block of `Post`.
#[derive(Clone, Copy, Debug)]
pub struct Post<'a>(pub View<'a>);

impl<'a> Post<'a> {
    /// The number of slots in a block of `Post`.
    pub const SLOTS: usize = 9;
    /// The number of the slot of field `post_id`.
    pub const POST_ID: usize = 0;
    /// The number of the slot of field `creator`.
    pub const CREATOR: usize = 1;
    /// The number of the slot of field `req_id`.
    pub const REQ_ID: usize = 2;
    /// The number of the slot of field `text`.
    pub const TEXT: usize = 3;
    /// The number of the slot of field `user_mentions`.
    pub const USER_MENTIONS: usize = 4;
    /// The number of the slot of field `media`.
    pub const MEDIA: usize = 5;
    /// The number of the slot of field `urls`.
    pub const URLS: usize = 6;
    /// The number of the slot of field `timestamp`.
    pub const TIMESTAMP: usize = 7;
    /// The number of the slot of field `post_type`.
    pub const POST_TYPE: usize = 8;
    /// Returns field 1, or None if it is absent.
    pub fn post_id(self) -> Option<i64> { self.0.get(0).map(|word| word as i64) }
    /// Returns field 2, or None if it is absent.
    pub fn creator(self) -> Option<Creator<'a>> { self.0.get_block(1).map(Creator) }
    /// Returns field 3, or None if it is absent.
    pub fn req_id(self) -> Option<i64> { self.0.get(2).map(|word| word as i64) }
    /// Returns field 4, or None if it is absent.
    pub fn text(self) -> Option<&'a [u8]> { self.0.get_string(3) }
    /// Returns field 5, or None if it is absent.
    pub fn user_mentions(self) -> Option<View<'a>> { self.0.get_block(4) }
    /// Returns field 6, or None if it is absent.
    pub fn media(self) -> Option<View<'a>> { self.0.get_block(5) }
    /// Returns field 7, or None if it is absent.
    pub fn urls(self) -> Option<View<'a>> { self.0.get_block(6) }
    /// Returns field 8, or None if it is absent.
    pub fn timestamp(self) -> Option<i64> { self.0.get(7).map(|word| word as i64) }
    /// Returns field 9, or None if it is absent.
    pub fn post_type(self) -> Option<i32> { self.0.get(8).map(|word| word as i32) }
}

fn read_post(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(9)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::I64, 1) => { to.put(block, 0, wire.i64()? as u64); head |= 0x1; }
            (kind::STRUCT, 2) => {
                let child = read_creator(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (kind::I64, 3) => { to.put(block, 2, wire.i64()? as u64); head |= 0x4; }
            (kind::STRING, 4) => { to.put_bytes(block, 3, wire.string()?)?; head |= 0x8; }
            (kind::LIST, 5) => {
                let child = read_list_user_mention(wire, to)?;
                to.link(block, 4, child);
                head |= 0x10;
            }
            (kind::LIST, 6) => {
                let child = read_list_media(wire, to)?;
                to.link(block, 5, child);
                head |= 0x20;
            }
            (kind::LIST, 7) => {
                let child = read_list_url(wire, to)?;
                to.link(block, 6, child);
                head |= 0x40;
            }
            (kind::I64, 8) => { to.put(block, 7, wire.i64()? as u64); head |= 0x80; }
            (kind::I32, 9) => { to.put(block, 8, i64::from(wire.i32()?) as u64); head |= 0x100; }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn write_post(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.has(0) { out.field(kind::I64, 1)?; out.i64(from.word(0)? as i64)?; }
    if from.has(1) { out.field(kind::STRUCT, 2)?; write_creator(from.block(1)?, out)?; }
    if from.has(2) { out.field(kind::I64, 3)?; out.i64(from.word(2)? as i64)?; }
    if from.has(3) { out.field(kind::STRING, 4)?; out.string(from.string(3)?)?; }
    if from.has(4) { out.field(kind::LIST, 5)?; write_list_user_mention(from.block(4)?, out)?; }
    if from.has(5) { out.field(kind::LIST, 6)?; write_list_media(from.block(5)?, out)?; }
    if from.has(6) { out.field(kind::LIST, 7)?; write_list_url(from.block(6)?, out)?; }
    if from.has(7) { out.field(kind::I64, 8)?; out.i64(from.word(7)? as i64)?; }
    if from.has(8) { out.field(kind::I32, 9)?; out.i32(from.word(8)? as i32)?; }
    out.stop()
}

/// A block of `StorePostArgs`.
#[derive(Clone, Copy, Debug)]
pub struct StorePostArgs<'a>(pub View<'a>);

impl<'a> StorePostArgs<'a> {
    /// The number of slots in a block of `StorePostArgs`.
    pub const SLOTS: usize = 3;
    /// The number of the slot of field `req_id`.
    pub const REQ_ID: usize = 0;
    /// The number of the slot of field `post`.
    pub const POST: usize = 1;
    /// The number of the slot of field `carrier`.
    pub const CARRIER: usize = 2;
    /// Returns field 1, or None if it is absent.
    pub fn req_id(self) -> Option<i64> { self.0.get(0).map(|word| word as i64) }
    /// Returns the required field 2, or None if it is absent.
    pub fn post(self) -> Option<Post<'a>> { self.0.get_block(1).map(Post) }
    /// Returns field 3, or None if it is absent.
    pub fn carrier(self) -> Option<View<'a>> { self.0.get_block(2) }
}

fn recv_store_post(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(3)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::I64, 1) => { to.put(block, 0, wire.i64()? as u64); head |= 0x1; }
            (kind::STRUCT, 2) => {
                let child = read_post(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (kind::MAP, 3) => {
                let child = read_map_string_string(wire, to)?;
                to.link(block, 2, child);
                head |= 0x4;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    if head & 0x2 != 0x2 {
        return Err(Code::Malformed);
    }
    to.head(block, head);
    Ok(block)
}

fn call_store_post(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.head() & 0x2 != 0x2 {
        return Err(Code::Malformed);
    }
    if from.has(0) { out.field(kind::I64, 1)?; out.i64(from.word(0)? as i64)?; }
    if from.has(1) { out.field(kind::STRUCT, 2)?; write_post(from.block(1)?, out)?; }
    if from.has(2) { out.field(kind::MAP, 3)?; write_map_string_string(from.block(2)?, out)?; }
    out.stop()
}

/// A block of `StorePostResult`.
#[derive(Clone, Copy, Debug)]
pub struct StorePostResult<'a>(pub View<'a>);

impl<'a> StorePostResult<'a> {
    /// The number of slots in a block of `StorePostResult`.
    pub const SLOTS: usize = 1;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 0;
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<ServiceException<'a>> { self.0.get_block(0).map(ServiceException) }
}

fn answer_store_post(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(1)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRUCT, 1) => {
                let child = read_service_exception(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_store_post(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(false)?;
    if from.has(0) { out.field(kind::STRUCT, 1)?; write_service_exception(from.block(0)?, out)?; }
    out.stop()
}

/// A block of `ReadPostArgs`.
#[derive(Clone, Copy, Debug)]
pub struct ReadPostArgs<'a>(pub View<'a>);

impl<'a> ReadPostArgs<'a> {
    /// The number of slots in a block of `ReadPostArgs`.
    pub const SLOTS: usize = 3;
    /// The number of the slot of field `req_id`.
    pub const REQ_ID: usize = 0;
    /// The number of the slot of field `post_id`.
    pub const POST_ID: usize = 1;
    /// The number of the slot of field `carrier`.
    pub const CARRIER: usize = 2;
    /// Returns field 1, or None if it is absent.
    pub fn req_id(self) -> Option<i64> { self.0.get(0).map(|word| word as i64) }
    /// Returns field 2, or None if it is absent.
    pub fn post_id(self) -> Option<i64> { self.0.get(1).map(|word| word as i64) }
    /// Returns field 3, or None if it is absent.
    pub fn carrier(self) -> Option<View<'a>> { self.0.get_block(2) }
}

fn recv_read_post(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(3)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::I64, 1) => { to.put(block, 0, wire.i64()? as u64); head |= 0x1; }
            (kind::I64, 2) => { to.put(block, 1, wire.i64()? as u64); head |= 0x2; }
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

fn call_read_post(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.has(0) { out.field(kind::I64, 1)?; out.i64(from.word(0)? as i64)?; }
    if from.has(1) { out.field(kind::I64, 2)?; out.i64(from.word(1)? as i64)?; }
    if from.has(2) { out.field(kind::MAP, 3)?; write_map_string_string(from.block(2)?, out)?; }
    out.stop()
}

/// A block of `ReadPostResult`.
#[derive(Clone, Copy, Debug)]
pub struct ReadPostResult<'a>(pub View<'a>);

impl<'a> ReadPostResult<'a> {
    /// The number of slots in a block of `ReadPostResult`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 1;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<Post<'a>> { self.0.get_block(0).map(Post) }
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<ServiceException<'a>> { self.0.get_block(1).map(ServiceException) }
}

fn answer_read_post(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRUCT, 0) => {
                let child = read_post(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (kind::STRUCT, 1) => {
                let child = read_service_exception(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_read_post(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::STRUCT, 0)?; write_post(from.block(0)?, out)?; }
    if from.has(1) { out.field(kind::STRUCT, 1)?; write_service_exception(from.block(1)?, out)?; }
    out.stop()
}

/// A block of `ReadPostsArgs`.
#[derive(Clone, Copy, Debug)]
pub struct ReadPostsArgs<'a>(pub View<'a>);

impl<'a> ReadPostsArgs<'a> {
    /// The number of slots in a block of `ReadPostsArgs`.
    pub const SLOTS: usize = 3;
    /// The number of the slot of field `req_id`.
    pub const REQ_ID: usize = 0;
    /// The number of the slot of field `post_ids`.
    pub const POST_IDS: usize = 1;
    /// The number of the slot of field `carrier`.
    pub const CARRIER: usize = 2;
    /// Returns field 1, or None if it is absent.
    pub fn req_id(self) -> Option<i64> { self.0.get(0).map(|word| word as i64) }
    /// Returns field 2, or None if it is absent.
    pub fn post_ids(self) -> Option<View<'a>> { self.0.get_block(1) }
    /// Returns field 3, or None if it is absent.
    pub fn carrier(self) -> Option<View<'a>> { self.0.get_block(2) }
}

fn recv_read_posts(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(3)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::I64, 1) => { to.put(block, 0, wire.i64()? as u64); head |= 0x1; }
            (kind::LIST, 2) => {
                let child = read_list_i64(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
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

fn call_read_posts(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    if from.has(0) { out.field(kind::I64, 1)?; out.i64(from.word(0)? as i64)?; }
    if from.has(1) { out.field(kind::LIST, 2)?; write_list_i64(from.block(1)?, out)?; }
    if from.has(2) { out.field(kind::MAP, 3)?; write_map_string_string(from.block(2)?, out)?; }
    out.stop()
}

/// A block of `ReadPostsResult`.
#[derive(Clone, Copy, Debug)]
pub struct ReadPostsResult<'a>(pub View<'a>);

impl<'a> ReadPostsResult<'a> {
    /// The number of slots in a block of `ReadPostsResult`.
    pub const SLOTS: usize = 2;
    /// The number of the slot of field `success`.
    pub const SUCCESS: usize = 0;
    /// The number of the slot of field `error`.
    pub const ERROR: usize = 1;
    /// Returns field 0, or None if it is absent.
    pub fn success(self) -> Option<View<'a>> { self.0.get_block(0) }
    /// Returns field 1, or None if it is absent.
    pub fn error(self) -> Option<ServiceException<'a>> { self.0.get_block(1).map(ServiceException) }
}

fn answer_read_posts(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let block = to.block(2)?;
    let mut head = 0;
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::LIST, 0) => {
                let child = read_list_post(wire, to)?;
                to.link(block, 0, child);
                head |= 0x1;
            }
            (kind::STRUCT, 1) => {
                let child = read_service_exception(wire, to)?;
                to.link(block, 1, child);
                head |= 0x2;
            }
            (other, _) => wire.skip(other)?,
        }
    }
    to.head(block, head);
    Ok(block)
}

fn resp_read_posts(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    from.check_result(true)?;
    if from.has(0) { out.field(kind::LIST, 0)?; write_list_post(from.block(0)?, out)?; }
    if from.has(1) { out.field(kind::STRUCT, 1)?; write_service_exception(from.block(1)?, out)?; }
    out.stop()
}

fn read_list_i64(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let count = wire.list(kind::I64)?;
    let block = to.block(count)?;
    for slot in 0..count {
        to.put(block, slot, wire.i64()? as u64);
    }
    to.head(block, (count) as u64);
    Ok(block)
}

fn write_list_i64(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    let count = from.count();
    out.list(kind::I64, count)?;
    for slot in 0..count {
        out.i64(from.word(slot)? as i64)?;
    }
    Ok(())
}

fn read_list_media(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let count = wire.list(kind::STRUCT)?;
    let block = to.block(count)?;
    for slot in 0..count {
        let child = read_media(wire, to)?;
        to.link(block, slot, child);
    }
    to.head(block, (count) as u64);
    Ok(block)
}

fn write_list_media(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    let count = from.count();
    out.list(kind::STRUCT, count)?;
    for slot in 0..count {
        write_media(from.block(slot)?, out)?;
    }
    Ok(())
}

fn read_list_post(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let count = wire.list(kind::STRUCT)?;
    let block = to.block(count)?;
    for slot in 0..count {
        let child = read_post(wire, to)?;
        to.link(block, slot, child);
    }
    to.head(block, (count) as u64);
    Ok(block)
}

fn write_list_post(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    let count = from.count();
    out.list(kind::STRUCT, count)?;
    for slot in 0..count {
        write_post(from.block(slot)?, out)?;
    }
    Ok(())
}

fn read_list_url(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let count = wire.list(kind::STRUCT)?;
    let block = to.block(count)?;
    for slot in 0..count {
        let child = read_url(wire, to)?;
        to.link(block, slot, child);
    }
    to.head(block, (count) as u64);
    Ok(block)
}

fn write_list_url(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    let count = from.count();
    out.list(kind::STRUCT, count)?;
    for slot in 0..count {
        write_url(from.block(slot)?, out)?;
    }
    Ok(())
}

fn read_list_user_mention(wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
    let count = wire.list(kind::STRUCT)?;
    let block = to.block(count)?;
    for slot in 0..count {
        let child = read_user_mention(wire, to)?;
        to.link(block, slot, child);
    }
    to.head(block, (count) as u64);
    Ok(block)
}

fn write_list_user_mention(from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
    let count = from.count();
    out.list(kind::STRUCT, count)?;
    for slot in 0..count {
        write_user_mention(from.block(slot)?, out)?;
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
