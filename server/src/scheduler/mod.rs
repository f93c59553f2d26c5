//! The scheduler, and the reports of a process to its scheduler. The scheduler stores counts ([`history`]),
//! shows them ([`view`]), and sends parameters of the placement policy ([`parameters`]). The parameters come
//! from the configuration and, if so configured, from the fit of `policy::scheduling` to the reports
//! ([`learn`]).

pub(crate) mod counts;
mod history;
mod learn;
mod parameters;
mod reporter;
pub(crate) mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use api::v1::{
    InstanceCounts, PolicyParameters, QueryRequest, QueryResponse, ReportRequest, ReportResponse,
};
use parking_lot::Mutex;
use policy::scheduling::Scheduling;
use tokio::sync::watch;
use units::{ByteCount, Nanos};

use crate::config::SchedulerConfig;
use crate::counters::Counter;
use history::{Bounds, Filter, History, InstanceSnapshot};

pub(crate) use reporter::{Reporter, Reporting, instance};

/// Collects reports and sends parameters to followers. The threads of a process share one scheduler.
pub(crate) struct Scheduler {
    history: Mutex<History>,
    fitted: Mutex<Scheduling>,
    config: Mutex<SchedulerConfig>,
    parameters: watch::Sender<PolicyParameters>,
    report_every_ms: AtomicU64,
    watchers: AtomicUsize,
    instances_max: usize,
    pub(crate) received: Received,
}

/// The numbers of received reports, by outcome.
#[derive(Default)]
pub(crate) struct Received {
    pub(crate) kept: Counter,
    pub(crate) refused: Counter,
}

/// The reason why a report is not stored, or why another watcher is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The report is malformed. The author of the reporting program must act.
    #[error("{0}")]
    Invalid(String),
    /// The report contradicts earlier reports. The operator of the reporting process must act.
    #[error("{0}")]
    Back(String),
    /// A limit of the scheduler is reached. Its operator must act.
    #[error("{0}")]
    Exhausted(String),
}

impl Scheduler {
    pub(crate) fn new(config: &SchedulerConfig) -> Self {
        let bounds = Bounds {
            instances_max: config.instances_max,
            memory: config.history_bytes_max,
            keep: Nanos::secs(config.history_s),
            silent_after: SILENT_AFTER,
        };
        let fitted = Scheduling::new(tick(config));
        let first = parameters::to_send(config, &fitted, FIRST_REVISION);
        Self {
            history: Mutex::new(History::new(bounds)),
            fitted: Mutex::new(fitted),
            config: Mutex::new(config.clone()),
            parameters: watch::Sender::new(first),
            report_every_ms: AtomicU64::new(config.report_every_ms),
            watchers: AtomicUsize::new(0),
            instances_max: config.instances_max,
            received: Received::default(),
        }
    }

    /// Stores a report and updates the fitted costs with it.
    ///
    /// # Errors
    /// Returns a [`Refusal`]. In this case no part of the report is stored.
    pub(crate) fn report(
        &self,
        report: &ReportRequest,
        now: Nanos,
    ) -> Result<ReportResponse, Refusal> {
        let is_other = {
            let mut history = self.history.lock();
            let kept = history.report(report, now);
            let count = if kept.is_ok() { &self.received.kept } else { &self.received.refused };
            count.up();
            let step = kept?;
            let mut fitted = self.fitted.lock();
            if let Some(step) = step {
                learn::observe(&mut fitted, report, step, now);
            }
            fitted.decide(now)
        };
        if is_other {
            self.send();
        }
        Ok(ReportResponse {
            parameters_revision: self.parameters.borrow().revision,
            report_every_ms: u32::try_from(self.report_every_ms.load(Ordering::Relaxed))
                .unwrap_or(u32::MAX),
        })
    }

    pub(crate) fn query(&self, query: QueryRequest, now: Nanos) -> QueryResponse {
        let QueryRequest { last_ms, instance, role, op, device } = query;
        let filter = Filter { last_ms, instance, role, op, device };
        let message = |snapshot: InstanceSnapshot| {
            let (paths, devices) = counts::write(&snapshot.counted);
            InstanceCounts {
                instance: snapshot.instance,
                role: snapshot.role,
                age_ms: snapshot.age_ms,
                covered_ms: snapshot.covered_ms,
                paths,
                devices,
                cpu_ns: counts::cpu_ns(&snapshot.counted),
            }
        };
        let snapshots = self.history.lock().query(&filter, now);
        QueryResponse { instances: snapshots.into_iter().map(message).collect() }
    }

    /// Returns all counts since the first report of each instance.
    pub(crate) fn totals(&self, now: Nanos) -> Vec<InstanceSnapshot> {
        self.history.lock().query(&Filter::default(), now)
    }

    /// Returns the memory of the stored reports.
    pub(crate) fn bytes(&self) -> ByteCount {
        self.history.lock().bytes()
    }

    pub(crate) fn instances_max(&self) -> usize {
        self.instances_max
    }

    /// Returns the number of calls that follow the parameters.
    pub(crate) fn watching(&self) -> usize {
        self.watchers.load(Ordering::Relaxed)
    }

    /// Returns the current parameters.
    pub(crate) fn parameters(&self) -> PolicyParameters {
        self.parameters.borrow().clone()
    }

    /// Subscribes a caller to the parameters.
    ///
    /// # Errors
    /// Returns [`Refusal::Exhausted`] if `scheduler.instances_max` callers already follow.
    pub(crate) fn watch(self: &Arc<Self>) -> Result<Watcher, Refusal> {
        let watcher = Watcher { scheduler: Arc::clone(self), changes: self.parameters.subscribe() };
        let before = self.watchers.fetch_add(1, Ordering::Relaxed);
        if before < self.instances_max {
            return Ok(watcher);
        }
        Err(Refusal::Exhausted(format!(
            "{before} follow the parameters, as many as scheduler.instances_max allows"
        )))
    }

    /// Applies the hot keys of a new configuration, and sends changed parameters with a new revision.
    pub(crate) fn reload(&self, config: &SchedulerConfig) {
        self.report_every_ms.store(config.report_every_ms, Ordering::Relaxed);
        self.fitted.lock().set_tick(tick(config));
        self.config.lock().clone_from(config);
        self.send();
    }

    /// Sends the current parameters if they differ from the last ones.
    fn send(&self) {
        let (fitted, config) = (self.fitted.lock(), self.config.lock());
        self.parameters.send_if_modified(|current| {
            let same = parameters::to_send(&config, &fitted, current.revision);
            let changed = same != *current;
            if changed {
                *current = PolicyParameters { revision: current.revision + 1, ..same };
            }
            changed
        });
    }
}

/// Returns the time between decisions, which is the interval of reports.
fn tick(config: &SchedulerConfig) -> Nanos {
    Nanos::millis(config.report_every_ms)
}

/// A caller that follows the parameters.
pub(crate) struct Watcher {
    scheduler: Arc<Scheduler>,
    pub(crate) changes: watch::Receiver<PolicyParameters>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.scheduler.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The longest report (bytes). Real reports take some tens of KiB. Longer reports are refused before they are
/// decoded, because an empty path takes two bytes on the wire and a hundred times as many in memory.
pub(crate) const REPORT_BYTES_MAX: usize = 256 << 10;

/// The time without reports after which a new instance may replace an old one at the limit.
const SILENT_AFTER: Nanos = Nanos::secs(10);

/// The first revision of parameters. Processes without parameters report revision 0.
const FIRST_REVISION: u64 = 1;
