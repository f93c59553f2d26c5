//! The messages of the workloads: one packet and one result per function. The same generated code that the
//! engine runs makes them, so the engine loads and stores real bytes. Their contents never vary.

use std::sync::Arc;

use rpc::flat::{Build, View};
use rpc::services::memcached::{Found, GetArgs, GetResult, Memcached, SetArgs, SetResult};
use rpc::services::post_storage::{
    Creator, Media, Post, PostStorageService, ReadPostArgs, ReadPostResult, ReadPostsArgs,
    ReadPostsResult, StorePostArgs, StorePostResult, Url, UserMention,
};
use rpc::services::unique_id::{ComposeUniqueIdArgs, ComposeUniqueIdResult, UniqueIdService};
use rpc::wire::{Message, MessageKind, Wire, Writer};
use rpc::{Code, Functions, RECORD_HEAD_BYTES, call};

/// A function that requests call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Set,
    Get,
    StorePost,
    ReadPost,
    ReadPosts,
    ComposeUniqueId,
}

pub(super) const FUNCTIONS: [Function; 6] = [
    Function::Set,
    Function::Get,
    Function::StorePost,
    Function::ReadPost,
    Function::ReadPosts,
    Function::ComposeUniqueId,
];

/// The services of the workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Memcached,
    PostStorage,
    UniqueId,
}

/// The sizes that determine the contents of the messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shapes {
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
    pub(super) text_bytes: usize,
    /// The number of mentions. It is also the number of media and of URLs.
    pub(super) mentions: usize,
    pub(super) posts: usize,
    pub(super) carrier_entries: usize,
    pub(super) carrier_bytes: usize,
}

/// The messages of a function.
#[derive(Clone, Debug)]
pub(super) struct Messages {
    /// The whole frame of a request.
    pub(super) packet: Vec<u8>,
    /// The block of the result, beginning with its root.
    pub(super) result: Vec<u8>,
    /// The number of bytes that the application reads, including the head.
    pub(super) record_bytes: usize,
    /// The number of bytes that the application writes.
    pub(super) response_bytes: usize,
    /// The frame of the response.
    pub(super) frame: Vec<u8>,
}

impl Function {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Get => "get",
            Self::StorePost => "store_post",
            Self::ReadPost => "read_post",
            Self::ReadPosts => "read_posts",
            Self::ComposeUniqueId => "compose_unique_id",
        }
    }

    pub(super) const fn service(self) -> Service {
        match self {
            Self::Set | Self::Get => Service::Memcached,
            Self::StorePost | Self::ReadPost | Self::ReadPosts => Service::PostStorage,
            Self::ComposeUniqueId => Service::UniqueId,
        }
    }

    /// Returns the number that the service gives the function.
    pub(super) const fn number(self) -> u32 {
        match self {
            Self::Set => Memcached::SET,
            Self::Get => Memcached::GET,
            Self::StorePost => PostStorageService::STORE_POST,
            Self::ReadPost => PostStorageService::READ_POST,
            Self::ReadPosts => PostStorageService::READ_POSTS,
            Self::ComposeUniqueId => UniqueIdService::COMPOSE_UNIQUE_ID,
        }
    }
}

impl Service {
    pub(super) fn functions(self) -> Arc<dyn Functions> {
        match self {
            Self::Memcached => Arc::new(Memcached),
            Self::PostStorage => Arc::new(PostStorageService),
            Self::UniqueId => Arc::new(UniqueIdService),
        }
    }
}

impl Messages {
    /// Makes the messages of `function`.
    ///
    /// # Errors
    /// Fails if a message does not fit a buffer.
    pub(super) fn new(
        function: Function,
        shapes: &Shapes,
        buffer_bytes: usize,
    ) -> Result<Self, Code> {
        let functions = function.service().functions();
        let number = function.number();
        let mut packet = vec![0; buffer_bytes];
        let length = call::frame(&*functions, number, SEQUENCE, &mut packet, |to| {
            args(function, shapes, to)
        })?;
        packet.truncate(length);
        let mut scratch = vec![0; buffer_bytes - RECORD_HEAD_BYTES];
        let mut wire = Wire::framed(&packet, buffer_bytes)?;
        wire.message()?;
        let mut record = Build::new(&mut scratch);
        functions.recv(number, &mut wire, &mut record)?;
        let record_bytes = RECORD_HEAD_BYTES + record.used();
        let mut build = Build::new(&mut scratch);
        result(function, shapes, &mut build)?;
        let used = build.used();
        let result = scratch[..used].to_vec();
        let mut frame = vec![0; buffer_bytes];
        let mut out = Writer::framed(&mut frame)?;
        let name = functions.function(number).ok_or(Code::UnknownFunction)?.name.as_bytes();
        out.message(&Message { kind: MessageKind::Reply, name, sequence: SEQUENCE })?;
        functions.resp(number, View::new(&result), &mut out)?;
        let length = out.frame()?;
        frame.truncate(length);
        let response_bytes = RECORD_HEAD_BYTES + result.len();
        Ok(Self { packet, result, record_bytes, response_bytes, frame })
    }
}

fn args(function: Function, shapes: &Shapes, to: &mut Build<'_>) -> Result<usize, Code> {
    match function {
        Function::Set => {
            let args = to.block(SetArgs::SLOTS)?;
            to.set_bytes(args, SetArgs::KEY, &vec![b'k'; shapes.key_bytes])?;
            to.set_bytes(args, SetArgs::VALUE, &vec![b'v'; shapes.value_bytes])?;
            to.set(args, SetArgs::FLAGS, 0);
            to.set(args, SetArgs::EXPIRY_S, 0);
            Ok(args)
        }
        Function::Get => {
            let args = to.block(GetArgs::SLOTS)?;
            to.set_bytes(args, GetArgs::KEY, &vec![b'k'; shapes.key_bytes])?;
            Ok(args)
        }
        Function::StorePost => {
            let args = to.block(StorePostArgs::SLOTS)?;
            to.set(args, StorePostArgs::REQ_ID, 1);
            let post = post(shapes, to)?;
            to.set_block(args, StorePostArgs::POST, post);
            let carrier = carrier(shapes, to)?;
            to.set_block(args, StorePostArgs::CARRIER, carrier);
            Ok(args)
        }
        Function::ReadPost => {
            let args = to.block(ReadPostArgs::SLOTS)?;
            to.set(args, ReadPostArgs::REQ_ID, 1);
            to.set(args, ReadPostArgs::POST_ID, 2);
            let carrier = carrier(shapes, to)?;
            to.set_block(args, ReadPostArgs::CARRIER, carrier);
            Ok(args)
        }
        Function::ReadPosts => {
            let args = to.block(ReadPostsArgs::SLOTS)?;
            to.set(args, ReadPostsArgs::REQ_ID, 1);
            let ids = to.block(shapes.posts)?;
            (0..shapes.posts).for_each(|slot| to.put(ids, slot, slot as u64));
            to.head(ids, shapes.posts as u64);
            to.set_block(args, ReadPostsArgs::POST_IDS, ids);
            let carrier = carrier(shapes, to)?;
            to.set_block(args, ReadPostsArgs::CARRIER, carrier);
            Ok(args)
        }
        Function::ComposeUniqueId => {
            let args = to.block(ComposeUniqueIdArgs::SLOTS)?;
            to.set(args, ComposeUniqueIdArgs::REQ_ID, 1);
            to.set(args, ComposeUniqueIdArgs::POST_TYPE, 0);
            let carrier = carrier(shapes, to)?;
            to.set_block(args, ComposeUniqueIdArgs::CARRIER, carrier);
            Ok(args)
        }
    }
}

fn result(function: Function, shapes: &Shapes, to: &mut Build<'_>) -> Result<usize, Code> {
    match function {
        Function::Set => to.block(SetResult::SLOTS),
        Function::StorePost => to.block(StorePostResult::SLOTS),
        Function::Get => {
            let result = to.block(GetResult::SLOTS)?;
            let found = to.block(Found::SLOTS)?;
            to.set(found, Found::HIT, 1);
            to.set_bytes(found, Found::VALUE, &vec![b'v'; shapes.value_bytes])?;
            to.set_block(result, GetResult::SUCCESS, found);
            Ok(result)
        }
        Function::ReadPost => {
            let result = to.block(ReadPostResult::SLOTS)?;
            let post = post(shapes, to)?;
            to.set_block(result, ReadPostResult::SUCCESS, post);
            Ok(result)
        }
        Function::ReadPosts => {
            let result = to.block(ReadPostsResult::SLOTS)?;
            let posts = list(shapes.posts, to, |to| post(shapes, to))?;
            to.set_block(result, ReadPostsResult::SUCCESS, posts);
            Ok(result)
        }
        Function::ComposeUniqueId => {
            let result = to.block(ComposeUniqueIdResult::SLOTS)?;
            to.set(result, ComposeUniqueIdResult::SUCCESS, 42);
            Ok(result)
        }
    }
}

fn post(shapes: &Shapes, to: &mut Build<'_>) -> Result<usize, Code> {
    let post = to.block(Post::SLOTS)?;
    to.set(post, Post::POST_ID, 2);
    to.set(post, Post::REQ_ID, 1);
    to.set(post, Post::TIMESTAMP, 3);
    to.set(post, Post::POST_TYPE, 0);
    let creator = to.block(Creator::SLOTS)?;
    to.set(creator, Creator::USER_ID, 4);
    to.set_bytes(creator, Creator::USERNAME, NAME)?;
    to.set_block(post, Post::CREATOR, creator);
    to.set_bytes(post, Post::TEXT, &vec![b't'; shapes.text_bytes])?;
    let mentions = list(shapes.mentions, to, |to| {
        let mention = to.block(UserMention::SLOTS)?;
        to.set(mention, UserMention::USER_ID, 5);
        to.set_bytes(mention, UserMention::USERNAME, NAME)?;
        Ok(mention)
    })?;
    to.set_block(post, Post::USER_MENTIONS, mentions);
    let media = list(shapes.mentions, to, |to| {
        let media = to.block(Media::SLOTS)?;
        to.set(media, Media::MEDIA_ID, 6);
        to.set(media, Media::KIND, 0);
        Ok(media)
    })?;
    to.set_block(post, Post::MEDIA, media);
    let urls = list(shapes.mentions, to, |to| {
        let url = to.block(Url::SLOTS)?;
        to.set_bytes(url, Url::SHORTENED, NAME)?;
        to.set_bytes(url, Url::EXPANDED, &NAME.repeat(2))?;
        Ok(url)
    })?;
    to.set_block(post, Post::URLS, urls);
    Ok(post)
}

fn list(
    count: usize,
    to: &mut Build<'_>,
    item: impl Fn(&mut Build<'_>) -> Result<usize, Code>,
) -> Result<usize, Code> {
    let list = to.block(count)?;
    for slot in 0..count {
        let child = item(to)?;
        to.link(list, slot, child);
    }
    to.head(list, count as u64);
    Ok(list)
}

fn carrier(shapes: &Shapes, to: &mut Build<'_>) -> Result<usize, Code> {
    let words = 2 * shapes.carrier_entries;
    let map = to.block(words)?;
    for slot in 0..words {
        to.put_bytes(map, slot, &vec![b'c'; shapes.carrier_bytes])?;
    }
    to.head(map, words as u64);
    Ok(map)
}

/// The sequence number that the caller gives every request. It does not affect the results.
const SEQUENCE: i32 = 1;
const NAME: &[u8] = b"somebody";

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: Shapes = Shapes {
        key_bytes: 8,
        value_bytes: 8,
        text_bytes: 100,
        mentions: 1,
        posts: 2,
        carrier_entries: 2,
        carrier_bytes: 16,
    };

    #[test]
    fn a_message_that_does_not_fit_is_refused() {
        for function in FUNCTIONS {
            let messages = Messages::new(function, &SHAPES, 2048).expect("it fits");
            assert!(messages.record_bytes > RECORD_HEAD_BYTES, "{function:?}");
        }
        let large = Shapes { value_bytes: 2000, ..SHAPES };
        assert_eq!(Messages::new(Function::Set, &large, 2048).err(), Some(Code::Oversized));
        for value_bytes in [8, 1_000] {
            let shapes = Shapes { value_bytes, ..SHAPES };
            let set = Messages::new(Function::Set, &shapes, 2048).expect("it fits");
            assert_eq!(set.packet.len(), super::super::SET_OVERHEAD_BYTES + 8 + value_bytes);
        }
    }
}
