//! What a seed stands for: a deployment, its clients and its faults.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use units::Prng;

use crate::accelerator::Trouble;
use crate::client::{ASKED_BYTES_MAX, Habits, Hostile, PATIENCE};
use crate::disk::DiskTrouble;
use crate::history::Rules;
use crate::network::{GIVEN_UP_AFTER, Weather};

/// A run, as drawn from a seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// The servers.
    pub deployment: Deployment,
    /// The number of well-behaved clients.
    pub clients: usize,
    /// What they do.
    pub habits: Habits,
    /// The faults, in the order of their times.
    pub faults: Vec<Fault>,
}

/// The servers of a run.
#[derive(Clone, Copy, Debug)]
pub struct Deployment {
    /// The servers that clients connect to.
    pub frontends: usize,
    /// The workers of each of them.
    pub workers: usize,
    /// The memcached servers of the ring. Without any, the frontend has an embedded store.
    pub servers: usize,
    /// What the keys of a lost server get.
    pub lost_keys: LostKeys,
    /// True if the embedded store has so little memory that it evicts.
    pub is_small: bool,
    /// The smallest value that is compressed (bytes).
    pub compress_bytes_min: u64,
    /// The values in flight of each worker, see `runtime.inflight_bytes_max` (bytes).
    pub inflight_bytes_max: u64,
    /// The smallest value that is offloaded (bytes), if each frontend has an accelerator.
    pub offload_bytes_min: Option<u64>,
    /// What is done with values.
    pub path: ValuePath,
    /// True if the embedded store saves its items to a file when it ends in order.
    pub keeps_items: bool,
}

/// What is done with values on their way to the store, see `values.path`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuePath {
    /// They are compressed.
    Compress,
    /// They are compressed and sealed.
    Seal,
    /// They are sealed as they came.
    SealOnly,
}

/// What the keys of a lost server get, see `store.lost_keys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostKeys {
    /// An error.
    Error,
    /// A miss for gets.
    Miss,
    /// The next server.
    Next,
}

/// Something that goes wrong.
#[derive(Clone, Debug)]
pub struct Fault {
    /// When it begins (ms). A fault of the network's weather is there all the time.
    pub at_ms: u64,
    /// What goes wrong.
    pub kind: FaultKind,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// This share of reads returns a part of what has arrived.
    ShortReads(f64),
    /// This share of writes takes a part of what there is room for.
    ShortWrites(f64),
    /// This share of writes takes nothing at first.
    BlockedWrites(f64),
    /// This share of segments is late, by at most so many ms.
    Delays(f64, u64),
    /// Connections hold this many bytes.
    Window(usize),
    /// Connections to servers of the ring carry so many bytes per ms in each direction.
    SlowStores(u64),
    /// The connections of a link are reset.
    Reset(Link),
    /// The connections of a link are lost without a word.
    Lose(Link),
    /// Nothing arrives on a link for a time (ms), in one direction or in both.
    Cut(Link, u64, bool),
    /// A server is killed, and starts again after a time (ms).
    Kill(Server, u64),
    /// A frontend drains, saves its items if it keeps them, ends, and starts again after a time (ms). Meanwhile
    /// something may happen to the file.
    Restart(usize, u64, FileDamage),
    /// A server's host loses its power, and starts again after a time (ms).
    PowerLoss(Server, u64),
    /// A server stops for a time (ms), and continues.
    Stop(Server, u64),
    /// A client disturbs a frontend.
    Hostile(Hostile, usize),
    /// The configuration is loaded again, with other time limits (ms).
    Reload(u64),
    /// The configuration is loaded again with a mistake in it, so that nothing may change.
    WrongReload(Mistake),
    /// A frontend uses a new dictionary for the values of most keys, as after a training.
    Train(usize, usize),
    /// A bit flips in each compressed value that a server of the ring has.
    FlipBits(usize),
    /// A server is taken from the list for a time (ms).
    Unlist(usize, u64),
    /// The accelerator of a frontend misbehaves for a time (ms).
    Accelerator(usize, Trouble, u64),
    /// The keys of sealed values are replaced: another key is added, and becomes the active one after a time (ms). The
    /// file with them is damaged in between.
    RotateKeys(u64),
    /// The rules about clients are read again from a damaged file, and after a time (ms) from a whole one. Nothing may
    /// change for clients.
    DamageRules(u64),
}

/// What happens to the file with the items of a store while the store is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileDamage {
    /// Nothing.
    None,
    /// Its end is cut off.
    CutOff,
    /// A bit is flipped.
    FlippedBit,
    /// It is removed.
    Removed,
    /// Nothing, but the disk fails while the store saves its items, and perhaps while it loads them.
    Disk(DiskTrouble),
}

/// A mistake in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The file ends too early.
    CutOff,
    /// A key is not known.
    UnknownKey,
    /// A value is out of range.
    OutOfRange,
    /// A value has another type.
    WrongType,
    /// A key cannot change without a restart.
    NeedsRestart,
    /// The store is of another kind.
    OtherStore,
    /// The file is not there.
    NoFile,
}

impl Mistake {
    /// Every kind.
    pub const ALL: [Mistake; 7] = [
        Mistake::CutOff,
        Mistake::UnknownKey,
        Mistake::OutOfRange,
        Mistake::WrongType,
        Mistake::NeedsRestart,
        Mistake::OtherStore,
        Mistake::NoFile,
    ];
}

impl FileDamage {
    /// Every kind.
    pub const ALL: [FileDamage; 4] =
        [FileDamage::None, FileDamage::CutOff, FileDamage::FlippedBit, FileDamage::Removed];
}

/// The hosts whose connections a fault is aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// A client that is no bystander, and a frontend.
    Client(usize, usize),
    /// A frontend and a server of the ring.
    Store(usize, usize),
}

/// A server that a fault is aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// A frontend.
    Frontend(usize),
    /// A server of the ring.
    Store(usize),
}

impl Scenario {
    /// Draws a run.
    pub fn draw(seed: u64) -> Self {
        let mut scenario = Self::draw_plain(seed);
        scenario.add_protocols();
        scenario.faults.sort_by_key(|fault| fault.at_ms);
        scenario
    }

    /// Draws a run of clients that speak text and do not log in.
    pub fn draw_plain(seed: u64) -> Self {
        let random = &mut Prng::new(seed);
        let is_ring = random.below(5) >= 2;
        let deployment = Deployment {
            frontends: if is_ring { 1 + random.below(2) as usize } else { 1 },
            workers: 1 + random.below(3) as usize,
            servers: if is_ring { 1 + random.below(3) as usize } else { 0 },
            lost_keys: match random.below(6) {
                0 => LostKeys::Miss,
                1 => LostKeys::Next,
                _ => LostKeys::Error,
            },
            is_small: !is_ring && random.below(6) == 0,
            compress_bytes_min: [64, 128, 1_000][random.below(3) as usize],
            inflight_bytes_max: [1, 4, 64][random.below(3) as usize] << 20,
            offload_bytes_min: match random.below(5) {
                0 => Some(100),
                1 => Some(2_000),
                _ => None,
            },
            path: match random.below(6) {
                0 => ValuePath::Seal,
                1 => ValuePath::SealOnly,
                _ => ValuePath::Compress,
            },
            keeps_items: !is_ring && random.below(2) == 0,
        };
        let clients = 2 + random.below(4) as usize;
        let habits = Habits {
            keys: 2 + random.below(6),
            first_key: 0,
            batches: 20 + random.below(50),
            batch_max: 1 + random.below(16),
            pause_max_ms: [0, 10, 100, 400][random.below(4) as usize],
            value_bytes_max: [300, 20_000, 200_000][random.below(3) as usize],
            expire: random.below(3) == 0,
            flush: random.below(4) == 0,
            packets: false,
            logs_in: false,
        };
        let mut scenario = Self { seed, deployment, clients, habits, faults: Vec::new() };
        for _ in 0..2 + random.below(6) {
            let fault = scenario.draw_fault(random);
            scenario.faults.push(fault);
        }
        scenario.add_flipped_bits();
        scenario.faults.sort_by_key(|fault| fault.at_ms);
        scenario
    }

    /// Adds a fault that came later. It has a generator of its own, so that the other seeds stand for what they did.
    fn add_flipped_bits(&mut self) {
        let random = &mut Prng::new(self.seed ^ FLIPS_SEED);
        let is_meant = self.deployment.servers > 0 && self.deployment.path == ValuePath::Compress;
        if is_meant && random.below(8) == 0 {
            let store = random.below(self.deployment.servers as u64) as usize;
            let at_ms = random.below(LAST_FAULT_MS);
            self.faults.push(Fault { at_ms, kind: FaultKind::FlipBits(store) });
        }
    }

    /// Adds the binary protocol, logins and onlookers, which came later, too, with draws of their own.
    fn add_protocols(&mut self) {
        let random = &mut Prng::new(self.seed ^ PROTOCOLS_SEED);
        self.habits.packets = random.below(5) == 0;
        self.habits.logs_in = random.below(8) == 0;
        let (at_ms, time_ms) = (random.below(LAST_FAULT_MS), 1 + random.below(2_000));
        if self.habits.logs_in && random.below(2) == 0 {
            self.faults.push(Fault { at_ms, kind: FaultKind::DamageRules(time_ms) });
        }
        if random.below(8) == 0 {
            let onlooker = Hostile::ONLOOKERS[random.below(3) as usize];
            let frontend = random.below(self.deployment.frontends as u64) as usize;
            self.faults.push(Fault { at_ms, kind: FaultKind::Hostile(onlooker, frontend) });
        }
    }

    fn draw_fault(&self, random: &mut Prng) -> Fault {
        let at_ms = random.below(LAST_FAULT_MS);
        let share = 0.05 + random.unit() * 0.9;
        let time_max_ms = [50, 1_000, 6_000][random.below(3) as usize];
        let time_ms = 1 + random.below(time_max_ms);
        if let Some(kind) = self.draw_own_fault(random, time_ms) {
            return Fault { at_ms, kind };
        }
        let kind = match random.below(if self.deployment.servers > 0 { 18 } else { 15 }) {
            0 => FaultKind::ShortReads(share),
            1 => FaultKind::ShortWrites(share),
            2 => FaultKind::BlockedWrites(share / 2.0),
            3 => FaultKind::Delays(share, 1 + random.below(100)),
            4 => FaultKind::Window(1 << (4 + random.below(12))),
            5 => FaultKind::Reset(self.draw_link(random)),
            6 => FaultKind::Lose(self.draw_link(random)),
            7 => FaultKind::Cut(self.draw_link(random), time_ms, random.below(2) == 0),
            8 => FaultKind::Kill(self.draw_server(random), time_ms),
            9 => FaultKind::PowerLoss(self.draw_server(random), time_ms),
            10 => FaultKind::Stop(self.draw_server(random), time_ms),
            11 | 12 => FaultKind::Hostile(
                Hostile::ATTACKERS[random.below(Hostile::ATTACKERS.len() as u64) as usize],
                random.below(self.deployment.frontends as u64) as usize,
            ),
            13 => FaultKind::WrongReload(
                Mistake::ALL[random.below(Mistake::ALL.len() as u64) as usize],
            ),
            14 => {
                let frontend = random.below(self.deployment.frontends as u64) as usize;
                FaultKind::Train(frontend, random.below(DICTIONARIES as u64) as usize)
            }
            15 => FaultKind::Reload(100 + random.below(2_000)),
            16 => FaultKind::SlowStores(200 + random.below(2_000)),
            _ => FaultKind::Unlist(random.below(self.deployment.servers as u64) as usize, time_ms),
        };
        let is_weather = matches!(
            kind,
            FaultKind::ShortReads(_)
                | FaultKind::ShortWrites(_)
                | FaultKind::BlockedWrites(_)
                | FaultKind::Delays(..)
                | FaultKind::Window(_)
                | FaultKind::SlowStores(_)
        );
        Fault { at_ms: if is_weather { 0 } else { at_ms }, kind }
    }

    /// Draws a fault of something that only some deployments have.
    fn draw_own_fault(&self, random: &mut Prng, time_ms: u64) -> Option<FaultKind> {
        if self.deployment.offload_bytes_min.is_some() && random.below(3) == 0 {
            let frontend = random.below(self.deployment.frontends as u64) as usize;
            let trouble = Trouble::ALL[random.below(Trouble::ALL.len() as u64) as usize];
            return Some(FaultKind::Accelerator(frontend, trouble, time_ms));
        }
        if self.deployment.path != ValuePath::Compress && random.below(6) == 0 {
            return Some(FaultKind::RotateKeys(time_ms));
        }
        if random.below(if self.deployment.keeps_items { 3 } else { 16 }) > 0 {
            return None;
        }
        let damage = match random.below(6) {
            kind @ 1..4 if self.deployment.keeps_items => FileDamage::ALL[kind as usize],
            4 if self.deployment.keeps_items => {
                let all = DiskTrouble::ALL;
                FileDamage::Disk(all[random.below(all.len() as u64) as usize])
            }
            _ => FileDamage::None,
        };
        let frontend = random.below(self.deployment.frontends as u64) as usize;
        Some(FaultKind::Restart(frontend, time_ms, damage))
    }

    fn draw_link(&self, random: &mut Prng) -> Link {
        let frontend = random.below(self.deployment.frontends as u64) as usize;
        if self.deployment.servers > 0 && random.below(2) == 0 {
            return Link::Store(frontend, random.below(self.deployment.servers as u64) as usize);
        }
        Link::Client(random.below(self.victims() as u64) as usize, frontend)
    }

    fn draw_server(&self, random: &mut Prng) -> Server {
        if self.deployment.servers > 0 && random.below(2) == 0 {
            return Server::Store(random.below(self.deployment.servers as u64) as usize);
        }
        Server::Frontend(random.below(self.deployment.frontends as u64) as usize)
    }

    /// Returns the number of clients at which faults may be aimed. The others are bystanders.
    pub fn victims(&self) -> usize {
        (self.clients / 2).max(1)
    }

    /// Keeps only the faults with these indexes.
    pub fn keep_faults(&mut self, kept: &[usize]) {
        let mut index = 0;
        self.faults.retain(|_| {
            index += 1;
            kept.contains(&(index - 1))
        });
    }

    /// Returns the kinds of things that this run has: of its deployment, and of its faults.
    pub fn kinds(&self) -> BTreeSet<String> {
        let deployment = &self.deployment;
        let mut kinds = BTreeSet::from([
            format!("{} servers of {} frontends", deployment.servers, deployment.frontends),
            format!("{} workers", deployment.workers),
            format!("{:?}", deployment.path),
        ]);
        let habits = [(self.habits.packets, "packets"), (self.habits.logs_in, "logins")];
        kinds.extend(habits.iter().filter(|(has, _)| *has).map(|(_, name)| (*name).to_owned()));
        match deployment.servers {
            0 if deployment.is_small => kinds.insert("little memory".to_owned()),
            0 => false,
            _ => kinds.insert(format!("lost keys: {:?}", deployment.lost_keys)),
        };
        // The numbers of a fault are no part of its kind.
        let letters = |kind: &FaultKind| {
            let text = format!("{kind:?}");
            text.chars().filter(|letter| letter.is_ascii_alphabetic() || *letter == '(').collect()
        };
        kinds.extend(self.faults.iter().map(|fault| -> String { letters(&fault.kind) }));
        kinds
    }

    /// Returns a measure of the work that the run takes.
    pub fn work(&self) -> u64 {
        let habits = &self.habits;
        let requests = self.clients as u64 * habits.batches * habits.batch_max;
        let is_costly = |kind: &FaultKind| match kind {
            FaultKind::Hostile(kind, _) => kind.holds_memory() || *kind == Hostile::Greedy,
            _ => false,
        };
        let hostile = if self.has(is_costly) { 10_000 } else { 0 };
        1_000 + hostile + requests * (1 + habits.value_bytes_max / 10_000)
    }

    /// Returns the weather that the faults make.
    pub fn weather(&self) -> Weather {
        let mut weather = Weather { window_bytes: 64 << 10, ..Weather::default() };
        for fault in &self.faults {
            match fault.kind {
                FaultKind::ShortReads(share) => weather.short_reads = share,
                FaultKind::ShortWrites(share) => weather.short_writes = share,
                FaultKind::BlockedWrites(share) => weather.blocked_writes = share,
                FaultKind::Delays(share, most_ms) => {
                    weather.delayed = share;
                    weather.delay_max_ms = most_ms;
                }
                FaultKind::Window(bytes) => weather.window_bytes = bytes,
                FaultKind::SlowStores(rate) => weather.store_bytes_per_ms = Some(rate),
                _ => {}
            }
        }
        weather
    }

    fn has(&self, is_meant: impl Fn(&FaultKind) -> bool) -> bool {
        self.faults.iter().any(|fault| is_meant(&fault.kind))
    }

    fn ends_servers(&self) -> bool {
        self.has(|kind| matches!(kind, FaultKind::Kill(..) | FaultKind::PowerLoss(..)))
    }

    /// Returns whether a dictionary may be lost before the values that need it. A flush removes dictionaries, too, and
    /// frontends store them again within two seconds if they still run.
    pub fn may_lose_dictionaries(&self) -> bool {
        let ends = |kind: &FaultKind| matches!(kind, FaultKind::Restart(..) | FaultKind::Stop(..));
        let is_away = |kind: &FaultKind| {
            matches!(kind, FaultKind::Unlist(..) | FaultKind::Cut(..) | FaultKind::Lose(_))
        };
        self.has(|kind| matches!(kind, FaultKind::Train(..)))
            && (self.habits.flush || self.ends_servers() || self.has(ends) || self.has(is_away))
    }

    /// Returns whether an accelerator returns wrong results.
    pub fn has_lies(&self) -> bool {
        self.has(|kind| matches!(kind, FaultKind::Accelerator(_, Trouble::Lies, _)))
    }

    /// Returns whether values are damaged where they are stored.
    pub fn has_flipped_bits(&self) -> bool {
        self.has(|kind| matches!(kind, FaultKind::FlipBits(_)))
    }

    /// Returns the most wrong results that a frontend may get before it stops to use its accelerator: what opens the
    /// breaker, what is in the accelerator then, and what probes bring back.
    pub fn wrong_results_max(&self, frontend: usize) -> u64 {
        let lies = |fault: &&Fault| match fault.kind {
            FaultKind::Accelerator(at, Trouble::Lies, _) => at == frontend,
            _ => false,
        };
        let times = self.faults.iter().filter(lies).count() as u64;
        times * (WRONG_RESULTS_MAX + 8 * self.deployment.workers as u64)
    }

    /// Returns what the history may show.
    pub fn rules(&self) -> Rules {
        let deployment = &self.deployment;
        let is_ring = deployment.servers > 0;
        Rules {
            // What a lying accelerator wrote before it was found out cannot be read.
            items_may_vanish: deployment.is_small
                || self.has_lies()
                || self.has_flipped_bits()
                || self.may_lose_dictionaries(),
            misses_may_lie: is_ring && deployment.lost_keys != LostKeys::Error,
            // A value that finds no memory is read again when there is some.
            reads_may_swap: is_ring,
            // It stays if the connection to its server is lost before it is removed.
            unreadable_may_stay: self.has_flipped_bits(),
            cas_may_repeat: self.ends_servers(),
            requests_stay_in_order: !is_ring,
            old_items_may_return: is_ring
                && (deployment.lost_keys == LostKeys::Next
                    || self.has(|kind| matches!(kind, FaultKind::Unlist(..)))),
        }
    }

    /// Returns whether bystanders must get an answer to every request, which is no error.
    pub fn must_answer_bystanders(&self) -> bool {
        if self.ends_servers() || self.has(|kind| matches!(kind, FaultKind::Restart(..))) {
            return false;
        }
        // Who waits too long for memory is refused, and a slow store keeps each part of it for longer.
        let holds_memory = |kind: &FaultKind| match kind {
            FaultKind::Hostile(hostile, _) => hostile.holds_memory(),
            _ => false,
        };
        if self.has(holds_memory) && self.weather().store_bytes_per_ms.is_some() {
            return false;
        }
        let is_of_stores = |kind: &FaultKind| match kind {
            FaultKind::Reset(link) | FaultKind::Lose(link) | FaultKind::Cut(link, ..) => {
                matches!(link, Link::Store(..))
            }
            FaultKind::Stop(..) | FaultKind::Reload(_) | FaultKind::Unlist(..) => true,
            _ => false,
        };
        let network_ms = self.segments_max() * self.network_ms();
        network_ms < PATIENCE.as_millis() as u64
            && (self.deployment.servers == 0 || !self.has(is_of_stores) && self.has_fast_network())
    }

    /// Returns the most segments of a batch. Each one waits for room, and for the delays of the segments before it.
    fn segments_max(&self) -> u64 {
        self.batch_bytes_max() / self.weather().window_bytes.max(1) as u64 + 20
    }

    /// Returns the most bytes of the values of a batch.
    fn batch_bytes_max(&self) -> u64 {
        self.habits.batch_max * (self.habits.value_bytes_max + 500)
    }

    /// Returns the longest time that a segment takes (ms).
    pub fn network_ms(&self) -> u64 {
        match self.weather().delay_max_ms {
            0 => 2,
            delay_max_ms => 3 * delay_max_ms,
        }
    }

    /// Returns whether the network is so fast that no time limit ends without a reason.
    fn has_fast_network(&self) -> bool {
        let weather = self.weather();
        let is_late = weather.delay_max_ms > 0 || weather.blocked_writes > 0.0;
        !is_late || weather.delay_max_ms <= 20 && weather.window_bytes >= 16 << 10
    }

    /// Returns the time after which every connection without a user is closed.
    pub fn end_max(&self) -> Duration {
        // A host that loses its power leaves connections that nobody ends, too.
        let is_lost =
            |kind: &FaultKind| matches!(kind, FaultKind::Lose(_) | FaultKind::PowerLoss(..));
        let system = if self.has(is_lost) { GIVEN_UP_AFTER } else { Duration::ZERO };
        // Values that were asked for still come from the store, whether anybody takes them or not.
        let never_reads =
            |kind: &FaultKind| matches!(kind, FaultKind::Hostile(Hostile::NeverReaders, _));
        let begun = match self.deployment.servers > 0 && self.has(never_reads) {
            true => Duration::from_millis(ASKED_BYTES_MAX / self.store_bytes_per_ms()),
            false => Duration::ZERO,
        };
        VALUE_MAX + system + begun
    }

    /// Returns the least that a store sends in a millisecond: a window for each trip, if it is not slow by itself.
    fn store_bytes_per_ms(&self) -> u64 {
        let weather = self.weather();
        let by_window = weather.window_bytes as u64 / (1 + weather.delay_max_ms);
        weather.store_bytes_per_ms.map_or(by_window, |rate| rate.min(by_window)).max(1)
    }

    /// Returns the longest time that a bystander's requests may take.
    pub fn wait_max(&self) -> Duration {
        let weather = self.weather();
        let faults: u64 = self.faults.iter().map(|fault| fault.kind.hold_up_ms()).sum();
        let store = if self.deployment.servers > 0 { STORE_MS * self.habits.batch_max } else { 0 };
        // Those who ask for much are in front of a bystander's long values.
        let transfer = weather.store_bytes_per_ms.map_or(0, |rate| {
            let is_hostile = |fault: &&Fault| matches!(fault.kind, FaultKind::Hostile(..));
            let hostile = self.faults.iter().filter(is_hostile).count() as u64;
            let asked = self.clients as u64 * self.batch_bytes_max();
            (2 * asked + hostile * (self.deployment.inflight_bytes_max + GREEDY_BYTES)) / rate
        });
        let network = self.segments_max() * self.network_ms();
        Duration::from_millis(BASE_MS + faults + network + store + transfer)
    }
}

impl FaultKind {
    /// Returns the time for which the fault may hold everybody up (ms).
    fn hold_up_ms(self) -> u64 {
        match self {
            FaultKind::Kill(_, time_ms) => time_ms + 2_000,
            FaultKind::Restart(_, time_ms, _) => time_ms + 2_000 + DRAIN_MAX.as_millis() as u64,
            // The peer of a host without power waits for an answer that never comes.
            FaultKind::PowerLoss(_, time_ms) => time_ms + PATIENCE.as_millis() as u64,
            FaultKind::Stop(_, time_ms) | FaultKind::Cut(_, time_ms, _) => time_ms + 500,
            FaultKind::Reload(limit_ms) => 2 * limit_ms,
            FaultKind::Lose(_) | FaultKind::Unlist(..) => 2_000,
            // A job is kept until its time limit, and so is each probe.
            FaultKind::Accelerator(_, Trouble::Hangs | Trouble::Slow, time_ms) => time_ms + 4_000,
            // They lose their connections once others wait for the memory that they hold.
            FaultKind::Hostile(kind, _) if kind.holds_memory() => 6_000,
            _ => 0,
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.deployment)?;
        writeln!(
            f,
            "{} clients, {} of them bystanders",
            self.clients,
            self.clients - self.victims()
        )?;
        writeln!(f, "{:?}", self.habits)?;
        for (index, fault) in self.faults.iter().enumerate() {
            writeln!(f, "  fault {index} at {} ms: {:?}", fault.at_ms, fault.kind)?;
        }
        Ok(())
    }
}

/// Separates the draws of flipped bits from all others.
const FLIPS_SEED: u64 = 0x666c_6970_7065_6421;
/// Separates the draws of protocols, logins and onlookers from all others.
const PROTOCOLS_SEED: u64 = 0x7072_6f74_6f63_6f6c;
/// The dictionaries of which a training takes one.
pub const DICTIONARIES: usize = 4;
/// The longest drain of a frontend.
pub const DRAIN_MAX: Duration = Duration::from_secs(3);
/// The date at the start of each run.
pub const UNIX_S: u64 = 1_800_000_000;
/// The wrong results in a row after which an accelerator must not be used any more, and some that probes bring back.
const WRONG_RESULTS_MAX: u64 = 12;
/// The time before which all faults begin (ms).
const LAST_FAULT_MS: u64 = 4_000;
/// The time after which the server gives up a client that has begun a value and sends no more, and some more.
const VALUE_MAX: Duration = Duration::from_secs(70);
/// What a client that disturbs may have asked for at once (bytes).
const GREEDY_BYTES: u64 = 8 << 20;
/// The longest wait without any fault (ms).
const BASE_MS: u64 = 1_000;
/// The longest wait of a request for the stores: two time limits of an answer and one of a connection attempt (ms).
const STORE_MS: u64 = 2_500;
