//! Serves the calls of the Thrift service (`rpc/idl/memcached.thrift`) in frames. A call is read in place by the parts
//! of the near-cache RPC engine that read messages, and becomes the command of a packet that does the same, so that
//! there is no second handler. A get of many keys is the only call without such a packet.
//!
//! A frame that is too long to be a call is answered if its beginning is one, and skipped. Bytes that are no call end
//! the connection, because nobody knows where the next frame begins.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Instant;

use device::Buffer;
use protocol::binary::reply::Hit;
use protocol::binary::{Arithmetic, Command, Head, Packet, Refusal, Status, Store};
use protocol::command::{self, StoreVerb};
use protocol::counter::Direction;
use protocol::{Key, Limits, Parse, request};
use rpc::services::memcached::Memcached;
use rpc::wire::{FRAME_HEAD_BYTES, Message, MessageKind, Wire as Reader, exception, kind};
use rpc::{Code, Functions};
use units::limits::{GET_LINE_BYTES_MAX, KEY_BYTES_MAX, LINE_BYTES_MAX};

use super::Session;
use super::dispatch::{Step, Wire};
use super::meta::ItemIssue;
use super::packets::PacketIssue;
use super::pipeline::Pending;
use super::reply_to::{Call, ReplyTo, map_item};
use super::text::{KEYS_AT_ONCE, Replied, ValueForm};
use crate::backend::Outcome;
use crate::budget::{Permit, UNCHARGED_BYTES_MAX};
use crate::counters::CommandKind;
use crate::errors::FailedCommand;
use crate::long_keys::LONG_BYTES;
use crate::values::Body;

/// The calls of the Thrift service.
pub(super) struct Calls;

impl Wire for Calls {
    async fn serve_one<'a>(
        session: &mut Session,
        input: &'a [u8],
        pending: &mut VecDeque<Pending<'a>>,
    ) -> Step {
        session.yield_periodically().await;
        let Some(length) = input.first_chunk() else { return Step::Incomplete };
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            session.refuse_bytes(pending).await;
            return Step::Consumed(input.len());
        };
        if !may_be_message(&input[FRAME_HEAD_BYTES..]) {
            session.refuse_bytes(pending).await;
            return Step::Consumed(input.len());
        }
        let end = FRAME_HEAD_BYTES + length;
        // Before more of a frame is read than this, its beginning must be a call.
        if input.len() < end.min(BEGINNING_BYTES) {
            return Step::Incomplete;
        }
        if length > session.frame_bytes_max(&input[FRAME_HEAD_BYTES..], length) {
            return session.refuse_long_frame(input, length, pending).await;
        }
        match input.get(FRAME_HEAD_BYTES..end) {
            Some(message) => {
                session.is_last = end == input.len();
                session.serve_message(message, pending).await;
                Step::Consumed(end)
            }
            None if session.must_log_in() => {
                session.refuse_long_frame(input, length, pending).await
            }
            None => Step::NeedsBody { line_bytes: FRAME_HEAD_BYTES, body_bytes: length },
        }
    }

    async fn serve_read(session: &mut Session, input: &[u8], message: Option<Buffer>) {
        match message {
            Some(message) => {
                let mut pending = VecDeque::new();
                session.is_last = true;
                session.serve_message(&message, &mut pending).await;
                session.settle_all(&mut pending).await;
            }
            None => session.refuse_skipped(input, &mut VecDeque::new()).await,
        }
    }
}

impl Session {
    fn must_log_in(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.must_log_in())
    }

    /// Returns the length of the longest frame of the call that begins with `message` (bytes), if its frame, which has
    /// `length` bytes, is not one of a short call. Only a value makes a call as long as an item.
    fn frame_bytes_max(&self, message: &[u8], length: usize) -> usize {
        if length <= SHORT_CALL_BYTES_MAX {
            return SHORT_CALL_BYTES_MAX;
        }
        let head = call_head(&mut Reader::new(message, NAME_BYTES_MAX));
        let function = head.and_then(|head| Memcached.find(head.name));
        match function.and_then(value_verb) {
            Some(_) => self.context.limits.item_bytes_max.0 as usize + SHORT_CALL_BYTES_MAX,
            None => KEYS_BYTES_MAX,
        }
    }

    /// Serves the message of a whole frame.
    async fn serve_message<'a>(&mut self, message: &'a [u8], pending: &mut VecDeque<Pending<'a>>) {
        let mut reader = Reader::new(message, message.len());
        let Some(head) = call_head(&mut reader) else { return self.refuse_bytes(pending).await };
        let Some(function) = Memcached.find(head.name) else {
            return self.refuse_call(&head, message.len(), Code::UnknownFunction, pending).await;
        };
        let mut arguments = Arguments::default();
        if let Err(code) = arguments.read(&mut reader, function) {
            return self.refuse_call(&head, message.len(), code, pending).await;
        }
        let call = Call { function, sequence: head.sequence };
        let called = match arguments.called(function, &self.context.limits) {
            Ok(called) => called,
            Err(Refused::Malformed) => {
                return self.refuse_call(&head, message.len(), Code::Malformed, pending).await;
            }
            Err(Refused::Status(status, unlink)) => {
                let refusal = Refusal { unlink, ..Refusal::skipping(Head::default(), status, 0) };
                let refusal = self.guard_refusal(refusal, pending).await;
                return self.refuse_whole(call, &refusal, pending).await;
            }
        };
        let (command, value) = match called {
            Called::Many(keys) => return self.get_keys(call, keys, message.len(), pending).await,
            Called::Command(command, value) => (command, value),
        };
        let packet = Packet { head: Head::default(), command };
        if let Some(refusal) = self.refusal_of(&packet, pending).await {
            return self.refuse_whole(call, &refusal, pending).await;
        }
        let to = ReplyTo::Call(call);
        match value {
            None => self.serve_packet(to, command, pending).await,
            Some(value) => {
                self.serve_with_value(to, command, Body::Slice(value), pending).await;
            }
        }
    }

    /// Answers a call with a refusal that skips nothing.
    async fn refuse_whole(
        &mut self,
        call: Call,
        refusal: &Refusal<'_>,
        pending: &mut VecDeque<Pending<'_>>,
    ) {
        let refusal = Refusal { swallow_bytes: 0, ..*refusal };
        self.refuse_packet(ReplyTo::Call(call), &refusal, &[], 0, pending).await;
    }

    /// Answers a call that the service does not have, or whose arguments are malformed, with an application exception.
    async fn refuse_call(
        &mut self,
        head: &Message<'_>,
        bytes: usize,
        code: Code,
        pending: &mut VecDeque<Pending<'_>>,
    ) {
        if head.name.len() > NAME_BYTES_MAX || self.must_log_in() {
            return self.refuse_bytes(pending).await;
        }
        self.settle_all(pending).await;
        if let Some(client) = self.client.clone() {
            client.spend_bytes(bytes);
            self.has_quota(&client, pending).await;
        }
        self.context.counters.commands.bad_lines.up();
        self.count_refusal(FailedCommand::Other);
        let mut frame = [0; EXCEPTION_BYTES_MAX];
        match exception(head.name, head.sequence, code, &mut frame) {
            Ok(length) => self.out.text().extend_from_slice(&frame[..length]),
            Err(_) => self.closing = true,
        }
    }

    /// Ends the connection of a client whose bytes are no call.
    async fn refuse_bytes(&mut self, pending: &mut VecDeque<Pending<'_>>) {
        self.settle_all(pending).await;
        self.context.counters.commands.bad_lines.up();
        self.note_bad_frame();
        self.closing = true;
    }

    /// Answers a call whose frame is too long, or for whose frame an unknown client gets no memory, and skips the
    /// frame.
    async fn refuse_long_frame(
        &mut self,
        input: &[u8],
        length: usize,
        pending: &mut VecDeque<Pending<'_>>,
    ) -> Step {
        let Some((call, key)) = beginning(input) else {
            self.refuse_bytes(pending).await;
            return Step::Consumed(input.len());
        };
        if call.function == Memcached::GET_MANY {
            return self.refuse_long_get(call, input, length, pending).await;
        }
        let refusal = match value_verb(call.function) {
            // Other calls have no reason to be long.
            None => Refusal::closing(Head::default(), Status::TooLarge),
            Some(verb) => {
                let skipping = Refusal::skipping(Head::default(), Status::TooLarge, length as u64);
                Refusal { unlink: key.filter(|_| verb == StoreVerb::Set), ..skipping }
            }
        };
        let refusal = self.guard_refusal(refusal, pending).await;
        self.refuse_packet(ReplyTo::Call(call), &refusal, input, FRAME_HEAD_BYTES, pending).await
    }

    /// Answers a get of too many keys, and skips its frame.
    async fn refuse_long_get(
        &mut self,
        call: Call,
        input: &[u8],
        length: usize,
        pending: &mut VecDeque<Pending<'_>>,
    ) -> Step {
        let refusal = Refusal::skipping(Head::default(), Status::TooLarge, length as u64);
        let refusal = self.guard_refusal(refusal, pending).await;
        let to = ReplyTo::Call(call);
        if refusal.status != Status::TooLarge {
            return self.refuse_packet(to, &refusal, input, FRAME_HEAD_BYTES, pending).await;
        }
        self.settle_all(pending).await;
        self.context.counters.commands.bad_lines.up();
        self.count_refusal(FailedCommand::Get);
        let text = format!("the call has {length} bytes, and at most {KEYS_BYTES_MAX} are allowed");
        to.failed(self.out.text(), Status::TooLarge, &text);
        self.skip(&input[FRAME_HEAD_BYTES..], FRAME_HEAD_BYTES, length as u64).await
    }

    /// Answers a call that was skipped for lack of memory. `input` has the beginning of its frame.
    async fn refuse_skipped(&mut self, input: &[u8], pending: &mut VecDeque<Pending<'_>>) {
        let Some((call, key)) = beginning(input) else {
            return self.refuse_bytes(pending).await;
        };
        let is_replaced =
            matches!(value_verb(call.function), Some(StoreVerb::Set | StoreVerb::Cas));
        let unlink = key.filter(|_| is_replaced);
        let skipping = Refusal::skipping(Head::default(), Status::OutOfMemory, 0);
        let refusal = self.guard_refusal(Refusal { unlink, ..skipping }, pending).await;
        match refusal.status {
            Status::OutOfMemory => {
                self.refuse_value(ReplyTo::Call(call), FailedCommand::Set, refusal.unlink).await;
            }
            _ => self.refuse_whole(call, &refusal, pending).await,
        }
    }

    /// Serves a get of many keys. Its answer is one frame, whose length is known only at its end.
    async fn get_keys(
        &mut self,
        call: Call,
        keys: Strings<'_>,
        bytes: usize,
        pending: &mut VecDeque<Pending<'_>>,
    ) {
        let since = self.turned();
        let to = ReplyTo::Call(call);
        let guarded = self.guard_keys(keys.clone(), bytes, pending).await;
        let has_links = self.context.backend.has_links();
        let all_may_exist = !has_links || keys.clone().all(|key| self.may_have_key(Some(key)));
        let unnamed = || Refusal::skipping(Head::default(), Status::InvalidArguments, 0);
        if let Some(refusal) = guarded.or_else(|| (!all_may_exist).then(unnamed)) {
            return self.refuse_whole(call, &refusal, pending).await;
        }
        self.settle_all(pending).await;
        if !self.flush_or_close().await {
            return;
        }
        self.answered = None;
        self.command = FailedCommand::Get;
        let first = keys.clone().next().unwrap_or_default();
        self.observe(Instant::now(), || (FailedCommand::Get.name(), first));
        to.count(&self.context.counters.commands);
        self.note_lookup_of_each(keys.clone());
        self.holds_answer = true;
        let mut answer = MapAnswer::default();
        let found = self.find_keys(keys, &mut answer).await;
        self.holds_answer = false;
        match found {
            Ok(()) if !answer.is_too_long => {
                let head = call.map_head(answer.items_found, self.out.len());
                self.out.prepend(head);
                self.out.text().push(kind::STOP);
            }
            Ok(()) => {
                self.out.clear();
                self.count_refusal(self.command);
                let text = format!("the values have more than {ANSWER_BYTES_MAX} bytes together");
                to.failed(self.out.text(), Status::TooLarge, &text);
            }
            Err(failure) => {
                self.out.clear();
                self.fail_packet(to, &failure);
            }
        }
        self.record(CommandKind::Get, since);
        // The answer's permits are held until it is written.
        self.flush_or_close().await;
    }

    /// Appends the items of the keys to the held answer.
    async fn find_keys(&mut self, keys: Strings<'_>, answer: &mut MapAnswer) -> Outcome<()> {
        let (mut line, mut names) = (Vec::new(), Vec::new());
        let mut found_alone = 0;
        let mut keys = keys.peekable();
        while let Some(key) = keys.next() {
            match Key::new(key) {
                Ok(name) => names.push(name),
                // A line cannot hold this key.
                Err(_) => {
                    self.find_item(key, answer).await?;
                    found_alone += 1;
                }
            }
            if found_alone == KEYS_AT_ONCE {
                found_alone = 0;
                // Lines give others a turn in the same way.
                tokio::task::yield_now().await;
            }
            if !names.is_empty() && (names.len() == KEYS_AT_ONCE || keys.peek().is_none()) {
                line.clear();
                request::get(&mut line, names.drain(..), true);
                self.find_line(&line, answer).await?;
            }
            self.charge_short(answer).await?;
            if self.out.len() > ANSWER_BYTES_MAX {
                answer.is_too_long = true;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Appends the items of the keys in a line of text.
    async fn find_line(&mut self, line: &[u8], answer: &mut MapAnswer) -> Outcome<()> {
        let limits = self.context.limits;
        let Parse::Command { command: command::Command::Get(get), .. } =
            protocol::parse(line, &limits)
        else {
            unreachable!("a line that was composed here");
        };
        let Replied { items_found, lost } = self.reply_many(&get, &answer.form).await?;
        answer.items_found += items_found;
        lost.map_or(Ok(()), Err)
    }

    /// Appends the item of a key that no line can hold.
    async fn find_item(&mut self, key: &[u8], answer: &mut MapAnswer) -> Outcome<()> {
        let traffic = self.traffic_alone(1, LONG_BYTES);
        let PacketIssue::Item { meta, issue, .. } =
            self.issue_item(key, b"v f c", None, false, traffic)
        else {
            return Ok(());
        };
        let item = self.logical_item(&meta, ItemIssue::Plain(issue)).await?;
        self.count_get(item.is_some(), false);
        self.note_answer(key, item.as_ref().map(|(_, value)| value.len()));
        if let Some((facts, value)) = item {
            answer.items_found += 1;
            let (flags, cas) = (facts.client_flags, facts.cas);
            answer.form.header(self.out.text(), key, flags, value.len(), cas);
            self.out.value(value);
            self.out.text().extend_from_slice(answer.form.tail());
        }
        Ok(())
    }

    /// Charges the short values of the held answer to the budget. Long ones have a permit.
    async fn charge_short(&mut self, answer: &mut MapAnswer) -> Outcome<()> {
        let bytes = answer.form.short_bytes.get();
        if bytes > UNCHARGED_BYTES_MAX {
            answer.form.short_bytes.set(0);
            answer.permits.extend(self.charge_more(bytes).await?);
        }
        Ok(())
    }
}

/// The answer to a get of many keys, whose items are in the reply buffer.
#[derive(Default)]
struct MapAnswer {
    form: MapItems,
    items_found: usize,
    permits: Vec<Permit>,
    is_too_long: bool,
}

/// The items of a map.
#[derive(Default)]
struct MapItems {
    /// The bytes of items with short values that are not charged yet.
    short_bytes: Cell<usize>,
}

impl ValueForm for MapItems {
    fn header(&self, out: &mut Vec<u8>, key: &[u8], client_flags: u32, bytes: usize, cas: u64) {
        let begin = out.len();
        map_item(out, key, &Hit { key: None, client_flags, cas, value_bytes: bytes });
        let short_bytes = if bytes > UNCHARGED_BYTES_MAX { 0 } else { bytes };
        self.short_bytes.set(self.short_bytes.get() + out.len() - begin + short_bytes);
    }

    fn tail(&self) -> &'static [u8] {
        &[kind::STOP]
    }
}

/// Returns whether bytes may be the beginning of a message, so that clients of other protocols need not send more
/// before they are told.
fn may_be_message(message: &[u8]) -> bool {
    let head = Reader::new(message, NAME_BYTES_MAX).message();
    !matches!(head, Err(Code::Malformed | Code::Oversized))
}

/// Reads the head of a call. Returns none for other messages. No function is `oneway`.
fn call_head<'a>(reader: &mut Reader<'a>) -> Option<Message<'a>> {
    reader.message().ok().filter(|head| head.kind == MessageKind::Call)
}

/// Returns the call whose frame begins with `input`, and its key if there is one.
fn beginning(input: &[u8]) -> Option<(Call, Option<&[u8]>)> {
    let message = input.get(FRAME_HEAD_BYTES..)?;
    let mut reader = Reader::new(message, message.len());
    let head = call_head(&mut reader)?;
    let function = Memcached.find(head.name)?;
    let mut arguments = Arguments::default();
    // The arguments end where the input does.
    let _ = arguments.read(&mut reader, function);
    let key = arguments.key.filter(|key| is_key(key));
    Some((Call { function, sequence: head.sequence }, key))
}

/// The arguments of a call, in place. Each has the same number in all functions.
#[derive(Default)]
struct Arguments<'a> {
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    client_flags: i32,
    expiry_s: i32,
    cas: Option<i64>,
    delta: Option<i64>,
    delay_s: i32,
    page: &'a [u8],
    keys: Option<Strings<'a>>,
}

/// What a call asks for.
enum Called<'a> {
    /// A command, with its value if it has one.
    Command(Command<'a>, Option<&'a [u8]>),
    /// A get of many keys.
    Many(Strings<'a>),
}

/// Why a call is not served.
enum Refused<'a> {
    /// A required argument is missing.
    Malformed,
    /// The status for the client, and the key of an item to remove.
    Status(Status, Option<&'a [u8]>),
}

impl<'a> Arguments<'a> {
    /// Reads the fields up to the end of a call of `function`. After an error, the fields in front of it were read.
    /// There are limits on what is read in one go, because a call may be as long as a value.
    fn read(&mut self, reader: &mut Reader<'a>, function: u32) -> Result<(), Code> {
        let mut skipped_bytes_left = SHORT_CALL_BYTES_MAX;
        for _ in 0..FIELDS_MAX {
            match reader.field()? {
                (kind::STOP, _) => return reader.end(),
                (kind::STRING, 1) => self.key = Some(reader.string()?),
                (kind::STRING, 2) => self.value = Some(reader.string()?),
                (kind::I32, 3) => self.client_flags = reader.i32()?,
                (kind::I32, 4) => self.expiry_s = reader.i32()?,
                (kind::I64, 5) => self.cas = Some(reader.i64()?),
                (kind::I64, 6) => self.delta = Some(reader.i64()?),
                (kind::I32, 7) => self.delay_s = reader.i32()?,
                (kind::STRING, 8) => self.page = reader.string()?,
                (kind::LIST, 9) if function == Memcached::GET_MANY => {
                    self.keys = Some(Strings::read(reader)?);
                }
                (kind::STRING, _) => reader.skip(kind::STRING)?,
                (other, _) => skipped_bytes_left -= reader.skip_up_to(other, skipped_bytes_left)?,
            }
        }
        Err(Code::Oversized)
    }

    /// Returns what a call of `function` asks for.
    fn called(self, function: u32, limits: &Limits) -> Result<Called<'a>, Refused<'a>> {
        let Self { expiry_s, delay_s, page, .. } = self;
        let plain = |command| Ok(Called::Command(command, None));
        match function {
            Memcached::GET_MANY => {
                let keys = self.keys.ok_or(Refused::Malformed)?;
                match keys.are_keys {
                    true => return Ok(Called::Many(keys)),
                    false => return Err(Refused::Status(Status::InvalidArguments, None)),
                }
            }
            Memcached::FLUSH_ALL => return plain(Command::Flush { delay_s }),
            Memcached::VERSION => return plain(Command::Version),
            Memcached::STATS => return plain(Command::Stat { page }),
            _ => {}
        }
        let key = self.key.ok_or(Refused::Malformed)?;
        let is_refused = !is_key(key);
        let checked = |command| match is_refused {
            true => Err(Refused::Status(Status::InvalidArguments, None)),
            false => plain(command),
        };
        match function {
            Memcached::GET | Memcached::GETS => {
                checked(Command::Get { key, with_key: false, touch_exptime_s: None })
            }
            Memcached::GET_AND_TOUCH => {
                checked(Command::Get { key, with_key: false, touch_exptime_s: Some(expiry_s) })
            }
            Memcached::DELETE => checked(Command::Delete { key, cas: 0 }),
            Memcached::TOUCH => checked(Command::Touch { key, exptime_s: expiry_s }),
            Memcached::INCREMENT | Memcached::DECREMENT => {
                checked(Command::Arithmetic(self.arithmetic(key, function)?))
            }
            _ => {
                let verb = value_verb(function).ok_or(Refused::Malformed)?;
                self.store(key, verb, limits)
            }
        }
    }

    fn arithmetic(&self, key: &'a [u8], function: u32) -> Result<Arithmetic<'a>, Refused<'a>> {
        let delta = self.delta.ok_or(Refused::Malformed)?;
        // A negative number would be taken for one above 2^63.
        let delta = u64::try_from(delta);
        let delta = delta.map_err(|_| Refused::Status(Status::InvalidArguments, None))?;
        let direction = match function {
            Memcached::INCREMENT => Direction::Increment,
            _ => Direction::Decrement,
        };
        Ok(Arithmetic { direction, key, delta, initial: 0, exptime_s: None, cas: 0 })
    }

    fn store(
        self,
        key: &'a [u8],
        verb: StoreVerb,
        limits: &Limits,
    ) -> Result<Called<'a>, Refused<'a>> {
        let value = self.value.ok_or(Refused::Malformed)?;
        let cas = match (verb, self.cas) {
            // In a packet, 0 means any version. No item has either of the two.
            (StoreVerb::Cas, Some(0)) => u64::MAX,
            (StoreVerb::Cas, Some(cas)) => cas as u64,
            (StoreVerb::Cas, None) => return Err(Refused::Malformed),
            _ => 0,
        };
        if !is_key(key) {
            return Err(Refused::Status(Status::InvalidArguments, None));
        }
        let client_flags = self.client_flags as u32;
        if !limits.fit(key.len(), client_flags, value.len()) {
            let unlink = (verb == StoreVerb::Set).then_some(key);
            return Err(Refused::Status(Status::TooLarge, unlink));
        }
        let (exptime_s, value_bytes) = (self.expiry_s, value.len());
        let store = Store { verb, key, client_flags, exptime_s, value_bytes, cas };
        Ok(Called::Command(Command::Store(store), Some(value)))
    }
}

/// Returns the verb of a function that stores a value.
const fn value_verb(function: u32) -> Option<StoreVerb> {
    Some(match function {
        Memcached::SET => StoreVerb::Set,
        Memcached::ADD => StoreVerb::Add,
        Memcached::REPLACE => StoreVerb::Replace,
        Memcached::APPEND => StoreVerb::Append,
        Memcached::PREPEND => StoreVerb::Prepend,
        Memcached::CAS => StoreVerb::Cas,
        _ => return None,
    })
}

fn is_key(key: &[u8]) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len())
}

/// A list of strings, in place.
#[derive(Clone)]
struct Strings<'a> {
    reader: Reader<'a>,
    left: usize,
    /// Whether each string has the length of a key.
    are_keys: bool,
}

impl<'a> Strings<'a> {
    /// Reads a list, and checks that it is one of whole strings.
    fn read(reader: &mut Reader<'a>) -> Result<Self, Code> {
        let left = reader.list(kind::STRING)?;
        let mut strings = Self { reader: reader.clone(), left, are_keys: true };
        for _ in 0..left {
            strings.are_keys &= is_key(reader.string()?);
        }
        Ok(strings)
    }
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        self.reader.string().ok()
    }
}

/// The length of the part of a frame that is read before anything is decided about the rest (bytes). It holds the
/// message's head and the key of a call.
const BEGINNING_BYTES: usize = LINE_BYTES_MAX;

/// The length of a call without its value (bytes).
const SHORT_CALL_BYTES_MAX: usize = BEGINNING_BYTES;

/// The length of the longest call without a value (bytes): a get of many keys, which may be as long as a line of keys.
const KEYS_BYTES_MAX: usize = GET_LINE_BYTES_MAX;

/// The most fields that are read of one call. No function has as many arguments.
const FIELDS_MAX: usize = 64;

/// The length of the longest answer to a get of many keys (bytes). Thrift's own clients read no longer frames unless
/// they are told to.
const ANSWER_BYTES_MAX: usize = 16_000_000;

/// The length of the longest name of a function that an exception repeats (bytes).
const NAME_BYTES_MAX: usize = 256;

/// More than an application exception has (bytes).
const EXCEPTION_BYTES_MAX: usize = 2 * NAME_BYTES_MAX;

#[cfg(test)]
mod tests {
    use rpc::call;

    use super::*;

    /// Returns the frame of a call with these arguments by slot.
    fn framed(function: u32, strings: &[(usize, &[u8])], numbers: &[(usize, u64)]) -> Vec<u8> {
        let mut frame = vec![0; 4_096];
        let length = call::frame(&Memcached, function, 7, &mut frame, |args| {
            let block = args.block(strings.len() + numbers.len())?;
            for (slot, bytes) in strings {
                args.set_bytes(block, *slot, bytes)?;
            }
            numbers.iter().for_each(|(slot, number)| args.set(block, *slot, *number));
            Ok(block)
        });
        frame.truncate(length.expect("it fits"));
        frame
    }

    fn read(frame: &[u8]) -> Result<(u32, Arguments<'_>), Code> {
        let mut reader = Reader::framed(frame, frame.len())?;
        let head = call_head(&mut reader).ok_or(Code::Malformed)?;
        let function = Memcached.find(head.name).ok_or(Code::UnknownFunction)?;
        let mut arguments = Arguments::default();
        arguments.read(&mut reader, function)?;
        Ok((function, arguments))
    }

    #[test]
    fn arguments_are_where_the_generated_code_writes_them() {
        let frame =
            framed(Memcached::CAS, &[(0, b"key"), (1, b"value")], &[(2, 3), (3, 4_000), (4, 5)]);
        let (function, arguments) = read(&frame).expect("a call");
        let called = arguments.called(function, &Limits::default());
        let Ok(Called::Command(Command::Store(store), Some(b"value"))) = called else {
            panic!("no store with a value");
        };
        let expected = Store {
            verb: StoreVerb::Cas,
            key: b"key",
            client_flags: 3,
            exptime_s: 4_000,
            value_bytes: 5,
            cas: 5,
        };
        assert_eq!(store, expected);
        let frame = framed(Memcached::DECREMENT, &[(0, b"n")], &[(1, 9)]);
        let (function, arguments) = read(&frame).expect("a call");
        let called = arguments.called(function, &Limits::default());
        let Ok(Called::Command(Command::Arithmetic(arithmetic), None)) = called else {
            panic!("no arithmetic");
        };
        assert_eq!((arithmetic.direction, arithmetic.delta), (Direction::Decrement, 9));
    }

    #[test]
    fn calls_without_their_key_are_malformed() {
        for function in 0..Memcached::STATS {
            if function == Memcached::FLUSH_ALL || function == Memcached::VERSION {
                continue;
            }
            let called = Arguments::default().called(function, &Limits::default());
            assert!(matches!(called, Err(Refused::Malformed)), "{function}");
        }
    }

    #[test]
    fn keys_of_a_wrong_length_are_refused() {
        for (key, is_refused) in [(&[b'k'; 250][..], false), (&[b'k'; 251], true), (b"", true)] {
            let frame = framed(Memcached::GET, &[(0, key)], &[]);
            let (function, arguments) = read(&frame).expect("a call");
            let called = arguments.called(function, &Limits::default());
            assert_eq!(called.is_err(), is_refused, "{} bytes", key.len());
        }
    }

    #[test]
    fn the_beginning_of_a_frame_tells_the_call_and_its_key() {
        let frame = framed(Memcached::SET, &[(0, b"key"), (1, &[b'v'; 500])], &[]);
        let (call, key) = beginning(&frame[..60]).expect("a call");
        assert_eq!((call.function, call.sequence, key), (Memcached::SET, 7, Some(&b"key"[..])));
        assert!(beginning(b"GET / HTTP/1.1\r\nHost: cache\r\n\r\n").is_none());
    }
}
