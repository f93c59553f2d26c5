//! The clients and the checker of histories with real processes, each of which is killed (SIGKILL) and stopped
//! (SIGSTOP) in turn. Runs do not repeat. The history is checked round by round, and each round has keys of its own, so
//! that requests without an answer do not stay possible for the rest of the run.

mod one_name;
mod servers;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use harness::Process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet, spawn_blocking};
use tokio::time::{sleep, timeout};
use units::Prng;

use crate::client::{Client, Habits, Route};
use crate::history::{Rules, check};
use crate::network::{Net, Weather};
use crate::trace::Trace;
use crate::world::World;
use one_name::OneName;
use servers::{Role, Servers};

/// What is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program.
    pub binary: PathBuf,
    /// The requests that must be answered before the run ends.
    pub operations: usize,
    /// The seed of what clients ask and of the times of faults.
    pub seed: u64,
    /// The number of clients.
    pub clients: usize,
    /// True for one frontend with an embedded store, false for two with a ring of memcached servers.
    pub is_embedded: bool,
    /// True to plant a defect: one server of the ring is two.
    pub has_two_stores: bool,
    /// True to go on after a round in which something is wrong.
    pub keep_going: bool,
}

/// What has come of a run so far.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The rounds.
    pub rounds: usize,
    /// The requests that were answered, and those that were sent.
    pub answered: usize,
    /// The requests that were sent.
    pub sent: usize,
    /// The answers that fit no order, and everything else that is wrong.
    pub problems: Vec<String>,
    /// The keys whose orders were too many to search.
    pub unfinished: usize,
    /// The processes that were killed.
    pub kills: usize,
    /// The processes that were stopped.
    pub stops: usize,
    /// The requests of rounds without faults that were not answered, or with an error.
    pub unanswered_in_quiet: u64,
    /// The longest time until all frontends serve again after a round with faults (ms).
    pub recovery_max_ms: u64,
    /// The largest memory of a frontend at the end of a round (bytes).
    pub rss_bytes_max: u64,
}

/// Runs rounds until enough requests are answered, or something is wrong. Calls `report` after each round.
///
/// # Errors
/// A process does not start.
pub fn run(options: &Options, report: impl FnMut(&Summary)) -> Result<Summary, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no event loop: {error}"))?;
    LocalSet::new().block_on(&runtime, run_here(options, report))
}

async fn run_here(options: &Options, mut report: impl FnMut(&Summary)) -> Result<Summary, String> {
    let mut background = JoinSet::new();
    let mut added = None;
    if options.has_two_stores {
        let one_name = OneName::start().await?;
        added = Some(one_name.address);
        background.spawn(one_name.run());
    }
    let servers = Servers::start(&options.binary, options.is_embedded, added)?;
    let mut run = Run {
        servers: Rc::new(RefCell::new(servers)),
        random: Prng::new(options.seed),
        options: options.clone(),
        turn: 0,
        next_key: 0,
        summary: Summary::default(),
    };
    let is_done = |summary: &Summary| {
        summary.answered >= options.operations
            || !summary.problems.is_empty() && !options.keep_going
    };
    while !is_done(&run.summary) {
        run.round().await;
        report(&run.summary);
    }
    Ok(run.summary)
}

struct Run {
    servers: Rc<RefCell<Servers>>,
    options: Options,
    random: Prng,
    /// The number of faults so far. It says which process is next.
    turn: usize,
    /// The first key that no round has used.
    next_key: u64,
    summary: Summary,
}

/// What is done to a process.
#[derive(Clone, Copy, Debug)]
struct Fault {
    /// The process.
    index: usize,
    role: Role,
    /// True for SIGKILL, false for SIGSTOP.
    is_kill: bool,
    at_ms: u64,
    /// The time until the process starts again or continues (ms).
    time_ms: u64,
}

impl Run {
    async fn round(&mut self) {
        let number = self.summary.rounds;
        let is_quiet = number % QUIET_EVERY == QUIET_EVERY - 1;
        let net = Net::new(0, Weather::default(), Trace::start());
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let trace = Trace::start();
        let world = Rc::new(World::new(net, trace.clone(), unix_s));
        let mut tasks = JoinSet::new();
        self.start_clients(&world, &mut tasks, is_quiet);
        let faults = if is_quiet { Vec::new() } else { self.draw_faults() };
        for fault in &faults {
            tasks.spawn_local(cause(Rc::clone(&world), Rc::clone(&self.servers), *fault));
        }
        while tasks.join_next().await.is_some() {}
        self.recover(&world).await;
        let rules = Rules {
            cas_may_repeat: true,
            requests_stay_in_order: self.options.is_embedded,
            ..Rules::default()
        };
        let (violations, unfinished) = check(&world.history.borrow(), rules);
        let mut problems = world.problems();
        problems.extend(self.servers.borrow_mut().ended());
        problems.extend(violations.iter().map(ToString::to_string));
        let summary = &mut self.summary;
        if !problems.is_empty() {
            problems.push(format!("round {number} has these faults: {faults:?}"));
            problems.extend(trace.last_lines());
        }
        summary.problems.extend(problems);
        summary.rounds += 1;
        summary.unfinished += unfinished;
        summary.answered += world.answered();
        summary.sent += world.history.borrow().records.len();
        summary.kills += faults.iter().filter(|fault| fault.is_kill).count();
        summary.stops += faults.iter().filter(|fault| !fault.is_kill).count();
        summary.unanswered_in_quiet += if is_quiet { world.unanswered.get() } else { 0 };
        let rss = self.servers.borrow().frontend_rss_bytes();
        summary.rss_bytes_max = rss.into_iter().fold(summary.rss_bytes_max, u64::max);
    }

    fn start_clients(&mut self, world: &Rc<World>, tasks: &mut JoinSet<()>, is_quiet: bool) {
        let batch_max = 1 + self.random.below(BATCH_MAX);
        let requests = self.options.clients as u64 * BATCHES * (1 + batch_max) / 2;
        // With few requests per key, those without an answer can be in few orders.
        let keys = (requests / REQUESTS_PER_KEY).max(KEYS_MIN);
        let first_key = self.next_key;
        self.next_key += keys;
        let habits = Habits {
            keys,
            first_key,
            batches: BATCHES,
            batch_max,
            pause_max_ms: [0, 20, 60][self.random.below(3) as usize],
            value_bytes_max: [300, 20_000, 200_000][self.random.below(3) as usize],
            // A stopped process also stops its clock. A flush without an answer may come in any later round.
            expire: false,
            flush: false,
            packets: true,
            logs_in: false,
        };
        for number in 0..self.options.clients {
            let frontends = self.servers.borrow().frontends();
            let identity = (number, Route::Tcp);
            let seed = self.random.bits();
            let client = Client::new(world, identity, frontends, seed, habits, is_quiet);
            tasks.spawn_local(client.run());
        }
    }

    /// Draws one or two faults. The first ones go through all processes in turn, with both signals.
    fn draw_faults(&mut self) -> Vec<Fault> {
        let roles = self.servers.borrow().roles();
        let mut faults = Vec::new();
        for place in 0..1 + self.random.below(2) {
            let (index, is_kill) = match place {
                0 => (self.turn % roles.len(), (self.turn / roles.len()).is_multiple_of(2)),
                _ => (self.random.below(roles.len() as u64) as usize, self.random.below(2) == 0),
            };
            if place == 0 {
                self.turn += 1;
            }
            let time_max_ms = [50, 500, 3_000][self.random.below(3) as usize];
            faults.push(Fault {
                index,
                role: roles[index],
                is_kill,
                at_ms: self.random.below(600),
                time_ms: 1 + self.random.below(time_max_ms),
            });
        }
        faults
    }

    /// Waits until all frontends serve again.
    async fn recover(&mut self, world: &World) {
        let begun = Instant::now();
        let frontends = self.servers.borrow().frontends();
        for frontend in frontends {
            let mut why = String::new();
            let served = async {
                while let Err(error) = is_served(&frontend).await {
                    why = error;
                    sleep(Duration::from_millis(50)).await;
                }
            };
            if timeout(RECOVERY_MAX, served).await.is_err() {
                world.problem(format!("{frontend} has not recovered: {why}"));
            }
        }
        let recovery_ms = begun.elapsed().as_millis() as u64;
        self.summary.recovery_max_ms = self.summary.recovery_max_ms.max(recovery_ms);
    }
}

/// Kills or stops a process, and starts or continues it.
async fn cause(world: Rc<World>, servers: Rc<RefCell<Servers>>, fault: Fault) {
    sleep(Duration::from_millis(fault.at_ms)).await;
    // Two faults of a round may be aimed at one process.
    let Some(process) = servers.borrow_mut().take(fault.index) else { return };
    world.trace.note(format_args!("begins: {fault:?}"));
    let time = Duration::from_millis(fault.time_ms);
    let back = if fault.is_kill {
        kill(&world, &servers, process, fault, time).await
    } else {
        stop(process, time).await
    };
    match back {
        Ok(process) => servers.borrow_mut().put(fault.index, process),
        Err(error) => world.problem(format!("{:?}: {error}", fault.role)),
    }
    world.trace.note(format_args!("is over: {fault:?}"));
}

async fn kill(
    world: &World,
    servers: &RefCell<Servers>,
    mut process: Process,
    fault: Fault,
    time: Duration,
) -> Result<Process, String> {
    let killed = spawn_blocking(move || process.kill());
    killed.await.map_err(|error| error.to_string())?;
    // Nothing is answered between the end of the process and its next start, so the items are lost here.
    let is_embedded = servers.borrow().roles().iter().all(|role| !matches!(role, Role::Store(_)));
    match fault.role {
        Role::Store(_) => world.lose_items(false),
        Role::Frontend(_) if is_embedded => world.lose_items(true),
        _ => {}
    }
    sleep(time).await;
    let launch = servers.borrow().launch(fault.index);
    spawn_blocking(move || launch.run()).await.map_err(|error| error.to_string())?
}

async fn stop(process: Process, time: Duration) -> Result<Process, String> {
    let stopped = spawn_blocking(move || process.stop().map(|()| process));
    let process = stopped.await.map_err(|error| error.to_string())??;
    sleep(time).await;
    process.go_on();
    Ok(process)
}

/// Sets and gets some keys through a frontend, so that every server of the ring is used.
async fn is_served(frontend: &str) -> Result<(), String> {
    let exchange = async {
        let mut stream = TcpStream::connect(frontend).await?;
        let (mut commands, mut expected) = (String::new(), String::new());
        for key in 0..20 {
            commands += &format!("set end:{key} 0 0 2\r\nok\r\nget end:{key}\r\n");
            expected += &format!("STORED\r\nVALUE end:{key} 0 2\r\nok\r\nEND\r\n");
        }
        stream.write_all(commands.as_bytes()).await?;
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).await?;
        let is_right = answer == expected.as_bytes();
        Ok::<_, std::io::Error>(is_right.then_some(()).ok_or(answer))
    };
    match timeout(Duration::from_secs(10), exchange).await {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(answer))) => Err(format!("answers {:?}", String::from_utf8_lossy(&answer))),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer within 10 s".to_owned()),
    }
}

/// The batches of each client in a round, and the most requests of the longest of them.
const BATCHES: u64 = 60;
const BATCH_MAX: u64 = 24;
/// The requests of a round for each key of each kind. Half of them are about keys of one kind, the registers.
const REQUESTS_PER_KEY: u64 = 24;
/// The least keys of each kind, so that clients meet at some and not at all of them.
const KEYS_MIN: u64 = 20;
/// One round of so many has no faults.
const QUIET_EVERY: usize = 8;
/// The time that servers get to recover after the last fault of a round.
const RECOVERY_MAX: Duration = Duration::from_secs(60);
