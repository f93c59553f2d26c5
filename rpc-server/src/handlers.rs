//! The business logic of the services. It turns a request's record into a response's record. It
//! reads and writes records in place and does not use the wire format, sockets or threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use rpc::flat::{Build, View};
use rpc::services::memcached::{
    CacheError, Found, GetArgs, GetResult, Memcached, SetArgs, SetResult,
};
use rpc::services::post_storage::{
    Post, PostStorageService, ReadPostArgs, ReadPostResult, ReadPostsArgs, ReadPostsResult,
    ServiceException, StorePostArgs, StorePostResult,
};
use rpc::services::unique_id::{ComposeUniqueIdResult, UniqueIdService};
use rpc::{Code, Functions, Record, Reply};
use store::embedded::{CoarseClock, Embedded, Fetch, Mode, NewItem, Options};
use units::Clock;
use units::limits::KEY_BYTES_MAX;

use super::{RpcOptions, RpcService};

/// The business logic of a service. An error says why there is no answer. An exception that the IDL
/// declares is an answer.
pub(super) trait Handler: Send {
    /// Builds the block of the result and returns its place.
    fn handle(&mut self, request: &Record<'_>, reply: &mut Reply<'_>) -> Result<usize, Code>;
}

/// Returns the functions and the handler of a service.
pub(super) fn functions_and_handler(
    options: &RpcOptions,
    clock: Arc<dyn Clock>,
) -> (Arc<dyn Functions>, Box<dyn Handler>) {
    let time = CoarseClock::start(Arc::clone(&clock));
    match options.service {
        RpcService::Memcached => {
            let store = store(options);
            (Arc::new(Memcached), Box::new(Cache { store, time }))
        }
        RpcService::PostStorage => {
            let store = store(options);
            (Arc::new(PostStorageService), Box::new(Posts { store, time }))
        }
        RpcService::UniqueId => (Arc::new(UniqueIdService), Box::new(Ids { clock, last: 0 })),
    }
}

/// A handler that adds the time of each call to `took_ns` (ns).
pub(super) struct Timed {
    pub(super) handler: Box<dyn Handler>,
    pub(super) took_ns: Arc<AtomicU64>,
}

impl Handler for Timed {
    fn handle(&mut self, request: &Record<'_>, reply: &mut Reply<'_>) -> Result<usize, Code> {
        let begun = Instant::now();
        let result = self.handler.handle(request, reply);
        self.took_ns.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }
}

/// Answers `request` into `buffer` and returns the response's length. Profiles find the business
/// logic by the name of this function.
#[inline(never)]
pub(super) fn respond(handler: &mut dyn Handler, request: &Record<'_>, buffer: &mut [u8]) -> usize {
    let Ok(mut reply) = Reply::to(request, buffer) else { return 0 };
    match handler.handle(request, &mut reply) {
        Ok(block) => reply.seal(block),
        Err(code) => reply.refuse(code),
    }
}

/// The token of a oneway request. The request is handled and gets no response.
pub(super) const ONEWAY: u64 = 0;
/// The largest size of a record, as a multiple of the message's bytes. A larger record is refused as
/// oversized. The strings, numbers and maps of these services stay below it: a pair of two one-letter strings
/// takes 32 B in a record and 10 B on the wire. A list of structs in which nearly all fields are absent can
/// exceed it, because each field has a slot. A multiple that covers such lists would make all buffers larger.
pub(super) const RECORD_GROWTH: usize = 4;

fn store(options: &RpcOptions) -> Embedded {
    // Clients choose the keys, so the hash has a random seed unless the options give one.
    let chance = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
    let seed = options.hash_seed.unwrap_or_else(chance);
    Embedded::new(Options { limit: options.memory, evict: true, seed })
}

struct Cache {
    store: Embedded,
    time: CoarseClock,
}

impl Handler for Cache {
    fn handle(&mut self, request: &Record<'_>, reply: &mut Reply<'_>) -> Result<usize, Code> {
        match request.function {
            Memcached::SET => self.set(SetArgs(request.body), &mut reply.body),
            Memcached::GET => self.get(GetArgs(request.body), &mut reply.body),
            _ => Err(Code::UnknownFunction),
        }
    }
}

impl Cache {
    fn set(&self, args: SetArgs<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
        let (Some(key), Some(value)) = (args.key(), args.value()) else {
            return Err(Code::Malformed);
        };
        let result = to.block(SetResult::SLOTS)?;
        let item = NewItem {
            value,
            flags: args.flags().unwrap_or(0) as u32,
            exptime_s: self.time.expiry(args.expiry_s().unwrap_or(0)),
            key_is_binary: false,
        };
        let problem = if key.is_empty() || key.len() > KEY_BYTES_MAX {
            Some(format!("a key has 1 to {KEY_BYTES_MAX} bytes, not {}", key.len()))
        } else {
            let stored = self.store.store(key, item, Mode::Set, self.time.now_s());
            stored.err().map(|error| error.to_string())
        };
        if let Some(problem) = problem {
            let error = to.block(CacheError::SLOTS)?;
            to.set_bytes(error, CacheError::MESSAGE, problem.as_bytes())?;
            to.set_block(result, SetResult::ERROR, error);
        }
        Ok(result)
    }

    fn get(&self, args: GetArgs<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
        let key = args.key().ok_or(Code::Malformed)?;
        let item = self.store.fetch(key, &Fetch::GET, self.time.now_s());
        let result = to.block(GetResult::SLOTS)?;
        let found = to.block(Found::SLOTS)?;
        to.set(found, Found::HIT, u64::from(item.is_some()));
        if let Some(item) = item {
            to.set(found, Found::FLAGS, u64::from(item.flags));
            to.set_bytes(found, Found::VALUE, &item.value)?;
        }
        to.set_block(result, GetResult::SUCCESS, found);
        Ok(result)
    }
}

/// Stores each post as the block in which it arrived. Storing and reading a post copy the block and
/// inspect only the post's number.
struct Posts {
    store: Embedded,
    time: CoarseClock,
}

impl Handler for Posts {
    fn handle(&mut self, request: &Record<'_>, reply: &mut Reply<'_>) -> Result<usize, Code> {
        match request.function {
            PostStorageService::STORE_POST => {
                self.store_post(StorePostArgs(request.body), &mut reply.body)
            }
            PostStorageService::READ_POST => {
                self.read_post(ReadPostArgs(request.body), &mut reply.body)
            }
            PostStorageService::READ_POSTS => {
                self.read_posts(ReadPostsArgs(request.body), &mut reply.body)
            }
            _ => Err(Code::UnknownFunction),
        }
    }
}

impl Posts {
    fn store_post(&self, args: StorePostArgs<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
        let post = args.post().ok_or(Code::Malformed)?;
        let result = to.block(StorePostResult::SLOTS)?;
        let problem = match post.post_id() {
            None => Some("the post has no post_id".to_owned()),
            Some(id) => {
                let item = NewItem { value: post.0.bytes(), ..NewItem::default() };
                let key = id.to_be_bytes();
                let stored = self.store.store(&key, item, Mode::Set, self.time.now_s());
                stored.err().map(|error| error.to_string())
            }
        };
        if let Some(problem) = problem {
            let error = exception(to, NOT_STORED, &problem)?;
            to.set_block(result, StorePostResult::ERROR, error);
        }
        Ok(result)
    }

    fn read_post(&self, args: ReadPostArgs<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
        let result = to.block(ReadPostResult::SLOTS)?;
        let id = args.post_id().unwrap_or(0);
        match self.find(id) {
            Some(post) => {
                let post = to.copy(View::new(&post))?;
                to.set_block(result, ReadPostResult::SUCCESS, post);
            }
            None => {
                let error = exception(to, NOT_FOUND, &format!("no post {id}"))?;
                to.set_block(result, ReadPostResult::ERROR, error);
            }
        }
        Ok(result)
    }

    /// Returns all posts or none, because a list of posts cannot mark the place of a missing post.
    fn read_posts(&self, args: ReadPostsArgs<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
        let result = to.block(ReadPostsResult::SLOTS)?;
        let ids = args.post_ids().unwrap_or(View::new(&[]));
        let posts = to.block(ids.count())?;
        for slot in 0..ids.count() {
            let id = ids.word(slot)? as i64;
            let Some(post) = self.find(id) else {
                let error = exception(to, NOT_FOUND, &format!("no post {id}"))?;
                to.set_block(result, ReadPostsResult::ERROR, error);
                return Ok(result);
            };
            let post = to.copy(View::new(&post))?;
            to.link(posts, slot, post);
        }
        to.head(posts, ids.count() as u64);
        to.set_block(result, ReadPostsResult::SUCCESS, posts);
        Ok(result)
    }

    fn find(&self, id: i64) -> Option<Bytes> {
        let found = self.store.fetch(&id.to_be_bytes(), &Fetch::GET, self.time.now_s())?;
        debug_assert_eq!(Post(View::new(&found.value)).post_id(), Some(id));
        Some(found.value)
    }
}

fn exception(to: &mut Build<'_>, code: i32, message: &str) -> Result<usize, Code> {
    let error = to.block(ServiceException::SLOTS)?;
    to.set(error, ServiceException::CODE, code as u64);
    to.set_bytes(error, ServiceException::MESSAGE, message.as_bytes())?;
    Ok(error)
}

/// Generates increasing numbers from the time in milliseconds (42 bits) and a count (21 bits).
struct Ids {
    clock: Arc<dyn Clock>,
    last: u64,
}

impl Handler for Ids {
    fn handle(&mut self, request: &Record<'_>, reply: &mut Reply<'_>) -> Result<usize, Code> {
        if request.function != UniqueIdService::COMPOSE_UNIQUE_ID {
            return Err(Code::UnknownFunction);
        }
        let now_ms = self.clock.now().0 / 1_000_000;
        self.last = (self.last + 1).max((now_ms & MILLIS_MASK) << COUNT_BITS);
        let result = reply.body.block(ComposeUniqueIdResult::SLOTS)?;
        reply.body.set(result, ComposeUniqueIdResult::SUCCESS, self.last);
        Ok(result)
    }
}

const COUNT_BITS: u32 = 21;
const MILLIS_MASK: u64 = (1 << 42) - 1;
const NOT_FOUND: i32 = 404;
const NOT_STORED: i32 = 507;
