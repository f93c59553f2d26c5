//! The admin pages over HTTP: metrics, health, readiness and configuration. They never change the server.

mod curves;
mod exposition;
mod hosts;
mod http;
mod metrics;
mod pprof;
mod process;
mod programs;
mod requests;
mod ring;
mod scheduler;
mod sealing;
mod snapshot;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::sync::Arc;

use parking_lot::RwLock;

use crate::config::{self, Config};
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
        let reloads = Reloads::default();
        reloads.last_success_unix_s.add(units::unix_time().as_secs());
        Self {
            config: RwLock::new(Arc::clone(&plan.config)),
            readiness: Readiness::new(
                Arc::clone(&plan.members),
                plan.config.server.ready_when,
                Arc::clone(&plan.liveness),
            ),
            reloads,
            process_started_unix_s: process::started_unix_s(),
            plan,
        }
    }

    /// Returns the page of metrics.
    pub(crate) fn metrics(&self) -> String {
        metrics::render(self)
    }

    pub(crate) fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Replaces the configuration shown and counts the reload.
    pub(crate) fn reloaded(&self, config: Arc<Config>) {
        self.readiness.set_rule(config.server.ready_when);
        *self.config.write() = config;
        self.reloads.succeeded.up();
        self.reloads.last_success_unix_s.reset();
        self.reloads.last_success_unix_s.add(units::unix_time().as_secs());
    }

    /// Counts a reload that was refused.
    pub(crate) fn reload_failed(&self) {
        self.reloads.failed.up();
    }

    /// Returns the configuration in effect.
    pub(crate) fn current_config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read())
    }

    fn config(&self) -> String {
        config::print_values(&self.config.read())
    }
}

/// The numbers of reloads since the start, applied and refused.
#[derive(Default)]
struct Reloads {
    succeeded: Counter,
    failed: Counter,
    /// The Unix time of the last successful reload or, before any, of the start (s).
    last_success_unix_s: Counter,
}
