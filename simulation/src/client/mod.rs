//! A well-behaved client: it sends requests, several at once on one connection, reads every answer, and records both.

mod hostile;
mod packets;
mod stream;
mod wire;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use units::Prng;

use crate::history::{Answer, Ask, Bytes, Moment, Record};
use crate::world::World;
pub use hostile::{ASKED_BYTES_MAX, Hostile, disturb};
pub use stream::Route;
use stream::Stream;
use wire::{Answers, Broken, Request, Style};

/// A well-behaved client.
pub struct Client {
    world: Rc<World>,
    number: usize,
    route: Route,
    /// The frontends, of which each connection takes one.
    frontends: Vec<String>,
    random: Prng,
    habits: Habits,
    /// True if no fault is aimed at this client, so that it must be served in time.
    is_bystander: bool,
    /// The CAS numbers that were seen last.
    cas: BTreeMap<String, u64>,
    /// The keys that were missed lately, which the client may add.
    missed: Vec<String>,
    values: u64,
    connections: u64,
    /// True if the current connection uses the binary protocol.
    speaks_packets: bool,
}

/// What clients do.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// The keys of each kind.
    pub keys: u64,
    /// The number of the first of them.
    pub first_key: u64,
    /// The batches of requests that each client sends.
    pub batches: u64,
    /// The longest batch.
    pub batch_max: u64,
    /// The longest pause between two batches (ms).
    pub pause_max_ms: u64,
    /// The largest value (bytes).
    pub value_bytes_max: u64,
    /// True if some items expire.
    pub expire: bool,
    /// True if a client sometimes deletes all items.
    pub flush: bool,
    /// True if half of the connections use the binary protocol.
    pub packets: bool,
    /// True if the servers know clients by their login.
    pub logs_in: bool,
}

pub(super) const REGISTER: &str = "reg:";
const COUNTER: &str = "cnt:";
const LIST: &str = "app:";
const SHARED: &str = "shr:";

/// A life that no run reaches the end of, and that is sent as a date (s).
const LONG_LIFE_S: u32 = 40 * 24 * 60 * 60;

/// The life of items that clients write together, of which no run reaches the end (s).
const SHARED_LIFE_S: u32 = 7_200;

/// The user and the password of clients that log in.
pub const USER: &str = "client";
/// See [`USER`].
pub const PASSWORD: &str = "not-a-secret";

/// Returns the login of a text client, which is answered `STORED`.
pub fn login_line() -> Vec<u8> {
    let login = format!("{USER} {PASSWORD}");
    format!("set login 0 0 {}\r\n{login}\r\n", login.len()).into_bytes()
}

/// The time after which a client gives a connection up.
pub const PATIENCE: Duration = Duration::from_secs(30);

impl Client {
    /// Makes a client with its own way to the servers.
    pub fn new(
        world: &Rc<World>,
        (number, route): (usize, Route),
        frontends: Vec<String>,
        seed: u64,
        habits: Habits,
        is_bystander: bool,
    ) -> Self {
        Self {
            world: Rc::clone(world),
            number,
            route,
            frontends,
            random: Prng::new(seed),
            habits,
            is_bystander,
            cas: BTreeMap::new(),
            missed: Vec::new(),
            values: 0,
            connections: 0,
            speaks_packets: false,
        }
    }

    /// Sends all batches, over as many connections as that takes.
    pub async fn run(mut self) {
        let mut left = self.habits.batches;
        while left > 0 {
            self.connections += 1;
            let at = self.random.below(self.frontends.len() as u64) as usize;
            let frontend = self.frontends[at].clone();
            let connecting = self.route.connect(&self.world.net, &frontend);
            let connected = tokio::time::timeout(PATIENCE, connecting).await;
            match connected {
                Ok(Ok(connection)) => left = self.converse(&connection, left).await,
                // A server that is away costs a batch too, so that every run ends.
                Ok(Err(_)) | Err(_) => left -= 1,
            }
            let pause_ms = 1 + self.random.below(100);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
        self.world.trace.note(format_args!("client {} is done", self.number));
    }

    /// Sends batches until the connection is given up, or there are no more. Returns how many are left.
    async fn converse(&mut self, connection: &Stream, mut left: u64) -> u64 {
        let mut answers = Answers::new(connection);
        self.speaks_packets = self.habits.packets && self.chance(2);
        if self.habits.logs_in {
            let begun = self.world.moment();
            let is_in = self.log_in(connection, &mut answers).await;
            self.note_wait(begun, usize::from(!is_in));
            if !is_in {
                return left.saturating_sub(1);
            }
        }
        // Some connections end in order, so that others begin.
        let most = 1 + self.random.below(12);
        for place in 0..most {
            if left == 0 {
                return 0;
            }
            left -= 1;
            let count = 1 + self.random.below(self.habits.batch_max);
            let batch: Vec<Request> = (0..count).map(|_| self.draw()).collect();
            if !self.exchange(connection, &mut answers, &batch, place).await {
                return left;
            }
            let pause_ms = self.random.below(self.habits.pause_max_ms + 1);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            if answers.has_more() {
                let number = self.number;
                self.world.problem(format!("client {number} got bytes that it did not ask for"));
                return left;
            }
        }
        left
    }

    /// Logs in. Returns whether that has succeeded.
    async fn log_in(&self, connection: &Stream, answers: &mut Answers<'_>) -> bool {
        let mut bytes = Vec::new();
        match self.speaks_packets {
            true => packets::write_login(&mut bytes),
            false => bytes.extend(login_line()),
        }
        let exchange = async {
            connection.write_all(&bytes).await?;
            match self.speaks_packets {
                true => answers.packet_of_login().await,
                false => answers.line_of_login().await,
            }
        };
        let ended = tokio::time::timeout(PATIENCE, exchange).await;
        match ended {
            Ok(Ok(())) => return true,
            Ok(Err(Broken::Wrong(what))) => {
                self.world.problem(format!("client {}: {what}", self.number));
            }
            Ok(Err(Broken::Ended(error))) => {
                let number = self.number;
                self.world.trace.note(format_args!("client {number} is not logged in: {error}"));
            }
            Err(_) => {
                self.world.trace.note(format_args!("client {} gives up its login", self.number));
            }
        }
        false
    }

    /// Sends a batch and reads its answers. Returns whether the connection can be used further.
    async fn exchange(
        &mut self,
        connection: &Stream,
        answers: &mut Answers<'_>,
        batch: &[Request],
        place: u64,
    ) -> bool {
        let begun = self.world.moment();
        let (bytes, records) = self.begin_all(connection, batch, (begun, place));
        let world = Rc::clone(&self.world);
        let mut answered = 0;
        let mut errors = 0;
        let (mut learnt, mut missed) = (Vec::new(), Vec::new());
        let exchange = async {
            let write = async { connection.write_all(&bytes).await.map_err(Broken::from) };
            let read = async {
                for (place, (request, records)) in batch.iter().zip(&records).enumerate() {
                    let got = answers.next(request, place).await?;
                    for ((index, answer), key) in records.iter().zip(got).zip(&request.keys) {
                        match answer {
                            Answer::Hit(_, Some(cas)) | Answer::Fetched(_, cas, _) => {
                                learnt.push((key.clone(), cas));
                            }
                            Answer::Unknown => errors += 1,
                            Answer::Miss
                                if request.ask == Ask::Get && key.starts_with(REGISTER) =>
                            {
                                missed.push(key.clone());
                            }
                            _ => {}
                        }
                        world.end(*index, answer);
                    }
                    answered += 1;
                }
                Ok(())
            };
            tokio::try_join!(write, read)
        };
        let ended = tokio::time::timeout(PATIENCE, exchange).await;
        self.cas.extend(learnt);
        self.missed = missed;
        self.note_wait(begun, batch.len() - answered + errors);
        if let Some(error) = answers.error.take() {
            self.world.trace.note(format_args!("client {} was told {error:?}", self.number));
            if self.is_bystander {
                self.world.last_error.replace(error);
            }
        }
        match ended {
            Ok(Ok(_)) => true,
            Ok(Err(Broken::Wrong(what))) => {
                self.world.problem(format!("client {}: {what}", self.number));
                false
            }
            Ok(Err(Broken::Ended(error))) => {
                let number = self.number;
                self.world.trace.note(format_args!("client {number} lost its connection: {error}"));
                false
            }
            Err(_) => {
                self.world.trace.note(format_args!("client {} gives up", self.number));
                false
            }
        }
    }

    /// Records that the requests of a batch begin. Returns their bytes, and the places of their records.
    fn begin_all(
        &self,
        connection: &Stream,
        batch: &[Request],
        (begun, place): (Moment, u64),
    ) -> (Vec<u8>, Vec<Vec<usize>>) {
        let mut bytes = Vec::new();
        let mut records = Vec::new();
        for (at, request) in batch.iter().enumerate() {
            request.write(at, &mut bytes);
            let pipeline = (connection.id(), place * 1_000 + at as u64);
            records.push(self.begin(request, begun, pipeline));
        }
        (bytes, records)
    }

    fn begin(&self, request: &Request, invoked: Moment, pipeline: (u64, u64)) -> Vec<usize> {
        let keys = request.keys.iter().map(|key| Some(key.clone()));
        let keys: Vec<Option<String>> =
            if request.keys.is_empty() { vec![None] } else { keys.collect() };
        let begin = |key| {
            self.world.begin(Record {
                client: self.number,
                key,
                ask: request.ask.clone(),
                exptime_s: request.exptime_s,
                answer: Answer::Unknown,
                invoked,
                returned: None,
                pipeline,
            })
        };
        keys.into_iter().map(begin).collect()
    }

    fn note_wait(&self, begun: Moment, unanswered: usize) {
        if !self.is_bystander {
            return;
        }
        let wait_ms = self.world.now_ms() - begun.at_ms;
        if wait_ms > self.world.longest_wait.get().0 {
            self.world.longest_wait.set((wait_ms, self.number));
        }
        self.world.unanswered.set(self.world.unanswered.get() + unanswered as u64);
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.random.below(one_in) == 0
    }

    fn key(&mut self, kind: &str) -> String {
        format!("{kind}{}", self.habits.first_key + self.random.below(self.habits.keys))
    }

    fn draw(&mut self) -> Request {
        let style = match self.random.below(3) {
            _ if self.speaks_packets => Style::Packets,
            0 => Style::Plain,
            1 => Style::Classic,
            _ => Style::Meta,
        };
        if self.habits.flush && self.chance(150) {
            return Request {
                keys: Vec::new(),
                ask: Ask::Flush,
                exptime_s: 0,
                unix_s: self.world.unix_s,
                style,
            };
        }
        match self.random.below(12) {
            0..6 => self.draw_register(style),
            6..8 => self.draw_counter(style),
            8..10 => self.draw_list(style),
            // Only meta commands work on these items together.
            _ if self.speaks_packets => self.draw_register(style),
            _ => self.draw_shared(),
        }
    }

    fn draw_register(&mut self, style: Style) -> Request {
        // What cannot be read is a miss, and an add replaces it.
        if let Some(key) = self.missed.pop()
            && self.chance(2)
        {
            let (ask, unix_s) = (Ask::Add(self.value()), self.world.unix_s);
            return Request { keys: vec![key], ask, exptime_s: 0, unix_s, style };
        }
        let key = self.key(REGISTER);
        let mut keys = vec![key.clone()];
        let mut exptime_s = 0;
        if self.habits.expire && self.chance(5) {
            exptime_s = 1 + self.random.below(4) as u32;
        } else if self.chance(10) {
            exptime_s = LONG_LIFE_S;
        }
        let ask = match self.random.below(20) {
            0..10 => {
                if style != Style::Meta && self.chance(3) {
                    for _ in 0..self.random.below(6) {
                        let other = self.key(REGISTER);
                        keys.push(other);
                    }
                }
                exptime_s = 0;
                Ask::Get
            }
            10..13 => Ask::Set(self.value()),
            13 => Ask::Add(self.value()),
            14 => Ask::Replace(self.value()),
            15..18 => match self.cas.get(&key).copied() {
                Some(cas) => Ask::Cas(self.value(), cas),
                None => Ask::Set(self.value()),
            },
            18 => Ask::Delete,
            _ => Ask::Touch,
        };
        Request { keys, ask, exptime_s, unix_s: self.world.unix_s, style }
    }

    fn draw_counter(&mut self, style: Style) -> Request {
        let keys = vec![self.key(COUNTER)];
        let ask = match self.random.below(10) {
            0..6 => Ask::Count(1 + self.random.below(3)),
            6 => Ask::Add(self.random.below(100).to_string().into_bytes().into()),
            7..9 => Ask::Get,
            _ if self.chance(6) => Ask::Delete,
            _ => Ask::Get,
        };
        Request { keys, ask, exptime_s: 0, unix_s: self.world.unix_s, style }
    }

    fn draw_list(&mut self, style: Style) -> Request {
        let keys = vec![self.key(LIST)];
        let mut exptime_s = 0;
        let ask = match self.random.below(10) {
            0..5 => Ask::Append(self.token()),
            // Long enough to be compressed.
            5 => {
                exptime_s = if self.chance(3) { LONG_LIFE_S } else { 0 };
                Ask::Add([&self.token()[..], &[b'.'; 150]].concat().into())
            }
            6..9 => Ask::Get,
            _ if self.chance(4) => Ask::Delete,
            _ => Ask::Get,
        };
        Request { keys, ask, exptime_s, unix_s: self.world.unix_s, style }
    }

    /// Draws a request about an item that one client at a time is told to write anew.
    fn draw_shared(&mut self) -> Request {
        let key = self.key(SHARED);
        let (ask, exptime_s) = match self.random.below(10) {
            0..6 => {
                let (vivifies, recaches) = (self.chance(2), self.chance(4));
                (Ask::Fetch { vivifies, recaches }, SHARED_LIFE_S)
            }
            6..8 => {
                let exptime_s = if self.chance(4) { 0 } else { SHARED_LIFE_S };
                match self.cas.get(&key).copied() {
                    Some(cas) if self.chance(2) => (Ask::Cas(self.value(), cas), exptime_s),
                    _ => (Ask::Set(self.value()), exptime_s),
                }
            }
            8 => (Ask::Invalidate, SHARED_LIFE_S),
            _ if self.chance(2) => (Ask::Delete, 0),
            _ => (Ask::Invalidate, SHARED_LIFE_S),
        };
        let unix_s = self.world.unix_s;
        Request { keys: vec![key], ask, exptime_s, unix_s, style: Style::Meta }
    }

    fn token(&mut self) -> Bytes {
        self.values += 1;
        format!("{}.{};", self.number, self.values).into_bytes().into()
    }

    /// Draws a value that no other request has: short, long, or hard to compress.
    fn value(&mut self) -> Bytes {
        let mut value = format!("value {} of client {} ", self.values, self.number).into_bytes();
        self.values += 1;
        let bytes_max = self.habits.value_bytes_max.max(1);
        let most = match self.random.below(8) {
            0..4 => 100,
            4..7 => 4_000.min(bytes_max),
            _ => bytes_max,
        };
        let bytes = self.random.below(most.max(1)) as usize;
        if self.chance(3) {
            let begun = value.len();
            value.resize(begun + bytes, 0);
            self.random.fill(&mut value[begun..]);
        } else {
            let words = b"a cache that compresses its values ".iter().copied().cycle();
            value.extend(words.take(bytes));
        }
        value.into()
    }
}
