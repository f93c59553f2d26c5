//! When certificates expire: those of this process, and those that servers and services show to it. Connections to
//! servers last for days and sessions are resumed, so a server may have replaced the certificate that its connections
//! have seen. Each server is therefore asked for its certificate with a connection of its own, now and then.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ::tls::Application;
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::config::split_tls;
use crate::worker::Plan;

/// The certificates of the servers and services that this process reaches over TLS, by their addresses.
#[derive(Default)]
pub(crate) struct ServerCertificates(Mutex<BTreeMap<String, Shown>>);

/// What one server has shown.
#[derive(Default)]
struct Shown {
    /// The time at which the certificate or one of its chain expires (s since the Unix epoch), if the server has ever
    /// completed a handshake.
    expires_unix_s: Option<i64>,
    /// The time of the last question.
    asked: Option<Instant>,
    warned: ExpiryWarning,
}

impl ServerCertificates {
    /// Returns each server with the time at which its certificate expires (s since the Unix epoch).
    pub(crate) fn expiries(&self) -> Vec<(String, i64)> {
        let servers = self.0.lock();
        let known = |(name, shown): (&String, &Shown)| Some((name.clone(), shown.expires_unix_s?));
        servers.iter().filter_map(known).collect()
    }

    /// Makes [`Self::watch`] ask every server again soon.
    pub(crate) fn ask_again(&self) {
        self.0.lock().values_mut().for_each(|shown| shown.asked = None);
    }

    /// Asks the servers for their certificates, for as long as the future is polled.
    pub(crate) async fn watch(&self, plan: &Plan) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let due = self.due(peers(plan), unix_s());
            for some in due.chunks(AT_ONCE) {
                join_all(some.iter().map(|(name, application)| self.ask(name, *application))).await;
            }
        }
    }

    /// Forgets the servers that are not among `peers`, and returns those that must be asked now.
    fn due(
        &self,
        peers: BTreeMap<String, Application>,
        now_unix_s: i64,
    ) -> Vec<(String, Application)> {
        let mut servers = self.0.lock();
        servers.retain(|name, _| peers.contains_key(name));
        let mut is_due = |(name, _): &(String, Application)| {
            let shown = servers.entry(name.clone()).or_default();
            let wait = wait(shown.expires_unix_s, now_unix_s);
            let is_due = shown.asked.is_none_or(|asked| asked.elapsed() >= wait);
            if is_due {
                shown.asked = Some(Instant::now());
            }
            is_due
        };
        let mut due: Vec<_> = peers.into_iter().collect();
        due.retain(|peer| is_due(peer));
        due
    }

    async fn ask(&self, name: &str, application: Application) {
        let (_, address) = split_tls(name);
        let asked = async { ::tls::outgoing()?.expiry_at(address, application).await };
        match tokio::time::timeout(ASK_LIMIT, asked).await {
            Ok(Ok(expires_unix_s)) => {
                // The server may have left the ring meanwhile.
                if let Some(shown) = self.0.lock().get_mut(name) {
                    shown.expires_unix_s = Some(expires_unix_s);
                    shown.warned.look(name, expires_unix_s, unix_s());
                }
            }
            // The connections for requests report a server that cannot be reached or trusted.
            Ok(Err(error)) => tracing::debug!(server = name, %error, "no certificate was shown"),
            Err(_) => tracing::debug!(server = name, "no certificate was shown in time"),
        }
    }
}

/// Returns the servers and services that the process reaches over TLS, with the protocol of each.
fn peers(plan: &Plan) -> BTreeMap<String, Application> {
    let mut peers = plan.members.peers_of_tls();
    let services = plan.config.compression_services().map(|address| address.to_string());
    let services = services.chain([plan.config.scheduler.address.clone()]);
    peers.extend(services.filter(|text| split_tls(text).0).map(|text| (text, Application::Http2)));
    peers
}

/// Returns the time between two questions to a server.
fn wait(expires_unix_s: Option<i64>, now_unix_s: i64) -> Duration {
    match expires_unix_s {
        None => ASK_SILENT_EVERY,
        // A new certificate should soon end the alert for the old one.
        Some(expires) if expires.saturating_sub(now_unix_s) < EXPIRES_SOON_S => ASK_SOON_EVERY,
        Some(_) => ASK_EVERY,
    }
}

/// The last warning that a certificate expires: which one, and when it was logged (s since the Unix epoch).
#[derive(Default)]
pub(crate) struct ExpiryWarning(Option<(i64, i64)>);

impl ExpiryWarning {
    /// Logs a certificate that expires soon or has expired, once per day. Returns whether it did.
    pub(crate) fn look(&mut self, whose: &str, expires_unix_s: i64, now_unix_s: i64) -> bool {
        let left_s = expires_unix_s.saturating_sub(now_unix_s);
        let was_logged = self.0.is_some_and(|(expires, at)| {
            expires == expires_unix_s && now_unix_s.saturating_sub(at) < DAY_S
        });
        if left_s >= EXPIRES_SOON_S || was_logged {
            return false;
        }
        self.0 = Some((expires_unix_s, now_unix_s));
        match left_s {
            1.. => tracing::warn!(
                days_left = left_s / DAY_S,
                "the certificate of {whose} expires soon"
            ),
            _ => tracing::error!("the certificate of {whose} has expired"),
        }
        true
    }
}

/// Returns the time since the Unix epoch (s).
pub(crate) fn unix_s() -> i64 {
    i64::try_from(units::unix_time().as_secs()).unwrap_or(i64::MAX)
}

/// The interval at which new servers are noticed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The time between two questions to a server: usually, if its certificate expires soon, and if it was never seen.
const ASK_EVERY: Duration = Duration::from_secs(3_600);
const ASK_SOON_EVERY: Duration = Duration::from_secs(600);
const ASK_SILENT_EVERY: Duration = Duration::from_secs(60);

/// The time limit of a question, and the number of servers that are asked at the same time.
const ASK_LIMIT: Duration = Duration::from_secs(5);
const AT_ONCE: usize = 16;

const DAY_S: i64 = 86_400;

/// The remaining life below which a certificate is logged: two weeks (s).
const EXPIRES_SOON_S: i64 = 14 * DAY_S;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_expires_soon_is_logged_once_per_day() {
        let (mut warned, now) = (ExpiryWarning::default(), 1_790_000_000);
        let mut look = |expires, now| warned.look("a server", expires, now);
        assert!(!look(now + EXPIRES_SOON_S, now), "not yet");
        assert!(look(now + EXPIRES_SOON_S, now + 1));
        assert!(!look(now + EXPIRES_SOON_S, now + DAY_S), "it was logged");
        assert!(look(now + EXPIRES_SOON_S, now + 1 + DAY_S));
        assert!(!look(now + 90 * DAY_S, now + 2 * DAY_S), "it was replaced");
        assert!(look(now + 2 * DAY_S, now + 3 * DAY_S), "it has expired");
    }

    #[test]
    fn servers_are_asked_once_and_forgotten_when_they_leave() {
        let (servers, now) = (ServerCertificates::default(), 1_790_000_000);
        let peers = |names: &[&str]| -> BTreeMap<String, Application> {
            names.iter().map(|name| ((*name).to_owned(), Application::Plain)).collect()
        };
        let due = |names: &[&str]| -> Vec<String> {
            servers.due(peers(names), now).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(due(&["a", "b"]), ["a", "b"]);
        assert_eq!(due(&["a", "b", "c"]), ["c"]);
        servers.0.lock().get_mut("a").expect("it is known").expires_unix_s = Some(now);
        assert_eq!(servers.expiries(), [("a".to_owned(), now)]);
        servers.ask_again();
        assert_eq!(due(&["b"]), ["b"]);
        assert_eq!(servers.expiries(), []);
        assert_eq!(due(&["a", "b"]), ["a"]);
    }

    #[test]
    fn certificates_near_their_end_are_asked_for_more_often() {
        let now = 1_790_000_000;
        assert_eq!(wait(None, now), ASK_SILENT_EVERY);
        assert_eq!(wait(Some(now + EXPIRES_SOON_S), now), ASK_EVERY);
        assert_eq!(wait(Some(now + EXPIRES_SOON_S - 1), now), ASK_SOON_EVERY);
        assert_eq!(wait(Some(0), now), ASK_SOON_EVERY);
    }
}
