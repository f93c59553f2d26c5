//! The exchange between a process and its scheduler. The process sends its counts at the interval that the
//! scheduler requests, and passes received parameters of the placement policy to its workers. A scheduler
//! that is unavailable, slow or wrong does not affect clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use api::LoginFile;
use api::tonic::transport::Channel;
use api::tonic::{Code, Request, Status};
use api::v1::scheduler_client::SchedulerClient;
use api::v1::{
    DeviceCounts, ParametersRequest, PathCounts, PolicyParameters, ReportRequest, SizeCounts,
};
use rustix::time::{ClockId, clock_gettime};

use super::counts::{self, Counted, Counts, Key};
use super::parameters;
use crate::config::{Config, Services};
use crate::counters::Counter;
use crate::worker::{Plan, Worker, WorkerMessage};

/// The outcomes of reports and of received parameters, for the metrics page.
#[derive(Default)]
pub(crate) struct Reporting {
    /// Reports that the scheduler stored.
    pub(crate) kept: Counter,
    /// Reports that the scheduler refused.
    pub(crate) refused: Counter,
    /// Reports that did not reach the scheduler or were not answered in time.
    pub(crate) failed: Counter,
    /// Parameters that were passed to the workers.
    pub(crate) applied: Counter,
    /// Received parameters that were not valid.
    pub(crate) invalid: Counter,
    revision: AtomicU64,
    is_away: AtomicBool,
}

impl Reporting {
    /// Returns the revision of the parameters in use, or 0 if there are none.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Logs, once per outage, that the scheduler does not take reports.
    fn away(&self, address: &str, login: Option<&LoginFile>, status: &Status) {
        if !self.is_away.swap(true, Ordering::Relaxed) {
            let (code, why) = (status.code(), status.message());
            let user = match login {
                Some(login) => format!(" of user {:?}", login.current().user()),
                None => String::new(),
            };
            tracing::warn!("scheduler {address} does not take reports{user}: {code:?}: {why}");
        }
    }

    fn back(&self, address: &str) {
        if self.is_away.swap(false, Ordering::Relaxed) {
            tracing::info!("scheduler {address} takes reports again");
        }
    }
}

/// One process's connection to its scheduler.
pub(crate) struct Reporter {
    plan: Arc<Plan>,
    workers: Arc<[Worker]>,
    address: String,
    instance: String,
    role: String,
    epoch: u64,
    client: SchedulerClient<Channel>,
}

impl Reporter {
    /// Creates the reporter. It must be called on the executor of the control thread.
    ///
    /// # Errors
    /// Describes why the scheduler's address is not valid.
    pub(crate) fn new(plan: Arc<Plan>, workers: Arc<[Worker]>) -> Result<Self, String> {
        let config = &plan.config;
        let address = config.scheduler.address.clone();
        let parsed: api::Address = address.parse().map_err(|error| format!("{error}"))?;
        let channel = api::wire::channel(&parsed, CONNECT_TIMEOUT);
        let channel = channel.map_err(|status| status.message().to_owned())?;
        Ok(Self {
            instance: instance(config),
            role: role(config),
            epoch: epoch(),
            client: SchedulerClient::new(channel),
            address,
            workers,
            plan,
        })
    }

    /// Sends reports and follows parameters for as long as the future is polled.
    pub(crate) async fn run(&self) {
        tokio::join!(self.report(), self.follow());
    }

    async fn report(&self) {
        let reporting = &self.plan.reporting;
        let mut client = self.client.clone();
        let mut every = REPORT_EVERY;
        let mut backoff = Backoff::default();
        loop {
            let call = client.report(self.authorized(self.request()));
            let answer = tokio::time::timeout(ANSWER_TIMEOUT, call).await.unwrap_or_else(|_| {
                let limit_ms = ANSWER_TIMEOUT.as_millis();
                Err(Status::deadline_exceeded(format!("no answer within {limit_ms} ms")))
            });
            let wait = match answer {
                Ok(answer) => {
                    reporting.kept.up();
                    reporting.back(&self.address);
                    backoff = Backoff::default();
                    let wanted = u64::from(answer.get_ref().report_every_ms);
                    every = Duration::from_millis(wanted).clamp(REPORT_EVERY_MIN, REPORT_EVERY_MAX);
                    every
                }
                Err(status) => {
                    let refused = REFUSALS.contains(&status.code());
                    let count = if refused { &reporting.refused } else { &reporting.failed };
                    count.up();
                    reporting.away(&self.address, self.plan.logins.scheduler.as_deref(), &status);
                    if refused { every } else { backoff.next() }
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    async fn follow(&self) {
        let mut client = self.client.clone();
        let mut backoff = Backoff::default();
        loop {
            let request =
                ParametersRequest { instance: self.instance.clone(), role: self.role.clone() };
            let ended = match client.parameters(self.authorized(request)).await {
                Ok(stream) => {
                    let mut stream = stream.into_inner();
                    loop {
                        match stream.message().await {
                            Ok(Some(parameters)) => {
                                self.take(&parameters);
                                backoff = Backoff::default();
                            }
                            Ok(None) => {
                                break Status::unavailable("the scheduler ended the stream");
                            }
                            Err(status) => break status,
                        }
                    }
                }
                Err(status) => status,
            };
            tracing::debug!(%ended, "parameters are not followed");
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// Adds the login, if there is one.
    fn authorized<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(login) = &self.plan.logins.scheduler {
            login.current().authorize(&mut request);
        }
        request
    }

    /// Passes received parameters to the workers. Invalid parameters are ignored.
    fn take(&self, sent: &PolicyParameters) {
        let reporting = &self.plan.reporting;
        let (devices, accelerators) = (&self.plan.devices, self.plan.accelerators);
        let names: Vec<&str> = devices.iter().map(|device| device.name()).collect();
        let configured = &self.plan.config.runtime;
        let (policy, runtime) = match parameters::policy(sent, configured, &names, accelerators) {
            Ok(followed) => followed,
            Err(why) => {
                reporting.invalid.up();
                let revision = sent.revision;
                tracing::warn!("parameters of revision {revision} are not followed: {why}");
                return;
            }
        };
        for worker in self.workers.iter() {
            worker.send(WorkerMessage::Policy(Arc::clone(&policy)));
        }
        reporting.revision.store(sent.revision, Ordering::Relaxed);
        reporting.applied.up();
        tracing::info!(
            "parameters of revision {}: policy {}, offload_bytes_min {}, inline_bytes_max {}",
            sent.revision,
            policy.name(),
            runtime.offload_bytes_min,
            runtime.inline_bytes_max
        );
    }

    fn request(&self) -> ReportRequest {
        let counted = counted(&self.plan.runtimes.read());
        let (paths, devices) = counts::write(&counted);
        ReportRequest {
            instance: self.instance.clone(),
            role: self.role.clone(),
            epoch: self.epoch,
            uptime_ms: self.plan.clock.now().0 / 1_000_000,
            parameters_revision: self.plan.reporting.revision(),
            paths,
            devices,
            cpu_ns: cpu_ns(),
            threads: self.threads(),
        }
    }

    /// Returns the number of threads of workers and of the worker device, which the CPU time includes.
    fn threads(&self) -> u32 {
        let has_device = self.plan.devices.iter().any(|device| device.name() == "worker");
        let of_device = if has_device { self.plan.config.runtime.workers } else { 0 };
        u32::try_from(self.workers.len().saturating_add(of_device)).unwrap_or(u32::MAX)
    }
}

/// Returns the CPU time of this process since it started.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the sums of all workers' counters.
fn counted(runtimes: &[Arc<runtime::Metrics>]) -> Counted {
    let mut counted = Counted::new();
    let mut add = |key, counts: Counts| counted.entry(key).or_default().add(&counts);
    for metrics in runtimes {
        for path in metrics.paths() {
            let message = message(path);
            let key = Key::Path {
                op: message.op.clone(),
                device: message.device.clone(),
                placement: message.placement.clone(),
                reason: message.reason.clone(),
            };
            add(key, Counts::of_path(&message));
        }
        let mut devices: BTreeMap<String, DeviceCounts> = BTreeMap::new();
        for (device, lost, timeouts) in metrics.losses() {
            let of = devices.entry(device).or_default();
            (of.lost, of.timeouts) = (lost, timeouts);
        }
        for (device, probes, restored) in metrics.probes() {
            let of = devices.entry(device).or_default();
            (of.probes, of.restored) = (probes, restored);
        }
        for (device, counts) in devices {
            add(Key::Device { device }, Counts::of_device(&counts));
        }
        for (device, reason, jobs) in metrics.fallbacks() {
            let reason = reason.name().to_owned();
            add(Key::Fallback { device, reason }, Counts::of_jobs(jobs));
        }
    }
    counted
}

fn message(path: runtime::metrics::PathCount) -> PathCounts {
    let size = |size: runtime::metrics::SizeCount| SizeCounts {
        log2: size.log2,
        jobs: size.jobs,
        work_bytes: size.work_bytes,
        service_ns: size.service.0,
        queueing_ns: size.queueing.0,
        host_jobs: size.host_jobs,
        host_ns: size.host.0,
    };
    PathCounts {
        op: path.op.name().to_owned(),
        device: path.device,
        placement: path.placement.name().to_owned(),
        reason: path.reason.name().to_owned(),
        jobs: path.jobs,
        failed: path.failed,
        did_not_fit: path.did_not_fit,
        input_bytes: path.input_bytes,
        output_bytes: path.output_bytes,
        service_ns: path.service.0,
        queueing_ns: path.queueing.0,
        sizes: path.sizes.into_iter().map(size).collect(),
        service_log2_ns: path.service_log2_ns,
        queueing_log2_ns: path.queueing_log2_ns,
    }
}

/// Returns the configured name or, if none is set, the host name with the process id.
pub(crate) fn instance(config: &Config) -> String {
    if !config.scheduler.instance.is_empty() {
        return config.scheduler.instance.clone();
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let host: String = host.chars().filter(plain).take(HOST_CHARS_MAX).collect();
    let host = if host.is_empty() { "localhost" } else { &host };
    format!("{host}-{}", std::process::id())
}

fn role(config: &Config) -> String {
    let services = Services::from_roles(&config.server.roles);
    let roles = [
        (services.frontend, "frontend"),
        (services.compression, "compression"),
        (services.store, "store"),
        (services.scheduler, "scheduler"),
        (services.programs && !config.programs.listen.is_empty(), "programs"),
    ];
    let names: Vec<_> = roles.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
    names.join(",")
}

/// Returns a number that is different for each start of a process on a machine.
fn epoch() -> u64 {
    u64::try_from(units::unix_time().as_nanos()).unwrap_or(u64::MAX)
}

/// The exponential backoff between attempts.
#[derive(Default)]
struct Backoff(Option<Duration>);

impl Backoff {
    fn next(&mut self) -> Duration {
        let wait = self.0.map_or(RETRY_MIN, |last| (last * 2).min(RETRY_MAX));
        self.0 = Some(wait);
        wait
    }
}

/// The status codes with which a working scheduler refuses a report.
const REFUSALS: [Code; 4] =
    [Code::InvalidArgument, Code::FailedPrecondition, Code::ResourceExhausted, Code::OutOfRange];

/// The interval of reports until the scheduler requests another.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// The shortest interval of reports, even if the scheduler requests a shorter one.
const REPORT_EVERY_MIN: Duration = Duration::from_millis(10);
const REPORT_EVERY_MAX: Duration = Duration::from_secs(86_400);

/// The wait after the first failed attempt.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// The longest wait between attempts.
const RETRY_MAX: Duration = Duration::from_secs(2);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest host name (characters), from the limit of a DNS label.
const HOST_CHARS_MAX: usize = 63;
