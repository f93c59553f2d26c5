//! Decides whether the process is ready for clients. Twice a second it asks every worker which servers of the
//! ring answer, applies `server.ready_when`, and updates the admin pages, gRPC health and the log. A worker
//! that does not answer delays a round by a bounded time. The findings of each round also decide which servers
//! of the ring are out (`members`).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::ReadyWhen;
use crate::grpc::Health;
use crate::members::{LookupFailure, Members, NameStatus};
use crate::probe::Findings;
use crate::supervise::Liveness;
use crate::worker::{Worker, WorkerMessage};

/// The last known state of the ring's servers and of the workers.
pub(crate) struct Readiness {
    draining: AtomicBool,
    /// The ring, which learns what was found.
    members: Arc<Members>,
    rule: RwLock<ReadyWhen>,
    liveness: Arc<Liveness>,
    view: watch::Sender<Option<View>>,
}

/// The workers' findings in one round.
#[derive(Clone)]
pub(crate) struct View {
    begun: Instant,
    /// The findings by worker; `None` for a worker that did not answer.
    workers: Vec<Option<Findings>>,
}

/// The text that answers a health check, as an error if the process is not ready.
pub(crate) type Answer = Result<String, String>;

impl Readiness {
    pub(crate) fn new(members: Arc<Members>, rule: ReadyWhen, liveness: Arc<Liveness>) -> Self {
        Self {
            draining: AtomicBool::new(false),
            members,
            rule: RwLock::new(rule),
            liveness,
            view: watch::Sender::new(None),
        }
    }

    pub(crate) fn begin_drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_rule(&self, rule: ReadyWhen) {
        *self.rule.write() = rule;
    }

    /// Asks the workers periodically, for as long as the future is polled.
    pub(crate) async fn run(&self, workers: &[Worker], health: &Health) {
        let mut round = Round { pending: workers.iter().map(|_| None).collect() };
        let mut last_begun = Instant::now();
        let mut was_ready = true;
        loop {
            let begun = Instant::now();
            let found = round.ask(workers).await;
            self.liveness.check(begun.duration_since(last_begun));
            last_begun = begun;
            self.members.judge(&found);
            self.view.send_replace(Some(View { begun, workers: found }));
            let answer = self.judge();
            match &answer {
                Err(why) if was_ready && !self.is_draining() => {
                    tracing::warn!("not ready: {}", why.lines().next().unwrap_or_default());
                }
                Ok(_) if !was_ready => tracing::info!("ready again"),
                _ => {}
            }
            was_ready = answer.is_ok();
            health.set(was_ready, !self.is_draining() && self.liveness.problem().is_none()).await;
            tokio::time::sleep(EVERY.saturating_sub(begun.elapsed()).max(PAUSE_MIN)).await;
        }
    }

    /// Returns the answer to a health check. If there is no recent view (after the start or a pause of the
    /// process), waits for the next one.
    pub(crate) async fn check(&self) -> Answer {
        let is_fresh = |view: &Option<View>| {
            self.is_draining() || view.as_ref().is_some_and(|view| view.begun.elapsed() < FRESH)
        };
        let mut view = self.view.subscribe();
        let _ = tokio::time::timeout(CHECK_LIMIT, view.wait_for(is_fresh)).await;
        self.judge()
    }

    /// Returns, for each worker and server, whether the server answered the worker.
    pub(crate) fn links(&self) -> Vec<(usize, String, bool)> {
        let view = self.view.borrow();
        let workers = view.iter().flat_map(|view| view.workers.iter().enumerate());
        let of_worker = |(worker, found): (usize, &Option<Findings>)| {
            let found = found.iter().flat_map(named);
            let is_up = |(name, why): (&str, &Option<String>)| (worker, name.into(), why.is_none());
            found.map(is_up).collect::<Vec<_>>()
        };
        workers.flat_map(of_worker).collect()
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Returns the answer from the last known state.
    pub(crate) fn judge(&self) -> Answer {
        if self.is_draining() {
            return Err("draining".to_owned());
        }
        if let Some(problem) = self.liveness.problem() {
            return Err(problem);
        }
        let view = self.view.borrow();
        let Some(view) = view.as_ref().filter(|view| view.begun.elapsed() < STALE) else {
            return Err("the workers were not asked yet".to_owned());
        };
        let answer = judge(*self.rule.read(), &view.workers);
        let out = self.out();
        answer.map(|text| text + &out).map_err(|why| why + &out)
    }
}

impl Readiness {
    /// Returns a line for each server that is out of the ring or slow, for each name that is not found, and one if the
    /// ring has no servers.
    fn out(&self) -> String {
        let mut text = String::new();
        let state = self.members.state();
        if self.members.has_ring() && state.seats.is_empty() {
            text.push_str("\nthe ring has no servers: no name was found");
        }
        for seat in &state.seats {
            let (name, standing) = (&seat.member.name, seat.member.standing());
            if let Some((reason, why)) = &standing.out {
                let reason = reason.name();
                let since_s = standing.since.elapsed().unwrap_or_default().as_secs();
                let _ =
                    write!(text, "\n{name} is out of the ring for {since_s} s ({reason}): {why}");
            } else if let Some(why) = &standing.slow {
                let _ = write!(text, "\n{name} is slow, and stays in the ring: {why}");
            }
        }
        for NameStatus { name, servers, failure } in self.members.names() {
            let Some(LookupFailure { why, since }) = failure else { continue };
            let since_s = since.elapsed().unwrap_or_default().as_secs();
            let kept = match servers {
                0 => "it has no servers yet".to_owned(),
                servers => format!("its last servers stay ({servers})"),
            };
            let _ = write!(text, "\n{name} is not found for {since_s} s; {kept}: {why}");
        }
        text
    }
}

/// Returns the names of the servers that a worker asked, with what it found.
fn named(found: &Findings) -> impl Iterator<Item = (&str, &Option<String>)> {
    let seats = found.ring.iter().flat_map(|ring| &ring.seats);
    seats.zip(&found.servers).map(|(seat, finding)| (&*seat.member.name, &finding.why))
}

/// The questions to all workers.
struct Round {
    /// The unanswered question of each worker, if there is one. Such a worker gets no second question.
    pending: Vec<Option<oneshot::Receiver<Findings>>>,
}

impl Round {
    async fn ask(&mut self, workers: &[Worker]) -> Vec<Option<Findings>> {
        let due = Instant::now() + WORKER_LIMIT;
        for (worker, pending) in workers.iter().zip(&mut self.pending) {
            let is_over = pending.as_mut().is_none_or(|pending| {
                // A late answer is from the last round and is dropped.
                !matches!(pending.try_recv(), Err(TryRecvError::Empty))
            });
            if is_over {
                let (answer_sender, answer_receiver) = oneshot::channel();
                worker.send(WorkerMessage::Probe(answer_sender));
                *pending = Some(answer_receiver);
            }
        }
        let mut found = Vec::with_capacity(workers.len());
        for pending in &mut self.pending {
            let Some(answer_receiver) = pending else {
                found.push(None);
                continue;
            };
            found.push(match tokio::time::timeout_at(due, answer_receiver).await {
                Ok(answer) => {
                    *pending = None;
                    answer.ok()
                }
                Err(_) => None,
            });
        }
        found
    }
}

fn judge(rule: ReadyWhen, workers: &[Option<Findings>]) -> Answer {
    let mut ready = Ok(());
    // The workers without an answer, by server and reason.
    let mut away: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (worker, found) in workers.iter().enumerate() {
        let Some(found) = found else {
            let limit = WORKER_LIMIT.as_millis();
            ready = ready.and(Err(format!("worker {worker} did not answer within {limit} ms")));
            continue;
        };
        let servers = found.servers.len();
        let answered = found.servers.iter().filter(|finding| finding.why.is_none()).count();
        // A ring whose names were not found is as good as one whose servers are all away.
        let wanted = rule.wanted(servers).max(usize::from(found.ring.is_some()));
        if answered < wanted {
            ready = ready.and(Err(format!(
                "worker {worker} has answers of {answered} of {servers} servers, and \
                 server.ready_when = \"{}\" wants {wanted}",
                rule.name()
            )));
        }
        for (server, why) in named(found) {
            if let Some(why) = why {
                away.entry((server, why)).or_default().push(worker);
            }
        }
    }
    let mut text = match &ready {
        Ok(()) => "ok".to_owned(),
        Err(why) => why.clone(),
    };
    for ((server, why), workers) in away {
        let workers: Vec<_> = workers.iter().map(ToString::to_string).collect();
        let _ = write!(text, "\n{server} is away for workers {}: {why}", workers.join(", "));
    }
    ready.map(|()| text.clone()).map_err(|_| text)
}

/// The time from the start of one round to the start of the next.
const EVERY: Duration = Duration::from_millis(500);
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The timeout of a worker's answer, including the time of its servers. It is short enough that changes show
/// within 2 s, even if one worker delays a round.
const WORKER_LIMIT: Duration = Duration::from_secs(1);
/// The age up to which a view is recent. A view can only be older if this thread did not run.
const FRESH: Duration = Duration::from_secs(2);
/// The age from which a view is ignored.
const STALE: Duration = Duration::from_secs(5);
/// The longest time that a health check waits for a recent view.
const CHECK_LIMIT: Duration = Duration::from_millis(1_500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, StoreConfig};
    use crate::probe::Finding;

    fn found(up: [bool; 3]) -> Option<Findings> {
        let config = Config {
            store: StoreConfig {
                url: "memcached://a:1,b:1,c:1".to_owned(),
                ..StoreConfig::default()
            },
            ..Config::default()
        };
        let url = config.store.url.parse().expect("three servers");
        let finding = |up: bool| Finding {
            why: (!up).then(|| "down: refused".to_owned()),
            ..Finding::default()
        };
        let ring = Some(Members::new(&Arc::new(config), &url, None).state());
        Some(Findings { ring, servers: up.map(finding).to_vec() })
    }

    fn embedded() -> Option<Findings> {
        Some(Findings { ring: None, servers: Vec::new() })
    }

    #[test]
    fn the_rule_says_how_many_servers_must_answer() {
        for (up, any, most, all) in [
            ([true, true, true], true, true, true),
            ([true, true, false], true, true, false),
            ([true, false, false], true, false, false),
            ([false, false, false], false, false, false),
        ] {
            for (rule, wanted) in
                [(ReadyWhen::Any, any), (ReadyWhen::Most, most), (ReadyWhen::All, all)]
            {
                let answer = judge(rule, &[found(up)]);
                assert_eq!(answer.is_ok(), wanted, "{up:?} {rule:?} {answer:?}");
            }
        }
    }

    #[test]
    fn servers_that_are_away_are_named_with_the_workers() {
        let workers = [found([true, false, true]), found([true, false, true])];
        let verdict = judge(ReadyWhen::Any, &workers);
        assert_eq!(verdict, Ok("ok\nb:1 is away for workers 0, 1: down: refused".to_owned()));
    }

    #[test]
    fn every_worker_must_be_ready() {
        let workers = [found([true; 3]), found([false; 3])];
        let why = judge(ReadyWhen::Any, &workers).expect_err("worker 1 has none");
        assert!(why.starts_with("worker 1 has answers of 0 of 3 servers"), "{why}");
        let why = judge(ReadyWhen::Any, &[embedded(), None]).expect_err("one is stuck");
        assert_eq!(why, "worker 1 did not answer within 1000 ms");
    }

    #[test]
    fn the_embedded_store_is_ready_by_any_rule() {
        for rule in [ReadyWhen::Any, ReadyWhen::Most, ReadyWhen::All] {
            assert_eq!(judge(rule, &[embedded()]), Ok("ok".to_owned()));
        }
    }
}
