//! The admin pages. They show what the server counts, whether it is alive and ready, and its configuration, over HTTP
//! for scrapers, probes and people. No request to them changes how the server serves.

mod curves;
mod exposition;
mod hosts;
mod http;
mod metrics;
mod process;
mod scheduler;
mod snapshot;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod traces;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;

use crate::config::{self, Config, StoreUrl};
use crate::counters::Counter;
use crate::readiness::Readiness;
use crate::worker::Plan;

pub(crate) use http::serve;

/// The state that the pages show.
pub(crate) struct Admin {
    plan: Arc<Plan>,
    config: RwLock<Arc<Config>>,
    readiness: Readiness,
    reloads: Reloads,
    process_started_unix_s: f64,
}

impl Admin {
    pub(crate) fn new(plan: Arc<Plan>) -> Self {
        let servers = match &plan.url {
            StoreUrl::Embedded => Vec::new(),
            StoreUrl::Grpc(services) => services.iter().map(ToString::to_string).collect(),
            StoreUrl::Memcached(servers) => servers.iter().map(ToString::to_string).collect(),
        };
        let reloads = Reloads::default();
        reloads.last_success_unix_s.add(unix_s() as u64);
        Self {
            config: RwLock::new(Arc::clone(&plan.config)),
            readiness: Readiness::new(
                servers,
                plan.config.server.ready_when,
                Arc::clone(&plan.vitals),
            ),
            reloads,
            process_started_unix_s: process::started_unix_s(),
            plan,
        }
    }

    pub(crate) fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Shows the new configuration and counts the reload.
    pub(crate) fn reloaded(&self, config: Arc<Config>) {
        self.readiness.set_rule(config.server.ready_when);
        *self.config.write() = config;
        self.reloads.succeeded.up();
        self.reloads.last_success_unix_s.reset();
        self.reloads.last_success_unix_s.add(unix_s() as u64);
    }

    /// Counts a reload that was refused.
    pub(crate) fn reload_failed(&self) {
        self.reloads.failed.up();
    }

    fn config(&self) -> String {
        config::print_values(&self.config.read())
    }
}

/// The reloads since the start: how many were applied and how many were refused.
#[derive(Default)]
struct Reloads {
    succeeded: Counter,
    failed: Counter,
    /// The time of the last success (Unix, s). The start counts as the first success.
    last_success_unix_s: Counter,
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}
