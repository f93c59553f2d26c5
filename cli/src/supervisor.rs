//! What a serving process and its supervisor (systemd) tell each other: the listening sockets that the supervisor
//! passes on, the state of the process, and signs of life. Without a supervisor, nothing here does anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;
use sd_notify::NotifyState;
use server::InheritedSockets;

/// Takes over the listening sockets that the supervisor opened (`LISTEN_FDS`).
///
/// # Errors
/// A descriptor is not a listening stream socket, so the supervisor's configuration is wrong.
pub(crate) fn sockets() -> Result<InheritedSockets, String> {
    if let Some(text) = std::env::var_os("LISTEN_FDS") {
        let count = text.to_str().and_then(|text| text.parse::<usize>().ok());
        if count.is_none_or(|count| count > SOCKETS_MAX) {
            let text = text.display();
            return Err(format!("LISTEN_FDS is {text}: give a number from 0 to {SOCKETS_MAX}"));
        }
    }
    let mut passed = ListenFd::from_env();
    let count = passed.len();
    let (mut tcp, mut unix) = (Vec::new(), Vec::new());
    for index in 0..count {
        let refused = |problem: &str| {
            format!(
                "socket {} of {count} from the supervisor {problem}: pass on TCP or Unix stream \
                 sockets that listen (systemd: ListenStream= and Accept=no)",
                index + 1
            )
        };
        if let Ok(Some(listener)) = passed.take_tcp_listener(index) {
            tcp.push(listening(listener).map_err(&refused)?);
        } else if let Ok(Some(listener)) = passed.take_unix_listener(index) {
            unix.push(listening(listener).map_err(&refused)?);
        } else {
            return Err(refused("is of another kind"));
        }
    }
    InheritedSockets::new(tcp, unix)
        .map_err(|error| format!("a socket from the supervisor cannot be used: {error}"))
}

fn listening<L: std::os::fd::AsFd>(listener: L) -> Result<L, &'static str> {
    match socket_acceptconn(&listener) {
        Ok(true) => Ok(listener),
        _ => Err("does not listen"),
    }
}

/// The connection to the supervisor.
#[derive(Debug, Default)]
pub(crate) struct Supervisor {
    is_ending: Arc<AtomicBool>,
}

impl Supervisor {
    /// Says that the process serves, and where. If the supervisor restarts processes that stop giving signs of life,
    /// gives them from now on, for as long as `health` finds nothing wrong.
    pub(crate) fn ready(
        &self,
        addresses: &[String],
        health: impl Fn() -> Option<String> + Send + 'static,
    ) {
        let status = format!("serving on {}", addresses.join(", "));
        tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
        let limit = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero());
        let Some(limit) = limit else { return };
        let is_ending = Arc::clone(&self.is_ending);
        let give_signs = move || {
            loop {
                // A process that drains saves its items and need not serve. It has limits of its own.
                match health().filter(|_| !is_ending.load(Ordering::Relaxed)) {
                    None => tell(&[NotifyState::Watchdog]),
                    Some(problem) => tell(&[NotifyState::Status(&problem)]),
                }
                std::thread::sleep(limit / SIGNS_PER_LIMIT);
            }
        };
        let thread = std::thread::Builder::new().name("rebate-watchdog".to_owned());
        if let Err(error) = thread.spawn(give_signs) {
            tracing::error!("the supervisor gets no signs of life: {error}");
        }
    }

    /// Says that the configuration is read again.
    pub(crate) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(_) => tell(&[NotifyState::Reloading]),
        }
    }

    /// Says that a reload has ended, and how.
    pub(crate) fn reloaded(&self, result: &str) {
        tell(&[NotifyState::Ready, NotifyState::Status(result)]);
    }

    /// Says that the process drains and then ends, which takes at most `limit`.
    pub(crate) fn stopping(&self, limit: Duration) {
        self.is_ending.store(true, Ordering::Relaxed);
        let limit_us = u32::try_from(limit.as_micros()).unwrap_or(u32::MAX);
        let status = NotifyState::Status("draining");
        tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(limit_us), status]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!("the supervisor was not told: {error}");
    }
}

/// The most sockets that a supervisor may pass on.
const SOCKETS_MAX: usize = 256;

/// How many signs of life are given in the time after which the supervisor acts.
const SIGNS_PER_LIMIT: u32 = 3;
