//! Tries the devices of a process when it starts. A device that gives wrong bytes is not used at all. A device that
//! does not answer is used, because it costs at most time. The process's counters of jobs do not contain these jobs.
//! All devices are tried at once, and the start waits for them only a moment: a slow machine makes a verdict late and
//! never a bad one. A compression service that gives wrong bytes stays in the list. Its process may be replaced while
//! this one runs, and its results are verified from the first one on.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use device::Device;
use runtime::qualification::{Problem, qualify, qualify_fallback, qualify_service, withdrawn};

use crate::server::Devices;

/// The result for one device: its place behind software, its name, whether it is a service, and the verdict.
struct Tried {
    index: usize,
    name: String,
    is_service: bool,
    verdict: Result<(), Problem>,
}

impl Devices {
    /// Returns the same devices, and withdraws those that did not qualify. The first `services` devices behind software
    /// are services of other processes.
    #[must_use]
    pub fn qualified(self, services: usize) -> Self {
        self.qualified_within(services, START_WAIT)
    }

    /// Does the same as [`Devices::qualified`] and waits for verdicts no longer than this.
    #[must_use]
    pub fn qualified_within(mut self, services: usize, wait: Duration) -> Self {
        let start = Instant::now();
        let Some((software, others)) = self.all.split_first_mut() else { return self };
        let (tell, told) = mpsc::channel();
        let mut open: Vec<String> = Vec::new();
        for (index, device) in others.iter().enumerate() {
            open.push(device.name().to_owned());
            let (tell, software) = (tell.clone(), Arc::clone(software));
            try_aside(index, index < services, device, software, move |tried| tell.send(tried));
        }
        drop(tell);
        let mut names = Vec::new();
        let end = loop {
            match told.recv_timeout(wait.saturating_sub(start.elapsed())) {
                Ok(tried) => {
                    open.retain(|name| *name != tried.name);
                    if is_withdrawn(&tried) {
                        others[tried.index] = withdrawn(&others[tried.index]);
                    }
                    names.extend(tried.verdict.is_ok().then_some(tried.name));
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
            tell_later(told, start);
        }
        self
    }
}

/// Tries the device in a separate thread.
fn try_aside<E>(
    index: usize,
    is_service: bool,
    device: &Arc<dyn Device>,
    software: Arc<dyn Device>,
    tell: impl FnOnce(Tried) -> Result<(), E> + Send + 'static,
) {
    let (tried, name) = (Arc::clone(device), device.name().to_owned());
    let run = move || {
        let verdict = match is_service {
            true => qualify_service(&tried, &software, PATIENCE)
                .and_then(|()| qualify_fallback(tried.capabilities(), &software, PATIENCE)),
            false => qualify(&tried, &software, PATIENCE),
        };
        // After the start, only the log receives the verdict.
        let _ = tell(Tried { index, name, is_service, verdict });
    };
    if let Err(error) = std::thread::Builder::new().name("qualify".to_owned()).spawn(run) {
        tracing::warn!("{} is not qualified: no thread: {error}", device.name());
    }
}

/// Logs the verdicts that come after the process has begun to serve.
fn tell_later(told: mpsc::Receiver<Tried>, start: Instant) {
    let run = move || {
        for tried in told {
            let took_ms = start.elapsed().as_millis();
            match &tried.verdict {
                Ok(()) => tracing::info!("qualified in {took_ms} ms: {}", tried.name),
                Err(problem) if problem.disqualifies() => tracing::error!(
                    "{}: {problem}; its results are verified, and it is retired for wrong ones",
                    tried.name
                ),
                Err(problem) => warn(&tried.name, problem),
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("qualify".to_owned()).spawn(run) {
        tracing::warn!("late verdicts on devices are not logged: no thread: {error}");
    }
}

/// Returns whether the device must not be used. Logs what was found.
fn is_withdrawn(tried: &Tried) -> bool {
    let Tried { name, is_service, verdict, .. } = tried;
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

/// The longest time that the start waits for verdicts. It is ten times as long as verdicts take, and too short for
/// anyone to notice.
const START_WAIT: Duration = Duration::from_millis(60);

/// A job that makes no progress for this long, while this process has a core, hangs.
const PATIENCE: Duration = Duration::from_secs(20);
