//! The servers of a run: each is a process on its own host, which can be killed, stopped and started again.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use device::{Device, Software};
use server::config::{Sources, ValueOp};
use server::simulated::{Disk, Environment, SimulatedServer};
use server::{Config, Devices};
use tokio::time::timeout;
use units::{ByteCount, Prng};

use super::dictionaries;
use super::files::{AccessFile, ConfigFile, ItemFile, KeyFile};
use crate::accelerator::Accelerator;
use crate::disk::HostDisk;
use crate::memcached::{self, Memcached};
use crate::network::Host;
use crate::process::{HostClock, Process};
use crate::scenario::{
    DRAIN_MAX, Deployment, FileDamage, LostKeys, Mistake, Scenario, Server, UNIX_S, ValuePath,
};
use crate::world::World;

/// The servers of a run.
pub(super) struct Servers {
    world: Rc<World>,
    deployment: Deployment,
    seed: u64,
    frontends: RefCell<Vec<Frontend>>,
    stores: RefCell<Vec<Store>>,
    /// The accelerator on the host of each frontend. Only some deployments use them.
    accelerators: Vec<Arc<Accelerator>>,
    /// The keys of sealed values, where values are sealed.
    keys: Option<RefCell<KeyFile>>,
    /// The rules about clients, if these log in.
    rules: Option<AccessFile>,
    /// The file with the items of the embedded store, if it keeps them.
    items: Option<ItemFile>,
    /// The configuration that new frontends get.
    config: RefCell<Config>,
    listed: RefCell<Vec<bool>>,
    /// The file with the configuration that is loaded again.
    config_file: ConfigFile,
    disk: Arc<HostDisk>,
    /// True once the disk has been in trouble: what was saved may then not be loaded.
    was_disk_troubled: Cell<bool>,
    /// The frontends that did not start because of the disk, or of a file that is damaged.
    not_started: RefCell<BTreeSet<usize>>,
}

/// A memcached server of the ring.
struct Store {
    process: Process,
    model: Rc<RefCell<Memcached>>,
    /// The items in which a bit was flipped: their keys and CAS numbers.
    flipped: RefCell<Vec<(Vec<u8>, u64)>>,
}

struct Frontend {
    process: Process,
    /// `None` while the process is down.
    server: Option<SimulatedServer>,
}

impl Servers {
    /// Starts all servers.
    pub(super) fn start(world: &Rc<World>, scenario: &Scenario) -> Result<Self, String> {
        let deployment = scenario.deployment;
        let is_sealed = deployment.path != ValuePath::Compress;
        let keys = is_sealed.then(KeyFile::new).transpose();
        let keys = keys.map_err(|error| format!("no file for keys: {error}"))?;
        let rules = scenario.habits.logs_in.then(AccessFile::new).transpose();
        let rules = rules.map_err(|error| format!("no file for rules: {error}"))?;
        let items = deployment.keeps_items.then(ItemFile::new);
        let mut config = config(&deployment, keys.as_ref(), items.as_ref());
        config.server.access_file = rules.as_ref().map(|rules| rules.path().to_owned());
        let accelerator =
            |index: usize| Arc::new(Accelerator::new(scenario.seed ^ (index as u64 + 1) << 40));
        let servers = Self {
            world: Rc::clone(world),
            deployment,
            seed: scenario.seed,
            frontends: RefCell::default(),
            stores: RefCell::default(),
            accelerators: (0..deployment.frontends).map(accelerator).collect(),
            config: RefCell::new(config),
            items,
            rules,
            keys: keys.map(RefCell::new),
            listed: RefCell::new(vec![true; deployment.servers]),
            config_file: ConfigFile::new(),
            disk: Arc::default(),
            was_disk_troubled: Cell::new(false),
            not_started: RefCell::default(),
        };
        for store in 0..deployment.servers {
            let started = servers.start_store(store)?;
            servers.stores.borrow_mut().push(started);
        }
        servers.list_servers();
        for frontend in 0..deployment.frontends {
            let started = servers.start_frontend(frontend)?;
            servers.frontends.borrow_mut().push(started);
        }
        Ok(servers)
    }

    pub(super) fn addresses(&self) -> Vec<String> {
        (0..self.deployment.frontends).map(|index| frontend_host(index).memcached()).collect()
    }

    pub(super) fn count(&self) -> usize {
        self.deployment.frontends
    }

    fn start_store(&self, index: usize) -> Result<Store, String> {
        let host = store_host(index);
        let port = self.world.net.of_host(host).listen_here(&host.memcached());
        let port = port.map_err(|error| format!("store {index} cannot listen: {error}"))?;
        let since = tokio::time::Instant::now();
        let unix_s = (UNIX_S + self.world.now_ms() / 1_000) as i64;
        let model = Rc::<RefCell<Memcached>>::default();
        let serving = memcached::serve(port, Rc::clone(&model), since, unix_s);
        let (process, _) = Process::start(|| tokio::task::spawn_local(serving));
        Ok(Store { process, model, flipped: RefCell::default() })
    }

    fn start_frontend(&self, index: usize) -> Result<Frontend, String> {
        let host = frontend_host(index);
        let environment = Environment {
            network: self.world.net.of_host(host),
            disk: Arc::clone(&self.disk) as Arc<dyn Disk>,
            clock: Arc::new(HostClock::start()),
            unix_ms: UNIX_S * 1_000 + self.world.now_ms(),
            seed: self.seed.wrapping_add(index as u64),
        };
        let mut config = self.config.borrow().clone();
        config.server.listen = vec![host.memcached()];
        let mut all: Vec<Arc<dyn Device>> = vec![Arc::new(Software::default())];
        if self.deployment.offload_bytes_min.is_some() {
            all.push(Arc::clone(&self.accelerators[index]) as Arc<dyn Device>);
        }
        let devices = Devices { accelerators: all.len() - 1, all };
        let start = || SimulatedServer::start(&environment, config, devices);
        let (process, server) = Process::start(start);
        match server {
            Ok(server) => Ok(Frontend { process, server: Some(server) }),
            Err(error) => {
                process.kill();
                Err(format!("frontend {index} does not start: {error}"))
            }
        }
    }

    /// Ends a server at once. With `is_silent`, its peers are not told.
    pub(super) fn kill(&self, server: Server, is_silent: bool) {
        // What has ended already has nothing to lose.
        if !self.process(server).is_alive() {
            return;
        }
        self.world.net.set_silent(host(server), is_silent);
        match server {
            Server::Frontend(index) => {
                let mut frontends = self.frontends.borrow_mut();
                frontends[index].server = None;
                frontends[index].process.kill();
                if self.deployment.servers == 0 {
                    self.world.lose_items(true);
                }
            }
            Server::Store(index) => {
                self.stores.borrow()[index].process.kill();
                self.world.lose_items(self.deployment.servers == 1);
            }
        }
    }

    /// Starts a server that was killed, with the current configuration. A server that is up stays as it is.
    pub(super) fn restart(&self, server: Server) {
        self.world.net.set_silent(host(server), false);
        let started = match server {
            Server::Frontend(_) if self.process(server).is_alive() => return,
            Server::Frontend(index) => self
                .start_frontend(index)
                .map(|frontend| self.frontends.borrow_mut()[index] = frontend),
            Server::Store(index) => {
                self.start_store(index).map(|store| self.stores.borrow_mut()[index] = store)
            }
        };
        if let Err(problem) = started {
            self.world.trace.note(format_args!("{problem}"));
            if let Server::Frontend(index) = server {
                self.not_started.borrow_mut().insert(index);
            }
        }
    }

    /// Begins a trouble of the disk, if this is one.
    pub(super) fn begin_disk_trouble(&self, damage: FileDamage, seed: u64) {
        if let FileDamage::Disk(trouble) = damage {
            self.was_disk_troubled.set(true);
            let left_bytes = Prng::new(seed).below(FULL_DISK_BYTES_MAX) as usize;
            self.disk.set_trouble(Some(trouble), left_bytes);
        }
    }

    /// Ends a trouble of the disk.
    pub(super) fn end_disk_trouble(&self) {
        self.disk.set_trouble(None, 0);
        self.start_again();
    }

    /// Starts the frontends that did not start because of a file, as whoever watches over processes does.
    fn start_again(&self) {
        let not_started = std::mem::take(&mut *self.not_started.borrow_mut());
        for index in not_started {
            self.restart(Server::Frontend(index));
        }
    }

    /// Ends a frontend as an operator does. Its items are saved if it keeps them. Returns false if it is down, or has
    /// been killed meanwhile.
    pub(super) async fn end_in_order(&self, index: usize) -> bool {
        let (process, server) = {
            let frontend = &mut self.frontends.borrow_mut()[index];
            (frontend.process.clone(), frontend.server.take())
        };
        let Some(mut server) = server else { return false };
        server.drain(DRAIN_MAX).await;
        if !process.is_alive() {
            return false;
        }
        server.save_items();
        process.kill();
        let is_kept = self.items.as_ref().is_some_and(|items| items.path().exists());
        if self.deployment.servers == 0 && !is_kept {
            self.world.lose_items(true);
        } else if self.was_disk_troubled.get() {
            self.world.lose_items(false);
        }
        true
    }

    /// Does something to the file with the items of a frontend that is down.
    pub(super) fn damage_items(&self, index: usize, damage: FileDamage, seed: u64) {
        let Some(items) = &self.items else { return };
        match items.damage(damage, seed) {
            Ok(()) if matches!(damage, FileDamage::None | FileDamage::Disk(_)) => {}
            // A bit may be one that says nothing about items.
            Ok(()) => self.world.lose_items(damage != FileDamage::FlippedBit),
            Err(error) => {
                self.world.trace.note(format_args!("no items of frontend {index}: {error}"));
            }
        }
    }

    pub(super) fn stop(&self, server: Server) {
        self.process(server).stop();
    }

    pub(super) fn resume(&self, server: Server) {
        self.process(server).resume();
    }

    fn process(&self, server: Server) -> Process {
        match server {
            Server::Frontend(index) => self.frontends.borrow()[index].process.clone(),
            Server::Store(index) => self.stores.borrow()[index].process.clone(),
        }
    }

    pub(super) fn accelerator(&self, frontend: usize) -> &Accelerator {
        &self.accelerators[frontend]
    }

    /// Changes the file with the keys of sealed values, and has all frontends read it again.
    pub(super) fn change_keys(&self, change: impl FnOnce(&mut KeyFile) -> io::Result<()>) {
        let Some(keys) = &self.keys else { return };
        if let Err(error) = change(&mut keys.borrow_mut()) {
            self.world.problem(format!("the file with keys cannot be written: {error}"));
        }
        self.each(|_, server| server.reload_value_keys());
    }

    /// Returns whether clients have to log in.
    pub(super) fn knows_logins(&self) -> bool {
        self.rules.is_some()
    }

    /// Changes the file with the rules about clients, and has all frontends read it again.
    pub(super) fn change_rules(&self, change: impl FnOnce(&AccessFile) -> io::Result<()>) {
        let Some(rules) = &self.rules else { return };
        if let Err(error) = change(rules) {
            self.world.problem(format!("the file with rules cannot be written: {error}"));
        }
        self.each(|_, server| server.reload_access());
        self.start_again();
    }

    /// Returns whether none of the ring's servers can answer. Without a ring, there is nothing to answer.
    pub(super) fn are_stores_away(&self) -> bool {
        let stores = self.stores.borrow();
        let listed = self.listed.borrow();
        let mut used = stores.iter().zip(&*listed).filter(|(_, is_listed)| **is_listed).peekable();
        used.peek().is_some() && used.all(|(store, _)| !store.process.is_running())
    }

    /// Flips a bit of each compressed value that a server of the ring has.
    pub(super) fn flip_bits(&self, store: usize) {
        let store = &self.stores.borrow()[store];
        store.flipped.borrow_mut().extend(store.model.borrow_mut().flip_bits());
    }

    /// Returns the keys of the items in which a bit was flipped and that nobody has written since.
    pub(super) fn flipped(&self) -> Vec<Vec<u8>> {
        let stores = self.stores.borrow();
        let left = stores.iter().flat_map(|store| {
            let (model, flipped) = (store.model.borrow(), store.flipped.borrow());
            let is_left = |(key, cas): &&(Vec<u8>, u64)| model.cas(key) == Some(*cas);
            flipped.iter().filter(is_left).map(|(key, _)| key.clone()).collect::<Vec<_>>()
        });
        left.collect()
    }

    /// Returns whether the process of a frontend can do anything.
    pub(super) fn is_running(&self, frontend: usize) -> bool {
        self.frontends.borrow()[frontend].process.is_running()
    }

    /// Gives all frontends another time limit of requests to stores.
    pub(super) fn reload(&self, timeout_ms: u64) {
        self.config.borrow_mut().store.timeout_ms = timeout_ms;
        self.apply();
    }

    /// Has all frontends load a configuration with a mistake. Nothing may change.
    pub(super) fn reload_with(&self, mistake: Mistake) {
        if let Err(error) = self.config_file.write(mistake) {
            return self.world.problem(format!("no file for a configuration: {error}"));
        }
        let is_ring = self.deployment.servers > 0;
        self.each(|index, server| {
            let before = server.config();
            let sources = Sources {
                defaults: (*before).clone(),
                file: Some(self.config_file.path().to_owned()),
                flags: self.config_file.flags(mistake, is_ring),
                ..Sources::default()
            };
            match server.reload_from(&sources) {
                Ok(()) => {
                    self.world
                        .problem(format!("frontend {index} takes a configuration: {mistake:?}"));
                }
                Err(why) => self.world.trace.note(format_args!("frontend {index}: {why}")),
            }
            if server.config() != before {
                self.world.problem(format!("{mistake:?} has changed the configuration of {index}"));
            }
        });
    }

    /// Has a frontend use a dictionary for the values of registers, as after a training.
    pub(super) async fn train(&self, index: usize, dictionary: usize) {
        let adopted = {
            let frontends = self.frontends.borrow();
            let server = frontends[index].server.as_ref();
            // Tasks of a process end with it, so the frontend waits for itself.
            server.map(|server| server.adopt(b"reg:0", &dictionaries::trained(dictionary)))
        };
        let Some(adopted) = adopted else { return };
        let limit = timeout(TRAINING_MAX, adopted);
        let is_used = limit.await.unwrap_or(false);
        self.world.trace.note(format_args!("frontend {index} has a dictionary: {is_used}"));
    }

    /// Takes a server from the list of all frontends, or puts it back. One server stays in the list.
    pub(super) fn list(&self, server: usize, is_listed: bool) {
        self.listed.borrow_mut()[server] = is_listed;
        self.list_servers();
        self.apply();
    }

    fn list_servers(&self) {
        let listed = self.listed.borrow();
        let hosts = (0..listed.len()).filter(|index| listed[*index]);
        let hosts: Vec<String> = hosts.map(|index| store_host(index).memcached()).collect();
        if !hosts.is_empty() {
            self.config.borrow_mut().store.url = format!("memcached://{}", hosts.join(","));
        }
    }

    fn apply(&self) {
        for (index, frontend) in self.frontends.borrow().iter().enumerate() {
            let mut config = self.config.borrow().clone();
            config.server.listen = vec![frontend_host(index).memcached()];
            if let Some(server) = &frontend.server {
                server.reload(config);
            }
        }
    }

    /// Calls `look` with every frontend that is up.
    pub(super) fn each(&self, mut look: impl FnMut(usize, &SimulatedServer)) {
        for (index, frontend) in self.frontends.borrow().iter().enumerate() {
            if let Some(server) = &frontend.server {
                look(index, server);
            }
        }
    }
}

fn config(deployment: &Deployment, keys: Option<&KeyFile>, items: Option<&ItemFile>) -> Config {
    let mut config = Config::default();
    config.server.threads = deployment.workers;
    // The code that records requests runs for each.
    config.requests.sample_every = 1;
    config.compress.bytes_min = ByteCount(deployment.compress_bytes_min);
    config.store.lost_keys = match deployment.lost_keys {
        LostKeys::Error => server::config::LostKeys::Error,
        LostKeys::Miss => server::config::LostKeys::Miss,
        LostKeys::Next => server::config::LostKeys::Next,
    };
    config.runtime.inflight_bytes_max = ByteCount(deployment.inflight_bytes_max);
    if let Some(bytes) = deployment.offload_bytes_min {
        config.runtime.offload_bytes_min = ByteCount(bytes);
    }
    config.store.file = items.map(|items| items.path().to_owned());
    config.values.keys = keys.map(|keys| keys.path().to_owned());
    config.values.path = match deployment.path {
        ValuePath::Compress => vec![ValueOp::Compress],
        ValuePath::Seal => vec![ValueOp::Compress, ValueOp::Encrypt],
        ValuePath::SealOnly => vec![ValueOp::Encrypt],
    };
    config.store.memory = ByteCount::mib(if deployment.is_small { 2 } else { 64 });
    config
}

/// Returns the host of a frontend.
pub(super) fn frontend_host(index: usize) -> Host {
    Host(1 + index as u8)
}

/// Returns the host of a server of the ring.
pub(super) fn store_host(index: usize) -> Host {
    Host(11 + index as u8)
}

fn host(server: Server) -> Host {
    match server {
        Server::Frontend(index) => frontend_host(index),
        Server::Store(index) => store_host(index),
    }
}

/// The most room on a disk that is about to be full (bytes).
const FULL_DISK_BYTES_MAX: u64 = 40_000;
/// The time after which a training is given up: its frontend was killed.
const TRAINING_MAX: Duration = Duration::from_secs(10);
