//! Does the faults of a run at their times.

use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::client_host;
use super::files::KeyFile;
use super::servers::{Servers, frontend_host, store_host};
use crate::client::disturb;
use crate::network::Host;
use crate::scenario::{FaultKind, FileDamage, Link, Scenario, Server};
use crate::world::World;

/// Starts a task for each fault, which ends when the fault is over.
pub(super) fn begin(
    world: &Rc<World>,
    scenario: &Scenario,
    servers: &Rc<Servers>,
    tasks: &mut JoinSet<()>,
) {
    for (index, fault) in scenario.faults.iter().cloned().enumerate() {
        let (world, servers) = (Rc::clone(world), Rc::clone(servers));
        let seed = scenario.seed ^ (fault.at_ms << 8) ^ index as u64;
        tasks.spawn_local(async move {
            sleep(Duration::from_millis(fault.at_ms)).await;
            world.trace.note(format_args!("fault {index} begins: {:?}", fault.kind));
            cause(&world, &servers, fault.kind, (index, seed)).await;
            world.trace.note(format_args!("fault {index} is over"));
        });
    }
}

async fn cause(world: &Rc<World>, servers: &Servers, kind: FaultKind, (index, seed): (usize, u64)) {
    let time = Duration::from_millis;
    match kind {
        // The weather is there from the beginning.
        FaultKind::ShortReads(_)
        | FaultKind::ShortWrites(_)
        | FaultKind::BlockedWrites(_)
        | FaultKind::Delays(..)
        | FaultKind::Window(_)
        | FaultKind::SlowStores(_) => {}
        FaultKind::Reset(link) => {
            let (one, other) = hosts(link);
            world.net.reset(one, other);
        }
        FaultKind::Lose(link) => {
            let (one, other) = hosts(link);
            world.net.lose(one, other);
        }
        FaultKind::Cut(link, time_ms, is_one_way) => {
            let (one, other) = hosts(link);
            world.net.cut(one, other, time(time_ms));
            if !is_one_way {
                world.net.cut(other, one, time(time_ms));
            }
            sleep(time(time_ms)).await;
        }
        FaultKind::Kill(server, time_ms) | FaultKind::PowerLoss(server, time_ms) => {
            servers.kill(server, matches!(kind, FaultKind::PowerLoss(..)));
            sleep(time(time_ms)).await;
            servers.restart(server);
        }
        FaultKind::Restart(frontend, time_ms, damage) => {
            restart(servers, frontend, time(time_ms), (damage, seed)).await;
        }
        FaultKind::Stop(server, time_ms) => {
            servers.stop(server);
            sleep(time(time_ms)).await;
            servers.resume(server);
        }
        FaultKind::Hostile(kind, frontend) => {
            let host = Host(201 + index as u8);
            let address = frontend_host(frontend).memcached();
            disturb(Rc::clone(world), host, address, (kind, servers.knows_logins()), seed).await;
        }
        FaultKind::Reload(timeout_ms) => servers.reload(timeout_ms),
        FaultKind::WrongReload(mistake) => servers.reload_with(mistake),
        FaultKind::Train(frontend, dictionary) => servers.train(frontend, dictionary).await,
        FaultKind::Accelerator(frontend, trouble, time_ms) => {
            servers.accelerator(frontend).set_trouble(Some(trouble));
            sleep(time(time_ms)).await;
            servers.accelerator(frontend).set_trouble(None);
        }
        FaultKind::RotateKeys(time_ms) => {
            servers.change_keys(KeyFile::add);
            sleep(time(time_ms)).await;
            servers.change_keys(|file| file.damage());
            servers.change_keys(KeyFile::activate_newest);
        }
        FaultKind::DamageRules(time_ms) => damage_rules(servers, time(time_ms)).await,
        FaultKind::FlipBits(store) => servers.flip_bits(store),
        FaultKind::Unlist(server, time_ms) => {
            servers.list(server, false);
            sleep(time(time_ms)).await;
            servers.list(server, true);
        }
    }
}

/// Damages the file with the rules about clients for a time.
async fn damage_rules(servers: &Servers, time: Duration) {
    servers.change_rules(|file| file.damage());
    sleep(time).await;
    servers.change_rules(|file| file.write());
}

/// Ends a frontend in order, and starts it again.
async fn restart(
    servers: &Servers,
    frontend: usize,
    time: Duration,
    (damage, seed): (FileDamage, u64),
) {
    servers.begin_disk_trouble(damage, seed);
    if servers.end_in_order(frontend).await {
        servers.damage_items(frontend, damage, seed);
        sleep(time).await;
        // Half of the time, only the end meets the trouble.
        if seed % 2 == 0 {
            servers.end_disk_trouble();
        }
        servers.restart(Server::Frontend(frontend));
    }
    servers.end_disk_trouble();
}

fn hosts(link: Link) -> (Host, Host) {
    match link {
        Link::Client(client, frontend) => (client_host(client), frontend_host(frontend)),
        Link::Store(frontend, store) => (frontend_host(frontend), store_host(store)),
    }
}
