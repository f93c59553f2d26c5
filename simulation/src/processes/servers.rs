//! The processes of a run: frontends, memcached servers, a compression service and a scheduler. Each keeps its port
//! when it starts again.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::{Port, Process, TIMEOUT, memcached};

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Clients connect to it. The others, too, have numbers where there are several.
    Frontend(usize),
    /// It is a memcached server of the ring.
    Store(usize),
    /// It compresses for the frontends.
    Compression,
    /// It gets reports from the frontends and sends parameters.
    Scheduler,
}

/// Where a process writes its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Log {
    /// It is kept and shown if something is wrong.
    Kept,
    /// Its disk is full.
    FullDisk,
    /// The reader of its pipe is gone.
    Closed,
}

impl Log {
    const ALL: [Log; 3] = [Log::Kept, Log::FullDisk, Log::Closed];

    fn open(self) -> io::Result<Stdio> {
        Ok(match self {
            Log::Kept => Stdio::piped(),
            Log::FullDisk => File::options().write(true).open("/dev/full")?.into(),
            Log::Closed => io::pipe()?.1.into(),
        })
    }
}

/// The processes of a deployment and what they are started with.
pub(super) struct Servers {
    binary: PathBuf,
    /// The store of the frontends, as `--store` has it.
    store: String,
    slots: Vec<Slot>,
    /// The number of processes that were started. Their logs differ in turn.
    launches: Cell<usize>,
}

/// A process with its port. The process is missing while it is down, and while something is done with it.
struct Slot {
    role: Role,
    port: Port,
    process: Option<Process>,
}

impl Servers {
    /// Starts a ring of three memcached servers with two frontends, or one frontend with an embedded store. Both have a
    /// compression service and a scheduler. `added` is the address of one more server of the ring.
    ///
    /// # Errors
    /// What does not start, and its output.
    pub(super) fn start(
        binary: &Path,
        is_embedded: bool,
        added: Option<SocketAddr>,
    ) -> Result<Self, String> {
        let (stores, frontends) = if is_embedded { (0, 1) } else { (STORES, 2) };
        let roles = (0..stores)
            .map(Role::Store)
            .chain([Role::Compression, Role::Scheduler])
            .chain((0..frontends).map(Role::Frontend));
        let slot = |role| {
            let port = Port::free().map_err(|error| format!("no port for {role:?}: {error}"))?;
            Ok::<_, String>(Slot { role, port, process: None })
        };
        let slots = roles.map(slot).collect::<Result<Vec<_>, _>>()?;
        let is_store = |slot: &&Slot| matches!(slot.role, Role::Store(_));
        let stores = slots.iter().filter(is_store).map(|slot| slot.port.address()).chain(added);
        let stores: Vec<String> = stores.map(|address| address.to_string()).collect();
        let store = match is_embedded {
            true => "embedded".to_owned(),
            false => format!("memcached://{}", stores.join(",")),
        };
        let mut servers = Self { binary: binary.to_owned(), store, slots, launches: Cell::new(0) };
        for index in 0..servers.slots.len() {
            let process = servers.launch(index).run()?;
            servers.slots[index].process = Some(process);
        }
        Ok(servers)
    }

    /// Returns the addresses that clients connect to.
    pub(super) fn frontends(&self) -> Vec<String> {
        let is_frontend = |slot: &&Slot| matches!(slot.role, Role::Frontend(_));
        self.slots.iter().filter(is_frontend).map(|slot| slot.port.address().to_string()).collect()
    }

    /// Returns what each process does.
    pub(super) fn roles(&self) -> Vec<Role> {
        self.slots.iter().map(|slot| slot.role).collect()
    }

    /// Takes a process out, to do something with it. `None` if another fault has it.
    pub(super) fn take(&mut self, index: usize) -> Option<Process> {
        self.slots[index].process.take()
    }

    /// Puts a process back.
    pub(super) fn put(&mut self, index: usize, process: Process) {
        self.slots[index].process = Some(process);
    }

    /// Returns what starts a process at its address.
    pub(super) fn launch(&self, index: usize) -> Launch {
        let slot = &self.slots[index];
        let address = slot.port.address().to_string();
        let address_of = |role| {
            let slot = self.slots.iter().find(|slot| slot.role == role);
            slot.map(|slot| slot.port.address().to_string())
        };
        let mut arguments: Vec<String> = ["serve", "--threads", "2"].map(str::to_owned).into();
        let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        match slot.role {
            Role::Store(_) => return Launch::Memcached(slot.port.number()),
            Role::Compression => {
                add("--role", "compression".to_owned());
                add("--grpc-listen", address);
            }
            Role::Scheduler => {
                add("--role", "scheduler".to_owned());
                add("--grpc-listen", address);
            }
            Role::Frontend(_) => {
                add("--listen", address);
                add("--store", self.store.clone());
                add("--set", "runtime.offload_bytes_min=1000".to_owned());
                let compression = address_of(Role::Compression);
                compression.into_iter().for_each(|address| add("--compression", address));
                let scheduler = address_of(Role::Scheduler);
                scheduler.into_iter().for_each(|address| add("--scheduler", address));
            }
        }
        let launches = self.launches.replace(self.launches.get() + 1);
        let log = Log::ALL[launches % Log::ALL.len()];
        let mut command = Command::new(&self.binary);
        // A log that cannot be written gets many lines.
        command.args(arguments).env("RUST_LOG", if log == Log::Kept { "error" } else { "debug" });
        Launch::Rebate(command, log)
    }

    /// Returns the processes that have ended though nothing has killed them, with their output.
    pub(super) fn ended(&mut self) -> Vec<String> {
        let ended = self.slots.iter_mut().filter_map(|slot| {
            let process = slot.process.as_mut()?;
            let status = process.exited()?;
            Some(format!("{:?} has ended: {status}\n{}", slot.role, process.output()))
        });
        ended.collect()
    }

    /// Returns the memory of the frontends (bytes).
    pub(super) fn frontend_rss_bytes(&self) -> Vec<u64> {
        let frontends = self.slots.iter().filter(|slot| matches!(slot.role, Role::Frontend(_)));
        frontends.filter_map(|slot| slot.process.as_ref()?.rss_bytes()).collect()
    }
}

/// What starts a process. It is apart from [`Servers`], because another thread runs it.
pub(super) enum Launch {
    /// memcached on a port.
    Memcached(u16),
    /// A service of Rebate.
    Rebate(Command, Log),
}

impl Launch {
    /// Starts the process and waits until it serves.
    ///
    /// # Errors
    /// The system's reason, or the output of a process that does not serve.
    pub(super) fn run(self) -> Result<Process, String> {
        match self {
            Launch::Memcached(port) => {
                let started = memcached(Some(port), None, Stdio::piped(), &["-m", "256"]);
                started.map(|(process, _)| process)
            }
            Launch::Rebate(mut command, log) => {
                let stderr = log.open().map_err(|error| format!("no log {log:?}: {error}"))?;
                let mut process = Process::start_with(&mut command, stderr)?;
                process.await_ready(TIMEOUT, "address", |process| {
                    process.printed("listening on ").or_else(|| process.printed("grpc on "))
                })?;
                Ok(process)
            }
        }
    }
}

/// The servers of a ring.
const STORES: usize = 3;
