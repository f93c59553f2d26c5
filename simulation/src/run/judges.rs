//! Judges of a run apart from the history: waits, memory, recovery, leaks, and what health pages and metrics say.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use server::simulated::SimulatedServer;
use tokio::time::{Instant, sleep, timeout};

use super::servers::{Servers, frontend_host, store_host};
use crate::client::login_line;
use crate::history::Ask;
use crate::network::{Endpoint, Host};
use crate::scenario::{FaultKind, Scenario};
use crate::world::World;

/// Compares memory, health and readiness of the frontends with what must hold, again and again.
pub(super) async fn watch(world: Rc<World>, servers: Rc<Servers>) {
    // The time since which each frontend has run without any store that can answer.
    let mut alone_since: Vec<Option<Instant>> = vec![None; servers.count()];
    loop {
        let are_stores_away = servers.are_stores_away();
        servers.each(|index, server| {
            judge_memory(&world, index, server);
            if let Some(problem) = server.problem() {
                world.problem(format!("the health page of frontend {index} says: {problem}"));
            }
            if !are_stores_away || !servers.is_running(index) {
                alone_since[index] = None;
                return;
            }
            let alone = alone_since[index].get_or_insert_with(Instant::now).elapsed();
            if alone > TOLD_WITHIN && server.readiness().is_ok() {
                world.problem(format!(
                    "frontend {index} is ready, and no store has answered for {} ms",
                    alone.as_millis()
                ));
            }
        });
        sleep(WATCH_EVERY).await;
    }
}

fn judge_memory(world: &World, index: usize, server: &SimulatedServer) {
    let pools = server.pool_bytes();
    for (worker, ((held, max), pool)) in server.budgets().into_iter().zip(pools).enumerate() {
        // One user at a time may hold more, so that two that hold a part do not wait for each other.
        if held > max + ITEM_BYTES_MAX {
            world.problem(format!("worker {worker} of frontend {index} holds {held} of {max} B"));
        }
        let connections = (server.connections_open() + LINKS_MAX) as u64;
        let most = max + ITEM_BYTES_MAX + connections * CONNECTION_BYTES;
        if pool > most {
            world.problem(format!(
                "worker {worker} of frontend {index} has buffers of {pool} B; the limit is {most}"
            ));
        }
    }
    if let Some((bytes, limit)) = server.store_bytes()
        && bytes > limit
    {
        world.problem(format!("the items of frontend {index} take {bytes} of {limit} B"));
    }
}

/// Compares the waits of bystanders with their bound.
pub(super) fn judge_waits(world: &World, scenario: &Scenario) {
    let (wait_ms, client) = world.longest_wait.get();
    let most_ms = scenario.wait_max().as_millis() as u64;
    if wait_ms > most_ms {
        world.problem(format!(
            "client {client} has waited {wait_ms} ms, and the bound is {most_ms}"
        ));
    }
    let unanswered = world.unanswered.get();
    if scenario.must_answer_bystanders() && unanswered > 0 {
        let error = world.last_error.borrow();
        world.problem(format!(
            "{unanswered} requests of bystanders were not answered, or with an error: {error:?}"
        ));
    }
}

/// Judges the servers after the last fault and the last client.
pub(super) async fn judge_end(world: &Rc<World>, scenario: &Scenario, servers: &Servers) {
    sleep(RECOVERY_MAX).await;
    // A set and a get of each key make four trips each.
    let check_max = Duration::from_millis(END_KEYS * 8 * scenario.network_ms());
    for frontend in 0..servers.count() {
        let served = is_served(world, frontend, scenario.habits.logs_in);
        if let Err(problem) = timeout(RECOVERY_MAX + check_max, served)
            .await
            .unwrap_or_else(|_| Err("it does not answer".to_owned()))
        {
            world.problem(format!("frontend {frontend} has not recovered: {problem}"));
        }
    }
    servers.each(|index, server| {
        if let Err(why) = server.readiness() {
            world.problem(format!("frontend {index} is not ready again: {why}"));
        }
        judge_metrics(world, scenario, index, &server.metrics());
    });
    // A server that was away may have items of keys that others have now.
    let may_be_old = scenario.rules().old_items_may_return;
    for key in servers.flipped().into_iter().filter(|_| !may_be_old) {
        let logs_in = scenario.habits.logs_in;
        judge_flipped(world, servers, &String::from_utf8_lossy(&key), logs_in).await;
    }
    // Connections that were lost are given up by the system, and values that were begun by the server.
    sleep(scenario.end_max()).await;
    servers.each(|index, server| {
        let open = server.connections_open();
        if open > 0 {
            world.problem(format!("frontend {index} has {open} connections of nobody"));
        }
        judge_gauges(world, index, &server.metrics());
        for (worker, (held, _)) in server.budgets().into_iter().enumerate() {
            if held > 0 {
                world.problem(format!("worker {worker} of frontend {index} still holds {held} B"));
            }
        }
        // Two connections of each worker to each server.
        let deployment = &scenario.deployment;
        let most = 2 * deployment.workers * deployment.servers;
        let open = world.net.open_at(frontend_host(index));
        if open > most {
            world.problem(format!("frontend {index} has {open} connections, {most} of them used"));
        }
    });
    for store in 0..scenario.deployment.servers {
        let most = 2 * scenario.deployment.workers * scenario.deployment.frontends;
        let open = world.net.open_at(store_host(store));
        if open > most {
            world.problem(format!("store {store} has {open} connections, {most} of them used"));
        }
    }
}

/// Sets and gets some keys through a frontend, so that every server of the ring is used.
async fn is_served(world: &World, frontend: usize, logs_in: bool) -> Result<(), String> {
    let connection = connect(world, frontend, logs_in).await.map_err(|error| error.to_string())?;
    let mut space = [0; 256];
    for key in 0..END_KEYS {
        let command = format!("set end:{key} 0 0 2\r\nok\r\nget end:{key}\r\n");
        connection.write_all(command.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut answer = Vec::new();
        let expected = format!("STORED\r\nVALUE end:{key} 0 2\r\nok\r\nEND\r\n");
        while answer.len() < expected.len() && !answer.starts_with(b"SERVER_ERROR") {
            match connection.read(&mut space).await {
                Ok(bytes @ 1..) => answer.extend_from_slice(&space[..bytes]),
                Ok(_) => return Err("it has closed the connection".to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        }
        if answer != expected.as_bytes() {
            return Err(format!("{command:?} is answered {:?}", String::from_utf8_lossy(&answer)));
        }
    }
    Ok(())
}

/// Reads a key in whose value a bit was flipped. If that is a miss, the item must be gone, so that it can be added. The
/// first read may find a connection that is lost, so that nothing is removed.
async fn judge_flipped(world: &World, servers: &Servers, key: &str, logs_in: bool) {
    let is_there = || servers.flipped().iter().any(|left| left == key.as_bytes());
    for _ in 0..FLIPPED_READS {
        let read = timeout(RECOVERY_MAX, is_missed(world, key, logs_in)).await;
        let is_missed = matches!(read, Ok(Ok(true)));
        if !is_missed || !is_there() {
            return;
        }
    }
    world.problem(format!("the value of {key} cannot be read, and stays"));
}

/// Gets a key through the first frontend. Returns whether that is a miss.
async fn is_missed(world: &World, key: &str, logs_in: bool) -> io::Result<bool> {
    let connection = connect(world, 0, logs_in).await?;
    connection.write_all(format!("get {key}\r\n").as_bytes()).await?;
    let mut space = [0; 64];
    let bytes = connection.read(&mut space).await?;
    Ok(space[..bytes].starts_with(b"END"))
}

/// Connects to a frontend, and logs in if clients do.
async fn connect(world: &World, frontend: usize, logs_in: bool) -> io::Result<Endpoint> {
    let network = world.net.of_host(Host(99));
    let connection = network.connect_to(&frontend_host(frontend).memcached()).await?;
    if !logs_in {
        return Ok(connection);
    }
    connection.write_all(&login_line()).await?;
    let mut answer = Vec::new();
    let mut space = [0; 64];
    while !answer.ends_with(b"\r\n") {
        match connection.read(&mut space).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => answer.extend_from_slice(&space[..bytes]),
        }
    }
    match &answer[..] {
        b"STORED\r\n" => Ok(connection),
        _ => Err(io::Error::other(String::from_utf8_lossy(&answer).into_owned())),
    }
}

/// Compares the metrics of a frontend with the fact that all clients have gone.
fn judge_gauges(world: &World, index: usize, page: &str) {
    for name in ["rebate_connections", "rebate_listener_connections", "rebate_memory_held_bytes"] {
        let told = sum(page, name);
        if told > 0.0 {
            world.problem(format!("{name} of frontend {index} is {told} when all have gone"));
        }
    }
}

/// Compares the metrics of a frontend with what the clients know.
fn judge_metrics(world: &World, scenario: &Scenario, index: usize, page: &str) {
    for name in ["rebate_task_restarts_total", "rebate_connections_failed_total"] {
        let count = sum(page, name);
        if count > 0.0 {
            world.problem(format!("{name} of frontend {index} is {count}"));
        }
    }
    judge_values(world, scenario, index, page);
    let has = |is_meant: fn(&FaultKind) -> bool| {
        scenario.faults.iter().any(|fault| is_meant(&fault.kind))
    };
    if has(|kind| matches!(kind, FaultKind::Hostile(..))) {
        return;
    }
    let bad = sum(page, "rebate_bad_commands_total");
    if bad > 0.0 {
        world.problem(format!("frontend {index} counts {bad} commands as bad; none was"));
    }
    // A frontend that starts again counts from zero.
    if scenario.deployment.frontends > 1
        || has(|kind| {
            matches!(kind, FaultKind::Kill(..) | FaultKind::PowerLoss(..) | FaultKind::Restart(..))
        })
    {
        return;
    }
    let (asked, answered) = {
        let history = world.history.borrow();
        let stores = |ask: &Ask| {
            matches!(
                ask,
                Ask::Set(_) | Ask::Add(_) | Ask::Replace(_) | Ask::Cas(..) | Ask::Append(_)
            )
        };
        let asked = history.records.iter().filter(|record| stores(&record.ask)).count();
        drop(history);
        (asked as u64, world.answered_where(stores))
    };
    let counted = sum(page, "rebate_set_commands_total");
    let (least, most) = (answered + END_KEYS, asked + END_KEYS);
    if counted < least as f64 || counted > most as f64 {
        world.problem(format!(
            "frontend {index} counts {counted} storage commands; {least} to {most} are right"
        ));
    }
}

/// Compares what a frontend counts as wrong values with what its accelerator can have made wrong.
fn judge_values(world: &World, scenario: &Scenario, index: usize, page: &str) {
    // The accelerator that wrote a value is blamed if the value is damaged later.
    if scenario.has_flipped_bits() {
        return;
    }
    let of_accelerator = sum(page, "rebate_device_corrupt_total");
    let most = scenario.wrong_results_max(index) as f64;
    if of_accelerator > most {
        world.problem(format!(
            "frontend {index} counts {of_accelerator} wrong results; at most {most} are right"
        ));
    }
    let frontends = 0..scenario.deployment.frontends;
    let most: u64 = frontends.map(|frontend| scenario.wrong_results_max(frontend)).sum();
    let of_kind = |kind| sum(page, &format!("rebate_frame_errors_total{{kind={kind:?}}}"));
    let expected = match scenario.may_lose_dictionaries() {
        true => of_kind("dictionary_missing"),
        false => 0.0,
    };
    let lost = sum(page, "rebate_frame_errors_total") - of_kind("device_corrupt") - expected;
    if lost > most as f64 {
        world.problem(format!(
            "frontend {index} counts {lost} unreadable values; at most {most} are right"
        ));
    }
}

/// Returns the sum of a metric over its labels.
fn sum(page: &str, name: &str) -> f64 {
    let is_series =
        |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
    page.lines()
        .filter(is_series)
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// The reads after which a value that cannot be read must be gone.
const FLIPPED_READS: usize = 4;
const WATCH_EVERY: Duration = Duration::from_millis(20);
/// The time within which readiness must tell that no store answers: two rounds of questions, and the time limits of
/// a probe.
const TOLD_WITHIN: Duration = Duration::from_millis(3_500);
/// The largest item, and the largest frame around it.
const ITEM_BYTES_MAX: u64 = (1 << 20) + 1_024;
/// The buffers of a connection outside of the budget: a read buffer, and answers that are composed.
const CONNECTION_BYTES: u64 = 64 << 10;
/// The connections of a worker to the largest ring, and some.
const LINKS_MAX: usize = 16;
/// The keys that are stored at the end of a run.
const END_KEYS: u64 = 20;
/// The time that servers get to recover after the last fault.
const RECOVERY_MAX: Duration = Duration::from_secs(10);
