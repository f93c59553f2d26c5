//! Tests the devices of a process when it starts. A device that returns wrong bytes is not used. A device
//! that does not answer is used, because it only costs time. The test jobs are not counted in the process's
//! metrics. All devices are tested at once, and the start waits for them only briefly; on a slow machine,
//! results arrive later. A compression service that returns wrong bytes is still used: its process may be
//! replaced, and its results are verified from the first one on.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use device::Device;
use runtime::qualification::{Problem, qualify, qualify_fallback, qualify_service, withdrawn};

use crate::server::Devices;

/// The test result of a device: its index after software, its name, whether it is a service, the verdict.
struct Checked {
    index: usize,
    name: String,
    is_service: bool,
    verdict: Result<(), Problem>,
}

impl Devices {
    /// Tests the devices and returns them, with those that failed withdrawn. The first `services` devices
    /// after software are compression services.
    #[must_use]
    pub fn qualified(self, services: usize) -> Self {
        self.qualified_within(services, START_WAIT)
    }

    /// Like [`Devices::qualified`], but waits for verdicts at most for `wait`.
    #[must_use]
    pub fn qualified_within(mut self, services: usize, wait: Duration) -> Self {
        let start = Instant::now();
        let Some((software, others)) = self.all.split_first_mut() else { return self };
        let (report, reports) = mpsc::channel();
        let mut open: Vec<String> = Vec::new();
        for (index, device) in others.iter().enumerate() {
            open.push(device.name().to_owned());
            let (report, software) = (report.clone(), Arc::clone(software));
            qualify_in_thread(index, index < services, device, software, move |checked| {
                report.send(checked)
            });
        }
        drop(report);
        let mut names = Vec::new();
        let end = loop {
            match reports.recv_timeout(wait.saturating_sub(start.elapsed())) {
                Ok(checked) => {
                    open.retain(|name| *name != checked.name);
                    if is_withdrawn(&checked) {
                        others[checked.index] = withdrawn(&others[checked.index]);
                    }
                    names.extend(checked.verdict.is_ok().then_some(checked.name));
                }
                Err(end) => break end,
            }
        };
        if !names.is_empty() {
            let took_ms = start.elapsed().as_millis();
            tracing::info!("qualified in {took_ms} ms: {}", names.join(", "));
        }
        if end == RecvTimeoutError::Timeout {
            tracing::info!("used while they are being qualified: {}", open.join(", "));
            log_late_verdicts(reports, start);
        }
        self
    }
}

/// Tests a device in a separate thread.
fn qualify_in_thread<E>(
    index: usize,
    is_service: bool,
    device: &Arc<dyn Device>,
    software: Arc<dyn Device>,
    report: impl FnOnce(Checked) -> Result<(), E> + Send + 'static,
) {
    let (checked, name) = (Arc::clone(device), device.name().to_owned());
    let run = move || {
        let verdict = match is_service {
            true => qualify_service(&checked, &software, TIMEOUT)
                .and_then(|()| qualify_fallback(checked.capabilities(), &software, TIMEOUT)),
            false => qualify(&checked, &software, TIMEOUT),
        };
        // After the start, verdicts are only logged.
        let _ = report(Checked { index, name, is_service, verdict });
    };
    if let Err(error) = std::thread::Builder::new().name("qualify".to_owned()).spawn(run) {
        tracing::warn!("{} is not qualified: no thread: {error}", device.name());
    }
}

/// Logs the verdicts that arrive after the process has begun to serve.
fn log_late_verdicts(reports: mpsc::Receiver<Checked>, start: Instant) {
    let run = move || {
        for checked in reports {
            let took_ms = start.elapsed().as_millis();
            match &checked.verdict {
                Ok(()) => tracing::info!("qualified in {took_ms} ms: {}", checked.name),
                Err(problem) if problem.disqualifies() => tracing::error!(
                    "{}: {problem}; its results are verified, and it is retired for wrong ones",
                    checked.name
                ),
                Err(problem) => warn(&checked.name, problem),
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("qualify".to_owned()).spawn(run) {
        tracing::warn!("late verdicts on devices are not logged: no thread: {error}");
    }
}

/// Logs the verdict and returns whether the device must not be used.
fn is_withdrawn(checked: &Checked) -> bool {
    let Checked { name, is_service, verdict, .. } = checked;
    match verdict {
        Err(problem) if problem.disqualifies() && *is_service => {
            tracing::error!(
                "COMPRESSION SERVICE IS WRONG: {name}: {problem}; its results are verified, and it \
                 is used once they are right; rebate doctor says more"
            );
            false
        }
        Err(problem) if problem.disqualifies() => {
            tracing::error!("DEVICE NOT USED: {name}: {problem}; rebate doctor says more");
            true
        }
        Err(problem) => {
            warn(name, problem);
            false
        }
        Ok(()) => false,
    }
}

fn warn(name: &str, problem: &Problem) {
    tracing::warn!("{name} is not qualified: {problem}; it is used, and retired when it fails");
}

/// The longest time that the start waits for verdicts. It is ten times the usual time for verdicts.
const START_WAIT: Duration = Duration::from_millis(60);

/// The timeout of a test job that makes no progress while this process has a core.
const TIMEOUT: Duration = Duration::from_secs(20);
