//! Runs a scenario: starts its servers and clients, does its faults, and judges what happened.

mod dictionaries;
mod faults;
mod files;
mod judges;
mod servers;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Once;
use std::time::Duration;

use server::Config;
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, LocalSet};

use crate::client::{Client, Route};
use crate::history::check;
use crate::network::{Host, Net};
use crate::scenario::{Scenario, UNIX_S};
use crate::trace::Trace;
use crate::world::World;
use servers::Servers;

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What is wrong. Nothing, if the run is good.
    pub problems: Vec<String>,
    /// The digest of the trace, which is the same for two runs of one scenario.
    pub digest: u64,
    /// The simulated time.
    pub simulated: Duration,
    /// The requests that were answered, and those that were not.
    pub answered: usize,
    /// The requests that were sent.
    pub sent: usize,
    /// The keys whose orders were too many to search.
    pub unfinished: usize,
    /// The last lines of the trace.
    pub trace: Vec<String>,
}

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Records panics of this thread in addition to whatever else is done with them. Tasks catch them, and so they would go
/// unseen.
fn watch_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.with_borrow_mut(|panics| panics.push(info.to_string()));
            before(info);
        }));
    });
    PANICS.with_borrow_mut(Vec::clear);
}

/// Runs a scenario on an event loop of one thread, whose clock is paused.
pub fn run(runtime: &Runtime, scenario: &Scenario) -> Outcome {
    watch_panics();
    LocalSet::new().block_on(runtime, run_here(scenario))
}

async fn run_here(scenario: &Scenario) -> Outcome {
    let trace = Trace::start();
    let net = Net::new(scenario.seed ^ NETWORK_SEED, scenario.weather(), trace.clone());
    let world = Rc::new(World::new(net.clone(), trace.clone(), UNIX_S));
    let begun = tokio::time::Instant::now();
    let mut background = JoinSet::new();
    background.spawn_local(async move { net.run().await });
    match Servers::start(&world, scenario) {
        Ok(servers) => attend(&world, scenario, &Rc::new(servers), &mut background).await,
        Err(problem) => world.problem(problem),
    }
    let (violations, unfinished) = check(&world.history.borrow(), scenario.rules());
    let mut problems = world.problems();
    problems.extend(violations.iter().map(ToString::to_string));
    problems.extend(PANICS.with_borrow_mut(std::mem::take));
    let sent = world.history.borrow().records.len();
    Outcome {
        problems,
        digest: trace.digest(),
        simulated: begun.elapsed(),
        answered: world.answered(),
        sent,
        unfinished,
        trace: trace.last_lines(),
    }
}

async fn attend(
    world: &Rc<World>,
    scenario: &Scenario,
    servers: &Rc<Servers>,
    background: &mut JoinSet<()>,
) {
    let mut clients = JoinSet::new();
    for number in 0..scenario.clients {
        let route = Route::Simulated(client_host(number));
        let seed = scenario.seed.wrapping_mul(31).wrapping_add(number as u64);
        let is_bystander = number >= scenario.victims();
        let frontends = servers.addresses();
        let client =
            Client::new(world, (number, route), frontends, seed, scenario.habits, is_bystander);
        clients.spawn_local(client.run());
    }
    let mut faults = JoinSet::new();
    faults::begin(world, scenario, servers, &mut faults);
    let watch = judges::watch(Rc::clone(world), Rc::clone(servers));
    let watch = background.spawn_local(watch);
    let all = async { while clients.join_next().await.is_some() {} };
    if tokio::time::timeout(RUN_MAX, all).await.is_err() {
        world.problem(format!("the clients are not done after {} s", RUN_MAX.as_secs()));
    }
    // Faults that have begun end by themselves, and what they broke comes back.
    world.end_disturbance();
    while faults.join_next().await.is_some() {}
    servers.reload(Config::default().store.timeout_ms);
    watch.abort();
    judges::judge_waits(world, scenario);
    judges::judge_end(world, scenario, servers).await;
}

/// Returns the host of a well-behaved client.
fn client_host(number: usize) -> Host {
    Host(101 + number as u8)
}

const NETWORK_SEED: u64 = 0x6e65_7477_6f72_6b21;
/// The longest run, without its end. Every client gives up each batch after [`crate::client::PATIENCE`].
const RUN_MAX: Duration = Duration::from_secs(4_000);
