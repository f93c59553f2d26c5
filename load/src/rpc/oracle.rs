//! A model of the services' stores. It reads every request and computes the bytes of its answer. It reads and writes
//! messages with the interpreter of the IDL and stores values in plain maps, so it shares neither the generated code
//! nor the store with the server that it judges. It must see the requests in the order in which the server handles
//! them.

use std::collections::HashMap;

use rpc::flat::{Build, View};
use rpc::idl::{Interpreter, parse};
use rpc::services::memcached::{Found, GetArgs, GetResult, Memcached, SetArgs, SetResult};
use rpc::services::post_storage::{
    PostStorageService, ReadPostArgs, ReadPostResult, ReadPostsArgs, ReadPostsResult,
    ServiceException, StorePostArgs, StorePostResult,
};
use rpc::services::unique_id::ComposeUniqueIdResult;
use rpc::wire::{Message, MessageKind, Wire, Writer};
use rpc::{Code, Functions};

/// The model of one service.
#[derive(Debug)]
pub struct Oracle {
    service: &'static str,
    functions: Interpreter,
    values: HashMap<Vec<u8>, (Vec<u8>, u64)>,
    posts: HashMap<u64, Vec<u8>>,
    last_id: i64,
    scratch: [Vec<u8>; 2],
}

/// The answer that a request must get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The answer must be this frame.
    Frame(Vec<u8>),
    /// The answer must be this frame, or a frame which says that the item was evicted.
    Found(Vec<u8>),
    /// The answer must be a frame that begins with these bytes and ends with a number above all earlier ones.
    Number(Vec<u8>),
    /// The answer must be an application exception, or empty.
    Refusal,
}

/// The verdict on an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The answer is the expected one, byte for byte.
    Right,
    /// The store had evicted the stored item, so nothing was found.
    Miss,
    /// The answer is an exception, and none was expected.
    Refused,
    /// The answer is wrong in another way.
    Wrong,
}

impl Oracle {
    /// Creates the model of an empty store of this service, by its name in [`rpc::services::IDL`].
    pub fn new(service: &str) -> Option<Self> {
        let (service, idl) = rpc::services::IDL.iter().find(|(name, _)| *name == service)?;
        let schema = parse(idl).expect("the services' own IDL is valid");
        Some(Self {
            service,
            functions: Interpreter::new(schema),
            values: HashMap::new(),
            posts: HashMap::new(),
            last_id: i64::MIN,
            scratch: [vec![0; SCRATCH_BYTES], vec![0; SCRATCH_BYTES]],
        })
    }

    /// Applies a request's frame to the model and returns the answer that the request must get.
    pub fn expect(&mut self, request: &[u8]) -> Expected {
        let [mut args, mut results] = std::mem::take(&mut self.scratch);
        // A block is larger than its message because absent fields have slots. Only requests that name many posts have
        // answers that are many times as large as the request.
        args.resize(args.len().max(RECORD_GROWTH * request.len() + SCRATCH_BYTES), 0);
        let mut expected = self.answer(request, &mut args, &mut results);
        while expected == Err(Code::Oversized) && results.len() < RESULT_BYTES_MAX {
            results.resize(4 * results.len(), 0);
            expected = self.answer(request, &mut args, &mut results);
        }
        self.scratch = [args, results];
        expected.unwrap_or(Expected::Refusal)
    }

    fn answer(
        &mut self,
        request: &[u8],
        args: &mut [u8],
        results: &mut [u8],
    ) -> Result<Expected, Code> {
        let mut wire = Wire::framed(request, request.len())?;
        let message = wire.message()?;
        if message.kind != MessageKind::Call {
            return Err(Code::Malformed);
        }
        let function = self.functions.find(message.name).ok_or(Code::UnknownFunction)?;
        let mut build = Build::new(args);
        let block = self.functions.recv(function, &mut wire, &mut build)?;
        wire.end()?;
        let used = build.used();
        let args = View::new(&args[block..used]);
        let (block, frame) = results.split_at_mut(results.len() / 2);
        let mut to = Build::new(block);
        let (result, is_found) = match (self.service, function) {
            ("memcached", Memcached::SET) => (self.set(SetArgs(args), &mut to)?, false),
            ("memcached", _) => self.get(GetArgs(args), &mut to)?,
            ("post_storage", PostStorageService::STORE_POST) => {
                (self.store_post(StorePostArgs(args), &mut to)?, false)
            }
            ("post_storage", PostStorageService::READ_POST) => {
                self.read_post(ReadPostArgs(args), &mut to)?
            }
            ("post_storage", _) => self.read_posts(ReadPostsArgs(args), &mut to)?,
            _ => {
                let result = to.block(ComposeUniqueIdResult::SLOTS)?;
                to.set(result, ComposeUniqueIdResult::SUCCESS, 0);
                (result, false)
            }
        };
        let used = to.used();
        let mut out = Writer::framed(frame)?;
        out.message(&Message { kind: MessageKind::Reply, ..message })?;
        self.functions.resp(function, View::new(&block[result..used]), &mut out)?;
        let length = out.frame()?;
        let frame = frame[..length].to_vec();
        Ok(match self.service {
            "unique_id" => Expected::Number(frame[..length - NUMBER_TAIL_BYTES].to_vec()),
            _ if is_found => Expected::Found(frame),
            _ => Expected::Frame(frame),
        })
    }

    fn set(&mut self, args: SetArgs<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
        let (key, value) = args.key().zip(args.value()).ok_or(Code::Malformed)?;
        let flags = u64::from(args.flags().unwrap_or(0) as u32);
        match self.values.get_mut(key) {
            Some(kept) => *kept = (value.to_vec(), flags),
            None => {
                self.values.insert(key.to_vec(), (value.to_vec(), flags));
            }
        }
        to.block(SetResult::SLOTS)
    }

    fn get(&self, args: GetArgs<'_>, to: &mut Build<'_>) -> Result<(usize, bool), Code> {
        let kept = self.values.get(args.key().ok_or(Code::Malformed)?);
        let result = to.block(GetResult::SLOTS)?;
        let found = to.block(Found::SLOTS)?;
        to.set(found, Found::HIT, u64::from(kept.is_some()));
        if let Some((value, flags)) = kept {
            to.set(found, Found::FLAGS, *flags);
            to.set_bytes(found, Found::VALUE, value)?;
        }
        to.set_block(result, GetResult::SUCCESS, found);
        Ok((result, kept.is_some()))
    }

    fn store_post(&mut self, args: StorePostArgs<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
        let post = args.post().ok_or(Code::Malformed)?;
        let result = to.block(StorePostResult::SLOTS)?;
        match post.post_id() {
            Some(id) => {
                self.posts.insert(id as u64, post.0.bytes().to_vec());
            }
            None => {
                let error = exception(to, NOT_STORED, "the post has no post_id")?;
                to.set_block(result, StorePostResult::ERROR, error);
            }
        }
        Ok(result)
    }

    fn read_post(&self, args: ReadPostArgs<'_>, to: &mut Build<'_>) -> Result<(usize, bool), Code> {
        let result = to.block(ReadPostResult::SLOTS)?;
        let id = args.post_id().unwrap_or(0);
        let Some(post) = self.posts.get(&(id as u64)) else {
            let error = exception(to, NOT_FOUND, &format!("no post {id}"))?;
            to.set_block(result, ReadPostResult::ERROR, error);
            return Ok((result, false));
        };
        let post = to.copy(View::new(post))?;
        to.set_block(result, ReadPostResult::SUCCESS, post);
        Ok((result, true))
    }

    fn read_posts(
        &self,
        args: ReadPostsArgs<'_>,
        to: &mut Build<'_>,
    ) -> Result<(usize, bool), Code> {
        let result = to.block(ReadPostsResult::SLOTS)?;
        let ids = args.post_ids().unwrap_or(View::new(&[]));
        let ids = (0..ids.count()).map(|slot| ids.word(slot)).collect::<Result<Vec<_>, _>>()?;
        if let Some(id) = ids.iter().find(|id| !self.posts.contains_key(id)) {
            let error = exception(to, NOT_FOUND, &format!("no post {}", *id as i64))?;
            to.set_block(result, ReadPostsResult::ERROR, error);
            return Ok((result, false));
        }
        let posts = to.block(ids.len())?;
        for (slot, id) in ids.iter().enumerate() {
            let post = to.copy(View::new(&self.posts[id]))?;
            to.link(posts, slot, post);
        }
        to.head(posts, ids.len() as u64);
        to.set_block(result, ReadPostsResult::SUCCESS, posts);
        Ok((result, !ids.is_empty()))
    }

    /// Judges an answer against the expectation for its request. Answers that
    /// are numbers must be judged in the order of their requests, because each must be above the one before.
    pub fn judge(&mut self, expected: &Expected, answer: &[u8]) -> Verdict {
        let frame = match expected {
            Expected::Refusal => {
                let is_due = answer.is_empty() || is_exception(answer);
                return if is_due { Verdict::Right } else { Verdict::Wrong };
            }
            Expected::Number(head) => return self.judge_number(head, answer),
            Expected::Frame(frame) | Expected::Found(frame) => frame,
        };
        if answer == frame {
            return Verdict::Right;
        }
        if is_exception(answer) {
            return Verdict::Refused;
        }
        let is_found = matches!(expected, Expected::Found(_));
        self.why(frame, answer)
            .filter(|why| is_found || *why != Verdict::Miss)
            .unwrap_or(Verdict::Wrong)
    }

    fn judge_number(&mut self, head: &[u8], answer: &[u8]) -> Verdict {
        // The number at the end has a fixed length, so a frame with another number has the same length.
        let number = answer.strip_prefix(head).and_then(|tail| match tail {
            [number @ .., 0] => number.try_into().ok().map(i64::from_be_bytes),
            _ => None,
        });
        match number {
            Some(number) if number > self.last_id => {
                self.last_id = number;
                Verdict::Right
            }
            _ if is_exception(answer) => Verdict::Refused,
            _ => Verdict::Wrong,
        }
    }

    /// Judges a reply that differs from the expected reply. Returns `Miss` if the reply says that nothing was found,
    /// `Refused` if it says that something was not stored, and otherwise `None`.
    fn why(&mut self, due: &[u8], answer: &[u8]) -> Option<Verdict> {
        let due = Wire::framed(due, due.len()).ok()?.message().ok()?;
        let mut wire = Wire::framed(answer, answer.len()).ok()?;
        if wire.message().ok()? != due {
            return None;
        }
        let function = self.functions.find(due.name)?;
        let scratch = &mut self.scratch[0];
        scratch.resize(scratch.len().max(RECORD_GROWTH * answer.len() + SCRATCH_BYTES), 0);
        let mut build = Build::new(scratch);
        let block = self.functions.answer(function, &mut wire, &mut build).ok()?;
        wire.end().ok()?;
        let used = build.used();
        let result = View::new(&scratch[block..used]);
        let code = |slot| ServiceException(result.get_block(slot)?).code();
        match (self.service, function) {
            ("memcached", Memcached::SET) => SetResult(result).error().map(|_| Verdict::Refused),
            ("memcached", _) => {
                let found = GetResult(result).success()?;
                (found.hit() == Some(false) && found.value().is_none()).then_some(Verdict::Miss)
            }
            ("post_storage", PostStorageService::STORE_POST) => {
                code(StorePostResult::ERROR).map(|_| Verdict::Refused)
            }
            ("post_storage", PostStorageService::READ_POST) => {
                (code(ReadPostResult::ERROR)? == NOT_FOUND).then_some(Verdict::Miss)
            }
            _ => (code(ReadPostsResult::ERROR)? == NOT_FOUND).then_some(Verdict::Miss),
        }
    }
}

fn exception(to: &mut Build<'_>, code: i32, message: &str) -> Result<usize, Code> {
    let error = to.block(ServiceException::SLOTS)?;
    to.set(error, ServiceException::CODE, code as u64);
    to.set_bytes(error, ServiceException::MESSAGE, message.as_bytes())?;
    Ok(error)
}

/// Returns whether a frame is an application exception.
pub fn is_exception(answer: &[u8]) -> bool {
    let message = Wire::framed(answer, answer.len()).and_then(|mut wire| wire.message());
    message.is_ok_and(|message| message.kind == MessageKind::Exception)
}

/// The length of the end of a reply with a number: the number and the end of the struct.
const NUMBER_TAIL_BYTES: usize = 9;
const NOT_FOUND: i32 = 404;
const NOT_STORED: i32 = 507;
const SCRATCH_BYTES: usize = 1 << 16;
/// The space for a block, as a multiple of the length of its message. [`SCRATCH_BYTES`] are added to it.
const RECORD_GROWTH: usize = 2;
/// The greatest space for results, which is twice the answer to the longest message.
const RESULT_BYTES_MAX: usize = 1 << 28;
