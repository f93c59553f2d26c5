//! The requests of a mix, one frame after another. The first requests store something under every key. The later
//! requests follow the shares of the calls and the popularity of the keys. The same mix and seed give the same bytes.

use std::io::Write;

use rpc::call;
use rpc::flat::{Build, View};
use rpc::services::memcached::{GetArgs, Memcached, SetArgs};
use rpc::services::post_storage::{
    Creator, Media, Post, PostStorageService, ReadPostArgs, ReadPostsArgs, StorePostArgs, Url,
    UserMention,
};
use rpc::services::unique_id::{ComposeUniqueIdArgs, UniqueIdService};
use rpc::{Code, Functions};
use units::Prng;
use workload::Popularity;

use super::mix::{Calls, Mix};

/// Makes the requests of a mix.
#[derive(Debug)]
pub struct Generator {
    mix: Mix,
    functions: &'static dyn Functions,
    popularity: Popularity,
    /// The number of keys under which something was stored.
    warm: u64,
    sequence: i32,
    prng: Prng,
    /// The space for a frame, and for the block of its arguments (bytes).
    capacity_bytes: usize,
    scratch: Vec<u8>,
}

/// A call with its keys.
#[derive(Clone, Copy)]
enum Call {
    Set(u64),
    Get(u64),
    StorePost(u64),
    ReadPost(u64),
    ReadPosts([u64; 2]),
    ComposeUniqueId,
}

impl Generator {
    /// Creates a generator for a mix that passes [`Mix::check`].
    pub fn new(mix: &Mix, seed: u64) -> Self {
        let capacity_bytes = match mix.calls {
            Calls::Memcached { key_bytes, value_bytes, .. } => key_bytes + value_bytes + 1024,
            Calls::PostStorage { .. } | Calls::UniqueId => 4096,
        };
        Self {
            functions: mix.functions(),
            popularity: Popularity::zipf(mix.keys, mix.zipf_alpha),
            mix: mix.clone(),
            warm: 0,
            sequence: 0,
            prng: Prng::new(seed),
            capacity_bytes,
            scratch: vec![0; 2 * capacity_bytes],
        }
    }

    /// Makes the next request that stores something under a key. Returns false once every key has a value, and for a
    /// service without keys.
    pub fn warm(&mut self, frame: &mut Vec<u8>) -> bool {
        let key = self.mix.first_key + self.warm;
        let call = match self.mix.calls {
            _ if self.warm == self.mix.keys => return false,
            Calls::Memcached { .. } => Call::Set(key),
            Calls::PostStorage { .. } => Call::StorePost(key),
            Calls::UniqueId => return false,
        };
        self.warm += 1;
        self.write(call, frame);
        true
    }

    /// Replaces the content of `frame` by the next request. Returns whether the request writes.
    pub fn request(&mut self, frame: &mut Vec<u8>) -> bool {
        let share = self.prng.unit();
        let call = match self.mix.calls {
            Calls::Memcached { set_ratio, .. } if share < set_ratio => Call::Set(self.key()),
            Calls::Memcached { .. } => Call::Get(self.key()),
            Calls::PostStorage { store_ratio, .. } if share < store_ratio => {
                Call::StorePost(self.key())
            }
            Calls::PostStorage { store_ratio, read_ratio } if share < store_ratio + read_ratio => {
                Call::ReadPost(self.key())
            }
            Calls::PostStorage { .. } => Call::ReadPosts([self.key(), self.key()]),
            Calls::UniqueId => Call::ComposeUniqueId,
        };
        self.write(call, frame);
        matches!(call, Call::Set(_) | Call::StorePost(_))
    }

    fn key(&mut self) -> u64 {
        self.mix.first_key + self.popularity.draw(&mut self.prng)
    }

    fn write(&mut self, call: Call, frame: &mut Vec<u8>) {
        self.sequence = self.sequence.wrapping_add(1);
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut build = Build::new(&mut scratch);
        frame.resize(self.capacity_bytes, 0);
        let written = self.args(call, &mut build).and_then(|(function, args)| {
            let args = View::new(&scratch[args]);
            call::write(self.functions, function, self.sequence, args, frame)
        });
        frame.truncate(written.expect("there is room for what the mix was checked for"));
        self.scratch = scratch;
    }

    /// Builds the arguments. Returns the function's number and the range of the arguments in the block.
    fn args(
        &mut self,
        call: Call,
        to: &mut Build<'_>,
    ) -> Result<(u32, std::ops::Range<usize>), Code> {
        let (function, args) = match call {
            Call::Set(key) => (Memcached::SET, self.set(key, to)?),
            Call::Get(key) => {
                let args = to.block(GetArgs::SLOTS)?;
                to.set_bytes(args, GetArgs::KEY, &self.name(key))?;
                (Memcached::GET, args)
            }
            Call::StorePost(id) => (PostStorageService::STORE_POST, self.store_post(id, to)?),
            Call::ReadPost(id) => {
                let args = to.block(ReadPostArgs::SLOTS)?;
                to.set(args, ReadPostArgs::REQ_ID, self.prng.bits() >> 1);
                to.set(args, ReadPostArgs::POST_ID, id);
                let carrier = self.carrier(to)?;
                to.set_block(args, ReadPostArgs::CARRIER, carrier);
                (PostStorageService::READ_POST, args)
            }
            Call::ReadPosts(posts) => {
                let args = to.block(ReadPostsArgs::SLOTS)?;
                to.set(args, ReadPostsArgs::REQ_ID, self.prng.bits() >> 1);
                let ids = to.block(posts.len())?;
                (0..).zip(posts).for_each(|(slot, id)| to.put(ids, slot, id));
                to.head(ids, posts.len() as u64);
                to.set_block(args, ReadPostsArgs::POST_IDS, ids);
                let carrier = self.carrier(to)?;
                to.set_block(args, ReadPostsArgs::CARRIER, carrier);
                (PostStorageService::READ_POSTS, args)
            }
            Call::ComposeUniqueId => {
                let args = to.block(ComposeUniqueIdArgs::SLOTS)?;
                to.set(args, ComposeUniqueIdArgs::REQ_ID, self.prng.bits() >> 1);
                to.set(args, ComposeUniqueIdArgs::POST_TYPE, self.prng.below(4));
                let carrier = self.carrier(to)?;
                to.set_block(args, ComposeUniqueIdArgs::CARRIER, carrier);
                (UniqueIdService::COMPOSE_UNIQUE_ID, args)
            }
        };
        Ok((function, args..to.used()))
    }

    fn set(&mut self, key: u64, to: &mut Build<'_>) -> Result<usize, Code> {
        let Calls::Memcached { value_bytes, .. } = self.mix.calls else { return Ok(0) };
        let mut value = vec![0; value_bytes];
        self.prng.fill(&mut value);
        let args = to.block(SetArgs::SLOTS)?;
        to.set_bytes(args, SetArgs::KEY, &self.name(key))?;
        to.set_bytes(args, SetArgs::VALUE, &value)?;
        Ok(args)
    }

    /// Returns the name of a key: its number in hexadecimal digits with leading zeros.
    fn name(&self, key: u64) -> Vec<u8> {
        let Calls::Memcached { key_bytes, .. } = self.mix.calls else { return Vec::new() };
        let mut name = Vec::with_capacity(key_bytes);
        let _ = write!(name, "{key:0key_bytes$x}");
        name
    }

    fn store_post(&mut self, id: u64, to: &mut Build<'_>) -> Result<usize, Code> {
        let args = to.block(StorePostArgs::SLOTS)?;
        to.set(args, StorePostArgs::REQ_ID, self.prng.bits() >> 1);
        let post = to.block(Post::SLOTS)?;
        to.set(post, Post::POST_ID, id);
        to.set(post, Post::REQ_ID, self.prng.bits() >> 1);
        to.set(post, Post::TIMESTAMP, self.prng.bits() >> 1);
        to.set(post, Post::POST_TYPE, self.prng.below(4));
        let creator = self.pair(to, (Creator::SLOTS, Creator::USER_ID, Creator::USERNAME))?;
        to.set_block(post, Post::CREATOR, creator);
        to.set_bytes(post, Post::TEXT, &self.letters(TEXT_BYTES))?;
        let mention = (UserMention::SLOTS, UserMention::USER_ID, UserMention::USERNAME);
        let mentions = listed(to, |to| self.pair(to, mention))?;
        to.set_block(post, Post::USER_MENTIONS, mentions);
        let media = listed(to, |to| {
            let media = to.block(Media::SLOTS)?;
            to.set(media, Media::MEDIA_ID, self.prng.bits() >> 1);
            to.set(media, Media::KIND, self.prng.below(2));
            Ok(media)
        })?;
        to.set_block(post, Post::MEDIA, media);
        let urls = listed(to, |to| {
            let url = to.block(Url::SLOTS)?;
            to.set_bytes(url, Url::SHORTENED, &self.letters(NAME_BYTES))?;
            to.set_bytes(url, Url::EXPANDED, &self.letters(2 * NAME_BYTES))?;
            Ok(url)
        })?;
        to.set_block(post, Post::URLS, urls);
        to.set_block(args, StorePostArgs::POST, post);
        let carrier = self.carrier(to)?;
        to.set_block(args, StorePostArgs::CARRIER, carrier);
        Ok(args)
    }

    /// Builds a struct that has a number and a name.
    fn pair(
        &mut self,
        to: &mut Build<'_>,
        (slots, number, name): (usize, usize, usize),
    ) -> Result<usize, Code> {
        let pair = to.block(slots)?;
        to.set(pair, number, self.prng.bits() >> 1);
        to.set_bytes(pair, name, &self.letters(NAME_BYTES))?;
        Ok(pair)
    }

    /// Builds the map that a request carries for distributed tracing.
    fn carrier(&mut self, to: &mut Build<'_>) -> Result<usize, Code> {
        let map = to.block(2 * CARRIER_ENTRIES)?;
        for slot in 0..2 * CARRIER_ENTRIES {
            to.put_bytes(map, slot, &self.letters(CARRIER_BYTES))?;
        }
        to.head(map, 2 * CARRIER_ENTRIES as u64);
        Ok(map)
    }

    /// Makes a text of ASCII letters, which is a valid string in every language.
    fn letters(&mut self, count: usize) -> Vec<u8> {
        let mut letters = vec![0; count];
        self.prng.fill(&mut letters);
        letters.iter_mut().for_each(|byte| *byte = b'a' + *byte % 26);
        letters
    }
}

/// Builds a list that has one item.
fn listed(
    to: &mut Build<'_>,
    mut item: impl FnMut(&mut Build<'_>) -> Result<usize, Code>,
) -> Result<usize, Code> {
    let list = to.block(1)?;
    let child = item(to)?;
    to.link(list, 0, child);
    to.head(list, 1);
    Ok(list)
}

// The paper does not state these sizes; they are those of specs/sim/arcalis.toml.
const TEXT_BYTES: usize = 100;
const NAME_BYTES: usize = 8;
const CARRIER_ENTRIES: usize = 2;
const CARRIER_BYTES: usize = 16;
